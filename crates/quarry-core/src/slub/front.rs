//! The CPU's list: what calls do with it before they go to the CPU's slab or past it.

use core::ops::Range;
use core::ptr::NonNull;

use super::stats::Stat;
use super::types::{CpuSlab, Slub};
use crate::design::{Env, FreeError};
use crate::era::Era;
use crate::front::{CpuFront, CpuKept};
use crate::machine::{CpuId, Machine, NodeId, PerCpu, Work};
use crate::page::Pfn;
use crate::protection::{Protection, Protections};

impl CpuKept for Slub {
    type Cpu = CpuSlab;

    fn slots(&self) -> &PerCpu<CpuSlab> {
        &self.cpu
    }

    #[inline(always)]
    fn pop_step<M: Machine>(&self, env: Env<'_, M>) -> Option<NonNull<u8>> {
        let (slot0, at) = (self.cpu.slot0(), self.free_pointer);
        // SAFETY: `cpu` is a slot of the per-CPU range with a `CpuSlab`, whose list holds free
        // objects with links at `free_pointer` (I1).
        let object = unsafe { env.machine().percpu_pop_list::<CpuSlab>(slot0, at) }?;
        self.account_list(env, object);
        Some(object)
    }

    #[inline(always)]
    unsafe fn push_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        let machine = env.machine();
        let link = Self::slab_link(env, object);
        if link == 0 {
            return false;
        }
        let (slot0, at) = (self.cpu.slot0(), self.free_pointer);
        // SAFETY: as for allocation; the list's owner is the CPU's slab, so the object is one of
        // this cache's, and the caller has given it up.
        let pushed = unsafe { machine.percpu_push_list::<CpuSlab>(slot0, at, link, object) };
        if pushed {
            self.account_list(env, object);
        }
        pushed
    }

    #[inline(always)]
    fn pop_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let object = NonNull::new(cpu.freelist)?;
        if node.is_some() && !Self::matches(env, cpu, node) {
            return None;
        }
        self.account_list(env, object);
        // SAFETY: I1 - the list is this CPU's, whose slot is held.
        cpu.freelist = unsafe { self.next_free(env, object) };
        cpu.stats.count(Stat::AllocFastpath);
        Some(object)
    }

    #[inline(always)]
    unsafe fn push_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        _: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        if cpu.slab() != Some(slab) || cpu.freelist == object.as_ptr() {
            return Ok(false);
        }
        self.account_list(env, object);
        // SAFETY: the caller gave the object up; its slab is this CPU's.
        unsafe { self.set_next_free(env, object, cpu.freelist) };
        cpu.freelist = object.as_ptr();
        cpu.stats.count(Stat::FreeFastpath);
        Ok(true)
    }

    #[inline(always)]
    fn pop_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let mut run = 0;
        let mut next = NonNull::new(cpu.freelist);
        for slot in slots.iter_mut() {
            let Some(object) = next else { break };
            *slot = next;
            // SAFETY: I1 - the list is this CPU's, whose slot is held.
            next = NonNull::new(unsafe { self.next_free(env, object) });
            run += 1;
        }
        cpu.freelist = next.map_or(core::ptr::null_mut(), NonNull::as_ptr);
        if self.rules.bulk_counts_objects {
            cpu.stats.count_by(Stat::AllocFastpath, run as u64);
        }
        run
    }

    /// The run of last objects that are of the CPU's slab goes in front of its list.
    #[inline(always)]
    unsafe fn push_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Range<usize> {
        let Some(slab) = cpu.slab() else {
            return 0..slots.len();
        };
        let map = env.map();
        let base = map.address(slab).addr().get();
        let bytes = 1 << (map.page_shift() + map.page(slab).order());
        let free_pointer = self.free_pointer;
        let mut head = cpu.freelist;
        let mut first = slots.len();
        while first > 0 {
            let Some(object) = slots[first - 1] else {
                break;
            };
            let inside = object.addr().get().wrapping_sub(base) < bytes;
            if !inside || object.as_ptr() == head {
                break;
            }
            // SAFETY: the caller gave the object up; it is of the CPU's slab.
            unsafe { Self::set_link(env, object, free_pointer, head) };
            head = object.as_ptr();
            first -= 1;
        }
        let run = &mut slots[first..];
        if !run.is_empty() {
            Self::protections(env.cache.era).free.hit(env.machine());
            cpu.freelist = head;
            self.count_fast_list(cpu, run.len() as u32);
            run.fill(None);
        }
        0..first
    }
}

impl CpuFront for Slub {
    /// Interrupts off up to 2.6.38, for the whole call; then a compare-and-swap on the CPU's list.
    ///
    /// Behind the list, allocations turn interrupts off, from 5.15 on only while they look at the CPU's slab.
    /// Frees do so up to 3.0. Bulk allocations keep interrupts off from list to list, and so do 4.3's bulk
    /// frees. Later ones go from slab to slab, each as a single free (facts 2.5, 2.13, 2.15).
    #[inline]
    fn protections(era: Era) -> Protections {
        if era < Era::V2_6_39 {
            return Protections::all(Work::IrqSave);
        }
        let behind_alloc = match era >= Era::V5_15 {
            true => Work::LocalLock,
            false => Work::IrqSave,
        };
        Protections {
            alloc: Protection {
                hit: Work::LocalCmpxchg,
                behind: Some(behind_alloc),
                bulk: Some(Work::IrqDisable),
            },
            free: Protection {
                hit: Work::LocalCmpxchg,
                behind: (era < Era::V3_1).then_some(Work::IrqSave),
                bulk: (era == Era::V4_3).then_some(Work::IrqDisable),
            },
        }
    }

    fn alloc_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        _: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        self.reload(env, cpu, node)
    }

    /// To the object's slab, which is not the CPU's unless the object was freed last.
    unsafe fn free_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        _: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        if cpu.slab() == Some(slab) {
            return Err(FreeError::DoubleFree);
        }
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_past_list(env, Some(cpu), slab, object) }.map(|()| true)
    }

    fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.has_deferred() {
            self.settle_deferred(env, None);
        }
        let shared = &env.cache.shared_stats;
        let count_early = !self.rules.slowpath_counts_success;
        if count_early {
            shared.count(Stat::AllocSlowpath);
        }
        let object = self.alloc_one_from_slabs(env, node)?;
        if !count_early {
            shared.count(Stat::AllocSlowpath);
        }
        Some(object)
    }

    unsafe fn free_to_its_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_past_list(env, None, slab, object) }
    }

    /// Objects of one slab go there together (facts 2.13).
    unsafe fn empty_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSlab,
        _: CpuId,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the objects have no user left.
        unsafe { self.free_lists(env, Some(cpu), slots) }
    }

    unsafe fn empty_past<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let _pass = env.enter();
        // SAFETY: the caller vouches that the objects have no user left.
        unsafe { self.free_lists(env, None, slots) }
    }
}

impl Slub {
    /// True if the CPU's slab is of the wanted node.
    pub(super) fn matches<M: Machine>(
        env: Env<'_, M>,
        cpu: &CpuSlab,
        node: Option<NodeId>,
    ) -> bool {
        cpu.slab()
            .is_some_and(|slab| node.is_none_or(|node| env.pages().node_of_page(slab) == node))
    }

    /// Counts n objects that a bulk free put in front of the CPU's list at once.
    #[inline(always)]
    pub(super) fn count_fast_list(&self, cpu: &mut CpuSlab, objects: u32) {
        let counted = match self.rules.bulk_counts_objects {
            true => objects,
            false => 1,
        };
        cpu.stats.count_by(Stat::FreeFastpath, counted.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A release's protection behind the list, for allocations and frees, and in bulk.
    fn of(era: Era) -> [Option<Work>; 4] {
        let Protections { alloc, free } = Slub::protections(era);
        [alloc.behind, free.behind, alloc.bulk, free.bulk]
    }

    #[test]
    fn the_protection_of_the_list_changes_at_its_releases() {
        use Work::{IrqDisable, IrqSave, LocalCmpxchg, LocalLock};
        let hits = |era| {
            let Protections { alloc, free } = Slub::protections(era);
            (alloc.hit, free.hit)
        };
        assert_eq!(hits(Era::V2_6_38), (IrqSave, IrqSave));
        assert_eq!(hits(Era::V2_6_39), (LocalCmpxchg, LocalCmpxchg));
        assert_eq!(of(Era::V2_6_38), [Some(IrqSave); 4]);
        let bulk = Some(IrqDisable);
        for (era, expected) in [
            (Era::V3_0, [Some(IrqSave), Some(IrqSave), bulk, None]),
            (Era::V3_1, [Some(IrqSave), None, bulk, None]),
            (Era::V4_3, [Some(IrqSave), None, bulk, bulk]),
            (Era::V4_4, [Some(IrqSave), None, bulk, None]),
            (Era::V5_14, [Some(IrqSave), None, bulk, None]),
            (Era::V5_15, [Some(LocalLock), None, bulk, None]),
        ] {
            assert_eq!(of(era), expected, "{era}");
        }
    }
}
