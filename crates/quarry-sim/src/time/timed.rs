//! What the steps of an allocator cost.

use std::cell::RefCell;

use quarry_core::machine::{Access, LockClass, Work};

use super::{LineMoves, Lines, Locks, Order, TimeModel};

/// What time went into, since the machine was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeCounters {
    /// The clock of each CPU, in picoseconds.
    pub cpu_ps: Vec<u64>,
    /// Time that CPUs waited for locks, in picoseconds, in the order of [`LockClass::ALL`].
    pub lock_wait_ps: [u64; LockClass::COUNT],
    /// Acquisitions that waited, in the same order.
    pub lock_waits: [u64; LockClass::COUNT],
    /// Lines that moved.
    pub moves: LineMoves,
}

/// CPUs, lines and locks with their costs.
pub(crate) struct Timed {
    model: TimeModel,
    line_shift: u32,
    order: Order,
    lines: Lines,
    locks: Locks,
    waits: RefCell<([u64; LockClass::COUNT], [u64; LockClass::COUNT])>,
}

impl Timed {
    pub(crate) fn new(cpus: u32, line_bytes: u32, model: TimeModel) -> Self {
        Self {
            model,
            line_shift: line_bytes.trailing_zeros(),
            order: Order::new(cpus),
            lines: Lines::new(model.lines),
            locks: Locks::new(model.seed),
            waits: RefCell::new(([0; LockClass::COUNT], [0; LockClass::COUNT])),
        }
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    pub(crate) fn counters(&self) -> TimeCounters {
        let (lock_wait_ps, lock_waits) = *self.waits.borrow();
        TimeCounters {
            cpu_ps: self.order.clocks_ps(),
            lock_wait_ps,
            lock_waits,
            moves: self.lines.moves(),
        }
    }

    /// Accesses the lines of some bytes. One that another CPU has is fetched when its turn has come.
    pub(crate) fn access(&self, at: usize, bytes: usize, access: Access) {
        let last = at + bytes.max(1) - 1;
        for line in at >> self.line_shift..=last >> self.line_shift {
            let cpu = self.order.cpu();
            if !self.lines.has(cpu, line, access != Access::Read) {
                self.order.visible();
            }
            let now_ps = self.order.now_ps();
            self.order.advance_to(match access {
                Access::Read => self.lines.read(cpu, line, now_ps),
                Access::Write => self.lines.write(cpu, line, now_ps),
                Access::Atomic => self.lines.atomic(cpu, line, now_ps),
            });
        }
    }

    pub(crate) fn work(&self, work: Work) {
        self.order.advance(self.model.work[work as usize]);
    }

    /// Fills or copies some bytes.
    pub(crate) fn fill(&self, at: usize, bytes: usize, access: Access) {
        self.access(at, bytes, access);
        self.order
            .advance(self.model.fill_kib * bytes as u64 / 1024);
    }

    pub(crate) fn lock(&self, at: usize, class: LockClass) {
        let kind = self.model.lock_kind(class);
        let (line, what) = (at >> self.line_shift, LockClass::ALL[class as usize].1);
        let waited_ps = self
            .locks
            .lock(&self.order, &self.lines, kind, at, line, what);
        if let Some(waited_ps) = waited_ps {
            let (times, waits) = &mut *self.waits.borrow_mut();
            times[class as usize] += waited_ps;
            waits[class as usize] += 1;
        }
    }

    pub(crate) fn try_lock(&self, at: usize) -> bool {
        self.locks
            .try_lock(&self.order, &self.lines, at, at >> self.line_shift)
    }

    pub(crate) fn unlock(&self, at: usize, class: LockClass) {
        let kind = self.model.lock_kind(class);
        let line = at >> self.line_shift;
        self.locks.unlock(&self.order, &self.lines, kind, at, line);
    }
}
