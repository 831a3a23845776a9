//! Flush, shrink, reaping, and tuning.

use super::geometry::reaping;
use super::partial::LockedNode;
use super::stats::{Stat, Stats};
use super::types;
use super::types::{Array, CpuArray, CpuQueue, Lists, QueueConfig, SlabCache, free_array};
use crate::debug;
use crate::design::{Env, Upkeep};
use crate::machine::{Machine, NodeId, SpinLock, Work, work};
use crate::page::PageList;
use crate::protection::Reach;
use crate::slabs::cpus;
use crate::sync::Ordering;

/// Number of objects that an idle array gives back, the oldest first.
fn idle_part(limit: u32, avail: u32) -> u32 {
    let part = limit.div_ceil(reaping::LIMIT_PART);
    if part > avail {
        avail.div_ceil(2)
    } else {
        part
    }
}

impl Upkeep for SlabCache {
    /// One round of `cache_reap()` for this cache on the running CPU.
    fn reap<M: Machine>(&self, env: Env<'_, M>, now_ns: u64) {
        let machine = env.machine();
        let mut stats = Stats::default();
        let reaped = self.cpu.try_with(machine, |cpu, id| {
            work(machine, Work::IrqDisable);
            let local = machine.node_of_cpu(id);
            if self.numa {
                self.reap_alien(env, cpu, local, &mut stats);
            }
            if !cpu.queue.stack.is_empty() {
                if cpu.touched() {
                    cpu.clear_touched();
                } else {
                    let idle = idle_part(cpu.queue.stack.room(), cpu.queue.stack.objects());
                    self.drain_cpu(env, cpu, idle, &mut stats);
                }
            }
            local
        });
        if let Some(local) = reaped {
            let mut released = PageList::EMPTY;
            if let Some(mut lists) = self.lock_node(env, local) {
                self.reap_node(env, &mut lists, now_ns, &mut released, &mut stats);
            }
            self.release_slabs(env, released, &mut stats);
        }
        env.cache.shared_stats.add(&stats);
    }

    /// Moves all free objects into their slabs. Returns how many CPUs were busy.
    fn flush<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let _pass = env.enter();
        let busy = self.flush_cpus(env, |_| ());
        let mut stats = Stats::default();
        for local in self.node_ids(env) {
            for node in self.node_ids(env) {
                self.flush_alien(env, local, node, &mut stats);
            }
        }
        for node in self.node_ids(env) {
            self.flush_shared(env, node, &mut stats);
        }
        env.cache.shared_stats.add(&stats);
        busy
    }

    /// Flushes, releases all empty slabs, and gives the arrays' own memory back, which is made
    /// again when it is next of use. Returns how many CPUs were busy.
    fn shrink<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        // A fork waits for the end, so that no child inherits a shrink under way.
        let _pass = env.enter();
        self.heap.shrink(|| self.shrink_quietly(env))
    }

    fn quiesce<M: Machine>(&self, env: Env<'_, M>, wait: bool) -> u32 {
        self.cpu.quiesce(env.machine(), wait)
    }

    fn resume<M: Machine>(&self, env: Env<'_, M>) {
        self.cpu.resume(env.machine());
    }
}

impl SlabCache {
    /// Empties every CPU's array and then does something with it.
    fn flush_cpus<M: Machine>(&self, env: Env<'_, M>, then: impl Fn(&mut CpuQueue)) -> u32 {
        let mut stats = Stats::default();
        debug::settle_alone(env, || self.settle_deferred(env, &mut stats));
        let busy = cpus(env).filter(|&cpu| {
            let flushed = self.cpu.try_with_remote(env.machine(), cpu, |array| {
                Reach::Interrupt.tell(env.machine(), cpu);
                if !array.queue.stack.is_empty() {
                    stats.count(Stat::QueueFlush);
                    self.drain_cpu(env, array, array.queue.stack.objects(), &mut stats);
                }
                then(&mut array.queue);
            });
            flushed.is_none()
        });
        let busy = busy.count() as u32;
        env.cache.shared_stats.add(&stats);
        busy
    }

    /// Gives the oldest entries of a CPU's array back to their slabs.
    fn drain_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        n: u32,
        stats: &mut Stats,
    ) {
        let machine = env.machine();
        self.free_to_slabs(env, cpu.queue.stack.oldest(machine, n), stats);
        cpu.queue.stack.forget_oldest(machine, n);
    }

    fn node_ids<M: Machine>(&self, env: Env<'_, M>) -> impl Iterator<Item = NodeId> + use<M> {
        (0..env.machine().topology().nodes).map(NodeId)
    }

    fn alien(&self, local: NodeId, node: NodeId) -> &SpinLock<Array> {
        &self.beside[local.0 as usize].aliens[node.0 as usize]
    }

    fn flush_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        local: NodeId,
        node: NodeId,
        stats: &mut Stats,
    ) {
        let machine = env.machine();
        if !self.beside[local.0 as usize].has_alien(node) {
            return;
        }
        let mut released = PageList::EMPTY;
        if let Some(mut alien) = self.alien(local, node).lock(machine) {
            self.drain_alien(env, &mut alien, node, &mut released, stats);
        }
        self.release_slabs(env, released, stats);
    }

    fn flush_shared<M: Machine>(&self, env: Env<'_, M>, node: NodeId, stats: &mut Stats) {
        let mut released = PageList::EMPTY;
        if let Some(mut lists) = self.lock_node(env, node) {
            let all = lists.shared.avail();
            self.drain_shared(env, &mut lists, all, &mut released, stats);
        }
        self.release_slabs(env, released, stats);
    }

    /// Gives the oldest entries of a shared array back to their slabs.
    fn drain_shared<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        n: u32,
        released: &mut PageList,
        stats: &mut Stats,
    ) {
        if n == 0 {
            return;
        }
        // Out of the lists while these take its objects.
        let mut shared = core::mem::replace(&mut lists.shared, Array::NONE);
        let machine = env.machine();
        self.free_block(env, lists, shared.oldest(machine, n), released, stats);
        shared.forget_oldest(machine, n);
        lists.shared = shared;
    }

    fn shrink_quietly<M: Machine>(&self, env: Env<'_, M>) -> u32 {
        let busy = self.flush(env);
        let mut stats = Stats::default();
        for node in self.node_ids(env) {
            let mut released = PageList::EMPTY;
            let mut shared = Array::NONE;
            if let Some(mut lists) = self.lock_node(env, node) {
                while self.unlist_last_free(env, &mut lists, &mut released) {}
                shared = lists.shared.take_if_empty();
            }
            self.release_slabs(env, released, &mut stats);
            free_array(env, shared);
            self.free_aliens(env, node);
        }
        env.cache.shared_stats.add(&stats);
        busy
    }

    /// Gives the memory of a node's empty alien arrays back.
    fn free_aliens<M: Machine>(&self, env: Env<'_, M>, local: NodeId) {
        for node in self.node_ids(env) {
            let mut array = Array::NONE;
            if let Some(mut alien) = self.alien(local, node).lock(env.machine())
                && alien.avail() == 0
            {
                array = alien.take_if_empty();
                self.beside[local.0 as usize].set_has_alien(node, false);
            }
            free_array(env, array);
        }
    }

    /// Gives the memory of all arrays back when the cache goes.
    pub(super) fn free_arrays<M: Machine>(&self, env: Env<'_, M>) {
        for node in self.node_ids(env) {
            if let Some(mut lists) = self.lock_node(env, node) {
                let shared = lists.shared.take_if_empty();
                drop(lists);
                free_array(env, shared);
            }
            self.free_aliens(env, node);
        }
    }

    fn reap_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        local: NodeId,
        stats: &mut Stats,
    ) {
        let nodes = env.machine().topology().nodes;
        cpu.reap_node = (cpu.reap_node + 1) % nodes;
        let node = NodeId((local.0 + cpu.reap_node) % nodes);
        let mut released = PageList::EMPTY;
        if let Some(mut alien) = self.alien(local, node).try_lock(env.machine())
            && alien.avail() > 0
        {
            self.drain_alien(env, &mut alien, node, &mut released, stats);
        }
        self.release_slabs(env, released, stats);
    }

    fn reap_node<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut LockedNode<'_, M>,
        now_ns: u64,
        released: &mut PageList,
        stats: &mut Stats,
    ) {
        // A cache does not know when it was made: its first round stands for that.
        let due = lists.next_reap_ns.is_some_and(|at| at <= now_ns);
        if due || lists.next_reap_ns.is_none() {
            lists.next_reap_ns = Some(now_ns.saturating_add(reaping::NODE_INTERVAL_NS));
        }
        if !due {
            return;
        }
        if lists.shared.touched {
            lists.shared.touched &= lists.shared.avail() == 0;
        } else {
            let idle = idle_part(lists.shared.limit(), lists.shared.avail());
            self.drain_shared(env, lists, idle, released, stats);
        }
        if lists.free_touched {
            lists.free_touched = false;
            return;
        }
        let objects = u64::from(env.cache.geometry.objects);
        let slabs = lists
            .free_limit
            .div_ceil(u64::from(reaping::FREE_LIMIT_PART) * objects);
        for _ in 0..slabs {
            if !self.unlist_last_free(env, lists, released) {
                break;
            }
            stats.count(Stat::Reaped);
        }
    }

    /// Objects that a node may have free before it gives slabs back.
    pub(super) fn free_limit<M: Machine>(env: Env<'_, M>, node: NodeId, batch: u32) -> u64 {
        let cpus = env.machine().cpus_of_node(node);
        (1 + u64::from(cpus)) * u64::from(batch) + u64::from(env.cache.geometry.objects)
    }

    /// Empties and replaces all arrays after a tunable was changed (`do_tune_cpucache()`).
    pub(super) fn tune<M: Machine>(&self, env: Env<'_, M>) {
        let _pass = env.enter();
        self.flush_cpus(env, |_| ());
        let batch = self.batch.load(Ordering::Relaxed);
        let mut stats = Stats::default();
        for node in self.node_ids(env) {
            let mut released = PageList::EMPTY;
            let mut shared = Array::NONE;
            if let Some(mut lists) = self.lock_node(env, node) {
                lists.free_limit = Self::free_limit(env, node, batch);
                let all = lists.shared.avail();
                self.drain_shared(env, &mut lists, all, &mut released, &mut stats);
                shared = lists.shared.take_if_empty();
            }
            self.release_slabs(env, released, &mut stats);
            free_array(env, shared);
        }
        env.cache.shared_stats.add(&stats);
    }

    /// Gives all CPUs arrays of another size; a CPU that is busy keeps its old one. `false`, with
    /// nothing changed, if there is no room.
    pub(super) fn resize<M: Machine>(&self, env: Env<'_, M>, limit: u32) -> bool {
        let _pass = env.enter();
        let Some(entries) = types::alloc_entries(env, limit) else {
            return false;
        };
        let new = QueueConfig {
            entries,
            queue: limit,
        };
        let Some(mut config) = self.config.lock(env.machine()) else {
            // SAFETY: no code has seen the entries.
            unsafe { types::free_entries(env, &new) };
            return false;
        };
        let old = core::mem::replace(&mut *config, new);
        self.limit.store(limit, Ordering::Relaxed);
        drop(config);
        if self.flush_cpus(env, CpuQueue::abandon) > 0 {
            // A busy CPU may still use the old entries, so these stay reserved.
            return true;
        }
        // SAFETY: every CPU has let go of the old entries and adopts the new ones from now on.
        unsafe { types::free_entries(env, &old) };
        true
    }
}
