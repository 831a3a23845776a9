//! A host machine with one operation broken, and the process that runs on it.

use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quarry::HostMachine;
use quarry::kernel::machine::{
    CpuId, Cpus, LockClass, Locks, PERCPU_FREE, PERCPU_OWNER, PERCPU_REMOTE, RawLock, Reentered,
    SlotLock, Slots,
};

use super::Way;

/// The broken operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Taking the running CPU's slot: a check and then a store, with nothing to hold them
    /// together.
    Slot,
    /// Spin locks: any number of threads hold one.
    Lock,
    /// Taking another CPU's slot: just a store.
    Remote,
}

const FAULTS: [Fault; 4] = [Fault::None, Fault::Slot, Fault::Lock, Fault::Remote];
const WAYS: [Way; 3] = [Way::Auto, Way::Fallback, Way::Ids];
/// Name of the environment variable that asks for one fault: design, fault, way, seconds.
const VARIABLE: &str = "QUARRY_STRESS_FAULT";
/// Longest searches for what a fault does, in seconds: most are found at once, or by a process that hangs.
const SEARCHES: [f64; 3] = [1.0, 4.0, 20.0];
/// A process that goes on for that long after its search hangs.
const GRACE: Duration = Duration::from_secs(2);

/// See the module's documentation.
pub(crate) struct Broken {
    machine: HostMachine,
    fault: Fault,
}

impl Broken {
    pub(crate) fn new(fault: Fault, way: Way, memory: usize) -> Self {
        let machine = way.machine(memory);
        Self { machine, fault }
    }
}

quarry::kernel::forward_machine! {
    unsafe Cpus, Memory, Steps, Threads, Readers, Clock, Accounting for Broken
        => machine: HostMachine
}

// SAFETY: with `Fault::None` all is passed on to a machine that keeps the contract. With a fault it
// is not kept, which is the purpose: such a machine only runs in a process of its own, and the test
// looks at that process's end alone.
unsafe impl Slots for Broken {
    const PERCPU_SHIFT: u32 = HostMachine::PERCPU_SHIFT;

    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        if self.fault != Fault::Slot {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.machine.percpu_try_lock(slot0) };
        }
        let offset = (self.current_cpu().0 as usize) << Self::PERCPU_SHIFT;
        // SAFETY: every CPU has a slot at this distance.
        let slot = unsafe { slot0.byte_add(offset) };
        // SAFETY: the slot lives as long as the machine, and its word is atomic.
        let word = unsafe { slot.as_ref() }.word();
        if word.load(Relaxed) != PERCPU_FREE {
            return None;
        }
        // Long enough that the storm meets it in bounded time: the bare gap is nanoseconds.
        (0..100).for_each(|_| std::hint::spin_loop());
        word.store(PERCPU_OWNER, Relaxed);
        Some(slot)
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, cpu: CpuId) -> bool {
        if self.fault != Fault::Remote {
            return self.machine.percpu_lock_remote(slot, cpu);
        }
        slot.word().store(PERCPU_REMOTE, Relaxed);
        true
    }

    unsafe fn percpu_unlock(&self, slot: &SlotLock) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.machine.percpu_unlock(slot) };
    }
}

// SAFETY: as for `Slots`.
unsafe impl Locks for Broken {
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered> {
        if self.fault == Fault::Lock {
            return Ok(());
        }
        self.machine.lock(lock, class)
    }

    fn try_lock(&self, lock: &RawLock, class: LockClass) -> bool {
        self.fault == Fault::Lock || self.machine.try_lock(lock, class)
    }

    unsafe fn unlock(&self, lock: &RawLock, class: LockClass) {
        if self.fault != Fault::Lock {
            // SAFETY: the caller's contract is the same.
            unsafe { self.machine.unlock(lock, class) };
        }
    }
}

/// Design, fault, way and seconds that this process was started for.
pub(crate) fn asked() -> Option<(String, Fault, Way, f64)> {
    let text = std::env::var(VARIABLE).ok()?;
    let mut words = text.split(' ');
    let design = words.next()?.to_owned();
    let fault = words.next()?;
    let way = words.next()?;
    let fault = FAULTS.into_iter().find(|f| format!("{f:?}") == fault)?;
    let way = WAYS.into_iter().find(|w| format!("{w:?}") == way)?;
    Some((design, fault, way, words.next()?.parse().ok()?))
}

/// True if a process with a fault crashes, hangs, or finds something wrong.
pub(crate) fn is_seen(design: &str, fault: Fault, way: Way) -> bool {
    let mut searches = SEARCHES.into_iter();
    searches.any(|seconds| is_seen_for(design, fault, way, seconds))
}

fn is_seen_for(design: &str, fault: Fault, way: Way, seconds: f64) -> bool {
    let limit = Duration::from_secs_f64(seconds) + GRACE;
    let start = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_fault", "--ignored", "--test-threads=1"])
        .env(VARIABLE, format!("{design} {fault:?} {way:?} {seconds}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = loop {
        match child.try_wait().unwrap() {
            Some(status) if status.success() => break "nothing seen".to_owned(),
            Some(status) => break format!("seen: {status}"),
            None if start.elapsed() > limit => {
                child.kill().unwrap();
                child.wait().unwrap();
                break "seen: hung".to_owned();
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let after = start.elapsed();
    eprintln!("{design} {way:?} {fault:?}: {end} after {after:.1?}");
    end != "nothing seen"
}
