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

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};

    use super::*;

    /// A word, and a kernel whose barriers and pauses change it.
    struct Machine {
        word: Cell<u32>,
        works: bool,
        /// Stored by the first barrier: a sequence in flight commits over the claim.
        commit: Cell<Option<u32>>,
        /// Stored by the first pause: the holder lets go.
        release: Cell<Option<u32>>,
        barriers: Cell<u32>,
        pauses: RefCell<Vec<u32>>,
    }

    impl Machine {
        fn new(word: u32) -> Self {
            Self {
                word: Cell::new(word),
                works: true,
                commit: Cell::new(None),
                release: Cell::new(None),
                barriers: Cell::new(0),
                pauses: RefCell::default(),
            }
        }

        fn store(&self, change: &Cell<Option<u32>>) {
            if let Some(word) = change.take() {
                self.word.set(word);
            }
        }

        fn acquire(&self, attempts: u32) -> bool {
            acquire(self, self, claim(7), attempts)
        }
    }

    impl Word for Machine {
        fn look(&self) -> u32 {
            self.word.get()
        }

        fn exchange(&self, from: u32, to: u32) -> bool {
            let is_from = self.word.get() == from;
            if is_from {
                self.word.set(to);
            }
            is_from
        }
    }

    impl Kernel for Machine {
        fn barrier(&self) -> bool {
            assert_eq!(self.word.get(), claim(7), "the claim comes first");
            self.barriers.set(self.barriers.get() + 1);
            self.store(&self.commit);
            self.works
        }

        fn pause(&self, attempt: u32) {
            self.pauses.borrow_mut().push(attempt);
            self.store(&self.release);
        }
    }

    #[test]
    fn a_free_word_is_claimed_and_confirmed() {
        let machine = Machine::new(PERCPU_FREE);
        assert!(machine.acquire(1));
        assert_eq!(
            (machine.word.get(), machine.barriers.get()),
            (PERCPU_REMOTE, 1)
        );
        assert_eq!(*machine.pauses.borrow(), []);
        let machine = Machine::new(PERCPU_FREE);
        assert!(acquire_fallback(&machine, &machine, 1));
        assert_eq!(
            (machine.word.get(), machine.barriers.get()),
            (PERCPU_REMOTE, 0)
        );
    }

    #[test]
    fn a_claim_that_cannot_be_confirmed_is_taken_back() {
        let machine = Machine {
            works: false,
            ..Machine::new(PERCPU_FREE)
        };
        assert!(!machine.acquire(10));
        assert_eq!(
            (machine.word.get(), machine.barriers.get()),
            (PERCPU_FREE, 1)
        );
        assert_eq!(*machine.pauses.borrow(), []);
    }

    /// The sequence in flight has the word then; the waiter marks it and claims again when it is free.
    #[test]
    fn a_sequence_in_flight_wins() {
        let machine = Machine::new(PERCPU_FREE);
        machine.commit.set(Some(PERCPU_OWNER));
        assert!(!machine.acquire(3));
        assert_eq!(
            (machine.word.get(), machine.barriers.get()),
            (PERCPU_WAITED, 1)
        );
        assert_eq!(*machine.pauses.borrow(), [0, 1, 2]);
        machine.release.set(Some(PERCPU_FREE));
        assert!(machine.acquire(2));
        assert_eq!(machine.word.get(), PERCPU_REMOTE);
    }

    #[test]
    fn a_word_that_stays_held_is_marked_and_given_up() {
        for (word, left) in [
            (PERCPU_OWNER, PERCPU_WAITED),
            (PERCPU_REMOTE, PERCPU_REMOTE),
        ] {
            let machine = Machine::new(word);
            assert!(!machine.acquire(2));
            assert!(!acquire_fallback(&machine, &machine, 2));
            assert_eq!((machine.word.get(), machine.barriers.get()), (left, 0));
            assert_eq!(*machine.pauses.borrow(), [0, 1, 0, 1]);
        }
    }

    /// The fork waits for the caller in turn.
    #[test]
    fn a_word_held_for_a_fork_is_not_waited_for() {
        let machine = Machine::new(PERCPU_QUIESCED);
        assert!(!machine.acquire(ATTEMPTS));
        assert!(!acquire_fallback(&machine, &machine, ATTEMPTS));
        assert_eq!(machine.word.get(), PERCPU_QUIESCED);
        assert_eq!(*machine.pauses.borrow(), []);
    }

    /// Claims go round without a value that means something else.
    #[test]
    fn claims_are_no_states() {
        assert_eq!([0, 1, 2].map(claim), [5, 6, 7]);
        assert_eq!(claim(u32::MAX - 5), u32::MAX);
        assert_eq!(claim(u32::MAX - 4), 5);
        let states = [
            PERCPU_FREE,
            PERCPU_OWNER,
            PERCPU_REMOTE,
            PERCPU_QUIESCED,
            PERCPU_WAITED,
        ];
        assert!(states.iter().all(|state| *state < claim(0)));
    }

    /// Attempts that must not wait end before the first yield; those that may go on long after it.
    #[test]
    fn attempts_without_waiting_only_spin() {
        assert!((2..os::SPINS).contains(&ATTEMPTS_WITHOUT_WAITING));
        const { assert!(ATTEMPTS > 1000 * os::SPINS) };
    }

    #[test]
    fn a_slots_word_is_read_and_exchanged() {
        // SAFETY: a slot's word is an atomic number, and 0 is a free one (`PERCPU_FREE`).
        let slot: SlotLock = unsafe { core::mem::zeroed() };
        assert_eq!(slot.look(), PERCPU_FREE);
        assert!(!slot.exchange(PERCPU_OWNER, PERCPU_WAITED));
        assert!(slot.exchange(PERCPU_FREE, PERCPU_REMOTE));
        assert_eq!(slot.look(), PERCPU_REMOTE);
    }
}
