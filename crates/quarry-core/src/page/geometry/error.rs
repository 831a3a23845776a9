//! Errors: input for which no zone has sizes.

use core::fmt;

use super::{FRACTION_MIN, WATERMARK_SCALE_FACTOR_MAX, ZONE_PAGES_MAX};
use crate::era::Era;
use crate::geometry::{NR_CPUS_MAX, PAGE_SHIFT_MAX, PAGE_SHIFT_MIN};

/// Input that no machine of the era has. Its message says what was wrong and what is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageGeometryError {
    /// The page size is not covered.
    PageShift {
        /// log2 of the page size.
        page_shift: u32,
    },
    /// The number of CPUs is not covered.
    NrCpus {
        /// The number of CPUs.
        cpus: u32,
    },
    /// The zone is empty, larger than all zones together, or they are too large.
    Pages {
        /// Pages of the zone.
        pages: u64,
        /// Pages of all zones.
        all_pages: u64,
    },
    /// The fraction is below what the sysctl takes.
    Fraction {
        /// The sysctl.
        name: &'static str,
        /// The fraction.
        fraction: u32,
    },
    /// `watermark_scale_factor` is out of its range, or the era does not have it.
    ScaleFactor {
        /// The era.
        era: Era,
        /// The factor.
        factor: u32,
    },
    /// `min_free_kbytes` is more than there is.
    MinFree {
        /// The value in KiB.
        kib: u64,
        /// KiB of all zones.
        all_kib: u64,
    },
}

impl fmt::Display for PageGeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PageShift { page_shift } => write!(
                f,
                "page shift {page_shift} is not in {PAGE_SHIFT_MIN}..={PAGE_SHIFT_MAX} \
                 (4 KiB to 64 KiB pages)"
            ),
            Self::NrCpus { cpus } => write!(f, "{cpus} CPUs is not in 1..={NR_CPUS_MAX}"),
            Self::Pages { pages: 0, .. } => f.write_str("a zone must have at least one page"),
            Self::Pages { pages, all_pages } if pages > all_pages => write!(
                f,
                "a zone of {pages} pages is larger than all zones together, {all_pages} pages"
            ),
            Self::Pages { all_pages, .. } => write!(
                f,
                "{all_pages} pages in all zones is above {ZONE_PAGES_MAX}, the most covered"
            ),
            Self::Fraction { name, fraction } => write!(
                f,
                "{name} is {fraction}; it must be 0 (off) or at least {FRACTION_MIN}"
            ),
            Self::ScaleFactor { era, factor }
                if (1..=WATERMARK_SCALE_FACTOR_MAX).contains(&factor) =>
            {
                write!(f, "era {era} has no watermark_scale_factor; 4.6 has")
            }
            Self::ScaleFactor { factor, .. } => write!(
                f,
                "watermark_scale_factor is {factor}; it must be in 1..={WATERMARK_SCALE_FACTOR_MAX}"
            ),
            Self::MinFree { kib, all_kib } => write!(
                f,
                "min_free_kbytes is {kib} KiB; all zones together have {all_kib} KiB"
            ),
        }
    }
}

crate::error::debug_is_display!(PageGeometryError);

impl core::error::Error for PageGeometryError {}
