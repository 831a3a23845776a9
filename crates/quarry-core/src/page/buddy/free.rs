//! Frees: merging blocks with their buddies, one by one and in runs.

use core::ops::Range;

use super::FreeArea;
use crate::era::Era;
use crate::machine::{Machine, Work, work};
use crate::page::memmap::MapOn;
use crate::page::memmap::page::AHEAD;
use crate::page::types::{BlockType, PageKind, Pfn};

impl FreeArea {
    /// Puts a block back, merging it with its buddy as long as that is free and of the same order.
    pub(crate) fn free<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, order: u32) {
        self.freed[order as usize] += 1;
        work(map.machine, Work::ZoneGive);
        let merged = self.merge(map, pfn, order);
        self.put_freed(map, merged);
    }

    /// Puts a merged block on its list.
    fn put_freed<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        (pfn, order, of): (Pfn, u32, BlockType),
    ) {
        if self.merges_soon(map, pfn, order) {
            self.put_last(map, pfn, order, of);
        } else {
            self.put(map, pfn, order, of);
        }
    }

    /// True if a block and its buddy, which is in use, would make a pair with a free buddy.
    fn merges_soon<M: Machine>(&self, map: MapOn<'_, M>, pfn: Pfn, order: u32) -> bool {
        if self.era < Era::V2_6_35 || order + 1 >= self.max_order {
            return false;
        }
        let pair = pfn.0 & !(1 << order);
        let next = Pfn(pair ^ (2 << order));
        if next.0 >= self.frontier {
            return false;
        }
        let page = map.page_to_read(next);
        page.is_block(PageKind::Buddy, order + 1)
    }

    /// [`FreeArea::free`] of blocks of one order, first to last.
    ///
    /// Blocks that make a larger one together, and come up or down within it, go back as that one:
    /// until the last of them is free they merge with nothing but each other; what they merge to
    /// meanwhile comes to a list's front and leaves it again. What that costs is charged.
    ///
    /// With `picks` each comes off a CPU's list here, which needs its links and writes those of the one behind it.
    pub(crate) fn free_all<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        blocks: &[Pfn],
        order: u32,
        picks: bool,
    ) {
        let mut rest = blocks;
        let pick = |pfn: Pfn, behind: Option<&Pfn>| {
            if picks {
                map.unlink(pfn, behind.copied());
            }
        };
        let (mut recent, mut nth_put) = ([None; AHEAD], 0);
        while let Some(&first) = rest.first() {
            let nth = |at: usize| Pfn(first.0 ^ ((at as u32) << order));
            let limit = rest.len().min(1 << (self.max_order - order));
            let together = (1..limit).find(|&at| rest[at] != nth(at)).unwrap_or(limit);
            let levels = together.ilog2();
            let (whole, others) = rest.split_at(1 << levels);
            rest = others;
            for (ahead, levels) in [(AHEAD, 1), (AHEAD / 2, 2)] {
                if let Some(later) = rest.get(ahead) {
                    self.prefetch_merge(map, *later, order..order + levels);
                }
            }
            for _ in whole {
                work(map.machine, Work::ZoneGive);
            }
            match levels {
                0 => pick(first, rest.first()),
                _ => self.join(map, whole, order, |at| {
                    pick(whole[at], whole.get(at + 1).or(rest.first()));
                }),
            }
            self.freed[order as usize] += 1 << levels;
            let pfn = Pfn(first.0 & !((1 << (order + levels)) - 1));
            let merged = self.merge(map, pfn, order + levels);
            let pfn = merged.0;
            self.put_freed(map, merged);
            // Most are put on one list, from whose front they are taken.
            let before = &mut recent[nth_put % AHEAD];
            map.page(pfn).set_ahead(*before);
            *before = Some(pfn);
            nth_put += 1;
        }
    }

    /// Prefetches for a block that merges at all of these levels: what the last merge will write, and the
    /// buddy that is looked at then.
    #[inline(always)]
    fn prefetch_merge<M: Machine>(&self, map: MapOn<'_, M>, mut pfn: Pfn, levels: Range<u32>) {
        let mut last = None;
        for level in levels {
            let buddy = Pfn(pfn.0 ^ (1 << level));
            if buddy.0 >= self.frontier || !map.page(buddy).is_block(PageKind::Buddy, level) {
                return;
            }
            pfn = Pfn(pfn.0 & !(1 << level));
            last = Some((map.page(buddy), level));
        }
        if let Some((page, level)) = last {
            for neighbour in [page.prev(), page.next()].into_iter().flatten() {
                map.prefetch(neighbour);
            }
            map.prefetch(Pfn(pfn.0 ^ (1 << (level + 1))));
        }
    }

    /// Makes blocks one block; [`FreeArea::merge`] sets the state of its first page.
    fn join<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        whole: &[Pfn],
        order: u32,
        pick: impl Fn(usize),
    ) {
        let last = whole.len() - 1;
        self.merges += last as u64;
        for (at, pfn) in whole.iter().enumerate() {
            pick(at);
            map.page(*pfn).set_kind(PageKind::Tail, 0);
            let mut merged = pfn.0;
            for level in order..order + at.trailing_ones() {
                map.half(Pfn(merged ^ (1 << level)));
                merged &= !(1 << level);
            }
            if at < last {
                map.page_to_read(Pfn(merged ^ (1 << (order + at.trailing_ones()))));
                map.page_to_write(Pfn(merged));
            }
        }
    }

    /// Makes a block free and takes its free buddies, level by level, off their lists: the block
    /// that they are together, which is on no list yet, and the type of the list that it belongs on.
    pub(super) fn merge<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        pfn: Pfn,
        order: u32,
    ) -> (Pfn, u32, BlockType) {
        self.free_pages += 1 << order;
        let (mut pfn, mut merged) = (pfn, order);
        while merged < self.max_order {
            let buddy = Pfn(pfn.0 ^ (1 << merged));
            // A zone starts at a multiple of the largest block, so only its end can cut a pair.
            if buddy.0 >= self.frontier {
                break;
            }
            if !map.page(buddy).is_block(PageKind::Buddy, merged) {
                map.page_to_read(buddy);
                break;
            }
            if merged >= map.blocks().order() && self.stays_apart(&map, pfn, buddy) {
                self.kept_apart = true;
                break;
            }
            let list = map.half(buddy).listed_as();
            self.remove(map, buddy, merged, list);
            let upper = Pfn(pfn.0 | (1 << merged));
            map.page(upper).set_kind(PageKind::Tail, 0);
            pfn = Pfn(pfn.0 & !(1 << merged));
            merged += 1;
            self.merges += 1;
        }
        map.page_to_set(pfn);
        (pfn, merged, map.blocks().block_type(pfn))
    }
}
