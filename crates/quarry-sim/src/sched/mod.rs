//! Tasks that share the CPUs of a virtual machine.
//!
//! # What is modelled
//!
//! * A CPU has a queue of tasks that can run. A task runs until it waits, or leaves the kernel after its slice was found
//!   over or a woken task is to run at once ([`Scheduler::leave_kernel`]). In the kernel no task is switched away from: servers
//!   run kernels without preemption.
//! * Where and when a woken task runs is [`SchedRules`].
//! * A switch costs [`Work::Switch`], which counts as time of the task that it leads to. An idle CPU that another one lets
//!   run a task pays [`Work::RemoteWake`] first: the interrupt and the exit from idle.
//! * A task that has waited longest moves to an idle CPU, or one with two tasks less, when its own CPU's tick finds that.
//! * A CPU that has nothing to do takes a task that waits elsewhere, nearest CPUs first, if its caches have forgotten the
//!   task, which takes 0.5 ms. From 2.6.32 on it does so only if it idles for longer than that in the mean.
//!
//! # Assumed
//!
//! * The queues' own memory costs nothing more: the published times of switches and wake-ups include it.
//! * Tasks begin on the CPUs with the fewest tasks; a seed chooses among equal ones.
//!
//! With clocks, what happens is in the order of time; under [`VirtualMachine::explore`]'s order a seed says which CPU goes
//! on, and slices and sleeps end at once.

mod deadline;
mod fair;
mod place;
mod rules;
mod state;
#[cfg(test)]
mod tests;

pub use rules::{Fair, SchedRules, WakeOrder, WakePlace};

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;

use quarry_core::machine::{Accounting as _, CpuId, Cpus as _, Work};

use crate::explore::{Explore, Explored};
use crate::machine::VirtualMachine;
use crate::rng::Rng;
use crate::time::{Bodies, Deadlock, Next, Order};
use deadline::START_PS;
use state::{Arrival, HOT_NS, RunQueue, State, Task};

/// A task, by the order in which it was given.
pub type TaskId = u32;

/// Waiting tasks that a deadlock names.
const NAMED_MAX: usize = 8;

/// Counts of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedCounts {
    /// Switches from one task to another, or from idle.
    pub switches: u64,
    /// Wake-ups of tasks that waited.
    pub wakeups: u64,
    /// Wake-ups that ended another CPU's idling.
    pub remote_wakeups: u64,
    /// Tasks that ran on another CPU than before.
    pub migrations: u64,
}

/// Shares a machine's CPUs among tasks.
pub struct Scheduler<'m> {
    machine: &'m VirtualMachine,
    rules: SchedRules,
    fair: Fair,
    /// Slice of [`WakeOrder::Deadline`].
    slice_ps: u64,
    /// CPUs that share a last-level cache.
    cluster: u32,
    cpus: Vec<RunQueue>,
    tasks: Vec<Task>,
    counts: Cell<SchedCounts>,
    stopped: Cell<bool>,
}

impl<'m> Scheduler<'m> {
    /// A scheduler of n tasks, which all can run.
    #[must_use]
    pub fn new(machine: &'m VirtualMachine, rules: SchedRules, tasks: u32, seed: u64) -> Self {
        let cpus = machine.topology().cpus;
        let queue = |_| RunQueue {
            running: Cell::new(None),
            queue: RefCell::default(),
            delayed: RefCell::default(),
            sleeping: RefCell::default(),
            expects: Cell::new(false),
            resched: Cell::new(false),
            arrival: Cell::new(Arrival::Switch),
            slice_began_ps: Cell::new(0),
            counted_ps: Cell::new(0),
            least_ps: Cell::new(START_PS),
            ticked_ps: Cell::new(0),
            idle_since_ps: Cell::new(0),
            idles_ps: Cell::new(2 * HOT_NS * 1000),
        };
        let slice_ps = rules.slice_ns * Fair::factor(cpus) * 1000;
        let mut rng = Rng::new(seed);
        let mut deal: Vec<u32> = Vec::new();
        let place = |_| {
            if deal.is_empty() {
                deal = (0..cpus).collect();
            }
            let chosen = rng.below(deal.len() as u64) as usize;
            Task {
                state: Cell::new(State::Ready),
                cpu: Cell::new(deal.swap_remove(chosen)),
                pinned: Cell::new(false),
                queued_ps: Cell::new(0),
                had_ps: Cell::new(START_PS),
                deadline_ps: Cell::new(START_PS + slice_ps),
                lag_ps: Cell::new(0),
                delayed: Cell::new(false),
                wakes: Cell::default(),
                slice_ran_ps: Cell::new(0),
            }
        };
        let it = Self {
            machine,
            rules,
            fair: Fair::of_cpus(cpus),
            slice_ps,
            cluster: machine.cluster_cpus(),
            tasks: (0..tasks).map(place).collect(),
            cpus: (0..cpus).map(queue).collect(),
            counts: Cell::default(),
            stopped: Cell::new(false),
        };
        for (task, on) in it.tasks.iter().enumerate() {
            let queue = &it.cpus[on.cpu.get() as usize].queue;
            queue.borrow_mut().push_back(task as u32);
        }
        it
    }

    /// A task that has not begun runs on this CPU and no other one.
    ///
    /// # Panics
    ///
    /// If there is no such task or CPU.
    pub fn pin(&self, task: TaskId, cpu: CpuId) {
        let it = &self.tasks[task as usize];
        let from = &self.cpus[it.cpu.replace(cpu.0) as usize];
        from.queue.borrow_mut().retain(|other| *other != task);
        self.cpus[cpu.0 as usize]
            .queue
            .borrow_mut()
            .push_front(task);
        it.pinned.set(true);
    }

    /// Runs a body for each task, side by side in simulated time, until all have returned or one calls
    /// [`Scheduler::stop`]. Clocks go on from where they are.
    ///
    /// # Errors
    ///
    /// [`Deadlock`] if all tasks that have not returned wait.
    ///
    /// # Panics
    ///
    /// If there are not as many bodies as tasks, the machine has no clocks, a body panics, or CPUs run already.
    pub fn run<'a>(&'a self, bodies: Vec<Box<dyn FnOnce() + 'a>>) -> Result<(), Deadlock> {
        let bodies = self.wrapped(bodies);
        self.machine.run_tasks(|order| self.run_all(order, bodies))
    }

    /// The same while a seed says which CPU goes on: [`Explore::tasks`] are the machine's CPUs, which stay what they are.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::run`].
    ///
    /// # Panics
    ///
    /// As [`Scheduler::run`].
    pub fn explore<'a>(
        &'a self,
        seed: u64,
        switch_per_mille: u16,
        bodies: Vec<Box<dyn FnOnce() + 'a>>,
    ) -> Result<Explored, Deadlock> {
        let how = Explore {
            seed,
            tasks: self.cpus.len() as u32,
            switch_per_mille,
            move_per_mille: 0,
        };
        let bodies = self.wrapped(bodies);
        self.machine
            .explore_tasks(&how, |order| self.run_all(order, bodies))
    }

    /// The running task.
    ///
    /// # Panics
    ///
    /// Outside of all tasks.
    #[must_use]
    pub fn task(&self) -> TaskId {
        self.own().running.get().expect("a task runs")
    }

    /// The running task waits until another one wakes it. `what` says for what, in case that this never happens.
    pub fn wait(&self, what: &'static str) {
        let task = self.task();
        self.tasks[task as usize].state.set(State::Waits(what));
        self.leave();
    }

    /// Lets a task run that waits. `false` if it does not wait.
    ///
    /// # Panics
    ///
    /// If there is no such task.
    pub fn wake(&self, task: TaskId) -> bool {
        self.machine.take_turn_among_tasks();
        let woken = &self.tasks[task as usize];
        if !matches!(woken.state.get(), State::Waits(_)) {
            return false;
        }
        woken.state.set(State::Ready);
        self.count(|counts| counts.wakeups += 1);
        let before = woken.cpu.get();
        if woken.delayed.get() {
            let queue = &self.cpus[before as usize];
            self.end_delay(task, queue, before);
            self.enqueue(before, task, false);
            queue
                .resched
                .set(queue.resched.get() || self.preempts(task, queue));
            return true;
        }
        let cpu = match woken.pinned.get() {
            true => before,
            false => self.place(task, before),
        };
        self.compare_with(task, before, cpu, true);
        self.move_to(task, cpu);
        let queue = &self.cpus[cpu as usize];
        if queue.is_idle() {
            self.start(cpu, task);
            return true;
        }
        let first = self.rules.order == WakeOrder::Immediate && !self.ends_slice(task);
        self.enqueue(cpu, task, first);
        let at_once = match self.rules.order {
            WakeOrder::Immediate => first,
            WakeOrder::Queued => false,
            WakeOrder::Fair => self.has_had_less(task, queue),
            WakeOrder::Deadline => self.preempts(task, queue),
        };
        queue.resched.set(queue.resched.get() || at_once);
        true
    }

    /// The running task leaves the kernel: others may run first.
    pub fn leave_kernel(&self) {
        let queue = self.own();
        let now_ps = self.machine.clock_ps();
        self.wake_sleepers(now_ps);
        let tick_ps = self.rules.tick_ns * 1000;
        let ticks = now_ps / tick_ps > queue.ticked_ps.replace(now_ps) / tick_ps;
        if ticks {
            self.balance();
        }
        if queue.queue.borrow().is_empty() {
            queue.resched.set(false);
            return;
        }
        let is_over = || now_ps - queue.slice_began_ps.get() >= self.slice_ps(queue);
        let over = match self.rules.order {
            WakeOrder::Immediate => {
                self.count_time(queue, now_ps);
                self.ends_slice(self.task())
            }
            WakeOrder::Queued => is_over(),
            WakeOrder::Fair => ticks && is_over(),
            WakeOrder::Deadline => {
                if ticks {
                    self.count_time(queue, now_ps);
                }
                false
            }
        };
        let at_once = queue.resched.take();
        if at_once && !over && self.rules.order == WakeOrder::Immediate {
            // The one that was woken is first; the running one is next.
            let task = self.task();
            let next = queue.queue.borrow_mut().pop_front();
            self.requeue(task, true);
            self.leave_for(next);
        } else if at_once || over {
            self.give_up_cpu();
        }
    }

    /// The running task goes behind all that wait for its CPU.
    pub fn give_up_cpu(&self) {
        if self.own().queue.borrow().is_empty() {
            return;
        }
        self.requeue(self.task(), false);
        self.leave();
    }

    /// The running task sleeps for a time. Where a seed says who goes on, it lets others run.
    pub fn sleep_ns(&self, ns: u64) {
        let task = self.task();
        let until_ps = self
            .machine
            .clock_ps()
            .saturating_add(ns.saturating_mul(1000));
        let until_ps = if self.machine.has_time() { until_ps } else { 0 };
        self.tasks[task as usize]
            .state
            .set(State::Waits("its sleep"));
        self.own()
            .sleeping
            .borrow_mut()
            .push(Reverse((until_ps, task)));
        self.leave();
    }

    /// Ends the run: tasks that have not returned are unwound. Takes effect when the running task waits or returns.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> SchedCounts {
        self.counts.get()
    }

    fn count(&self, change: impl FnOnce(&mut SchedCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// The running CPU's queue.
    fn own(&self) -> &RunQueue {
        &self.cpus[self.machine.current_cpu().0 as usize]
    }

    fn wrapped<'a>(&'a self, bodies: Vec<Box<dyn FnOnce() + 'a>>) -> Vec<Box<dyn FnOnce() + 'a>> {
        assert_eq!(bodies.len(), self.tasks.len(), "a body for each task");
        let wrap = |body: Box<dyn FnOnce() + 'a>| -> Box<dyn FnOnce() + 'a> {
            Box::new(move || {
                self.machine.arrive_on_cpu();
                self.arrived();
                body();
                self.tasks[self.task() as usize].state.set(State::Ended);
            })
        };
        bodies.into_iter().map(wrap).collect()
    }

    fn run_all<'a>(
        &self,
        order: &Order,
        bodies: Vec<Box<dyn FnOnce() + 'a>>,
    ) -> Result<(), Deadlock> {
        order.run_bodies(bodies, || self.first(order), self)
    }

    /// CPUs begin with the first tasks of their queues.
    fn first(&self, order: &Order) {
        for (cpu, queue) in self.cpus.iter().enumerate() {
            let first = queue.queue.borrow_mut().pop_front();
            queue.running.set(first);
            if let Some(task) = first {
                order.begin(cpu as u32, task as usize, 0);
            }
        }
    }

    fn move_to(&self, task: TaskId, cpu: u32) {
        let before = self.tasks[task as usize].cpu.replace(cpu);
        if before != cpu {
            self.count(|counts| counts.migrations += 1);
        }
    }

    fn enqueue(&self, cpu: u32, task: TaskId, first: bool) {
        self.tasks[task as usize]
            .queued_ps
            .set(self.machine.clock_ps());
        let mut queue = self.cpus[cpu as usize].queue.borrow_mut();
        match first {
            true => queue.push_front(task),
            false => queue.push_back(task),
        }
    }

    /// The running task is to go on later.
    fn requeue(&self, task: TaskId, first: bool) {
        self.enqueue(self.machine.current_cpu().0, task, first);
    }

    /// An idle CPU begins with a task.
    fn start(&self, cpu: u32, task: TaskId) {
        let queue = &self.cpus[cpu as usize];
        let now_ps = self.machine.clock_ps();
        queue.arrival.set(Arrival::Woken);
        self.count(|counts| counts.remote_wakeups += 1);
        queue.running.set(Some(task));
        queue.ends_idling(now_ps);
        self.machine.on_order(|order| {
            if queue.expects.take() {
                order.retract(cpu);
            }
            order.begin(cpu, task as usize, now_ps);
        });
    }

    /// Sleeping tasks of the running CPU that are due can run.
    fn wake_sleepers(&self, now_ps: u64) {
        let queue = self.own();
        loop {
            let first = queue.sleeping.borrow().peek().copied();
            let due = first.filter(|Reverse((until_ps, _))| *until_ps <= now_ps);
            let Some(Reverse((_, task))) = due else { break };
            queue.sleeping.borrow_mut().pop();
            self.tasks[task as usize].state.set(State::Ready);
            if self.rules.order == WakeOrder::Deadline {
                self.ends_sleep(task, queue, self.machine.current_cpu().0);
            }
            self.requeue(task, false);
        }
    }

    /// The running CPU goes on with another task, or idles. Returns when the caller's task runs again.
    fn leave(&self) {
        let now_ps = self.machine.clock_ps();
        self.wake_sleepers(now_ps);
        let queue = self.own();
        self.count_time(queue, now_ps);
        if let (WakeOrder::Deadline, Some(task)) = (self.rules.order, queue.running.get())
            && matches!(self.tasks[task as usize].state.get(), State::Waits(_))
        {
            self.begins_to_wait(task, queue);
        }
        let next = self.take_or_pull(self.machine.current_cpu().0, now_ps);
        self.leave_for(next);
    }

    fn leave_for(&self, next: Option<TaskId>) {
        let (queue, cpu) = (self.own(), self.machine.current_cpu().0);
        if next == queue.running.get() {
            return;
        }
        let next = self.turn_to(cpu, next);
        self.machine.leave_task(next);
        self.arrived();
    }

    /// A CPU goes on with a task, or has nothing to do until a sleeping one is due or another CPU wakes one.
    fn turn_to(&self, cpu: u32, task: Option<TaskId>) -> Next {
        let queue = &self.cpus[cpu as usize];
        queue.running.set(task);
        queue.arrival.set(Arrival::Switch);
        if let Some(task) = task {
            return Next::Body(task as usize);
        }
        queue.idle_since_ps.set(self.machine.clock_ps());
        let first = queue.sleeping.borrow().peek().copied();
        queue.expects.set(first.is_some());
        first.map_or(Next::Nothing, |Reverse((until_ps, task))| {
            Next::At(until_ps, task as usize)
        })
    }

    /// The running CPU has come to a task.
    fn arrived(&self) {
        let queue = self.own();
        if queue.expects.take() {
            // It slept, and is the first that is due.
            let mut sleeping = queue.sleeping.borrow_mut();
            let task = sleeping.pop().map(|Reverse((_, task))| task);
            drop(sleeping);
            if let Some(task) = task {
                self.tasks[task as usize].state.set(State::Ready);
                queue.running.set(Some(task));
                queue.ends_idling(self.machine.clock_ps());
            }
        }
        self.count(|counts| counts.switches += 1);
        if queue.arrival.replace(Arrival::Switch) == Arrival::Woken {
            self.machine.work(Work::RemoteWake);
        }
        // A switch is counted to the task that it leads to.
        let now_ps = self.machine.clock_ps();
        self.machine.work(Work::Switch);
        queue.slice_began_ps.set(now_ps);
        queue.counted_ps.set(now_ps);
        queue.resched.set(false);
    }
}

impl Bodies for Scheduler<'_> {
    fn returned(&self, order: &Order) -> Next {
        let cpu = order.cpu();
        let queue = &self.cpus[cpu as usize];
        self.count_time(queue, order.now_ps());
        let next = self.take_or_pull(cpu, order.now_ps());
        self.turn_to(cpu, next)
    }

    fn deadlock(&self, _: &Order) -> Deadlock {
        let waits = |(task, it): (usize, &Task)| match it.state.get() {
            State::Waits(what) => Some((task as u32, what)),
            State::Ready | State::Ended => None,
        };
        let waiting = self.tasks.iter().enumerate().filter_map(waits);
        Deadlock {
            who: "task",
            waiting: waiting.take(NAMED_MAX).collect(),
        }
    }

    fn is_over(&self) -> bool {
        self.stopped.get()
    }
}
