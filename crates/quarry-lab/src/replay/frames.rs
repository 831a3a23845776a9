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

use std::collections::HashMap;

use quarry_core::design::Design;
use quarry_core::page::{
    BlockType, MAX_ORDER, MigrateType, PageConfig, Pfn, ZONE_TYPES, ZoneLayout, ZoneType,
};
use quarry_sim::driver::{Driver, PageRef};
use quarry_snapshot::blocks::{BLOCK_BYTES, Block, BlockMap};
use quarry_snapshot::{Pagetypeinfo, Snapshot, Zoneinfo};
use quarry_trace::{Flags, FullRow, TraceFile};

use super::placement;
use crate::error::LabError;

/// log2 of the pages of most slabs (`PAGE_ALLOC_COSTLY_ORDER`).
const SLAB_ORDER: u32 = 3;

/// Beginnings of the names of kernel threads that reclaim and compact memory.
const RECLAIMERS: [&str; 2] = ["kswapd", "kcompactd"];

/// First use of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// It was allocated for this type: free at the beginning.
    Free(MigrateType),
    /// It was freed: in use at the beginning.
    Used { slab: bool },
}

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
}

/// A block of memory.
#[derive(Clone, Debug)]
struct Plan {
    /// Its first page.
    begin: u32,
    of: BlockType,
    /// Pages of slabs less all others of the kernel.
    slabs_before_others: i32,
    /// Runs of pages that are free at the beginning: the first page, and their number.
    free: Vec<(u32, u32)>,
    /// Runs of pages of slabs from before.
    slabs: Vec<(u32, u32)>,
    /// Pages that no event names, and that are neither.
    others: Vec<u32>,
    /// Pages that were free although the map shows them without a flag: on CPUs' lists.
    on_lists: u64,
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
        stock_lists(map, &mut rest, &mut blocks);
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
            alone_until: None,
        }
    }

    /// Bytes of the machine's memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.pages * self.page_bytes
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
        let order = at.trailing_zeros().min(MAX_ORDER).min(pages.ilog2());
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

/// Types of the blocks.
fn labels(
    map: &BlockMap,
    types: Option<&Pagetypeinfo>,
    first: &HashMap<u32, First>,
    each: u32,
) -> Vec<BlockType> {
    let pinned = |block: &Block| {
        let pages = block.pages;
        let kernels = pages.slab + pages.page_tables + pages.kernel + pages.untold;
        i32::from(kernels) - i32::from(pages.movable)
    };
    let of = |name: &str| {
        let types = types?;
        let at = types.migratetypes.iter().position(|known| known == name)?;
        let rows = types.blocks.iter();
        Some(rows.filter_map(|row| row.counts.get(at)).sum::<u64>() as usize)
    };
    let counted = of("Unmovable").zip(of("Reclaimable"));
    let mut order: Vec<usize> = (0..map.blocks.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(pinned(&map.blocks[*at])));
    let mut labels = vec![BlockType::MOVABLE; map.blocks.len()];
    let mut chosen: Vec<usize> = match counted {
        Some((unmovable, reclaimable)) => {
            let with_kernel = order.into_iter().filter(|at| {
                let pages = map.blocks[*at].pages;
                pages.slab + pages.page_tables + pages.kernel + pages.untold > 0
            });
            with_kernel.take(unmovable + reclaimable).collect()
        }
        None => {
            let outweigh = |at: &usize| pinned(&map.blocks[*at]) > 0;
            order.into_iter().take_while(outweigh).collect()
        }
    };
    for at in &chosen {
        labels[*at] = BlockType::UNMOVABLE;
    }
    // Slabs alone are reclaimable, such as those of inodes; stacks and tables of pages are not.
    chosen.sort_by_key(|at| std::cmp::Reverse(slabs_before_others(&map.blocks[*at])));
    let asked = |at: usize, of| {
        let index = map.blocks[at].index;
        let frames = index * each..(index + 1) * each;
        let uses = frames.filter_map(|frame| first.get(&frame));
        uses.filter(|use_of| **use_of == First::Free(of)).count()
    };
    let reclaimable =
        |at: &usize| asked(*at, MigrateType::Reclaimable) > asked(*at, MigrateType::Unmovable);
    let of_slabs: Vec<usize> = match counted {
        Some((_, reclaimable)) => chosen.into_iter().take(reclaimable).collect(),
        None => chosen.into_iter().filter(reclaimable).collect(),
    };
    for at in of_slabs {
        labels[at] = BlockType::RECLAIMABLE;
    }
    labels
}

fn slabs_before_others(block: &Block) -> i32 {
    let pages = block.pages;
    let others = pages.page_tables + pages.kernel + pages.untold;
    i32::from(pages.slab) - i32::from(others)
}

/// Divides the pages of a block, and takes what will be modelled off its counts.
fn plan_block(block: &mut Block, of: BlockType, first: &HashMap<u32, First>, each: u32) -> Plan {
    let begin = block.index * each;
    let (mut free, mut slabs, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for frame in begin..begin + each {
        match first.get(&frame) {
            Some(First::Free(_)) => free.push(frame),
            Some(First::Used { slab: true }) => slabs.push(frame),
            Some(First::Used { slab: false }) => {}
            None => unknown.push(frame),
        }
    }
    let slabs_before_others = slabs_before_others(block);
    let pages = &mut block.pages;
    let on_lists = free.len().saturating_sub(pages.free.into()) as u64;
    pages.untold = pages.untold.saturating_sub(on_lists as u16);
    // Slabs and free blocks have several pages, so frames whose neighbours are unknown as well come first: slabs at
    // the beginning, free pages behind.
    let is_whole = |group: &[u32]| group.len() == 1 << SLAB_ORDER;
    let groups = unknown.chunk_by(|a, b| a >> SLAB_ORDER == b >> SLAB_ORDER);
    let (whole, parts): (Vec<&[u32]>, Vec<&[u32]>) = groups.partition(|group| is_whole(group));
    let mut unknown = [whole.concat(), parts.concat()].concat();
    let more = usize::from(pages.slab).saturating_sub(slabs.len());
    slabs.extend(unknown.drain(..more.min(unknown.len())));
    let more = usize::from(pages.free).saturating_sub(free.len());
    free.extend(unknown.drain(..more.min(unknown.len())));
    pages.free = 0;
    Plan {
        begin,
        of,
        slabs_before_others,
        free: runs(free),
        slabs: runs(slabs),
        others: unknown,
        on_lists,
    }
}

/// Makes pages without a flag free, until there are as many as lay on CPUs' lists.
fn stock_lists(map: &BlockMap, rest: &mut BlockMap, blocks: &mut [Plan]) {
    let found: u64 = blocks.iter().map(|plan| plan.on_lists).sum();
    let mut missing = map.on_cpu_lists.unwrap_or(0).saturating_sub(found);
    for (plan, block) in blocks.iter_mut().zip(&mut rest.blocks) {
        let untold = usize::from(block.pages.untold).min(plan.others.len());
        let more = untold.min(usize::try_from(missing).unwrap_or(usize::MAX));
        let frames = plan.others.drain(..more);
        plan.free.extend(frames.map(|frame| (frame, 1)));
        block.pages.untold -= more as u16;
        missing -= more as u64;
    }
}

/// Frames as runs.
fn runs(mut frames: Vec<u32>) -> Vec<(u32, u32)> {
    frames.sort_unstable();
    let runs = frames.chunk_by(|a, b| a + 1 == *b);
    runs.map(|run| (run[0], run.len() as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_snapshot::blocks::Pages;

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
        let map = rest.clone();
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
            (sum(&plan.free), sum(&plan.slabs), plan.on_lists),
            (110, 50, 10)
        );
        let mut plans = [plan];
        stock_lists(&map, &mut rest, &mut plans);
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
