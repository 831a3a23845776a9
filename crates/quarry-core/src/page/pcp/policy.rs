//! CPUs' lists that split and merge blocks themselves, as policies ask for ([`CpuLists`]).
//!
//! A list that is empty takes the next larger block of its type and splits it; a block that comes back joins its buddy
//! if that is on this CPU's list of the same type, up to the largest order of the lists. So what drains to the zone
//! is in larger pieces, and needs fewer steps under the zone lock. A page on such a list notes the lists that it is
//! on in `private`.
//!
//! With owned blocks, a refill takes a whole pageblock, and its pages come back to the CPU that took it, whichever
//! CPU frees them.
//!
//! # Departure from the proposals
//!
//! Pages that an owner drained come back to it by the zone's order of lists, not by a list of its blocks.

use super::{Pageset, Pcp};
use crate::machine::{CpuId, Machine, Work, work};
use crate::page::buddy::policy::CpuLists;
use crate::page::buddy::{Mixing, Wanted};
use crate::page::types::{MigrateType, PageKind, Pfn};
use crate::page::zone::Shape;
use crate::sync::Ordering;

impl Pcp {
    /// A value that names these lists, as long as they are in use.
    fn tag(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// The lists of a type, from an order up to the largest that they split and merge.
    fn lists_from<M: Machine>(
        at: &Pageset<'_, M>,
        order: u32,
        migratetype: MigrateType,
    ) -> impl Iterator<Item = Shape> {
        let most = at.zone.max_order().max(order);
        (order..=most).filter_map(move |order| at.zone.shape(order, migratetype))
    }

    /// [`Pcp::alloc`] from lists that split blocks.
    #[cold]
    pub(super) fn alloc_split<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        cpu: CpuId,
        shape: Shape,
    ) -> Option<Pfn> {
        let pfn = match self.take_split(at, shape) {
            Some(pfn) => pfn,
            None => {
                if self.refill_owned(at, cpu, shape) {
                    self.take_split(at, shape)?
                } else {
                    let pfn = self.refill(at, shape)?;
                    // The refill counts it as allocated, and its others are on their list without a note.
                    self.note_list(at, shape);
                    self.taken(at, pfn, shape.order);
                    self.spree >>= 1;
                    return Some(pfn);
                }
            }
        };
        self.lists[usize::from(shape.list)].allocs += 1;
        self.taken(at, pfn, shape.order);
        self.spree >>= 1;
        Some(pfn)
    }

    /// The first block of the lists that is large enough, split to the order.
    fn take_split<M: Machine>(&mut self, at: &Pageset<'_, M>, shape: Shape) -> Option<Pfn> {
        let Shape {
            order, migratetype, ..
        } = shape;
        let mut lists = Self::lists_from(at, order, migratetype);
        let (from, pfn) = lists.find_map(|from| Some((from, self.pop_front(at, from.list)?)))?;
        at.map.page(pfn).private.store(0, Ordering::Relaxed);
        for level in (order..from.order).rev() {
            work(at.map.machine, Work::BuddyStep);
            let upper = Pfn(pfn.0 + (1 << level));
            if let Some(of) = at.zone.shape(level, migratetype) {
                self.put_noted(at, upper, of);
            }
        }
        at.map
            .page(pfn)
            .set_free(PageKind::Pcp, order, migratetype.into());
        Some(pfn)
    }

    /// Puts a block on a list and notes whose list it is. The count of pages is the caller's.
    fn put_noted<M: Machine>(&mut self, at: &Pageset<'_, M>, pfn: Pfn, of: Shape) {
        let page = at.map.page_to_set(pfn);
        page.set_free(PageKind::Pcp, of.order, of.migratetype.into());
        page.private.store(self.tag(), Ordering::Relaxed);
        self.push_front(at, of.list, pfn);
    }

    /// Notes whose list the blocks are on that a refill brought.
    fn note_list<M: Machine>(&mut self, at: &Pageset<'_, M>, shape: Shape) {
        let tag = self.tag();
        for pfn in self.lists[usize::from(shape.list)].blocks.iter(&at.map) {
            let page = at.map.page(pfn);
            page.private.store(tag, Ordering::Relaxed);
        }
    }

    /// Takes a whole pageblock of the type for this CPU, if the lists own blocks and there is one.
    fn refill_owned<M: Machine>(&mut self, at: &Pageset<'_, M>, cpu: CpuId, shape: Shape) -> bool {
        if at.zone.rules.cpu_lists != CpuLists::Owned {
            return false;
        }
        let whole = at.map.blocks().order();
        let Some(top) = Self::lists_from(at, shape.order, shape.migratetype).last() else {
            return false;
        };
        let Some(mut area) = at.zone.lock(at.map) else {
            return false;
        };
        let wanted = Wanted {
            order: whole,
            migratetype: shape.migratetype,
            kind: PageKind::Pcp,
            mixing: Mixing::WholeBlocks,
            reserved: false,
        };
        let Some(block) = area.alloc(at.map, wanted) else {
            return false;
        };
        drop(area);
        at.map.blocks().set_owner(block, cpu);
        // Highest first, so that the lowest comes out first.
        for at_piece in (0..1u32 << (whole - top.order.min(whole))).rev() {
            self.put_noted(at, Pfn(block.0 + (at_piece << top.order)), top);
        }
        self.pages += 1 << whole;
        self.refills += 1;
        self.refilled += 1 << (whole - top.order.min(whole));
        true
    }

    /// [`Pcp::free`] to lists that merge blocks.
    #[cold]
    pub(super) fn free_merged<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        pfn: Pfn,
        shape: Shape,
    ) -> bool {
        let (mut pfn_merged, mut order) = (pfn, shape.order);
        let most = at.zone.max_order();
        while order < most {
            let buddy = Pfn(pfn_merged.0 ^ (1 << order));
            if !self.has(at, buddy, order, shape.migratetype) {
                break;
            }
            let Some(of) = at.zone.shape(order, shape.migratetype) else {
                break;
            };
            work(at.map.machine, Work::BuddyStep);
            self.lists[usize::from(of.list)]
                .blocks
                .remove(&at.map, buddy);
            let page = at.map.page_to_write(buddy);
            page.private.store(0, Ordering::Relaxed);
            let upper = Pfn(pfn_merged.0 | (1 << order));
            at.map.page(upper).set_kind(PageKind::Tail, 0);
            pfn_merged = Pfn(pfn_merged.0 & !(1 << order));
            order += 1;
        }
        let of = at.zone.shape(order, shape.migratetype).unwrap_or(shape);
        self.put_noted(at, pfn_merged, of);
        self.lists[usize::from(shape.list)].frees += 1;
        self.freed(at, pfn, shape)
    }

    /// True if a block is on this CPU's list of an order and type.
    fn has<M: Machine>(
        &self,
        at: &Pageset<'_, M>,
        pfn: Pfn,
        order: u32,
        migratetype: MigrateType,
    ) -> bool {
        if pfn.0 >= at.zone.end {
            return false;
        }
        let page = at.map.page_to_read(pfn);
        page.is_block(PageKind::Pcp, order)
            && page.listed_as() == migratetype
            && page.private.load(Ordering::Relaxed) == self.tag()
    }
}
