//! Heaps as allocators of collections (feature `allocator-api2`).

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use quarry_core::design::Design;

use crate::HostHeap;

/// Alignment of kmalloc's objects in every era (`ARCH_KMALLOC_MINALIGN` without DMA).
const KMALLOC_ALIGN: usize = 8;

/// A collection that has a handle keeps its heap alive. Blocks come from the kmalloc caches, large ones from
/// the page allocator. A block has at most 2^10 pages, 4 MiB by default; a larger one is refused.
///
/// # Examples
///
/// ```
/// use allocator_api2::vec::Vec;
/// use quarry::HostHeap;
///
/// let heap = HostHeap::new()?;
/// let mut numbers = Vec::new_in(heap);
/// numbers.extend(0..1000_u64);
/// assert_eq!(numbers.iter().sum::<u64>(), 499_500);
/// # Ok::<(), quarry::Error>(())
/// ```
// SAFETY: a block stays allocated until it is freed, and its memory mapped while a handle to the heap is left;
// handles are clones of each other, and moving one moves no memory.
unsafe impl<D: Design> Allocator for HostHeap<D> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let bytes = layout.size();
        if bytes == 0 {
            let nothing = std::ptr::without_provenance_mut(layout.align());
            let nothing = NonNull::new(nothing).ok_or(AllocError)?;
            return Ok(NonNull::slice_from_raw_parts(nothing, 0));
        }
        let wish = if layout.align() <= KMALLOC_ALIGN {
            bytes
        } else {
            // Classes of powers of two are aligned to their size where the era's geometry says so.
            let at_least = bytes.max(layout.align());
            at_least.checked_next_power_of_two().ok_or(AllocError)?
        };
        let block = match aligned_block(self, wish, layout.align())? {
            Some(block) => block,
            None => {
                // Twice the largest class is a block of pages, which is aligned to its size.
                let mut wish = wish;
                while self.kmalloc_cache(wish).is_some() {
                    wish *= 2;
                }
                aligned_block(self, wish, layout.align())?.ok_or(AllocError)?
            }
        };
        Ok(NonNull::slice_from_raw_parts(block, bytes))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: by the caller's contract `allocate` of this heap returned the block, and it is not used.
            let freed = unsafe { self.kfree(block) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }
}

/// Allocates a block; `None`, and it is freed again, if it is not aligned as asked for.
fn aligned_block<D: Design>(
    heap: &HostHeap<D>,
    bytes: usize,
    align: usize,
) -> Result<Option<NonNull<u8>>, AllocError> {
    let block = heap.kmalloc(bytes, None).ok_or(AllocError)?;
    if block.addr().get().is_multiple_of(align) {
        return Ok(Some(block));
    }
    // SAFETY: allocated just now, and no code has seen it.
    let freed = unsafe { heap.kfree(block) };
    debug_assert!(freed.is_ok(), "{freed:?}");
    Ok(None)
}
