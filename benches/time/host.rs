//! Real threads: the library on this computer, doing what the simulated CPUs do.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use perf_event::Counter;
use perf_event::events::Hardware;
use quarry_core::design::{CacheSpec, Design};
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::heap::{Cache, Heap};
use quarry_core::page::{AllocOptions, MigrateType, Pfn};
use quarry_host::{HostMachine, HugePages};
use quarry_work::micro::Pattern;

use crate::common::pin;
use crate::counting::open;
use crate::workload::{BULK, COUNT, MEMORY_BYTES, OBJECT_BYTES, PAGES};

/// The two halves of a round, in nanoseconds an operation: allocations, and frees. Patterns that do both at once have
/// no second half.
pub(crate) type Halves = [f64; 2];

/// Work of the threads: in each half of a round, each of them acts once.
pub(crate) trait Load: Sync {
    /// Operations of a CPU and round.
    fn operations(&self) -> usize;
    fn half(&self, cpu: usize, half: usize);
}

/// Latest start of a CPU's half, as a share of the half's time.
const LATE: f64 = 0.05;

/// Runs rounds on a number of CPUs. Each thread calls `look` before and after each half, with what `own` gave it; returns what they
/// saw, by CPU, round and half.
fn halves<S, T: Send>(
    load: &dyn Load,
    cpus: usize,
    rounds: usize,
    own: impl Fn() -> S + Sync,
    look: impl Fn(&mut S) -> T + Sync,
) -> Vec<Vec<[[T; 2]; 2]>> {
    let arrivals = AtomicUsize::new(0);
    let work = |cpu: usize| {
        pin(cpu);
        let mut own = own();
        let mut meetings = 0;
        let mut seen = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            seen.push([0, 1].map(|half| {
                meetings += cpus;
                meet(&arrivals, meetings);
                let before = look(&mut own);
                load.half(cpu, half);
                [before, look(&mut own)]
            }));
        }
        seen
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus)
            .map(|cpu| scope.spawn(move || work(cpu)))
            .collect();
        let seen = threads
            .into_iter()
            .map(|thread| thread.join().expect("what a thread saw"));
        seen.collect()
    })
}

/// Rounds on a number of CPUs; of each half the mean time of the CPUs. A half that one of them began late, as the
/// computer did something else on that CPU, is not a number: the others were alone.
pub(crate) fn rounds(load: &dyn Load, cpus: usize, rounds: usize) -> Vec<Halves> {
    let epoch = Instant::now();
    let now_ns = |(): &mut ()| epoch.elapsed().as_nanos() as f64;
    let all = halves(load, cpus, rounds, || (), now_ns);
    let mean = |round: usize, half: usize| {
        let spans = || all.iter().map(|times| times[round][half]);
        let begins = || spans().map(|[began, _]| began);
        let late = begins().fold(0.0, f64::max) - begins().fold(f64::INFINITY, f64::min);
        let all_ns: f64 = spans().map(|[began, ended]| ended - began).sum();
        let mean_ns = all_ns / cpus as f64;
        if late > LATE * mean_ns {
            f64::NAN
        } else {
            mean_ns / load.operations() as f64
        }
    };
    (0..rounds)
        .map(|round| [mean(round, 0), mean(round, 1)])
        .collect()
}

/// Instructions and cycles of an operation, in each half of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) instructions: Halves,
    pub(crate) cycles: Halves,
}

/// Counts what CPUs do in their halves, without the waits between them; `None` if the machine has no such counters.
pub(crate) fn counted(load: &dyn Load, cpus: usize, rounds: usize) -> Option<Counted> {
    let counters = || [Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES].map(|of| open(of, false));
    let all = halves(load, cpus, rounds, counters, read);
    let operations = (load.operations() * rounds * cpus) as f64;
    let of = |counter: usize, half: usize| -> Option<f64> {
        let events = all.iter().flatten().map(|round| {
            let [before, after] = round[half];
            Some(after?[counter] - before?[counter])
        });
        Some(events.sum::<Option<u64>>()? as f64 / operations)
    };
    Some(Counted {
        instructions: [of(0, 0)?, of(0, 1)?],
        cycles: [of(1, 0)?, of(1, 1)?],
    })
}

fn read(counters: &mut [Option<Counter>; 2]) -> Option<[u64; 2]> {
    let [instructions, cycles] = counters;
    Some([
        instructions.as_mut()?.read().ok()?,
        cycles.as_mut()?.read().ok()?,
    ])
}

/// Waits until all have come: the count of arrivals reaches a number.
fn meet(arrivals: &AtomicUsize, all: usize) {
    // AcqRel: what a thread did before is seen by those that go on.
    arrivals.fetch_add(1, Ordering::AcqRel);
    let mut spins = 0_u32;
    // Acquire: as above.
    while arrivals.load(Ordering::Acquire) < all {
        spins += 1;
        // One that gives its CPU away comes back late.
        match spins.is_multiple_of(1 << 20) {
            true => std::thread::yield_now(),
            false => std::hint::spin_loop(),
        }
    }
}

/// A machine like the simulated one.
pub(crate) fn machine(cpus: usize) -> HostMachine {
    HostMachine::builder()
        .memory_bytes(MEMORY_BYTES as usize)
        .cpus(cpus as u32)
        .huge_pages(HugePages::Transparent)
        .build()
        .expect("address space for a heap")
}

/// A heap like the simulated one.
pub(crate) fn heap<D: Design>(cpus: usize, era: Era) -> Heap<HostMachine, D> {
    let heap = Heap::new(machine(cpus), era, BootParams::default()).expect("a fresh machine");
    heap.make_kmalloc_caches().expect("kmalloc caches");
    heap
}

/// Distance of objects that are freed one after the other in a shuffled order.
const SHUFFLE_STEP: usize = 379;

/// Objects that a CPU has allocated.
#[derive(Default)]
struct Objects(Vec<Option<NonNull<u8>>>);

// SAFETY: objects may be freed by any thread, and none is used by two.
unsafe impl Send for Objects {}

/// Patterns of `quarry run micro`.
pub(crate) struct Micro<'h, D: Design> {
    cache: Cache<'h, HostMachine, D>,
    pattern: Pattern,
    shuffled: bool,
    objects: Vec<Mutex<Objects>>,
}

impl<'h, D: Design> Micro<'h, D> {
    pub(crate) fn new(
        heap: &'h Heap<HostMachine, D>,
        pattern: Pattern,
        cpus: usize,
        shuffled: bool,
    ) -> Self {
        let spec = CacheSpec::new("micro", OBJECT_BYTES);
        let cache = heap.create_cache(&spec).expect("a cache");
        Self {
            cache,
            pattern,
            shuffled,
            objects: (0..cpus).map(|_| Mutex::default()).collect(),
        }
    }

    /// A call, as a kernel's allocation is.
    #[inline(never)]
    fn alloc(&self) -> Option<NonNull<u8>> {
        Some(self.cache.alloc().expect("memory"))
    }

    #[inline(never)]
    fn free(&self, object: NonNull<u8>) {
        // SAFETY: the patterns free each object once and do not use it afterwards.
        unsafe { self.cache.free(object) }.expect("a live object");
    }

    #[inline(never)]
    fn pairs(&self) {
        for _ in 0..COUNT {
            if let Some(object) = self.alloc() {
                self.free(object);
            }
        }
    }

    #[inline(never)]
    fn bulk(&self) {
        let mut slots = [None; BULK as usize];
        for _ in 0..COUNT / BULK {
            assert!(self.cache.alloc_bulk(&mut slots), "memory");
            // SAFETY: as in `free`.
            unsafe { self.cache.free_bulk(&mut slots) }.expect("live objects");
        }
    }

    #[inline(never)]
    fn fill(&self, objects: &mut Vec<Option<NonNull<u8>>>) {
        for _ in 0..COUNT {
            objects.push(self.alloc());
        }
    }

    #[inline(never)]
    fn empty(&self, objects: &mut Vec<Option<NonNull<u8>>>) {
        let count = objects.len();
        if self.shuffled {
            // The step has no factor in common with the count, so each object's turn comes once.
            for turn in 0..count {
                let object = objects[turn * SHUFFLE_STEP % count].take();
                object.into_iter().for_each(|object| self.free(object));
            }
        }
        for object in objects.drain(..).flatten() {
            self.free(object);
        }
    }

    fn of(&self, cpu: usize) -> std::sync::MutexGuard<'_, Objects> {
        self.objects[cpu % self.objects.len()]
            .lock()
            .expect("no thread panicked")
    }
}

impl<D: Design> Load for Micro<'_, D> {
    fn operations(&self) -> usize {
        match self.pattern {
            Pattern::Bulk => (COUNT / BULK * BULK) as usize,
            _ => COUNT as usize,
        }
    }

    fn half(&self, cpu: usize, half: usize) {
        match (self.pattern, half) {
            (Pattern::Pair, 0) => self.pairs(),
            (Pattern::Bulk, 0) => self.bulk(),
            (Pattern::Pair | Pattern::Bulk, _) => {}
            (_, 0) => self.fill(&mut self.of(cpu).0),
            (Pattern::Cross, _) => self.empty(&mut self.of(cpu + 1).0),
            (Pattern::Batch, _) => self.empty(&mut self.of(cpu).0),
            (Pattern::Spread, _) => unreachable!("not among the measured patterns"),
        }
    }
}

/// Pages of order 0 as `quarry run pages` has them: each is filled with zeros when it is allocated.
pub(crate) struct Pages<'h, D: Design> {
    heap: &'h Heap<HostMachine, D>,
    pages: Vec<Mutex<Vec<Pfn>>>,
}

impl<'h, D: Design> Pages<'h, D> {
    pub(crate) fn new(heap: &'h Heap<HostMachine, D>, cpus: usize) -> Self {
        let pages = (0..cpus).map(|_| Mutex::new(Vec::with_capacity(PAGES as usize)));
        Self {
            heap,
            pages: pages.collect(),
        }
    }
}

impl<D: Design> Load for Pages<'_, D> {
    fn operations(&self) -> usize {
        PAGES as usize
    }

    fn half(&self, cpu: usize, half: usize) {
        let own = &mut *self.pages[cpu].lock().expect("no thread panicked");
        let pages = self.heap.pages();
        if half == 0 {
            let options = AllocOptions {
                migratetype: MigrateType::Movable,
                ..AllocOptions::default()
            };
            for _ in 0..PAGES {
                let page = pages.alloc_with(&options).expect("memory");
                let at = pages.address(page).expect("a page of this heap");
                // SAFETY: the page is 4096 bytes, allocated just now, and no other code uses it.
                unsafe { at.write_bytes(0, 4096) };
                own.push(page);
            }
        } else {
            for page in own.drain(..) {
                // SAFETY: the page was allocated above, and is freed once.
                unsafe { pages.free(page, 0) }.expect("a live page");
            }
        }
    }
}
