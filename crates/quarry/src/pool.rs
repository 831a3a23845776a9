//! Page pools on this process's own memory.

mod batch;
mod buffer;

pub use batch::FrameBatch;
pub use buffer::Buffer;

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use quarry_core::debug::CallSite;
use quarry_core::era::Era;
use quarry_core::machine::Memory as _;
use quarry_core::page::{PageAllocator, Pfn};
use quarry_core::pool::{
    InFlightReport, Mapper, NoMapper, Pending, PieceError, PoolCreateError, PoolOwner, PoolParams,
    PoolStats, RawPool, ThinPool,
};
use quarry_host::HostMachine;
use quarry_host::values::give_values;

type RawHostPool<H> = RawPool<'static, HostMachine, H>;

/// A pool of pages: one thread allocates, all threads give back.
///
/// The pool belongs to who allocates from it, and can be moved to another thread but not shared.
/// Its [`Frame`]s go anywhere: dropped, they come back through the pool's ring;
/// [`PagePool::recycle`] takes them back without one.
///
/// # Examples
///
/// ```
/// use quarry::{Builder, PagePool, PoolParams, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
/// let params = PoolParams { name: "rx0", pool_size: 256, ..PoolParams::default() };
/// let mut pool = PagePool::new(heap.pages(), heap.era(), &params)?;
///
/// let mut packet = pool.alloc().ok_or("out of memory")?;
/// packet[..5].copy_from_slice(b"hello");
/// // Consumed on another thread, the page returns through the ring.
/// std::thread::spawn(move || assert_eq!(&packet[..5], b"hello"))
///     .join()
///     .map_err(|_| "the consumer failed")?;
/// assert_eq!(pool.stats().ring, 1);
///
/// let packet = pool.alloc().ok_or("out of memory")?;
/// pool.recycle(packet);
/// assert_eq!(pool.stats().cached, 1);
/// assert!(format!("{pool:?}").starts_with("PagePool { name: \"rx0\", frame_bytes: 4096, inflight: 0,"));
///
/// // A pool with pages in flight says who has them, and goes when the last one comes home.
/// let kept = pool.alloc().ok_or("out of memory")?;
/// let pending = pool.destroy().err().ok_or("a page is in flight")?;
/// assert!(pending.to_string().starts_with("page pool rx0 was destroyed with 1 pages in flight"));
/// drop(kept);
/// assert!(pending.finish().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PagePool<H: Mapper = NoMapper> {
    owner: PoolOwner<'static, HostMachine, H>,
    not_sync: PhantomData<Cell<()>>,
}

impl PagePool {
    /// Makes a pool whose pages are not mapped for a device or another process.
    ///
    /// # Errors
    ///
    /// [`PoolCreateError`]: a parameter is beyond its limit. Of 6.18 and later a ring has 16,384 pages at most, of older
    /// kernels 32,768; a `pool_size` above is refused, not cut.
    ///
    /// ```
    /// use quarry::{HostHeap, PagePool, PoolParams};
    ///
    /// let heap = HostHeap::new()?.leak();
    /// let params = PoolParams { pool_size: 16_385, ..PoolParams::default() };
    /// let refused = PagePool::new(heap.pages(), heap.era(), &params).err().ok_or("a pool")?;
    /// assert_eq!(refused.to_string(), "pool_size is 16385: this era's rings hold at most 16384 pages");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        pages: &'static PageAllocator<HostMachine>,
        era: Era,
        params: &PoolParams<'_>,
    ) -> Result<Self, PoolCreateError> {
        Self::new_mapped(pages, era, params, NoMapper)
    }
}

impl<H: Mapper> PagePool<H> {
    /// Makes a pool whose pages `mapper` maps while they are in it or in flight.
    ///
    /// # Errors
    ///
    /// As [`PagePool::new`].
    pub fn new_mapped(
        pages: &'static PageAllocator<HostMachine>,
        era: Era,
        params: &PoolParams<'_>,
        mapper: H,
    ) -> Result<Self, PoolCreateError> {
        params.check_size(era)?;
        Ok(Self {
            owner: PoolOwner::create_mapped(pages, era, params, mapper)?,
            not_sync: PhantomData,
        })
    }

    /// Allocates a frame: a block of the pool's order, which holds whatever it held before. `None`
    /// when memory is exhausted.
    #[inline]
    #[track_caller]
    pub fn alloc(&mut self) -> Option<Frame<H>> {
        let pfn = self.owner.alloc()?;
        // SAFETY: the page was handed out just now and has no other owner.
        Some(unsafe { self.from_raw(pfn) })
    }

    /// Takes a frame back without the ring (`page_pool_recycle_direct()`); one of another pool goes
    /// to its own.
    #[inline]
    pub fn recycle(&mut self, frame: Frame<H>) {
        self.recycle_used(frame, u32::MAX);
    }

    /// [`PagePool::recycle`] of a frame whose first `used` bytes may have been written since it was
    /// handed out.
    #[inline]
    pub fn recycle_used(&mut self, frame: Frame<H>, used: u32) {
        if !self.owns(&frame) {
            return drop_elsewhere(frame);
        }
        let frame = ManuallyDrop::new(frame);
        // SAFETY: only its frame, which is used no more, puts a page.
        if unsafe { self.owner.put_used(frame.pfn(), used) }.is_err() {
            drop_elsewhere(ManuallyDrop::into_inner(frame));
        }
    }

    /// Fills the n empty slots of an array, as n calls of [`PagePool::alloc`] would, at less than
    /// their cost. Slots that are filled already are skipped. Returns the number of filled slots
    /// before the first empty one: less than the array's length if memory is exhausted.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Builder, Frame, PagePool, PoolParams, Slub};
    ///
    /// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
    /// let mut pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
    /// let mut burst = [const { None }; 32];
    /// assert_eq!(pool.alloc_bulk(&mut burst), 32);
    /// // Half of it through the ring, as another thread would, the rest without.
    /// Frame::put_bulk(&mut burst[..16]);
    /// pool.recycle_bulk(&mut burst);
    /// assert!(burst.iter().all(Option::is_none));
    /// assert_eq!((pool.stats().ring, pool.stats().cached), (16, 16));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn alloc_bulk(&mut self, frames: &mut [Option<Frame<H>>]) -> usize {
        let pages = self.pages();
        let pool = self.owner.pool().raw().thin();
        let bytes = self.frame_bytes();
        let fill = |slot: &mut Option<Frame<H>>, pfn| {
            let start = address(pages, pfn);
            // SAFETY: the block was handed out just now and has no other owner.
            unsafe { give_values(start, bytes) };
            *slot = Some(Frame { pool, start });
        };
        let site = CallSite::caller();
        self.owner
            .alloc_bulk_as(frames, site, Option::is_none, fill)
    }

    /// Takes the frames of all filled slots back without the ring, as [`PagePool::recycle`] does
    /// each, and empties the slots.
    pub fn recycle_bulk(&mut self, frames: &mut [Option<Frame<H>>]) {
        let pool = self.owner.pool().raw().thin();
        // SAFETY: only their frames, which are used no more, put the pages.
        let put = unsafe { self.owner.put_bulk_as(frames, page_of(pool), forget) };
        debug_assert!(put.is_ok(), "{put:?}");
        Frame::put_bulk(frames);
    }

    /// Allocates part of a page that other parts of may be in use ([`Era::V6_1`] and later).
    ///
    /// # Errors
    ///
    /// [`PieceError`].
    #[track_caller]
    pub fn alloc_fragment(&mut self, bytes: u32) -> Result<Fragment<H>, PieceError> {
        let piece = self.owner.alloc_piece(bytes)?;
        let pool = self.owner.pool();
        let page = address(pool.pages(), piece.pfn);
        // SAFETY: the allocator cuts pieces inside their blocks, so the offset is below the block's bytes.
        let start = unsafe { page.byte_add(piece.offset as usize) };
        // SAFETY: the piece was handed out just now and has no other owner; pieces do not overlap.
        unsafe { give_values(start, piece.bytes as usize) };
        Ok(Fragment {
            raw: pool.raw(),
            pfn: piece.pfn,
            offset: piece.offset,
            memory: NonNull::slice_from_raw_parts(start, piece.bytes as usize),
        })
    }

    /// A frame from its page number.
    ///
    /// # Safety
    ///
    /// [`Frame::into_raw`] of a frame of this pool returned the number, and it has not been made a
    /// frame since.
    #[inline]
    #[allow(
        clippy::wrong_self_convention,
        reason = "the pool makes it, as Vec's does of parts"
    )]
    pub unsafe fn from_raw(&self, pfn: Pfn) -> Frame<H> {
        let pool = self.owner.pool();
        let start = address(pool.pages(), pfn);
        // SAFETY: by the caller's contract the block is in flight and has no other owner.
        unsafe { give_values(start, pool.block_bytes()) };
        Frame {
            pool: pool.raw().thin(),
            start,
        }
    }

    /// The page allocator below.
    #[must_use]
    pub fn pages(&self) -> &'static PageAllocator<HostMachine> {
        self.owner.pool().pages()
    }

    /// First byte and length of the memory that has all frames: the page of number n begins n
    /// pages from the first byte.
    #[must_use]
    pub fn memory(&self) -> NonNull<[u8]> {
        let range = self.pages().machine().ranges().pages;
        NonNull::slice_from_raw_parts(range.base, range.bytes)
    }

    /// Bytes of a frame.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.owner.pool().block_bytes()
    }

    /// The mapping of a frame of this pool; `None` for another pool's frame.
    #[must_use]
    pub fn mapping_of(&self, frame: &Frame<H>) -> Option<u64> {
        self.owns(frame)
            .then(|| self.owner.pool().mapping_of(frame.pfn()))?
    }

    /// True if a frame is this pool's. Its page does not say so: heaps number theirs alike.
    #[inline(always)]
    fn owns(&self, frame: &Frame<H>) -> bool {
        frame.pool == self.owner.pool().raw().thin()
    }

    /// Counters; exact if no code uses the pool at this moment.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.owner.pool().stats()
    }

    /// Returns the holders of the pool's pages. Costs time proportional to the pages that the heap ever used.
    #[must_use]
    pub fn in_flight_report(&self) -> InFlightReport {
        self.owner.pool().in_flight_report()
    }

    /// Gives all pages back, and the pool with them.
    ///
    /// # Errors
    ///
    /// [`PendingPool`] while frames are in flight; the pool goes by itself when the last one is
    /// dropped.
    pub fn destroy(self) -> Result<(), PendingPool<H>> {
        self.owner.destroy().map_err(PendingPool)
    }
}

impl<H: Mapper> std::fmt::Debug for PagePool<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = self.stats();
        f.debug_struct("PagePool")
            .field("name", &self.owner.pool().name())
            .field("frame_bytes", &self.frame_bytes())
            .field("inflight", &stats.inflight)
            .field("pages_cached", &stats.pages_cached)
            .field("pages_ring", &stats.pages_ring)
            .finish_non_exhaustive()
    }
}

/// Returns the page of a slot's frame if it is of this pool.
fn page_of<H: Mapper>(
    pool: ThinPool<'static, HostMachine, H>,
) -> impl Fn(&Option<Frame<H>>) -> Option<Pfn> {
    move |slot| {
        let frame = slot.as_ref().filter(|frame| frame.pool == pool);
        frame.map(Frame::pfn)
    }
}

/// Empties the slot of a frame that was put.
#[inline(always)]
fn forget<H: Mapper>(slot: &mut Option<Frame<H>>) {
    std::mem::forget(slot.take());
}

/// Out of line, for it is rare.
#[cold]
#[inline(never)]
fn drop_elsewhere<H: Mapper>(frame: Frame<H>) {
    drop(frame);
}

fn address(pages: &PageAllocator<HostMachine>, pfn: Pfn) -> NonNull<u8> {
    pages
        .address(pfn)
        .expect("pages of a pool are the machine's")
}

/// A page pool that was destroyed while frames were in flight.
pub struct PendingPool<H: Mapper>(Pending<'static, HostMachine, H>);

impl<H: Mapper> PendingPool<H> {
    /// Looks again.
    ///
    /// # Errors
    ///
    /// Itself, while frames are in flight.
    pub fn finish(self) -> Result<(), Self> {
        self.0.finish().map_err(Self)
    }

    /// Returns the holders of the pool's pages.
    #[must_use]
    pub fn report(&self) -> InFlightReport {
        self.0.report()
    }
}

impl<H: Mapper> std::fmt::Display for PendingPool<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<H: Mapper> std::fmt::Debug for PendingPool<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl<H: Mapper> std::error::Error for PendingPool<H> {}

/// A block of pages of a [`PagePool`]; goes back when dropped, on whichever thread that is.
///
/// It is two words, which are passed in registers.
///
/// It derefs to its bytes, which are whatever the last owner of the memory left there, or zero. The
/// next owner can read a secret that was in it, unless an owner overwrites it first.
///
/// Every byte has a value: the memory is the system's zeros or what was stored since, and a frame is made with
/// [`give_values`], whose module has the argument for bytes that a former owner left without one by the rules of the
/// language.
pub struct Frame<H: Mapper = NoMapper> {
    pool: ThinPool<'static, HostMachine, H>,
    /// First byte of the block.
    start: NonNull<u8>,
}

// SAFETY: a frame is the only way to its memory, as a boxed slice is: the pool hands a page out
// once; the page allocator refuses to free pages of pools; holders of counted references have no
// safe access to memory. Dropping it uses the pool from the thread that it is on, which asks of
// the mapper that threads may share it.
unsafe impl<H: Mapper + Send + Sync> Send for Frame<H> {}
// SAFETY: a shared frame gives shared access to bytes.
unsafe impl<H: Mapper + Send + Sync> Sync for Frame<H> {}

impl<H: Mapper> Frame<H> {
    #[inline(always)]
    fn raw(&self) -> RawHostPool<H> {
        // SAFETY: the frame's page is in flight, and a pool stays until its last page in flight comes home.
        unsafe { self.pool.raw() }
    }

    /// Number of its first page.
    #[inline]
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        let pfn = self.raw().pages().pfn_of(self.start);
        pfn.expect("pages of a pool are the machine's")
    }

    #[inline(always)]
    pub(crate) fn memory(&self) -> NonNull<[u8]> {
        // SAFETY: the frame's page is in flight, so its pool exists (a pool stays until its last page in flight comes home).
        let bytes = unsafe { self.raw().block_bytes() };
        NonNull::slice_from_raw_parts(self.start, bytes)
    }

    /// Gives the frame up without putting it back, for hardware or a kernel that fills it;
    /// [`PagePool::from_raw`] makes it a frame again. The pool counts it as in flight meanwhile.
    #[must_use]
    pub fn into_raw(self) -> Pfn {
        ManuallyDrop::new(self).pfn()
    }

    /// Puts it back; the first `used` bytes may have been written since it was handed out.
    pub fn put_used(self, used: u32) {
        ManuallyDrop::new(self).put(used);
    }

    /// Puts the frames of all filled slots, as dropping them one by one would, at less than the cost,
    /// and empties the slots.
    pub fn put_bulk(frames: &mut [Option<Self>]) {
        while let Some((pool, raw)) = frames.iter().flatten().next().map(|f| (f.pool, f.raw())) {
            // SAFETY: the pages are in flight, each once, and only their frames, which are used no
            // more, put them.
            let put = unsafe { raw.put_bulk_as(frames, page_of(pool), forget) };
            debug_assert!(put.is_ok(), "{put:?}");
            if put.is_err() {
                return frames.iter_mut().for_each(|slot| drop(slot.take()));
            }
        }
    }

    #[inline]
    fn put(&mut self, used: u32) {
        // SAFETY: the frame's page is in flight, and only its frame, which is used no more, puts it.
        let put = unsafe { self.raw().put(self.pfn(), used) };
        debug_assert!(put.is_ok(), "{put:?}");
    }
}

impl<H: Mapper> Deref for Frame<H> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is mapped as long as the process and only this frame's; its bytes have values since the frame
        // was made (`give_values`).
        unsafe { self.memory().as_ref() }
    }
}

impl<H: Mapper> DerefMut for Frame<H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the frame is borrowed mutably, so nothing else reads or writes the block.
        unsafe { self.memory().as_mut() }
    }
}

impl<H: Mapper> Drop for Frame<H> {
    #[inline]
    fn drop(&mut self) {
        self.put(u32::MAX);
    }
}

impl<H: Mapper> std::fmt::Debug for Frame<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame(page {}, {} bytes)", self.pfn().0, self.len())
    }
}

/// Part of a page of a [`PagePool`]; the page goes back when the last of its parts is dropped.
///
/// # Examples
///
/// ```
/// use quarry::{Builder, PagePool, PoolParams, Slub};
///
/// let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build()?.leak();
/// let mut pool = PagePool::new(heap.pages(), heap.era(), &PoolParams::default())?;
/// let mut first = pool.alloc_fragment(1920)?;
/// let second = pool.alloc_fragment(1920)?;
/// first.fill(1);
/// assert_eq!(second.len(), 1920);
/// assert_eq!(pool.stats().inflight, 1, "both are in one page");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fragment<H: Mapper = NoMapper> {
    raw: RawHostPool<H>,
    pfn: Pfn,
    offset: u32,
    memory: NonNull<[u8]>,
}

// SAFETY: as for `Frame`; pieces of a page do not overlap.
unsafe impl<H: Mapper + Send + Sync> Send for Fragment<H> {}
// SAFETY: as for `Frame`.
unsafe impl<H: Mapper + Send + Sync> Sync for Fragment<H> {}

impl<H: Mapper> Fragment<H> {
    /// Number of the first page of its block.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Offset of its first byte in that block.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    pub(crate) fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }
}

impl<H: Mapper> Deref for Fragment<H> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the piece is mapped as long as the process and only this fragment's; its bytes have values since the
        // fragment was made (`give_values`).
        unsafe { self.memory.as_ref() }
    }
}

impl<H: Mapper> DerefMut for Fragment<H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the fragment is borrowed mutably, so nothing else reads or writes the piece.
        unsafe { self.memory.as_mut() }
    }
}

impl<H: Mapper> Drop for Fragment<H> {
    fn drop(&mut self) {
        // SAFETY: the piece is in use, and only its fragment puts it.
        let put = unsafe { self.raw.put_piece(self.pfn, self.offset) };
        debug_assert!(put.is_ok(), "{put:?}");
    }
}

impl<H: Mapper> std::fmt::Debug for Fragment<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (pfn, offset, bytes) = (self.pfn.0, self.offset, self.memory.len());
        write!(f, "Fragment(page {pfn}, {bytes} bytes at {offset})")
    }
}
