//! Progress of runs, and their end before their own.

/// Follows runs and may end them. All threads that run call it.
///
/// A closure that takes the number of steps follows runs, and never ends one.
pub trait Progress: Sync {
    /// Called with the number of steps that were done since the last call.
    fn advance(&self, steps: u64);

    /// True if the runs shall end at once, with an error that says so. Runs ask many times a second.
    fn is_stopped(&self) -> bool {
        false
    }
}

impl<F: Fn(u64) + Sync> Progress for F {
    fn advance(&self, steps: u64) {
        self(steps);
    }
}
