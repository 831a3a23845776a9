//! Placement: on which CPU the next operation runs.

use quarry_core::machine::{CpuId, Machine};
use quarry_sim::VirtualMachine;

/// How a test tells a machine where to run.
pub(crate) trait Placement<M: Machine> {
    /// The caller's next operations run on this CPU, as far as the machine can be told.
    fn run_on(&self, machine: &M, cpu: CpuId);
}

/// A virtual machine runs where it is told.
#[derive(Clone, Copy)]
pub(crate) struct Virtual;

impl Placement<VirtualMachine> for Virtual {
    fn run_on(&self, machine: &VirtualMachine, cpu: CpuId) {
        machine.run_on(cpu);
    }
}

/// The operating system decides: for machines whose CPUs are real.
#[derive(Clone, Copy)]
pub(crate) struct Anywhere;

impl<M: Machine> Placement<M> for Anywhere {
    fn run_on(&self, _machine: &M, _cpu: CpuId) {}
}
