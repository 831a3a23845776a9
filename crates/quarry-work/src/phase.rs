//! Parts of a run that all CPUs begin together.

use std::cell::RefCell;

use quarry_core::machine::{CpuId, Cpus as _};
use quarry_sim::time::TimeCounters;
use quarry_sim::{Rng, VirtualMachine};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::WorkError;

/// Times of a phase, or of several alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    /// Time of all CPUs together.
    all_ps: u64,
    /// Time of the slowest CPU.
    slowest_ps: u64,
    /// Time by cause.
    pub(crate) spent: TimeCounters,
}

/// Times of an operation.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct PhaseReport {
    /// Nanoseconds that an operation takes its CPU, as the mean of all CPUs.
    pub ns: f64,
    /// The same in cycles.
    pub cycles: f64,
    /// Operations of all CPUs per second, until the slowest CPU is done.
    pub per_second: f64,
}

impl PhaseReport {
    /// Operations of all CPUs a second if each is done in these phases, one after the other.
    pub(crate) fn in_turn(phases: impl IntoIterator<Item = Self>) -> f64 {
        let seconds = phases.into_iter().map(|phase| 1.0 / phase.per_second);
        1.0 / seconds.sum::<f64>()
    }
}

/// Ends the body of a CPU: the machine's memory is exhausted.
pub(crate) struct NoMemory;

/// The machine and the load of a phase.
pub(crate) struct Of<'a> {
    pub(crate) machine: &'a VirtualMachine,
    /// Things for which there may be no memory.
    pub(crate) what: &'static str,
    /// Decides how far apart the CPUs begin.
    pub(crate) seed: u64,
    /// Time within which they all begin.
    pub(crate) within_ns: u64,
}

/// CPUs that begin a phase together do so within this time: they see the word for it one after the other.
pub(crate) const SKEW_NS: u64 = 1000;

impl Of<'_> {
    /// When each CPU begins a phase that cannot begin before `start_ns`.
    fn starts_ns(&self, start_ns: u64) -> Vec<u64> {
        let mut rng = Rng::new(self.seed ^ start_ns);
        let cpus = self.machine.topology().cpus;
        (0..cpus)
            .map(|_| start_ns + rng.below(self.within_ns.max(1)))
            .collect()
    }
}

impl Phase {
    /// Lets all CPUs do something, which they begin together, or as far apart as `of` says.
    pub(crate) fn run(
        of: &Of<'_>,
        body: impl Fn(CpuId) -> Result<(), NoMemory>,
    ) -> Result<Self, WorkError> {
        let machine = of.machine;
        let start = machine.time_counters().unwrap_or_default();
        let start_ns = start.cpu_ps.iter().max().map_or(0, |ps| ps.div_ceil(1000));
        let starts_ns = of.starts_ns(start_ns);
        let failed = RefCell::new(None);
        let phase = RefCell::new(Self::default());
        let ran = machine.run_cpus(|cpu| {
            machine.advance_to(starts_ns[cpu.0 as usize]);
            let began_ps = machine.clock_ps();
            if let Err(NoMemory) = body(cpu) {
                failed.borrow_mut().get_or_insert(cpu);
            }
            machine.wait_for_reads();
            let took_ps = machine.clock_ps() - began_ps;
            let mut phase = phase.borrow_mut();
            phase.all_ps += took_ps;
            phase.slowest_ps = phase.slowest_ps.max(took_ps);
        });
        ran?;
        if failed.into_inner().is_some() {
            return Err(WorkError::Exhausted(of.what));
        }
        let end = machine.time_counters().unwrap_or_default();
        Ok(Self {
            spent: end.since(&start),
            ..phase.into_inner()
        })
    }

    /// Nanoseconds of the slowest CPU.
    pub(crate) fn slowest_ns(&self) -> u64 {
        self.slowest_ps / 1000
    }

    /// Another phase followed, which is one of the same kind.
    pub(crate) fn add(&mut self, other: &Self) {
        self.all_ps += other.all_ps;
        self.slowest_ps += other.slowest_ps;
        self.spent.add(&other.spent);
    }

    /// Report per operation of n, on cores of this clock.
    pub(crate) fn report(&self, operations: u64, ghz: f64) -> PhaseReport {
        let ns = self.all_ps as f64 / 1000.0 / operations as f64;
        PhaseReport {
            ns,
            cycles: ns * ghz,
            per_second: operations as f64 / (self.slowest_ps as f64 / 1e12),
        }
    }
}
