//! The heap of the process: a static, made at its first use, and the global allocator over it.

use std::alloc::{GlobalAlloc, Layout};
use std::fmt;
use std::hint::cold_path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use quarry_core::design::{Design, FreeError};
use quarry_core::machine::{Clock as _, Cpus as _, Memory as _};
use quarry_host::fork::{self, Alone};

use crate::host::RawHeap;
use crate::{Builder, DefaultDesign, Error, HostHeap, HugePages, kvmalloc};

/// Smallest value that `percpu_pagelist_high_fraction` takes.
const PAGELIST_FRACTION_MIN: usize = 8;
/// Bytes of free pages that the heap keeps. What goes back and is needed again is kept the next time
/// ([`TrimPolicy`](quarry_core::page::TrimPolicy)), so a program that needs more has it after one round.
const KEPT_BYTES: usize = 2 << 20;
/// Bytes that the page lists of all CPUs have at most, and freed mappings that were missed.
const LISTS_BYTES: usize = 16 << 20;
/// Bytes of pages for which the system's huge pages are not asked: small programs would have 2 MiB more.
const SMALL_BYTES: usize = 4 << 20;
/// Slow frees between two looks at what is due. Each of them freed tens of objects, mostly.
const REAP_EVERY: u32 = 1 << 12;
/// Slow frees between two looks at free pages. A few frees of large objects leave many pages.
const TRIM_EVERY: u32 = 1 << 6;
/// Time between two looks of threads that come back from a sleep, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// Fewer slow frees between two looks are those of an idle program.
const BUSY_FREES: u32 = 1 << 6;

/// A heap that is a static: made at its first use, by whichever thread that is, and kept until the process ends.
///
/// Making and using it calls no other allocator, so that it can be the process's own. Mistakes, such as freeing an
/// object twice, change nothing; they are written to the standard error output.
///
/// CPUs' page lists together keep 16 MiB at most. Of more than 2 MiB of other free pages, whole huge pages (2 MiB) go back
/// to the system: at the free of a block of pages, now and then at frees that CPUs' own lists do not take, and once a second
/// at the allocation of a thread that slept before it ([`HostHeap::reap`]). What is needed again is kept the next time. If a heap
/// above 2 MiB was not busy for that second, also the objects that its CPUs hold go back, once
/// ([`HostHeap::shrink`](crate::Heap::shrink)). [`Builder::trim_above_bytes`] changes the bound. Freed mappings of
/// [`HostHeap::kvmalloc`] are kept for later ones of their size where such were missed
/// ([`HostMachine::keep_blocks`](quarry_host::HostMachine::keep_blocks)): 16 MiB
/// or an eighth of those in use at most, and for no more than a second while others come and go.
///
/// Beyond its first 4 MiB the system is asked for huge pages ([`HugePages::TransparentBeyond`]), and has them where
/// `/sys/kernel/mm/transparent_hugepage/enabled` is not `never`; [`Builder::huge_pages`] chooses otherwise.
///
/// # Examples
///
/// ```
/// use quarry::{Cache, ProcessHeap};
///
/// static HEAP: ProcessHeap = ProcessHeap::new();
///
/// let heap = HEAP.get()?;
/// let sessions = Cache::new(heap, "session")?;
/// assert_eq!(*sessions.alloc(7_u64)?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ProcessHeap<D: Design = DefaultDesign> {
    /// Null until the heap is made; then a [`HostHeap`], for good.
    heap: AtomicPtr<()>,
    /// Frees that no CPU's list took.
    slow_frees: AtomicU32,
    /// The clock at the last look of a thread that had slept, in nanoseconds, and the slow frees before it.
    looked_ns: AtomicU64,
    looked_frees: AtomicU32,
    /// Slow frees before all caches were shrunk.
    shrunk_frees: AtomicU32,
    configure: fn(Builder<D>) -> Builder<D>,
}

impl<D: Design> Default for ProcessHeap<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Design> ProcessHeap<D> {
    /// A heap that is not made yet, of the design's newest release and all defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self::configured(|builder| builder)
    }

    /// A heap that is not made yet, with settings that it is made with. The function calls no allocator if the heap
    /// is the process's. Threads that are first together all call it, and one heap is made.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Era, ProcessHeap, Slub};
    ///
    /// static HEAP: ProcessHeap<Slub> = ProcessHeap::configured(|builder| builder.era(Era::V5_9));
    /// assert_eq!(HEAP.get()?.era(), Era::V5_9);
    /// # Ok::<(), quarry::Error>(())
    /// ```
    #[must_use]
    pub const fn configured(configure: fn(Builder<D>) -> Builder<D>) -> Self {
        const {
            assert!(size_of::<HostHeap<D>>() == size_of::<AtomicPtr<()>>());
            assert!(align_of::<HostHeap<D>>() == align_of::<AtomicPtr<()>>());
        }
        Self {
            heap: AtomicPtr::new(std::ptr::null_mut()),
            slow_frees: AtomicU32::new(0),
            looked_ns: AtomicU64::new(0),
            looked_frees: AtomicU32::new(0),
            shrunk_frees: AtomicU32::new(0),
            configure,
        }
    }

    /// The heap, made now if it is not yet.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`]. The next call tries again. [`Error::Fork`] also if the caller
    /// interrupted its own thread's making of a heap, or is a handler of a fork.
    #[inline]
    pub fn get(&'static self) -> Result<&'static HostHeap<D>, Error> {
        if self.heap.load(Ordering::Acquire).is_null() {
            self.make()?;
        }
        let heap = std::ptr::from_ref(&self.heap).cast::<HostHeap<D>>();
        // SAFETY: `make` stored a heap by `HostHeap::into_raw`, whose form a heap has (`new` compares them), and nothing
        // changes the word any more. The Acquire above, or the making by this thread, orders what it leads to.
        Ok(unsafe { &*heap })
    }

    /// The heap behind its handle, if it is made.
    #[inline(always)]
    fn made(&'static self) -> Option<&'static RawHeap<D>> {
        // Acquire: pairs with the Release in `make`.
        let Some(heap) = NonNull::new(self.heap.load(Ordering::Acquire)) else {
            cold_path();
            return None;
        };
        // SAFETY: `make` stored a heap by `HostHeap::into_raw`, and it stays for good.
        Some(unsafe { HostHeap::<D>::raw_of(heap) })
    }

    /// The first allocation, of all or of a thread that slept. Apart, so that the others save no registers for a call.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn first_kvmalloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let heap = self.get().ok()?;
        self.look(heap);
        heap.kvmalloc(bytes, align)
    }

    /// Does what is due if the calling thread slept since its last call: threads of an idle program sleep, and find all they
    /// need on their CPU's lists.
    #[inline]
    fn look(&self, heap: &HostHeap<D>) {
        if heap.machine().was_away() {
            self.look_after(heap);
        }
    }

    /// Once a second what is due is done. If few frees went past CPUs' lists since the second before, and many since
    /// the last time that this was so, all that caches have free goes back.
    #[cold]
    fn look_after(&self, heap: &HostHeap<D>) {
        // Relaxed here and below: numbers; one of several threads takes the look.
        let (order, now_ns) = (Ordering::Relaxed, heap.machine().now_ns());
        let looked_ns = self.looked_ns.load(order);
        let is_due = now_ns.saturating_sub(looked_ns) >= LOOK_NS;
        let took = |from, to| self.looked_ns.compare_exchange(from, to, order, order);
        if !is_due || took(looked_ns, now_ns).is_err() {
            return;
        }
        let frees = self.slow_frees.load(order);
        let is_busy = frees.wrapping_sub(self.looked_frees.swap(frees, order)) >= BUSY_FREES;
        if is_busy {
            return heap.reap();
        }
        let residency = heap.pages().residency();
        let bytes = residency.resident() << heap.machine().topology().page_shift;
        let was_busy = frees.wrapping_sub(self.shrunk_frees.load(order)) >= BUSY_FREES;
        if was_busy && bytes > KEPT_BYTES as u64 {
            self.shrunk_frees.store(frees, order);
            // A part of an allocation, which waits for no other thread.
            heap.machine().without_waiting(|| heap.shrink());
            heap.pages().drain_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn make(&self) -> Result<(), Error> {
        let builder = Builder::new().report_to_stderr();
        let builder = builder.huge_pages(HugePages::TransparentBeyond(SMALL_BYTES));
        let builder = (self.configure)(builder.trim_above_bytes(KEPT_BYTES));
        // No thread waits for one that the child of a fork does not have: no fork comes between.
        let made = fork::alone(|list| match self.heap.load(Ordering::Relaxed).is_null() {
            true => self.build(builder, list),
            false => Ok(()),
        });
        made.map_err(Error::Fork)?
    }

    /// Makes the heap; the calling thread alone does.
    fn build(&self, builder: Builder<D>, list: &mut Alone<'_>) -> Result<(), Error> {
        let heap = builder.build_in(Some(list))?;
        // Else a CPU's page lists grow to an eighth of all memory since 6.7, and what they have does not go back. Before 5.14
        // there is no such file, and lists are short.
        let memory = heap.machine().ranges().pages.bytes;
        let fraction = (memory / LISTS_BYTES).max(PAGELIST_FRACTION_MIN) as u64;
        let _ = heap
            .pages()
            .set_sysctl("percpu_pagelist_high_fraction", fraction);
        heap.machine().keep_blocks(LISTS_BYTES);
        let heap = heap.into_raw();
        // Release: publishes the heap to those who load its address.
        self.heap.store(heap.as_ptr(), Ordering::Release);
        Ok(())
    }

    /// True once the heap is made.
    pub fn is_made(&self) -> bool {
        !self.heap.load(Ordering::Relaxed).is_null()
    }

    /// [`HostHeap::kvmalloc`]; `None` also if the heap cannot be made.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn kvmalloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        match self.made() {
            Some(heap) if !heap.machine().was_away() => kvmalloc::alloc(heap, bytes, align),
            _ => self.first_kvmalloc(bytes, align),
        }
    }

    /// [`kmalloc_aligned_fast`](quarry_core::heap::Heap::kmalloc_aligned_fast) of the heap if it is made: for callers that
    /// have a slow way of their own, behind which nothing of this attempt is alive. `None` also if the thread slept since its
    /// last call: [`ProcessHeap::kvmalloc`] then looks at what is due.
    #[inline(always)]
    pub fn kmalloc_aligned_fast(&'static self, bytes: usize) -> Option<NonNull<u8>> {
        let heap = self.made()?;
        match heap.machine().was_away() {
            true => None,
            false => heap.kmalloc_aligned_fast(bytes),
        }
    }

    /// [`HostHeap::kvzalloc`]; `None` also if the heap cannot be made.
    #[track_caller]
    #[must_use]
    pub fn kvzalloc(&'static self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let heap = self.get().ok()?;
        self.look(heap);
        heap.kvzalloc(bytes, align)
    }

    /// [`HostHeap::kvfree`].
    ///
    /// # Errors
    ///
    /// As [`HostHeap::kvfree`]; [`FreeError::Foreign`] if the heap is not made.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline]
    #[track_caller]
    pub unsafe fn kvfree(&'static self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        if unsafe { self.kfree_fast(object) } {
            return Ok(());
        }
        let heap = self.made().ok_or(FreeError::Foreign)?;
        // SAFETY: as above; the attempt has not freed it.
        unsafe { self.kvfree_slow(heap, object) }
    }

    /// One attempt to free an object of a small class to the running CPU, as
    /// [`kfree_fast`](quarry_core::heap::Heap::kfree_fast): whether it has been freed.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    pub unsafe fn kfree_fast(&'static self, object: NonNull<u8>) -> bool {
        // SAFETY: the caller vouches that the object has no user left.
        self.made()
            .is_some_and(|heap| unsafe { heap.kfree_fast(object) })
    }

    /// Frees what no CPU's list took, and does now and then what is due.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(never)]
    #[track_caller]
    unsafe fn kvfree_slow(&self, heap: &RawHeap<D>, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        let freed = unsafe { kvmalloc::free_slow(heap, object) };
        let before = self.slow_frees.fetch_add(1, Ordering::Relaxed);
        if before % REAP_EVERY == REAP_EVERY - 1 {
            heap.reap();
        } else if before % TRIM_EVERY == TRIM_EVERY - 1 {
            heap.pages().auto_trim();
        }
        freed
    }

    /// [`HostHeap::kvsize`].
    #[must_use]
    pub fn kvsize(&'static self, object: NonNull<u8>) -> Option<usize> {
        kvmalloc::size(self.made()?, object)
    }

    /// [`HostHeap::kvrealloc`].
    ///
    /// # Errors
    ///
    /// As [`HostHeap::kvrealloc`]; [`FreeError::Foreign`] if the heap is not made.
    ///
    /// # Safety
    ///
    /// The object is one of this heap, and only the caller uses it. If the result is `Ok(Some)`, only that is used from
    /// then on.
    #[track_caller]
    pub unsafe fn kvrealloc(
        &'static self,
        object: NonNull<u8>,
        bytes: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        let heap = self.made().ok_or(FreeError::Foreign)?;
        // SAFETY: the caller vouches for the object.
        unsafe { kvmalloc::resize(heap, object, bytes, align) }
    }
}

impl<D: Design> fmt::Debug for ProcessHeap<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHeap")
            .field("design", &D::NAME)
            .field("made", &self.is_made())
            .finish_non_exhaustive()
    }
}

/// The heap of [`Kmalloc`], and of what else in a process needs one heap for all.
static PROCESS: ProcessHeap = ProcessHeap::new();

/// kmalloc as the global allocator of a program.
///
/// Small requests come from the kmalloc caches of one [`ProcessHeap`], larger ones from its pages, and those above 4 MiB
/// are mappings of their own. It works before `main`, in destructors of thread-locals, and in the child of a fork. In a
/// signal handler that interrupted the allocator itself, a request may fail; most allocators would deadlock.
///
/// # Examples
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: quarry::Kmalloc = quarry::Kmalloc;
///
/// let numbers: Vec<u64> = (0..1000).collect();
/// let heap = quarry::Kmalloc::heap()?;
/// assert!(heap.kvsize(std::ptr::NonNull::from(&numbers[0]).cast()).is_some_and(|bytes| bytes >= 8000));
/// # Ok::<(), quarry::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Kmalloc;

impl Kmalloc {
    /// The heap that it allocates from, to look into it or to make caches.
    ///
    /// # Errors
    ///
    /// As [`ProcessHeap::get`].
    pub fn heap() -> Result<&'static HostHeap, Error> {
        PROCESS.get()
    }
}

fn pointer(object: Option<NonNull<u8>>) -> *mut u8 {
    object.map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

// SAFETY: the heap's blocks are as large and as aligned as asked for, stay until they are freed, and the heap stays for
// good. No call unwinds: an allocation fails by null, and what the heap refuses to free changes nothing.
unsafe impl GlobalAlloc for Kmalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pointer(PROCESS.kvmalloc(layout.size(), layout.align()))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        pointer(PROCESS.kvzalloc(layout.size(), layout.align()))
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: by the caller's contract the block is one that `alloc` returned, so it is not null.
        let block = unsafe { NonNull::new_unchecked(block) };
        // SAFETY: by the caller's contract the block has no user left. A mistake is reported by the heap.
        let _ = unsafe { PROCESS.kvfree(block) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: by the caller's contract the block is one that `alloc` returned, so it is not null.
        let block = unsafe { NonNull::new_unchecked(block) };
        // SAFETY: by the caller's contract only the caller uses the block, and then the result.
        let new = unsafe { PROCESS.kvrealloc(block, bytes, layout.align()) };
        // A mistake is reported by the heap.
        pointer(new.unwrap_or(None))
    }
}
