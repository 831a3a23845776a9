//! Pages that leave the pool: for want of room, because of other users, or at the pool's end.

use super::RawPool;
use super::map::Mapper;
use super::ring::NoRoom;
use super::types::{PoolError, Put};
use crate::machine::{Access, Line, Machine, access};
use crate::page::{Page, PageKind, Pfn};
use crate::sync::Ordering;

impl<M: Machine, H: Mapper> RawPool<'_, M, H> {
    /// Puts a claimed page out of the pool, for which the ring has no place.
    #[cold]
    #[inline(never)]
    pub(super) fn release_unplaced(self, pfn: Pfn, no_room: &NoRoom) -> Result<Put, PoolError> {
        let ring_full = &self.body().shared.ring_full;
        self.release_claimed(pfn, || {
            if matches!(no_room, NoRoom::Full) {
                ring_full.fetch_add(1, Ordering::Relaxed);
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
            return Err(self.refusal(pfn));
        }
        counted();
        self.give_back(page, pfn);
        Ok(Put::Released)
    }

    /// Releases a page that the caller, the owner, took out of the alloc cache or the ring; not if its
    /// entry was stale (I3).
    pub(super) fn release_home(self, pfn: Pfn) {
        let page = self.pages.map().page(pfn);
        if self.body().is_good(page) && self.disown(page) {
            self.give_back(page, pfn);
        }
    }

    /// Takes the pool's mark off a page: of several that try, one does. Its kind is still a pool's, so
    /// that no code frees it by number before [`RawPool::give_back`] has cleaned its descriptor.
    fn disown(&self, page: &Page) -> bool {
        access(
            self.pages.machine(),
            Line::PageDescriptor,
            Access::Atomic,
            core::ptr::from_ref(&page.pool),
        );
        let mark = page.pool.load(Ordering::Relaxed);
        let unmarked = core::ptr::null_mut();
        self.body().owns(page)
            && page
                .pool
                .compare_exchange(mark, unmarked, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
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
        page.word.store(0, Ordering::Relaxed);
        page.change_kind(PageKind::Pool, PageKind::Allocated);
        // SAFETY: the reference is the pool's: `disown` made this call the only one to give it up, and no code
        // uses the page in the pool's name any more.
        let put = unsafe { self.pages.put_page(pfn) };
        debug_assert!(put.is_ok(), "{put:?}");
        self.drop_alive(1);
    }
}
