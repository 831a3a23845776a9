//! Memory at the beginning of a replay, by address: where the recording's map and its page events say that it lies.
//!
//! A map of memory ([`BlockMap`]) counts each kind of page in every 2 MiB, and the events name frames: one that is
//! allocated first was free at the beginning, one that is freed first was in use. The rest of a block is filled up to
//! the map's counts.
//!
//! # What is not told, and assumed
//!
//! * The pages of slabs in a block lie together, and its free pages as well, where no event names others between them.
//! * As many blocks as pagetypeinfo counts are not movable: those where pages of the kernel outweigh movable ones most.
//!   Of these, the ones with most slabs and least else are reclaimable.
//! * All that the events do not free stays in use, as the kind that the map has there.
//! * Free lists are in the order of addresses.
//! * Blocks without any flag are huge pages on CPUs' lists, up to the number of pages there.

mod plan;

use std::collections::HashMap;

use plan::{First, Plan, huge_on_lists, labels, plan_block, stock_lists};
use quarry_core::design::Design;
use quarry_core::page::{
    BlockType, MAX_ORDER, MIGRATE_TYPES, MigrateType, PageConfig, Pfn, ZONE_TYPES, ZoneLayout,
    ZoneType,
};
use quarry_sim::driver::{Driver, PageRef};
use quarry_snapshot::blocks::{BLOCK_BYTES, BlockMap};
use quarry_snapshot::{Pagetypeinfo, Snapshot, Zoneinfo};
use quarry_trace::{Flags, FullRow, TraceFile};

use super::by_type::{self, ByType};
use super::placement;
use crate::error::LabError;

/// Beginnings of the names of kernel threads that reclaim and compact memory.
const RECLAIMERS: [&str; 2] = ["kswapd", "kcompactd"];

/// Memory by address.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// Pages of the machine.
    pages: u64,
    absent: [u32; ZONE_TYPES],
    /// Blocks with memory, lowest first.
    blocks: Vec<Plan>,
    /// Rows before the first page that a kernel thread freed to reclaim or compact memory.
    pub(super) alone_until: Option<u64>,
    /// Pages of each block that stay in use, by kind.
    pub(super) rest: BlockMap,
    /// Bytes of a page.
    pub(super) page_bytes: u64,
    /// Pages of slabs from before that are reclaimable.
    reclaimable_pages: u64,
    /// Single pages on CPUs' lists by type. What no request took is movable, as most that programs and files give back.
    listed: ByType,
    /// All pages on CPUs' lists; the others are huge pages, which no smaller request gets.
    on_cpu_lists: u64,
}

impl Frames {
    /// The memory of a recording, from reports at its beginning; `None` if it has no map with frames, pages of this size,
    /// or zones as on x86-64.
    pub(super) fn of(
        file: &TraceFile,
        initial: &Snapshot,
        zoneinfo: &Zoneinfo,
        types: Option<&Pagetypeinfo>,
        page_bytes: u64,
    ) -> Result<Option<Self>, LabError> {
        let Some(map) = &initial.blocks else {
            return Ok(None);
        };
        if map.page_bytes != page_bytes || page_bytes > BLOCK_BYTES {
            return Ok(None);
        }
        let Some(pages) = kernel_pages(zoneinfo, page_bytes) else {
            return Ok(None);
        };
        let mut first = HashMap::new();
        let (mut rows, mut chunk) = (file.rows(), Vec::new());
        let (mut has_frames, mut row_count, mut alone_until) = (false, 0, None);
        while rows.next_chunk(&mut chunk)? {
            for row in &chunk {
                has_frames |= row.pfn.is_some();
                note_first(&mut first, row, pages);
                let reclaims = RECLAIMERS.iter().any(|name| row.comm.starts_with(name));
                if reclaims && row.event.kind.is_page() && row.event.kind.is_free() {
                    alone_until = alone_until.or(Some(row_count));
                }
                row_count += 1;
            }
        }
        if !has_frames {
            return Ok(None);
        }
        let mut planned = Self::plan(map, zoneinfo, types, &first, pages, page_bytes);
        planned.alone_until = alone_until;
        planned.reclaimable_pages = initial.reclaimable_bytes.unwrap_or(0) / page_bytes;
        Ok(Some(planned))
    }

    fn plan(
        map: &BlockMap,
        zoneinfo: &Zoneinfo,
        types: Option<&Pagetypeinfo>,
        first: &HashMap<u32, First>,
        pages: u64,
        page_bytes: u64,
    ) -> Self {
        let each = (BLOCK_BYTES / page_bytes) as u32;
        let labels = labels(map, types, first, each);
        let mut rest = map.clone();
        let mut blocks = Vec::with_capacity(map.blocks.len());
        for (block, of) in rest.blocks.iter_mut().zip(labels) {
            blocks.push(plan_block(block, of, first, each));
        }
        let mut listed = [0; MIGRATE_TYPES];
        for plan in &blocks {
            let each = listed.iter_mut().zip(plan.on_lists);
            each.for_each(|(sum, of)| *sum += of);
        }
        let taken: u64 = listed.iter().sum();
        let on_cpu_lists = map.on_cpu_lists.unwrap_or(0);
        let singles = on_cpu_lists - huge_on_lists(map, each);
        let missing = singles.saturating_sub(taken);
        listed[MigrateType::Movable as usize] += missing;
        stock_lists(missing, &mut rest, &mut blocks, each);
        let mut absent = [0; ZONE_TYPES];
        for (zone, spanned) in ZoneType::ALL.into_iter().zip(spans(pages, page_bytes)) {
            let mut zones = zoneinfo.zones.iter();
            let managed = zones
                .find(|of| of.name == zone.name())
                .map_or(0, |of| of.managed());
            absent[zone as usize] = spanned.saturating_sub(managed) as u32;
        }
        Self {
            pages,
            absent,
            blocks,
            rest,
            page_bytes,
            reclaimable_pages: 0,
            listed,
            on_cpu_lists,
            alone_until: None,
        }
    }

    /// Bytes of the machine's memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.pages * self.page_bytes
    }

    /// Single pages by type on a CPU's lists with this number of pages.
    pub(super) fn stock(&self, pages: u32) -> [u32; MIGRATE_TYPES] {
        let singles = self.listed.iter().sum::<u64>().min(self.on_cpu_lists);
        let part = u64::from(pages) * singles;
        let part = part.checked_div(self.on_cpu_lists).unwrap_or(0);
        by_type::shares(part as u32, &self.listed)
    }

    /// The page allocator of such a machine.
    pub(super) fn config(&self, reported: PageConfig) -> PageConfig {
        PageConfig {
            zones: ZoneLayout::Kernel,
            absent: self.absent,
            ..reported
        }
    }

    /// Leaves nothing free but the room of the slabs from before, and behind it the free memory. As much of the room as
    /// the kernel reported is reclaimable: that of blocks with most slabs and least else.
    pub(super) fn lay_slabs<D: Design>(&self, driver: &Driver<'_, D>) {
        driver.pages().use_all();
        let mut order: Vec<&Plan> = self.blocks.iter().collect();
        order.sort_by_key(|plan| std::cmp::Reverse(plan.slabs_before_others));
        let mut reclaimable = self.reclaimable_pages;
        for plan in order {
            let of = match reclaimable {
                0 => BlockType::UNMOVABLE,
                _ => BlockType::RECLAIMABLE,
            };
            for &(at, pages) in &plan.slabs {
                lay(driver, at, pages, of);
                reclaimable = reclaimable.saturating_sub(pages.into());
            }
        }
        for plan in &self.blocks {
            for &(at, pages) in &plan.free {
                lay(driver, at, pages, BlockType::MOVABLE);
            }
        }
    }

    /// A block from before that an event frees, at its place; `None` if the place is taken. It is modelled from now on, and
    /// no longer part of what stays in use.
    pub(super) fn lay_old<'h, D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        pfn: u64,
        order: u32,
        migratetype: MigrateType,
    ) -> Option<PageRef<'h>> {
        let at = u32::try_from(pfn).ok()?;
        let block = driver.lay_old_pages(Pfn(at), order, migratetype)?;
        let index = (pfn * self.page_bytes / BLOCK_BYTES) as u32;
        let found = self
            .rest
            .blocks
            .binary_search_by_key(&index, |block| block.index);
        if let Ok(found) = found {
            let pages = &mut self.rest.blocks[found].pages;
            let mut left = 1u16 << order;
            let kinds = match migratetype {
                MigrateType::Movable => [&mut pages.movable, &mut pages.kernel, &mut pages.untold],
                _ => [&mut pages.page_tables, &mut pages.kernel, &mut pages.untold],
            };
            for kind in kinds {
                let taken = left.min(*kind);
                *kind -= taken;
                left -= taken;
            }
        }
        Some(block)
    }

    /// Leaves nothing free but the free memory. Slabs that the driver has by now are no longer part of what stays in
    /// use.
    pub(super) fn lay_free<D: Design>(&mut self, driver: &Driver<'_, D>) {
        for block in placement::map_of(driver, None).blocks {
            let found = self
                .rest
                .blocks
                .binary_search_by_key(&block.index, |rest| rest.index);
            if let Ok(found) = found {
                let slab = &mut self.rest.blocks[found].pages.slab;
                *slab = slab.saturating_sub(block.pages.slab);
            }
        }
        driver.pages().use_all();
        for plan in &self.blocks {
            driver.pages().label_block(Pfn(plan.begin), plan.of);
            for &(at, pages) in &plan.free {
                lay(driver, at, pages, plan.of);
            }
        }
    }
}

/// Makes pages free that are in use for good, in blocks as large as they can be.
fn lay<D: Design>(driver: &Driver<'_, D>, mut at: u32, mut pages: u32, of: BlockType) {
    while pages > 0 {
        let largest = driver.pages().max_order();
        let order = at.trailing_zeros().min(largest).min(pages.ilog2());
        driver.pages().lay_free(Pfn(at), order, of);
        at += 1 << order;
        pages -= 1 << order;
    }
}

/// Pages of each zone by address, as on x86-64.
fn spans(pages: u64, page_bytes: u64) -> [u64; ZONE_TYPES] {
    let [dma, dma32] = [16 << 20, 4 << 30].map(|limit: u64| (limit / page_bytes).min(pages));
    [dma, dma32 - dma, pages - dma32]
}

/// Pages up to the last one of a machine whose zones are those of x86-64.
fn kernel_pages(zoneinfo: &Zoneinfo, page_bytes: u64) -> Option<u64> {
    let mut end = 0;
    for zone in zoneinfo.populated() {
        let start = zone.rest.get("start_pfn")?;
        end = end.max(start + zone.pages.get("spanned")?);
        let begins = match zone.name.as_str() {
            "DMA" => 0..16 << 20,
            "DMA32" => 16 << 20..4 << 30,
            "Normal" => 4 << 30..u64::MAX,
            _ => return None,
        };
        if zone.node > 0 || !begins.contains(&(start * page_bytes)) {
            return None;
        }
    }
    Some(end.next_multiple_of(1 << MAX_ORDER)).filter(|end| *end > 0 && *end < 1 << 31)
}

fn note_first(first: &mut HashMap<u32, First>, row: &FullRow, pages: u64) {
    let (Some(pfn), true) = (row.pfn, row.event.kind.is_page()) else {
        return;
    };
    let is_slab = row.event.flags.has(Flags::SLAB);
    let use_of = match row.event.kind.is_free() {
        true => First::Used { slab: is_slab },
        false => First::Free(match row.event.migratetype() {
            Some(1) => MigrateType::Movable,
            Some(2) => MigrateType::Reclaimable,
            _ => MigrateType::Unmovable,
        }),
    };
    let end = pfn
        .saturating_add(1 << row.event.order.min(MAX_ORDER as u8))
        .min(pages);
    for frame in pfn.min(end)..end {
        first.entry(frame as u32).or_insert(use_of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_snapshot::blocks::{Block, Pages};

    /// Pages that a plan makes free, and those that stay, are the map's.
    #[test]
    fn a_block_is_divided_by_its_counts_and_its_events() {
        let counts = Pages {
            free: 100,
            movable: 200,
            slab: 50,
            page_tables: 10,
            untold: 20,
            ..Pages::default()
        };
        let mut rest = BlockMap {
            page_bytes: 4096,
            on_cpu_lists: Some(15),
            blocks: vec![Block {
                index: 3,
                pages: counts,
            }],
            ..BlockMap::default()
        };
        let begin = 3 * 512;
        let mut first = HashMap::new();
        // 110 pages are allocated first, so 10 of them lay on a CPU's list; 30 are freed first.
        for frame in begin..begin + 110 {
            first.insert(frame, First::Free(MigrateType::Movable));
        }
        for frame in begin + 200..begin + 230 {
            first.insert(frame, First::Used { slab: false });
        }
        let plan = plan_block(&mut rest.blocks[0], BlockType::MOVABLE, &first, 512);
        let sum = |runs: &[(u32, u32)]| runs.iter().map(|(_, pages)| *pages).sum::<u32>();
        assert_eq!(
            (
                sum(&plan.free),
                sum(&plan.slabs),
                plan.on_lists.iter().sum()
            ),
            (110, 50, 10)
        );
        let mut plans = [plan];
        stock_lists(5, &mut rest, &mut plans, 512);
        // Five more pages lay on lists.
        assert_eq!(sum(&plans[0].free), 115);
        assert_eq!(
            (rest.blocks[0].pages.free, rest.blocks[0].pages.untold),
            (0, 5)
        );
        let all = plans[0].free.iter().chain(&plans[0].slabs);
        let mut frames: Vec<u32> = all.flat_map(|(at, pages)| *at..at + pages).collect();
        frames.sort_unstable();
        assert!(
            frames.windows(2).all(|pair| pair[0] < pair[1]),
            "no page twice"
        );
        let used = |frame: &u32| first.get(frame) == Some(&First::Used { slab: false });
        assert!(!frames.iter().any(used));
    }

    /// Huge pages on lists serve no single page; the types of single ones are those that were asked.
    #[test]
    fn lists_have_the_types_that_were_asked() {
        let block = |index, untold| Block {
            index,
            pages: Pages {
                untold,
                ..Pages::default()
            },
        };
        let map = BlockMap {
            page_bytes: 4096,
            on_cpu_lists: Some(600),
            blocks: vec![block(0, 512), block(1, 40)],
            ..BlockMap::default()
        };
        let asked = (512..522).map(|frame| (frame, First::Free(MigrateType::Unmovable)));
        let huge = (0..512).map(|frame| (frame, First::Free(MigrateType::Movable)));
        let first = asked.chain(huge).collect();
        let zoneinfo = Zoneinfo::default();
        let frames = Frames::plan(&map, &zoneinfo, None, &first, 1024, 4096);
        assert_eq!(frames.stock(600), [10, 78, 0]);
        assert_eq!(frames.stock(300), [5, 39, 0]);
    }

    /// Blocks are as pagetypeinfo counts them, those with most of the kernel first.
    #[test]
    fn labels_are_those_that_are_counted() {
        let block = |index, slab, page_tables, movable| Block {
            index,
            pages: Pages {
                slab,
                page_tables,
                movable,
                ..Pages::default()
            },
        };
        let map = BlockMap {
            page_bytes: 4096,
            blocks: vec![
                block(0, 0, 0, 512),
                block(1, 10, 300, 0),
                block(2, 400, 0, 100),
                block(3, 20, 0, 400),
            ],
            ..BlockMap::default()
        };
        let text = "Page block order: 9\nPages per block:  512\n\n\
            Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 \n\
            Node    0, zone   Normal, type    Unmovable      0      0      0      0      0      0      0      0      0      0      0 \n\
            Node    0, zone   Normal, type      Movable      0      0      0      0      0      0      0      0      0      0      0 \n\
            Node    0, zone   Normal, type  Reclaimable      0      0      0      0      0      0      0      0      0      0      0 \n\n\
            Number of blocks type     Unmovable      Movable  Reclaimable \n\
            Node 0, zone   Normal            1            2            1 \n";
        let types = Pagetypeinfo::parse("pagetypeinfo", text).unwrap();
        let found = labels(&map, Some(&types), &HashMap::new(), 512);
        let [movable, unmovable, reclaimable] = [
            BlockType::MOVABLE,
            BlockType::UNMOVABLE,
            BlockType::RECLAIMABLE,
        ];
        assert_eq!(found, [movable, unmovable, reclaimable, movable]);
        let guessed = labels(&map, None, &HashMap::new(), 512);
        assert_eq!(guessed, [movable, unmovable, unmovable, movable]);
    }
}
