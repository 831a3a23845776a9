//! Bulk allocation and freeing (`alloc_pages_bulk_noprof()` and `free_unref_folios()`, v6.18, from
//! the caller's view): one hold of the per-CPU lists for many pages. Where the machine has steps, what
//! they reach is taken before, or put, by one hold of the slot alone (`stepped.rs`).
//!
//! # Bounds
//!
//! A bulk allocation holds the CPU's lists for the whole array, and the zone lock once per refill.
//! A bulk free lets go of the lists after as many slots as the kernel's batches have
//! ([`crate::page::PageConfig::bulk_free_hold`]). In both, one hold of the zone lock moves
//! a batch of pages, as for single pages.
//!
//! # Departures from the kernel
//!
//! Releases before 5.13 had no bulk allocation and get that of 5.13. A bulk free there went through a
//! list of pages with interrupts enabled every 32, which is the same bound. In a process one hold frees
//! as many pages as the lists' array takes ([`crate::page::PageConfig::in_process`]).

use super::free::Claim;
use super::stepped::empty_slots;
use crate::machine::{Machine, NodeId};
use crate::page::pcp::{Pageset, Pagesets, Pcp};
use crate::page::types::FRONT_PAGES;
use crate::page::{MigrateType, PageAllocator, PageError, Pfn, ZoneType};

impl<M: Machine> PageAllocator<M> {
    /// Fills the empty slots of an array with single pages, as the kernel does. Slots that are
    /// filled already are skipped. Returns the number of filled slots before the first empty one,
    /// so `slots[..returned]` are all filled.
    ///
    /// That may be less than the array's length although memory is left: other zones are not
    /// tried for more than one page, nor is a CPU's list waited for. If that fills no empty slot, one
    /// page is tried in the ordinary way. So memory has run out if a call fills nothing. Slots that are not filled are left as they were.
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
    #[inline]
    pub fn alloc_bulk(&self, node: Option<NodeId>, slots: &mut [Option<Pfn>]) -> usize {
        let stepped = self.alloc_stepped(node, slots);
        if stepped == slots.len() {
            return stepped;
        }
        self.alloc_bulk_unstepped(node, slots, stepped)
    }

    /// The rest of [`PageAllocator::alloc_bulk`], after steps have filled the first `stepped` slots.
    #[inline(never)]
    fn alloc_bulk_unstepped(
        &self,
        node: Option<NodeId>,
        slots: &mut [Option<Pfn>],
        stepped: usize,
    ) -> usize {
        let filled = |slots: &[Option<Pfn>]| slots.iter().take_while(|slot| slot.is_some()).count();
        let first = stepped + filled(&slots[stepped..]);
        let Some(node) = self.pick_node(node) else {
            return first;
        };
        let missing = &mut slots[first..];
        // For one page the ordinary way is as good.
        let mut got = 0;
        if missing.len() > 1 {
            got = self.alloc_bulk_listed(node, first, missing);
        }
        if got == 0
            && (stepped == 0 || missing.len() == 1)
            && let Some(slot) = missing.first_mut()
        {
            *slot = self.alloc(0, Some(node));
        }
        if got == missing.len() as u64 {
            return slots.len();
        }
        first + filled(missing)
    }

    /// Fills empty slots from the running CPU's lists until those and one zone of the node have no more.
    /// Returns the number filled. `filled` slots of the array come before these.
    ///
    /// Where watermarks count, that zone has as many pages above its low one as the array has slots; from
    /// 7.1 on, as many as are missing.
    fn alloc_bulk_listed(&self, node: NodeId, filled: usize, slots: &mut [Option<Pfn>]) -> u64 {
        let first = self.first_pagesets(node);
        let sets = if self.keeps_back() {
            let of_missing = first.is_some_and(|sets| sets.zone.rules.bulk_asks_for_missing());
            let wanted = match of_missing {
                true => slots.iter().filter(|slot| slot.is_none()).count(),
                false => filled + slots.len(),
            };
            self.zone_above_low(node, wanted as u64)
        } else {
            first.filter(|sets| sets.zone.id.node == node)
        };
        let Some(sets) = sets else {
            return 0;
        };
        let zone = &sets.zone;
        let Some(shape) = zone.shape(0, zone.rules.group(MigrateType::Unmovable)) else {
            return 0;
        };
        let lists = sets.at(self.map_on());
        let got = lists.with(|pcp, cpu| {
            let got = pcp.alloc_many(&lists, cpu, shape, slots);
            pcp.numa_other += u64::from(zone.is_remote(&self.machine, cpu)) * got;
            got
        });
        got.unwrap_or(0)
    }

    #[cold]
    #[inline(never)]
    fn zone_above_low(&self, node: NodeId, pages: u64) -> Option<&Pagesets> {
        let mut of_node = self
            .zonelist(node, ZoneType::Normal)
            .take_while(|sets| sets.zone.id.node == node);
        of_node.find(|sets| sets.zone.has_above_low(pages))
    }

    /// Frees single pages; every one that can be freed is, and its slot becomes empty.
    ///
    /// # Errors
    ///
    /// The first [`PageError`] met; the slots of pages that could not be freed stay filled.
    ///
    /// # Safety
    ///
    /// As for [`PageAllocator::free`], for each page. A page that is twice in the array is freed once and
    /// then refused.
    pub unsafe fn free_bulk(&self, slots: &mut [Option<Pfn>]) -> Result<(), PageError> {
        let mut rest = slots;
        while !rest.is_empty() {
            let hold = rest.len().min(self.bulk_free_hold);
            let freed = self.free_stepped(&mut rest[..hold]);
            rest = &mut rest[freed..];
            if freed < hold {
                // SAFETY: the caller of `free_bulk` owns each page of the array; those already freed have
                // left their slots.
                return unsafe { self.free_bulk_unstepped(rest) };
            }
        }
        Ok(())
    }

    /// [`PageAllocator::free_bulk`] of what steps could not free.
    ///
    /// # Safety
    ///
    /// As for that.
    #[inline(never)]
    unsafe fn free_bulk_unstepped(&self, slots: &mut [Option<Pfn>]) -> Result<(), PageError> {
        let mut result = Ok(());
        let mut rest = slots;
        while !rest.is_empty() {
            let looked_at = self.free_bulk_listed(rest, &mut result);
            let (hold, left) = rest.split_at_mut(looked_at.unwrap_or(1));
            if looked_at.is_none()
                && let [slot] = hold
                && let Some(pfn) = *slot
            {
                // SAFETY: the slot is one of the caller's array, whose pages are all its to free.
                match unsafe { self.free(pfn, 0) } {
                    Ok(()) => *slot = None,
                    error => result = result.and(error),
                }
            }
            rest = left;
        }
        result
    }

    /// Frees the first slots under one hold of the running CPU's lists, up to a page of another zone. Returns
    /// the number of slots looked at; `None` if the lists are held.
    #[inline(always)]
    fn free_bulk_listed(
        &self,
        slots: &mut [Option<Pfn>],
        result: &mut Result<(), PageError>,
    ) -> Option<usize> {
        let map = self.map();
        let first = slots.iter().flatten().find_map(|&pfn| map.tag_of(pfn))?;
        let number = first.zone();
        let sets = self.zones.get(number)?;
        let zone = &sets.zone;
        zone.shape(0, first.block_type().of_requests())?;
        let lists = sets.at(self.map_on());
        let (looked_at, to_zone) = lists.with(|pcp, _| {
            let hold = slots.len().min(self.bulk_free_hold);
            let (mut at, mut to_zone) = (0, false);
            while at < hold {
                let empty = slots[at..hold].iter().take_while(|slot| slot.is_none());
                at += empty.count();
                at += self.free_run(&lists, pcp, &mut slots[at..hold]);
                let Some(slot) = slots[..hold].get_mut(at) else {
                    break;
                };
                let Some(pfn) = *slot else {
                    continue;
                };
                let tag = map.tag_of(pfn);
                if tag.is_some_and(|tag| tag.zone() != number) {
                    break;
                }
                at += 1;
                let claimed = self.claim(pfn);
                if claimed.is_err() {
                    *result = result.and(claimed);
                    continue;
                }
                *slot = None;
                let shape = tag.and_then(|tag| zone.shape(0, tag.block_type().of_requests()));
                to_zone |= shape.is_some_and(|shape| pcp.free(&lists, pfn, shape));
            }
            (at, to_zone)
        })?;
        if to_zone {
            self.trim_after_free();
        }
        Some(looked_at)
    }

    /// Frees single pages up to the first empty slot, as long as each can be freed, belongs into the lists'
    /// array and finds room there. Returns the number freed.
    ///
    /// Not inlined, so that all of the loop is in registers.
    #[inline(never)]
    fn free_run(&self, lists: &Pageset<'_, M>, pcp: &mut Pcp, slots: &mut [Option<Pfn>]) -> usize {
        let room = pcp.room(lists).min(slots.len()).min(FRONT_PAGES);
        let Some(vacant) = pcp.vacant(lists, room) else {
            return 0;
        };
        let tag = lists.zone.unmovable;
        let slots = &mut slots[..room];
        let freed = empty_slots(lists.map, tag, slots, vacant);
        if freed > 0 {
            pcp.freed_many(lists, freed as u32);
        }
        freed
    }

    /// Makes a page that may be freed the lists' own.
    #[inline(always)]
    fn claim(&self, pfn: Pfn) -> Result<(), PageError> {
        let page = self.check_free(pfn, 0)?;
        if Claim::Allocated.make(page, 0) {
            Ok(())
        } else {
            Err(self.why_not_freed(pfn, 0))
        }
    }
}
