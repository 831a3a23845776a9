//! Calls and pages that a receiver's run counts.

use quarry_core::page::PcpStats;
use schemars::JsonSchema;
use serde::Serialize;

/// Calls of the page allocator, for packets and for the slabs of socket buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PageCounts {
    /// Calls to allocate.
    pub allocs: u64,
    /// Calls to free.
    pub frees: u64,
    /// Times that a per-CPU list was empty and the zone was asked for blocks, also if it had none.
    pub pcp_refills: u64,
    /// Blocks that refills brought.
    pub pcp_refilled: u64,
    /// Times that frees drained per-CPU lists, because these had overflowed or larger blocks went on a
    /// spree of frees.
    pub pcp_drains: u64,
    /// Blocks that drains gave back.
    pub pcp_drained: u64,
    /// Allocations past the per-CPU lists.
    pub direct_allocs: u64,
    /// Frees past the per-CPU lists.
    pub direct_frees: u64,
    /// Acquisitions of zone locks.
    pub zone_locks: u64,
}

impl PageCounts {
    /// Adds what went through the lists of a CPU.
    pub(super) fn add_lists(&mut self, lists: &PcpStats) {
        self.allocs += lists.allocs;
        self.frees += lists.frees;
        self.pcp_refills += lists.refills;
        self.pcp_refilled += lists.refilled;
        self.pcp_drains += lists.drains;
        self.pcp_drained += lists.drained;
    }

    /// Adds the calls that passed the lists by.
    pub(super) fn add_direct(&mut self, [allocs, frees]: [u64; 2]) {
        self.allocs += allocs;
        self.frees += frees;
        self.direct_allocs += allocs;
        self.direct_frees += frees;
    }

    /// Blocks moved while a zone lock was held.
    #[must_use]
    pub fn zone_blocks(&self) -> u64 {
        self.pcp_refilled + self.pcp_drained + self.direct_allocs + self.direct_frees
    }
}

/// Ways in which all rings together obtained buffers without the page allocator, and the reasons for which they did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct RecycleCounts {
    /// Buffers posted.
    pub buffers: u64,
    /// Posted in the rest of a page that had been received into.
    pub page_reuse: u64,
    /// Page cache: the oldest page was idle and was taken.
    pub cache_reuse: u64,
    /// Page cache: there was none.
    pub cache_empty: u64,
    /// Page cache: the oldest page was still in use.
    pub cache_busy: u64,
    /// Page cache: a page was given up because the ring was full.
    pub cache_full: u64,
    /// Page cache: a page was given up because it is another node's.
    pub cache_waive: u64,
    /// Page pool: from the alloc cache (`fast`), which a slow allocation may have filled.
    pub pool_fast: u64,
    /// Page pool: from the alloc cache after it was refilled from the ring.
    pub pool_refill: u64,
    /// Page pool: calls of the page allocator.
    pub pool_slow: u64,
    /// Page pool: pages that readers put into the ring.
    pub pool_ring: u64,
    /// Page pool: pages that readers gave up because the ring was full.
    pub pool_ring_full: u64,
}

/// Calls and pages of a run, in steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct RxCounts {
    /// Packets that rings were polled for while calls were counted.
    pub polled: u64,
    /// Times that a driver wanted a page and there was none.
    pub alloc_failures: u64,
    /// Calls of the page allocator.
    pub pages: PageCounts,
    /// Recycling of pages by the drivers.
    pub recycling: RecycleCounts,
}

impl RxCounts {
    /// Buffers posted without a page that the page allocator handed out for them.
    #[must_use]
    pub fn recycled(&self) -> u64 {
        let fresh = self.pages.allocs;
        self.recycling.buffers.saturating_sub(fresh)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.each(other, |sum, value| sum + value);
    }

    pub(super) fn since(&self, start: &Self) -> Self {
        let mut part = *self;
        part.each(start, |end, start| end - start);
        part
    }

    fn each(&mut self, other: &Self, f: impl Fn(u64, u64) -> u64) {
        let mut other = *other;
        for (mine, other) in self.fields().into_iter().zip(other.fields()) {
            *mine = f(*mine, *other);
        }
    }

    fn fields(&mut self) -> [&mut u64; 23] {
        let Self {
            polled,
            alloc_failures,
            pages,
            recycling,
        } = self;
        [
            polled,
            alloc_failures,
            &mut pages.allocs,
            &mut pages.frees,
            &mut pages.pcp_refills,
            &mut pages.pcp_refilled,
            &mut pages.pcp_drains,
            &mut pages.pcp_drained,
            &mut pages.direct_allocs,
            &mut pages.direct_frees,
            &mut pages.zone_locks,
            &mut recycling.buffers,
            &mut recycling.page_reuse,
            &mut recycling.cache_reuse,
            &mut recycling.cache_empty,
            &mut recycling.cache_busy,
            &mut recycling.cache_full,
            &mut recycling.cache_waive,
            &mut recycling.pool_fast,
            &mut recycling.pool_refill,
            &mut recycling.pool_slow,
            &mut recycling.pool_ring,
            &mut recycling.pool_ring_full,
        ]
    }
}
