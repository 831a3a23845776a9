//! The kinds by which machines count: classes of locks, lines, accesses, work.

/// What a lock protects; machines count and time acquisitions by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LockClass {
    /// A node's slab lists (`list_lock`).
    NodeList,
    /// One slab (the slab bit lock of Linux before double-word compare-and-swap).
    Slab,
    /// A zone's free lists (`zone->lock`).
    Zone,
    /// Allocation of the allocators' own structures.
    Region,
    /// The list of caches (`slab_mutex`).
    CacheList,
    /// Where a cache's queues are.
    QueueConfig,
    /// SLOB's page lists and all of their pages (`slob_lock`).
    Slob,
    /// An alien array of SLAB.
    Alien,
    /// A queue that several CPUs use.
    SharedQueue,
    /// A node's stock of sheaves (`barn->lock`).
    Barn,
    /// Deferred frees of a cache.
    Rcu,
    /// The operations on a cache with debugging.
    Debug,
    /// Settings and findings of debugging.
    DebugState,
    /// What the page allocator's sysctls say.
    PageConfig,
}

impl LockClass {
    /// Number of classes.
    pub const COUNT: usize = 14;
    /// All classes with the names that reports use, in the order of their numbers.
    pub const ALL: [(LockClass, &'static str); LockClass::COUNT] = [
        (LockClass::NodeList, "node_list"),
        (LockClass::Slab, "slab"),
        (LockClass::Zone, "zone"),
        (LockClass::Region, "region"),
        (LockClass::CacheList, "cache_list"),
        (LockClass::QueueConfig, "queue_config"),
        (LockClass::Slob, "slob"),
        (LockClass::Alien, "alien"),
        (LockClass::SharedQueue, "shared_queue"),
        (LockClass::Barn, "barn"),
        (LockClass::Rcu, "rcu"),
        (LockClass::Debug, "debug"),
        (LockClass::DebugState, "debug_state"),
        (LockClass::PageConfig, "page_config"),
    ];

    /// The order of all locks, outermost first: a holder waits only for locks of later ranks, unless it
    /// is a signal handler, which begins anew. Classes of one rank are never held together, nor are two
    /// locks of a class, unless they nest ([`LockClass::nests_in`]); one that is only tried
    /// ([`Locks::try_lock`](super::Locks::try_lock)) may have any rank.
    pub const ORDER: [&[LockClass]; 12] = [
        &[LockClass::CacheList],
        &[LockClass::PageConfig],
        &[LockClass::Debug],
        &[LockClass::QueueConfig, LockClass::SharedQueue],
        &[LockClass::Rcu],
        &[LockClass::Barn],
        &[LockClass::Slab, LockClass::Alien],
        &[LockClass::NodeList],
        &[LockClass::Slob],
        &[LockClass::Zone],
        &[LockClass::Region],
        &[LockClass::DebugState],
    ];

    /// Whether a lock of the class may be taken inside one of the other, of the same rank: a cache with
    /// debugging takes the indices of its slabs from a smaller kmalloc cache, which may have it, too.
    #[must_use]
    pub const fn nests_in(self, outer: LockClass) -> bool {
        matches!((self, outer), (LockClass::Debug, LockClass::Debug))
    }

    /// Whether the kernel takes the lock with interrupts off. The bit lock of a slab, too, is taken so, but
    /// inside of calls that have turned them off.
    #[must_use]
    pub const fn irqs_off(self) -> bool {
        matches!(
            self,
            Self::NodeList | Self::Zone | Self::Slob | Self::Alien | Self::SharedQueue | Self::Barn
        )
    }

    /// Place of the class in [`LockClass::ORDER`].
    #[must_use]
    pub const fn rank(self) -> u32 {
        let mut rank = 0;
        while rank < Self::ORDER.len() {
            let mut at = 0;
            while at < Self::ORDER[rank].len() {
                if Self::ORDER[rank][at] as u8 == self as u8 {
                    return rank as u32;
                }
                at += 1;
            }
            rank += 1;
        }
        rank as u32
    }
}

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
    /// The line must be owned. What it has is read, too, or decides what follows.
    Write,
    /// The line must be owned and stay so from the read to the write: a locked read-modify-write.
    Atomic,
    /// The line must be owned. Nothing that follows needs what it had: a CPU does not wait for it. Counted as a write.
    Store,
}

impl Access {
    /// Number of kinds that are counted: all but [`Access::Store`].
    pub const COUNT: usize = 3;
}

/// Work that is not a memory access. A locked read-modify-write is an access ([`Access::Atomic`]), a
/// list search the accesses to what it looks at; runs of bytes have calls of their own
/// ([`Accounting::zero`](super::Accounting::zero), [`Accounting::copy`](super::Accounting::copy)).
///
/// The kinds that keep others away ([`Work::guards`]) are pairs: what is done when a slot or lock is
/// taken, and undone when it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Work {
    /// Entry to and exit from an allocation or free.
    Call,
    /// Entry to and exit from what follows when the running CPU's state does not serve it.
    SlowPath,
    /// An object of a new slab that is made ready, beside its memory.
    SlabObject,
    /// Entry to and exit from the page allocator's lists or zones: which zone may serve, what a page is set to.
    PageCall,
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
    pub const COUNT: usize = 14;
    /// All kinds with the names that reports use, in the order of their numbers.
    pub const ALL: [(Work, &'static str); Work::COUNT] = [
        (Work::Call, "call"),
        (Work::SlowPath, "slow_path"),
        (Work::SlabObject, "slab_object"),
        (Work::PageCall, "page_call"),
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_one_rank_and_one_number() {
        let ranked: usize = LockClass::ORDER.iter().map(|rank| rank.len()).sum();
        assert_eq!(ranked, LockClass::COUNT);
        for (number, (class, name)) in LockClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, number, "{name}");
            assert!((class.rank() as usize) < LockClass::ORDER.len(), "{name}");
        }
    }
}
