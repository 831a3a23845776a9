//! Micro-benchmarks of an allocator, as kernel developers publish them.
//!
//! # Patterns
//!
//! | name | what each CPU does | published as |
//! |---|---|---|
//! | `batch` | allocates n objects, then frees them in the same order | `slab_test` 1: "n times kmalloc, then kfree" (C. Lameter) |
//! | `pair` | allocates one and frees it, n times | `slab_test` 2: "kmalloc/kfree test" |
//! | `cross` | allocates n; its neighbour frees them | remote frees of the same module |
//! | `spread` | the first CPU allocates n; all others free them, in equal parts | a receiver whose packets others consume |
//! | `bulk` | allocates and frees n in calls of k objects | `slab_bulk_test01` (J. D. Brouer) |
//!
//! All CPUs do it at the same time, on one cache: their own, or what `kmalloc()` has for the size. A first round, which is
//! not counted, fills caches and lists. Objects are not written to by their users. A call costs the loop's work besides
//! (`work.micro_call` of the machine).
//!
//! # Nodes
//!
//! Objects are of the running CPU's node, or are asked of one (`kmalloc_node()`). Then the machine is there as a whole, and
//! the first CPUs of it run the pattern. Memory of a node may be in use before ([`NodeFree`]), so that some objects have to
//! come from elsewhere.
//!
//! # Time
//!
//! A round has two phases, allocations and frees, which all CPUs begin together. A phase's time is that of the slowest CPU
//! for the throughput, and the mean of all CPUs for the time an operation.

mod report;
mod spec;
#[cfg(test)]
mod tests;

use report::Memory;
pub use report::MicroReport;
pub use spec::{MicroSpec, Pattern};

use std::cell::{Cell, RefCell};

use quarry_core::design::{CacheSpec, Design};
use quarry_core::machine::{CpuId, NodeId};
use quarry_machines::Key;
use quarry_sim::driver::{CacheIndex, Driver, ObjectRef, drive};

use crate::error::{WorkError, of_run};
use crate::nodes::NodeFree;
use crate::phase::{NoMemory, Of, Phase, SKEW_NS};

/// Runs the benchmark on a design.
///
/// # Errors
///
/// [`WorkError`]: invalid parameters, a machine without room, or a deadlock.
pub fn run<D: Design>(spec: &MicroSpec) -> Result<MicroReport, WorkError> {
    let config = spec.config()?;
    let ran = drive::<D, _>(config, spec.setup.era, spec.setup.tuning.boot, |driver| {
        spec.setup.tuning.set_pages(driver)?;
        NodeFree::leave(&spec.node_free, driver)?;
        let cache = match spec.kmalloc {
            true => None,
            false => {
                let cache = CacheSpec::new("micro", spec.object_bytes);
                let made = driver.create_cache(&cache);
                Some(made.map_err(|_| WorkError::Exhausted("the cache"))?)
            }
        };
        let view = match cache {
            Some(cache) => driver.cache(cache),
            None => driver.kmalloc_cache(spec.object_bytes),
        };
        match view {
            Some(view) => spec.setup.tuning.set_cache(&view)?,
            None if spec.setup.tuning.cache.is_empty() => (),
            None => {
                let message = "kmalloc of this size has no cache; leave settings of caches out";
                return Err(WorkError::Usage(message.to_string()));
            }
        }
        Bench {
            spec,
            driver,
            cache,
            call_ps: spec
                .setup
                .machine
                .drawn_ps(Key::MicroCall, &spec.setup.draw),
            peak_slab_pages: Cell::new(0),
            elsewhere: Cell::new(0),
            objects: (0..spec.cpus).map(|_| RefCell::default()).collect(),
        }
        .run(D::NAME)
    });
    of_run(ran, || spec.label())
}

/// A run.
struct Bench<'a, 'h, D: Design> {
    spec: &'a MicroSpec,
    driver: &'a Driver<'h, D>,
    /// The objects' own cache; without one they come from `kmalloc()`.
    cache: Option<CacheIndex>,
    /// Work of the benchmark for a call.
    call_ps: u64,
    /// Objects that each CPU has allocated, in calls of [`MicroSpec::bulk`].
    objects: Vec<RefCell<Vec<Vec<ObjectRef<'h>>>>>,
    /// Most slab pages behind a phase.
    peak_slab_pages: Cell<u64>,
    /// Objects that were allocated on other nodes than the one they were asked of.
    elsewhere: Cell<u64>,
}

impl<'h, D: Design> Bench<'_, 'h, D> {
    fn run(&self, design: &'static str) -> Result<MicroReport, WorkError> {
        self.round()?;
        self.elsewhere.set(0);
        let (mut allocs, mut frees) = (Phase::default(), Phase::default());
        for _ in 0..self.spec.rounds {
            let (alloc, free) = self.round()?;
            allocs.add(&alloc);
            frees.add(&free);
        }
        let all = self.driver.machine().time_counters().unwrap_or_default();
        let memory = Memory {
            slab_pages: [self.peak_slab_pages.get(), self.driver.slab_pages()],
            elsewhere: self.elsewhere.get(),
        };
        Ok(MicroReport::of(
            design, self.spec, &allocs, &frees, all, &memory,
        ))
    }

    /// Allocations, then frees; or both at once.
    fn round(&self) -> Result<(Phase, Phase), WorkError> {
        match self.spec.pattern {
            Pattern::Pair => {
                let both = self.phase(|cpu| {
                    for _ in 0..self.spec.count {
                        let object = self.alloc().ok_or(NoMemory)?;
                        self.free(object, cpu);
                    }
                    Ok(())
                })?;
                Ok((both, Phase::default()))
            }
            Pattern::Batch | Pattern::Cross => {
                let allocs = self.phase(|cpu| {
                    let mut own = Vec::with_capacity(self.spec.count as usize);
                    for _ in 0..self.spec.count {
                        own.push(self.alloc().ok_or(NoMemory)?);
                    }
                    self.objects[cpu.0 as usize].borrow_mut().push(own);
                    Ok(())
                })?;
                let frees = self.phase(|cpu| {
                    let from = match self.spec.pattern {
                        Pattern::Cross => (cpu.0 + 1) % self.spec.cpus,
                        _ => cpu.0,
                    };
                    let objects = self.objects[from as usize].take();
                    for object in objects.into_iter().flatten() {
                        self.free(object, CpuId(from));
                    }
                    Ok(())
                })?;
                Ok((allocs, frees))
            }
            Pattern::Spread => self.spread(),
            Pattern::Bulk => {
                let cache = self.cache.ok_or_else(spec::bulk_kmalloc)?;
                let bulk = self.spec.bulk as usize;
                let calls = self.spec.count / self.spec.bulk;
                let both = self.phase(|cpu| {
                    for _ in 0..calls {
                        self.driver.machine().spend(2 * self.call_ps);
                        let all = self.driver.alloc_bulk(cache, bulk);
                        let mut objects = all.ok_or(NoMemory)?;
                        let freed = self.driver.free_bulk(cache, &mut objects, cpu);
                        debug_assert_eq!(freed, Ok(()), "the objects came from this very cache");
                    }
                    Ok(())
                })?;
                Ok((both, Phase::default()))
            }
        }
    }

    /// Allocations of the first CPU, then frees of all others.
    fn spread(&self) -> Result<(Phase, Phase), WorkError> {
        let others = self.spec.cpus - 1;
        let allocs = self.phase(|CpuId(cpu)| {
            let mut own = Vec::new();
            own.resize_with(others as usize, Vec::new);
            for at in 0..if cpu == 0 { self.spec.count } else { 0 } {
                own[(at % others) as usize].push(self.alloc().ok_or(NoMemory)?);
            }
            for (other, objects) in (1..).zip(own).filter(|_| cpu == 0) {
                self.objects[other].borrow_mut().push(objects);
            }
            Ok(())
        })?;
        let frees = self.phase(|CpuId(cpu)| {
            let objects = self.objects[cpu as usize].take();
            for object in objects.into_iter().flatten() {
                self.free(object, CpuId(0));
            }
            Ok(())
        })?;
        Ok((allocs, frees))
    }

    fn alloc(&self) -> Option<ObjectRef<'h>> {
        self.driver.machine().spend(self.call_ps);
        let Some(node) = self.spec.node.map(NodeId) else {
            return match self.cache {
                Some(cache) => self.driver.alloc(cache),
                None => self.driver.kmalloc(self.spec.object_bytes),
            };
        };
        let object = match self.cache {
            Some(cache) => self.driver.alloc_node(cache, node),
            None => self.driver.kmalloc_node(self.spec.object_bytes, node),
        }?;
        if self.driver.node_of(&object) != Some(node) {
            self.elsewhere.set(self.elsewhere.get() + 1);
        }
        Some(object)
    }

    fn free(&self, object: ObjectRef<'h>, allocated_on: CpuId) {
        self.driver.machine().spend(self.call_ps);
        let freed = match self.cache {
            Some(cache) => self.driver.free(cache, object, allocated_on),
            None => self.driver.kfree(object, allocated_on),
        };
        debug_assert_eq!(freed, Ok(()), "the object was allocated so");
    }

    /// Lets all CPUs do something, which they begin together.
    fn phase(&self, body: impl Fn(CpuId) -> Result<(), NoMemory>) -> Result<Phase, WorkError> {
        let of = Of {
            machine: self.driver.machine(),
            what: "the objects",
            seed: self.spec.setup.seed,
            within_ns: SKEW_NS,
        };
        // CPUs beyond those that were asked for are there, and idle.
        let phase = Phase::run(&of, |cpu| match cpu.0 < self.spec.cpus {
            true => body(cpu),
            false => Ok(()),
        });
        let slab_pages = self.driver.slab_pages();
        let peak = self.peak_slab_pages.get().max(slab_pages);
        self.peak_slab_pages.set(peak);
        phase
    }
}
