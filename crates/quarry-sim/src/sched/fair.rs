//! Order and slices of tasks.

use super::{RunQueue, Scheduler, TaskId, WakeOrder};

impl Scheduler<'_> {
    /// Time for which the running task of a CPU may run while others wait.
    pub(super) fn slice_ps(&self, queue: &RunQueue) -> u64 {
        let ns = match self.rules.order {
            WakeOrder::Immediate | WakeOrder::Queued => self.rules.slice_ns,
            WakeOrder::Fair => {
                let share = self.fair.latency_ns / queue.load().max(1) as u64;
                share.max(self.fair.slice_min_ns)
            }
            WakeOrder::Deadline => return self.slice_ps,
        };
        ns * 1000
    }

    /// True if a task has used its slice up, in one run or several ([`WakeOrder::Immediate`]). If so it gets a new
    /// one.
    pub(super) fn ends_slice(&self, task: TaskId) -> bool {
        let ran = &self.tasks[task as usize].slice_ran_ps;
        let ends = ran.get() >= self.rules.slice_ns * 1000;
        if ends {
            ran.set(0);
        }
        ends
    }

    /// Counts the time of a CPU's running task.
    pub(super) fn count_time(&self, queue: &RunQueue, now_ps: u64) {
        let Some(task) = queue.running.get() else {
            return;
        };
        let ran_ps = now_ps.saturating_sub(queue.counted_ps.get());
        queue.counted_ps.set(now_ps.max(queue.counted_ps.get()));
        let it = &self.tasks[task as usize];
        it.slice_ran_ps.set(it.slice_ran_ps.get() + ran_ps);
        let had = &it.had_ps;
        had.set(had.get() + ran_ps);
        if self.rules.order == WakeOrder::Deadline {
            let is_over = self.renew_slice(task) && !queue.queue.borrow().is_empty();
            queue.resched.set(queue.resched.get() || is_over);
            return;
        }
        let waiting = queue.queue.borrow();
        let all = waiting
            .iter()
            .map(|task| self.tasks[*task as usize].had_ps.get());
        let least_ps = all.fold(had.get(), u64::min);
        queue.least_ps.set(queue.least_ps.get().max(least_ps));
    }

    /// True if a woken task has had less than the running one, by more than the granularity.
    pub(super) fn has_had_less(&self, task: TaskId, queue: &RunQueue) -> bool {
        let Some(running) = queue.running.get() else {
            return true;
        };
        self.count_time(queue, self.machine.clock_ps());
        let had = |task: TaskId| self.tasks[task as usize].had_ps.get();
        had(running) > had(task) + self.fair.wake_up_ns * 1000
    }

    /// A task that can run comes to a CPU, from another one or from a wait: what it has had is compared with the others
    /// there. A wait gives it half of a latency before them at most.
    pub(super) fn compare_with(&self, task: TaskId, from: u32, to: u32, waited: bool) {
        if self.rules.order == WakeOrder::Deadline {
            return match waited {
                true => self.place_by_lag(task, to),
                false => self.carry(task, from, to),
            };
        }
        let had = &self.tasks[task as usize].had_ps;
        let least_ps = |cpu: u32| self.cpus[cpu as usize].least_ps.get();
        if from != to {
            had.set((had.get() + least_ps(to)).saturating_sub(least_ps(from)));
        }
        if waited {
            let first_ps = least_ps(to).saturating_sub(self.fair.latency_ns * 1000 / 2);
            had.set(had.get().max(first_ps));
        }
    }

    /// Takes the next task from a queue.
    pub(super) fn take_next(&self, queue: &RunQueue) -> Option<TaskId> {
        match self.rules.order {
            WakeOrder::Immediate | WakeOrder::Queued => {
                return queue.queue.borrow_mut().pop_front();
            }
            WakeOrder::Deadline => return self.take_by_deadline(queue),
            WakeOrder::Fair => {}
        }
        let mut waiting = queue.queue.borrow_mut();
        let had = |task: TaskId| self.tasks[task as usize].had_ps.get();
        let first = waiting
            .iter()
            .enumerate()
            .min_by_key(|(at, task)| (had(**task), *at));
        let at = first.map(|(at, _)| at)?;
        waiting.remove(at)
    }
}
