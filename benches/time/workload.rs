//! The workloads, and what the simulation says of them.

use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_machines::Machine;
use quarry_work::Causes;
use quarry_work::Setup;
use quarry_work::micro::{self, MicroSpec, Pattern};
use quarry_work::pages::{self, PagesSpec};

use crate::host::{Halves, Load, Micro, Pages, heap};

/// Objects of a CPU and round.
pub(crate) const COUNT: u32 = 1000;
/// Bytes of an object.
pub(crate) const OBJECT_BYTES: u32 = 256;
/// Objects of a call, for bulk calls.
pub(crate) const BULK: u32 = 16;
/// Pages of a CPU and round.
pub(crate) const PAGES: u32 = 256;
/// Memory of the machines.
pub(crate) const MEMORY_BYTES: u64 = 1 << 30;

/// Source of the objects, or pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Objects of SLUB of 6.18.
    Slub(Pattern),
    /// Objects of sheaves of 7.0.
    Sheaf(Pattern),
    /// Pages of order 0 of 6.18.
    Pages,
}

/// A workload on a number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) of: Of,
    pub(crate) cpus: usize,
}

impl Workload {
    /// All that can be run on a number of CPUs.
    pub(crate) fn all(cpus_max: usize) -> Vec<Self> {
        let patterns = [Pattern::Pair, Pattern::Batch, Pattern::Bulk, Pattern::Cross];
        let mut all = Vec::new();
        for cpus in 1..=cpus_max.min(2) {
            let possible = patterns
                .into_iter()
                .filter(|pattern| cpus > 1 || *pattern != Pattern::Cross);
            let of = possible.flat_map(|pattern| [Of::Slub(pattern), Of::Sheaf(pattern)]);
            all.extend(of.chain([Of::Pages]).map(|of| Self { of, cpus }));
        }
        all
    }

    pub(crate) fn name(&self) -> String {
        let (of, pattern) = match self.of {
            Of::Slub(pattern) => ("slub@6.18", pattern.name()),
            Of::Sheaf(pattern) => ("sheaf@7.0", pattern.name()),
            Of::Pages => ("pages@6.18", "order 0"),
        };
        let cpus = if self.cpus == 1 { "1 CPU" } else { "2 CPUs" };
        format!("{of} {pattern}, {cpus}")
    }

    /// The names of its halves.
    pub(crate) fn halves(&self) -> &'static [&'static str] {
        match self.of {
            Of::Slub(Pattern::Pair | Pattern::Bulk) | Of::Sheaf(Pattern::Pair | Pattern::Bulk) => {
                &["pair"]
            }
            _ => &["alloc", "free"],
        }
    }

    /// Runs `f` with the workload on this computer; objects are freed in the order of their allocation, or shuffled.
    pub(crate) fn on_host(&self, shuffled: bool, f: &mut dyn FnMut(&dyn Load)) {
        match self.of {
            Of::Slub(pattern) => {
                let heap = heap::<Slub>(self.cpus, Era::V6_18);
                f(&Micro::new(&heap, pattern, self.cpus, shuffled));
            }
            Of::Sheaf(pattern) => {
                let heap = heap::<SheafCache>(self.cpus, Era::V7_0);
                f(&Micro::new(&heap, pattern, self.cpus, shuffled));
            }
            Of::Pages => {
                let heap = heap::<Slub>(self.cpus, Era::V6_18);
                f(&Pages::new(&heap, self.cpus));
            }
        }
    }

    /// Simulated nanoseconds an operation, and their causes.
    pub(crate) fn simulated(&self, machine: &Machine) -> (Halves, Causes) {
        let spec = |pattern, era| MicroSpec {
            kmalloc: false,
            pattern,
            object_bytes: OBJECT_BYTES,
            count: COUNT,
            bulk: BULK,
            cpus: self.cpus as u32,
            rounds: 5,
            ..MicroSpec::new(Setup {
                memory_bytes: MEMORY_BYTES,
                ..Setup::new(era, machine.clone())
            })
        };
        let report = match self.of {
            Of::Slub(pattern) => micro::run::<Slub>(&spec(pattern, Era::V6_18)),
            Of::Sheaf(pattern) => micro::run::<SheafCache>(&spec(pattern, Era::V7_0)),
            Of::Pages => return self.simulated_pages(machine),
        };
        let report = report.expect("a run of this machine");
        (
            [report.alloc.ns, report.free.map_or(0.0, |free| free.ns)],
            report.causes,
        )
    }

    fn simulated_pages(&self, machine: &Machine) -> (Halves, Causes) {
        let report = pages::run(&PagesSpec {
            processes: self.cpus as u32,
            pages: PAGES,
            rounds: 5,
            ..PagesSpec::new(Setup {
                memory_bytes: MEMORY_BYTES,
                ..Setup::new(Era::V6_18, machine.clone())
            })
        });
        let report = report.expect("a run of this machine");
        ([report.fault.ns, report.free.ns], report.causes)
    }
}
