//! The numbers of each release: one function of it, where every rule names the release at which it
//! changed. 2.6.24 and 6.1 were read; releases between are inferred from the kernel's history.

use core::ops::RangeInclusive;

use super::{HwcacheAlign, SlobEra};
use crate::era::Era;
use crate::geometry::{KmallocAlign, KmallocBeyond, KmallocRules, KmallocService, KmallocSizes};

/// Releases that have it.
pub const RELEASES: RangeInclusive<Era> = Era::V2_6_22..=Era::V6_3;

/// The rules of every such release, oldest first.
pub static ERAS: [SlobEra; Era::V6_4 as usize] = {
    let mut eras = [rules_of(Era::V2_6_22); Era::V6_4 as usize];
    let mut at = 0;
    while at < eras.len() {
        eras[at] = rules_of(Era::ALL[at]);
        at += 1;
    }
    eras
};

/// The rules of a release; `None` if it has no SLOB.
pub fn slob_era(era: Era) -> Option<&'static SlobEra> {
    ERAS.get(era as usize)
}

const fn rules_of(era: Era) -> SlobEra {
    SlobEra {
        era,
        // Between 2.6.24 and 2.6.26.
        list_limits: if era.since(Era::V2_6_25) {
            &[256, 1024]
        } else {
            &[]
        },
        merge_before_first: era.since(Era::V2_6_26),
        head_moves_past_full: !era.since(Era::V5_2),
        // With the common creation of caches.
        hwcache_align: if era.since(Era::V3_7) {
            HwcacheAlign::HalvedLine
        } else {
            HwcacheAlign::Line
        },
        kmalloc: KmallocRules {
            service: KmallocService::Design,
            shift_low: 3,
            sizes: KmallocSizes::Powers,
            page_shift_plus: 0,
            shift_max: u32::MAX,
            beyond: KmallocBeyond::PageAllocator,
            // Read on both sides.
            align: if era.since(Era::V5_4) {
                KmallocAlign::PowerOfTwoClass
            } else {
                KmallocAlign::Word
            },
            hwcache_align: false,
            prefix: "kmalloc-",
            short_names: era.since(Era::V4_20),
        },
    }
}
