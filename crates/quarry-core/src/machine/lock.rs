//! Spin locks as the machine takes them, and data behind them.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::{Machine, Work, work};
use crate::sync::{AtomicUsize, Ordering};

/// What a lock protects; machines count and time acquisitions by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LockClass {
    /// A node's slab lists (`list_lock`).
    NodeList,
    /// One slab (the slab bit lock of Linux before double-word compare-and-swap).
    Slab,
    /// A zone's free lists (`zone->lock`).
    Zone,
    /// Allocation of the allocators' own structures.
    Region,
    /// The list of caches (`slab_mutex`).
    CacheList,
    /// Where a cache's queues are.
    QueueConfig,
    /// SLOB's page lists and all of their pages (`slob_lock`).
    Slob,
    /// An alien array of SLAB.
    Alien,
    /// A queue that several CPUs use.
    SharedQueue,
    /// A node's stock of sheaves (`barn->lock`).
    Barn,
    /// Deferred frees of a cache.
    Rcu,
    /// The operations on a cache with debugging.
    Debug,
    /// Settings and findings of debugging.
    DebugState,
    /// What the page allocator's sysctls say.
    PageConfig,
}

impl LockClass {
    /// Number of classes.
    pub const COUNT: usize = 14;
    /// All classes with the names that reports use, in the order of their numbers.
    pub const ALL: [(LockClass, &'static str); LockClass::COUNT] = [
        (LockClass::NodeList, "node_list"),
        (LockClass::Slab, "slab"),
        (LockClass::Zone, "zone"),
        (LockClass::Region, "region"),
        (LockClass::CacheList, "cache_list"),
        (LockClass::QueueConfig, "queue_config"),
        (LockClass::Slob, "slob"),
        (LockClass::Alien, "alien"),
        (LockClass::SharedQueue, "shared_queue"),
        (LockClass::Barn, "barn"),
        (LockClass::Rcu, "rcu"),
        (LockClass::Debug, "debug"),
        (LockClass::DebugState, "debug_state"),
        (LockClass::PageConfig, "page_config"),
    ];

    /// The order of all locks, outermost first: a holder waits only for locks of later ranks, unless it
    /// is a signal handler, which begins anew. Classes of one rank are never held together, nor are two
    /// locks of a class, unless they nest ([`LockClass::nests_in`]); one that is only tried ([`Locks::try_lock`](super::Locks::try_lock)) may have
    /// any rank.
    pub const ORDER: [&[LockClass]; 12] = [
        &[LockClass::CacheList],
        &[LockClass::PageConfig],
        &[LockClass::Debug],
        &[LockClass::QueueConfig, LockClass::SharedQueue],
        &[LockClass::Rcu],
        &[LockClass::Barn],
        &[LockClass::Slab, LockClass::Alien],
        &[LockClass::NodeList],
        &[LockClass::Slob],
        &[LockClass::Zone],
        &[LockClass::Region],
        &[LockClass::DebugState],
    ];

    /// Whether a lock of the class may be taken inside one of the other, of the same rank: a cache with
    /// debugging takes the indices of its slabs from a smaller kmalloc cache, which may have it, too.
    #[must_use]
    pub const fn nests_in(self, outer: LockClass) -> bool {
        matches!((self, outer), (LockClass::Debug, LockClass::Debug))
    }

    /// Whether the kernel takes the lock with interrupts off. The bit lock of a slab, too, is taken so, but
    /// inside of calls that have turned them off.
    #[must_use]
    pub const fn irqs_off(self) -> bool {
        matches!(
            self,
            Self::NodeList | Self::Zone | Self::Slob | Self::Alien | Self::SharedQueue | Self::Barn
        )
    }

    /// Place of the class in [`LockClass::ORDER`].
    #[must_use]
    pub const fn rank(self) -> u32 {
        let mut rank = 0;
        while rank < Self::ORDER.len() {
            let mut at = 0;
            while at < Self::ORDER[rank].len() {
                if Self::ORDER[rank][at] as u8 == self as u8 {
                    return rank as u32;
                }
                at += 1;
            }
            rank += 1;
        }
        rank as u32
    }
}

/// The calling thread already holds the lock: it runs in a signal handler that interrupted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

/// A lock word: 0 when free, else a value that identifies the owner to its machine.
#[derive(Debug)]
#[repr(transparent)]
pub struct RawLock {
    owner: AtomicUsize,
}

impl RawLock {
    /// A free lock.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
        }
    }

    /// A free lock.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
        }
    }

    /// Takes the lock for `owner` (not 0) if it is free.
    #[inline]
    pub fn acquire(&self, owner: usize) -> bool {
        // Acquire: pairs with the Release in `release`.
        self.owner
            .compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// The owner at this moment, 0 if free.
    #[inline]
    pub fn owner(&self) -> usize {
        self.owner.load(Ordering::Relaxed)
    }

    /// Frees the lock.
    #[inline]
    pub fn release(&self) {
        // Release: pairs with the Acquire in `acquire`.
        self.owner.store(0, Ordering::Release);
    }
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

/// Data that only the holder of a lock may touch.
pub(crate) struct SpinLock<T> {
    raw: RawLock,
    class: LockClass,
    data: UnsafeCell<T>,
}

// SAFETY: `data` is only reached through a `Guard`, which exists only while `raw` is held, and
// `Machine`'s contract makes acquisitions exclude each other and order the accesses.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    #[cfg_attr(loom, allow(clippy::missing_const_for_fn))]
    pub(crate) fn new(class: LockClass, data: T) -> Self {
        Self {
            raw: RawLock::new(),
            class,
            data: UnsafeCell::new(data),
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock<'a, M: Machine>(&'a self, machine: &'a M) -> Option<Guard<'a, M, T>> {
        // The guard must not exist unless the lock was taken: its drop would free another's.
        if !machine.try_lock(&self.raw, self.class) {
            return None;
        }
        Some(self.taken(machine))
    }

    /// Whether the calling thread holds the lock.
    pub(crate) fn is_mine<M: Machine>(&self, machine: &M) -> bool {
        // Only this thread stores its own number.
        self.raw.owner() == machine.thread_id()
    }

    /// Waits for the lock; `None` if the calling thread holds it already (see [`Reentered`]).
    #[inline]
    pub(crate) fn lock<'a, M: Machine>(&'a self, machine: &'a M) -> Option<Guard<'a, M, T>> {
        machine.lock(&self.raw, self.class).ok()?;
        Some(self.taken(machine))
    }

    /// The guard of a lock that the machine has taken.
    #[inline]
    fn taken<'a, M: Machine>(&'a self, machine: &'a M) -> Guard<'a, M, T> {
        if self.class.irqs_off() {
            work(machine, Work::IrqSave);
        }
        Guard {
            lock: self,
            machine,
        }
    }
}

/// Exclusive access to the data of a [`SpinLock`]; releases it when dropped.
pub(crate) struct Guard<'a, M: Machine, T> {
    lock: &'a SpinLock<T>,
    machine: &'a M,
}

impl<M: Machine, T> Deref for Guard<'_, M, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its lock is held (constructor `SpinLock::lock`), so
        // no other reference to the data exists but through this guard.
        unsafe { &*self.lock.data.get() }
    }
}

impl<M: Machine, T> DerefMut for Guard<'_, M, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes the reference unique.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<M: Machine, T> Drop for Guard<'_, M, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by a successful acquisition and is dropped once.
        unsafe { self.machine.unlock(&self.lock.raw, self.lock.class) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_one_rank_and_one_number() {
        let ranked: usize = LockClass::ORDER.iter().map(|rank| rank.len()).sum();
        assert_eq!(ranked, LockClass::COUNT);
        for (number, (class, name)) in LockClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, number, "{name}");
            assert!((class.rank() as usize) < LockClass::ORDER.len(), "{name}");
        }
    }
}
