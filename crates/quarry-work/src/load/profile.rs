//! A load's time, in the layout of a profiler.

use quarry_core::machine::{Line, LockClass, Work};
use quarry_sim::time::TimeCounters;
use schemars::JsonSchema;
use serde::Serialize;

/// Cycles of a sample, as in thread 000.
const SAMPLE_CYCLES: f64 = 100_000.0;

/// A path's share of the time.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct ProfileRow {
    /// Kernel function, or kind of work.
    pub symbol: String,
    /// Samples, one per 100,000 cycles.
    pub samples: u64,
    /// Share of all samples, in percent.
    pub percent: f64,
}

/// Profile of the CPUs' time, largest share first; idle time is left out.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Profile {
    /// Machine and clock.
    pub cpu: String,
    /// Rows, largest share first.
    pub rows: Vec<ProfileRow>,
}

/// Symbols of the page allocator.
pub const PAGE_ALLOCATOR: &str = "page allocator";
/// Symbol of slow paths.
pub const SLAB_SLOW: &str = "__slab_alloc, __slab_free";

/// To which symbol work belongs.
const fn work_symbol(work: Work) -> &'static str {
    match work {
        Work::Call
        | Work::BulkObject
        | Work::IrqSave
        | Work::IrqDisable
        | Work::Preempt
        | Work::LocalCmpxchg => "kmem_cache_alloc, kmem_cache_free",
        Work::SlowPath | Work::SlabObject | Work::DrainObject | Work::LocalLock => SLAB_SLOW,
        Work::PageCall | Work::BuddyStep | Work::ZoneTake | Work::ZoneGive => PAGE_ALLOCATOR,
        Work::Ipi => "smp_call_function",
        Work::RemoteWake => "idle exit, reschedule interrupt",
        Work::Switch => "schedule, __switch_to",
        Work::Syscall => "system_call",
    }
}

/// To which symbol accesses belong.
const fn line_symbol(line: Line) -> &'static str {
    match line {
        Line::Object | Line::CpuState | Line::CpuQueue => "kmem_cache_alloc, kmem_cache_free",
        Line::Slab | Line::Bitmap | Line::Node => SLAB_SLOW,
        Line::PageDescriptor | Line::Pcp | Line::Zone => PAGE_ALLOCATOR,
        Line::PoolCache | Line::PoolRing | Line::PoolLane => "page_pool",
    }
}

impl Profile {
    /// Profile of the time spent; copies took `copy_ps` of it.
    pub(super) fn of(machine: &str, ghz: f64, spent: &TimeCounters, copy_ps: u64) -> Self {
        let mut sums: Vec<(String, u64)> = Vec::new();
        let mut add =
            |symbol: &str, ps: u64| match sums.iter_mut().find(|(known, _)| known == symbol) {
                Some((_, sum)) => *sum += ps,
                None => sums.push((symbol.to_string(), ps)),
            };
        add("copy_user", copy_ps);
        // Heads are cleared by the protocols.
        let rest_ps = (spent.outside_ps + spent.fill_ps).saturating_sub(copy_ps);
        add("protocols, sockets", rest_ps);
        for (work, ps) in Work::ALL.iter().zip(spent.work_ps) {
            add(work_symbol(work.0), ps);
        }
        for (line, ps) in Line::ALL.iter().zip(spent.access_ps) {
            add(line_symbol(line.0), ps);
        }
        for ((class, name), times) in LockClass::ALL.iter().zip(&spent.locks) {
            let owner = match class {
                LockClass::Zone | LockClass::PageConfig => PAGE_ALLOCATOR,
                LockClass::Slob => "kmem_cache_alloc, kmem_cache_free",
                _ => SLAB_SLOW,
            };
            add(owner, times.own_ps);
            add(&format!("spin_lock ({name})"), times.wait_ps);
        }
        let all_ps: u64 = sums.iter().map(|(_, ps)| ps).sum();
        sums.retain(|(_, ps)| *ps > 0);
        sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let rows = sums.into_iter().map(|(symbol, ps)| ProfileRow {
            symbol,
            samples: (ps as f64 / 1000.0 * ghz / SAMPLE_CYCLES).round() as u64,
            percent: 100.0 * ps as f64 / all_ps.max(1) as f64,
        });
        Self {
            cpu: format!("{machine}, speed {:.0} MHz (simulated)", ghz * 1000.0),
            rows: rows.collect(),
        }
    }

    /// A symbol's share of the time, in percent.
    #[must_use]
    pub fn percent(&self, symbol: &str) -> f64 {
        let rows = self.rows.iter().filter(|row| row.symbol == symbol);
        rows.fold(0.0, |all, row| all + row.percent)
    }
}
