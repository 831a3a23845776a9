//! Interleavings that a seed chooses.
//!
//! Tasks run side by side on coroutines, as CPUs with clocks do, but no time passes. At every visible action (a step
//! of [`Step`](crate::Step) that is no work) a seed decides whether another task that can run goes on, and which one.
//! So a task may be switched away from wherever it is: with a slot or a lock held, between the look at a word and its
//! change. Other tasks then find the slot held, or wait for the lock.
//!
//! # The choice
//!
//! In `switch_per_mille` of 1000 visible actions another task goes on, and each that can run is as likely. There
//! are no priorities. A defect that needs one switch among n actions is found with about the same probability (one
//! n-th, over the number of tasks) as by priorities with a change point if switches are as rare as one in n actions,
//! and n need not be known. Defects that need a number of switches close together are found where they are frequent. So a
//! test draws `switch_per_mille` anew for each run, from rare to always.
//!
//! # Tasks and CPUs
//!
//! Tasks are dealt to the CPUs. Tasks of one CPU are what preemption lets run in each other's middle: one finds the
//! slot of its own CPU held. In `move_per_mille` of 1000 visible actions a task goes on on another CPU, as threads of
//! a process do: [`Cpus::current_cpu`](quarry_core::machine::Cpus::current_cpu) may have changed when its answer is used.
//!
//! # Waits
//!
//! A task that waits for a lock runs no more until that is released; then all that wait for it can run, and the seed
//! chooses which one gets it. One that waits in turns ([`Threads::pause`](quarry_core::machine::Threads::pause)) lets
//! any other go first. If all that can run do nothing else for long, they wait for ever.

use std::cell::{Cell, RefCell};

use quarry_core::machine::CpuId;

use crate::rng::Rng;
use crate::time::Order;

/// Parameters of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explore {
    /// Decides all that is left to chance: the same seed gives the same interleaving.
    pub seed: u64,
    /// Tasks; task n begins on CPU n, counted round.
    pub tasks: u32,
    /// Visible actions, of 1000, before which another task goes on.
    pub switch_per_mille: u16,
    /// Visible actions, of 1000, before which the task moves to another CPU.
    pub move_per_mille: u16,
}

/// Counts of an exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Visible actions.
    pub actions: u64,
    /// Number of times that another task went on than the one before.
    pub switches: u64,
}

/// The tasks of a machine.
pub(crate) struct Explorer {
    order: Order,
    /// On which CPU each task runs.
    cpus: Vec<Cell<CpuId>>,
    machine_cpus: u32,
    moves: RefCell<Rng>,
    move_per_mille: u16,
    /// Addresses of locks with a task that waits for each.
    waiting: RefCell<Vec<(usize, u32)>>,
}

impl Explorer {
    pub(crate) fn new(how: &Explore, machine_cpus: u32) -> Self {
        let place = |task| Cell::new(CpuId(task % machine_cpus));
        Self {
            order: Order::by_seed(how.tasks, how.seed, how.switch_per_mille),
            cpus: (0..how.tasks).map(place).collect(),
            machine_cpus,
            // Another stream than that of the order.
            moves: RefCell::new(Rng::new(!how.seed)),
            move_per_mille: how.move_per_mille,
            waiting: RefCell::default(),
        }
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// The running task, and its CPU.
    pub(crate) fn running(&self) -> (u32, CpuId) {
        let task = self.order.cpu();
        (task, self.cpus[task as usize].get())
    }

    /// The running task goes on on a CPU.
    pub(crate) fn move_to(&self, cpu: CpuId) {
        self.cpus[self.order.cpu() as usize].set(cpu);
    }

    pub(crate) fn explored(&self) -> Explored {
        let (actions, switches) = self.order.counts();
        Explored { actions, switches }
    }

    /// A visible action of the running task is due: others may go first.
    pub(crate) fn visible(&self) {
        self.order.visible();
        let mut moves = self.moves.borrow_mut();
        if moves.chance(self.move_per_mille) {
            self.move_to(CpuId(moves.below(self.machine_cpus.into()) as u32));
        }
    }

    /// Waits until a lock is free, which is then the running task's to take. `false` if that never happens.
    pub(crate) fn wait_for(
        &self,
        at: usize,
        what: &'static str,
        is_free: impl Fn() -> bool,
    ) -> bool {
        while !is_free() {
            if self.order.is_ending() {
                return false;
            }
            self.waiting.borrow_mut().push((at, self.order.cpu()));
            self.order.block(what);
        }
        true
    }

    /// A lock is about to be released: those that wait for it can run.
    pub(crate) fn wake(&self, at: usize) {
        let mut waiting = self.waiting.borrow_mut();
        for (_, task) in waiting.extract_if(.., |&mut (lock, _)| lock == at) {
            self.order.wake(task, 0);
        }
    }
}
