//! [`HostMachine`]: this process as a machine.

mod mapped;
mod parts;
#[cfg(test)]
mod tests;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use quarry_core::machine::{
    CpuId, Cpus, LockClass, NodeId, PERCPU_FREE, PERCPU_OWNER, RawLock, Reentered, SlotLock, Slots,
    Topology,
};

use crate::blocks::Blocks;
use crate::builder::Builder;
use crate::huge::HugePageUse;
use crate::memory::Memory;
use crate::numa::{Nodes, NumaUse};
use crate::readers::{RcuReadGuard, Readers};
use crate::rseq::{self, Found, RseqAbi, RseqUnavailable};
use crate::slot_index::{SlotIndex, SlotIndexUse};
use crate::waiters::Waiters;
use crate::{os, protocol};

/// The way in which a machine takes the per-CPU lock words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// By restartable sequences if they work, else by compare-and-swap. A machine in use never
    /// reports this mode.
    #[default]
    Auto,
    /// By restartable sequences.
    Rseq,
    /// By compare-and-swap.
    Fallback,
}

/// The machine that is this process.
///
/// Dropping it returns all its memory at once, also memory that pointers still lead to; its users
/// keep it alive (M2).
///
/// # Examples
///
/// ```
/// use quarry_core::machine::Cpus;
/// use quarry_host::HostMachine;
///
/// let machine = HostMachine::builder().memory_bytes(1 << 30).build()?;
/// println!("{} CPUs, {:?}", machine.topology().cpus, machine.mode());
/// # Ok::<(), quarry_host::HostError>(())
/// ```
// The order of the fields counts: what every call reads is together at the front, the table of nodes
// (4 KiB) behind everything. So do their unused values: with more of them than a `u32` has, the compiler puts the
// machine elsewhere in `PageAllocator`, and every step computes its address first.
#[derive(Debug)]
#[repr(C)]
pub struct HostMachine {
    /// Distance of the threads' areas from the thread pointer if slots go by CPU numbers, else 0 (H2).
    pub(crate) area: isize,
    /// Copy of the topology's number, next to `area` for the fast path.
    cpus: u32,
    reason: Option<RseqUnavailable>,
    /// The same if slots go by concurrency ids, else 0 (H5). If both are 0 the fallback is in use.
    pub(crate) id_area: isize,
    topology: Topology,
    memory: Memory,
    /// Remote acquisitions so far; makes their claims differ.
    tickets: AtomicU32,
    /// The first refusal to bind memory to its node, 0 if there was none.
    bind_errno: AtomicI32,
    /// The thread inside [`HostMachine::without_waiting`], 0 if none is.
    impatient: AtomicUsize,
    abi: Option<RseqAbi>,
    slot_index: SlotIndexUse,
    blocks: Blocks,
    readers: Readers,
    waiters: Waiters,
    nodes: Nodes,
}

/// Both are on the first cache line of a machine that begins one.
const _: () = assert!(HostMachine::CPUS_AT < 64 && core::mem::offset_of!(HostMachine, area) == 0);

// SAFETY: the pointers in `memory` are addresses of a mapping that belongs to the machine and is
// only read as addresses here; all mutable state is atomic.
unsafe impl Send for HostMachine {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostMachine {}

impl HostMachine {
    /// Offset at which the sequences find `cpus`.
    pub(crate) const CPUS_AT: usize = core::mem::offset_of!(Self, cpus);

    /// A configuration with all defaults.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(
        found: Result<Found, RseqUnavailable>,
        slot_index: SlotIndexUse,
        topology: Topology,
        nodes: Nodes,
        memory: Memory,
    ) -> Self {
        let area = found.as_ref().map_or(0, |found| found.area);
        let (area, id_area) = match slot_index.in_use {
            SlotIndex::Cpu => (area, 0),
            SlotIndex::ConcurrencyId => (0, area),
        };
        Self {
            area,
            id_area,
            cpus: topology.cpus,
            slot_index,
            reason: found.as_ref().err().copied(),
            topology,
            memory,
            tickets: AtomicU32::new(0),
            bind_errno: AtomicI32::new(0),
            impatient: AtomicUsize::new(0),
            abi: found.ok().map(|found| found.abi),
            blocks: Blocks::new(),
            readers: Readers::default(),
            waiters: Waiters::new(),
            nodes,
        }
    }

    /// The mode in use: [`Mode::Rseq`] or [`Mode::Fallback`].
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.has_sequences() {
            Mode::Rseq
        } else {
            Mode::Fallback
        }
    }

    /// True if slots are taken by sequences.
    #[inline(always)]
    pub(crate) fn has_sequences(&self) -> bool {
        self.area != 0 || self.id_area != 0
    }

    /// Distance of the threads' areas from the thread pointer if slots go by the concurrency id, or not; else 0.
    #[inline(always)]
    pub(crate) fn area_by<const ID: bool>(&self) -> isize {
        if ID { self.id_area } else { self.area }
    }

    /// True if the calling thread slept or was interrupted since it last took an object or a lock word by a sequence, or never
    /// did. Costs a load and a branch. Always false in the fallback, which has no sequences.
    #[inline(always)]
    #[must_use]
    pub fn was_away(&self) -> bool {
        let area = if self.area != 0 {
            self.area
        } else {
            self.id_area
        };
        // SAFETY: a distance that is not 0 is that of the threads' areas (H2, H5).
        area != 0 && unsafe { !rseq::is_armed(area) }
    }

    /// The number by which threads find their slots, and the reason if another was wanted.
    #[must_use]
    pub fn slot_index(&self) -> SlotIndexUse {
        self.slot_index
    }

    /// The operating system's part in taking the slot of another CPU, or of another concurrency id.
    pub(crate) fn kernel_for(&self, cpu: CpuId) -> HostKernel {
        HostKernel {
            cpu: (self.id_area == 0).then_some(cpu),
        }
    }

    /// The kernel's contract with the threads' areas, next to [`HostMachine::mode`]; `None` in the fallback.
    #[must_use]
    pub fn rseq_abi(&self) -> Option<RseqAbi> {
        self.abi
    }

    /// Runs `f`, in which neither another CPU's slot nor the heap's list of caches is waited for: taking them fails at
    /// once if they are held. One thread of a machine has this at a time; others wait as ever.
    pub fn without_waiting<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Ends it also if `f` panics.
        struct End<'a>(&'a AtomicUsize);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        let order = Ordering::Relaxed;
        let me = rseq::thread_pointer();
        // Relaxed: a thread compares the word with its own number, which only itself stores.
        let _end = match self.impatient.compare_exchange(0, me, order, order) {
            Ok(_) => Some(End(&self.impatient)),
            Err(_) => None,
        };
        f()
    }

    /// True if the calling thread is inside [`HostMachine::without_waiting`].
    fn is_impatient(&self) -> bool {
        self.impatient.load(Ordering::Relaxed) == rseq::thread_pointer()
    }

    /// Number of looks of the calling thread at the slot of another CPU.
    pub(crate) fn remote_attempts(&self) -> u32 {
        if self.is_impatient() {
            protocol::ATTEMPTS_WITHOUT_WAITING
        } else {
            protocol::ATTEMPTS
        }
    }

    /// Begins a read-side section: what `Cache::free_rcu` defers from now on is not freed before the guard is dropped.
    /// A reader of an object that others may pass to `free_rcu` takes a guard before it finds the object, and keeps it
    /// until it is done. In the child of a fork all sections of the parent have ended, that of the forking thread too:
    /// the child relies on none of them. [`RcuReadGuard`] and the module `readers` say what ends a section. Costs two
    /// atomic additions, on lines that only CPUs with equal numbers modulo 32 share.
    ///
    /// ```
    /// use quarry_host::HostMachine;
    ///
    /// let machine = HostMachine::builder().memory_bytes(64 << 20).build()?;
    /// let reader = machine.rcu_read_lock();
    /// // ... find an object, look at it ...
    /// drop(reader);
    /// # Ok::<(), quarry_host::HostError>(())
    /// ```
    pub fn rcu_read_lock(&self) -> RcuReadGuard<'_> {
        self.readers.enter(self.current_cpu().0)
    }

    /// In the child of a fork, which has one thread: ends the read-side sections of the parent.
    ///
    /// # Safety
    ///
    /// No thread of the process is in such a section, and the calling thread uses none of its guards.
    pub unsafe fn forget_readers(&self) {
        self.readers.forget();
    }

    /// The reason for the fallback; `None` if it is not in use.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<RseqUnavailable> {
        self.reason
    }

    /// The operating system's pages behind the memory, and the reason if others were wanted.
    #[must_use]
    pub fn huge_pages(&self) -> HugePageUse {
        self.memory.huge_pages
    }

    /// Bytes of the allocator's pages that are in memory now, as the operating system counts them;
    /// `None` if it does not say. Costs about a microsecond for each 8 MiB of address space.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<usize> {
        os::resident_bytes(self.memory.ranges.pages)
    }

    /// Number of memory nodes, and the reason if the system has more.
    ///
    /// The nodes are those of the system's that have memory and a CPU that this machine serves,
    /// numbered from 0 ([`HostMachine::system_node`] returns the system's numbers). CPUs of a node
    /// without memory count to the nearest one. CPUs that were offline when the machine was built
    /// count to the node of the CPU before them, without a share of its memory. More than
    /// [`MAX_NODES`](quarry_core::machine::MAX_NODES) nodes are taken as one.
    ///
    /// ```
    /// use quarry_host::HostMachine;
    ///
    /// let machine = HostMachine::builder().memory_bytes(64 << 20).build()?;
    /// let numa = machine.numa();
    /// match numa.reason {
    ///     None => println!("{} nodes", numa.nodes),
    ///     Some(reason) => println!("memory is not local to nodes: {reason}"),
    /// }
    /// # Ok::<(), quarry_host::HostError>(())
    /// ```
    #[must_use]
    pub fn numa(&self) -> NumaUse {
        self.nodes.in_use()
    }

    /// The number by which the system, `numactl` for one, knows a node. `None` if there is no such
    /// node, or one only, whose memory may be anywhere.
    #[must_use]
    pub fn system_node(&self, node: NodeId) -> Option<u32> {
        self.nodes.system_node(node)
    }

    /// The `errno` of the first `mbind` that failed: the memory of a node is not bound to it then.
    /// `None` if none did. With one node no call is made; [`HostMachine::numa`] says whether the
    /// system has more.
    ///
    /// Two causes are common, and both leave the memory usable: `EPERM` where a sandbox forbids the
    /// call, as Docker's default seccomp profile does, and `EINVAL` in a cpuset that has none of the
    /// node's memory.
    #[must_use]
    pub fn bind_error(&self) -> Option<i32> {
        Some(self.bind_errno.load(Ordering::Relaxed)).filter(|&errno| errno != 0)
    }

    /// A claim that no other acquisition of this machine uses at the same time, unless 2^32 of
    /// them happen during one system call.
    pub(crate) fn claim(&self) -> u32 {
        protocol::claim(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// The CPU by the system's report, or one by the thread's address; always below `cpus`.
    #[cold]
    #[inline(never)]
    fn system_cpu(&self) -> u32 {
        let cpu = os::current_cpu().unwrap_or_else(|| {
            // Fibonacci hashing: the low bits of an address say little.
            let hash = (rseq::thread_pointer() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (hash >> 33) as u32
        });
        if cpu < self.cpus {
            cpu
        } else {
            cpu % self.cpus
        }
    }

    /// The fallback's acquisition. Whether the thread still runs on the chosen CPU does not
    /// matter: the word is atomic.
    ///
    /// # Safety
    ///
    /// As for [`Slots::percpu_try_lock`].
    #[inline(never)]
    unsafe fn try_lock_fallback(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        let offset = (self.system_cpu() as usize) << Self::PERCPU_SHIFT;
        // SAFETY: by the caller's contract each CPU below `cpus` has a slot at this distance, and
        // `system_cpu` is below.
        let slot = unsafe { slot0.byte_add(offset) };
        // SAFETY: the slot is in the per-CPU range, which lives as long as the machine (M2), and
        // its word is atomic.
        let word = unsafe { slot.as_ref() }.word();
        // Acquire: pairs with the Release in `SlotLock::release`.
        word.compare_exchange(
            PERCPU_FREE,
            PERCPU_OWNER,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .is_ok()
        .then_some(slot)
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(
        &self,
        lock: &RawLock,
        class: LockClass,
        owner: usize,
    ) -> Result<(), Reentered> {
        let mut attempt = 0;
        loop {
            match lock.owner() {
                0 if lock.acquire(owner) => return Ok(()),
                // Only this thread stores its own number, so it cannot go away meanwhile.
                held if held == owner => return Err(Reentered),
                _ if attempt < os::SPINS => os::pause(attempt),
                // The list of caches alone is locked while users' code runs (`Heap::for_each_cache`).
                _ if class == LockClass::CacheList && self.is_impatient() => return Err(Reentered),
                // Its holder may wait, in a signal handler, for what this thread holds.
                _ if self.waiters.wait(lock, class, owner, attempt) => return Err(Reentered),
                _ => (),
            }
            attempt = attempt.saturating_add(1);
        }
    }
}

/// The kernel's side of the remote protocol.
pub(crate) struct HostKernel {
    /// The CPU that the word belongs to; `None` if any CPU may run a sequence on it.
    pub(crate) cpu: Option<CpuId>,
}

impl protocol::Kernel for HostKernel {
    fn barrier(&self) -> bool {
        os::rseq_barrier(self.cpu.map(|cpu| cpu.0)).is_ok()
    }

    fn pause(&self, attempt: u32) {
        // Mostly looking, because a holder that finds its word marked lets it rest for some hundred looks.
        if attempt % os::SPINS == os::SPINS - 1 {
            os::pause_long(os::SPINS + attempt / os::SPINS);
        } else {
            os::pause(0);
        }
    }
}
