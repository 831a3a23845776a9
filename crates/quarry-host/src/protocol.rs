//! Taking the lock word of another CPU's slot.
//!
//! # Idea
//!
//! A restartable sequence on CPU X reads the word, sees 0 and stores 1; nothing but the kernel
//! can come between. A compare-and-swap from elsewhere is not enough: it may land between the
//! read and the store, which then overwrites it. So the remote side claims first, makes the kernel
//! restart what is in flight on X, and looks again:
//!
//! ```text
//!   word  0 --claim--> C     (compare-and-swap; C is a number used by this acquisition alone)
//!              membarrier(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, X)
//!         C --confirm--> 2   (compare-and-swap) owned: work, release with 0
//!         not C: a sequence in flight committed 1 over the claim, and may have released since;
//!                the claim is gone, back off and try again
//! ```
//!
//! # Why it is right
//!
//! * After the barrier every sequence on X that began before it has committed or will restart, and
//!   one that begins later reads the claim (the barrier is a full one). So if C still stands after
//!   the barrier, it stands until its writer removes it.
//! * C must be unique. With one value for all, this happens: A claims; a sequence in flight
//!   commits over it and releases; A's barrier returns; another sequence reads 0; B claims with
//!   the same value, and A confirms B's claim as its own, without a barrier after it; the second
//!   sequence commits. The model checker finds it (`tests/loom.rs`, `equal_claims_clash`).
//! * Hand-over: release stores 0 with Release; the claim and the sequence's load acquire.
//!
//! In the fallback no thread overwrites the word, so a compare-and-swap to 2 is the whole acquisition.

use core::sync::atomic::Ordering;

use quarry_core::machine::{PERCPU_FREE, PERCPU_QUIESCED, PERCPU_REMOTE, SlotLock};

/// Attempts of one acquisition; with the pauses of [`Kernel::pause`] a quarter of a second.
pub const ATTEMPTS: u32 = 4096;

/// The lock word as a remote acquisition uses it.
pub trait Word {
    /// Stores `to` if the word is `from`, in one step; whether it was. Acquires on success: pairs
    /// with the Release by which the last holder stored 0.
    fn exchange(&self, from: u32, to: u32) -> bool;

    /// Whether the word is held for a fork, which waits for the caller in turn.
    fn quiesced(&self) -> bool {
        false
    }
}

impl Word for SlotLock {
    fn exchange(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the Release in `SlotLock::release`.
        self.word()
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn quiesced(&self) -> bool {
        self.word().load(Ordering::Relaxed) == PERCPU_QUIESCED
    }
}

/// What the protocol needs from the operating system.
pub trait Kernel {
    /// Restarts the sequences in flight on the word's CPU; `false` if that cannot be done.
    fn barrier(&self) -> bool;
    /// Waits a little, longer with the number of attempts.
    fn pause(&self, attempt: u32);
}

/// The claim of one acquisition, from the number of acquisitions so far: never 0 to 3.
#[must_use]
pub const fn claim(ticket: u32) -> u32 {
    4 + ticket % (u32::MAX - 3)
}

/// Takes a word whose own CPU uses restartable sequences. `claim` is not 0 to 3 and is used by no
/// other acquisition that overlaps with this one.
pub fn acquire<W: Word, K: Kernel>(word: &W, kernel: &K, claim: u32, attempts: u32) -> bool {
    for attempt in 0..attempts {
        if word.exchange(PERCPU_FREE, claim) {
            if !kernel.barrier() {
                // If this fails, a sequence committed over the claim, which is gone then.
                word.exchange(claim, PERCPU_FREE);
                return false;
            }
            if word.exchange(claim, PERCPU_REMOTE) {
                return true;
            }
        } else if word.quiesced() {
            return false;
        }
        kernel.pause(attempt);
    }
    false
}

/// Takes a word that all threads take by compare-and-swap.
pub fn acquire_fallback<W: Word, K: Kernel>(word: &W, kernel: &K, attempts: u32) -> bool {
    for attempt in 0..attempts {
        if word.exchange(PERCPU_FREE, PERCPU_REMOTE) {
            return true;
        }
        if word.quiesced() {
            return false;
        }
        kernel.pause(attempt);
    }
    false
}
