//! The CPU's array: what calls do with it before they refill or flush it.

use core::ptr::NonNull;

use super::stats::{Stat, Stats};
use super::types::{CpuArray, SlabCache};
use crate::design::{Env, FreeError};
use crate::era::Era;
use crate::front::{CpuFront, CpuKept, StackFront};
use crate::machine::{CpuId, Machine, NodeId, PerCpu, Work};
use crate::page::Pfn;
use crate::protection::Protections;

impl StackFront for SlabCache {
    type State = CpuArray;

    const STACKS_STAY: bool = true;

    #[inline(always)]
    fn stacks(&self) -> &PerCpu<CpuArray> {
        &self.cpu
    }

    #[inline(always)]
    fn stacks_any_node(&self) -> bool {
        !self.numa
    }

    #[inline(always)]
    fn stacks_node_of<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        self.seems_local(env, object)
    }

    fn serves<M: Machine>(&self, env: Env<'_, M>, cpu: &CpuArray, node: NodeId) -> bool {
        let newest = cpu.queue.stack.newest();
        newest.is_some_and(|object| self.node_of(env, object) == node)
    }
}

impl CpuFront for SlabCache {
    /// Interrupts off for every call; a bulk call need not save what they were.
    #[inline]
    fn protections(_: Era) -> Protections {
        let bulk = Some(Work::IrqDisable);
        let mut protections = Protections::all(Work::IrqSave);
        (protections.alloc.bulk, protections.free.bulk) = (bulk, bulk);
        protections
    }

    fn alloc_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        self.refill_and_pop(env, cpu, id, node)
    }

    unsafe fn free_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        if self.takes(env, id, slab) {
            self.flush_and_push(env, cpu, id, object)?;
        } else {
            let own = env.machine().node_of_cpu(id);
            self.free_alien(env, cpu, own, object)?;
        }
        Ok(true)
    }

    fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.machine();
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        stats.count(Stat::AllocSlowpath);
        let wanted = node.unwrap_or_else(|| machine.current_node());
        let object = self
            .take_one(env, wanted, &mut stats)
            .or_else(|| self.take_of_any_node(env, wanted, &mut stats));
        env.cache.shared_stats.add(&stats);
        object
    }

    unsafe fn free_to_its_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        let result = if !self.is_object(env, slab, object) {
            Err(FreeError::NotAnObject)
        } else if self.free_to_slabs(env, &[object], &mut stats) == 0 {
            Err(FreeError::DoubleFree)
        } else {
            stats.count(Stat::FreeSlowpath);
            Ok(())
        };
        env.cache.shared_stats.add(&stats);
        result
    }
}
