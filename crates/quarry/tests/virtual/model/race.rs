//! Scripts whose operations race: tasks take them in turns, an interleaving is chosen by seed, and the ledger says
//! whether each object was anyone's before.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;

use proptest::prelude::*;
use quarry_core::design::{Design, FreeError};
use quarry_core::era::Era;
use quarry_core::heap::{Cache, Heap};
use quarry_core::machine::{CpuId, Machine, NodeId};
use quarry_sim::{Explore, Explored};

use super::design::Driver;
use super::ledger::{Live, Owner, Pick};
use super::place::{Placement, node_of};
use super::script::{ATTRIBUTES, Ask, Op, Script};
use super::setup::{Limits, Setup, setups};
use super::{Check, ensure, ensure_eq};

/// Objects that one operation allocates or frees at most: a script of one task must not end before the others begin.
const COUNT_MAX: u16 = 24;
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

/// A heap, and what tasks do to it.
struct Race<'d, 'h, M: Machine, D: Design, P> {
    heap: &'h Heap<M, D>,
    place: P,
    /// Borrowed between calls of the allocator only.
    driver: RefCell<&'d mut Driver<'h, M, D, P>>,
    caches: Vec<Cache<'h, M, D>>,
    /// Caches whose calls the model cannot count.
    uncounted: Vec<Cell<bool>>,
    scarce: bool,
    brief: Cell<usize>,
    clock_ns: Cell<u64>,
}

impl<'h, M: Machine, D: Design, P: Placement<M>> Race<'_, 'h, M, D, P> {
    fn go(&self, cpu: u16) {
        self.place.go(self.heap.machine(), cpu);
    }

    fn node(&self, node: u8) -> NodeId {
        node_of(self.heap.machine(), node)
    }

    fn slot(&self, cache: u8) -> usize {
        usize::from(cache) % self.caches.len()
    }

    fn apply(&self, op: &Op) -> Check {
        match *op {
            Op::Create(ref ask) => self.brief(ask),
            Op::Alloc { cpu, cache, count } => {
                self.go(cpu);
                let slot = self.slot(cache);
                (0..count.min(COUNT_MAX)).try_for_each(|_| self.alloc(slot, None))
            }
            Op::AllocNode {
                cpu,
                cache,
                node,
                count,
            } => {
                self.go(cpu);
                let (slot, node) = (self.slot(cache), self.node(node));
                self.driver.borrow_mut().caches[slot].by_node = true;
                let count = u16::from(count).min(COUNT_MAX);
                (0..count).try_for_each(|_| self.alloc(slot, Some(node)))
            }
            Op::Free {
                cpu,
                cache,
                pick,
                count,
            } => {
                self.go(cpu);
                let slot = self.slot(cache);
                (0..count.min(COUNT_MAX)).try_for_each(|_| self.free(slot, pick))
            }
            Op::AllocBulk { cpu, cache, count } => {
                self.go(cpu);
                self.alloc_bulk(self.slot(cache), usize::from(count))
            }
            Op::FreeBulk {
                cpu,
                cache,
                pick,
                count,
                gaps: _,
            } => {
                self.go(cpu);
                self.free_bulk(self.slot(cache), pick, usize::from(count))
            }
            Op::Kmalloc { cpu, bytes, node } => {
                self.go(cpu);
                self.kmalloc(bytes as usize, node.map(|node| self.node(node)))
            }
            Op::Kfree { cpu, pick } => {
                self.go(cpu);
                self.kfree(pick)
            }
            // There is no free that is wrong whatever other tasks do: one that waits for readers takes its place.
            Op::Wrong {
                cpu, cache, pick, ..
            } => {
                self.go(cpu);
                self.free_later(self.slot(cache), pick)
            }
            Op::Destroy { .. } => Ok(()),
            _ => self.care(op),
        }
    }

    /// Operations that work on other CPUs' state.
    fn care(&self, op: &Op) -> Check {
        let busy = match *op {
            Op::Flush { cache } => self.caches[self.slot(cache)].flush(),
            Op::Shrink { cache } => self.caches[self.slot(cache)].shrink(),
            Op::DrainPages => self.heap.pages().drain_all(),
            Op::Set {
                cache,
                attribute,
                value,
            } => {
                let (name, value) = (ATTRIBUTES[attribute], u64::from(value));
                let valid = D::TUNABLES.check(self.heap.era(), name, value).is_ok();
                let set = !valid || self.caches[self.slot(cache)].set_attribute(name, value);
                ensure!(set, "{name} was refused");
                0
            }
            Op::Reap { cpu, pause_ms } => {
                self.go(cpu);
                let pause_ns = u64::from(pause_ms) * 1_000_000;
                self.clock_ns.set(self.clock_ns.get() + pause_ns);
                let machine = self.heap.machine();
                self.place.advance_to(machine, self.clock_ns.get());
                // SAFETY: tasks read objects of their own only.
                unsafe { self.place.on(machine).grace_period() };
                self.heap.reap();
                0
            }
            Op::Walk => return self.walk(),
            _ => 0,
        };
        ensure_eq!(busy, 0, "busy CPUs");
        Ok(())
    }

    fn admit(&self, owner: Owner, object: std::ptr::NonNull<u8>, bytes: usize) -> Check {
        self.driver.borrow_mut().ledger.admit(owner, object, bytes)
    }

    fn dismiss(&self, owner: Owner, pick: Pick) -> Check<Option<Live>> {
        self.driver.borrow_mut().ledger.dismiss(owner, pick)
    }

    fn owner(&self, slot: usize) -> Owner {
        self.driver.borrow().caches[slot].owner
    }

    fn bytes(&self, slot: usize) -> usize {
        self.caches[slot].head().geometry().layout.object_size as usize
    }

    fn exhausted(&self) -> Check {
        ensure!(self.scarce, "an allocation failed with ample memory");
        Ok(())
    }

    fn alloc(&self, slot: usize, node: Option<NodeId>) -> Check {
        let cache = self.caches[slot];
        self.driver.borrow_mut().caches[slot].allocs += 1;
        let object = match node {
            Some(node) => cache.alloc_node(node),
            None => cache.alloc(),
        };
        let Some(object) = object else {
            self.uncounted[slot].set(true);
            return self.exhausted();
        };
        self.admit(self.owner(slot), object, self.bytes(slot))
    }

    fn free(&self, slot: usize, pick: Pick) -> Check {
        let Some(live) = self.dismiss(self.owner(slot), pick)? else {
            return Ok(());
        };
        self.driver.borrow_mut().caches[slot].frees += 1;
        // SAFETY: the ledger has just forgotten the object, so no code uses it any more.
        let freed = unsafe { self.caches[slot].free(live.object) };
        ensure_eq!(freed, Ok(()), "freeing {:p}", live.object);
        Ok(())
    }

    fn free_later(&self, slot: usize, pick: Pick) -> Check {
        let Some(live) = self.dismiss(self.owner(slot), pick)? else {
            return Ok(());
        };
        self.uncounted[slot].set(true);
        // SAFETY: as in `free`.
        let freed = unsafe { self.caches[slot].free_rcu(live.object) };
        if freed == Err(FreeError::NoRoom) {
            self.exhausted()?;
            // SAFETY: tasks read objects of their own only.
            let freed = unsafe { self.caches[slot].free(live.object) };
            ensure_eq!(freed, Ok(()), "freeing {:p} at once", live.object);
            return Ok(());
        }
        ensure_eq!(freed, Ok(()), "freeing {:p} later", live.object);
        Ok(())
    }

    fn alloc_bulk(&self, slot: usize, count: usize) -> Check {
        self.uncounted[slot].set(true);
        let mut slots = vec![None; count];
        if !self.caches[slot].alloc_bulk(&mut slots) {
            let left = slots.iter().flatten().count();
            ensure_eq!(left, 0, "objects left by a bulk allocation that failed");
            return self.exhausted();
        }
        for object in slots {
            let object = object.ok_or("a bulk allocation left a slot empty")?;
            self.admit(self.owner(slot), object, self.bytes(slot))?;
        }
        Ok(())
    }

    fn free_bulk(&self, slot: usize, pick: Pick, count: usize) -> Check {
        self.uncounted[slot].set(true);
        let mut slots = Vec::new();
        for _ in 0..count {
            let live = self.dismiss(self.owner(slot), pick)?;
            slots.push(live.map(|live| live.object));
        }
        // SAFETY: the ledger has just forgotten the objects.
        let freed = unsafe { self.caches[slot].free_bulk(&mut slots) };
        ensure_eq!(freed, Ok(()), "a bulk free");
        ensure!(
            slots.iter().all(Option::is_none),
            "a bulk free left objects"
        );
        Ok(())
    }

    fn kmalloc(&self, bytes: usize, node: Option<NodeId>) -> Check {
        let machine = self.heap.machine();
        let largest = machine.topology().page_size() << quarry_core::page::MAX_ORDER;
        let Some(object) = self.heap.kmalloc(bytes, node) else {
            return if bytes > largest {
                Ok(())
            } else {
                self.exhausted()
            };
        };
        if bytes == 0 {
            // SAFETY: there is nothing to use.
            let freed = unsafe { self.heap.kfree(object) };
            ensure_eq!(freed, Ok(()), "kfree of nothing");
            return Ok(());
        }
        self.driver.borrow_mut().count_large(bytes, true);
        self.admit(Owner::Kmalloc, object, bytes)
    }

    fn kfree(&self, pick: Pick) -> Check {
        let Some(live) = self.dismiss(Owner::Kmalloc, pick)? else {
            return Ok(());
        };
        self.driver.borrow_mut().count_large(live.bytes, false);
        // SAFETY: the ledger has just forgotten the object.
        let freed = unsafe { self.heap.kfree(live.object) };
        ensure_eq!(freed, Ok(()), "kfree of {:p}", live.object);
        Ok(())
    }

    /// A cache is made, used and destroyed while other tasks make and look at others.
    fn brief(&self, ask: &Ask) -> Check {
        let number = self.brief.get();
        self.brief.set(number + 1);
        let name = format!("brief-{number}");
        let Ok(cache) = self.heap.create_cache(&ask.spec(&name)) else {
            return Ok(());
        };
        let owner = Owner::Cache(usize::MAX - number);
        for _ in 0..BRIEF_OBJECTS {
            match cache.alloc() {
                Some(object) => self.admit(owner, object, ask.size as usize)?,
                None => self.exhausted()?,
            }
        }
        while let Some(live) = self.dismiss(owner, Pick::Oldest)? {
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
        for (slot, cache) in self.caches.iter().enumerate() {
            let owner = self.owner(slot);
            let before = self.driver.borrow().ledger.marks(owner);
            let mut found = std::collections::BTreeSet::new();
            let walked = cache.for_each_live(|object| {
                found.insert(object.addr().get());
            });
            walked.map_err(|error| error.to_string())?;
            let after = self.driver.borrow().ledger.marks(owner);
            for mark in before.intersection(&after) {
                ensure!(found.contains(&mark.0), "a walk missed {:x}", mark.0);
            }
            let checked = cache.check_consistency();
            checked.map_err(|error| error.to_string())?;
        }
        let (mut count, mut wrong) = (0, None);
        self.heap.for_each_cache(|cache| {
            count += 1;
            let usage = cache.usage();
            if usage.active_objs > usage.num_objs {
                wrong = Some(format!("{}: {usage:?}", cache.name()));
            }
        });
        ensure!(count >= self.caches.len(), "{count} caches are listed");
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
        heap: &heap,
        place,
        caches: driver.caches.iter().map(|tracked| tracked.cache).collect(),
        uncounted: vec![Cell::new(false); driver.caches.len()],
        driver: RefCell::new(&mut driver),
        scarce: limits.scarce,
        brief: Cell::new(0),
        clock_ns: Cell::new(0),
    };
    let turns = Turns::new(&script.ops, how);
    let explored = place
        .on(heap.machine())
        .explore(how, |task| turns.run(task, |op| race.apply(op)));
    let uncounted = race.uncounted;
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
    for (tracked, uncounted) in driver.caches.iter_mut().zip(uncounted) {
        tracked.cache.flush();
        if uncounted.get() {
            tracked.rebase();
        }
    }
    driver
        .finish()
        .map_err(|error| format!("at the end: {error}"))?;
    Ok(explored)
}
