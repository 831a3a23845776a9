//! State of tasks, and of the queues of CPUs.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::TaskId;

/// Nanoseconds for which a task's data is taken to be in its CPU's caches (`sched_migration_cost`). From memory.
pub(super) const HOT_NS: u64 = 500_000;

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs or can run.
    Ready,
    /// It waits for this.
    Waits(&'static str),
    Ended,
}

pub(super) struct Task {
    pub(super) state: Cell<State>,
    pub(super) cpu: Cell<u32>,
    /// The task stays there.
    pub(super) pinned: Cell<bool>,
    /// When it was put into a queue.
    pub(super) queued_ps: Cell<u64>,
    /// Time that it has had, as its CPU counts: its virtual run time.
    pub(super) had_ps: Cell<u64>,
    /// Virtual run time at which its slice ends ([`super::WakeOrder::Deadline`]).
    pub(super) deadline_ps: Cell<u64>,
    /// By how much less than the others of its CPU it had had when it began to wait ([`super::WakeOrder::Deadline`]).
    pub(super) lag_ps: Cell<i64>,
    /// It waits, but still counts on its CPU, because it had had more than its share.
    pub(super) delayed: Cell<bool>,
    /// The task that it woke last, and how often that was another one than before.
    pub(super) wakes: Cell<Wakes>,
    /// Time that it has run since its slice began.
    pub(super) slice_ran_ps: Cell<u64>,
}

/// Tasks that a task wakes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wakes {
    pub(super) last: Option<TaskId>,
    /// Changes of the last one; half of them are forgotten each second.
    pub(super) changes: u64,
    /// Until when none of them is forgotten.
    pub(super) until_ps: u64,
}

/// Way in which a CPU comes to its next task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// From another task, or from idle by itself.
    Switch,
    /// Another CPU woke it from idle.
    Woken,
}

pub(super) struct RunQueue {
    pub(super) running: Cell<Option<TaskId>>,
    pub(super) queue: RefCell<VecDeque<TaskId>>,
    /// Tasks that wait and still count here ([`Task::delayed`]).
    pub(super) delayed: RefCell<Vec<TaskId>>,
    /// Tasks that sleep until a moment.
    pub(super) sleeping: RefCell<BinaryHeap<Reverse<(u64, TaskId)>>>,
    /// The order has it begin with the first of them, when that is due.
    pub(super) expects: Cell<bool>,
    /// A woken task is to run at once.
    pub(super) resched: Cell<bool>,
    pub(super) arrival: Cell<Arrival>,
    pub(super) slice_began_ps: Cell<u64>,
    /// Up to when the running task's time is counted in what it has had.
    pub(super) counted_ps: Cell<u64>,
    /// The least that tasks here have had, never less than before; their mean with [`super::WakeOrder::Deadline`].
    pub(super) least_ps: Cell<u64>,
    /// When it last had a tick.
    pub(super) ticked_ps: Cell<u64>,
    pub(super) idle_since_ps: Cell<u64>,
    /// Mean of how long it idled.
    pub(super) idles_ps: Cell<u64>,
}

impl RunQueue {
    pub(super) fn load(&self) -> usize {
        self.queue.borrow().len() + usize::from(self.running.get().is_some())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.get().is_none()
    }

    /// Counts how long it idled; long times count as twice [`HOT_NS`].
    pub(super) fn ends_idling(&self, now_ps: u64) {
        let most_ps = 2 * HOT_NS * 1000;
        let idled_ps = now_ps.saturating_sub(self.idle_since_ps.get()).min(most_ps);
        let mean_ps = self.idles_ps.get();
        self.idles_ps.set(mean_ps - mean_ps / 8 + idled_ps / 8);
    }
}
