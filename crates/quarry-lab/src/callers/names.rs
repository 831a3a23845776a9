//! Names of callers, each once, and of the recorded kernel's kmalloc caches.

use std::collections::HashMap;

use quarry_core::era::Era;
use quarry_core::geometry::{KmallocRules, KmallocTarget, MachineParams, kmalloc_index};
use quarry_designs::DesignEntry;
use quarry_trace::TraceMeta;

/// Names with a number each, from 0 on.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Number of a name, a new one if it was not seen before.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_string());
        self.numbers.insert(name.to_string(), number);
        number
    }

    /// Name with a number.
    pub(super) fn of(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// All names in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// Name of kmallocs that the page allocator serves.
pub(super) const LARGE: &str = "large kmalloc";

/// Names of the caches that serve kmalloc in a recorded kernel.
#[derive(Debug)]
pub(super) struct KmallocNames {
    rules: Option<&'static KmallocRules>,
    machine: MachineParams,
    /// Names by index of the class.
    classes: HashMap<u32, String>,
}

impl KmallocNames {
    /// Names in the kernel of a trace; in the newest one if the trace has no release.
    pub(super) fn of(meta: &TraceMeta) -> Self {
        let era = meta.kernel.as_deref().and_then(Era::parse);
        let era = era.unwrap_or(Era::LAST);
        let design = DesignEntry::of_kernel(Some(era), false);
        Self {
            rules: design.and_then(|design| (design.kmalloc_rules)(era)),
            machine: MachineParams {
                page_shift: meta.page_size.max(1).ilog2(),
                nr_cpus: meta.cpus,
                cache_line: 64,
            },
            classes: HashMap::new(),
        }
    }

    /// Name of the cache that serves a request of `bytes` bytes.
    pub(super) fn name(&mut self, bytes: u32) -> &str {
        let Some(rules) = self.rules else {
            return "kmalloc";
        };
        match kmalloc_index(rules, &self.machine, bytes.into()) {
            KmallocTarget::Class(class) => {
                let name = self.classes.entry(class.index);
                name.or_insert_with(|| class.to_string())
            }
            KmallocTarget::Pages { .. } => LARGE,
            _ => "kmalloc",
        }
    }
}
