//! The common beginning and end of a run's threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Gate at which threads wait until all have come, and which they leave when they end.
#[derive(Default)]
pub(super) struct Gate {
    /// Threads that have come and not left, and since when they may pass.
    state: Mutex<(u32, Option<Instant>)>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, (u32, Option<Instant>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the gate is open. Returns when it was opened.
    pub(super) fn pass(&self) -> Instant {
        let mut state = self.lock();
        state.0 += 1;
        self.changed.notify_all();
        loop {
            if let Some(opened) = state.1 {
                return opened;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Opens it when n threads have come. Returns when it was opened: before any of them passes.
    pub(super) fn open(&self, n: u32) -> Instant {
        let mut state = self.lock();
        while state.0 < n {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let now = Instant::now();
        state.1 = Some(now);
        self.changed.notify_all();
        now
    }

    /// A thread that has passed ends.
    pub(super) fn leave(&self) {
        self.lock().0 -= 1;
        self.changed.notify_all();
    }

    /// Waits until all threads have left, for this time at most. Returns whether they have.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), time, |state| state.0 > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.0 == 0
    }
}
