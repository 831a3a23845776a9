//! The interface between a run and its load.

use crate::net::NetRules;
use crate::world::Scenario;

/// Bytes of a message, at most.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Tasks of a run, at most: each has a stack of 256 KiB of address space.
const TASKS_MAX: u64 = 30_000;

/// [`Workload::virtual_only`] of a load whose connections leave the machine.
pub(super) const WITH_ANOTHER_MACHINE: &str = "with another machine";

/// A load: its sizes, and a function that sets it up. One is implemented in a file of its own, and is a variant of
/// [`Load`](super::Load).
pub(super) trait Workload {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// Unit of its size in the program's own words, and the size.
    fn size(&self) -> (&'static str, u32);

    fn tasks(&self) -> u64;

    fn connections(&self) -> u64;

    /// Bytes of its messages, of each direction.
    fn messages(&self) -> [u32; 2];

    /// Connects ends and adds tasks.
    fn set_up(&self, scenario: &mut Scenario, seed: u64);

    /// Bytes of the buffers that a connection has at once, at most. `message` is what the largest message takes.
    fn connection_bytes(&self, message: u64, _rules: &NetRules, _page_bytes: u64) -> u64 {
        // A request and a response: one is on its way, and the other one is not acknowledged.
        2 * message
    }

    /// Reason for which it runs on virtual machines only, behind its name; `None` if it also runs on real threads.
    fn virtual_only(&self) -> Option<&'static str> {
        None
    }

    /// Operations after which it ends by itself; `None` if it runs for a time.
    fn operations(&self) -> Option<u64> {
        None
    }

    /// Messages that fill a connection, of a load that ends by itself. Its tasks warm up until each receiver has taken as many.
    fn full(&self, _rules: &NetRules, _page_bytes: u64) -> u32 {
        0
    }

    /// Nanoseconds before counting, of a load that counts for this time.
    fn warm_up_ns(&self, time_ns: u64) -> u64 {
        time_ns / 10
    }

    /// Bytes of payload of a mean operation, where they are known beforehand.
    fn mean_bytes(&self) -> Option<f64> {
        None
    }

    /// Reason for which its parameters contradict each other, if they do.
    fn contradiction(&self) -> Option<String> {
        None
    }
}

/// Reason for which a load cannot be run; `None` if it can.
pub(super) fn refusal(load: &dyn Workload) -> Option<String> {
    let (unit, n) = load.size();
    if n == 0 {
        return Some(format!("{unit} must be at least 1"));
    }
    if let Some(reason) = load.contradiction() {
        return Some(reason);
    }
    let mut messages = load.messages().into_iter();
    if let Some(bytes) = messages.find(|bytes| !(1..=MESSAGE_BYTES_MAX).contains(bytes)) {
        return Some(format!(
            "a message must have 1 to {MESSAGE_BYTES_MAX} bytes, not {bytes}"
        ));
    }
    let tasks = load.tasks();
    (tasks > TASKS_MAX).then(|| {
        format!(
            "{unit} must make at most {TASKS_MAX} tasks, not {tasks}, which need {} MiB for their stacks alone",
            tasks / 4
        )
    })
}
