//! Result of processes that fault pages in.

use quarry_sim::time::{LockTimes, TimeCounters};
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

/// A lock in one half of a round, per page.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct LockReport {
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
    /// Pages, in the mean, after which a process moves to another CPU; null if none moves.
    pub move_every: Option<u32>,
    /// True if pages are on lists for reclaim, whose lock is taken.
    pub lru: bool,
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages that were faulted in while counting.
    pub pages: u64,
    /// Pages that were freed meanwhile.
    pub freed: u64,
    /// Part of the freed pages that another CPU had allocated, from 0 to 1.
    pub other_cpu: f64,
    /// Simulated seconds that were counted.
    pub seconds: f64,
    /// `--seed`: decides all that is left to chance.
    pub seed: u64,
    /// Times of a fault: entry, allocation, zeroing.
    pub fault: HalfReport,
    /// Times of a page's free by the unmapping.
    pub free: HalfReport,
    /// The zone lock in faults.
    pub fault_lock: LockReport,
    /// The zone lock in frees.
    pub free_lock: LockReport,
    /// The lock of the lists for reclaim in faults; null without them.
    pub fault_lru: Option<LockReport>,
    /// The same lock in frees.
    pub free_lru: Option<LockReport>,
    /// Pages that all processes fault in and free per second.
    pub per_second: f64,
    /// Part of a page's time that its CPU waited for the zone lock, from 0 to 1.
    pub zone_wait: f64,
    /// Part of a page's time that its CPU waited for the lock of the lists for reclaim, from 0 to 1; null without them.
    pub lru_wait: Option<f64>,
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
        let all_ps = (faults.ps + frees.ps) as f64;
        let waits = |a: &LockTimes, b: &LockTimes| (a.wait_ps + b.wait_ps) as f64 / all_ps;
        let lru = |half: &Half| spec.lru.then(|| lock_report(half.pages, &half.lru));
        Self {
            era: spec.setup.era.name(),
            machine: spec.setup.machine.name.clone(),
            processes: spec.processes,
            move_every: spec.move_every,
            lru: spec.lru,
            page_size: spec.setup.page_bytes,
            pages: faults.pages,
            freed: frees.pages,
            other_cpu: frees.elsewhere as f64 / frees.pages as f64,
            seconds,
            seed: spec.setup.seed,
            fault: half(faults, ghz),
            free: half(frees, ghz),
            fault_lock: lock_report(faults.pages, &faults.lock),
            free_lock: lock_report(frees.pages, &frees.lock),
            fault_lru: lru(faults),
            free_lru: lru(frees),
            per_second: (faults.pages + frees.pages) as f64 / 2.0 / seconds,
            zone_wait: waits(&faults.lock, &frees.lock),
            lru_wait: spec.lru.then(|| waits(&faults.lru, &frees.lru)),
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

fn lock_report(pages: u64, lock: &LockTimes) -> LockReport {
    let ns = |ps: u64| ps as f64 / 1000.0 / pages as f64;
    LockReport {
        hold_ns: ns(lock.hold_ps),
        wait_ns: ns(lock.wait_ps),
        taken: lock.taken as f64 / pages as f64,
    }
}
