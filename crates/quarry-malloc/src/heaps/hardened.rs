//! Heaps with measures against mistakes, which know what each block was asked for, and what their reports say.

use core::fmt;
use core::ptr::NonNull;

use quarry::kernel::machine::Cpus as _;
use quarry::{
    Builder, CallSite, Caller, Design, Error, FreeError, Hardening, HostHeap, LibraryReports,
    ProcessHeap, TextOut,
};

use super::{Heap, check_block, check_size, give_up, variable};
use crate::report::Totals;

/// A heap of the process whose caches are hardened or have debugging.
pub(crate) struct Hardened<D: Design>(pub(crate) &'static ProcessHeap<D>);

/// Alignment that a block of any size may need, mostly without a look.
const NATURAL_ALIGN: usize = 16;

impl<D: Design> Hardened<D> {
    #[inline(always)]
    fn heap(&self) -> Option<&'static HostHeap<D>> {
        self.0.get().ok()
    }

    /// Allocates from a heap with debugging.
    #[cold]
    fn alloc_traced(heap: &HostHeap<D>, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if align > NATURAL_ALIGN {
            return heap.kvmalloc(bytes, align);
        }
        let site = Caller::site();
        let Some(object) = heap.kmalloc_at(bytes, None, site) else {
            return heap.kvmalloc(bytes, align);
        };
        if object.addr().get().is_multiple_of(align) {
            return Some(object);
        }
        // SAFETY: allocated just now, and no code has seen it.
        let freed = unsafe { heap.kfree_at(object, site) };
        debug_assert!(freed.is_ok(), "{freed:?}");
        heap.kvmalloc(bytes, align)
    }

    /// Changes the length of a mapping, in place or by moving its pages; `None` for other blocks.
    fn resize_mapping(
        heap: &HostHeap<D>,
        block: NonNull<u8>,
        bytes: usize,
        align: usize,
        stays: bool,
    ) -> Option<NonNull<u8>> {
        /// Smaller blocks are none of their own.
        const MAPPED_MIN: usize = 256 << 10;
        if bytes < MAPPED_MIN || align > NATURAL_ALIGN {
            return None;
        }
        let machine = heap.machine();
        let mapped = machine.block_bytes(block)?;
        let page = 1 << machine.topology().page_shift;
        if stays && bytes <= mapped && bytes + page > mapped {
            return Some(block);
        }
        // SAFETY: only the caller of `resize` uses the block, and then the result.
        unsafe { machine.remap_block(block, bytes) }
    }

    /// Frees a block of a heap with debugging.
    ///
    /// # Safety
    ///
    /// The block has no user left.
    #[cold]
    unsafe fn free_traced(heap: &HostHeap<D>, block: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the block has no user left.
        unsafe { heap.kvfree_hardened(block, None, Caller::site()) }
    }
}

impl<D: Design> Heap for Hardened<D> {
    fn alloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let heap = self.heap()?;
        match heap.hardens() {
            true => heap.kvmalloc_hardened(bytes, align, CallSite::UNKNOWN),
            false => Self::alloc_traced(heap, bytes, align),
        }
    }

    fn alloc_zeroed(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let heap = self.heap()?;
        if heap.hardens() {
            return heap.kvzalloc_hardened(bytes, align, CallSite::UNKNOWN);
        }
        let block = Self::alloc_traced(heap, bytes, align)?;
        // SAFETY: the block has these bytes, and no code has seen it.
        unsafe { block.write_bytes(0, bytes) };
        Some(block)
    }

    unsafe fn free(&'static self, block: NonNull<u8>) -> Result<(), FreeError> {
        check_block(block)?;
        let heap = self.heap().ok_or(FreeError::Foreign)?;
        if !heap.hardens() {
            // SAFETY: the caller vouches that the block has no user left.
            return unsafe { Self::free_traced(heap, block) };
        }
        // SAFETY: as above.
        unsafe { heap.kvfree_hardened(block, None, CallSite::UNKNOWN) }
    }

    unsafe fn free_sized(&'static self, block: NonNull<u8>, bytes: usize) -> Result<(), FreeError> {
        check_block(block)?;
        let heap = self.heap().ok_or(FreeError::Foreign)?;
        if !heap.hardens() {
            check_size(self.size(block), bytes)?;
            // SAFETY: the caller vouches that the block has no user left.
            return unsafe { self.free(block) };
        }
        // SAFETY: as above.
        unsafe { heap.kvfree_hardened(block, Some(bytes.max(1)), CallSite::UNKNOWN) }
    }

    unsafe fn resize(
        &'static self,
        block: NonNull<u8>,
        bytes: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        check_block(block)?;
        let heap = self.heap().ok_or(FreeError::Foreign)?;
        let Some(old) = heap.kvsize(block) else {
            // SAFETY: no block in use begins there, so this makes a report and changes nothing.
            return unsafe { self.free(block) }.map(|()| None);
        };
        let stays = heap.hardens() && bytes > old / 2 && block.addr().get().is_multiple_of(align);
        if let Some(moved) = Self::resize_mapping(heap, block, bytes, align, stays) {
            return Ok(Some(moved));
        }
        // SAFETY: only the caller uses the block.
        if stays && unsafe { heap.resize_hardened(block, bytes) } {
            return Ok(Some(block));
        }
        let Some(new) = self.alloc(bytes, align) else {
            return Ok(None);
        };
        // SAFETY: both blocks have these bytes, and are different.
        unsafe { new.copy_from_nonoverlapping(block, old.min(bytes)) };
        // SAFETY: the caller uses the new block only.
        unsafe { self.free(block) }.map(|()| Some(new))
    }

    fn size(&'static self, block: NonNull<u8>) -> Option<usize> {
        Heap::size(self.0, block)
    }

    fn trim(&'static self, keep: usize) -> bool {
        Heap::trim(self.0, keep)
    }

    fn make(&'static self) -> Result<(), Error> {
        Heap::make(self.0)
    }

    fn is_made(&self) -> bool {
        Heap::is_made(self.0)
    }

    fn totals(&'static self) -> Totals {
        Heap::totals(self.0)
    }

    fn write_slabinfo(&'static self, out: &mut TextOut) -> fmt::Result {
        Heap::write_slabinfo(self.0, out)
    }

    fn write_report(&'static self, out: &mut TextOut) -> fmt::Result {
        Heap::write_report(self.0, out)
    }

    fn check(&'static self) {
        Heap::check(self.0);
    }
}

/// The measures that the environment asks for.
pub(crate) fn wished() -> Hardening {
    let list = variable(c"QUARRY_HARDENED").unwrap_or_default();
    Hardening::parse(list).unwrap_or_else(|error| give_up(format_args!("QUARRY_HARDENED: {error}")))
}

/// The caches that the environment names for debugging, and their letters.
fn debug_letters() -> Option<&'static str> {
    variable(c"QUARRY_SLUB_DEBUG")
}

/// True if calls have to come by [`Hardened`].
pub(crate) fn is_wished() -> bool {
    wished().caches() || debug_letters().is_some()
}

static REPORTS: LibraryReports = LibraryReports::new("libquarry_malloc");

/// Measures and debugging that the environment asks for, and reports that name the program's own code.
pub(crate) fn configure<D: Design>(builder: Builder<D>) -> Builder<D> {
    let builder = REPORTS.hardened(builder, wished());
    let builder = builder.reporter(|report| REPORTS.write(report));
    match debug_letters() {
        Some(letters) => builder.slub_debug(letters),
        None => builder,
    }
}
