//! Frees that must be refused, and must change nothing.

use std::ptr::NonNull;

use quarry_core::design::{CheckError, Design, FreeError};
use quarry_core::heap::Cache;
use quarry_core::machine::Machine;
use quarry_core::page::{PageError, Pfn};
use quarry_core::stats::Stat;

use super::design::Driver;
use super::ledger::{Live, Owner, Pick};
use super::place::Placement;
use super::script::Mistake;
use super::{Check, ensure, ensure_eq};
use crate::model::by_number::ByNumber as _;

/// A mistaken free: the error must be one of these, and no counter but `cpu_slot_busy` may move.
fn refused<M: Machine, D: Design>(
    cache: Cache<'_, M, D>,
    object: NonNull<u8>,
    errors: &[FreeError],
    exact: bool,
) -> Check {
    let before = cache.stats();
    // SAFETY: the object is not one of this cache's live ones, so the design refuses it; that
    // this is so is what is tested.
    let freed = unsafe { cache.free(object) };
    let expected = freed.is_err_and(|error| errors.contains(&error));
    ensure!(
        expected,
        "freeing {object:p} gave {freed:?} instead of {errors:?}"
    );
    for ((stat, was), (_, is)) in before.iter().zip(cache.stats().iter()) {
        let moved = was != is && exact && stat != Stat::CpuSlotBusy;
        ensure!(
            !moved,
            "a refused free moved {} from {was} to {is}",
            stat.name()
        );
    }
    Ok(())
}

impl<M: Machine, D: Design, P: Placement<M>> Driver<'_, M, D, P> {
    /// Makes a mistake, if the state has what it takes.
    pub(crate) fn wrong(&self, slot: usize, mistake: Mistake, pick: Pick) -> Check {
        let (cache, owner) = (self.caches[slot].cache, self.caches[slot].owner);
        let exact = !self.limits.cpus_hide;
        let mine = self.ledger.borrow().peek(owner, pick);
        let other = self.others_object(owner, pick);
        match (mistake, mine, other) {
            (Mistake::Foreign, ..) => self.foreign(cache),
            (Mistake::NotSlab, ..) => self.not_slab(cache),
            (Mistake::OtherCache, _, Some(other)) => {
                refused(cache, other.object, &[FreeError::WrongCache], exact)
            }
            (Mistake::OtherCacheInBulk, Some(_), Some(other)) => {
                self.other_cache_in_bulk(slot, pick, other)
            }
            // slubq looks at the place of an object in its slab only when it gets there.
            (Mistake::Inside(offset), Some(mine), _)
                if matches!(D::NAME, "slub" | "slob") && exact && !self.limits.debug =>
            {
                let busy = cache.flush();
                ensure_eq!(busy, 0, "busy CPUs");
                let size = cache.head().geometry().layout.size as usize;
                let offset = 1 + usize::from(offset) % (size - 1);
                // SAFETY: only the address is used; it is inside the object's slot.
                let inside = unsafe { mine.object.byte_add(offset) };
                refused(cache, inside, &[FreeError::NotAnObject], exact)
            }
            (Mistake::Double, Some(mine), _) if !self.limits.slots_fail => {
                self.free(slot, pick)?;
                let errors = [FreeError::DoubleFree, FreeError::Foreign];
                refused(cache, mine.object, &errors, exact)
            }
            (Mistake::PageOfSlab, Some(mine), _) => self.page_of_slab(cache, mine),
            _ => Ok(()),
        }?;
        match cache.check_consistency() {
            Err(CheckError::Busy) if self.limits.cpus_hide => {}
            checked => checked.map_err(|error| error.to_string())?,
        }
        self.ledger.borrow().all_intact()
    }

    fn others_object(&self, owner: Owner, pick: Pick) -> Option<Live> {
        let others = self.caches.iter().map(|tracked| tracked.owner);
        others
            .filter(|&other| other != owner)
            .find_map(|other| self.ledger.borrow().peek(other, pick))
    }

    fn foreign(&self, cache: Cache<'_, M, D>) -> Check {
        let mut elsewhere = 0u64;
        let object = NonNull::from(&mut elsewhere).cast();
        refused(cache, object, &[FreeError::Foreign], !self.limits.cpus_hide)?;
        // SAFETY: as in `refused`.
        let freed = unsafe { self.heap.kfree(object) };
        ensure_eq!(freed, Err(FreeError::Foreign), "kfree of foreign memory");
        Ok(())
    }

    fn not_slab(&self, cache: Cache<'_, M, D>) -> Check {
        let pages = self.heap.pages();
        let Some(pfn) = pages.alloc(0, None) else {
            return Ok(());
        };
        let Some(object) = pages.address(pfn) else {
            return Err(format!("{pfn:?} has no address"));
        };
        refused(cache, object, &[FreeError::Foreign], !self.limits.cpus_hide)?;
        // SAFETY: as in `refused`.
        let freed = unsafe { self.heap.kfree(object) };
        ensure_eq!(freed, Err(FreeError::Foreign), "kfree of a page");
        ensure_eq!(pages.free_number(pfn, 0), Ok(()), "freeing the page");
        Ok(())
    }

    fn other_cache_in_bulk(&self, slot: usize, pick: Pick, other: Live) -> Check {
        let owner = self.caches[slot].owner;
        let first = self
            .ledger
            .borrow_mut()
            .dismiss(owner, pick)?
            .map(|live| live.object);
        let second = self
            .ledger
            .borrow_mut()
            .dismiss(owner, pick)?
            .map(|live| live.object);
        let mut slots = [first, Some(other.object), second];
        let cache = self.caches[slot].cache;
        // SAFETY: the first and last have left the ledger; the one in between is another cache's
        // and is refused.
        let freed = unsafe { cache.free_bulk(&mut slots) };
        ensure_eq!(
            freed,
            Err(FreeError::WrongCache),
            "a bulk free with another's object"
        );
        ensure_eq!(slots, [None, Some(other.object), None], "its slots");
        self.caches[slot].rebase();
        Ok(())
    }

    /// No page that the object is in can be freed as a page.
    fn page_of_slab(&self, cache: Cache<'_, M, D>, live: Live) -> Check {
        let pages = self.heap.pages();
        let Some(pfn) = pages.pfn_of(live.object) else {
            return Err(format!("{:p} is in no page", live.object));
        };
        for order in 0..=cache.head().geometry().order {
            // Of the pages around, those that belong to the slab include the first of it.
            let at = Pfn(pfn.0 & !((1 << order) - 1));
            for order in [0, order] {
                let freed = pages.free_number(at, order);
                let refused = matches!(freed, Err(PageError::NotAllocated(..)));
                ensure!(refused, "page {} of a slab, order {order}: {freed:?}", at.0);
            }
        }
        Ok(())
    }
}
