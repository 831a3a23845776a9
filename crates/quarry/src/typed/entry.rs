//! What an object finds its cache by, and what ends a cache that its objects outlive.
//!
//! # Idea
//!
//! A static table has an entry for each typed cache of the process, and each object has its entry's number.
//! Nothing counts the objects: an allocation and a free write nothing shared. Only when a cache is dropped
//! its objects are counted, by a walk over its slabs, and only the frees behind that count down.
//!
//! # States of an entry
//!
//! ```text
//!   free -- claim --> live -- orphan --> orphaned -- no object left --> free
//! ```
//!
//! * *live*: the [`Cache`](super::Cache) has the heap. [`Entry::watch`] is 0, or [`COUNTED`] for caches with debugging.
//! * *orphaned*: the entry has the heap. Every free counts [`Entry::left`] down. Who finds no more than 0
//!   there, and moves it back to the idle value 0 (only one thread can), is *elected*: it walks over the
//!   cache, and destroys it or adds what it found. Frees that come during the walk count below the idle
//!   value, so none is lost.
//!
//! # Invariants
//!
//! * **E1** No object of a cache is allocated once its entry is orphaned: `Cache` is borrowed for an allocation.
//! * **E2** A free of a cache without debugging touches the cache's or the heap's memory only in two cases:
//!   before the object counts as free; while it holds a CPU's slot or is inside the gate. A walk holds all
//!   slots and stops the gate ([`Cache::for_each_live`](quarry_core::heap::Cache::for_each_live)). So when a
//!   walk finds no object, no thread is inside a free of this cache.
//! * **E3** Frees of caches with debugging, and of all orphaned ones, deliver reports behind that:
//!   [`Entry::in_flight`] counts them. A cache is destroyed only if it is 0 after the walk that finds no
//!   object; who was in flight counts `left` down afterwards and is elected then.
//! * **E4** A free that the walk of `orphan` does not see finds [`ORPHANED`] when it looks behind itself:
//!   `watch` is set before the walk takes the slots and node locks. If the free took its slot or lock later, it
//!   acquires what the walk released. If it is a single step on a CPU, it comes after the `membarrier` by which
//!   the walk took that CPU's slot; the look comes after it.
//! * **E5** Entries are static and never freed. A thread that looks at an entry behind its own free may find
//!   another cache's: then it counts down once too often, which makes an election come too early. An early
//!   election finds objects and adds them again.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use quarry_core::design::Design;
use quarry_core::heap::{self, DestroyError};
use quarry_core::machine::Memory as _;
use quarry_host::HostMachine;

use super::{RawCache, check_freed};
use crate::HostHeap;

/// Bits of an address; a process on 64-bit processors gets no others unless it asks for them.
pub(super) const ADDRESS_BITS: u32 = 48;
/// Typed caches that a process can have.
pub(super) const ENTRIES: usize = 1 << (usize::BITS - ADDRESS_BITS);

/// Frees of the cache count themselves while they run (E3).
const COUNTED: u32 = 1;
/// The cache has no handle any more.
const ORPHANED: u32 = 2;

/// What [`Entry::left`] is below the number of objects that are left; more than there can be.
const IDLE: i64 = 1 << 48;
/// How often an election waits for busy CPUs and frees in flight: about a second.
const ATTEMPTS: u32 = 5_000;

/// See the module's documentation.
#[repr(align(64))]
pub(super) struct Entry {
    /// A `RawCache<D>`.
    raw: UnsafeCell<MaybeUninit<RawCacheBytes>>,
    /// What frees have to do, [`COUNTED`] and [`ORPHANED`]; 0 for nothing.
    watch: AtomicU32,
    taken: AtomicBool,
    in_flight: AtomicUsize,
    /// Objects that are left when the cache is orphaned, less [`IDLE`]; about 0 otherwise.
    left: AtomicI64,
    /// A `HostHeap<D>` while orphaned.
    heap: UnsafeCell<MaybeUninit<*const ()>>,
    /// [`Entry::attempt`] of the design while orphaned.
    attempt: UnsafeCell<Option<Attempt>>,
}

type RawCacheBytes = [*const (); 2];
type Attempt = unsafe fn(&'static Entry) -> Result<(), DestroyError>;

// SAFETY: `raw` is written before the entry's number is in any object, and read by those who have one.
// `heap` and `attempt` are written by `orphan` and read by who is elected. The rest is atomic.
unsafe impl Sync for Entry {}

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        raw: UnsafeCell::new(MaybeUninit::uninit()),
        watch: AtomicU32::new(0),
        taken: AtomicBool::new(false),
        in_flight: AtomicUsize::new(0),
        left: AtomicI64::new(0),
        heap: UnsafeCell::new(MaybeUninit::uninit()),
        attempt: UnsafeCell::new(None),
    }
}; ENTRIES];

/// The handle without the borrow of its heap.
///
/// # Safety
///
/// The heap outlives every use of the handle.
pub(super) unsafe fn unbound<D: Design>(raw: heap::Cache<'_, HostMachine, D>) -> RawCache<D> {
    // SAFETY: only the lifetime differs, which the caller vouches for.
    unsafe { std::mem::transmute(raw) }
}

impl Entry {
    /// Finds a free entry for a cache; `None` if all are taken, or if its heap has addresses of more than
    /// [`ADDRESS_BITS`].
    pub(super) fn claim<D: Design>(raw: RawCache<D>) -> Option<&'static Self> {
        const {
            assert!(size_of::<RawCache<D>>() == size_of::<RawCacheBytes>());
            assert!(align_of::<RawCache<D>>() == align_of::<RawCacheBytes>());
            assert!(size_of::<HostHeap<D>>() == size_of::<*const ()>());
        }
        let pages = raw.heap().machine().ranges().pages;
        let end = pages.base.addr().get().checked_add(pages.bytes)?;
        if end > 1 << ADDRESS_BITS {
            return None;
        }
        let free = |entry: &&Entry| {
            // Acquire: pairs with the Release in `attempt`.
            let order = (Ordering::Acquire, Ordering::Relaxed);
            let taken = &entry.taken;
            taken
                .compare_exchange(false, true, order.0, order.1)
                .is_ok()
        };
        let entry = TABLE.iter().find(free)?;
        // SAFETY: the entry was free, so no other thread uses the cell; the sizes are asserted above.
        unsafe { entry.raw.get().cast::<RawCache<D>>().write(raw) };
        let watch = if raw.head().flags().debug() {
            COUNTED
        } else {
            0
        };
        entry.watch.store(watch, Ordering::Relaxed);
        Some(entry)
    }

    /// The entry's place in the table.
    #[inline]
    pub(super) fn number(&'static self) -> usize {
        (std::ptr::from_ref(self).addr() - (&raw const TABLE).addr()) / size_of::<Self>()
    }

    /// The entry of this place, which is below [`ENTRIES`].
    #[inline]
    pub(super) fn of_number(number: usize) -> &'static Self {
        &TABLE[number % ENTRIES]
    }

    /// # Safety
    ///
    /// The entry was claimed for a cache of design `D`, which is not destroyed.
    #[inline]
    unsafe fn raw<D: Design>(&self) -> RawCache<D> {
        // SAFETY: `claim` wrote a handle of this type, and nothing writes it while the cache lives.
        unsafe { *self.raw.get().cast::<RawCache<D>>() }
    }

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// A live object of the entry's cache, of design `D`, without user.
    #[inline]
    unsafe fn free<D: Design>(&'static self, object: NonNull<u8>) {
        // Relaxed: COUNTED is set before there are objects, and E4 covers ORPHANED.
        if self.watch.load(Ordering::Relaxed) != 0 {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.free_watched::<D>(object) };
        }
        // SAFETY: a live object keeps its cache.
        let raw = unsafe { self.raw::<D>() };
        // SAFETY: the caller's contract is the same.
        check_freed(unsafe { raw.free(object) });
        // Relaxed: E4.
        if self.watch.load(Ordering::Relaxed) != 0 {
            self.count_down();
        }
    }

    /// # Safety
    ///
    /// As for [`Entry::free`].
    #[cold]
    #[inline(never)]
    unsafe fn free_watched<D: Design>(&'static self, object: NonNull<u8>) {
        // SeqCst: comes before the object counts as free (E3).
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        // SAFETY: a live object keeps its cache.
        let raw = unsafe { self.raw::<D>() };
        // SAFETY: the caller's contract is the same.
        check_freed(unsafe { raw.free(object) });
        // SeqCst: what the free did comes before (pairs with the load in `attempt`).
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.count_down();
    }

    /// Counts a free of an orphaned cache, and ends the cache if it may have been the last.
    #[cold]
    #[inline(never)]
    fn count_down(&'static self) {
        if self.watch.load(Ordering::SeqCst) & ORPHANED == 0 {
            return;
        }
        let left = self.left.fetch_sub(1, Ordering::SeqCst) - 1;
        if left <= -IDLE && self.elect() {
            // SAFETY: the elected thread alone uses the cell; `orphan` filled it before there was an election.
            if let Some(attempt) = unsafe { *self.attempt.get() } {
                // SAFETY: as above: elected, and of the cache's design.
                let _ = unsafe { attempt(self) };
            }
        }
    }

    /// Whether no object is left as far as frees were counted, and the calling thread is elected.
    fn elect(&self) -> bool {
        let none_left = |left: i64| (left <= -IDLE).then_some(0);
        // SeqCst: what others freed before they counted is seen by the walk that follows.
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let elected = self.left.fetch_update(order.0, order.1, none_left);
        elected.is_ok()
    }

    /// Makes the entry keep the heap, and ends the cache with its last object, at once if it has none.
    ///
    /// # Safety
    ///
    /// The entry was claimed for a cache of this heap, whose handle is used no more. Called once for a cache.
    pub(super) unsafe fn orphan<D: Design>(
        &'static self,
        heap: HostHeap<D>,
    ) -> Result<(), DestroyError> {
        if heap.merges() {
            // Others may allocate from the same cache, so its objects say nothing. The heap stays.
            std::mem::forget(heap);
            // SAFETY: the cache is not destroyed yet.
            let raw = unsafe { self.raw::<D>() };
            if self.watch.load(Ordering::Relaxed) == COUNTED {
                // Not destroyed: frees may be in flight (E3).
                return raw.check_unused();
            }
            // SAFETY: gives up one reference: the handle is used no more, and an error changes nothing.
            return unsafe { raw.destroy() };
        }
        // SAFETY: only who orphans or is elected uses the cell, and this comes before any election.
        unsafe { self.heap.get().cast::<HostHeap<D>>().write(heap) };
        // SAFETY: as above.
        unsafe { self.attempt.get().write(Some(Self::attempt::<D>)) };
        // SeqCst: before the walk below (E4).
        self.watch.fetch_or(ORPHANED, Ordering::SeqCst);
        // SAFETY: `left` is at its idle value or a little below, so nothing else is elected.
        unsafe { self.attempt::<D>() }
    }

    /// Destroys the cache, or notes how many objects are left.
    ///
    /// # Safety
    ///
    /// The calling thread is elected, and the cache is of design `D`.
    unsafe fn attempt<D: Design>(&'static self) -> Result<(), DestroyError> {
        // SAFETY: only the elected thread destroys the cache.
        let raw = unsafe { self.raw::<D>() };
        let mut attempt = 0;
        loop {
            let unused = raw.check_unused();
            let live = unused.map_or_else(|error| error.live, |()| 0);
            // SeqCst: pairs with `free_watched` (E3).
            let waits = live == 0 && (unused.is_err() || self.in_flight.load(Ordering::SeqCst) > 0);
            if waits && attempt < ATTEMPTS {
                attempt += 1;
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            let left = if live == 0 && !waits {
                // SAFETY: no object is left, no thread is inside a free (E2, E3) and none allocates (E1).
                match unsafe { raw.destroy() } {
                    Ok(()) => {
                        // SAFETY: elected; the heap is not used through this cell any more.
                        unsafe { self.give_back::<D>() };
                        return Ok(());
                    }
                    Err(_) => 1,
                }
            } else {
                // A cache that is still busy waits for a free that is in flight.
                live.max(1) as i64
            };
            // SeqCst: as in `elect`.
            self.left.fetch_add(left - IDLE, Ordering::SeqCst);
            if !self.elect() {
                return unused;
            }
        }
    }

    /// Frees the entry and drops the heap.
    ///
    /// # Safety
    ///
    /// The calling thread is elected, and has destroyed the cache, of design `D`.
    unsafe fn give_back<D: Design>(&'static self) {
        // SAFETY: `orphan` wrote it, and it is taken once.
        let heap = unsafe { self.heap.get().cast::<HostHeap<D>>().read() };
        self.watch.store(0, Ordering::SeqCst);
        // Release: pairs with the Acquire in `claim`.
        self.taken.store(false, Ordering::Release);
        drop(heap);
    }
}

/// Frees an object when dropped.
pub(super) struct FreeOnDrop<D: Design> {
    entry: &'static Entry,
    object: NonNull<u8>,
    design: std::marker::PhantomData<fn() -> D>,
}

impl<D: Design> FreeOnDrop<D> {
    /// # Safety
    ///
    /// A live object of the entry's cache, of design `D`, which is without user when this is dropped.
    #[inline]
    pub(super) unsafe fn new(entry: &'static Entry, object: NonNull<u8>) -> Self {
        Self {
            entry,
            object,
            design: std::marker::PhantomData,
        }
    }
}

impl<D: Design> Drop for FreeOnDrop<D> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the contract of `new`.
        unsafe { self.entry.free::<D>(self.object) };
    }
}
