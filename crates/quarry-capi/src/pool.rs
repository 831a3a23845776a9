//! Page pools: `page_pool_*`.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt::{Display, Write as _};
use core::ptr::{NonNull, null_mut};

use quarry::kernel::machine::NodeId;
use quarry::kernel::pool::{PagePool, Pending, PoolOwner};
use quarry::{Caller, HostMachine, InFlightReport, NoMapper, Pfn, PoolCreateError, PoolParams};

use crate::gfp::{gfp_t, known, zeroes};
use crate::text::{Buffer, report};
use crate::{failed, heap, null, set_errno, site};

/// The node of the CPU that the owner runs on.
pub const NUMA_NO_NODE: c_int = -1;

/// Parameters of a new pool.
#[repr(C)]
pub struct page_pool_params {
    /// Names it in reports; 16 bytes are kept. NULL for no name.
    pub name: *const c_char,
    /// Its frames have 2^order pages; 10 is the largest order.
    pub order: c_uint,
    /// Frames that it can hold, 16384 at most: those that its owner keeps in use. 0 for the kernel's default, 1024.
    pub pool_size: c_uint,
    /// Node whose pages are preferred, or NUMA_NO_NODE.
    pub nid: c_int,
}

/// Counters of a pool by the kernel's names.
#[derive(Default)]
#[repr(C)]
pub struct page_pool_stats {
    /// Allocations from the owner's stack.
    pub fast: u64,
    /// Slow allocations of order 0: calls of the page allocator.
    pub slow: u64,
    /// Slow allocations of a higher order.
    pub slow_high_order: u64,
    /// Allocations that found the ring empty.
    pub empty: u64,
    /// Allocations that refilled the stack from the ring.
    pub refill: u64,
    /// Frames that a refill released, because they were on another node than the preferred.
    pub waive: u64,
    /// Frames put on the owner's stack.
    pub cached: u64,
    /// Frames that found it full.
    pub cache_full: u64,
    /// Frames put into the ring.
    pub ring: u64,
    /// Frames released because the ring was full.
    pub ring_full: u64,
    /// Frames released because they had other users.
    pub released_refcnt: u64,
    /// Frames that are handed out now.
    pub inflight: u64,
}

/// A pool of frames: one thread allocates, all threads give back.
pub struct page_pool {
    shared: PagePool<'static, HostMachine>,
    /// Only the owner's calls use it.
    owner: UnsafeCell<Owner>,
}

/// State of the owner's part.
#[allow(
    clippy::large_enum_variant,
    reason = "it is in memory of the heap already, and a pool has one"
)]
enum Owner {
    Open(PoolOwner<'static, HostMachine>),
    /// Destroyed while frames were in flight.
    Pending(Pending<'static, HostMachine, NoMapper>),
    /// In the middle of the change between these.
    Gone,
}

/// The pool behind a handle; `None`, with `EINVAL`, for null.
///
/// # Safety
///
/// Null, or a pool that `page_pool_create` returned and that is not destroyed as long as the result is used.
#[inline(always)]
unsafe fn pool_of<'a>(pool: *const page_pool) -> Option<&'a page_pool> {
    // SAFETY: the caller vouches for it.
    let pool = unsafe { pool.as_ref() };
    if pool.is_none() {
        set_errno(libc::EINVAL);
    }
    pool
}

impl page_pool {
    /// The owner's part.
    ///
    /// # Safety
    ///
    /// The caller is the owner: no other thread and no other reference uses this part as long as the result is used.
    #[allow(
        clippy::mut_from_ref,
        reason = "the caller vouches that it is the only one"
    )]
    #[inline(always)]
    unsafe fn owner(&self) -> &mut Owner {
        // SAFETY: the caller vouches that it is the only user.
        unsafe { &mut *self.owner.get() }
    }

    /// The first byte of a page's frame.
    #[inline(always)]
    fn address(&self, pfn: Pfn) -> *mut c_void {
        let address = self.shared.pages().address(pfn);
        address.map_or(null_mut(), |address| address.as_ptr().cast())
    }

    /// The page that begins at an address.
    #[inline(always)]
    fn page(&self, frame: *mut c_void) -> Option<Pfn> {
        let pages = self.shared.pages();
        let frame = NonNull::new(frame.cast::<u8>())?;
        let pfn = pages.pfn_of(frame)?;
        (pages.address(pfn) == Some(frame)).then_some(pfn)
    }

    /// Reports a frame that is not put.
    #[cold]
    fn refuse(&self, frame: *mut c_void, reason: &dyn Display) {
        let name = self.shared.name();
        report(format_args!(
            "page pool {name}: {frame:p} is not put: {reason}"
        ));
        set_errno(libc::EINVAL);
    }
}

/// A pool to allocate from; `None`, with `EINVAL`, for unknown flags, null, or a pool that was destroyed.
///
/// # Safety
///
/// As for [`pool_of`] and [`page_pool::owner`].
#[inline(always)]
unsafe fn open<'a>(
    pool: *mut page_pool,
    flags: gfp_t,
) -> Option<(&'a page_pool, &'a mut PoolOwner<'static, HostMachine>)> {
    // SAFETY: the caller vouches for the pool.
    let pool = unsafe { pool_of(pool) }.filter(|_| known(flags))?;
    // SAFETY: the caller vouches that it is the owner.
    match unsafe { pool.owner() } {
        Owner::Open(owner) => Some((pool, owner)),
        _ => {
            set_errno(libc::EINVAL);
            None
        }
    }
}

/// The functions or files of the code that holds frames, for the addresses in a report.
struct Code<'a>(&'a InFlightReport);

impl Display for Code<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut sites = self.0.holders().iter().map(|holder| holder.site);
        sites.try_for_each(|site| match site.address() {
            Some(address) => write!(f, "\n  code at {}", Caller::at(address as usize)),
            None => Ok(()),
        })
    }
}

/// Makes a pool. NULL and EINVAL for a wrong parameter, ENOMEM when memory is exhausted.
///
/// # Safety
///
/// The name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_create(params: *const page_pool_params) -> *mut page_pool {
    // SAFETY: the caller vouches for the parameters.
    let Some(params) = (unsafe { params.as_ref() }) else {
        return null(libc::EINVAL);
    };
    let name = match params.name.is_null() {
        true => "page_pool",
        // SAFETY: the caller vouches for the string.
        false => match unsafe { CStr::from_ptr(params.name) }.to_str() {
            Ok(name) => name,
            Err(_) => return null(libc::EINVAL),
        },
    };
    let node = match u32::try_from(params.nid) {
        Ok(node) => Some(NodeId(node)),
        Err(_) if params.nid == NUMA_NO_NODE => None,
        Err(_) => return null(libc::EINVAL),
    };
    let Some(heap) = heap() else {
        return null_mut();
    };
    let params = PoolParams {
        name,
        order: params.order,
        pool_size: params.pool_size,
        node,
    };
    let create = |_| PoolOwner::create(heap.pages(), heap.era(), &params);
    let owner = match params.check_size(heap.era()).and_then(create) {
        Ok(owner) => owner,
        Err(PoolCreateError::NoRoom) => return null(libc::ENOMEM),
        Err(_) => return null(libc::EINVAL),
    };
    let (bytes, align) = (size_of::<page_pool>(), align_of::<page_pool>());
    let Some(place) = heap.kmalloc_aligned(bytes, align, None) else {
        return null(libc::ENOMEM);
    };
    let place = place.cast::<page_pool>();
    let pool = page_pool {
        shared: owner.handle(),
        owner: UnsafeCell::new(Owner::Open(owner)),
    };
    // SAFETY: allocated just now, as large and as aligned as this.
    unsafe { place.write(pool) };
    place.as_ptr()
}

/// Destroys a pool, after which no frame can be allocated from it; NULL is no pool and allowed. Returns 0.
///
/// While frames are in flight it returns -1 and EBUSY; a message on the standard error output says how many, as
/// `page_pool_in_flight_report` does. They can still be put, and the pool goes when it is destroyed again after that.
///
/// # Safety
///
/// No other thread uses the pool but to put frames. If the result is 0, it is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_destroy(pool: *mut page_pool) -> c_int {
    let Some(place) = NonNull::new(pool) else {
        return 0;
    };
    // SAFETY: the caller vouches for the pool.
    let pool = unsafe { place.as_ref() };
    // SAFETY: by the caller's contract this is the owner.
    let owner = unsafe { pool.owner() };
    let destroyed = match core::mem::replace(owner, Owner::Gone) {
        Owner::Open(open) => open.destroy(),
        Owner::Pending(pending) => pending.finish(),
        Owner::Gone => Ok(()),
    };
    if let Err(pending) = destroyed {
        let code = Code(&pending.report());
        report(format_args!("page_pool_destroy: {pending}{code}"));
        *owner = Owner::Pending(pending);
        return failed(libc::EBUSY);
    }
    // SAFETY: the caller does not use the pool any more, and no frame is in flight.
    unsafe { place.drop_in_place() };
    if let Some(heap) = heap() {
        // SAFETY: of `page_pool_create`, and not used any more.
        let freed = unsafe { heap.kfree(place.cast()) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
    0
}

/// Allocates a frame, of `page_pool_frame_bytes` bytes: whatever its last user left, or zeros with __GFP_ZERO. NULL and
/// ENOMEM when memory is exhausted, NULL and EINVAL for unknown flags or a pool that was destroyed.
///
/// # Safety
///
/// The pool exists, and one thread at a time is its owner: allocates, puts directly or destroys it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_alloc_pages(pool: *mut page_pool, flags: gfp_t) -> *mut c_void {
    // SAFETY: by the caller's contract this is the owner of a pool.
    let Some((pool, owner)) = (unsafe { open(pool, flags) }) else {
        return null_mut();
    };
    let Some(pfn) = owner.alloc_at(site()) else {
        return null(libc::ENOMEM);
    };
    let frame = pool.address(pfn);
    if zeroes(flags) {
        // SAFETY: the frame has this many bytes, and was allocated just now.
        unsafe { frame.cast::<u8>().write_bytes(0, pool.shared.block_bytes()) };
    }
    frame
}

/// Allocates up to `nr` frames into an array, faster than one by one. Returns how many: less than `nr` when memory is
/// exhausted, with errno as `page_pool_alloc_pages`.
///
/// # Safety
///
/// As for `page_pool_alloc_pages`; the array has room for `nr` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_alloc_bulk(
    pool: *mut page_pool,
    flags: gfp_t,
    nr: usize,
    frames: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the caller's contract this is the owner of a pool.
    let Some((pool, owner)) = (unsafe { open(pool, flags) }) else {
        return 0;
    };
    if frames.is_null() || c_int::try_from(nr).is_err() {
        set_errno(libc::EINVAL);
        return 0;
    }
    // SAFETY: the caller vouches for the array.
    unsafe { frames.write_bytes(0, nr) };
    // SAFETY: as above; all pointers are null now, and only this call uses the array.
    let frames = unsafe { core::slice::from_raw_parts_mut(frames, nr) };
    let site = site();
    let filled = owner.alloc_bulk_as(
        frames,
        site,
        |frame| frame.is_null(),
        |frame, pfn| *frame = pool.address(pfn),
    );
    if filled < nr {
        set_errno(libc::ENOMEM);
    }
    if zeroes(flags) {
        for frame in &frames[..filled] {
            // SAFETY: the frame has this many bytes, and was allocated just now.
            unsafe { frame.cast::<u8>().write_bytes(0, pool.shared.block_bytes()) };
        }
    }
    filled as c_int
}

/// Puts a frame back: with `allow_direct` onto the owner's stack, by the owner only, else by any thread. NULL is no frame
/// and allowed.
///
/// An address that is no frame of the pool, or is not in flight, is reported on the standard error output; errno is
/// EINVAL then and nothing has changed.
///
/// # Safety
///
/// The pool exists, and the frame has no user left; no other thread puts it at the same time. With `allow_direct` the
/// caller is the owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_put_full_page(
    pool: *mut page_pool,
    frame: *mut c_void,
    allow_direct: bool,
) {
    if frame.is_null() {
        return;
    }
    // SAFETY: the caller vouches for the pool.
    let Some(pool) = (unsafe { pool_of(pool) }) else {
        return;
    };
    let Some(pfn) = pool.page(frame) else {
        return pool.refuse(frame, &"no page begins there");
    };
    if allow_direct {
        // SAFETY: by the caller's contract this is the owner.
        if let Owner::Open(owner) = unsafe { pool.owner() } {
            // SAFETY: the caller vouches that the frame has no user left, and that no other thread puts it.
            if let Err(error) = unsafe { owner.put(pfn) } {
                pool.refuse(frame, &error);
            }
            return;
        }
    }
    // SAFETY: the caller vouches that the frame has no user left, and that no other thread puts it.
    if let Err(error) = unsafe { pool.shared.put(pfn) } {
        pool.refuse(frame, &error);
    }
}

/// Puts the frames of an array back at once, by any thread, and leaves NULL in their places. One that is refused stays
/// there, and is reported as by `page_pool_put_full_page`.
///
/// # Safety
///
/// As for `page_pool_put_full_page`, for each frame; the array has `nr` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_put_page_bulk(
    pool: *mut page_pool,
    nr: usize,
    frames: *mut *mut c_void,
) {
    if frames.is_null() || nr == 0 {
        return;
    }
    // SAFETY: the caller vouches for the pool.
    let Some(shared) = (unsafe { pool_of(pool) }) else {
        return;
    };
    // SAFETY: the caller vouches for the array, which only this call uses.
    let frames = unsafe { core::slice::from_raw_parts_mut(frames, nr) };
    let raw = shared.shared.raw();
    let page = |frame: &*mut c_void| shared.page(*frame);
    let clear = |frame: &mut *mut c_void| *frame = null_mut();
    // SAFETY: the caller vouches for the frames, and the handle keeps the pool.
    let _ = unsafe { raw.put_bulk_as(frames, page, clear) };
    for frame in frames.iter().filter(|frame| !frame.is_null()) {
        // SAFETY: as above: those that are left were refused, and are again.
        unsafe { page_pool_put_full_page(pool, *frame, false) };
    }
}

/// Bytes of a frame of a pool.
///
/// # Safety
///
/// The pool exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_frame_bytes(pool: *const page_pool) -> usize {
    // SAFETY: the caller vouches for the pool.
    unsafe { pool_of(pool) }.map_or(0, |pool| pool.shared.block_bytes())
}

/// Writes the counters of a pool; exact if no thread uses it at this moment. Returns false and EINVAL without a pool or a
/// place for them.
///
/// # Safety
///
/// The pool exists, and the counters can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_get_stats(
    pool: *const page_pool,
    stats: *mut page_pool_stats,
) -> bool {
    // SAFETY: the caller vouches for the pool.
    let Some(pool) = unsafe { pool_of(pool) }.filter(|_| !stats.is_null()) else {
        set_errno(libc::EINVAL);
        return false;
    };
    let now = pool.shared.stats();
    let found = page_pool_stats {
        fast: now.fast,
        slow: now.slow,
        slow_high_order: now.slow_high_order,
        empty: now.empty,
        refill: now.refill,
        waive: now.waive,
        cached: now.cached,
        cache_full: now.cache_full,
        ring: now.ring,
        ring_full: now.ring_full,
        released_refcnt: now.released_refcnt,
        inflight: now.inflight,
    };
    // SAFETY: the caller vouches for the place.
    unsafe { stats.write(found) };
    true
}

/// Writes who holds the frames of a pool that are in flight, as text: how many of each CPU, and for how many allocations
/// from the pool at most. With QUARRY_SLUB_DEBUG=U in the environment it also names the code that allocated them, and an
/// allocation takes microseconds. The buffer is as for `slabinfo_read`.
///
/// # Safety
///
/// The pool exists, and the buffer has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn page_pool_in_flight_report(
    pool: *const page_pool,
    text: *mut c_char,
    bytes: usize,
) -> isize {
    // SAFETY: the caller vouches for the pool.
    let Some(pool) = (unsafe { pool_of(pool) }) else {
        return -1;
    };
    // SAFETY: the caller vouches for the buffer.
    let mut buffer = unsafe { Buffer::new(text, bytes) };
    // A buffer takes everything.
    let held = pool.shared.in_flight_report();
    let _ = writeln!(buffer, "{held}{}", Code(&held));
    buffer.finish()
}
