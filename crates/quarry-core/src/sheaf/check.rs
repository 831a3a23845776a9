//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::Kind;
use super::types::{CpuSheaves, Sheaf, SheafList, Sheaves};
use crate::design::{
    Busy, CheckError, CpuUsage, Env, NodeUsage, Show, SlabInconsistency, Slots, Usage,
};
use crate::machine::{CpuId, HeldSlots, Machine, NodeId};
use crate::page::Pfn;
use crate::rest::Rest;
use crate::slabs;
use crate::slub::types::CpuSlab;
use crate::stats::{Stat, Stats};

impl<K: Kind> Show for Sheaves<K> {
    fn stats<M: Machine>(&self, env: Env<'_, M>) -> Stats {
        let mut sheaves = Stats::default();
        slabs::on_each_cpu(env, &self.cpu, |state| state.stats.add_to(&mut sheaves));
        self.rename(&mut sheaves);
        let mut sum = self.slub.stats(env);
        sum.add(&sheaves);
        sum
    }

    /// Objects in sheaves count as active: no node list offers them.
    fn usage<M: Machine>(&self, env: Env<'_, M>) -> Usage {
        self.slub.usage(env)
    }

    fn node_usage<M: Machine>(&self, env: Env<'_, M>, node: NodeId) -> NodeUsage {
        self.slub.node_usage(env, node)
    }

    fn cpu_usage<M: Machine>(&self, env: Env<'_, M>, cpu: CpuId) -> CpuUsage {
        let mut usage = self.slub.cpu_usage(env, cpu);
        let found = self
            .cpu
            .try_with_remote(env.machine(), cpu, |state| state.stats.snapshot());
        let mut sheaves = found.unwrap_or_default();
        self.rename(&mut sheaves);
        usage.stats.add(&sheaves);
        usage
    }

    fn clear_stat<M: Machine>(&self, env: Env<'_, M>, stat: Stat) -> u32 {
        let below = self.slub.clear_stat(env, stat);
        let own = match stat {
            Stat::AllocCpuSheaf => Stat::AllocFastpath,
            Stat::FreeCpuSheaf => Stat::FreeFastpath,
            Stat::AllocFastpath | Stat::FreeFastpath if !self.rules.sheaf_is_fastpath => {
                return below;
            }
            other => other,
        };
        let busy = slabs::on_each_cpu(env, &self.cpu, |state| state.stats.clear(own));
        if self.rules.sheaf_is_fastpath {
            busy
        } else {
            busy.max(below)
        }
    }

    fn at_rest<M: Machine, R>(&self, env: Env<'_, M>, f: impl FnOnce() -> R) -> Result<R, Busy> {
        let (_sheaves, _rest) = self.rest(env)?;
        Ok(f())
    }

    fn live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        from: usize,
        flush: bool,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy> {
        if flush {
            self.flush_and_drain(env);
        }
        let (sheaves, rest) = self.rest(env)?;
        let queued = |found: &mut dyn FnMut(NonNull<u8>)| self.each_queued(env, &sheaves, found);
        self.slub
            .walk_live_at_rest(env, rest.slots(), queued, from, found)
    }

    fn kept<M: Machine>(&self, env: Env<'_, M>, look: impl FnOnce([&[NonNull<u8>]; 2])) {
        self.cpu.try_with(env.machine(), |cpu, _| {
            let spare = cpu.spare.as_ref().map_or(&[][..], Sheaf::objects);
            look([spare, cpu.stack.filled()]);
        });
    }

    fn check_consistency<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError> {
        let (sheaves, rest) = self.rest(env)?;
        let checked = self.check_sheaves(env, &sheaves);
        rest.verdict(checked.and_then(|()| self.slub.check_at_rest(env, rest.slots())))
    }
}

impl<K: Kind> Slots for Sheaves<K> {
    type Shared = ();

    fn free_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), SlabInconsistency> {
        self.slub.free_slots(env, slab, found)
    }

    fn isolate<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        self.slub.isolate(env, slab);
    }
}

/// The slots of the sheaves, and the slabs below at rest.
type SheavesAtRest<'a, M> = (HeldSlots<'a, M, CpuSheaves>, Rest<'a, M, CpuSlab>);

impl<K: Kind> Sheaves<K> {
    /// Brings sheaves and slabs to rest.
    fn rest<'a, M: Machine>(&'a self, env: Env<'a, M>) -> Result<SheavesAtRest<'a, M>, Busy> {
        let hold = || self.cpu.hold_all(env.machine()).map_err(|_| Busy);
        Rest::with_others(env, &self.slub.cpu, hold)
    }

    /// Calls `found` for the free objects in all sheaves. The cache is at rest.
    fn each_queued<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaves: &HeldSlots<'_, M, CpuSheaves>,
        found: &mut dyn FnMut(NonNull<u8>),
    ) -> Result<(), Busy> {
        for cpu in sheaves.states() {
            let spare = cpu.spare.as_ref().map_or(&[][..], Sheaf::objects);
            let free = cpu.stack.filled().iter().chain(spare);
            free.for_each(|object| found(*object));
        }
        for node in 0..env.machine().topology().nodes {
            let barn = self.barn(env, NodeId(node)).ok_or(Busy)?;
            let free = barn.full.iter().flat_map(Sheaf::objects);
            free.for_each(|object| found(*object));
        }
        Ok(())
    }

    /// Sheaves and barns. The cache is at rest.
    fn check_sheaves<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaves: &HeldSlots<'_, M, CpuSheaves>,
    ) -> Result<(), CheckError> {
        for cpu in sheaves.states() {
            Self::check_objects(env, cpu.stack.room(), cpu.stack.filled())?;
            for sheaf in [&cpu.spare, &cpu.rcu].into_iter().flatten() {
                Self::check_sheaf(env, sheaf)?;
            }
        }
        for node in 0..env.machine().topology().nodes {
            let barn = self.barn(env, NodeId(node)).ok_or(CheckError::Busy)?;
            Self::check_stack(env, &barn.full, true)?;
            Self::check_stack(env, &barn.empty, false)?;
            Self::check_stack(env, &barn.waiting, true)?;
        }
        Ok(())
    }

    fn check_stack<M: Machine>(
        env: Env<'_, M>,
        stack: &SheafList,
        objects: bool,
    ) -> Result<(), SlabInconsistency> {
        let equal = SlabInconsistency::equal;
        let mut count = 0;
        for sheaf in stack.iter() {
            let holds = u64::from(!sheaf.is_empty());
            equal(
                "sheaf in a barn with objects",
                None,
                u64::from(objects),
                holds,
            )?;
            Self::check_sheaf(env, sheaf)?;
            count += 1;
        }
        equal("sheaves in a barn", None, u64::from(stack.count()), count)
    }

    /// A sheaf's size, and that its objects are this cache's.
    fn check_sheaf<M: Machine>(env: Env<'_, M>, sheaf: &Sheaf) -> Result<(), SlabInconsistency> {
        let size = sheaf.size().min(sheaf.capacity());
        SlabInconsistency::equal("objects of a sheaf", None, size.into(), sheaf.size().into())?;
        Self::check_objects(env, sheaf.capacity(), sheaf.objects())
    }

    fn check_objects<M: Machine>(
        env: Env<'_, M>,
        capacity: u32,
        objects: &[NonNull<u8>],
    ) -> Result<(), SlabInconsistency> {
        if objects.len() > capacity as usize {
            return Err(SlabInconsistency {
                what: "objects of a sheaf",
                slab: None,
                recorded: u64::from(capacity),
                found: objects.len() as u64,
            });
        }
        let foreign = objects
            .iter()
            .filter(|object| slabs::lookup(env, **object).is_err())
            .count();
        let what = "objects of other caches in a sheaf";
        SlabInconsistency::equal(what, None, 0, foreign as u64)
    }
}
