//! Every design while tasks race: operations of random scripts on machines with few CPUs, interleaved by seed.

use crate::model::ledger::{Ledger, Owner, Pick};
use crate::model::page_race::check_page_race;
use crate::model::place::Virtual;
use crate::model::race::{check_race, crowded, explores};
use crate::model::steps::OnSteps;
use crate::prelude::*;
use quarry_core::machine::{Accounting as _, Locks as _, RawLock};
use quarry_sim::{Explore, Explored};

/// Scripts that a soak tries a property on.
const CASES: u32 = 200;
/// Operations in a script at most.
const OPS: usize = 60;

/// Runs, actions and switches of a property.
#[derive(Default)]
struct Total(Cell<[u64; 3]>);

impl Total {
    fn add(&self, run: Explored) {
        let [runs, actions, switches] = self.0.get();
        self.0
            .set([runs + 1, actions + run.actions, switches + run.switches]);
    }

    /// Prints how much was explored (`--nocapture`), and checks that it is not little.
    fn report(&self, name: &str, era: Era) {
        let [runs, actions, switches] = self.0.get();
        println!("{name} {era}: {runs} runs, {actions} visible actions, {switches} switches");
        let many = switches > 10 * runs && actions > 100 * runs;
        assert!(many || runs < 20, "{name} {era}: tasks hardly met");
    }
}

fn race<D: Design>(name: &str, era: Era) {
    let inputs = (crowded(), explores(), scripts(OPS));
    let total = Total::default();
    check_property(name, CASES, inputs, |(setup, how, script)| {
        let plain: (VirtualMachine, _) = (setup.machine(), Virtual);
        total.add(check_race::<_, D, _>(plain, &setup, &how, era, &script)?);
        let steps = (Stepping(setup.machine()), OnSteps);
        total.add(check_race::<_, D, _>(steps, &setup, &how, era, &script)?);
        Ok(())
    });
    total.report(name, era);
}

design_tests!(races: race);

fn pages_race(name: &str, era: Era) {
    let inputs = (crowded(), explores(), page_scripts(OPS));
    let (config, total) = (PageConfig::new(era), Total::default());
    check_property(name, CASES, inputs, |(setup, how, ops)| {
        let plain: (VirtualMachine, _) = (setup.machine(), Virtual);
        total.add(check_page_race(plain, &setup, &how, &config, &ops)?);
        let steps = (Stepping(setup.machine()), OnSteps);
        total.add(check_page_race(steps, &setup, &how, &config, &ops)?);
        Ok(())
    });
    total.report(name, era);
}

#[test]
fn page_lists_race() {
    for era in [Era::V2_6_22, Era::V4_13, Era::V5_9, Era::V6_1, Era::V6_18] {
        pages_race("page_lists_race", era);
    }
}

/// A flush inside the gate waits for slots that a walk holds, which waits for the gate to be empty.
#[test]
fn a_walk_lets_drains_pass() {
    fn walks<D: Design>(era: Era) {
        for seed in 0..u64::from(case_count(100)) {
            let heap = small::<D>(era, 2);
            let cache = sized(&heap, "walked", 100);
            let how = Explore {
                seed,
                tasks: 3,
                switch_per_mille: [1000, 100, 10][seed as usize % 3],
                move_per_mille: 0,
            };
            let explored = heap.machine().explore(&how, |task| {
                for _ in 0..3 {
                    match task {
                        0 => assert_eq!(cache.check_consistency(), Ok(()), "{era} {seed}"),
                        1 => assert_eq!(cache.shrink() + cache.flush(), 0, "{era} {seed}"),
                        _ => give(cache, &take(cache, 40)),
                    }
                }
            });
            assert!(explored.is_ok(), "{era} {seed}");
        }
    }
    for_all_designs!(D => walks::<D>(D::DEFAULT_ERA));
}

/// A stack of free objects, which a careless task uses without its lock.
struct Shelf {
    machine: VirtualMachine,
    lock: RawLock,
    free: Vec<Cell<Object>>,
    count: Cell<usize>,
    careful: bool,
}

impl Shelf {
    fn with_lock<R>(&self, f: impl FnOnce() -> R) -> R {
        if !self.careful {
            return f();
        }
        let locked = self.machine.lock(&self.lock, LockClass::NodeList);
        assert_eq!(locked, Ok(()));
        let result = f();
        // SAFETY: taken above.
        unsafe { self.machine.unlock(&self.lock, LockClass::NodeList) };
        result
    }

    /// Reads the count, and changes it one visible action later. The smaller one says which entry is meant.
    fn step(&self, change: isize) -> Check<&Cell<Object>> {
        let seen = self.count.get();
        let at = self.count.as_ptr().cast();
        self.machine
            .access(at, size_of::<usize>(), Access::Write, Line::Node);
        let now = seen.checked_add_signed(change).ok_or("no object is left")?;
        self.count.set(now);
        Ok(self.free.get(seen.min(now)).ok_or("no room is left")?)
    }

    fn take(&self) -> Check<Object> {
        self.with_lock(|| self.step(-1).map(Cell::get))
    }

    fn give(&self, object: Object) -> Check {
        self.with_lock(|| self.step(1).map(|entry| entry.set(object)))
    }
}

/// The negative control: where a lock is left out, the ledger sees an object twice.
#[test]
fn a_planted_race_is_found() {
    let run = |seed, careful| -> Check {
        let mut memory = [[0u64; 4]; 16];
        let free = memory
            .iter_mut()
            .map(|bytes| Cell::new(NonNull::from(bytes).cast()));
        let shelf = Shelf {
            machine: Setup::default().machine(),
            lock: RawLock::new(),
            free: free.collect(),
            count: Cell::new(16),
            careful,
        };
        let (ledger, checked) = (RefCell::new(Ledger::default()), RefCell::new(Ok(())));
        let how = Explore {
            seed,
            tasks: 3,
            switch_per_mille: [500, 100, 20][seed as usize % 3],
            move_per_mille: 0,
        };
        let work = |owner| {
            let object = shelf.take()?;
            ledger.borrow_mut().admit(owner, object, 32)?;
            // What the task does with it.
            shelf
                .machine
                .access(object.as_ptr(), 32, Access::Write, Line::Object);
            let live = ledger.borrow_mut().dismiss(owner, Pick::Newest)?;
            shelf.give(live.ok_or("the object is gone")?.object)
        };
        let explored = shelf.machine.explore(&how, |task| {
            let owner = Owner::Cache(task as usize);
            for _ in 0..20 {
                if checked.borrow().is_ok()
                    && let Err(error) = work(owner)
                {
                    *checked.borrow_mut() = Err(error);
                }
            }
        });
        assert!(explored.is_ok());
        checked.into_inner()
    };
    let found = (0..60).filter(|&seed| run(seed, false).is_err()).count();
    assert!(found > 40, "{found} of 60");
    for seed in each(0..60) {
        assert_eq!(run(seed, true), Ok(()));
    }
}
