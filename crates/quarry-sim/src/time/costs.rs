//! Costs of accesses to memory.

use super::caches::CacheLevel;

/// Distance between two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The same cluster: they share a last-level cache, if there is one.
    Cluster,
    /// The same socket.
    Socket,
    /// Different sockets.
    Remote,
}

/// The cache that a cluster shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastLevel {
    /// Its size.
    pub level: CacheLevel,
    /// It has all lines that its CPUs' own caches have, and a line that leaves it leaves those, too. Otherwise it has
    /// the lines that left them.
    pub inclusive: bool,
    /// Sets are chosen by a hash of all bits of the line, so that no stride meets the same few sets. Otherwise the
    /// lowest bits choose.
    pub hashed: bool,
}

/// Costs of accesses, in picoseconds, and the CPUs that are near each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCosts {
    /// A CPU's first cache.
    pub l1: CacheLevel,
    /// A CPU's second cache, which has all that the first one has.
    pub l2: Option<CacheLevel>,
    /// The cache of a cluster.
    pub llc: Option<LastLevel>,
    /// A line that others have unchanged, by the nearest one's [`Distance`].
    pub clean: [u64; 3],
    /// A line that another CPU may have changed, by its [`Distance`].
    pub transfer: [u64; 3],
    /// A write to a line that others share: what taking it away from them costs, by the farthest one's distance.
    pub upgrade: [u64; 3],
    /// A line that no cache has: from the CPU's own node, and from another one.
    pub memory: [u64; 2],
    /// Cost of an atomic operation beyond a write.
    pub atomic: u64,
    /// Lines of one run that a CPU fetches at the same time: all but the first cost this part of their latency.
    pub misses: u32,
    /// Time for which a CPU goes on behind an access that waits for its line: that of the instructions in its reorder
    /// buffer.
    pub window: u64,
    /// Time for which a line that crosses the bus of its socket keeps it busy; 0 if there is no bus.
    pub bus: u64,
    /// CPUs of a cluster, and of a socket.
    pub cluster_cpus: u32,
    /// A multiple of `cluster_cpus`.
    pub socket_cpus: u32,
}

impl LineCosts {
    /// Distance between two CPUs.
    #[must_use]
    pub fn distance(&self, a: u32, b: u32) -> Distance {
        if a / self.cluster_cpus == b / self.cluster_cpus {
            Distance::Cluster
        } else if a / self.socket_cpus == b / self.socket_cpus {
            Distance::Socket
        } else {
            Distance::Remote
        }
    }
}
