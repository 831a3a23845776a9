//! The eras' numbers.

use core::ops::RangeInclusive;

use super::{
    AlignRule, CpuCount, CpuPartialMismatch, CpuPartialRules, CpuPartialUnit, DeactivateEnd,
    DebugAlloc, ExplicitNode, FreePointer, LayoutRules, ListEnd, MinObjects, MinPartial,
    ObjectLimit, OrderRules, OrderSearch, PartialTake, RunRules, SlubEra,
};
use crate::era::Era;
use crate::geometry::{CacheFlags, KmallocAlign, KmallocBeyond, KmallocRules, KmallocService};
use crate::merge::{MergeRules, MergeSearch, NEVER_MERGED};

/// Releases that have it.
pub const RELEASES: RangeInclusive<Era> = Era::V2_6_22..=Era::V6_19;

/// Every set of rules of SLUB with cpu slabs, oldest first, from its first release; a set is named after
/// the kernel that it was read in.
///
/// 4.13 was read for its thresholds and counters only: its slot, kmalloc alignment and run-time
/// rules are inferred from its neighbours.
pub static ERAS: [SlubEra; 7] = [V2_6_22, V2_6_24, V2_6_35, V4_13, V5_9, V6_1, V6_18];

/// The numbers of a release, which are those of the newest set that is not newer; `None` if SLUB has no cpu slabs in it.
pub fn slub_era(era: Era) -> Option<&'static SlubEra> {
    let known = ERAS.iter().rfind(|known| known.era <= era);
    known.filter(|_| RELEASES.contains(&era))
}

const V2_6_22: SlubEra = SlubEra {
    era: Era::V2_6_22,
    align: AlignRule::AboveHalfLine,
    layout: LayoutRules {
        free_pointer: FreePointer::Start,
        small_red_zone_outside: false,
        recorded_red_zone_outside: false,
        rcu_freeptr_offset: false,
        ctor_freeptr_offset: false,
        // Address, CPU, pid, time.
        track_bytes: 24,
        requested_size_bytes: 0,
        left_red_zone: false,
    },
    order: OrderRules {
        max_order_small: 1,
        max_order_large: 2,
        min_objects: MinObjects::ByPage { small: 4, large: 8 },
        fractions: &[8, 4],
        search: OrderSearch::HalveObjects,
        object_limit: ObjectLimit::Refuse(65535),
        orders_adjusted: false,
    },
    cpus: CpuCount::Unused,
    cpu_partial: None,
    min_partial: MinPartial::Constant(2),
    kmalloc: KmallocRules {
        service: KmallocService::Classes,
        shift_low: 3,
        between_by_line: false,
        page_shift_plus: 10,
        shift_max: 25,
        beyond: KmallocBeyond::Nothing,
        align: KmallocAlign::Word,
        hwcache_align: false,
        prefix: "kmalloc-",
        short_names: false,
    },
    merge: MergeRules {
        search: MergeSearch::NewestFirst,
        into_kmalloc: true,
        align_divides: false,
        never: NEVER_MERGED,
        same: CacheFlags::RECLAIM.union(CacheFlags::CONSISTENCY),
    },
    run: RunRules {
        has_fallback_order: false,
        has_cpu_partial: false,
        freeze_cpu_partial: false,
        zero_cpu_partial_drains: false,
        refill_counts_cpu_partial_as_refill: false,
        slowpath_counts_success: true,
        refill_counts_attempts: true,
        exhausted_is_deactivated: true,
        empty_kept_if_below_min_partial: false,
        free_adds_to: ListEnd::Head,
        deactivate_to: DeactivateEnd::Head,
        deactivate_empty_to: Some(ListEnd::Tail),
        kept_empty_counts_as_empty: true,
        // There are no such lists, but for those that `cpu_slabs` asks for.
        cpu_partial_mismatch: CpuPartialMismatch::PutBack,
        explicit_node: ExplicitNode::OtherLists,
        partial_take: PartialTake::One,
        shrink_sorts_all: true,
        debug_alloc: DebugAlloc::CpuSlabSlowPath,
        remote_node_defrag_ratio: 100,
        defrag_ratio_name: "defrag_ratio",
    },
};

const V2_6_24: SlubEra = SlubEra {
    era: Era::V2_6_24,
    order: OrderRules {
        object_limit: ObjectLimit::StopGrowing(65535),
        ..V2_6_22.order
    },
    min_partial: MinPartial::Constant(5),
    kmalloc: KmallocRules {
        page_shift_plus: -1,
        shift_max: u32::MAX,
        beyond: KmallocBeyond::PageAllocator,
        ..V2_6_22.kmalloc
    },
    run: RunRules {
        free_adds_to: ListEnd::Tail,
        ..V2_6_22.run
    },
    ..V2_6_22
};

const V2_6_35: SlubEra = SlubEra {
    era: Era::V2_6_25,
    align: AlignRule::HalvedLine,
    order: OrderRules {
        max_order_small: 3,
        max_order_large: 3,
        min_objects: MinObjects::ByCpus { cap: u32::MAX },
        fractions: &[16, 8, 4],
        search: OrderSearch::DecrementObjects,
        object_limit: ObjectLimit::BelowLimit(65535),
        orders_adjusted: false,
    },
    cpus: CpuCount::NrCpuIds,
    min_partial: MinPartial::Log2 { divisor: 1 },
    kmalloc: KmallocRules {
        page_shift_plus: 1,
        ..V2_6_24.kmalloc
    },
    run: RunRules {
        has_fallback_order: true,
        deactivate_to: DeactivateEnd::HeadIfCpuFreelist,
        remote_node_defrag_ratio: 1000,
        defrag_ratio_name: "remote_node_defrag_ratio",
        ..V2_6_24.run
    },
    ..V2_6_24
};

const V4_13: SlubEra = SlubEra {
    era: Era::V3_2,
    layout: LayoutRules {
        // With stack traces: the above and sixteen return addresses.
        track_bytes: 152,
        left_red_zone: true,
        ..V2_6_35.layout
    },
    order: OrderRules {
        object_limit: ObjectLimit::BelowLimit(32767),
        ..V2_6_35.order
    },
    cpu_partial: Some(CpuPartialRules {
        page: 2,
        from_1024: 6,
        from_256: 13,
        smaller: 30,
        unit: CpuPartialUnit::Objects,
    }),
    min_partial: MinPartial::Log2 { divisor: 2 },
    // Inferred from 6.1.
    merge: MergeRules {
        search: MergeSearch::OldestFirst,
        same: CacheFlags::RECLAIM,
        ..V2_6_35.merge
    },
    run: RunRules {
        has_cpu_partial: true,
        freeze_cpu_partial: true,
        zero_cpu_partial_drains: true,
        refill_counts_cpu_partial_as_refill: true,
        slowpath_counts_success: false,
        refill_counts_attempts: false,
        exhausted_is_deactivated: false,
        empty_kept_if_below_min_partial: true,
        deactivate_to: DeactivateEnd::TailIfRemoteFrees,
        deactivate_empty_to: None,
        kept_empty_counts_as_empty: false,
        cpu_partial_mismatch: CpuPartialMismatch::Deactivate,
        explicit_node: ExplicitNode::NewSlab,
        partial_take: PartialTake::HalfOfObjects,
        shrink_sorts_all: false,
        debug_alloc: DebugAlloc::Deactivate,
        ..V2_6_35.run
    },
    ..V2_6_35
};

const V5_9: SlubEra = SlubEra {
    era: Era::V5_7,
    layout: LayoutRules {
        free_pointer: FreePointer::MiddleUp,
        ..V4_13.layout
    },
    kmalloc: KmallocRules {
        align: KmallocAlign::PowerOfTwoClass,
        short_names: true,
        ..V4_13.kmalloc
    },
    // kmalloc caches have windows for copies to user space, which keep them apart.
    merge: MergeRules {
        into_kmalloc: false,
        ..V4_13.merge
    },
    ..V4_13
};

const V6_1: SlubEra = SlubEra {
    era: Era::V5_16,
    layout: LayoutRules {
        free_pointer: FreePointer::MiddleDown,
        small_red_zone_outside: true,
        // The stack is a handle into the stack depot.
        track_bytes: 32,
        requested_size_bytes: 4,
        ..V5_9.layout
    },
    cpus: CpuCount::Present,
    cpu_partial: Some(CpuPartialRules {
        page: 6,
        from_1024: 24,
        from_256: 52,
        smaller: 120,
        unit: CpuPartialUnit::Slabs,
    }),
    run: RunRules {
        zero_cpu_partial_drains: false,
        partial_take: PartialTake::HalfOfSlabs,
        debug_alloc: DebugAlloc::PartialList,
        ..V5_9.run
    },
    ..V5_9
};

pub(crate) const V6_18: SlubEra = SlubEra {
    era: Era::V6_10,
    layout: LayoutRules {
        recorded_red_zone_outside: true,
        rcu_freeptr_offset: true,
        // 4 until 6.18.2, 8 in later stable releases.
        requested_size_bytes: 8,
        ..V6_1.layout
    },
    order: OrderRules {
        fractions: &[16, 8, 4, 2],
        search: OrderSearch::MinOrder,
        orders_adjusted: true,
        ..V6_1.order
    },
    kmalloc: KmallocRules {
        align: KmallocAlign::LargestPowerOfTwo,
        ..V6_1.kmalloc
    },
    run: RunRules {
        freeze_cpu_partial: false,
        refill_counts_cpu_partial_as_refill: false,
        cpu_partial_mismatch: CpuPartialMismatch::PutBack,
        explicit_node: ExplicitNode::NewSlabThere,
        partial_take: PartialTake::HalfOfSlabsUnlessZero,
        ..V6_1.run
    },
    ..V6_1
};
