//! Views of a cache: counters, usage, walks over its objects.

use core::ptr::NonNull;

use super::env::Env;
use super::error::{Busy, CheckError};
use super::usage::{CpuUsage, NodeUsage, Usage};
use crate::machine::{CpuId, Machine, NodeId};
use crate::stats::{Stat, Stats};

/// Counters, usage and walks.
///
/// # Walks
///
/// [`Show::at_rest`], [`Show::live_objects`] and [`Show::check_consistency`] look at all of a
/// cache, and are safe on a cache in use: they hold the slots of all its CPUs, then keep out the threads
/// that work without one. Other threads' operations on the cache wait for the end of the walk. Where
/// that is not possible in bounded time they return [`Busy`] and have looked at nothing. Counters and
/// usage do not wait: on a cache in use they are sums of parts that were read one after the other.
pub trait Show: Sized {
    /// Counters of all CPUs and of what happened without one.
    fn stats<M: Machine>(&self, env: Env<'_, M>) -> Stats;

    /// Usage of the cache's memory. Busy CPUs' private state counts as in use.
    fn usage<M: Machine>(&self, env: Env<'_, M>) -> Usage;

    /// One node's part of [`Show::usage`]. By default node 0 has everything, which is right for
    /// machines of one node.
    fn node_usage<M: Machine>(&self, env: Env<'_, M>, node: NodeId) -> NodeUsage {
        if node.0 != 0 {
            return NodeUsage::default();
        }
        let usage = self.usage(env);
        let free = usage.num_objs.saturating_sub(usage.active_objs);
        let on_list = usage.partial_slabs * u64::from(env.cache.geometry.objects);
        NodeUsage {
            slabs: usage.slabs,
            total_objects: usage.num_objs,
            objects: usage.active_objs,
            partial: usage.partial_slabs,
            objects_partial: on_list.saturating_sub(free),
            cpu_slabs: usage.cpu_slabs + usage.cpu_partial_slabs,
        }
    }

    /// One CPU's part; empty if the CPU is busy. By default CPU 0 has counted everything and no
    /// CPU has slabs.
    fn cpu_usage<M: Machine>(&self, env: Env<'_, M>, cpu: CpuId) -> CpuUsage {
        CpuUsage {
            stats: match cpu {
                CpuId(0) => self.stats(env),
                _ => Stats::default(),
            },
            ..CpuUsage::default()
        }
    }

    /// Sets a counter to 0 everywhere. Returns how many CPUs were busy and kept theirs; by default
    /// that is all of them. Where fast operations count the entries of a stack by its counters
    /// ([`crate::machine::StackLayout`]), the stack's floor has to move along.
    fn clear_stat<M: Machine>(&self, env: Env<'_, M>, _stat: Stat) -> u32 {
        env.machine().topology().cpus
    }

    /// Runs `f` with the cache at rest. It takes no locks but the cache's own, and calls no users' code.
    ///
    /// # Errors
    ///
    /// [`Busy`]: `f` was not run.
    fn at_rest<M: Machine, R>(&self, env: Env<'_, M>, f: impl FnOnce() -> R) -> Result<R, Busy>;

    /// Calls `found` for every object from the address on that is allocated or whose free is deferred.
    /// Goes in address order, until it returns `false`. The cache is at rest; `found` is bound by the
    /// rule of [`Show::at_rest`]. With `flush`, CPUs give up the objects that they hold first, which makes the walk shorter.
    ///
    /// # Errors
    ///
    /// [`Busy`]: `found` may have been called for a part of the objects.
    fn live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        from: usize,
        flush: bool,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy>;

    /// Calls `look` for the free objects that the running CPU keeps ready, in two runs, the newest last; not if another
    /// context uses them. By default there are none. `look` is bound by the rule of [`Show::at_rest`].
    fn kept<M: Machine>(&self, _env: Env<'_, M>, _look: impl FnOnce([&[NonNull<u8>]; 2])) {}

    /// Checks all lists and counters.
    ///
    /// # Errors
    ///
    /// The first contradiction, or that the cache was busy.
    fn check_consistency<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError>;
}
