//! The seam between allocators and what they run on.
//!
//! # Idea
//!
//! [`Machine`] gives an allocator five things and nothing else: how many CPUs and nodes there are
//! and which page size; per-CPU state behind a try-lock; spin locks; four zero-filled ranges of
//! memory; and two accounting hooks, [`Machine::touch`] and [`Machine::work`], which are empty on
//! a real machine and drive the cost model of a virtual one. Nothing above this module uses
//! threads, the operating system, the global heap, or atomics of its own for per-CPU state.
//!
//! # Per-CPU try-lock
//!
//! ```text
//!   PERCPU_SHIFT:  one area per CPU, all laid out alike
//!   |<--- CPU 0 --->|<--- CPU 1 --->|<--- CPU 2 --->|
//!   |   [slot]      |   [slot]      |   [slot]      |     slot(cpu) = slot(0) + (cpu << shift)
//!        lock word + state
//! ```
//!
//! A slot's lock word is 0 (free), 1 (taken by code running on that CPU), 2 (taken by another CPU
//! for a drain, a shrink or exact statistics) or 3 (taken for a fork). Taking it never waits: if a
//! preempted thread holds the word, the caller goes to the node level instead. This is the shape
//! that Linux 6.18 uses for sheaves (a local lock that is only *tried*).
//!
//! # Locks and re-entry
//!
//! A signal handler may allocate while the thread it interrupted holds a lock. The kernel disables
//! interrupts; a process cannot afford to mask signals. So a lock remembers its owner, and
//! [`Machine::lock`] refuses ([`Reentered`]) instead of waiting for itself. Every caller has an
//! answer to that: an allocation fails as an atomic allocation does, a free is deferred.
//!
//! # Invariants
//!
//! * **M1** A slot's state is only accessed by whoever holds its lock word; state that is made of
//!   atomics may be read by others.
//! * **M2** The four ranges are disjoint, zero-filled before first use, and live as long as the
//!   machine.
//! * **M3** A machine never moves: its ranges and per-CPU areas keep their addresses.

mod account;
mod gate;
mod lock;
mod percpu;
mod region;

pub use account::{Access, Line, Work};
pub(crate) use account::{touch, work};
pub(crate) use gate::Gate;
pub(crate) use lock::{Guard, SpinLock};
pub use lock::{LockClass, RawLock, Reentered};
pub use percpu::{PERCPU_FREE, PERCPU_OWNER, PERCPU_QUIESCED, PERCPU_REMOTE, SlotLock};
pub(crate) use percpu::{PerCpu, PerCpuShared};
pub(crate) use region::Region;

use core::ptr::NonNull;

/// Largest number of CPUs that a machine may have.
pub const MAX_CPUS: u32 = 4096;
/// Largest number of NUMA nodes that a machine may have.
pub const MAX_NODES: usize = 8;
/// Bytes of one page descriptor in [`Ranges::descriptors`].
pub const DESCRIPTOR_BYTES: usize = 64;

/// Number of a CPU, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

/// Number of a NUMA node, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// What a machine looks like; fixed for its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Possible CPUs, at least 1, at most [`MAX_CPUS`].
    pub cpus: u32,
    /// NUMA nodes, at least 1, at most [`MAX_NODES`] and at most `cpus`.
    pub nodes: u32,
    /// log2 of the page size in bytes: 12, 14 or 16.
    pub page_shift: u32,
    /// Bytes of a cache line.
    pub cache_line: u32,
}

impl Topology {
    /// Bytes of one page.
    #[must_use]
    pub const fn page_size(&self) -> usize {
        1 << self.page_shift
    }

    /// Node of a CPU where CPUs are dealt to nodes in equal consecutive runs.
    const fn dealt_node(&self, cpu: CpuId) -> NodeId {
        NodeId((cpu.0 as u64 * self.nodes as u64 / self.cpus as u64) as u32)
    }
}

/// One range of address space.
#[derive(Clone, Copy, Debug)]
pub struct RawRange {
    /// First byte.
    pub base: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
}

/// The memory of a machine (invariant M2).
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    /// What the page allocator hands out; a whole number of pages, aligned to the largest block
    /// (2^10 pages).
    pub pages: RawRange,
    /// [`DESCRIPTOR_BYTES`] for each page of `pages`, aligned to that many bytes.
    pub descriptors: RawRange,
    /// For the allocators' own structures: caches, nodes, names. Aligned to a page.
    pub meta: RawRange,
    /// One area of `1 << PERCPU_SHIFT` bytes per CPU, aligned to a page.
    pub percpu: RawRange,
}

/// Where a linked list of free objects is in a per-CPU slot: distances in bytes from the slot's
/// lock word.
pub trait ListLayout {
    /// Address of the first object (8 bytes), null if there is none.
    const HEAD: usize;
    /// Whose objects the list holds (4 bytes); a push must name the same owner.
    const OWNER: usize;
    /// Counter of objects taken (8 bytes).
    const POPS: usize;
    /// Counter of objects put (8 bytes).
    const PUSHES: usize;
}

/// Where a stack of object addresses, or of other words that are not 0, is in a per-CPU slot:
/// distances in bytes from the slot's lock word. The stack grows upward; it is empty when the top
/// equals the base, full when it is not below the limit. All three may be null.
pub trait StackLayout {
    /// Whether entries are words of 4 bytes instead of 8; of such a stack no step takes any.
    const NARROW: bool = false;
    /// Address of the entry above the newest (8 bytes).
    const TOP: usize;
    /// Address of the oldest entry (8 bytes); the word in front of it can be read.
    const BASE: usize;
    /// Address behind the last entry (8 bytes).
    const LIMIT: usize;
    /// Counter of objects taken by single steps (8 bytes).
    const POPS: usize;
    /// Counter of objects put by single steps (8 bytes).
    const PUSHES: usize;
}

/// What an allocator runs on.
///
/// # Safety
///
/// The implementor guarantees M2 and M3 of the module's documentation for [`Machine::ranges`],
/// that [`Machine::topology`] and the answers of [`Machine::node_of_cpu`] never change, and that the
/// lock operations exclude each other: between a successful acquisition and the matching release no
/// other acquisition of the same word succeeds, and the release happens-before the next acquisition.
pub unsafe trait Machine: Sized + 'static {
    /// log2 of the distance in bytes between the slots of neighbouring CPUs.
    const PERCPU_SHIFT: u32;

    /// Whether the page allocator holds its locks for as many pages as the era's kernel does, which a
    /// replay has to, or as suits a process
    /// ([`PageConfig::in_process`](crate::page::PageConfig::in_process)).
    const KERNEL_HOLDS: bool = true;

    /// CPUs, nodes, page size.
    fn topology(&self) -> &Topology;

    /// Node of one of the topology's CPUs, below its number of nodes. CPUs are dealt to nodes in equal
    /// consecutive runs, unless the machine says otherwise.
    #[inline]
    fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.topology().dealt_node(cpu)
    }

    /// CPUs that a node's memory is shared among, for the sizes of what each of them may hold: those
    /// that [`Machine::node_of_cpu`] gives the node, unless the machine knows that some are offline.
    fn cpus_of_node(&self, node: NodeId) -> u32 {
        let cpus = (0..self.topology().cpus).map(CpuId);
        cpus.filter(|&cpu| self.node_of_cpu(cpu) == node).count() as u32
    }

    /// The four ranges of memory.
    fn ranges(&self) -> &Ranges;

    /// The CPU that runs the caller, which may have moved by the time the answer is used: good
    /// for choosing a node, never for access to per-CPU state.
    fn current_cpu(&self) -> CpuId;

    /// The node of [`Machine::current_cpu`], and as good.
    #[inline(always)]
    fn current_node(&self) -> NodeId {
        self.node_of_cpu(self.current_cpu())
    }

    /// Takes the lock word of the slot that belongs to the running CPU, given CPU 0's slot.
    /// `None` if it is held, or if the running CPU cannot be told.
    ///
    /// # Safety
    ///
    /// `slot0` is CPU 0's word of a slot in [`Ranges::percpu`].
    unsafe fn percpu_try_lock(&self, slot0: NonNull<SlotLock>) -> Option<NonNull<SlotLock>>;

    /// Takes the first object off the running CPU's list in one step: `None` if the slot is held,
    /// the list is empty, or the machine has no such step. A step counts as taking and freeing the
    /// slot's lock word; its counter may run ahead by one when the step is interrupted.
    ///
    /// # Safety
    ///
    /// As for [`Machine::percpu_try_lock`]; the slot's state is laid out as `L` says, and each
    /// object on the list holds the address of the next, or null, `link` bytes from its start.
    #[inline(always)]
    unsafe fn percpu_pop_list<L: ListLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
        _link: usize,
    ) -> Option<NonNull<u8>> {
        None
    }

    /// Puts an object on the running CPU's list in one step: `false` if the slot is held, the list
    /// is not `owner`'s, it begins with this very object, or the machine has no such step.
    ///
    /// # Safety
    ///
    /// As for [`Machine::percpu_pop_list`]; the caller owns the object.
    #[inline(always)]
    unsafe fn percpu_push_list<L: ListLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
        _link: usize,
        _owner: u32,
        _object: NonNull<u8>,
    ) -> bool {
        false
    }

    /// Takes the newest entry off the running CPU's stack in one step: `None` if the slot is held,
    /// the stack is empty, or the machine has no such step.
    ///
    /// # Safety
    ///
    /// As for [`Machine::percpu_try_lock`]; the slot's state is laid out as `L` says.
    #[inline(always)]
    unsafe fn percpu_pop_stack<L: StackLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
    ) -> Option<NonNull<u8>> {
        None
    }

    /// Puts an object, or another word that is not 0, on the running CPU's stack in one step: `false`
    /// if the slot is held, the stack is full, its newest entry is this very object, or the machine
    /// has no such step.
    ///
    /// # Safety
    ///
    /// As for [`Machine::percpu_pop_stack`]; the object fits in an entry.
    #[inline(always)]
    unsafe fn percpu_push_stack<L: StackLayout>(
        &self,
        _slot0: &NonNull<SlotLock>,
        _object: NonNull<u8>,
    ) -> bool {
        false
    }

    /// Whether the machine has steps on stacks ([`Machine::percpu_push_stack`]).
    fn has_steps(&self) -> bool {
        false
    }

    /// Takes the word of another CPU's slot (`slot` is that CPU's own word). `false` if its
    /// owner does not let go within a bounded time.
    fn percpu_lock_remote(&self, slot: &SlotLock, cpu: CpuId) -> bool;

    /// A value that is not 0 and identifies the calling thread among those alive.
    fn thread_id(&self) -> usize;

    /// Names the next grace period: once [`Machine::rcu_elapsed`] is true of it, every reader that
    /// runs now has finished. A machine that knows nothing of readers never says so.
    fn rcu_cookie(&self) -> u64 {
        u64::MAX
    }

    /// Whether a grace period that [`Machine::rcu_cookie`] named is over. If it is, so are all that
    /// were named before it.
    fn rcu_elapsed(&self, _cookie: u64) -> bool {
        false
    }

    /// The number by which reports name the calling thread, as the operating system's tools show it.
    fn task(&self) -> u32 {
        self.thread_id() as u32
    }

    /// A counter that never falls, for the records of debugging: nanoseconds on a real machine,
    /// operations so far on a virtual one; 0 on a machine without. Nothing is decided by it but when a
    /// closed gate lets through.
    fn when(&self) -> u64 {
        0
    }

    /// Lets others run while the caller waits; `attempt` counts the waits so far.
    fn pause(&self, attempt: u32);

    /// Takes a spin lock, waiting while another thread has it.
    ///
    /// # Errors
    ///
    /// [`Reentered`] if the calling thread itself holds it (the caller runs in a signal handler
    /// that interrupted the holder).
    fn lock(&self, lock: &RawLock, class: LockClass) -> Result<(), Reentered>;

    /// Takes a spin lock if it is free.
    fn try_lock(&self, lock: &RawLock, class: LockClass) -> bool;

    /// Releases a spin lock.
    ///
    /// # Safety
    ///
    /// The caller holds it.
    unsafe fn unlock(&self, lock: &RawLock, class: LockClass);

    /// Gives the memory behind free pages back to whoever lends it: it reads as zero from then on
    /// and takes memory again when it is touched. `false` if the machine keeps it; then its
    /// contents are as they were.
    ///
    /// # Safety
    ///
    /// The range is whole pages of [`Ranges::pages`] that nobody uses.
    unsafe fn release(&self, _range: RawRange) -> bool {
        false
    }

    /// Tells that the pages of a range are a node's, before they are first touched.
    fn bind(&self, _range: RawRange, _node: NodeId) {}

    /// Says that what lies at this address, if anything does, will be written soon, so that a machine
    /// with caches can fetch it while the caller does something else.
    #[inline(always)]
    fn prefetch_for_write(&self, _address: *const u8) {}

    /// A memory access that a processor would make here. Empty unless the machine models cost.
    #[inline(always)]
    fn touch(&self, _line: Line, _access: Access, _address: usize) {}

    /// Work that costs time without touching memory. Empty unless the machine models cost.
    #[inline(always)]
    fn work(&self, _work: Work) {}
}
