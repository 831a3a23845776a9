//! Objects whose owner is known to the compiler: freed when they are dropped, once, by no other code.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::{Cache, Heap};
use crate::design::Design;
use crate::machine::Machine;

/// Destination of an object that is dropped.
enum Home<'h, M: Machine, D: Design> {
    Cache(Cache<'h, M, D>),
    /// The heap whose kmalloc gave it.
    Heap(&'h Heap<M, D>),
}

/// An object of a cache, or a block of kmalloc, that is its owner's alone. Any thread may own or drop it.
///
/// ```
/// # use quarry_core::{design::Design, heap::Heap, machine::Machine};
/// # fn demo<M: Machine, D: Design>(heap: &Heap<M, D>) {
/// let mut block = heap.kmalloc_owned(100).unwrap();
/// block.as_uninit_bytes_mut()[0].write(7);
/// drop(block); // and now it is free
/// # }
/// ```
pub struct OwnedObject<'h, M: Machine, D: Design> {
    home: Home<'h, M, D>,
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the object's memory is its owner's alone, and caches and heaps may be used by any thread, to free it, too.
unsafe impl<M: Machine + Sync, D: Design> Send for OwnedObject<'_, M, D> {}
// SAFETY: a shared handle gives no access but reads of `MaybeUninit`.
unsafe impl<M: Machine + Sync, D: Design> Sync for OwnedObject<'_, M, D> {}

impl<M: Machine, D: Design> OwnedObject<'_, M, D> {
    /// Its memory, which holds whatever it held before ([`OwnedBlock::as_uninit_bytes_mut`] says why it is no `u8`).
    ///
    /// [`OwnedBlock::as_uninit_bytes_mut`]: crate::page::OwnedBlock::as_uninit_bytes_mut
    #[inline]
    pub fn as_uninit_bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the allocation has these bytes, they are memory of the machine (M2), and only its owner's, who is
        // borrowed. `MaybeUninit` asks for no initialised value.
        unsafe { core::slice::from_raw_parts_mut(self.at.cast().as_ptr(), self.bytes) }
    }

    /// The same to read.
    #[inline]
    pub fn as_uninit_bytes(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: the allocation has these bytes, which are only its owner's; no writer can borrow the owner meanwhile.
        unsafe { core::slice::from_raw_parts(self.at.cast().as_ptr(), self.bytes) }
    }
}

impl<M: Machine, D: Design> Drop for OwnedObject<'_, M, D> {
    #[inline]
    fn drop(&mut self) {
        let freed = match &self.home {
            // SAFETY: the handle alone had the object, which was this cache's, and ends here.
            Home::Cache(cache) => unsafe { cache.free(self.at) },
            // SAFETY: the handle alone had the block, which came from this heap's kmalloc, and ends here.
            Home::Heap(heap) => unsafe { heap.kfree(self.at) },
        };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

impl<M: Machine, D: Design> fmt::Debug for OwnedObject<'_, M, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedObject")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl<'h, M: Machine, D: Design> Cache<'h, M, D> {
    /// [`Cache::alloc`], as an object that is its handle's alone.
    #[inline]
    pub fn alloc_owned(&self) -> Option<OwnedObject<'h, M, D>> {
        Some(OwnedObject {
            home: Home::Cache(*self),
            at: self.alloc()?,
            bytes: self.head().usable as usize,
        })
    }
}

impl<M: Machine, D: Design> Heap<M, D> {
    /// [`Heap::kmalloc`], as a block that is its handle's alone.
    #[inline]
    pub fn kmalloc_owned(&self, bytes: usize) -> Option<OwnedObject<'_, M, D>> {
        Some(OwnedObject {
            home: Home::Heap(self),
            at: self.kmalloc(bytes, None)?,
            bytes,
        })
    }
}
