//! The system of one heap's caches, whatever their design: pages, kmalloc, the list of caches.

mod list;

use core::any::TypeId;
use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::debug::HeapDebug;
use crate::era::Era;
use crate::geometry::{BootParams, KmallocClass, KmallocRules, MachineParams};
use crate::machine::{LockClass, Machine, SpinLock, Stopped};
use crate::page::PageAllocator;
use crate::sync::{AtomicPtr, AtomicU64};
pub(crate) use list::{CacheList, ListLinks, PLACE_BYTES};

/// Sizes between two places of [`System::by_size`]: every class is a multiple of it.
pub(crate) const SMALL_STEP: usize = 8;
/// Alignment of every type of the C language that is larger than [`SMALL_STEP`] bytes.
pub(crate) const SMALL_ALIGN: usize = 16;
/// Requests up to this many bytes have a place in [`System::by_size`], larger ones up to 256 KiB one
/// in [`System::by_eighth`]. The classes of all others are found by the release's rules.
pub(crate) const SMALL_MAX: usize = 1024;
/// Places of [`System::by_eighth`], eight for each doubling.
const EIGHTHS: usize = 64;

/// Place of a size above [`SMALL_MAX`] in [`System::by_eighth`]. The sizes of a place are those above one eighth of the
/// way to the next power of two, up to the next eighth: no release has two classes in one.
#[inline(always)]
pub(crate) const fn eighth(bytes: usize) -> usize {
    let last = bytes - 1;
    let doublings = last.ilog2();
    let eighth = (last >> (doublings - 3)) & 7;
    ((doublings - SMALL_MAX.ilog2()) as usize) << 3 | eighth
}

/// The sizes of a place of [`System::by_eighth`].
pub(crate) const fn eighth_sizes(place: usize) -> RangeInclusive<usize> {
    let step = (SMALL_MAX / 8) << (place / 8);
    let before = step * (8 + place % 8);
    before + 1..=before + step
}

/// See the [module's documentation](self).
pub struct System<M: Machine> {
    pub(crate) pages: PageAllocator<M>,
    pub(crate) era: Era,
    pub(crate) params: MachineParams,
    pub(crate) boot: BootParams,
    pub(crate) kmalloc: &'static KmallocRules,
    /// The design that the heap was made for.
    pub(crate) design: TypeId,
    /// State that the design's caches share, in the machine's structure range.
    pub(crate) shared: NonNull<()>,
    /// Bodies of the kmalloc caches, as the heap makes them.
    pub(crate) classes: [AtomicPtr<()>; KmallocClass::INDEXES],
    /// The same of a hardened heap, which leaves the others empty: fast paths find no class.
    pub(crate) hardened_classes: [AtomicPtr<()>; KmallocClass::INDEXES],
    /// The same as `by_size`, of requests with their trailers.
    pub(crate) hardened_by_size: [AtomicPtr<()>; SMALL_MAX / SMALL_STEP + 1],
    /// The same by the size of a request, in steps of [`SMALL_STEP`] bytes rounded up. 0 bytes have none.
    pub(crate) by_size: [AtomicPtr<()>; SMALL_MAX / SMALL_STEP + 1],
    /// The same for objects that are aligned as every type of their size is in C: sizes from [`SMALL_ALIGN`] on are
    /// rounded up to a multiple of it.
    pub(crate) by_aligned_size: [AtomicPtr<()>; SMALL_MAX / SMALL_STEP + 1],
    /// The same for larger sizes: see [`eighth`].
    pub(crate) by_eighth: [AtomicPtr<()>; EIGHTHS],
    pub(crate) caches: SpinLock<CacheList>,
    /// Bytes that sheaves have grown by, all together.
    pub(crate) grown_bytes: AtomicU64,
    pub(crate) large_allocs: AtomicU64,
    pub(crate) large_frees: AtomicU64,
    /// The user's settings for debugging.
    pub(crate) debug: HeapDebug,
}

// SAFETY: the raw pointers name caches and the designs' shared state in the machine's structure
// range, which live as long as the system; these are themselves `Sync` (`Design` asks for it); the
// list head is only touched under its lock.
unsafe impl<M: Machine + Sync> Sync for System<M> {}
// SAFETY: as for `Sync`.
unsafe impl<M: Machine + Send> Send for System<M> {}

impl<M: Machine> System<M> {
    pub(crate) fn new(
        pages: PageAllocator<M>,
        era: Era,
        params: MachineParams,
        boot: BootParams,
        kmalloc: &'static KmallocRules,
        design: TypeId,
        shared: NonNull<()>,
    ) -> Self {
        let caches = CacheList::new(pages.meta().base());
        Self {
            pages,
            era,
            params,
            boot,
            kmalloc,
            design,
            shared,
            classes: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            hardened_classes: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            hardened_by_size: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            by_size: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            by_aligned_size: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            by_eighth: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            caches: SpinLock::new(LockClass::CacheList, caches),
            grown_bytes: AtomicU64::new(0),
            large_allocs: AtomicU64::new(0),
            large_frees: AtomicU64::new(0),
            debug: HeapDebug::new(),
        }
    }

    /// Gives a block of the machine's structure range back.
    ///
    /// # Safety
    ///
    /// `meta().alloc` handed out the block for these bytes, and no code uses it any more.
    pub(crate) unsafe fn free_meta(&self, block: NonNull<u8>, bytes: usize) {
        // SAFETY: the block has this many bytes, and is the caller's. The range hands out zeroed blocks.
        unsafe { block.write_bytes(0, bytes) };
        // SAFETY: the range handed out the block for these bytes, as the caller says, and it is zeroed.
        unsafe { self.pages.meta().free(self.pages.machine(), block, bytes) };
    }

    /// Keeps operations without a CPU's slot out ([`Gate::stop`](crate::machine::Gate)). A walker over
    /// the list of caches holds its lock and works on no cache.
    pub(crate) fn stop(&self) -> Option<Stopped<'_>> {
        let machine = self.pages.machine();
        self.pages
            .gate()
            .stop(machine, self.caches.is_mine(machine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places have no gap and no overlap, and every release's classes end where a place ends.
    #[test]
    fn an_eighth_has_the_sizes_up_to_its_end() {
        let mut first = SMALL_MAX + 1;
        for place in 0..EIGHTHS {
            let sizes = eighth_sizes(place);
            assert_eq!(*sizes.start(), first);
            assert_eq!((eighth(first), eighth(*sizes.end())), (place, place));
            first = sizes.end() + 1;
        }
        assert_eq!(first, (256 << 10) + 1);
        assert_eq!(eighth(first), EIGHTHS);
    }
}
