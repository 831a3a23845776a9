//! Processes: the objects and pages that their memory and files have.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::machine::{Accounting as _, CpuId, Cpus as _, Work};
use quarry_sim::driver::{CacheIndex, Driver, PageRef};

use super::kernel::{Kernel, Path};
use super::socket::Object;
use crate::world::{Kind, Over, Request, Source};

/// Picoseconds from a grace period to the next one. An object waits for half of it in the mean, 12 ms: what
/// `membarrier(MEMBARRIER_CMD_GLOBAL)`, which waits for one, took on 6.18 (HZ = 250, two CPUs, 2026-11-30; 14 ms while both worked).
const GRACE_PS: u64 = 24_000_000_000;
/// Operations between grace periods of a run without time.
const GRACE_OPERATIONS: u64 = 64;
/// Release from which on the tree of mappings frees by `kfree_rcu()`; before, each node has a callback (unverified).
const FREES_IN_BATCHES: Era = Era::V6_18;

/// An object or a page of a process.
enum Held<'h> {
    Object(Object<'h>),
    Page(PageRef<'h>),
}

/// Something that is freed after a grace period, on the CPU that gave it up.
struct Later<'h> {
    kind: Kind,
    held: Held<'h>,
    /// Grace periods that must be over.
    after: u64,
}

/// All that processes have.
pub(super) struct Processes<'h> {
    /// Caches of the kinds that are from one.
    caches: Vec<(Kind, CacheIndex)>,
    /// By task, then by kind: the oldest first.
    held: RefCell<Vec<Vec<VecDeque<Held<'h>>>>>,
    /// By CPU: the oldest first.
    later: RefCell<Vec<VecDeque<Later<'h>>>>,
    /// Grace periods so far.
    periods: Cell<u64>,
}

/// Caches of kinds. `None` if there is no room for one.
pub(crate) fn kind_caches<D: Design>(
    driver: &mut Driver<'_, D>,
    kinds: &[Kind],
) -> Option<Vec<(Kind, CacheIndex)>> {
    let mut made = Vec::new();
    for &kind in kinds {
        if let Source::Cache(spec) = kind.source() {
            // A machine that has run has it.
            let there = driver.find_cache(spec.name);
            made.push((kind, there.or_else(|| driver.create_cache(&spec).ok())?));
        }
    }
    Some(made)
}

impl Processes<'_> {
    pub(super) fn new(caches: Vec<(Kind, CacheIndex)>, cpus: u32) -> Self {
        Self {
            caches,
            held: RefCell::default(),
            later: RefCell::new((0..cpus).map(|_| VecDeque::new()).collect()),
            periods: Cell::new(0),
        }
    }

    fn cache(&self, kind: Kind) -> Option<CacheIndex> {
        let found = self.caches.iter().find(|(of, _)| *of == kind);
        found.map(|(_, cache)| *cache)
    }
}

impl<'h, D: Design> Kernel<'_, 'h, D> {
    /// Does what a process requests.
    pub(super) fn serve(&self, request: Request) -> Result<(), Over> {
        match request {
            Request::Enter => {
                self.machine.work(Work::Syscall);
                // A moment of the run must be one of all CPUs.
                self.machine.take_turn();
                self.free_what_is_due();
            }
            Request::Work(cycles) => self.protocol(u64::from(cycles) * self.cycle_ps),
            Request::Alloc(kind) => {
                let held = self.alloc_kind(kind)?;
                self.with_held(kind, |all| all.push_back(held));
            }
            Request::Free(kind) => {
                if let Some(held) = self.with_held(kind, VecDeque::pop_front) {
                    self.free_kind(kind, held);
                }
            }
            Request::FreeLater(kind) => {
                if let Some(held) = self.with_held(kind, VecDeque::pop_front) {
                    self.free_kind_later(kind, held);
                }
            }
        }
        Ok(())
    }

    /// Objects of a kind that the running task's process has.
    fn with_held<R>(&self, kind: Kind, f: impl FnOnce(&mut VecDeque<Held<'h>>) -> R) -> R {
        let task = self.sched.task() as usize;
        let mut all = self.processes.held.borrow_mut();
        if all.len() <= task {
            all.resize_with(task + 1, Vec::new);
        }
        let own = &mut all[task];
        if own.is_empty() {
            own.resize_with(Kind::ALL.len(), VecDeque::new);
        }
        f(&mut own[kind as usize])
    }

    fn alloc_kind(&self, kind: Kind) -> Result<Held<'h>, Over> {
        if let Some(cache) = self.processes.cache(kind) {
            let object = self.on(Path::AllocData, || self.driver.alloc(cache));
            return Ok(Held::Object(self.own(object)?));
        }
        let Source::Pages(migratetype) = kind.source() else {
            return Err(self.exhausted());
        };
        let page = self.on(Path::Pages, || self.driver.alloc_pages(0, migratetype));
        let page = page.ok_or_else(|| self.exhausted())?;
        match kind {
            Kind::ZeroedPage | Kind::PageTable => self.driver.zero_pages(&page),
            Kind::CopiedPage => self.on(Path::Copy, || {
                self.driver.copy_in_pages(&page, 0, self.page_bytes);
            }),
            _ => (),
        }
        Ok(Held::Page(page))
    }

    fn free_kind(&self, kind: Kind, held: Held<'h>) {
        match held {
            Held::Object(Object { object, cpu }) => {
                if let Some(cache) = self.processes.cache(kind) {
                    let freed = self.on(Path::FreeData, || self.driver.free(cache, object, cpu));
                    debug_assert_eq!(freed, Ok(()), "an object of this cache");
                }
            }
            Held::Page(page) => {
                let freed = self.on(Path::Pages, || self.driver.free_pages(page));
                debug_assert!(freed.is_ok(), "a page of this page allocator");
            }
        }
    }

    /// Frees after a grace period: an object in the design's way, a page in a callback on this CPU.
    fn free_kind_later(&self, kind: Kind, held: Held<'h>) {
        let in_batches = self.driver.era() >= FREES_IN_BATCHES;
        let held = match (held, self.processes.cache(kind)) {
            (Held::Object(Object { object, cpu }), Some(cache)) if in_batches => {
                let noted = self.on(Path::FreeData, || self.driver.free_rcu(cache, object, cpu));
                match noted {
                    Ok(()) => return,
                    // There is no room to note it.
                    Err(object) => Held::Object(Object { object, cpu }),
                }
            }
            (held, _) => held,
        };
        let CpuId(cpu) = self.machine.current_cpu();
        let after = self.processes.periods.get() + 1;
        self.processes.later.borrow_mut()[cpu as usize].push_back(Later { kind, held, after });
    }

    /// Frees what this CPU gave up before a grace period that is over, as its softirq would.
    fn free_what_is_due(&self) {
        let CpuId(cpu) = self.machine.current_cpu();
        loop {
            let mut later = self.processes.later.borrow_mut();
            let own = &mut later[cpu as usize];
            let periods = self.processes.periods.get();
            let due = own.pop_front_if(|it| it.after <= periods);
            drop(later);
            match due {
                Some(Later { kind, held, .. }) => self.free_kind(kind, held),
                None => return,
            }
        }
    }

    /// Ends the grace periods that are over by now. No task reads an object that was given up.
    pub(super) fn end_grace_periods(&self, now_ps: u64) {
        let over = match self.has_clocks() {
            true => now_ps / GRACE_PS,
            false => self.operations() / GRACE_OPERATIONS,
        };
        if !self.processes.caches.is_empty() && over > self.processes.periods.get() {
            self.processes.periods.set(over);
            self.driver.grace_period();
        }
    }

    /// Frees all that processes still have, and what waits for a grace period.
    pub(super) fn end_processes(&self) {
        if self.processes.caches.is_empty() {
            return;
        }
        for own in self.processes.held.take() {
            for (kind, all) in Kind::ALL.into_iter().zip(own) {
                all.into_iter().for_each(|held| self.free_kind(kind, held));
            }
        }
        for later in self.processes.later.take().into_iter().flatten() {
            self.free_kind(later.kind, later.held);
        }
    }
}
