//! The storm over hardened heaps: no measure reports correct use, with handlers, moves and forks between any two steps.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quarry::kernel::design::Design;
use quarry::{Hardening, Report};

use super::design_tests::design_tests;
use super::{Way, eras, is_soak, must_hold, seconds};

/// Reports of all heaps here.
static REPORTS: AtomicU64 = AtomicU64::new(0);
static FIRST: Mutex<Option<Report>> = Mutex::new(None);

/// The reporter of the heaps here. A handler may call it, so it neither waits nor allocates.
pub(crate) fn keep(report: &Report) {
    REPORTS.fetch_add(1, Relaxed);
    if let Ok(mut first) = FIRST.try_lock() {
        first.get_or_insert(*report);
    }
}

/// Number of reports so far: 0, as no test here makes a mistake.
pub(crate) fn reports() -> u64 {
    REPORTS.load(Relaxed)
}

/// Ends the test if there was a report.
pub(crate) fn no_report() {
    let first = FIRST.lock().ok().and_then(|first| *first);
    let text = first.map(|report| report.to_string());
    assert_eq!((reports(), text), (0, None), "of correct use");
}

/// All measures, and the delay alone: what leaves the ring is used again at once then, whatever its bytes are.
fn with_measures<D: Design>() {
    const RUNS: [(Hardening, Way); 6] = [
        (Hardening::ALL, Way::Auto),
        (Hardening::DELAY, Way::Fallback),
        (Hardening::ALL, Way::Fallback),
        (Hardening::ALL, Way::Ids),
        (Hardening::DELAY, Way::Auto),
        (Hardening::DELAY, Way::Ids),
    ];
    if !D::FEATURES.hardens {
        return;
    }
    let runs = if is_soak() { &RUNS[..] } else { &RUNS[..2] };
    for era in eras::<D>() {
        for &(measures, way) in runs {
            must_hold::<D>(way, era, measures, seconds() / 3.0);
        }
    }
}

design_tests!(holds: with_measures);
