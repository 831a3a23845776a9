//! The table by which objects find their caches, and the end of caches that their objects outlive.
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
//!   free -- claim --> live -- orphan --> orphaned -- attempt: no object left --> ended -- bury --> free
//! ```
//!
//! * *free*: on the stack [`FREE`], or never used.
//! * *live*: the [`Cache`](super::Cache) has the heap. [`Entry::watch`] is 0, or [`COUNTED`] for caches with debugging and hardened ones.
//! * *orphaned*: the entry has the heap. The right to end the cache is a token, one for each entry. It is the
//!   offset [`IDLE`] in [`Entry::left`]; or it is with the queue, or with the thread that attempts the end. Every free
//!   counts `left` down. A free that finds no more than 0 objects there moves `left` back to about 0, which takes the
//!   token (only one thread can), and queues the entry.
//! * *ended*: the cache is destroyed; the entry still has the heap.
//!
//! # Who ends caches
//!
//! One thread at a time, which has [`ENDING`]: [`settle`]. No thread waits for it: who finds it taken leaves its entry in
//! the queue, and the owner looks at the queue again before it is done. No destructor waits for a busy CPU or a free in
//! flight either: such an entry goes back into the queue, for the next `settle`. A later free of the same cache calls it,
//! and so do all drops and makings of caches, [`Cache::shrink`](super::Cache::shrink) and
//! [`HostHeap::reap`](crate::HostHeap::reap).
//!
//! # Forks
//!
//! A fork takes `ENDING` first ([`before_fork`]), so no attempt is under way in a child. Tokens and frees in flight of
//! other threads are lost there, so the child queues all orphaned and ended entries, and sets their `in_flight` to 0
//! ([`after_fork`]). What stays lost are entries that another thread had taken from `FREE` or was about to return: one a
//! thread.
//!
//! # Invariants
//!
//! * **E1** No object of a cache is allocated once its entry is orphaned: `Cache` is borrowed for an allocation, and
//!   [`CacheView`](quarry_core::heap::CacheView)s, which others may get, have none.
//! * **E2** A free of any other cache touches the cache's or the heap's memory only in two cases:
//!   before the object counts as free; while it holds a CPU's slot or is inside the gate. A walk holds all
//!   slots and stops the gate ([`CacheView::for_each_live`](quarry_core::heap::CacheView::for_each_live)). So when a
//!   walk finds no object, no thread is inside a free of this cache.
//! * **E3** Frees of caches with debugging, of hardened ones, and of all orphaned ones, deliver reports behind that, unless a
//!   single step does all: [`Entry::in_flight`] counts them. A cache is destroyed only if it is 0 after the walk that finds no
//!   object.
//! * **E4** A free that the walk of the first attempt does not see finds [`ORPHANED`] when it looks behind itself:
//!   `watch` is set before the walk takes the slots and node locks. If the free took its slot or lock later, it
//!   acquires what the walk released. If it is a single step on a CPU, it comes after the `membarrier` by which
//!   the walk took that CPU's slot; the look comes after it.
//! * **E5** Entries are static and never freed. A thread that looks at an entry behind its own free may find
//!   another cache's: then it counts down once too often, which makes an attempt come too early. It
//!   finds objects and adds them again.
//! * **E6** Only the token's owner queues an entry, so no entry is in the queue twice. An entry on `FREE` has no token, and
//!   `left` about 0.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use quarry_core::design::Design;
use quarry_core::heap::{self, CpuStacks, DestroyError};
use quarry_core::machine::Memory as _;
use quarry_host::HostMachine;

use super::RawCache;
use super::stack::{Stack, below};
use crate::HostHeap;

/// Bits of an address; a process on 64-bit processors gets no others unless it asks for them.
pub(super) const ADDRESS_BITS: u32 = 48;
/// Typed caches that a process can have.
pub(super) const ENTRIES: usize = 1 << (usize::BITS - ADDRESS_BITS);

/// Frees of the cache count themselves while they run (E3).
const COUNTED: u32 = 1;
/// The cache has no handle any more.
const ORPHANED: u32 = 2;
/// The cache is destroyed.
const ENDED: u32 = 4;

/// Difference between [`Entry::left`] and the number of objects that are left; more than there can be.
const IDLE: i64 = 1 << 48;
/// Waits for busy CPUs and frees in flight, of calls that may wait: about a second.
const ATTEMPTS: u32 = 5_000;
/// One of these waits.
const PAUSE: Duration = Duration::from_micros(200);

/// See the module's documentation.
#[repr(align(64))]
pub(super) struct Entry {
    /// A `RawCache<D>`.
    raw: UnsafeCell<MaybeUninit<RawCacheBytes>>,
    /// Those of the cache, here because the word of an object has the way to this line alone.
    stacks: UnsafeCell<Option<CpuStacks>>,
    /// [`COUNTED`], [`ORPHANED`] or [`ENDED`]: what frees have to do; 0 for nothing.
    watch: AtomicU32,
    /// Links [`FREE`], [`QUEUE`] and lists of one thread; an entry is on one of them at most.
    link: AtomicU32,
    in_flight: AtomicUsize,
    /// While orphaned: the objects that are left less [`IDLE`], or about 0 if the token is elsewhere. About 0 otherwise.
    left: AtomicI64,
    /// A `HostHeap<D>` while orphaned or ended.
    heap: UnsafeCell<MaybeUninit<*const ()>>,
    /// The functions of the design while orphaned or ended.
    steps: UnsafeCell<Option<&'static Steps>>,
}
const _: () = assert!(size_of::<Entry>() == 64);

type RawCacheBytes = [*const (); 2];

/// Functions of a design that [`settle`] calls.
struct Steps {
    /// [`Entry::attempt`].
    attempt: unsafe fn(&'static Entry) -> Attempt,
    /// [`Entry::bury`].
    bury: unsafe fn(&'static Entry),
}

/// The outcome of an attempt to end a cache.
enum Attempt {
    /// The cache is destroyed.
    Ended,
    /// It has objects, which will count down.
    Live(Result<(), DestroyError>),
    /// It may have none, but CPUs are busy or frees in flight.
    Busy(Result<(), DestroyError>),
}

// SAFETY: `raw` and `stacks` are written before the entry's number is in any object, and read by those who have one.
// `heap` and `steps` are written by `orphan` and read by the token's owner. The rest is atomic.
unsafe impl Sync for Entry {}

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        raw: UnsafeCell::new(MaybeUninit::uninit()),
        stacks: UnsafeCell::new(None),
        watch: AtomicU32::new(0),
        link: AtomicU32::new(0),
        in_flight: AtomicUsize::new(0),
        left: AtomicI64::new(0),
        heap: UnsafeCell::new(MaybeUninit::uninit()),
        steps: UnsafeCell::new(None),
    }
}; ENTRIES];

/// Entries below this were claimed at least once.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Entries that were claimed and are free again.
static FREE: Stack = Stack::new();
/// Entries whose caches may have no object left, each with its token.
static QUEUE: Stack = Stack::new();
/// Taken by the thread that ends caches, and across forks.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The queue has to be looked at again.
static AGAIN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The thread has [`ENDING`].
    static ENDS: Cell<bool> = const { Cell::new(false) };
    /// Frees in [`Entry::in_flight`] that are the thread's own: a reporter that frees is inside another free.
    static WITHIN: Cell<u32> = const { Cell::new(0) };
    /// Heaps that the thread has brought to rest for a fork; whether it took [`ENDING`] for it.
    static FORKS: Cell<(u32, bool)> = const { Cell::new((0, false)) };
}

fn link_of(number: usize) -> &'static AtomicU32 {
    &TABLE[number % ENTRIES].link
}

/// The right to end caches, which a thread has until this is dropped.
struct Turn;

impl Turn {
    fn try_take() -> Option<Self> {
        // Set first: a signal handler that forks in between must not wait for its own thread.
        if ENDS.replace(true) {
            return None;
        }
        // SeqCst: see `settle`. It also acquires what the last owner did.
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let taken = ENDING.compare_exchange(false, true, order.0, order.1);
        ENDS.set(taken.is_ok());
        // Not `then_some`: a turn that is dropped gives back what another thread has.
        taken.is_ok().then(|| Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // SeqCst: see `settle`.
        ENDING.store(false, Ordering::SeqCst);
        ENDS.set(false);
    }
}

/// Ends the queued caches that have no object left. Never sleeps; what is busy stays queued.
pub(crate) fn settle() {
    AGAIN.store(true, Ordering::SeqCst);
    // SeqCst: a thread that finds ENDING taken has stored AGAIN before, and the owner loads AGAIN after it stored ENDING.
    // So one of the two sees the other's store, and looks.
    while AGAIN.load(Ordering::SeqCst) {
        let Some(turn) = Turn::try_take() else { return };
        AGAIN.store(false, Ordering::SeqCst);
        let mut ended = None;
        let mut queued = QUEUE.take();
        while let Some(number) = queued {
            let entry = Entry::of_number(number);
            // First of all: another list may use the link after the attempt.
            queued = below(&entry.link);
            match entry.steps().map(|steps| steps.attempt) {
                // SAFETY: the entry was queued, so the token is this thread's now; `orphan` chose the design's function.
                Some(attempt) => match unsafe { attempt(entry) } {
                    Attempt::Ended => {
                        entry
                            .link
                            .store(ended.map_or(0, |above| above as u32 + 1), Ordering::Relaxed);
                        ended = Some(number);
                    }
                    Attempt::Live(_) => {}
                    Attempt::Busy(_) => QUEUE.push(number, &entry.link),
                },
                None => debug_assert!(false, "`orphan` stores functions before it queues"),
            }
        }
        // A heap that is dropped waits for a fork that is under way, and that for ENDING.
        drop(turn);
        while let Some(number) = ended {
            let entry = Entry::of_number(number);
            ended = below(&entry.link);
            if let Some(steps) = entry.steps() {
                // SAFETY: the token is this thread's, and the cache is destroyed.
                unsafe { (steps.bury)(entry) };
            }
        }
    }
}

/// Calls `f` until it has an answer, as long as there are caches that wait for their end, and ends those, for a bounded
/// time. For calls that may wait: a cache that is dropped gives its name back with its end.
pub(super) fn while_caches_end<R>(f: impl Fn() -> Option<R>) -> Option<R> {
    settle();
    for _ in 0..ATTEMPTS {
        // Before the call: what waits now may have ended by then.
        let waits = !QUEUE.is_empty() || ENDING.load(Ordering::Relaxed);
        let answer = f();
        if answer.is_some() || !waits {
            return answer;
        }
        std::thread::sleep(PAUSE);
        settle();
    }
    None
}

/// Keeps others from ending caches until [`after_fork`]; for each heap that a fork brings to rest, before that.
/// `false` if it took too long.
pub(crate) fn before_fork() -> bool {
    let (heaps, mut taken) = FORKS.get();
    // A reporter that forks may run inside this thread's own turn.
    if heaps == 0 && !ENDS.get() {
        for _ in 0..ATTEMPTS {
            if let Some(turn) = Turn::try_take() {
                std::mem::forget(turn);
                taken = true;
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
    FORKS.set((heaps + 1, taken));
    taken || ENDS.get()
}

/// Ends what [`before_fork`] began, once for each heap, after that works again.
pub(crate) fn after_fork(in_child: bool) {
    let (heaps, taken) = FORKS.get();
    FORKS.set((heaps.saturating_sub(1), taken));
    if heaps != 1 {
        return;
    }
    FORKS.set((0, false));
    if in_child && taken && WITHIN.get() == 0 {
        queue_orphans();
    }
    if taken {
        drop(Turn);
    } else if in_child && !ENDS.get() {
        // Its owner, who did not finish in time, is no thread of the child; the entry that it had is lost.
        ENDING.store(false, Ordering::SeqCst);
    }
}

/// In the child of a fork, whose thread has [`ENDING`] and is inside no free: makes up for what other threads had.
fn queue_orphans() {
    QUEUE.take();
    for (number, entry) in TABLE[..USED.load(Ordering::Relaxed).min(ENTRIES)]
        .iter()
        .enumerate()
    {
        // Most pages of the table stay shared with the parent.
        if entry.in_flight.load(Ordering::Relaxed) != 0 {
            entry.in_flight.store(0, Ordering::Relaxed);
        }
        if entry.watch.load(Ordering::Relaxed) & (ORPHANED | ENDED) != 0 {
            entry.left.store(0, Ordering::Relaxed);
            QUEUE.push(number, &entry.link);
        }
    }
}

/// The handle without the borrow of its heap.
///
/// # Safety
///
/// The heap outlives every use of the handle.
pub(super) unsafe fn unbound<D: Design>(raw: heap::Cache<'_, HostMachine, D>) -> RawCache<D> {
    // SAFETY: the types differ in the lifetime alone, and the caller keeps the heap for as long as the handle is used.
    unsafe { std::mem::transmute(raw) }
}

impl Entry {
    /// Finds a free entry for a cache, in constant time; `None` if all are taken, or if its heap has addresses of more
    /// than [`ADDRESS_BITS`].
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
        let unused = || {
            let next = |used| (used < ENTRIES).then_some(used + 1);
            let order = Ordering::Relaxed;
            USED.fetch_update(order, order, next).ok()
        };
        let entry = &TABLE[FREE.pop(link_of).or_else(unused)?];
        // SAFETY: the entry was free, so no other thread uses the cell; the sizes are asserted above.
        unsafe { entry.raw.get().cast::<RawCache<D>>().write(raw) };
        // SAFETY: as for `raw`.
        unsafe { entry.stacks.get().write(raw.cpu_stacks()) };
        let watch = if raw.head().flags().checked() {
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

    /// The entry's number where an object's word has it.
    #[inline]
    pub(super) fn tag(&'static self) -> usize {
        let distance = std::ptr::from_ref(self).addr() - (&raw const TABLE).addr();
        distance << (ADDRESS_BITS - size_of::<Self>().trailing_zeros())
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

    /// The functions of the design. The caller has the token.
    fn steps(&self) -> Option<&'static Steps> {
        // SAFETY: `orphan` wrote the cell before there was a token, whose only owner is the calling thread.
        unsafe { *self.steps.get() }
    }

    /// Makes the entry keep the heap, and ends the cache with its last object, at once if it has none and is not busy.
    /// With `wait`, waits for busy CPUs and frees in flight for a bounded time.
    ///
    /// # Safety
    ///
    /// The entry was claimed for a cache of this heap, whose handle is used no more. Called once for a cache.
    pub(super) unsafe fn orphan<D: Design>(
        &'static self,
        heap: HostHeap<D>,
        wait: bool,
    ) -> Result<(), DestroyError> {
        if heap.merges() {
            // Others may allocate from the same cache, so its objects say nothing. The heap stays.
            std::mem::forget(heap);
            // SAFETY: the caller calls this once, and nothing else destroys a live entry's cache.
            let raw = unsafe { self.raw::<D>() };
            if self.watch.load(Ordering::Relaxed) == COUNTED {
                // Not destroyed: frees may be in flight (E3).
                return raw.check_unused();
            }
            // SAFETY: gives up one reference: the handle is used no more, and an error changes nothing.
            return unsafe { raw.destroy() };
        }
        // SAFETY: the entry is live, so nothing else uses the cell: only the token's owner does, and there is no token yet.
        unsafe { self.heap.get().cast::<HostHeap<D>>().write(heap) };
        let steps = const {
            &Steps {
                attempt: Self::attempt::<D>,
                bury: Self::bury::<D>,
            }
        };
        // SAFETY: the entry is live, so nothing else uses this cell either.
        unsafe { self.steps.get().write(Some(steps)) };
        // SeqCst: before the walk of the first attempt (E4).
        self.watch.fetch_or(ORPHANED, Ordering::SeqCst);
        // From here on the token is this thread's.
        let mut outcome = Ok(());
        for _ in 0..if wait { ATTEMPTS } else { 0 } {
            if let Some(turn) = Turn::try_take() {
                // SAFETY: the token and the turn are this thread's, and the cache is of design `D`.
                let attempt = unsafe { self.attempt::<D>() };
                drop(turn);
                match attempt {
                    Attempt::Ended => {
                        // SAFETY: the token is still this thread's, and the cache is destroyed.
                        unsafe { self.bury::<D>() };
                        settle();
                        return Ok(());
                    }
                    Attempt::Live(unused) => {
                        settle();
                        return unused;
                    }
                    Attempt::Busy(unused) => outcome = unused,
                }
            }
            std::thread::sleep(PAUSE);
        }
        QUEUE.push(self.number(), &self.link);
        settle();
        outcome
    }

    /// Destroys the cache, or notes the number of objects that are left.
    ///
    /// The first attempt comes from `orphan` and mostly finds objects; their frees count down to the second, which mostly
    /// finds none. The order is fixed: walk, then look at `in_flight`, then destroy. A free that the walk does not see and
    /// that is still delivering reports has counted itself before (E3), and a later one would need an object.
    ///
    /// Frees may count down while the walk runs. Of an object that the walk counted, they take `left` below 0, and the sum
    /// is right; of one that it did not count, the sum is too low, and an attempt comes too early, which costs a walk.
    /// So the objects are added and not stored, and the token is taken back if the sum is down already: its
    /// frees have gone by, and no other would.
    ///
    /// # Safety
    ///
    /// The calling thread has the token and [`ENDING`], and the cache is of design `D`.
    unsafe fn attempt<D: Design>(&'static self) -> Attempt {
        if self.watch.load(Ordering::Relaxed) & ENDED != 0 {
            // Another thread of a parent process ended it.
            return Attempt::Ended;
        }
        // SAFETY: only the token's owner destroys an orphaned cache, and ENDED would say so.
        let raw = unsafe { self.raw::<D>() };
        let machine = raw.heap().machine();
        loop {
            let unused = machine.without_waiting(|| raw.check_unused());
            let live = unused.map_or_else(|error| error.live, |()| 0);
            if live == 0 {
                // SeqCst: pairs with `free_watched` (E3).
                if unused.is_err() || self.in_flight.load(Ordering::SeqCst) > 0 {
                    return Attempt::Busy(unused);
                }
                // SAFETY: no object is left, no thread is inside a free (E2, E3) and none allocates (E1).
                let destroyed = machine.without_waiting(|| unsafe { raw.destroy() });
                return match destroyed {
                    Ok(()) => {
                        // Still inside the turn, so no fork comes between the two.
                        self.watch.store(ENDED, Ordering::SeqCst);
                        Attempt::Ended
                    }
                    error => Attempt::Busy(error),
                };
            }
            // SeqCst: as in `take_token`.
            self.left.fetch_add(live as i64 - IDLE, Ordering::SeqCst);
            if !self.take_token() {
                return Attempt::Live(unused);
            }
        }
    }

    /// Frees the entry and drops the heap.
    ///
    /// # Safety
    ///
    /// The calling thread has the token, and the cache, of design `D`, is destroyed.
    unsafe fn bury<D: Design>(&'static self) {
        // SAFETY: `orphan` wrote it, and the token's owner takes it once.
        let heap = unsafe { self.heap.get().cast::<HostHeap<D>>().read() };
        self.watch.store(0, Ordering::SeqCst);
        FREE.push(self.number(), &self.link);
        drop(heap);
    }
}

mod free;
#[cfg(test)]
mod tests;
