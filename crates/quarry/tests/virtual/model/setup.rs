//! Virtual machines to test on.

use proptest::prelude::*;
use quarry_core::geometry::BootParams;
use quarry_sim::{Config, Faults, VirtualMachine};

/// A machine and the boot parameters of the system on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) cpus: u32,
    /// NUMA nodes.
    pub(crate) nodes: u32,
    /// log2 of the page size in bytes.
    pub(crate) page_shift: u32,
    /// Pages of memory; 0 for more than any script uses.
    pub(crate) pages: u32,
    /// Failing attempts on the CPU's own slot, per 1000.
    pub(crate) slot_per_mille: u16,
    /// Failing attempts on another CPU's slot, per 1000.
    pub(crate) remote_per_mille: u16,
    /// Decides which.
    pub(crate) seed: u64,
    /// `slub_min_order`.
    pub(crate) min_order: u32,
    /// `slub_max_order`.
    pub(crate) max_order: Option<u32>,
}

/// Memory that no script uses up: each of four nodes still has many of the largest blocks.
const AMPLE_BYTES: u64 = 8 << 30;

impl Default for Setup {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Setup {
    /// One CPU, one node, pages of 4 KiB, ample memory, and try-locks that do not fail.
    pub(crate) const DEFAULT: Self = Self {
        cpus: 1,
        nodes: 1,
        page_shift: 12,
        pages: 0,
        slot_per_mille: 0,
        remote_per_mille: 0,
        seed: 0,
        min_order: 0,
        max_order: None,
    };

    /// One CPU with this number of pages.
    pub(crate) const fn of_pages(pages: u32) -> Self {
        Self {
            pages,
            ..Self::DEFAULT
        }
    }

    /// The same with these numbers of CPUs and nodes.
    pub(crate) const fn on(self, cpus: u32, nodes: u32) -> Self {
        Self {
            cpus,
            nodes,
            ..self
        }
    }

    /// The same with a CPU's own slot that is busy at this many attempts in 1000.
    pub(crate) const fn busy(self, slot_per_mille: u16) -> Self {
        Self {
            slot_per_mille,
            ..self
        }
    }

    /// A fresh machine.
    ///
    /// # Panics
    ///
    /// If the operating system refuses the address space.
    pub(crate) fn machine(&self) -> VirtualMachine {
        let memory_bytes = match self.pages {
            0 => AMPLE_BYTES,
            pages => u64::from(pages) << self.page_shift,
        };
        let faults = (self.slot_per_mille > 0 || self.remote_per_mille > 0).then_some(Faults {
            seed: self.seed,
            slot_per_mille: self.slot_per_mille,
            remote_per_mille: self.remote_per_mille,
        });
        let config = Config {
            cpus: self.cpus,
            nodes: self.nodes,
            page_bytes: 1 << self.page_shift,
            memory_bytes,
            cache_line: 64,
            faults,
            time: None,
        };
        VirtualMachine::new(config).expect("address space for a virtual machine")
    }

    /// The boot parameters.
    pub(crate) fn boot(&self) -> BootParams {
        BootParams {
            slub_min_order: self.min_order,
            slub_max_order: self.max_order,
            ..BootParams::default()
        }
    }

    /// Limits of the counters and walks on this machine.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            slots_fail: self.slot_per_mille > 0,
            cpus_hide: self.remote_per_mille > 0,
            scarce: self.pages != 0,
            debug: false,
            raced: false,
        }
    }
}

/// Properties of a machine that keep its answers from being exact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The CPU's own try-lock may fail: operations then pass the per-CPU state by.
    pub(crate) slots_fail: bool,
    /// Another CPU's try-lock may fail: sums and flushes then leave that CPU out.
    pub(crate) cpus_hide: bool,
    /// Memory may run out.
    pub(crate) scarce: bool,
    /// All caches have debugging: they keep nothing per CPU.
    pub(crate) debug: bool,
    /// Tasks raced on the machine.
    pub(crate) raced: bool,
}

/// Any machine.
pub(crate) fn setups() -> impl Strategy<Value = Setup> {
    let cpus = prop_oneof![
        2 => Just(1u32), 3 => Just(2), 2 => Just(3), 2 => Just(8), 1 => Just(64), 1 => Just(512)
    ];
    let nodes = prop_oneof![2 => Just(1u32), 1 => Just(2), 1 => Just(4)];
    let page_shift = prop_oneof![3 => Just(12u32), 1 => Just(14), 1 => Just(16)];
    let pages = prop_oneof![3 => Just(0u32), 1 => 1u32..1400];
    let slot = prop_oneof![3 => Just(0u16), 1 => Just(50), 1 => Just(300), 1 => Just(1000)];
    let remote = prop_oneof![6 => Just(0u16), 1 => Just(300)];
    let orders = prop_oneof![
        3 => Just((0, None)), 1 => (Just(0), (0u32..4).prop_map(Some)), 1 => (0u32..3, Just(None))
    ];
    (
        cpus,
        nodes,
        page_shift,
        pages,
        slot,
        remote,
        any::<u64>(),
        orders,
    )
        .prop_map(
            |(cpus, nodes, page_shift, pages, slot_per_mille, remote, seed, orders)| Setup {
                cpus,
                nodes: nodes.min(cpus),
                page_shift,
                pages,
                slot_per_mille,
                // With many slots one would hide at every attempt, and nothing could be emptied.
                remote_per_mille: if cpus * nodes.min(cpus) <= 8 {
                    remote
                } else {
                    0
                },
                seed,
                min_order: orders.0,
                max_order: orders.1,
            },
        )
}
