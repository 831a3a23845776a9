//! Bulk allocation and freeing of single pages (`alloc_pages_bulk_noprof()`, v6.18, from the
//! caller's view): one hold of the per-CPU lists for a whole array.

use super::{PageAllocator, PageError, PageKind, Pfn};
use crate::machine::{Machine, NodeId};

impl<M: Machine> PageAllocator<M> {
    /// Fills the empty slots of an array with single pages. Slots that are already filled are
    /// skipped and count. Returns the number of filled slots, which is less than the array's
    /// length only if memory ran out: then the remaining slots are left as they were.
    pub fn alloc_bulk(&self, node: Option<NodeId>, slots: &mut [Option<Pfn>]) -> usize {
        let mut filled = slots.iter().filter(|slot| slot.is_some()).count();
        let Some(node) = self.pick_node(node) else {
            return filled;
        };
        if let Some(zone) = self.zones[node.0 as usize].as_ref()
            && zone.lists_hold(0)
        {
            let machine = self.machine();
            let got = zone.pcp.try_with(machine, |pcp, _| {
                let mut got = 0;
                for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
                    let Some(pfn) = pcp.alloc(machine, self.map(), zone, 0) else {
                        break;
                    };
                    self.map().page(pfn).set_kind(PageKind::Allocated, 0);
                    *slot = Some(pfn);
                    got += 1;
                }
                got
            });
            filled += got.unwrap_or(0);
        }
        for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
            *slot = self.alloc(0, Some(node));
            if slot.is_none() {
                break;
            }
            filled += 1;
        }
        filled
    }

    /// Frees single pages; every one that can be freed is, and its slot becomes empty.
    ///
    /// # Errors
    ///
    /// The first [`PageError`] met; the slots of pages that could not be freed stay filled.
    pub fn free_bulk(&self, slots: &mut [Option<Pfn>]) -> Result<(), PageError> {
        let mut first_error = None;
        for slot in slots.iter_mut() {
            let Some(pfn) = *slot else { continue };
            match self.free(pfn, 0) {
                Ok(()) => *slot = None,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}
