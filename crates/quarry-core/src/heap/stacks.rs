//! The stacks of a cache's CPUs, for callers that keep their place.

use core::ptr::NonNull;

use super::{CacheView, Heap};
use crate::design::Design;
use crate::machine::{Machine, SlotLock, Work, work};

/// The place of the stacks that the CPUs have of a cache.
///
/// A caller that keeps it next to the cache's address frees an object without a look at the cache: the stack's address comes
/// a load earlier. While a processor does not know where a free stores the object, the next allocation waits.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CpuStacks(NonNull<SlotLock>);

// SAFETY: an address that never changes. Slots are reached by steps of the machine alone, which any thread may take.
unsafe impl Send for CpuStacks {}
// SAFETY: as for `Send`.
unsafe impl Sync for CpuStacks {}

impl CpuStacks {
    /// An attempt before [`Cache::free`](super::Cache::free), which has to follow if this is `false`.
    ///
    /// # Safety
    ///
    /// [`CacheView::cpu_stacks`] returned this for a cache of the heap. The object is one of that cache, and has no user left.
    #[inline(always)]
    #[must_use]
    pub unsafe fn push<M: Machine, D: Design>(
        &self,
        heap: &Heap<M, D>,
        object: NonNull<u8>,
    ) -> bool {
        // SAFETY: slots of the object's cache, of this machine and design, as the caller says; it has no user left.
        let freed = unsafe { D::push_to(heap.machine(), &self.0, object) };
        if freed {
            // Else `free` accounts it.
            work(heap.machine(), Work::Call);
        }
        freed
    }
}

impl<M: Machine, D: Design> CacheView<'_, M, D> {
    /// The stacks of the cache's CPUs, if they take any object of it. None with debugging or hardening, whose calls look at
    /// each object.
    #[must_use]
    pub fn cpu_stacks(&self) -> Option<CpuStacks> {
        let body = self.body;
        if body.head.flags.checked() {
            return None;
        }
        body.design.cpu_stacks().map(CpuStacks)
    }
}
