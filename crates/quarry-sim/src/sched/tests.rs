use std::cell::RefCell;
use std::collections::VecDeque;

use quarry_core::machine::{LockClass, Locks as _, RawLock};

use super::state::Wakes;
use super::*;
use crate::config::Config;
use crate::time::tests::MODEL;

/// 2 ns a switch, 2 ns more from idle.
fn machine(cpus: u32) -> VirtualMachine {
    let config = Config {
        cpus,
        time: Some(MODEL),
        memory_bytes: 1 << 26,
        ..Config::default()
    };
    VirtualMachine::new(config).unwrap()
}

const RULES: SchedRules = SchedRules {
    order: WakeOrder::Queued,
    place: WakePlace::Affine,
    slice_ns: 1000,
    tick_ns: 4000,
    pulls_after_long_idling: false,
    wide: false,
    delays: false,
};

type Body<'a> = Box<dyn FnOnce() + 'a>;

/// A queue that one task fills and another one empties.
#[derive(Default)]
struct Pipe {
    items: RefCell<VecDeque<u32>>,
    reader: Cell<Option<TaskId>>,
}

impl Pipe {
    fn put(&self, sched: &Scheduler<'_>, item: u32) {
        self.items.borrow_mut().push_back(item);
        if let Some(reader) = self.reader.take() {
            sched.wake(reader);
        }
        sched.leave_kernel();
    }

    fn get(&self, sched: &Scheduler<'_>) -> u32 {
        loop {
            let item = self.items.borrow_mut().pop_front();
            if let Some(item) = item {
                return item;
            }
            self.reader.set(Some(sched.task()));
            sched.wait("an item");
        }
    }
}

/// Pairs of tasks that ask and answer; returns the order in which items were sent, and the counts.
fn pairs(cpus: u32, pairs: u32, rules: SchedRules) -> (Vec<u32>, SchedCounts) {
    let machine = machine(cpus);
    let sched = Scheduler::new(&machine, rules, 2 * pairs, 1);
    let there: Vec<Pipe> = (0..pairs).map(|_| Pipe::default()).collect();
    let back: Vec<Pipe> = (0..pairs).map(|_| Pipe::default()).collect();
    let sent = RefCell::new(Vec::new());
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for pair in 0..pairs {
        let (there, back) = (&there[pair as usize], &back[pair as usize]);
        let (sched, sent, machine) = (&sched, &sent, &machine);
        bodies.push(Box::new(move || {
            for n in 0..20 {
                machine.spend(10_000);
                sent.borrow_mut().push(2 * pair);
                there.put(sched, n);
                assert_eq!(back.get(sched), n);
            }
        }));
        bodies.push(Box::new(move || {
            for n in 0..20 {
                assert_eq!(there.get(sched), n);
                machine.spend(10_000);
                sent.borrow_mut().push(2 * pair + 1);
                back.put(sched, n);
            }
        }));
    }
    assert_eq!(sched.run(bodies), Ok(()));
    let counts = sched.counts();
    drop(sched);
    (sent.into_inner(), counts)
}

#[test]
fn a_queued_task_waits_for_its_turn_and_an_immediate_one_does_not() {
    let (queued, _) = pairs(1, 2, RULES);
    // All begin in turn; from then on both ask before one answers.
    assert_eq!(queued[4..12], [0, 2, 1, 3, 0, 2, 1, 3]);
    let at_once = SchedRules {
        order: WakeOrder::Immediate,
        ..RULES
    };
    let (immediate, _) = pairs(1, 2, at_once);
    assert_eq!(immediate[..6], [0, 1, 0, 1, 0, 1]);
}

#[test]
fn pairs_whose_tasks_run_at_once_share_a_cpu() {
    let at_once = SchedRules {
        order: WakeOrder::Immediate,
        ..RULES
    };
    // A task runs for 10 ns and waits. Slices of 50 ns end with its fifth or sixth run, also while it waits.
    let short = SchedRules {
        slice_ns: 50,
        ..at_once
    };
    let (sent, _) = pairs(1, 3, short);
    let first = |task| sent.iter().position(|sent| *sent == task).unwrap();
    let last = |task| sent.iter().rposition(|sent| *sent == task).unwrap();
    for (task, other) in [(0, 2), (2, 4), (4, 0)] {
        assert!(first(task) < last(other), "{sent:?}");
    }
    // In slices that do not end the first pair is done before the next one begins.
    let (sent, _) = pairs(1, 3, at_once);
    assert!(sent.is_sorted_by_key(|task| task / 2), "{sent:?}");
}

#[test]
fn a_task_that_has_had_less_goes_first_when_it_is_woken() {
    let machine = machine(1);
    let fair = SchedRules {
        order: WakeOrder::Fair,
        ..RULES
    };
    let sched = Scheduler::new(&machine, fair, 2, 1);
    let pipe = Pipe::default();
    let (got_ps, busy_ps) = (Cell::new(0), Cell::new(0));
    let (it, clock, there) = (&sched, &machine, &pipe);
    let bodies: Vec<Body<'_>> = vec![
        Box::new(|| {
            assert_eq!(there.get(it), 1);
            got_ps.set(clock.clock_ps());
        }),
        Box::new(|| {
            // More than the granularity of 1 ms ahead of the other one.
            clock.spend(3_000_000_000);
            there.put(it, 1);
            busy_ps.set(clock.clock_ps());
        }),
    ];
    assert_eq!(sched.run(bodies), Ok(()));
    assert!(got_ps.get() < busy_ps.get(), "{got_ps:?} {busy_ps:?}");
}

#[test]
fn a_pair_comes_together_on_one_cpu_or_stays_apart() {
    let (_, counts) = pairs(2, 2, RULES);
    assert!(counts.remote_wakeups < 10, "{counts:?}");
    let (_, counts) = pairs(8, 4, RULES);
    assert!(counts.wakeups >= 4 * 39, "{counts:?}");
    // Where tasks stay, each answer wakes an idle CPU.
    let stay = SchedRules {
        place: WakePlace::Previous,
        ..RULES
    };
    let (_, counts) = pairs(8, 4, stay);
    assert!(counts.remote_wakeups > 140, "{counts:?}");
    assert_eq!(counts.migrations, 0);
}

#[test]
fn slices_end() {
    let machine = machine(2);
    let sched = Scheduler::new(&machine, RULES, 3, 1);
    let seen = RefCell::new(Vec::new());
    let body = |task: u32| -> Body<'_> {
        let (sched, machine, seen) = (&sched, &machine, &seen);
        Box::new(move || {
            for _ in 0..if task == 0 { 4 } else { 8 } {
                machine.spend(600_000);
                seen.borrow_mut().push((machine.clock_ps(), task));
                sched.leave_kernel();
            }
        })
    };
    assert_eq!(sched.run((0..3).map(body).collect()), Ok(()));
    let counts = sched.counts();
    // Two tasks take turns on one of the CPUs.
    assert!(counts.switches > 5, "{counts:?}");
}

#[test]
fn a_cpu_without_tasks_takes_a_cold_one() {
    let stays = SchedRules {
        slice_ns: 10_000_000,
        tick_ns: u64::MAX / 1000,
        ..RULES
    };
    // Three tasks on two CPUs: one that ends after this time lets the third one go before the second has ended.
    for (short_ps, expected_ps) in [(600_000_000, 1_600_000_000), (400_000_000, 3_000_000_000)] {
        let machine = machine(2);
        let sched = Scheduler::new(&machine, stays, 3, 1);
        sched.pin(0, CpuId(0));
        sched.pin(1, CpuId(1));
        let end_ps = Cell::new(0);
        let body = |task: u32| -> Body<'_> {
            let (sched, machine, end_ps) = (&sched, &machine, &end_ps);
            let shared = sched.cpus[0].queue.borrow().contains(&2);
            let busy = if shared { 0 } else { 1 };
            Box::new(move || {
                let spent_ps = match task {
                    2 => 1_000_000_000,
                    task if task == busy => 2_000_000_000,
                    _ => short_ps,
                };
                machine.spend(spent_ps);
                sched.leave_kernel();
                if task == 2 {
                    end_ps.set(machine.clock_ps());
                }
            })
        };
        assert_eq!(sched.run((0..3).map(body).collect()), Ok(()));
        let late_ps = end_ps.get() - expected_ps;
        assert!(late_ps < 1_000_000, "{}", end_ps.get());
    }
}

#[test]
fn sleepers_wake_in_time_on_idle_and_busy_cpus() {
    let machine = machine(2);
    let sched = Scheduler::new(&machine, RULES, 2, 1);
    let woken = RefCell::new(Vec::new());
    let body = |task: u32| -> Body<'_> {
        let (sched, machine, woken) = (&sched, &machine, &woken);
        Box::new(move || {
            for _ in 0..3 {
                sched.sleep_ns(100 + u64::from(task));
                woken.borrow_mut().push((machine.clock_ps(), task));
            }
        })
    };
    assert_eq!(sched.run((0..2).map(body).collect()), Ok(()));
    let woken = woken.into_inner();
    assert_eq!(woken[0], (104_000, 0));
    assert!(woken.is_sorted(), "{woken:?}");
}

#[test]
fn a_sleeper_is_no_reason_to_miss_a_wake_up() {
    let machine = machine(2);
    let sched = Scheduler::new(&machine, RULES, 3, 3);
    let pipe = Pipe::default();
    let got_ps = Cell::new(0);
    let (it, clock, there, got) = (&sched, &machine, &pipe, &got_ps);
    let bodies: Vec<Body<'_>> = vec![
        Box::new(move || it.sleep_ns(1_000_000)),
        Box::new(move || {
            clock.spend(50_000);
            there.put(it, 7);
        }),
        Box::new(move || {
            assert_eq!(there.get(it), 7);
            got.set(clock.clock_ps());
        }),
    ];
    assert_eq!(sched.run(bodies), Ok(()));
    assert!(got_ps.get() < 100_000, "{}", got_ps.get());
}

#[test]
fn a_deadlock_names_tasks() {
    let machine = machine(2);
    let sched = Scheduler::new(&machine, RULES, 12, 1);
    let body = |task: u32| -> Body<'_> {
        let sched = &sched;
        Box::new(move || {
            if task > 0 {
                sched.wait("rain");
            }
        })
    };
    let error = sched.run((0..12).map(body).collect()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("deadlock: task 1 waits for rain, task 2"),
        "{error}"
    );
}

#[test]
fn a_stop_unwinds_the_others() {
    let machine = machine(2);
    let sched = Scheduler::new(&machine, RULES, 4, 1);
    let body = |task: u32| -> Body<'_> {
        let sched = &sched;
        Box::new(move || {
            match task {
                2 => sched.stop(),
                _ => sched.wait("the end"),
            };
        })
    };
    assert_eq!(sched.run((0..4).map(body).collect()), Ok(()));
}

#[test]
fn a_stop_unwinds_tasks_that_have_and_want_locks() {
    struct Locked<'a>(&'a VirtualMachine, &'a RawLock, LockClass);
    impl Drop for Locked<'_> {
        fn drop(&mut self) {
            // SAFETY: taken by the task that drops this.
            unsafe { self.0.unlock(self.1, self.2) };
        }
    }
    let stopped_at = |stop_at: u32| {
        let machine = machine(2);
        // More tasks than CPUs, in a number that CPUs do not divide: a task's number says little of its CPU.
        let sched = Scheduler::new(&machine, RULES, 5, 1);
        let locks: Vec<RawLock> = (0..3).map(|_| RawLock::new()).collect();
        let taken = Cell::new(0);
        let body = |task: u32| -> Body<'_> {
            let (machine, sched, locks, taken) = (&machine, &sched, &locks, &taken);
            Box::new(move || {
                for turn in 0..20 {
                    let own = &locks[(task + turn) as usize % 2];
                    machine.lock(own, LockClass::NodeList).unwrap();
                    let own = Locked(machine, own, LockClass::NodeList);
                    machine.lock(&locks[2], LockClass::Zone).unwrap();
                    let zone = Locked(machine, &locks[2], LockClass::Zone);
                    taken.set(taken.get() + 1);
                    if taken.get() == stop_at {
                        sched.stop();
                    }
                    drop(zone);
                    drop(own);
                    sched.leave_kernel();
                    sched.sleep_ns(5);
                }
            })
        };
        assert_eq!(sched.run((0..5).map(body).collect()), Ok(()));
        taken.get()
    };
    for stop_at in 1..100 {
        assert!((stop_at..100).contains(&stopped_at(stop_at)), "{stop_at}");
    }
}

#[test]
fn a_seed_runs_the_same_tasks_without_time() {
    let mut actions = 0;
    for seed in 0..20 {
        let config = Config {
            cpus: 3,
            memory_bytes: 1 << 26,
            ..Config::default()
        };
        let machine = VirtualMachine::new(config).unwrap();
        let sched = Scheduler::new(&machine, RULES, 6, seed);
        let pipes: Vec<Pipe> = (0..3).map(|_| Pipe::default()).collect();
        let body = |task: u32| -> Body<'_> {
            let (sched, pipe) = (&sched, &pipes[task as usize / 2]);
            Box::new(move || {
                for n in 0..10 {
                    match task % 2 {
                        0 => pipe.put(sched, n),
                        _ => assert_eq!(pipe.get(sched), n),
                    }
                    sched.sleep_ns(5);
                }
            })
        };
        let explored = sched.explore(seed, 300, (0..6).map(body).collect());
        actions += explored.unwrap().actions;
    }
    assert!(actions > 20, "{actions}");
}

/// A scheduler of CPU 0 and its tasks with what they have had and where their slices end, in microseconds from the beginning. The first one runs.
fn by_deadline(machine: &VirtualMachine, tasks: &[(u64, u64)], check: impl Fn(&Scheduler<'_>)) {
    let rules = SchedRules {
        order: WakeOrder::Deadline,
        slice_ns: 1_000_000,
        tick_ns: 4_000_000,
        delays: true,
        ..RULES
    };
    let sched = Scheduler::new(machine, rules, tasks.len() as u32, 1);
    for (task, &(had_us, deadline_us)) in tasks.iter().enumerate() {
        let it = &sched.tasks[task];
        it.had_ps.set(START_PS + had_us * 1_000_000);
        it.deadline_ps.set(START_PS + deadline_us * 1_000_000);
        sched.pin(task as u32, CpuId(0));
    }
    let queue = &sched.cpus[0];
    queue.queue.borrow_mut().retain(|task| *task != 0);
    queue.running.set(Some(0));
    check(&sched);
}

#[test]
fn the_first_deadline_of_those_that_are_owed_time_goes_first() {
    // Each is due 250 us: the third has had more, and its slice ends first; the second's ends before the fourth's.
    let tasks = [(250, 900), (150, 1100), (450, 800), (150, 1200)];
    by_deadline(&machine(1), &tasks, |sched| {
        let queue = &sched.cpus[0];
        // The running one has had no more than it is due.
        assert!(!sched.preempts(1, queue));
        sched.tasks[0].had_ps.set(START_PS + 251_000_000);
        assert!(sched.preempts(1, queue));
        assert!(!sched.preempts(2, queue) && !sched.preempts(3, queue));
        assert_eq!(sched.take_by_deadline(queue), Some(1));
    });
}

#[test]
fn a_wait_keeps_what_a_task_is_owed() {
    by_deadline(
        &machine(1),
        &[(100, 1000), (300, 1000), (500, 1000)],
        |sched| {
            let (queue, waits) = (&sched.cpus[0], &sched.tasks[0]);
            sched.begins_to_wait(0, queue);
            queue.running.set(None);
            assert!(!waits.delayed.get());
            assert_eq!(waits.lag_ps.get(), 200_000_000);
            // The others go on; it comes back as far before them, its own coming counted.
            sched.tasks[1].had_ps.set(START_PS + 900_000_000);
            sched.place_by_lag(0, 0);
            let had_us = |task: &Task| (task.had_ps.get() - START_PS) / 1_000_000;
            assert_eq!(had_us(waits), 400);
            assert_eq!(waits.deadline_ps.get() - waits.had_ps.get(), 1_000_000_000);
            assert_eq!((400 + 900 + 500) / 3 - had_us(waits), 200);
        },
    );
}

#[test]
fn a_task_that_has_had_more_goes_on_to_count_while_it_waits() {
    let tasks = [(600, 1000), (300, 1300), (300, 1200)];
    by_deadline(&machine(1), &tasks, |sched| {
        let (queue, waits) = (&sched.cpus[0], &sched.tasks[0]);
        sched.begins_to_wait(0, queue);
        queue.running.set(None);
        assert!(waits.delayed.get());
        assert_eq!(sched.take_by_deadline(queue), Some(2));
        // When the others have caught up it counts no more, and nothing is owed or owing.
        sched.tasks[1].had_ps.set(START_PS + 700_000_000);
        assert_eq!(sched.take_by_deadline(queue), Some(1));
        assert!(!waits.delayed.get() && queue.delayed.borrow().is_empty());
        assert_eq!(waits.lag_ps.get(), 0);
    });
}

#[test]
fn slices_of_deadlines_end_at_ticks_and_all_tasks_get_the_same() {
    let machine = machine(1);
    let rules = SchedRules {
        order: WakeOrder::Deadline,
        slice_ns: 1_000_000,
        tick_ns: 4_000_000,
        ..RULES
    };
    let sched = Scheduler::new(&machine, rules, 3, 1);
    let turns = RefCell::new(Vec::new());
    let body = |task: u32| -> Body<'_> {
        let (sched, machine, turns) = (&sched, &machine, &turns);
        Box::new(move || {
            for _ in 0..80 {
                machine.spend(100_000_000);
                let mut turns = turns.borrow_mut();
                match turns.last_mut() {
                    Some((last, n)) if *last == task => *n += 1,
                    _ => turns.push((task, 1)),
                }
                drop(turns);
                sched.leave_kernel();
            }
        })
    };
    assert_eq!(sched.run((0..3).map(body).collect()), Ok(()));
    let turns = turns.into_inner();
    let runs: Vec<u32> = turns.iter().map(|(_, n)| *n).collect();
    // Slices are 1 ms; ticks that find them over are 4 ms apart.
    assert_eq!(runs, [40, 40, 40, 40, 40, 40], "{turns:?}");
}

#[test]
fn tasks_with_many_partners_are_woken_where_they_are() {
    let machine = machine(2);
    let sched = Scheduler::new(&machine, RULES, 4, 1);
    sched.cpus[0].running.set(Some(0));
    let partners = |task: u32| sched.tasks[task as usize].wakes.get().changes;
    // The first task wakes others in turn.
    for n in 0..12 {
        assert!(!sched.is_wide(1 + n % 3), "the others wake nobody");
    }
    assert_eq!((partners(0), partners(1)), (12, 0));
    // The same one again is no other partner.
    sched.is_wide(3);
    assert_eq!(partners(0), 12);
    let woken_by_each = |changes| {
        let it = &sched.tasks[3].wakes;
        it.set(Wakes {
            changes,
            ..it.get()
        });
        sched.is_wide(3)
    };
    // Of two CPUs with one last-level cache: two partners at least, and twice as many on the other side.
    assert_eq!(
        [1, 2, 6, 7, 24].map(woken_by_each),
        [false, true, true, false, true]
    );
}
