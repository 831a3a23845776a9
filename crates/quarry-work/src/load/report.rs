//! Result of a load.

use quarry_core::design::{Design, Usage};
use quarry_core::stats::Stat;
use quarry_sim::driver::Driver;
use quarry_sim::time::TimeCounters;
use schemars::JsonSchema;
use serde::Serialize;

use super::profile::Profile;
use super::{Load, LoadSpec};
use crate::causes::Causes;
use crate::world::sim::{Kernel, Moment, Path};

/// A cache over a whole run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(rename = "LoadCache")]
pub struct CacheReport {
    /// Name.
    pub name: String,
    /// Objects that were allocated.
    pub allocs: u64,
    /// Share of allocations on the fast path, as the kernel counts them, in percent.
    pub alloc_hits: f64,
    /// Share of frees on the fast path, as the kernel counts them, in percent.
    pub free_hits: f64,
    /// Slabs at the end.
    pub slabs: u64,
    /// Bytes of slabs at the end.
    pub bytes: u64,
}

impl CacheReport {
    /// Makes the report from a cache's counters and memory; `None` if nothing was allocated.
    pub(super) fn of(
        name: &str,
        count: &dyn Fn(Stat) -> u64,
        usage: &Usage,
        page_bytes: u64,
    ) -> Option<Self> {
        let share = |fast: u64, slow: u64| 100.0 * fast as f64 / (fast + slow).max(1) as f64;
        let (fast, slow) = (count(Stat::AllocFastpath), count(Stat::AllocSlowpath));
        (fast + slow > 0).then(|| Self {
            name: name.to_string(),
            allocs: fast + slow,
            alloc_hits: share(fast, slow),
            free_hits: share(count(Stat::FreeFastpath), count(Stat::FreeSlowpath)),
            slabs: usage.slabs,
            bytes: usage.pages * page_bytes,
        })
    }

    /// Most allocations first.
    pub(super) fn sort(all: &mut [Self]) {
        all.sort_by(|a, b| b.allocs.cmp(&a.allocs).then_with(|| a.name.cmp(&b.name)));
    }
}

/// State of a run at its beginning and its end.
pub(super) struct Run {
    begun: Moment,
    ended: Moment,
    caches: Vec<CacheReport>,
    slab_pages: u64,
    late_changes: u32,
}

impl Run {
    pub(super) fn of<D: Design>(
        kernel: &Kernel<'_, '_, D>,
        driver: &Driver<'_, D>,
        page_bytes: u64,
        late_changes: u32,
    ) -> Self {
        let (begun, ended) = kernel.span();
        let mut caches = Vec::new();
        let mut before = kernel.begun_caches().into_iter();
        driver.for_each_cache(|cache| {
            let (stats, before) = (cache.stats(), before.next());
            let of = |stat| stats.get(stat) - before.as_ref().map_or(0, |it| it.get(stat));
            let name = cache.head().name();
            caches.extend(CacheReport::of(name, &of, &cache.usage(), page_bytes));
        });
        CacheReport::sort(&mut caches);
        Self {
            begun,
            ended,
            caches,
            slab_pages: driver.slab_pages(),
            late_changes,
        }
    }
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct LoadReport {
    /// Design.
    pub design: &'static str,
    /// Kernel release whose rules apply.
    pub era: &'static str,
    /// Machine whose time is simulated (`quarry machines`).
    pub machine: String,
    /// Load.
    pub load: &'static str,
    /// Test of will-it-scale; null of other loads.
    pub test: Option<&'static str>,
    /// Groups, clients, pairs or processes.
    pub size: u32,
    /// Options of the load's command.
    pub options: Load,
    /// Moment at which woken tasks run.
    pub wake_order: &'static str,
    /// CPU on which woken tasks run.
    pub wake_place: &'static str,
    /// Sizes of TCP's buffers.
    pub skb_sizes: &'static str,
    /// CPUs.
    pub cpus: u32,
    /// Bytes of a page.
    pub page_size: u64,
    /// `--seed`: decides all that is left to chance.
    pub seed: u64,
    /// State in which the heap began; null for an empty heap.
    pub initial: Option<String>,
    /// Simulated seconds that were counted.
    pub seconds: f64,
    /// Messages, exchanges or transactions in these seconds.
    pub operations: u64,
    /// Simulated seconds before counting.
    pub warm_up_seconds: f64,
    /// Operations before counting.
    pub warm_up_operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Millions of bytes of payload per second. For tbench, the operations times the mean of the load file:
    /// long runs go through it many times, and in a short one a few large exchanges more or less would
    /// decide.
    pub mb_per_second: f64,
    /// Microseconds of CPU time per operation.
    pub cpu_us: f64,
    /// Share of the CPUs' time in which they idle, in percent.
    pub idle_percent: f64,
    /// Task switches per operation.
    pub switches: f64,
    /// Wake-ups per operation.
    pub wakeups: f64,
    /// Wake-ups of an idle CPU by another one, per operation.
    pub remote_wakeups: f64,
    /// Moves of tasks to another CPU, per operation.
    pub migrations: f64,
    /// Changes of `--at` that were due after the end.
    pub late_changes: u32,
    /// Slab memory at the end, in KiB.
    pub slab_kib: u64,
    /// Caches that were used, most allocations first.
    pub caches: Vec<CacheReport>,
    /// Profile of the CPUs' time, idle time left out.
    pub profile: Profile,
    /// Causes of the CPU time of an operation.
    pub causes: Causes,
    /// Time by cause, for studies.
    #[serde(skip)]
    pub spent: TimeCounters,
}

impl LoadReport {
    pub(super) fn of(
        design: &'static str,
        spec: &LoadSpec,
        initial: Option<String>,
        run: &Run,
    ) -> Self {
        let (begun, ended) = (&run.begun, &run.ended);
        let begun_spent = match begun.spent.cpu_ps.is_empty() {
            true => TimeCounters {
                cpu_ps: vec![0; ended.spent.cpu_ps.len()],
                ..TimeCounters::default()
            },
            false => begun.spent.clone(),
        };
        let spent = ended.spent.since(&begun_spent);
        let operations = ended.operations - begun.operations;
        let per = |count: u64| count as f64 / operations.max(1) as f64;
        let seconds = (ended.ps - begun.ps) as f64 / 1e12;
        let rate = |count: u64| match seconds > 0.0 {
            true => count as f64 / seconds,
            false => 0.0,
        };
        let copy = Path::Copy as usize;
        let copy_ps = ended.paths_ps[copy] - begun.paths_ps[copy];
        let all_ps = seconds * 1e12 * f64::from(spec.cpus);
        let busy_ps = busy_ps(&spent);
        let (now, then) = (ended.sched, begun.sched);
        Self {
            design,
            era: spec.setup.era.name(),
            machine: spec.setup.machine.name.clone(),
            load: spec.load.name(),
            test: match spec.load {
                Load::WillItScale(it) => Some(it.test.name()),
                _ => None,
            },
            size: spec.load.size().1,
            options: spec.load,
            wake_order: spec.sched.order.name(),
            wake_place: spec.sched.place.name(),
            skb_sizes: spec.sizes.name(),
            cpus: spec.cpus,
            page_size: spec.setup.page_bytes,
            seed: spec.setup.seed,
            initial,
            seconds,
            operations,
            warm_up_seconds: begun.ps as f64 / 1e12,
            warm_up_operations: begun.operations,
            per_second: rate(operations),
            mb_per_second: match spec.load.get().mean_bytes() {
                Some(bytes) => rate(operations) * bytes / 1e6,
                None => rate(ended.bytes - begun.bytes) / 1e6,
            },
            cpu_us: per(busy_ps) / 1e6,
            idle_percent: match all_ps > 0.0 {
                true => (100.0 * (1.0 - busy_ps as f64 / all_ps)).max(0.0),
                false => 0.0,
            },
            switches: per(now.switches - then.switches),
            wakeups: per(now.wakeups - then.wakeups),
            remote_wakeups: per(now.remote_wakeups - then.remote_wakeups),
            migrations: per(now.migrations - then.migrations),
            late_changes: run.late_changes,
            slab_kib: (run.slab_pages * spec.setup.page_bytes) >> 10,
            caches: run.caches.clone(),
            profile: Profile::of(
                &spec.setup.machine.name,
                spec.setup.machine.ghz,
                &spent,
                copy_ps,
            ),
            causes: Causes::of(&spent, operations),
            spent,
        }
    }

    /// A cache's report by its name.
    #[must_use]
    pub fn cache(&self, name: &str) -> Option<&CacheReport> {
        self.caches.iter().find(|cache| cache.name == name)
    }
}

/// Picoseconds that CPUs were busy.
fn busy_ps(spent: &TimeCounters) -> u64 {
    let locks = spent.locks.iter().map(|lock| lock.wait_ps + lock.own_ps);
    let parts = spent.access_ps.iter().chain(&spent.work_ps);
    parts.sum::<u64>() + locks.sum::<u64>() + spent.fill_ps + spent.outside_ps
}
