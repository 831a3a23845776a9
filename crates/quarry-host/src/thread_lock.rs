//! A lock that refuses its own owner, for what a signal handler may interrupt.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::{os, rseq};

/// A lock without data. Its owner is the thread that took it; that thread cannot take it again, as a signal handler of
/// it that waited would wait for ever.
///
/// # Examples
///
/// ```
/// use quarry_host::ThreadLock;
///
/// static LOCK: ThreadLock = ThreadLock::new();
/// assert!(LOCK.take());
/// assert!(!LOCK.take(), "this thread has it");
/// LOCK.give_back();
/// ```
#[derive(Debug, Default)]
pub struct ThreadLock {
    /// The owner's number, 0 if there is none.
    owner: AtomicUsize,
}

impl ThreadLock {
    /// A lock without an owner.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
        }
    }

    /// Takes the lock if it has no owner.
    pub(crate) fn try_take(&self) -> bool {
        // Acquire: pairs with the Release in `give_back`.
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let me = rseq::thread_pointer();
        let taken = self.owner.compare_exchange(0, me, order.0, order.1);
        taken.is_ok()
    }

    /// Waits for the lock and takes it; `false` at once if the calling thread has it already.
    #[must_use]
    pub fn take(&self) -> bool {
        let mut attempt = 0;
        while !self.try_take() {
            if self.is_mine() {
                return false;
            }
            os::pause_long(attempt);
            attempt = attempt.saturating_add(1);
        }
        true
    }

    /// True if the calling thread has the lock.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        // Relaxed: only this thread stores its own number.
        self.owner.load(Ordering::Relaxed) == rseq::thread_pointer()
    }

    /// Gives the lock back. In the child of a fork, its thread may give back what its parent's took.
    pub fn give_back(&self) {
        // Release: pairs with the Acquire in `take`.
        self.owner.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_owner_which_it_refuses() {
        let lock = ThreadLock::new();
        assert!(!lock.is_mine());
        assert!(lock.take() && lock.is_mine());
        assert!(!lock.take() && !lock.try_take());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| (lock.is_mine(), lock.try_take()));
            assert_eq!(other.join().expect("no panic"), (false, false));
            // It waits until the owner is done.
            let other = scope.spawn(|| lock.take() && lock.is_mine());
            lock.give_back();
            assert!(other.join().expect("no panic"));
        });
        assert!(
            !lock.is_mine() && !lock.try_take(),
            "the other thread has it"
        );
        lock.give_back();
        assert!(lock.try_take());
    }
}
