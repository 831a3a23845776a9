//! Accounting: what an allocator touches and does, told to the machine.
//!
//! Accessors of the structures call the free functions, the algorithms do not: a slot tells of itself
//! when it is taken, a list of pages when it changes, a slab's word when it is read or replaced.
//! Locks and slots have words that the machine itself reads and writes, so it accounts those.
//!
//! The free functions are the only callers of the machine's hooks. Building with
//! `--cfg quarry_no_accounting` leaves them out altogether, which is how `cargo xtask accounting`
//! shows that on a real machine they cost no instruction.

use super::Accounting;

/// Kind of cache line that is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Line {
    /// Memory of an object itself (a free pointer in it, a constructor).
    Object,
    /// Per-CPU state of a cache.
    CpuState,
    /// Entries of a per-CPU queue.
    CpuQueue,
    /// Page descriptor of a slab: its free list, counters, links.
    Slab,
    /// What a slab's free objects are named by in memory: a bitmap behind its objects, indices.
    Bitmap,
    /// Node-level state: list heads, counters, arrays of objects that CPUs share.
    Node,
    /// Page descriptor on a page allocator's list.
    PageDescriptor,
    /// Per-CPU page lists.
    Pcp,
    /// Zone-level state: free lists of the buddy allocator.
    Zone,
    /// A page pool's alloc cache.
    PoolCache,
    /// Slots of a page pool's ring.
    PoolRing,
    /// A CPU's lane of a page pool.
    PoolLane,
}

impl Line {
    /// Number of kinds.
    pub const COUNT: usize = 12;
    /// All kinds with the names that reports use, in the order of their numbers.
    pub const ALL: [(Line, &'static str); Line::COUNT] = [
        (Line::Object, "object"),
        (Line::CpuState, "cpu_state"),
        (Line::CpuQueue, "cpu_queue"),
        (Line::Slab, "slab"),
        (Line::Bitmap, "bitmap"),
        (Line::Node, "node"),
        (Line::PageDescriptor, "page_descriptor"),
        (Line::Pcp, "pcp"),
        (Line::Zone, "zone"),
        (Line::PoolCache, "pool_cache"),
        (Line::PoolRing, "pool_ring"),
        (Line::PoolLane, "pool_lane"),
    ];
}

/// What an access needs of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// The line may stay shared.
    Read,
    /// The line must be owned.
    Write,
    /// The line must be owned and stay so from the read to the write: a locked read-modify-write.
    Atomic,
}

impl Access {
    /// Number of kinds.
    pub const COUNT: usize = 3;
}

/// Work that is not a memory access. A locked read-modify-write is an access ([`Access::Atomic`]), a
/// list search the accesses to what it looks at; runs of bytes have calls of their own
/// ([`Accounting::zero`], [`Accounting::copy`]).
///
/// The kinds that keep others away ([`Work::guards`]) are pairs: what is done when a slot or lock is
/// taken, and undone when it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// Entry to and exit from an allocation or free.
    Call,
    /// One level of a buddy split or merge.
    BuddyStep,
    /// Interrupts off, and later as they were (`local_irq_save()`, `spin_lock_irqsave()`).
    IrqSave,
    /// Interrupts off, and later on (`local_irq_disable()`).
    IrqDisable,
    /// Preemption off, and later on.
    Preempt,
    /// Interrupts off for moments of a path that takes its locks outside of them (`local_lock_irqsave()`
    /// of SLUB since 5.15).
    LocalLock,
    /// A double-word compare-and-swap of this CPU's own state, which no bus lock protects
    /// (`this_cpu_cmpxchg_double()`).
    LocalCmpxchg,
    /// An interrupt of another CPU, and the wait for its handler, which does what follows.
    Ipi,
    /// The wake-up of a thread on another CPU, beside the switch to it.
    RemoteWake,
    /// A context switch on the running CPU.
    Switch,
    /// Entry to and exit from the kernel.
    Syscall,
}

impl Work {
    /// Number of kinds.
    pub const COUNT: usize = 11;
    /// All kinds with the names that reports use, in the order of their numbers.
    pub const ALL: [(Work, &'static str); Work::COUNT] = [
        (Work::Call, "call"),
        (Work::BuddyStep, "buddy_step"),
        (Work::IrqSave, "irq_save"),
        (Work::IrqDisable, "irq_disable"),
        (Work::Preempt, "preempt"),
        (Work::LocalLock, "local_lock"),
        (Work::LocalCmpxchg, "local_cmpxchg"),
        (Work::Ipi, "ipi"),
        (Work::RemoteWake, "remote_wake"),
        (Work::Switch, "switch"),
        (Work::Syscall, "syscall"),
    ];

    /// Whether the kernel keeps this up while the slot or lock is held that was taken last: interrupts or
    /// preemption are off, and inside, it does not turn them off again.
    #[must_use]
    pub const fn guards(self) -> bool {
        matches!(
            self,
            Self::IrqSave | Self::IrqDisable | Self::Preempt | Self::Ipi
        )
    }
}

/// Tells the machine of an access to a whole `T`.
#[inline(always)]
pub(crate) fn access<M: Accounting, T>(machine: &M, line: Line, access: Access, at: *const T) {
    access_run(machine, line, access, at, 1);
}

/// Tells the machine of an access to `count` values one after the other; of none if there are none.
#[inline(always)]
#[cfg_attr(quarry_no_accounting, allow(unused_variables))]
pub(crate) fn access_run<M: Accounting, T>(
    machine: &M,
    line: Line,
    access: Access,
    at: *const T,
    count: usize,
) {
    #[cfg(not(quarry_no_accounting))]
    if count > 0 {
        machine.access(at.cast(), count * size_of::<T>(), access, line);
    }
}

/// Tells the machine of work.
#[inline(always)]
#[cfg_attr(quarry_no_accounting, allow(unused_variables))]
pub(crate) fn work<M: Accounting>(machine: &M, work: Work) {
    #[cfg(not(quarry_no_accounting))]
    machine.work(work);
}
