//! The eras' numbers.
//!
//! What was read for which kernel: `batch` for all eras; `high`, the lists and the fractions for
//! 2.6.22, 2.6.24, 4.13, 5.9, 6.1 and 6.18 (2.6.35: its `batch` and `high` only, so its lists are
//! 4.13's); the watermarks for 2.6.24 and from 6.1 on. Therefore 2.6.22 and 2.6.35 have the
//! watermarks of 2.6.24; 4.13 has its cap and, by the kernel's documentation, the scale factor; 5.9
//! has the cap of 6.1. Of 7.0 only the sizes of the lists were compared.

use super::{FractionRule, HighRule, PageEra, PcpLists, WatermarkStep};
use crate::era::Era;

/// Every set of numbers, oldest first. A set holds from its release to the next set's.
pub static ERAS: [PageEra; 8] = [V2_6_22, V2_6_24, V2_6_35, V4_13, V5_9, V6_1, V6_18, V7_0];

/// The numbers of a release.
#[must_use]
pub fn page_era(era: Era) -> &'static PageEra {
    let known = ERAS.iter().rfind(|known| known.era <= era);
    known.unwrap_or(&ERAS[0])
}

const V2_6_22: PageEra = PageEra {
    era: Era::V2_6_22,
    batch_cap_bytes: 128 << 10,
    lists: PcpLists {
        cold_list: true,
        migrate_types: 1,
        max_order: 0,
        huge_lists: 0,
    },
    high: HighRule::Batches,
    fraction: None,
    min_free_kbytes_max: 65536,
    step: WatermarkStep::QuarterOfMin,
    has_promo: false,
};

const V2_6_24: PageEra = PageEra {
    era: Era::V2_6_24,
    // It sets the hot list only.
    fraction: Some(FractionRule::EachCpu),
    ..V2_6_22
};

const V2_6_35: PageEra = PageEra {
    era: Era::V2_6_35,
    lists: PcpLists {
        cold_list: false,
        migrate_types: 3,
        ..V2_6_24.lists
    },
    ..V2_6_24
};

const V4_13: PageEra = PageEra {
    era: Era::V4_13,
    step: WatermarkStep::ScaleFactor,
    ..V2_6_35
};

const V5_9: PageEra = PageEra {
    era: Era::V5_9,
    batch_cap_bytes: 256 << 10,
    min_free_kbytes_max: 262_144,
    ..V4_13
};

const V6_1: PageEra = PageEra {
    era: Era::V6_1,
    lists: PcpLists {
        max_order: 3,
        huge_lists: 1,
        ..V5_9.lists
    },
    high: HighRule::LowWatermark,
    fraction: Some(FractionRule::AllCpus),
    has_promo: true,
    ..V5_9
};

const V6_18: PageEra = PageEra {
    era: Era::V6_18,
    lists: PcpLists {
        huge_lists: 2,
        ..V6_1.lists
    },
    high: HighRule::Tuned,
    ..V6_1
};

const V7_0: PageEra = PageEra {
    era: Era::V7_0,
    ..V6_18
};
