//! Threads that move tokens, and all that may disturb them: migration, signals, remote drains,
//! forks.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quarry_core::machine::{CpuId, Cpus as _};
use quarry_host::SlotIndex;
use quarry_host::fork::{self, ForkHooks, ForkNode};

use crate::arena::{Arena, SLOT_TOKENS};

/// Tokens that a thread keeps at most.
const HAND: usize = 4;
/// Added to a thread's number while its signal handler runs.
const HANDLER: u32 = 1 << 16;

thread_local! {
    static ME: Cell<u32> = const { Cell::new(0) };
}
/// The arena that signal handlers use.
static ARENA: AtomicPtr<Arena> = AtomicPtr::new(null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Numbers that look random (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}

/// Counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) ops: u64,
    pub(crate) aborts: u64,
    pub(crate) moves: u64,
    pub(crate) handled: u64,
    pub(crate) drains: u64,
    pub(crate) forks: u64,
    pub(crate) missed: u64,
    pub(crate) child_failures: u64,
    pub(crate) clashes: u64,
    pub(crate) lost: usize,
    pub(crate) duplicated: usize,
}

extern "C" fn on_signal(_: libc::c_int) {
    let me = ME.get();
    // Acquire: pairs with the Release in `run`.
    let arena = ARENA.load(Ordering::Acquire);
    if me == 0 || arena.is_null() {
        return;
    }
    // SAFETY: `run` keeps the arena alive until all threads with a number have ended.
    unsafe { &*arena }.handler_pair(me | HANDLER);
    HANDLED.fetch_add(1, Relaxed);
}

fn install_handler() {
    // SAFETY: all-zero is a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is complete; its handler only uses atomics and lock operations that are
    // made for signal handlers (H3).
    let status = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, null_mut()) };
    assert_eq!(status, 0);
}

/// Sends SIGPROF to running threads each `us` microseconds of CPU time; 0 stops it.
fn profile_timer(us: libc::suseconds_t) {
    let period = libc::timeval {
        tv_sec: 0,
        tv_usec: us,
    };
    let timer = libc::itimerval {
        it_interval: period,
        it_value: period,
    };
    // SAFETY: the timer outlives the call.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, null_mut()) };
}

/// CPUs that this process may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for writes of its size.
    let status = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(status, 0);
    // SAFETY: the numbers are below CPU_SETSIZE, the bits of the set.
    let allowed = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(allowed).collect()
}

fn pin(thread: libc::pid_t, cpu: usize) {
    // SAFETY: all-zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `allowed_cpus` gave a number below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is valid for reads of its size.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) };
}

/// All that the threads of a run share.
struct Run<'a> {
    arena: &'a Arena,
    allowed: Vec<usize>,
    /// Kernel numbers of the workers, 0 before they start.
    workers: Vec<AtomicI32>,
    disturbers_stop: AtomicBool,
    workers_stop: AtomicBool,
}

impl Run<'_> {
    /// Takes and returns tokens on whatever CPU it runs; how many, and those it has in the end.
    fn work(&self, index: usize, first: Option<u32>) -> (u64, Vec<u32>) {
        let me = index as u32 + 1;
        let mut random = Random(0x9e37_79b9 + u64::from(me));
        let mut hand = Vec::with_capacity(2 * HAND);
        hand.extend(first.inspect(|&token| self.arena.adopt(me, token)));
        // SAFETY: gettid takes nothing.
        self.workers[index].store(unsafe { libc::gettid() }, Relaxed);
        ME.set(me);
        let mut ops = 0;
        while !self.workers_stop.load(Relaxed) {
            let dice = random.next();
            if hand.len() < HAND && dice & 1 == 0 {
                let before = hand.len();
                hand.extend(self.arena.pop(me));
                ops += (hand.len() - before) as u64;
            } else if let Some(&token) = hand.last()
                && self.arena.push(me, token)
            {
                hand.pop();
                ops += 1;
            }
            if dice & 0xfe == 0 && hand.len() < HAND {
                hand.extend(self.arena.unstash(me, dice >> 8));
            }
            if dice & 0xfffe == 0 {
                pin(0, self.allowed[(dice >> 16) as usize % self.allowed.len()]);
            } else if dice & 0x7fe == 0 {
                thread::yield_now();
            }
        }
        ME.set(0);
        (ops, hand)
    }

    /// Moves any worker anywhere at any time, and signals it; how often.
    fn disturb(&self) -> u64 {
        let mut random = Random(77);
        // SAFETY: getpid takes nothing.
        let process = unsafe { libc::getpid() };
        let mut moves = 0;
        while !self.disturbers_stop.load(Relaxed) {
            let dice = random.next();
            let thread = self.workers[dice as usize % self.workers.len()].load(Relaxed);
            if thread != 0 {
                pin(
                    thread,
                    self.allowed[(dice >> 16) as usize % self.allowed.len()],
                );
                moves += 1;
                // SAFETY: workers end after this thread, so the number is still theirs.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGPROF) };
            }
            if dice & 0x300_0000_0000 == 0 {
                thread::yield_now();
            }
        }
        moves
    }

    /// Drains and refills slots of CPUs at random; how often, and its last tokens.
    fn drain(&self, me: u32) -> (u64, Vec<u32>) {
        let mut random = Random(1000 + u64::from(me));
        let cpus = self.arena.machine.topology().cpus as usize;
        // Ids are the lowest numbers, whatever the CPUs.
        let slots = match self.arena.machine.slot_index().in_use {
            SlotIndex::Cpu => self.allowed.clone(),
            SlotIndex::ConcurrencyId => (0..self.allowed.len()).collect(),
        };
        let mut hand = Vec::with_capacity(3 * SLOT_TOKENS);
        let mut drains = 0;
        while !self.disturbers_stop.load(Relaxed) {
            // Slots of CPUs that this process may not use are not worth half of the drains.
            let dice = random.next();
            let cpu = slots[dice as usize % slots.len()] % cpus;
            if hand.len() < SLOT_TOKENS && self.arena.drain(CpuId(cpu as u32), me, &mut hand) {
                drains += 1;
            }
            let cpu = slots[(dice >> 16) as usize % slots.len()] % cpus;
            self.arena.refill(CpuId(cpu as u32), me, &mut hand);
            if dice & 0x700_0000_0000 == 0 {
                thread::yield_now();
            }
        }
        (drains, hand)
    }

    /// Forks now and then; how often, and how many children found something wrong.
    fn fork(&self) -> (u64, u64) {
        let (mut forks, mut failures) = (0, 0);
        // Made before the fork, because the child must not allocate.
        let mut found = vec![0; self.arena.tokens() + 1];
        let mut hand = Vec::with_capacity(3 * SLOT_TOKENS);
        while !self.disturbers_stop.load(Relaxed) {
            // SAFETY: the child uses no lock but the arena's, which the hooks handed over, and
            // leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let code = self.child(&mut found, &mut hand);
                // SAFETY: ends the child without running destructors.
                unsafe { libc::_exit(code) }
            }
            let mut status = 0;
            // SAFETY: `status` is valid for writes.
            if child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
                forks += 1;
                failures += u64::from(status != 0);
            }
            thread::sleep(Duration::from_millis(5));
        }
        (forks, failures)
    }

    /// The checks of a fork's child; the exit code names the one that failed.
    fn child(&self, found: &mut [u8], hand: &mut Vec<u32>) -> libc::c_int {
        let me = 1 << 20;
        if self.arena.missed.load(Relaxed) > 0 {
            // A slot may have been in use; nothing is promised about it.
            return 0;
        }
        let before = self.arena.clashes.load(Relaxed);
        // The slots it inherited are whole.
        self.arena.census(found);
        if found.iter().any(|&count| count > 1) {
            return 1;
        }
        // Every slot can be had from elsewhere.
        for cpu in self.arena.cpus() {
            if !self.arena.drain(cpu, me, hand) {
                return 2;
            }
            self.arena.refill(cpu, me, hand);
            if !hand.is_empty() {
                return 3;
            }
        }
        // And from its own CPU.
        let pair = |_| {
            self.arena
                .pop(me)
                .is_none_or(|token| self.arena.push(me, token))
        };
        if !(0..1000).all(pair) && self.allowed.len() == 1 {
            // With several CPUs a token may meet a full slot after a migration.
            return 4;
        }
        if self.arena.clashes.load(Relaxed) == before {
            0
        } else {
            5
        }
    }
}

unsafe fn quiesce(arena: NonNull<()>) {
    // SAFETY: `run` registers an arena and removes it before the arena ends.
    unsafe { arena.cast::<Arena>().as_ref() }.quiesce();
}

unsafe fn resume(arena: NonNull<()>) {
    // SAFETY: as in `quiesce`.
    unsafe { arena.cast::<Arena>().as_ref() }.resume();
}

/// Lets the storm blow until `seconds` have passed, or, to find a clash, until there is one.
pub(crate) fn run(arena: Arena, mut extra: Vec<u32>, seconds: f64, stop_at_clash: bool) -> Outcome {
    let allowed = allowed_cpus();
    let workers = 8 * allowed.len().min(8);
    let run = Run {
        arena: &arena,
        allowed,
        workers: (0..workers).map(|_| AtomicI32::new(0)).collect(),
        disturbers_stop: AtomicBool::new(false),
        workers_stop: AtomicBool::new(false),
    };
    let hooks = ForkHooks {
        prepare: quiesce,
        parent: resume,
        child: resume,
    };
    let (node, object) = (ForkNode::new(), NonNull::from(&arena).cast::<()>());
    let (aborts, handled) = (quarry_host::rseq::aborts(), HANDLED.load(Relaxed));
    install_handler();
    // Release: pairs with the Acquire in `on_signal`.
    ARENA.store((&raw const arena).cast_mut(), Ordering::Release);
    // SAFETY: the arena is removed below, before it ends; the hooks fit its type.
    unsafe { fork::register(&node, object, hooks) }.unwrap();
    profile_timer(1000);

    let mut outcome = Outcome::default();
    let mut hands = Vec::new();
    thread::scope(|scope| {
        let run = &run;
        let working: Vec<_> = (0..workers)
            .map(|index| (index, extra.pop()))
            .map(|(index, first)| scope.spawn(move || run.work(index, first)))
            .collect();
        let draining = [2001, 2002].map(|me| scope.spawn(move || run.drain(me)));
        let disturbing = scope.spawn(|| run.disturb());
        let forking = scope.spawn(|| run.fork());
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < seconds
            && !(stop_at_clash && arena.clashes.load(Relaxed) > 0)
        {
            thread::sleep(Duration::from_millis(5));
        }
        run.disturbers_stop.store(true, Relaxed);
        (outcome.forks, outcome.child_failures) = forking.join().unwrap();
        outcome.moves = disturbing.join().unwrap();
        for drainer in draining {
            let (drains, hand) = drainer.join().unwrap();
            outcome.drains += drains;
            hands.extend(hand);
        }
        profile_timer(0);
        run.workers_stop.store(true, Relaxed);
        for worker in working {
            let (ops, hand) = worker.join().unwrap();
            outcome.ops += ops;
            hands.extend(hand);
        }
    });
    ARENA.store(null_mut(), Ordering::Release);
    fork::unregister(&node).unwrap();

    let mut found = vec![0_u8; arena.tokens() + 1];
    arena.census(&mut found);
    hands.extend(extra);
    for token in hands {
        found[token as usize] = found[token as usize].saturating_add(1);
    }
    outcome.lost = found[1..].iter().filter(|&&count| count == 0).count();
    outcome.duplicated = found[1..].iter().filter(|&&count| count > 1).count();
    outcome.aborts = quarry_host::rseq::aborts() - aborts;
    outcome.handled = HANDLED.load(Relaxed) - handled;
    outcome.clashes = arena.clashes.load(Relaxed);
    outcome.missed = arena.missed.load(Relaxed);
    outcome
}
