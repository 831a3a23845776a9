//! Places of pages: which blocks of memory hold what stays where it is, and what choosing them took.
//!
//! The replayed machine's pages are folded into the same map of memory that a real one's flags give
//! ([`BlockMap`]), so that blocks mean the same in a snapshot and in a replay. Pages on CPUs' lists are without a flag
//! there, and here.

use quarry_core::design::Design;
use quarry_core::machine::Cpus as _;
use quarry_core::page::PageKind;
use quarry_sim::driver::Driver;
use quarry_snapshot::blocks::{BLOCK_BYTES, Block, BlockMap, Pages, Spread};
use schemars::JsonSchema;
use serde::Serialize;

use super::frames::Frames;

/// Sizes of blocks that are told: a huge page of each kind on x86-64.
pub(super) const SIZES: [u64; 2] = [BLOCK_BYTES, 1 << 30];

/// Places of pages in a replay.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Placement {
    /// Blocks of 2 MiB at the end with a page that stays where it is.
    pub tainted_blocks: u64,
    /// Blocks of 1 GiB with one.
    pub tainted_gigabytes: u64,
    /// Allocations for which the zone had no block of their type.
    pub fallbacks: u64,
    /// Pageblocks that changed their type for them.
    pub claims: u64,
    /// Allocations that mixed types although the policy asks to reclaim memory first.
    pub before_reclaim: u64,
    /// Free lists that half of the allocations from zones looked at, at most.
    pub lists_median: u32,
    /// The same for 99 of 100.
    pub lists_99: u32,
    /// The most of one allocation.
    pub lists_most: u32,
    /// Most pages on CPUs' lists in any sample.
    pub cpu_list_pages: u64,
    /// Events of the trace before the first page that a kernel thread freed to reclaim or compact memory; null if there is none, or the
    /// replay does not begin where the recording's map says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_until: Option<u64>,
    /// Blocks at the end, by size.
    pub blocks: Vec<Spread>,
    /// At one of four moments of free memory over time, and at the end.
    pub samples: Vec<PlacementSample>,
    /// Counters at the first sample: making the initial state counts nothing.
    #[serde(skip)]
    before: [u64; 3],
    /// Pages that stay in use, by the recording's map; without one they are of no told kind.
    #[serde(skip)]
    rest: Option<BlockMap>,
}

/// Blocks of memory at one moment.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct PlacementSample {
    /// Events of the trace so far.
    pub event: u64,
    /// Nanoseconds after the trace's first event.
    pub time_ns: u64,
    /// Allocations so far for which the zone had no block of their type.
    pub fallbacks: u64,
    /// Blocks by size.
    pub blocks: Vec<Spread>,
}

impl Placement {
    /// Accounts from now on, with pages that stay in use if the recording tells them.
    pub(super) fn of(frames: Option<Frames>) -> Self {
        Self {
            alone_until: frames.as_ref().and_then(|frames| frames.alone_until),
            rest: frames.map(|frames| frames.rest),
            ..Self::default()
        }
    }

    /// Takes a sample.
    pub(super) fn take<D: Design>(&mut self, driver: &Driver<'_, D>, (event, time_ns): (u64, u64)) {
        if self.samples.last().is_some_and(|last| last.event == event) {
            return;
        }
        let stats = driver.page_stats();
        // The walk takes the zones' locks, which the load did not.
        let walk = || map_of(driver, self.rest.as_ref());
        let map = driver.machine().uncounted(walk);
        let now = [stats.extfrag, stats.retagged, stats.forced];
        if self.samples.is_empty() {
            self.before = now;
        }
        let [fallbacks, claims, before_reclaim] =
            std::array::from_fn(|at| now[at] - self.before[at]);
        (self.fallbacks, self.claims, self.before_reclaim) = (fallbacks, claims, before_reclaim);
        let looks = &driver.machine().counters().looks;
        self.lists_median = looks.quantile(500);
        self.lists_99 = looks.quantile(990);
        self.lists_most = looks.most;
        let on_lists = map.on_cpu_lists.unwrap_or(0);
        self.cpu_list_pages = self.cpu_list_pages.max(on_lists);
        let [small, large] = SIZES.map(|size| map.spread(size));
        (self.tainted_blocks, self.tainted_gigabytes) = (small.tainted, large.tainted);
        self.blocks = vec![small, large];
        self.samples.push(PlacementSample {
            event,
            time_ns,
            fallbacks,
            blocks: self.blocks.clone(),
        });
    }
}

/// The machine's pages by blocks, beside those that stay in use.
pub(super) fn map_of<D: Design>(driver: &Driver<'_, D>, rest: Option<&BlockMap>) -> BlockMap {
    let page_bytes = driver.machine().topology().page_size() as u64;
    let each = (BLOCK_BYTES / page_bytes).max(1);
    let mut map = BlockMap {
        page_bytes,
        on_cpu_lists: Some(0),
        ..BlockMap::default()
    };
    driver.pages().visit_blocks(|block| {
        let (mut at, end) = (
            u64::from(block.first.0),
            u64::from(block.first.0 + block.pages),
        );
        while at < end {
            let index = (at / each) as u32;
            let pages = (end - at).min(each - at % each);
            at += pages;
            if map.blocks.last().is_none_or(|last| last.index != index) {
                map.blocks.push(Block {
                    index,
                    pages: Pages::default(),
                });
            }
            let Some(Block { pages: of, .. }) = map.blocks.last_mut() else {
                continue;
            };
            let count = match block.kind {
                PageKind::Untouched | PageKind::Buddy => &mut of.free,
                PageKind::Allocated if block.movable => &mut of.movable,
                PageKind::Allocated | PageKind::LargeKmalloc | PageKind::Pool => &mut of.kernel,
                PageKind::Slab => &mut of.slab,
                PageKind::Pcp => {
                    map.on_cpu_lists = map.on_cpu_lists.map(|sum| sum + pages);
                    &mut of.untold
                }
                PageKind::Owned | PageKind::Tail if rest.is_some() => continue,
                PageKind::Owned | PageKind::Tail => &mut of.untold,
            };
            *count += pages as u16;
        }
    });
    match rest {
        Some(rest) => map.and(rest),
        None => map,
    }
}
