//! Counters of a cache, by the names of the files in `/sys/kernel/slab/<cache>/`.

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
    /// Allocation from another node than the CPU's (SLAB, likewise).
    NodeAllocs = "node_allocs",
    /// Free of an object of another node than the CPU's (SLAB, likewise).
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
    /// Prefilled sheaf that was the spare.
    SheafPrefillFast = "sheaf_prefill_fast",
    /// Prefilled sheaf that came from the barn or had to be allocated.
    SheafPrefillSlow = "sheaf_prefill_slow",
    /// Prefilled sheaf larger than the cache's capacity.
    SheafPrefillOversize = "sheaf_prefill_oversize",
    /// Prefilled sheaf that became the spare when it was returned.
    SheafReturnFast = "sheaf_return_fast",
    /// Prefilled sheaf that went to the barn or was freed when it was returned.
    SheafReturnSlow = "sheaf_return_slow",
    /// A slab's free list and counters were changed by somebody else first.
    CmpxchgDoubleFail = "cmpxchg_double_fail",
    /// The CPU's slot was held, so the operation took the node-level path. Quarry's own.
    CpuSlotBusy = "cpu_slot_busy",
    /// A free found a lock re-entered and was left for the next operation. Quarry's own.
    FreeDeferred = "free_deferred",
}

/// Number of counters.
pub const STATS: usize = Stat::ALL.len();

/// Values of all counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Stats([u64; STATS]);

impl Default for Stats {
    fn default() -> Self {
        Self([0; STATS])
    }
}

impl Stats {
    /// Distance in bytes of a counter from the set.
    pub(crate) const fn offset(stat: Stat) -> usize {
        stat as usize * size_of::<u64>()
    }

    /// Value of one counter.
    #[must_use]
    pub fn get(&self, stat: Stat) -> u64 {
        self.0[stat as usize]
    }

    /// Adds one.
    #[inline(always)]
    pub(crate) fn count(&mut self, stat: Stat) {
        self.0[stat as usize] += 1;
    }

    /// Adds `n`.
    #[inline(always)]
    pub(crate) fn count_by(&mut self, stat: Stat, n: u64) {
        self.0[stat as usize] += n;
    }

    /// Takes a counter's value away.
    pub(crate) fn take(&mut self, stat: Stat) -> u64 {
        core::mem::take(&mut self.0[stat as usize])
    }

    /// Adds all counters of another set.
    pub fn add(&mut self, other: &Self) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum += value;
        }
    }

    /// What was counted after `earlier`, a snapshot of the same counters.
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

    /// Sets one to 0.
    pub(crate) fn clear(&mut self, stat: Stat) {
        self.0[stat as usize] = 0;
    }
}

/// Counters for what happens without a CPU's slot.
pub(crate) struct SharedStats([AtomicU64; STATS]);

impl SharedStats {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn count(&self, stat: Stat) {
        self.count_by(stat, 1);
    }

    pub(crate) fn count_by(&self, stat: Stat, n: u64) {
        self.0[stat as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self, stat: Stat) {
        self.0[stat as usize].store(0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, stats: &Stats) {
        for (stat, n) in stats.iter().filter(|(_, n)| *n > 0) {
            self.count_by(stat, n);
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats(core::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_table() {
        for (i, stat) in Stat::ALL.iter().enumerate() {
            assert_eq!(*stat as usize, i, "{}", stat.name());
        }
    }
}
