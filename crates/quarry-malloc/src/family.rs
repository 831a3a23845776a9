//! The functions that programs call, under the names of the C library.
//!
//! A failure is null and `ENOMEM`; a free keeps `errno`. Blocks above 8 bytes are aligned to 16, others to 8, which holds
//! every type that fits in them.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};

use quarry::TextOut;

use crate::early;
use crate::heaps::{self, DIRECT, Heap, give_up};

/// Alignment of every type of the C language that is not larger than a block.
const fn natural_align(bytes: usize) -> usize {
    if bytes <= 8 { 8 } else { 16 }
}

#[cold]
fn fail(errno: libc::c_int) -> *mut c_void {
    // SAFETY: the C library gives each thread a valid variable.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; only the calling thread uses it.
    unsafe { *place = errno };
    null_mut()
}

/// A block of the chosen heap, or of the early arena as long as there is none. 0 bytes get a block, too.
#[inline(always)]
fn alloc(bytes: usize, align: usize) -> *mut c_void {
    let heap = heaps::chosen();
    match heap.and_then(|heap| heap.alloc(bytes.max(1), align)) {
        Some(block) => block.as_ptr().cast(),
        None => alloc_early(heap, bytes, align),
    }
}

/// Allocates where the heap has nothing: there is none, this thread is making it, or memory is exhausted.
#[cold]
#[inline(never)]
fn alloc_early(heap: Option<&'static dyn Heap>, bytes: usize, align: usize) -> *mut c_void {
    let block = match heap {
        Some(heap) if heap.is_made() => None,
        _ => early::alloc(bytes, align),
    };
    block.map_or_else(|| fail(libc::ENOMEM), |block| block.as_ptr().cast())
}

/// The heap that a block is of; `None` for one of the early arena, which stays where it is.
#[inline(always)]
pub(crate) fn heap_of(block: NonNull<u8>) -> Option<&'static dyn Heap> {
    match early::owns(block) {
        false => heaps::chosen(),
        true => None,
    }
}

#[cold]
pub(crate) fn refused(call: &str, block: NonNull<u8>) -> ! {
    give_up(format_args!(
        "{call}: {block:p} is no block that can be freed"
    ))
}

/// `malloc(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match DIRECT.kmalloc_aligned_fast(bytes) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_slow(bytes),
    }
}

/// Allocates where the direct heap has no object at hand: it is not the process's, its CPU has none, or no class
/// has the size.
#[inline(never)]
extern "C" fn malloc_slow(bytes: usize) -> *mut c_void {
    alloc(bytes, natural_align(bytes))
}

/// `calloc(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return fail(libc::ENOMEM);
    };
    let heap = heaps::chosen();
    let align = natural_align(bytes);
    match heap.and_then(|heap| heap.alloc_zeroed(bytes.max(1), align)) {
        Some(block) => block.as_ptr().cast(),
        // The early arena is zero.
        None => alloc_early(heap, bytes, align),
    }
}

/// `free(3)`.
///
/// # Safety
///
/// The block is null, or has no user left.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller vouches that the block has no user left.
    let is_freed = |block| unsafe { DIRECT.kfree_fast(block) };
    if !NonNull::new(block.cast()).is_some_and(is_freed) {
        // SAFETY: as above; the attempt has not freed it.
        unsafe { free_slow(block) };
    }
}

/// Frees what the direct heap's CPU does not take.
///
/// # Safety
///
/// As for [`free`].
#[inline(never)]
unsafe extern "C" fn free_slow(block: *mut c_void) {
    let Some(block) = NonNull::new(block.cast()) else {
        return;
    };
    let Some(heap) = heap_of(block) else { return };
    // SAFETY: the caller vouches that the block has no user left.
    if unsafe { heap.free(block) }.is_err() {
        refused("free", block);
    }
}

/// `realloc(3)`: 0 bytes free the block and give null.
///
/// # Safety
///
/// The block is null, or only the caller uses it, and from then on the result if there is one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast::<u8>()) else {
        return malloc(bytes);
    };
    if bytes == 0 {
        // SAFETY: the caller gave the block up.
        unsafe { free(block) };
        return null_mut();
    }
    let Some(heap) = heap_of(old) else {
        // SAFETY: the block is of the early arena, as there is no heap for it.
        return unsafe { move_early(old, bytes) };
    };
    // SAFETY: only the caller uses the block.
    match unsafe { heap.resize(old, bytes, natural_align(bytes)) } {
        Ok(Some(block)) => block.as_ptr().cast(),
        Ok(None) => fail(libc::ENOMEM),
        Err(_) => refused("realloc", old),
    }
}

/// A block in the place of one of the early arena.
///
/// # Safety
///
/// As for [`realloc`].
#[cold]
unsafe fn move_early(old: NonNull<u8>, bytes: usize) -> *mut c_void {
    let Some(size) = early::size(old) else {
        refused("realloc", old)
    };
    let new = malloc(bytes);
    if let Some(new) = NonNull::new(new.cast::<u8>()) {
        // SAFETY: both blocks have these bytes, and are different.
        unsafe { new.copy_from_nonoverlapping(old, size.min(bytes)) };
    }
    new
}

/// `reallocarray(3)`.
///
/// # Safety
///
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller vouches for the block.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => fail(libc::ENOMEM),
    }
}

/// `posix_memalign(3)`.
///
/// # Safety
///
/// `place` can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: usize,
    bytes: usize,
) -> libc::c_int {
    if !align.is_power_of_two() || align < size_of::<usize>() {
        return libc::EINVAL;
    }
    // SAFETY: the calling thread's own variable, which this call leaves alone, as it returns its error.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let block = alloc(bytes, align.max(natural_align(bytes)));
    // SAFETY: as above.
    unsafe { *errno = before };
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller vouches for the place.
    unsafe { *place = block };
    0
}

/// `aligned_alloc(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    match align.is_power_of_two() {
        true => memalign(align, bytes),
        false => fail(libc::EINVAL),
    }
}

/// `memalign(3)`: rounds the alignment up to a power of two, as the C library does.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => alloc(bytes, align.max(natural_align(bytes))),
        None => fail(libc::EINVAL),
    }
}

fn page() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// `valloc(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn valloc(bytes: usize) -> *mut c_void {
    alloc(bytes, page())
}

/// `pvalloc(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(page()) {
        Some(bytes) => alloc(bytes, page()),
        None => fail(libc::ENOMEM),
    }
}

/// `malloc_usable_size(3)`.
///
/// # Safety
///
/// The block is null, or allocated.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    let Some(block) = NonNull::new(block.cast()) else {
        return 0;
    };
    match heap_of(block) {
        Some(heap) => heap.size(block),
        None => early::size(block),
    }
    .unwrap_or(0)
}

/// `malloc_trim(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn malloc_trim(keep: usize) -> libc::c_int {
    heaps::chosen().is_some_and(|heap| heap.trim(keep)).into()
}

/// `struct mallinfo2` of `malloc.h`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// `mallinfo2(3)`: memory of the heap's pages, of mappings, in use and free. What a slab has free counts as in use.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mallinfo2() -> Mallinfo2 {
    let totals = heaps::chosen().map(Heap::totals).unwrap_or_default();
    Mallinfo2 {
        arena: totals.resident,
        hblks: totals.blocks,
        hblkhd: totals.mapped,
        uordblks: totals.resident - totals.free,
        fordblks: totals.free,
        keepcost: totals.free,
        ..Mallinfo2::default()
    }
}

/// `struct mallinfo` of `malloc.h`.
#[repr(C)]
pub(crate) struct Mallinfo([libc::c_int; 10]);

/// `mallinfo(3)`: what [`mallinfo2`] tells, where it fits.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mallinfo() -> Mallinfo {
    let info = mallinfo2();
    let fields = [
        info.arena,
        info.ordblks,
        info.smblks,
        info.hblks,
        info.hblkhd,
        info.usmblks,
        info.fsmblks,
        info.uordblks,
        info.fordblks,
        info.keepcost,
    ];
    Mallinfo(fields.map(|field| libc::c_int::try_from(field).unwrap_or(libc::c_int::MAX)))
}

/// `malloc_stats(3)`: slabinfo, to the standard error output.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn malloc_stats() {
    if let Some(heap) = heaps::chosen() {
        // A failure to write has nowhere to be reported.
        let _ = heap.write_slabinfo(&mut TextOut::errors());
    }
}

/// `mallopt(3)`: none of the C library's parameters means anything here, so all are refused.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mallopt(_parameter: libc::c_int, _value: libc::c_int) -> libc::c_int {
    0
}
