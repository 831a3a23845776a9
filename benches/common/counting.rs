//! The kernel's counters of events.

use perf_event::events::Event;
use perf_event::{Builder, Counter};

/// A running counter of the calling thread in user space; of the kernel as well, if it lets this. `None` if the machine has no such
/// counter, as most virtual machines.
pub(crate) fn open(event: impl Event + Clone, threads_it_makes: bool) -> Option<Counter> {
    let open = |kernel: bool| {
        let mut builder = Builder::new(event.clone());
        builder.inherit(threads_it_makes).exclude_kernel(!kernel);
        let mut counter = builder.build().ok()?;
        counter.enable().ok()?;
        Some(counter)
    };
    open(true).or_else(|| open(false))
}
