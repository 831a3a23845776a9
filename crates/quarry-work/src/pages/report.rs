//! Result of processes that fault pages in.

use quarry_sim::time::TimeCounters;
use schemars::JsonSchema;
use serde::Serialize;

use super::spec::PagesSpec;
use super::window::{Counted, Half};
use crate::causes::Causes;

/// Time of a fault, or of a page's free.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct HalfReport {
    /// Nanoseconds that it takes its CPU, as the mean of all.
    pub ns: f64,
    /// The same in cycles.
    pub cycles: f64,
}

/// The zone lock in one half of a round, per page.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct ZoneLock {
    /// Nanoseconds that it was held.
    pub hold_ns: f64,
    /// Nanoseconds that CPUs waited for it.
    pub wait_ns: f64,
    /// Acquisitions.
    pub taken: f64,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct PagesReport {
    /// Kernel release whose rules apply.
    pub era: &'static str,
    /// Machine whose time is simulated (`quarry machines`).
    pub machine: String,
    /// Processes, each on a CPU of its own.
    pub processes: u32,
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages that were faulted in while counting.
    pub pages: u64,
    /// Pages that were freed meanwhile.
    pub freed: u64,
    /// Simulated seconds that were counted.
    pub seconds: f64,
    /// `--seed`: decides all that is left to chance.
    pub seed: u64,
    /// Times of a fault: entry, allocation, zeroing.
    pub fault: HalfReport,
    /// Times of a page's free by the unmapping.
    pub free: HalfReport,
    /// The zone lock in faults.
    pub fault_lock: ZoneLock,
    /// The zone lock in frees.
    pub free_lock: ZoneLock,
    /// Pages that all processes fault in and free per second.
    pub per_second: f64,
    /// Part of a page's time that its CPU waited for the zone lock, from 0 to 1.
    pub zone_wait: f64,
    /// Causes of the time of a page's fault and free.
    pub causes: Causes,
    /// Time counters of the machine over the whole run, with the rounds that are not counted.
    #[serde(skip)]
    pub spent: TimeCounters,
}

impl PagesReport {
    pub(super) fn of(spec: &PagesSpec, counted: &Counted, all: TimeCounters) -> Self {
        let Counted { faults, frees, .. } = counted;
        let ghz = spec.setup.machine.ghz;
        let seconds = counted.ps as f64 / 1e12;
        let wait_ps = faults.lock.wait_ps + frees.lock.wait_ps;
        Self {
            era: spec.setup.era.name(),
            machine: spec.setup.machine.name.clone(),
            processes: spec.processes,
            page_size: spec.setup.page_bytes,
            pages: faults.pages,
            freed: frees.pages,
            seconds,
            seed: spec.setup.seed,
            fault: half(faults, ghz),
            free: half(frees, ghz),
            fault_lock: zone_lock(faults),
            free_lock: zone_lock(frees),
            per_second: (faults.pages + frees.pages) as f64 / 2.0 / seconds,
            zone_wait: wait_ps as f64 / (faults.ps + frees.ps) as f64,
            causes: Causes::of(&counted.spent, (faults.pages + frees.pages) / 2),
            spent: all,
        }
    }
}

fn half(half: &Half, ghz: f64) -> HalfReport {
    let ns = half.ps as f64 / 1000.0 / half.pages as f64;
    HalfReport {
        ns,
        cycles: ns * ghz,
    }
}

fn zone_lock(Half { pages, lock, .. }: &Half) -> ZoneLock {
    let ns = |ps: u64| ps as f64 / 1000.0 / *pages as f64;
    ZoneLock {
        hold_ns: ns(lock.hold_ps),
        wait_ns: ns(lock.wait_ps),
        taken: lock.taken as f64 / *pages as f64,
    }
}
