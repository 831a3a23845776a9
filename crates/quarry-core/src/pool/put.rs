//! Puts: into the alloc cache by the owner, into the running CPU's lane or the ring by other callers, or out of
//! the pool. Where there are lanes, each word about the ring holds for them too.

use super::map::Mapper;
use super::ring::{Late, NoRoom, Reserved};
use super::rules::REFILL_PAGES;
use super::stats::{count, count_by};
use super::types::{PoolError, PoolState, Put};
use super::{PagePool, PoolOwner, RawPool};
use crate::machine::Machine;
use crate::page::{MapOn, Page, Pfn};
use crate::sync::Ordering;

impl<M: Machine, H: Mapper> PoolOwner<'_, M, H> {
    /// Puts a page back: into the alloc cache, else into the ring, else out of the pool
    /// (`page_pool_put_full_page()` with direct recycling).
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    ///
    /// # Safety
    ///
    /// If the page is handed out whole, it is the caller's to put: the pool gave it to the caller, or its user
    /// handed it over; no code uses its memory any longer but users with references of their own.
    ///
    /// No other thread puts this page, or a piece of it, at the same time. Of two at once one may write
    /// to the descriptor of a page that the other released and that has become a slab.
    #[inline]
    pub unsafe fn put(&mut self, pfn: Pfn) -> Result<Put, PoolError> {
        // SAFETY: the page is the caller's to put, and no other thread puts it or a piece of it: `put` asks the
        // same of its caller.
        unsafe { self.put_used(pfn, u32::MAX) }
    }

    /// [`PoolOwner::put`] of a page whose first `used` bytes may have been written since it was
    /// handed out.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    ///
    /// # Safety
    ///
    /// As for [`PoolOwner::put`].
    #[inline]
    pub unsafe fn put_used(&mut self, pfn: Pfn, used: u32) -> Result<Put, PoolError> {
        let raw = self.pool.raw();
        let page = raw.check(pfn, PoolState::InFlight)?;
        // SAFETY: `check` found the page in flight, so it is the caller's to put, by the caller's promise.
        unsafe { self.put_direct(page, pfn, used) }
    }

    /// Puts the pages of all filled slots, each as [`PoolOwner::put`] does; every one that can be put
    /// is, and its slot becomes empty.
    ///
    /// # Errors
    ///
    /// The first [`PoolError`] met; the slots of pages that could not be put stay filled.
    ///
    /// # Safety
    ///
    /// As for [`PoolOwner::put`], for each page. A page that is twice in the array is put once and
    /// then refused.
    pub unsafe fn put_bulk(&mut self, slots: &mut [Option<Pfn>]) -> Result<(), PoolError> {
        // SAFETY: the pages of filled slots are the caller's to put, by its promise, and `page` reads these.
        unsafe { self.put_bulk_as(slots, |slot| *slot, |slot| *slot = None) }
    }

    /// [`PoolOwner::put_bulk`] for slots of any type: `page` reads a slot's page, `clear` empties the slot.
    ///
    /// # Errors
    ///
    /// As for [`PoolOwner::put_bulk`].
    ///
    /// # Safety
    ///
    /// As for [`PoolOwner::put_bulk`].
    #[inline]
    pub unsafe fn put_bulk_as<S>(
        &mut self,
        slots: &mut [S],
        page: impl Fn(&S) -> Option<Pfn>,
        clear: impl Fn(&mut S),
    ) -> Result<(), PoolError> {
        let mut result = Ok(());
        self.touch_cache();
        let done = self.put_run(slots, &page, &clear, &mut result);
        if let Some(rest @ [_, ..]) = slots.get_mut(done..) {
            let raw = self.pool.raw();
            let claimed = raw.put_bulk_ring(rest, page, clear, &mut result);
            count_by(&self.pool.body().owner.stats.cache_full, claimed);
        }
        result
    }

    /// Puts pages into the alloc cache while it has room, and returns the number of slots looked at.
    #[inline(always)]
    fn put_run<S>(
        &mut self,
        slots: &mut [S],
        page: &impl Fn(&S) -> Option<Pfn>,
        clear: &impl Fn(&mut S),
        result: &mut Result<(), PoolError>,
    ) -> usize {
        let raw = self.pool.raw();
        // A copy, or it would be loaded again for each page.
        let own = *raw.pages.map();
        let map = own.on(raw.pages.machine());
        let mut stack = self.cache.open(&self.pool.body().owner.cached);
        for (at, slot) in slots.iter_mut().enumerate() {
            let Some(pfn) = page(slot) else { continue };
            let Some(place) = stack.room().first_mut() else {
                return at;
            };
            if let Some(page) = raw.find_sole(map, pfn) {
                raw.come_home(page, u32::MAX);
                *place = pfn;
                stack.grow(1);
                clear(slot);
            } else if raw.put_unusual_of(pfn, result) {
                clear(slot);
            }
        }
        slots.len()
    }

    /// Puts a page that was checked.
    ///
    /// # Safety
    ///
    /// As for [`PoolOwner::put`].
    #[inline(always)]
    pub(super) unsafe fn put_direct(
        &mut self,
        page: &Page,
        pfn: Pfn,
        used: u32,
    ) -> Result<Put, PoolError> {
        let raw = self.pool.raw();
        self.touch_cache();
        let body = raw.body();
        if !body.is_sole(page) {
            return raw.release_shared(pfn);
        }
        let mut stack = self.cache.open(&body.owner.cached);
        if let Some(place) = stack.room().first_mut() {
            raw.come_home(page, used);
            *place = pfn;
            stack.grow(1);
            // Before there is a result, which stays in registers then.
            drop(stack);
            return Ok(Put::Cached);
        }
        drop(stack);
        self.put_overflow(page, pfn, used)
    }

    #[cold]
    #[inline(never)]
    fn put_overflow(&self, page: &Page, pfn: Pfn, used: u32) -> Result<Put, PoolError> {
        count(&self.pool.body().owner.stats.cache_full);
        let raw = self.pool.raw();
        raw.come_home(page, used);
        let slot = self.pool.body().ring.reserve(raw.pages.machine(), 1);
        raw.settle(pfn, slot)
    }
}

impl<M: Machine, H: Mapper> PagePool<'_, M, H> {
    /// Puts a page back from anywhere: into the ring, else out of the pool
    /// (`page_pool_put_full_page()`).
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    ///
    /// # Safety
    ///
    /// If the page is handed out whole, it is the caller's to put: the pool gave it to the caller, or its user
    /// handed it over; no code uses its memory any longer but users with references of their own.
    ///
    /// No other thread puts this page, or a piece of it, at the same time. Of two at once one may write
    /// to the descriptor of a page that the other released and that has become a slab.
    #[inline]
    pub unsafe fn put(&self, pfn: Pfn) -> Result<Put, PoolError> {
        // SAFETY: the page is the caller's to put, and no other thread puts it or a piece of it: `put` asks the
        // same of its caller.
        unsafe { self.put_used(pfn, u32::MAX) }
    }

    /// [`PagePool::put`] of a page whose first `used` bytes may have been written since it was
    /// handed out.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then.
    ///
    /// # Safety
    ///
    /// As for [`PagePool::put`].
    #[inline]
    pub unsafe fn put_used(&self, pfn: Pfn, used: u32) -> Result<Put, PoolError> {
        // This handle keeps the pool alive.
        self.raw().put_used(pfn, used)
    }

    /// Puts the pages of all filled slots, each as [`PagePool::put`] does, but with one reservation
    /// of the ring's slots for many; every one that can be put is, and its slot becomes empty.
    ///
    /// # Errors
    ///
    /// The first [`PoolError`] met; the slots of pages that could not be put stay filled.
    ///
    /// # Safety
    ///
    /// As for [`PagePool::put`], for each page. A page that is twice in the array is put once and
    /// then refused.
    pub unsafe fn put_bulk(&self, slots: &mut [Option<Pfn>]) -> Result<(), PoolError> {
        // SAFETY: the pages are the caller's to put, by its promise, and this handle keeps the pool alive.
        unsafe { self.raw().put_bulk(slots) }
    }
}

impl<M: Machine, H: Mapper> RawPool<'_, M, H> {
    #[inline(always)]
    pub(super) fn put_used(self, pfn: Pfn, used: u32) -> Result<Put, PoolError> {
        // The owner's CPU has the line mostly: it is to come once, for reading and for writing.
        self.pages.map_on().prefetch(pfn);
        match self.find_sole(self.pages.map_on(), pfn) {
            Some(page) => self.put_ring(page, pfn, used),
            None => self.put_unusual(pfn),
        }
    }

    /// Puts a page that does not go into the pool.
    #[cold]
    #[inline(never)]
    fn put_unusual(self, pfn: Pfn) -> Result<Put, PoolError> {
        match self.pages.map().get(pfn) {
            Some(page) if self.body().is_marked(page, PoolState::InFlight) => {
                self.release_shared(pfn)
            }
            _ => Err(self.refusal(pfn)),
        }
    }

    /// [`RawPool::put_unusual`] of a slot's page. Returns true if the slot's page has been put.
    #[cold]
    #[inline(never)]
    fn put_unusual_of(self, pfn: Pfn, result: &mut Result<(), PoolError>) -> bool {
        let put = self.put_unusual(pfn).map(drop);
        *result = result.and(put);
        put.is_ok()
    }

    /// The descriptor of a page of this pool that is handed out in this way.
    #[inline(always)]
    fn find<'m>(&self, map: MapOn<'m, M>, pfn: Pfn, state: PoolState) -> Option<&'m Page> {
        map.get(pfn)?;
        let page = map.page_to_write(pfn);
        self.body().is_marked(page, state).then_some(page)
    }

    /// The descriptor of a page that is handed out whole and has no other users.
    #[inline(always)]
    fn find_sole<'m>(&self, map: MapOn<'m, M>, pfn: Pfn) -> Option<&'m Page> {
        let page = self.find(map, pfn, PoolState::InFlight);
        // Not by `is_sole`, which reads a line that the owner writes all the time.
        page.filter(|page| page.is_sole_reference())
    }

    /// [`RawPool::find`], or what is wrong.
    #[inline(always)]
    pub(super) fn check(&self, pfn: Pfn, state: PoolState) -> Result<&Page, PoolError> {
        match self.find(self.pages.map_on(), pfn, state) {
            Some(page) => Ok(page),
            None => Err(self.refusal(pfn)),
        }
    }

    /// Error for a page that is not in the state that a put asks for.
    #[cold]
    #[inline(never)]
    pub(super) fn refusal(self, pfn: Pfn) -> PoolError {
        let Some(page) = self.pages.map().get(pfn) else {
            return PoolError::Foreign(pfn);
        };
        match self.body().state_of(page) {
            PoolState::Outside => PoolError::NotOfPool(pfn),
            PoolState::InFlight => PoolError::Whole(pfn),
            PoolState::InPieces => PoolError::InPieces(pfn),
            PoolState::InPool | PoolState::InBatch => PoolError::NotInFlight(pfn),
        }
    }

    /// Puts a checked page, which no other code uses, into the ring or out of the pool. Nothing of
    /// the pool may be touched after it.
    #[inline]
    pub(super) fn put_ring(self, page: &Page, pfn: Pfn, used: u32) -> Result<Put, PoolError> {
        self.come_home(page, used);
        let machine = self.pages.machine();
        let body = self.body();
        if body.lanes.exist() {
            if body.lanes.push(machine, pfn) {
                return Ok(Put::Ring);
            }
            return self.put_unstepped(pfn);
        }
        match body.ring.reserve_one(machine) {
            Ok(slot) => Ok(self.fill(slot, pfn)),
            Err(late) => self.put_late(pfn, late),
        }
    }

    /// Puts a page that is home by its state, if a step could not.
    #[cold]
    #[inline(never)]
    fn put_unstepped(self, pfn: Pfn) -> Result<Put, PoolError> {
        if self.body().lanes.push_many(self.pages, &[pfn]) == 1 {
            return Ok(Put::Ring);
        }
        let slot = self.body().ring.reserve(self.pages.machine(), 1);
        self.settle(pfn, slot)
    }

    #[cold]
    #[inline(never)]
    fn put_late(self, pfn: Pfn, late: Late) -> Result<Put, PoolError> {
        let slot = self.body().ring.reserve_late(self.pages.machine(), late);
        self.settle(pfn, slot)
    }

    /// Makes a checked page one that is home: no other put of it is accepted.
    #[inline(always)]
    fn come_home(&self, page: &Page, used: u32) {
        self.sync_for_device(page, used);
        self.body().set_state(page, PoolState::InPool);
    }

    fn settle(self, pfn: Pfn, slot: Result<Reserved, NoRoom>) -> Result<Put, PoolError> {
        match slot {
            Ok(slot) => Ok(self.fill(slot, pfn)),
            Err(no_room) => self.release_unplaced(pfn, &no_room),
        }
    }

    #[inline(always)]
    fn fill(self, slot: Reserved, pfn: Pfn) -> Put {
        let machine = self.pages.machine();
        self.body().ring.fill(machine, slot, 0, pfn);
        Put::Ring
    }

    /// Puts the pages of all filled slots into the ring or out of the pool. Returns the number found in flight
    /// without other users. Nothing of the pool may be touched after it, but for those who have a handle.
    #[inline]
    pub(super) fn put_bulk_ring<S>(
        self,
        slots: &mut [S],
        page: impl Fn(&S) -> Option<Pfn>,
        clear: impl Fn(&mut S),
        result: &mut Result<(), PoolError>,
    ) -> u64 {
        let own = *self.pages.map();
        let map = own.on(self.pages.machine());
        let mut all = 0;
        for chunk in slots.chunks_mut(REFILL_PAGES) {
            let mut claimed = [Pfn(0); REFILL_PAGES];
            let mut count = 0;
            for pfn in chunk.iter().filter_map(&page) {
                map.prefetch(pfn);
            }
            for slot in chunk {
                let Some(pfn) = page(slot) else { continue };
                if let Some(page) = self.find_sole(map, pfn) {
                    // At once, so that a second slot of the same page is refused.
                    self.come_home(page, u32::MAX);
                    claimed[count] = pfn;
                    count += 1;
                    clear(slot);
                } else if self.put_unusual_of(pfn, result) {
                    clear(slot);
                }
            }
            let placed = self.place(&claimed[..count]);
            *result = result.and(placed);
            all += count as u64;
        }
        all
    }

    /// Puts claimed pages into the ring or out of the pool. Those still to be placed keep the pool alive.
    pub(super) fn place(self, mut pages: &[Pfn]) -> Result<(), PoolError> {
        if pages.is_empty() {
            // The pool may be gone.
            return Ok(());
        }
        let machine = self.pages.machine();
        let placed = self.body().lanes.push_many(self.pages, pages);
        pages = &pages[placed..];
        while !pages.is_empty() {
            let ring = &self.body().ring;
            let slots = match ring.reserve(machine, pages.len() as u32) {
                Ok(slots) => slots,
                Err(no_room) => {
                    let mut result = Ok(());
                    for &pfn in pages {
                        result = result.and(self.release_unplaced(pfn, &no_room).map(drop));
                    }
                    return result;
                }
            };
            let (now, later) = pages.split_at(slots.count as usize);
            for (number, &pfn) in (0..).zip(now) {
                ring.fill(machine, slots, number, pfn);
            }
            pages = later;
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn sync_for_device(&self, page: &Page, used: u32) {
        if H::MAPS {
            let body = self.body();
            let mapping = page.private.load(Ordering::Relaxed);
            let bytes = used.min(body.block_bytes) as usize;
            body.mapper.sync_for_device(mapping, bytes);
        }
    }
}
