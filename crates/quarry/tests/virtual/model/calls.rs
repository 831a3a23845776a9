//! Allocating and freeing through the driver: every object passes the ledger.

use std::ptr::NonNull;

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::heap::{Cache, ZERO_SIZE_ADDRESS};
use quarry_core::machine::{Machine, NodeId};
use quarry_core::page::ORDERS;
use quarry_core::slub::geometry::{ExplicitNode, slub_era};
use quarry_core::stats::{Stat, Stats};

use super::design::{Driver, calls, shares_pages};
use super::ledger::{Live, Owner, Pick};
use super::place::Placement;
use super::{Check, ensure, ensure_eq};

fn asks_other_nodes<D: Design>(era: Era) -> bool {
    matches!(D::NAME, "slub" | "slubq")
        && slub_era(era).is_some_and(|era| era.run.explicit_node == ExplicitNode::OtherLists)
}

/// True if a bulk allocation counts the objects that it takes off the CPU's list.
fn counts_bulk<D: Design>(era: Era) -> bool {
    D::NAME != "slub" || slub_era(era).is_some_and(|era| era.run.bulk_counts_objects)
}

/// True if an allocation that fails counts nowhere.
fn counts_success<D: Design>(era: Era) -> bool {
    D::NAME == "slub" && slub_era(era).is_some_and(|era| era.run.slowpath_counts_success)
}

impl<'h, M: Machine, D: Design, P: Placement<M>> Driver<'h, M, D, P> {
    /// An allocation failed: memory must have run out of blocks of this order.
    fn exhausted(&self, order: u32) -> Check {
        ensure!(self.limits.scarce, "an allocation failed with ample memory");
        let free = self.heap.pages().stats().free_blocks;
        let left: u64 = free[order as usize..].iter().sum();
        ensure!(
            left == 0 || self.limits.cpus_hide || self.limits.raced,
            "failed for want of order {order} with free blocks {free:?}"
        );
        Ok(())
    }

    /// True if counters move by other calls than the one that is checked, or not at all.
    fn counts_blur(&self) -> bool {
        self.limits.cpus_hide || self.limits.raced
    }

    pub(crate) fn alloc(&self, slot: usize, node: Option<NodeId>) -> Check {
        let tracked = &self.caches[slot];
        let (cache, owner) = (tracked.cache, tracked.owner);
        tracked.allocs.update(|allocs| allocs + 1);
        let object = match node {
            Some(node) => cache.alloc_node(node),
            None => cache.alloc(),
        };
        let Some(object) = object else {
            let not_counted = u64::from(counts_success::<D>(self.heap.era()));
            tracked.allocs.update(|allocs| allocs - not_counted);
            // Attempts are repeated, and other tasks free meanwhile.
            tracked.uncounted.set(self.limits.raced);
            return self.exhausted(cache.head().geometry().min_order);
        };
        let bytes = cache.head().geometry().layout.object_size as usize;
        self.admit(owner, cache, object, bytes)?;
        let found = self.heap.pages().pfn_of(object);
        match (node, found.and_then(|pfn| self.heap.pages().node_of(pfn))) {
            // Until 2.6.35 other nodes' partial slabs may serve a wish for a node.
            (Some(wanted), Some(got))
                if !self.limits.scarce
                    && !self.limits.raced
                    && !asks_other_nodes::<D>(self.heap.era()) =>
            {
                ensure_eq!(got, wanted, "the node of the object");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks the place of a cache's new object and enters it in the ledger.
    pub(crate) fn admit(
        &self,
        owner: Owner,
        cache: Cache<'h, M, D>,
        object: NonNull<u8>,
        bytes: usize,
    ) -> Check {
        let align = cache.head().geometry().layout.align as usize;
        ensure!(
            object.addr().get().is_multiple_of(align),
            "{object:p} is not aligned to {align}"
        );
        // SAFETY: the object is allocated, so its cache cannot be destroyed.
        let home = unsafe { self.heap.cache_of(object) }.map(|home| home.name());
        ensure_eq!(home, Some(cache.name()), "the cache of {object:p}");
        // SAFETY: only the address is used, and an object has at least one byte.
        let last = unsafe { object.byte_add(bytes - 1) };
        // SAFETY: as above.
        let end = unsafe { self.heap.cache_of(last) }.map(|home| home.name());
        ensure_eq!(
            end,
            Some(cache.name()),
            "the cache of the end of {object:p}"
        );
        self.ledger.borrow_mut().admit(owner, object, bytes)
    }

    pub(crate) fn free(&self, slot: usize, pick: Pick) -> Check<Option<Live>> {
        let tracked = &self.caches[slot];
        let Some(live) = self.ledger.borrow_mut().dismiss(tracked.owner, pick)? else {
            return Ok(None);
        };
        tracked.frees.update(|frees| frees + 1);
        // SAFETY: the ledger has just forgotten the object, so no code uses it any more.
        let freed = unsafe { tracked.cache.free(live.object) };
        ensure_eq!(freed, Ok(()), "freeing {:p}", live.object);
        Ok(Some(live))
    }

    pub(crate) fn alloc_bulk(&self, slot: usize, count: usize) -> Check {
        let tracked = &self.caches[slot];
        let (cache, owner) = (tracked.cache, tracked.owner);
        let mut slots = vec![None; count];
        let before = calls(tracked.era, &cache.stats()).0;
        let filled = cache.alloc_bulk(&mut slots);
        tracked.rebase();
        if !filled {
            let left = slots.iter().flatten().count();
            ensure_eq!(left, 0, "objects left by a bulk allocation that failed");
            ensure!(
                self.limits.scarce,
                "a bulk allocation failed with ample memory"
            );
            return Ok(());
        }
        let counted = tracked.allocs.get().saturating_sub(before);
        // An attempt that fails for want of memory is made once more, past the CPU's slot.
        let again = u64::from(self.limits.scarce);
        let objects = count as u64;
        let least = if counts_bulk::<D>(self.heap.era()) {
            objects
        } else {
            0
        };
        ensure!(
            self.counts_blur() || (least..=objects + again).contains(&counted),
            "a bulk allocation of {objects} objects counts as {counted}"
        );
        let bytes = cache.head().geometry().layout.object_size as usize;
        for object in slots {
            let Some(object) = object else {
                return Err("a bulk allocation left a slot empty".into());
            };
            self.admit(owner, cache, object, bytes)?;
        }
        Ok(())
    }

    pub(crate) fn free_bulk(&self, slot: usize, pick: Pick, count: usize, gaps: usize) -> Check {
        let owner = self.caches[slot].owner;
        let mut slots = Vec::new();
        for at in 0..count {
            let Some(live) = self.ledger.borrow_mut().dismiss(owner, pick)? else {
                break;
            };
            slots.push(Some(live.object));
            if gaps > 0 && at % gaps == 0 {
                slots.push(None);
            }
        }
        let tracked = &self.caches[slot];
        let before = tracked.cache.stats();
        // SAFETY: the ledger has just forgotten the objects.
        let freed = unsafe { tracked.cache.free_bulk(&mut slots) };
        ensure_eq!(freed, Ok(()), "a bulk free");
        let left = slots.iter().flatten().count();
        ensure_eq!(left, 0, "objects left by a bulk free");
        let objects = slots.len().min(count) as u64;
        tracked.rebase();
        // SLUB counts one free for each list of one slab's objects.
        let counted = tracked
            .frees
            .get()
            .saturating_sub(calls(tracked.era, &before).1);
        let after = tracked.cache.stats();
        // As do flushes of sheaves in 6.18.
        let objects = match after.get(Stat::FreeCpuSheaf) {
            0 => objects,
            // A CPU that hides takes its counters along.
            _ => {
                let flushes = |stats: &Stats| stats.get(Stat::SheafFlush);
                objects + flushes(&after).saturating_sub(flushes(&before))
            }
        };
        ensure!(
            self.counts_blur() || counted <= objects && (counted > 0 || objects == 0),
            "a bulk free of {objects} objects counts as {counted}"
        );
        Ok(())
    }

    /// The smallest order that holds `bytes` bytes.
    fn order_for(&self, bytes: usize) -> u32 {
        let pages = bytes.div_ceil(self.heap.machine().topology().page_size());
        pages.next_power_of_two().ilog2()
    }

    /// Counts a kmalloc that was allocated or freed, if it is too large for a slab.
    fn count_large(&self, bytes: usize, allocated: bool) {
        let shared = shares_pages::<D>(self.heap.era());
        if shared || self.heap.kmalloc_cache(bytes).is_some() {
            return;
        }
        let (count, pages) = self.large.get();
        let of_this = 1 << self.order_for(bytes);
        self.large.set(if allocated {
            (count + 1, pages + of_this)
        } else {
            (count - 1, pages - of_this)
        });
    }

    pub(crate) fn kmalloc(&self, bytes: usize, node: Option<NodeId>) -> Check {
        let largest = self.heap.machine().topology().page_size() << (ORDERS - 1);
        let class = self.heap.kmalloc_cache(bytes);
        let order = self.order_for(bytes.max(1));
        let Some(object) = self.heap.kmalloc(bytes, node) else {
            let needed = class.map_or(order, |class| class.head().geometry().min_order);
            return if bytes > largest {
                Ok(())
            } else {
                self.exhausted(needed)
            };
        };
        ensure!(bytes <= largest, "kmalloc of {bytes} bytes at {object:p}");
        if bytes == 0 {
            ensure_eq!(object.addr().get(), ZERO_SIZE_ADDRESS, "kmalloc of nothing");
            // SAFETY: there is nothing to use.
            let freed = unsafe { self.heap.kfree(object) };
            ensure_eq!(freed, Ok(()), "kfree of nothing");
            return Ok(());
        }
        if let Some(class) = class {
            return self.admit(Owner::Kmalloc, class, object, bytes);
        }
        if shares_pages::<D>(self.heap.era()) {
            return self.admit_shared(object, bytes);
        }
        let page_size = self.heap.machine().topology().page_size();
        // A class may have come into being meanwhile.
        ensure!(
            object.addr().get().is_multiple_of(page_size) || self.limits.raced,
            "{object:p}"
        );
        self.count_large(bytes, true);
        self.ledger
            .borrow_mut()
            .admit(Owner::Kmalloc, object, bytes)
    }

    /// Enters a kmalloc of a design that serves all sizes itself.
    fn admit_shared(&self, object: NonNull<u8>, bytes: usize) -> Check {
        ensure!(object.addr().get().is_multiple_of(8), "{object:p}");
        // SAFETY: only the address is used, and there is at least one byte.
        let last = unsafe { object.byte_add(bytes - 1) };
        for address in [object, last] {
            // SAFETY: the object is allocated, so its cache cannot be destroyed.
            let home = unsafe { self.heap.cache_of(address) }.map(|home| home.name());
            ensure_eq!(home, Some("kmalloc"), "the cache of {address:p}");
        }
        self.ledger
            .borrow_mut()
            .admit(Owner::Kmalloc, object, bytes)
    }

    pub(crate) fn kfree(&self, pick: Pick) -> Check<bool> {
        let Some(live) = self.ledger.borrow_mut().dismiss(Owner::Kmalloc, pick)? else {
            return Ok(false);
        };
        self.count_large(live.bytes, false);
        // SAFETY: the ledger has just forgotten the object.
        let freed = unsafe { self.heap.kfree(live.object) };
        ensure_eq!(freed, Ok(()), "kfree of {:p}", live.object);
        Ok(true)
    }
}
