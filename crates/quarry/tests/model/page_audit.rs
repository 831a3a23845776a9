//! What must hold of the page allocator between operations.

use quarry_core::machine::Machine;
use quarry_core::page::{PageCensus, PageInconsistency};

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
        ensure_eq!(census.allocated, self.live_pages, "allocated pages");
        ensure_eq!(census.slab + census.large, 0, "pages of slabs");
        if self.limits.cpus_hide {
            return Ok(());
        }
        let stats = self.pages.stats();
        ensure_eq!(
            (stats.allocs(), stats.frees()),
            (self.allocs, self.frees),
            "calls counted"
        );
        let free = u64::from(self.pages.pages()) - self.live_pages;
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
            pcp.allocs + pcp.trimmed <= pcp.refilled + pcp.frees,
            "{pcp:?}"
        );
        Ok(())
    }
}
