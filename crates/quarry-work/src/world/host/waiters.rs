//! Threads that wait for a change of a socket.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};

/// A condition of what a mutex protects, and how many threads wait for it.
///
/// A condition variable enters the kernel at each notification, whether a thread sleeps or was woken long ago. Kernels take a
/// task off its wait queue when they wake it, and so does this.
#[derive(Default)]
pub(super) struct Waiters {
    condition: Condvar,
    /// Threads that were not woken; too many after a wake-up without cause, which costs a notification. Relaxed everywhere, as
    /// it is used with the mutex held.
    waiting: AtomicU32,
}

impl Waiters {
    /// Waits, without the mutex. The caller looks again at what it waits for.
    pub(super) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.condition.wait(guard);
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the mutex back, and wakes a thread.
    pub(super) fn wake<T>(&self, guard: MutexGuard<'_, T>) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        self.waiting
            .store(waiting.saturating_sub(1), Ordering::Relaxed);
        drop(guard);
        if waiting > 0 {
            self.condition.notify_one();
        }
    }

    /// The same with all threads.
    pub(super) fn wake_all<T>(&self, guard: MutexGuard<'_, T>) {
        let waiting = self.waiting.swap(0, Ordering::Relaxed);
        drop(guard);
        if waiting > 0 {
            self.condition.notify_all();
        }
    }
}
