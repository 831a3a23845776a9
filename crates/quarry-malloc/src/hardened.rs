//! Heaps with measures against mistakes, which know what each block was asked for, and what their reports say.

use core::fmt::{self, Write as _};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use quarry::{
    Builder, CallSite, Caller, Design, Error, FreeError, Hardening, HostHeap, ProcessHeap, Report,
    TextOut,
};

use crate::heaps::{self, Heap, give_up, variable};
use crate::report::Totals;

/// A heap of the process whose caches are hardened.
pub(crate) struct Hardened<D: Design>(pub(crate) &'static ProcessHeap<D>);

impl<D: Design> Hardened<D> {
    #[inline(always)]
    fn heap(&self) -> Option<&'static HostHeap<D>> {
        self.0.get().ok()
    }
}

impl<D: Design> Heap for Hardened<D> {
    fn alloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap()?
            .kvmalloc_hardened(bytes, align, CallSite::UNKNOWN)
    }

    fn alloc_zeroed(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap()?
            .kvzalloc_hardened(bytes, align, CallSite::UNKNOWN)
    }

    unsafe fn free(&'static self, block: NonNull<u8>) -> Result<(), FreeError> {
        heaps::check_block(block)?;
        let heap = self.heap().ok_or(FreeError::Foreign)?;
        // SAFETY: the caller vouches that the block has no user left.
        unsafe { heap.kvfree_hardened(block, None, CallSite::UNKNOWN) }
    }

    unsafe fn free_sized(&'static self, block: NonNull<u8>, bytes: usize) -> Result<(), FreeError> {
        heaps::check_block(block)?;
        let heap = self.heap().ok_or(FreeError::Foreign)?;
        // SAFETY: the caller vouches that the block has no user left.
        unsafe { heap.kvfree_hardened(block, Some(bytes.max(1)), CallSite::UNKNOWN) }
    }

    unsafe fn resize(
        &'static self,
        block: NonNull<u8>,
        bytes: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        heaps::check_block(block)?;
        let heap = self.heap().ok_or(FreeError::Foreign)?;
        let Some(old) = heap.kvsize(block) else {
            // SAFETY: no block in use begins there, so this makes a report and changes nothing.
            return unsafe { self.free(block) }.map(|()| None);
        };
        let stays = bytes > old / 2 && block.addr().get().is_multiple_of(align);
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

/// The process ends with its first mistake.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Measures and debugging that the environment asks for, and reports that name the program's own code.
pub(crate) fn configure<D: Design>(builder: Builder<D>) -> Builder<D> {
    let hardening = wished();
    ENDS.store(hardening != Hardening::NONE, Ordering::Relaxed);
    let builder = builder.hardened(hardening).reporter(report);
    match variable(c"QUARRY_SLUB_DEBUG") {
        Some(letters) => builder.slub_debug(letters),
        None => builder,
    }
}

/// Writes a report, with the program's own code that made the call.
#[cold]
fn report(report: &Report) {
    let mut out = TextOut::errors();
    // A failure to write has nowhere to be reported.
    let _ = write!(out, "libquarry_malloc: {report}");
    let _ = match Caller::outside() {
        Some(caller) => writeln!(out, "\n  called from {caller}"),
        None => writeln!(out),
    };
    let _ = out.flush();
    if ENDS.load(Ordering::Relaxed) {
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    }
}
