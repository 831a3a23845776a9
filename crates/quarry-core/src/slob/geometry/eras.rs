//! The eras' numbers.

use core::ops::RangeInclusive;

use super::{HwcacheAlign, SlobEra};
use crate::era::Era;
use crate::geometry::{KmallocAlign, KmallocBeyond, KmallocRules, KmallocService};

/// Releases that have it. 2.6.22 and 2.6.23 have the rules of 2.6.24.
pub const RELEASES: RangeInclusive<Era> = Era::V2_6_22..=Era::V6_3;

/// Every era of SLOB, oldest first.
pub static ERAS: [SlobEra; 2] = [V2_6_24, V6_1];

/// The numbers of a release, which are those of the newest set that is not newer; `None` if they are not known.
pub fn slob_era(era: Era) -> Option<&'static SlobEra> {
    let known = ERAS.iter().rfind(|known| known.era <= era);
    RELEASES.contains(&era).then(|| known.unwrap_or(&ERAS[0]))
}

const V2_6_24: SlobEra = SlobEra {
    era: Era::V2_6_24,
    list_limits: &[],
    merge_before_first: false,
    head_moves_past_full: true,
    hwcache_align: HwcacheAlign::Line,
    kmalloc: KmallocRules {
        service: KmallocService::Design,
        shift_low: 3,
        between_by_line: false,
        page_shift_plus: 0,
        shift_max: u32::MAX,
        beyond: KmallocBeyond::PageAllocator,
        align: KmallocAlign::Word,
        hwcache_align: false,
        prefix: "kmalloc-",
        short_names: false,
    },
};

const V6_1: SlobEra = SlobEra {
    era: Era::V6_1,
    list_limits: &[256, 1024],
    merge_before_first: true,
    head_moves_past_full: false,
    hwcache_align: HwcacheAlign::HalvedLine,
    kmalloc: KmallocRules {
        align: KmallocAlign::PowerOfTwoClass,
        short_names: true,
        ..V2_6_24.kmalloc
    },
};
