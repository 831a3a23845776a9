//! Freeing: the fast path, then room in the main sheaf, then the path past the sheaves.

use core::ptr::NonNull;

use super::Kind;
use super::barn::Put;
use super::stats::Stat;
use super::types::{CpuSheaves, Sheaves};
use crate::design::{Env, FreeError};
use crate::front::{self, CpuKept};
use crate::machine::{CpuId, Machine, NodeId};
use crate::page::Pfn;
use crate::queue::CpuStack;
use crate::slabs;
use crate::slub::types::Detached;

/// Objects of other nodes that a bulk free sets aside before it frees them together.
pub(super) const REMOTE_BATCH: usize = 32;

/// Objects of other nodes that wait to be freed together.
#[derive(Default)]
pub(super) struct Aside {
    pub(super) objects: [Option<NonNull<u8>>; REMOTE_BATCH],
    pub(super) count: usize,
}

impl<K: Kind> Sheaves<K> {
    /// Puts an object of this cache in the main sheaf after making room there. `Ok(false)` if it has to
    /// go to its slab.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    pub(super) unsafe fn push_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
        make_room: impl FnOnce(&mut CpuSheaves, NodeId) -> bool,
    ) -> Result<bool, FreeError> {
        if !self.takes(env, id, slab) {
            return Ok(false);
        }
        self.slub.check_object(env, slab, object)?;
        let machine = env.machine();
        Ok(make_room(cpu, machine.node_of_cpu(id)) && cpu.push(machine, object))
    }

    /// [`CpuKept::push_held`], or [`Sheaves::push_behind`] where that has no room.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    pub(super) unsafe fn push_or_make_room<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
        make_room: impl FnOnce(&mut CpuSheaves, NodeId) -> bool,
    ) -> Result<bool, FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        match unsafe { self.push_held(env, cpu, id, slab, object) } {
            // SAFETY: the caller vouches for the object, which the attempt above has not freed.
            Ok(false) => unsafe { self.push_behind(env, cpu, id, slab, object, make_room) },
            pushed => pushed,
        }
    }

    /// The main sheaf is full: makes room (`__pcs_replace_full_main()`; facts 6.4). `false` if the
    /// object has to go to its slab.
    pub(super) fn replace_full_main<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        node: NodeId,
    ) -> bool {
        if env.cache.has_deferred() {
            self.slub.settle_deferred(env, None);
        }
        // First sheaves whose readers are done: they fill the barn, and so decide whether it takes another.
        self.settle_waiting(env, node, &mut cpu.stats);
        if !cpu.has_main() {
            let empty = self.empty_sheaf(env, node, &mut cpu.stats);
            cpu.replace_main(env.machine(), empty);
            return cpu.has_main();
        }
        // Mostly the spare has room: allocations emptied it before. Then nothing leaves this CPU. The full sheaf stays
        // as spare, so that a run of allocations finds it without the barn.
        match cpu.spare.take() {
            None => {
                // No memory for a sheaf is no failure: the object goes to its slab.
                let Some(empty) = self.empty_sheaf(env, node, &mut cpu.stats) else {
                    return false;
                };
                cpu.spare = cpu.replace_main(env.machine(), Some(empty));
            }
            Some(spare) if !spare.is_full() => {
                cpu.spare = cpu.replace_main(env.machine(), Some(spare))
            }
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
        // Out of the CPU's state while a barn or a kmalloc works on it: `replace_main` brings its size up to date,
        // which only the CPU's top knows until then (I3). Each arm puts a main sheaf back.
        let Some(main) = cpu.replace_main(env.machine(), None) else {
            return;
        };
        self.missed(env);
        let put = match self.is_small(&main) {
            true => Put::Full(main),
            false => self.exchange_full(env, node, main),
        };
        match put {
            Put::Exchanged(empty) => {
                let empty = self.right_sized(env, empty, &mut cpu.stats);
                cpu.replace_main(env.machine(), Some(empty));
                cpu.stats.count(Stat::BarnPut);
            }
            Put::Full(main) => {
                cpu.stats.count(Stat::BarnPutFail);
                // Flush the spare, not the main sheaf: the main one's objects were freed last and are warm.
                let spare = cpu.spare.replace(main).map(|mut spare| {
                    self.flush_sheaf(env, &mut spare, &mut cpu.stats);
                    self.right_sized(env, spare, &mut cpu.stats)
                });
                cpu.replace_main(env.machine(), spare);
            }
            // The barn would take a full sheaf but has no empty one to give.
            Put::NoEmpty(mut main) => match self.new_sheaf(env, &mut cpu.stats) {
                Some(empty) => {
                    self.put_full(env, node, main, &mut cpu.stats);
                    cpu.replace_main(env.machine(), Some(empty));
                }
                None => {
                    cpu.stats.count(Stat::BarnPutFail);
                    self.flush_sheaf(env, &mut main, &mut cpu.stats);
                    cpu.replace_main(env.machine(), Some(main));
                }
            },
        }
    }

    /// The main sheaf is full in the middle of a bulk free: makes room with what CPU and barn have
    /// (`free_to_pcs_bulk()`; facts 6.6). `false` if they have no empty sheaf, or the barn enough full
    /// ones: the rest of the objects has to go to the slabs. No sheaf is made, and none is flushed.
    pub(super) fn make_room_for_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        node: NodeId,
    ) -> bool {
        if !cpu.has_main() {
            // Stands for the one that CPUs have from the start.
            let empty = self.empty_sheaf(env, node, &mut cpu.stats);
            cpu.replace_main(env.machine(), empty);
            return cpu.has_main();
        }
        match cpu.spare.take() {
            Some(spare) if !spare.is_full() => {
                cpu.spare = cpu.replace_main(env.machine(), Some(spare))
            }
            Some(full) => {
                cpu.spare = Some(full);
                let Some(main) = cpu.replace_main(env.machine(), None) else {
                    return false;
                };
                self.missed(env);
                match self.exchange_full(env, node, main) {
                    Put::Exchanged(empty) => {
                        let empty = self.right_sized(env, empty, &mut cpu.stats);
                        cpu.replace_main(env.machine(), Some(empty));
                        cpu.stats.count(Stat::BarnPut);
                    }
                    Put::Full(main) | Put::NoEmpty(main) => {
                        cpu.replace_main(env.machine(), Some(main));
                        return false;
                    }
                }
            }
            None => {
                let empty = self
                    .barn(env, node)
                    .and_then(|mut barn| barn.empty.pop(env.machine()));
                let Some(empty) = empty else { return false };
                cpu.spare = cpu.replace_main(env.machine(), Some(empty));
            }
        }
        true
    }

    /// Frees the objects of other nodes that slots still have: if these have no others, all together.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    pub(super) unsafe fn free_remote<M: Machine>(
        &self,
        env: Env<'_, M>,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
        no_others: bool,
        aside: &mut Aside,
    ) -> Result<(), FreeError> {
        if no_others {
            // SAFETY: the caller vouches that the objects have no user left.
            return unsafe { self.free_batch(env, slots) };
        }
        let mut result = Ok(());
        for slot in slots {
            let slab = slot.and_then(|object| slabs::slab_of(env, object).ok());
            if let Some(slab) = slab.filter(|slab| !slabs::is_local(env, *slab, id)) {
                // SAFETY: the caller vouches that the objects have no user left.
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
    pub(super) unsafe fn set_aside<M: Machine>(
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

    /// Frees objects to their slabs, as calls of users count.
    ///
    /// # Safety
    ///
    /// The objects have no user left; the caller holds a CPU's slot or has entered the gate.
    pub(super) unsafe fn free_batch<M: Machine>(
        &self,
        env: Env<'_, M>,
        batch: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        if batch.iter().all(Option::is_none) {
            return Ok(());
        }
        if self.rules.cpu_slabs {
            // SAFETY: the caller vouches that the objects have no user left.
            return unsafe { front::free_many(&self.slub, env, batch) };
        }
        let free = |slab, list: Detached| {
            let count = u64::from(list.count);
            env.cache.shared_stats.count_by(Stat::FreeSlowpath, count);
            // SAFETY: the list holds objects of one slab that the caller gave up.
            unsafe { self.slub.free_to_slab(env, None, slab, list) };
        };
        // SAFETY: the caller vouches that the objects have no user left.
        unsafe { self.slub.for_each_list(env, batch, free) }
    }
}
