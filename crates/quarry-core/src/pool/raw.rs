//! Uncounted pools: the inside of a handle, and a form to keep next to each page in flight.

use core::marker::PhantomData;

#[cfg(doc)]
use super::PagePool;
use super::{Body, BodyPtr, Mapper, NoMapper, PoolError, Put, give_back};
use crate::machine::{Machine, RawRange};
use crate::page::{PageAllocator, Pfn};
use crate::sync::Ordering;

/// A pool without a count: valid as long as a handle is, or a page in flight (I4).
pub struct RawPool<'p, M: Machine, H: Mapper = NoMapper> {
    pub(super) pages: &'p PageAllocator<M>,
    pub(super) body: BodyPtr<H>,
}

impl<M: Machine, H: Mapper> Clone for RawPool<'_, M, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, H: Mapper> Copy for RawPool<'_, M, H> {}

/// Equal if both are the same pool.
impl<M: Machine, H: Mapper> PartialEq for RawPool<'_, M, H> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.body == other.body
    }
}

impl<M: Machine, H: Mapper> Eq for RawPool<'_, M, H> {}

// SAFETY: the body is made of atomics, of data behind a lock, of constants and of the mapper, which `H: Send + Sync`
// lets several threads use at once; the page allocator is shared.
unsafe impl<M: Machine + Sync, H: Mapper + Send + Sync> Send for RawPool<'_, M, H> {}
// SAFETY: a shared `RawPool` gives no more than a copy, which may be sent.
unsafe impl<M: Machine + Sync, H: Mapper + Send + Sync> Sync for RawPool<'_, M, H> {}

/// A [`RawPool`] in one word, to keep next to each page.
pub struct ThinPool<'p, M: Machine, H: Mapper = NoMapper> {
    body: BodyPtr<H>,
    pages: PhantomData<&'p PageAllocator<M>>,
}

impl<M: Machine, H: Mapper> Clone for ThinPool<'_, M, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, H: Mapper> Copy for ThinPool<'_, M, H> {}

/// Equal if both are the same pool.
impl<M: Machine, H: Mapper> PartialEq for ThinPool<'_, M, H> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.body == other.body
    }
}

impl<M: Machine, H: Mapper> Eq for ThinPool<'_, M, H> {}

// SAFETY: it becomes a `RawPool` by its one method, and that may be sent.
unsafe impl<M: Machine + Sync, H: Mapper + Send + Sync> Send for ThinPool<'_, M, H> {}
// SAFETY: a shared `ThinPool` gives no more than a copy, which may be sent.
unsafe impl<M: Machine + Sync, H: Mapper + Send + Sync> Sync for ThinPool<'_, M, H> {}

impl<'p, M: Machine, H: Mapper> ThinPool<'p, M, H> {
    /// The pool again.
    ///
    /// # Safety
    ///
    /// A handle to the pool exists, or a page of it is in flight.
    #[inline(always)]
    #[must_use]
    pub unsafe fn raw(self) -> RawPool<'p, M, H> {
        // SAFETY: I4, by the caller's contract; it is only shared.
        let pages = unsafe { self.body.as_ref() }.pages.cast();
        // SAFETY: `create_mapped` stored what it had for `'p`, and the types of all handles are as
        // those of the first.
        let pages = unsafe { pages.as_ref() };
        RawPool {
            pages,
            body: self.body,
        }
    }
}

impl<'p, M: Machine, H: Mapper> RawPool<'p, M, H> {
    /// Only for callers who know that the pool is there: a handle or a page in flight keeps it so
    /// (I4). The public functions of this type ask for that.
    #[inline(always)]
    pub(super) fn body(&self) -> &Body<H> {
        // SAFETY: I4, by the callers' knowledge; it is only shared.
        unsafe { self.body.as_ref() }
    }

    /// The same in one word.
    #[inline(always)]
    #[must_use]
    pub fn thin(self) -> ThinPool<'p, M, H> {
        ThinPool {
            body: self.body,
            pages: PhantomData,
        }
    }

    /// The page allocator below.
    #[inline(always)]
    #[must_use]
    pub fn pages(self) -> &'p PageAllocator<M> {
        self.pages
    }

    /// Bytes of a block.
    ///
    /// # Safety
    ///
    /// A handle to the pool exists, or a page of it is in flight.
    #[inline(always)]
    #[must_use]
    pub unsafe fn block_bytes(self) -> usize {
        self.body().block_bytes as usize
    }

    /// [`PagePool::put_used`] without a handle.
    ///
    /// # Errors
    ///
    /// As [`PagePool::put`].
    ///
    /// # Safety
    ///
    /// If the page is in flight, it is the caller's to put, and no code uses its memory any longer. If it is not,
    /// a handle to the pool exists until the call returns. No other thread puts this page or a piece of it at the
    /// same time.
    #[inline]
    pub unsafe fn put(self, pfn: Pfn, used: u32) -> Result<Put, PoolError> {
        self.put_used(pfn, used)
    }

    /// [`PagePool::put_bulk`] without a handle.
    ///
    /// # Errors
    ///
    /// As [`PagePool::put_bulk`].
    ///
    /// # Safety
    ///
    /// As for [`RawPool::put`], for each page; a page is twice in the array only if a handle exists.
    pub unsafe fn put_bulk(self, slots: &mut [Option<Pfn>]) -> Result<(), PoolError> {
        // SAFETY: the pages of filled slots are the caller's to put, by its promise, and `page` reads these.
        unsafe { self.put_bulk_as(slots, |slot| *slot, |slot| *slot = None) }
    }

    /// [`RawPool::put_bulk`] for slots of any type: `page` reads a slot's page, `clear` empties the slot.
    ///
    /// # Errors
    ///
    /// As [`PagePool::put_bulk`].
    ///
    /// # Safety
    ///
    /// As for [`RawPool::put_bulk`].
    #[inline]
    pub unsafe fn put_bulk_as<S>(
        self,
        slots: &mut [S],
        page: impl Fn(&S) -> Option<Pfn>,
        clear: impl Fn(&mut S),
    ) -> Result<(), PoolError> {
        let mut result = Ok(());
        self.put_bulk_ring(slots, page, clear, &mut result);
        result
    }

    /// Gives up handles or pages; with the last of either the pool goes.
    pub(super) fn drop_alive(self, count: u64) {
        // AcqRel: what all users did with the pool happens before its end.
        if self.body().alive.fetch_sub(count, Ordering::AcqRel) == count {
            self.free_body();
        }
    }

    #[cold]
    pub(super) fn free_body(self) {
        let machine = self.pages.machine();
        let meta = self.pages.meta();
        let _pass = self.pages.gate().enter(machine);
        let slots = self.body().ring.range();
        // SAFETY: I4 - no other code can reach the pool any more.
        unsafe { self.body().lanes.free(machine, meta, self.pages.percpu()) };
        let bytes = size_of::<Body<H>>().max(align_of::<Body<H>>());
        // SAFETY: I4 - no other code can reach the pool any more: there are no handles, and no page
        // that one could put. It was initialised when it was made.
        unsafe { self.body.drop_in_place() };
        let body = RawRange {
            base: self.body.cast(),
            bytes,
        };
        for block in [slots, body] {
            // SAFETY: the block has no user left.
            unsafe { give_back(machine, meta, block) };
        }
    }
}
