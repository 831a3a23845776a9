//! Freeing: the fast path, then the drain, then the path without a CPU's slot.

use core::ptr::NonNull;

use super::types::{CpuQueue, Slubq};
use crate::design::{Env, FreeError};
use crate::machine::{CpuId, Machine};
use crate::page::Pfn;
use crate::slabs;
use crate::stats::Stat;
use crate::sync::Ordering;

impl Slubq {
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    pub(super) unsafe fn free_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller's contract is the same.
        if unsafe { self.free_step(env, object) } {
            return Ok(());
        }
        // SAFETY: as above; the object has not been freed.
        unsafe { self.free_locked(env, object) }
    }

    /// The one-step operation of the fast path.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    pub(super) unsafe fn free_step<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> bool {
        let machine = env.pages.machine();
        let aliens = self.alien_queue_size.load(Ordering::Relaxed) > 0;
        if aliens || !slabs::owns(env, object) {
            return false;
        }
        // SAFETY: as for allocation; the word in front of the entries belongs to the per-CPU range,
        // whose first block is the page allocator's.
        unsafe { machine.percpu_push_stack::<CpuQueue>(self.cpu.slot0(), object) }
    }

    /// Frees with the CPU's slot held, if it can be had.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline]
    pub(super) unsafe fn free_locked<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if env.cache.flags.debug() {
            return Err(FreeError::Unchecked);
        }
        let machine = env.pages.machine();
        let slab = slabs::lookup(env, object)?;
        let freed = self.cpu.try_with(machine, |cpu, id| {
            // SAFETY: the caller's contract is the same.
            unsafe { self.free_on_cpu(env, cpu, id, slab, object) }
        });
        match freed {
            Some(result) => result,
            // SAFETY: as above; the object has not been freed.
            None => unsafe { self.free_without_slot(env, slab, object) },
        }
    }

    /// Frees an object of this cache with the CPU's slot held.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    unsafe fn free_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let machine = env.pages.machine();
        if self.alien_queue_size.load(Ordering::Relaxed) > 0 {
            let own = machine.node_of_cpu(id);
            if env.pages.node_of_page(slab) != own {
                self.check_object(env, slab, object)?;
                return self.free_alien(env, cpu, own, slab, object);
            }
        }
        if cpu.newest() == Some(object) {
            return Err(FreeError::DoubleFree);
        }
        if cpu.push(env.pages.machine(), object) {
            return Ok(());
        }
        self.free_slow(env, cpu, id, slab, object)
    }

    /// The queue is full, or has no memory yet.
    #[cold]
    #[inline(never)]
    fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        self.check_object(env, slab, object)?;
        if env.cache.has_deferred() {
            self.settle_deferred(env, Some(&mut cpu.stats));
        }
        if cpu.queue == 0
            && self.adopt_config(env, cpu, id)
            && cpu.push(env.pages.machine(), object)
        {
            return Ok(());
        }
        cpu.stats.count(Stat::FreeSlowpath);
        let batch = self.batch.load(Ordering::Relaxed).max(1);
        let own = env.pages.machine().node_of_cpu(id);
        let shared = self.push_shared(env, cpu, own, batch);
        self.drain(env, cpu, batch - shared);
        if !cpu.put_newest(env.pages.machine(), object) {
            let slab = slabs::slab_of(env, object)?;
            self.free_to_slab(env, slab, &[object], Some(&mut cpu.stats));
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The object has no user left.
    #[cold]
    #[inline(never)]
    unsafe fn free_without_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let _pass = env.pages.gate().enter(env.pages.machine());
        env.cache.shared_stats.count(Stat::CpuSlotBusy);
        self.free_to_its_slab(env, slab, object)
    }

    /// Refuses an address where no object of the slab starts.
    pub(super) fn check_object<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let map = env.pages.map();
        let offset = object.addr().get() - map.address(slab).addr().get();
        let objects = map.page(slab).objects.load(Ordering::Relaxed) as usize;
        match offset.is_multiple_of(self.size) && offset / self.size < objects {
            true => Ok(()),
            false => Err(FreeError::NotAnObject),
        }
    }

    /// Frees one object past the queues. The gate has been entered.
    pub(super) fn free_to_its_slab<M: Machine>(
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

    /// Frees many objects under one hold of the CPU's slot.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[inline]
    pub(super) unsafe fn free_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        if env.cache.flags.debug() {
            return Err(FreeError::Unchecked);
        }
        let machine = env.pages.machine();
        let mut pushed = 0;
        if self.alien_queue_size.load(Ordering::Relaxed) == 0 {
            let fit = self
                .cpu
                .try_with(machine, |cpu, _| cpu.push_many(env, slots));
            pushed = fit.unwrap_or(0);
        }
        if pushed == slots.len() {
            return Ok(());
        }
        // SAFETY: the caller's contract is the same.
        unsafe { self.free_rest(env, &mut slots[pushed..]) }
    }

    /// Frees what did not fit into the queue at once.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[inline(never)]
    unsafe fn free_rest<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let freed = self.cpu.try_with(env.pages.machine(), |cpu, id| {
            // SAFETY: the caller's contract is the same.
            unsafe { self.free_slots(env, cpu, id, slots) }
        });
        freed.unwrap_or_else(|| {
            slabs::free_each(slots, |object| {
                let slab = slabs::slab_of(env, object)?;
                // SAFETY: the caller's contract is the same.
                unsafe { self.free_without_slot(env, slab, object) }
            })
        })
    }

    /// Frees many objects with the CPU's slot held. Each run of objects that there is room for is
    /// copied and counted at once.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn free_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let mut result = Ok(());
        let mut at = 0;
        while at < slots.len() {
            if self.alien_queue_size.load(Ordering::Relaxed) == 0 {
                at += cpu.push_many(env, &mut slots[at..]);
            }
            let Some(slot) = slots.get_mut(at) else { break };
            at += 1;
            let Some(object) = *slot else { continue };
            let freed = slabs::slab_of(env, object).and_then(|slab| {
                // SAFETY: the caller's contract is the same.
                unsafe { self.free_on_cpu(env, cpu, id, slab, object) }
            });
            match freed {
                Ok(()) => *slot = None,
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}
