//! Memory of any size: kmalloc, and mappings of their own for what no block of pages holds (`kvmalloc`).
//!
//! The functions take the heap behind its handles, since the heap of the process has none that may be cloned.

use std::ptr::NonNull;

use quarry_core::design::{Design, FreeError};
use quarry_core::heap::ZERO_SIZE_ADDRESS;

use crate::HostHeap;
use crate::host::RawHeap;

/// Requests below a page do not get a mapping of their own, and all mappings are aligned to one.
pub(crate) const MAPPED_MIN: usize = 4096;
/// Blocks up to this size never move to become smaller.
const SMALL: usize = 64;

#[inline(always)]
#[track_caller]
pub(crate) fn alloc<D: Design>(
    heap: &RawHeap<D>,
    bytes: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    // A class is a multiple of 8 bytes, and mostly as aligned as its size; `alloc_slow` looks after the exceptions. A size
    // that wraps is no small one.
    let rest = align.wrapping_sub(1);
    let wish = bytes.wrapping_add(rest) & !rest;
    let object = match wish >= bytes {
        true => heap.kmalloc_fast(wish),
        false => None,
    };
    match object {
        Some(object) if object.addr().get() & rest == 0 => Some(object),
        object => alloc_slow(heap, object, bytes, align),
    }
}

/// Allocates after a first attempt, which had nothing or an object that is not aligned as asked for.
#[inline(never)]
#[track_caller]
fn alloc_slow<D: Design>(
    heap: &RawHeap<D>,
    object: Option<NonNull<u8>>,
    bytes: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    if let Some(object) = object {
        // SAFETY: allocated just now, and no code has seen it.
        let freed = unsafe { heap.kfree(object) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
    match heap.kmalloc_aligned(bytes, align, None) {
        None => mapped(heap, bytes, align, false),
        object => object,
    }
}

/// A mapping where kmalloc has nothing: the request is larger than its blocks, or the heap's memory is used up.
#[cold]
#[inline(never)]
pub(crate) fn mapped<D: Design>(
    heap: &RawHeap<D>,
    bytes: usize,
    align: usize,
    zeroed: bool,
) -> Option<NonNull<u8>> {
    let large = bytes >= MAPPED_MIN || align >= MAPPED_MIN;
    large.then(|| heap.machine().map_block(bytes, align, zeroed))?
}

/// True if an address is in the heap's pages: else it is that of a mapping, or no object's.
#[inline(always)]
pub(crate) fn is_kmallocs<D: Design>(heap: &RawHeap<D>, object: NonNull<u8>) -> bool {
    heap.pages().pfn_of(object).is_some() || object.addr().get() == ZERO_SIZE_ADDRESS
}

/// # Safety
///
/// The object has no user left.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn free<D: Design>(
    heap: &RawHeap<D>,
    object: NonNull<u8>,
) -> Result<(), FreeError> {
    // SAFETY: the caller vouches that the object has no user left.
    if unsafe { heap.kfree_fast(object) } {
        return Ok(());
    }
    // SAFETY: as above; the attempt has not freed it.
    unsafe { free_slow(heap, object) }
}

/// # Safety
///
/// The object has no user left.
#[inline(never)]
#[track_caller]
pub(crate) unsafe fn free_slow<D: Design>(
    heap: &RawHeap<D>,
    object: NonNull<u8>,
) -> Result<(), FreeError> {
    // SAFETY: the caller vouches that the object has no user left.
    if !is_kmallocs(heap, object) && unsafe { heap.machine().unmap_block(object) } {
        return Ok(());
    }
    // SAFETY: as above; nothing was freed. An address that is no object's is refused.
    unsafe { heap.kfree(object) }
}

#[inline]
pub(crate) fn size<D: Design>(heap: &RawHeap<D>, object: NonNull<u8>) -> Option<usize> {
    match is_kmallocs(heap, object) {
        true => heap.ksize(object),
        false => heap.machine().block_bytes(object),
    }
}

/// True if a block of `size` bytes stays where it is for a request of `bytes`, which therefore may be what it was asked for: small
/// blocks do, and those that are more than half used. Growing step by step copies less, and shrinking a little would give
/// back nothing.
#[must_use]
pub const fn stays_in_place(size: usize, bytes: usize) -> bool {
    bytes <= size && (size <= SMALL || bytes > size / 2)
}

/// # Safety
///
/// The object is one of this heap, and only the caller uses it. If the result is `Ok(Some)`, only that is used from then
/// on.
#[track_caller]
pub(crate) unsafe fn resize<D: Design>(
    heap: &RawHeap<D>,
    object: NonNull<u8>,
    bytes: usize,
    align: usize,
) -> Result<Option<NonNull<u8>>, FreeError> {
    let Some(old) = size(heap, object) else {
        // SAFETY: no object of the heap is at the address, so this makes a report and changes nothing.
        return unsafe { heap.kfree(object) }.map(|()| None);
    };
    if stays_in_place(old, bytes) && object.addr().get().is_multiple_of(align) {
        return Ok(Some(object));
    }
    if !is_kmallocs(heap, object) && bytes > MAPPED_MIN && align <= MAPPED_MIN {
        // SAFETY: only the caller uses the block, and from then on the result.
        let moved = unsafe { heap.machine().remap_block(object, bytes) };
        if moved.is_some() {
            return Ok(moved);
        }
    }
    let Some(new) = alloc(heap, bytes, align) else {
        // A smaller block is no reason to fail.
        let stays = bytes <= old && object.addr().get().is_multiple_of(align);
        return Ok(stays.then_some(object));
    };
    // SAFETY: the old block has `old` bytes and the new one `bytes`; both are the caller's, and different.
    unsafe { new.copy_from_nonoverlapping(object, old.min(bytes)) };
    // SAFETY: the caller uses the new block only.
    match unsafe { free(heap, object) } {
        Ok(()) => Ok(Some(new)),
        // The old block was free already: the caller has nothing that a new one could be made of.
        Err(error) => {
            // SAFETY: allocated above, and no code has seen it.
            let freed = unsafe { free(heap, new) };
            debug_assert!(freed.is_ok(), "{freed:?}");
            Err(error)
        }
    }
}

impl<D: Design> HostHeap<D> {
    /// Allocates at least `bytes` bytes, aligned to a power of two: by [`kmalloc_aligned`], or as a mapping of its own if no
    /// block of pages is large enough. `None` when memory is exhausted. 0 bytes may yield an address without memory.
    ///
    /// A mapping counts neither to the heap's memory nor in its statistics;
    /// [`HostMachine::mapped_blocks`](crate::HostMachine::mapped_blocks) counts them.
    ///
    /// [`kmalloc_aligned`]: quarry_core::heap::Heap::kmalloc_aligned
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::HostHeap;
    ///
    /// let heap = HostHeap::new()?;
    /// let large = heap.kvmalloc(100 << 20, 16).ok_or("out of memory")?;
    /// assert_eq!(heap.kvsize(large), Some(100 << 20));
    /// // SAFETY: the block is not used any more.
    /// unsafe { heap.kvfree(large) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn kvmalloc(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        alloc(self, bytes, align)
    }

    /// [`HostHeap::kvmalloc`], filled with zeros: mappings are so by themselves.
    #[track_caller]
    #[must_use]
    pub fn kvzalloc(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        // A mapping is zero by itself, unless it was used before.
        let Some(object) = self.kmalloc_aligned(bytes, align, None) else {
            return mapped(self, bytes, align, true);
        };
        if bytes > 0 {
            // SAFETY: the object has these bytes, and no code has seen it.
            unsafe { object.write_bytes(0, bytes) };
        }
        Some(object)
    }

    /// Frees what [`HostHeap::kvmalloc`] or kmalloc of this heap allocated.
    ///
    /// # Errors
    ///
    /// As [`kfree`](quarry_core::heap::Heap::kfree).
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline]
    #[track_caller]
    pub unsafe fn kvfree(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { free(self, object) }
    }

    /// Bytes that the owner of an object of [`HostHeap::kvmalloc`] may use, as
    /// [`ksize`](quarry_core::heap::Heap::ksize) says; `None` for other addresses.
    #[must_use]
    pub fn kvsize(&self, object: NonNull<u8>) -> Option<usize> {
        size(self, object)
    }

    /// Gives an object of [`HostHeap::kvmalloc`] another size, in place if it has room and would stay at least half used,
    /// else elsewhere, with its bytes. Pages of mappings move without being copied. `Ok(None)` when memory is
    /// exhausted; the old object stays.
    ///
    /// # Errors
    ///
    /// As [`HostHeap::kvfree`], if the object turns out to be none or free already; nothing has changed then.
    ///
    /// # Safety
    ///
    /// The object is one of this heap, and only the caller uses it. If the result is `Ok(Some)`, only that is used from
    /// then on.
    #[track_caller]
    pub unsafe fn kvrealloc(
        &self,
        object: NonNull<u8>,
        bytes: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller vouches for the object.
        unsafe { resize(self, object, bytes, align) }
    }
}
