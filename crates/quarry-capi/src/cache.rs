//! Caches of objects of one size: `kmem_cache_*`.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;

use quarry::kernel::heap::{Cache, CreateError};
use quarry::{CacheFlags, CacheSpec, Constructor, DefaultDesign, HostMachine};

use crate::gfp::{gfp_t, known, zeroes};
use crate::text::report;
use crate::{failed, heap, null, set_errno};

/// Flags of a new cache: any of the SLAB_ constants, or 0.
pub type slab_flags_t = c_uint;

/// Align objects to the cache line, or to the part of one that they fit in.
pub const SLAB_HWCACHE_ALIGN: slab_flags_t = 1;
/// Objects can be given back under memory pressure: their slabs are of reclaimable pages.
pub const SLAB_RECLAIM_ACCOUNT: slab_flags_t = 2;
/// Check every allocation and free. This and the flags below switch debugging on, which is slow.
pub const SLAB_CONSISTENCY_CHECKS: slab_flags_t = 4;
/// Red zones around objects: a write beyond one is found when it is freed.
pub const SLAB_RED_ZONE: slab_flags_t = 8;
/// Fill free objects with a pattern: a write to one is found when it is allocated.
pub const SLAB_POISON: slab_flags_t = 16;
/// Record who allocated and who freed: thread, CPU and time.
pub const SLAB_STORE_USER: slab_flags_t = 32;

const FLAGS: [(slab_flags_t, CacheFlags); 6] = [
    (SLAB_HWCACHE_ALIGN, CacheFlags::HWCACHE_ALIGN),
    (SLAB_RECLAIM_ACCOUNT, CacheFlags::RECLAIM),
    (SLAB_CONSISTENCY_CHECKS, CacheFlags::CONSISTENCY),
    (SLAB_RED_ZONE, CacheFlags::RED_ZONE),
    (SLAB_POISON, CacheFlags::POISON),
    (SLAB_STORE_USER, CacheFlags::STORE_USER),
];

/// A cache of objects of one size.
pub struct kmem_cache {
    cache: Cache<'static, HostMachine, DefaultDesign>,
}

/// The cache behind a handle; `None`, with `EINVAL`, for null.
///
/// # Safety
///
/// Null, or a cache that `kmem_cache_create` returned and that is not destroyed as long as the result is used.
#[inline(always)]
unsafe fn cache_of<'a>(
    handle: *const kmem_cache,
) -> Option<&'a Cache<'static, HostMachine, DefaultDesign>> {
    // SAFETY: the caller vouches for it.
    let handle = unsafe { handle.as_ref() };
    if handle.is_none() {
        set_errno(libc::EINVAL);
    }
    Some(&handle?.cache)
}

fn flags_of(flags: slab_flags_t) -> Option<CacheFlags> {
    let mut known = CacheFlags::NONE;
    let mut left = flags;
    for (flag, meaning) in FLAGS {
        if left & flag != 0 {
            known |= meaning;
            left &= !flag;
        }
    }
    (left == 0).then_some(known)
}

/// Makes a cache of objects of `size` bytes.
///
/// `name` is shown in slabinfo; it has 48 bytes at most, and neither blanks nor '/'. Several caches may have the same one.
/// `align` is a power of two, or 0 for the default of 8. `ctor` may be NULL. Else it sets up each object once, when its
/// slab is made, and not at each allocation: nothing writes to an object while it is free, and its users leave it as the
/// constructor does.
///
/// NULL and EINVAL for a wrong argument, ENOMEM when memory is exhausted.
///
/// # Safety
///
/// `name` is a string. The constructor can be called on any thread, writes to the object only, and returns; it neither
/// uses the cache nor forks, and throws no exception.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_create(
    name: *const c_char,
    size: c_uint,
    align: c_uint,
    flags: slab_flags_t,
    ctor: Option<unsafe extern "C" fn(object: *mut c_void)>,
) -> *mut kmem_cache {
    if name.is_null() {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller vouches for the string.
    let name = unsafe { CStr::from_ptr(name) };
    let (Ok(name), Some(flags)) = (name.to_str(), flags_of(flags)) else {
        return null(libc::EINVAL);
    };
    if quarry::kernel::name::check(name).is_err() {
        return null(libc::EINVAL);
    }
    let Some(heap) = heap() else {
        return core::ptr::null_mut();
    };
    let spec = CacheSpec {
        align,
        flags,
        // SAFETY: the caller vouches for the function.
        ctor: ctor.map(|ctor| unsafe { Constructor::new(ctor) }),
        ..CacheSpec::new(name, size)
    };
    let cache = match heap.create_cache(&spec) {
        Ok(cache) => cache,
        Err(CreateError::NoRoom) => return null(libc::ENOMEM),
        Err(_) => return null(libc::EINVAL),
    };
    match heap.kmalloc(size_of::<kmem_cache>()) {
        Some(handle) => {
            let handle = handle.cast::<kmem_cache>();
            // SAFETY: allocated just now, for a value of two words, to which blocks are aligned.
            unsafe { handle.write(kmem_cache { cache }) };
            handle.as_ptr()
        }
        None => {
            // SAFETY: the only handle, and no object was allocated.
            let _ = unsafe { cache.destroy() };
            null(libc::ENOMEM)
        }
    }
}

/// Destroys a cache; NULL is no cache and allowed. Returns 0.
///
/// If objects are still allocated it returns -1 and EBUSY, and the cache stays as it was. A message on the standard error
/// output names them.
///
/// # Safety
///
/// No other thread uses the cache. If the result is 0, it is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_destroy(cache: *mut kmem_cache) -> c_int {
    let Some(handle) = NonNull::new(cache) else {
        return 0;
    };
    // SAFETY: the caller vouches for the cache.
    let cache = unsafe { handle.as_ref() }.cache;
    // SAFETY: no other thread uses the cache, and the handle's copy is not used again if this succeeds.
    if let Err(error) = unsafe { cache.destroy() } {
        report(format_args!("kmem_cache_destroy: {error}"));
        return failed(libc::EBUSY);
    }
    if let Some(heap) = heap() {
        // SAFETY: of `kmem_cache_create`, and the cache is gone.
        let freed = unsafe { heap.kfree(handle.cast()) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
    0
}

/// Allocates an object. NULL and ENOMEM when memory is exhausted; NULL and EINVAL for unknown flags, and for __GFP_ZERO if
/// the cache has a constructor.
///
/// # Safety
///
/// The cache exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_alloc(cache: *mut kmem_cache, flags: gfp_t) -> *mut c_void {
    // SAFETY: the caller vouches for the cache.
    let cache = unsafe { cache_of(cache) };
    let Some(cache) = cache.filter(|_| known(flags)) else {
        return core::ptr::null_mut();
    };
    if zeroes(flags) && cache.head().flags().contains(CacheFlags::CTOR) {
        return null(libc::EINVAL);
    }
    let Some(object) = cache.alloc() else {
        return null(libc::ENOMEM);
    };
    if zeroes(flags) {
        // SAFETY: the object has this many bytes, and was allocated just now.
        unsafe { object.write_bytes(0, cache.head().object_size() as usize) };
    }
    object.as_ptr().cast()
}

/// `kmem_cache_alloc` of a zero-filled object.
///
/// # Safety
///
/// The cache exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_zalloc(cache: *mut kmem_cache, flags: gfp_t) -> *mut c_void {
    // SAFETY: the caller vouches for the cache.
    unsafe { kmem_cache_alloc(cache, flags | crate::gfp::__GFP_ZERO) }
}

/// Frees an object, from any thread. NULL is no object and allowed.
///
/// An address that is no object of the cache, or is free already, is reported on the standard error output; errno is
/// EINVAL then and nothing has changed.
///
/// # Safety
///
/// The cache exists, and the object has no user left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_free(cache: *mut kmem_cache, object: *mut c_void) {
    let Some(object) = NonNull::new(object.cast()) else {
        return;
    };
    // SAFETY: the caller vouches for the cache.
    if let Some(cache) = unsafe { cache_of(cache) }
        // SAFETY: the caller vouches that the object has no user left.
        && unsafe { cache.free(object) }.is_err()
    {
        set_errno(libc::EINVAL);
    }
}

/// The slots of an array.
///
/// # Safety
///
/// The array has `nr` pointers, and only the caller uses it as long as the result is used. It is not null unless `nr` is 0.
unsafe fn slots<'a>(nr: usize, objects: *mut *mut c_void) -> &'a mut [Option<NonNull<u8>>] {
    if nr == 0 {
        return &mut [];
    }
    // SAFETY: an optional pointer that is not null has the form of a pointer; the caller vouches for the array.
    unsafe { core::slice::from_raw_parts_mut(objects.cast(), nr) }
}

/// Allocates `nr` objects at once, faster than one by one. Returns `nr`, or 0, with errno as `kmem_cache_alloc`, if
/// there is none or not enough memory: all or none.
///
/// # Safety
///
/// The cache exists, and the array has room for `nr` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_alloc_bulk(
    cache: *mut kmem_cache,
    flags: gfp_t,
    nr: usize,
    objects: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for the cache.
    let cache = unsafe { cache_of(cache) };
    let Some(cache) = cache.filter(|_| known(flags)) else {
        return 0;
    };
    let constructed = cache.head().flags().contains(CacheFlags::CTOR);
    let number = c_int::try_from(nr);
    let (Ok(number), false) = (number, objects.is_null() || (zeroes(flags) && constructed)) else {
        set_errno(libc::EINVAL);
        return 0;
    };
    // SAFETY: the caller vouches for the array.
    unsafe { objects.write_bytes(0, nr) };
    // SAFETY: as above; all pointers are null now.
    let slots = unsafe { slots(nr, objects) };
    if !cache.alloc_bulk(slots) {
        set_errno(libc::ENOMEM);
        return 0;
    }
    if zeroes(flags) {
        for object in slots.iter().flatten() {
            // SAFETY: the object has this many bytes, and was allocated just now.
            unsafe { object.write_bytes(0, cache.head().object_size() as usize) };
        }
    }
    number
}

/// Frees the objects of an array at once and leaves NULL in their places. One that is refused stays there; errno is
/// EINVAL then, as with `kmem_cache_free`.
///
/// # Safety
///
/// The cache exists, the array has `nr` pointers, and the objects have no user left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_free_bulk(
    cache: *mut kmem_cache,
    nr: usize,
    objects: *mut *mut c_void,
) {
    if objects.is_null() {
        return;
    }
    // SAFETY: the caller vouches for the array.
    let slots = unsafe { slots(nr, objects) };
    // SAFETY: the caller vouches for the cache.
    if let Some(cache) = unsafe { cache_of(cache) }
        // SAFETY: the caller vouches that the objects have no user left.
        && unsafe { cache.free_bulk(slots) }.is_err()
    {
        set_errno(libc::EINVAL);
    }
}

/// Gives the empty slabs of a cache back to the page allocator, with what CPUs keep. Returns 0, or -1 and EBUSY if a CPU
/// was busy and kept its objects.
///
/// # Safety
///
/// The cache exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_shrink(cache: *mut kmem_cache) -> c_int {
    // SAFETY: the caller vouches for the cache.
    match unsafe { cache_of(cache) }.map(|cache| cache.shrink()) {
        Some(0) => 0,
        Some(_) => failed(libc::EBUSY),
        None => -1,
    }
}

/// Bytes of an object of a cache, as they were asked for.
///
/// # Safety
///
/// The cache exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kmem_cache_size(cache: *mut kmem_cache) -> c_uint {
    // SAFETY: the caller vouches for the cache.
    unsafe { cache_of(cache) }.map_or(0, |cache| cache.head().object_size())
}
