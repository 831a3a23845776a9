//! The numbers of each release: one function of it, where every rule names the releases at which it
//! changed.

use core::ops::RangeInclusive;

use super::{
    ArrayPlace, ColourRule, FreelistRules, GrowRule, IndexBytes, LimitRules, ReleaseRule, RunRules,
    SharedUse, SlabEra,
};
use crate::era::Era;
use crate::geometry::{
    DebugRules, KmallocAlign, KmallocBeyond, KmallocRules, KmallocService, KmallocSizes,
    SizeClasses, TrackLayout,
};
use crate::slub;

/// Releases that have it.
pub const RELEASES: RangeInclusive<Era> = Era::V2_6_22..=Era::V6_7;

/// The rules of every such release, oldest first.
pub static ERAS: [SlabEra; Era::V6_8 as usize] = {
    let mut eras = [rules_of(Era::V2_6_22); Era::V6_8 as usize];
    let mut at = 0;
    while at < eras.len() {
        eras[at] = rules_of(Era::ALL[at]);
        at += 1;
    }
    eras
};

/// The rules of a release; `None` if it has no SLAB.
pub fn slab_era(era: Era) -> Option<&'static SlabEra> {
    ERAS.get(era as usize)
}

const fn rules_of(era: Era) -> SlabEra {
    SlabEra {
        era,
        freelist: freelist(era),
        max_order: 1,
        has_max_order_parameter: era.since(Era::V3_8),
        // Inferred: read in 2.6.24 and 6.1.
        line_beats_debug: era.since(Era::V4_7),
        limits: LimitRules {
            huge_bytes: 131_072,
            huge: 1,
            limits: SizeClasses {
                page: 8,
                kib: 24,
                quarter_kib: 54,
                smaller: 120,
            },
            shared_factor: 8,
            alien_limit: 12,
            debug_max: 32,
        },
        kmalloc: kmalloc(era),
        run: run(era),
    }
}

const fn freelist(era: Era) -> FreelistRules {
    if !era.since(Era::V3_13) {
        return FreelistRules::Descriptor {
            descriptor_bytes: 48,
            index_bytes: 4,
            off_slab_page_part: 8,
        };
    }
    FreelistRules::Array {
        index: if era.since(Era::V3_15) {
            IndexBytes::Narrow { min_bytes: 16 }
        } else {
            IndexBytes::Word
        },
        place: if era.since(Era::V4_6) {
            ArrayPlace::InObject
        } else {
            ArrayPlace::BySize {
                off_slab_page_part: if era.since(Era::V3_15) { 32 } else { 8 },
            }
        },
    }
}

const fn kmalloc(era: Era) -> KmallocRules {
    // The common classes of all designs; that the names came with them is inferred.
    let common = era.since(Era::V3_10);
    let pages = era.since(Era::V6_1);
    KmallocRules {
        service: KmallocService::Classes,
        shift_low: 5,
        sizes: if common {
            KmallocSizes::Powers
        } else {
            KmallocSizes::PowersByLine
        },
        page_shift_plus: if pages { 1 } else { 10 },
        shift_max: if pages { u32::MAX } else { 25 },
        beyond: if pages {
            KmallocBeyond::PageAllocator
        } else {
            KmallocBeyond::Nothing
        },
        align: if era.since(Era::V5_4) {
            KmallocAlign::PowerOfTwoClass
        } else {
            KmallocAlign::Word
        },
        hwcache_align: true,
        prefix: if common { "kmalloc-" } else { "size-" },
        short_names: era.since(Era::V4_20),
    }
}

const fn run(era: Era) -> RunRules {
    let v4_7 = era.since(Era::V4_7);
    RunRules {
        release: if v4_7 {
            ReleaseRule::TailAfterGroup
        } else {
            ReleaseRule::JustEmptied
        },
        grow: if v4_7 {
            GrowRule::FeedArray
        } else {
            GrowRule::FreeListTail
        },
        colour: if v4_7 {
            ColourRule::AdvanceThenUse
        } else {
            ColourRule::UseThenAdvance
        },
        looks_before_lock: v4_7,
        // The release is inferred: read in 2.6.24 and 6.1.
        shared_use: if era.since(Era::V2_6_33) {
            SharedUse::Refill
        } else {
            SharedUse::AlienOverflow
        },
        untouched_batch: 16,
    }
}

/// Layout and patterns that debugging writes into slots: red zones are words, and one word names both users.
/// The other bytes are SLUB's.
pub(crate) fn debug_rules(era: Era) -> DebugRules {
    DebugRules {
        red_inactive: 0x09f9_1102_9d74_e35b_u64.to_le_bytes(),
        red_active: 0xd841_56c5_6356_88c0_u64.to_le_bytes(),
        track: TrackLayout::HalfWord,
        request_bytes: 0,
        red_zone_from_request: false,
        ..slub::geometry::debug_rules(era)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_word_has_room_for_both_users() {
        let rules = debug_rules(Era::V6_1);
        assert_eq!(u64::from_le_bytes(rules.red_active), 0xd841_56c5_6356_88c0);
        assert_eq!(2 * rules.track.bytes(), 8);
    }
}
