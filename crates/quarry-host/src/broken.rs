//! Lock operations that are wrong on purpose: tests run them to prove that they would notice.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use quarry_core::machine::{CpuId, Cpus as _, PERCPU_OWNER, SlotLock, Slots};

use crate::machine::{HostKernel, HostMachine};
use crate::protocol::{self, Kernel};
use crate::rseq;

/// [`Slots::percpu_try_lock`] that reads the word and stores 1 with nothing to keep the two
/// together: a sequence that is not armed, or, in the fallback, a load and a store.
///
/// # Safety
///
/// As for [`Slots::percpu_try_lock`]; and the words must protect nothing.
pub unsafe fn try_lock_unprotected(
    machine: &HostMachine,
    slot0: NonNull<SlotLock>,
) -> Option<NonNull<SlotLock>> {
    const SHIFT: u32 = HostMachine::PERCPU_SHIFT;
    let cpus = machine.topology().cpus;
    if machine.has_sequences() {
        let word0 = slot0.as_ptr().cast::<u32>();
        let offset = if machine.area != 0 {
            // SAFETY: the machine's area is right (H2); the caller's contract covers the rest.
            unsafe { rseq::try_lock_unarmed::<SHIFT, false>(machine.area, cpus, word0) }
        } else {
            // SAFETY: as above (H5).
            unsafe { rseq::try_lock_unarmed::<SHIFT, true>(machine.id_area, cpus, word0) }
        };
        if offset == rseq::FAILED {
            return None;
        }
        // SAFETY: an offset that is not FAILED is that of an existing CPU's slot.
        return Some(unsafe { slot0.byte_add(offset) });
    }
    // SAFETY: `current_cpu` is below the number of CPUs, and each has a slot at its distance.
    let slot = unsafe { slot0.byte_add((machine.current_cpu().0 as usize) << SHIFT) };
    // SAFETY: the slot lives as long as the machine, and its word is atomic.
    let word = unsafe { slot.as_ref() }.word();
    if word.load(Ordering::Acquire) != 0 {
        return None;
    }
    word.store(PERCPU_OWNER, Ordering::Relaxed);
    Some(slot)
}

/// A kernel whose barrier does nothing.
struct NoBarrier(HostKernel);

impl Kernel for NoBarrier {
    fn barrier(&self) -> bool {
        true
    }

    fn pause(&self, attempt: u32) {
        self.0.pause(attempt);
    }
}

/// [`Slots::percpu_lock_remote`] without the barrier, whatever the mode.
pub fn lock_remote_without_barrier(machine: &HostMachine, slot: &SlotLock, cpu: CpuId) -> bool {
    let kernel = NoBarrier(machine.kernel_for(cpu));
    protocol::acquire(slot, &kernel, machine.claim(), protocol::ATTEMPTS)
}
