//! Report on a replay's page events.

use quarry_core::page::{MIGRATE_TYPES, ORDERS};
use serde::Serialize;

use super::super::fragmentation::Fragmentation;

/// Fate and cost of the page events that a replay was to drive.
///
/// A call of a page event that takes no zone lock was served by the CPU's page lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageReport {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed, implied frees and those of blocks from before included.
    pub frees: u64,
    /// Frees that the importer inserted, among `frees`.
    pub implied_frees: u64,
    /// Allocations left out because the recorded kernel made a slab or a large kmalloc of them.
    pub slab_allocs: u64,
    /// Frees of such blocks.
    pub slab_frees: u64,
    /// Frees of blocks from before the recording, or the replayed part, among `frees`: these blocks
    /// are allocated before the first event.
    pub initial_frees: u64,
    /// Frees of such blocks that are left out: they were too large or found no memory.
    pub unknown_frees: u64,
    /// Allocations left out because no block of the replayed machine is so large.
    pub too_large: u64,
    /// User and page-cache blocks that took a part of a page which others had begun: at larger pages
    /// they keep their bytes, not their number. They are not among `allocs`.
    pub packed_allocs: u64,
    /// Frees of such parts that left others in the page; not among `frees`.
    pub packed_frees: u64,
    /// Allocations that found no memory; the replay goes on without them.
    pub no_memory: u64,
    /// Frees of blocks that were too large or found no memory.
    pub unserved_frees: u64,
    /// Blocks that are still allocated at the end.
    pub live_blocks: u64,
    /// Frees on another CPU than the allocating one, where that is known.
    pub cross_cpu_frees: u64,
    /// `allocs` by the order that the replayed machine gave.
    pub allocs_by_order: [u64; ORDERS],
    /// `allocs` by migrate type: unmovable, movable, reclaimable.
    pub allocs_by_migratetype: [u64; MIGRATE_TYPES],
    /// Allocations that the CPU's page lists served.
    pub alloc_pcp: u64,
    /// Allocations that refilled the CPU's page lists from the zone first.
    pub refills: u64,
    /// Frees that the CPU's page lists kept.
    pub free_pcp: u64,
    /// Frees that drained the CPU's page lists, because these had overflowed or larger blocks went on a
    /// spree of frees.
    /// Drains by frees of slabs and by the periodic work are among
    /// [`PcpReport::drains`](crate::replay::PcpReport::drains) only.
    pub drains: u64,
    /// Zone-lock acquisitions of page events.
    pub zone_locks: u64,
    /// Zone-lock acquisitions of slabs and large kmallocs.
    pub slab_zone_locks: u64,
    /// Zone-lock acquisitions of the periodic work.
    pub periodic_zone_locks: u64,
    /// Bytes of the blocks from before.
    pub initial_bytes: u64,
    /// Pages that the CPUs' lists hold at the beginning.
    pub initial_pcp_pages: u64,
    /// Most bytes of the recording's own blocks at once, as recorded.
    pub peak_recorded_bytes: u64,
    /// Most bytes of them at once, in the blocks that the replayed machine gave.
    pub peak_bytes: u64,
    /// Bytes of them at the end.
    pub final_bytes: u64,
    /// Free memory over time.
    pub fragmentation: Fragmentation,
}

impl PageReport {
    /// Page events that were left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.slab_allocs
            + self.slab_frees
            + self.unknown_frees
            + self.too_large
            + self.no_memory
            + self.unserved_frees
    }
}
