//! The virtual machine.

mod clocked;
mod explored;
mod passage;
mod tasks;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;
use std::rc::Rc;

use quarry_core::machine::{
    Access, Accounting, Clock, CpuId, Cpus, DESCRIPTOR_BYTES, Line, LockClass, Locks, Memory,
    NodeId, PERCPU_FREE, PERCPU_OWNER, PERCPU_REMOTE, Ranges, RawLock, RawRange, Readers,
    Reentered, SlotLock, Slots, Threads, Topology, Work,
};
use quarry_core::page::MAX_ORDER;
use std::sync::atomic::Ordering;

use crate::config::{Config, ConfigError, Faults};
use crate::counters::Counters;
use crate::explore::Explorer;
use crate::guarded::Guarded;
use crate::held::Held;
use crate::memory::Mapping;
use crate::rng::Rng;
use crate::step::Step;
use crate::time::{Cause, Run, TimeModel, Timed};

pub use passage::Passage;

/// Address space for the allocators' own structures, beside a word for each page.
const META_BYTES: usize = 1 << 30;

/// Waits for another CPU's slot, at [`PAUSE_PS`]: longer than any hold of one.
const REMOTE_WAITS: u32 = 100_000;
/// A wait of a CPU that waits for another one without a lock, as long as a look at a line that another CPU has.
const PAUSE_PS: u64 = 100_000;

/// The thread that runs a machine without a clock.
const LONE_THREAD: usize = 1;

struct Mappings {
    _pages: Mapping,
    _descriptors: Mapping,
    _meta: Mapping,
    _percpu: Mapping,
}

/// See the [crate's documentation](crate).
pub struct VirtualMachine {
    topology: Topology,
    /// The node of each CPU.
    nodes: Rc<[NodeId]>,
    ranges: Ranges,
    cpu: Cell<CpuId>,
    now_ns: Cell<u64>,
    /// Grace periods so far.
    grace_periods: Cell<u64>,
    counters: UnsafeCell<Counters>,
    faults: Option<(Faults, RefCell<Rng>)>,
    held: Held,
    guarded: Guarded,
    /// Steps are recorded, take time or are refused. This is the one question that a replay without clocks pays for.
    watched: Cell<bool>,
    /// CPUs ended in the middle of operations: no lock and no slot is available any more.
    broken: Cell<bool>,
    /// Steps are recorded; those so far.
    records: Cell<bool>,
    steps: RefCell<Vec<Step>>,
    timed: Option<Box<Timed>>,
    /// Steps take time: [`VirtualMachine::run_cpus`] runs.
    clocked: Cell<bool>,
    /// The tasks, while [`VirtualMachine::explore`] runs.
    explorer: RefCell<Option<Rc<Explorer>>>,
    /// Slow paths and waits of each CPU; empty on a machine without clocks.
    passages: Box<[Cell<Passage>]>,
    /// Result of [`Threads::thread_id`].
    thread: Cell<usize>,
    _mappings: Mappings,
}

impl VirtualMachine {
    /// A machine whose memory no code has used.
    ///
    /// # Errors
    ///
    /// [`ConfigError`].
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let Config {
            cpus,
            nodes,
            page_bytes,
            memory_bytes,
            cache_line,
            faults,
            time,
        } = config;
        let page_shift = page_bytes.trailing_zeros();
        let pages = memory_bytes >> page_shift;
        let reserve = |bytes: usize, dense: bool| {
            Mapping::new(bytes, dense).map_err(|source| ConfigError::Reserve {
                bytes: bytes as u64,
                source,
            })
        };
        // Slabs are naturally aligned like blocks of the buddy allocator, so the range starts at
        // a multiple of the largest block.
        let block = 1usize << (page_shift + MAX_ORDER);
        let page_range = (pages as usize) << page_shift;
        let meta_bytes = META_BYTES + pages as usize * size_of::<usize>();
        let mappings = Mappings {
            _pages: reserve(page_range + block, true)?,
            _descriptors: reserve(pages as usize * DESCRIPTOR_BYTES, true)?,
            _meta: reserve(meta_bytes, false)?,
            _percpu: reserve((cpus as usize) << Self::PERCPU_SHIFT, false)?,
        };
        let ranges = Ranges {
            pages: mappings
                ._pages
                .range(mappings._pages.aligned(block), page_range),
            descriptors: mappings
                ._descriptors
                .range(0, pages as usize * DESCRIPTOR_BYTES),
            meta: mappings._meta.range(0, meta_bytes),
            percpu: mappings
                ._percpu
                .range(0, (cpus as usize) << Self::PERCPU_SHIFT),
        };
        let topology = Topology {
            cpus,
            nodes,
            page_shift,
            cache_line,
        };
        let nodes: Rc<[NodeId]> = nodes_of_cpus(&topology, time.as_ref()).into();
        let own = Rc::clone(&nodes);
        let timed = time.map(|model| Box::new(Timed::new(topology, own, &ranges, model)));
        Ok(Self {
            topology,
            nodes,
            ranges,
            cpu: Cell::new(CpuId(0)),
            now_ns: Cell::new(0),
            grace_periods: Cell::new(0),
            counters: UnsafeCell::new(Counters::default()),
            faults: faults.map(|faults| (faults, RefCell::new(Rng::new(faults.seed)))),
            held: Held::default(),
            guarded: Guarded::default(),
            watched: Cell::new(false),
            broken: Cell::new(false),
            records: Cell::new(false),
            steps: RefCell::default(),
            timed,
            clocked: Cell::new(false),
            explorer: RefCell::default(),
            passages: (0..if time.is_some() { cpus } else { 0 })
                .map(|_| Cell::default())
                .collect(),
            thread: Cell::new(LONE_THREAD),
            _mappings: mappings,
        })
    }

    /// The operations that follow run on this CPU.
    ///
    /// # Panics
    ///
    /// If the machine has no such CPU, or in [`VirtualMachine::run_cpus`], where each body is its own CPU's.
    #[inline]
    pub fn run_on(&self, cpu: CpuId) {
        assert!(
            cpu.0 < self.topology.cpus,
            "CPU {} of {}",
            cpu.0,
            self.topology.cpus
        );
        assert!(
            !self.clocked.get() || cpu == self.cpu.get(),
            "CPU {} runs a body of CPU {}",
            cpu.0,
            self.cpu.get().0
        );
        self.cpu.set(cpu);
        if self.watched.get() {
            self.move_task(cpu);
        }
    }

    /// Sets the clock, in [`VirtualMachine::run_cpus`] the running CPU's; a moment that has passed leaves it as it is.
    #[inline]
    pub fn advance_to(&self, now_ns: u64) {
        self.now_ns.set(self.now_ns.get().max(now_ns));
        if self.clocked.get() {
            let now_ps = now_ns.saturating_mul(1000);
            self.timed().order().advance_to(now_ps);
        }
    }

    /// Tells that every reader that runs now has finished: deferred frees made so far may be done.
    ///
    /// # Safety
    ///
    /// It has: no code uses an object any longer whose free was deferred.
    pub unsafe fn grace_period(&self) {
        self.grace_periods.set(self.grace_periods.get() + 1);
    }

    /// Tells that an object was freed that `allocated_on` had allocated.
    #[inline]
    pub fn note_free(&self, allocated_on: CpuId) {
        if allocated_on != self.cpu.get() {
            self.count(|counters| counters.cross_cpu_frees += 1);
        }
    }

    /// Does `f` as a signal handler would, on top of what runs: it begins a lock order anew, and has
    /// given its locks back when it ends.
    pub fn interrupt<R>(&self, f: impl FnOnce() -> R) -> R {
        let below = self.held.begin();
        let result = self.guarded.anew(f);
        self.held.end(below);
        result
    }

    /// Counts so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.count(|counters| counters.clone())
    }

    /// Acquisitions of locks of a class so far; cheaper than all counters.
    #[inline]
    #[must_use]
    pub fn lock_count(&self, class: LockClass) -> u64 {
        self.count(|counters| counters.locks(class))
    }

    /// Records the steps of the allocator in `f`, as it reports them to the machine.
    pub fn record_steps<R>(&self, f: impl FnOnce() -> R) -> (Vec<Step>, R) {
        let outer = (self.records.replace(true), self.steps.take());
        self.watch_again();
        let result = f();
        let steps = self.steps.replace(outer.1);
        self.records.set(outer.0);
        self.watch_again();
        (steps, result)
    }

    fn watch_again(&self) {
        self.watched
            .set(self.records.get() || self.is_side_by_side() || self.broken.get());
    }

    /// Notes a step while steps are recorded, and lets its time pass, or other tasks go first.
    #[inline(always)]
    fn record(&self, step: impl FnOnce() -> Step) {
        if self.watched.get() {
            self.take_step(step());
        }
    }

    #[cold]
    #[inline(never)]
    fn take_step(&self, step: Step) {
        if !self.clocked.get() && self.is_explored() && !matches!(step, Step::Work(_)) {
            self.let_tasks_pass();
        }
        if self.records.get() {
            self.steps.borrow_mut().push(step);
        }
        if !self.clocked.get() {
            return;
        }
        match step {
            Step::Access {
                line,
                access,
                bytes,
                at,
            } => self.touch(Run::new(at, bytes, access, Cause::Line(line))),
            Step::Work(work) => self.do_work(work),
            Step::Zero { bytes, at } => self.fill(at, bytes, Access::Store),
            Step::Copy { bytes, at } => self.fill(at, bytes, Access::Read),
            // Locks take time where they are taken. A slot is no lock of the kernel's: what keeps others away
            // there is work.
            Step::TakeSlot | Step::TakeRemoteSlot | Step::FreeSlot => {}
            Step::Lock(_) | Step::TryLock(_) | Step::Unlock(_) => {}
        }
    }

    /// Does `f` without counting it: looking at a machine must not show in what it counts.
    pub fn uncounted<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = self.counters();
        let (clocked, explorer) = (self.clocked.replace(false), self.explorer.take());
        self.watch_again();
        let result = f();
        self.clocked.set(clocked);
        self.explorer.replace(explorer);
        self.watch_again();
        self.count(|counters| *counters = before);
        result
    }

    /// Counts from zero again, after work that is not to be counted.
    pub fn reset_counters(&self) {
        self.count(|counters| *counters = Counters::default());
    }

    #[inline(always)]
    fn count<R>(&self, f: impl FnOnce(&mut Counters) -> R) -> R {
        // SAFETY: the machine is not `Sync` (it holds an `UnsafeCell`), and the closures of this
        // file neither keep the reference nor call back into the machine.
        f(unsafe { &mut *self.counters.get() })
    }

    #[inline]
    fn fails(&self, per_mille: impl FnOnce(&Faults) -> u16) -> bool {
        match &self.faults {
            None => false,
            Some((faults, rng)) => rng.borrow_mut().chance(per_mille(faults)),
        }
    }
}

/// The node of each CPU: its socket, where sockets have clocks and a node each; else nodes have equal runs of CPUs.
fn nodes_of_cpus(topology: &Topology, time: Option<&TimeModel>) -> Vec<NodeId> {
    let socket = time.map(|model| model.lines.socket_cpus);
    let socket = socket.filter(|socket| topology.cpus.div_ceil(*socket) == topology.nodes);
    let node = |cpu| match socket {
        Some(socket) => NodeId(cpu / socket),
        None => topology.dealt_node(CpuId(cpu)),
    };
    (0..topology.cpus).map(node).collect()
}

// SAFETY: topology and nodes are set once, the latter below their number; `run_on` keeps the CPU in range.
unsafe impl Cpus for VirtualMachine {
    #[inline(always)]
    fn topology(&self) -> &Topology {
        &self.topology
    }

    #[inline(always)]
    fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.nodes[cpu.0 as usize]
    }

    fn cpus_of_node(&self, node: NodeId) -> u32 {
        self.nodes.iter().filter(|&&of| of == node).count() as u32
    }

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.cpu.get()
    }
}

// SAFETY: the four ranges are separate fresh mappings, zero-filled and unmapped only with the
// machine (M2). They are mappings of the operating system, so moving the struct moves no range
// (M3).
unsafe impl Memory for VirtualMachine {
    #[inline(always)]
    fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    unsafe fn release(&self, range: RawRange) -> bool {
        self.count(|counters| {
            counters.releases += 1;
            counters.released_bytes += range.bytes as u64;
        });
        // SAFETY: `Memory::release` takes ranges of this machine's `ranges()` only, which are its mappings. Its caller, the
        // page allocator, holds every page of the range as free, so no code uses their contents.
        unsafe { Mapping::discard(range) }
    }
}

// SAFETY: one thread runs the machine (it is not `Sync`). CPUs that run side by side give up their turn in
// `on_clock` alone, never between the look at a word and its change: a word is taken only when free.
unsafe impl Slots for VirtualMachine {
    const PERCPU_SHIFT: u32 = 22;

    #[inline(always)]
    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        self.count(|counters| counters.slot_tries += 1);
        if self.watched.get() && !self.may_take(Step::TakeSlot) {
            return None;
        }
        if self.fails(|faults| faults.slot_per_mille) {
            self.count(|counters| counters.slot_failures += 1);
            return None;
        }
        let offset = (self.cpu.get().0 as usize) << Self::PERCPU_SHIFT;
        // SAFETY: `slot0` is in CPU 0's area of the per-CPU range (the caller: `PerCpu` gives no other pointer), each CPU's
        // area is `1 << PERCPU_SHIFT` bytes long (`new` maps one for each), and `run_on` keeps the CPU in range.
        let lock = unsafe { slot0.byte_add(offset) };
        // SAFETY: the pointer is in the mapping (above), as aligned as CPU 0's, and zeros are a free `SlotLock`. The word is
        // atomic and nothing else refers to it exclusively.
        let word = unsafe { lock.as_ref() }.word();
        if word.load(Ordering::Relaxed) != PERCPU_FREE {
            return None;
        }
        word.store(PERCPU_OWNER, Ordering::Relaxed);
        self.guarded.enter();
        Some(lock)
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, _cpu: CpuId) -> bool {
        self.count(|counters| counters.remote_tries += 1);
        if self.watched.get() && !self.may_take(Step::TakeRemoteSlot) {
            return false;
        }
        for attempt in 0..REMOTE_WAITS {
            if !self.is_side_by_side() || slot.word().load(Ordering::Relaxed) == PERCPU_FREE {
                break;
            }
            self.pause(attempt);
        }
        if self.fails(|faults| faults.remote_per_mille)
            || slot.word().load(Ordering::Relaxed) != PERCPU_FREE
        {
            return false;
        }
        slot.word().store(PERCPU_REMOTE, Ordering::Relaxed);
        self.guarded.enter();
        true
    }

    #[inline(always)]
    unsafe fn percpu_unlock(&self, slot: &SlotLock) {
        self.record(|| Step::FreeSlot);
        self.guarded.leave();
        slot.release();
    }
}

quarry_core::machine_without_steps!(VirtualMachine);

// SAFETY: `set_running` gives CPUs that run side by side a number each. Otherwise one thread runs the machine.
unsafe impl Threads for VirtualMachine {
    fn thread_id(&self) -> usize {
        self.thread.get()
    }

    fn task(&self) -> u32 {
        1
    }

    fn pause(&self, _attempt: u32) {
        if self.clocked.get() {
            self.on_clock(|timed| {
                timed.order().advance(PAUSE_PS);
                timed.order().visible();
            });
        }
        if self.is_explored() {
            self.give_way();
        }
    }
}

// SAFETY: one thread runs the machine, so `acquire` is not interrupted between its look at the owner and its store. CPUs
// give up their turn in `on_clock` alone, before the lock is taken and before it is released.
unsafe impl Locks for VirtualMachine {
    #[inline(always)]
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered> {
        self.count(|counters| counters.add_lock(class));
        if self.watched.get() && !self.wait_for(lock, class) {
            return Err(Reentered);
        }
        if !lock.acquire(self.thread.get()) {
            return Err(Reentered);
        }
        self.held.take(class, true);
        self.guarded.enter();
        Ok(())
    }

    #[inline(always)]
    fn try_lock(&self, lock: &RawLock, class: LockClass) -> bool {
        self.count(|counters| counters.add_lock(class));
        let free = !self.watched.get() || self.try_for(lock, class);
        let taken = free && lock.acquire(self.thread.get());
        if taken {
            self.held.take(class, false);
            self.guarded.enter();
        }
        taken
    }

    #[inline(always)]
    unsafe fn unlock(&self, lock: &RawLock, class: LockClass) {
        if self.watched.get() {
            self.hand_on(lock, class);
        }
        self.held.give(class);
        self.guarded.leave();
        lock.release();
    }
}

// SAFETY: a cookie has elapsed only after a call of `grace_period`, whose caller vouches that all readers have finished.
unsafe impl Readers for VirtualMachine {
    fn rcu_cookie(&self) -> u64 {
        self.grace_periods.get() + 1
    }

    fn rcu_elapsed(&self, cookie: u64) -> bool {
        self.grace_periods.get() >= cookie
    }
}

impl Clock for VirtualMachine {
    #[inline]
    fn now_ns(&self) -> u64 {
        if self.clocked.get() {
            let now_ps = self.timed().order().now_ps();
            // The clock of one CPU may be behind another's.
            self.now_ns.set(self.now_ns.get().max(now_ps / 1000));
        }
        self.now_ns.get()
    }
}

impl Accounting for VirtualMachine {
    #[inline(always)]
    fn access(&self, at: *const u8, bytes: usize, access: Access, line: Line) {
        self.record(|| Step::Access {
            line,
            access,
            bytes,
            at: at.addr(),
        });
        self.count(|counters| counters.add_touch(line, access));
    }

    #[inline(always)]
    fn work(&self, work: Work) {
        if self.guarded.does(work) {
            self.record(|| Step::Work(work));
            self.count(|counters| counters.add_work(work));
        }
    }

    #[inline]
    fn looked(&self, lists: u32, blocks: u32) {
        self.count(|counters| counters.add_looks(lists, blocks));
    }

    #[inline]
    fn zero(&self, at: *const u8, bytes: usize) {
        self.record(|| Step::Zero {
            bytes,
            at: at.addr(),
        });
        self.count(|counters| counters.zeroed_bytes += bytes as u64);
    }

    #[inline]
    fn copy(&self, kernel: *const u8, bytes: usize) {
        self.record(|| Step::Copy {
            bytes,
            at: kernel.addr(),
        });
        self.count(|counters| counters.copied_bytes += bytes as u64);
    }
}
