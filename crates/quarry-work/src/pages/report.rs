//! Result of processes that fault pages in.

use quarry_core::machine::LockClass;
use quarry_sim::time::TimeCounters;
use schemars::JsonSchema;
use serde::Serialize;

use super::spec::PagesSpec;
use crate::causes::Causes;
use crate::phase::{Phase, PhaseReport};

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
    /// Pages that were faulted in and freed.
    pub pages: u64,
    /// `--seed`: decides all that is left to chance.
    pub seed: u64,
    /// Times of a fault: entry, allocation, zeroing.
    pub fault: PhaseReport,
    /// Times of a page's free by the unmapping.
    pub free: PhaseReport,
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
    /// Time counters of the machine over the whole run, with the round that is not counted.
    #[serde(skip)]
    pub spent: TimeCounters,
}

impl PagesReport {
    pub(super) fn of(spec: &PagesSpec, faults: &Phase, frees: &Phase, all: TimeCounters) -> Self {
        let own = u64::from(spec.pages) * u64::from(spec.rounds);
        let pages = own * u64::from(spec.processes);
        let ghz = spec.setup.machine.ghz;
        let mut spent = faults.spent.clone();
        spent.add(&frees.spent);
        let (fault, free) = (faults.report(pages, ghz), frees.report(pages, ghz));
        let (fault_lock, free_lock) = (zone_lock(faults, pages), zone_lock(frees, pages));
        Self {
            era: spec.setup.era.name(),
            machine: spec.setup.machine.name.clone(),
            processes: spec.processes,
            page_size: spec.setup.page_bytes,
            pages,
            seed: spec.setup.seed,
            fault,
            free,
            fault_lock,
            free_lock,
            per_second: PhaseReport::in_turn([fault, free]),
            zone_wait: (fault_lock.wait_ns + free_lock.wait_ns) / (fault.ns + free.ns),
            causes: Causes::of(&spent, pages),
            spent: all,
        }
    }
}

fn zone_lock(phase: &Phase, pages: u64) -> ZoneLock {
    let lock = phase.spent.locks[LockClass::Zone as usize];
    let ns = |ps: u64| ps as f64 / 1000.0 / pages as f64;
    ZoneLock {
        hold_ns: ns(lock.hold_ps),
        wait_ns: ns(lock.wait_ps),
        taken: lock.taken as f64 / pages as f64,
    }
}
