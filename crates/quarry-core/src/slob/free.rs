//! Freeing: a block to its page, a run of pages to the page allocator.

use core::ptr::NonNull;

use super::geometry::HEADER_BYTES;
use super::owners::{Block, Mark, Owners};
use super::slab::{HeapPage, give_pages_back};
use super::stats::Stat;
use super::types::{Lists, Slob};
use crate::design::{Env, Free, FreeError};
use crate::geometry::WORD_BYTES;
use crate::machine::{Access, Line, Machine, Work, access, work};
use crate::page::{PageKind, PageList, Pfn};
use crate::rcu;
use crate::slabs;
use crate::sync::Ordering;

impl Free for Slob {
    unsafe fn free_fast<M: Machine>(&self, _: Env<'_, M>, _: NonNull<u8>) -> bool {
        false
    }

    unsafe fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_one(env, object, false) }
    }

    /// One by one, as in the kernel.
    unsafe fn free_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the objects have no user left.
        slabs::free_each(slots, |object| unsafe { self.free(env, object) })
    }

    unsafe fn free_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_one(env, object, false) }
    }

    unsafe fn free_rcu<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that only readers that run already use the object.
        unsafe { rcu::defer(self, env, object) }
    }

    fn ksize<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> Option<usize> {
        self.kmalloc_bytes(env, object)
    }

    unsafe fn kfree<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_one(env, object, true) }
    }
}

impl Slob {
    /// Bytes of a kmalloc: those that were asked for, which its header has, or those of its pages.
    pub(super) fn kmalloc_bytes<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Option<usize> {
        let map = env.map();
        let first = Self::first_page(env, object).ok()?;
        let owner = map.owner(first);
        if !owner.is_null() {
            let mine = owner == env.cache.id();
            return mine.then(|| 1 << (map.page_shift() + map.page(first).order()));
        }
        let (_, mark) = self.marked(env, first, object, true).ok()?;
        debug_assert!(mark.has_header());
        // SAFETY: the mark says that kmalloc made the object, so a header is in front of it.
        let header = unsafe { object.byte_sub(HEADER_BYTES as usize) }.cast::<u32>();
        access(env.machine(), Line::Object, Access::Read, header.as_ptr());
        // SAFETY: `kmalloc` wrote the header, and nothing writes it while the object is allocated.
        Some(unsafe { header.read() } as usize)
    }

    /// Frees an object of the cache; with `kfree`, one that kmalloc allocated.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn free_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
        kfree: bool,
    ) -> Result<(), FreeError> {
        let _pass = env.enter();
        work(env.machine(), Work::SlowPath);
        let first = Self::first_page(env, object)?;
        let owner = env.map().owner(first);
        if owner.is_null() {
            let freed = self.shared().with_lists(env, |lists, empty| {
                self.free_block(env, lists, empty, object, kfree)
            });
            let bytes = match freed {
                Some(freed) => freed?,
                None => self.defer(env, first, object, kfree)?,
            };
            self.block_bytes.fetch_sub(bytes.into(), Ordering::Relaxed);
        } else {
            self.free_run(env, first, object)?;
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
        env.cache.shared_stats.count(Stat::FreeSlowpath);
        Ok(())
    }

    /// The block of an object of this cache.
    #[inline(always)]
    fn block_of<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
        mark: Mark,
    ) -> Result<Block, FreeError> {
        let block = self.shared().registry.block_of(env.pages(), object, mark);
        block.ok_or(FreeError::NotAnObject)
    }

    /// The first page of the heap page or run that an address is in.
    pub(super) fn first_page<M: Machine>(
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<Pfn, FreeError> {
        let map = env.map();
        let pfn = map.pfn_of(object).ok_or(FreeError::Foreign)?;
        let first = map.page(pfn).head().ok_or(FreeError::Foreign)?;
        let ours = map.page(first).kind() == PageKind::Slab;
        ours.then_some(first).ok_or(FreeError::Foreign)
    }

    pub(super) fn offset<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) -> u32 {
        object.addr().get() as u32 & ((1 << env.map().page_shift()) - 1)
    }

    /// Frees an object on a heap page, with the lock held. Returns the bytes of its block.
    fn free_block<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        empty: &mut PageList,
        object: NonNull<u8>,
        kfree: bool,
    ) -> Result<u32, FreeError> {
        // Look again under the lock: before a mistaken free, a right one may have given the page back.
        let pfn = Self::first_page(env, object)?;
        let offset = Self::offset(env, object);
        let (owners, mark) = match self.marked(env, pfn, object, kfree) {
            Err(FreeError::DoubleFree) if !Self::is_free(env, pfn, offset) => {
                return Err(FreeError::NotAnObject);
            }
            marked => marked?,
        };
        let shared = self.shared();
        let block = self.block_of(env, object, mark)?;
        let start = offset - block.lead;
        shared.give_block(env, lists, empty, pfn, start, block.bytes)?;
        owners.set(offset, Mark::NONE);
        Ok(block.bytes)
    }

    /// True if there is no object here: a free block, or one that waits to be. The lock is held.
    fn is_free<M: Machine>(env: Env<'_, M>, pfn: Pfn, offset: u32) -> bool {
        let deferred = Owners::of(env.pages(), pfn).is_some_and(|at| at.get(offset).is_deferred());
        let page = HeapPage::new(env, pfn);
        deferred || page.is_free(page.at(offset))
    }

    /// The mark of a live object of this cache.
    ///
    /// # Errors
    ///
    /// [`FreeError`]: what the address is instead; of a word where no object starts it takes that
    /// one did.
    fn marked<M: Machine>(
        &self,
        env: Env<'_, M>,
        pfn: Pfn,
        object: NonNull<u8>,
        kfree: bool,
    ) -> Result<(Owners, Mark), FreeError> {
        let owners = Owners::of(env.pages(), pfn).ok_or(FreeError::Foreign)?;
        let offset = Self::offset(env, object);
        let starts = offset.is_multiple_of(WORD_BYTES);
        let mark = if starts {
            owners.get(offset)
        } else {
            Mark::NONE
        };
        if mark.is_deferred() {
            return Err(FreeError::DoubleFree);
        }
        if mark != Mark::NONE {
            let mine = mark.id() == self.id && (mark.has_header() || !kfree);
            return match mine {
                true => Ok((owners, mark)),
                false => Err(FreeError::WrongCache),
            };
        }
        match starts {
            true => Err(FreeError::DoubleFree),
            false => Err(FreeError::NotAnObject),
        }
    }

    /// The lock is re-entered: leaves the object to the next holder. Returns the bytes of its
    /// block.
    #[cold]
    fn defer<M: Machine>(
        &self,
        env: Env<'_, M>,
        pfn: Pfn,
        object: NonNull<u8>,
        kfree: bool,
    ) -> Result<u32, FreeError> {
        let offset = Self::offset(env, object);
        let (owners, mark) = self.marked(env, pfn, object, kfree)?;
        let block = self.block_of(env, object, mark)?;
        if !owners.defer(offset, mark) {
            return Err(FreeError::DoubleFree);
        }
        self.shared().push_deferred(env, pfn);
        env.cache.shared_stats.count(Stat::FreeDeferred);
        Ok(block.bytes)
    }

    /// Frees an object that has pages of its own.
    fn free_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        first: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let map = env.map();
        let page = map.page(first);
        if map.owner(first) != env.cache.id() {
            return Err(FreeError::WrongCache);
        }
        if object != map.address(first) {
            return Err(FreeError::NotAnObject);
        }
        let order = page.order();
        if !page.claim_kind(PageKind::Slab, PageKind::Owned, order) {
            return Err(FreeError::DoubleFree);
        }
        self.runs[order as usize].fetch_sub(1, Ordering::Relaxed);
        env.cache.shared_stats.count(Stat::FreeSlab);
        give_pages_back(env, first, PageKind::Owned);
        Ok(())
    }
}
