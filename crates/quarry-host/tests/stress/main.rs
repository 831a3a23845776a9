//! The per-CPU try-lock on real threads: eight threads per CPU pass tokens through slots while
//! others move them between CPUs, signal them, drain their slots and fork.
//!
//! Each correct run has its negative controls, the same storm with a lock that is wrong; they
//! prove that the storm would show a mistake. `QUARRY_STRESS_SECONDS` lengthens the correct runs;
//! `--nocapture` shows what happened in each.

mod arena;
mod storm;

use std::sync::{Mutex, PoisonError};

use quarry_core::machine::Cpus as _;
use quarry_host::{Mode, SlotIndex};

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

/// A way to take slots, and to find them.
type Way = (Mode, SlotIndex);

const SEQUENCES: Way = (Mode::Auto, SlotIndex::Cpu);
const FALLBACK: Way = (Mode::Fallback, SlotIndex::Cpu);
/// As [`SEQUENCES`] where there are no ids.
const IDS: Way = (Mode::Auto, SlotIndex::ConcurrencyId);

/// True if slots go by concurrency ids on this computer, as they must if the kernel says that it keeps them.
fn has_ids() -> bool {
    let machine = arena::machine(IDS.0, IDS.1);
    let in_use = machine.slot_index().in_use == SlotIndex::ConcurrencyId;
    // SAFETY: reads what the kernel gave the process; 27 is AT_RSEQ_FEATURE_SIZE.
    let feature_bytes = unsafe { libc::getauxval(27) };
    let expected = cfg!(target_arch = "x86_64")
        && feature_bytes >= 28
        && machine.mode() == Mode::Rseq
        && machine.topology().nodes == 1;
    assert_eq!(in_use, expected, "{:?}", machine.slot_index());
    in_use
}

/// Blows the storm over one kind of lock.
fn storm(way: Way, locks: Locks, seconds: f64, stop_at_clash: bool) -> Outcome {
    let _alone = STORM.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = arena::machine(way.0, way.1);
    let (arena, extra) = Arena::new(machine, locks, 32);
    let outcome = storm::run(arena, extra, seconds, stop_at_clash);
    eprintln!("{way:?}, {}: {outcome:?}", locks.name);
    outcome
}

fn must_hold(way: Way) {
    let outcome = storm(way, CORRECT, seconds(), false);
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
    assert!(outcome.ops > 0 && outcome.drains > 0, "{outcome:?}");
}

fn must_break(way: Way, locks: Locks) {
    // On one CPU two threads meet only if both are preempted within a few nanoseconds, which takes hours.
    assert!(
        storm::allowed_cpus().len() > 1,
        "one CPU shows no clash in bounded time: --skip negative_control"
    );
    let outcome = storm(way, locks, NEGATIVE_SECONDS_MAX, true);
    assert!(
        outcome.clashes > 0,
        "the storm does not see a broken lock: {outcome:?}"
    );
}

/// Without sequences in flight an acquisition needs no barrier, and holds; else it must break.
fn must_break_with_sequences(way: Way, locks: Locks) {
    if arena::machine(way.0, way.1).mode() == Mode::Fallback {
        let outcome = storm(way, locks, seconds(), true);
        assert_eq!(outcome.clashes, 0, "{outcome:?}");
    } else {
        must_break(way, locks);
    }
}

#[test]
fn sequences_hold() {
    must_hold(SEQUENCES);
}

#[test]
fn fallback_holds() {
    must_hold(FALLBACK);
}

#[test]
fn ids_hold() {
    has_ids();
    must_hold(IDS);
}

#[test]
fn negative_control_sequence_not_armed() {
    must_break(SEQUENCES, UNPROTECTED);
}

#[test]
fn negative_control_sequence_by_id_not_armed() {
    must_break(IDS, UNPROTECTED);
}

#[test]
fn negative_control_remote_without_barrier() {
    must_break_with_sequences(SEQUENCES, NO_BARRIER);
}

#[test]
fn negative_control_ids_without_barrier() {
    must_break_with_sequences(IDS, NO_BARRIER);
}

#[test]
fn negative_control_fallback_without_compare_and_swap() {
    must_break(FALLBACK, UNPROTECTED);
}
