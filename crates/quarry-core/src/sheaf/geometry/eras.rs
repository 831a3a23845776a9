//! The eras' numbers.

use core::ops::RangeInclusive;

use super::{BarnRules, BulkOrder, Capacity, EmptyMain, RefillOrder, RunRules, SheafEra};
use crate::era::Era;
use crate::geometry::SizeClasses;
use crate::slub::geometry as slub;

/// Releases that have it.
pub const RELEASES: RangeInclusive<Era> = Era::V6_18..=Era::LAST;

/// Every era with sheaves, oldest first.
pub const ERAS: [SheafEra; 4] = [V6_18, V7_0, V7_2, V7_3];

/// The numbers of a release, which are those of the newest set that is not newer; `None` if it has no sheaves.
pub fn sheaf_era(era: Era) -> Option<&'static SheafEra> {
    let known = ERAS.iter().rfind(|known| known.era <= era);
    known.filter(|_| RELEASES.contains(&era))
}

const V6_18: SheafEra = SheafEra {
    era: Era::V6_18,
    slub: slub::rules_of(Era::V6_18),
    capacity: Capacity::Asked,
    barn: BarnRules {
        full: 10,
        empty: 10,
    },
    run: RunRules {
        cpu_slabs: true,
        sheaf_is_fastpath: false,
        counts_node_mismatch: false,
        empty_main: EmptyMain::Barn,
        refill: RefillOrder::LastFirst,
        bulk_free: BulkOrder::AsMet,
    },
};

const V7_0: SheafEra = SheafEra {
    era: Era::V7_0,
    slub: slub::rules_of(Era::V7_0),
    capacity: Capacity::BySize(SizeClasses {
        page: 4,
        kib: 12,
        quarter_kib: 26,
        smaller: 60,
    }),
    run: RunRules {
        cpu_slabs: false,
        sheaf_is_fastpath: true,
        counts_node_mismatch: true,
        empty_main: EmptyMain::SpareFirst,
        ..V6_18.run
    },
    ..V6_18
};

const V7_2: SheafEra = SheafEra {
    era: Era::V7_2,
    slub: slub::rules_of(Era::V7_2),
    run: RunRules {
        refill: RefillOrder::FirstFirst,
        ..V7_0.run
    },
    ..V7_0
};

pub(crate) const V7_3: SheafEra = SheafEra {
    era: Era::V7_3,
    slub: slub::rules_of(Era::V7_3),
    run: RunRules {
        bulk_free: BulkOrder::LocalFirst,
        ..V7_2.run
    },
    ..V7_2
};
