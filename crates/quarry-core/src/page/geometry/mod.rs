//! Sizes of the page allocator by era, as pure functions: `batch` and `high` of the per-CPU lists
//! and which orders they hold, the watermarks, and what else follows from the size of a zone.
//!
//! What differs between kernels is a [`PageEra`]; [`PageEra::zone`] answers for a zone among others
//! with the values of the sysctls, [`pcp_params`] for a machine's only zone with their defaults.
//!
//! # Formulas
//!
//! For a zone of Z pages of P bytes on a node with C CPUs (facts 7.2 and 7.7;
//! `zone_batchsize()`, `pageset_set_high_and_batch()`,
//! `zone_highsize()` and `__setup_per_zone_wmarks()` by their kernel names):
//!
//! * *batch*: b = Z / 4096, at most a cap in bytes / P, at least 1;
//!   `batchsize` = 2^floor(log2(b + b/2)) - 1, and the batch is at least 1. The facts cap Z / 1024
//!   at four times as much and divide by 4 then, which comes to the same.
//! * *high*: six times `batchsize` up to 5.13; from 5.14 the low watermark / C, at least four
//!   batches; from 6.7 on tuned between that and Z / 8 / C.
//! * *hot and cold lists* (2.6.22 to 2.6.24): the cold one has twice `batchsize` for its high and
//!   half of it for its batch.
//! * *`percpu_pagelist_fraction`* f: high = Z / f, batch = high / 4 in 1..=8 log2 P.
//!   *`percpu_pagelist_high_fraction`* f: high = Z / f / C, not tuned. That it too is at least four
//!   batches is taken from the same rule's other bounds; the facts do not say.
//! * *`min_free_kbytes`*: sqrt(16 times the zones' KiB), clamped. A zone's share, by its size, is
//!   its *min* watermark; the distance to the next one is a quarter of it or, later,
//!   `watermark_scale_factor` / 10,000 of the zone if that is more.
//!
//! At which release each rule changed: [`eras`].

pub mod eras;
mod error;
mod rules;

pub use eras::page_era;
pub use error::PageGeometryError;
pub use rules::{FractionRule, HighRule, PageEra, PcpLists, WatermarkStep};

use crate::era::Era;
use crate::geometry::{NR_CPUS_MAX, PAGE_SHIFT_MAX, PAGE_SHIFT_MIN};

use super::types::MAX_ORDER;

/// Watermarks of a zone in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this only emergencies are served.
    pub min: u64,
    /// Below this reclaim starts.
    pub low: u64,
    /// At this reclaim stops.
    pub high: u64,
    /// At this demotion from a faster tier of memory stops; `None` in eras without tiers.
    pub promo: Option<u64>,
}

/// Limits of one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLimits {
    /// Pages moved between the list and the zone at a time.
    pub batch: u32,
    /// Pages at which the list is drained by `batch`; 0 means that nothing stays.
    pub high: u32,
}

/// Limits of one CPU's page lists of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpParams {
    /// Pages moved between the lists and the zone at a time.
    pub batch: u32,
    /// Pages at which a CPU's lists are drained by `batch`; 0 means that nothing stays. Where the
    /// kernel tunes it, the least that it is tuned to (`high_min`).
    pub high: u32,
    /// The most that `high` is tuned to; [`PcpParams::high`] where it is fixed.
    pub high_max: u32,
    /// The list for pages that are not in the caches, in eras that have one.
    pub cold: Option<ListLimits>,
    /// Largest order that the lists hold, huge pages aside.
    pub max_order: u32,
}

/// Smallest fraction that is not 0 (kernel documentation, `sysctl/vm.rst`).
pub const FRACTION_MIN: u32 = 8;
/// Smallest `min_free_kbytes` that the kernel sets by itself, in KiB.
pub const MIN_FREE_KBYTES_MIN: u64 = 128;
/// Default of `watermark_scale_factor`, in 1/10,000 of a zone.
pub const WATERMARK_SCALE_FACTOR: u32 = 10;
/// Largest `watermark_scale_factor` (kernel documentation, `sysctl/vm.rst`; 1000 in older ones).
pub const WATERMARK_SCALE_FACTOR_MAX: u32 = 3000;
/// Most pages of a zone, or of all zones, that the formulas take: 256 TiB in pages of 4 KiB.
pub const ZONE_PAGES_MAX: u64 = 1 << 36;

/// The sysctl values that the sizes follow from (`/proc/sys/vm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSysctls {
    /// `min_free_kbytes`; `None` for what the kernel sets by itself.
    pub min_free_kbytes: Option<u64>,
    /// `watermark_scale_factor`; eras before it ignore the default.
    pub watermark_scale_factor: u32,
    /// `percpu_pagelist_fraction` or `percpu_pagelist_high_fraction`; 0 is off.
    pub pagelist_fraction: u32,
}

impl Default for PageSysctls {
    fn default() -> Self {
        Self {
            min_free_kbytes: None,
            watermark_scale_factor: WATERMARK_SCALE_FACTOR,
            pagelist_fraction: 0,
        }
    }
}

/// A zone among those of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneParams {
    /// log2 of the page size in bytes.
    pub page_shift: u32,
    /// Pages of the zone: managed ones, present ones in the eras of 2.6.
    pub pages: u64,
    /// Pages of it that were initialised when its lists were sized: all, but in releases up to 5.3 that initialise
    /// most pages late ([`PageEra::sizes_lists_again`]).
    pub initialised_pages: u64,
    /// Pages of all zones of the machine.
    pub all_pages: u64,
    /// CPUs of the zone's node: [`node_cpus`].
    pub cpus: u32,
}

/// Sizes that follow for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSizes {
    /// Its per-CPU lists.
    pub pcp: PcpParams,
    /// Its watermarks.
    pub watermarks: Watermarks,
}

impl PageEra {
    /// `batchsize` of a zone: the batch, or 0 where that is 1 because the zone is too small.
    fn batch_size(&self, zone: &ZoneParams) -> u64 {
        let pages = match self.sizes_lists_again {
            true => zone.pages,
            false => zone.pages.min(zone.initialised_pages),
        };
        let part = (pages / 4096)
            .min(self.batch_cap_bytes >> zone.page_shift)
            .max(1);
        (1 << (part + part / 2).ilog2()) - 1
    }

    /// The `min_free_kbytes` that the kernel computes at boot, in KiB, for a machine of `all_pages` pages. Huge
    /// pages raise it afterwards: the recorded kernels that have them set 11 pageblocks for each zone.
    #[must_use]
    pub fn min_free_kbytes(&self, all_pages: u64, page_shift: u32) -> u64 {
        let kib = all_pages.saturating_mul(1 << (page_shift - 10));
        kib.saturating_mul(16)
            .isqrt()
            .clamp(MIN_FREE_KBYTES_MIN, self.min_free_kbytes_max)
    }

    /// Sizes of a zone among others.
    ///
    /// # Errors
    ///
    /// [`PageGeometryError`] for input that no machine of this era has.
    pub fn zone(
        &self,
        zone: &ZoneParams,
        sysctls: &PageSysctls,
    ) -> Result<ZoneSizes, PageGeometryError> {
        self.check(zone, sysctls)?;
        Ok(self.sizes(zone, sysctls))
    }

    fn check(&self, zone: &ZoneParams, sysctls: &PageSysctls) -> Result<(), PageGeometryError> {
        if !(PAGE_SHIFT_MIN..=PAGE_SHIFT_MAX).contains(&zone.page_shift) {
            let page_shift = zone.page_shift;
            return Err(PageGeometryError::PageShift { page_shift });
        }
        if zone.cpus == 0 || zone.cpus > NR_CPUS_MAX {
            return Err(PageGeometryError::NrCpus { cpus: zone.cpus });
        }
        if zone.pages == 0 || zone.pages > zone.all_pages || zone.all_pages > ZONE_PAGES_MAX {
            return Err(PageGeometryError::Pages {
                pages: zone.pages,
                all_pages: zone.all_pages,
            });
        }
        self.check_fraction(sysctls.pagelist_fraction)?;
        let factor = sysctls.watermark_scale_factor;
        let is_known = self.step == WatermarkStep::ScaleFactor || factor == WATERMARK_SCALE_FACTOR;
        if !is_known || !(1..=WATERMARK_SCALE_FACTOR_MAX).contains(&factor) {
            let era = self.era;
            return Err(PageGeometryError::ScaleFactor { era, factor });
        }
        let all_kib = zone.all_pages << (zone.page_shift - 10);
        match sysctls.min_free_kbytes {
            Some(kib) if kib > all_kib => Err(PageGeometryError::MinFree { kib, all_kib }),
            _ => Ok(()),
        }
    }

    /// Checks that the era's sysctl takes this fraction.
    ///
    /// # Errors
    ///
    /// [`PageGeometryError::Fraction`].
    pub fn check_fraction(&self, fraction: u32) -> Result<(), PageGeometryError> {
        if fraction == 0 || fraction >= FRACTION_MIN {
            return Ok(());
        }
        Err(PageGeometryError::Fraction {
            name: self.fraction.name(),
            fraction,
        })
    }

    /// [`PageEra::zone`] for input that is known to be possible.
    fn sizes(&self, zone: &ZoneParams, sysctls: &PageSysctls) -> ZoneSizes {
        let min_free_kib = sysctls
            .min_free_kbytes
            .unwrap_or_else(|| self.min_free_kbytes(zone.all_pages, zone.page_shift));
        let min_free_pages = min_free_kib >> (zone.page_shift - 10);
        let min = share(min_free_pages, zone.pages, zone.all_pages);
        let watermarks = self.watermarks(min, zone.pages, sysctls.watermark_scale_factor);
        ZoneSizes {
            pcp: self.pcp(zone, watermarks.low, sysctls.pagelist_fraction),
            watermarks,
        }
    }

    /// Watermarks of a zone of `zone_pages` whose lowest one is `min`.
    #[must_use]
    pub fn watermarks(&self, min: u64, zone_pages: u64, scale_factor: u32) -> Watermarks {
        match self.step {
            WatermarkStep::QuarterOfMin => Watermarks {
                min,
                low: min + min / 4,
                high: min + min / 2,
                promo: None,
            },
            WatermarkStep::ScaleFactor => {
                let step = (min / 4).max(share(zone_pages, scale_factor.into(), 10_000));
                Watermarks {
                    min,
                    low: min + step,
                    high: min + 2 * step,
                    promo: self.has_promo.then_some(min + 3 * step),
                }
            }
        }
    }

    /// The pages that this zone had when its lists were sized, if a kernel reports shorter ones than it would size by
    /// all of them. `None` in eras that size them again.
    #[must_use]
    pub fn initialised_pages(&self, zone: &ZoneParams, batch: u64, high: u64) -> Option<u64> {
        let by_all = ZoneParams {
            initialised_pages: zone.pages,
            ..*zone
        };
        let is_early = !self.sizes_lists_again
            && high == batch.saturating_mul(6)
            && (1..self.batch_size(&by_all)).contains(&batch);
        // The least number of pages with this batch.
        is_early.then(|| (2 * (batch + 1)).div_ceil(3) * 4096)
    }

    /// Limits of the lists of a zone with this low watermark; `fraction` as in [`PageSysctls`].
    #[must_use]
    pub fn pcp(&self, zone: &ZoneParams, low: u64, fraction: u32) -> PcpParams {
        let batch_size = self.batch_size(zone);
        let (mut batch, cpus) = (batch_size.max(1), u64::from(zone.cpus.max(1)));
        let at_least = 4 * batch;
        let (mut high, mut high_max) = match self.high {
            HighRule::Batches => (6 * batch_size, 6 * batch_size),
            HighRule::LowWatermark => (at_least.max(low / cpus), at_least.max(low / cpus)),
            HighRule::Tuned => (
                at_least.max(low / cpus),
                at_least.max(zone.pages / 8 / cpus),
            ),
        };
        match (self.fraction, u64::from(fraction)) {
            (_, 0) => {}
            (FractionRule::EachCpu, fraction) => {
                high = zone.pages / fraction;
                batch = (high / 4).clamp(1, 8 * u64::from(zone.page_shift));
                high_max = high;
            }
            (FractionRule::AllCpus, fraction) => {
                high = at_least.max(zone.pages / fraction / cpus);
                high_max = high;
            }
        }
        let count = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        PcpParams {
            batch: count(batch),
            high: count(high),
            high_max: count(high_max),
            cold: self.lists.cold_list.then(|| ListLimits {
                batch: count((batch_size / 2).max(1)),
                high: count(2 * batch_size),
            }),
            max_order: self.lists.max_order,
        }
    }
}

/// `part` / `whole` of `pages`, rounded down: a zone's share of `min_free_kbytes` by its size.
fn share(pages: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(pages) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The CPUs that a node's zones divide by: its own, or all that are online if it has none.
#[must_use]
pub const fn node_cpus(of_node: u32, online: u32) -> u32 {
    if of_node == 0 { online } else { of_node }
}

/// Order of the huge pages that per-CPU lists hold: 2 MiB with pages of 4 KiB (x86-64) and of 64 KiB
/// (ppc64 with radix tables), as recorded. `None` with 16 KiB (arm64): a full table of 8-byte entries
/// makes 32 MiB, more than a block of [`MAX_ORDER`].
#[must_use]
pub const fn huge_order(page_shift: u32) -> Option<u32> {
    let huge_shift = if page_shift == 14 { 25 } else { 21 };
    let order = huge_shift - page_shift;
    if order < MAX_ORDER { Some(order) } else { None }
}

/// Order of a pageblock: a huge page. Without huge pages it is [`MAX_ORDER`], as recorded too.
#[must_use]
pub const fn pageblock_order(page_shift: u32) -> u32 {
    match huge_order(page_shift) {
        Some(order) => order,
        None => MAX_ORDER,
    }
}

/// `vm stats threshold` of zoneinfo: what a CPU's part of a zone's counters grows to before it is
/// added to the sum, for all online CPUs. The formula gives what every recorded kernel shows.
#[must_use]
pub fn stat_threshold(zone_pages: u64, page_shift: u32, online: u32) -> u32 {
    let fls = |n: u64| u64::BITS - n.leading_zeros();
    let blocks_of_128_mib = zone_pages >> (27 - page_shift);
    (2 * fls(online.into()) * (1 + fls(blocks_of_128_mib))).min(125)
}

/// Limits of the per-CPU lists of a machine's only zone, whose node has `cpus` CPUs; 0 counts as 1.
#[must_use]
pub fn pcp_params(era: Era, zone_pages: u64, page_shift: u32, cpus: u32) -> PcpParams {
    let zone = ZoneParams {
        page_shift,
        pages: zone_pages,
        initialised_pages: zone_pages,
        all_pages: zone_pages,
        cpus,
    };
    page_era(era).sizes(&zone, &PageSysctls::default()).pcp
}

#[cfg(test)]
mod tests;
