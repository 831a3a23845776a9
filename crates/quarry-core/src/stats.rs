//! Counters of a cache, by the names of the files in `/sys/kernel/slab/<cache>/`.
//!
//! [`Stat`] and [`Stats`] are what all designs show. Each design has its own `Stat` in its `stats.rs`, with the
//! counters it can use; its CPUs have no room for others.

use crate::sync::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Stat {
            $($(#[$doc])* $variant,)*
        }

        impl Stat {
            /// All counters in the order of their numbers.
            pub const ALL: &'static [Stat] = &[$(Stat::$variant,)*];

            /// The counter of this file name.
            #[must_use]
            pub fn named(name: &str) -> Option<Stat> {
                Stat::ALL.iter().copied().find(|stat| stat.name() == name)
            }

            /// The counter's file name in sysfs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Stat::$variant => $name,)*
                }
            }
        }
    };
}

stats! {
    /// Allocation served by the CPU's own list, queue or sheaf.
    AllocFastpath = "alloc_fastpath",
    /// Free that stayed with the CPU's own list, queue or sheaf.
    FreeFastpath = "free_fastpath",
    /// Allocation that needed more than that.
    AllocSlowpath = "alloc_slowpath",
    /// Free that needed more than that.
    FreeSlowpath = "free_slowpath",
    /// Slow free into a slab that some CPU has frozen.
    FreeFrozen = "free_frozen",
    /// Slab put on a node partial list by a free or a drain.
    FreeAddPartial = "free_add_partial",
    /// Slab taken off a node partial list because it became empty.
    FreeRemovePartial = "free_remove_partial",
    /// Slab taken from a node partial list to allocate from.
    AllocFromPartial = "alloc_from_partial",
    /// New slab from the page allocator.
    AllocSlab = "alloc_slab",
    /// CPU list reloaded from the CPU slab's own free list.
    AllocRefill = "alloc_refill",
    /// CPU slab, queue or sheaf was not on the wanted node.
    AllocNodeMismatch = "alloc_node_mismatch",
    /// Slab given back to the page allocator.
    FreeSlab = "free_slab",
    /// CPU slab flushed.
    CpuslabFlush = "cpuslab_flush",
    /// Slab given back because its node was idle (SLAB, `reaped` of slabinfo's `globalstat`).
    Reaped = "reaped",
    /// Allocation from another node than the CPU's (SLAB, `node_allocs` there).
    NodeAllocs = "node_allocs",
    /// Free of an object of another node than the CPU's (SLAB, `node_frees` there).
    NodeFrees = "node_frees",
    /// Alien array drained because it was full (SLAB, `overflows` there).
    AlienOverflow = "alien_overflow",
    /// Queue flushed (SLUB+Queuing).
    QueueFlush = "queue_flush",
    /// Objects that came from a queue that the CPUs of a node share (SLUB+Queuing).
    AllocShared = "alloc_shared",
    /// Objects moved to that queue.
    FreeShared = "free_shared",
    /// Object that came from the queue for objects of another node (SLUB+Queuing).
    AllocAlien = "alloc_alien",
    /// Object put there.
    FreeAlien = "free_alien",
    /// Object of another node taken from its slab without a queue (SLUB+Queuing).
    AllocDirect = "alloc_direct",
    /// Object of another node given to its slab without a queue.
    FreeDirect = "free_direct",
    /// CPU slab given up while full.
    DeactivateFull = "deactivate_full",
    /// CPU slab given up while empty, and discarded.
    DeactivateEmpty = "deactivate_empty",
    /// CPU slab put at the head of the node partial list.
    DeactivateToHead = "deactivate_to_head",
    /// CPU slab put at the tail of the node partial list.
    DeactivateToTail = "deactivate_to_tail",
    /// CPU slab had received frees from elsewhere when it was given up.
    DeactivateRemoteFrees = "deactivate_remote_frees",
    /// CPU slab found exhausted and simply let go.
    DeactivateBypass = "deactivate_bypass",
    /// New slab had to use the fallback order.
    OrderFallback = "order_fallback",
    /// CPU slab taken from the cpu partial list.
    CpuPartialAlloc = "cpu_partial_alloc",
    /// Slab put on the cpu partial list by a free.
    CpuPartialFree = "cpu_partial_free",
    /// Slab put on the cpu partial list from the node's list.
    CpuPartialNode = "cpu_partial_node",
    /// Cpu partial list moved to the node lists.
    CpuPartialDrain = "cpu_partial_drain",
    /// The fast path lost a race on its CPU: never, as its step is restarted.
    CmpxchgDoubleCpuFail = "cmpxchg_double_cpu_fail",
    /// Object taken from a sheaf, where that is not the fast path itself (6.18).
    AllocCpuSheaf = "alloc_cpu_sheaf",
    /// Object put in a sheaf, where that is not the fast path itself (6.18).
    FreeCpuSheaf = "free_cpu_sheaf",
    /// Deferred free put in an rcu sheaf.
    FreeRcuSheaf = "free_rcu_sheaf",
    /// Deferred free that found no rcu sheaf to be put in.
    FreeRcuSheafFail = "free_rcu_sheaf_fail",
    /// Objects flushed from sheaves to their slabs.
    SheafFlush = "sheaf_flush",
    /// Objects filled into sheaves from slabs.
    SheafRefill = "sheaf_refill",
    /// Sheaf structure allocated.
    SheafAlloc = "sheaf_alloc",
    /// Sheaf structure freed.
    SheafFree = "sheaf_free",
    /// Full sheaf got from the barn.
    BarnGet = "barn_get",
    /// The barn had no full sheaf.
    BarnGetFail = "barn_get_fail",
    /// Full sheaf put to the barn.
    BarnPut = "barn_put",
    /// The barn had enough full sheaves.
    BarnPutFail = "barn_put_fail",
    /// Prefilled sheaf that was the spare. No cache counts these, as Quarry has no callers (fact 6.9).
    SheafPrefillFast = "sheaf_prefill_fast",
    /// Prefilled sheaf that came from the barn or had to be allocated.
    SheafPrefillSlow = "sheaf_prefill_slow",
    /// Prefilled sheaf larger than the cache's capacity.
    SheafPrefillOversize = "sheaf_prefill_oversize",
    /// Prefilled sheaf that became the spare when it was returned.
    SheafReturnFast = "sheaf_return_fast",
    /// Prefilled sheaf that went to the barn or was freed when it was returned.
    SheafReturnSlow = "sheaf_return_slow",
    /// Another operation changed a slab's free list and counters first.
    CmpxchgDoubleFail = "cmpxchg_double_fail",
    /// The CPU's slot was held, so the operation took the node-level path. Quarry's own.
    CpuSlotBusy = "cpu_slot_busy",
    /// A free found a lock re-entered and was left for the next operation. Quarry's own.
    FreeDeferred = "free_deferred",
}

/// Number of counters.
pub const STATS: usize = Stat::ALL.len();

/// Values of all counters: what CPUs counted, added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats([u64; STATS]);

impl Default for Stats {
    fn default() -> Self {
        Self([0; STATS])
    }
}

impl Stats {
    /// Value of one counter.
    #[must_use]
    pub fn get(&self, stat: Stat) -> u64 {
        self.0[stat as usize]
    }

    /// Moves a counter's value to another one.
    pub(crate) fn rename(&mut self, from: Stat, to: Stat) {
        self.0[to as usize] += core::mem::take(&mut self.0[from as usize]);
    }

    /// Adds all counters of another set.
    pub fn add(&mut self, other: &Self) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum += value;
        }
    }

    /// Counts since `earlier`, a snapshot of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(core::array::from_fn(|i| {
            self.0[i].saturating_sub(earlier.0[i])
        }))
    }

    /// All counters with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Stat, u64)> + '_ {
        Stat::ALL.iter().copied().zip(self.0)
    }
}

/// A counter of one design whose CPUs count: an enum of some of [`Stat`], made by [`counters!`].
pub(crate) trait Counter: Copy + Into<Stat> + 'static {
    /// A value for each.
    type Values: Copy + AsRef<[u64]> + AsMut<[u64]>;

    /// All of them in the order of their numbers.
    const ALL: &'static [Self];
    /// All values 0.
    const ZERO: Self::Values;

    /// Counter of fast allocations.
    const ALLOC_FASTPATH: Self;
    /// Counter of fast frees.
    const FREE_FASTPATH: Self;
    /// Counter of slow allocations.
    const ALLOC_SLOWPATH: Self;
    /// Counter of slow frees.
    const FREE_SLOWPATH: Self;
    /// Distance in bytes of the counter of fast allocations from the set.
    const POPS: usize;
    /// The same of fast frees.
    const PUSHES: usize;

    /// Its number, from 0 on.
    fn number(self) -> usize;
}

/// Makes the enum `Stat` of what a design counts, and where its CPUs count, the type `Stats` of their
/// values. The names are those of [`crate::stats::Stat`]; a design cannot count any other.
macro_rules! counters {
    ($(#[$doc:meta])* shared: $($variant:ident,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Stat {
            $(#[doc = concat!("[`crate::stats::Stat::", stringify!($variant), "`].")] $variant,)*
        }

        impl From<Stat> for crate::stats::Stat {
            #[inline]
            fn from(stat: Stat) -> Self {
                match stat {
                    $(Stat::$variant => Self::$variant,)*
                }
            }
        }
    };
    ($(#[$doc:meta])* $($variant:ident,)*) => {
        crate::stats::counters! { $(#[$doc])* shared: $($variant,)* }

        /// The values of one CPU, or of one operation.
        pub(crate) type Stats = crate::stats::Counters<Stat>;

        impl crate::stats::Counter for Stat {
            type Values = [u64; Self::ALL.len()];

            const ALL: &'static [Self] = &[$(Self::$variant,)*];
            const ZERO: Self::Values = [0; Self::ALL.len()];

            const ALLOC_FASTPATH: Self = Self::AllocFastpath;
            const FREE_FASTPATH: Self = Self::FreeFastpath;
            const ALLOC_SLOWPATH: Self = Self::AllocSlowpath;
            const FREE_SLOWPATH: Self = Self::FreeSlowpath;
            const POPS: usize = Self::AllocFastpath as usize * size_of::<u64>();
            const PUSHES: usize = Self::FreeFastpath as usize * size_of::<u64>();

            #[inline(always)]
            fn number(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use counters;

/// Values of a design's counters. All-zero is a valid set.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Counters<C: Counter>(C::Values);

impl<C: Counter> Default for Counters<C> {
    fn default() -> Self {
        Self(C::ZERO)
    }
}

impl<C: Counter> Counters<C> {
    pub(crate) fn get(&self, counter: C) -> u64 {
        self.0.as_ref()[counter.number()]
    }

    /// Adds one.
    #[inline(always)]
    pub(crate) fn count(&mut self, counter: C) {
        self.count_by(counter, 1);
    }

    /// Adds `n`.
    #[inline(always)]
    pub(crate) fn count_by(&mut self, counter: C, n: u64) {
        self.0.as_mut()[counter.number()] += n;
    }

    /// Adds all counters of another set.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, value) in self.0.as_mut().iter_mut().zip(other.0.as_ref()) {
            *sum += value;
        }
    }

    /// Adds its values to those of all counters.
    pub(crate) fn add_to(&self, all: &mut Stats) {
        for (counter, value) in self.iter() {
            all.0[counter.into() as usize] += value;
        }
    }

    /// The values among those of all counters.
    pub(crate) fn snapshot(&self) -> Stats {
        let mut all = Stats::default();
        self.add_to(&mut all);
        all
    }

    /// Sets one to 0, if the design has it.
    pub(crate) fn clear(&mut self, stat: Stat) {
        for (value, counter) in self.0.as_mut().iter_mut().zip(C::ALL) {
            if (*counter).into() == stat {
                *value = 0;
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (C, u64)> + '_ {
        C::ALL.iter().copied().zip(self.0.as_ref().iter().copied())
    }
}

/// Counters for what happens without a CPU's slot, of any design.
pub(crate) struct SharedStats([AtomicU64; STATS]);

impl SharedStats {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[inline]
    pub(crate) fn count(&self, stat: impl Into<Stat>) {
        self.count_by(stat, 1);
    }

    #[inline]
    pub(crate) fn count_by(&self, stat: impl Into<Stat>, n: u64) {
        self.0[stat.into() as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self, stat: Stat) {
        self.0[stat as usize].store(0, Ordering::Relaxed);
    }

    pub(crate) fn add<C: Counter>(&self, counters: &Counters<C>) {
        for (counter, n) in counters.iter().filter(|(_, n)| *n > 0) {
            self.count_by(counter, n);
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats(core::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod design {
        crate::stats::counters! {
            /// Counters of this test's design.
            FreeFastpath, AllocSlab, AllocFastpath, AllocSlowpath, FreeSlowpath,
        }
    }

    #[test]
    fn numbers_follow_the_table() {
        for (i, stat) in Stat::ALL.iter().enumerate() {
            assert_eq!(*stat as usize, i, "{}", stat.name());
        }
    }

    #[test]
    fn a_design_counts_under_the_kernels_names() {
        let mut counted = design::Stats::default();
        counted.count(design::Stat::AllocSlab);
        counted.count_by(Counter::FREE_FASTPATH, 5);
        assert_eq!(size_of::<design::Stats>(), 5 * 8);
        assert_eq!((design::Stat::PUSHES, design::Stat::POPS), (0, 16));
        let shared = SharedStats::new();
        shared.add(&counted);
        for all in [counted.snapshot(), shared.snapshot()] {
            let filled: std::vec::Vec<_> = all.iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(filled, [(Stat::FreeFastpath, 5), (Stat::AllocSlab, 1)]);
        }
        counted.clear(Stat::FreeFastpath);
        // One that the design does not have.
        counted.clear(Stat::BarnGet);
        assert_eq!(counted.get(Counter::FREE_FASTPATH), 0);
        assert_eq!(counted.get(design::Stat::AllocSlab), 1);
    }

    #[test]
    fn renamed_values_move() {
        let mut all = Stats::default();
        all.0[Stat::AllocFastpath as usize] = 3;
        all.rename(Stat::AllocFastpath, Stat::AllocCpuSheaf);
        let values = [Stat::AllocFastpath, Stat::AllocCpuSheaf].map(|stat| all.get(stat));
        assert_eq!(values, [0, 3]);
    }
}
