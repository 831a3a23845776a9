//! Allocation: the fast path, then the refill of the main sheaf, then the path past the sheaves.

use super::Kind;
use super::geometry::EmptyMain;
use super::stats::Stat;
use super::types::{CpuSheaves, SheafList, Sheaves};
use crate::design::Env;
use crate::machine::{Machine, NodeId};
use crate::sync::Ordering;

impl<K: Kind> Sheaves<K> {
    /// The main sheaf is empty: brings one with objects in its place (`__pcs_replace_empty_main()`;
    /// facts 6.3). `false` if no full sheaf was available.
    pub(super) fn replace_empty_main<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        node: NodeId,
    ) -> bool {
        if env.cache.has_deferred() {
            self.slub.settle_deferred(env, None);
        }
        // Sheaves whose readers are done by now stock the barn, which is asked next.
        self.settle_waiting(env, node, &mut cpu.stats);
        if self.swap_for_objects(env, cpu, node) {
            return true;
        }
        // A spare is empty here, or `swap_for_objects` had used it: filled, it becomes the main sheaf. The main one
        // stays where it is meanwhile, so that a failure has nothing to undo.
        let spare = cpu.spare.take();
        let empty = spare.or_else(|| self.empty_sheaf(env, node, &mut cpu.stats));
        let Some(empty) = empty else { return false };
        let mut empty = self.right_sized(env, empty, &mut cpu.stats);
        self.fill_sheaf(env, &mut empty, node, &mut cpu.stats);
        if !empty.is_full() {
            // Memory is short. Objects in a sheaf serve this CPU only: give them back to their slabs, where
            // the path past the sheaves finds them.
            let mut partly = SheafList::EMPTY;
            partly.push(env.machine(), empty);
            self.dissolve(env, partly, &mut cpu.stats);
            return false;
        }
        let old = cpu.replace_main(env.machine(), Some(empty));
        match (old, self.rules.empty_main) {
            (Some(old), EmptyMain::SpareFirst) => cpu.spare = Some(old),
            (Some(old), EmptyMain::Barn) => {
                self.put_empty(env, node, old, u32::MAX, &mut cpu.stats);
            }
            (None, _) => {}
        }
        true
    }

    /// Puts the spare sheaf, or a full one of the barn, in the place of the empty main one. `false`
    /// if neither has objects.
    pub(super) fn swap_for_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        node: NodeId,
    ) -> bool {
        if let Some(spare) = cpu.spare.take_if(|spare| !spare.is_empty()) {
            cpu.spare = cpu.replace_main(env.machine(), Some(spare));
            return true;
        }
        self.missed(env);
        // The barn takes the empty sheaf in the same hold of its lock. On a miss `main` is still it.
        let mut main = cpu.replace_main(env.machine(), None);
        let full = self.exchange_empty(env, node, &mut main);
        let got = full.is_some();
        cpu.replace_main(env.machine(), full.or(main));
        let stat = if got {
            Stat::BarnGet
        } else {
            Stat::BarnGetFail
        };
        cpu.stats.count(stat);
        got
    }

    /// True if a node has more than `min_partial` partial slabs, so that other nodes' CPUs may take some.
    pub(super) fn can_spare<M: Machine>(&self, env: Env<'_, M>, node: NodeId) -> bool {
        let partial = &self.slub.nodes[node.0 as usize].partial;
        let list = partial.try_lock(env.machine());
        list.is_some_and(|list| list.len() > self.slub.min_partial.load(Ordering::Relaxed))
    }
}
