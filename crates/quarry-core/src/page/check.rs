//! The consistency walker: P1 and P2 of the page allocator.

use super::{MAX_ORDER, PageAllocator, PageKind, Pfn};
use crate::machine::{CpuId, Machine};

/// Where all pages of a machine are, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCensus {
    /// Never handed out.
    pub untouched: u64,
    /// On buddy lists.
    pub buddy: u64,
    /// On per-CPU lists, or deferred.
    pub pcp: u64,
    /// Allocated by callers of the page allocator.
    pub allocated: u64,
    /// In slabs.
    pub slab: u64,
    /// In kmallocs too large for slabs.
    pub large: u64,
}

impl PageCensus {
    /// All pages.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.untouched + self.buddy + self.pcp + self.allocated + self.slab + self.large
    }
}

/// What the walker found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageInconsistency {
    /// A CPU's lists could not be had in bounded time; try again when it is idle.
    Busy(CpuId),
    /// A lock is held by the calling thread.
    Reentered,
    /// A page's descriptor contradicts the block that it lies in.
    BadBlock(Pfn, PageKind),
    /// Two free buddies that should have been merged.
    Unmerged(Pfn, u32),
    /// A list's length or a counter differs from what the walk found.
    Count {
        /// Which count.
        what: &'static str,
        /// What the lists or counters say.
        recorded: u64,
        /// What the walk found.
        found: u64,
    },
}

impl core::fmt::Display for PageInconsistency {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Busy(cpu) => write!(f, "CPU {} is busy, its page lists were not seen", cpu.0),
            Self::Reentered => f.write_str("the calling thread holds a zone lock"),
            Self::BadBlock(pfn, kind) => {
                write!(
                    f,
                    "page {} lies in no block (its descriptor says {kind:?})",
                    pfn.0
                )
            }
            Self::Unmerged(pfn, order) => {
                write!(
                    f,
                    "page {} and its buddy of order {order} are both free",
                    pfn.0
                )
            }
            Self::Count {
                what,
                recorded,
                found,
            } => {
                write!(f, "{what}: recorded {recorded}, found {found}")
            }
        }
    }
}

impl core::error::Error for PageInconsistency {}

fn equal(what: &'static str, recorded: u64, found: u64) -> Result<(), PageInconsistency> {
    if recorded == found {
        Ok(())
    } else {
        Err(PageInconsistency::Count {
            what,
            recorded,
            found,
        })
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Walks every page and every list. Costs time proportional to the pages ever used; pages
    /// must not be allocated or freed meanwhile, or the answer may be wrong.
    ///
    /// # Errors
    ///
    /// [`PageInconsistency`]: the first contradiction, or a CPU that was busy.
    pub fn check_consistency(&self) -> Result<PageCensus, PageInconsistency> {
        let _pass = self.gate().enter(self.machine());
        let mut census = PageCensus::default();
        let (mut listed_buddy, mut listed_pcp) = (0, 0);
        for zone in self.zones() {
            for cpu in (0..self.machine().topology().cpus).map(CpuId) {
                let seen = zone.pcp.try_with_remote(self.machine(), cpu, |pcp| {
                    let on_lists: u64 = pcp.blocks(self.map()).map(|(_, order)| 1 << order).sum();
                    equal("pages of a CPU's lists", u64::from(pcp.pages()), on_lists)?;
                    Ok(on_lists)
                });
                listed_pcp += seen.ok_or(PageInconsistency::Busy(cpu))??;
            }
            let area = zone
                .lock(self.machine(), self.map())
                .ok_or(PageInconsistency::Reentered)?;
            for order in 0..=MAX_ORDER {
                let mut blocks = 0;
                for pfn in area.blocks(self.map(), order) {
                    if !self.map().page(pfn).is_block(PageKind::Buddy, order) {
                        return Err(PageInconsistency::BadBlock(
                            pfn,
                            self.map().page(pfn).kind(),
                        ));
                    }
                    blocks += 1;
                }
                equal(
                    "blocks on a buddy list",
                    u64::from(area.listed(order)),
                    blocks,
                )?;
                listed_buddy += blocks << order;
            }
            let untouched = u64::from(zone.end - area.frontier());
            census.untouched += untouched;
            let before = census.buddy;
            self.walk_zone(zone.start, area.frontier(), &mut census)?;
            let free = census.buddy - before + untouched;
            equal("free pages of a zone", area.free_pages(), free)?;
        }
        equal("pages on buddy lists", listed_buddy, census.buddy)?;
        equal("pages on per-CPU lists", listed_pcp, census.pcp)?;
        equal("all pages", u64::from(self.pages()), census.total())?;
        Ok(census)
    }

    /// Steps from block to block.
    fn walk_zone(
        &self,
        start: u32,
        end: u32,
        census: &mut PageCensus,
    ) -> Result<(), PageInconsistency> {
        let mut at = start;
        while at < end {
            let page = self.map().page(Pfn(at));
            let (kind, order) = (page.kind(), page.order());
            let pages = 1u64 << order;
            match kind {
                PageKind::Buddy => {
                    let buddy = Pfn(at ^ (1 << order));
                    let whole = order < MAX_ORDER && buddy.0 < end;
                    if whole && self.map().page(buddy).is_block(PageKind::Buddy, order) {
                        return Err(PageInconsistency::Unmerged(Pfn(at), order));
                    }
                    census.buddy += pages;
                }
                PageKind::Pcp => census.pcp += pages,
                PageKind::Allocated => census.allocated += pages,
                PageKind::Slab => census.slab += pages,
                PageKind::LargeKmalloc => census.large += pages,
                PageKind::Untouched | PageKind::Tail => {
                    return Err(PageInconsistency::BadBlock(Pfn(at), kind));
                }
            }
            at += 1 << order;
        }
        Ok(())
    }
}
