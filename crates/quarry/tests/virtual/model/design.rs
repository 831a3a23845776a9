//! The driver: runs a script on a heap of any design and any machine, and on the ledger.

use std::cell::{Cell, RefCell};

use quarry_core::debug::{Fix, SlubDebug};
use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::geometry::KmallocService;
use quarry_core::heap::{Cache, CreateError, Heap};
use quarry_core::machine::{Machine, NodeId};
use quarry_core::page::{ORDERS, PageStats};
use quarry_core::stats::{Stat, Stats};
use quarry_sim::{Counters, VirtualMachine};

use super::debugging;
use super::ledger::{Ledger, Owner, Pick};
use super::place::{Placement, Virtual, node_of};
use super::script::{ATTRIBUTES, Ask, Op, Script};
use super::setup::{Limits, Setup};
use super::{Check, ensure, ensure_eq};

/// Operations between two audits.
const AUDIT_EVERY: usize = 4;

/// A cache and what the driver has done with it.
pub(crate) struct Tracked<'h, M: Machine, D: Design> {
    pub(crate) era: Era,
    pub(crate) cache: Cache<'h, M, D>,
    /// Names the cache in the ledger.
    pub(crate) owner: Owner,
    /// Allocations that the cache's counters should show.
    pub(crate) allocs: Cell<u64>,
    /// Frees that the cache's counters should show.
    pub(crate) frees: Cell<u64>,
    /// True if objects of a certain node were ever asked for.
    pub(crate) by_node: Cell<bool>,
    /// True if the cache's counters were ever taken for right.
    pub(crate) uncounted: Cell<bool>,
}

/// Sums of the counters of calls: allocations and frees.
pub(crate) fn calls(era: Era, stats: &Stats) -> (u64, u64) {
    // Sheaves of 6.18 are filled by calls that count like those of users.
    let refills = match era {
        Era::V6_18 | Era::V6_19 => stats.get(Stat::SheafRefill),
        _ => 0,
    };
    let allocs = stats.get(Stat::AllocFastpath)
        + stats.get(Stat::AllocSlowpath)
        + stats.get(Stat::AllocCpuSheaf);
    (
        // CPUs that hide take their counters along.
        allocs.saturating_sub(refills),
        stats.get(Stat::FreeFastpath)
            + stats.get(Stat::FreeSlowpath)
            + stats.get(Stat::FreeCpuSheaf),
    )
}

/// True if the design serves kmalloc itself, from pages that objects of all caches share.
pub(crate) fn shares_pages<D: Design>(era: Era) -> bool {
    D::kmalloc_rules(era).is_some_and(|rules| rules.service == KmallocService::Design)
}

impl<M: Machine, D: Design> Tracked<'_, M, D> {
    /// Takes the counters as they are for right, after an operation whose count is not known.
    pub(crate) fn rebase(&self) {
        let (allocs, frees) = calls(self.era, &self.cache.stats());
        self.allocs.set(allocs);
        self.frees.set(frees);
        self.uncounted.set(true);
    }
}

/// Runs operations on a heap and checks every answer. Racing tasks share a driver: all operations but those that
/// make and destroy caches work on a shared reference, and no cell is borrowed while the allocator runs.
pub(crate) struct Driver<'h, M: Machine, D: Design, P> {
    pub(crate) heap: &'h Heap<M, D>,
    pub(crate) place: P,
    pub(crate) limits: Limits,
    pub(crate) caches: Vec<Tracked<'h, M, D>>,
    pub(crate) ledger: RefCell<Ledger>,
    /// Live kmallocs too large for a slab, and their pages.
    pub(crate) large: Cell<(u64, u64)>,
    /// Free blocks by order before anything was allocated.
    pub(crate) boot_blocks: [u64; ORDERS],
    created: usize,
    /// The time that periodic work gets.
    clock_ns: Cell<u64>,
}

impl<'h, M: Machine, D: Design, P: Placement<M>> Driver<'h, M, D, P> {
    /// A driver of a heap that no code has used.
    pub(crate) fn new(heap: &'h Heap<M, D>, place: P, limits: Limits) -> Self {
        Self {
            heap,
            place,
            limits,
            caches: Vec::new(),
            ledger: RefCell::default(),
            large: Cell::new((0, 0)),
            boot_blocks: heap.pages().stats().free_blocks,
            created: 0,
            clock_ns: Cell::new(0),
        }
    }

    /// Runs a script, auditing in between, and gives everything back at the end.
    pub(crate) fn run(&mut self, script: &Script) -> Check {
        for ask in &script.caches {
            self.create(ask)?;
        }
        for (at, op) in script.ops.iter().enumerate() {
            self.apply(op)
                .map_err(|error| format!("operation {at}, {op:?}: {error}"))?;
            if at % AUDIT_EVERY == 0 {
                self.audit()
                    .map_err(|error| format!("after operation {at}, {op:?}: {error}"))?;
            }
        }
        self.finish()
            .map_err(|error| format!("at the end: {error}"))
    }

    pub(crate) fn go(&self, cpu: u16) {
        self.place.go(self.heap.machine(), cpu);
    }

    fn slot(&self, cache: u8) -> Option<usize> {
        (!self.caches.is_empty()).then(|| usize::from(cache) % self.caches.len())
    }

    fn node(&self, node: u8) -> NodeId {
        node_of(self.heap.machine(), node)
    }

    /// Does one operation.
    fn apply(&mut self, op: &Op) -> Check {
        match *op {
            Op::Create(ref ask) => self.create(ask),
            Op::Destroy { cpu, cache, empty } => {
                let Some(slot) = self.slot(cache) else {
                    return Ok(());
                };
                self.go(cpu);
                if empty {
                    self.free_all(self.caches[slot].owner)?;
                }
                self.destroy(slot)
            }
            _ => self.work(op),
        }
    }

    /// Does one operation that leaves the list of caches alone.
    pub(crate) fn work(&self, op: &Op) -> Check {
        match *op {
            Op::Kmalloc { cpu, bytes, node } => {
                self.go(cpu);
                let node = node.map(|node| self.node(node));
                self.kmalloc(bytes as usize, node)
            }
            Op::Kfree { cpu, pick } => {
                self.go(cpu);
                self.kfree(pick).map(|_| ())
            }
            Op::Reap { cpu, pause_ms } => {
                self.go(cpu);
                let now_ns = self.clock_ns.get() + u64::from(pause_ms) * 1_000_000;
                self.clock_ns.set(now_ns);
                self.place.advance_to(self.heap.machine(), now_ns);
                self.heap.reap();
                Ok(())
            }
            Op::DrainPages => self.not_busy(self.heap.pages().drain_all()),
            Op::Walk => self.walk(),
            Op::Create(_) | Op::Destroy { .. } => Ok(()),
            Op::Alloc { cache, .. }
            | Op::AllocNode { cache, .. }
            | Op::Free { cache, .. }
            | Op::AllocBulk { cache, .. }
            | Op::FreeBulk { cache, .. }
            | Op::Flush { cache }
            | Op::Shrink { cache }
            | Op::Set { cache, .. }
            | Op::Wrong { cache, .. } => match self.slot(cache) {
                Some(slot) => self.work_on(slot, op),
                None => Ok(()),
            },
        }
    }

    fn work_on(&self, slot: usize, op: &Op) -> Check {
        match *op {
            Op::Alloc { cpu, count, .. } => {
                self.go(cpu);
                (0..count).try_for_each(|_| self.alloc(slot, None))
            }
            Op::AllocNode {
                cpu, node, count, ..
            } => {
                self.go(cpu);
                self.caches[slot].by_node.set(true);
                (0..count).try_for_each(|_| self.alloc(slot, Some(self.node(node))))
            }
            Op::Free {
                cpu, pick, count, ..
            } => {
                self.go(cpu);
                (0..count).try_for_each(|_| self.free(slot, pick).map(|_| ()))
            }
            Op::AllocBulk { cpu, count, .. } => {
                self.go(cpu);
                self.alloc_bulk(slot, usize::from(count))
            }
            Op::FreeBulk {
                cpu,
                pick,
                count,
                gaps,
                ..
            } => {
                self.go(cpu);
                self.free_bulk(slot, pick, usize::from(count), usize::from(gaps))
            }
            Op::Flush { .. } => self.not_busy(self.caches[slot].cache.flush()),
            Op::Shrink { .. } => self.not_busy(self.caches[slot].cache.shrink()),
            Op::Set {
                attribute, value, ..
            } => self.set(slot, ATTRIBUTES[attribute], value),
            Op::Wrong {
                cpu, mistake, pick, ..
            } => {
                self.go(cpu);
                self.wrong(slot, mistake, pick)
            }
            _ => Ok(()),
        }
    }

    fn not_busy(&self, busy: u32) -> Check {
        ensure!(busy == 0 || self.limits.cpus_hide, "{busy} CPUs were busy");
        Ok(())
    }

    pub(crate) fn create(&mut self, ask: &Ask) -> Check {
        let name = format!("cache-{}", self.created);
        let cache = match self.heap.create_cache(&ask.spec(&name)) {
            Ok(cache) => cache,
            Err(CreateError::Geometry(_)) => return Ok(()),
            Err(error) => return Err(format!("{ask:?}: {error}")),
        };
        ensure_eq!(cache.name(), name, "the cache's name");
        let layout = cache.head().geometry().layout;
        ensure_eq!(layout.object_size, ask.size, "the cache's object size");
        ensure!(layout.align.is_multiple_of(ask.align.max(8)), "{layout:?}");
        self.caches.push(Tracked {
            era: self.heap.era(),
            cache,
            owner: Owner::Cache(self.created),
            allocs: Cell::new(0),
            frees: Cell::new(0),
            by_node: Cell::new(false),
            uncounted: Cell::new(false),
        });
        self.created += 1;
        Ok(())
    }

    fn set(&self, slot: usize, attribute: &str, value: u32) -> Check {
        let cache = self.caches[slot].cache;
        let before = cache.attribute(attribute);
        let value = u64::from(value);
        let valid = D::TUNABLES.check(self.heap.era(), attribute, value).is_ok();
        if !valid {
            let known = D::TUNABLES.of(self.heap.era()).any(|t| t.name == attribute);
            let set = !known && cache.set_attribute(attribute, value);
            ensure!(!set, "{attribute} was set, but the design has none");
            return Ok(());
        }
        // Debugging takes the sheaves of a cache for good: only the slow paths look at objects.
        let refused = attribute == "sheaf_capacity" && cache.head().flags().debug();
        ensure_eq!(
            cache.set_attribute(attribute, value),
            !refused,
            "{attribute} was taken"
        );
        if refused {
            ensure_eq!(cache.attribute(attribute), before, "{attribute}, refused");
            ensure_eq!(before, Some(0), "{attribute} with debugging");
            return Ok(());
        }
        let after = cache.attribute(attribute);
        ensure!(
            after == Some(value) || self.limits.raced,
            "{attribute} is {after:?}, not {value} (it was {before:?})"
        );
        Ok(())
    }

    /// Frees all objects of an owner, on several CPUs.
    pub(crate) fn free_all(&self, owner: Owner) -> Check {
        let slot = self
            .caches
            .iter()
            .position(|tracked| tracked.owner == owner);
        let mut turn = 0u16;
        loop {
            turn = turn.wrapping_add(7919);
            if turn.is_multiple_of(5) {
                self.go(turn / 5);
            }
            let freed = match slot {
                Some(slot) => self.free(slot, Pick::Any(turn))?.is_some(),
                None => self.kfree(Pick::Any(turn))?,
            };
            if !freed {
                return Ok(());
            }
        }
    }

    /// Destroys a cache: refused, with the objects named, as long as it has any.
    pub(crate) fn destroy(&mut self, slot: usize) -> Check {
        let tracked = &self.caches[slot];
        let mut addresses = self.ledger.borrow().addresses(tracked.owner);
        let name = tracked.cache.name().to_owned();
        // SAFETY: the test uses no copy of the handle afterwards.
        let destroyed = unsafe { tracked.cache.destroy() };
        match destroyed {
            Ok(()) => {
                ensure!(
                    addresses.is_empty(),
                    "destroyed with objects {addresses:x?}"
                );
                self.caches.remove(slot);
                Ok(())
            }
            Err(_) if self.limits.cpus_hide => Ok(()),
            Err(error) => {
                ensure!(!addresses.is_empty(), "refused without reason: {error}");
                ensure_eq!(error.live, addresses.len() as u64, "objects named");
                let message = error.to_string();
                addresses.truncate(8);
                let named = addresses
                    .iter()
                    .all(|a| message.contains(&format!("{a:#x}")));
                ensure!(named && message.contains(&name), "{message}");
                Ok(())
            }
        }
    }
}

/// Counts of a run on a virtual machine: the same script gives the same trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    counters: Counters,
    pages: PageStats,
    pub(crate) caches: Vec<(String, Stats)>,
}

/// Runs a script on a heap whose caches all have debugging: apart from the model's answers there must
/// be no report but of refused frees, and nothing to find in the end.
pub(crate) fn check_debug<D: Design>(
    setup: &Setup,
    era: Era,
    script: &Script,
    letters: &str,
) -> Check {
    let heap = Heap::<VirtualMachine, D>::new(setup.machine(), era, setup.boot())
        .map_err(|error| error.to_string())?;
    let setting = SlubDebug::parse(letters, era).map_err(|error| error.to_string())?;
    heap.set_slub_debug(Some(setting))
        .expect("a design with debugging");
    debugging::listen(&heap);
    let limits = Limits {
        debug: true,
        ..setup.limits()
    };
    let run = Driver::new(&heap, Virtual, limits).run(script);
    for report in debugging::reports() {
        ensure!(report.fix == Fix::Refused, "{letters}: {report}");
    }
    run
}

/// Runs a script on a virtual machine and checks it against the model.
pub(crate) fn check_design<D: Design>(setup: &Setup, era: Era, script: &Script) -> Check<Trace> {
    let heap = Heap::<VirtualMachine, D>::new(setup.machine(), era, setup.boot())
        .map_err(|error| error.to_string())?;
    let mut driver = Driver::new(&heap, Virtual, setup.limits());
    driver.run(script)?;
    let mut caches = Vec::new();
    heap.for_each_cache(|cache| caches.push((cache.name().to_owned(), cache.stats())));
    Ok(Trace {
        counters: heap.machine().counters(),
        pages: heap.pages().stats(),
        caches,
    })
}
