//! One replay, as a plan asks for it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quarry_core::geometry::{
    KmallocClass, KmallocRules, KmallocService, KmallocTarget, MachineParams, kmalloc_classes,
    kmalloc_index,
};
use quarry_sim::Config;
use quarry_state::Run;

use crate::error::LabError;
use quarry_designs::{DesignSpec, Tuning};

/// One replay.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// Design and era.
    pub design: DesignSpec,
    /// The virtual machine.
    pub config: Config,
    /// Tunables.
    pub settings: Tuning,
    /// Values of listed tunables that the run has, such as `cpu_partial=6`; `default` for the run without any of
    /// them, empty if none is listed for the design.
    pub set: String,
    /// Number of the state that a replay begins with, among those that the kernel's report allows: 0 takes the assumption
    /// about each fact that is not reported, another number draws them.
    pub state: u32,
    /// By cache, objects that a replay without them has too many in use at its end (above 0) or too few (below), as the
    /// kernel's report says: they are freed or allocated without an event.
    pub missing: BTreeMap<String, i64>,
    /// Folder for the heap's slabinfo and sysfs files, written at the end.
    pub inspect: Option<PathBuf>,
}

impl RunSpec {
    /// The kernel that it stands for.
    pub(crate) fn kernel(&self) -> Run<'_> {
        Run {
            design: self.design,
            page_bytes: self.config.page_bytes,
            cpus: self.config.cpus,
            settings: &self.settings,
        }
    }

    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        let Config {
            cpus, page_bytes, ..
        } = self.config;
        let set = match self.set.as_str() {
            "" => String::new(),
            set => format!(", {set}"),
        };
        format!(
            "{}, {}k pages, {cpus} CPUs{set}",
            self.design,
            page_bytes >> 10
        )
    }

    /// The run as the name of a folder, such as `slub@6.17-4k-16`.
    #[must_use]
    pub fn folder(&self) -> String {
        let Config {
            cpus, page_bytes, ..
        } = self.config;
        let set = match self.set.as_str() {
            "" => String::new(),
            set => format!("-{}", set.replace(' ', "-")),
        };
        format!("{}-{}k-{cpus}{set}", self.design, page_bytes >> 10)
    }

    /// Title of a run among others on one machine: the design, and its values of listed tunables.
    pub(crate) fn title(design: &str, era: &str, set: &str) -> String {
        match set {
            "" => format!("{design}@{era}"),
            set => format!("{design}@{era} ({set})"),
        }
    }

    /// Returns how the heap of the run serves kmalloc.
    pub(crate) fn kmalloc(&self) -> Result<Kmalloc, LabError> {
        let rules = (self.design.design.kmalloc_rules)(self.design.era)
            .ok_or_else(|| LabError::Usage(format!("{} cannot be replayed", self.design)))?;
        let machine = MachineParams {
            page_shift: self.config.page_bytes.ilog2(),
            nr_cpus: self.config.cpus,
            cache_line: self.config.cache_line,
        };
        let slab_bytes_max = match rules.service {
            KmallocService::Classes => 1 << rules.shift_high(machine.page_shift),
            KmallocService::Design => u64::MAX,
        };
        Ok(Kmalloc {
            rules,
            machine,
            slab_bytes_max,
        })
    }
}

/// The kmalloc of a run's heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kmalloc {
    /// The rules of the design in its era.
    pub(crate) rules: &'static KmallocRules,
    /// The machine that they are applied to.
    pub(crate) machine: MachineParams,
    /// kmallocs of more bytes are not served from slabs.
    pub(crate) slab_bytes_max: u64,
}

impl Kmalloc {
    /// Returns the names of its caches.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + use<> {
        kmalloc_classes(self.rules, &self.machine)
            .map(|class| class.to_string())
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns the class that serves a kmalloc.
    pub(crate) fn class(&self, bytes: u32) -> Option<KmallocClass> {
        match kmalloc_index(self.rules, &self.machine, bytes.into()) {
            KmallocTarget::Class(class) => Some(class),
            _ => None,
        }
    }

    /// Returns the bytes of the pages that serve a large kmalloc; `None` if the era does not serve it.
    pub(crate) fn large_bytes(&self, bytes: u64) -> Option<u64> {
        match kmalloc_index(self.rules, &self.machine, bytes) {
            KmallocTarget::Pages { order } => Some(self.machine.slab_bytes(order)),
            _ => None,
        }
    }
}

/// Follows replays by their events.
pub type Progress<'a> = &'a dyn quarry_work::Progress;
