//! The ring: pages that come home from elsewhere, one consumer, locked producers.
//!
//! A slot holds a page or 0, and that is all that producers and the consumer tell each other
//! (Giacomoni et al., FastForward, PPoPP 2008): a producer knows by a slot that is taken that the
//! ring is full, the consumer by an empty one that there is no more, and neither reads the other's
//! index. Producers exclude each other by a lock which they try for a bounded time: a holder that
//! is preempted, or that a fork left behind, costs the others the ring but never makes them wait
//! for ever. Nothing else is done under it, so it needs no per-CPU slot and no gate.

use core::ptr::NonNull;

use crate::machine::{Access, Guard, Line, LockClass, Machine, RawRange, Region, SpinLock, touch};
use crate::page::Pfn;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How often a producer tries for the lock before it gives the page to the page allocator: enough
/// to spin for a while and then to let a preempted holder run.
const PUT_ATTEMPTS: u32 = if cfg!(loom) { 1 } else { 136 };
/// How often the closing of a pool tries.
const CLOSE_ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 1 << 16 };

/// What the producers' lock protects.
pub(super) struct Producer {
    tail: u32,
    closed: bool,
}

/// See the [module's documentation](self).
#[repr(align(64))]
pub(super) struct Ring {
    producer: SpinLock<Producer>,
    /// Pages put so far; written under the lock.
    produced: AtomicU64,
    slots: NonNull<AtomicU32>,
    size: u32,
}

/// What became of a page that was to go into the ring.
pub(super) enum Pushed<E> {
    Done,
    /// No slot is free.
    Full,
    /// The lock could not be had.
    Busy,
    /// The pool takes no more.
    Closed,
    /// The claim failed.
    Refused(E),
}

impl Ring {
    /// A ring of `size` slots. `None` if there is no room.
    pub(super) fn new<M: Machine>(machine: &M, meta: &Region, size: u32) -> Option<Self> {
        let slots = meta.alloc(machine, Self::bytes(size))?.cast::<AtomicU32>();
        for slot in 0..size as usize {
            // SAFETY: the block has room for `size` slots.
            let slot = unsafe { slots.add(slot) };
            // SAFETY: the slot lies in the block, which is aligned to a cache line, and nobody else
            // knows it.
            unsafe { slot.write(AtomicU32::new(0)) };
        }
        let producer = Producer {
            tail: 0,
            closed: false,
        };
        Some(Self {
            producer: SpinLock::new(LockClass::PoolRing, producer),
            produced: AtomicU64::new(0),
            slots,
            size,
        })
    }

    fn bytes(size: u32) -> usize {
        size as usize * size_of::<AtomicU32>()
    }

    /// The memory of the slots.
    pub(super) fn range(&self) -> RawRange {
        RawRange {
            base: self.slots.cast(),
            bytes: Self::bytes(self.size),
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Pages put so far.
    pub(super) fn produced(&self) -> u64 {
        self.produced.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn slot(&self, at: u32) -> &AtomicU32 {
        debug_assert!(at < self.size, "slot {at} of {}", self.size);
        // SAFETY: `following` keeps both indexes below `size`, and `new` made that many slots,
        // which live as long as the ring.
        let slot = unsafe { self.slots.add(at as usize) };
        // SAFETY: as above; slots are atomics.
        unsafe { slot.as_ref() }
    }

    #[inline(always)]
    fn following(&self, at: u32) -> u32 {
        if at + 1 == self.size { 0 } else { at + 1 }
    }

    fn try_lock<'a, M: Machine>(
        &'a self,
        machine: &'a M,
        attempts: u32,
    ) -> Option<Guard<'a, M, Producer>> {
        let mut attempt = 0;
        loop {
            if let Some(producer) = self.producer.try_lock(machine) {
                return Some(producer);
            }
            attempt += 1;
            if attempt >= attempts {
                return None;
            }
            machine.pause(attempt);
        }
    }

    /// Puts a page that `claim` gives to the caller, who must not touch the ring after it: the
    /// pool may be gone by then.
    #[inline]
    pub(super) fn push<M: Machine, E>(
        &self,
        machine: &M,
        pfn: Pfn,
        claim: impl FnOnce() -> Result<(), E>,
    ) -> Pushed<E> {
        let Some(mut producer) = self.try_lock(machine, PUT_ATTEMPTS) else {
            return Pushed::Busy;
        };
        if producer.closed {
            return Pushed::Closed;
        }
        let tail = producer.tail;
        touch(machine, Line::PoolRing, Access::Write, tail as usize);
        let slot = self.slot(tail);
        // Acquire: pairs with the Release in `take`.
        if slot.load(Ordering::Acquire) != 0 {
            return Pushed::Full;
        }
        if let Err(error) = claim() {
            return Pushed::Refused(error);
        }
        producer.tail = self.following(tail);
        let produced = self.produced.load(Ordering::Relaxed);
        self.produced.store(produced + 1, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take`: what was done with the page, and the word of
        // its state, happen before its next use.
        slot.store(Pfn::link(Some(pfn)), Ordering::Release);
        Pushed::Done
    }

    /// Takes up to `limit` pages, oldest first, until `take` says that it is enough. Returns how
    /// many. `head` is the consumer's index; only for the owner.
    #[inline]
    pub(super) fn take<M: Machine>(
        &self,
        machine: &M,
        head: &AtomicU32,
        limit: usize,
        mut take: impl FnMut(Pfn) -> bool,
    ) -> usize {
        let mut at = head.load(Ordering::Relaxed);
        let mut taken = 0;
        while taken < limit {
            let slot = self.slot(at);
            touch(machine, Line::PoolRing, Access::Write, at as usize);
            // Acquire: pairs with the Release in `push`.
            let Some(pfn) = Pfn::from_link(slot.load(Ordering::Acquire)) else {
                break;
            };
            // Release: pairs with the Acquire in `push`.
            slot.store(0, Ordering::Release);
            at = self.following(at);
            taken += 1;
            if !take(pfn) {
                break;
            }
        }
        head.store(at, Ordering::Relaxed);
        taken
    }

    /// Lets no more pages in, and returns when every producer has left. `false` if one stays.
    pub(super) fn close<M: Machine>(&self, machine: &M) -> bool {
        let locked = self.try_lock(machine, CLOSE_ATTEMPTS);
        locked.map(|mut producer| producer.closed = true).is_some()
    }
}
