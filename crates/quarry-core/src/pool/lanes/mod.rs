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

mod lane;

use core::ptr::{NonNull, null_mut};

use crate::machine::{CpuId, Machine, PerCpuShared, Region};
use crate::page::{PageAllocator, Pfn, entry_of};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
pub(super) use lane::page_of;
use lane::{CLOSED, Entry, LANE_PAGES, Lane, Producer, SEALED};

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
        // Before the owner finds the lane, which would read a top of nowhere. No step gets through meanwhile:
        // the limit is null.
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
            // Before the slot is tried. If that fails, its holder sees the seal when it lets go (`Lane::put`) and
            // takes the limit away. In the other order a holder could let go in between, and steps would go on
            // putting pages into a lane that no owner empties.
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
