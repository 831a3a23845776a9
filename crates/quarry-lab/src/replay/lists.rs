//! The kernel's zones and page lists before the part that is replayed, from its `/proc/zoneinfo`.
//!
//! A zoneinfo that was read just before the part has of each zone its managed pages, its free pages and
//! its watermarks. It also has the number of pages on each CPU's lists and, where a kernel tunes it, the
//! number at which they were drained. The replayed machine begins with these zones in this state.
//! With another amount of memory the highest zone is larger or smaller, and has as many
//! more or fewer free pages. Watermarks, reserves and limits of the lists follow from the sizes by
//! the rules of the replayed era; what they are all scaled by (`min_free_kbytes`) and what a zone's
//! watermarks are raised by for a while (`boost`) are taken from the report. The boost stays as it
//! was, as there is no reclaim. Kernels up to 5.3 may size the highest zone's lists before most of its
//! pages are initialised (RHEL 8: batch 7, high 42); a report of such lists makes them as short on
//! replayed kernels up to 5.3.
//!
//! # What is not reported, and assumed
//!
//! * All pages on the lists are single ones. They have the migrate types of the single pages that the
//!   part allocates and frees, in their proportions; and nothing is on its way (`alloc_factor`,
//!   `free_count`). Those of a type lie together, so that what is given back merges more readily than a
//!   kernel's.
//!   A map with frames tells more (`replay::frames`): pages that were requested beyond a block's
//!   free ones lay on lists of that type, blocks without any flag are huge pages, and the rest is movable.
//! * The blocks from before that the part frees, and the slabs of an initial state, lie in the highest
//!   zone while it has room.
//! * All other pages that are not free are used by others, who do nothing.
//! * The free pages lie in movable pageblocks: what others use is mostly page cache and memory of
//!   programs, which is movable, and it is what a kernel reclaims when pages become few. So a request
//!   of another type finds no block in such a zone but a whole pageblock. From 5.9 on it tries a lower zone
//!   before it takes a block of another type (`page::config`).
//! * They lie in blocks as large as can be: in pages of whole pageblocks as many as the report says
//!   (`nr_free_pages_blocks`, in recent kernels; else all), the others in halves of pageblocks.
//!
//! A copy of `/proc/pagetypeinfo` of the same moment tells what the last two assume ([`Input::free`]). It also has the
//! orders of blocks; else the architecture gives the largest.
//!
//! With another page size or number of CPUs, or where no page events are driven, a report gives only how
//! much memory there is ([`memory_bytes`]): such a machine has one zone, all free, and begins with empty
//! lists ([`Unheeded`]).

use std::fmt;

use quarry_core::era::Era;
use quarry_core::machine::CpuId;
use quarry_core::page::geometry::{ZoneParams, page_era, pageblock_order};
use quarry_core::page::{
    FreeBlockCounts, MAX_ORDER, MigrateType, MinFree, ORDERS, PageConfig, PcpStock, ZONE_TYPES,
    ZoneLayout, ZoneType,
};
use quarry_sim::PAGES_MAX;

use super::input::Input;
use super::pages::PageEvents;
use crate::error::LabError;
use crate::run::RunSpec;
use quarry_snapshot::zoneinfo::{Pageset, Zone};
use quarry_snapshot::{Pagetypeinfo, Zoneinfo};

/// A kernel moves at most this power of two times the batch at once (`pcp_batch_scale_max`).
const BATCH_SCALE_MAX: u32 = PageConfig::new(Era::V6_18).batch_scale_max;

/// The zones that a kernel reported.
pub(super) struct Start<'a> {
    zones: Vec<(ZoneType, &'a Zone)>,
    types: Option<&'a Pagetypeinfo>,
    sizes: [u32; ZONE_TYPES],
    /// Pages that the highest zone has beyond those reported.
    more: i64,
    page_shift: u32,
    max_order: u32,
}

/// log2 of the pages of the recorded kernel's largest block: by pagetypeinfo, or by the architecture and page size.
fn largest_order(input: &Input) -> u32 {
    let rows = input.free.iter().flat_map(|types| &types.free);
    let told = rows.map(|row| row.row.counts.len()).max();
    let told = told.and_then(|orders| u32::try_from(orders).ok()?.checked_sub(1));
    let initial = input.initial.as_ref();
    let architecture = || initial?.architecture.as_deref();
    told.unwrap_or_else(|| order_of_architecture(architecture(), input.file.meta().page_size))
}

/// log2 of the pages of an architecture's largest block (`CONFIG_ARCH_FORCE_MAX_ORDER`).
fn order_of_architecture(architecture: Option<&str>, page_bytes: u32) -> u32 {
    match (architecture, page_bytes >> 10) {
        (Some("ppc64" | "ppc64le"), 64) => 8,
        (Some("aarch64"), 64) => 13,
        (Some("aarch64"), 16) => 11,
        _ => MAX_ORDER,
    }
}

/// Reason why a replay does not begin with the reported lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheeded {
    /// No page events are driven.
    PageEvents(PageEvents),
    /// The machine has other pages than the recorded one.
    PageSize {
        /// Bytes of the machine's.
        bytes: u64,
        /// Bytes of the recorded ones.
        recorded: u64,
    },
    /// The machine has another number of CPUs than the recorded one.
    Cpus {
        /// The machine's.
        cpus: u32,
        /// Those in the report.
        reported: u64,
    },
}

impl fmt::Display for Unheeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageEvents(events) => events.why_none().fmt(f),
            Self::PageSize { bytes, recorded } => write!(
                f,
                "pages have {} KiB, in the report {} KiB",
                bytes >> 10,
                recorded >> 10
            ),
            Self::Cpus { cpus, reported } => {
                write!(f, "there are {cpus} CPUs, in the report {reported}")
            }
        }
    }
}

/// Reason why a run does not begin with the input's zoneinfo, if it has one.
#[must_use]
pub fn unheeded(spec: &RunSpec, input: &Input) -> Option<Unheeded> {
    let zoneinfo = input.zoneinfo.as_ref()?;
    let (config, meta) = (&spec.config, input.file.meta());
    let (events, recorded) = (PageEvents::of(input), u64::from(meta.page_size));
    if !events.driven() {
        return Some(Unheeded::PageEvents(events));
    }
    if recorded != config.page_bytes {
        let bytes = config.page_bytes;
        return Some(Unheeded::PageSize { bytes, recorded });
    }
    let (cpus, reported) = (config.cpus, reported_cpus(zoneinfo));
    let other = u64::from(cpus) != reported && cpus != meta.cpus;
    other.then_some(Unheeded::Cpus { cpus, reported })
}

/// log2 of the pages of the recorded kernel's largest block if that is larger than a replay's.
#[must_use]
pub fn too_large_blocks(input: &Input) -> Option<u32> {
    let reported = input.zoneinfo.as_ref();
    reported
        .map(|_| largest_order(input))
        .filter(|order| *order > MAX_ORDER)
}

/// CPUs up to the last that has lists.
fn reported_cpus(zoneinfo: &Zoneinfo) -> u64 {
    let lists = zoneinfo.populated().flat_map(hot_lists);
    let numbers = lists.map(|list| u64::from(list.cpu) + 1);
    numbers.max().unwrap_or(0)
}

/// Initial state of a zone.
pub(super) struct ZoneStart {
    pub(super) zone: ZoneType,
    pub(super) boost: u64,
    pub(super) free: FreeBlockCounts,
    pub(super) lists: Vec<(CpuId, PcpStock)>,
}

fn unfit(what: &str) -> LabError {
    LabError::Usage(format!("the zoneinfo does not fit: {what}"))
}

/// The zones with pages, lowest first.
fn zones(zoneinfo: &Zoneinfo) -> Result<Vec<(ZoneType, &Zone)>, LabError> {
    let mut zones: Vec<(ZoneType, &Zone)> = Vec::new();
    for zone in zoneinfo.populated() {
        let known = ZoneType::ALL.into_iter().find(|at| at.name() == zone.name);
        let Some(known) = known else {
            let name = &zone.name;
            return Err(unfit(&format!(
                "it has pages in a zone {name}; replays know DMA, DMA32 and Normal"
            )));
        };
        if zone.node != zoneinfo.zones[0].node {
            return Err(unfit("it is of a machine with several nodes"));
        }
        if zones.last().is_some_and(|(last, _)| *last >= known) {
            return Err(unfit(&format!(
                "zone {} stands behind a higher one",
                zone.name
            )));
        }
        possible(zone)?;
        zones.push((known, zone));
    }
    if zones.is_empty() {
        return Err(unfit("no zone has pages"));
    }
    Ok(zones)
}

/// The most free pages that reports may tell of a zone. A kernel does not read all numbers at one moment,
/// and its count lacks what CPUs have not yet added to it (`vm stats threshold`).
fn most_free(zone: &Zone) -> u64 {
    let late = zone
        .pagesets
        .iter()
        .map(|set| set.stat_threshold.unwrap_or(0));
    late.fold(zone.managed(), u64::saturating_add)
}

/// Checks that a zone can have had the free pages and the pages on lists that the report gives. Between two
/// lines of the report pages may go to a CPU's lists, or from one to another. The check allows as many as a
/// CPU's lists move under one hold of the zone lock.
fn possible(zone: &Zone) -> Result<(), LabError> {
    let managed = zone.managed();
    let all = |number: fn(&Pageset) -> u64| {
        let numbers = zone.pagesets.iter().map(number);
        numbers.fold(0, u64::saturating_add)
    };
    let moved = all(|set| set.batch.saturating_mul(1 << BATCH_SCALE_MAX));
    let (free, listed) = (zone.pages.get("free").unwrap_or(0), all(|set| set.count));
    let most = most_free(zone);
    let possible = free <= most
        && zone.pagesets.iter().all(|set| set.count <= managed)
        && free.saturating_add(listed) <= most.saturating_add(moved);
    if !possible {
        return Err(unfit(&format!(
            "zone {} has {managed} pages, but {free} free ones and {listed} on the CPUs' lists",
            zone.name
        )));
    }
    Ok(())
}

fn sizes(zones: &[(ZoneType, &Zone)]) -> Result<[u32; ZONE_TYPES], LabError> {
    let mut sizes = [0; ZONE_TYPES];
    for (zone, reported) in zones {
        let managed = reported.managed();
        let pages = u32::try_from(managed).ok();
        sizes[*zone as usize] = pages.ok_or_else(|| too_large(managed))?;
    }
    match ZoneLayout::pages_of(&sizes) {
        pages if pages > PAGES_MAX => Err(too_large(pages)),
        _ => Ok(sizes),
    }
}

fn too_large(pages: u64) -> LabError {
    unfit(&format!("{pages} pages; a machine has at most {PAGES_MAX}"))
}

/// Memory of a machine with the reported zones, including what lies between them.
///
/// # Errors
///
/// [`LabError::Usage`] if no machine can have these zones.
pub fn memory_bytes(zoneinfo: &Zoneinfo, page_bytes: u64) -> Result<u64, LabError> {
    let pages = ZoneLayout::pages_of(&sizes(&zones(zoneinfo)?)?);
    Ok(pages.saturating_mul(page_bytes))
}

impl<'a> Start<'a> {
    /// Returns how the machine of a run begins, if the input has a zoneinfo that the run uses.
    pub(super) fn of(spec: &RunSpec, input: &'a Input) -> Result<Option<Self>, LabError> {
        let (config, meta) = (&spec.config, input.file.meta());
        let Some(zoneinfo) = &input.zoneinfo else {
            return Ok(None);
        };
        let zones = zones(zoneinfo)?;
        let mut sizes = sizes(&zones)?;
        if unheeded(spec, input).is_some() {
            return Ok(None);
        }
        let cpus = reported_cpus(zoneinfo);
        if cpus != u64::from(config.cpus) {
            return Err(unfit(&format!(
                "it is of a machine with {cpus} CPUs, the trace of one with {}; with --cpus {cpus} \
                 they may be the same",
                meta.cpus
            )));
        }
        // --memory moves the end of the machine, and so the end of the highest zone.
        let (highest, reported) = zones[zones.len() - 1];
        let all = config.memory_bytes / config.page_bytes;
        sizes[highest as usize] = 0;
        let below = ZoneLayout::pages_of(&sizes).next_multiple_of(1 << MAX_ORDER);
        let least = below + reported.managed() - free_pages(reported);
        if all <= least {
            return Err(unfit(&format!(
                "the kernel used so much of its memory that the machine needs more than {} MiB: \
                 give it more with --memory",
                least.saturating_mul(config.page_bytes) >> 20
            )));
        }
        let pages = all - below;
        sizes[highest as usize] = u32::try_from(pages).map_err(|_| too_large(pages))?;
        Ok(Some(Self {
            more: pages as i64 - reported.managed() as i64,
            zones,
            types: input.free.as_ref(),
            sizes,
            page_shift: config.page_bytes.ilog2(),
            max_order: largest_order(input).min(MAX_ORDER),
        }))
    }

    /// The page allocator of such a machine.
    pub(super) fn config(&self, plain: PageConfig) -> PageConfig {
        // A zone's part of the least free pages is rounded down.
        let all: u64 = self.zones.iter().map(|(_, zone)| zone.managed()).sum();
        let least = |(_, zone): &(ZoneType, &Zone)| {
            let min = zone
                .pages
                .get("min")
                .unwrap_or(0)
                .saturating_sub(boost(zone));
            (min.saturating_mul(all)).div_ceil(zone.managed())
        };
        let pages = self.zones.iter().map(least).max().unwrap_or(0);
        let initialised = self.initialised_pages(plain.era);
        PageConfig {
            initialised_pages: initialised.unwrap_or(plain.initialised_pages),
            max_order: self.max_order,
            zones: ZoneLayout::Sized(self.sizes),
            min_free: MinFree::Kbytes(pages.min(all) << (self.page_shift - 10)),
            ..plain
        }
    }

    /// Pages of the highest zone that were initialised when its lists were sized, if these are shorter than this
    /// release makes them of all pages.
    fn initialised_pages(&self, era: Era) -> Option<u32> {
        let (_, zone) = self.zones.last()?;
        let list = hot_lists(zone).next()?;
        let pages = zone.managed();
        let params = ZoneParams {
            page_shift: self.page_shift,
            pages,
            initialised_pages: pages,
            all_pages: pages,
            cpus: 1,
        };
        let found = page_era(era).initialised_pages(&params, list.batch, list.high)?;
        u32::try_from(found).ok()
    }

    /// Initial state of each zone; `shares` makes single pages of the types that lists have.
    pub(super) fn zones(
        &self,
        shares: impl Fn(u32) -> [u32; quarry_core::page::MIGRATE_TYPES],
    ) -> Result<Vec<ZoneStart>, LabError> {
        let zone = |(at, &(zone, reported)): (usize, &(ZoneType, &Zone))| {
            let all = self.sizes[zone as usize];
            let is_highest = at + 1 == self.zones.len();
            let more = if is_highest { self.more } else { 0 };
            // No list holds more than the zone has.
            let pages = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX).min(all);
            let stock = |list: &Pageset| {
                let stock = PcpStock {
                    zone: Some(zone),
                    pages: shares(pages(list.count)),
                    high: pages(list.high),
                };
                (CpuId(list.cpu), stock)
            };
            Ok(ZoneStart {
                zone,
                boost: boost(reported),
                free: self.free(reported, more)?,
                lists: hot_lists(reported).map(stock).collect(),
            })
        };
        self.zones.iter().enumerate().map(zone).collect()
    }

    fn free(&self, zone: &Zone, more: i64) -> Result<FreeBlockCounts, LabError> {
        let mut blocks = FreeBlockCounts::default();
        let order = pageblock_order(self.page_shift);
        if let Some(types) = self.types {
            told(types, zone, &mut blocks)?;
            match u64::try_from(more) {
                Ok(more) => lay(&mut blocks, more, MAX_ORDER),
                Err(_) => take_away(&mut blocks, more.unsigned_abs()),
            }
            return Ok(blocks);
        }
        let free = free_pages(zone).saturating_add_signed(more);
        // Without pagetypeinfo, as few blocks as possible. Recent kernels count the pages of whole free pageblocks; all
        // others are then in smaller blocks.
        let whole = zone.stats.get("nr_free_pages_blocks");
        let whole = whole.map_or(free, |pages| {
            pages.saturating_add_signed(more.max(0)).min(free)
        });
        lay(&mut blocks, whole, MAX_ORDER);
        lay(&mut blocks, free - whole, order - 1);
        Ok(blocks)
    }
}

/// Adds movable blocks with `pages` pages in total, as few blocks as can be.
fn lay(blocks: &mut FreeBlockCounts, pages: u64, largest: u32) {
    let mut left = pages;
    for order in (0..=largest).rev() {
        let movable = &mut blocks[order as usize][MigrateType::Movable as usize];
        *movable = movable.saturating_add(left >> order);
        left &= (1 << order) - 1;
    }
}

/// Takes away `pages` pages, of the largest blocks first, or all if there are fewer.
fn take_away(blocks: &mut FreeBlockCounts, pages: u64) {
    let mut left = pages;
    for order in (0..=MAX_ORDER).rev() {
        for migratetype in [
            MigrateType::Movable,
            MigrateType::Reclaimable,
            MigrateType::Unmovable,
        ] {
            let count = &mut blocks[order as usize][migratetype as usize];
            // The last block is taken in part.
            let taken = left.div_ceil(1 << order).min(*count);
            *count -= taken;
            let rest = (taken << order).saturating_sub(left);
            left = left.saturating_sub(taken << order);
            lay(blocks, rest, order);
        }
    }
}

/// Adds the blocks of a report, no more than the zone has. A block above the largest order becomes
/// several of that order. Types that only special requests get are left out.
///
/// Where the kernel stopped counting blocks of an order and type, these get the pages that the zone has
/// beyond the counted ones. Of several such orders the smallest gets them, as it has the most blocks; of
/// its types movable, which is also the assumption without such a report, else the first of the report.
fn told(types: &Pagetypeinfo, zone: &Zone, blocks: &mut FreeBlockCounts) -> Result<(), LabError> {
    let unfit = |what: &str| {
        LabError::Usage(format!(
            "the pagetypeinfo does not fit the zoneinfo: for node {}, zone {} it has {what}",
            zone.node, zone.name
        ))
    };
    let rows = types.free.iter();
    let rows = rows.filter(|row| (row.row.node, &row.row.zone) == (zone.node, &zone.name));
    let mut seen = false;
    let mut pages = 0_u64;
    let mut uncounted = None;
    for row in rows {
        pages = pages.saturating_add(row.row.pages());
        let mut known = MigrateType::ALL.into_iter();
        let Some(migratetype) = known.find(|known| known.name() == row.migratetype) else {
            continue;
        };
        seen = true;
        let orders = row.uncounted.iter().map(|order| (*order, migratetype));
        uncounted = uncounted
            .into_iter()
            .chain(orders)
            .min_by_key(|(order, of)| (*order, *of != MigrateType::Movable));
        for (order, count) in row.row.counts.iter().enumerate() {
            let above = order.saturating_sub(MAX_ORDER as usize).min(32);
            let blocks = &mut blocks[order.min(ORDERS - 1)][migratetype as usize];
            *blocks = blocks.saturating_add(count.saturating_mul(1 << above));
        }
    }
    if !seen {
        return Err(unfit("nothing"));
    }
    if pages > most_free(zone) {
        return Err(unfit(&format!(
            "{pages} free pages, more than the zone has pages"
        )));
    }
    if let Some((order, migratetype)) = uncounted {
        let more = free_pages(zone).saturating_sub(pages);
        let order = order.min(MAX_ORDER);
        let blocks = &mut blocks[order as usize][migratetype as usize];
        *blocks = blocks.saturating_add(more >> order);
    }
    // Pages that CPUs count late may make the report larger than the zone, which has room for no more than its own.
    let laid = (0..).zip(blocks.iter()).fold(0_u64, |pages, (order, row)| {
        let count = row.iter().fold(0, |sum: u64, of| sum.saturating_add(*of));
        pages.saturating_add(count.saturating_mul(1 << order))
    });
    take_away(blocks, laid.saturating_sub(zone.managed()));
    Ok(())
}

/// Kernels of 2.6 have a second set, for pages in no cache.
fn hot_lists(zone: &Zone) -> impl Iterator<Item = &Pageset> {
    zone.pagesets
        .iter()
        .filter(|set| set.pcp.is_none_or(|pcp| pcp == 0))
}

fn free_pages(zone: &Zone) -> u64 {
    zone.pages.get("free").unwrap_or(0).min(zone.managed())
}

/// Amount by which the watermarks are raised for a while after types were mixed in a pageblock.
fn boost(zone: &Zone) -> u64 {
    zone.pages.get("boost").unwrap_or(0)
}

#[cfg(test)]
mod tests;
