//! The per-CPU try-lock on real threads: eight threads per CPU pass tokens through slots while
//! others move them between CPUs, signal them, drain their slots and fork.
//!
//! Each correct run has its negative controls, the same storm with a lock that is wrong; they
//! prove that the storm would show a mistake. `QUARRY_STRESS_SECONDS` lengthens the correct runs;
//! `--nocapture` shows what happened in each.

mod arena;
mod storm;

use std::sync::{Mutex, PoisonError};

use quarry_host::Mode;

use crate::arena::{Arena, CORRECT, Locks, NO_BARRIER, UNPROTECTED};
use crate::storm::Outcome;

/// The storm uses process-wide things: signals, timers, fork. One run at a time.
static STORM: Mutex<()> = Mutex::new(());

/// Longest search for a clash.
const NEGATIVE_SECONDS_MAX: f64 = 60.0;

fn seconds() -> f64 {
    std::env::var("QUARRY_STRESS_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1.5)
}

/// Blows the storm over one kind of lock.
fn storm(mode: Mode, locks: Locks, seconds: f64, stop_at_clash: bool) -> Outcome {
    let _alone = STORM.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = arena::machine(mode);
    let (arena, extra) = Arena::new(machine, locks, 32);
    let outcome = storm::run(arena, extra, seconds, stop_at_clash);
    eprintln!("{mode:?}, {}: {outcome:?}", locks.name);
    outcome
}

fn must_hold(mode: Mode) {
    let outcome = storm(mode, CORRECT, seconds(), false);
    assert_eq!(
        (
            outcome.clashes,
            outcome.lost,
            outcome.duplicated,
            outcome.child_failures
        ),
        (0, 0, 0, 0),
        "{outcome:?}"
    );
    assert!(outcome.ops > 0);
}

fn must_break(mode: Mode, locks: Locks) {
    // On one CPU two threads meet only if both are preempted within a few nanoseconds, which takes hours.
    assert!(
        storm::allowed_cpus().len() > 1,
        "one CPU shows no clash in bounded time: --skip negative_control"
    );
    let outcome = storm(mode, locks, NEGATIVE_SECONDS_MAX, true);
    assert!(
        outcome.clashes > 0,
        "the storm does not see a broken lock: {outcome:?}"
    );
}

#[test]
fn sequences_hold() {
    must_hold(Mode::Auto);
}

#[test]
fn fallback_holds() {
    must_hold(Mode::Fallback);
}

#[test]
fn negative_control_sequence_not_armed() {
    must_break(Mode::Auto, UNPROTECTED);
}

#[test]
fn negative_control_remote_without_barrier() {
    if arena::machine(Mode::Auto).mode() == Mode::Fallback {
        // No sequence is ever in flight: an acquisition without a barrier is right.
        let outcome = storm(Mode::Auto, NO_BARRIER, seconds(), true);
        assert_eq!(outcome.clashes, 0, "{outcome:?}");
    } else {
        must_break(Mode::Auto, NO_BARRIER);
    }
}

#[test]
fn negative_control_fallback_without_compare_and_swap() {
    must_break(Mode::Fallback, UNPROTECTED);
}
