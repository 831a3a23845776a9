//! Checks of the page allocator between operations.

use quarry_core::machine::Machine;
use quarry_core::page::{NumaStats, PageCensus, PageInconsistency};

use super::pages::PageDriver;
use super::place::Placement;
use super::{Check, ensure, ensure_eq};

impl<M: Machine, P: Placement<M>> PageDriver<'_, M, P> {
    pub(crate) fn census(&self) -> Check<Option<PageCensus>> {
        match self.pages.check_consistency() {
            Ok(census) => Ok(Some(census)),
            Err(PageInconsistency::Busy(_)) if self.limits.cpus_hide => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Lists, counters and the census against the model.
    pub(crate) fn audit(&self) -> Check {
        let Some(census) = self.census()? else {
            return Ok(());
        };
        ensure_eq!(census.allocated, self.live_pages.get(), "allocated pages");
        ensure_eq!(census.in_hand, 0, "pages on their way");
        ensure_eq!(census.slab + census.large, 0, "pages of slabs");
        if self.limits.cpus_hide {
            return Ok(());
        }
        let stats = self.pages.stats();
        ensure_eq!(
            (stats.allocs(), stats.frees()),
            (self.allocs.get(), self.frees.get()),
            "calls counted"
        );
        // All is free at boot; between zones may be pages of no zone.
        let at_boot = self.boot_blocks.iter().zip(0..);
        let all: u64 = at_boot.map(|(&blocks, order)| blocks << order).sum();
        let free = all - self.live_pages.get();
        ensure_eq!(stats.free_pages, free, "free pages");
        let in_blocks = stats
            .free_blocks
            .iter()
            .zip(0..)
            .map(|(&blocks, order)| blocks << order);
        let listed: u64 = in_blocks.sum();
        ensure_eq!(
            listed + census.pcp,
            free,
            "pages of free blocks and per-CPU lists"
        );
        let pcp = stats.pcp;
        ensure!(
            pcp.allocs + pcp.drained <= pcp.refilled + pcp.frees,
            "{pcp:?}"
        );
        Ok(())
    }

    /// The reports of the zones against each other and the sums.
    pub(crate) fn audit_zones(&self) -> Check {
        if self.limits.cpus_hide {
            return Ok(());
        }
        let stats = self.pages.stats();
        let mut numa = NumaStats::default();
        let (mut allocs, mut pages, mut extfrag) = (0, 0, 0);
        for zone in self.pages.zone_reports() {
            let here = zone.pcp.allocs + zone.direct_allocs;
            ensure_eq!(zone.numa.hit + zone.numa.miss, here, "hits and misses");
            ensure_eq!(zone.numa.local + zone.numa.other, here, "local and other");
            let blocks = zone.free_blocks.iter().zip(0..);
            let free: u64 = blocks
                .map(|(by_type, order)| by_type.iter().sum::<u64>() << order)
                .sum();
            ensure_eq!(
                free,
                zone.free_pages,
                "free blocks and pages of {:?}",
                zone.id
            );
            let pageblocks = zone.pages.div_ceil(1 << zone.pageblock_order);
            ensure_eq!(
                zone.pageblocks.iter().sum::<u64>(),
                pageblocks,
                "pageblocks"
            );
            numa.miss += zone.numa.miss;
            numa.foreign += zone.numa.foreign;
            allocs += here;
            pages += zone.pages_allocated - zone.pages_freed;
            extfrag += zone.extfrag;
        }
        ensure_eq!(numa.miss, numa.foreign, "each miss is foreign to a zone");
        ensure_eq!(
            (allocs, extfrag),
            (self.allocs.get(), stats.extfrag),
            "sums over zones"
        );
        ensure_eq!(pages, self.live_pages.get(), "pages allocated and freed");
        Ok(())
    }
}
