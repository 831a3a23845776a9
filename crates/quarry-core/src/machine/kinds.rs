//! The kinds by which machines count: classes of locks, lines, accesses, work.

/// Makes an enum of kinds, each with its name in reports.
macro_rules! kinds {
    ($(#[$doc:meta])* $kind:ident { $($(#[$of:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $kind { $($(#[$of])* $variant,)* }

        impl $kind {
            /// All kinds with the names that reports use, in the order of their numbers.
            pub const ALL: [(Self, &'static str); Self::COUNT] = [$((Self::$variant, $name),)*];
            /// Number of kinds.
            pub const COUNT: usize = [$($name),*].len();
        }
    };
}

kinds! {
    /// Class of a lock, by what it protects; machines count and time acquisitions by class.
    LockClass {
        /// A node's slab lists (`list_lock`).
        NodeList = "node_list",
        /// One slab (the slab bit lock of Linux before double-word compare-and-swap).
        Slab = "slab",
        /// A zone's free lists (`zone->lock`).
        Zone = "zone",
        /// Allocation of the allocators' own structures.
        Region = "region",
        /// The list of caches (`slab_mutex`).
        CacheList = "cache_list",
        /// Places of a cache's queues.
        QueueConfig = "queue_config",
        /// SLOB's page lists and all of their pages (`slob_lock`).
        Slob = "slob",
        /// An alien array of SLAB.
        Alien = "alien",
        /// A queue that several CPUs use.
        SharedQueue = "shared_queue",
        /// A node's stock of sheaves (`barn->lock`).
        Barn = "barn",
        /// Deferred frees of a cache.
        Rcu = "rcu",
        /// The operations on a cache with debugging.
        Debug = "debug",
        /// Settings and findings of debugging.
        DebugState = "debug_state",
        /// Settings of the page allocator's sysctls.
        PageConfig = "page_config",
        /// A node's lists of pages for reclaim (`lru_lock`). No allocator has them, but workloads do.
        Lru = "lru",
    }
}

impl LockClass {
    /// The order of all locks, outermost first: a holder waits only for locks of later ranks, unless it
    /// is a signal handler, which begins anew. Classes of one rank are never held together, nor are two
    /// locks of a class, unless they nest ([`LockClass::nests_in`]); one that is only tried
    /// ([`Locks::try_lock`](super::Locks::try_lock)) may have any rank.
    pub const ORDER: [&[LockClass]; 13] = [
        &[LockClass::Lru],
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

    /// True if a lock of the class may be taken inside one of the other, of the same rank: a cache with
    /// debugging takes the indices of its slabs from a smaller kmalloc cache, which may have it, too.
    #[must_use]
    pub const fn nests_in(self, outer: LockClass) -> bool {
        matches!((self, outer), (LockClass::Debug, LockClass::Debug))
    }

    /// True if the kernel takes the lock with interrupts off. The bit lock of a slab, too, is taken so, but
    /// inside of calls that have turned them off.
    #[must_use]
    pub const fn irqs_off(self) -> bool {
        matches!(
            self,
            Self::NodeList
                | Self::Zone
                | Self::Slob
                | Self::Alien
                | Self::SharedQueue
                | Self::Barn
                | Self::Lru
        )
    }

    /// True if an allocator takes such locks, and not workloads alone.
    #[must_use]
    pub const fn is_allocators(self) -> bool {
        !matches!(self, Self::Lru)
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

kinds! {
    /// Kind of cache line that is touched.
    Line {
        /// Memory of an object itself (a free pointer in it, a constructor).
        Object = "object",
        /// Per-CPU state of a cache.
        CpuState = "cpu_state",
        /// Entries of a per-CPU queue.
        CpuQueue = "cpu_queue",
        /// Page descriptor of a slab: its free list, counters, links.
        Slab = "slab",
        /// Names of a slab's free objects in memory: a bitmap behind its objects, indices.
        Bitmap = "bitmap",
        /// Node-level state: list heads, counters, arrays of objects that CPUs share.
        Node = "node",
        /// Page descriptor on a page allocator's list.
        PageDescriptor = "page_descriptor",
        /// Per-CPU page lists.
        Pcp = "pcp",
        /// Zone-level state: free lists of the buddy allocator.
        Zone = "zone",
        /// A page pool's alloc cache.
        PoolCache = "pool_cache",
        /// Slots of a page pool's ring.
        PoolRing = "pool_ring",
        /// A CPU's lane of a page pool.
        PoolLane = "pool_lane",
    }
}

/// Need of an access for its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// The line may stay shared. What follows needs what it has.
    Read,
    /// The line must be owned. What it has is read, too, or decides what follows.
    Write,
    /// The line must be owned and stay so from the read to the write: a locked read-modify-write.
    Atomic,
    /// The line must be owned. Nothing that follows needs what it had: a CPU does not wait for it. Counted as a write.
    Store,
    /// The line may stay shared. It decides a branch alone, which processors predict: a CPU does not wait for it. Counted as
    /// a read.
    Check,
    /// The line is to come near, as a hint of the kernel's: nothing waits for it. Not counted.
    Prefetch,
}

impl Access {
    /// True if the line may stay shared.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Check | Self::Prefetch)
    }

    /// Number of kinds that are counted as such: the first three.
    pub const COUNT: usize = 3;
}

kinds! {
    /// Work that is not a memory access. A locked read-modify-write is an access ([`Access::Atomic`]), a
    /// list search the accesses to what it looks at; runs of bytes have calls of their own
    /// ([`Accounting::zero`](super::Accounting::zero), [`Accounting::copy`](super::Accounting::copy)).
    ///
    /// The kinds that keep others away ([`Work::guards`]) are pairs: what is done when a slot or lock is
    /// taken, and undone when it is freed.
    Work {
        /// Entry to and exit from an allocation or free.
        Call = "call",
        /// Entry to and exit from what follows when the running CPU's state does not serve it.
        SlowPath = "slow_path",
        /// An object that a bulk call allocates or frees: a turn of its loops.
        BulkObject = "bulk_object",
        /// An object of a new slab that is made ready; its memory counts as accesses.
        SlabObject = "slab_object",
        /// An object that a drain puts back in its slab, under the list's or the slab's lock; its lines are extra.
        DrainObject = "drain_object",
        /// Entry to and exit from the page allocator's lists or zones: which zone may serve, what a page is set to.
        PageCall = "page_call",
        /// One level of a buddy split or merge.
        BuddyStep = "buddy_step",
        /// A block that comes off a zone's free lists, under the zone lock: links, flags, counts of free pages. Its lines, and
        /// the levels of a split, are extra.
        ZoneTake = "zone_take",
        /// A block that goes back to a zone's free lists, under the zone lock; its lines, and the levels of a merge, are extra.
        ZoneGive = "zone_give",
        /// Interrupts off, and later as they were (`local_irq_save()`, `spin_lock_irqsave()`).
        IrqSave = "irq_save",
        /// Interrupts off, and later on (`local_irq_disable()`).
        IrqDisable = "irq_disable",
        /// Preemption off, and later on.
        Preempt = "preempt",
        /// Interrupts off for moments of a path that takes its locks outside of them (`local_lock_irqsave()`
        /// of SLUB since 5.15).
        LocalLock = "local_lock",
        /// A double-word compare-and-swap of this CPU's own state, which no bus lock protects
        /// (`this_cpu_cmpxchg_double()`).
        LocalCmpxchg = "local_cmpxchg",
        /// An interrupt of another CPU, and the wait for its handler, which does what follows.
        Ipi = "ipi",
        /// The wake-up of a thread on another CPU, without the switch to it.
        RemoteWake = "remote_wake",
        /// A context switch on the running CPU.
        Switch = "switch",
        /// Entry to and exit from the kernel.
        Syscall = "syscall",
    }
}

impl Work {
    /// True if the kernel keeps this up while the slot or lock is held that was taken last: interrupts or
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
    fn each_class_has_one_rank() {
        let ranked: usize = LockClass::ORDER.iter().map(|rank| rank.len()).sum();
        assert_eq!(ranked, LockClass::COUNT);
        for (class, name) in LockClass::ALL {
            assert!((class.rank() as usize) < LockClass::ORDER.len(), "{name}");
        }
    }
}
