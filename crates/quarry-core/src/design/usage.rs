//! A cache's memory: in all, by node and by CPU, as slabinfo and sysfs show it.

use crate::stats::Stats;

/// Usage of a cache's memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Slabs.
    pub slabs: u64,
    /// Pages of all slabs.
    pub pages: u64,
    /// Objects that all slabs could hold (`num_objs`).
    pub num_objs: u64,
    /// Objects as `/proc/slabinfo` counts active ones: what no node list offers as free.
    pub active_objs: u64,
    /// Slabs as `/proc/slabinfo` counts active ones.
    pub active_slabs: u64,
    /// Objects in the arrays that CPUs of a node share (`sharedavail`).
    pub shared_avail: u64,
    /// Slabs that CPUs allocate from. Sysfs `cpu_slabs` adds `cpu_partial_slabs`.
    pub cpu_slabs: u64,
    /// Slabs on the CPUs' partial lists (sysfs `slabs_cpu_partial`).
    pub cpu_partial_slabs: u64,
    /// Slabs that are neither full nor empty and that no CPU allocates from.
    pub partial_slabs: u64,
    /// Those of `partial_slabs` with exactly one object in use.
    pub one_object_slabs: u64,
    /// Slabs by order, orders 0..=10.
    pub slabs_by_order: [u64; crate::page::ORDERS],
    /// Bytes of objects in pages that caches share, which are no cache's slabs (SLOB).
    pub shared_bytes: u64,
}

impl Usage {
    /// Adds another cache's usage.
    pub fn add(&mut self, other: &Self) {
        self.slabs += other.slabs;
        self.pages += other.pages;
        self.num_objs += other.num_objs;
        self.active_objs += other.active_objs;
        self.active_slabs += other.active_slabs;
        self.shared_avail += other.shared_avail;
        self.cpu_slabs += other.cpu_slabs;
        self.cpu_partial_slabs += other.cpu_partial_slabs;
        self.partial_slabs += other.partial_slabs;
        self.one_object_slabs += other.one_object_slabs;
        self.shared_bytes += other.shared_bytes;
        for (sum, slabs) in self.slabs_by_order.iter_mut().zip(other.slabs_by_order) {
            *sum += slabs;
        }
    }
}

/// One node's part of a cache at one moment. Names are the kernel's files in
/// `/sys/kernel/slab/<cache>/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Slabs.
    pub slabs: u64,
    /// Objects that these could hold.
    pub total_objects: u64,
    /// Objects that the node's partial list does not offer as free. Objects on a CPU count as
    /// in use, as in the kernel.
    pub objects: u64,
    /// Slabs on the node's partial list.
    pub partial: u64,
    /// Objects in use in the slabs of the partial list.
    pub objects_partial: u64,
    /// Slabs that CPUs hold: those they allocate from and those on their partial lists.
    pub cpu_slabs: u64,
}

/// One CPU's part of a cache at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUsage {
    /// Counters of the CPU. Operations without a CPU's slot are in no CPU's counters.
    pub stats: Stats,
    /// Slabs that the CPU allocates from: 0 or 1.
    pub slabs: u64,
    /// Slabs on the CPU's partial list.
    pub partial_slabs: u64,
    /// Free objects of these, as counted when each was put there.
    pub partial_objects: u64,
}
