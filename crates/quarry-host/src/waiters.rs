//! Threads that wait for a spin lock, so that signal handlers cannot close a circle.
//!
//! # Idea
//!
//! Code takes locks in a fixed order ([`LockClass::ORDER`]), but a signal handler starts anew on top of
//! whatever its thread holds. Two handlers can then wait for what each other's thread holds: T holds list lock
//! A, its handler wants B; W holds B, its handler wants A. Only handlers can wait *out of order*: for
//! a lock that does not rank above all that the thread holds. Every circle contains one that does. So a
//! waiting thread registers. A thread that waits for a lock of that thread tells
//! it to give up: to its caller the lock is then as good as re-entered.
//!
//! # Why no caller gets a wrong answer
//!
//! V sees the number of T's wait, and then looks at two things. It tells T only if T owns the lock that V
//! wants, and that lock ranks no lower than the one that T wants. Signals are blocked while a thread is
//! registered, so the owner is not a handler on top of the wait. Hence T does hold the lock and does wait
//! out of order.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use quarry_core::machine::{LockClass, RawLock};

use crate::os;

/// Threads that can be registered at the same time. Each is so for one pause only, so with more
/// waiting threads each still has a turn.
const PLACES: usize = 64;
const LEAVE: u64 = 1;
const RANK_SHIFT: u32 = 1;
const NUMBER_SHIFT: u32 = 8;
const _: () = assert!(LockClass::COUNT as u64 <= 1 << (NUMBER_SHIFT - RANK_SHIFT));

#[derive(Debug)]
struct Place {
    /// 0 if free.
    thread: AtomicUsize,
    /// Number of the wait, rank of its lock, and whether it has to leave; 0 if there is none.
    wait: AtomicU64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Waiters {
    places: [Place; PLACES],
    numbers: AtomicU64,
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        Self {
            places: [const {
                Place {
                    thread: AtomicUsize::new(0),
                    wait: AtomicU64::new(0),
                }
            }; PLACES],
            numbers: AtomicU64::new(1),
        }
    }

    /// Lets others run while the calling thread waits for a lock; `true` if it must give up.
    #[cold]
    pub(crate) fn wait(&self, lock: &RawLock, class: LockClass, me: usize, attempt: u32) -> bool {
        let signals = os::block_signals();
        let place = self.enter(me, class);
        self.tell(lock, class);
        os::pause(attempt);
        let told = place.is_some_and(Self::leave);
        os::restore_signals(&signals);
        told
    }

    fn enter(&self, me: usize, class: LockClass) -> Option<&Place> {
        let free = |place: &&Place| {
            place
                .thread
                .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        let place = self.places.iter().find(free)?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let wait = number << NUMBER_SHIFT | u64::from(class.rank()) << RANK_SHIFT;
        // Release: who sees this number also sees every lock released that this thread released
        // before (pairs with the Acquire in `tell`).
        place.wait.store(wait, Ordering::Release);
        Some(place)
    }

    fn leave(place: &Place) -> bool {
        let told = place.wait.swap(0, Ordering::Relaxed) & LEAVE != 0;
        // Release: the next user's number comes after the 0.
        place.thread.store(0, Ordering::Release);
        told
    }

    /// Tells the owner of a lock to leave if it waits out of order itself.
    fn tell(&self, lock: &RawLock, class: LockClass) {
        let owner = lock.owner();
        let theirs = |place: &&Place| place.thread.load(Ordering::Relaxed) == owner;
        for place in self.places.iter().filter(theirs).filter(|_| owner != 0) {
            // Acquire: pairs with the Release in `enter`; the loads below come after.
            let wait = place.wait.load(Ordering::Acquire);
            let wanted = (wait >> RANK_SHIFT) & 0x7f;
            if wait != 0
                && wanted <= u64::from(class.rank())
                && place.thread.load(Ordering::Relaxed) == owner
                && lock.owner() == owner
            {
                // Numbers are never used twice, so this hits the wait that was looked at or none.
                let _ = place.wait.compare_exchange(
                    wait,
                    wait | LEAVE,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
        }
    }
}
