//! Holders of a pool's pages, by call site and CPU.

use core::fmt;

use super::PagePool;
use super::map::Mapper;
use super::pieces::OPEN;
use super::types::{PoolState, Receipt};
use crate::debug::CallSite;
use crate::machine::{CpuId, Machine};
use crate::page::Pfn;
use crate::sync::Ordering;

/// Most holders that a report lists.
pub const HOLDERS_MAX: usize = 64;
/// Holders that its text names.
const HOLDERS_SHOWN: usize = 16;

/// A page that is handed out, or all pages of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The page; of a batch, the first.
    pub pfn: Pfn,
    /// 1, or the pages of the batch.
    pub pages: u64,
    /// Call site that allocated it; of a page in pieces, the newest piece's.
    pub site: CallSite,
    /// The CPU that the owner ran on.
    pub cpu: CpuId,
    /// Allocations from the pool since, less than 2^42.
    pub age: u64,
    /// Pieces in use, 0 for pages that were handed out whole.
    pub pieces: u32,
}

/// Pages in flight of one call site and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The call site.
    pub site: CallSite,
    /// The CPU that the owner ran on.
    pub cpu: CpuId,
    /// Pages, or blocks of the pool's order.
    pub pages: u64,
    /// Allocations from the pool since the oldest of them.
    pub age_max: u64,
}

/// All holders of a pool's pages, those of the oldest page first.
#[derive(Clone)]
pub struct InFlightReport {
    holders: [Holder; HOLDERS_MAX],
    len: usize,
    /// Pages in flight.
    pub pages: u64,
    /// Pages of holders that the report has no room for.
    pub others: u64,
}

impl InFlightReport {
    fn new() -> Self {
        let nobody = Holder {
            site: CallSite::UNKNOWN,
            cpu: CpuId(0),
            pages: 0,
            age_max: 0,
        };
        Self {
            holders: [nobody; HOLDERS_MAX],
            len: 0,
            pages: 0,
            others: 0,
        }
    }

    /// The holders.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        &self.holders[..self.len]
    }

    fn add(&mut self, page: &InFlight) {
        self.pages += page.pages;
        let known = self.holders[..self.len]
            .iter_mut()
            .find(|holder| holder.site == page.site && holder.cpu == page.cpu);
        if let Some(holder) = known {
            holder.pages += page.pages;
            holder.age_max = holder.age_max.max(page.age);
        } else if let Some(free) = self.holders.get_mut(self.len) {
            *free = Holder {
                site: page.site,
                cpu: page.cpu,
                pages: page.pages,
                age_max: page.age,
            };
            self.len += 1;
        } else {
            self.others += page.pages;
        }
    }
}

impl fmt::Debug for InFlightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightReport")
            .field("holders", &self.holders())
            .field("pages", &self.pages)
            .field("others", &self.others)
            .finish()
    }
}

impl fmt::Display for InFlightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages in flight", self.pages)?;
        let shown = &self.holders()[..self.len.min(HOLDERS_SHOWN)];
        for holder in shown {
            write!(
                f,
                "\n  {} allocated at {} on CPU {}, the oldest {} allocations ago",
                holder.pages, holder.site, holder.cpu.0, holder.age_max
            )?;
        }
        let named: u64 = shown.iter().map(|holder| holder.pages).sum();
        if named < self.pages {
            write!(f, "\n  {} by others", self.pages - named)?;
        }
        Ok(())
    }
}

impl<M: Machine, H: Mapper> PagePool<'_, M, H> {
    /// Calls `f` for every page or batch in flight, by page number. Costs time proportional to the pages
    /// that the machine ever used; pages that come or go meanwhile may be missed or wrong.
    pub fn for_each_in_flight(&self, mut f: impl FnMut(&InFlight)) {
        let machine = self.pages.machine();
        let map = self.pages.map_on();
        for zone in self.pages.zones() {
            let _pass = self.pages.gate().enter(machine);
            let Some(end) = zone.lock(map).map(|area| area.frontier()) else {
                continue;
            };
            for pfn in (zone.start..end).map(Pfn) {
                if let Some(page) = self.in_flight(pfn) {
                    f(&page);
                }
            }
        }
    }

    fn in_flight(&self, pfn: Pfn) -> Option<InFlight> {
        let body = self.body();
        let page = self.pages.map().get(pfn)?;
        let (receipt, pages, pieces) = match body.state_of(page) {
            PoolState::InFlight => (page.word.load(Ordering::Relaxed), 1, 0),
            PoolState::InBatch => (page.word.load(Ordering::Relaxed), page.stamp(), 0),
            PoolState::InPieces => {
                let pieces = page.word.load(Ordering::Relaxed) & !OPEN;
                let pieces = (pieces != 0).then_some(pieces.count_ones())?;
                (page.stamp(), 1, pieces)
            }
            _ => return None,
        };
        let receipt = Receipt(receipt);
        Some(InFlight {
            pfn,
            pages,
            site: body.sites.numbered(receipt.site()),
            cpu: receipt.cpu(),
            age: receipt.age(body.owner.clock.load(Ordering::Relaxed)),
            pieces,
        })
    }

    /// Returns the holders of the pool's pages. Costs what [`PagePool::for_each_in_flight`] does.
    #[must_use]
    pub fn in_flight_report(&self) -> InFlightReport {
        let mut report = InFlightReport::new();
        self.for_each_in_flight(|page| report.add(page));
        let holders = &mut report.holders[..report.len];
        holders.sort_unstable_by_key(|holder| core::cmp::Reverse(holder.age_max));
        report
    }
}
