//! Scripts whose operations race: tasks take them in turns, an interleaving is chosen by seed, and the ledger says
//! whether each object was anyone's before.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;

use proptest::prelude::*;
use quarry_core::design::{Design, FreeError};
use quarry_core::era::Era;
use quarry_core::heap::Heap;
use quarry_core::machine::{CpuId, Machine};
use quarry_sim::{Explore, Explored};

use super::design::{Driver, Tracked};
use super::ledger::{Owner, Pick};
use super::place::Placement;
use super::script::{Ask, Op, Script};
use super::setup::{Limits, Setup, setups};
use super::{Check, ensure, ensure_eq};

/// Objects that one operation allocates or frees at most: a script of one task must not end before the others begin.
const COUNT_MAX: u8 = 24;
/// Objects of a cache that lives for one operation.
const BRIEF_OBJECTS: usize = 5;

/// Ways in which tasks take turns: by few switches, or by many.
pub(crate) fn explores() -> impl Strategy<Value = Explore> {
    let switch = prop_oneof![
        Just(1000u16),
        Just(500),
        Just(200),
        Just(50),
        Just(20),
        Just(5),
        Just(1)
    ];
    let moves = prop_oneof![2 => Just(0u16), 1 => Just(5), 1 => Just(100)];
    (any::<u64>(), 2u32..6, switch, moves).prop_map(
        |(seed, tasks, switch_per_mille, move_per_mille)| Explore {
            seed,
            tasks,
            switch_per_mille,
            move_per_mille,
        },
    )
}

/// Machines with few CPUs, where tasks meet. The CPUs' own try-locks fail where tasks hold them, and at random.
pub(crate) fn crowded() -> impl Strategy<Value = Setup> {
    (setups(), 1u32..4).prop_map(|(setup, cpus)| Setup {
        cpus,
        nodes: setup.nodes.min(cpus),
        slot_per_mille: setup.slot_per_mille.min(300),
        remote_per_mille: 0,
        ..setup
    })
}

/// The operations of a script that tasks take in turns, until one fails.
pub(crate) struct Turns<'o, O> {
    ops: &'o [O],
    tasks: u32,
    failed: RefCell<Check>,
}

impl<'o, O: Debug> Turns<'o, O> {
    pub(crate) fn new(ops: &'o [O], how: &Explore) -> Self {
        Self {
            ops,
            tasks: how.tasks,
            failed: RefCell::new(Ok(())),
        }
    }

    /// Does the operations that are a task's.
    pub(crate) fn run(&self, task: u32, apply: impl Fn(&O) -> Check) {
        for (at, op) in self.ops.iter().enumerate() {
            if at as u32 % self.tasks != task {
                continue;
            }
            if self.failed.borrow().is_err() {
                return;
            }
            if let Err(error) = apply(op) {
                let error = format!("operation {at}, {op:?}, of task {task}: {error}");
                *self.failed.borrow_mut() = Err(error);
            }
        }
    }

    /// Returns what failed.
    pub(crate) fn end(self) -> Check {
        self.failed.into_inner()
    }
}

/// A driver that tasks share, and what only they do.
struct Race<'d, 'h, M: Machine, D: Design, P> {
    driver: &'d Driver<'h, M, D, P>,
    brief: Cell<usize>,
}

impl<M: Machine, D: Design, P: Placement<M>> Race<'_, '_, M, D, P> {
    fn apply(&self, op: &Op) -> Check {
        match *op {
            Op::Create(ref ask) => self.brief(ask),
            // There is no free that is wrong whatever other tasks do: one that waits for readers takes its place.
            Op::Wrong {
                cpu, cache, pick, ..
            } => {
                self.driver.go(cpu);
                let tracked = &self.driver.caches[usize::from(cache) % self.driver.caches.len()];
                self.free_later(tracked, pick)
            }
            Op::Destroy { .. } => Ok(()),
            Op::Walk => self.walk(),
            Op::Reap { .. } => {
                let machine = self.driver.heap.machine();
                // SAFETY: tasks read objects of their own only.
                unsafe { self.driver.place.on(machine).grace_period() };
                self.driver.work(op)
            }
            _ => self.driver.work(op),
        }
    }

    fn free_later(&self, tracked: &Tracked<'_, M, D>, pick: Pick) -> Check {
        let dismissed = self.driver.ledger.borrow_mut().dismiss(tracked.owner, pick);
        let Some(live) = dismissed? else {
            return Ok(());
        };
        tracked.uncounted.set(true);
        // SAFETY: the ledger has just forgotten the object, so no code uses it any more.
        let freed = unsafe { tracked.cache.free_rcu(live.object) };
        if freed == Err(FreeError::NoRoom) {
            ensure!(self.driver.limits.scarce, "no room with ample memory");
            // SAFETY: tasks read objects of their own only.
            let freed = unsafe { tracked.cache.free(live.object) };
            ensure_eq!(freed, Ok(()), "freeing {:p} at once", live.object);
            return Ok(());
        }
        ensure_eq!(freed, Ok(()), "freeing {:p} later", live.object);
        Ok(())
    }

    /// A cache is made, used and destroyed while other tasks make and look at others.
    fn brief(&self, ask: &Ask) -> Check {
        let number = self.brief.get();
        self.brief.set(number + 1);
        let name = format!("brief-{number}");
        let driver = self.driver;
        let Ok(cache) = driver.heap.create_cache(&ask.spec(&name)) else {
            return Ok(());
        };
        let owner = Owner::Cache(usize::MAX - number);
        for _ in 0..BRIEF_OBJECTS {
            match cache.alloc() {
                Some(object) => driver.admit(owner, cache, object, ask.size as usize)?,
                None => ensure!(
                    driver.limits.scarce,
                    "an allocation failed with ample memory"
                ),
            }
        }
        loop {
            let dismissed = driver.ledger.borrow_mut().dismiss(owner, Pick::Oldest);
            let Some(live) = dismissed? else { break };
            // SAFETY: the ledger has just forgotten the object.
            let freed = unsafe { cache.free(live.object) };
            ensure_eq!(freed, Ok(()), "freeing {:p}", live.object);
        }
        // SAFETY: this was the only handle, and nothing is live.
        let destroyed = unsafe { cache.destroy() };
        destroyed.map_err(|error| error.to_string())
    }

    /// A walk finds what was live from before it to after it. Other tasks go on meanwhile.
    fn walk(&self) -> Check {
        let driver = self.driver;
        for Tracked { cache, owner, .. } in &driver.caches {
            let before = driver.ledger.borrow().marks(*owner);
            let mut found = std::collections::BTreeSet::new();
            let walked = cache.for_each_live(|object| {
                found.insert(object.addr().get());
            });
            walked.map_err(|error| error.to_string())?;
            let after = driver.ledger.borrow().marks(*owner);
            for mark in before.intersection(&after) {
                ensure!(found.contains(&mark.0), "a walk missed {:x}", mark.0);
            }
            let checked = cache.check_consistency();
            checked.map_err(|error| error.to_string())?;
        }
        let (mut count, mut wrong) = (0, None);
        driver.heap.for_each_cache(|cache| {
            count += 1;
            let usage = cache.usage();
            if usage.active_objs > usage.num_objs {
                wrong = Some(format!("{}: {usage:?}", cache.name()));
            }
        });
        ensure!(count >= driver.caches.len(), "{count} caches are listed");
        wrong.map_or(Ok(()), Err)
    }
}

/// Runs a script's operations as tasks that race, and checks what they got and what is left.
pub(crate) fn check_race<M: Machine, D: Design, P: Placement<M>>(
    (machine, place): (M, P),
    setup: &Setup,
    how: &Explore,
    era: Era,
    script: &Script,
) -> Check<Explored> {
    let heap = Heap::<M, D>::new(machine, era, setup.boot()).map_err(|error| error.to_string())?;
    let limits = Limits {
        slots_fail: true,
        raced: true,
        ..setup.limits()
    };
    let mut driver = Driver::new(&heap, place, limits);
    for ask in &script.caches {
        driver.create(ask)?;
    }
    if driver.caches.is_empty() {
        return Ok(Explored::default());
    }
    let race = Race {
        driver: &driver,
        brief: Cell::new(0),
    };
    let ops: Vec<Op> = script.ops.iter().map(|op| op.limited(COUNT_MAX)).collect();
    let turns = Turns::new(&ops, how);
    let explored = place
        .on(heap.machine())
        .explore(how, |task| turns.run(task, |op| race.apply(op)));
    turns.end()?;
    let explored = explored.map_err(|error| error.to_string())?;
    let reap = || {
        for cpu in 0..setup.cpus {
            place.run_on(heap.machine(), CpuId(cpu));
            heap.reap();
        }
    };
    for tracked in &driver.caches {
        tracked.cache.flush();
    }
    reap();
    // SAFETY: no task runs any more that could read an object.
    unsafe { place.on(heap.machine()).grace_period() };
    reap();
    for tracked in &driver.caches {
        tracked.cache.flush();
        if tracked.uncounted.get() {
            tracked.rebase();
        }
    }
    driver
        .finish()
        .map_err(|error| format!("at the end: {error}"))?;
    Ok(explored)
}
