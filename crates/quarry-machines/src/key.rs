//! The costs that a machine has.

use crate::cost::Unit;

macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident = $section:literal $name:literal,)*) => {
        /// A cost. Distances are those between a CPU and the nearest (for upgrades, the farthest) cache that has a line: in the
        /// same cluster, in another cluster of the socket, in another socket.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Key {
            $($(#[$doc])* $key,)*
        }

        impl Key {
            /// All costs in the order of files, with their section and name there.
            pub const ALL: [(Key, &'static str, &'static str); Key::COUNT] =
                [$((Key::$key, $section, $name),)*];

            /// Number of costs.
            pub const COUNT: usize = [$(Key::$key,)*].len();
        }
    };
}

keys! {
    /// A hit in a CPU's first cache.
    L1 = "latency" "l1",
    /// A hit in its second cache.
    L2 = "latency" "l2",
    /// A hit in the cache of its cluster.
    Llc = "latency" "llc",
    /// A line that caches of the cluster have unchanged.
    CleanCluster = "latency" "clean_cluster",
    /// The same, of another cluster.
    CleanSocket = "latency" "clean_socket",
    /// The same, of another socket.
    CleanRemote = "latency" "clean_remote",
    /// A line that another CPU of the cluster may have changed.
    DirtyCluster = "latency" "dirty_cluster",
    /// The same, of another cluster.
    DirtySocket = "latency" "dirty_socket",
    /// The same, of another socket.
    DirtyRemote = "latency" "dirty_remote",
    /// A write to a line that other CPUs of the cluster share.
    UpgradeCluster = "latency" "upgrade_cluster",
    /// The same, of another cluster.
    UpgradeSocket = "latency" "upgrade_socket",
    /// The same, of another socket.
    UpgradeRemote = "latency" "upgrade_remote",
    /// A line from memory of the CPU's own node.
    MemoryLocal = "latency" "memory_local",
    /// A line from memory of another node.
    MemoryRemote = "latency" "memory_remote",
    /// Cost of an atomic operation beyond a write.
    Atomic = "latency" "atomic",
    /// Time for which a line keeps the bus of a socket busy.
    Bus = "latency" "bus",
    /// Lines of one run that a CPU fetches at the same time.
    Misses = "throughput" "misses",
    /// Time for which a CPU goes on behind an access that waits for its line.
    Window = "throughput" "window",
    /// Bytes that are copied or filled a cycle, once they are in the first cache.
    Copy = "throughput" "copy",
    /// Entry to and exit from an allocation or free.
    Call = "work" "call",
    /// Entry to and exit from the slow path of one.
    SlowPath = "work" "slow_path",
    /// An object that a bulk call allocates or frees; its lines are extra.
    BulkObject = "work" "bulk_object",
    /// An object of a new slab that is made ready; its lines are extra.
    SlabObject = "work" "slab_object",
    /// An object that a drain puts back in its slab; its lines are extra.
    DrainObject = "work" "drain_object",
    /// Entry to and exit from the page allocator's lists or zones.
    PageCall = "work" "page_call",
    /// One level of a buddy split or merge; its lines are extra.
    BuddyStep = "work" "buddy_step",
    /// A block that comes off a zone's free lists under the zone lock; its lines are extra.
    ZoneTake = "work" "zone_take",
    /// A block that goes back to a zone's free lists under the zone lock; its lines are extra.
    ZoneGive = "work" "zone_give",
    /// Interrupts off, and later as they were.
    IrqSave = "work" "irq_save",
    /// Interrupts off, and later on.
    IrqDisable = "work" "irq_disable",
    /// Preemption off, and later on.
    Preempt = "work" "preempt",
    /// A local lock that turns interrupts off.
    LocalLock = "work" "local_lock",
    /// A double-word compare-and-swap without a bus lock.
    LocalCmpxchg = "work" "local_cmpxchg",
    /// An interrupt of another CPU, and the wait for its handler.
    Ipi = "work" "ipi",
    /// The wake-up of a thread on another CPU; the switch to it is extra.
    RemoteWake = "work" "remote_wake",
    /// A context switch, with the calls that lead to it.
    Switch = "work" "switch",
    /// Entry to and exit from the kernel.
    Syscall = "work" "syscall",
    /// Work of the protocols for a message through a Unix socket or a pipe, sender and receiver together. Memory, calls, switches
    /// and copies are extra.
    UnixMessage = "work" "unix_message",
    /// Work of the protocols for a segment of TCP; the same is extra. Three quarters are where the sender hands it to the
    /// receiver's socket, a quarter is in each of the reader's calls.
    TcpSegment = "work" "tcp_segment",
    /// Work of a micro-benchmark for a call, outside of the allocator: its loop, hooks, and what it does to the object.
    MicroCall = "work" "micro_call",
    /// A page that goes on a list for reclaim, or comes off it, under the list's lock; its lines are extra.
    LruPage = "work" "lru_page",
    /// The way of a short message to another machine, through it, and of its answer; waits for interrupts are extra.
    RoundTrip = "network" "round_trip",
    /// Time from an interrupt of a card's queue to its next one, at least.
    InterruptEvery = "network" "interrupt_every",
    /// Queues of a card.
    Queues = "network" "queues",
    /// Work of a card's driver for a packet; protocols are extra.
    Packet = "network" "packet",
}

impl Key {
    /// Its name with its section, as in `latency.l1`.
    #[must_use]
    pub fn path(self) -> String {
        let (_, section, name) = Self::ALL[self as usize];
        format!("{section}.{name}")
    }

    /// True if a unit is one of its own.
    pub(crate) fn has_unit(self, unit: Unit) -> bool {
        match self {
            Self::Misses => unit == Unit::Lines,
            Self::Copy => unit == Unit::BytesPerCycle,
            Self::Queues => unit == Unit::Queues,
            _ => matches!(unit, Unit::Cycles | Unit::Ns),
        }
    }
}
