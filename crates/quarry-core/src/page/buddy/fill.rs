//! Free memory of a machine that has run for a while: free blocks between pages in use.

use super::FreeArea;
use crate::machine::Machine;
use crate::page::memmap::{MapOn, MemMap};
use crate::page::types::{BLOCK_TYPES, BlockType, MAX_ORDER, ORDERS, PageKind, Pfn};

/// Free blocks by order and block type.
pub type FreeBlockCounts = [[u64; BLOCK_TYPES]; ORDERS];

/// Position of the next block, and the pages in use that are left to part blocks with.
struct Site<'m, M> {
    map: MapOn<'m, M>,
    at: u32,
    /// Pages still to be put in use.
    used: u64,
}

impl FreeArea {
    /// Marks all free pages as in use, except for these blocks. The blocks come after all pages handed out so
    /// far, in pageblocks of their types, and no two of them are buddies. If there are too few pages in use to
    /// part them, the last blocks form one piece. Returns the free pages.
    ///
    /// Pages in use that part no blocks are at the end of the zone and cut off: their descriptors need no
    /// memory.
    pub(crate) fn leave_free<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        blocks: &FreeBlockCounts,
    ) -> u64 {
        self.use_listed(map);
        let room = u64::from(self.end() - self.frontier());
        let pages = |(order, counts): (usize, &[u64; BLOCK_TYPES])| {
            let count = counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
            count.saturating_mul(1 << order)
        };
        let wanted = blocks.iter().enumerate().map(pages);
        let wanted = wanted.fold(0, u64::saturating_add).min(room);
        let mut site = Site {
            map,
            at: self.frontier(),
            used: room - wanted,
        };
        let all_laid = BlockType::all().all(|of| self.lay_all(&mut site, blocks, of))
            && (!self.stays_untouched(blocks) || self.align(&mut site, self.max_order));
        if !all_laid {
            // The blocks not laid come out of the untouched memory behind, in pieces as large as possible.
            self.take_up_again(&mut site);
        }
        self.begin_untouched(site.at, self.end() - site.used as u32);
        self.free_pages()
    }

    /// Puts all blocks on the lists in use for good.
    fn use_listed<M: Machine>(&mut self, map: MapOn<'_, M>) {
        for order in 0..=MAX_ORDER {
            for of in BlockType::all() {
                while let Some(pfn) = self.isolate(map, order, of) {
                    map.page(pfn).set_kind(PageKind::Owned, order);
                }
            }
        }
    }

    /// Puts all free memory in use for good, that which was never handed out as well.
    pub(crate) fn use_all<M: Machine>(&mut self, map: MapOn<'_, M>) {
        while self.extend(map) {}
        self.use_listed(map);
    }

    /// Makes a block of memory free that is in use for good, alone or in a larger block of it; its pageblocks become
    /// the type. It merges with its buddies and comes last on its list. Returns whether it was in use for good.
    pub(crate) fn lay_free<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        (pfn, order): (Pfn, u32),
        of: BlockType,
    ) -> bool {
        if !self.cut_out(map, pfn, order) {
            return false;
        }
        let pageblock = 1 << map.blocks().order();
        for block in (pfn.0 & !(pageblock - 1)..pfn.0 + (1 << order)).step_by(pageblock as usize) {
            self.retag(&map, Pfn(block), of);
        }
        let (merged, order, of) = self.merge(map, pfn, order);
        self.put_last(map, merged, order, of);
        self.vacancy.vacate(merged, order);
        true
    }

    /// Gives the pageblock of a page a type, with the free blocks in it.
    pub(crate) fn label<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, of: BlockType) {
        self.retag(&map, pfn, of);
        self.move_block(map, pfn, of);
    }

    /// Makes memory that is in use for good a block of its own. Returns whether it was.
    pub(crate) fn cut_out<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, order: u32) -> bool {
        if order > self.max_order || !pfn.0.is_multiple_of(1 << order) {
            return false;
        }
        if u64::from(pfn.0) + (1 << order) > u64::from(self.frontier()) {
            return false;
        }
        let around = |level: u32| Pfn(pfn.0 & !((1 << level) - 1));
        let holds = |level: &u32| map.page(around(*level)).is_block(PageKind::Owned, *level);
        let Some(whole) = (order..=MAX_ORDER).find(holds) else {
            return false;
        };
        for level in (order..whole).rev() {
            map.page(around(level)).set_kind(PageKind::Owned, level);
            let other = Pfn(around(level).0 ^ (1 << level));
            map.page(other).set_kind(PageKind::Owned, level);
        }
        true
    }

    /// True if blocks of the largest order and of untouched memory's type are wanted: untouched memory provides
    /// them without descriptors.
    fn stays_untouched(&self, blocks: &FreeBlockCounts) -> bool {
        blocks[self.max_order as usize][self.boot_type().index()] > 0
    }

    /// Lays the blocks of a type, largest first, except those that untouched memory provides. Returns false if
    /// some could not be parted.
    fn lay_all<M: Machine>(
        &mut self,
        site: &mut Site<'_, M>,
        blocks: &FreeBlockCounts,
        of: BlockType,
    ) -> bool {
        let pageblock = site.map.blocks().order();
        let largest = if of == self.boot_type() {
            self.max_order.checked_sub(1)
        } else {
            Some(self.max_order)
        };
        for order in largest.into_iter().flat_map(|largest| (0..=largest).rev()) {
            for _ in 0..blocks[order as usize][of.index()] {
                let parted = self.align(site, order)
                    && (!self.merges(site, order) || self.skip(site, 1 << order));
                if !parted || u64::from(self.end() - site.at) < 1 << order {
                    return false;
                }
                for block in (site.at..site.at + (1 << order)).step_by(1 << pageblock) {
                    if block.is_multiple_of(1 << pageblock) {
                        self.retag(&site.map, Pfn(block), of);
                    }
                }
                self.lay(site.map, Pfn(site.at), order, of);
                site.at += 1 << order;
            }
        }
        self.align(site, pageblock)
    }

    /// Makes the last blocks untouched again whose buddies will be untouched: nothing would merge such a pair
    /// (P2).
    fn take_up_again<M: Machine>(&mut self, site: &mut Site<'_, M>) {
        let max_order = self.max_order;
        let before = |at: u32| {
            let lower = |order: &u32| {
                let pfn = at
                    .checked_sub(1 << order)
                    .filter(|pfn| pfn % (2 << order) == 0);
                pfn.is_some_and(|pfn| site.map.page(Pfn(pfn)).is_block(PageKind::Buddy, *order))
            };
            (0..max_order).find(lower)
        };
        while site.at > self.frontier() {
            let Some(order) = before(site.at) else {
                return;
            };
            site.at -= 1 << order;
            let page = site.map.page(Pfn(site.at));
            self.unlay(site.map, Pfn(site.at), order, page.listed_as());
        }
    }

    /// True if the page is the upper of two buddies and the lower one is free.
    fn merges<M: Machine>(&self, site: &Site<'_, M>, order: u32) -> bool {
        let lower = Pfn(site.at & !(1 << order));
        let is_upper = order < self.max_order && site.at & (1 << order) != 0;
        is_upper && site.map.page(lower).is_block(PageKind::Buddy, order)
    }

    /// Uses pages up to the next multiple of a block; false if that would be too many.
    fn align<M: Machine>(&self, site: &mut Site<'_, M>, order: u32) -> bool {
        let past = site.at & ((1 << order) - 1);
        past == 0 || self.skip(site, (1 << order) - past)
    }

    /// Uses `pages` pages, or those up to the end; false if that would be too many.
    fn skip<M: Machine>(&self, site: &mut Site<'_, M>, pages: u32) -> bool {
        let pages = pages.min(self.end() - site.at);
        if u64::from(pages) > site.used {
            return false;
        }
        use_up(&site.map, site.at, site.at + pages);
        site.at += pages;
        site.used -= u64::from(pages);
        true
    }
}

/// Makes pages blocks in use, as large as they can be; no free by number accepts them.
fn use_up(map: &MemMap, start: u32, end: u32) {
    let mut at = start;
    while at < end {
        let aligned = at.trailing_zeros().min(MAX_ORDER);
        let order = aligned.min((end - at).ilog2());
        map.page(Pfn(at)).set_kind(PageKind::Owned, order);
        at += 1 << order;
    }
}
