//! Bulk allocation and freeing of single pages (`alloc_pages_bulk_noprof()`, v6.18, from the
//! caller's view): one hold of the per-CPU lists for a whole array.

use super::{AllocOptions, PageAllocator, PageError, PageKind, Pfn};
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
        let single = AllocOptions::default();
        if self.is_plain(&single)
            && let Some(zone) = self.first_zone(node)
            && let Some(shape) = zone.shape(0, zone.rules.group(single.migratetype))
        {
            let machine = self.machine();
            let got = zone.pcp.try_with(machine, |pcp, cpu| {
                let at = zone.pageset(machine, self.map());
                let mut got = 0;
                for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
                    let Some(pfn) = pcp.alloc(&at, shape) else {
                        break;
                    };
                    self.map().page(pfn).set_kind(PageKind::Allocated, 0);
                    *slot = Some(pfn);
                    got += 1;
                }
                let remote = self.node_of_cpu(cpu) != zone.id.node;
                pcp.numa_other += u64::from(remote) * got as u64;
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
