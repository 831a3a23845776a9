//! The shapes of the rules: what an era's numbers mean.

use crate::era::Era;
use crate::geometry::SizeClasses;
use crate::slub::geometry::SlubEra;

/// Sheaves that a node keeps of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarnRules {
    /// Full sheaves at most.
    pub full: u32,
    /// Empty sheaves at most.
    pub empty: u32,
}

/// Destination of the empty main sheaf when a newly filled one takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmptyMain {
    /// Always to the barn [6.18].
    Barn,
    /// It becomes the spare if there is none, else it goes to the barn [7.0].
    SpareFirst,
}

/// Order in which a refill uses the slabs that it takes off a node's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefillOrder {
    /// The slab taken last is emptied first. What is too much of a slab's objects is freed to it; slabs
    /// that are not needed go back to the head of the list; empty ones are freed if the node has
    /// `min_partial` [7.0].
    LastFirst,
    /// The slab taken first is emptied first. What is too much is handed back in one step, and slabs that
    /// are not needed return, both to the tail of the list, uncounted; none is freed [7.2].
    FirstFirst,
}

/// Order in which a bulk free frees local and remote objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkOrder {
    /// Those of other nodes in portions as they are met, among the node's own [6.18].
    AsMet,
    /// The node's own, then all others together [7.3].
    LocalFirst,
}

/// Differences between eras at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunRules {
    /// Below the sheaves, CPUs have slabs and partial lists of their own, from which sheaves are
    /// filled [6.18]; if not, sheaves are filled from the nodes' lists [7.0].
    pub cpu_slabs: bool,
    /// Objects that pass through sheaves count as `alloc_fastpath` and `free_fastpath` [7.0]; if
    /// not, as `alloc_cpu_sheaf` and `free_cpu_sheaf` [6.18].
    pub sheaf_is_fastpath: bool,
    /// An allocation for another node than the CPU's counts `alloc_node_mismatch` [7.0].
    pub counts_node_mismatch: bool,
    /// Destination of the empty main sheaf when a newly filled one takes its place.
    pub empty_main: EmptyMain,
    /// Order in which a refill uses slabs; without effect where CPUs have slabs.
    pub refill: RefillOrder,
    /// Order in which a bulk free frees local and remote objects.
    pub bulk_free: BulkOrder,
}

/// The numbers of one era.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SheafEra {
    /// The kernel version.
    pub era: Era,
    /// The slabs below, and kmalloc.
    pub slub: SlubEra,
    /// Computed capacities; `None` if only caches whose creator asks have sheaves.
    pub capacity: Option<SizeClasses>,
    /// The nodes' stocks.
    pub barn: BarnRules,
    /// Differences at run time.
    pub run: RunRules,
}
