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
mod hardened;
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
use quarry::kernel::machine::Cpus as _;
use quarry::kernel::machine::Machine;
use quarry::{Builder, Era, Hardening, HostHeap, HostMachine, Mode, Slob, SlotIndex, Slub};

use broken::{Broken, Fault};
use design_tests::design_tests;
use storm::Outcome;
use world::World;

/// Tests here use process-wide things: signals, timers, forks, the memory of the process. One runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A way to take slots, and to find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By sequences where they work, by CPU number.
    Auto,
    Fallback,
    /// By sequences where they work, by concurrency id where the kernel keeps it.
    Ids,
}

impl Way {
    pub(crate) fn machine(self, memory: usize) -> HostMachine {
        let builder = HostMachine::builder().memory_bytes(memory);
        let builder = builder.mode(self.mode()).slot_index(self.slot_index());
        let machine = builder.build().expect("a machine");
        if self == Self::Ids {
            must_have_ids(&machine);
        }
        machine
    }

    fn heap<D: Design>(self, era: Era, measures: Hardening) -> &'static HostHeap<D> {
        let builder = Builder::<D>::new().memory_bytes(MEMORY).era(era);
        let builder = builder.mode(self.mode()).slot_index(self.slot_index());
        let builder = builder.hardened(measures).reporter(hardened::keep);
        let heap = builder.build().expect("a heap").leak();
        if self == Self::Ids {
            must_have_ids(heap.machine());
        }
        heap
    }

    fn mode(self) -> Mode {
        match self {
            Self::Auto | Self::Ids => Mode::Auto,
            Self::Fallback => Mode::Fallback,
        }
    }

    fn slot_index(self) -> SlotIndex {
        match self {
            Self::Auto | Self::Fallback => SlotIndex::Cpu,
            Self::Ids => SlotIndex::ConcurrencyId,
        }
    }
}

/// Slots must go by ids if the kernel says that it keeps them.
fn must_have_ids(machine: &HostMachine) {
    let slots = machine.slot_index();
    // SAFETY: reads what the kernel gave the process; 27 is AT_RSEQ_FEATURE_SIZE.
    let feature_bytes = unsafe { libc::getauxval(27) };
    let expected = cfg!(target_arch = "x86_64")
        && feature_bytes >= 28
        && machine.mode() == Mode::Rseq
        && machine.topology().nodes == 1;
    assert_eq!(
        slots.in_use == SlotIndex::ConcurrencyId,
        expected,
        "{slots:?}"
    );
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
        .unwrap_or(if is_soak() { 1.5 } else { 0.3 })
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
fn must_hold<D: Design>(way: Way, era: Era, measures: Hardening, seconds: f64) {
    let _alone = alone();
    let world = World::leak(way.heap::<D>(era, measures));
    let outcome = storm::run(world, seconds, true);
    eprintln!("{} {era} {way:?} {measures:?}: {outcome:?}", D::NAME);
    check(world, &outcome);
    assert!(
        outcome.forks > outcome.fork_misses,
        "no child was asked: {outcome:?}"
    );
}

fn check<M: Machine + Send + Sync, D: Design>(world: &World<M, D>, outcome: &Outcome) {
    assert_eq!(world.complaint(), None);
    hardened::no_report();
    assert_eq!(outcome.child_failures, 0, "{outcome:?}");
    assert!(outcome.ops > 0 && outcome.handled > 0 && outcome.moves > 0);
    world.check_end(outcome.aborts);
    hardened::no_report();
}

fn with_sequences<D: Design>() {
    for era in eras::<D>() {
        must_hold::<D>(Way::Auto, era, Hardening::NONE, seconds());
    }
}

fn with_fallback<D: Design>() {
    for era in eras::<D>() {
        must_hold::<D>(Way::Fallback, era, Hardening::NONE, seconds());
    }
}

fn with_ids<D: Design>() {
    for era in eras::<D>() {
        must_hold::<D>(Way::Ids, era, Hardening::NONE, seconds());
    }
}

design_tests!(holds_with_sequences: with_sequences);
design_tests!(holds_with_ids: with_ids);
design_tests!(holds_with_fallback: with_fallback);

#[test]
fn pages_hold() {
    let _alone = alone();
    for way in [Way::Auto, Way::Fallback, Way::Ids] {
        let heap = way.heap::<Slub>(Slub::DEFAULT_ERA, Hardening::NONE);
        pages::run(heap.pages(), seconds() / 2.0, way);
    }
}

/// Blows the storm over a machine with a fault; ends with a panic if something is wrong.
fn with_fault<D: Design>(fault: Fault, way: Way, seconds: f64) {
    let machine = Broken::new(fault, way, MEMORY);
    let heap = quarry::Heap::<_, D>::new(machine, D::DEFAULT_ERA, quarry::BootParams::default());
    let world = World::leak(Box::leak(Box::new(heap.unwrap())));
    let outcome = storm::run(world, seconds, false);
    eprintln!("{} {way:?} {fault:?}: {outcome:?}", D::NAME);
    check(world, &outcome);
}

/// Runs in a process that [`broken::is_seen`] started; does nothing otherwise.
#[test]
#[ignore = "run by the negative controls"]
fn one_fault() {
    let Some((design, fault, way, seconds)) = broken::asked() else {
        return;
    };
    for_all_designs!(D => if design == D::NAME {
        return with_fault::<D>(fault, way, seconds);
    });
    panic!("no design {design}");
}

#[test]
fn a_wrapped_machine_holds() {
    let _alone = alone();
    for_all_designs!(D => with_fault::<D>(Fault::None, Way::Auto, seconds() / 2.0));
}

fn must_be_seen<D: Design>(fault: Fault, way: Way) {
    let _alone = alone();
    let cpus = sys::allowed_cpus().len();
    assert!(
        cpus > 1,
        "one CPU shows no clash in bounded time: --skip negative_control"
    );
    let design = D::NAME;
    assert!(
        broken::is_seen(design, fault, way),
        "{design} {way:?} {fault:?}: the storm does not see a broken machine"
    );
}

/// Looks for the fault in every design with per-CPU state of its own.
fn must_be_seen_in_slots(fault: Fault, way: Way) {
    for_all_designs!(D => if D::NAME != Slob::NAME {
        must_be_seen::<D>(fault, way);
    });
}

/// The same where slots go by concurrency ids, which differ from CPUs' numbers below the designs: a soak looks in all of them.
fn must_be_seen_by_ids(fault: Fault) {
    match is_soak() {
        true => must_be_seen_in_slots(fault, Way::Ids),
        false => must_be_seen::<Slub>(fault, Way::Ids),
    }
}

#[test]
fn negative_control_unprotected_slot() {
    must_be_seen_in_slots(Fault::Slot, Way::Fallback);
    must_be_seen_in_slots(Fault::Slot, Way::Auto);
    must_be_seen_by_ids(Fault::Slot);
}

#[test]
fn negative_control_locks_do_not_exclude() {
    for_all_designs!(D => must_be_seen::<D>(Fault::Lock, Way::Auto));
}

#[test]
fn negative_control_remote_only_stores() {
    must_be_seen_in_slots(Fault::Remote, Way::Auto);
    must_be_seen_by_ids(Fault::Remote);
}
