//! The classic loads: tasks that send each other messages, or have memory and files.
//!
//! | load | what | published as |
//! |---|---|---|
//! | [`Hackbench`] | groups of senders and receivers on Unix sockets, datagrams or pipes | seconds |
//! | [`Tbench`] | dbench's requests and replies over TCP on loopback | MB/s of payload |
//! | [`TcpRr`] | a byte to and fro over TCP on loopback | transactions a second |
//! | [`WillItScale`] | processes that map and touch memory, or open files | operations a second |
//! | [`Own`] | what the caller writes | |

mod change;
mod gate;
mod hackbench;
pub mod host;
#[cfg(test)]
mod host_tests;
mod own;
#[cfg(test)]
mod own_tests;
mod profile;
mod report;
mod run;
mod spec;
mod tbench;
mod tcp_rr;
#[cfg(test)]
mod tests;
mod will_it_scale;
mod workload;

pub use change::Change;
pub use hackbench::Hackbench;
pub use own::Own;
pub use profile::{PAGE_ALLOCATOR, Profile, ProfileRow, SLAB_SLOW};
pub use quarry_sim::sched::{SchedRules, WakeOrder, WakePlace};
pub use report::{CacheReport, LoadReport};
pub use run::{HostRun, LoadRun, MEMORY_BYTES, change};
pub use spec::LoadSpec;
pub use tbench::Tbench;
pub use tcp_rr::TcpRr;
pub use will_it_scale::{Test, WillItScale};

use quarry_core::design::Design;
use quarry_core::machine::CpuId;
use quarry_core::page::PageConfig;
use quarry_core::stats::{Stat, Stats};
use quarry_machines::Key;
use quarry_sim::driver::{Driver, drive_pages};
use quarry_sim::sched::Scheduler;
use schemars::JsonSchema;
use serde::Serialize;

use crate::card::Network;
use crate::error::{WorkError, of_run};
use crate::net::NetRules;
use crate::progress::Progress;
use crate::start::{Empty, Start};
use crate::world::sim::{Counted, Kernel, Parts, kind_caches, remote};
use crate::world::{Scenario, SkbCaches};
use report::Run;
use workload::{Workload, refusal};

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum Load {
    /// hackbench.
    Hackbench(Hackbench),
    /// tbench.
    Tbench(Tbench),
    /// netperf's TCP_RR.
    TcpRr(TcpRr),
    /// will-it-scale.
    WillItScale(WillItScale),
    /// The caller's.
    Own(Own),
}

impl Load {
    fn get(&self) -> &dyn Workload {
        match self {
            Self::Hackbench(it) => it,
            Self::Tbench(it) => it,
            Self::TcpRr(it) => it,
            Self::WillItScale(it) => it,
            Self::Own(it) => it,
        }
    }

    /// Name on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.get().name()
    }

    /// Unit of its size in the program's own words, and the size.
    #[must_use]
    pub fn size(&self) -> (&'static str, u32) {
        self.get().size()
    }

    /// Tasks.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.get().tasks()
    }

    /// Operations that are asked for; `None` of a load that runs for a time.
    #[must_use]
    pub fn operations(&self) -> Option<u64> {
        self.get().operations()
    }

    /// Bytes of the largest message.
    fn largest_message(&self) -> u32 {
        let [one, other] = self.get().messages();
        one.max(other)
    }

    /// Bytes that all sockets and pipes have at once, at most: each sender of a full one has looked before it was.
    fn buffers_bytes(&self, rules: &NetRules, page_bytes: u64) -> u64 {
        let message =
            u64::from(self.largest_message()) + u64::from(rules.head_bytes + rules.shared_info);
        let of_one = self.get().connection_bytes(message, rules, page_bytes);
        self.get().connections().saturating_mul(of_one)
    }

    /// The connections and tasks of a run whose receivers take this number of messages before counting begins.
    fn scenario(&self, seed: u64, warm_up: u32) -> Scenario {
        let mut scenario = Scenario {
            warm_up,
            ..Scenario::default()
        };
        self.get().set_up(&mut scenario, seed);
        scenario
    }

    /// Rejects contradictory options, and sizes out of range.
    fn check(&self) -> Result<(), WorkError> {
        match refusal(self.get()) {
            Some(message) => Err(WorkError::Usage(message)),
            None => Ok(()),
        }
    }
}

/// Order in which a run's CPUs take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// By their clocks.
    Time,
    /// By a seed, which lets another CPU go first in `switch_per_mille` of 1000 visible actions, until `operations` are done.
    Seed {
        switch_per_mille: u16,
        operations: u64,
    },
}

/// Runs a load on a design in simulated time. Calls `progress` with the per cent of the run that were done since its last call.
///
/// # Errors
///
/// [`WorkError`]: invalid parameters, a machine without room, a deadlock, or an end that `progress` asked for.
pub fn run<D: Design>(spec: &LoadSpec, progress: &dyn Progress) -> Result<LoadReport, WorkError> {
    run_from::<D>(spec, &Empty, progress)
}

/// [`run`] on a heap that begins as `start` says.
///
/// # Errors
///
/// As [`run`], and those of the start.
pub fn run_from<D: Design>(
    spec: &LoadSpec,
    start: &impl Start,
    progress: &dyn Progress,
) -> Result<LoadReport, WorkError> {
    run_in::<D>(spec, start, Order::Time, progress)
}

/// Runs a load without time, in an order of CPUs that its seed chooses, until `operations` are done. The report has counts
/// only. Checks as [`run`] that nothing is lost.
///
/// # Errors
///
/// As [`run`].
pub fn explore<D: Design>(
    spec: &LoadSpec,
    switch_per_mille: u16,
    operations: u64,
) -> Result<LoadReport, WorkError> {
    let order = Order::Seed {
        switch_per_mille,
        operations,
    };
    run_in::<D>(spec, &Empty, order, &|_| ())
}

fn run_in<D: Design>(
    spec: &LoadSpec,
    start: &impl Start,
    order: Order,
    progress: &dyn Progress,
) -> Result<LoadReport, WorkError> {
    let config = spec.config()?;
    let pages = PageConfig::new(spec.setup.era);
    let ran = drive_pages::<D, _>(config, &pages, spec.setup.tuning.boot, None, |driver| {
        spec.setup.tuning.set_pages(driver)?;
        start.fill(&spec.setup, &config, driver)?;
        let initial = start.about(D::NAME, spec.setup.era, &config);
        let ran = run_on(spec, order, driver, initial.is_none(), progress)?;
        Ok(LoadReport::of(D::NAME, spec, initial, &ran))
    });
    of_run(ran, || spec.label())
}

fn run_on<D: Design>(
    spec: &LoadSpec,
    order: Order,
    driver: &mut Driver<'_, D>,
    is_empty: bool,
    progress: &dyn Progress,
) -> Result<Run, WorkError> {
    let rules = NetRules::of(spec.setup.era, spec.sizes);
    // A machine that has run has them.
    let caches = SkbCaches::new(&rules, |spec| {
        let there = driver.find_cache(spec.name);
        there.or_else(|| driver.create_cache(spec).ok())
    });
    let caches = caches.ok_or(WorkError::Exhausted("the caches of socket buffers"))?;
    let warm_up = spec.warm_up_messages(&rules);
    let scenario = spec.load.scenario(spec.setup.seed, warm_up);
    let kinds = kind_caches(driver, &scenario.kinds);
    let kinds = kinds.ok_or(WorkError::Exhausted("the processes' caches"))?;
    spec.set_caches(driver)?;
    let driver = &*driver;
    // To count them takes empty slabs away, which a heap that has run must keep.
    let in_use = is_empty.then(|| objects(driver));
    let free_pages = driver.page_stats().free_pages + driver.slab_pages();
    let network = Network::of(&spec.setup.machine, &spec.setup.draw);
    let queues = match remote(&scenario.connections) {
        0 => 0,
        _ => network.card.queues_on(spec.cpus),
    };
    let tasks = scenario.tasks.len() as u32 + queues;
    let sched = Scheduler::new(driver.machine(), spec.sched, tasks, spec.setup.seed);
    let counted = match order {
        Order::Time => spec.counted(warm_up),
        Order::Seed { operations, .. } => Counted::Operations(operations),
    };
    let work_ps = |key| spec.setup.machine.drawn_ps(key, &spec.setup.draw);
    let parts = Parts {
        driver,
        sched: &sched,
        rules,
        caches,
        kinds,
        cpus: spec.cpus,
        unix_ps: work_ps(Key::UnixMessage),
        tcp_ps: work_ps(Key::TcpSegment),
        cycle_ps: (1000.0 / spec.setup.machine.ghz).round() as u64,
        page_bytes: spec.setup.page_bytes,
        network,
        queues,
        counted,
        later: spec.later(driver),
        progress,
    };
    let kernel = Kernel::new(parts, &scenario.connections);
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = Vec::new();
    for body in scenario.tasks {
        let kernel = &kernel;
        bodies.push(Box::new(move || {
            // A task that cannot go on ends; the kernel knows why.
            let _ = body(kernel);
        }));
    }
    for queue in 0..queues {
        let kernel = &kernel;
        sched.pin(tasks - queues + queue, CpuId(queue));
        bodies.push(Box::new(move || {
            let _ = kernel.serve_card(queue);
        }));
    }
    match order {
        Order::Time => sched.run(bodies)?,
        Order::Seed {
            switch_per_mille, ..
        } => sched
            .explore(spec.setup.seed, switch_per_mille, bodies)
            .map(|_| ())?,
    }
    if kernel.was_exhausted() {
        return Err(match scenario.connections.is_empty() {
            true => WorkError::Exhausted("the processes' pages"),
            false => WorkError::NoBuffers {
                bytes: spec.load.buffers_bytes(&rules, spec.setup.page_bytes),
            },
        });
    }
    let late_changes = kernel.later()?;
    let run = Run::of(&kernel, driver, spec.setup.page_bytes, late_changes);
    kernel.shut_down();
    check(driver, in_use, free_pages)?;
    Ok(run)
}

/// Objects that all caches have given out, when no cache has an empty slab. Sheaves are objects, too, but no user's.
fn objects<D: Design>(driver: &Driver<'_, D>) -> i64 {
    let mut objects = 0;
    // Empty slabs of one cache may have an object of another.
    let shrink = || {
        driver.for_each_cache(|cache| {
            cache.shrink();
        });
    };
    let mut look = || {
        driver.for_each_cache(|cache| {
            objects += cache.live_objects().unwrap_or(0) as i64;
            objects -= sheaves(&cache.stats());
        });
    };
    driver.machine().uncounted(|| {
        shrink();
        // What waits for one in sheaves goes with the second.
        driver.grace_period();
        shrink();
        look();
    });
    objects
}

/// Sheaves of a cache; none of designs without them.
fn sheaves(stats: &Stats) -> i64 {
    let count = |stat| stats.get(stat) as i64;
    count(Stat::SheafAlloc) - count(Stat::SheafFree)
}

/// Refuses a heap that has lost a page, or an object, if it is known how many were in use.
fn check<D: Design>(
    driver: &Driver<'_, D>,
    in_use: Option<i64>,
    free_pages: u64,
) -> Result<(), WorkError> {
    let mut wrong = None;
    driver.for_each_cache(|cache| {
        if let Err(source) = cache.check_consistency() {
            wrong.get_or_insert((cache.head().name().to_string(), source));
        }
    });
    if let Some((cache, source)) = wrong {
        return Err(WorkError::InconsistentCache { cache, source });
    }
    driver.check_pages()?;
    let objects = in_use.map_or(0, |in_use| objects(driver) - in_use);
    if objects != 0 {
        return Err(WorkError::LostObjects { objects });
    }
    let left = driver.page_stats().free_pages + driver.slab_pages();
    WorkError::if_pages_are_lost(free_pages, left)
}
