//! The data structures of SLUB+Queuing; the drawing is in the [module's documentation](super).

use super::shared::SharedQueues;
use super::stats::Stat;
use crate::machine::{PerCpu, SpinLock};
use crate::queue;
pub(super) use crate::queue::{QueueConfig, alloc_entries, free_entries};
use crate::slabs::{Nodes, RemoteSearch};
use crate::sync::{AtomicPtr, AtomicU32};

pub(super) type CpuQueue = queue::CpuQueue<Stat>;

/// State of one cache.
pub struct Slubq {
    pub(super) cpu: PerCpu<CpuQueue>,
    /// Distance in bytes from one object to the next.
    pub(super) size: usize,
    /// Objects moved per refill or drain (`cpu_batch_size`).
    pub(super) batch: AtomicU32,
    /// Entries per CPU as last configured (`cpu_queue_size`); [`QueueConfig`] decides.
    pub(super) queue: AtomicU32,
    /// Memory and sizes of all CPUs' queues; each CPU copies them at its next slow operation.
    pub(super) config: SpinLock<QueueConfig>,
    /// Queues that CPUs share, once any were asked for.
    pub(super) shared: AtomicPtr<SharedQueues>,
    /// Entries of each node's shared queue (`shared_queue_size`).
    pub(super) shared_queue_size: AtomicU32,
    /// Entries of each pair's alien queue (`alien_queue_size`).
    pub(super) alien_queue_size: AtomicU32,
    /// Queues that are idle between two calls of `reap` are drained (`idle_expiry`).
    pub(super) idle_expiry: AtomicU32,
    /// A node must have more partial slabs than this to lend one to another.
    pub(super) min_partial: u32,
    /// Search of other nodes' lists.
    pub(super) remote: RemoteSearch,
    pub(super) nodes: Nodes,
}
