//! Placement: on which CPU the next operation runs.

use quarry_core::machine::{CpuId, Machine, NodeId};
use quarry_sim::VirtualMachine;

/// A test's way to choose the CPU that a machine runs on.
pub(crate) trait Placement<M: Machine>: Copy {
    /// The virtual machine that the machine stands on.
    fn on<'m>(&self, machine: &'m M) -> &'m VirtualMachine;

    /// Makes the caller's next operations run on this CPU.
    fn run_on(&self, machine: &M, cpu: CpuId) {
        self.on(machine).run_on(cpu);
    }

    /// The same with the number of a script, which is taken modulo the CPUs.
    fn go(&self, machine: &M, cpu: u16) {
        let cpus = machine.topology().cpus;
        self.run_on(machine, CpuId(u32::from(cpu) % cpus));
    }

    /// Moves the machine's clock.
    fn advance_to(&self, machine: &M, now_ns: u64) {
        self.on(machine).advance_to(now_ns);
    }
}

/// The node with the number of a script, which is taken modulo the nodes.
pub(crate) fn node_of<M: Machine>(machine: &M, node: u8) -> NodeId {
    NodeId(u32::from(node) % machine.topology().nodes)
}

/// A virtual machine runs on the CPU that the caller names.
#[derive(Clone, Copy)]
pub(crate) struct Virtual;

impl Placement<VirtualMachine> for Virtual {
    fn on<'m>(&self, machine: &'m VirtualMachine) -> &'m VirtualMachine {
        machine
    }
}
