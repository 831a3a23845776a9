//! Costs of the library's primitives on this computer, each measured by itself. None is taken from a workload.
//!
//! A kernel turns interrupts off; the library takes a slot by a restartable sequence. So the kinds of work that protect a
//! CPU's state cost a slot here, and what only a kernel does costs nothing. A core runs ahead of what it waits for, from
//! one call into the next: so a slot, a call and an access to a line at hand are measured in loops whose turns do not
//! wait for each other. Loads that do wait, as a list's, come from farther away and keep their latency.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quarry_calibrate::{Effort, Sample};
use quarry_core::machine::{Memory as _, SlotLock, Slots as _};
use quarry_host::HostMachine;
use quarry_machines::{Cost, Key, Machine, Unit};

use crate::host;

/// Turns of a loop.
const TURNS: usize = 1 << 14;
/// Words that loops go over, and words of a line.
const WORDS: usize = 512;
const LINE_WORDS: usize = 8;

/// The primitives, in nanoseconds.
pub(crate) struct Primitives {
    /// The running CPU's slot, taken and given back.
    pub(crate) slot: Sample,
    /// A call that does that.
    pub(crate) call: Sample,
    /// A change of a word in the first cache.
    pub(crate) access: Sample,
}

impl Primitives {
    pub(crate) fn measure() -> Self {
        let machine = host::machine(1);
        let slot0 = machine.ranges().percpu.base.cast::<SlotLock>();
        let mut words = Vec::new();
        words.resize_with(WORDS, AtomicUsize::default);
        let (machine, words) = (black_box(&machine), black_box(&words[..]));
        Self {
            // SAFETY: `slot0` is CPU 0's place in the per-CPU range, which is zero-filled.
            slot: timed(|| unsafe { slots(machine, slot0) }),
            // SAFETY: as above.
            call: timed(|| unsafe { calls(machine, slot0) }),
            access: timed(|| accesses(words)),
        }
    }

    /// The machine with what the library costs on it.
    pub(crate) fn library_on(&self, machine: &Machine) -> Machine {
        let slot = "a slot taken and given back (percpu_try_lock), in a loop";
        let none = "the library does no such thing";
        let kinds = [
            (Key::IrqSave, none),
            (Key::Ipi, none),
            (Key::RemoteWake, none),
            (Key::Switch, none),
            (Key::Syscall, none),
        ];
        let mut library = machine.clone();
        for (key, source) in kinds {
            library = library.with(key, cost(Sample::of(0.0), source));
        }
        for key in [
            Key::IrqDisable,
            Key::Preempt,
            Key::LocalLock,
            Key::LocalCmpxchg,
        ] {
            library = library.with(key, cost(self.slot, slot));
        }
        let hit = "a word of the first cache changed, in a loop over 64 lines";
        let past = self.past(machine);
        library
            .with(Key::L1, cost(self.access, hit))
            .with(Key::Call, cost(self.call.less(self.slot), "a call that takes the slot, in a loop, less the slot"))
            .with(Key::SlowPath, cost(past, "the machine's slow path, a step that fails, a slot, and the locked operations of the gate and of a shared counter"))
    }

    /// A call past the slot: the machine's straight-line instructions, a step that fails, the slot for a look, and the
    /// locked operations of the gate and of a counter that all CPUs share.
    fn past(&self, machine: &Machine) -> Sample {
        let (straight, locked) = (
            machine.nominal_ns(Key::SlowPath),
            machine.nominal_ns(Key::Atomic),
        );
        let of = |slot: f64, access: f64| straight + 2.0 * slot + 2.0 * (access + locked);
        Sample {
            value: of(self.slot.value, self.access.value),
            low: of(self.slot.low, self.access.low),
            high: of(self.slot.high, self.access.high),
        }
    }
}

fn cost(sample: Sample, source: &str) -> Cost {
    Cost {
        value: sample.value,
        low: sample.low,
        high: sample.high,
        unit: Unit::Ns,
        source: source.to_string(),
        unverified: false,
    }
}

fn timed(mut turns: impl FnMut()) -> Sample {
    Sample::measure(Effort::Full, || {
        let began = Instant::now();
        turns();
        began.elapsed().as_nanos() as f64 / TURNS as f64
    })
}

/// # Safety
///
/// As for [`quarry_core::machine::Slots::percpu_try_lock`].
#[inline(never)]
unsafe fn slots(machine: &HostMachine, slot0: NonNull<SlotLock>) {
    for _ in 0..TURNS {
        // SAFETY: the caller's contract is the same.
        unsafe { slot(machine, slot0) };
    }
}

/// # Safety
///
/// As for [`slots`].
#[inline(always)]
unsafe fn slot(machine: &HostMachine, slot0: NonNull<SlotLock>) -> bool {
    // SAFETY: the caller's contract is the same.
    let slot = unsafe { machine.percpu_try_lock(slot0) };
    let Some(slot) = slot else { return false };
    // SAFETY: the slot is in the machine's per-CPU range.
    unsafe { slot.as_ref() }.release();
    true
}

/// # Safety
///
/// As for [`slots`].
#[inline(never)]
unsafe fn calls(machine: &HostMachine, slot0: NonNull<SlotLock>) {
    let mut had = 0;
    for _ in 0..TURNS {
        // SAFETY: the caller's contract is the same.
        had += usize::from(unsafe { called(machine, slot0) });
    }
    black_box(had);
}

/// # Safety
///
/// As for [`slots`].
#[inline(never)]
unsafe fn called(machine: &HostMachine, slot0: NonNull<SlotLock>) -> bool {
    // SAFETY: the caller's contract is the same.
    unsafe { slot(machine, slot0) }
}

#[inline(never)]
fn accesses(words: &[AtomicUsize]) {
    for turn in 0..TURNS {
        if let Some(word) = words.get(turn * LINE_WORDS % WORDS) {
            word.store(
                word.load(Ordering::Relaxed).wrapping_add(1),
                Ordering::Relaxed,
            );
        }
    }
}
