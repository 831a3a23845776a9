//! The designs' heaps, and which of them the process uses.

mod hardened;

use core::ffi::{CStr, c_char};
use core::fmt::{self, Write as _};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use quarry::kernel::heap::ZERO_SIZE_ADDRESS;
use quarry::kernel::machine::Cpus as _;
use quarry::{
    Builder, Design, Era, Error, FreeError, HostHeap, Magazine, ProcessHeap, SheafCache, SlabCache,
    Slob, Slub, Slubq, TextOut, TrimPolicy, stays_in_place,
};

use crate::record::{self, Recorded};
use crate::report::{self, Totals};
use hardened::Hardened;

unsafe extern "C" {
    /// The process's environment; null until the C library has set it.
    static environ: *const *const c_char;
}

/// A heap, whatever its design.
pub(crate) trait Heap: Sync {
    /// At least `bytes` bytes, aligned to a power of two.
    fn alloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>>;

    /// The same, with zeros.
    fn alloc_zeroed(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>>;

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// The block has no user left.
    unsafe fn free(&'static self, block: NonNull<u8>) -> Result<(), FreeError>;

    /// Frees a block that was asked for with these bytes; hardened heaps compare them.
    ///
    /// # Safety
    ///
    /// As for [`Heap::free`].
    unsafe fn free_sized(&'static self, block: NonNull<u8>, bytes: usize) -> Result<(), FreeError> {
        check_size(self.size(block), bytes)?;
        // SAFETY: the caller vouches that the block has no user left.
        unsafe { self.free(block) }
    }

    /// Looks for writes to free memory, at the end of the process.
    fn check(&'static self) {}

    /// Gives a block another size, elsewhere if it has to.
    ///
    /// # Safety
    ///
    /// Only the caller uses the block, and then the result if there is one.
    unsafe fn resize(
        &'static self,
        block: NonNull<u8>,
        bytes: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError>;

    /// Bytes that a block's owner may use.
    fn size(&'static self, block: NonNull<u8>) -> Option<usize>;

    /// Gives free memory back to the system except for `keep` bytes; true if any was.
    fn trim(&'static self, keep: usize) -> bool;

    /// Makes the heap if it is not made.
    fn make(&'static self) -> Result<(), Error>;

    /// True once it can be used.
    fn is_made(&self) -> bool;

    /// The numbers of `mallinfo2`; zeros before the heap is made.
    fn totals(&'static self) -> Totals;

    /// Writes slabinfo; nothing before the heap is made.
    fn write_slabinfo(&'static self, out: &mut TextOut) -> fmt::Result;

    /// Writes the heap's part of the process's report; nothing before the heap is made.
    fn write_report(&'static self, out: &mut TextOut) -> fmt::Result;
}

/// Refuses the kernel's address for no bytes: `malloc` of 0 bytes gives out a block here.
#[inline(always)]
pub(crate) fn check_block(block: NonNull<u8>) -> Result<(), FreeError> {
    match block.addr().get() {
        ZERO_SIZE_ADDRESS => Err(FreeError::Foreign),
        _ => Ok(()),
    }
}

/// Refuses a size that a block of `size` bytes cannot have been asked for with.
pub(crate) fn check_size(size: Option<usize>, bytes: usize) -> Result<(), FreeError> {
    match size.is_none_or(|size| stays_in_place(size, bytes)) {
        true => Ok(()),
        false => Err(FreeError::WrongSize),
    }
}

impl<D: Design> Heap for ProcessHeap<D> {
    fn alloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.kvmalloc(bytes, align)
    }

    fn alloc_zeroed(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.kvzalloc(bytes, align)
    }

    unsafe fn free(&'static self, block: NonNull<u8>) -> Result<(), FreeError> {
        check_block(block)?;
        // SAFETY: the caller vouches that the block has no user left.
        unsafe { self.kvfree(block) }
    }

    unsafe fn resize(
        &'static self,
        block: NonNull<u8>,
        bytes: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        check_block(block)?;
        // SAFETY: the caller vouches for the block.
        unsafe { self.kvrealloc(block, bytes, align) }
    }

    fn size(&'static self, block: NonNull<u8>) -> Option<usize> {
        self.kvsize(block)
    }

    fn trim(&'static self, keep: usize) -> bool {
        let Some(heap) = made(self) else { return false };
        let policy = TrimPolicy {
            keep_pages: keep as u64 >> heap.machine().topology().page_shift,
            min_order: 0,
        };
        let kept = heap.machine().return_kept_blocks();
        // Of the heap alone: the mappings are counted above.
        (**heap).trim(policy).pages > 0 || kept > 0
    }

    fn make(&'static self) -> Result<(), Error> {
        self.get().map(|_| ())
    }

    fn is_made(&self) -> bool {
        ProcessHeap::is_made(self)
    }

    fn totals(&'static self) -> Totals {
        made(self).map(Totals::of).unwrap_or_default()
    }

    fn write_slabinfo(&'static self, out: &mut TextOut) -> fmt::Result {
        match made(self) {
            Some(heap) => heap.write_slabinfo(out).map_err(|_| fmt::Error),
            None => Ok(()),
        }
    }

    fn check(&'static self) {
        let Some(heap) = made(self) else { return };
        let hardened = heap.hardens();
        heap.for_each_cache(|cache| match cache.head().flags().debug() {
            true => drop(cache.validate()),
            false if hardened => drop(cache.flush()),
            false => drop(cache.check_kept()),
        });
    }

    fn write_report(&'static self, out: &mut TextOut) -> fmt::Result {
        made(self).map_or(Ok(()), |heap| report::write_heap(heap, out))
    }
}

/// The heap if it is made; a look does not make one.
fn made<D: Design>(heap: &'static ProcessHeap<D>) -> Option<&'static HostHeap<D>> {
    heap.is_made().then(|| heap.get().ok())?
}

const DESIGNS: usize = 6;

/// The heap of a process that asks for nothing else: it is made only where [`choose`] takes it, so that calls that find it
/// made need not look at the choice.
pub(crate) static DIRECT: ProcessHeap<Magazine> = ProcessHeap::configured(settings);

/// Place of the first hardened heap in [`HEAPS`].
const HARDENED: usize = DESIGNS + 1;

/// The heaps by their designs' names; behind them the one that notes every call, and those of the designs with measures
/// against mistakes, and [`DIRECT`].
static HEAPS: [(&str, &dyn Heap); 2 * DESIGNS + 2] = {
    static SLAB: ProcessHeap<SlabCache> = ProcessHeap::configured(settings);
    static SLUB: ProcessHeap<Slub> = ProcessHeap::configured(settings);
    static SLUBQ: ProcessHeap<Slubq> = ProcessHeap::configured(settings);
    static SLOB: ProcessHeap<Slob> = ProcessHeap::configured(settings);
    static SHEAF: ProcessHeap<SheafCache> = ProcessHeap::configured(settings);
    static MAGAZINE: ProcessHeap<Magazine> = ProcessHeap::configured(settings);
    static RECORDED: Recorded = Recorded(plain);
    [
        (Magazine::NAME, &MAGAZINE),
        (SheafCache::NAME, &SHEAF),
        (SlabCache::NAME, &SLAB),
        (Slub::NAME, &SLUB),
        (Slubq::NAME, &SLUBQ),
        (Slob::NAME, &SLOB),
        ("", &RECORDED),
        (Magazine::NAME, &Hardened(&MAGAZINE)),
        (SheafCache::NAME, &Hardened(&SHEAF)),
        (SlabCache::NAME, &Hardened(&SLAB)),
        (Slub::NAME, &Hardened(&SLUB)),
        (Slubq::NAME, &Hardened(&SLUBQ)),
        (Slob::NAME, &Hardened(&SLOB)),
        ("", &DIRECT),
    ]
};

/// Place of the chosen heap in [`HEAPS`], plus one; 0 before the choice.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);
/// Place of the chosen design.
static DESIGN: AtomicUsize = AtomicUsize::new(0);

/// The heap of the chosen design, which notes nothing.
fn plain() -> &'static dyn Heap {
    HEAPS[DESIGN.load(Ordering::Relaxed)].1
}

/// The value of a variable of the environment.
pub(crate) fn variable(name: &CStr) -> Option<&'static str> {
    // SAFETY: the name is a C string. A program that changes its environment in other threads has a race of its own.
    let value = NonNull::new(unsafe { libc::getenv(name.as_ptr()) })?;
    // SAFETY: not null, so it is a C string. It is read before the program's own code can change it.
    let value = unsafe { CStr::from_ptr(value.as_ptr()) };
    value.to_str().ok().filter(|text| !text.is_empty())
}

/// Design and release that the environment asks for.
fn wish() -> Option<(&'static str, Option<&'static str>)> {
    let text = variable(c"QUARRY_DESIGN")?;
    match text.split_once('@') {
        Some((name, release)) => Some((name, Some(release))),
        None => Some((text, None)),
    }
}

/// Settings of a heap.
fn settings<D: Design>(builder: Builder<D>) -> Builder<D> {
    hardened::configure(of_the_release(builder))
}

/// The release of a heap. One that the design does not have is refused when the heap is made.
fn of_the_release<D: Design>(builder: Builder<D>) -> Builder<D> {
    let Some((_, Some(release))) = wish() else {
        return builder;
    };
    match Era::parse(release) {
        Some(era) => builder.era(era),
        None => give_up(format_args!(
            "QUARRY_DESIGN: there is no release \"{release}\"; the first is {}, the newest {}",
            Era::ALL[0],
            Era::ALL[Era::ALL.len() - 1]
        )),
    }
}

/// Prints why the process cannot go on, and ends it.
#[cold]
pub(crate) fn give_up(why: fmt::Arguments<'_>) -> ! {
    // A failure to write has nowhere to be reported.
    let _ = writeln!(TextOut::errors(), "libquarry_malloc: {why}");
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// The heap of this process; `None` before there is an environment to choose it by.
#[inline(always)]
pub(crate) fn chosen() -> Option<&'static dyn Heap> {
    match CHOSEN.load(Ordering::Relaxed).checked_sub(1) {
        Some(at) => HEAPS.get(at).map(|(_, heap)| *heap),
        None => choose(),
    }
}

/// True if the process's heap takes measures against mistakes.
pub(crate) fn is_hardened() -> bool {
    chosen().is_some() && DESIGN.load(Ordering::Relaxed) >= HARDENED
}

#[cold]
#[inline(never)]
fn choose() -> Option<&'static dyn Heap> {
    // SAFETY: a pointer that the C library sets before any code of the program runs.
    if unsafe { environ }.is_null() {
        return None;
    }
    let name = wish().map_or(HEAPS[0].0, |(name, _)| name);
    let designs = &HEAPS[..DESIGNS];
    let Some(at) = designs.iter().position(|(known, _)| *known == name) else {
        let [a, b, c, d, e, f, ..] = HEAPS.map(|(known, _)| known);
        give_up(format_args!(
            "QUARRY_DESIGN: there is no design \"{name}\"; there are {a}, {b}, {c}, {d}, {e} and {f}"
        ));
    };
    let at = if hardened::is_wished() {
        at + HARDENED
    } else {
        at
    };
    DESIGN.store(at, Ordering::Relaxed);
    let at = match variable(c"QUARRY_RECORD") {
        Some(prefix) => {
            // SAFETY: the process makes its first allocation, before its code can have made threads.
            unsafe { record::begin(prefix) };
            DESIGNS
        }
        None if at == 0 => HEAPS.len() - 1,
        None => at,
    };
    CHOSEN.store(at + 1, Ordering::Relaxed);
    Some(HEAPS[at].1)
}
