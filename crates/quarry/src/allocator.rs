//! Heaps as allocators of collections (feature `allocator-api2`).

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use quarry_core::design::Design;

use crate::HostHeap;

/// A collection that has a handle keeps its heap alive. Blocks are those of [`HostHeap::kvmalloc`].
///
/// # Examples
///
/// ```
/// use allocator_api2::vec::Vec;
/// use quarry::HostHeap;
///
/// let heap = HostHeap::new()?;
/// let mut numbers = Vec::new_in(heap);
/// numbers.extend(0..1_000_000_u64);
/// assert_eq!(numbers.iter().sum::<u64>(), 499_999_500_000);
/// # Ok::<(), quarry::Error>(())
/// ```
// SAFETY: a block stays allocated until it is freed, and its memory mapped while a handle to the heap is left;
// handles are clones of each other, and moving one moves no memory.
unsafe impl<D: Design> Allocator for HostHeap<D> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let bytes = layout.size();
        if bytes == 0 {
            let nothing = std::ptr::without_provenance_mut(layout.align());
            let nothing = NonNull::new(nothing).ok_or(AllocError)?;
            return Ok(NonNull::slice_from_raw_parts(nothing, 0));
        }
        let block = self.kvmalloc(bytes, layout.align()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, bytes))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: by the caller's contract `allocate` of this heap returned the block, and it is not used.
            let freed = unsafe { self.kvfree(block) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }

    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by the caller's contract the block is its own, of the old layout.
        unsafe { resize(self, block, old, new) }
    }

    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by the caller's contract the block is its own, of the old layout.
        unsafe { resize(self, block, old, new) }
    }
}

/// # Safety
///
/// As for [`Allocator::grow`] or [`Allocator::shrink`].
unsafe fn resize<D: Design>(
    heap: &HostHeap<D>,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    if old.size() == 0 {
        return heap.allocate(new);
    }
    if new.size() == 0 {
        // SAFETY: by the caller's contract the block has this layout, and only the result is used from here on.
        unsafe { heap.deallocate(block, old) };
        return heap.allocate(new);
    }
    // SAFETY: the block is of this heap and its owner's alone, as the caller says.
    let block = unsafe { heap.kvrealloc(block, new.size(), new.align()) };
    let block = block.ok().flatten().ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(block, new.size()))
}
