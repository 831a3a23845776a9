//! Costs of an allocator's steps.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use quarry_core::machine::{Access, Line, LockClass, NodeId, Ranges, RawRange, Topology, Work};
use rustc_hash::FxBuildHasher;

use super::ahead::Ahead;
use super::lines::LOOKED_AHEAD;
use super::locks::Place;
use super::stores::{Bytes, Stores};
use super::{LineAccess, Lines, LockTimes, Locks, Order, TimeCounters, TimeModel};

/// Alignment of a heap's own words: of the zones of a node, for one.
const GRANULE_SHIFT: u32 = 6;

/// The place of the first granule outside of the ranges: behind all of them.
const OUTSIDE: usize = 1 << 60;

/// Distance that the ranges' places keep to.
const RANGE_ALIGN: usize = 1 << 30;

/// Cause of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A line of an allocator's structures.
    Line(Line),
    /// Bytes that are filled or copied.
    Fill,
    /// Code that is no allocator's.
    Outside,
}

impl Cause {
    fn of(self, spent: &mut TimeCounters) -> &mut u64 {
        match self {
            Self::Line(line) => &mut spent.access_ps[line as usize],
            Self::Fill => &mut spent.fill_ps,
            Self::Outside => &mut spent.outside_ps,
        }
    }
}

/// Bytes that are accessed.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The first and the last of them.
    at: usize,
    last: usize,
    access: Access,
    cause: Cause,
    /// Other lines of the run were accessed before; one of them was fetched.
    later: bool,
    fetched: bool,
}

impl Run {
    pub(crate) fn new(at: usize, bytes: usize, access: Access, cause: Cause) -> Self {
        Self {
            at,
            last: at + bytes.max(1) - 1,
            access,
            cause,
            later: false,
            fetched: false,
        }
    }
}

/// One of the machine's ranges.
struct Range {
    /// Address of its first byte.
    first: usize,
    bytes: usize,
    /// Place of its first byte in the machine's memory.
    place: usize,
    /// Bytes of one node's memory in it.
    node_bytes: usize,
}

/// CPUs, lines and locks with their costs.
pub(crate) struct Timed {
    model: TimeModel,
    /// The node of each CPU.
    nodes: Rc<[NodeId]>,
    line_shift: u32,
    ranges: [Range; 4],
    /// Granules outside of the ranges, with their numbers.
    outside: RefCell<HashMap<usize, usize, FxBuildHasher>>,
    order: Order,
    lines: Lines,
    ahead: Ahead,
    stores: Stores,
    locks: Locks,
    /// All but locks.
    spent: RefCell<TimeCounters>,
    /// Times of each CPU's locks.
    spent_locks: RefCell<Vec<[LockTimes; LockClass::COUNT]>>,
}

impl Timed {
    /// `nodes` has the node of each CPU.
    pub(crate) fn new(
        topology: Topology,
        nodes: Rc<[NodeId]>,
        ranges: &Ranges,
        model: TimeModel,
    ) -> Self {
        let cpus = topology.cpus;
        let mut next = 0;
        // Pages and their descriptors are dealt to nodes in equal shares. A CPU's area is its node's. The allocators' own
        // structures are the first node's.
        let share = |range: &RawRange| range.bytes.div_ceil(topology.nodes as usize);
        let first_cpus = nodes.iter().filter(|&&node| node == NodeId(0)).count();
        let area = ranges.percpu.bytes / cpus as usize;
        let all = [
            (ranges.pages, share(&ranges.pages)),
            (ranges.descriptors, share(&ranges.descriptors)),
            (ranges.meta, ranges.meta.bytes),
            (ranges.percpu, first_cpus * area),
        ];
        let ranges = all.map(|(range, node_bytes)| {
            let place = next;
            next += range.bytes.next_multiple_of(RANGE_ALIGN);
            Range {
                first: range.base.addr().get(),
                bytes: range.bytes,
                place,
                node_bytes: node_bytes.max(1),
            }
        });
        Self {
            model,
            nodes,
            ranges,
            outside: RefCell::default(),
            line_shift: topology.cache_line.trailing_zeros(),
            order: Order::new(cpus),
            lines: Lines::new(cpus, topology.cache_line, model.lines),
            ahead: Ahead::new(cpus, model.lines.window, model.lines.misses),
            stores: Stores::new(cpus, model.lines.misses),
            locks: Locks::new(model.seed),
            spent: RefCell::default(),
            spent_locks: RefCell::new(vec![Default::default(); cpus as usize]),
        }
    }

    /// The range that has an address, and where in it.
    #[inline(always)]
    fn range(&self, at: usize) -> Option<(&Range, usize)> {
        let has = |range: &&Range| at.wrapping_sub(range.first) < range.bytes;
        let range = self.ranges.iter().find(has)?;
        Some((range, at - range.first))
    }

    /// The line of an address. Where the operating system put the ranges does not show in it, so sets of caches fill
    /// up in the same way each time. A heap's own words (its zones) are outside of the ranges: they get places in
    /// the order in which they are touched.
    #[inline(always)]
    fn line(&self, at: usize) -> usize {
        let place = match self.range(at) {
            Some((range, offset)) => range.place + offset,
            None => {
                let mut outside = self.outside.borrow_mut();
                let next = outside.len();
                let granule = *outside.entry(at >> GRANULE_SHIFT).or_insert(next);
                OUTSIDE + (granule << GRANULE_SHIFT) + at % (1 << GRANULE_SHIFT)
            }
        };
        place >> self.line_shift
    }

    /// True if the memory of an address is on a CPU's own node.
    fn is_local(&self, at: usize, cpu: u32) -> bool {
        let node = self
            .range(at)
            .map_or(0, |(range, at)| at / range.node_bytes);
        node == self.nodes[cpu as usize].0 as usize
    }

    /// CPUs that share a last-level cache.
    pub(crate) fn cluster_cpus(&self) -> u32 {
        self.model.lines.cluster_cpus
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    pub(crate) fn counters(&self) -> TimeCounters {
        let mut all = TimeCounters {
            cpu_ps: self.order.clocks_ps(),
            moves: self.lines.moves(),
            ..self.spent.borrow().clone()
        };
        for own in &*self.spent_locks.borrow() {
            for (all, own) in all.locks.iter_mut().zip(own) {
                all.add(own);
            }
        }
        all
    }

    /// Times of the running CPU's locks of a class.
    pub(crate) fn own_locks(&self, class: LockClass) -> LockTimes {
        self.spent_locks.borrow()[self.order.cpu() as usize][class as usize]
    }

    #[inline(always)]
    fn spend_on_lock(&self, class: LockClass, add: impl FnOnce(&mut LockTimes)) {
        let cpu = self.order.cpu() as usize;
        add(&mut self.spent_locks.borrow_mut()[cpu][class as usize]);
    }

    /// Does what takes time on the running CPU, and adds that to what `to` chooses.
    #[inline(always)]
    fn spend<R>(&self, to: impl FnOnce(&mut TimeCounters) -> &mut u64, f: impl FnOnce() -> R) -> R {
        let began_ps = self.order.now_ps();
        let result = f();
        let spent_ps = self.order.now_ps() - began_ps;
        *to(&mut self.spent.borrow_mut()) += spent_ps;
        result
    }

    /// Accesses the lines of a run as long as the CPU has them, which no other CPU sees. Returns what is left.
    #[inline(always)]
    pub(crate) fn at_hand(&self, run: Run) -> Option<Run> {
        self.wait_for_lines(run.access);
        self.spend(|spent| run.cause.of(spent), || self.hits(run))
    }

    /// The running CPU waits for the lines under way that an access waits for.
    #[inline(always)]
    pub(crate) fn wait_for_lines(&self, access: Access) {
        let now_ps = self.order.now_ps();
        let until = self.ahead.begins_ps(self.order.cpu(), access, now_ps);
        self.wait_until(now_ps, until);
    }

    /// The running CPU waits from now to a moment, for a cause.
    #[inline(always)]
    fn wait_until(&self, now_ps: u64, (until_ps, cause): (u64, Cause)) {
        if until_ps > now_ps {
            self.order.advance_to(until_ps);
            *cause.of(&mut self.spent.borrow_mut()) += until_ps - now_ps;
        }
    }

    /// The running CPU goes on with code that is not simulated.
    pub(crate) fn leave(&self) {
        let now_ps = self.order.now_ps();
        let until = self.ahead.left_ps(self.order.cpu(), now_ps);
        self.wait_until(now_ps, until);
    }

    /// A line of a run has come, or comes: the CPU goes on at once if it is the only one.
    #[inline(always)]
    fn comes(&self, run: &Run, at_ps: u64) {
        let is_alone = !run.later && self.next(*run).is_none();
        match (run.cause, run.access) {
            (Cause::Fill, _) | (_, Access::Atomic | Access::Store | Access::Prefetch) => {
                self.order.advance_to(at_ps);
            }
            _ if !is_alone => self.order.advance_to(at_ps),
            (cause, access) => {
                let (cpu, now_ps) = (self.order.cpu(), self.order.now_ps());
                self.ahead.comes(cpu, access, cause, now_ps, at_ps);
            }
        }
    }

    /// The running CPU works for a time, and may wait for lines meanwhile. Adds the work to what `to` chooses.
    #[inline(always)]
    fn go_on(&self, ps: u64, to: impl FnOnce(&mut TimeCounters) -> &mut u64) {
        let (cpu, now_ps) = (self.order.cpu(), self.order.now_ps());
        let (worked_ps, wait_ps, cause) = self.ahead.worked_ps(cpu, now_ps, ps);
        self.order.advance_to(worked_ps);
        let spent = &mut self.spent.borrow_mut();
        *to(spent) += ps;
        if wait_ps > 0 {
            *cause.of(spent) += wait_ps;
        }
    }

    /// Accesses the lines of a run. One that another CPU has is fetched when its turn has come.
    pub(crate) fn touch(&self, run: Run) {
        let fetch = || {
            let mut left = Some(run);
            while let Some(run) = left.and_then(|run| self.hits(run)) {
                self.order.visible();
                self.lines.pass(self.order.now_ps());
                left = self.fetch_some(run);
            }
        };
        self.spend(|spent| run.cause.of(spent), fetch);
    }

    /// Accesses as many lines of a run as the CPU fetches at the same time. Returns what is left.
    fn fetch_some(&self, run: Run) -> Option<Run> {
        let mut left = Some(run);
        let lines = (run.last - run.at) >> self.line_shift;
        if lines > 1 {
            let first = self.line(run.at);
            let cpu = self.order.cpu();
            self.lines
                .look_ahead(cpu, first..first + lines.min(LOOKED_AHEAD));
        }
        for _ in 0..self.model.lines.misses {
            let run = self.hits(left?)?;
            self.comes(&run, self.fetch(&run));
            left = self.next(Run {
                fetched: true,
                ..run
            });
        }
        left
    }

    #[inline(always)]
    fn hits(&self, mut run: Run) -> Option<Run> {
        loop {
            // Hits of a run come side by side, the first one of a fill with those before it.
            let fill = matches!(run.cause, Cause::Fill);
            let access = self.first(&run, run.later || fill);
            let mut now_ps = self.order.now_ps();
            if run.access == Access::Atomic {
                now_ps = self.stores.drained_ps(access.cpu, now_ps);
                self.order.advance_to(now_ps);
            }
            let Some(done_ps) = self.lines.at_hand(access, now_ps) else {
                return Some(run);
            };
            let read_ps = match run.access {
                Access::Read | Access::Write | Access::Check => {
                    let bytes = self.bytes(&run, access.line);
                    let come_ps = self.ahead.read_ps(access.cpu, access.line, now_ps);
                    self.stores.read_ps(access.cpu, bytes, now_ps).max(come_ps)
                }
                Access::Atomic | Access::Store | Access::Prefetch => now_ps,
            };
            let costs = &self.model.lines;
            // The rate of fills has what the first cache takes.
            let in_rate_ps = if fill {
                costs.l1.hit / u64::from(costs.misses)
            } else {
                0
            };
            let at_ps = match run.access {
                // The store buffer takes it at once.
                Access::Store | Access::Prefetch if !fill => now_ps,
                _ => (done_ps - in_rate_ps).max(read_ps),
            };
            self.comes(&run, at_ps);
            run = self.next(run)?;
        }
    }

    /// The access to the first line of a run; it may come side by side with another one.
    #[inline(always)]
    fn first(&self, run: &Run, follows: bool) -> LineAccess {
        LineAccess {
            follows,
            ..LineAccess::new(self.order.cpu(), self.line(run.at), run.access)
        }
    }

    /// The bytes of a run in its first line.
    #[inline(always)]
    fn bytes(&self, run: &Run, line: usize) -> Bytes {
        let end = run.at | ((1 << self.line_shift) - 1);
        Bytes {
            line,
            first: run.at,
            last: end.min(run.last),
        }
    }

    /// A run without its first line.
    #[inline(always)]
    fn next(&self, run: Run) -> Option<Run> {
        // Where a line of several granules begins is not known outside of the ranges.
        let outside = self.line_shift > GRANULE_SHIFT && self.range(run.at).is_none();
        let shift = if outside {
            GRANULE_SHIFT
        } else {
            self.line_shift
        };
        let at = ((run.at >> shift) + 1) << shift;
        (at <= run.last).then_some(Run {
            at,
            later: true,
            ..run
        })
    }

    /// Accesses the first line of a run, which other CPUs have, or no cache. Returns the moment from which the CPU
    /// goes on.
    fn fetch(&self, run: &Run) -> u64 {
        let access = self.first(run, run.fetched);
        let access = LineAccess {
            local: self.is_local(run.at, access.cpu),
            ..access
        };
        let now_ps = self.order.now_ps();
        if !matches!(access.access, Access::Store | Access::Prefetch) {
            // A line that comes to be read is there before it is the CPU's to write to.
            let begin_ps = self.ahead.read_ps(access.cpu, access.line, now_ps);
            let at_ps = self.lines.access(access, begin_ps);
            if access.access == Access::Check {
                self.ahead.checked(access.cpu, access.line, now_ps, at_ps);
            }
            return at_ps;
        }
        // A miss buffer has it, and fetches the lines of a run side by side by itself.
        let access = LineAccess {
            follows: false,
            ..access
        };
        let begin_ps = self.stores.begin_ps(access.cpu, now_ps);
        let come_ps = self.lines.access(access, begin_ps);
        let bytes = self.bytes(run, access.line);
        match access.access {
            Access::Prefetch => self.stores.prefetched(access.cpu, bytes.line, come_ps),
            _ => self.stores.fetched(access.cpu, Some(bytes), come_ps),
        }
        begin_ps
    }

    /// Takes the time of some work, which no other CPU sees.
    pub(crate) fn work(&self, work: Work) {
        let ps = self.model.work[work as usize];
        self.go_on(ps, |spent| &mut spent.work_ps[work as usize]);
    }

    /// Takes the time of filling or copying some bytes; that of their lines is extra.
    pub(crate) fn fill(&self, bytes: usize) {
        let ps = self.model.fill_kib * bytes as u64 / 1024;
        self.go_on(ps, |spent| &mut spent.fill_ps);
    }

    /// Takes time that is no allocator's.
    pub(crate) fn outside(&self, ps: u64) {
        self.go_on(ps, |spent| &mut spent.outside_ps);
    }

    /// A device at the first CPU's socket writes some bytes.
    pub(crate) fn device_write(&self, at: usize, bytes: usize) {
        let last = at + bytes.max(1) - 1;
        let cached = self.is_local(at, 0);
        for line in self.line(at)..=self.line(last) {
            self.lines.device_write(line, cached);
        }
    }

    fn place(&self, at: usize, class: LockClass) -> Place<'_> {
        Place {
            order: &self.order,
            lines: &self.lines,
            stores: &self.stores,
            kind: self.model.lock_kind(class),
            at,
            line: self.line(at),
        }
    }

    /// Takes a lock; returns for how long it was waited for, in picoseconds.
    pub(crate) fn lock(&self, at: usize, class: LockClass) -> u64 {
        let what = LockClass::ALL[class as usize].1;
        self.wait_for_lines(Access::Atomic);
        let began_ps = self.order.now_ps();
        let waited_ps = self.locks.lock(&self.place(at, class), what);
        let all_ps = self.order.now_ps() - began_ps;
        let wait_ps = waited_ps.unwrap_or(0);
        self.spend_on_lock(class, |spent| {
            spent.taken += 1;
            spent.waits += u64::from(waited_ps.is_some());
            spent.wait_ps += wait_ps;
            spent.own_ps += all_ps - wait_ps;
        });
        wait_ps
    }

    pub(crate) fn try_lock(&self, at: usize, class: LockClass) -> bool {
        self.wait_for_lines(Access::Atomic);
        let began_ps = self.order.now_ps();
        let taken = self.locks.try_lock(&self.place(at, class));
        let own_ps = self.order.now_ps() - began_ps;
        self.spend_on_lock(class, |spent| {
            spent.taken += u64::from(taken);
            spent.own_ps += own_ps;
        });
        taken
    }

    pub(crate) fn unlock(&self, at: usize, class: LockClass) {
        self.wait_for_lines(Access::Atomic);
        let began_ps = self.order.now_ps();
        let held_ps = self.locks.unlock(&self.place(at, class));
        let own_ps = self.order.now_ps() - began_ps;
        self.spend_on_lock(class, |spent| {
            spent.hold_ps += held_ps;
            spent.own_ps += own_ps;
        });
    }
}
