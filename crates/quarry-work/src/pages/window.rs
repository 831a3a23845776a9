//! Part of a run that is counted: from one moment to another, while all processes go on.

use std::cell::{Cell, RefCell};

use quarry_core::machine::LockClass;
use quarry_sim::VirtualMachine;
use quarry_sim::time::{LockTimes, TimeCounters};

/// Faults, or frees.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Half {
    pub(super) pages: u64,
    /// Time that they took their CPUs.
    pub(super) ps: u64,
    /// The zone lock in it.
    pub(super) lock: LockTimes,
    /// The lock of the lists for reclaim in it.
    pub(super) lru: LockTimes,
    /// Pages that were allocated on another CPU.
    pub(super) elsewhere: u64,
}

/// Counts of the part that was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) faults: Half,
    pub(super) frees: Half,
    /// Length of the part.
    pub(super) ps: u64,
    /// Time of all CPUs, by cause.
    pub(super) spent: TimeCounters,
}

/// A moment of a run.
struct Moment {
    ps: u64,
    spent: TimeCounters,
}

/// It opens when all processes have ended a round, and closes when all have ended some more.
pub(super) struct Window<'a> {
    machine: &'a VirtualMachine,
    rounds: u32,
    /// Rounds that each process has ended since the last moment.
    ended: Vec<Cell<u32>>,
    opened: RefCell<Option<Moment>>,
    closed: RefCell<Option<Moment>>,
    halves: [RefCell<Half>; 2],
}

impl<'a> Window<'a> {
    pub(super) fn new(machine: &'a VirtualMachine, processes: u32, rounds: u32) -> Self {
        Self {
            machine,
            rounds,
            ended: (0..processes).map(|_| Cell::new(0)).collect(),
            opened: RefCell::default(),
            closed: RefCell::default(),
            halves: Default::default(),
        }
    }

    /// A process has ended a round.
    pub(super) fn round_ends(&self, process: u32) {
        // Others see it: those that have not come so far go first.
        self.machine.take_turn();
        let own = &self.ended[process as usize];
        own.set(own.get() + 1);
        let is_open = self.opened.borrow().is_some();
        let rounds = if is_open { self.rounds } else { 1 };
        if self.is_over() || self.ended.iter().any(|ended| ended.get() < rounds) {
            return;
        }
        let now = Moment {
            ps: self.machine.clock_ps(),
            spent: self.machine.time_counters().unwrap_or_default(),
        };
        let moment = if is_open { &self.closed } else { &self.opened };
        moment.replace(Some(now));
        self.ended.iter().for_each(|ended| ended.set(0));
    }

    /// All has been counted.
    pub(super) fn is_over(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Faults a page in on the running CPU.
    pub(super) fn fault<R>(&self, f: impl FnOnce() -> R) -> R {
        self.count(0, false, f)
    }

    /// Frees a page on the running CPU, which another one may have allocated.
    pub(super) fn free<R>(&self, elsewhere: bool, f: impl FnOnce() -> R) -> R {
        self.count(1, elsewhere, f)
    }

    fn count<R>(&self, half: usize, elsewhere: bool, f: impl FnOnce() -> R) -> R {
        let locks = || {
            let classes = [LockClass::Zone, LockClass::Lru];
            classes.map(|class| self.machine.own_lock_times(class))
        };
        let (began_ps, before) = (self.machine.clock_ps(), locks());
        let result = f();
        if self.opened.borrow().is_some() && !self.is_over() {
            let half = &mut *self.halves[half].borrow_mut();
            half.pages += 1;
            half.ps += self.machine.clock_ps() - began_ps;
            half.elsewhere += u64::from(elsewhere);
            let after = locks();
            half.lock.add(&after[0].since(&before[0]));
            half.lru.add(&after[1].since(&before[1]));
        }
        result
    }

    /// All that was counted; nothing if the window has not closed.
    pub(super) fn counted(self) -> Counted {
        let [faults, frees] = self.halves.map(RefCell::into_inner);
        let moments = self.opened.into_inner().zip(self.closed.into_inner());
        let Some((opened, closed)) = moments else {
            return Counted::default();
        };
        Counted {
            faults,
            frees,
            ps: closed.ps.saturating_sub(opened.ps),
            spent: closed.spent.since(&opened.spent),
        }
    }
}
