//! The answer: taints with their texts, and their causes.

use std::collections::BTreeMap;

use quarry_snapshot::blocks::{BlockMap, SpreadChange};
use quarry_snapshot::vmstat::Vmstat;
use quarry_trace::TraceMeta;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::By;
use super::super::names::Names;
use super::{Found, Pass, UNNAMED};

/// Beginnings of the names of vmstat's counters that tell of reclaim and compaction.
const RECLAIM: [&str; 5] = [
    "pgscan",
    "pgsteal",
    "compact_",
    "pgmigrate_success",
    "allocstall",
];
/// Cache of a slab on which no object was seen.
const OTHER_SLAB: &str = "a slab without objects seen";

/// Blocks that pages of the kernel spoiled in a recording.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Taints {
    /// First moment that counts, by the recording's clock; null for the recording's begin.
    pub from_ns: Option<u64>,
    /// First moment that does not count any more; null for the recording's end.
    pub until_ns: Option<u64>,
    /// True if a map of memory says which blocks were clean at the beginning.
    pub has_map: bool,
    /// Counters of reclaim and compaction that grew between the two maps; null without vmstat of both ends.
    pub reclaim: Option<Vec<Changed>>,
    /// Allocations of pages whose migrate type is unknown, which are taken for movable.
    pub untyped: u64,
    /// Taints that are counted in `blocks` alone, beyond the first million.
    pub omitted: u64,
    /// Blocks by size.
    pub blocks: Vec<OfBlocks>,
    /// Each taint, by time.
    pub taints: Vec<Taint>,
}

/// A counter that grew.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Changed {
    /// Name in vmstat.
    pub name: String,
    /// Amount by which it grew.
    pub by: u64,
}

/// Blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct OfBlocks {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Times that a page of the kernel came to a clean block.
    pub spoiled: u64,
    /// Blocks to which that happened.
    pub spoiled_blocks: u64,
    /// Times that such a block was clean again.
    pub cleaned: u64,
    /// Such blocks that are spoiled at the end.
    pub at_end: u64,
    /// Times that a page came from a free block of another migrate type, by `mm_page_alloc_extfrag`; null if these events
    /// were not recorded, or not all are kept.
    pub fallbacks: Option<u64>,
    /// Blocks that got a page of the kernel while it was unknown whether they were clean.
    pub unknown: u64,
    /// Blocks spoiled before the recording whose pages have surely all left.
    pub cleaned_before: u64,
    /// Blocks that surely were clean in the first map and are spoiled in the last; null without both.
    pub maps_tainted: Option<u64>,
    /// Blocks that were spoiled in the first map and surely are clean in the last; null without both.
    pub maps_cleaned: Option<u64>,
    /// Blocks where pages without a flag leave that open; null without both maps.
    pub maps_open: Option<u64>,
}

/// A page of the kernel in a block that had none.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Taint {
    /// When it was allocated, by the recording's clock.
    pub time_ns: u64,
    /// Bytes of the block.
    pub block_bytes: u64,
    /// Physical address of the block.
    pub address: u64,
    /// True if the block surely was clean; false if that is unknown.
    pub was_clean: bool,
    /// Frame number of the page.
    pub pfn: u64,
    /// Order of its allocation.
    pub order: u8,
    /// Migrate type of the allocation: 0 is unmovable, 2 reclaimable.
    pub migratetype: u8,
    /// Cache of the slab, `large kmalloc`, or `pages` with their allocation flags.
    pub cache: String,
    /// True if objects lay on the page.
    pub is_slab: bool,
    /// Allocation flags; null if unknown.
    pub gfp_flags: Option<String>,
    /// Call site of the slab's first object, or function that called the page allocator; null if unknown.
    pub site: Option<String>,
    /// Name of the running thread.
    pub process: String,
    /// Its id.
    pub pid: i32,
    /// Nanoseconds until the last page of the kernel left the block; null if it did not, or if `was_clean` is false.
    pub stayed_ns: Option<u64>,
    /// Cache of the page that left last; null as `stayed_ns` is.
    pub last: Option<String>,
    /// True if the page came from a free block of another migrate type; null if that was not recorded.
    pub fallback: Option<bool>,
}

/// Taints of blocks of the smallest size by one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Cause {
    /// Cache, call site or process.
    pub name: String,
    /// Times that it spoiled a clean block.
    pub spoiled: u64,
    /// Taints among them that last at the end.
    pub at_end: u64,
    /// Mean nanoseconds of those that ended; null if none did.
    pub stayed_mean_ns: Option<u64>,
    /// Times that its page came from a free block of another migrate type; null if that was not recorded.
    pub fallbacks: Option<u64>,
    /// Blocks that it was the first in while it was unknown whether they were clean.
    pub unknown: u64,
    /// Times that it spoiled a clean block of the largest size.
    pub largest_spoiled: u64,
    /// Caches, those that spoiled most first.
    pub caches: Vec<Share>,
    /// Call sites, in the same order.
    pub sites: Vec<Share>,
    /// Processes, in the same order.
    pub processes: Vec<Share>,
    /// Caches of the pages that left last, in the same order.
    pub last: Vec<Share>,
}

/// Share of a cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Share {
    /// Name.
    pub name: String,
    /// Taints.
    pub taints: u64,
}

pub(super) fn of(pass: Pass<'_>, maps: Option<(&BlockMap, &BlockMap)>) -> Taints {
    let meta = pass.meta;
    let moves = &meta.moves;
    let told = (moves.extfrag_on || moves.extfrag_events > 0)
        && moves.extfrag_events == moves.extfrags.len() as u64;
    let has_map = pass.sizes.first().is_some_and(|blocks| blocks.has_map());
    let blocks = pass.sizes.iter().map(|of| {
        let change = maps.map(|(first, last)| last.change_since(first, of.bytes));
        let change = |count: fn(&SpreadChange) -> u64| change.as_ref().map(count);
        OfBlocks {
            block_bytes: of.bytes,
            spoiled: of.spoiled,
            spoiled_blocks: of.spoiled_blocks(),
            cleaned: of.cleaned,
            at_end: of.spoiled - of.cleaned,
            fallbacks: told.then_some(of.fallbacks),
            unknown: of.unknown,
            cleaned_before: of.cleaned_before,
            maps_tainted: change(|change| change.tainted),
            maps_cleaned: change(|change| change.cleaned),
            maps_open: change(|change| change.open),
        }
    });
    let blocks: Vec<OfBlocks> = blocks.collect();
    let taint = |of: &Found| {
        taint(
            of,
            &pass.names,
            blocks[usize::from(of.size)].block_bytes,
            told,
        )
    };
    let taints = pass.found.iter().map(taint).collect();
    Taints {
        from_ns: has_map.then_some(pass.counted.start),
        until_ns: Some(pass.counted.end).filter(|end| *end < u64::MAX),
        has_map,
        reclaim: reclaim(meta),
        untyped: pass.untyped,
        omitted: pass.omitted,
        taints,
        blocks,
    }
}

fn taint(of: &Found, names: &Names, block_bytes: u64, told: bool) -> Taint {
    let name = |number: u32| (number != UNNAMED).then(|| names.of(number).to_string());
    let slab = || OTHER_SLAB.to_string();
    Taint {
        time_ns: of.time_ns,
        block_bytes,
        address: of.index.saturating_mul(block_bytes),
        was_clean: of.was_clean,
        pfn: of.pfn,
        order: of.order,
        migratetype: of.migratetype,
        cache: name(of.cache).unwrap_or_else(slab),
        is_slab: of.is_slab,
        gfp_flags: name(of.gfp).filter(|flags| !flags.is_empty()),
        site: name(of.site),
        process: names.of(of.process).to_string(),
        pid: of.pid,
        stayed_ns: of.until_ns.map(|until| until.saturating_sub(of.time_ns)),
        last: of.until_ns.map(|_| name(of.last).unwrap_or_else(slab)),
        fallback: told.then_some(of.fallback),
    }
}

/// Counters of reclaim and compaction that grew.
pub(crate) fn reclaim(meta: &TraceMeta) -> Option<Vec<Changed>> {
    let mut reports = meta.reports.iter().filter(|of| of.name == "vmstat");
    let (first, last) = (reports.next()?, reports.next_back()?);
    let read = |text: &str| Vmstat::parse("vmstat", text).ok();
    let (first, last) = (read(&first.text)?.counters, read(&last.text)?.counters);
    let grew = last.iter().filter_map(|(name, value)| {
        let by = value.saturating_sub(first.get(name)?);
        let is_such = by > 0 && RECLAIM.iter().any(|begin| name.starts_with(begin));
        is_such.then(|| Changed {
            name: name.to_string(),
            by,
        })
    });
    Some(grew.collect())
}

impl Taints {
    /// Causes, those that spoiled most blocks of the smallest size first.
    #[must_use]
    pub fn causes(&self, by: By) -> Vec<Cause> {
        let small = self.blocks.first().map_or(0, |blocks| blocks.block_bytes);
        let large = self.blocks.last().map_or(0, |blocks| blocks.block_bytes);
        let mut causes = BTreeMap::<&str, (Cause, [BTreeMap<&str, u64>; 4], u64)>::new();
        for taint in &self.taints {
            let site = taint.site.as_deref().unwrap_or("unknown");
            let name = match by {
                By::Site => site,
                By::Process => &taint.process,
                By::Cache => &taint.cache,
            };
            let (cause, shares, stayed_ns) = causes.entry(name).or_default();
            if taint.was_clean && taint.block_bytes == large {
                cause.largest_spoiled += 1;
            }
            if taint.block_bytes != small {
                continue;
            }
            if taint.was_clean {
                cause.spoiled += 1;
                cause.at_end += u64::from(taint.stayed_ns.is_none());
                *stayed_ns = stayed_ns.saturating_add(taint.stayed_ns.unwrap_or(0));
            } else {
                cause.unknown += 1;
            }
            if let Some(fallback) = taint.fallback {
                let fallbacks = cause.fallbacks.get_or_insert(0);
                *fallbacks += u64::from(fallback && taint.was_clean);
            }
            let own = [&taint.cache, site, &taint.process].map(Some);
            let own = own.into_iter().chain([taint.last.as_deref()]);
            for (share, name) in shares.iter_mut().zip(own) {
                if let Some(name) = name {
                    *share.entry(name).or_default() += 1;
                }
            }
        }
        let causes = causes
            .into_iter()
            .map(|(name, (cause, shares, stayed_ns))| {
                let [caches, sites, processes, last] = shares.map(ranked);
                Cause {
                    name: name.to_string(),
                    stayed_mean_ns: stayed_ns.checked_div(cause.spoiled - cause.at_end),
                    caches,
                    sites,
                    processes,
                    last,
                    ..cause
                }
            });
        let mut causes: Vec<Cause> = causes.collect();
        let rank = |cause: &Cause| (cause.spoiled, cause.unknown, cause.largest_spoiled);
        // Equal ones stay in the order of their names.
        causes.sort_by_key(|cause| std::cmp::Reverse(rank(cause)));
        causes
    }
}

fn ranked(shares: BTreeMap<&str, u64>) -> Vec<Share> {
    let shares = shares.into_iter().map(|(name, taints)| Share {
        name: name.to_string(),
        taints,
    });
    let mut shares: Vec<Share> = shares.collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.taints));
    shares
}
