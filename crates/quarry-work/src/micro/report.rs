//! Result of a micro-benchmark.

use quarry_sim::time::TimeCounters;
use schemars::JsonSchema;
use serde::Serialize;

use super::spec::{MicroSpec, Pattern};
use crate::causes::Causes;
use crate::phase::{Phase, PhaseReport};

/// Results of a run. An operation is a pair for the pattern `pair`, and an object's share of a pair of calls
/// for `bulk`.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct MicroReport {
    /// Design.
    pub design: &'static str,
    /// Kernel release whose rules apply.
    pub era: &'static str,
    /// Machine whose time is simulated (`quarry machines`).
    pub machine: String,
    /// Pattern: `batch`, `pair`, `cross`, `spread` or `bulk`.
    pub pattern: &'static str,
    /// CPUs that run the pattern at the same time.
    pub cpus: u32,
    /// Bytes of an object.
    pub object_bytes: u32,
    /// True if objects came from `kmalloc()` and not from a cache of their own.
    pub kmalloc: bool,
    /// Objects per call; 1 except for `bulk`.
    pub bulk: u32,
    /// Node that the objects were asked of; null for that of the CPU.
    pub node: Option<u32>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Objects that were allocated and freed.
    pub objects: u64,
    /// `--seed`: decides all that is left to chance.
    pub seed: u64,
    /// Times of an allocation; of a pair for `pair` and `bulk`.
    pub alloc: PhaseReport,
    /// Times of a free; null for `pair` and `bulk`.
    pub free: Option<PhaseReport>,
    /// Nanoseconds that an object's allocation and free take together.
    pub object_ns: f64,
    /// Part of the objects that came from other nodes than the one they were asked of, from 0 to 1; null if no node was asked.
    pub other_node: Option<f64>,
    /// Most bytes of pages that were slabs at once.
    pub peak_slab_bytes: u64,
    /// Bytes of pages that are slabs at the end, when all objects are freed.
    pub final_slab_bytes: u64,
    /// Objects that all CPUs allocate and free per second.
    pub per_second: f64,
    /// Causes of the time of an object's allocation and free.
    pub causes: Causes,
    /// Time counters of the machine over the whole run, with the round that is not counted.
    #[serde(skip)]
    pub spent: TimeCounters,
}

/// Memory of a run.
pub(super) struct Memory {
    /// Most pages that were slabs, and those at the end.
    pub(super) slab_pages: [u64; 2],
    /// Objects that came from other nodes than the one they were asked of.
    pub(super) elsewhere: u64,
}

impl MicroReport {
    pub(super) fn of(
        design: &'static str,
        spec: &MicroSpec,
        allocs: &Phase,
        frees: &Phase,
        all: TimeCounters,
        memory: &Memory,
    ) -> Self {
        let bulk = match spec.pattern {
            Pattern::Bulk => spec.bulk,
            _ => 1,
        };
        let own = u64::from(spec.count / bulk * bulk) * u64::from(spec.rounds);
        let objects = match spec.pattern {
            Pattern::Spread => own,
            _ => own * u64::from(spec.cpus),
        };
        let ghz = spec.setup.machine.ghz;
        let mut spent = allocs.spent.clone();
        spent.add(&frees.spent);
        let apart = !matches!(spec.pattern, Pattern::Pair | Pattern::Bulk);
        let alloc = allocs.report(objects, ghz);
        let free = apart.then(|| frees.report(objects, ghz));
        let [peak_slab_bytes, final_slab_bytes] =
            memory.slab_pages.map(|pages| pages * spec.setup.page_bytes);
        Self {
            design,
            era: spec.setup.era.name(),
            machine: spec.setup.machine.name.clone(),
            pattern: spec.pattern.name(),
            cpus: spec.cpus,
            object_bytes: spec.object_bytes,
            kmalloc: spec.kmalloc,
            bulk,
            node: spec.node,
            page_size: spec.setup.page_bytes,
            objects,
            seed: spec.setup.seed,
            alloc,
            free,
            object_ns: alloc.ns + free.map_or(0.0, |free| free.ns),
            other_node: spec.node.map(|_| memory.elsewhere as f64 / objects as f64),
            peak_slab_bytes,
            final_slab_bytes,
            per_second: PhaseReport::in_turn([Some(alloc), free].into_iter().flatten()),
            causes: Causes::of(&spent, objects),
            spent: all,
        }
    }
}
