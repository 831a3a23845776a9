//! Reports of a page allocator: sums for programs, and zone by zone the values in the texts of
//! `/proc/buddyinfo`, `/proc/pagetypeinfo`, `/proc/zoneinfo` and `/proc/vmstat`.

use super::PageAllocator;
use super::buddy::FreeBlockCounts;
use super::geometry::{ListLimits, Watermarks};
use super::pcp::{Pagesets, PcpStats};
use super::types::{BLOCK_TYPES, ORDERS, Pfn, ZONE_TYPES, ZoneId};
use crate::machine::{CpuId, Machine};
use crate::sync::{AtomicU64, Ordering};

/// Counters of the page allocator, summed over zones and CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Requests that the per-CPU lists served or took.
    pub pcp: PcpStats,
    /// Allocations that went to a zone directly.
    pub direct_allocs: u64,
    /// Frees that went to a zone directly.
    pub direct_frees: u64,
    /// Allocations for which a block of another migrate type was taken.
    pub extfrag: u64,
    /// Pageblocks whose type was changed by that.
    pub retagged: u64,
    /// Allocations that mixed types although their policy asks to reclaim memory first.
    pub forced: u64,
    /// Buddy splits.
    pub splits: u64,
    /// Buddy merges.
    pub merges: u64,
    /// Pages that are free in zones or on per-CPU lists.
    pub free_pages: u64,
    /// Free blocks in the zones by order (`/proc/buddyinfo`).
    pub free_blocks: [u64; ORDERS],
}

impl PageStats {
    /// Calls to allocate a block.
    #[must_use]
    pub fn allocs(&self) -> u64 {
        self.pcp.allocs + self.direct_allocs
    }

    /// Calls to free a block.
    #[must_use]
    pub fn frees(&self) -> u64 {
        self.pcp.frees + self.direct_frees
    }
}

/// NUMA counters of a zone; each allocation counts in one of the first two and in one of the last
/// two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaStats {
    /// Allocations served here as preferred (`numa_hit`).
    pub hit: u64,
    /// Allocations served here that preferred another node (`numa_miss`).
    pub miss: u64,
    /// Allocations that preferred this zone and were served by another node (`numa_foreign`).
    pub foreign: u64,
    /// Allocations for a CPU of this node (`numa_local`).
    pub local: u64,
    /// Allocations for a CPU of another node (`numa_other`).
    pub other: u64,
}

/// A zone at this moment. Counters leave out CPUs that are busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// Node and type of the zone.
    pub id: ZoneId,
    /// Its first page.
    pub start: Pfn,
    /// Its pages: all are present and managed, and none is missing in between.
    pub pages: u64,
    /// Pages that are free on the zone's own lists (`nr_free_pages`).
    pub free_pages: u64,
    /// Free blocks by order and type, in the order of the types' numbers.
    pub free_blocks: FreeBlockCounts,
    /// log2 of the pages of a pageblock.
    pub pageblock_order: u32,
    /// Pageblocks by type. In eras without types all are unmovable.
    pub pageblocks: [u64; BLOCK_TYPES],
    /// Its watermarks, raised by the boost.
    pub watermarks: Watermarks,
    /// Pages that they are raised by ([`PageAllocator::set_boost`]).
    pub boost: u64,
    /// Pages kept back from requests that could have had a higher zone, by the highest
    /// (`protection`); [`ZoneType::ALL`](super::ZoneType::ALL) gives the zones' order.
    pub lowmem_reserve: [u64; ZONE_TYPES],
    /// Traffic of the per-CPU lists.
    pub pcp: PcpStats,
    /// Allocations that passed them by.
    pub direct_allocs: u64,
    /// Frees that passed them by.
    pub direct_frees: u64,
    /// Pages allocated so far (`pgalloc_<zone>`).
    pub pages_allocated: u64,
    /// Pages freed so far, as `pgfree` counts them for all zones.
    pub pages_freed: u64,
    /// NUMA counters.
    pub numa: NumaStats,
    /// Allocations for which a block of another migrate type was taken.
    pub extfrag: u64,
    /// Pageblocks whose migrate type was changed by that.
    pub retagged: u64,
    /// CPUs that were busy and are left out of the counters.
    pub busy: u32,
}

/// A CPU's lists of one zone, as `/proc/zoneinfo` shows them under `pagesets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesetReport {
    /// The CPU.
    pub cpu: CpuId,
    /// Pages on its lists.
    pub count: u32,
    /// Pages at which the lists are drained now; 0 if the era tunes that and they were never used.
    pub high: u32,
    /// Pages moved at a time.
    pub batch: u32,
    /// The least that `high` is tuned to.
    pub high_min: u32,
    /// The most that `high` is tuned to.
    pub high_max: u32,
    /// Limits of the list for cold pages, which stays empty; releases before 2.6.25 have one.
    pub cold: Option<ListLimits>,
}

fn sum(counters: &[AtomicU64]) -> u64 {
    counters.iter().map(|n| n.load(Ordering::Relaxed)).sum()
}

/// Pages of blocks counted by order.
fn pages(blocks: &[AtomicU64]) -> u64 {
    let loaded = blocks.iter().map(|n| n.load(Ordering::Relaxed));
    loaded.zip(0..).map(|(n, order)| n << order).sum()
}

impl<M: Machine> PageAllocator<M> {
    /// The zones, lowest address first.
    pub fn zone_reports(&self) -> impl Iterator<Item = ZoneReport> {
        self.pagesets().map(|sets| self.report(sets))
    }

    /// One zone; `None` if there is no such zone.
    pub fn zone_report(&self, zone: usize) -> Option<ZoneReport> {
        self.pagesets().nth(zone).map(|sets| self.report(sets))
    }

    /// The lists of a CPU for a zone. `None` if there is no such zone or CPU, or the CPU is busy.
    pub fn pageset_report(&self, zone: usize, cpu: CpuId) -> Option<PagesetReport> {
        if cpu.0 >= self.machine().topology().cpus {
            return None;
        }
        let _pass = self.gate().enter(self.machine());
        let sets = self.pagesets().nth(zone)?;
        let at = sets.at(self.map_on());
        at.with_remote(cpu, |pcp| PagesetReport {
            cpu,
            count: pcp.pages(),
            high: pcp.shown_high(&at),
            batch: at.zone.limits.batch(),
            high_min: at.zone.limits.high_min(),
            high_max: at.zone.limits.high_max(),
            cold: at.zone.params().cold,
        })
    }

    fn report(&self, sets: &Pagesets) -> ZoneReport {
        let zone = &sets.zone;
        let _pass = self.gate().enter(self.machine());
        let mut report = ZoneReport {
            id: zone.id,
            start: Pfn(zone.start),
            pages: zone.pages(),
            free_pages: zone.free_pages(),
            free_blocks: [[0; BLOCK_TYPES]; ORDERS],
            pageblock_order: self.map().blocks().order(),
            pageblocks: [0; BLOCK_TYPES],
            watermarks: zone.watermarks(),
            boost: zone.boost(),
            lowmem_reserve: core::array::from_fn(|at| {
                zone.lowmem_reserve[at].load(Ordering::Relaxed)
            }),
            pcp: PcpStats::default(),
            direct_allocs: sum(&zone.shared.direct_allocs),
            direct_frees: sum(&zone.shared.direct_frees),
            pages_allocated: pages(&zone.shared.direct_allocs),
            pages_freed: pages(&zone.shared.direct_frees),
            numa: NumaStats::default(),
            extfrag: 0,
            retagged: 0,
            busy: 0,
        };
        let mut other = zone.shared.numa.other.load(Ordering::Relaxed);
        let at = sets.at(self.map_on());
        for cpu in (0..self.machine().topology().cpus).map(CpuId) {
            let seen = at.with_remote(cpu, |pcp| {
                report.pcp.add(&pcp.stats());
                let [allocated, freed] = pcp.traffic(&zone.rules);
                report.pages_allocated += allocated;
                report.pages_freed += freed;
                other += pcp.numa_other;
            });
            report.busy += u32::from(seen.is_none());
        }
        let allocs = report.pcp.allocs + report.direct_allocs;
        let miss = zone.shared.numa.miss.load(Ordering::Relaxed);
        report.numa = NumaStats {
            hit: allocs.saturating_sub(miss),
            miss,
            foreign: zone.shared.numa.foreign.load(Ordering::Relaxed),
            local: allocs.saturating_sub(other),
            other,
        };
        for block in (zone.start..zone.end).step_by(1 << report.pageblock_order) {
            let of = self.map().blocks().block_type(Pfn(block));
            report.pageblocks[of.index()] += 1;
        }
        if let Some(area) = zone.lock(self.map_on()) {
            report.free_pages = area.free_pages();
            report.free_blocks = area.free_blocks();
            report.extfrag = area.extfrag;
            report.retagged = area.retagged;
        }
        report
    }

    /// Allocations and frees so far that went to a zone directly. Takes no lock.
    pub fn direct_calls(&self) -> [u64; 2] {
        self.zones().fold([0; 2], |[allocs, frees], zone| {
            let shared = &zone.shared;
            [
                allocs + sum(&shared.direct_allocs),
                frees + sum(&shared.direct_frees),
            ]
        })
    }

    /// Requests that a CPU's lists served or took so far; `None` if they are in use at this moment. Takes no lock.
    pub fn cpu_stats(&self, cpu: CpuId) -> Option<PcpStats> {
        let _pass = self.gate().enter(self.machine());
        let mut stats = PcpStats::default();
        for sets in self.pagesets() {
            let at = sets.at(self.map_on());
            at.with_remote(cpu, |pcp| stats.add(&pcp.stats()))?;
        }
        Some(stats)
    }

    /// Counters, exact if no CPU is busy; a busy CPU's part is missing. A single step that was
    /// restarted may count twice.
    pub fn stats(&self) -> PageStats {
        let _pass = self.gate().enter(self.machine());
        let [direct_allocs, direct_frees] = self.direct_calls();
        let mut stats = PageStats {
            direct_allocs,
            direct_frees,
            ..PageStats::default()
        };
        for zone in self.zones() {
            if let Some(area) = zone.lock(self.map_on()) {
                stats.splits += area.splits;
                stats.merges += area.merges;
                stats.extfrag += area.extfrag;
                stats.retagged += area.retagged;
                stats.forced += area.forced;
                stats.free_pages += area.free_pages();
                for (sum, by_type) in stats.free_blocks.iter_mut().zip(area.free_blocks()) {
                    *sum += by_type.iter().sum::<u64>();
                }
            }
        }
        self.each_pcp(|_, _, pcp| {
            stats.pcp.add(&pcp.stats());
            stats.free_pages += u64::from(pcp.pages());
        });
        stats
    }
}
