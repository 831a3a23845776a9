//! Work that is due at intervals of the recording's clock.

/// Rounds of periodic work made up for after a pause in the recording: by then all queues are empty, and
/// what decays has reached its least.
const ROUNDS_MAX: u64 = 64;

/// Work that is due at intervals of the recording's clock, the first time an interval after the
/// first event.
pub(in super::super) struct Periodic {
    interval_ns: u64,
    /// `None` before the first event.
    next_ns: Option<u64>,
}

impl Periodic {
    pub(in super::super) const fn every(interval_ns: u64) -> Self {
        Self {
            interval_ns,
            next_ns: None,
        }
    }

    /// When it is due next; at once if no event was seen.
    pub(in super::super) fn due_ns(&self) -> u64 {
        self.next_ns.unwrap_or(0)
    }

    /// The moments that have come, oldest first, at most [`ROUNDS_MAX`].
    pub(in super::super) fn take(&mut self, now_ns: u64) -> impl Iterator<Item = u64> + use<> {
        let interval_ns = self.interval_ns;
        let due = match self.next_ns {
            Some(at) => now_ns
                .checked_sub(at)
                .map_or(0, |late| late / interval_ns + 1),
            None => 0,
        };
        self.next_ns = Some(match self.next_ns {
            Some(at) => at.saturating_add(due * interval_ns),
            None => now_ns.saturating_add(interval_ns),
        });
        let rounds = 0..due.min(ROUNDS_MAX);
        rounds.rev().map(move |round| now_ns - round * interval_ns)
    }
}
