//! The numbers of each release: one function of it, where every rule names the releases at which it
//! changed. Both sides of a change were read unless a comment says that its release is inferred.

use core::ops::RangeInclusive;

use super::{
    AlignRule, CpuCount, CpuPartialMismatch, CpuPartialRules, CpuPartialUnit, DeactivateEnd,
    ExplicitNode, FreePointer, LayoutRules, ListEnd, MinObjects, MinPartial, ObjectLimit,
    OrderRules, OrderSearch, PartialTake, RecordedPointer, RunRules, SlubEra,
};
use crate::era::Era;
use crate::geometry::{
    CacheFlags, DebugRules, KmallocAlign, KmallocBeyond, KmallocRules, KmallocService,
    KmallocSizes, SizeClasses, TrackLayout,
};
use crate::merge::{MergeRules, MergeSearch, NEVER_MERGED};

/// Releases that have CPU slabs.
pub const RELEASES: RangeInclusive<Era> = Era::V2_6_22..=Era::V6_19;

/// The rules of every such release, oldest first.
pub static ERAS: [SlubEra; Era::V7_0 as usize] = {
    let mut eras = [rules_of(Era::V2_6_22); Era::V7_0 as usize];
    let mut at = 0;
    while at < eras.len() {
        eras[at] = rules_of(Era::ALL[at]);
        at += 1;
    }
    eras
};

/// The rules of a release; `None` if it has no CPU slabs.
pub fn slub_era(era: Era) -> Option<&'static SlubEra> {
    ERAS.get(era as usize)
}

/// The rules of a release; from 7.0 on those of the slabs under sheaves.
pub(crate) const fn rules_of(era: Era) -> SlubEra {
    SlubEra {
        era,
        // Between 2.6.24 and 2.6.26.
        align: if era.since(Era::V2_6_26) {
            AlignRule::HalvedLine
        } else {
            AlignRule::AboveHalfLine
        },
        layout: layout(era),
        order: order(era),
        cpus: if era.since(Era::V5_11) {
            CpuCount::Present
        } else if era.since(Era::V2_6_26) {
            CpuCount::NrCpuIds
        } else {
            CpuCount::Unused
        },
        cpu_partial: cpu_partial(era),
        min_partial: if era.since(Era::V3_2) {
            MinPartial::Log2 { divisor: 2 }
        } else if era.since(Era::V2_6_27) {
            MinPartial::Log2 { divisor: 1 }
        } else if era.since(Era::V2_6_24) {
            MinPartial::Constant(5)
        } else {
            MinPartial::Constant(2)
        },
        kmalloc: kmalloc(era),
        merge: MergeRules {
            search: if era.since(Era::V3_19) {
                MergeSearch::OldestFirst
            } else {
                MergeSearch::NewestFirst
            },
            // kmalloc caches have windows for copies to user space, which keep them apart; from 5.14
            // on memory groups do.
            into_kmalloc: !era.since(Era::V4_16),
            align_divides: false,
            never: NEVER_MERGED,
            // Inferred: until the flag became `SLAB_CONSISTENCY_CHECKS`.
            same: if era.since(Era::V4_6) {
                CacheFlags::RECLAIM
            } else {
                CacheFlags::RECLAIM.union(CacheFlags::CONSISTENCY)
            },
        },
        run: run(era),
    }
}

const fn layout(era: Era) -> LayoutRules {
    LayoutRules {
        free_pointer: if era.since(Era::V5_13) {
            FreePointer::MiddleDown
        } else if era.since(Era::V5_7) {
            FreePointer::MiddleUp
        } else {
            FreePointer::Start
        },
        small_red_zone_outside: era.since(Era::V5_13),
        recorded_pointer: if era.since(Era::V6_11) {
            RecordedPointer::OutsideIfRedZoned
        } else if era.since(Era::V6_2) {
            RecordedPointer::Outside
        } else {
            RecordedPointer::Inside
        },
        rcu_freeptr_offset: era.since(Era::V6_12),
        ctor_freeptr_offset: era.since(Era::V7_0),
        track_bytes: if era.since(Era::V5_19) {
            // The stack is a handle into the stack depot.
            32
        } else if era.since(Era::V3_1) {
            // The below and sixteen return addresses; the release is inferred.
            152
        } else {
            // Address, CPU, pid, time.
            24
        },
        requested_size_bytes: if era.since(Era::V6_18) {
            // Of 7.0, but late stable updates of 6.18 have it; 6.18.2 has 4.
            8
        } else if era.since(Era::V6_1) {
            4
        } else {
            0
        },
        left_red_zone: era.since(Era::V4_6),
    }
}

const fn order(era: Era) -> OrderRules {
    let by_cpus = era.since(Era::V2_6_26);
    OrderRules {
        max_order_small: if by_cpus { 3 } else { 1 },
        max_order_large: if by_cpus { 3 } else { 2 },
        min_objects: if by_cpus {
            MinObjects::ByCpus { cap: u32::MAX }
        } else {
            MinObjects::ByPage { small: 4, large: 8 }
        },
        fractions: if era.since(Era::V6_7) {
            &[16, 8, 4, 2]
        } else if by_cpus {
            &[16, 8, 4]
        } else {
            &[8, 4]
        },
        search: if era.since(Era::V6_7) {
            OrderSearch::MinOrder
        } else if era.since(Era::V2_6_30) {
            OrderSearch::DecrementObjects
        } else {
            OrderSearch::HalveObjects
        },
        object_limit: if era.since(Era::V3_1) {
            ObjectLimit::BelowLimit(32767)
        } else if by_cpus {
            ObjectLimit::BelowLimit(65535)
        } else if era.since(Era::V2_6_23) {
            ObjectLimit::StopGrowing(65535)
        } else {
            ObjectLimit::Refuse(65535)
        },
        // Inferred: read in 6.18 only.
        orders_adjusted: era.since(Era::V6_7),
    }
}

const fn cpu_partial(era: Era) -> Option<CpuPartialRules> {
    if !era.since(Era::V3_2) || era.since(Era::V7_0) {
        return None;
    }
    if era.since(Era::V5_16) {
        return Some(CpuPartialRules {
            objects: SizeClasses {
                page: 6,
                kib: 24,
                quarter_kib: 52,
                smaller: 120,
            },
            unit: CpuPartialUnit::Slabs,
        });
    }
    Some(CpuPartialRules {
        objects: SizeClasses {
            page: 2,
            kib: 6,
            quarter_kib: 13,
            smaller: 30,
        },
        unit: CpuPartialUnit::Objects,
    })
}

const fn kmalloc(era: Era) -> KmallocRules {
    let all_classes = !era.since(Era::V2_6_24);
    KmallocRules {
        service: KmallocService::Classes,
        shift_low: 3,
        sizes: KmallocSizes::Powers,
        page_shift_plus: if era.since(Era::V2_6_30) {
            1
        } else if era.since(Era::V2_6_25) {
            0
        } else if all_classes {
            10
        } else {
            -1
        },
        shift_max: if all_classes { 25 } else { u32::MAX },
        beyond: if all_classes {
            KmallocBeyond::Nothing
        } else {
            KmallocBeyond::PageAllocator
        },
        align: if era.since(Era::V6_11) {
            KmallocAlign::LargestPowerOfTwo
        } else if era.since(Era::V5_4) {
            KmallocAlign::PowerOfTwoClass
        } else {
            KmallocAlign::Word
        },
        hwcache_align: false,
        prefix: "kmalloc-",
        short_names: era.since(Era::V4_20),
    }
}

const fn run(era: Era) -> RunRules {
    // The slow path by compare-and-swap on list and counters.
    let v3_1 = era.since(Era::V3_1);
    let has_cpu_partial = cpu_partial(era).is_some();
    RunRules {
        has_fallback_order: era.since(Era::V2_6_26),
        has_cpu_partial,
        freeze_cpu_partial: has_cpu_partial && !era.since(Era::V6_8),
        zero_cpu_partial_drains: era.since(Era::V4_0) && !era.since(Era::V5_15),
        first_slab_counts: era.since(Era::V3_10),
        drain_frees_an_empty_slab: has_cpu_partial && !era.since(Era::V3_6),
        refill_counts_cpu_partial_as_refill: has_cpu_partial && !era.since(Era::V6_8),
        mismatch_counts_cpu_partial_alloc: has_cpu_partial && !era.since(Era::V6_9),
        // The counters of 3.1 are inferred to have begun there.
        slowpath_counts_success: !v3_1,
        refill_counts_attempts: !v3_1,
        exhausted_is_deactivated: !v3_1,
        empty_kept_if_below_min_partial: v3_1,
        keeps_one_more: v3_1 && !era.since(Era::V3_16),
        list_in_descriptor: !era.since(Era::V2_6_24),
        bulk_counts_objects: era.since(Era::V6_8),
        free_adds_to: if era.since(Era::V2_6_24) {
            ListEnd::Tail
        } else {
            ListEnd::Head
        },
        deactivate_to: if v3_1 {
            DeactivateEnd::TailIfRemoteFrees
        } else if era.since(Era::V2_6_25) {
            // Between 2.6.24 and 2.6.26.
            DeactivateEnd::HeadIfCpuFreelist
        } else {
            DeactivateEnd::Head
        },
        deactivate_empty_to: if v3_1 { None } else { Some(ListEnd::Tail) },
        kept_empty_counts_as_empty: !v3_1,
        // Before 3.2 there are no such lists, but for those that `cpu_slabs` asks for.
        cpu_partial_mismatch: if has_cpu_partial && !era.since(Era::V6_8) {
            CpuPartialMismatch::Deactivate
        } else {
            CpuPartialMismatch::PutBack
        },
        explicit_node: if era.since(Era::V6_10) {
            ExplicitNode::NewSlabThere
        } else if era.since(Era::V2_6_36) {
            ExplicitNode::NewSlab
        } else {
            ExplicitNode::OtherLists
        },
        partial_take: if !has_cpu_partial {
            PartialTake::One
        } else if era.since(Era::V6_10) {
            PartialTake::HalfOfSlabsUnlessZero
        } else if era.since(Era::V5_16) {
            PartialTake::HalfOfSlabs
        } else {
            PartialTake::HalfOfObjects
        },
        // Inferred: that 2.6.23 differs.
        shrink_sorts_above: if era.since(Era::V2_6_23) { 0 } else { 10 },
        shrink_sorts_all: !era.since(Era::V4_0),
        remote_node_defrag_ratio: if era.since(Era::V2_6_27) { 1000 } else { 100 },
        // Between 2.6.24 and 2.6.26.
        defrag_ratio_name: if era.since(Era::V2_6_25) {
            "remote_node_defrag_ratio"
        } else {
            "defrag_ratio"
        },
    }
}

/// Layout and patterns that SLUB's debugging writes into slots; also of the designs that came from it.
pub(crate) fn debug_rules(era: Era) -> DebugRules {
    let layout = rules_of(era).layout;
    DebugRules {
        red_inactive: [0xbb; 8],
        red_active: [0xcc; 8],
        poison_free: 0x6b,
        poison_end: 0xa5,
        poison_inuse: 0x5a,
        track: TrackLayout::of_bytes(layout.track_bytes),
        request_bytes: layout.requested_size_bytes,
        red_zone_from_request: layout.recorded_pointer != RecordedPointer::Inside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_have_their_records() {
        let bytes = |era| debug_rules(era).track.bytes();
        assert_eq!(bytes(Era::V2_6_22), 24);
        assert_eq!(bytes(Era::V2_6_35), 24);
        assert_eq!(bytes(Era::V5_9), 152);
        assert_eq!(bytes(Era::V6_1), 32);
        assert_eq!(bytes(Era::V6_18), 32);
        assert_eq!(bytes(Era::V7_0), 32);
        for rules in Era::REFERENCE.map(debug_rules) {
            let TrackLayout::Record {
                bytes,
                cpu,
                pid,
                when,
            } = rules.track
            else {
                panic!("{rules:?}")
            };
            assert_eq!(when + 8, bytes);
            assert!(cpu + 4 == pid && pid + 4 <= when);
        }
        assert!(debug_rules(Era::V7_0).red_zone_from_request);
        assert!(!debug_rules(Era::V6_1).red_zone_from_request);
    }
}
