//! Freeing behind the CPU's array: the flush, and objects of other nodes.

use core::ptr::NonNull;

use super::stats::{Stat, Stats};
use super::types::{CpuArray, SlabCache};
use crate::design::{Env, FreeError};
use crate::machine::{CpuId, Machine, NodeId};
use crate::page::PageList;
use crate::queue::CpuStack;
use crate::slabs;
use crate::sync::Ordering;

impl SlabCache {
    /// True if an object is of the running CPU's node. If the thread moves meanwhile, an array gets an object of
    /// another node, which the flush sends home.
    pub(super) fn seems_local<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        if self.numa {
            Self::account_node(env, object);
        }
        let machine = env.machine();
        machine.current_node() == self.node_of(env, object)
    }

    /// The array is full, or has no memory yet.
    pub(super) fn flush_and_push<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        self.check_object(env, object)?;
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        if cpu.queue.stack.room() == 0
            && self.adopt_config(env, cpu, id)
            && cpu.queue.push(env.machine(), object)
        {
            cpu.queue.stats.add(&stats);
            return Ok(());
        }
        stats.count(Stat::FreeSlowpath);
        let local = env.machine().node_of_cpu(id);
        self.make_shared(env, local);
        self.flush_batch(env, cpu, local, &mut stats);
        if !cpu.queue.stack.push(env.machine(), object) {
            self.free_to_slabs(env, &[object], &mut stats);
        }
        cpu.queue.stats.add(&stats);
        Ok(())
    }

    /// Refuses an address where no object of this cache starts.
    fn check_object<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let slab = slabs::lookup(env, object)?;
        match self.is_object(env, slab, object) {
            true => Ok(()),
            false => Err(FreeError::NotAnObject),
        }
    }

    /// Moves the oldest batch of a CPU's array to the shared array if that has any room, else to
    /// the slabs (`cache_flusharray()`).
    fn flush_batch<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        local: NodeId,
        stats: &mut Stats,
    ) {
        let machine = env.machine();
        let batch = self.batch.load(Ordering::Relaxed).max(1);
        // The oldest: their lines are the least likely to be in this CPU's cache.
        let oldest = cpu.queue.stack.oldest(machine, batch);
        let Some(&first) = oldest.first() else { return };
        let node = self.node_of(env, first);
        let oldest = &oldest[..self.run_of(env, node, oldest)];
        let mut moved = oldest.len() as u32;
        let mut released = PageList::EMPTY;
        match self.lock_node(env, node) {
            None => moved = Self::defer(env, oldest),
            Some(mut lists) if node == local && lists.shared.has_room() => {
                moved = lists.shared.append(machine, oldest);
            }
            Some(mut lists) => {
                self.free_block(env, &mut lists, oldest, &mut released, stats);
            }
        }
        // Only what has another owner now is forgotten (I1). Pages go back last, as no lock is held any more.
        cpu.queue.stack.forget_oldest(machine, moved);
        self.release_slabs(env, released, stats);
    }

    /// Frees an object of another node (`cache_free_alien()`).
    pub(super) fn free_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        local: NodeId,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        self.check_object(env, object)?;
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        let put = self.put_alien(env, local, object, &mut stats);
        if put.is_ok() {
            stats.count(Stat::FreeSlowpath);
            stats.count(Stat::NodeFrees);
        }
        cpu.queue.stats.add(&stats);
        put
    }

    fn put_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        local: NodeId,
        object: NonNull<u8>,
        stats: &mut Stats,
    ) -> Result<(), FreeError> {
        let machine = env.machine();
        let node = self.node_of(env, object);
        self.make_alien(env, local, node);
        let alien = &self.beside[local.0 as usize].aliens[node.0 as usize];
        let mut released = PageList::EMPTY;
        let put = alien.lock(machine).and_then(|mut alien| {
            if alien.newest() == Some(object) {
                return Some(Err(FreeError::DoubleFree));
            }
            if !alien.is_none() && !alien.has_room() {
                stats.count(Stat::AlienOverflow);
                self.drain_alien(env, &mut alien, node, &mut released, stats);
            }
            alien.push(machine, object).then_some(Ok(()))
        });
        self.release_slabs(env, released, stats);
        // Without an array, or with a lock re-entered, the object goes home alone.
        put.unwrap_or_else(|| match self.free_to_slabs(env, &[object], stats) {
            0 => Err(FreeError::DoubleFree),
            _ => Ok(()),
        })
    }
}
