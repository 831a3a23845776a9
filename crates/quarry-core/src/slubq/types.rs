//! The data structures of SLUB+Queuing; the drawing is in the [module's documentation](super).

use crate::machine::{PerCpu, SpinLock};
pub(super) use crate::queue::{CpuQueue, QueueConfig, alloc_entries, free_entries};
use crate::slabs::Nodes;
use crate::sync::AtomicU32;

/// State of one cache.
pub struct Slubq {
    pub(super) cpu: PerCpu<CpuQueue>,
    /// Distance in bytes from one object to the next.
    pub(super) size: usize,
    /// Objects moved per refill or drain (`cpu_batch_size`).
    pub(super) batch: AtomicU32,
    /// Entries per CPU as last configured (`cpu_queue_size`); [`QueueConfig`] decides.
    pub(super) queue: AtomicU32,
    /// Where the queues of all CPUs are; each CPU copies it at its next slow operation.
    pub(super) config: SpinLock<QueueConfig>,
    pub(super) nodes: Nodes,
}
