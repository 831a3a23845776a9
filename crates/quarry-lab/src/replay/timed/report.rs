//! Report of a replay in simulated time.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use quarry_core::design::Design;
use quarry_core::machine::LockClass;
use quarry_core::stats::{Stat, Stats};
use quarry_sim::Passage;
use quarry_sim::driver::Driver;
use quarry_sim::time::{LockTimes, TimeCounters};
use quarry_work::Causes;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::placement::Placement;
use super::super::report::{CacheReport, Tally, as_map};
use super::caches::Caches;
use super::{Pace, Timing};
use crate::run::RunSpec;

/// Digits of the quantiles.
const DIGITS: u8 = 3;
/// Longest time with a place in a histogram: 1000 s.
const PS_MAX: u64 = 1_000_000_000_000_000;

/// Results of one run. All but `events_per_second` depend on trace, run, machine and seed alone.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct TimedReport {
    /// Design.
    pub design: &'static str,
    /// Kernel release whose rules apply.
    pub era: &'static str,
    /// Bytes of a page.
    pub page_size: u64,
    /// CPUs of the virtual machine.
    pub cpus: u32,
    /// Values that the run has of lists given to `--set`, such as `cpu_partial=6`; `default` for the run without
    /// any of them. Left out if no list is for the design.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub set: String,
    /// CPUs that the recording, or its copies, gave events to.
    pub cpus_with_events: u32,
    /// Machine whose time is simulated (`quarry machines`).
    pub machine: String,
    /// Times at which events happened.
    pub pace: Pace,
    /// State in which the heap began; null for an empty heap.
    pub initial: Option<String>,
    /// Nanoseconds that the slowest CPU needed for its events.
    pub simulated_ns: f64,
    /// Operations of all CPUs per simulated second, page events included. At the recorded pace the
    /// recording decides it.
    pub operations_per_second: f64,
    /// Events whose CPU was still busy at their recorded time; at the recorded pace only.
    pub late_events: u64,
    /// Nanoseconds by which the latest event was late.
    pub late_ns_max: f64,
    /// Allocations of objects, on their CPU's clock from call to return. Waits for locks are included,
    /// zeroing is not.
    pub alloc: OperationTimes,
    /// Frees of objects, on their CPU's clock from call to return. Waits for locks are included.
    pub free: OperationTimes,
    /// Calls to the page allocator by page events that allocate. The times of objects are without these.
    pub page_alloc: OperationTimes,
    /// Calls to the page allocator by page events that free. The times of objects are without these.
    pub page_free: OperationTimes,
    /// Mean time of allocations and frees of objects, in nanoseconds.
    pub operation_ns: f64,
    /// Time of operations on objects by what each needed at most.
    pub paths: PathTimes,
    /// Causes of the time of an operation, on an object or by a page event; periodic work included.
    pub causes: Causes,
    /// Acquisitions by class of lock, over the whole run.
    #[serde(serialize_with = "as_map")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub locks: Vec<(&'static str, u64)>,
    /// Those that waited by class of lock, over the whole run.
    #[serde(serialize_with = "as_map")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub lock_waits: Vec<(&'static str, u64)>,
    /// Nanoseconds that CPUs waited by class of lock, all together, over the whole run.
    #[serde(serialize_with = "as_map")]
    #[schemars(with = "BTreeMap<String, f64>")]
    pub lock_waits_ns: Vec<(&'static str, f64)>,
    /// Page events under a policy; left out if none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<TimedPages>,
    /// Allocations on the fast path, as the kernel counts them: served by the CPU's own list, queue or sheaves. With
    /// sheaves that includes a spare swapped in, one from the barn, and a refill. SLOB has no such path.
    pub alloc_fastpath: u64,
    /// Allocations on the slow path: all others.
    pub alloc_slowpath: u64,
    /// Frees on the fast path, as the kernel counts them: taken by the CPU's own list, queue or sheaves.
    pub free_fastpath: u64,
    /// Frees on the slow path: all others.
    pub free_slowpath: u64,
    /// Frees on another virtual CPU than the one that allocated; a property of the load, so the same in all
    /// designs.
    pub cross_cpu_frees: u64,
    /// Most bytes of pages that were slabs at once.
    pub peak_slab_bytes: u64,
    /// Bytes of pages that are slabs at the end.
    pub final_slab_bytes: u64,
    /// Fate of the trace's events.
    pub replayed: Tally,
    /// Events of the trace, of all copies, per second of the whole run on this computer; 0 if not measured.
    pub events_per_second: f64,
    /// Caches that have slabs or were used, that with the most time in its operations first.
    pub caches: Vec<TimedCache>,
    /// Time counters of the machine over the whole run.
    #[serde(skip)]
    pub spent: TimeCounters,
}

/// Page events of a run in simulated time.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TimedPages {
    /// Places of pages. Samples are of the beginning and the end alone: between them CPUs are in the middle of calls.
    pub placement: Placement,
}

/// A cache over a run in simulated time.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct TimedCache {
    /// Name; kmalloc caches have the names of the design's release.
    pub name: String,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Bytes from one object to the next.
    pub slab_size: u32,
    /// Bytes of all slabs of the cache at the end.
    pub slab_bytes: u64,
    /// Allocations and frees.
    pub operations: u64,
    /// Mean time of an operation in nanoseconds, waits for locks included.
    pub operation_ns: f64,
    /// Wait for locks in nanoseconds per operation.
    pub lock_wait_ns: f64,
    /// Part of the operations, from 0 to 1, that needed more than the CPU's own list, queue or main sheaf.
    pub misses: f64,
}

/// Sums of a cache's operations.
#[derive(Clone, Copy, Default)]
pub(super) struct CacheTimes {
    operations: u64,
    ps: u64,
    wait_ps: u64,
    misses: u64,
}

impl TimedCache {
    fn of(report: &CacheReport, times: CacheTimes) -> Self {
        Self {
            name: report.name.clone(),
            aliases: report.aliases.clone(),
            slab_size: report.slab_size,
            slab_bytes: report.slab_bytes,
            operations: times.operations,
            operation_ns: mean_ns(times.ps, times.operations),
            lock_wait_ns: mean_ns(times.wait_ps, times.operations),
            misses: times.misses as f64 / times.operations.max(1) as f64,
        }
    }
}

/// Times of operations of one kind, in nanoseconds. Quantiles have three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct OperationTimes {
    /// Operations.
    pub count: u64,
    /// Mean time.
    pub mean_ns: f64,
    /// Median time.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
    /// Longest time.
    pub max_ns: f64,
    /// Times at 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9 and 99.99 % of the operations.
    pub quantiles_ns: [f64; QUANTILES.len()],
}

/// Quantiles that charts show.
pub const QUANTILES: [f64; 10] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999];

/// Time of operations on objects by what each needed at most, without waits for locks.
///
/// A hit is less than a fast path: the kernel counts an operation as fast that had to swap, exchange or refill a
/// sheaf first, which takes time as other misses do.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct PathTimes {
    /// Hits: operations that needed no more than the CPU's own list, queue or main sheaf, as it was. SLOB has none.
    pub hit: PathTime,
    /// Misses: operations that needed more, such as another sheaf, a slab or a list of the node, but not the page
    /// allocator.
    pub miss: PathTime,
    /// Operations that went to the page allocator, with all that they did before.
    pub pages: PathTime,
    /// Waits for locks, of all operations.
    pub lock_wait: PathTime,
}

/// Operations that needed the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct PathTime {
    /// Operations.
    pub count: u64,
    /// Mean time of such an operation, in nanoseconds.
    pub mean_ns: f64,
    /// Part of the time of all operations on objects, from 0 to 1.
    pub share: f64,
}

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Alloc,
    Free,
    PageAlloc,
    PageFree,
}

/// Times of one kind so far.
struct Times {
    count: u64,
    sum_ps: u64,
    histogram: Histogram<u64>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            count: 0,
            sum_ps: 0,
            histogram: Histogram::new_with_bounds(1, PS_MAX, DIGITS)
                .expect("a histogram has up to 5 digits"),
        }
    }
}

impl Times {
    fn report(&self) -> OperationTimes {
        let at = |quantile: f64| self.histogram.value_at_quantile(quantile) as f64 / 1000.0;
        OperationTimes {
            count: self.count,
            mean_ns: mean_ns(self.sum_ps, self.count),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max() as f64 / 1000.0,
            quantiles_ns: QUANTILES.map(at),
        }
    }
}

/// Sums at the end of a run.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) has_begun: bool,
    pub(super) cpus_with_events: u32,
    pub(super) peak_slab_pages: u64,
    /// Places of pages, if they are accounted.
    pub(super) placement: Option<Placement>,
    late: u64,
    late_ps_max: u64,
    /// By [`Kind`].
    times: [Times; 4],
    /// Operations on objects and their time: hits, misses, those with pages; then those that waited for locks.
    paths: [(u64, u64); 4],
    /// By the numbers of [`super::caches::Caches`].
    caches: Vec<CacheTimes>,
}

impl Outcome {
    /// Nothing yet, of this number of caches.
    pub(super) fn of_caches(caches: usize) -> Self {
        Self {
            caches: vec![CacheTimes::default(); caches],
            ..Self::default()
        }
    }

    /// An event began so late.
    pub(super) fn began(&mut self, late_ps: u64) {
        self.late += u64::from(late_ps > 0);
        self.late_ps_max = self.late_ps_max.max(late_ps);
    }

    /// An operation on an object of a cache took so long and went through that.
    pub(super) fn took_in(&mut self, cache: u16, kind: Kind, ps: u64, through: Passage) {
        self.took(kind, ps, through);
        if let Some(times) = self.caches.get_mut(usize::from(cache)) {
            times.operations += 1;
            times.ps += ps;
            times.wait_ps += through.lock_wait_ps;
            times.misses += u64::from(through.slow_paths + through.page_calls > 0);
        }
    }

    /// An operation took so long and went through that.
    pub(super) fn took(&mut self, kind: Kind, ps: u64, through: Passage) {
        let times = &mut self.times[kind as usize];
        times.count += 1;
        times.sum_ps += ps;
        times.histogram.saturating_record(ps);
        if matches!(kind, Kind::PageAlloc | Kind::PageFree) {
            return;
        }
        let path = match (through.slow_paths, through.page_calls) {
            (_, 1..) => 2,
            (1.., 0) => 1,
            (0, 0) => 0,
        };
        let wait_ps = through.lock_wait_ps;
        let waited = (u64::from(wait_ps > 0), wait_ps);
        for (path, (count, ps)) in [(path, (1, ps - wait_ps)), (3, waited)] {
            self.paths[path].0 += count;
            self.paths[path].1 += ps;
        }
    }

    /// `has_fast` says whether the design has fast paths, and so hits.
    fn paths(&self, has_fast: bool) -> PathTimes {
        let mut paths = self.paths;
        if !has_fast {
            let (count, ps) = std::mem::take(&mut paths[0]);
            (paths[1].0, paths[1].1) = (paths[1].0 + count, paths[1].1 + ps);
        }
        let all: u64 = paths.iter().map(|(_, ps)| ps).sum();
        let [hit, miss, pages, lock_wait] = paths.map(|(count, ps)| PathTime {
            count,
            mean_ns: mean_ns(ps, count),
            share: ps as f64 / all.max(1) as f64,
        });
        PathTimes {
            hit,
            miss,
            pages,
            lock_wait,
        }
    }
}

/// A value of each class of locks, by name.
fn by_class<T>(spent: &TimeCounters, of: impl Fn(&LockTimes) -> T) -> Vec<(&'static str, T)> {
    let classes = LockClass::ALL.iter().zip(spent.locks.iter().map(of));
    let own = classes.filter(|((class, _), _)| class.is_allocators());
    own.map(|((_, name), value)| (*name, value)).collect()
}

fn mean_ns(ps: u64, count: u64) -> f64 {
    ps as f64 / 1000.0 / count.max(1) as f64
}

impl Outcome {
    /// The caches of a run that has ended, with the times of each.
    pub(super) fn caches(&self, numbers: &Caches, reports: &[CacheReport]) -> Vec<TimedCache> {
        let times = |name: &str| {
            let number = numbers.number(name);
            number.and_then(|number| self.caches.get(number).copied())
        };
        let mut all: Vec<TimedCache> = reports
            .iter()
            .map(|report| TimedCache::of(report, times(&report.name).unwrap_or_default()))
            .collect();
        let spent = |cache: &TimedCache| cache.operation_ns * cache.operations as f64;
        all.sort_by(|a, b| spent(b).total_cmp(&spent(a)));
        all
    }
}

impl TimedReport {
    /// Name of the run among others on one machine: the design, and its values of listed tunables.
    #[must_use]
    pub fn title(&self) -> String {
        RunSpec::title(self.design, self.era, &self.set)
    }

    /// Report of a run that has ended.
    pub(super) fn of<D: Design>(
        spec: &RunSpec,
        timing: &Timing,
        driver: &Driver<'_, D>,
        outcome: Outcome,
        spent: &TimeCounters,
        (caches, stats): (Vec<TimedCache>, Stats),
    ) -> Self {
        let page_bytes = spec.config.page_bytes;
        let operations: u64 = outcome.times.iter().map(|times| times.count).sum();
        let simulated_ps = spent.cpu_ps.iter().max().copied().unwrap_or(0);
        let [alloc, free, page_alloc, page_free] =
            std::array::from_fn(|kind| outcome.times[kind].report());
        let [allocs, frees, ..] = &outcome.times;
        let has_fast = stats.get(Stat::AllocFastpath) + stats.get(Stat::FreeFastpath) > 0;
        Self {
            design: spec.design.design.name,
            era: spec.design.era.name(),
            page_size: page_bytes,
            cpus: spec.config.cpus,
            set: spec.set.clone(),
            cpus_with_events: outcome.cpus_with_events,
            machine: timing.machine.name.clone(),
            pace: timing.pace,
            initial: None,
            simulated_ns: simulated_ps as f64 / 1000.0,
            operations_per_second: operations as f64 / (simulated_ps.max(1) as f64 / 1e12),
            late_events: outcome.late,
            late_ns_max: outcome.late_ps_max as f64 / 1000.0,
            alloc,
            free,
            page_alloc,
            page_free,
            operation_ns: mean_ns(allocs.sum_ps + frees.sum_ps, allocs.count + frees.count),
            paths: outcome.paths(has_fast),
            causes: Causes::of(spent, operations),
            locks: by_class(spent, |of| of.taken),
            lock_waits: by_class(spent, |of| of.waits),
            lock_waits_ns: by_class(spent, |of| of.wait_ps as f64 / 1000.0),
            pages: outcome
                .placement
                .clone()
                .map(|placement| TimedPages { placement }),
            alloc_fastpath: stats.get(Stat::AllocFastpath),
            alloc_slowpath: stats.get(Stat::AllocSlowpath),
            free_fastpath: stats.get(Stat::FreeFastpath),
            free_slowpath: stats.get(Stat::FreeSlowpath),
            cross_cpu_frees: driver.machine().counters().cross_cpu_frees,
            peak_slab_bytes: outcome.peak_slab_pages * page_bytes,
            final_slab_bytes: driver.slab_pages() * page_bytes,
            replayed: outcome.tally,
            events_per_second: 0.0,
            caches,
            spent: spent.clone(),
        }
    }
}
