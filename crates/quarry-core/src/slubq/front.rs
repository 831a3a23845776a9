//! The CPU's queue: what calls do with it before they refill or drain it.

use core::ops::Range;
use core::ptr::NonNull;

use super::stats::Stat;
use super::types::{CpuQueue, Slubq};
use crate::design::{Env, FreeError};
use crate::era::Era;
use crate::front::CpuFront;
use crate::machine::{CpuId, Machine, NodeId, PerCpu, Work};
use crate::page::Pfn;
use crate::protection::Protections;
use crate::queue::CpuStack;
use crate::slabs;
use crate::sync::Ordering;

impl CpuFront for Slubq {
    type Cpu = CpuQueue;

    /// Interrupts off for every call (facts 5.4).
    #[inline]
    fn protections(_: Era) -> Protections {
        Protections::all(Work::IrqSave)
    }

    fn slots(&self) -> &PerCpu<CpuQueue> {
        &self.cpu
    }

    #[inline(always)]
    fn pop_step<M: Machine>(&self, env: Env<'_, M>) -> Option<NonNull<u8>> {
        let machine = env.machine();
        // SAFETY: `cpu` is a slot of the per-CPU range with `CpuQueue` (I3).
        unsafe { machine.percpu_pop_stack::<CpuQueue>(self.cpu.slot0()) }
    }

    #[inline(always)]
    unsafe fn push_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        let machine = env.machine();
        let aliens = self.alien_queue_size.load(Ordering::Relaxed) > 0;
        if aliens || !slabs::owns(env, object) {
            return false;
        }
        // SAFETY: as for allocation; the word in front of the entries belongs to the per-CPU range,
        // whose first block is the page allocator's.
        unsafe { machine.percpu_push_stack::<CpuQueue>(self.cpu.slot0(), object) }
    }

    #[inline(always)]
    fn pop_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if node.is_some_and(|node| !self.matches(env, cpu, node)) {
            return None;
        }
        cpu.pop(env.machine())
    }

    #[inline(always)]
    unsafe fn push_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        match self.takes(env, id, slab) {
            true => cpu.push_freed(env.machine(), object),
            false => Ok(false),
        }
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

    #[inline(always)]
    fn pop_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        cpu.pop_many(env, slots)
    }

    #[inline(always)]
    unsafe fn push_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Range<usize> {
        cpu.push_many(env, slots)..slots.len()
    }

    fn takes_any_node(&self) -> bool {
        self.alien_queue_size.load(Ordering::Relaxed) == 0
    }
}

impl Slubq {
    /// True if the newest entry is of the wanted node.
    fn matches<M: Machine>(&self, env: Env<'_, M>, cpu: &CpuQueue, node: NodeId) -> bool {
        let newest = cpu
            .stack
            .newest()
            .and_then(|object| env.pages().pfn_of(object));
        newest.is_none_or(|pfn| env.pages().node_of_page(pfn) == node)
    }
}
