//! Batches: pages that go out and come home together, with one look at the first of them.
//!
//! A page number is a name that any code can copy, so each put of one has to be compared with the page's
//! descriptor. A batch cannot be copied: its pages need no look. Their descriptors say what they said in the
//! alloc cache, that the pages are home, so a put by number is refused; the first page's stands for all, and
//! has the call site and CPU that they were handed out to, and their number.

use core::fmt;

use super::map::Mapper;
use super::rules::REFILL_PAGES;
use super::stats::{count, count_by};
use super::types::{CACHE_PAGES, PoolError, PoolState};
use super::{PagePool, PoolOwner, RawPool, ThinPool};
use crate::debug::CallSite;
use crate::machine::Machine;
use crate::page::Pfn;
use crate::sync::Ordering;

/// Most pages of a batch.
pub const BATCH_PAGES: usize = REFILL_PAGES;
const _: () = assert!(BATCH_PAGES <= CACHE_PAGES);

/// Up to [`BATCH_PAGES`] pages of a pool in flight, its holder's alone.
///
/// Dropped, it puts its pages as [`PagePool::put_batch`] does. A page that is to have other users or
/// to be put by its number is taken out with [`PageBatch::pop`].
///
/// ```
/// # use quarry_core::machine::Machine;
/// # use quarry_core::pool::{PagePool, PoolOwner};
/// fn receive<'p, M: Machine>(owner: &mut PoolOwner<'p, M>, pool: &PagePool<'p, M>) {
///     let mut batch = pool.batch();
///     owner.fill_batch(&mut batch, 32).unwrap();
///     for &pfn in batch.pages() {
///         // The page is this batch's.
///         assert!(unsafe { pool.put(pfn) }.is_err());
///     }
///     if let Some(pfn) = batch.pop() {
///         // SAFETY: no other code knows the page.
///         unsafe { pool.put(pfn) }.unwrap();
///     }
///     owner.put_batch(&mut batch).unwrap();
///     assert!(batch.is_empty());
/// }
/// ```
pub struct PageBatch<'p, M: Machine, H: Mapper = super::NoMapper> {
    pool: RawPool<'p, M, H>,
    len: usize,
    /// The first `len` are filled; of these the last goes first.
    pages: [Pfn; BATCH_PAGES],
}

impl<'p, M: Machine, H: Mapper> PageBatch<'p, M, H> {
    /// Its pages, or the first pages of its blocks.
    #[inline(always)]
    #[must_use]
    pub fn pages(&self) -> &[Pfn] {
        &self.pages[..self.len]
    }

    /// Pages in it.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no pages.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pool; [`ThinPool::raw`] asks for a page in it, or a handle.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> ThinPool<'p, M, H> {
        self.pool.thin()
    }

    /// Puts the pages back as [`PagePool::put_batch`] does. The batch is empty then.
    #[inline]
    pub fn put(&mut self) {
        if self.len > 0 {
            self.put_all();
        }
    }

    /// Takes a page out, which is then in flight by itself, as if it had been allocated alone.
    pub fn pop(&mut self) -> Option<Pfn> {
        let (&pfn, rest) = self.pages().split_last()?;
        let map = self.pool.pages.map_on();
        let page = map.page_to_write(pfn);
        if let Some(&first) = rest.first() {
            let first = map.page_to_write(first);
            let receipt = first.word.load(Ordering::Relaxed);
            page.word.store(receipt, Ordering::Relaxed);
            first.set_stamp(rest.len() as u64);
        }
        self.len = rest.len();
        // There was a page in flight until now, so the pool is there (I4).
        self.pool.body().set_state(page, PoolState::InFlight);
        Some(pfn)
    }

    /// Puts the pages into a lane, the ring or out of the pool; there are none afterwards. Nothing
    /// of the pool may be touched after it, but for those who have a handle.
    #[inline]
    fn put_all(&mut self) {
        self.close();
        self.place();
    }

    /// [`PageBatch::put_all`] after [`PageBatch::close`].
    #[inline]
    fn place(&mut self) {
        // At once, as the mapper may panic when some of the pages are home.
        let len = core::mem::take(&mut self.len);
        let placed = self.pool.place(&self.pages[..len]);
        debug_assert!(placed.is_ok(), "{placed:?}");
    }

    /// Makes the pages such as those in the alloc cache are.
    #[inline(always)]
    fn close(&self) {
        let Some(&first) = self.pages().first() else {
            return;
        };
        let map = self.pool.pages.map_on();
        let page = map.page_to_write(first);
        // There are pages in flight, so the pool is there (I4).
        self.pool.body().set_state(page, PoolState::InPool);
        if H::MAPS {
            for &pfn in self.pages() {
                self.pool.sync_for_device(map.page(pfn), u32::MAX);
            }
        }
    }
}

impl<M: Machine, H: Mapper> Drop for PageBatch<'_, M, H> {
    #[inline]
    fn drop(&mut self) {
        self.put();
    }
}

impl<M: Machine, H: Mapper> fmt::Debug for PageBatch<'_, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBatch")
            .field("pages", &self.pages())
            .finish_non_exhaustive()
    }
}

impl<'p, M: Machine, H: Mapper> PoolOwner<'p, M, H> {
    /// Adds blocks of the pool's order to a batch, up to `pages` and to its room. Returns the number added:
    /// less if memory is exhausted. Each counts as an allocation; the count of pages in flight has the whole
    /// batch from the call that began it on.
    ///
    /// # Errors
    ///
    /// [`PoolError::NotOfPool`] if the batch has pages of another pool.
    #[inline]
    #[track_caller]
    pub fn fill_batch(
        &mut self,
        batch: &mut PageBatch<'p, M, H>,
        pages: usize,
    ) -> Result<usize, PoolError> {
        self.fill_batch_at(batch, pages, CallSite::caller())
    }

    /// [`PoolOwner::fill_batch`] for the given call site.
    ///
    /// # Errors
    ///
    /// As [`PoolOwner::fill_batch`].
    #[inline(always)]
    pub fn fill_batch_at(
        &mut self,
        batch: &mut PageBatch<'p, M, H>,
        pages: usize,
        site: CallSite,
    ) -> Result<usize, PoolError> {
        self.pool.check_batch(batch)?;
        let receipt = self.receipt(site);
        let raw = self.pool.raw();
        batch.pool = raw;
        self.touch_cache();
        let before = batch.len;
        let wanted = pages.min(BATCH_PAGES - before);
        self.move_to(batch, before + wanted);
        if batch.len < before + wanted {
            self.fill_slowly(batch, before + wanted);
        }
        let added = batch.len - before;
        let Some(&first) = batch.pages().first() else {
            return Ok(0);
        };
        let body = raw.body();
        let clock = body.owner.clock.load(Ordering::Relaxed);
        let now = clock + added as u64;
        body.owner.clock.store(now, Ordering::Relaxed);
        let page = raw.pages.map_on().page_to_write(first);
        page.set_stamp(batch.len as u64);
        if before == 0 {
            let receipt = receipt.stamped(clock + 1).0;
            page.word.store(receipt, Ordering::Relaxed);
            body.set_state(page, PoolState::InBatch);
        }
        Ok(added)
    }

    /// Fills a batch by the slow paths.
    #[cold]
    #[inline(never)]
    fn fill_slowly(&mut self, batch: &mut PageBatch<'p, M, H>, wanted: usize) {
        let raw = self.pool.raw();
        while batch.len < wanted {
            let Some(way) = self.fill(&raw) else { break };
            count(way);
            self.move_to(batch, wanted);
        }
    }

    /// Moves pages of the alloc cache into a batch until it has `wanted`.
    #[inline(always)]
    fn move_to(&mut self, batch: &mut PageBatch<'p, M, H>, wanted: usize) {
        let room = &mut batch.pages[batch.len..wanted];
        let mut stack = self.cache.open(&self.pool.body().owner.cached);
        batch.len += copy(stack.take(room.len()), room);
    }

    /// Puts the pages of a batch back: into the alloc cache up to its room, the rest as [`PagePool::put_batch`]
    /// does. The batch is empty then.
    ///
    /// # Errors
    ///
    /// [`PoolError::NotOfPool`] if they are another pool's; nothing has changed then.
    #[inline(always)]
    pub fn put_batch(&mut self, batch: &mut PageBatch<'p, M, H>) -> Result<(), PoolError> {
        self.pool.check_batch(batch)?;
        self.touch_cache();
        batch.close();
        let owner = &self.pool.body().owner;
        let mut stack = self.cache.open(&owner.cached);
        let room = stack.room();
        let rest = batch.len - batch.len.min(room.len());
        let direct = copy(&batch.pages()[rest..], room);
        batch.len = rest;
        stack.grow(direct);
        drop(stack);
        if rest > 0 {
            self.put_rest(batch);
        }
        Ok(())
    }

    /// Puts what the alloc cache had no room for.
    #[cold]
    #[inline(never)]
    fn put_rest(&self, batch: &mut PageBatch<'p, M, H>) {
        let cache_full = &self.pool.body().owner.stats.cache_full;
        count_by(cache_full, batch.len as u64);
        batch.place();
    }
}

impl<'p, M: Machine, H: Mapper> PagePool<'p, M, H> {
    /// A batch without pages, to be filled by [`PoolOwner::fill_batch`].
    #[inline]
    #[must_use]
    pub fn batch(&self) -> PageBatch<'p, M, H> {
        PageBatch {
            pool: self.raw(),
            len: 0,
            pages: [Pfn(0); BATCH_PAGES],
        }
    }

    /// Puts the pages of a batch back from anywhere: into the running CPU's lane or the ring, with one
    /// hold of it or reservation of its slots, else out of the pool. The batch is empty then.
    ///
    /// # Errors
    ///
    /// [`PoolError::NotOfPool`] if they are another pool's; nothing has changed then.
    #[inline]
    pub fn put_batch(&self, batch: &mut PageBatch<'p, M, H>) -> Result<(), PoolError> {
        self.check_batch(batch)?;
        batch.put();
        Ok(())
    }

    #[inline(always)]
    fn check_batch(&self, batch: &PageBatch<'p, M, H>) -> Result<(), PoolError> {
        match batch.pages().first() {
            Some(&first) if batch.pool != self.raw() => Err(PoolError::NotOfPool(first)),
            _ => Ok(()),
        }
    }
}

/// Copies pages of a batch until either end is reached, and returns their number.
///
/// The same number of pages is always copied in the same pieces. A load waits if it needs what several
/// stores have just written. So what came in by narrow stores must not go out by wide loads.
#[inline(always)]
fn copy(from: &[Pfn], to: &mut [Pfn]) -> usize {
    let count = from.len().min(to.len());
    let rest = (&from[..count], &mut to[..count]);
    let rest = copy_piece::<32>(rest);
    let rest = copy_piece::<32>(rest);
    let rest = copy_piece::<16>(rest);
    let rest = copy_piece::<8>(rest);
    let rest = copy_piece::<4>(rest);
    let rest = copy_piece::<2>(rest);
    let (rest, _) = copy_piece::<1>(rest);
    const { assert!(BATCH_PAGES <= 32 + 32) };
    debug_assert!(rest.is_empty());
    count
}

/// Copies the first `N` pages if there are at least `N`; returns those that are left.
#[inline(always)]
fn copy_piece<'f, 't, const N: usize>(
    (from, to): (&'f [Pfn], &'t mut [Pfn]),
) -> (&'f [Pfn], &'t mut [Pfn]) {
    let (Some((piece, from)), true) = (from.split_first_chunk::<N>(), to.len() >= N) else {
        return (from, to);
    };
    let (room, to) = to.split_at_mut(N);
    room.copy_from_slice(piece);
    (from, to)
}
