//! Flush, shrink: emptying sheaves and barns, and giving empty slabs back (facts 2.9).

use super::Kind;
use super::stats::Stats;
use super::types::{CpuSheaves, SheafList, Sheaves};
use crate::debug;
use crate::design::{Env, Upkeep};
use crate::geometry::CacheFlags;
use crate::machine::{Machine, NodeId};
use crate::protection::Reach;
use crate::slabs::cpus;

impl<K: Kind> Upkeep for Sheaves<K> {
    /// Empties every CPU's sheaves, and CPU slabs where the era has them. Returns how many CPUs
    /// were busy.
    fn flush<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let busy = self.flush_sheaves(env);
        busy.max(self.slub.flush(env))
    }

    /// Flushes, empties the barns, and gives every empty slab back.
    fn shrink<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let busy = self.flush_sheaves(env);
        self.drain_barns(env);
        busy.max(self.slub.shrink(env))
    }

    fn reap<M: Machine>(&self, env: Env<'_, M>, now_ns: u64) {
        let _pass = env.enter();
        self.settle_all_waiting(env);
        self.look_at_misses(env, now_ns);
    }

    fn quiesce<M: Machine>(&self, env: Env<'_, M>, wait: bool) -> u32 {
        self.cpu.quiesce(env.machine(), wait) + self.slub.quiesce(env, wait)
    }

    fn resume<M: Machine>(&self, env: Env<'_, M>) {
        self.slub.resume(env);
        self.cpu.resume(env.machine());
    }
}

impl<K: Kind> Sheaves<K> {
    fn flush_sheaves<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let _pass = env.enter();
        debug::settle_alone(env, || self.slub.settle_deferred(env, None));
        self.settle_all_waiting(env);
        let mut stats = Stats::default();
        let machine = env.machine();
        let busy = cpus(env).filter(|&cpu| {
            let taken = self.cpu.try_with_remote(machine, cpu, |state| {
                if state.is_used() {
                    Reach::Worker.tell(machine, cpu);
                }
                self.hand_over(env, state, machine.node_of_cpu(cpu), true);
                self.take_sheaves(env, state, &mut stats)
            });
            // What was taken is freed without the slot: kmalloc, whose sheaves may be these, is
            // called meanwhile.
            let was_busy = taken.is_none();
            if let Some(sheaves) = taken {
                self.dissolve(env, sheaves, &mut stats);
            }
            was_busy
        });
        let busy = busy.count() as u32;
        env.cache.shared_stats.add(&stats);
        busy
    }

    /// Takes a CPU's sheaves but the main one, which stays, empty, if it has the cache's capacity.
    fn take_sheaves<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        stats: &mut Stats,
    ) -> SheafList {
        let mut taken = SheafList::EMPTY;
        cpu.spare
            .take()
            .into_iter()
            .for_each(|sheaf| taken.push(env.machine(), sheaf));
        match cpu.replace_main(env.machine(), None) {
            Some(mut main) if main.capacity() == self.capacity() => {
                self.flush_sheaf(env, &mut main, stats);
                cpu.replace_main(env.machine(), Some(main));
            }
            Some(main) => taken.push(env.machine(), main),
            None => {}
        }
        taken
    }

    /// Empties the barns.
    pub(super) fn drain_barns<M: Machine>(&self, env: Env<'_, M>) {
        let _pass = env.enter();
        let mut stats = Stats::default();
        for node in 0..env.machine().topology().nodes {
            let Some((full, empty)) = self
                .barn(env, NodeId(node))
                .map(|mut barn| (barn.full.take(), barn.empty.take()))
            else {
                continue;
            };
            self.dissolve(env, full, &mut stats);
            self.dissolve(env, empty, &mut stats);
        }
        env.cache.shared_stats.add(&stats);
    }

    /// Brings all objects of sheaves back to their slabs and frees all sheaves but the CPUs' main ones.
    /// Returns how many CPUs were busy.
    pub(super) fn flush_and_drain<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let busy = self.flush(env);
        self.drain_barns(env);
        busy
    }

    /// Frees the sheaves of a cache that goes, and those of CPUs that look busy.
    ///
    /// # Safety
    ///
    /// The cache has no user left.
    pub(super) unsafe fn free_all_sheaves<M: Machine>(&self, env: Env<'_, M>) {
        // No sheaf has this capacity, so none stays with its CPU.
        self.capacity.set(0);
        self.flush_and_drain(env);
        let _pass = env.enter();
        let mut stats = Stats::default();
        for cpu in cpus(env) {
            let take = |state: &mut CpuSheaves| {
                let mut taken = self.take_sheaves(env, state, &mut stats);
                state
                    .rcu
                    .take()
                    .into_iter()
                    .for_each(|sheaf| taken.push(env.machine(), sheaf));
                taken
            };
            // SAFETY: the cache has no user left, so no thread holds a slot: the caller says so.
            let taken = unsafe { self.cpu.with_unused::<M, _>(cpu, take) };
            self.dissolve(env, taken, &mut stats);
        }
    }

    /// Gives new sheaves another capacity and frees the old ones; a CPU that is busy keeps its own
    /// until they pass through a barn.
    pub(super) fn resize<M: Machine>(&self, env: Env<'_, M>, capacity: u32) {
        self.capacity.set(capacity);
        self.limit_barn(env);
        self.flush_and_drain(env);
    }

    /// Gives every CPU of a new cache its main sheaf (`init_percpu_sheaves()`), until memory is short;
    /// the others make theirs with their first slow operation, and so do those of kmalloc's caches, which
    /// sheaves come from.
    ///
    /// # Safety
    ///
    /// No other thread has the cache yet.
    pub(super) unsafe fn make_main_sheaves<M: Machine>(&self, env: Env<'_, M>) {
        if self.capacity() == 0 || env.cache.flags().contains(CacheFlags::KMALLOC) {
            return;
        }
        let mut stats = Stats::default();
        for cpu in cpus(env) {
            let mut new = self.new_sheaf(env, &mut stats);
            let give = |state: &mut CpuSheaves| {
                if !state.has_main() {
                    state.replace_main(env.machine(), new.take());
                }
            };
            // SAFETY: no other thread has the cache: the caller says so.
            unsafe { self.cpu.try_with_new(env.machine(), cpu, give) };
            if let Some(sheaf) = new {
                self.free_sheaf(env, sheaf, &mut stats);
            }
        }
        env.cache.shared_stats.add(&stats);
    }
}
