//! On which CPU a task runs.

use quarry_core::machine::Cpus as _;

use super::{HOT_NS, Scheduler, TaskId, WakePlace};

/// Picoseconds after which half of a task's partners are forgotten.
const FORGETS_PS: u64 = 1_000_000_000_000;

impl Scheduler<'_> {
    /// Counts a wake-up among those of the running task. `true` if it and the woken one have many partners: one of them as many
    /// as a last-level cache has CPUs, the other one as many times that number.
    pub(super) fn is_wide(&self, woken: TaskId) -> bool {
        let Some(waker) = self.own().running.get() else {
            return false;
        };
        let it = &self.tasks[waker as usize].wakes;
        let now_ps = self.machine.clock_ps();
        let mut wakes = it.get();
        if now_ps > wakes.until_ps {
            wakes.changes /= 2;
            wakes.until_ps = now_ps + FORGETS_PS;
        }
        if wakes.last != Some(woken) {
            wakes.last = Some(woken);
            wakes.changes += 1;
        }
        it.set(wakes);
        let other = self.tasks[woken as usize].wakes.get().changes;
        let (more, less) = (wakes.changes.max(other), wakes.changes.min(other));
        let factor = u64::from(self.cluster.min(self.cpus.len() as u32));
        less >= factor && more >= less * factor
    }

    /// CPU for a task that the running one wakes.
    pub(super) fn place(&self, woken: TaskId, previous: u32) -> u32 {
        let is_wide = self.rules.wide && self.is_wide(woken);
        if self.rules.place == WakePlace::Previous || self.cpus[previous as usize].is_idle() {
            return previous;
        }
        let waker = self.machine.current_cpu().0;
        // The waker is about to wait, as a rule.
        let load = |cpu: u32| self.cpus[cpu as usize].load();
        let place = if !is_wide && load(waker) <= load(previous) + 1 {
            waker
        } else {
            previous
        };
        if self.rules.place == WakePlace::Affine {
            return place;
        }
        let first = place - place % self.cluster;
        let near = (0..self.cluster).map(|n| first + (place - first + n) % self.cluster);
        let mut near = near.filter(|cpu| (*cpu as usize) < self.cpus.len());
        near.find(|cpu| self.cpus[*cpu as usize].is_idle())
            .unwrap_or(place)
    }

    /// The next task of a CPU: its own, or one that waits elsewhere.
    pub(super) fn take_or_pull(&self, cpu: u32, now_ps: u64) -> Option<TaskId> {
        let own = self.take_next(&self.cpus[cpu as usize]);
        own.or_else(|| self.pull(cpu, now_ps))
    }

    /// Takes a task for a CPU that has none, from a CPU of the same last-level cache or else from another one.
    fn pull(&self, cpu: u32, now_ps: u64) -> Option<TaskId> {
        let queue = &self.cpus[cpu as usize];
        let is_short = queue.idles_ps.get() < HOT_NS * 1000;
        if is_short && self.rules.pulls_after_long_idling {
            return None;
        }
        let cpus = 0..self.cpus.len() as u32;
        let near = |other: &u32| other / self.cluster == cpu / self.cluster;
        let near_ones = cpus.clone().filter(near);
        let far_ones = cpus.filter(|other| !near(other));
        let cold = |task: &TaskId| {
            let it = &self.tasks[*task as usize];
            !it.pinned.get() && it.queued_ps.get() + HOT_NS * 1000 <= now_ps
        };
        for other in near_ones.chain(far_ones) {
            let mut waiting = self.cpus[other as usize].queue.borrow_mut();
            let Some(at) = waiting.iter().position(cold) else {
                continue;
            };
            let task = waiting.remove(at)?;
            drop(waiting);
            self.compare_with(task, other, cpu, false);
            self.move_to(task, cpu);
            return Some(task);
        }
        None
    }

    /// Moves the task that has waited longest on the running CPU to one that has less to do.
    pub(super) fn balance(&self) {
        let cpu = self.machine.current_cpu();
        let own = self.own();
        let loads = self.cpus.iter().enumerate();
        let least = loads
            .filter(|(other, _)| *other != cpu.0 as usize)
            .min_by_key(|(_, queue)| queue.load());
        let Some((to, _)) = least.filter(|(_, least)| own.load() >= least.load() + 2) else {
            return;
        };
        self.machine.take_turn_among_tasks();
        let oldest = {
            let queue = own.queue.borrow();
            let waiting = queue.iter().enumerate();
            let waiting = waiting.filter(|(_, task)| !self.tasks[**task as usize].pinned.get());
            waiting
                .min_by_key(|(_, task)| self.tasks[**task as usize].queued_ps.get())
                .map(|(at, _)| at)
        };
        let Some(task) = oldest.and_then(|at| own.queue.borrow_mut().remove(at)) else {
            return;
        };
        self.compare_with(task, cpu.0, to as u32, false);
        self.move_to(task, to as u32);
        match self.cpus[to].is_idle() {
            true => self.start(to as u32, task),
            false => self.enqueue(to as u32, task, false),
        }
    }
}
