//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::types::{CpuSheaves, Sheaf, SheafBox, Stack};
use crate::design::{Busy, CheckError, Design, Env, SlabInconsistency, Usage};
use crate::machine::{HeldSlots, Machine, NodeId};
use crate::rest::Rest;
use crate::slabs;

impl Sheaf {
    /// Objects in sheaves count as active: no node list offers them.
    pub(super) fn count_usage<M: Machine>(&self, env: Env<'_, M>) -> Usage {
        self.slub.usage(env)
    }

    /// Flushes first, so that few objects have to be looked for in sheaves.
    pub(super) fn walk_live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        from: usize,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy> {
        self.flush_and_drain(env);
        let sheaves = self.cpu.hold_all(env.pages.machine()).ok_or(Busy)?;
        let rest = Rest::of(env, &self.slub.cpu)?;
        let queued = |found: &mut dyn FnMut(NonNull<u8>)| self.each_queued(env, &sheaves, found);
        self.slub
            .walk_live_at_rest(env, rest.slots(), queued, from, found)
    }

    /// Calls `found` for the free objects in all sheaves. The cache is at rest.
    fn each_queued<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaves: &HeldSlots<'_, M, CpuSheaves>,
        found: &mut dyn FnMut(NonNull<u8>),
    ) -> Result<(), Busy> {
        for cpu in sheaves.states() {
            let spare = cpu.spare.as_ref().map_or(&[][..], SheafBox::objects);
            let free = cpu.filled().iter().chain(spare);
            free.for_each(|object| found(*object));
        }
        for node in 0..env.pages.machine().topology().nodes {
            let barn = self.barn(env, NodeId(node)).ok_or(Busy)?;
            let free = barn.full.iter().flat_map(SheafBox::objects);
            free.for_each(|object| found(*object));
        }
        Ok(())
    }

    /// Sheaves and barns, then lists, counters and free pointers of all slabs.
    pub(super) fn check<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError> {
        let sheaves = self.cpu.hold_all(env.pages.machine()).ok_or(Busy)?;
        let rest = Rest::of(env, &self.slub.cpu)?;
        let checked = self.check_sheaves(env, &sheaves);
        rest.verdict(checked.and_then(|()| self.slub.check_at_rest(env, rest.slots())))
    }

    /// Sheaves and barns. The cache is at rest.
    fn check_sheaves<M: Machine>(
        &self,
        env: Env<'_, M>,
        sheaves: &HeldSlots<'_, M, CpuSheaves>,
    ) -> Result<(), CheckError> {
        for cpu in sheaves.states() {
            Self::check_objects(env, cpu.room(), cpu.filled())?;
            for sheaf in [&cpu.spare, &cpu.rcu].into_iter().flatten() {
                Self::check_sheaf(env, sheaf)?;
            }
        }
        for node in 0..env.pages.machine().topology().nodes {
            let barn = self.barn(env, NodeId(node)).ok_or(CheckError::Busy)?;
            Self::check_stack(env, &barn.full, true)?;
            Self::check_stack(env, &barn.empty, false)?;
            Self::check_stack(env, &barn.waiting, true)?;
        }
        Ok(())
    }

    fn check_stack<M: Machine>(
        env: Env<'_, M>,
        stack: &Stack,
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
    fn check_sheaf<M: Machine>(env: Env<'_, M>, sheaf: &SheafBox) -> Result<(), SlabInconsistency> {
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
