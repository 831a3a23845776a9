//! What a run counts.

use quarry_core::page::PageStats;
use serde::Serialize;

use super::heads::HeadCounts;
use super::spec::RxSpec;

/// The thread's link: 100 Gbit/s.
pub const LINE_BITS_PER_SECOND: f64 = 100e9;
/// Bytes on the wire beside a packet: preamble and gap 20, Ethernet header 14, checksum 4.
pub const WIRE_BYTES: u32 = 20 + 14 + 4;
/// Packets per second of one ring of driver #1: 23813 Mbit/s of user data, 1448 bytes a packet.
pub const RING_PACKETS_PER_SECOND: f64 = 23_813e6 / (8.0 * 1448.0);

/// What the page allocator did for the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// A run has no clock, and so no periodic work that drains them.
    pub pcp_drains: u64,
    /// Blocks that drains gave back.
    pub pcp_drained: u64,
    /// Allocations past the per-CPU lists.
    pub direct_allocs: u64,
    /// Frees past the per-CPU lists.
    pub direct_frees: u64,
    /// Buddy splits.
    pub splits: u64,
    /// Buddy merges.
    pub merges: u64,
    /// Acquisitions of the zone lock.
    pub zone_locks: u64,
}

impl PageCounts {
    pub(super) fn of(stats: &PageStats, zone_locks: u64) -> Self {
        Self {
            allocs: stats.allocs(),
            frees: stats.frees(),
            pcp_refills: stats.pcp.refills,
            pcp_refilled: stats.pcp.refilled,
            pcp_drains: stats.pcp.drains,
            pcp_drained: stats.pcp.drained,
            direct_allocs: stats.direct_allocs,
            direct_frees: stats.direct_frees,
            splits: stats.splits,
            merges: stats.merges,
            zone_locks,
        }
    }

    pub(super) fn since(&self, start: &Self) -> Self {
        Self {
            allocs: self.allocs - start.allocs,
            frees: self.frees - start.frees,
            pcp_refills: self.pcp_refills - start.pcp_refills,
            pcp_refilled: self.pcp_refilled - start.pcp_refilled,
            pcp_drains: self.pcp_drains - start.pcp_drains,
            pcp_drained: self.pcp_drained - start.pcp_drained,
            direct_allocs: self.direct_allocs - start.direct_allocs,
            direct_frees: self.direct_frees - start.direct_frees,
            splits: self.splits - start.splits,
            merges: self.merges - start.merges,
            zone_locks: self.zone_locks - start.zone_locks,
        }
    }

    /// Blocks moved while the zone lock was held.
    #[must_use]
    pub fn zone_blocks(&self) -> u64 {
        self.pcp_refilled + self.pcp_drained + self.direct_allocs + self.direct_frees
    }
}

/// What readers did beside freeing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReaderCounts {
    /// Calls by which a reader took what its socket had.
    pub reads: u64,
    /// Readers woken on another CPU than the ring's.
    pub remote_wakes: u64,
    /// Bytes of user data copied to readers.
    pub copied_bytes: u64,
}

impl ReaderCounts {
    pub(super) fn since(&self, start: &Self) -> Self {
        Self {
            reads: self.reads - start.reads,
            remote_wakes: self.remote_wakes - start.remote_wakes,
            copied_bytes: self.copied_bytes - start.copied_bytes,
        }
    }
}

/// How buffers were had without the page allocator, all rings together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

impl RecycleCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.each(other, |sum, value| sum + value);
    }

    pub(super) fn since(&self, start: &Self) -> Self {
        let mut part = *self;
        part.each(start, |end, start| end - start);
        part
    }

    fn each(&mut self, other: &Self, f: impl Fn(u64, u64) -> u64) {
        for (mine, other) in [
            (&mut self.buffers, other.buffers),
            (&mut self.page_reuse, other.page_reuse),
            (&mut self.cache_reuse, other.cache_reuse),
            (&mut self.cache_empty, other.cache_empty),
            (&mut self.cache_busy, other.cache_busy),
            (&mut self.cache_full, other.cache_full),
            (&mut self.cache_waive, other.cache_waive),
            (&mut self.pool_fast, other.pool_fast),
            (&mut self.pool_refill, other.pool_refill),
            (&mut self.pool_slow, other.pool_slow),
            (&mut self.pool_ring, other.pool_ring),
            (&mut self.pool_ring_full, other.pool_ring_full),
        ] {
            *mine = f(*mine, other);
        }
    }
}

/// What a run did, in steady state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RxReport {
    /// The driver.
    pub driver: &'static str,
    /// Its number in the thread.
    pub thread_driver: Option<&'static str>,
    /// The era.
    pub era: &'static str,
    /// Bytes of a page.
    pub page_size: u64,
    /// Receive queues.
    pub rings: u32,
    /// CPUs.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of a CPU's share of the last-level cache.
    pub cache_share_bytes: u64,
    /// MTU in bytes.
    pub mtu: u32,
    /// TCP streams.
    pub streams: u32,
    /// Where they are read.
    pub consumer: &'static str,
    /// Packets that wait in a socket before they are read.
    pub backlog: u32,
    /// Packets that are merged into one socket buffer.
    pub gro_packets: u32,
    /// Work entries of a ring.
    pub descriptors: u32,
    /// Usable entries of each ring's page cache; 0 if there is none.
    pub cache_capacity: u32,
    /// Order of the blocks that buffers lie in.
    pub page_order: u32,
    /// Packets that fit into one block.
    pub packets_per_page: u32,
    /// The seed.
    pub seed: u64,
    /// Pages moved between a per-CPU list and the zone at a time.
    pub pcp_batch: u32,
    /// Pages at which a CPU's lists are drained.
    pub pcp_high: u32,
    /// Packets that arrived before counting started.
    pub warm_up_packets: u64,
    /// Packets that arrived and are counted, dropped ones included.
    pub packets: u64,
    /// Packets that found nothing posted.
    pub dropped: u64,
    /// Times that no page could be had.
    pub alloc_failures: u64,
    /// Most packets that were in sockets or being merged at the same time.
    pub waiting_max: u64,
    /// CPUs that took the zone lock.
    pub zone_lock_cpus: u32,
    /// The readers.
    pub readers: ReaderCounts,
    /// The page allocator.
    pub pages: PageCounts,
    /// Recycling.
    pub recycling: RecycleCounts,
    /// Buffers whose page did not come from the page allocator: those posted without the pages that
    /// it handed out.
    pub recycled: u64,
    /// Socket buffer heads, which are on a machine of their own.
    pub heads: HeadCounts,
    /// What follows for the thread's link.
    pub at_rate: AtRate,
}

/// The counts per packet times a rate of packets. The rate is not a result: it is what the rings
/// would have to bear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AtRate {
    /// Packets per second: as many as the rings of the thread's fastest driver took when there was
    /// one, up to what the link carries.
    pub packets_per_second: f64,
    /// Acquisitions of the zone lock per second.
    pub zone_locks_per_second: f64,
    /// Blocks moved under the zone lock per second; a block is a page at the usual MTU.
    pub zone_blocks_per_second: f64,
    /// Nanoseconds that are there for each block moved, if the lock is held all the time; none if no
    /// block is.
    pub ns_per_zone_block: Option<f64>,
}

impl AtRate {
    pub(super) fn of(spec: &RxSpec, packets: u64, pages: &PageCounts) -> Self {
        let line = LINE_BITS_PER_SECOND / (8.0 * f64::from(spec.mtu + WIRE_BYTES));
        let packets_per_second = line.min(f64::from(spec.rings) * RING_PACKETS_PER_SECOND);
        let per_second = |count: u64| count as f64 / packets as f64 * packets_per_second;
        let blocks = per_second(pages.zone_blocks());
        Self {
            packets_per_second,
            zone_locks_per_second: per_second(pages.zone_locks),
            zone_blocks_per_second: blocks,
            ns_per_zone_block: (blocks > 0.0).then(|| 1e9 / blocks),
        }
    }
}
