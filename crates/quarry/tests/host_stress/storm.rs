//! The storm: workers, and all that may disturb them.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quarry::kernel::design::Design;
use quarry::kernel::machine::Machine;

use super::forks;
use super::sys::{self, Random};
use super::worker::Worker;
use super::world::World;

/// Counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) ops: u64,
    pub(crate) aborts: u64,
    pub(crate) moves: u64,
    pub(crate) handled: u64,
    pub(crate) handler_misses: u64,
    pub(crate) changes: u64,
    pub(crate) forks: u64,
    pub(crate) child_failures: u64,
    pub(crate) fork_misses: u64,
    pub(crate) clashes: u64,
}

/// The allocator that signal handlers use.
pub(crate) trait Target: Sync {
    /// Allocates and frees as a handler may.
    fn on_signal(&self, dice: u64);
}

impl<M: Machine + Send + Sync, D: Design> Target for World<M, D> {
    fn on_signal(&self, dice: u64) {
        self.handler(dice);
    }
}

thread_local! {
    /// State of the handler's numbers; 0 in threads whose handler does nothing.
    static DICE: Cell<u64> = const { Cell::new(0) };
}
static TARGET: AtomicPtr<&'static dyn Target> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    let seed = DICE.get();
    // Acquire: pairs with the Release in `aim`.
    let target = TARGET.load(Ordering::Acquire);
    if seed == 0 || target.is_null() {
        return;
    }
    let mut random = Random(seed);
    let dice = random.next();
    DICE.set(random.0);
    // SAFETY: `aim` leaked what it stored.
    unsafe { &*target }.on_signal(dice);
    HANDLED.fetch_add(1, Relaxed);
}

/// Points the handler at a target, or at nothing.
fn aim(target: Option<&'static dyn Target>) {
    let target = target.map_or(std::ptr::null_mut(), |target| {
        std::ptr::from_mut(Box::leak(Box::new(target)))
    });
    // Release: pairs with the Acquire in `on_signal`.
    TARGET.store(target, Ordering::Release);
    sys::handle_signal(on_signal);
}

/// Signals that were handled so far.
pub(crate) fn handled() -> u64 {
    HANDLED.load(Relaxed)
}

/// The numbers of the worker threads; 0 before they begin.
struct Threads(Vec<AtomicI32>);

impl Threads {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicI32::new(0)).collect())
    }

    /// Moves any worker anywhere at any time, and signals it. Returns the number of moves.
    fn disturb(&self, allowed: &[usize], stop: &AtomicBool) -> u64 {
        let mut random = Random(77);
        let mut moves = 0;
        while !stop.load(Relaxed) {
            let thread = self.0[random.below(self.0.len())].load(Relaxed);
            if thread != 0 {
                sys::pin(thread, allowed[random.below(allowed.len())]);
                sys::signal(thread);
                moves += 1;
            }
            match random.below(8) {
                0..6 => thread::sleep(Duration::from_micros(50)),
                _ => thread::yield_now(),
            }
        }
        moves
    }
}

/// From now on the calling thread's signals do nothing.
pub(crate) fn leave() {
    DICE.set(0);
}

/// A worker thread's place in the storm.
pub(crate) struct Place<'a> {
    pub(crate) index: usize,
    /// CPUs that it may run on.
    pub(crate) allowed: &'a [usize],
    stop: &'a AtomicBool,
    threads: &'a Threads,
}

impl Place<'_> {
    /// From now on the calling thread is moved and signalled.
    ///
    /// From here until it [leaves](leave) it must not use the C library's malloc. A fork waits for that while it keeps the
    /// heap at rest, and a signal inside it waits for the heap: with one signal behind the other neither would go on.
    pub(crate) fn enter(&self) {
        DICE.set(self.index as u64 * 999_983 + 17);
        self.threads.0[self.index].store(sys::thread_number(), Relaxed);
    }

    /// True when the work has to end.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Flushes, shrinks, resizes and reads counters. Returns the number of changes.
fn change<M: Machine + Send + Sync, D: Design>(world: &World<M, D>, stop: &AtomicBool) -> u64 {
    let mut random = Random(4711);
    let mut changes = 0;
    while !stop.load(Relaxed) {
        let cache = &world.caches[random.below(world.caches.len())];
        let value = [0, 1, 6, 30, 120][random.below(5)];
        match random.below(16) {
            0 => drop(cache.shrink()),
            1 => drop(cache.flush()),
            2 => drop(cache.set_attribute("cpu_partial", value)),
            3 => drop(cache.set_attribute("cpu_queue_size", value.max(1))),
            4 => drop(cache.set_attribute("cpu_batch_size", 1 + value / 4)),
            5 => drop(cache.set_attribute("min_partial", value / 4)),
            6 => drop(world.heap.pages().drain_all()),
            7 => drop(cache.set_attribute("limit", value.max(1))),
            8 => drop(cache.set_attribute("batchcount", 1 + value / 2)),
            9 => drop(cache.set_attribute("sharedfactor", value / 15)),
            10 => world.heap.reap(),
            11 => drop(cache.set_attribute("sheaf_capacity", value)),
            12 => drop(cache.set_attribute("barn_full", value / 4)),
            13 => drop(cache.set_attribute("barn_empty", value / 4)),
            14 => world.check_now(cache),
            _ => {
                cache.stats();
                world.heap.pages().stats();
            }
        }
        changes += 1;
        thread::sleep(Duration::from_micros(200));
    }
    changes
}

/// Threads of a run.
fn workers(allowed: &[usize]) -> usize {
    8 * allowed.len().min(8)
}

/// Runs workers until `meanwhile` returns; each is moved and signalled from when it [enters](Place::enter) until it
/// [leaves](leave). Returns the sum of what the workers return, and the number of moves.
pub(crate) fn blow(
    target: &'static dyn Target,
    work: impl Fn(&Place<'_>) -> u64 + Sync,
    meanwhile: impl FnOnce(),
) -> (u64, u64) {
    let allowed = sys::allowed_cpus();
    let threads = Threads::new(workers(&allowed));
    let [disturber_stop, workers_stop] = [const { AtomicBool::new(false) }; 2];
    aim(Some(target));
    sys::profile_timer(1000);
    let counts = thread::scope(|scope| {
        let working: Vec<_> = (0..workers(&allowed))
            .map(|index| {
                let work = &work;
                let place = Place {
                    index,
                    allowed: &allowed,
                    stop: &workers_stop,
                    threads: &threads,
                };
                scope.spawn(move || work(&place))
            })
            .collect();
        let disturbing = scope.spawn(|| threads.disturb(&allowed, &disturber_stop));
        meanwhile();
        disturber_stop.store(true, Relaxed);
        let moves = disturbing.join().unwrap();
        sys::profile_timer(0);
        workers_stop.store(true, Relaxed);
        let ops = working.into_iter().map(|worker| worker.join().unwrap());
        (ops.sum(), moves)
    });
    aim(None);
    counts
}

/// Lets the storm blow until `seconds` have passed or something is wrong, then frees everything.
pub(crate) fn run<M: Machine + Send + Sync, D: Design>(
    world: &'static World<M, D>,
    seconds: f64,
    with_forks: bool,
) -> Outcome {
    let (aborts, handled_before) = (quarry_host::rseq::aborts(), handled());
    let mut outcome = Outcome::default();
    let work = |place: &Place<'_>| Worker::new(world, place).run();
    let disturb = || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let changing = scope.spawn(|| change(world, &stop));
            let forking = with_forks.then(|| {
                scope.spawn(|| {
                    // Its handler runs during forks too.
                    DICE.set(23);
                    let result = forks::run(world, &stop);
                    leave();
                    result
                })
            });
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < seconds && world.clashes.load(Relaxed) == 0 {
                thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Relaxed);
            if let Some(forking) = forking {
                let result = forking.join().unwrap();
                (outcome.forks, outcome.child_failures, outcome.fork_misses) = result;
            }
            outcome.changes = changing.join().unwrap();
        });
    };
    let (ops, moves) = blow(world, work, disturb);
    (outcome.ops, outcome.moves) = (ops, moves);
    world.empty();
    outcome.aborts = quarry_host::rseq::aborts() - aborts;
    outcome.handled = handled() - handled_before;
    outcome.handler_misses = world.handler_misses.load(Relaxed);
    outcome.clashes = world.clashes.load(Relaxed);
    outcome
}
