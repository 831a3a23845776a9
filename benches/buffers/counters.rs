//! The kernel's counters of this process, threads that it makes included.

use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, Counter};

/// Names of the counters, in the order of [`Counts`].
pub(crate) const NAMES: [&str; 3] = ["cache misses", "page faults", "context switches"];

/// Events of each counter; `None` if the machine does not have it.
pub(crate) type Counts = [Option<u64>; NAMES.len()];

/// The counters that the machine has.
pub(crate) struct Counters([Option<Counter>; NAMES.len()]);

impl Counters {
    pub(crate) fn open() -> Self {
        Self([
            open(Hardware::CACHE_MISSES),
            open(Software::PAGE_FAULTS),
            open(Software::CONTEXT_SWITCHES),
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

/// A running counter of user space; of everything, if it is one of the kernel's own.
fn open(event: impl Event + Clone) -> Option<Counter> {
    let open = |kernel: bool| {
        let mut builder = Builder::new(event.clone());
        builder.inherit(true).exclude_kernel(!kernel);
        let mut counter = builder.build().ok()?;
        counter.enable().ok()?;
        Some(counter)
    };
    open(true).or_else(|| open(false))
}
