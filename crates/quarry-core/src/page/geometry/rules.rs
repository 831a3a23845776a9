//! Differences between eras, as types.

#[cfg(doc)]
use super::FRACTION_MIN;
use super::huge_order;
use crate::era::Era;

/// Lists of a CPU for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpLists {
    /// Hot and cold pages have a list each, with limits of its own.
    pub cold_list: bool,
    /// Lists of each order, one per migrate type; 1 if types share a list.
    pub migrate_types: u32,
    /// Largest order held.
    pub max_order: u32,
    /// Lists of the order of huge pages ([`huge_order`]).
    pub huge_lists: u32,
}

impl PcpLists {
    /// Number of lists.
    #[must_use]
    pub const fn count(&self) -> u32 {
        let temperatures = if self.cold_list { 2 } else { 1 };
        temperatures * self.migrate_types * (self.max_order + 1) + self.huge_lists
    }

    /// The order of huge pages if there are lists for it.
    #[must_use]
    pub const fn huge_order(&self, page_shift: u32) -> Option<u32> {
        if self.huge_lists > 0 {
            huge_order(page_shift)
        } else {
            None
        }
    }
}

/// Rule that gives `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HighRule {
    /// Six times `batchsize`.
    Batches,
    /// The low watermark by the node's CPUs, at least four batches.
    LowWatermark,
    /// Tuned between [`HighRule::LowWatermark`] and an eighth of the zone by the node's CPUs.
    Tuned,
}

/// The sysctl that sets `high`; 0 turns it off, else it is at least [`FRACTION_MIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FractionRule {
    /// `percpu_pagelist_fraction`: part of a zone that each CPU may hold.
    EachCpu,
    /// `percpu_pagelist_high_fraction`: part of a zone that all CPUs of its node may hold.
    AllCpus,
}

impl FractionRule {
    /// The sysctl's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EachCpu => "percpu_pagelist_fraction",
            Self::AllCpus => "percpu_pagelist_high_fraction",
        }
    }
}

/// Distance between the watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkStep {
    /// low = min + min/4, high = min + min/2.
    QuarterOfMin,
    /// A quarter of min, or `watermark_scale_factor` of the zone if that is more.
    ScaleFactor,
}

/// The page allocator's numbers in one era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEra {
    /// The era.
    pub era: Era,
    /// Bytes that bound `batchsize`, before it is rounded.
    pub batch_cap_bytes: u64,
    /// The lists are sized again when pages that are initialised late (`CONFIG_DEFERRED_STRUCT_PAGE_INIT`) are there.
    pub sizes_lists_again: bool,
    /// Lists of each CPU.
    pub lists: PcpLists,
    /// Rule that gives `high`.
    pub high: HighRule,
    /// The sysctl that sets it: hot lists only, where there are cold ones.
    pub fraction: FractionRule,
    /// Largest `min_free_kbytes` that the kernel sets by itself, in KiB.
    pub min_free_kbytes_max: u64,
    /// Distance of the watermarks.
    pub step: WatermarkStep,
    /// The era has a `promo` watermark.
    pub has_promo: bool,
}
