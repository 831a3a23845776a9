//! Work of a cache between calls: expiry, flush, shrink, fork.

use super::env::Env;
use crate::machine::Machine;

/// Nanoseconds between two rounds of [`Upkeep::reap`] on a CPU (`REAPTIMEOUT_AC` of SLAB).
pub const REAP_INTERVAL_NS: u64 = 2_000_000_000;

/// Expiry, flush, shrink, fork.
pub trait Upkeep: Sized {
    /// Does the kernel's periodic work on the running CPU: expires idle objects in queues.
    /// `now_ns` counts from any moment; rounds come every [`REAP_INTERVAL_NS`]. Designs without such
    /// work do nothing.
    fn reap<M: Machine>(&self, _env: Env<'_, M>, _now_ns: u64) {}

    /// Empties all per-CPU state into the slabs. Returns how many CPUs were busy and kept theirs.
    fn flush<M: Machine>(&self, env: Env<'_, M>) -> u32;

    /// Flushes and gives empty slabs back. Returns how many CPUs were busy.
    fn shrink<M: Machine>(&self, env: Env<'_, M>) -> u32;

    /// Takes all per-CPU slots for a fork, those that are held only if it shall wait for them; returns the number of slots that
    /// stayed held.
    fn quiesce<M: Machine>(&self, env: Env<'_, M>, wait: bool) -> u32;

    /// Frees the slots that [`Upkeep::quiesce`] took.
    fn resume<M: Machine>(&self, env: Env<'_, M>);
}
