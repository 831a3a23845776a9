//! Virtual deadlines (EEVDF).
//!
//! A task's virtual run time is what it has had. The mean of all that count on a CPU is what each is due; a task with less is
//! owed time, one with more has had more than its share. A task gets a slice at a time; when it has used it up it gets the
//! next one, which ends that much later in virtual time.
//!
//! A task that waits keeps its distance from the mean, and is put at that distance when it is woken. From 6.12 on a task that has
//! had more than its share goes on to count while it waits, until the others have caught up or it is woken. Then it
//! is woken where it is.
//!
//! All tasks have the same weight and the same slice.

use super::{RunQueue, Scheduler, TaskId};

/// Virtual run times at the beginning: more than any lag.
pub(super) const START_PS: u64 = 1_000_000_000_000;

impl Scheduler<'_> {
    fn had_ps(&self, task: TaskId) -> u64 {
        self.tasks[task as usize].had_ps.get()
    }

    /// Sum of what tasks have had that count on a CPU, and their number.
    fn sum_ps(&self, queue: &RunQueue, running: Option<TaskId>) -> (u128, u128) {
        let (waiting, delayed) = (queue.queue.borrow(), queue.delayed.borrow());
        let all = waiting.iter().chain(delayed.iter()).chain(running.iter());
        all.fold((0, 0), |(sum, n), task| {
            (sum + u128::from(self.had_ps(*task)), n + 1)
        })
    }

    /// Mean of what tasks of a CPU have had: each is due that.
    fn due_ps(&self, queue: &RunQueue, running: Option<TaskId>) -> u64 {
        match self.sum_ps(queue, running) {
            (_, 0) => queue.least_ps.get(),
            (sum, n) => (sum / n) as u64,
        }
    }

    /// Begins the next slice of a task that has used its slice up. `true` if it has.
    pub(super) fn renew_slice(&self, task: TaskId) -> bool {
        let it = &self.tasks[task as usize];
        let had_ps = it.had_ps.get();
        let over = had_ps >= it.deadline_ps.get();
        if over {
            it.deadline_ps.set(had_ps + self.slice_ps);
        }
        over
    }

    /// A CPU's running task begins to wait.
    pub(super) fn begins_to_wait(&self, task: TaskId, queue: &RunQueue) {
        let it = &self.tasks[task as usize];
        let due_ps = self.due_ps(queue, Some(task));
        queue.least_ps.set(due_ps);
        let lag_ps = due_ps as i64 - it.had_ps.get() as i64;
        it.lag_ps.set(self.clamped(lag_ps));
        if lag_ps < 0 && self.rules.delays {
            it.delayed.set(true);
            queue.delayed.borrow_mut().push(task);
        }
    }

    /// A lag is two slices or a tick at most.
    fn clamped(&self, lag_ps: i64) -> i64 {
        let most_ps = (2 * self.slice_ps).max(self.rules.tick_ns * 1000) as i64;
        lag_ps.clamp(-most_ps, most_ps)
    }

    /// Puts a task that is to run on a CPU at its distance from the others there, with a new slice.
    pub(super) fn place_by_lag(&self, task: TaskId, cpu: u32) {
        let slice_ps = self.slice_ps;
        self.place_at(task, cpu, slice_ps);
    }

    fn place_at(&self, task: TaskId, cpu: u32, slice_ps: u64) {
        let queue = &self.cpus[cpu as usize];
        let running = queue.running.get();
        if running.is_some() {
            self.count_time(queue, self.machine.clock_ps());
        }
        let (_, n) = self.sum_ps(queue, running);
        let due_ps = self.due_ps(queue, running);
        let it = &self.tasks[task as usize];
        let lag_ps = match n as i64 {
            0 => 0,
            // Its own coming moves the mean.
            n => it.lag_ps.get() * (n + 1) / n,
        };
        it.had_ps.set(due_ps.saturating_add_signed(-lag_ps));
        it.deadline_ps.set(it.had_ps.get() + slice_ps);
    }

    /// A task that can run goes to another CPU: its distance from the others, and what is left of its slice, go with it.
    pub(super) fn carry(&self, task: TaskId, from: u32, to: u32) {
        let queue = &self.cpus[from as usize];
        let it = &self.tasks[task as usize];
        let had_ps = it.had_ps.get();
        // It has left its queue, but counted there.
        let (sum, n) = self.sum_ps(queue, queue.running.get());
        let due_ps = (sum + u128::from(had_ps)) / (n + 1);
        it.lag_ps.set(self.clamped(due_ps as i64 - had_ps as i64));
        let left_ps = it.deadline_ps.get().saturating_sub(had_ps);
        self.place_at(task, to, left_ps);
    }

    /// A task that slept can run again on its CPU.
    pub(super) fn ends_sleep(&self, task: TaskId, queue: &RunQueue, cpu: u32) {
        match self.tasks[task as usize].delayed.get() {
            true => self.end_delay(task, queue, cpu),
            false => self.place_by_lag(task, cpu),
        }
    }

    /// A task is woken that has gone on to count on its CPU: it can run there. One that was caught up with gets a new slice.
    pub(super) fn end_delay(&self, task: TaskId, queue: &RunQueue, cpu: u32) {
        self.count_time(queue, self.machine.clock_ps());
        let it = &self.tasks[task as usize];
        let due_ps = self.due_ps(queue, queue.running.get());
        self.forget_delayed(task, queue);
        if it.had_ps.get() < due_ps {
            it.lag_ps.set(0);
            self.place_by_lag(task, cpu);
        }
    }

    fn forget_delayed(&self, task: TaskId, queue: &RunQueue) {
        queue.delayed.borrow_mut().retain(|other| *other != task);
        self.tasks[task as usize].delayed.set(false);
    }

    /// True if a task that was just put into a CPU's queue runs there at once: the running one has had more than its share,
    /// and no other task goes before it.
    pub(super) fn preempts(&self, task: TaskId, queue: &RunQueue) -> bool {
        let Some(running) = queue.running.get() else {
            return true;
        };
        let (sum, n) = self.sum_ps(queue, Some(running));
        if u128::from(self.had_ps(running)) * n <= sum {
            return false;
        }
        self.first_owed(queue, (sum, n)) == Some(task)
    }

    /// The task whose slice ends first, of those that have not had more than their share.
    fn first_owed(&self, queue: &RunQueue, (sum, n): (u128, u128)) -> Option<TaskId> {
        let (waiting, delayed) = (queue.queue.borrow(), queue.delayed.borrow());
        let all = waiting.iter().chain(delayed.iter());
        let owed = all.filter(|task| u128::from(self.had_ps(**task)) * n <= sum);
        owed.min_by_key(|task| self.tasks[**task as usize].deadline_ps.get())
            .copied()
    }

    /// Takes the next task from a queue whose CPU has none. Tasks that count while they wait stop to do so when it would be
    /// their turn.
    pub(super) fn take_by_deadline(&self, queue: &RunQueue) -> Option<TaskId> {
        loop {
            let sums = self.sum_ps(queue, None);
            if let Some(due_ps) = sums.0.checked_div(sums.1) {
                queue.least_ps.set(due_ps as u64);
            }
            let first = self.first_owed(queue, sums)?;
            let it = &self.tasks[first as usize];
            if it.delayed.get() {
                self.forget_delayed(first, queue);
                it.lag_ps.set(0);
                continue;
            }
            let mut waiting = queue.queue.borrow_mut();
            let at = waiting.iter().position(|task| *task == first)?;
            return waiting.remove(at);
        }
    }
}
