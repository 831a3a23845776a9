//! Puts: into the alloc cache by the owner, into the ring by everybody else, or out of the pool.

use super::map::Mapper;
use super::ring::Pushed;
use super::stats::count;
use super::types::{PoolError, PoolState, Put, StateWord};
use super::{PagePool, PoolOwner, RawPool};
use crate::machine::{Access, Line, Machine, Work, touch, work};
use crate::page::{Page, PageKind, Pfn};
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
    /// Nobody else puts this page, or a piece of it, at the same time. Of two at once one may write
    /// to the descriptor of a page that the other released and that has become a slab.
    #[inline]
    pub unsafe fn put(&mut self, pfn: Pfn) -> Result<Put, PoolError> {
        // SAFETY: the caller's contract.
        unsafe { self.put_used(pfn, u32::MAX) }
    }

    /// [`PoolOwner::put`] of a page of which the first `used` bytes may have been written since it
    /// was handed out.
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
        self.put_direct(page, pfn, PoolState::InFlight, used)
    }

    /// Puts a page that was checked.
    #[inline(always)]
    pub(super) fn put_direct(
        &self,
        page: &Page,
        pfn: Pfn,
        from: PoolState,
        used: u32,
    ) -> Result<Put, PoolError> {
        let raw = self.pool.raw();
        let owner = &self.pool.body().owner;
        self.touch_cache();
        if !page.is_sole_reference() {
            return raw.release_shared(pfn);
        }
        let ready = || {
            raw.sync_for_device(page, used);
            StateWord::in_pool(PoolState::Cached).store(page);
        };
        if owner.push(pfn, ready) {
            count(&owner.stats.cached);
            return Ok(Put::Cached);
        }
        self.put_overflow(page, pfn, from, used)
    }

    #[cold]
    #[inline(never)]
    fn put_overflow(
        &self,
        page: &Page,
        pfn: Pfn,
        from: PoolState,
        used: u32,
    ) -> Result<Put, PoolError> {
        count(&self.pool.body().owner.stats.cache_full);
        self.pool.raw().put_ring(page, pfn, from, used)
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
    /// Nobody else puts this page, or a piece of it, at the same time. Of two at once one may write
    /// to the descriptor of a page that the other released and that has become a slab.
    #[inline]
    pub unsafe fn put(&self, pfn: Pfn) -> Result<Put, PoolError> {
        // SAFETY: the caller's contract.
        unsafe { self.put_used(pfn, u32::MAX) }
    }

    /// [`PagePool::put`] of a page of which the first `used` bytes may have been written since it
    /// was handed out.
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
}

impl<M: Machine, H: Mapper> RawPool<'_, M, H> {
    #[inline]
    pub(super) fn put_used(self, pfn: Pfn, used: u32) -> Result<Put, PoolError> {
        let page = self.check(pfn, PoolState::InFlight)?;
        if !page.is_sole_reference() {
            return self.release_shared(pfn);
        }
        self.put_ring(page, pfn, PoolState::InFlight, used)
    }

    /// The descriptor of a page of this pool that is handed out in this way.
    #[inline(always)]
    pub(super) fn check(&self, pfn: Pfn, state: PoolState) -> Result<&Page, PoolError> {
        let page = self.pages.map().get(pfn).ok_or(PoolError::Foreign(pfn))?;
        touch(
            self.pages.machine(),
            Line::PageDescriptor,
            Access::Write,
            pfn.0 as usize,
        );
        if self.body().owns(page) && StateWord::of(page).is(state) {
            Ok(page)
        } else {
            Err(self.refusal(page, pfn))
        }
    }

    /// Why a page is not handed out as it should be.
    #[cold]
    #[inline(never)]
    fn refusal(&self, page: &Page, pfn: Pfn) -> PoolError {
        if !self.body().owns(page) {
            return PoolError::NotOfPool(pfn);
        }
        match StateWord::of(page).state() {
            PoolState::InFlight => PoolError::Whole(pfn),
            PoolState::InPieces => PoolError::InPieces(pfn),
            state => PoolError::NotInFlight(pfn, state),
        }
    }

    /// Puts a checked page, which nobody else uses, into the ring or out of the pool. Nothing of
    /// the pool may be touched after it.
    #[inline]
    pub(super) fn put_ring(
        self,
        page: &Page,
        pfn: Pfn,
        from: PoolState,
        used: u32,
    ) -> Result<Put, PoolError> {
        let body = self.body();
        self.sync_for_device(page, used);
        let claim = || {
            // Under the producers' lock: of two puts in there one is refused.
            if !StateWord::of(page).is(from) {
                return Err(self.refusal(page, pfn));
            }
            StateWord::in_pool(PoolState::Ring).store(page);
            Ok(())
        };
        work(self.pages.machine(), Work::Atomic);
        let full = match body.ring.push(self.pages.machine(), pfn, claim) {
            Pushed::Done => return Ok(Put::Ring),
            Pushed::Refused(error) => return Err(error),
            Pushed::Full => Some(&body.shared.ring_full),
            Pushed::Busy => Some(&body.shared.ring_busy),
            Pushed::Closed => None,
        };
        self.release_claimed(pfn, || {
            if let Some(counter) = full {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn release_shared(self, pfn: Pfn) -> Result<Put, PoolError> {
        let counter = &self.body().shared.released_refcnt;
        self.release_claimed(pfn, || {
            counter.fetch_add(1, Ordering::Relaxed);
        })
    }

    #[cold]
    #[inline(never)]
    fn release_claimed(self, pfn: Pfn, counted: impl FnOnce()) -> Result<Put, PoolError> {
        let page = self.pages.map().page(pfn);
        if !self.disown(page) {
            return Err(self.refusal(page, pfn));
        }
        counted();
        self.give_back(page, pfn);
        Ok(Put::Released)
    }

    /// Releases a page that the caller, the owner, took out of where its state says it is; not if
    /// its entry was stale (I3).
    pub(super) fn release_from(self, pfn: Pfn, state: PoolState) {
        let page = self.pages.map().page(pfn);
        let good = StateWord::of(page).is(state) && self.body().owns(page);
        if good && self.disown(page) {
            self.give_back(page, pfn);
        }
    }

    /// Makes a page an ordinary allocated one: of several that try, one does.
    fn disown(&self, page: &Page) -> bool {
        work(self.pages.machine(), Work::Atomic);
        page.claim_kind(PageKind::Pool, PageKind::Allocated, self.body().order)
    }

    /// Gives the pool's reference to a page that is no more its own back to the page allocator; with
    /// the last one the pool itself may go.
    fn give_back(self, page: &Page, pfn: Pfn) {
        let body = self.body();
        if H::MAPS {
            let mapping = page.private.load(Ordering::Relaxed);
            body.mapper.unmap(mapping, body.block_bytes as usize);
            // SLOB takes any other value for a link (`slob::shrink`).
            page.private.store(0, Ordering::Relaxed);
        }
        page.cache.store(core::ptr::null_mut(), Ordering::Relaxed);
        page.objects.store(0, Ordering::Relaxed);
        let put = self.pages.put_page(pfn);
        debug_assert!(put.is_ok(), "{put:?}");
        self.drop_alive(1);
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
