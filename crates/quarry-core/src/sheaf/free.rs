//! Freeing: the fast path, then room in the main sheaf, then the path past the sheaves.

use core::ptr::NonNull;

use super::barn::Put;
use super::partial::FLUSH_BATCH;
use super::types::{CpuSheaves, Sheaf};
use crate::design::{Env, FreeError};
use crate::machine::{Access, CpuId, Line, Machine, NodeId, Work, touch, work};
use crate::page::Pfn;
use crate::slabs;
use crate::stats::Stat;

/// Objects of other nodes that a bulk free sets aside before it frees them together.
const REMOTE_BATCH: usize = 32;

impl Sheaf {
    /// # Safety
    ///
    /// Nobody uses the object any more.
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
    /// Nobody uses the object any more.
    #[inline(always)]
    pub(super) unsafe fn free_step<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> bool {
        let machine = env.pages.machine();
        work(machine, Work::Call);
        if !self.owns_local(env, object) {
            return false;
        }
        // SAFETY: as for allocation; in front of a sheaf's entries lies its head.
        unsafe { machine.percpu_push_stack::<CpuSheaves>(self.cpu.slot0(), object) }
    }

    /// Frees with the CPU's slot held, if it can be had.
    ///
    /// # Safety
    ///
    /// Nobody uses the object any more.
    #[inline]
    pub(super) unsafe fn free_locked<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if env.cache.flags().debug() {
            return Err(FreeError::Unchecked);
        }
        let machine = env.pages.machine();
        let slab = slabs::lookup(env, object)?;
        if self.capacity() > 0 {
            let freed = self
                .cpu
                // SAFETY: the caller's contract is the same.
                .try_with(machine, |cpu, id| unsafe {
                    self.free_on_cpu(env, cpu, id, object)
                });
            match freed {
                Some(Ok(true)) => return Ok(()),
                Some(Ok(false)) => {}
                Some(Err(error)) => return Err(error),
                None => env.cache.shared_stats.count(Stat::CpuSlotBusy),
            }
        }
        // SAFETY: the caller's contract is the same.
        unsafe { self.free_below(env, slab, object) }
    }

    /// Frees an object of this cache to the CPU's sheaves, whose slot is held; `false` if it has to
    /// go to its slab.
    ///
    /// # Safety
    ///
    /// Nobody uses the object any more.
    #[inline(always)]
    unsafe fn free_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        let machine = env.pages.machine();
        let local = |pfn| self.one_node || Self::is_local(env, pfn, id);
        if !env.pages.pfn_of(object).is_some_and(local) {
            return Ok(false);
        }
        touch(
            machine,
            Line::CpuState,
            Access::Write,
            core::ptr::from_ref(cpu).addr(),
        );
        if cpu.newest() == Some(object) {
            return Err(FreeError::DoubleFree);
        }
        let node = machine.node_of_cpu(id);
        let mut pushed = cpu.push(object);
        if !pushed {
            let slab = slabs::lookup(env, object)?;
            self.slub.check_object(env, slab, object)?;
            pushed = self.free_slow(env, cpu, node) && cpu.push(object);
        }
        if pushed {
            touch(machine, Line::CpuQueue, Access::Write, cpu.entry_address());
        }
        Ok(pushed)
    }

    /// The main sheaf is full: makes room (`__pcs_replace_full_main()`; facts 6.4). `false` if the
    /// object has to go to its slab.
    #[cold]
    #[inline(never)]
    fn free_slow<M: Machine>(&self, env: Env<'_, M>, cpu: &mut CpuSheaves, node: NodeId) -> bool {
        if env.cache.has_deferred() {
            self.slub.settle_deferred(env, None);
        }
        self.settle_waiting(env, node, &mut cpu.stats);
        if !cpu.has_main() {
            let empty = self.empty_sheaf(env, node, &mut cpu.stats);
            cpu.replace_main(empty);
            return cpu.has_main();
        }
        match cpu.spare.take() {
            None => {
                let Some(empty) = self.empty_sheaf(env, node, &mut cpu.stats) else {
                    return false;
                };
                cpu.spare = cpu.replace_main(Some(empty));
            }
            Some(spare) if !spare.is_full() => cpu.spare = cpu.replace_main(Some(spare)),
            full => {
                cpu.spare = full;
                self.put_main(env, cpu, node);
            }
        }
        true
    }

    /// Main and spare sheaf are full: the main one goes to the barn for an empty one. If the barn
    /// has enough, the spare is flushed and becomes the main one.
    fn put_main<M: Machine>(&self, env: Env<'_, M>, cpu: &mut CpuSheaves, node: NodeId) {
        let Some(main) = cpu.replace_main(None) else {
            return;
        };
        match self.exchange_full(env, node, main) {
            Put::Exchanged(empty) => {
                cpu.replace_main(Some(empty));
                cpu.stats.count(Stat::BarnPut);
            }
            Put::Full(main) => {
                cpu.stats.count(Stat::BarnPutFail);
                let mut spare = cpu.spare.replace(main);
                if let Some(spare) = &mut spare {
                    self.flush_sheaf(env, spare, &mut cpu.stats);
                }
                cpu.replace_main(spare);
            }
            Put::NoEmpty(mut main) => match Self::new_sheaf(env, self.capacity(), &mut cpu.stats) {
                Some(empty) => {
                    self.put_full(env, node, main, &mut cpu.stats);
                    cpu.replace_main(Some(empty));
                }
                None => {
                    let batch = main.take_newest(FLUSH_BATCH);
                    cpu.stats.count_by(Stat::SheafFlush, batch.len() as u64);
                    self.free_to_slabs(env, batch);
                    cpu.replace_main(Some(main));
                }
            },
        }
    }

    /// Past the sheaves: in 6.18 to the CPU's slab if it is that one, else to the object's slab.
    ///
    /// # Safety
    ///
    /// Nobody uses the object any more.
    #[inline(never)]
    unsafe fn free_below<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if self.rules.cpu_slabs {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.slub.free_one(env, object) };
        }
        let _pass = env.pages.gate().enter(env.pages.machine());
        // SAFETY: as above.
        unsafe { self.slub.free_slow(env, None, slab, object) }
    }

    /// Frees many objects under one hold of the CPU's slot (facts 6.6).
    ///
    /// # Safety
    ///
    /// Nobody uses the objects any more.
    #[inline]
    pub(super) unsafe fn free_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        if env.cache.flags().debug() {
            return Err(FreeError::Unchecked);
        }
        let machine = env.pages.machine();
        work(machine, Work::Call);
        let mut pushed = 0;
        if self.one_node && self.capacity() > 0 {
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

    /// Frees what did not fit into the main sheaf at once.
    ///
    /// # Safety
    ///
    /// Nobody uses the objects any more.
    #[inline(never)]
    unsafe fn free_rest<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        if self.capacity() > 0 {
            let freed = self.cpu.try_with(env.pages.machine(), |cpu, id| {
                // SAFETY: the caller's contract is the same.
                unsafe { self.free_many_on_cpu(env, cpu, id, slots) }
            });
            if let Some(result) = freed {
                return result;
            }
            env.cache.shared_stats.count(Stat::CpuSlotBusy);
        }
        // SAFETY: the caller's contract is the same.
        unsafe { self.free_many_below(env, slots) }
    }

    /// Frees objects of this cache with the CPU's slot held. Those that cannot go to a sheaf are
    /// set aside and go to their slabs, a batch at a time.
    ///
    /// # Safety
    ///
    /// Nobody uses the objects any more.
    unsafe fn free_many_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let mut result = Ok(());
        let mut aside = [None; REMOTE_BATCH];
        let mut count = 0;
        let mut at = 0;
        while at < slots.len() {
            if self.one_node {
                at += cpu.push_many(env, &mut slots[at..]);
            }
            let Some(slot) = slots.get_mut(at) else { break };
            at += 1;
            let Some(object) = *slot else { continue };
            // SAFETY: the caller's contract is the same.
            match unsafe { self.free_or_check(env, cpu, id, object) } {
                Ok(freed) => {
                    *slot = None;
                    if freed {
                        continue;
                    }
                }
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            }
            aside[count] = Some(object);
            count += 1;
            if count == REMOTE_BATCH {
                // SAFETY: the caller's user gave the objects up, and they were checked.
                result = result.and(unsafe { self.free_batch(env, &mut aside) });
                count = 0;
            }
        }
        // SAFETY: as above.
        result.and(unsafe { self.free_batch(env, &mut aside[..count]) })
    }

    /// Frees an object to the CPU's sheaves; `false` if it has to go to its slab, which takes it.
    ///
    /// # Safety
    ///
    /// Nobody uses the object any more.
    unsafe fn free_or_check<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        let slab = slabs::slab_of(env, object)?;
        // SAFETY: the caller's contract is the same.
        let freed = unsafe { self.free_on_cpu(env, cpu, id, object) }?;
        if !freed {
            self.slub.check_object(env, slab, object)?;
        }
        Ok(freed)
    }

    /// Frees objects past the sheaves.
    ///
    /// # Safety
    ///
    /// Nobody uses the objects any more.
    unsafe fn free_many_below<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let _pass = env.pages.gate().enter(env.pages.machine());
        let mut result = Ok(());
        for batch in slots.chunks_mut(REMOTE_BATCH) {
            // SAFETY: the caller's contract is the same.
            result = result.and(unsafe { self.free_batch(env, batch) });
        }
        result
    }

    /// Frees objects to their slabs, as calls of users count.
    ///
    /// # Safety
    ///
    /// Nobody uses the objects any more; the caller holds a CPU's slot or has entered the gate.
    unsafe fn free_batch<M: Machine>(
        &self,
        env: Env<'_, M>,
        batch: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        if batch.iter().all(Option::is_none) {
            return Ok(());
        }
        if self.rules.cpu_slabs {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.slub.free_many(env, batch) };
        }
        let free = |slab, list| {
            env.cache.shared_stats.count(Stat::FreeSlowpath);
            // SAFETY: the list holds objects of one slab that the caller gave up.
            unsafe { self.slub.free_to_slab(env, None, slab, list) };
        };
        // SAFETY: the caller's contract is the same.
        unsafe { self.slub.for_each_list(env, batch, free) }
    }
}
