//! The numbers of a release: which of its rules for sizes it has (versions of the kernel's
//! `zone_batchsize()`, `zone_highsize()`, `order_to_pindex()`, `calculate_min_free_kbytes()`).
//!
//! | from | rule |
//! |---|---|
//! | 2.6.25 | one list in the place of a hot and a cold one |
//! | 2.6.32 | a list per migrate type |
//! | 4.6 | watermarks are apart by a scale factor |
//! | 4.19 | a batch is up to 1 MiB / 4 (63 pages of 4 KiB), not 512 KiB / 4 (31) |
//! | 5.4 | lists are sized again after late initialisation of pages |
//! | 5.7 | `min_free_kbytes` is up to 256 MiB, not 64 MiB |
//! | 5.14 | lists of orders 0 to 3 and of huge pages by type; `high` by the low watermark |
//! | 5.18 | `promo` watermark |
//! | 6.0 | one list of huge pages |
//! | 6.7 | `high` is tuned |
//! | 6.10 | two lists of huge pages |
//!
//! 6.19 computes the batch in another way, which makes no zone's lists other ones: a batch of 0 had
//! counted as 1 before.

use super::{FractionRule, HighRule, PageEra, PcpLists, WatermarkStep};
use crate::era::Era;

/// The numbers of a release.
#[must_use]
pub fn page_era(era: Era) -> PageEra {
    PageEra {
        era,
        batch_cap_bytes: if era >= Era::V4_19 {
            256 << 10
        } else {
            128 << 10
        },
        sizes_lists_again: era >= Era::V5_4,
        lists: lists(era),
        high: match era {
            _ if era >= Era::V6_7 => HighRule::Tuned,
            _ if era >= Era::V5_14 => HighRule::LowWatermark,
            _ => HighRule::Batches,
        },
        fraction: if era >= Era::V5_14 {
            FractionRule::AllCpus
        } else {
            FractionRule::EachCpu
        },
        min_free_kbytes_max: if era >= Era::V5_7 { 262_144 } else { 65536 },
        step: if era >= Era::V4_6 {
            WatermarkStep::ScaleFactor
        } else {
            WatermarkStep::QuarterOfMin
        },
        has_promo: era >= Era::V5_18,
    }
}

fn lists(era: Era) -> PcpLists {
    PcpLists {
        cold_list: era < Era::V2_6_25,
        migrate_types: if era >= Era::V2_6_32 { 3 } else { 1 },
        max_order: if era >= Era::V5_14 { 3 } else { 0 },
        huge_lists: match era {
            _ if era >= Era::V6_10 => 2,
            _ if era >= Era::V6_0 => 1,
            _ if era >= Era::V5_14 => 3,
            _ => 0,
        },
    }
}
