//! [`HostMachine`]: this process as a machine.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use quarry_core::machine::{
    CpuId, LockClass, Machine, NodeId, PERCPU_FREE, PERCPU_OWNER, Ranges, RawLock, RawRange,
    Reentered, SlotLock, Topology,
};
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
use quarry_core::machine::{ListLayout, StackLayout};

use crate::builder::Builder;
use crate::huge::{HugePageUse, HugePages};
use crate::memory::Memory;
use crate::numa::{Nodes, NumaUse};
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
use crate::rseq::commits;
use crate::rseq::{self, FAILED, RseqUnavailable};
use crate::waiters::Waiters;
use crate::{os, prefetch, protocol};

/// How a machine takes the per-CPU lock words.
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
/// Dropping it returns all its memory at once, whoever still points there; its users keep it
/// alive (M2).
///
/// # Examples
///
/// ```
/// use quarry_core::machine::Machine;
/// use quarry_host::HostMachine;
///
/// let machine = HostMachine::builder().memory_bytes(1 << 30).build()?;
/// println!("{} CPUs, {:?}", machine.topology().cpus, machine.mode());
/// # Ok::<(), quarry_host::HostError>(())
/// ```
// The order of the fields counts: what every call reads is together at the front, the table of nodes
// (4 KiB) behind everything.
#[derive(Debug)]
#[repr(C)]
pub struct HostMachine {
    /// Distance of the threads' areas from the thread pointer; 0 selects the fallback (H2).
    pub(crate) area: isize,
    /// Copy of the topology's number, beside `area` for the fast path.
    cpus: u32,
    reason: Option<RseqUnavailable>,
    topology: Topology,
    memory: Memory,
    /// Remote acquisitions so far; makes their claims differ.
    tickets: AtomicU32,
    /// The first refusal to bind memory to its node, 0 if there was none.
    bind_errno: AtomicI32,
    /// Calls of [`HostMachine::rcu_advance`] so far.
    rcu_epoch: AtomicU64,
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
    /// Where the sequences find `cpus`.
    pub(crate) const CPUS_AT: usize = core::mem::offset_of!(Self, cpus);

    /// A configuration with all defaults.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(
        area: Result<isize, RseqUnavailable>,
        topology: Topology,
        nodes: Nodes,
        memory: Memory,
    ) -> Self {
        Self {
            area: area.unwrap_or(0),
            cpus: topology.cpus,
            reason: area.err(),
            topology,
            memory,
            tickets: AtomicU32::new(0),
            bind_errno: AtomicI32::new(0),
            rcu_epoch: AtomicU64::new(0),
            waiters: Waiters::new(),
            nodes,
        }
    }

    /// The mode in use: [`Mode::Rseq`] or [`Mode::Fallback`].
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.area == 0 {
            Mode::Fallback
        } else {
            Mode::Rseq
        }
    }

    /// Tells that every reader that was running at the previous call has finished. A process knows
    /// its readers, the machine does not: without such calls, made one at a time, no deferred free
    /// is ever done. A free deferred between two calls is done after the second one that follows.
    pub fn rcu_advance(&self) {
        // AcqRel: what readers did before the call happens before the frees that see its number.
        self.rcu_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Why the fallback is in use; `None` if it is not.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<RseqUnavailable> {
        self.reason
    }

    /// Which of the operating system's pages are behind the memory, and why not those that were
    /// wanted.
    #[must_use]
    pub fn huge_pages(&self) -> HugePageUse {
        self.memory.huge_pages
    }

    /// Bytes of the allocator's pages that are in memory now, as the operating system counts them;
    /// `None` if it does not tell. Costs about a microsecond for each 8 MiB of address space.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<usize> {
        os::resident_bytes(self.memory.ranges.pages)
    }

    /// How many memory nodes there are, and why not those that the system has.
    ///
    /// The nodes are those of the system's that have memory and a CPU that this machine serves,
    /// numbered from 0 ([`HostMachine::system_node`] tells the system's numbers). CPUs of a node
    /// without memory count to the nearest one, CPUs that were offline when the machine was built
    /// to the node of the CPU before them, without a share of its memory. More than
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

    /// Why the memory of a node is not bound to it: the `errno` of the first `mbind` that failed.
    /// `None` if none did. With one node none is made; whether the system has more than that one,
    /// [`HostMachine::numa`] tells.
    ///
    /// Two causes are common, and both leave the memory usable: `EPERM` where a sandbox forbids the
    /// call, as Docker's default seccomp profile does, and `EINVAL` in a cpuset that has none of the
    /// node's memory.
    #[must_use]
    pub fn bind_error(&self) -> Option<i32> {
        Some(self.bind_errno.load(Ordering::Relaxed)).filter(|&errno| errno != 0)
    }

    /// Distance of the threads' areas from the thread pointer, 0 in the fallback.
    #[cfg(feature = "negative-controls")]
    pub(crate) fn area(&self) -> isize {
        self.area
    }

    /// A claim that no other acquisition of this machine uses at the same time, unless 2^32 of
    /// them happen during one system call.
    pub(crate) fn claim(&self) -> u32 {
        protocol::claim(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// The CPU that the system tells, or one by the thread's address; always below `cpus`.
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
    /// As for [`Machine::percpu_try_lock`].
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
                // Its holder may wait, in a signal handler, for what this thread holds.
                _ if self.waiters.wait(lock, class, owner, attempt) => return Err(Reentered),
                _ => (),
            }
            attempt = attempt.saturating_add(1);
        }
    }
}

/// What the remote protocol asks of the kernel, for one CPU.
pub(crate) struct HostKernel {
    pub(crate) cpu: CpuId,
}

impl protocol::Kernel for HostKernel {
    fn barrier(&self) -> bool {
        os::rseq_barrier(self.cpu.0).is_ok()
    }

    fn pause(&self, attempt: u32) {
        os::pause_long(attempt);
    }
}

// SAFETY: M2 - `Memory::reserve` cuts disjoint ranges out of fresh anonymous memory, which is
// zero-filled, and returns it when the machine is dropped. M3 - a mapping does not move with the
// struct. The topology and the nodes are set once; a CPU's node is one of `Nodes::in_use`. The
// words exclude by H1 and `protocol`, the spin locks by `RawLock::acquire`; each release is a
// Release store that the next acquisition acquires.
unsafe impl Machine for HostMachine {
    const PERCPU_SHIFT: u32 = 22;
    const KERNEL_HOLDS: bool = false;

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
    fn ranges(&self) -> &Ranges {
        &self.memory.ranges
    }

    #[inline]
    fn current_cpu(&self) -> CpuId {
        if self.area != 0 {
            // SAFETY: H2 - `area` is as `rseq::find` returned it.
            let cpu = unsafe { rseq::cpu_id(self.area) };
            if cpu < self.cpus {
                return CpuId(cpu);
            }
        }
        CpuId(self.system_cpu())
    }

    #[inline(always)]
    fn prefetch_for_write(&self, address: *const u8) {
        prefetch::for_write(address);
    }

    #[inline(always)]
    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>> {
        if self.area == 0 {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.try_lock_fallback(slot0) };
        }
        let word0 = slot0.as_ptr().cast::<u32>();
        // SAFETY: H2 for the area; the caller's contract for the slots; H1 for who takes them.
        let offset =
            unsafe { rseq::try_lock::<{ Self::PERCPU_SHIFT }>(self.area, self.cpus, word0) };
        if offset == FAILED {
            return None;
        }
        // SAFETY: an offset that is not FAILED is that of an existing CPU's slot.
        Some(unsafe { slot0.byte_add(offset) })
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
    #[inline(always)]
    unsafe fn percpu_pop_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
    ) -> Option<NonNull<u8>> {
        if self.area == 0 {
            return None;
        }
        // SAFETY: H2 for the area; the caller's contract for the slots.
        NonNull::new(unsafe { commits::pop_list::<L, { Self::PERCPU_SHIFT }>(self, slot0, link) })
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
    #[inline(always)]
    unsafe fn percpu_push_list<L: ListLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        link: usize,
        owner: u32,
        object: NonNull<u8>,
    ) -> bool {
        let object = object.as_ptr();
        // SAFETY: H2 for the area; the caller's contract for the slots and the object.
        self.area != 0
            && unsafe {
                commits::push_list::<L, { Self::PERCPU_SHIFT }>(self, slot0, link, owner, object)
            }
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
    #[inline(always)]
    unsafe fn percpu_pop_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
    ) -> Option<NonNull<u8>> {
        if self.area == 0 {
            return None;
        }
        // SAFETY: H2 for the area; the caller's contract for the slots.
        NonNull::new(unsafe { commits::pop_stack::<L, { Self::PERCPU_SHIFT }>(self, slot0) })
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
    #[inline(always)]
    fn has_steps(&self) -> bool {
        self.area != 0
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
    #[inline(always)]
    unsafe fn percpu_push_stack<L: StackLayout>(
        &self,
        slot0: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool {
        let object = object.as_ptr();
        // SAFETY: H2 for the area; the caller's contract for the slots and the object.
        self.area != 0
            && unsafe { commits::push_stack::<L, { Self::PERCPU_SHIFT }>(self, slot0, object) }
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

    fn percpu_lock_remote(&self, slot: &SlotLock, cpu: CpuId) -> bool {
        let kernel = HostKernel { cpu };
        if self.area == 0 {
            protocol::acquire_fallback(slot, &kernel, protocol::ATTEMPTS)
        } else {
            protocol::acquire(slot, &kernel, self.claim(), protocol::ATTEMPTS)
        }
    }

    #[inline(always)]
    fn thread_id(&self) -> usize {
        rseq::thread_pointer()
    }

    fn rcu_cookie(&self) -> u64 {
        // The next call may speak of readers before this moment only, the one after it of all.
        self.rcu_epoch.load(Ordering::Acquire) + 2
    }

    fn rcu_elapsed(&self, cookie: u64) -> bool {
        // Acquire: pairs with the Release in `rcu_advance`.
        self.rcu_epoch.load(Ordering::Acquire) >= cookie
    }

    fn task(&self) -> u32 {
        os::task()
    }

    fn when(&self) -> u64 {
        os::monotonic_ns()
    }

    fn pause(&self, attempt: u32) {
        os::pause(attempt);
    }

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

#[cfg(test)]
mod tests {
    use quarry_core::design::Design;
    use quarry_core::era::Era;
    use quarry_core::geometry::BootParams;
    use quarry_core::heap::Heap;
    use quarry_core::page::PageAllocator;
    use quarry_core::sheaf::Sheaf;
    use quarry_core::slab::Slab;
    use quarry_core::slub::Slub;
    use quarry_core::slubq::Slubq;

    use super::*;
    use crate::huge::HUGE_PAGE_BYTES;

    /// The pool is empty on most systems, so ordinary memory stands in for its pages.
    #[test]
    #[cfg_attr(miri, ignore = "no madvise")]
    fn memory_of_the_pool_is_kept() {
        let builder = HostMachine::builder().memory_bytes(64 << 20);
        let mut machine = builder.build().expect("64 MiB of address space");
        let base = machine.ranges().pages.base;
        assert!(base.addr().get().is_multiple_of(HUGE_PAGE_BYTES));
        let range = RawRange {
            base,
            bytes: HUGE_PAGE_BYTES,
        };
        // SAFETY: the range is the machine's, which nobody else uses.
        unsafe { base.write(0x5a) };
        machine.memory.huge_pages.in_use = HugePages::Hugetlb;
        // SAFETY: as above.
        assert!(!unsafe { machine.release(range) });
        // SAFETY: as above.
        assert_eq!(unsafe { base.read() }, 0x5a);
        machine.memory.huge_pages.in_use = HugePages::System;
        // SAFETY: as above.
        assert!(unsafe { machine.release(range) });
        // SAFETY: as above.
        assert_eq!(unsafe { base.read() }, 0);
    }

    /// Moves the calling thread to a CPU, if it may run there.
    fn run_on(cpu: u32) -> bool {
        // SAFETY: all-zero is a valid set.
        let mut set = unsafe { core::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: the CPU is below the set's size.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
        // SAFETY: the set outlives the call.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0 }
    }

    /// Calls `f` on CPU 0, 1 and 0 again, as far as the thread may run there.
    fn on_both_cpus(mut f: impl FnMut(u32)) {
        for cpu in [0, 1, 0] {
            if run_on(cpu) {
                f(cpu);
            } else {
                eprintln!("skipped: this process may not run on CPU {cpu}");
            }
        }
    }

    fn with_alternating_nodes() -> HostMachine {
        let builder = HostMachine::builder().memory_bytes(64 << 20);
        let mut machine = builder.cpus(2).build().expect("64 MiB of address space");
        machine.nodes = Nodes::alternating(1, 1);
        machine.topology.nodes = 2;
        machine
    }

    /// Facts 7.2: the CPUs of the node are those that are online.
    #[test]
    #[cfg_attr(miri, ignore = "too much memory")]
    fn lists_are_sized_for_the_cpus_that_are_online() {
        let limits = |first, second| {
            let mut machine = with_alternating_nodes();
            machine.nodes = Nodes::alternating(first, second);
            let pages = PageAllocator::new(machine, Era::V6_18).expect("pages");
            [0, 1].map(|zone| {
                let lists = pages.pageset_report(zone, CpuId(0), false);
                lists.expect("nobody uses them").high_max
            })
        };
        // An eighth of the 8192 pages of a node, dealt to its CPUs.
        assert_eq!(limits(1, 1), [1024, 1024]);
        assert_eq!(limits(4, 1), [256, 1024]);
        assert_eq!(limits(1, 8), [1024, 128]);
    }

    fn objects_are_local<D: Design>(era: Era) {
        let heap = Heap::<_, D>::new(with_alternating_nodes(), era, BootParams::default());
        let heap = heap.expect("a heap");
        on_both_cpus(|cpu| {
            let object = heap.kmalloc(100, None).expect("memory");
            let page = heap.pages().pfn_of(object).expect("a page of the heap");
            assert_eq!(
                heap.pages().node_of(page),
                Some(NodeId(1 - cpu)),
                "{}",
                D::NAME
            );
            // SAFETY: nobody uses the object any more.
            unsafe { heap.kfree(object) }.expect("allocated");
        });
        heap.pages().check_consistency().expect("consistency");
    }

    /// Nodes need not be what the CPUs' numbers suggest.
    #[test]
    #[cfg_attr(miri, ignore = "no CPUs to choose from")]
    fn memory_is_of_the_node_that_the_table_tells() {
        let pages = PageAllocator::new(with_alternating_nodes(), Era::V6_18).expect("pages");
        on_both_cpus(|cpu| {
            for order in [0, 3, 10] {
                let page = pages.alloc(order, None).expect("memory");
                assert_eq!(pages.node_of(page), Some(NodeId(1 - cpu)), "order {order}");
                pages.free(page, order).expect("allocated");
            }
        });
        objects_are_local::<Slab>(Era::V6_1);
        objects_are_local::<Slub>(Era::V6_18);
        objects_are_local::<Slubq>(Era::V2_6_35);
        objects_are_local::<Sheaf>(Era::V7_0);
    }

    /// The flags that `/proc/self/smaps` shows of the mapping that an address lies in.
    fn flags_at(address: NonNull<u8>) -> Vec<String> {
        let address = address.addr().get();
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
        let mut inside = false;
        for line in smaps.lines() {
            let bounds = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            if let Some((from, to)) = bounds {
                let number = |text| usize::from_str_radix(text, 16).ok();
                inside = number(from)
                    .zip(number(to))
                    .is_some_and(|(from, to)| (from..to).contains(&address));
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split_whitespace().map(str::to_owned).collect();
            }
        }
        Vec::new()
    }

    #[test]
    #[cfg_attr(miri, ignore = "no madvise")]
    fn descriptors_have_huge_pages_where_pages_have() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return eprintln!("skipped: a kernel without transparent huge pages");
        }
        for (wanted, flag) in [(HugePages::Transparent, "hg"), (HugePages::System, "nh")] {
            let builder = HostMachine::builder().memory_bytes(64 << 20);
            let machine = builder.huge_pages(wanted).build().expect("address space");
            if machine.huge_pages().in_use != wanted {
                eprintln!("skipped: {:?}", machine.huge_pages().reason);
                continue;
            }
            let flags = flags_at(machine.ranges().descriptors.base);
            assert!(
                flags.iter().any(|known| known == flag),
                "{wanted:?}: {flags:?}"
            );
            let flags = flags_at(machine.ranges().percpu.base);
            assert!(
                flags.iter().any(|known| known == "nh"),
                "{wanted:?}: {flags:?}"
            );
        }
    }
}
