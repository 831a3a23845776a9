//! Tasks that a scheduler moves between CPUs.

use std::rc::Rc;

use quarry_core::machine::CpuId;

use super::VirtualMachine;
use super::clocked::Running;
use crate::explore::{Explore, Explored, Explorer};
use crate::time::{Deadlock, Next, Order};

impl VirtualMachine {
    /// Lets a scheduler run tasks in simulated time.
    pub(crate) fn run_tasks(
        &self,
        all: impl FnOnce(&Order) -> Result<(), Deadlock>,
    ) -> Result<(), Deadlock> {
        let timed = self.timed();
        let mut cpus = Running::begin(self, None);
        let ran = all(timed.order());
        cpus.all_ended = ran.is_ok();
        ran
    }

    /// The same without time, in an order of CPUs that a seed chooses.
    pub(crate) fn explore_tasks(
        &self,
        how: &Explore,
        all: impl FnOnce(&Order) -> Result<(), Deadlock>,
    ) -> Result<Explored, Deadlock> {
        let explorer = Rc::new(Explorer::new(how, self.topology.cpus));
        let mut cpus = Running::begin(self, Some(Rc::clone(&explorer)));
        let ran = all(explorer.order());
        cpus.all_ended = ran.is_ok();
        ran.map(|()| explorer.explored())
    }

    /// True if CPUs that run side by side have clocks.
    pub(crate) fn has_time(&self) -> bool {
        self.clocked.get()
    }

    /// CPUs that share a last-level cache; all of a machine without clocks.
    pub(crate) fn cluster_cpus(&self) -> u32 {
        let costs = self.timed.as_ref().map(|timed| timed.cluster_cpus());
        costs.unwrap_or(self.topology.cpus)
    }

    /// Does what lets no other CPU run.
    pub(crate) fn on_order<R>(&self, f: impl FnOnce(&Order) -> R) -> R {
        match self.explorer.borrow().clone() {
            Some(explorer) => f(explorer.order()),
            None => f(self.timed().order()),
        }
    }

    /// Lets other CPUs go first: those whose clocks are behind, or one that the seed chooses.
    pub(crate) fn take_turn_among_tasks(&self) {
        let cpu = self.cpu.get();
        self.interrupt(|| self.on_order(Order::visible));
        self.set_running(cpu, cpu.0);
    }

    /// The running CPU leaves its task for another. Returns when a CPU, this one or another, runs the task again.
    pub(crate) fn leave_task(&self, next: Next) {
        self.interrupt(|| self.on_order(|order| order.leave_for(next)));
        self.arrive_on_cpu();
    }

    /// The running task is on the CPU whose turn it is.
    pub(crate) fn arrive_on_cpu(&self) {
        let cpu = self.on_order(Order::cpu);
        self.set_running(CpuId(cpu), cpu);
    }
}
