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
    /// As [`RefillOrder::FirstFirst`], but the lists of several slabs are followed abreast, since each step along a list
    /// waits for an object that is in no cache; and what was taken first is handed out first.
    Abreast,
}

/// Order in which a bulk free frees local and remote objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkOrder {
    /// Those of other nodes in portions as they are met, among the node's own [6.18].
    AsMet,
    /// The node's own, then all others together [7.3].
    LocalFirst,
}

/// Origin of the capacity of a cache's sheaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// The cache's creator asks for it; other caches have no sheaves [6.18].
    Asked,
    /// The size of a slot [7.0].
    BySize(SizeClasses),
    /// It follows what the cache's CPUs miss.
    Misses(Sizing),
}

/// Bounds of sheaves whose capacity follows misses. Bytes are those of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizing {
    /// Bytes that a new cache's sheaf holds; one object at least.
    pub first_bytes: u32,
    /// Objects that it holds at most.
    pub first_objects: u32,
    /// Bytes that the largest sheaf holds, unless `few_objects` are more.
    pub most_bytes: u32,
    /// Objects that it holds at most.
    pub most_objects: u32,
    /// Objects that it may hold whatever their size: programs that have large objects mostly have several.
    pub few_objects: u32,
    /// Misses of a cache after which its capacity doubles.
    pub misses: u32,
    /// Bytes for each CPU that all sheaves of a heap hold beyond new caches'.
    pub budget_bytes: u64,
    /// Bytes that the full sheaves of a barn hold, unless `barn_sheaves` hold more.
    pub barn_bytes: u32,
    /// Full sheaves that a barn may have whatever they hold.
    pub barn_sheaves: u32,
    /// Bytes of the empty slabs that a node keeps of a cache.
    pub empty_bytes: u32,
    /// Time between two looks at caches that do not miss, in nanoseconds.
    pub look_ns: u64,
}

impl Sizing {
    /// Objects of a new cache's sheaf, for slots of `size` bytes.
    pub const fn first(&self, size: u32) -> u32 {
        at_most(self.first_bytes, self.first_objects, size)
    }

    /// Objects of the largest sheaf, for slots of `size` bytes.
    pub const fn most(&self, size: u32) -> u32 {
        let most = at_most(self.most_bytes, self.most_objects, size);
        if most < self.few_objects {
            return self.few_objects;
        }
        most
    }
}

/// Objects of `size` bytes that fit in `bytes`, within 1 and `objects`.
const fn at_most(bytes: u32, objects: u32, size: u32) -> u32 {
    match bytes / size {
        0 => 1,
        fit if fit > objects => objects,
        fit => fit,
    }
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
    /// Capacities of sheaves.
    pub capacity: Capacity,
    /// The nodes' stocks.
    pub barn: BarnRules,
    /// Differences at run time.
    pub run: RunRules,
}
