//! The shapes of the rules: what an era's numbers mean.

use super::OrderRules;
use crate::era::Era;
use crate::geometry::{KmallocRules, SizeClasses};
use crate::merge::MergeRules;

/// Effect of a request for cache-line alignment (`calculate_alignment()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlignRule {
    /// Objects above half a line get the line, smaller ones nothing [until 2.6.25].
    AboveHalfLine,
    /// The line, halved as long as the object fits in the half [2.6.26 and later].
    HalvedLine,
}

/// Place of the free pointer when the object's bytes may be used for it (`calculate_sizes()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreePointer {
    /// There is none: the design links free objects elsewhere.
    None,
    /// First word [until 5.6].
    Start,
    /// Half of the word-rounded size, rounded up to a word; first word if the object is one word
    /// [5.7 to 5.12].
    MiddleUp,
    /// Half of the object size, rounded down to a word [5.13 and later].
    MiddleDown,
}

/// Effect of recording the requested size on the free pointer (`calculate_sizes()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordedPointer {
    /// Nothing [6.1].
    Inside,
    /// It goes outside [6.2 to 6.10].
    Outside,
    /// It goes outside if the object has a red zone, too [6.11 and later].
    OutsideIfRedZoned,
}

/// The numbers of the slot (`calculate_sizes()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutRules {
    /// Place of the free pointer inside an object.
    pub free_pointer: FreePointer,
    /// A red-zoned object smaller than a pointer keeps the pointer outside [5.13 and later].
    pub small_red_zone_outside: bool,
    /// Place of the free pointer of an object that records its requested size.
    pub recorded_pointer: RecordedPointer,
    /// [`FREEPTR_OFFSET`](crate::geometry::CacheFlags::FREEPTR_OFFSET) keeps an RCU cache's
    /// pointer inside [6.12 and later].
    pub rcu_freeptr_offset: bool,
    /// It does so for a constructor cache, too [7.0].
    pub ctor_freeptr_offset: bool,
    /// Bytes of one track record (`struct track`); a slot has two.
    pub track_bytes: u32,
    /// Bytes that record the request in a kmalloc cache with user tracking; 0 where not recorded.
    pub requested_size_bytes: u32,
    /// A red zone also goes in front of the object [4.6 and later].
    pub left_red_zone: bool,
}

/// Unit of the limit of a cpu partial list at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuPartialUnit {
    /// Free objects, as counted when each slab was put on the list [3.2 to 5.15].
    Objects,
    /// Slabs [5.16 to 6.19].
    Slabs,
}

/// Objects wanted on a CPU's partial list by slot size (`set_cpu_partial()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuPartialRules {
    /// Objects.
    pub objects: SizeClasses,
    /// Unit of the limit at run time.
    pub unit: CpuPartialUnit,
}

/// Number of empty slabs that a node keeps on its partial list (`set_min_partial()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinPartial {
    /// The same for every cache [until 2.6.26].
    Constant(u32),
    /// log2 of the slot size divided by `divisor`, within [`MIN_PARTIAL`]..=[`MAX_PARTIAL`]
    /// [2.6.27 and later].
    Log2 {
        /// 1 [until 3.1] or 2 [3.2 and later].
        divisor: u32,
    },
}

/// Lower bound of a computed `min_partial`.
pub const MIN_PARTIAL: u32 = 5;

/// Upper bound of a computed `min_partial`.
pub const MAX_PARTIAL: u32 = 10;

/// CPU count in the formulas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuCount {
    /// None: the era's orders do not depend on it [until 2.6.25].
    Unused,
    /// `nr_cpu_ids`, the number of possible CPUs [2.6.26 to 5.10].
    NrCpuIds,
    /// Present CPUs, or `nr_cpu_ids` when at most one is present [5.11 and later].
    Present,
}

/// End of a node's partial list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListEnd {
    /// It is the next to be taken.
    Head,
    /// It is the last to be taken.
    Tail,
}

/// Destination of a partly used CPU slab when it is deactivated (`deactivate_slab()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeactivateEnd {
    /// Always the head [until 2.6.24].
    Head,
    /// The tail, but the head if the CPU's list still held objects [2.6.25 to 3.0].
    HeadIfCpuFreelist,
    /// The head, but the tail if other CPUs had freed objects to the slab [3.1 and later].
    TailIfRemoteFrees,
}

/// Amount that one visit to a node's partial list takes (`get_partial_node()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartialTake {
    /// One slab [until 3.1].
    One,
    /// Slabs until the free objects gathered exceed `cpu_partial / 2` [3.2 to 5.15].
    HalfOfObjects,
    /// One slab and further ones until these exceed `cpu_partial_slabs / 2` [5.16 to 6.9].
    HalfOfSlabs,
    /// The same, but just the one when `cpu_partial_slabs` is 0 [6.10 to 6.19].
    HalfOfSlabsUnlessZero,
}

/// Destination of the top of a cpu partial list when it is not of the wanted node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuPartialMismatch {
    /// It becomes the CPU slab, found wrong and deactivated as such [3.2 to 6.7].
    Deactivate,
    /// It is put back to its node's list [6.8 and later].
    PutBack,
}

/// Next source of an allocation that names a node when that node's partial list is empty. It is never bound
/// to the node: the page allocator may give pages of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExplicitNode {
    /// Other nodes' partial lists as for any allocation, then a new slab [until 2.6.35].
    OtherLists,
    /// A new slab [2.6.36 to 6.9].
    NewSlab,
    /// A new slab of that node; then all that an allocation without a wish tries [6.10 and later].
    NewSlabThere,
}

/// Differences between eras at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunRules {
    /// A slab that is not available at its normal order is asked for at the fallback order.
    pub has_fallback_order: bool,
    /// CPUs have partial lists.
    pub has_cpu_partial: bool,
    /// Slabs on a CPU's partial list are frozen.
    pub freeze_cpu_partial: bool,
    /// A cpu partial list is emptied right after a push when `cpu_partial` is 0; other eras treat
    /// 0 like any limit.
    pub zero_cpu_partial_drains: bool,
    /// A visit to the node's list counts the free objects of the first slab among those gathered; if
    /// not, only those on the CPU's partial list [3.2 to 3.9].
    pub first_slab_counts: bool,
    /// The drain of a cpu partial list gives empty slabs back whatever `min_partial` says, until it
    /// takes a node's lock [3.2 to 3.5].
    pub drain_frees_an_empty_slab: bool,
    /// Taking a slab from the cpu partial list counts `cpu_partial_alloc` and then `alloc_refill`;
    /// if not, only the former.
    pub refill_counts_cpu_partial_as_refill: bool,
    /// A slab of the cpu partial list that is not of the wanted node counts `cpu_partial_alloc`, too
    /// [until 6.8].
    pub mismatch_counts_cpu_partial_alloc: bool,
    /// `alloc_slowpath` counts allocations that succeed, at their end; if not, all, at their
    /// beginning.
    pub slowpath_counts_success: bool,
    /// `alloc_refill` counts every look at the CPU slab's own list; if not, only those that find
    /// objects.
    pub refill_counts_attempts: bool,
    /// A CPU slab found exhausted is deactivated like any other and counts `deactivate_full`; if
    /// not, it is simply let go and counts `deactivate_bypass`.
    pub exhausted_is_deactivated: bool,
    /// A slab whose last object is freed is kept while `nr_partial < min_partial`; if not, it is
    /// given back always.
    pub empty_kept_if_below_min_partial: bool,
    /// Empty slabs are kept while `nr_partial <= min_partial`, one more than in other eras
    /// [3.1 to 3.15].
    pub keeps_one_more: bool,
    /// The CPU's list of free objects is in its slab's descriptor, whose line other CPUs' frees to the slab write, too;
    /// if not, it is in the CPU's own state [until 2.6.23].
    pub list_in_descriptor: bool,
    /// Bulk calls count the objects that come from and go to the CPU's list as fast operations; if
    /// not, allocations none and frees one for each list [until 6.7].
    pub bulk_counts_objects: bool,
    /// End of the node's list at which a free puts a slab that was full.
    pub free_adds_to: ListEnd,
    /// Destination of a partly used slab at deactivation.
    pub deactivate_to: DeactivateEnd,
    /// Destination of an empty slab that deactivation keeps; `None` for that of a partly used one.
    pub deactivate_empty_to: Option<ListEnd>,
    /// An empty slab that deactivation keeps counts `deactivate_empty` too; if not, it counts by
    /// the end of the list that it is put at.
    pub kept_empty_counts_as_empty: bool,
    /// Destination of slabs of a cpu partial list that are not of the wanted node.
    pub cpu_partial_mismatch: CpuPartialMismatch,
    /// Next source of an allocation that names a node.
    pub explicit_node: ExplicitNode,
    /// Amount that one visit to a node's partial list takes.
    pub partial_take: PartialTake,
    /// Shrinking leaves lists of up to this many slabs unsorted.
    pub shrink_sorts_above: u32,
    /// Shrinking sorts a node's whole partial list; if not, it only brings slabs with at most 32
    /// free objects to the front.
    pub shrink_sorts_all: bool,
    /// Other nodes' partial lists are looked at if this is not 0 and not below a random number of
    /// 0..1024; sysfs shows a tenth.
    pub remote_node_defrag_ratio: u32,
    /// Its name in sysfs.
    pub defrag_ratio_name: &'static str,
}

/// The numbers of one era.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlubEra {
    /// The kernel version.
    pub era: Era,
    /// Alignment.
    pub align: AlignRule,
    /// The slot.
    pub layout: LayoutRules,
    /// The slab order.
    pub order: OrderRules,
    /// CPU count in the formula of the order.
    pub cpus: CpuCount,
    /// Limits of the cpu partial lists, in eras that have them.
    pub cpu_partial: Option<CpuPartialRules>,
    /// The number of slabs that nodes keep.
    pub min_partial: MinPartial,
    /// kmalloc.
    pub kmalloc: KmallocRules,
    /// Rules for merging caches.
    pub merge: MergeRules,
    /// Differences at run time.
    pub run: RunRules,
}

impl SlubEra {
    /// The CPU count that the formulas use (`MachineParams::nr_cpus`), from the possible and the
    /// present CPUs; 1 in eras that use none.
    pub const fn formula_cpus(&self, nr_cpu_ids: u32, nr_present: u32) -> u32 {
        match self.cpus {
            CpuCount::Unused => 1,
            CpuCount::Present if nr_present > 1 => nr_present,
            CpuCount::NrCpuIds | CpuCount::Present => nr_cpu_ids,
        }
    }
}
