//! The CPU's queue: what calls do with it before they refill or drain it.

use core::ptr::NonNull;

use super::stats::Stat;
use super::types::{CpuQueue, Slubq};
use crate::design::{Env, FreeError};
use crate::era::Era;
use crate::front::{CpuFront, CpuKept, StackFront};
use crate::machine::{CpuId, Machine, NodeId, PerCpu, Work};
use crate::page::Pfn;
use crate::protection::Protections;
use crate::sync::Ordering;

impl StackFront for Slubq {
    type State = CpuQueue;

    const STACKS_STAY: bool = false;

    #[inline(always)]
    fn stacks(&self) -> &PerCpu<CpuQueue> {
        &self.cpu
    }

    #[inline(always)]
    fn stacks_any_node(&self) -> bool {
        self.alien_queue_size.load(Ordering::Relaxed) == 0
    }

    #[inline(always)]
    fn stacks_node_of<M: Machine>(&self, _: Env<'_, M>, _: NonNull<u8>) -> bool {
        false
    }

    fn serves<M: Machine>(&self, env: Env<'_, M>, cpu: &CpuQueue, node: NodeId) -> bool {
        let newest = cpu
            .stack
            .newest()
            .and_then(|object| env.pages().pfn_of(object));
        newest.is_none_or(|pfn| env.pages().node_of_page(pfn) == node)
    }
}

impl CpuFront for Slubq {
    /// Interrupts off for every call (facts 5.4).
    #[inline]
    fn protections(_: Era) -> Protections {
        Protections::all(Work::IrqSave)
    }

    fn alloc_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        self.refill_and_pop(env, cpu, id, node)
    }

    unsafe fn free_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        if self.takes(env, id, slab) {
            self.drain_and_push(env, cpu, id, slab, object)?;
        } else {
            let own = env.machine().node_of_cpu(id);
            self.check_object(env, slab, object)?;
            self.free_alien(env, cpu, own, slab, object)?;
        }
        Ok(true)
    }

    fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.has_deferred() {
            self.settle_deferred(env, None);
        }
        env.cache.shared_stats.count(Stat::AllocSlowpath);
        self.take_one(env, node, None)
    }

    unsafe fn free_to_its_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if env.cache.has_deferred() {
            self.settle_deferred(env, None);
        }
        self.check_object(env, slab, object)?;
        if !self.free_to_slab(env, slab, &[object], None) {
            return Err(FreeError::DoubleFree);
        }
        env.cache.shared_stats.count(Stat::FreeSlowpath);
        Ok(())
    }
}
