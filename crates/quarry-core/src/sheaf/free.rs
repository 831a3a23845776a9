//! Freeing: the fast path, then room in the main sheaf, then the path past the sheaves.

use core::ptr::NonNull;

use super::barn::Put;
use super::geometry::BulkOrder;
use super::types::{CpuSheaves, Sheaf};
use crate::design::{Env, FreeError};
use crate::machine::{CpuId, Machine, NodeId};
use crate::page::Pfn;
use crate::slabs;
use crate::slub::types::Detached;
use crate::stats::Stat;

/// Objects of other nodes that a bulk free sets aside before it frees them together.
const REMOTE_BATCH: usize = 32;

/// Objects of other nodes that wait to be freed together.
#[derive(Default)]
struct Aside {
    objects: [Option<NonNull<u8>>; REMOTE_BATCH],
    count: usize,
}

impl Sheaf {
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
    /// The object has no user left.
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
    /// The object has no user left.
    #[inline(always)]
    unsafe fn free_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        let make_room = |cpu: &mut CpuSheaves, node| self.free_slow(env, cpu, node);
        // SAFETY: the caller's contract is the same.
        unsafe { self.push_on_cpu(env, cpu, id, object, make_room) }
    }

    /// [`Sheaf::free_on_cpu`] with its own way to make room in a full main sheaf.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    unsafe fn push_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        object: NonNull<u8>,
        make_room: impl FnOnce(&mut CpuSheaves, NodeId) -> bool,
    ) -> Result<bool, FreeError> {
        let machine = env.pages.machine();
        let local = |pfn| self.one_node || Self::is_local(env, pfn, id);
        if !env.pages.pfn_of(object).is_some_and(local) {
            return Ok(false);
        }
        if cpu.newest() == Some(object) {
            return Err(FreeError::DoubleFree);
        }
        let node = machine.node_of_cpu(id);
        let mut pushed = cpu.push(machine, object);
        if !pushed {
            let slab = slabs::lookup(env, object)?;
            self.slub.check_object(env, slab, object)?;
            pushed = make_room(cpu, node) && cpu.push(machine, object);
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
                    cpu.stats.count(Stat::BarnPutFail);
                    self.flush_sheaf(env, &mut main, &mut cpu.stats);
                    cpu.replace_main(Some(main));
                }
            },
        }
    }

    /// Past the sheaves: in 6.18 to the CPU's slab if it is that one, else to the object's slab.
    ///
    /// # Safety
    ///
    /// The object has no user left.
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
    /// The objects have no user left.
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
    /// The objects have no user left.
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

    /// The main sheaf is full in the middle of a bulk free: makes room with what CPU and barn have
    /// (`free_to_pcs_bulk()`; facts 6.6). `false` if they have no empty sheaf, or the barn enough full
    /// ones: the rest of the objects has to go to the slabs. No sheaf is made, and none is flushed.
    fn make_room_for_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        node: NodeId,
    ) -> bool {
        if !cpu.has_main() {
            // Stands for the one that CPUs have from the start.
            let empty = self.empty_sheaf(env, node, &mut cpu.stats);
            cpu.replace_main(empty);
            return cpu.has_main();
        }
        match cpu.spare.take() {
            Some(spare) if !spare.is_full() => cpu.spare = cpu.replace_main(Some(spare)),
            Some(full) => {
                cpu.spare = Some(full);
                let Some(main) = cpu.replace_main(None) else {
                    return false;
                };
                match self.exchange_full(env, node, main) {
                    Put::Exchanged(empty) => {
                        cpu.replace_main(Some(empty));
                        cpu.stats.count(Stat::BarnPut);
                    }
                    Put::Full(main) | Put::NoEmpty(main) => {
                        cpu.replace_main(Some(main));
                        return false;
                    }
                }
            }
            None => {
                let empty = self.barn(env, node).and_then(|mut barn| barn.empty.pop());
                let Some(empty) = empty else { return false };
                cpu.spare = cpu.replace_main(Some(empty));
            }
        }
        true
    }

    /// Frees objects of this cache with the CPU's slot held. Those of other nodes go to their slabs, a
    /// portion at a time or all together, and so do the others from the first on that no sheaf has room
    /// for.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn free_many_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let mut result = Ok(());
        let mut aside = Aside::default();
        let make_room = |cpu: &mut CpuSheaves, node| self.make_room_for_many(env, cpu, node);
        let (mut at, mut has_room) = (0, true);
        while at < slots.len() {
            if self.one_node && has_room {
                at += cpu.push_many(env, &mut slots[at..]);
            }
            let Some(slot) = slots.get_mut(at) else { break };
            let Some(object) = *slot else {
                at += 1;
                continue;
            };
            let slab = slabs::slab_of(env, object);
            let local = |slab| self.one_node || Self::is_local(env, slab, id);
            match slab {
                Err(error) => result = result.and(Err(error)),
                Ok(slab) if !local(slab) => {
                    if self.rules.bulk_free == BulkOrder::AsMet {
                        // SAFETY: the caller's contract is the same.
                        result = result.and(unsafe { self.set_aside(env, slab, slot, &mut aside) });
                    }
                }
                Ok(_) if !has_room => {
                    // SAFETY: as above.
                    result = result.and(unsafe { self.free_batch(env, &mut slots[at..]) });
                    break;
                }
                // SAFETY: as above.
                Ok(_) => match unsafe { self.push_on_cpu(env, cpu, id, object, make_room) } {
                    Ok(true) => *slot = None,
                    Ok(false) => {
                        has_room = false;
                        continue;
                    }
                    Err(error) => result = result.and(Err(error)),
                },
            }
            at += 1;
        }
        if self.rules.bulk_free == BulkOrder::LocalFirst && !self.one_node {
            let no_others = result.is_ok();
            // SAFETY: as above.
            result = result.and(unsafe { self.free_remote(env, id, slots, no_others, &mut aside) });
        }
        // SAFETY: what is set aside was given up and checked.
        result.and(unsafe { self.free_batch(env, &mut aside.objects[..aside.count]) })
    }

    /// Frees the objects of other nodes that slots still have: if these have no others, all together.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn free_remote<M: Machine>(
        &self,
        env: Env<'_, M>,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
        no_others: bool,
        aside: &mut Aside,
    ) -> Result<(), FreeError> {
        if no_others {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.free_batch(env, slots) };
        }
        let mut result = Ok(());
        for slot in slots {
            let slab = slot.and_then(|object| slabs::slab_of(env, object).ok());
            if let Some(slab) = slab.filter(|slab| !Self::is_local(env, *slab, id)) {
                // SAFETY: the caller's contract is the same.
                result = result.and(unsafe { self.set_aside(env, slab, slot, aside) });
            }
        }
        result
    }

    /// Checks a slot's object and takes it to those that go to their slabs in one portion.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn set_aside<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        slot: &mut Option<NonNull<u8>>,
        aside: &mut Aside,
    ) -> Result<(), FreeError> {
        let Some(object) = *slot else { return Ok(()) };
        self.slub.check_object(env, slab, object)?;
        aside.objects[aside.count] = slot.take();
        aside.count += 1;
        if aside.count < REMOTE_BATCH {
            return Ok(());
        }
        aside.count = 0;
        // SAFETY: the caller gave this object up, and earlier ones of the same bulk free; all were checked.
        unsafe { self.free_batch(env, &mut aside.objects) }
    }

    /// Frees objects past the sheaves.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
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
    /// The objects have no user left; the caller holds a CPU's slot or has entered the gate.
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
        let free = |slab, list: Detached| {
            let count = u64::from(list.count);
            env.cache.shared_stats.count_by(Stat::FreeSlowpath, count);
            // SAFETY: the list holds objects of one slab that the caller gave up.
            unsafe { self.slub.free_to_slab(env, None, slab, list) };
        };
        // SAFETY: the caller's contract is the same.
        unsafe { self.slub.for_each_list(env, batch, free) }
    }
}
