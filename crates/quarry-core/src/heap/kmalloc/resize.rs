//! Sizes of kmalloc's objects, and requests that follow from them: `ksize`, `krealloc`, alignments.

use core::ptr::NonNull;

use crate::debug::{self, CallSite};
use crate::design::{Design, FreeError};
use crate::geometry::KmallocService;
use crate::harden;
use crate::heap::{Heap, ZERO_SIZE_ADDRESS};
use crate::machine::{Machine, NodeId};
use crate::page::PageKind;

/// Alignment of kmalloc's objects in every release (`ARCH_KMALLOC_MINALIGN` without DMA).
const KMALLOC_ALIGN: usize = 8;

impl<M: Machine, D: Design> Heap<M, D> {
    /// Bytes of an object that its owner may use, at least those of the request: the size of its class, or of its
    /// pages. Caches with red zones behind requests, and designs without classes, give the size of the request. 0 for
    /// [`ZERO_SIZE_ADDRESS`]; `None` for an address whose page shows that kmalloc did not return it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use quarry_core::{design::Design, heap::Heap, machine::Machine};
    /// # fn demo<M: Machine, D: Design>(heap: &Heap<M, D>) {
    /// let object = heap.kmalloc(100, None).unwrap();
    /// assert!(heap.ksize(object).is_some_and(|bytes| bytes >= 100));
    /// # }
    /// ```
    pub fn ksize(&self, object: NonNull<u8>) -> Option<usize> {
        if object.addr().get() == ZERO_SIZE_ADDRESS {
            return Some(0);
        }
        if let Some(body) = self.class_of(object) {
            if let Some(armour) = body.head.armour() {
                return harden::request(self.env(&body.head), armour, object);
            }
            let bytes = match body.head.flags.debug() {
                true => debug::request(&body.design, self.env(&body.head), object)?,
                false => body.head.geometry.layout.object_size,
            };
            return Some(bytes as usize);
        }
        let map = self.system.pages.map();
        let (_, page) = map.page_of(object)?;
        if page.kind() == PageKind::LargeKmalloc {
            return Some(1 << (map.page_shift() + page.order()));
        }
        if !D::FEATURES.shared_slabs {
            return None;
        }
        let body = self.direct()?;
        body.design.ksize(self.env(&body.head), object)
    }

    /// [`Heap::kmalloc`] with an alignment, a power of two. Classes of powers of two are aligned to their size in most
    /// releases, and blocks of pages to theirs in all; the request is rounded up to what has the alignment. `None`
    /// also for alignments above the largest block, and for those above 8 that are no powers of two.
    #[inline]
    #[track_caller]
    pub fn kmalloc_aligned(
        &self,
        bytes: usize,
        align: usize,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if align <= KMALLOC_ALIGN {
            return self.kmalloc(bytes, node);
        }
        if !align.is_power_of_two() {
            return None;
        }
        if self.hardens() {
            return self.kmalloc_hardened_or_pages(bytes, align, node, CallSite::caller());
        }
        // Mostly the first try: a multiple of the alignment gets a class that is one.
        let object = self.kmalloc(bytes.max(1).checked_next_multiple_of(align)?, node)?;
        if object.addr().get().is_multiple_of(align) {
            return Some(object);
        }
        self.kmalloc_more_aligned(object, bytes.max(align), align, node)
    }

    /// Another object in the place of one that is not aligned.
    #[cold]
    fn kmalloc_more_aligned(
        &self,
        object: NonNull<u8>,
        bytes: usize,
        align: usize,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let refuse = |object| {
            // SAFETY: allocated just now, and no code has seen it.
            let freed = unsafe { self.kfree(object) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        };
        refuse(object);
        let power = bytes.checked_next_power_of_two()?;
        let object = self.kmalloc(power, node)?;
        if object.addr().get().is_multiple_of(align) {
            return Some(object);
        }
        refuse(object);
        // Pages of its own, whose block is aligned to its size.
        let page_shift = self.system.params.page_shift;
        let object = match self.system.kmalloc.service {
            KmallocService::Classes => {
                self.kmalloc_large(power.ilog2().saturating_sub(page_shift), node)?
            }
            KmallocService::Design => self.kmalloc(power.max(1 << page_shift), node)?,
        };
        debug_assert!(object.addr().get().is_multiple_of(align));
        Some(object)
    }

    /// Makes an object larger: in place if its class has room, else by a new one with the old one's bytes. `None`
    /// when memory is exhausted; the old object stays. `None` for the old object is a kmalloc. 0 bytes free it.
    /// A smaller size changes nothing, as in the kernel.
    ///
    /// # Safety
    ///
    /// The object is one of this heap's kmalloc, and only the caller uses it. If the result is `Some`, only that is
    /// used from then on.
    ///
    /// # Examples
    ///
    /// ```
    /// # use quarry_core::{design::Design, heap::Heap, machine::Machine};
    /// # fn demo<M: Machine, D: Design>(heap: &Heap<M, D>) {
    /// let object = heap.kmalloc(8, None).unwrap();
    /// // SAFETY: the object is this function's alone, and only the new one is used from here on.
    /// let object = unsafe { heap.krealloc(Some(object), 4000) }.unwrap();
    /// # }
    /// ```
    #[track_caller]
    pub unsafe fn krealloc(
        &self,
        object: Option<NonNull<u8>>,
        bytes: usize,
    ) -> Option<NonNull<u8>> {
        let Some(old) = object else {
            return self.kmalloc(bytes, None);
        };
        let Some(old_bytes) = self.ksize(old) else {
            let _ = self.kfree_refused(old, FreeError::Foreign, CallSite::caller());
            return None;
        };
        if bytes != 0 && bytes <= old_bytes {
            return object;
        }
        let new = self.kmalloc(bytes, None)?;
        // SAFETY: the old object has this many bytes and the new one at least as many unless nothing is asked for;
        // both are the caller's, and different.
        unsafe { new.copy_from_nonoverlapping(old, old_bytes.min(bytes)) };
        // SAFETY: the caller uses the new object only.
        let freed = unsafe { self.kfree(old) };
        debug_assert!(freed.is_ok(), "{freed:?}");
        Some(new)
    }
}
