//! Loads on real threads of this process, in measured time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::heap::{Cache, Heap};
use quarry_core::machine::Cpus as _;
use quarry_core::stats::Stat;
use quarry_host::HostMachine;
use serde::Serialize;

use super::change::Change;
use super::report::CacheReport;
use super::sheaves;
use super::spec::Load;
use crate::error::WorkError;
use crate::net::{NetRules, SendSizes};
use crate::tuning::Tuning;
use crate::world::host::{Counts, HostTask, Kernel, Usage};
use crate::world::{Body, World};

/// Bytes of a thread's stack: messages are in buffers of their own.
const STACK_BYTES: usize = 128 << 10;

/// A load on real threads.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// What tasks do.
    pub load: Load,
    /// What is counted of loads that run for a time, after a tenth of it.
    pub time: Duration,
    /// Whose rules.
    pub era: Era,
    /// Sizes of TCP's buffers.
    pub sizes: SendSizes,
    /// Its tunables.
    pub tuning: Tuning,
    /// Those of single caches.
    pub changes: Vec<Change>,
    /// Bytes of a page: a multiple of the operating system's.
    pub page_bytes: u64,
    /// Bytes of memory that the heap may hand out.
    pub memory_bytes: u64,
    /// Decides what is left to chance: tbench's order of requests.
    pub seed: u64,
}

/// What a load on real threads found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostReport {
    /// Name of the design.
    pub design: &'static str,
    /// Whose rules.
    pub era: &'static str,
    /// The load.
    pub load: &'static str,
    /// Its groups, clients or pairs.
    pub size: u32,
    /// CPUs of the computer.
    pub cpus: u32,
    /// Threads.
    pub threads: u32,
    /// Seconds that were counted.
    pub seconds: f64,
    /// Operations in them: messages, exchanges, transactions.
    pub operations: u64,
    /// Operations a second.
    pub per_second: f64,
    /// Millions of bytes of payload a second.
    pub mb_per_second: f64,
    /// Microseconds of CPU time of an operation. This and the next two are `None` if the kernel does not count them.
    pub cpu_us: Option<f64>,
    /// Share of the CPUs' time that its threads did not use.
    pub idle_percent: Option<f64>,
    /// Switches an operation.
    pub switches: Option<f64>,
    /// Caches by their allocations.
    pub caches: Vec<CacheReport>,
}

impl HostSpec {
    fn label(&self) -> String {
        let (unit, n) = self.load.size();
        format!(
            "{} with {n} {unit}, era {}, on this computer",
            self.load.name(),
            self.era
        )
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`].
    pub fn check(&self) -> Result<(), WorkError> {
        self.load.check()?;
        if matches!(self.load, Load::TcpRr(it) if it.remote) {
            let message = "tcp_rr with another machine runs on virtual machines only";
            return Err(WorkError::Usage(message.to_string()));
        }
        match self.time.is_zero() {
            true => Err(WorkError::Usage(
                "0 seconds: a run takes some time".to_string(),
            )),
            false => Ok(()),
        }
    }
}

/// Runs a load on a design.
///
/// # Errors
///
/// [`WorkError`]: parameters that cannot be, too little memory, or no threads.
pub fn run<D: Design>(spec: &HostSpec) -> Result<HostReport, WorkError> {
    spec.check()?;
    let wrong = |problem: String| WorkError::Host {
        run: spec.label(),
        problem,
    };
    let machine = HostMachine::builder()
        .memory_bytes(spec.memory_bytes as usize)
        .page_size(spec.page_bytes as usize)
        .build();
    let machine = machine.map_err(|error| wrong(error.to_string()))?;
    let cpus = machine.topology().cpus;
    let heap = Heap::<HostMachine, D>::new(machine, spec.era, spec.tuning.boot);
    let heap = heap.map_err(|error| wrong(error.to_string()))?;
    let made = heap.make_kmalloc_caches();
    made.map_err(|error| wrong(error.to_string()))?;
    let rules = NetRules::of(spec.era, spec.sizes);
    let mut world = World::default();
    spec.load.set_up(&mut world, spec.seed);
    let kernel = Kernel::new(&heap, rules, spec.page_bytes as usize, &world.connections);
    let kernel = kernel.ok_or_else(|| exhausted(spec))?;
    set(spec, &heap)?;
    let mut first = spec.changes.iter().filter(|change| change.at_ns == 0);
    if let Some(change) = first.find(|change| !change.set_on_host(&heap)) {
        return Err(change.refused(&spec.label()));
    }
    let in_use = objects(&heap);
    let threads = world.tasks.len() as u32;
    let ran = run_threads(spec, &kernel, world.tasks)?;
    let caches = caches(&heap, spec.page_bytes);
    kernel.shut_down();
    let lost = u64::try_from(objects(&heap) - in_use).unwrap_or(0);
    if lost > 0 {
        return Err(WorkError::LostObjects {
            run: spec.label(),
            objects: lost,
        });
    }
    let per_second = ran.counts.operations as f64 / ran.seconds;
    let per = |value: u64| value as f64 / ran.counts.operations.max(1) as f64;
    let used_seconds = |used: Usage| used.cpu_ns as f64 / 1e9;
    let all_seconds = ran.seconds * f64::from(cpus);
    let payload = match spec.load.mean_bytes() {
        Some(bytes) => per_second * bytes,
        None => ran.counts.bytes as f64 / ran.seconds,
    };
    Ok(HostReport {
        design: D::NAME,
        era: spec.era.name(),
        load: spec.load.name(),
        size: spec.load.size().1,
        cpus,
        threads,
        seconds: ran.seconds,
        operations: ran.counts.operations,
        per_second,
        mb_per_second: payload / 1e6,
        cpu_us: ran.used.map(|used| per(used.cpu_ns) / 1e3),
        idle_percent: ran.used.map(|used| {
            let idle = 1.0 - used_seconds(used) / all_seconds;
            100.0 * idle.max(0.0)
        }),
        switches: ran.used.map(|used| per(used.switches)),
        caches,
    })
}

fn exhausted(spec: &HostSpec) -> WorkError {
    WorkError::Exhausted {
        run: spec.label(),
        what: "socket buffers",
    }
}

/// Sets the tunables of all caches and of the page allocator.
fn set<D: Design>(spec: &HostSpec, heap: &Heap<HostMachine, D>) -> Result<(), WorkError> {
    for (tunable, value) in &spec.tuning.pages {
        let set = heap.pages().set_sysctl(tunable.name, *value);
        set.map_err(|error| WorkError::Usage(format!("{}: {error}", spec.label())))?;
    }
    let mut refused = None;
    heap.for_each_cache(|cache| {
        for (tunable, value) in &spec.tuning.cache {
            if !cache.set_attribute(tunable.name, *value) {
                refused.get_or_insert((tunable.name, *value));
            }
        }
    });
    match refused {
        None => Ok(()),
        Some((name, value)) => Err(WorkError::Refused {
            run: spec.label(),
            name,
            value,
        }),
    }
}

/// What all threads did.
struct Ran {
    seconds: f64,
    counts: Counts,
    /// Together. `None` if the kernel does not tell.
    used: Option<Usage>,
}

/// Runs a thread for each task. All begin together; returns when all have ended.
fn run_threads<D: Design>(
    spec: &HostSpec,
    kernel: &Kernel<'_, D>,
    tasks: Vec<Body>,
) -> Result<Ran, WorkError> {
    let limited = !matches!(spec.load, Load::Hackbench(_));
    let window = limited.then(|| (spec.time / 10, spec.time + spec.time / 10));
    let gate = Gate::default();
    let all = Mutex::new((Counts::default(), Some(Usage::default())));
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let buffer_bytes = spec.load.largest_message();
    let (mut no_thread, mut refused) = (None, None);
    let mut began = Instant::now();
    std::thread::scope(|scope| {
        let mut threads = 0;
        for body in tasks {
            let (gate, lock) = (&gate, &lock);
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let spawned = thread.spawn_scoped(scope, move || {
                let _leaves = Leaves(gate, kernel);
                let task = HostTask::new(kernel, window, buffer_bytes);
                gate.pass();
                task.begin();
                let done = body(&task);
                let (counts, used) = (task.counts(), task.used());
                let mut all = lock();
                all.0.operations += counts.operations;
                all.0.bytes += counts.bytes;
                all.1 = all.1.zip(used).map(|(all, one)| all + one);
                drop(all);
                if done.is_err() {
                    kernel.end();
                }
            });
            match spawned {
                Ok(_) => threads += 1,
                Err(error) => {
                    no_thread = Some(error);
                    kernel.end();
                    break;
                }
            }
        }
        gate.open(threads);
        began = Instant::now();
        let mut later: Vec<&Change> = spec.changes.iter().collect();
        later.retain(|change| change.at_ns > 0);
        later.sort_by_key(|change| change.at_ns);
        for change in later {
            let at = Duration::from_nanos(change.at_ns);
            if gate.ends_within(at.saturating_sub(began.elapsed())) {
                break;
            }
            if !change.set_on_host(kernel.heap()) {
                refused = Some(change);
                kernel.end();
                break;
            }
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    if let Some(change) = refused {
        return Err(change.refused(&spec.label()));
    }
    if let Some(error) = no_thread {
        return Err(WorkError::Host {
            run: spec.label(),
            problem: format!("a thread cannot be had ({error}); ask for fewer tasks"),
        });
    }
    if kernel.was_exhausted() {
        return Err(exhausted(spec));
    }
    let (counts, used) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Ran {
        seconds: if limited {
            spec.time.as_secs_f64()
        } else {
            seconds
        },
        counts,
        used,
    })
}

/// Where threads wait until all have come, and leave when they end.
#[derive(Default)]
struct Gate {
    /// Threads that have come and not left, and whether they may pass.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, (u32, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the gate is open.
    fn pass(&self) {
        let mut state = self.lock();
        state.0 += 1;
        self.changed.notify_all();
        while !state.1 {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Opens it when n threads have come.
    fn open(&self, n: u32) {
        let mut state = self.lock();
        while state.0 < n {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.1 = true;
        self.changed.notify_all();
    }

    /// A thread that has passed ends.
    fn leave(&self) {
        self.lock().0 -= 1;
        self.changed.notify_all();
    }

    /// Waits until all threads have left, for this time at most. Returns whether they have.
    fn ends_within(&self, time: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), time, |state| state.0 > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.0 == 0
    }
}

/// A thread leaves the gate when it ends. Lets no other one wait for one that has panicked.
struct Leaves<'k, 'h, D: Design>(&'k Gate, &'k Kernel<'h, D>);

impl<D: Design> Drop for Leaves<'_, '_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.1.end();
        }
        self.0.leave();
    }
}

/// Objects that all caches have given out, when no cache has an empty slab, without sheaves.
fn objects<D: Design>(heap: &Heap<HostMachine, D>) -> i64 {
    // Empty slabs of one cache may have an object of another.
    for _ in 0..2 {
        heap.for_each_cache(|cache| {
            cache.shrink();
        });
    }
    let mut live = 0;
    heap.for_each_cache(|cache| {
        // Busy cannot be: no other thread runs.
        let _ = cache.for_each_live(|_| live += 1);
        live -= sheaves(&cache.stats());
    });
    live
}

/// What caches did.
fn caches<D: Design>(heap: &Heap<HostMachine, D>, page_bytes: u64) -> Vec<CacheReport> {
    let mut all = Vec::new();
    heap.for_each_cache(|cache: Cache<'_, HostMachine, D>| {
        let stats = cache.stats();
        let usage = cache.usage();
        let of = |stat: Stat| stats.get(stat);
        all.extend(CacheReport::of(cache.name(), &of, &usage, page_bytes));
    });
    CacheReport::sort(&mut all);
    all
}
