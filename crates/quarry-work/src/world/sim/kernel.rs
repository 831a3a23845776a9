//! The kernel of a virtual machine, as tasks see it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use quarry_core::design::Design;
use quarry_core::machine::{Access, Accounting as _, Work};
use quarry_core::stats::Stats;
use quarry_sim::VirtualMachine;
use quarry_sim::driver::{CacheIndex, Driver};
use quarry_sim::sched::{SchedCounts, Scheduler, TaskId};
use quarry_sim::time::TimeCounters;

use super::process::Processes;
use super::remote::Nic;
use super::socket::{Side, SocketLine};
use crate::card::Network;
use crate::error::WorkError;
use crate::net::NetRules;
use crate::progress::Progress;
use crate::world::skb::SkbCaches;
use crate::world::{End, Kind, Over, Received, Request, Task, Transport};

/// Path on which a task spends time in the kernel; calls and switches are none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Copies between tasks and buffers.
    Copy,
    /// Protocols, sockets and heads.
    Protocol,
    AllocHead,
    AllocData,
    FreeHead,
    FreeData,
    /// Fragments and pipe buffers: pages that are no slabs.
    Pages,
}

impl Path {
    pub(crate) const COUNT: usize = 7;
}

/// Part of a run that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All that its tasks do until they return by themselves, this number of operations, from the moment on at which this
    /// number of tasks have warmed up.
    All { operations: u64, warm_up: u32 },
    /// Operations from one moment to another, in picoseconds.
    Time { from_ps: u64, to_ps: u64 },
    /// The first n operations.
    Operations(u64),
}

/// Counts at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) ps: u64,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) paths_ps: [u64; Path::COUNT],
    pub(crate) sched: SchedCounts,
    pub(crate) spent: TimeCounters,
}

/// Action at a moment of a run, which ends the run if it fails.
pub(crate) struct Later<'d> {
    pub(crate) at_ns: u64,
    pub(crate) run: Box<dyn FnOnce() -> Result<(), WorkError> + 'd>,
}

/// A virtual machine's kernel.
pub(crate) struct Kernel<'d, 'h, D: Design> {
    pub(super) driver: &'d Driver<'h, D>,
    pub(super) machine: &'d VirtualMachine,
    pub(super) sched: &'d Scheduler<'d>,
    pub(super) rules: NetRules,
    pub(super) caches: SkbCaches<CacheIndex>,
    pub(super) page_bytes: u32,
    pub(super) unix_ps: u64,
    pub(super) tcp_ps: u64,
    /// A clock cycle.
    pub(super) cycle_ps: u64,
    sides: Vec<Side<'h>>,
    pub(super) nic: Nic<'h>,
    pub(super) processes: Processes<'h>,
    counted: Counted,
    now: RefCell<Moment>,
    begun: RefCell<Option<Moment>>,
    ended: RefCell<Option<Moment>>,
    exhausted: Cell<bool>,
    /// Actions that are left, first things first.
    later: RefCell<VecDeque<Later<'d>>>,
    /// Error that ends the run: of an action, or that the run was stopped.
    failed: RefCell<Option<WorkError>>,
    progress: &'d dyn Progress,
    /// Calls of [`Task::done`].
    done_calls: Cell<u64>,
    /// Per cent of the run that were reported.
    reported: Cell<u64>,
    /// Tasks that have warmed up.
    warm: Cell<u32>,
    /// Counters of all caches when counting began.
    begun_caches: RefCell<Vec<Stats>>,
}

/// Operations after which a run asks whether it is stopped.
const STOP_CALLS: u64 = 64;

/// Connections to another machine.
pub(crate) fn remote(connections: &[Transport]) -> u32 {
    let remote = connections.iter();
    let remote = remote.filter(|transport| matches!(transport, Transport::Remote(_)));
    remote.count() as u32
}

/// Parts of a kernel.
pub(crate) struct Parts<'d, 'h, D: Design> {
    pub(crate) driver: &'d Driver<'h, D>,
    pub(crate) sched: &'d Scheduler<'d>,
    pub(crate) rules: NetRules,
    pub(crate) caches: SkbCaches<CacheIndex>,
    /// Caches of what processes request.
    pub(crate) kinds: Vec<(Kind, CacheIndex)>,
    /// CPUs.
    pub(crate) cpus: u32,
    /// The protocols' work for a message and for a segment, in picoseconds.
    pub(crate) unix_ps: u64,
    pub(crate) tcp_ps: u64,
    pub(crate) cycle_ps: u64,
    pub(crate) page_bytes: u64,
    pub(crate) network: Network,
    /// Queues of the network card.
    pub(crate) queues: u32,
    pub(crate) counted: Counted,
    /// In the order of their times.
    pub(crate) later: Vec<Later<'d>>,
    pub(crate) progress: &'d dyn Progress,
}

/// Counters of all caches, in the order of the heap's list.
fn counters<D: Design>(driver: &Driver<'_, D>) -> Vec<Stats> {
    let mut counters = Vec::new();
    driver.for_each_cache(|cache| counters.push(cache.stats()));
    counters
}

impl<'d, 'h, D: Design> Kernel<'d, 'h, D> {
    /// A kernel with these connections.
    pub(crate) fn new(parts: Parts<'d, 'h, D>, connections: &[Transport]) -> Self {
        let sides = connections.iter().flat_map(|transport| [*transport; 2]);
        Self {
            driver: parts.driver,
            machine: parts.driver.machine(),
            sched: parts.sched,
            rules: parts.rules,
            caches: parts.caches,
            page_bytes: parts.page_bytes as u32,
            unix_ps: parts.unix_ps,
            tcp_ps: parts.tcp_ps,
            cycle_ps: parts.cycle_ps,
            sides: sides.map(Side::new).collect(),
            processes: Processes::new(parts.kinds, parts.cpus),
            nic: Nic::new(parts.network, parts.queues, remote(connections)),
            counted: parts.counted,
            now: RefCell::default(),
            begun: RefCell::default(),
            ended: RefCell::default(),
            exhausted: Cell::new(false),
            later: RefCell::new(parts.later.into()),
            failed: RefCell::default(),
            progress: parts.progress,
            done_calls: Cell::new(0),
            reported: Cell::new(0),
            warm: Cell::new(0),
            begun_caches: RefCell::new(counters(parts.driver)),
        }
    }

    pub(super) fn side(&self, end: End) -> &Side<'h> {
        &self.sides[end.0 as usize]
    }

    /// Does something, whose time is a path's. No other task runs on this CPU meanwhile.
    pub(super) fn on<R>(&self, path: Path, f: impl FnOnce() -> R) -> R {
        let began_ps = self.machine.clock_ps();
        let result = f();
        let took_ps = self.machine.clock_ps() - began_ps;
        self.now.borrow_mut().paths_ps[path as usize] += took_ps;
        result
    }

    /// The protocols' work.
    pub(super) fn protocol(&self, ps: u64) {
        self.on(Path::Protocol, || self.machine.spend(ps));
    }

    /// Accesses a line of a socket.
    pub(super) fn touch(&self, side: &Side<'h>, line: SocketLine, access: Access) {
        self.on(Path::Protocol, || {
            self.machine.use_memory(side.line(line), 8, access);
        });
    }

    /// True if the run is in simulated time.
    pub(super) fn has_clocks(&self) -> bool {
        !matches!(self.counted, Counted::Operations(_))
    }

    /// Wakes all tasks of a list.
    pub(super) fn wake_all(&self, tasks: &RefCell<Vec<TaskId>>) {
        for task in tasks.take() {
            self.sched.wake(task);
        }
    }

    /// The running task waits in a list until it is woken.
    pub(super) fn wait_in(
        &self,
        tasks: &RefCell<Vec<TaskId>>,
        what: &'static str,
    ) -> Result<(), Over> {
        tasks.borrow_mut().push(self.sched.task());
        self.sched.wait(what);
        match self.exhausted.get() {
            true => Err(Over),
            false => Ok(()),
        }
    }

    /// Memory is exhausted: the run ends.
    pub(super) fn exhausted(&self) -> Over {
        self.exhausted.set(true);
        self.sched.stop();
        Over
    }

    /// Operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.now.borrow().operations
    }

    /// True if memory was exhausted.
    pub(crate) fn was_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    /// Does what is due. The task that finds it due does it, as an interrupt of a timer would.
    fn do_later(&self, now_ps: u64) {
        loop {
            let mut later = self.later.borrow_mut();
            // Virtual machines without time have their clocks at 0.
            if later.front().is_none_or(|it| it.at_ns > now_ps / 1000) {
                return;
            }
            let due = later.pop_front();
            drop(later);
            if let Some(Err(error)) = due.map(|it| (it.run)()) {
                self.fail(error);
            }
        }
    }

    /// Ends the run with an error.
    fn fail(&self, error: WorkError) {
        self.failed.borrow_mut().get_or_insert(error);
        self.sched.stop();
    }

    /// Number of actions that came after the run's end, or the error of one that failed.
    pub(crate) fn later(&self) -> Result<u32, WorkError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self.later.borrow().len() as u32),
        }
    }

    /// Tells when another per cent of the run is done, and ends the run if it is to end.
    fn report_progress(&self, now_ps: u64) {
        let (done, all) = match self.counted {
            Counted::All {
                operations: all, ..
            }
            | Counted::Operations(all) => (self.now.borrow().operations, all),
            Counted::Time { to_ps, .. } => (now_ps, to_ps),
        };
        let percent = (100.0 * done as f64 / all.max(1) as f64).min(100.0) as u64;
        let before = self.reported.replace(percent.max(self.reported.get()));
        if percent > before {
            self.progress.advance(percent - before);
        }
        let calls = self.done_calls.get() + 1;
        self.done_calls.set(calls);
        if calls.is_multiple_of(STOP_CALLS) && self.progress.is_stopped() {
            self.fail(WorkError::Stopped);
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            ps: self.machine.clock_ps(),
            sched: self.sched.counts(),
            spent: self.machine.time_counters().unwrap_or_default(),
            ..self.now.borrow().clone()
        }
    }

    /// Counting begins.
    fn begin(&self) {
        self.begun.replace(Some(self.moment()));
        self.begun_caches.replace(counters(self.driver));
    }

    /// Counters of all caches when counting began.
    pub(crate) fn begun_caches(&self) -> Vec<Stats> {
        self.begun_caches.take()
    }

    /// Counts at the beginning and the end of counting.
    pub(crate) fn span(&self) -> (Moment, Moment) {
        let end = self.ended.take().unwrap_or_else(|| {
            let last = self.moment();
            let last_ps = last.spent.cpu_ps.iter().max().copied();
            Moment {
                ps: last_ps.unwrap_or_default(),
                ..last
            }
        });
        (self.begun.take().unwrap_or_default(), end)
    }

    /// Frees all that sockets still have.
    pub(crate) fn shut_down(&self) {
        for side in &self.sides {
            for skb in side.unacked.take() {
                self.put_skb(skb);
            }
            for queued in side.queue.take() {
                self.put_skb(queued.skb);
            }
            if let Some((block, _)) = side.block.take() {
                self.put_block(block);
            }
            self.shut_pipe(side);
        }
        self.shut_card();
        self.end_processes();
    }
}

impl<D: Design> Task for Kernel<'_, '_, D> {
    fn send(&self, from: End, bytes: u32, word: u64) -> Result<(), Over> {
        self.machine.work(Work::Syscall);
        match self.side(from).transport {
            Transport::Unix => self.send_unix(from, bytes, word),
            Transport::Datagram => self.send_unix_buffer(from, bytes, word),
            Transport::Pipe => self.write_pipe(from, bytes),
            Transport::Tcp => self.send_tcp(from, bytes, word),
            Transport::Remote(answer) => self.send_remote(from, bytes, word, answer),
        }?;
        self.sched.leave_kernel();
        Ok(())
    }

    fn receive(&self, at: End, most: u32) -> Result<Received, Over> {
        self.machine.work(Work::Syscall);
        let received = match self.side(at).transport {
            Transport::Unix | Transport::Tcp | Transport::Remote(_) => {
                self.receive_stream(at, most)
            }
            Transport::Datagram => self.receive_datagram(at, most),
            Transport::Pipe => self.read_pipe(at, most),
        }?;
        self.sched.leave_kernel();
        Ok(received)
    }

    fn close(&self, end: End) {
        self.machine.work(Work::Syscall);
        self.machine.take_turn();
        self.side(end).closed.set(true);
        self.wake_all(&self.side(end.peer()).readers);
        if matches!(self.side(end).transport, Transport::Remote(_)) {
            self.close_remote();
        }
        self.sched.leave_kernel();
    }

    fn request(&self, request: Request) -> Result<(), Over> {
        self.serve(request)
    }

    fn sleep_ns(&self, ns: u64) {
        self.machine.work(Work::Syscall);
        self.sched.sleep_ns(ns);
    }

    fn give_up_cpu(&self) {
        self.machine.work(Work::Syscall);
        self.sched.give_up_cpu();
    }

    fn now_ns(&self) -> u64 {
        self.machine.clock_ps() / 1000
    }

    fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    fn done(&self, operations: u64, bytes: u64) {
        {
            let mut now = self.now.borrow_mut();
            now.operations += operations;
            now.bytes += bytes;
        }
        let now_ps = self.machine.clock_ps();
        let (begins, ends) = match self.counted {
            Counted::All { .. } => (false, false),
            Counted::Time { from_ps, to_ps } => (now_ps >= from_ps, now_ps >= to_ps),
            Counted::Operations(n) => (false, self.now.borrow().operations >= n),
        };
        if begins && self.begun.borrow().is_none() {
            self.begin();
        }
        if ends && self.ended.borrow().is_none() {
            self.ended.replace(Some(self.moment()));
        }
        self.report_progress(now_ps);
        self.do_later(now_ps);
        self.end_grace_periods(now_ps);
    }

    fn warmed_up(&self) {
        self.warm.set(self.warm.get() + 1);
        if matches!(self.counted, Counted::All { warm_up, .. } if warm_up == self.warm.get()) {
            self.begin();
        }
    }
}
