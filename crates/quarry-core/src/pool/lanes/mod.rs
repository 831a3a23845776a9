//! Lanes: how pages that are put on one CPU come home, where the machine has single steps.
//!
//! The ring's tail is all producers', so a put is an atomic addition that waits for the line. A lane is one
//! CPU's: a put is one step of the machine, without an atomic instruction. The owner takes pages without
//! writing to a line that the producers write.
//!
//! ```text
//!   per-CPU slot: base top limit             lane, in the machine's structure range
//!                  |    |    |               +------+------------------------------+
//!                  |    |    +-------------->| head | . . x x x x x . . . . . . .  |
//!                  |    +------------------->|      |     ^head     ^top           |
//!                  +------------------------>+------+------------------------------+
//! ```
//!
//! The entries are used round and round. A step puts an entry at the top unless it is at the limit; a put
//! that finds it there takes the CPU's slot and looks how far the owner has come. Then it moves the
//! limit, or the top to the beginning. The top never comes to the head from below, so that equality means
//! empty. A CPU gets its lane with the first page that is put there. Puts go to the ring if the lane is
//! full or its slot is held.
//!
//! A step ends with the store of the top. It publishes a lane's pages: it releases what was stored
//! before (S3 of [`crate::machine`]). The owner reads the top with Acquire.

use core::mem::offset_of;
use core::ptr::{NonNull, null_mut};

use crate::machine::{
    CpuId, Line, Machine, PerCpu, PerCpuShared, PerCpuState, RawRange, Region, StackLayout,
};
use crate::page::{PageAllocator, Pfn, entry_of};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Most pages of a lane, which takes 4 KiB then.
const LANE_PAGES: u32 = if cfg!(loom) { 3 } else { 992 };

/// A page's link.
type Entry = AtomicU32;

/// The page of an entry.
#[inline(always)]
pub(super) fn page_of(entry: &Entry) -> Pfn {
    Pfn(entry.load(Ordering::Relaxed).wrapping_sub(1))
}

impl PerCpuState for Producer {
    const LINE: Line = Line::PoolLane;
}

/// A CPU's end of its lane, in its per-CPU slot; written by the slot's holder and by steps. All null without a
/// lane.
#[repr(C)]
struct Producer {
    /// The entry that is filled next.
    top: AtomicPtr<Entry>,
    base: AtomicPtr<Entry>,
    /// The entry that no step may fill; null in a closed lane.
    limit: AtomicPtr<Entry>,
    /// Pages put by steps.
    pushes: AtomicU64,
}

impl StackLayout for Producer {
    const NARROW: bool = true;
    const TOP: usize = PerCpu::<Self>::STATE + offset_of!(Self, top);
    const BASE: usize = PerCpu::<Self>::STATE + offset_of!(Self, base);
    const LIMIT: usize = PerCpu::<Self>::STATE + offset_of!(Self, limit);
    // Nothing is taken by steps.
    const POPS: usize = Self::PUSHES;
    const PUSHES: usize = PerCpu::<Self>::STATE + offset_of!(Self, pushes);
}

/// A lane's head; its entries follow.
#[repr(C, align(64))]
struct Lane {
    /// The lane that was made before.
    next: AtomicPtr<Self>,
    entries: NonNull<Entry>,
    /// [`OPEN`], [`SEALED`] or [`CLOSED`].
    state: AtomicU32,
    /// Entries.
    size: u32,
    cpu: CpuId,
    done: Done,
}

/// Word that the owner writes with each look, on a cache line that producers seldom need.
#[repr(C, align(64))]
struct Done {
    /// [`Progress::packed`].
    progress: AtomicU64,
    room: [u32; 13],
    /// A step looks at the entry below the top, which may be this.
    below: u32,
}

/// Progress of the owner.
#[derive(Clone, Copy)]
struct Progress {
    /// Pages taken.
    taken: u64,
    /// Index of the oldest entry.
    head: u32,
}

impl Progress {
    const HEAD_BITS: u32 = 10;

    /// In one word, so that others see both of one moment.
    fn packed(self) -> u64 {
        const { assert!(LANE_PAGES < 1 << Self::HEAD_BITS) };
        self.taken << Self::HEAD_BITS | u64::from(self.head)
    }

    fn unpacked(word: u64) -> Self {
        Self {
            taken: word >> Self::HEAD_BITS,
            head: word as u32 & ((1 << Self::HEAD_BITS) - 1),
        }
    }
}

/// A lane takes pages.
const OPEN: u32 = 0;
/// It takes no more once the holder of its slot has let go.
const SEALED: u32 = 1;
/// It takes no more, and the holder of its slot has let go.
const CLOSED: u32 = 2;

/// Times that counters of a lane in use are looked at again, at most.
const STATS_ATTEMPTS: u32 = 8;

/// In [`Lanes::first`]: no more lanes are made.
const NO_MORE: usize = 1;

/// All lanes of a pool.
pub(super) struct Lanes {
    slots: PerCpuShared<Producer>,
    /// The newest lane, and [`NO_MORE`].
    first: AtomicPtr<Lane>,
    size: u32,
}

impl Lanes {
    /// No lanes yet, each to hold `size` pages, or one less when it goes round; at least 2 and at most
    /// [`LANE_PAGES`]. `None` if there is no room for the slots.
    pub(super) fn new<M: Machine>(machine: &M, percpu: &Region, size: u32) -> Option<Self> {
        let slots = if machine.has_steps() {
            PerCpuShared::new(machine, percpu, || Producer {
                top: AtomicPtr::new(null_mut()),
                base: AtomicPtr::new(null_mut()),
                limit: AtomicPtr::new(null_mut()),
                pushes: AtomicU64::new(0),
            })?
        } else {
            PerCpuShared::absent()
        };
        Some(Self {
            slots,
            first: AtomicPtr::new(null_mut()),
            size: size.clamp(2, LANE_PAGES),
        })
    }

    /// True if the machine has lanes; each CPU gets its own with its first put.
    #[inline(always)]
    pub(super) fn exist(&self) -> bool {
        self.slots.exists()
    }

    /// Puts a page into the running CPU's lane in one step. `false` if that cannot be done; not where
    /// there are no lanes.
    #[inline(always)]
    pub(super) fn push<M: Machine>(&self, machine: &M, pfn: Pfn) -> bool {
        debug_assert!(self.exist());
        // SAFETY: there are slots, by the callers' look at `exist`, with a `Producer` each, whose
        // layout is its own; its pointers lead into a lane whose entries between top and limit are the
        // CPU's.
        unsafe { machine.percpu_push_stack::<Producer>(self.slots.slot0(), entry_of(pfn)) }
    }

    /// Puts pages into the running CPU's lane while there is room, and returns their number. The pool may be
    /// gone if that is all of them.
    #[inline(never)]
    pub(super) fn push_many<M: Machine>(
        &self,
        allocator: &PageAllocator<M>,
        pages: &[Pfn],
    ) -> usize {
        if !self.exist() {
            return 0;
        }
        let machine = allocator.machine();
        let mut made = false;
        loop {
            let put = self.slots.try_with(machine, |producer, _| {
                // SAFETY: `add` alone stores a base that is not null, that of a lane made by `make`; it lives
                // as long as the pool, which the pages in flight keep (I4).
                let lane = unsafe { Lane::at(producer.base.load(Ordering::Relaxed)) }?;
                Some(lane.push(producer, pages))
            });
            match put {
                Some(Some(count)) => return count,
                Some(None) if !made && self.make(allocator) => made = true,
                _ => return 0,
            }
        }
    }

    /// Makes the running CPU's lane. `false` if there is no room for it, or the pool is closed. It is
    /// the one moment at which a put may wait: for a fork, or for the region's lock.
    #[cold]
    fn make<M: Machine>(&self, allocator: &PageAllocator<M>) -> bool {
        if self.first.load(Ordering::Relaxed).addr() & NO_MORE != 0 {
            return false;
        }
        let (machine, meta) = (allocator.machine(), allocator.meta());
        let _pass = allocator.gate().enter(machine);
        let Some(lane) = Lane::new(machine, meta, self.size) else {
            return false;
        };
        let taken = self.slots.try_with(machine, |producer, cpu| {
            // Another thread may have been faster.
            producer.base.load(Ordering::Relaxed).is_null() && self.add(lane, producer, cpu)
        });
        if taken != Some(true) {
            // SAFETY: no code has seen it.
            unsafe { Lane::free(lane, machine, meta) };
        }
        taken.is_some()
    }

    /// Gives a lane to the CPU whose slot the caller holds.
    fn add(&self, mut lane: NonNull<Lane>, producer: &Producer, cpu: CpuId) -> bool {
        // SAFETY: `make` made it, and no other code has seen it.
        let new = unsafe { lane.as_mut() };
        new.cpu = cpu;
        let base = new.entries.as_ptr();
        // Before the owner finds the lane. No step gets through without a limit.
        producer.top.store(base, Ordering::Relaxed);
        let mut first = self.first.load(Ordering::Relaxed);
        while first.addr() & NO_MORE == 0 {
            new.next.store(first, Ordering::Relaxed);
            // Release: pairs with the Acquire in `iter`, for what the lane says of itself.
            let added = self.first.compare_exchange(
                first,
                lane.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match added {
                Ok(_) => {
                    producer.base.store(base, Ordering::Relaxed);
                    return true;
                }
                Err(other) => first = other,
            }
        }
        producer.top.store(null_mut(), Ordering::Relaxed);
        false
    }

    /// The newest lane, or null.
    fn newest(&self) -> *mut Lane {
        // Acquire: pairs with the Release in `add`.
        let first = self.first.load(Ordering::Acquire);
        first.map_addr(|addr| addr & !NO_MORE)
    }

    /// The lanes that there are, newest first.
    fn iter(&self) -> impl Iterator<Item = &Lane> {
        let mut at = self.newest();
        core::iter::from_fn(move || {
            // SAFETY: lanes in the list live as long as the pool.
            let lane = unsafe { at.as_ref() }?;
            at = lane.next.load(Ordering::Relaxed);
            Some(lane)
        })
    }

    /// Entries put so far and taken so far.
    pub(super) fn traffic<M: Machine>(&self) -> [u64; 2] {
        let mut traffic = [0; 2];
        for lane in self.iter() {
            let mut done = lane.progress();
            let mut top = self.top::<M>(lane);
            for _ in 0..STATS_ATTEMPTS {
                // The top is of the same lap if the owner has not moved.
                let before = done.packed();
                done = lane.progress();
                if done.packed() == before {
                    break;
                }
                top = self.top::<M>(lane);
            }
            traffic[0] += done.taken + u64::from(lane.filled(done.head, top));
            traffic[1] += done.taken;
        }
        traffic
    }

    /// Index of a lane's next entry.
    fn top<M: Machine>(&self, lane: &Lane) -> u32 {
        let producer = self.slots.get::<M>(lane.cpu);
        // Acquire: pairs with the store of the top by a step or in `push`.
        lane.index(producer.top.load(Ordering::Acquire))
    }

    /// Takes up to `limit` pages out of the lanes and returns their number. `take` gets runs of entries,
    /// oldest first, and must not panic; a run that it does not take whole is the last. Only for the
    /// owner; `turn` is the lane that it looked at last.
    #[inline]
    pub(super) fn take<M: Machine>(
        &self,
        turn: &mut CpuId,
        limit: usize,
        mut take: impl FnMut(&[Entry]) -> usize,
    ) -> usize {
        let last = *turn;
        let after = self.iter().skip_while(|lane| lane.cpu != last).skip(1);
        let lanes = after.chain(self.iter()).take(self.iter().count());
        let mut taken = 0;
        for lane in lanes {
            *turn = lane.cpu;
            let (now, enough) = lane.take(self.top::<M>(lane), limit - taken, &mut take);
            taken += now;
            if enough {
                break;
            }
        }
        taken
    }

    /// Takes a page out of some lane. Only for the owner.
    pub(super) fn take_one<M: Machine>(&self) -> Option<Pfn> {
        let mut page = None;
        self.take::<M>(&mut CpuId(0), 1, |run| {
            page = run.first().map(page_of);
            1
        });
        page
    }

    /// Lets no more pages in. Seals a lane whose slot is held: the holder then stops the steps, unless it was
    /// preempted after its last look. Only for the owner.
    pub(super) fn close<M: Machine>(&self, machine: &M) {
        let mut first = self.first.load(Ordering::Relaxed);
        while first.addr() & NO_MORE == 0 {
            // Relaxed: `iter` looks again.
            let closed = self.first.compare_exchange(
                first,
                first.map_addr(|addr| addr | NO_MORE),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match closed {
                Ok(_) => break,
                Err(other) => first = other,
            }
        }
        for lane in self.iter().filter(|lane| !lane.is(CLOSED)) {
            // Before the slot is tried, which is a barrier for those who hold it.
            lane.state.store(SEALED, Ordering::Relaxed);
            self.slots.try_with_remote(machine, lane.cpu, |producer| {
                producer.limit.store(null_mut(), Ordering::Relaxed);
                lane.state.store(CLOSED, Ordering::Relaxed);
            });
        }
    }

    /// Gives back the memory of slots and lanes, if no lane can be in use.
    ///
    /// # Safety
    ///
    /// No other code uses the pool any more.
    pub(super) unsafe fn free<M: Machine>(&self, machine: &M, meta: &Region, percpu: &Region) {
        // A lane that was never closed may have a holder that was stopped before it let go: it is
        // lost, and so are the slots.
        if !self.iter().all(|lane| lane.is(CLOSED)) {
            return;
        }
        let mut at = self.newest();
        while let Some(lane) = NonNull::new(at) {
            // SAFETY: no code uses the pool any more, by the caller's promise; lanes in the list are not freed
            // before.
            at = unsafe { lane.as_ref() }.next.load(Ordering::Relaxed);
            // SAFETY: no code uses the pool any more, by the caller's promise; `make` made the lane, and it is
            // in the list once.
            unsafe { Lane::free(lane, machine, meta) };
        }
        // SAFETY: no code uses the pool any more, by the caller's promise; lanes in the list are not freed
        // before.
        unsafe { self.slots.free(machine, percpu) };
    }
}

impl Lane {
    fn bytes(size: u32) -> usize {
        size_of::<Self>() + size as usize * size_of::<Entry>()
    }

    /// An empty lane. `None` if there is no room for it.
    fn new<M: Machine>(machine: &M, meta: &Region, size: u32) -> Option<NonNull<Self>> {
        let lane = meta.alloc(machine, Self::bytes(size))?.cast::<Self>();
        // SAFETY: the entries follow the head inside the block.
        let entries = unsafe { lane.add(1) }.cast::<Entry>();
        let new = Self {
            next: AtomicPtr::new(null_mut()),
            entries,
            state: AtomicU32::new(OPEN),
            size,
            cpu: CpuId(0),
            done: Done {
                progress: AtomicU64::new(0),
                room: [0; 13],
                below: 0,
            },
        };
        // SAFETY: the block is fresh, large enough and aligned to its size.
        unsafe { lane.write(new) };
        for entry in 0..size as usize {
            // SAFETY: there are `size` of them.
            let entry = unsafe { entries.add(entry) };
            // SAFETY: the entry is in the fresh block, which is aligned to a cache line and known to no other
            // code.
            unsafe { entry.write(Entry::new(0)) };
        }
        Some(lane)
    }

    /// # Safety
    ///
    /// `new` made it in this region, and no code uses it any more.
    unsafe fn free<M: Machine>(lane: NonNull<Self>, machine: &M, meta: &Region) {
        // SAFETY: the caller's contract.
        let bytes = Self::bytes(unsafe { lane.as_ref() }.size);
        let block = RawRange {
            base: lane.cast(),
            bytes,
        };
        // SAFETY: the caller's contract.
        unsafe { super::give_back(machine, meta, block) };
    }

    /// The lane whose entries begin here, or none for null.
    ///
    /// # Safety
    ///
    /// `base` is null, or [`Lane::entries`] of a lane that lives as long as `'a`.
    unsafe fn at<'a>(base: *mut Entry) -> Option<&'a Self> {
        let lane = NonNull::new(base)?.cast::<Self>();
        // SAFETY: the head is in front of the entries, in the same block.
        let lane = unsafe { lane.sub(1) };
        // SAFETY: it is only shared, and made of atomics and of what does not change once the lane is
        // in use.
        Some(unsafe { lane.as_ref() })
    }

    /// Entries from one index up to another.
    #[inline(always)]
    fn run(&self, from: u32, to: u32) -> &[Entry] {
        assert!(
            from <= to && to <= self.size,
            "{from} to {to} of {}",
            self.size
        );
        // SAFETY: `new` made `size` entries, and `from` is not above that.
        let first = unsafe { self.entries.add(from as usize) };
        // SAFETY: `to` is at most `size`, by the assertion; the entries live as long as the lane and are
        // atomics.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), (to - from) as usize) }
    }

    /// The entry of an index, or the place behind the last.
    fn at_index(&self, index: u32) -> *mut Entry {
        self.entries.as_ptr().wrapping_add(index as usize)
    }

    /// The index of an entry, or the lane's size for the place behind the last.
    fn index(&self, entry: *mut Entry) -> u32 {
        ((entry.addr() - self.entries.addr().get()) / size_of::<Entry>()) as u32
    }

    fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Relaxed) == state
    }

    /// Progress of the owner: it has read all entries before.
    #[inline(always)]
    fn progress(&self) -> Progress {
        // Acquire: pairs with the Release in `take`.
        Progress::unpacked(self.done.progress.load(Ordering::Acquire))
    }

    /// Entries that are filled.
    fn filled(&self, head: u32, top: u32) -> u32 {
        if top >= head {
            top - head
        } else {
            self.size - head + top
        }
    }

    /// Puts pages behind the newest while there is room, and returns their number; the caller holds the
    /// producer's slot.
    #[inline]
    fn push(&self, producer: &Producer, pages: &[Pfn]) -> usize {
        if !self.is(OPEN) {
            return 0;
        }
        let (top, limit) = (&producer.top, &producer.limit);
        let top = self.index(top.load(Ordering::Relaxed));
        // As long as there is room below the limit, what the owner writes is of no interest.
        let limit = limit.load(Ordering::Relaxed).max(self.entries.as_ptr());
        if pages.len() > self.index(limit).saturating_sub(top) as usize {
            return self.push_beyond(producer, top, pages);
        }
        self.put(producer, top, pages);
        pages.len()
    }

    /// Fills the entries from an index on.
    #[inline(always)]
    fn put(&self, producer: &Producer, top: u32, pages: &[Pfn]) {
        let end = top + pages.len() as u32;
        for (entry, &pfn) in self.run(top, end).iter().zip(pages) {
            entry.store(Pfn::link(Some(pfn)), Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `top`, for the entries and what was done with the pages.
        producer.top.store(self.at_index(end), Ordering::Release);
        if !self.is(OPEN) {
            // The owner could not have the slot: the next step must not get through.
            producer.limit.store(null_mut(), Ordering::Relaxed);
        }
    }

    /// [`Lane::push`] of more pages than fit below the limit.
    #[cold]
    #[inline(never)]
    fn push_beyond(&self, producer: &Producer, mut top: u32, mut pages: &[Pfn]) -> usize {
        let all = pages.len();
        loop {
            let head = self.progress().head;
            if top == self.size && head > 1 {
                top = 0;
            }
            let end = if top >= head { self.size } else { head - 1 };
            let (now, later) = pages.split_at(pages.len().min((end - top) as usize));
            producer.limit.store(self.at_index(end), Ordering::Relaxed);
            self.put(producer, top, now);
            top += now.len() as u32;
            pages = later;
            if pages.is_empty() || now.is_empty() {
                return all - pages.len();
            }
        }
    }

    /// [`Lanes::take`] from this lane: the number taken, and true if that is enough. Only for the owner, which
    /// has read the top.
    #[inline]
    fn take(
        &self,
        top: u32,
        limit: usize,
        mut take: impl FnMut(&[Entry]) -> usize,
    ) -> (usize, bool) {
        let done = Progress::unpacked(self.done.progress.load(Ordering::Relaxed));
        let mut head = done.head;
        let mut taken = 0;
        let mut enough = limit == 0;
        while !enough {
            if head == self.size && top < head {
                head = 0;
            }
            let end = if top >= head { top } else { self.size };
            let run = self.run(head, end);
            let run = &run[..run.len().min(limit - taken)];
            if run.is_empty() {
                break;
            }
            let now = take(run);
            debug_assert!(now <= run.len());
            head += now as u32;
            taken += now;
            enough = now < run.len() || taken == limit;
        }
        let done = Progress {
            taken: done.taken + taken as u64,
            head,
        };
        // Release: pairs with the Acquire in `progress`: the entries have been read.
        self.done.progress.store(done.packed(), Ordering::Release);
        (taken, enough)
    }
}
