//! Whole heaps on real threads, and tests that must be alone in the process.
//!
//! In a storm eight threads per CPU allocate, fill, hand over, check and free
//! objects of all kinds while others move them between CPUs, signal them, flush and resize their
//! caches, and fork.
//!
//! Every live object carries its owner's number over its whole length. Each correct run has
//! negative controls, the same storm on a machine with one operation broken; they run in a process
//! of their own, because they may crash or hang, and prove that the storm would show a mistake.
//! A run tries the default era of each design; `cargo xtask soak` tries all of them.
//! `QUARRY_STRESS_SECONDS` lengthens the correct runs; `--nocapture` shows what happened.

mod broken;
#[path = "../host/design_tests.rs"]
mod design_tests;
mod endurance;
mod footprint;
mod forks;
mod owned;
mod owner;
mod pages;
mod pages_fork;
mod pool;
mod pool_ends;
mod storm;
mod sys;
mod uring_fork;
mod worker;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

use quarry::kernel::design::Design;
use quarry::kernel::for_all_designs;
use quarry::kernel::machine::Machine;
use quarry::{Builder, Era, HostHeap, Mode, Slob, Slub};

use broken::{Broken, Fault};
use design_tests::design_tests;
use storm::Outcome;
use world::World;

/// Tests here use process-wide things: signals, timers, forks, the memory of the process. One runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A heap of 64 MiB.
fn small<D: Design>(mode: Mode) -> HostHeap<D> {
    let builder = Builder::<D>::new().memory_bytes(64 << 20);
    builder.mode(mode).build().expect("a heap")
}

/// Bytes that a heap of a storm may hand out.
const MEMORY: usize = 256 << 20;

fn seconds() -> f64 {
    std::env::var("QUARRY_STRESS_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(if is_soak() { 1.5 } else { 0.6 })
}

fn is_soak() -> bool {
    std::env::var_os("QUARRY_SOAK").is_some()
}

/// The eras to try: the design's default, and in a soak all that it has.
fn eras<D: Design>() -> Vec<Era> {
    if is_soak() {
        D::ERAS.to_vec()
    } else {
        vec![D::DEFAULT_ERA]
    }
}

/// Blows the storm over a heap that rests during forks, and checks all that must hold then.
fn must_hold<D: Design>(mode: Mode, era: Era) {
    let _alone = alone();
    let builder = Builder::<D>::new().memory_bytes(MEMORY);
    let heap = builder.mode(mode).era(era).build().expect("a heap").leak();
    let world = World::leak(heap);
    let outcome = storm::run(world, seconds(), true);
    eprintln!("{} {era} {mode:?}: {outcome:?}", D::NAME);
    check(world, &outcome);
    assert!(
        outcome.forks > outcome.fork_misses,
        "no child was asked: {outcome:?}"
    );
}

fn check<M: Machine + Send + Sync, D: Design>(world: &World<M, D>, outcome: &Outcome) {
    assert_eq!(world.complaint(), None);
    assert_eq!(outcome.child_failures, 0, "{outcome:?}");
    assert!(outcome.ops > 0 && outcome.handled > 0 && outcome.moves > 0);
    world.check_end(outcome.aborts);
}

fn with_sequences<D: Design>() {
    for era in eras::<D>() {
        must_hold::<D>(Mode::Auto, era);
    }
}

fn with_fallback<D: Design>() {
    for era in eras::<D>() {
        must_hold::<D>(Mode::Fallback, era);
    }
}

design_tests!(holds_with_sequences: with_sequences);
design_tests!(holds_with_fallback: with_fallback);

#[test]
fn pages_hold() {
    let _alone = alone();
    for mode in [Mode::Auto, Mode::Fallback] {
        let heap = Builder::<Slub>::new().memory_bytes(MEMORY).mode(mode);
        let heap = heap.build().expect("a heap").leak();
        pages::run(heap.pages(), seconds() / 2.0, mode);
    }
}

/// Blows the storm over a machine with a fault; ends with a panic if something is wrong.
fn with_fault<D: Design>(fault: Fault, mode: Mode, seconds: f64) {
    let machine = Broken::new(fault, mode, MEMORY);
    let heap = quarry::Heap::<_, D>::new(machine, D::DEFAULT_ERA, quarry::BootParams::default());
    let world = World::leak(Box::leak(Box::new(heap.unwrap())));
    let outcome = storm::run(world, seconds, false);
    eprintln!("{} {mode:?} {fault:?}: {outcome:?}", D::NAME);
    check(world, &outcome);
}

/// Runs in a process that [`broken::is_seen`] started; does nothing otherwise.
#[test]
#[ignore = "run by the negative controls"]
fn one_fault() {
    let Some((design, fault, mode)) = broken::asked() else {
        return;
    };
    for_all_designs!(D => if design == D::NAME {
        return with_fault::<D>(fault, mode, broken::SECONDS);
    });
    panic!("no design {design}");
}

#[test]
fn a_wrapped_machine_holds() {
    let _alone = alone();
    for_all_designs!(D => with_fault::<D>(Fault::None, Mode::Auto, seconds() / 2.0));
}

fn must_be_seen<D: Design>(fault: Fault, mode: Mode) {
    let _alone = alone();
    let cpus = sys::allowed_cpus().len();
    assert!(
        cpus > 1,
        "one CPU shows no clash in bounded time: --skip negative_control"
    );
    let design = D::NAME;
    assert!(
        broken::is_seen(design, fault, mode),
        "{design} {mode:?} {fault:?}: the storm does not see a broken machine"
    );
}

/// Looks for the fault in every design with per-CPU state of its own.
fn must_be_seen_in_slots(fault: Fault, mode: Mode) {
    for_all_designs!(D => if D::NAME != Slob::NAME {
        must_be_seen::<D>(fault, mode);
    });
}

#[test]
fn negative_control_unprotected_slot() {
    must_be_seen_in_slots(Fault::Slot, Mode::Fallback);
    must_be_seen_in_slots(Fault::Slot, Mode::Auto);
}

#[test]
fn negative_control_locks_do_not_exclude() {
    for_all_designs!(D => must_be_seen::<D>(Fault::Lock, Mode::Auto));
}

#[test]
fn negative_control_remote_only_stores() {
    must_be_seen_in_slots(Fault::Remote, Mode::Auto);
}
