//! Bulk allocation and freeing (`alloc_pages_bulk_noprof()` and `free_unref_folios()`, v6.18, from
//! the caller's view): one hold of the per-CPU lists for many pages.
//!
//! # Bounds
//!
//! A bulk allocation holds the CPU's lists for the whole array, and the zone lock once per refill.
//! A bulk free lets go of the lists after as many slots as the kernel's batches have
//! ([`free_hold`]). In both, one hold of the zone lock moves a batch of pages, as for single pages.
//!
//! # Departures from the kernel
//!
//! Eras before 6.1 had no bulk allocation and get that of 6.1. A bulk free there went through a
//! list of pages with interrupts enabled every 32, which is the same bound.

use super::zone::Zone;
use super::{AllocOptions, PageAllocator, PageError, PageKind, Pfn};
use crate::era::Era;
use crate::machine::{Machine, NodeId};
use crate::sync::Ordering;

/// Slots that a bulk free looks at under one hold of a CPU's lists (facts 7.5): 31, the size of a
/// folio batch, from 6.18 on; 32 before.
pub(super) fn free_hold(era: Era) -> usize {
    if era >= Era::V6_18 { 31 } else { 32 }
}

impl<M: Machine> PageAllocator<M> {
    /// Fills the empty slots of an array with single pages, as the kernel does. Slots that are
    /// filled already are skipped. Returns the number of filled slots before the first empty one,
    /// so `slots[..returned]` are all filled.
    ///
    /// That may be less than the array's length although memory is left: other zones are not
    /// tried for more than one page, nor is a CPU's list waited for. But if any slot was empty, at
    /// least one page is tried in the ordinary way, so memory has run out if a call fills nothing.
    /// Slots that are not filled are left as they were.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry_core::machine::Machine;
    /// use quarry_core::page::{PageAllocator, Pfn};
    ///
    /// /// All slots, or the error that there is not enough memory.
    /// fn fill<M: Machine>(pages: &PageAllocator<M>, slots: &mut [Option<Pfn>]) -> Result<(), usize> {
    ///     let mut filled = slots.iter().take_while(|slot| slot.is_some()).count();
    ///     while filled < slots.len() {
    ///         let now = pages.alloc_bulk(None, slots);
    ///         if now == filled {
    ///             return Err(filled);
    ///         }
    ///         filled = now;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn alloc_bulk(&self, node: Option<NodeId>, slots: &mut [Option<Pfn>]) -> usize {
        let filled = |slots: &[Option<Pfn>]| slots.iter().take_while(|slot| slot.is_some()).count();
        let first = filled(slots);
        let Some(node) = self.pick_node(node) else {
            return first;
        };
        let missing = &mut slots[first..];
        // For one page the ordinary way is as good.
        let mut got = 0;
        if missing.len() > 1 {
            got = self.alloc_listed(node, missing);
        }
        if got == 0
            && let Some(slot) = missing.first_mut()
        {
            *slot = self.alloc(0, Some(node));
        }
        first + filled(missing)
    }

    /// Fills the empty slots from the running CPU's lists, as far as they and a zone of the node
    /// reach; how many.
    fn alloc_listed(&self, node: NodeId, slots: &mut [Option<Pfn>]) -> u64 {
        let (machine, map) = (self.machine(), self.map());
        let single = AllocOptions::default();
        let wanted = slots.iter().filter(|slot| slot.is_none()).count() as u64;
        let mut of_node = self
            .zonelist(node, single.highest_zone)
            .take_while(|zone| zone.id.node == node);
        let Some(zone) = of_node.find(|zone| self.may_give(zone, wanted)) else {
            return 0;
        };
        let Some(shape) = zone.shape(0, zone.rules.group(single.migratetype)) else {
            return 0;
        };
        let got = zone.pcp.try_with(machine, |pcp, cpu| {
            let at = zone.pageset(machine, map);
            let mut got = 0;
            for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
                let Some(pfn) = pcp.alloc(&at, shape) else {
                    break;
                };
                map.page(pfn).set_kind(PageKind::Allocated, 0);
                *slot = Some(pfn);
                got += 1;
            }
            let remote = self.node_of_cpu(cpu) != zone.id.node;
            pcp.numa_other += u64::from(remote) * got;
            got
        });
        got.unwrap_or(0)
    }

    /// Whether a zone has so many single pages above its low watermark, if watermarks count.
    fn may_give(&self, zone: &Zone, pages: u64) -> bool {
        self.keeps_back.load(Ordering::Relaxed) == 0 || zone.has_above_low(pages)
    }

    /// Frees single pages; every one that can be freed is, and its slot becomes empty.
    ///
    /// # Errors
    ///
    /// The first [`PageError`] met; the slots of pages that could not be freed stay filled.
    pub fn free_bulk(&self, slots: &mut [Option<Pfn>]) -> Result<(), PageError> {
        self.free_bulk_order(0, slots)
    }

    /// Frees blocks of one order; every one that can be freed is, and its slot becomes empty.
    ///
    /// # Errors
    ///
    /// As for [`PageAllocator::free_bulk`].
    pub fn free_bulk_order(&self, order: u32, slots: &mut [Option<Pfn>]) -> Result<(), PageError> {
        let mut first_error = None;
        let mut rest = slots;
        while !rest.is_empty() {
            let looked_at = self.free_listed(order, rest, &mut first_error);
            let (hold, left) = rest.split_at_mut(looked_at.unwrap_or(1));
            if looked_at.is_none()
                && let [slot] = hold
                && let Some(pfn) = *slot
            {
                match self.free(pfn, order) {
                    Ok(()) => *slot = None,
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            rest = left;
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Frees the first slots under one hold of the running CPU's list, up to a page of another
    /// zone. How many slots were looked at; `None` if the list cannot be used.
    fn free_listed(
        &self,
        order: u32,
        slots: &mut [Option<Pfn>],
        first_error: &mut Option<PageError>,
    ) -> Option<usize> {
        let first = slots.iter().flatten().find(|pfn| pfn.0 < self.pages())?;
        let zone = self.zone_of(*first);
        zone.shape(order, self.map().blocks().migratetype(*first))?;
        let (looked_at, freed) = zone.pcp.try_with(self.machine(), |pcp, _| {
            let at_lists = zone.pageset(self.machine(), self.map());
            let mut to_zone = false;
            for (at, slot) in slots.iter_mut().take(self.bulk_free_hold).enumerate() {
                let Some(pfn) = *slot else { continue };
                let page = match self.check_free(pfn, order) {
                    Ok(page) => page,
                    Err(error) => {
                        first_error.get_or_insert(error);
                        continue;
                    }
                };
                if !(zone.start..zone.end).contains(&pfn.0) {
                    return (at, to_zone);
                }
                let migratetype = self.map().blocks().migratetype(pfn);
                let Some(shape) = zone.shape(order, migratetype) else {
                    return (at, to_zone);
                };
                if !page.claim_kind(PageKind::Allocated, PageKind::Pcp, order) {
                    first_error.get_or_insert(PageError::NotAllocated(pfn, page.kind()));
                    continue;
                }
                to_zone |= pcp.free(&at_lists, pfn, shape);
                *slot = None;
            }
            (slots.len().min(self.bulk_free_hold), to_zone)
        })?;
        if freed {
            self.trim_after_free();
        }
        Some(looked_at)
    }
}
