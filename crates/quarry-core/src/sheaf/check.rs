//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::types::{CpuSheaves, Sheaf, SheafBox, Stack};
use crate::design::{Design, Env, SlabInconsistency, Usage};
use crate::machine::{Machine, NodeId};
use crate::slabs::{self, cpus};

impl Sheaf {
    /// Objects in sheaves count as active: no node list offers them.
    pub(super) fn count_usage<M: Machine>(&self, env: Env<'_, M>) -> Usage {
        self.slub.usage(env)
    }

    /// Flushes first, so that every free object is in its slab.
    pub(super) fn walk_live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        found: &mut dyn FnMut(NonNull<u8>),
    ) {
        self.flush_and_drain(env);
        self.slub.live_objects(env, found);
    }

    /// Sheaves and barns, then lists, counters and free pointers of all slabs.
    pub(super) fn check<M: Machine>(&self, env: Env<'_, M>) -> Result<(), SlabInconsistency> {
        for cpu in cpus(env) {
            let checked = self.cpu.try_with_remote(env.pages.machine(), cpu, |state| {
                Self::check_cpu(env, state)
            });
            checked.unwrap_or(Ok(()))?;
        }
        for node in 0..env.pages.machine().topology().nodes {
            let Some(barn) = self.barn(env, NodeId(node)) else {
                continue;
            };
            Self::check_stack(env, &barn.full, true)?;
            Self::check_stack(env, &barn.empty, false)?;
            Self::check_stack(env, &barn.waiting, true)?;
        }
        self.slub.check_consistency(env)
    }

    fn check_cpu<M: Machine>(
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
    ) -> Result<(), SlabInconsistency> {
        let main = cpu.with_main(|main, _| Self::check_sheaf(env, main));
        main.unwrap_or(Ok(()))?;
        let mut others = [&cpu.spare, &cpu.rcu].into_iter().flatten();
        others.try_for_each(|sheaf| Self::check_sheaf(env, sheaf))
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
        if sheaf.size() > sheaf.capacity() {
            return Err(SlabInconsistency {
                what: "objects of a sheaf",
                slab: None,
                recorded: u64::from(sheaf.capacity()),
                found: u64::from(sheaf.size()),
            });
        }
        let foreign = sheaf
            .objects()
            .iter()
            .filter(|object| slabs::lookup(env, **object).is_err())
            .count();
        let what = "objects of other caches in a sheaf";
        SlabInconsistency::equal(what, None, 0, foreign as u64)
    }
}
