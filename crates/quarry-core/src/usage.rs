//! A cache's memory by node and by CPU, as sysfs shows it.

use crate::stats::Stats;

/// One node's part of a cache at one moment. Names are the kernel's files in
/// `/sys/kernel/slab/<cache>/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Slabs.
    pub slabs: u64,
    /// Objects that these could hold.
    pub total_objects: u64,
    /// Objects that the node's partial list does not offer as free. What lies on a CPU counts as
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
    /// What the CPU counted. What happened without a CPU's slot is in no CPU's counters.
    pub stats: Stats,
    /// Slabs that the CPU allocates from: 0 or 1.
    pub slabs: u64,
    /// Slabs on the CPU's partial list.
    pub partial_slabs: u64,
    /// Free objects of these, as counted when each was put there.
    pub partial_objects: u64,
}
