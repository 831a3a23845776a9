//! Setup of a page allocator: era, zones, pages kept back, and holds of locks.
//!
//! # Zones, nodes, watermarks
//!
//! A request tries the zones of its node from high to low, then those of the other nodes in turn:
//! those above their low watermark first, then those above the lowest; below that it fails, unless
//! [`no_watermarks`](super::AllocOptions::no_watermarks) is asked for. From 5.0 on, a request that
//! may have Normal first tries the node's zones without mixing types (`buddy.rs`): a block of DMA32
//! rather than one of another type's pageblock in Normal. So 6.18 was recorded to do: Normal had 30
//! thousand free pages, none of them unmovable: 3180 unmovable blocks of orders 0 to 3 came from
//! DMA32 and none from Normal. Kernels before 5.0 do not. A lower zone keeps back more from
//! requests that could have had a higher one. All of this is off for heaps ([`PageConfig::new`]):
//! one zone per node, in which every page can be used. Of the NUMA counters only the exceptions are
//! counted, the others follow from the number of allocations.

use core::ops::Range;

use super::geometry::{PageEra, PageSysctls, page_era, pageblock_order};
use super::policy::Policy;
use super::types::{FRONT_PAGES, MAX_ORDER, ZONE_TYPES, ZoneType};
use crate::era::Era;
use crate::machine::{MAX_NODES, NodeId};

/// Zones that a machine has at most: a zone per node, and a node may be cut by the limits of DMA
/// and of DMA32.
pub(crate) const MAX_ZONES: usize = MAX_NODES + ZONE_TYPES - 1;

/// Zones of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLayout {
    /// One Normal zone: memory in user space has no addressing limits.
    Normal,
    /// DMA, DMA32 and Normal by address, as on x86-64. A limit that is not at a multiple of the
    /// largest block (64 KiB pages: 16 MiB) makes no zone.
    Kernel,
    /// DMA, DMA32 and Normal with these numbers of pages, wherever their limits are; a zone of 0 pages does
    /// not exist. They are those of the first node. Each begins at a multiple of the largest block,
    /// and pages in between belong to no zone.
    Sized([u32; ZONE_TYPES]),
}

impl ZoneLayout {
    /// Pages that a machine needs for zones of these sizes, those between them included.
    #[must_use]
    pub fn pages_of(sizes: &[u32; ZONE_TYPES]) -> u64 {
        let populated = sizes.iter().filter(|&&pages| pages > 0);
        populated.fold(0, |end: u64, &pages| {
            end.next_multiple_of(1 << MAX_ORDER) + u64::from(pages)
        })
    }

    /// The first zone at or behind a page: its type and pages.
    fn sized_zone_at(sizes: &[u32; ZONE_TYPES], pfn: u32) -> Option<(ZoneType, Range<u32>)> {
        let mut end = 0u64;
        ZoneType::ALL
            .into_iter()
            .zip(sizes)
            .find_map(|(zone, &pages)| {
                let start = end.next_multiple_of(1 << MAX_ORDER);
                if pages > 0 {
                    end = start + u64::from(pages);
                }
                let range = u32::try_from(start).ok()?..u32::try_from(end).unwrap_or(u32::MAX);
                (pages > 0 && start >= u64::from(pfn)).then_some((zone, range))
            })
    }

    /// The zone of a page, and the first page that cannot be in it.
    fn zone_at(self, pfn: u32, page_shift: u32) -> (ZoneType, u64) {
        let limit = |zone: ZoneType| (zone.limit() >> page_shift >> MAX_ORDER) << MAX_ORDER;
        let zones: &[ZoneType] = match self {
            Self::Normal | Self::Sized(_) => &[ZoneType::Normal],
            Self::Kernel => &ZoneType::ALL,
        };
        let found = zones.iter().find(|&&zone| u64::from(pfn) < limit(zone));
        let zone = found.copied().unwrap_or(ZoneType::Normal);
        (zone, limit(zone))
    }
}

/// Pages that the watermarks keep back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinFree {
    /// None: all memory can be used, and the watermarks are 0. The per-CPU lists are as long as if
    /// the era's default applied.
    Nothing,
    /// The `min_free_kbytes` that the era's kernel computes at boot.
    Computed,
    /// This many KiB.
    Kbytes(u64),
}

/// Setup of a page allocator.
///
/// ```
/// use quarry_core::era::Era;
/// use quarry_core::page::{MinFree, PageConfig, ZoneLayout};
/// let like_a_kernel = PageConfig {
///     zones: ZoneLayout::Kernel,
///     min_free: MinFree::Computed,
///     ..PageConfig::new(Era::V6_18)
/// };
/// assert_eq!(like_a_kernel.pagelist_fraction, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageConfig {
    /// Release whose rules the lists follow.
    pub era: Era,
    /// The zones of a node.
    pub zones: ZoneLayout,
    /// Pages of the first node's zones that the page allocator never had: holes, and what was taken before it came
    /// up. They are not free at first ([`PageAllocator::use_all`](super::PageAllocator::use_all)), and lists and
    /// watermarks are as if they did not exist.
    // Not `ZONE_TYPES`: rustc 1.95 then fails where a closure updates a configuration.
    pub absent: [u32; 3],
    /// Pages that the watermarks keep back.
    pub min_free: MinFree,
    /// `percpu_pagelist_fraction` or, from 5.14 on, `percpu_pagelist_high_fraction`; 0 is off.
    pub pagelist_fraction: u32,
    /// Pages of each node's highest zone that were initialised when its lists were sized; `u32::MAX` for all. With
    /// `CONFIG_DEFERRED_STRUCT_PAGE_INIT` kernels up to 5.3 size them by the first 128 MiB or so.
    pub initialised_pages: u32,
    /// From 6.7 on: at most a batch times 2 to the power of this moves under one hold of a zone lock, the
    /// `CONFIG_PCP_BATCH_SCALE_MAX` of such a kernel; 0 to 6. The count of frees ends there too, which raises
    /// `high` and marks sprees of larger blocks; below 2 there are no sprees.
    pub batch_scale_max: u32,
    /// Most pages that move under one hold of a zone lock, or two larger blocks, whatever the era's rule; at
    /// least 1. The next calls move the rest under holds of their own. Kernels have no such bound.
    pub hold_pages: u32,
    /// Bytes of a CPU's share of the last-level cache: its size by the CPUs that share it. From 6.7 on,
    /// above three batches (756 KiB for a batch of 63), frees of larger blocks drain only lists with a
    /// batch. The default is [`CACHE_SHARE_BYTES`].
    pub cache_share_bytes: u64,
    /// Slots that a bulk free looks at under one hold of a CPU's lists, at least 1.
    pub bulk_free_hold: usize,
    /// log2 of the pages of the largest block, at most [`MAX_ORDER`], which most kernels have: 16 MiB on ppc64 with
    /// pages of 64 KiB are order 8. Kernels of arm64 have 11 with pages of 16 KiB and 13 with 64 KiB
    /// (`CONFIG_ARCH_FORCE_MAX_ORDER`).
    pub max_order: u32,
    /// log2 of the pages of a pageblock, at most [`PageConfig::max_order`]; `None` for a huge page's
    /// ([`pageblock_order`](super::geometry::pageblock_order)). An option of kernels from 6.16 on.
    pub block_order: Option<u32>,
    /// Notes of each allocated block whether it is movable; claims of pageblocks count it (4.12). For machines whose
    /// pages are accounted; a process has no use for it.
    pub tracks_contents: bool,
    /// Requests of several pages that cannot wait reserve pageblocks (`MIGRATE_HIGHATOMIC`), from 4.4 on.
    pub high_atomic: bool,
    /// Policy in place of the release's rules for types.
    pub policy: Option<Policy>,
}

/// Default of [`PageConfig::cache_share_bytes`]: 1.25 MiB, the 2.5 MiB that a core of Intel's Haswell servers has
/// of the last-level cache, for two threads. Most servers since have more than three batches (facts 7.3), and so
/// have virtual machines that see their host's cache.
pub const CACHE_SHARE_BYTES: u64 = 1280 << 10;

/// The most that [`PageConfig::batch_scale_max`] can be.
pub(crate) const BATCH_SCALE_LIMIT: u32 = 6;

/// Slots that a bulk free looks at under one hold of a CPU's lists (facts 7.5): 31, the size of a
/// folio batch, from 6.18 on; 32 before.
pub(super) const fn free_hold(era: Era) -> usize {
    if era as u32 >= Era::V6_18 as u32 {
        31
    } else {
        32
    }
}

impl PageConfig {
    /// Setup of a heap: one zone per node, in which every page can be used.
    #[must_use]
    pub const fn new(era: Era) -> Self {
        Self {
            era,
            zones: ZoneLayout::Normal,
            absent: [0; 3],
            min_free: MinFree::Nothing,
            pagelist_fraction: 0,
            initialised_pages: u32::MAX,
            batch_scale_max: 5,
            hold_pages: u32::MAX,
            cache_share_bytes: CACHE_SHARE_BYTES,
            bulk_free_hold: free_hold(era),
            max_order: MAX_ORDER,
            block_order: None,
            tracks_contents: false,
            high_atomic: true,
            policy: None,
        }
    }

    /// [`PageConfig::new`] with holds of locks that suit a process. A replay has to hold them as the
    /// era's kernel does.
    ///
    /// One hold of a zone lock moves at most 32 pages, a whole block of order 5, or two larger blocks.
    /// Kernels move 31 or 63 at least, which break a block, and a refill of today brings up to 2016. One
    /// hold of a CPU's lists takes as many pages of a bulk free as their array has: the size of a kernel's
    /// folio batches does not follow from the time of a hold.
    #[must_use]
    pub const fn in_process(era: Era) -> Self {
        Self {
            hold_pages: 32,
            bulk_free_hold: FRONT_PAGES,
            ..Self::new(era)
        }
    }

    /// The sysctls that the sizes of lists and watermarks follow from.
    pub(crate) fn sysctls(&self) -> PageSysctls {
        PageSysctls {
            min_free_kbytes: match self.min_free {
                MinFree::Kbytes(kib) => Some(kib),
                MinFree::Nothing | MinFree::Computed => None,
            },
            pagelist_fraction: self.pagelist_fraction,
            ..PageSysctls::default()
        }
    }

    pub(crate) fn era(&self) -> PageEra {
        page_era(self.era)
    }

    /// Bytes of memory that the policy keeps lists for.
    pub(crate) fn region_bytes(&self) -> Option<u64> {
        self.policy.and_then(|policy| policy.rules().region_bytes())
    }

    /// log2 of the pages of a pageblock.
    pub(crate) fn block_order_of(&self, page_shift: u32) -> u32 {
        let order = self.block_order.unwrap_or(pageblock_order(page_shift));
        order.min(self.max_order)
    }

    /// The page ranges of the zones, lowest address first.
    pub(crate) fn ranges(
        &self,
        pages: u32,
        page_shift: u32,
        nodes: u32,
    ) -> impl Iterator<Item = (NodeId, ZoneType, Range<u32>)> + Clone {
        let layout = self.zones;
        let mut at = 0;
        core::iter::from_fn(move || {
            if at >= pages {
                return None;
            }
            if let ZoneLayout::Sized(sizes) = &layout {
                let (zone, range) = ZoneLayout::sized_zone_at(sizes, at)?;
                at = range.end;
                let range = range.start..range.end.min(pages);
                return (!range.is_empty()).then_some((NodeId(0), zone, range));
            }
            let (node, node_end) = node_at(at, pages, nodes);
            let (zone, zone_end) = layout.zone_at(at, page_shift);
            let start = at;
            at = zone_end.min(u64::from(node_end)) as u32;
            Some((node, zone, start..at))
        })
    }
}

/// The node of a page and the first page of the next node: equal shares, starting at multiples of
/// the largest block (P3).
fn node_at(pfn: u32, pages: u32, nodes: u32) -> (NodeId, u32) {
    let start = |node: u32| {
        if node >= nodes {
            return pages;
        }
        let share = u64::from(pages) * u64::from(node) / u64::from(nodes);
        (share >> MAX_ORDER << MAX_ORDER) as u32
    };
    let node = (0..nodes).rev().find(|&node| start(node) <= pfn);
    let node = node.unwrap_or(0);
    (NodeId(node), start(node + 1))
}
