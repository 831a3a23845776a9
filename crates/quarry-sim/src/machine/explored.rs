//! Tasks that run side by side as a seed says.

use std::rc::Rc;

use quarry_core::machine::{CpuId, LockClass, RawLock};

use super::VirtualMachine;
use super::clocked::{Running, address};
use crate::explore::{Explore, Explored, Explorer};
use crate::time::Deadlock;

impl VirtualMachine {
    /// Runs a body as each of n tasks, side by side, until all have returned; a seed says how they take turns
    /// ([`Explore`]). No time passes. A body may go to another CPU ([`VirtualMachine::run_on`]).
    ///
    /// After a deadlock or a panic no lock and no slot is available, as with [`VirtualMachine::run_cpus`].
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// use quarry_core::machine::{Access, Accounting as _, Line};
    /// use quarry_sim::{Config, Explore, VirtualMachine};
    ///
    /// let machine = VirtualMachine::new(Config { cpus: 2, ..Config::default() }).unwrap();
    /// // Two tasks count without a lock. Some seed shows that a count is lost.
    /// let sum = |seed| {
    ///     let count = Cell::new(0);
    ///     let how = Explore { seed, tasks: 2, switch_per_mille: 300, move_per_mille: 0 };
    ///     let explored = machine.explore(&how, |_| {
    ///         let seen = count.get();
    ///         machine.access(count.as_ptr().cast(), 4, Access::Write, Line::Node);
    ///         count.set(seen + 1);
    ///     });
    ///     explored.unwrap();
    ///     count.get()
    /// };
    /// assert!((0..20).any(|seed| sum(seed) == 1));
    /// ```
    ///
    /// # Errors
    ///
    /// [`Deadlock`] if all tasks that have not returned wait.
    ///
    /// # Panics
    ///
    /// If a body panics, or tasks or CPUs run side by side already.
    pub fn explore(&self, how: &Explore, body: impl Fn(u32)) -> Result<Explored, Deadlock> {
        let explorer = Rc::new(Explorer::new(how, self.topology.cpus));
        let mut tasks = Running::begin(self, Some(Rc::clone(&explorer)));
        let ran = explorer.order().run(|task| {
            self.set_task(&explorer);
            body(task);
        });
        tasks.all_ended = ran.is_ok();
        ran.map(|()| explorer.explored())
    }

    /// True if tasks run side by side.
    pub(super) fn is_explored(&self) -> bool {
        self.explorer.borrow().is_some()
    }

    fn set_task(&self, explorer: &Explorer) {
        let (task, cpu) = explorer.running();
        self.set_running(cpu, task);
    }

    /// Does what may let other tasks run, to which this one's locks and guards are nothing.
    fn among_tasks<R>(&self, f: impl FnOnce(&Explorer) -> R) -> R {
        let explorer = self.explorer.borrow().clone().expect("tasks");
        let result = self.interrupt(|| f(&explorer));
        self.set_task(&explorer);
        result
    }

    /// A visible action is due: other tasks may go first.
    pub(super) fn let_tasks_pass(&self) {
        self.among_tasks(Explorer::visible);
    }

    /// The running task waits for another one without a lock.
    pub(super) fn give_way(&self) {
        self.among_tasks(|explorer| explorer.order().give_way());
    }

    /// The running task goes on on a CPU.
    pub(super) fn move_task(&self, cpu: CpuId) {
        if let Some(explorer) = &*self.explorer.borrow() {
            explorer.move_to(cpu);
        }
    }

    /// A lock is to be taken: waits until no other task has it. `false` if none ever can.
    pub(super) fn wait_among_tasks(&self, lock: &RawLock, class: LockClass) -> bool {
        let (_, what) = LockClass::ALL[class as usize];
        let is_free = || lock.owner() == 0;
        self.among_tasks(|explorer| explorer.wait_for(address(lock), what, is_free))
    }

    /// A lock is about to be released.
    pub(super) fn wake_tasks(&self, lock: &RawLock) {
        self.among_tasks(|explorer| explorer.wake(address(lock)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use quarry_core::design::CacheSpec;
    use quarry_core::era::Era;
    use quarry_core::geometry::BootParams;
    use quarry_core::machine::{
        Access, Accounting as _, Cpus as _, Line, Locks as _, Threads as _,
    };
    use quarry_core::slub::Slub;

    use super::*;
    use crate::config::Config;
    use crate::driver;

    fn config(cpus: u32) -> Config {
        Config {
            cpus,
            memory_bytes: 1 << 30,
            ..Config::default()
        }
    }

    fn how(seed: u64) -> Explore {
        Explore {
            seed,
            tasks: 3,
            switch_per_mille: [1000, 300, 100][seed as usize % 3],
            move_per_mille: 0,
        }
    }

    /// Each task adds to a word ten times, by a read and a write, under a lock or not.
    fn sum(seed: u64, locked: bool) -> u32 {
        let machine = VirtualMachine::new(config(2)).unwrap();
        let (lock, word) = (RawLock::new(), Cell::new(0));
        let explored = machine.explore(&how(seed), |_| {
            for _ in 0..10 {
                if locked {
                    machine.lock(&lock, LockClass::NodeList).unwrap();
                }
                let seen = word.get();
                machine.access(word.as_ptr().cast(), 4, Access::Write, Line::Node);
                word.set(seen + 1);
                if locked {
                    // SAFETY: taken above.
                    unsafe { machine.unlock(&lock, LockClass::NodeList) };
                }
            }
        });
        assert!(explored.is_ok());
        word.get()
    }

    #[test]
    fn a_count_is_lost_without_a_lock_and_none_with_it() {
        let lost = (0..100).filter(|&seed| sum(seed, false) < 30).count();
        assert!(lost > 90, "{lost}");
        assert!((0..100).all(|seed| sum(seed, true) == 30));
    }

    #[test]
    fn the_same_seed_gives_the_same_interleaving() {
        let run = |seed: u64| {
            driver::drive::<Slub, _>(config(2), Era::V6_18, BootParams::default(), |driver| {
                let cache = driver.create_cache(&CacheSpec::new("same", 192)).unwrap();
                let how = Explore {
                    move_per_mille: 50,
                    ..how(seed)
                };
                let (trace, machine) = (RefCell::new(Vec::new()), driver.machine());
                let (steps, explored) = machine.record_steps(|| {
                    machine.explore(&how, |task| {
                        for _ in 0..40 {
                            let object = driver.alloc(cache).unwrap();
                            let at = driver.page_of(&object);
                            trace.borrow_mut().push((task, machine.current_cpu(), at));
                            driver.free(cache, object, CpuId(0)).unwrap();
                        }
                    })
                });
                let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
                (steps, explored.unwrap(), trace.into_inner())
            })
            .unwrap()
        };
        let first = run(7);
        assert_eq!(run(7), first);
        assert_ne!(run(8).2, first.2);
        let (_, explored, trace) = first;
        assert!(
            explored.actions > 1000 && explored.switches > 100,
            "{explored:?}"
        );
        let moved = trace.iter().any(|&(task, cpu, _)| cpu.0 != task % 2);
        assert!(moved, "{trace:?}");
    }

    #[test]
    fn locks_that_wait_for_each_other_are_named() {
        let run = |seed| {
            let machine = VirtualMachine::new(config(2)).unwrap();
            let locks = [RawLock::new(), RawLock::new()];
            let how = Explore {
                tasks: 2,
                ..how(seed)
            };
            machine.explore(&how, |task| {
                for n in [task, 1 - task] {
                    // Of one class each: the order of classes is another test's.
                    let class = [LockClass::NodeList, LockClass::Barn][task as usize];
                    machine.held.begin();
                    let _ = machine.lock(&locks[n as usize], class);
                }
                for lock in &locks {
                    // SAFETY: taken above.
                    unsafe { machine.unlock(lock, LockClass::Barn) };
                }
                machine.held.begin();
            })
        };
        let ran: Vec<_> = (0..20).map(run).collect();
        assert!(ran.iter().any(Result::is_ok));
        let error = ran.into_iter().find_map(Result::err).expect("a deadlock");
        assert_eq!(
            error.to_string(),
            "deadlock: task 0 waits for node_list, task 1 waits for barn"
        );
    }

    #[test]
    fn a_wait_in_turns_that_never_ends_is_a_deadlock() {
        let machine = VirtualMachine::new(config(1)).unwrap();
        let ends = Cell::new(false);
        let poll = |done: &dyn Fn() -> bool| {
            while !done() {
                machine.pause(0);
            }
        };
        let explored = machine.explore(&how(1), |task| match task {
            0 => ends.set(true),
            _ => poll(&|| ends.get()),
        });
        assert!(explored.is_ok());
        let error = machine.explore(&how(1), |task| poll(&|| task == 0));
        assert_eq!(
            error.unwrap_err().to_string(),
            "deadlock: task 1 waits for another one, in turns, task 2 waits for another one, in turns"
        );
        // Calls that never ended keep their locks.
        assert!(machine.lock(&RawLock::new(), LockClass::Zone).is_err());
    }

    #[test]
    fn the_order_of_locks_is_each_tasks_own() {
        let run = |seed, wrong: bool| {
            let machine = VirtualMachine::new(config(1)).unwrap();
            let locks: [[RawLock; 2]; 3] = Default::default();
            let explored = machine.explore(&how(seed), |task| {
                let [outer, inner] = &locks[task as usize];
                let mut classes = [LockClass::NodeList, LockClass::Zone];
                if wrong && task == 1 {
                    classes.reverse();
                }
                machine.lock(outer, classes[0]).unwrap();
                machine.lock(inner, classes[1]).unwrap();
                // SAFETY: taken above.
                unsafe { machine.unlock(inner, classes[1]) };
                // SAFETY: this task took the outer lock before the inner one.
                unsafe { machine.unlock(outer, classes[0]) };
            });
            assert!(explored.is_ok());
        };
        (0..20).for_each(|seed| run(seed, false));
        for seed in 0..20 {
            let caught = catch_unwind(AssertUnwindSafe(|| run(seed, true)));
            let text = caught.expect_err("a panic");
            let text = text.downcast_ref::<String>().expect("a message");
            assert_eq!(text, "lock order: NodeList taken while Zone is held");
        }
    }
}
