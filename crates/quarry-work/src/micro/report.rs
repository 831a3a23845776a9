//! Result of a micro-benchmark.

use quarry_sim::time::TimeCounters;
use serde::Serialize;

use super::spec::{MicroSpec, Pattern};
use crate::causes::Causes;
use crate::phase::{Phase, PhaseReport};

/// Result of a run. With the pattern `pair` an operation is a pair; with `bulk` it is an object's share of a pair of
/// calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MicroReport {
    /// Name of the design.
    pub design: &'static str,
    /// Release whose rules held.
    pub era: &'static str,
    /// The machine.
    pub machine: String,
    /// Pattern of the CPUs' calls.
    pub pattern: &'static str,
    /// CPUs.
    pub cpus: u32,
    /// Bytes of an object.
    pub object_bytes: u32,
    /// Objects came from `kmalloc()`.
    pub kmalloc: bool,
    /// Objects of a call.
    pub bulk: u32,
    /// Bytes of a page.
    pub page_size: u64,
    /// Objects that were allocated and freed.
    pub objects: u64,
    /// Decides what is left to chance.
    pub seed: u64,
    /// Allocations; of `pair` and `bulk` pairs.
    pub alloc: PhaseReport,
    /// Frees; null of `pair` and `bulk`.
    pub free: Option<PhaseReport>,
    /// Objects that all CPUs allocate and free a second.
    pub per_second: f64,
    /// Time of an object's allocation and free, by cause.
    pub causes: Causes,
    /// Time of the whole run by cause, the round that is not counted included.
    #[serde(skip)]
    pub spent: TimeCounters,
}

impl MicroReport {
    pub(super) fn of(
        design: &'static str,
        spec: &MicroSpec,
        allocs: &Phase,
        frees: &Phase,
        all: TimeCounters,
    ) -> Self {
        let bulk = match spec.pattern {
            Pattern::Bulk => spec.bulk,
            _ => 1,
        };
        let own = u64::from(spec.count / bulk * bulk) * u64::from(spec.rounds);
        let objects = own * u64::from(spec.cpus);
        let ghz = spec.machine.ghz;
        let mut spent = allocs.spent.clone();
        spent.add(&frees.spent);
        let apart = matches!(spec.pattern, Pattern::Batch | Pattern::Cross);
        let alloc = allocs.report(objects, ghz);
        let free = apart.then(|| frees.report(objects, ghz));
        Self {
            design,
            era: spec.era.name(),
            machine: spec.machine.name.clone(),
            pattern: spec.pattern.name(),
            cpus: spec.cpus,
            object_bytes: spec.object_bytes,
            kmalloc: spec.kmalloc,
            bulk,
            page_size: spec.page_bytes,
            objects,
            seed: spec.seed,
            alloc,
            free,
            per_second: PhaseReport::in_turn([Some(alloc), free].into_iter().flatten()),
            causes: Causes::of(&spent, objects),
            spent: all,
        }
    }
}
