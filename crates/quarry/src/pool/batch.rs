//! Frames that are taken and given back together.

use core::slice;

use quarry_core::machine::{Cpus as _, Memory as _};
use quarry_core::page::Pfn;
use quarry_core::pool::{Mapper, NoMapper, PageBatch, PoolError};
use quarry_host::HostMachine;
use quarry_host::values::give_values_to_pages;

use super::{Frame, PagePool, RawHostPool, address};

/// Up to [`BATCH_PAGES`](quarry_core::pool::BATCH_PAGES) frames of a pool, which come and go at about
/// the cost of one; what is left when it is dropped goes back, on whichever thread that is.
///
/// # Examples
///
/// ```
/// use quarry::{Builder, PagePool, PoolParams, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
/// let mut pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
/// let mut burst = pool.batch();
/// assert_eq!(pool.fill_batch(&mut burst, 32)?, 32);
/// burst.frames_mut().for_each(|frame| frame.fill(1));
/// // One of them goes its own way, as another thread would give it back.
/// let frame = burst.pop().unwrap();
/// assert_eq!(frame[4095], 1);
/// drop(frame);
/// pool.recycle_batch(&mut burst);
/// assert!(burst.is_empty());
/// assert_eq!((pool.stats().ring, pool.stats().cached), (1, 31));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FrameBatch<H: Mapper = NoMapper> {
    batch: PageBatch<'static, HostMachine, H>,
}

impl<H: Mapper> FrameBatch<H> {
    /// The pool, which is there as long as there are frames.
    fn pool(&self) -> Option<RawHostPool<H>> {
        // SAFETY: the batch's pages are in flight.
        (!self.is_empty()).then(|| unsafe { self.batch.pool().raw() })
    }

    /// Numbers of the frames' first pages.
    #[inline]
    #[must_use]
    pub fn pages(&self) -> &[Pfn] {
        self.batch.pages()
    }

    /// Frames in it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// True if it has no frames.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// The frames' memory.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.pool().into_iter().flat_map(|pool| {
            // SAFETY: the batch's pages are in flight.
            let bytes = unsafe { pool.block_bytes() };
            self.pages().iter().map(move |&pfn| {
                let start = address(pool.pages(), pfn).as_ptr();
                // SAFETY: the block is mapped as long as the process and only this batch's; its bytes have values since
                // `fill_batch` added it.
                unsafe { slice::from_raw_parts(start, bytes) }
            })
        })
    }

    /// The frames' memory, to be written.
    pub fn frames_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let this = &*self;
        this.pool().into_iter().flat_map(move |pool| {
            // SAFETY: the batch's pages are in flight.
            let bytes = unsafe { pool.block_bytes() };
            this.pages().iter().map(move |&pfn| {
                let start = address(pool.pages(), pfn).as_ptr();
                // SAFETY: the block is mapped, as long as its process; it is only this batch's, which
                // is borrowed mutably, and in it once.
                unsafe { slice::from_raw_parts_mut(start, bytes) }
            })
        })
    }

    /// Takes a frame out.
    pub fn pop(&mut self) -> Option<Frame<H>> {
        let pool = self.batch.pool();
        let pages = self.pool()?.pages();
        let pfn = self.batch.pop()?;
        let start = address(pages, pfn);
        Some(Frame { pool, start })
    }

    /// Puts all frames, as dropping them one by one would.
    pub fn put(&mut self) {
        self.batch.put();
    }
}

impl<H: Mapper> std::fmt::Debug for FrameBatch<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameBatch({} frames)", self.len())
    }
}

impl<H: Mapper> PagePool<H> {
    /// A batch without frames, to be filled by [`PagePool::fill_batch`].
    #[must_use]
    pub fn batch(&self) -> FrameBatch<H> {
        FrameBatch {
            batch: self.owner.pool().batch(),
        }
    }

    /// Adds up to `frames` frames to a batch that has room for them. Returns the number of added ones: fewer if
    /// memory is exhausted. They hold whatever they held before.
    ///
    /// # Errors
    ///
    /// [`PoolError::NotOfPool`] if the batch has frames of another pool.
    #[inline]
    #[track_caller]
    pub fn fill_batch(
        &mut self,
        batch: &mut FrameBatch<H>,
        frames: usize,
    ) -> Result<usize, PoolError> {
        let added = self.owner.fill_batch(&mut batch.batch, frames)?;
        let (machine, bytes) = (self.pages().machine(), self.frame_bytes());
        let memory = machine.ranges().pages.base;
        let page_shift = machine.topology().page_shift;
        // SAFETY: the pages are in flight, and the batch is their only owner. That of earlier calls have values, which
        // stay.
        unsafe { give_values_to_pages(memory, batch.pages(), page_shift, bytes) };
        Ok(added)
    }

    /// Takes the frames of a batch back without the ring, as [`PagePool::recycle`] does each. Another
    /// pool's go home as if they were dropped.
    #[inline]
    pub fn recycle_batch(&mut self, batch: &mut FrameBatch<H>) {
        if self.owner.put_batch(&mut batch.batch).is_err() {
            batch.put();
        }
    }
}
