//! Placement: on which CPU the next operation runs.

use quarry_core::machine::{CpuId, Machine};
use quarry_sim::VirtualMachine;

/// How a test tells a machine where to run.
pub(crate) trait Placement<M: Machine> {
    /// Makes the caller's next operations run on this CPU, if the machine lets tests choose.
    fn run_on(&self, machine: &M, cpu: CpuId);

    /// Moves the machine's clock, if the machine lets tests do so.
    fn advance_to(&self, machine: &M, now_ns: u64);
}

/// A virtual machine runs on the CPU that the caller names.
#[derive(Clone, Copy)]
pub(crate) struct Virtual;

impl Placement<VirtualMachine> for Virtual {
    fn run_on(&self, machine: &VirtualMachine, cpu: CpuId) {
        machine.run_on(cpu);
    }

    fn advance_to(&self, machine: &VirtualMachine, now_ns: u64) {
        machine.advance_to(now_ns);
    }
}
