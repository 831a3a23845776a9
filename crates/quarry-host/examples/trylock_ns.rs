//! Prints the cost of an uncontended acquisition and release of the running CPU's word.
//!
//! `cargo run --release -p quarry-host --example trylock_ns [iterations]`; the minimum of 15
//! rounds, for the machine may be busy. Pin it (`taskset -c 0`) for steadier numbers.

use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

use quarry_core::machine::{Memory as _, SlotLock, Slots as _};
use quarry_host::{HostMachine, Mode};

/// Takes and frees the word `iterations` times; how often it was had.
///
/// # Safety
///
/// As for [`Slots::percpu_try_lock`].
#[inline(never)]
unsafe fn pairs(machine: &HostMachine, slot0: NonNull<SlotLock>, iterations: u64) -> u64 {
    let mut had = 0;
    for _ in 0..iterations {
        // SAFETY: the caller's contract is the same.
        if let Some(slot) = unsafe { machine.percpu_try_lock(slot0) } {
            had += 1;
            // SAFETY: the slot is in the machine's per-CPU range.
            unsafe { slot.as_ref() }.release();
        }
    }
    had
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let iterations = std::env::args()
        .nth(1)
        .map_or(Ok(5_000_000), |text| text.parse())?;
    for mode in [Mode::Rseq, Mode::Fallback] {
        let machine = match HostMachine::builder()
            .memory_bytes(1 << 22)
            .mode(mode)
            .build()
        {
            Ok(machine) => machine,
            Err(error) => {
                println!("{mode:?}: skipped: {error}");
                continue;
            }
        };
        let slot0 = machine.ranges().percpu.base.cast::<SlotLock>();
        let mut best_ns = f64::INFINITY;
        let mut had = 0;
        for _ in 0..15 {
            let start = Instant::now();
            // SAFETY: `slot0` is CPU 0's place in the per-CPU range, which is zero-filled.
            had += unsafe { pairs(black_box(&machine), black_box(slot0), iterations) };
            best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / iterations as f64);
        }
        let missed = 15 * iterations - had;
        println!(
            "{:?}: {best_ns:.2} ns per pair, {missed} missed",
            machine.mode()
        );
    }
    Ok(())
}
