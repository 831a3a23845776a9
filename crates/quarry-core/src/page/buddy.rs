//! One zone: buddy free lists for orders 0..=10 under one lock.

use super::list::PageList;
use super::map::MemMap;
use super::types::{MAX_ORDER, ORDERS, PageKind, Pfn};
use crate::machine::{Access, Line, Machine, Work, touch, work};

/// The lists of a zone; behind the zone lock.
pub(crate) struct FreeArea {
    lists: [PageList; ORDERS],
    /// First page that was never handed out: everything from here to `end` is free but on no
    /// list, so a large reservation costs no descriptor until it is needed.
    frontier: u32,
    end: u32,
    free_pages: u64,
    /// Blocks allocated and freed under the lock, by order.
    pub(crate) allocated: [u64; ORDERS],
    pub(crate) freed: [u64; ORDERS],
    pub(crate) splits: u64,
    pub(crate) merges: u64,
}

impl FreeArea {
    /// A zone over pages `start..end`, all free.
    pub(crate) fn new(start: u32, end: u32) -> Self {
        Self {
            lists: [const { PageList::EMPTY }; ORDERS],
            frontier: start,
            end,
            free_pages: u64::from(end - start),
            allocated: [0; ORDERS],
            freed: [0; ORDERS],
            splits: 0,
            merges: 0,
        }
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.free_pages
    }

    pub(crate) fn frontier(&self) -> u32 {
        self.frontier
    }

    /// Free blocks by order, as `/proc/buddyinfo` counts them; untouched memory counts in the
    /// largest blocks that it will be split from.
    pub(crate) fn free_blocks(&self) -> [u64; ORDERS] {
        let mut blocks = [0; ORDERS];
        for (count, list) in blocks.iter_mut().zip(&self.lists) {
            *count = u64::from(list.len());
        }
        let mut at = self.frontier;
        while at < self.end {
            let order = self.order_at(at);
            blocks[order as usize] += 1;
            at += 1 << order;
        }
        blocks
    }

    /// Order of the largest block that starts at the untouched page `at`.
    fn order_at(&self, at: u32) -> u32 {
        let aligned = at.trailing_zeros().min(MAX_ORDER);
        aligned.min((self.end - at).ilog2())
    }

    /// Puts the next untouched block on its list. `false` when there is none.
    fn extend(&mut self, map: &MemMap) -> bool {
        if self.frontier >= self.end {
            return false;
        }
        let pfn = Pfn(self.frontier);
        let order = self.order_at(pfn.0);
        self.frontier += 1 << order;
        map.page(pfn).set_kind(PageKind::Buddy, order);
        self.lists[order as usize].push_back(map, pfn);
        true
    }

    /// Takes a block of the order, splitting a larger one if need be; the upper half goes back at
    /// each level (facts 7.1).
    pub(crate) fn alloc<M: Machine>(
        &mut self,
        machine: &M,
        map: &MemMap,
        order: u32,
        kind: PageKind,
    ) -> Option<Pfn> {
        let (pfn, found) = loop {
            let fit =
                (order..=MAX_ORDER).find_map(|o| Some((self.lists[o as usize].pop_front(map)?, o)));
            match fit {
                Some(fit) => break fit,
                None if self.extend(map) => {}
                None => return None,
            }
        };
        let mut current = found;
        while current > order {
            current -= 1;
            let upper = Pfn(pfn.0 + (1 << current));
            map.page(upper).set_kind(PageKind::Buddy, current);
            self.lists[current as usize].push_front(map, upper);
            self.splits += 1;
            work(machine, Work::BuddyStep);
            touch(
                machine,
                Line::PageDescriptor,
                Access::Write,
                upper.0 as usize,
            );
        }
        map.page(pfn).set_kind(kind, order);
        touch(machine, Line::PageDescriptor, Access::Write, pfn.0 as usize);
        self.free_pages -= 1 << order;
        self.allocated[order as usize] += 1;
        Some(pfn)
    }

    /// Puts a block back, merging it with its buddy as long as that is free and of the same order.
    pub(crate) fn free<M: Machine>(&mut self, machine: &M, map: &MemMap, pfn: Pfn, order: u32) {
        self.free_pages += 1 << order;
        self.freed[order as usize] += 1;
        let (mut pfn, mut merged) = (pfn, order);
        while merged < MAX_ORDER {
            let buddy = Pfn(pfn.0 ^ (1 << merged));
            // A zone starts at a multiple of the largest block, so only its end can cut a pair.
            if buddy.0 >= self.frontier || !map.page(buddy).is_block(PageKind::Buddy, merged) {
                break;
            }
            touch(
                machine,
                Line::PageDescriptor,
                Access::Write,
                buddy.0 as usize,
            );
            work(machine, Work::BuddyStep);
            self.lists[merged as usize].remove(map, buddy);
            let upper = Pfn(pfn.0 | (1 << merged));
            map.page(upper).set_kind(PageKind::Tail, 0);
            pfn = Pfn(pfn.0 & !(1 << merged));
            merged += 1;
            self.merges += 1;
        }
        map.page(pfn).set_kind(PageKind::Buddy, merged);
        touch(machine, Line::PageDescriptor, Access::Write, pfn.0 as usize);
        self.lists[merged as usize].push_front(map, pfn);
    }

    /// Length of the list of an order, for the consistency walker.
    pub(crate) fn listed(&self, order: u32) -> u32 {
        self.lists[order as usize].len()
    }

    /// The blocks on the list of an order.
    pub(crate) fn blocks<'a>(
        &self,
        map: &'a MemMap,
        order: u32,
    ) -> impl Iterator<Item = Pfn> + use<'a> {
        self.lists[order as usize].iter(map)
    }
}
