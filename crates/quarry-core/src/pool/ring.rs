//! The ring: pages that come home from elsewhere, one consumer, any number of producers.
//!
//! A producer reserves slots by moving the tail in one atomic step, and fills them. A slot holds a page
//! or 0: the consumer goes from slot to slot until one that is not filled, empties those before it, and
//! then says how far it has come; a producer looks at that only when the ring seems full. So a producer
//! that is preempted between the two steps, or that a fork left behind there, holds up the pages behind
//! its slot. It makes no thread wait. A signal handler may put while the thread that it interrupted
//! does.
//!
//! Positions count entries from the ring's beginning and do not wrap. Many slots are reserved by a
//! compare-and-swap, which sees that the tail is where the room was looked for. One slot is reserved
//! by an addition. It takes half the time, as it does not wait for a load of the tail that itself waits
//! for the atomic step before. Producers that looked at the same moment may so exceed the ring's size by
//! one entry each: there are [`OVERSHOOT`] slots more for these.

use core::ptr::NonNull;

use crate::machine::{Access, Line, Machine, RawRange, Region, access};
use crate::page::Pfn;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Most looks, when a pool closes, for the last producers to fill their slots.
const CLOSE_ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 1 << 16 };
/// Slots beyond the ring's size: as many producers as these may be, at one moment, between their look
/// at the tail and their step.
const OVERSHOOT: u32 = if cfg!(loom) { 1 } else { 1024 };
/// In the tail: the pool takes no more. As the highest bit it makes every ring look full.
const CLOSED: u64 = 1 << 63;

/// See the [module's documentation](self).
#[repr(C, align(64))]
pub(super) struct Ring {
    slots: NonNull<AtomicU32>,
    /// Slots, less one: their number is a power of two.
    mask: u32,
    /// Entries that it may hold.
    size: u32,
    producers: Producers,
    consumer: Consumer,
}

/// Words that producers write, on a line of their own.
#[repr(align(64))]
struct Producers {
    /// Entries reserved so far, and [`CLOSED`].
    tail: AtomicU64,
    /// A head that one of them saw.
    head_seen: AtomicU64,
}

/// Words that the consumer writes, on a line of their own.
#[repr(align(64))]
struct Consumer {
    /// Entries taken so far.
    head: AtomicU64,
    /// Entries reserved when the ring was closed; no more are filled.
    end: AtomicU64,
}

/// Slots of the ring that only their producer fills.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    /// Position of the first.
    from: u64,
    pub(super) count: u32,
}

/// Reason that there is no slot yet.
pub(super) enum Late {
    /// The ring seems to be full or closed.
    Full,
    /// The slot of this position is not known to be empty.
    Beyond(u64),
}

/// Reason that there are no slots.
pub(super) enum NoRoom {
    Full,
    /// The pool takes no more.
    Closed,
}

impl Ring {
    /// A ring for `size` entries. `None` if there is no room for it.
    pub(super) fn new<M: Machine>(machine: &M, meta: &Region, size: u32) -> Option<Self> {
        let count = (size + OVERSHOOT).next_power_of_two();
        let slots = meta.alloc(machine, Self::bytes(count))?.cast::<AtomicU32>();
        for slot in 0..count as usize {
            // SAFETY: the block has room for `count` slots.
            let slot = unsafe { slots.add(slot) };
            // SAFETY: the slot is in the block, which is aligned to a cache line, and no other code knows it.
            unsafe { slot.write(AtomicU32::new(0)) };
        }
        Some(Self {
            slots,
            mask: count - 1,
            size,
            producers: Producers {
                tail: AtomicU64::new(0),
                head_seen: AtomicU64::new(0),
            },
            consumer: Consumer {
                head: AtomicU64::new(0),
                end: AtomicU64::new(u64::MAX),
            },
        })
    }

    fn bytes(count: u32) -> usize {
        count as usize * size_of::<AtomicU32>()
    }

    /// The memory of the slots.
    pub(super) fn range(&self) -> RawRange {
        RawRange {
            base: self.slots.cast(),
            bytes: Self::bytes(self.mask + 1),
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Entries reserved so far.
    pub(super) fn produced(&self) -> u64 {
        let tail = self.producers.tail.load(Ordering::Relaxed) & !CLOSED;
        tail.min(self.consumer.end.load(Ordering::Relaxed))
    }

    /// Entries taken so far.
    pub(super) fn consumed(&self) -> u64 {
        self.consumer.head.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &AtomicU32 {
        // SAFETY: `new` made a slot for every index that the mask lets through, and they live as
        // long as the ring.
        let slot = unsafe { self.slots.add((position as u32 & self.mask) as usize) };
        // SAFETY: the slot lives as long as the ring and is an atomic, only shared.
        unsafe { slot.as_ref() }
    }

    /// Puts a page into a slot.
    #[inline(always)]
    fn fill_slot<M: Machine>(&self, machine: &M, position: u64, pfn: Pfn) {
        let slot = self.slot(position);
        access(machine, Line::PoolRing, Access::Store, slot);
        // Release: pairs with the Acquire in `empty_slot`: what was done with the page, and the word of
        // its state, happen before its next use.
        slot.store(Pfn::link(Some(pfn)), Ordering::Release);
    }

    /// Takes the page out of a slot, if there is one.
    #[inline(always)]
    fn empty_slot<M: Machine>(&self, machine: &M, position: u64) -> Option<Pfn> {
        let slot = self.slot(position);
        // Acquire: pairs with the Release in `fill_slot`.
        let pfn = Pfn::from_link(slot.load(Ordering::Acquire));
        if pfn.is_some() {
            access(machine, Line::PoolRing, Access::Write, slot);
            slot.store(0, Ordering::Relaxed);
        } else {
            access(machine, Line::PoolRing, Access::Read, slot);
        }
        pfn
    }

    /// The tail, to reserve slots.
    #[inline(always)]
    fn tail_to_move<M: Machine>(&self, machine: &M) -> &AtomicU64 {
        let tail = &self.producers.tail;
        access(machine, Line::PoolRing, Access::Atomic, tail);
        tail
    }

    /// Reserves one slot in the shortest way; [`Ring::reserve_late`] goes on if that is not enough.
    /// If more threads than the ring has spare slots are stopped between their look and their step, the
    /// rest waits for the consumer; on the consumer's own thread it would wait for itself.
    #[inline(always)]
    pub(super) fn reserve_one<M: Machine>(&self, machine: &M) -> Result<Reserved, Late> {
        let Producers { tail, head_seen } = &self.producers;
        // Acquire: as in `reserve`.
        let seen = head_seen.load(Ordering::Acquire);
        if tail.load(Ordering::Relaxed) >= seen + u64::from(self.size) {
            return Err(Late::Full);
        }
        // Relaxed: as in `reserve`.
        let from = self.tail_to_move(machine).fetch_add(1, Ordering::Relaxed);
        if from > seen + u64::from(self.mask) {
            return Err(Late::Beyond(from));
        }
        Ok(Reserved { from, count: 1 })
    }

    /// Slow end of [`Ring::reserve_one`].
    pub(super) fn reserve_late<M: Machine>(
        &self,
        machine: &M,
        late: Late,
    ) -> Result<Reserved, NoRoom> {
        let from = match late {
            Late::Full => return self.reserve(machine, 1),
            Late::Beyond(from) if from & CLOSED != 0 => return Err(NoRoom::Closed),
            Late::Beyond(from) => from,
        };
        let mut attempt = 0;
        // Acquire: as in `look`. More producers looked at once than there are slots to spare: the
        // consumer has to come along.
        while from > self.consumer.head.load(Ordering::Acquire) + u64::from(self.mask) {
            attempt += 1;
            machine.pause(attempt);
        }
        Ok(Reserved { from, count: 1 })
    }

    /// Reserves up to `wanted` slots, at least one. Until all of them are filled the ring holds up
    /// the entries behind them.
    #[inline(always)]
    pub(super) fn reserve<M: Machine>(&self, machine: &M, wanted: u32) -> Result<Reserved, NoRoom> {
        let Producers { tail, head_seen } = &self.producers;
        let mut at = tail.load(Ordering::Relaxed);
        loop {
            // Acquire: pairs with the Release in `look`, for what that producer acquired.
            let limit = head_seen.load(Ordering::Acquire) + u64::from(self.size);
            let mut room = limit.saturating_sub(at);
            if room < u64::from(wanted) {
                room = self.look(machine, at)?;
            }
            let count = room.min(u64::from(wanted)) as u32;
            // Relaxed: it decides whose the slots are; what is in them goes by the slots.
            let moved = self.tail_to_move(machine).compare_exchange_weak(
                at,
                at + u64::from(count),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match moved {
                Ok(from) => return Ok(Reserved { from, count }),
                Err(other) => at = other,
            }
        }
    }

    /// Looks how far the consumer is, and returns how much room there was if the tail was `at`.
    #[cold]
    #[inline(never)]
    fn look<M: Machine>(&self, machine: &M, at: u64) -> Result<u64, NoRoom> {
        if at & CLOSED != 0 {
            return Err(NoRoom::Closed);
        }
        let (head, head_seen) = (&self.consumer.head, &self.producers.head_seen);
        access(machine, Line::PoolRing, Access::Read, head);
        access(machine, Line::PoolRing, Access::Store, head_seen);
        // Acquire: pairs with the Release in `take`: the slots before it are empty.
        let head = head.load(Ordering::Acquire);
        // Release: see `reserve`. An older head than another producer's does no harm.
        head_seen.store(head, Ordering::Release);
        match (head + u64::from(self.size)).saturating_sub(at) {
            0 => Err(NoRoom::Full),
            room => Ok(room),
        }
    }

    /// Fills the slot `number` of those that were reserved. The caller that fills the last one must not
    /// touch the ring after it: the pool may be gone by then.
    #[inline(always)]
    pub(super) fn fill<M: Machine>(&self, machine: &M, to: Reserved, number: u32, pfn: Pfn) {
        debug_assert!(number < to.count, "slot {number} of {}", to.count);
        let position = to.from + u64::from(number);
        self.fill_slot(machine, position, pfn);
    }

    /// Takes up to `limit` pages, oldest first, until `take` says that it is enough. Returns how
    /// many. Only for the consumer.
    #[inline]
    pub(super) fn take<M: Machine>(
        &self,
        machine: &M,
        limit: usize,
        mut take: impl FnMut(Pfn) -> bool,
    ) -> usize {
        let mut at = self.consumed();
        let mut taken = 0;
        while taken < limit {
            let Some(pfn) = self.empty_slot(machine, at) else {
                break;
            };
            at += 1;
            taken += 1;
            if !take(pfn) {
                break;
            }
        }
        let head = &self.consumer.head;
        access(machine, Line::PoolRing, Access::Store, head);
        // Release: pairs with the Acquire in `look`.
        head.store(at, Ordering::Release);
        taken
    }

    /// Lets no more pages in. Only for the consumer.
    pub(super) fn close(&self) {
        // Relaxed: a producer that reserved before fills its slots, which the consumer waits for; a
        // later one keeps its page.
        let tail = self.producers.tail.fetch_or(CLOSED, Ordering::Relaxed);
        if tail & CLOSED == 0 {
            self.consumer.end.store(tail, Ordering::Relaxed);
        }
    }

    /// Takes everything out of a closed ring, waiting in bounded time for producers that have not
    /// filled their slots. Only for the consumer.
    pub(super) fn drain<M: Machine>(&self, machine: &M, mut take: impl FnMut(Pfn)) {
        for attempt in 1..=CLOSE_ATTEMPTS {
            let mut page = None;
            loop {
                self.take(machine, 1, |pfn| {
                    page = Some(pfn);
                    true
                });
                // Outside of `take`, as a mapper may panic.
                let Some(pfn) = page.take() else { break };
                take(pfn);
            }
            if self.consumed() == self.produced() {
                return;
            }
            machine.pause(attempt);
        }
    }
}
