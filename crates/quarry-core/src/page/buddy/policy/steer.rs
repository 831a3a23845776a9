//! Steering into gigabytes that are spoiled already, as R. van Riel proposed (RFC of 30 April and 20 May 2026).
//!
//! Each gigabyte has free lists of its own. What is not movable goes to spoiled ones, down to single blocks of
//! movable pageblocks there, before it spoils another; so the clean ones can be emptied for huge pages of a
//! gigabyte. Movable requests take the fullest clean gigabyte first, and of spoiled ones only those that keep
//! some pageblocks free for others.
//!
//! # Departures from the proposal
//!
//! No memory is moved out of spoiled gigabytes, nor reclaimed before a clean one is spoiled. A gigabyte is
//! spoiled for good once a block of a movable pageblock in it was taken for what is not movable: the proposal looks
//! at contents.

use super::{Choice, FreeBlock, PagePolicy, Request, ZoneView};
use crate::page::types::{MAX_ORDER, MigrateType};

/// Bytes of a region: what a huge page of the next level has on x86-64.
const GIGABYTE: u64 = 1 << 30;

/// Pageblocks that movable requests leave free in a spoiled region (`SPB_TAINTED_RESERVE` of the RFC).
const KEPT_BLOCKS: u64 = 4;

pub(super) struct Steer;

impl PagePolicy for Steer {
    fn name(&self) -> &'static str {
        "steer"
    }

    fn about(&self) -> &'static str {
        "lists for each gigabyte, kernel memory goes to spoiled ones (van Riel, 2026)"
    }

    fn region_bytes(&self) -> Option<u64> {
        Some(GIGABYTE)
    }

    fn choose(&self, zone: &ZoneView<'_>, request: &Request) -> Choice {
        match request.migratetype {
            MigrateType::Movable => movable(zone, request),
            _ => pinned(zone, request),
        }
    }
}

/// Regions that `of` accepts and that have enough free pages, fullest first.
///
/// Each call finds the next one by a walk over the counts, as the proposal's lists by fullness would give it at once.
fn fullest_first<'a>(
    zone: &'a ZoneView<'_>,
    request: &Request,
    of: impl Fn(u32) -> bool + 'a,
) -> impl Iterator<Item = u32> + 'a {
    let least = 1u64 << request.order;
    let mut last = None;
    core::iter::from_fn(move || {
        let key = |region: &u32| (zone.free_pages(*region), *region);
        let fits = |region: &u32| {
            zone.free_pages(*region) >= least
                && of(*region)
                && last.is_none_or(|last| key(region) > last)
        };
        let next = zone.regions().filter(fits).min_by_key(key)?;
        last = Some(key(&next));
        Some(next)
    })
}

fn pinned(zone: &ZoneView<'_>, request: &Request) -> Choice {
    let of = request.migratetype;
    let spoiled = || fullest_first(zone, request, |region| zone.is_spoiled(region));
    if let Some(own) = spoiled().find_map(|region| zone.smallest(region, request, of)) {
        return Choice::Own(own);
    }
    // A pageblock of a spoiled region, whatever is in it: what it has of movable pages costs less there than in a
    // clean one.
    let claimed = |region| {
        let others = zone.others(of).into_iter();
        let blocks = others.filter_map(|other| zone.largest(region, request, other));
        blocks.reduce(|a, b| if b.order > a.order { b } else { a })
    };
    let block_order = zone.block_order();
    let may = |block: &FreeBlock| !request.whole_blocks || block.order >= block_order;
    if let Some(block) = spoiled().filter_map(claimed).find(may) {
        return Choice::Claim(block);
    }
    // A clean region is spoiled: the one with most free, as it has least that would have to be moved.
    let clean = zone.regions().filter(|&region| !zone.is_spoiled(region));
    let emptiest = clean.filter_map(|region| Some((zone.free_pages(region), claimed(region)?)));
    match emptiest.max_by_key(|(free, _)| *free) {
        Some((_, block)) if block.order >= block_order => Choice::Claim(block),
        Some((_, block)) if may(&block) => Choice::Single(block),
        _ => Choice::Nothing,
    }
}

fn movable(zone: &ZoneView<'_>, request: &Request) -> Choice {
    let of = MigrateType::Movable;
    let own = |region| zone.smallest(region, request, of);
    let clean = fullest_first(zone, request, |region| !zone.is_spoiled(region));
    let roomy = |region| zone.is_spoiled(region) && zone.free_pageblocks(region) > KEPT_BLOCKS;
    let spoiled = fullest_first(zone, request, roomy);
    if let Some(block) = clean.chain(spoiled).find_map(own) {
        return Choice::Own(block);
    }
    let any = fullest_first(zone, request, |_| true);
    if let Some(block) = any.into_iter().find_map(own) {
        return Choice::Own(block);
    }
    let foreign = |region| {
        let mut others = zone.others(of).into_iter();
        others.find_map(|other| zone.largest(region, request, other))
    };
    let block = fullest_first(zone, request, |_| true).find_map(foreign);
    match block {
        Some(block) if block.order >= zone.block_order() => Choice::Claim(block),
        Some(block) if !request.whole_blocks && block.order <= MAX_ORDER => Choice::Single(block),
        _ => Choice::Nothing,
    }
}
