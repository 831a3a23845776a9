//! The pages of a block of memory, divided by its counts and by the events that name them.

use std::collections::HashMap;

use quarry_core::page::{BlockType, MigrateType};
use quarry_snapshot::Pagetypeinfo;
use quarry_snapshot::blocks::{Block, BlockMap};

use crate::replay::by_type::{self, ByType};

/// log2 of the pages of most slabs (`PAGE_ALLOC_COSTLY_ORDER`).
const SLAB_ORDER: u32 = 3;

/// First use of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It was allocated for this type: free at the beginning.
    Free(MigrateType),
    /// It was freed: in use at the beginning.
    Used { slab: bool },
}

/// A block of memory.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Its first page.
    pub(super) begin: u32,
    pub(super) of: BlockType,
    /// Pages of slabs less all others of the kernel.
    pub(super) slabs_before_others: i32,
    /// Runs of pages that are free at the beginning: the first page, and their number.
    pub(super) free: Vec<(u32, u32)>,
    /// Runs of pages of slabs from before.
    pub(super) slabs: Vec<(u32, u32)>,
    /// Pages that no event names, and that are neither.
    pub(super) others: Vec<u32>,
    /// Pages that were free although the map shows them without a flag: on CPUs' lists, by the type of the first request.
    pub(super) on_lists: ByType,
}

/// Types of the blocks.
pub(super) fn labels(
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

pub(super) fn slabs_before_others(block: &Block) -> i32 {
    let pages = block.pages;
    let others = pages.page_tables + pages.kernel + pages.untold;
    i32::from(pages.slab) - i32::from(others)
}

/// Divides the pages of a block, and takes what will be modelled off its counts.
pub(super) fn plan_block(
    block: &mut Block,
    of: BlockType,
    first: &HashMap<u32, First>,
    each: u32,
) -> Plan {
    let begin = block.index * each;
    let (mut free, mut slabs, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    let mut asked = ByType::default();
    for frame in begin..begin + each {
        match first.get(&frame) {
            Some(First::Free(of)) => {
                free.push(frame);
                asked[*of as usize] += 1;
            }
            Some(First::Used { slab: true }) => slabs.push(frame),
            Some(First::Used { slab: false }) => {}
            None => unknown.push(frame),
        }
    }
    let slabs_before_others = slabs_before_others(block);
    let pages = &mut block.pages;
    // A huge page on a list is none that single pages are taken of.
    let is_huge = u32::from(pages.untold) == each;
    let listed = free.len().saturating_sub(pages.free.into()) as u16;
    pages.untold = pages.untold.saturating_sub(listed);
    let listed = if is_huge { 0 } else { u32::from(listed) };
    // Which of them lay on lists is not told: each type in proportion.
    let on_lists = by_type::shares(listed, &asked).map(u64::from);
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

/// Pages on CPUs' lists that are huge: blocks without any flag, as many as fit into the number that is reported.
pub(super) fn huge_on_lists(map: &BlockMap, each: u32) -> u64 {
    let on_lists = map.on_cpu_lists.unwrap_or(0);
    let untold = |block: &&Block| u32::from(block.pages.untold) == each;
    let blocks = map.blocks.iter().filter(untold).count() as u64;
    blocks.min(on_lists / u64::from(each)) * u64::from(each)
}

/// Makes `missing` pages without a flag free: they lay on CPUs' lists. Blocks without any flag are huge pages there.
pub(super) fn stock_lists(mut missing: u64, rest: &mut BlockMap, blocks: &mut [Plan], each: u32) {
    for (plan, block) in blocks.iter_mut().zip(&mut rest.blocks) {
        if u32::from(block.pages.untold) == each {
            continue;
        }
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
