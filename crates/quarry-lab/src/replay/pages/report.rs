//! Report on a replay's page events.

use quarry_core::page::{MIGRATE_TYPES, ORDERS};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::fragmentation::Fragmentation;
use super::super::placement::Placement;

/// Fate and cost of the page events that a replay was to drive.
///
/// A call of a page event that takes no zone lock was served by the CPU's page lists.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct PageReport {
    /// Blocks that page events allocated.
    pub allocs: u64,
    /// Blocks that page events freed, implied frees and those of blocks from before included.
    pub frees: u64,
    /// Frees that the importer inserted, among `frees`.
    pub implied_frees: u64,
    /// Allocations left out because the recorded kernel made a slab or a large kmalloc of them.
    pub slab_allocs: u64,
    /// Frees of the blocks in `slab_allocs`.
    pub slab_frees: u64,
    /// Frees of blocks from before the recording, or the replayed part, among `frees`: these blocks are
    /// allocated before the first event.
    pub initial_frees: u64,
    /// Frees of blocks from before that are left out: they were too large or found no memory.
    pub unknown_frees: u64,
    /// Allocations left out because they are above the largest order of the replayed machine, 10.
    pub too_large: u64,
    /// User and page-cache blocks that took a part of a page which others had begun: at larger pages they
    /// keep their bytes, not their number. Not among `allocs`.
    pub packed_allocs: u64,
    /// Frees of parts of pages that left others in the page; not among `frees`.
    pub packed_frees: u64,
    /// Allocations for which the virtual machine had no memory; the replay goes on without them.
    pub no_memory: u64,
    /// Frees of blocks that were too large or found no memory.
    pub unserved_frees: u64,
    /// Blocks still allocated at the end.
    pub live_blocks: u64,
    /// Frees of page events on another virtual CPU than the one that allocated, if that is known.
    pub cross_cpu_frees: u64,
    /// Allocations by the order that the replayed machine gave.
    pub allocs_by_order: [u64; ORDERS],
    /// Allocations by migrate type: unmovable, movable, reclaimable.
    pub allocs_by_migratetype: [u64; MIGRATE_TYPES],
    /// Allocations of page events that the CPU's page lists served without the zone lock.
    pub alloc_pcp: u64,
    /// Allocations of page events that found the CPU's list empty and refilled it from the zone.
    pub refills: u64,
    /// Frees of page events that the CPU's page lists kept, without the zone lock.
    pub free_pcp: u64,
    /// Frees of page events that drained the CPU's page lists, on overflow or in a spree of frees of larger
    /// blocks. Drains by frees of slabs and by the periodic work are in `pcp.drains` only.
    pub drains: u64,
    /// Zone-lock acquisitions of page events.
    pub zone_locks: u64,
    /// Zone-lock acquisitions of slabs and large kmallocs.
    pub slab_zone_locks: u64,
    /// Zone-lock acquisitions of the page lists' periodic work.
    pub periodic_zone_locks: u64,
    /// Bytes of the blocks from before.
    pub initial_bytes: u64,
    /// Pages on the CPUs' lists before the first event.
    pub initial_pcp_pages: u64,
    /// Most bytes of page events' blocks at once, at the recorded page size.
    pub peak_recorded_bytes: u64,
    /// Most bytes of page events' blocks at once, at the replayed page size.
    pub peak_bytes: u64,
    /// Bytes of page events' blocks at the end.
    pub final_bytes: u64,
    /// Places of pages, if a policy was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
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
