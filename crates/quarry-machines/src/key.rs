//! The costs that a machine has.

use crate::cost::Unit;

/// A cost. Distances are those between a CPU and the nearest (for upgrades, the farthest) cache that has a line: in the
/// same cluster, in another cluster of the socket, in another socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Key {
    /// A hit in a CPU's first cache.
    L1,
    /// A hit in its second cache.
    L2,
    /// A hit in the cache of its cluster.
    Llc,
    /// A line that caches of the cluster have unchanged.
    CleanCluster,
    /// The same, of another cluster.
    CleanSocket,
    /// The same, of another socket.
    CleanRemote,
    /// A line that another CPU of the cluster may have changed.
    DirtyCluster,
    /// The same, of another cluster.
    DirtySocket,
    /// The same, of another socket.
    DirtyRemote,
    /// A write to a line that other CPUs of the cluster share.
    UpgradeCluster,
    /// The same, of another cluster.
    UpgradeSocket,
    /// The same, of another socket.
    UpgradeRemote,
    /// A line from memory of the CPU's own node.
    MemoryLocal,
    /// A line from memory of another node.
    MemoryRemote,
    /// Cost of an atomic operation beyond a write.
    Atomic,
    /// Time for which a line keeps the bus of a socket busy.
    Bus,
    /// Lines of one run that a CPU fetches at the same time.
    Misses,
    /// Bytes that are copied or filled a cycle, once they are in the first cache.
    Copy,
    /// Entry to and exit from an allocation or free.
    Call,
    /// Entry to and exit from the slow path of one.
    SlowPath,
    /// An object of a new slab that is made ready; its lines are extra.
    SlabObject,
    /// Entry to and exit from the page allocator's lists or zones.
    PageCall,
    /// One level of a buddy split or merge; its lines are extra.
    BuddyStep,
    /// Interrupts off, and later as they were.
    IrqSave,
    /// Interrupts off, and later on.
    IrqDisable,
    /// Preemption off, and later on.
    Preempt,
    /// A local lock that turns interrupts off.
    LocalLock,
    /// A double-word compare-and-swap without a bus lock.
    LocalCmpxchg,
    /// An interrupt of another CPU, and the wait for its handler.
    Ipi,
    /// The wake-up of a thread on another CPU; the switch to it is extra.
    RemoteWake,
    /// A context switch, with the calls that lead to it.
    Switch,
    /// Entry to and exit from the kernel.
    Syscall,
}

impl Key {
    /// Number of costs.
    pub const COUNT: usize = 32;

    /// All costs in the order of files, with their section and name there.
    pub const ALL: [(Key, &'static str, &'static str); Key::COUNT] = [
        (Key::L1, "latency", "l1"),
        (Key::L2, "latency", "l2"),
        (Key::Llc, "latency", "llc"),
        (Key::CleanCluster, "latency", "clean_cluster"),
        (Key::CleanSocket, "latency", "clean_socket"),
        (Key::CleanRemote, "latency", "clean_remote"),
        (Key::DirtyCluster, "latency", "dirty_cluster"),
        (Key::DirtySocket, "latency", "dirty_socket"),
        (Key::DirtyRemote, "latency", "dirty_remote"),
        (Key::UpgradeCluster, "latency", "upgrade_cluster"),
        (Key::UpgradeSocket, "latency", "upgrade_socket"),
        (Key::UpgradeRemote, "latency", "upgrade_remote"),
        (Key::MemoryLocal, "latency", "memory_local"),
        (Key::MemoryRemote, "latency", "memory_remote"),
        (Key::Atomic, "latency", "atomic"),
        (Key::Bus, "latency", "bus"),
        (Key::Misses, "throughput", "misses"),
        (Key::Copy, "throughput", "copy"),
        (Key::Call, "work", "call"),
        (Key::SlowPath, "work", "slow_path"),
        (Key::SlabObject, "work", "slab_object"),
        (Key::PageCall, "work", "page_call"),
        (Key::BuddyStep, "work", "buddy_step"),
        (Key::IrqSave, "work", "irq_save"),
        (Key::IrqDisable, "work", "irq_disable"),
        (Key::Preempt, "work", "preempt"),
        (Key::LocalLock, "work", "local_lock"),
        (Key::LocalCmpxchg, "work", "local_cmpxchg"),
        (Key::Ipi, "work", "ipi"),
        (Key::RemoteWake, "work", "remote_wake"),
        (Key::Switch, "work", "switch"),
        (Key::Syscall, "work", "syscall"),
    ];

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
            _ => matches!(unit, Unit::Cycles | Unit::Ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_where_their_numbers_say() {
        for (number, (key, section, name)) in Key::ALL.into_iter().enumerate() {
            assert_eq!(key as usize, number);
            assert_eq!(key.path(), format!("{section}.{name}"));
        }
    }
}
