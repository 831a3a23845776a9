//! Freeing: the fast path, then the flush, then the path without a CPU's slot.

use core::ptr::NonNull;

use super::types::{CpuArray, Slab};
use crate::design::{Env, FreeError};
use crate::machine::{CpuId, Machine, NodeId};
use crate::page::{PageList, Pfn};
use crate::slabs;
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;

impl Slab {
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
        if !(slabs::owns(env, object) && (!self.numa || self.seems_local(env, object))) {
            return false;
        }
        // SAFETY: as for allocation; the word in front of the entries belongs to the per-CPU range,
        // whose first block is the page allocator's.
        unsafe { machine.percpu_push_stack::<CpuArray>(self.cpu.slot0(), object) }
    }

    /// Whether an object is of the running CPU's node. If the thread moves meanwhile, an array gets
    /// an object of another node, which the flush sends home.
    fn seems_local<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        let machine = env.pages.machine();
        machine.current_node() == self.node_of(env, object)
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
        let machine = env.pages.machine();
        let slab = slabs::lookup(env, object)?;
        let freed = self
            .cpu
            // SAFETY: the caller's contract is the same.
            .try_with(machine, |cpu, id| unsafe {
                self.free_on_cpu(env, cpu, id, object)
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
        cpu: &mut CpuArray,
        id: CpuId,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let machine = env.pages.machine();
        let local = machine.node_of_cpu(id);
        if self.numa && self.node_of(env, object) != local {
            return self.free_alien(env, cpu, local, object);
        }
        if cpu.queue.newest() == Some(object) {
            return Err(FreeError::DoubleFree);
        }
        if cpu.queue.push(env.pages.machine(), object) {
            return Ok(());
        }
        self.free_slow(env, cpu, id, object)
    }

    /// The array is full, or has no memory yet.
    #[cold]
    #[inline(never)]
    fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if env.cache.flags().debug() {
            return Err(FreeError::Unchecked);
        }
        self.check_object(env, object)?;
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        if cpu.queue.queue == 0
            && self.adopt_config(env, cpu, id)
            && cpu.queue.push(env.pages.machine(), object)
        {
            cpu.queue.stats.add(&stats);
            return Ok(());
        }
        stats.count(Stat::FreeSlowpath);
        let local = env.pages.machine().node_of_cpu(id);
        self.make_shared(env, local);
        self.flush_batch(env, cpu, local, &mut stats);
        if !cpu.queue.put_newest(env.pages.machine(), object) {
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
        let batch = self.batch.load(Ordering::Relaxed).max(1);
        let oldest = &cpu.queue.filled()[..batch.min(cpu.queue.objects()) as usize];
        let Some(&first) = oldest.first() else { return };
        let node = self.node_of(env, first);
        let oldest = &oldest[..self.run_of(env, node, oldest)];
        let mut moved = oldest.len() as u32;
        let mut released = PageList::EMPTY;
        match self.lock_node(env, node) {
            None => moved = Self::defer(env, oldest),
            Some(mut lists) if node == local && lists.shared.room() > 0 => {
                moved = lists.shared.push(oldest);
            }
            Some(mut lists) => {
                self.free_block(env, &mut lists, oldest, &mut released, stats);
            }
        }
        cpu.queue.forget_oldest(env.pages.machine(), moved);
        self.release_slabs(env, released, stats);
    }

    /// Frees an object of another node (`cache_free_alien()`).
    #[cold]
    #[inline(never)]
    fn free_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        local: NodeId,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if env.cache.flags().debug() {
            return Err(FreeError::Unchecked);
        }
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
        let node = self.node_of(env, object);
        self.make_alien(env, local, node);
        let alien = &self.beside[local.0 as usize].aliens[node.0 as usize];
        let mut released = PageList::EMPTY;
        let put = alien.lock(env.pages.machine()).and_then(|mut alien| {
            if alien.filled().last() == Some(&object) {
                return Some(Err(FreeError::DoubleFree));
            }
            if !alien.is_none() && alien.room() == 0 {
                stats.count(Stat::AlienOverflow);
                self.drain_alien(env, &mut alien, node, &mut released, stats);
            }
            (alien.push(&[object]) == 1).then_some(Ok(()))
        });
        self.release_slabs(env, released, stats);
        // Without an array, or with a lock re-entered, the object goes home alone.
        put.unwrap_or_else(|| match self.free_to_slabs(env, &[object], stats) {
            0 => Err(FreeError::DoubleFree),
            _ => Ok(()),
        })
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
        if env.cache.flags().debug() {
            return Err(FreeError::Unchecked);
        }
        let _pass = env.pages.gate().enter(env.pages.machine());
        env.cache.shared_stats.count(Stat::CpuSlotBusy);
        self.free_to_its_slab(env, slab, object)
    }

    /// Frees one object past the arrays. The gate has been entered.
    pub(super) fn free_to_its_slab<M: Machine>(
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
        let machine = env.pages.machine();
        let mut pushed = 0;
        if !self.numa {
            let fit = self
                .cpu
                .try_with(machine, |cpu, _| cpu.queue.push_many(env, slots));
            pushed = fit.unwrap_or(0);
        }
        if pushed == slots.len() {
            return Ok(());
        }
        // SAFETY: the caller's contract is the same.
        unsafe { self.free_rest(env, &mut slots[pushed..]) }
    }

    /// Frees what did not fit into the array at once.
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
        cpu: &mut CpuArray,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let mut result = Ok(());
        let mut at = 0;
        while at < slots.len() {
            if !self.numa {
                at += cpu.queue.push_many(env, &mut slots[at..]);
            }
            let Some(slot) = slots.get_mut(at) else { break };
            at += 1;
            let Some(object) = *slot else { continue };
            let freed =
                // SAFETY: the caller's contract is the same.
                slabs::slab_of(env, object).and_then(|_| unsafe { self.free_on_cpu(env, cpu, id, object) });
            match freed {
                Ok(()) => *slot = None,
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}
