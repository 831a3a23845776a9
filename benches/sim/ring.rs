//! A load on all CPUs of a virtual machine.

use std::cell::RefCell;

use quarry_core::design::{CacheSpec, Design};
use quarry_core::era::Era;
use quarry_core::geometry::BootParams;
use quarry_core::machine::CpuId;
use quarry_sim::Config;
use quarry_sim::driver::{CacheIndex, Driver, ObjectRef, drive};

/// Bytes of an object. Its user writes all of them.
const OBJECT_BYTES: u32 = 256;
/// Objects that a CPU has at a time, in addition to those in its inbox.
const KEPT: usize = 8;

/// Events and times of a run.
pub(crate) struct Ran {
    /// Allocations and frees of all CPUs.
    pub(crate) events: u64,
    /// Seconds of this computer.
    pub(crate) seconds: f64,
    /// Nanoseconds of the slowest virtual CPU.
    pub(crate) simulated_ns: u64,
}

/// Every CPU allocates objects and writes to them. Half of them it frees itself; the other half its neighbour frees.
pub(crate) fn run<D: Design>(config: Config, era: Era, events: u64) -> Ran {
    let cpus = config.cpus;
    drive::<D, _>(config, era, BootParams::default(), |driver| {
        let spec = CacheSpec::new("ring", OBJECT_BYTES);
        let cache = driver.create_cache(&spec).expect("room for a cache");
        let inboxes: Vec<RefCell<Vec<ObjectRef<'_>>>> =
            (0..cpus).map(|_| RefCell::default()).collect();
        let rounds = events / u64::from(cpus) / 2;
        let began = crate::cpu_seconds();
        let ran = driver.machine().run_cpus(|CpuId(cpu)| {
            let free = |object, from| {
                let freed = driver.free(cache, object, CpuId(from));
                freed.expect("an object of this cache");
            };
            let before = (cpu + cpus - 1) % cpus;
            let next = &inboxes[((cpu + 1) % cpus) as usize];
            let mut kept = Vec::new();
            for round in 0..rounds {
                let object = written(driver, cache);
                if round % 2 == 0 {
                    next.borrow_mut().push(object);
                } else {
                    kept.push(object);
                }
                if kept.len() > KEPT {
                    free(kept.swap_remove(0), cpu);
                }
                let received = inboxes[cpu as usize].take();
                received.into_iter().for_each(|object| free(object, before));
            }
            kept.into_iter().for_each(|object| free(object, cpu));
        });
        ran.expect("no deadlock");
        let seconds = crate::cpu_seconds() - began;
        let left: usize = inboxes.iter().map(|inbox| inbox.borrow().len()).sum();
        let counters = driver.machine().time_counters().unwrap_or_default();
        Ran {
            events: rounds * u64::from(cpus) * 2 - left as u64,
            seconds,
            simulated_ns: counters.cpu_ps.iter().max().map_or(0, |ps| ps / 1000),
        }
    })
    .expect("a machine")
}

/// An object that its user has written to.
fn written<'h, D: Design>(driver: &Driver<'h, D>, cache: CacheIndex) -> ObjectRef<'h> {
    let object = driver.alloc(cache).expect("memory");
    driver.zero(&object, OBJECT_BYTES);
    object
}
