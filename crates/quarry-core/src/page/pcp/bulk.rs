//! Bulk calls on a CPU's lists: pages of the array that the list of single unmovable pages begins in, many at
//! a time. A bulk allocation leaves the count of frees as it is; only one of a single block halves it
//! (facts 7.3).

use super::array::{Entry, newest_to_slots};
use super::{Pageset, Pcp};
use crate::machine::{CpuId, Machine};
use crate::page::memmap::MapOn;
use crate::page::types::{PageKind, Pfn};
use crate::page::zone::Shape;

impl Pcp {
    /// [`Pcp::alloc`] of single pages into the empty slots of an array; returns the number filled. Pages that
    /// come without a refill are counted together.
    #[inline]
    pub(crate) fn alloc_many<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        cpu: CpuId,
        shape: Shape,
        slots: &mut [Option<Pfn>],
    ) -> u64 {
        let mut got = 0;
        let mut rest = slots;
        let spree = self.spree;
        loop {
            let filled = rest.iter().take_while(|slot| slot.is_some()).count();
            rest = &mut rest[filled..];
            if rest.is_empty() {
                break;
            }
            let taken = if shape.list == at.zone.hot_list {
                self.take_hot(at, rest)
            } else {
                0
            };
            got += taken as u64;
            rest = &mut rest[taken..];
            if taken > 0 {
                continue;
            }
            let Some((slot, left)) = rest.split_first_mut() else {
                break;
            };
            let Some(pfn) = self.alloc(at, cpu, shape) else {
                break;
            };
            at.map.page(pfn).set_kind(PageKind::Allocated, 0);
            *slot = Some(pfn);
            got += 1;
            rest = left;
        }
        self.spree = spree;
        got
    }

    /// Fills slots from the first on, up to one that is filled already, with the pages of the array. An empty
    /// array is loaded first. Returns the number filled.
    ///
    /// Not inlined, so that all of the loop is in registers.
    #[inline(never)]
    fn take_hot<M: Machine>(&mut self, at: &Pageset<'_, M>, slots: &mut [Option<Pfn>]) -> usize {
        let Some(list) = self.lists.get_mut(usize::from(at.zone.hot_list)) else {
            return 0;
        };
        let newest = self.front.newest(&at.map, &mut list.blocks);
        let taken = fill_slots(at.map, newest, slots);
        let pages = taken as u32;
        self.front.take(taken);
        list.allocs += u64::from(pages);
        self.pages -= pages;
        taken
    }

    /// Single pages that can be taken back before [`Pcp::push_single`] would ask whether they are
    /// too many.
    #[inline(always)]
    pub(crate) fn room<M: Machine>(&self, at: &Pageset<'_, M>) -> usize {
        if at.zone.is_below_high() {
            return 0;
        }
        (self.high.saturating_sub(self.pages) as usize).saturating_sub(1)
    }

    /// Free entries of the array for single pages, which [`Pcp::freed_many`] then counts.
    #[inline(always)]
    pub(crate) fn vacant<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        pages: usize,
    ) -> Option<&mut [Entry]> {
        let behind = self.lists.get_mut(usize::from(at.zone.hot_list))?;
        Some(self.front.vacant(&at.map, &mut behind.blocks, pages))
    }

    /// The rest of [`Pcp::push_single`] for pages that were put where [`Pcp::vacant`] says, no more
    /// than there is room for.
    #[inline(always)]
    pub(crate) fn freed_many<M: Machine>(&mut self, at: &Pageset<'_, M>, pages: u32) {
        let Some(list) = self.lists.get_mut(usize::from(at.zone.hot_list)) else {
            return;
        };
        self.front.put(pages as usize);
        list.frees += u64::from(pages);
        self.pages += pages;
        self.alloc_factor = self.alloc_factor.checked_shr(pages).unwrap_or(0);
        self.high_order_before = false;
        let most = at.zone.limits.spree_max().max(self.spree);
        self.spree = (self.spree + pages).min(most);
    }
}

/// Fills slots from the first on, up to one that is filled already, with the newest of these pages; returns the
/// number filled.
#[inline(always)]
pub(in crate::page) fn fill_slots<M: Machine>(
    map: MapOn<'_, M>,
    newest: &[Entry],
    slots: &mut [Option<Pfn>],
) -> usize {
    // A copy, or the map's fields would be loaded again for each page.
    let own = *map.map;
    let map = own.on(map.machine);
    let most = newest.len().min(slots.len());
    let newest = &newest[newest.len() - most..];
    newest_to_slots(newest, &mut slots[..most], |entry, slot| {
        if slot.is_some() {
            return false;
        }
        let pfn = entry.pfn();
        map.page_to_write(pfn).set_kind(PageKind::Allocated, 0);
        *slot = Some(pfn);
        true
    })
}
