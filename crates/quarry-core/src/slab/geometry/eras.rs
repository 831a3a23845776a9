//! The eras' numbers.

use core::ops::RangeInclusive;

use super::{
    ColourRule, FreelistRules, GrowRule, LimitRules, ReleaseRule, RunRules, SharedUse, SlabEra,
};
use crate::era::Era;
use crate::geometry::{KmallocAlign, KmallocBeyond, KmallocRules, KmallocService};

/// Releases that have it. 2.6.22 and 2.6.23 have the rules of 2.6.24.
pub const RELEASES: RangeInclusive<Era> = Era::V2_6_22..=Era::V6_7;

/// Every era of SLAB that is known here, oldest first.
pub static ERAS: [SlabEra; 2] = [V2_6_24, V6_1];

/// The numbers of a release, which are those of the newest set that is not newer; `None` if SLAB's are not known.
pub fn slab_era(era: Era) -> Option<&'static SlabEra> {
    let known = ERAS.iter().rfind(|known| known.era <= era);
    RELEASES.contains(&era).then(|| known.unwrap_or(&ERAS[0]))
}

const V2_6_24: SlabEra = SlabEra {
    era: Era::V2_6_24,
    freelist: FreelistRules::Descriptor {
        descriptor_bytes: 48,
        index_bytes: 4,
        off_slab_page_part: 8,
    },
    max_order: 1,
    has_max_order_parameter: false,
    line_beats_debug: false,
    limits: LimitRules {
        huge_bytes: 131_072,
        huge: 1,
        above_page: 8,
        above_1024: 24,
        above_256: 54,
        smaller: 120,
        shared_factor: 8,
        alien_limit: 12,
        debug_max: 32,
    },
    kmalloc: KmallocRules {
        service: KmallocService::Classes,
        shift_low: 5,
        between_by_line: true,
        page_shift_plus: 10,
        shift_max: 25,
        beyond: KmallocBeyond::Nothing,
        align: KmallocAlign::Word,
        hwcache_align: true,
        prefix: "size-",
        short_names: false,
    },
    run: RunRules {
        release: ReleaseRule::JustEmptied,
        grow: GrowRule::FreeListTail,
        colour: ColourRule::UseThenAdvance,
        looks_before_lock: false,
        shared_use: SharedUse::AlienOverflow,
        untouched_batch: 16,
    },
};

const V6_1: SlabEra = SlabEra {
    era: Era::V6_1,
    freelist: FreelistRules::Array { min_bytes: 16 },
    has_max_order_parameter: true,
    line_beats_debug: true,
    kmalloc: KmallocRules {
        between_by_line: false,
        page_shift_plus: 1,
        shift_max: u32::MAX,
        beyond: KmallocBeyond::PageAllocator,
        align: KmallocAlign::PowerOfTwoClass,
        prefix: "kmalloc-",
        short_names: true,
        ..V2_6_24.kmalloc
    },
    run: RunRules {
        release: ReleaseRule::TailAfterGroup,
        grow: GrowRule::FeedArray,
        colour: ColourRule::AdvanceThenUse,
        looks_before_lock: true,
        shared_use: SharedUse::Refill,
        ..V2_6_24.run
    },
    ..V2_6_24
};
