//! Counters of a pool, by the kernel's names.

use core::fmt::{self, Write};

use crate::sync::{AtomicU64, Ordering};

/// Counters of a pool (`struct page_pool_alloc_stats`, `struct page_pool_recycle_stats`), and where
/// its pages are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Allocations from the alloc cache.
    pub fast: u64,
    /// Slow allocations of order 0: calls of the page allocator.
    pub slow: u64,
    /// Slow allocations of a higher order.
    pub slow_high_order: u64,
    /// Allocations that found the ring empty.
    pub empty: u64,
    /// Allocations that refilled the alloc cache from the ring.
    pub refill: u64,
    /// Pages that a refill released because they were on another node than the preferred.
    pub waive: u64,
    /// Pages put into the alloc cache.
    pub cached: u64,
    /// Pages that found the alloc cache full.
    pub cache_full: u64,
    /// Pages put into the ring.
    pub ring: u64,
    /// Pages released because the ring was full.
    pub ring_full: u64,
    /// Pages released because they had other users.
    pub released_refcnt: u64,
    /// Entries of the alloc cache or the ring whose page was elsewhere: it had been put twice at
    /// the same moment. Quarry's own.
    pub stale: u64,
    /// Pages in the alloc cache now.
    pub pages_cached: u64,
    /// Pages in the ring now.
    pub pages_ring: u64,
    /// Pages handed out now, pages in pieces included (`inflight`).
    pub inflight: u64,
}

impl PoolStats {
    /// The kernel's counters by the names that `ethtool -S` shows.
    pub fn ethtool(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("rx_pp_alloc_fast", self.fast),
            ("rx_pp_alloc_slow", self.slow),
            ("rx_pp_alloc_slow_ho", self.slow_high_order),
            ("rx_pp_alloc_empty", self.empty),
            ("rx_pp_alloc_refill", self.refill),
            ("rx_pp_alloc_waive", self.waive),
            ("rx_pp_recycle_cached", self.cached),
            ("rx_pp_recycle_cache_full", self.cache_full),
            ("rx_pp_recycle_ring", self.ring),
            ("rx_pp_recycle_ring_full", self.ring_full),
            ("rx_pp_recycle_released_ref", self.released_refcnt),
        ]
        .into_iter()
    }

    /// Writes them as `ethtool -S` does.
    ///
    /// ```
    /// let mut text = String::new();
    /// quarry_core::pool::PoolStats::default().write_ethtool(&mut text).unwrap();
    /// assert!(text.starts_with("NIC statistics:\n     rx_pp_alloc_fast: 0\n"));
    /// ```
    ///
    /// # Errors
    ///
    /// As `out`.
    pub fn write_ethtool(&self, out: &mut impl Write) -> fmt::Result {
        out.write_str("NIC statistics:\n")?;
        self.ethtool()
            .try_for_each(|(name, value)| writeln!(out, "     {name}: {value}"))
    }

    /// Allocations that succeeded, however.
    #[must_use]
    pub fn allocs(&self) -> u64 {
        self.fast + self.refill + self.slow + self.slow_high_order
    }
}

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($field:ident),* }) => {
        $(#[$doc])*
        pub(super) struct $name { $(pub(super) $field: AtomicU64,)* }

        impl $name {
            pub(super) fn new() -> Self {
                Self { $($field: AtomicU64::new(0),)* }
            }

            pub(super) fn add_to(&self, stats: &mut PoolStats) {
                $(stats.$field += self.$field.load(Ordering::Relaxed);)*
            }
        }
    };
}

counters! {
    /// Counters that only the owner writes, all on slow paths.
    #[repr(C)]
    OwnerStats {
        slow, slow_high_order, empty, refill, waive, cache_full, stale
    }
}

counters! {
    /// Counters that all threads write, all on slow paths.
    #[repr(align(64))]
    SharedStats { ring_full, released_refcnt }
}

/// Counts one more; for the counter's only writer.
#[inline(always)]
pub(super) fn count(counter: &AtomicU64) -> u64 {
    count_by(counter, 1)
}

/// Counts `n` more; for the counter's only writer.
#[inline(always)]
pub(super) fn count_by(counter: &AtomicU64, n: u64) -> u64 {
    let next = counter.load(Ordering::Relaxed) + n;
    counter.store(next, Ordering::Relaxed);
    next
}
