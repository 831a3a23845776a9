//! Micro-benchmarks.

use quarry_ask::{Axis, Bytes, DesignName, Listed, PageBytes, Settings, Size, question};
use quarry_designs::DesignSpec;
use quarry_machines::Machine;
use quarry_work::micro::{MicroSpec, Pattern};
use quarry_work::{NodeFree, Setup, WorkError, run_all};

use super::Clock;
use super::answers::{Answer, Answers, Cost, How, InputSize, Ready};
use super::load::{memory_bytes, page_bytes, tunings};
use crate::error::LabError;

/// Designs that are compared if none is named.
const DESIGNS: [&str; 4] = ["slab@6.1", "slob@6.1", "slub@6.17", "sheaf@7.0"];
/// Patterns if none is named.
const PATTERNS: [Pattern; 2] = [Pattern::Batch, Pattern::Pair];
/// Objects of a call.
const BULK: u32 = 16;

question! {
    /// Micro-benchmarks of kernel developers.
    pub struct Micro {
        /// Machine and seed.
        clock: Clock;
        /// Memory of each virtual machine. Only what is used becomes resident.
        memory: Axis<Bytes> = "16G", value("BYTES");
        /// Designs, each with an era.
        design: Axis<DesignName> = "slab@6.1,slob@6.1,slub@6.17,sheaf@7.0", value("DESIGN[@ERA]"), inner();
        /// Page size: 4k, 16k, 64k.
        page_size: Axis<PageBytes> = "4k", value("BYTES");
        /// CPUs that do it at the same time, all on one cache.
        cpus: Axis<u32> = "1", value("N"), inner();
        /// Patterns: batch, pair, cross, spread, bulk.
        pattern: Axis<Pattern> = "batch,pair", value("NAME"), inner();
        /// Bytes of an object.
        size: Axis<Size> = "256", value("BYTES"), inner();
        /// Allocate with kmalloc() of the size, as slab_test does, and not from a cache of this size.
        /// Not with pattern bulk.
        kmalloc: Axis<bool>;
        /// Objects that each CPU allocates and frees in a round.
        count: Axis<u32> = "10000", value("N");
        /// Objects of a call, for pattern bulk: 1 to 1024.
        bulk: Axis<u32> = "16", value("N"), inner();
        /// Rounds that are counted, after one that fills caches and lists.
        rounds: Axis<u32> = "3", value("N");
        /// Ask for objects of this node's memory, as kmalloc_node() does; by default of the running CPU's. The machine then
        /// has all of its CPUs, and the first ones do it. Not with pattern bulk.
        node: Axis<u32>, value("N"), inner();
        /// Memory of a node that is free before the run, as numactl --hardware shows it: 1:256M. Others use the rest; may be
        /// repeated. Nodes have equal parts of --memory.
        node_free: Listed<NodeFree>, value("NODE:BYTES");
        /// Set a tunable; may be repeated. For one design: slub.cpu_partial=0, slub@6.1.cpu_partial=0;
        /// a sysctl of the page allocator: page.min_free_kbytes=8192.
        set: Settings, value("[DESIGN[@ERA].]NAME=VALUE");
    }
}

/// A run of a micro-benchmark on a design.
#[derive(Clone, Debug)]
pub struct MicroRun {
    /// The design.
    pub design: DesignSpec,
    /// All else.
    pub spec: MicroSpec,
}

impl Micro {
    /// All runs on a machine: each page size, pattern, size, number of CPUs, number of objects a call, node, and design.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if a design or a tunable does not exist, a number is out of range, or the machine cannot have the
    /// CPUs.
    pub fn runs(&self) -> Result<(Machine, Vec<MicroRun>), WorkError> {
        let usage = |error: String| WorkError::Usage(error);
        let machine = self.clock.machine();
        let (machine, draw) = machine.map_err(|error| usage(error.to_string()))?;
        let designs: Result<Vec<DesignSpec>, _> = match self.design.all() {
            [] => DESIGNS.into_iter().map(DesignSpec::parse).collect(),
            some => some.iter().map(|name| name.in_era(None)).collect(),
        };
        let designs = designs?;
        let tunings = tunings(&self.set, &designs)?;
        let nodes = match self.node.all() {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        let mut runs = Vec::new();
        for page_bytes in page_bytes(&self.page_size) {
            for &pattern in &self.pattern.or_all(PATTERNS) {
                for size in self.size.or_all([Size(256)]) {
                    for cpus in self.cpus.or_all([1]) {
                        let bulks = match pattern {
                            Pattern::Bulk => self.bulk.or_all([BULK]),
                            _ => vec![1],
                        };
                        for bulk in bulks {
                            for &node in &nodes {
                                for (&design, tuning) in designs.iter().zip(&tunings) {
                                    let usual = Setup::new(design.era, machine.clone());
                                    let usual = MicroSpec::new(Setup {
                                        page_bytes,
                                        memory_bytes: memory_bytes(&self.memory),
                                        tuning: tuning.clone(),
                                        draw: draw.clone(),
                                        seed: self.clock.seed.or(1),
                                        ..usual
                                    });
                                    let spec = MicroSpec {
                                        pattern,
                                        object_bytes: size.0,
                                        kmalloc: self.kmalloc.is_true(),
                                        count: self.count.or(usual.count),
                                        bulk,
                                        cpus,
                                        rounds: self.rounds.or(usual.rounds),
                                        node,
                                        node_free: self.node_free.0.clone(),
                                        ..usual
                                    };
                                    spec.config()?;
                                    runs.push(MicroRun { design, spec });
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok((machine, runs))
    }
}

impl Answers for Micro {
    fn steps(&self, _: &Ready<'_>) -> Result<u64, LabError> {
        Ok(self.runs()?.1.len() as u64)
    }

    fn cost(&self, _: InputSize) -> Cost {
        Cost::of_load(100)
    }

    fn answer(&self, _: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError> {
        let (_, runs) = self.runs()?;
        let run = |run: &MicroRun| {
            let report = run.spec.run_on(&run.design);
            how.progress.advance(1);
            report
        };
        Answer::all(&run_all(&runs, how.jobs, run)?)
    }
}
