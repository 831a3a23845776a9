//! The parts of [`Machine`](quarry_core::machine::Machine) that a process is.

use core::hint::cold_path;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use quarry_core::machine::{
    Accounting, Clock, CpuId, Cpus, LockClass, Locks, Memory, NodeId, PERCPU_FREE, PERCPU_REMOTE,
    PERCPU_WAITED, Ranges, RawLock, RawRange, Readers, Reentered, SlotLock, Slots, Threads,
    Topology,
};
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
use quarry_core::machine::{ListLayout, StackLayout, Steps};

use super::HostMachine;
use crate::huge::HugePages;
use crate::protocol::Word as _;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
use crate::rseq::commits;
use crate::rseq::{self, FAILED};
use crate::{os, prefetch, protocol};

// SAFETY: the topology and the nodes are set once; a CPU's node is one of `Nodes::in_use`.
unsafe impl Cpus for HostMachine {
    #[inline]
    fn topology(&self) -> &Topology {
        &self.topology
    }

    #[inline(always)]
    fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.nodes.of_cpu(cpu)
    }

    fn cpus_of_node(&self, node: NodeId) -> u32 {
        self.nodes.listed(node)
    }

    #[inline]
    fn current_cpu(&self) -> CpuId {
        if self.area != 0 {
            // SAFETY: H2 - `area` is as `rseq::find` returned it.
            let cpu = unsafe { rseq::cpu_id(self.area) };
            if cpu < self.cpus {
                return CpuId(cpu);
            }
        } else if self.id_area != 0 {
            // SAFETY: as above.
            let id = unsafe { rseq::concurrency_id(self.id_area) };
            if id < self.cpus {
                return CpuId(id);
            }
        }
        CpuId(self.system_cpu())
    }
}

// SAFETY: M2 - `Memory::reserve` cuts disjoint ranges out of fresh anonymous memory, which is
// zero-filled, and returns it when the machine is dropped. M3 - a mapping does not move with the
// struct.
unsafe impl Memory for HostMachine {
    #[inline]
    fn ranges(&self) -> &Ranges {
        &self.memory.ranges
    }

    unsafe fn release(&self, range: RawRange) -> bool {
        // Before Linux 6.9 the pool did not reserve again what was given back: others could take it,
        // and the next touch here would end the process. All kernels round the end of a range of
        // the pool up, to pages that may be in use.
        if self.memory.huge_pages.in_use == HugePages::Hugetlb {
            return false;
        }
        // Not MADV_FREE: its pages stay resident until memory is short, and may keep what they held.
        // SAFETY: by the caller's contract the pages are this machine's and unused.
        unsafe { os::advise(range, libc::MADV_DONTNEED) }.is_ok()
    }

    fn bind(&self, range: RawRange, node: NodeId) {
        let Some(node) = self.nodes.system_node(node) else {
            return;
        };
        // Preferred, not bound: a node that is full lends from its neighbours, where a strict
        // policy would end the process.
        if let Err(errno) = os::prefer_node(range, node) {
            // That another refusal came first is as good.
            let _ =
                self.bind_errno
                    .compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn prefetch_for_write(&self, address: *const u8) {
        prefetch::for_write(address);
    }
}

impl HostMachine {
    /// The acquisition of the running CPU's slot, or of that of the thread's concurrency id.
    ///
    /// # Safety
    ///
    /// As for [`Slots::percpu_try_lock`], and `area_by` is not 0.
    #[inline(always)]
    unsafe fn try_lock_by<const ID: bool>(
        &self,
        slot0: NonNull<SlotLock>,
    ) -> Option<NonNull<SlotLock>> {
        const SHIFT: u32 = HostMachine::PERCPU_SHIFT;
        let word0 = slot0.as_ptr().cast::<u32>();
        // SAFETY: H2 and H5 for the area; the caller says that each CPU has a slot at its distance; H1 for who takes them.
        let offset = unsafe { rseq::try_lock::<SHIFT, ID>(self.area_by::<ID>(), self.cpus, word0) };
        if offset == FAILED {
            return None;
        }
        // SAFETY: an offset that is not FAILED is that of an existing CPU's slot.
        Some(unsafe { slot0.byte_add(offset) })
    }
}

// SAFETY: the words exclude by H1 and `protocol`; each release is a Release store that the next
// acquisition acquires.
unsafe impl Slots for HostMachine {
    const PERCPU_SHIFT: u32 = 22;

    #[inline(always)]
    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        if self.area != 0 {
            // SAFETY: the caller says that each CPU has a slot at its distance from `slot0`.
            unsafe { self.try_lock_by::<false>(slot0) }
        } else if self.id_area != 0 {
            cold_path();
            // SAFETY: as above, and ids are below the number of CPUs or refused.
            unsafe { self.try_lock_by::<true>(slot0) }
        } else {
            // SAFETY: each CPU has a slot at its distance from `slot0`, which is all that is asked.
            unsafe { self.try_lock_fallback(slot0) }
        }
    }

    unsafe fn percpu_lock_new(&self, slot: &SlotLock, _cpu: CpuId) -> bool {
        // No sequence is in flight on the word, so a compare-and-swap is the whole acquisition.
        slot.exchange(PERCPU_FREE, PERCPU_REMOTE)
    }

    fn percpu_lock_remote(&self, slot: &SlotLock, cpu: CpuId) -> bool {
        let kernel = self.kernel_for(cpu);
        if self.has_sequences() {
            protocol::acquire(slot, &kernel, self.claim(), self.remote_attempts())
        } else {
            protocol::acquire_fallback(slot, &kernel, self.remote_attempts())
        }
    }

    #[inline(always)]
    unsafe fn percpu_unlock(&self, slot: &SlotLock) {
        let waited = slot.word().load(Ordering::Relaxed) == PERCPU_WAITED;
        slot.release();
        if waited {
            protocol::let_in(slot);
        }
    }
}

/// One of the sequences of `commits`, as the machine finds its slots; what it answers in the fallback. By CPU numbers
/// this is one test and the sequence, as if there were no ids.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
macro_rules! step {
    ($machine:ident, $refused:expr, $step:ident::<$layout:ident>($($argument:expr),*)) => {
        step!($machine, $machine.area, $machine.id_area, $refused, $step::<$layout>($($argument),*))
    };
    ($machine:ident, $area:expr, $id_area:expr, $refused:expr, $step:ident::<$layout:ident>($($argument:expr),*)) => {
        if $machine.area != 0 {
            commits::$step::<$layout, { Self::PERCPU_SHIFT }, false>($machine, $area, $($argument),*)
        } else {
            // Also of the test for ids, so that the sequence by numbers is followed by what comes next.
            cold_path();
            match $machine.id_area {
                0 => $refused,
                _ => commits::$step::<$layout, { Self::PERCPU_SHIFT }, true>($machine, $id_area, $($argument),*),
            }
        }
    };
}

// SAFETY: each step is a restartable sequence with one committing store, which finds the word
// free (H1).
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
unsafe impl Steps for HostMachine {
    #[inline(always)]
    fn has_steps(&self) -> bool {
        self.has_sequences()
    }

    #[inline(always)]
    unsafe fn percpu_pop_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
    ) -> Option<NonNull<u8>> {
        // SAFETY: H2 and H5 for the area; the caller says that each CPU has a slot of this layout at its distance.
        NonNull::new(unsafe { step!(self, core::ptr::null_mut(), pop_list::<L>(slot0, link)) })
    }

    #[inline(always)]
    unsafe fn percpu_push_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
        owner: u32,
        object: NonNull<u8>,
    ) -> bool {
        let object = object.as_ptr();
        // SAFETY: H2 and H5 for the area; the caller says that each CPU has a slot of this layout, and owns the object.
        unsafe { step!(self, false, push_list::<L>(slot0, link, owner, object)) }
    }

    #[inline(always)]
    unsafe fn percpu_pop_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: H2 and H5 for the area; the caller says that each CPU has a slot of this layout at its distance.
        NonNull::new(unsafe { step!(self, core::ptr::null_mut(), pop_stack::<L>(slot0)) })
    }

    #[inline(always)]
    unsafe fn percpu_push_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool {
        let object = object.as_ptr();
        // SAFETY: H2 and H5 for the area; the caller says that each CPU has a slot of this layout, and owns the object.
        unsafe { step!(self, false, push_stack::<L>(slot0, object)) }
    }

    #[inline(always)]
    unsafe fn percpu_push_stack_afar<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool {
        let (object, area) = (object.as_ptr(), rseq::area());
        // SAFETY: as for `percpu_push_stack`; the area is the machine's if it has one (H2).
        unsafe { step!(self, area, area, false, push_stack::<L>(slot0, object)) }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom)))))]
quarry_core::machine_without_steps!(HostMachine);

// SAFETY: a thread pointer is not 0 and belongs to one living thread.
unsafe impl Threads for HostMachine {
    #[inline(always)]
    fn thread_id(&self) -> usize {
        rseq::thread_pointer()
    }

    fn task(&self) -> u32 {
        os::task()
    }

    fn pause(&self, attempt: u32) {
        os::pause(attempt);
    }
}

// SAFETY: the locks exclude by `RawLock::acquire`; its release is a Release store that the next
// acquisition acquires.
unsafe impl Locks for HostMachine {
    #[inline]
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered> {
        let owner = self.thread_id();
        if lock.acquire(owner) {
            Ok(())
        } else {
            self.lock_contended(lock, class, owner)
        }
    }

    #[inline]
    fn try_lock(&self, lock: &RawLock, _class: LockClass) -> bool {
        lock.acquire(self.thread_id())
    }

    #[inline]
    unsafe fn unlock(&self, lock: &RawLock, _class: LockClass) {
        lock.release();
    }
}

// SAFETY: a reader is a guard of `rcu_read_lock`; the module `readers` argues that every guard of before a
// cookie is dropped when it has elapsed.
unsafe impl Readers for HostMachine {
    fn rcu_cookie(&self) -> u64 {
        self.readers.cookie()
    }

    fn rcu_elapsed(&self, cookie: u64) -> bool {
        self.readers.elapsed(cookie)
    }
}

impl Clock for HostMachine {
    fn now_ns(&self) -> u64 {
        os::monotonic_ns()
    }
}

/// A real machine's caches and clock need no model.
impl Accounting for HostMachine {}
