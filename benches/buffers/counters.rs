//! The kernel's counters of this process, threads that it makes included.

use perf_event::Counter;
use perf_event::events::{Hardware, Software};

use crate::counting::open;

/// Names of the counters, in the order of [`Counts`].
pub(crate) const NAMES: [&str; 3] = ["cache misses", "page faults", "context switches"];

/// Events of each counter; `None` if the machine does not have it.
pub(crate) type Counts = [Option<u64>; NAMES.len()];

/// The counters that the machine has.
pub(crate) struct Counters([Option<Counter>; NAMES.len()]);

impl Counters {
    pub(crate) fn open() -> Self {
        Self([
            open(Hardware::CACHE_MISSES, true),
            open(Software::PAGE_FAULTS, true),
            open(Software::CONTEXT_SWITCHES, true),
        ])
    }

    /// Events during `f`; `None` if it says that it did nothing.
    pub(crate) fn around(&mut self, f: impl FnOnce() -> bool) -> Option<Counts> {
        // Counters of threads are added to their parent's when they end, so none is reset.
        let before = self.read();
        f().then(|| {
            let mut counts = self.read();
            for (count, before) in counts.iter_mut().zip(before) {
                *count = count.zip(before).map(|(count, before)| count - before);
            }
            counts
        })
    }

    fn read(&mut self) -> Counts {
        self.0
            .each_mut()
            .map(|counter| counter.as_mut()?.read().ok())
    }
}
