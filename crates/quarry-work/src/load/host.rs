//! Loads on real threads of this process, in measured time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::heap::Heap;
use quarry_core::machine::Cpus as _;
use quarry_core::stats::Stat;
use quarry_host::HostMachine;
use schemars::JsonSchema;
use serde::Serialize;

use super::Load;
use super::change::{Change, later};
use super::gate::Gate;
use super::report::CacheReport;
use super::sheaves;
use crate::error::WorkError;
use crate::net::{NetRules, SendSizes};
use crate::world::Body;
use crate::world::host::{Counts, HostTask, Kernel, Usage};
use quarry_designs::Tuning;

/// Bytes of a thread's stack: messages are in buffers of their own.
const STACK_BYTES: usize = 128 << 10;

/// A load on real threads.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// The load.
    pub load: Load,
    /// Time that is counted of loads that run for a time, after a tenth of it.
    pub time: Duration,
    /// Release whose rules hold.
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

/// Results of a load on real threads.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct HostReport {
    /// Design.
    pub design: &'static str,
    /// Kernel release whose rules apply.
    pub era: &'static str,
    /// Load.
    pub load: &'static str,
    /// Groups, clients or pairs.
    pub size: u32,
    /// Options of the load's command.
    pub options: Load,
    /// Sizes of TCP's buffers.
    pub skb_sizes: &'static str,
    /// CPUs of this computer.
    pub cpus: u32,
    /// Threads.
    pub threads: u32,
    /// Seconds that were counted.
    pub seconds: f64,
    /// Messages, exchanges or transactions in these seconds.
    pub operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Millions of bytes of payload per second.
    pub mb_per_second: f64,
    /// Microseconds of CPU time per operation; null if the kernel does not count it.
    pub cpu_us: Option<f64>,
    /// Share of the CPUs' time that the threads did not use, in percent; null if the kernel does not count
    /// it.
    pub idle_percent: Option<f64>,
    /// Task switches per operation; null if the kernel does not count them.
    pub switches: Option<f64>,
    /// Changes of `--at` that were due after the end.
    pub late_changes: u32,
    /// Caches that were used, most allocations first.
    pub caches: Vec<CacheReport>,
}

impl HostSpec {
    /// Sets a tunable of single caches.
    fn set<D: Design>(
        &self,
        change: &Change,
        heap: &Heap<HostMachine, D>,
    ) -> Result<(), WorkError> {
        change.set(|each| {
            heap.for_each_cache(|cache| {
                each(cache.name(), &|| {
                    cache.set_attribute(change.name, change.value)
                });
            });
        })
    }

    fn label(&self) -> String {
        let (unit, n) = self.load.size();
        format!(
            "{} with {n} {unit}, era {}, on this computer",
            self.load.name(),
            self.era
        )
    }

    /// Rejects contradictory parameters.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`].
    pub fn check(&self) -> Result<(), WorkError> {
        self.load.check()?;
        if let Some(what) = self.load.get().virtual_only() {
            let name = self.load.name();
            let message = format!("{name} {what} runs on virtual machines only");
            return Err(WorkError::Usage(message));
        }
        if self.time.is_zero() {
            let message = "time must be greater than 0";
            return Err(WorkError::Usage(message.to_string()));
        }
        let of_one = u64::from(self.load.largest_message());
        let bytes = self.load.tasks().saturating_mul(of_one);
        match available_bytes() {
            Some(most) if bytes > most => Err(WorkError::Usage(format!(
                "{} threads with buffers of {of_one} bytes need {} MiB, and {} MiB are available; ask for fewer {} or \
                 shorter messages",
                self.load.tasks(),
                bytes >> 20,
                most >> 20,
                self.load.size().0
            ))),
            _ => Ok(()),
        }
    }
}

/// Runs a load on a design.
///
/// # Errors
///
/// [`WorkError`]: invalid parameters, too little memory, or no threads.
pub fn run<D: Design>(spec: &HostSpec) -> Result<HostReport, WorkError> {
    spec.check()?;
    measured::<D>(spec).map_err(|error| error.of(spec.label()))
}

fn measured<D: Design>(spec: &HostSpec) -> Result<HostReport, WorkError> {
    let machine = HostMachine::builder()
        .memory_bytes(spec.memory_bytes as usize)
        .page_size(spec.page_bytes as usize)
        .build();
    let machine = machine.map_err(|error| WorkError::Host(error.to_string()))?;
    let cpus = machine.topology().cpus;
    let heap = Heap::<HostMachine, D>::new(machine, spec.era, spec.tuning.boot);
    let heap = heap.map_err(|error| WorkError::Host(error.to_string()))?;
    let made = heap.make_kmalloc_caches();
    made.map_err(|error| WorkError::Host(error.to_string()))?;
    let rules = NetRules::of(spec.era, spec.sizes);
    let scenario = spec.load.scenario(spec.seed, 0);
    let connections = &scenario.connections;
    let kernel = Kernel::new(&heap, rules, spec.page_bytes as usize, connections);
    let kernel = kernel.ok_or(WorkError::Exhausted("the caches of socket buffers"))?;
    set(spec, &heap)?;
    let mut first = spec.changes.iter().filter(|change| change.at_ns == 0);
    first.try_for_each(|change| spec.set(change, &heap))?;
    let in_use = objects(&heap);
    let free_pages = free_pages(&heap);
    let threads = scenario.tasks.len() as u32;
    let ran = run_threads(spec, &kernel, scenario.tasks)?;
    let caches = caches(&heap, spec.page_bytes);
    kernel.shut_down();
    check(&heap, in_use, free_pages)?;
    let per_second = ran.counts.operations as f64 / ran.seconds;
    let per = |value: u64| value as f64 / ran.counts.operations.max(1) as f64;
    let all_ns = ran.seconds * 1e9 * f64::from(cpus);
    let payload = match spec.load.get().mean_bytes() {
        Some(bytes) => per_second * bytes,
        None => ran.counts.bytes as f64 / ran.seconds,
    };
    Ok(HostReport {
        design: D::NAME,
        era: spec.era.name(),
        load: spec.load.name(),
        size: spec.load.size().1,
        options: spec.load,
        skb_sizes: spec.sizes.name(),
        cpus,
        threads,
        seconds: ran.seconds,
        operations: ran.counts.operations,
        per_second,
        mb_per_second: payload / 1e6,
        cpu_us: ran.used.map(|used| per(used.cpu_ns) / 1e3),
        idle_percent: ran.used.map(|used| {
            let idle = 1.0 - used.cpu_ns as f64 / all_ns;
            100.0 * idle.max(0.0)
        }),
        switches: ran.used.map(|used| per(used.switches)),
        late_changes: ran.late_changes,
        caches,
    })
}

/// Sets the tunables of all caches and of the page allocator.
fn set<D: Design>(spec: &HostSpec, heap: &Heap<HostMachine, D>) -> Result<(), WorkError> {
    for (tunable, value) in &spec.tuning.pages {
        let set = heap.pages().set_sysctl(tunable.name, *value);
        set.map_err(|error| WorkError::Usage(error.to_string()))?;
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
        Some((name, value)) => Err(WorkError::Refused { name, value }),
    }
}

/// Memory that this computer has for new programs; `None` if the kernel does not report it.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Sums over all threads.
struct Ran {
    seconds: f64,
    counts: Counts,
    /// Together. `None` if the kernel does not report it.
    used: Option<Usage>,
    late_changes: u32,
}

/// Runs a thread for each task. All begin together; returns when all have ended.
fn run_threads<D: Design>(
    spec: &HostSpec,
    kernel: &Kernel<'_, D>,
    tasks: Vec<Body>,
) -> Result<Ran, WorkError> {
    let limited = spec.load.get().operations().is_none();
    let window = limited.then(|| (spec.time / 10, spec.time + spec.time / 10));
    let gate = Gate::default();
    let all = Mutex::new((Counts::default(), Some(Usage::default())));
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let buffer_bytes = spec.load.largest_message();
    let (mut no_thread, mut refused) = (None, Ok(()));
    let later = later(&spec.changes);
    let mut late_changes = later.len() as u32;
    let mut began = Instant::now();
    std::thread::scope(|scope| {
        let mut threads = 0;
        for body in tasks {
            let (gate, lock) = (&gate, &lock);
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let spawned = thread.spawn_scoped(scope, move || {
                let _leaves = Leaves(gate, kernel);
                let task = HostTask::new(kernel, window, buffer_bytes);
                task.begin(gate.pass());
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
        began = gate.open(threads);
        for change in later {
            let at = Duration::from_nanos(change.at_ns);
            if gate.ends_within(at.saturating_sub(began.elapsed())) {
                break;
            }
            late_changes -= 1;
            refused = spec.set(change, kernel.heap());
            if refused.is_err() {
                kernel.end();
                break;
            }
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    refused?;
    if let Some(error) = no_thread {
        return Err(WorkError::Host(format!(
            "no thread is available ({error}); ask for fewer tasks"
        )));
    }
    if kernel.was_exhausted() {
        let rules = NetRules::of(spec.era, spec.sizes);
        return Err(WorkError::NoBuffers {
            bytes: spec.load.buffers_bytes(&rules, spec.page_bytes),
        });
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
        late_changes,
    })
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

/// Refuses a heap that has lost an object or a page.
fn check<D: Design>(
    heap: &Heap<HostMachine, D>,
    in_use: i64,
    pages_before: u64,
) -> Result<(), WorkError> {
    let mut wrong = None;
    heap.for_each_cache(|cache| {
        if let Err(source) = cache.check_consistency() {
            wrong.get_or_insert((cache.name().to_string(), source));
        }
    });
    if let Some((cache, source)) = wrong {
        return Err(WorkError::InconsistentCache { cache, source });
    }
    let objects = objects(heap) - in_use;
    if objects != 0 {
        return Err(WorkError::LostObjects { objects });
    }
    WorkError::if_pages_are_lost(pages_before, free_pages(heap))
}

/// Pages that are free, or slabs.
fn free_pages<D: Design>(heap: &Heap<HostMachine, D>) -> u64 {
    heap.pages().stats().free_pages + heap.pages().slab_pages()
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
        // Never busy: no other thread runs.
        let _ = cache.for_each_live(|_| live += 1);
        live -= sheaves(&cache.stats());
    });
    live
}

/// Reports of all caches.
fn caches<D: Design>(heap: &Heap<HostMachine, D>, page_bytes: u64) -> Vec<CacheReport> {
    let mut all = Vec::new();
    heap.for_each_cache(|cache| {
        let stats = cache.stats();
        let usage = cache.usage();
        let of = |stat: Stat| stats.get(stat);
        all.extend(CacheReport::of(cache.name(), &of, &usage, page_bytes));
    });
    CacheReport::sort(&mut all);
    all
}
