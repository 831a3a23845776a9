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
//! * If slots go by concurrency ids, X is an id, which may be in use on any CPU; the barrier has no FLAG_CPU then, and
//!   goes to all CPUs that run the process (`slot_index`).
//! * After the barrier every sequence on X that began before it has committed or will restart. One
//!   that begins later reads the claim (the barrier is a full one). So if C still stands after the
//!   barrier, it stands until its writer removes it.
//! * C must be unique. With one value for all, this happens: A claims; a sequence in flight
//!   commits over it and releases; A's barrier returns; another sequence reads 0; B claims with
//!   the same value, and A confirms B's claim as its own, without a barrier after it; the second
//!   sequence commits. The model checker finds it (`tests/loom.rs`, `equal_claims_clash`).
//! * Hand-over: release stores 0 with Release; the claim and the sequence's load acquire.
//!
//! # Waiting
//!
//! A thread that takes and releases the word in a loop has its cache line while it stores 0 and the next 1:
//! other CPUs find 1 almost always (measured: 0 to 5 claims in 4000 attempts). So a waiter marks the word:
//!
//! ```text
//!   word  1 --mark--> 4    (compare-and-swap; still held by the same thread)
//!   release: reads the word, stores 0; if it read 4, it lets the word rest for a while ([`let_in`])
//! ```
//!
//! A mark between the read and the store is lost, and the waiter sets it again. The mark gives no right to
//! the word: the waiter claims as above.
//!
//! In the fallback no thread overwrites the word, so a compare-and-swap to 2 is the whole acquisition.

use core::sync::atomic::Ordering;

use quarry_core::machine::{
    PERCPU_FREE, PERCPU_OWNER, PERCPU_QUIESCED, PERCPU_REMOTE, PERCPU_WAITED, SlotLock,
};

use crate::os;

/// Attempts of one acquisition; with the pauses of [`Kernel::pause`] a quarter of a second.
pub const ATTEMPTS: u32 = 1 << 19;

/// Attempts of an acquisition that must not wait: all of them before the first pause that gives up the CPU. More than
/// one, as a sequence in flight may take the claim away.
pub const ATTEMPTS_WITHOUT_WAITING: u32 = os::SPINS - 1;

/// Times that a thread that released a marked word gives up its CPU, on which the waiter may be.
const LET_IN_YIELDS: u32 = 8;

/// The lock word as a remote acquisition uses it.
pub trait Word {
    /// The word at this moment. Not ordered: [`Word::exchange`] decides.
    fn look(&self) -> u32;

    /// Stores `to` if the word is `from`, in one step; whether it was. Acquires on success: pairs
    /// with the Release by which the last holder stored 0.
    fn exchange(&self, from: u32, to: u32) -> bool;
}

impl Word for SlotLock {
    fn look(&self) -> u32 {
        self.word().load(Ordering::Relaxed)
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the Release in `SlotLock::release`.
        self.word()
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}

/// The operating system's part of the protocol.
pub trait Kernel {
    /// Restarts the sequences in flight on the word's CPU; `false` if that cannot be done.
    fn barrier(&self) -> bool;
    /// Waits a little, longer with the number of attempts.
    fn pause(&self, attempt: u32);
}

/// The claim of one acquisition, from the number of acquisitions so far: never 0 to 4.
#[must_use]
pub const fn claim(ticket: u32) -> u32 {
    5 + ticket % (u32::MAX - 4)
}

/// Takes a word whose own CPU uses restartable sequences. `claim` is not 0 to 4 and is used by no
/// other acquisition that overlaps with this one.
pub fn acquire<W: Word, K: Kernel>(word: &W, kernel: &K, claim: u32, attempts: u32) -> bool {
    poll(word, kernel, attempts, || {
        if !word.exchange(PERCPU_FREE, claim) {
            return Some(false);
        }
        if kernel.barrier() {
            return Some(word.exchange(claim, PERCPU_REMOTE));
        }
        // If this fails, a sequence committed over the claim, which is gone then.
        word.exchange(claim, PERCPU_FREE);
        None
    })
}

/// Takes a word that all threads take by compare-and-swap.
pub fn acquire_fallback<W: Word, K: Kernel>(word: &W, kernel: &K, attempts: u32) -> bool {
    poll(word, kernel, attempts, || {
        Some(word.exchange(PERCPU_FREE, PERCPU_REMOTE))
    })
}

/// Calls `take` when the word is free, until it has taken the word; `None` from it ends the attempts. A word
/// that is held for a fork ends them too: the fork waits for the caller in turn.
fn poll<W: Word, K: Kernel>(
    word: &W,
    kernel: &K,
    attempts: u32,
    take: impl Fn() -> Option<bool>,
) -> bool {
    for attempt in 0..attempts {
        match word.look() {
            PERCPU_FREE => match take() {
                Some(false) => {}
                Some(true) => return true,
                None => return false,
            },
            PERCPU_OWNER => {
                word.exchange(PERCPU_OWNER, PERCPU_WAITED);
            }
            PERCPU_QUIESCED => return false,
            _ => {}
        }
        kernel.pause(attempt);
    }
    false
}

/// Leaves a word alone that was just released, until the waiter that marked it has claimed it. Ends in
/// bounded time: the waiter may have given up, or may not run.
#[cold]
pub(crate) fn let_in(slot: &SlotLock) {
    for attempt in 0..os::SPINS + LET_IN_YIELDS {
        if slot.word().load(Ordering::Relaxed) != PERCPU_FREE {
            return;
        }
        os::pause(attempt);
    }
}
