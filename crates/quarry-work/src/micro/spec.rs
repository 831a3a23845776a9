//! Parameters of a micro-benchmark.

use quarry_core::design::Design;
use quarry_core::page::MAX_ORDER;
use quarry_designs::{DesignSpec, ForDesign};
use quarry_sim::Config;

use super::report::MicroReport;
use crate::error::WorkError;
use crate::nodes::{self, NodeFree};
use crate::setup::Setup;

/// Pattern of the CPUs' calls (see the [module](super)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// n allocations, then n frees.
    Batch,
    /// An allocation and its free, n times.
    Pair,
    /// n allocations, which the neighbour frees.
    Cross,
    /// n allocations of one CPU, which all others free.
    Spread,
    /// Calls for several objects at once.
    Bulk,
}

quarry_ask::choice!(Pattern, Pattern::ALL);

impl Pattern {
    /// All of them with their names.
    pub const ALL: [(Pattern, &'static str); 5] = [
        (Pattern::Batch, "batch"),
        (Pattern::Pair, "pair"),
        (Pattern::Cross, "cross"),
        (Pattern::Spread, "spread"),
        (Pattern::Bulk, "bulk"),
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct MicroSpec {
    /// Pattern of the CPUs' calls.
    pub pattern: Pattern,
    /// Bytes of an object.
    pub object_bytes: u32,
    /// Objects come from `kmalloc()`, and not from a cache of their own.
    pub kmalloc: bool,
    /// Objects of each CPU and round.
    pub count: u32,
    /// Objects of a call, for [`Pattern::Bulk`].
    pub bulk: u32,
    /// CPUs that do it.
    pub cpus: u32,
    /// Rounds that are counted.
    pub rounds: u32,
    /// Node that the objects are to be of; `None` is the running CPU's.
    pub node: Option<u32>,
    /// Memory of nodes that is free; of others all is.
    pub node_free: Vec<NodeFree>,
    /// The kernel and the machine.
    pub setup: Setup,
}

/// Most objects that a call takes.
const BULK_MAX: u32 = 1024;

/// Refuses a bulk run of kmallocs.
pub(super) fn bulk_kmalloc() -> WorkError {
    let message =
        "bulk with kmalloc: kernels have no kmalloc of several objects; leave out one of both";
    WorkError::Usage(message.to_string())
}

impl MicroSpec {
    /// The usual run of a kernel on a machine.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            pattern: Pattern::Batch,
            object_bytes: 256,
            kmalloc: false,
            count: 10_000,
            bulk: 16,
            cpus: 1,
            rounds: 3,
            node: None,
            node_free: Vec::new(),
            setup,
        }
    }

    /// Runs it on a design.
    ///
    /// # Errors
    ///
    /// As [`run`](super::run).
    pub fn run_on(&self, design: &DesignSpec) -> Result<MicroReport, WorkError> {
        struct Run<'a>(&'a MicroSpec);
        impl ForDesign for Run<'_> {
            type Output = Result<MicroReport, WorkError>;
            fn run<D: Design>(self) -> Self::Output {
                super::run::<D>(self.0)
            }
        }
        design.design.run(Run(self))
    }

    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        format!(
            "{}, {}{} bytes{}, era {}, {} CPUs of {}",
            self.pattern.name(),
            if self.kmalloc { "kmalloc of " } else { "" },
            self.object_bytes,
            self.node
                .map_or_else(String::new, |node| format!(" of node {node}")),
            self.setup.era,
            self.cpus,
            self.setup.machine.name
        )
    }

    /// The virtual machine.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if the parameters are invalid.
    pub fn config(&self) -> Result<Config, WorkError> {
        let refuse = |message: String| Err(WorkError::Usage(message));
        if self.count == 0 || self.rounds == 0 {
            return refuse("count and rounds must be at least 1".to_string());
        }
        if self.object_bytes == 0 {
            return refuse("size must be at least 1".to_string());
        }
        if !(1..=BULK_MAX).contains(&self.bulk) {
            return refuse(format!("bulk must be 1 to {BULK_MAX}, not {}", self.bulk));
        }
        if self.pattern == Pattern::Bulk && self.bulk > self.count {
            let (bulk, count) = (self.bulk, self.count);
            return refuse(format!("count must be at least bulk, {bulk}, not {count}"));
        }
        if self.pattern == Pattern::Bulk && self.kmalloc {
            return Err(bulk_kmalloc());
        }
        let most = self.setup.page_bytes << MAX_ORDER;
        if self.kmalloc && u64::from(self.object_bytes) > most {
            let bytes = self.object_bytes;
            return refuse(format!(
                "size must be at most {most} with kmalloc, not {bytes}"
            ));
        }
        if matches!(self.pattern, Pattern::Cross | Pattern::Spread) && self.cpus < 2 {
            let name = self.pattern.name();
            return refuse(format!("cpus must be at least 2 for {name}"));
        }
        if self.pattern == Pattern::Bulk && self.node.is_some() {
            let message =
                "bulk with node: kernels have no bulk call for a node; leave out one of both";
            return refuse(message.to_string());
        }
        // A node has CPUs: where nodes are named, the machine is there as a whole.
        let cpus = match self.node.is_some() || !self.node_free.is_empty() {
            true => self.cpus.max(self.setup.machine.topology.all_cpus()),
            false => self.cpus,
        };
        let config = self.setup.config(cpus)?;
        let machine = &self.setup.machine.name;
        if let Some(node) = self.node {
            nodes::check("node", node, machine, &config)?;
        }
        NodeFree::check(&self.node_free, machine, &config)?;
        Ok(config)
    }
}
