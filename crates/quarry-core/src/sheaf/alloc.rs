//! Allocation: the fast path, then the refill of the main sheaf, then the path past the sheaves.

use core::ptr::NonNull;

use super::geometry::EmptyMain;
use super::types::{CpuSheaves, Sheaf, Stack};
use crate::design::Env;
use crate::machine::{CpuId, Machine, NodeId};
use crate::slabs;
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;

impl Sheaf {
    #[inline(always)]
    pub(super) fn alloc_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        self.alloc_step(env, node)
            .or_else(|| self.alloc_locked(env, node))
    }

    /// The one-step operation of the fast path.
    #[inline(always)]
    pub(super) fn alloc_step<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        if node.is_none() {
            // SAFETY: `cpu` is a slot of the per-CPU range with `CpuSheaves` (I3).
            return unsafe { machine.percpu_pop_stack::<CpuSheaves>(self.cpu.slot0()) };
        }
        None
    }

    /// Allocates with the CPU's slot held, if it can be had.
    #[inline(always)]
    pub(super) fn alloc_locked<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.flags().debug() {
            return None;
        }
        if self.capacity() == 0 {
            return self.alloc_below(env, node);
        }
        let machine = env.pages.machine();
        let allocated = self
            .cpu
            .try_with(machine, |cpu, id| self.alloc_on_cpu(env, cpu, id, node));
        if allocated.is_none() {
            env.cache.shared_stats.count(Stat::CpuSlotBusy);
        }
        match allocated.flatten() {
            Some(object) => Some(object),
            None => self.alloc_below(env, node),
        }
    }

    /// One object of the CPU's sheaves, with the CPU's slot held.
    #[inline(always)]
    fn alloc_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        let local = machine.node_of_cpu(id);
        if node.is_some_and(|wanted| wanted != local) {
            self.count_mismatch(cpu);
            return None;
        }
        if cpu.is_empty() && !self.alloc_slow(env, cpu, local) {
            return None;
        }
        // A sheaf can hold objects of other nodes: refills take them when theirs has none.
        if node.is_some() && cpu.newest().and_then(|o| Self::node_of_object(env, o)) != node {
            self.count_mismatch(cpu);
            return None;
        }
        cpu.pop(machine)
    }

    fn count_mismatch(&self, cpu: &mut CpuSheaves) {
        if self.rules.counts_node_mismatch {
            cpu.stats.count(Stat::AllocNodeMismatch);
        }
    }

    /// The main sheaf is empty: brings one with objects in its place (`__pcs_replace_empty_main()`;
    /// facts 6.3). `false` if there is none to be had.
    #[cold]
    #[inline(never)]
    fn alloc_slow<M: Machine>(&self, env: Env<'_, M>, cpu: &mut CpuSheaves, node: NodeId) -> bool {
        if env.cache.has_deferred() {
            self.slub.settle_deferred(env, None);
        }
        self.settle_waiting(env, node, &mut cpu.stats);
        if self.swap_for_objects(env, cpu, node) {
            return true;
        }
        let spare = cpu.spare.take();
        let empty = spare.or_else(|| self.empty_sheaf(env, node, &mut cpu.stats));
        let Some(mut empty) = empty else { return false };
        self.fill_sheaf(env, &mut empty, node, &mut cpu.stats);
        if !empty.is_full() {
            let mut partly = Stack::EMPTY;
            partly.push(empty);
            self.dissolve(env, partly, &mut cpu.stats);
            return false;
        }
        let old = cpu.replace_main(Some(empty));
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
    fn swap_for_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        node: NodeId,
    ) -> bool {
        if let Some(spare) = cpu.spare.take_if(|spare| !spare.is_empty()) {
            cpu.spare = cpu.replace_main(Some(spare));
            return true;
        }
        let mut main = cpu.replace_main(None);
        let full = self.exchange_empty(env, node, &mut main);
        let got = full.is_some();
        cpu.replace_main(full.or(main));
        let stat = if got {
            Stat::BarnGet
        } else {
            Stat::BarnGetFail
        };
        cpu.stats.count(stat);
        got
    }

    /// Past the sheaves: in 6.18 from the CPU's slab, in 7.0 from the slabs of the nodes.
    #[cold]
    #[inline(never)]
    fn alloc_below<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if self.rules.cpu_slabs {
            return self.slub.alloc_one(env, node);
        }
        let _pass = env.pages.gate().enter(env.pages.machine());
        self.alloc_from_slabs(env, node)
    }

    /// One object from a node's list or a new slab. The gate has been entered.
    pub(super) fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        let nodes = machine.topology().nodes;
        if env.cache.has_deferred() {
            self.slub.settle_deferred(env, None);
        }
        let shared = &env.cache.shared_stats;
        shared.count(Stat::AllocSlowpath);
        let wanted = node.unwrap_or_else(|| machine.current_node());
        if let Some(object) = self.slub.alloc_one_from_node(env, wanted) {
            return Some(object);
        }
        let mut stats = Stats::default();
        if let Some(node) = node
            && nodes > 1
        {
            let pages = |order| slabs::block_on(env, order, node);
            let object = self.slub.alloc_one_from_new(env, pages, &mut stats);
            if object.is_some() {
                shared.add(&stats);
                return object;
            }
        }
        if nodes > 1 && self.slub.remote.looks_at_other_nodes() {
            let others = (1..nodes).map(|i| NodeId((wanted.0 + i) % nodes));
            let found = others
                .filter(|other| self.can_spare(env, *other))
                .find_map(|other| self.slub.alloc_one_from_node(env, other));
            if found.is_some() {
                return found;
            }
        }
        let pages = |order| slabs::block(env, order, node);
        let object = self.slub.alloc_one_from_new(env, pages, &mut stats);
        shared.add(&stats);
        object
    }

    /// Whether a node has so many partial slabs that others may take of them.
    fn can_spare<M: Machine>(&self, env: Env<'_, M>, node: NodeId) -> bool {
        let partial = &self.slub.nodes[node.0 as usize].partial;
        let list = partial.try_lock(env.pages.machine());
        list.is_some_and(|list| list.len() > self.slub.min_partial.load(Ordering::Relaxed))
    }

    /// All slots or none (facts 6.6): from the sheaves as far as they and the barn reach, the rest
    /// from the slabs.
    #[inline]
    pub(super) fn alloc_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> bool {
        if env.cache.flags().debug() {
            return false;
        }
        let machine = env.pages.machine();
        let mut filled = 0;
        if node.is_none() && self.capacity() > 0 {
            let popped = self
                .cpu
                .try_with(machine, |cpu, _| cpu.pop_many(env, slots));
            filled = popped.unwrap_or(0);
        }
        filled == slots.len() || self.alloc_rest(env, node, slots, filled)
    }

    /// Fills the slots behind the first `filled` ones, or gives these back.
    #[inline(never)]
    fn alloc_rest<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
        mut filled: usize,
    ) -> bool {
        if node.is_none() && self.capacity() > 0 {
            let taken = self.cpu.try_with(env.pages.machine(), |cpu, id| {
                self.alloc_many_on_cpu(env, cpu, id, &mut slots[filled..])
            });
            if taken.is_none() {
                env.cache.shared_stats.count(Stat::CpuSlotBusy);
            }
            filled += taken.unwrap_or(0);
        }
        filled += self.alloc_many_below(env, node, &mut slots[filled..]);
        // What is missing now is not to be had one by one either.
        slabs::fill_or_undo(
            slots,
            filled,
            || None,
            |objects| {
                // SAFETY: the objects were allocated above and nobody has seen them.
                unsafe { self.free_many(env, objects) }
            },
        )
    }

    fn alloc_many_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let machine = env.pages.machine();
        let node = machine.node_of_cpu(id);
        let mut filled = 0;
        while filled < slots.len() {
            if cpu.is_empty() && !self.swap_for_objects(env, cpu, node) {
                break;
            }
            filled += cpu.pop_many(env, &mut slots[filled..]);
        }
        filled
    }

    /// Fills slots from the front past the sheaves. Returns how many were filled.
    fn alloc_many_below<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        if slots.is_empty() {
            return 0;
        }
        let machine = env.pages.machine();
        if self.rules.cpu_slabs {
            return match self.slub.alloc_many(env, node, slots) {
                true => slots.len(),
                false => 0,
            };
        }
        let _pass = env.pages.gate().enter(machine);
        if let Some(node) = node {
            return slots
                .iter_mut()
                .map_while(|slot| {
                    *slot = self.alloc_from_slabs(env, Some(node));
                    *slot
                })
                .count();
        }
        let mut stats = Stats::default();
        let local = machine.current_node();
        let filled = self.fill(env, slots, local, &mut stats);
        stats.count_by(Stat::AllocSlowpath, filled as u64);
        env.cache.shared_stats.add(&stats);
        filled
    }
}
