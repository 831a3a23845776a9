//! Memory of any size: `kmalloc` and `kvmalloc` with their families.

use core::ffi::c_void;
use core::ptr::NonNull;

use quarry::{FreeError, HostHeap};

use crate::gfp::{gfp_t, known, zeroes};
use crate::{heap, null, set_errno};

/// A block's address, or null with `ENOMEM`.
#[inline(always)]
fn answer(block: Option<NonNull<u8>>) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => null(libc::ENOMEM),
    }
}

/// Sets `errno` if a block was not freed. The heap has reported why.
#[inline(always)]
fn check(freed: Result<(), FreeError>) {
    if freed.is_err() {
        set_errno(libc::EINVAL);
    }
}

/// Bytes of `count` elements; `None`, with `ENOMEM`, if there are no such numbers.
#[inline(always)]
fn product(count: usize, size: usize) -> Option<usize> {
    let bytes = count.checked_mul(size);
    if bytes.is_none() {
        set_errno(libc::ENOMEM);
    }
    bytes
}

/// Fills the bytes of a block from one on with zeros, up to its end.
///
/// # Safety
///
/// The block has `bytes` bytes and is the caller's alone.
unsafe fn zero(block: NonNull<u8>, from: usize, bytes: usize) {
    if from < bytes {
        // SAFETY: inside the block, as the caller says.
        let rest = unsafe { block.byte_add(from) };
        // SAFETY: as above.
        unsafe { rest.write_bytes(0, bytes - from) };
    }
}

/// Allocates at least `size` bytes, 4 MiB at most.
///
/// The memory is aligned to 16 bytes, below 16 bytes to 8; if `size` is a power of two it is aligned to `size`. A `size`
/// of 0 gives an address without memory, which `kfree` takes. NULL and ENOMEM when memory is exhausted or the size is
/// too large; NULL and EINVAL for unknown flags.
#[unsafe(no_mangle)]
pub extern "C" fn kmalloc(size: usize, flags: gfp_t) -> *mut c_void {
    if !known(flags) {
        return null(libc::EINVAL);
    }
    let Some(heap) = heap() else {
        return core::ptr::null_mut();
    };
    let object = heap.kmalloc(size);
    if zeroes(flags)
        && let Some(object) = object
    {
        let bytes = heap.ksize(object).unwrap_or(size);
        // SAFETY: allocated just now, with this many bytes.
        unsafe { zero(object, 0, bytes) };
    }
    answer(object)
}

/// `kmalloc` of zero-filled memory.
#[unsafe(no_mangle)]
pub extern "C" fn kzalloc(size: usize, flags: gfp_t) -> *mut c_void {
    kmalloc(size, flags | crate::gfp::__GFP_ZERO)
}

/// `kmalloc` of `n` elements of `size` bytes; NULL and ENOMEM if that is no size.
#[unsafe(no_mangle)]
pub extern "C" fn kmalloc_array(n: usize, size: usize, flags: gfp_t) -> *mut c_void {
    match product(n, size) {
        Some(bytes) => kmalloc(bytes, flags),
        None => core::ptr::null_mut(),
    }
}

/// `kmalloc_array` of zero-filled memory.
#[unsafe(no_mangle)]
pub extern "C" fn kcalloc(n: usize, size: usize, flags: gfp_t) -> *mut c_void {
    kmalloc_array(n, size, flags | crate::gfp::__GFP_ZERO)
}

/// Makes an object of `kmalloc` larger, in place if its class has room, else by a new one with its bytes.
///
/// A smaller size changes nothing. NULL for the object is a `kmalloc`; a `size` of 0 frees it and gives an address
/// without memory. With __GFP_ZERO the bytes behind the old ones, or behind `size` if that is less, are zero. When
/// memory is exhausted, the result is NULL and ENOMEM, and the object stays; what is no object gives NULL and EINVAL.
///
/// # Safety
///
/// No other code uses the object; if the result is not NULL, only that is used from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn krealloc(object: *const c_void, size: usize, flags: gfp_t) -> *mut c_void {
    let Some(old) = NonNull::new(object.cast_mut().cast::<u8>()) else {
        return kmalloc(size, flags);
    };
    if !known(flags) {
        return null(libc::EINVAL);
    }
    let Some(heap) = heap() else {
        return core::ptr::null_mut();
    };
    let before = heap.ksize(old);
    // SAFETY: only the caller uses the object, and then the result.
    let new = unsafe { heap.krealloc(Some(old), size) };
    // SAFETY: as above; the sizes are the heap's answers.
    unsafe { resized(new, before, size, flags, |new| heap.ksize(new)) }
}

/// `krealloc` to `n` elements of `size` bytes; NULL and ENOMEM if that is no size.
///
/// # Safety
///
/// As for `krealloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn krealloc_array(
    object: *const c_void,
    n: usize,
    size: usize,
    flags: gfp_t,
) -> *mut c_void {
    match product(n, size) {
        // SAFETY: the caller vouches for the object.
        Some(bytes) => unsafe { krealloc(object, bytes, flags) },
        None => core::ptr::null_mut(),
    }
}

/// The answer of a block's change of size, from `before` bytes: `None` if it was no block.
///
/// # Safety
///
/// The new block is the caller's alone and has as many bytes as `size_of` says.
#[inline(always)]
unsafe fn resized(
    new: Option<NonNull<u8>>,
    before: Option<usize>,
    size: usize,
    flags: gfp_t,
    size_of: impl FnOnce(NonNull<u8>) -> Option<usize>,
) -> *mut c_void {
    let Some(before) = before else {
        return null(libc::EINVAL);
    };
    if zeroes(flags)
        && let Some(new) = new
    {
        let bytes = size_of(new).unwrap_or(size);
        // SAFETY: the block has this many bytes.
        unsafe { zero(new, before.min(size), bytes) };
    }
    answer(new)
}

/// Frees an object of the `kmalloc` family, but not one of `kvmalloc`. NULL is no object and allowed.
///
/// An address outside of the heap's objects, or the object freed last on this CPU, is reported on the standard error output;
/// errno is EINVAL then and nothing has changed. With QUARRY_HARDENED=1 inner addresses and all double frees are found, too,
/// and the process ends.
///
/// # Safety
///
/// The object has no user left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kfree(object: *const c_void) {
    let Some(object) = NonNull::new(object.cast_mut().cast::<u8>()) else {
        return;
    };
    if let Some(heap) = heap() {
        // SAFETY: the caller vouches that the object has no user left.
        check(unsafe { heap.kfree(object) });
    }
}

/// `kfree` of an object whose bytes are zeroed first.
///
/// # Safety
///
/// The object is allocated and has no user left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kfree_sensitive(object: *const c_void) {
    let bytes = ksize(object);
    if bytes > 0 {
        // SAFETY: the object has this many bytes and no other user.
        unsafe { libc::explicit_bzero(object.cast_mut(), bytes) };
    }
    // SAFETY: the caller vouches for the object.
    unsafe { kfree(object) };
}

/// Bytes of an object of the `kmalloc` family that its owner may use, at least those that were asked for. 0 for NULL;
/// 0 and EINVAL for what is no object.
#[unsafe(no_mangle)]
pub extern "C" fn ksize(object: *const c_void) -> usize {
    let Some(object) = NonNull::new(object.cast_mut().cast::<u8>()) else {
        return 0;
    };
    let bytes = heap().and_then(|heap| heap.ksize(object));
    bytes.unwrap_or_else(|| {
        set_errno(libc::EINVAL);
        0
    })
}

/// Alignment of blocks by `kvmalloc`, as of those by `kmalloc`.
const fn align(bytes: usize) -> usize {
    if bytes < 16 { 8 } else { 16 }
}

/// Allocates at least `size` bytes: as `kmalloc`, or as a mapping of its own if that has no block so large.
#[unsafe(no_mangle)]
pub extern "C" fn kvmalloc(size: usize, flags: gfp_t) -> *mut c_void {
    if !known(flags) {
        return null(libc::EINVAL);
    }
    let Some(heap) = heap() else {
        return core::ptr::null_mut();
    };
    answer(match zeroes(flags) {
        true => kvzalloc_of(heap, size),
        false => heap.kvmalloc(size, align(size)),
    })
}

/// A zero-filled block; all that `ksize` tells of it, unless it is a mapping, which is zero as it is.
fn kvzalloc_of(heap: &'static HostHeap, size: usize) -> Option<NonNull<u8>> {
    let block = heap.kvzalloc(size, align(size))?;
    if let Some(bytes) = heap.ksize(block) {
        // SAFETY: allocated just now, with this many bytes.
        unsafe { zero(block, size, bytes) };
    }
    Some(block)
}

/// `kvmalloc` of zero-filled memory.
#[unsafe(no_mangle)]
pub extern "C" fn kvzalloc(size: usize, flags: gfp_t) -> *mut c_void {
    kvmalloc(size, flags | crate::gfp::__GFP_ZERO)
}

/// `kvmalloc` of `n` elements of `size` bytes; NULL and ENOMEM if that is no size.
#[unsafe(no_mangle)]
pub extern "C" fn kvmalloc_array(n: usize, size: usize, flags: gfp_t) -> *mut c_void {
    match product(n, size) {
        Some(bytes) => kvmalloc(bytes, flags),
        None => core::ptr::null_mut(),
    }
}

/// `kvmalloc_array` of zero-filled memory.
#[unsafe(no_mangle)]
pub extern "C" fn kvcalloc(n: usize, size: usize, flags: gfp_t) -> *mut c_void {
    kvmalloc_array(n, size, flags | crate::gfp::__GFP_ZERO)
}

/// Changes the size of a block of `kvmalloc` or `kmalloc`, with the rules of `krealloc`. A block that becomes much
/// smaller may move, and so give memory back.
///
/// # Safety
///
/// As for `krealloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvrealloc(block: *const c_void, size: usize, flags: gfp_t) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast_mut().cast::<u8>()) else {
        return kvmalloc(size, flags);
    };
    if !known(flags) {
        return null(libc::EINVAL);
    }
    let Some(heap) = heap() else {
        return core::ptr::null_mut();
    };
    if size == 0 {
        // SAFETY: the caller vouches for the block.
        unsafe { kvfree(block) };
        return kmalloc(0, flags);
    }
    let before = heap.kvsize(old);
    // SAFETY: only the caller uses the block, and then the result.
    let new = match unsafe { heap.kvrealloc(old, size, align(size)) } {
        Ok(new) => new,
        Err(error) => {
            check(Err(error));
            return core::ptr::null_mut();
        }
    };
    // SAFETY: as above; the sizes are the heap's answers.
    unsafe { resized(new, before, size, flags, |new| heap.kvsize(new)) }
}

/// Frees a block of `kvmalloc` or `kmalloc`, with the rules of `kfree`.
///
/// # Safety
///
/// The block has no user left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvfree(block: *const c_void) {
    let Some(block) = NonNull::new(block.cast_mut().cast::<u8>()) else {
        return;
    };
    if let Some(heap) = heap() {
        // SAFETY: the caller vouches that the block has no user left.
        check(unsafe { heap.kvfree(block) });
    }
}
