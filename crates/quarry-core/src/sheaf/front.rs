//! The CPU's sheaves: what calls do with them before main sheaves are replaced, and where they go past
//! them.

use core::ptr::NonNull;

use super::Kind;
use super::free::{Aside, REMOTE_BATCH};
use super::geometry::BulkOrder;
use super::stats::{Stat, Stats};
use super::types::{CpuSheaves, Sheaves};
use crate::design::{Allocate, Env, Free, FreeError};
use crate::era::Era;
use crate::front::{self, CpuFront, CpuKept, StackFront};
use crate::machine::{CpuId, Machine, NodeId, PerCpu, Work};
use crate::page::Pfn;
use crate::protection::Protections;
use crate::queue::CpuStack;
use crate::slabs;

impl<K: Kind> StackFront for Sheaves<K> {
    type State = CpuSheaves;

    const STACKS_STAY: bool = true;

    #[inline(always)]
    fn stacks(&self) -> &PerCpu<CpuSheaves> {
        &self.cpu
    }

    #[inline(always)]
    fn stacks_any_node(&self) -> bool {
        self.one_node
    }

    #[inline(always)]
    fn stacks_node_of<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        self.seems_local(env, object)
    }

    /// A sheaf may hold objects of other nodes, which only the slow path looks for.
    #[inline(always)]
    fn serves<M: Machine>(&self, _: Env<'_, M>, _: &CpuSheaves, _: NodeId) -> bool {
        false
    }
}

impl<K: Kind> CpuFront for Sheaves<K> {
    const PASSES: bool = true;

    /// The local lock is tried, which keeps the thread on its CPU; interrupts stay on.
    #[inline]
    fn protections(_: Era) -> Protections {
        Protections::all(Work::Preempt)
    }

    fn is_on(&self) -> bool {
        self.capacity() > 0
    }

    fn alloc_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.machine();
        let local = machine.node_of_cpu(id);
        if node.is_some_and(|wanted| wanted != local) {
            self.count_mismatch(cpu);
            return None;
        }
        if cpu.stack.is_empty() && !self.replace_empty_main(env, cpu, local) {
            return None;
        }
        // A sheaf can hold objects of other nodes: refills take them when theirs has none.
        if node.is_some()
            && cpu
                .stack
                .newest()
                .and_then(|o| Self::node_of_object(env, o))
                != node
        {
            self.count_mismatch(cpu);
            return None;
        }
        cpu.pop(machine)
    }

    /// Into the main sheaf, once there is room in it; an object of another node goes past the sheaves.
    unsafe fn free_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        let make_room = |cpu: &mut CpuSheaves, node| self.replace_full_main(env, cpu, node);
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.push_behind(env, cpu, id, slab, object, make_room) }
    }

    fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.machine();
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

    unsafe fn free_to_its_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.slub.free_to_its_slab(env, slab, object) }
    }

    /// From the CPU's sheaves and the barn, until these are empty (facts 6.6).
    fn fill_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuSheaves,
        id: CpuId,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        if node.is_some() {
            return 0;
        }
        let local = env.machine().node_of_cpu(id);
        let mut filled = 0;
        while filled < slots.len() {
            if cpu.stack.is_empty() && !self.swap_for_objects(env, cpu, local) {
                break;
            }
            filled += cpu.pop_many(env, &mut slots[filled..]);
        }
        filled
    }

    /// Objects of other nodes go to their slabs, a portion at a time or all together. The others go to the
    /// sheaves, and to their slabs from the first one without room on (facts 6.6).
    unsafe fn empty_held<M: Machine>(
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
            let local = |slab| self.takes(env, id, slab);
            match slab {
                Err(error) => result = result.and(Err(error)),
                Ok(slab) if !local(slab) => {
                    if self.rules.bulk_free == BulkOrder::AsMet {
                        // SAFETY: the caller vouches that the objects have no user left.
                        result = result.and(unsafe { self.set_aside(env, slab, slot, &mut aside) });
                    }
                }
                Ok(_) if !has_room => {
                    // SAFETY: the caller vouches that the objects have no user left.
                    result = result.and(unsafe { self.free_batch(env, &mut slots[at..]) });
                    break;
                }
                Ok(slab) => {
                    // SAFETY: the caller vouches that the objects have no user left.
                    let pushed =
                        unsafe { self.push_or_make_room(env, cpu, id, slab, object, make_room) };
                    match pushed {
                        Ok(true) => *slot = None,
                        Ok(false) => {
                            has_room = false;
                            continue;
                        }
                        Err(error) => result = result.and(Err(error)),
                    }
                }
            }
            at += 1;
        }
        if self.rules.bulk_free == BulkOrder::LocalFirst && !self.one_node {
            let no_others = result.is_ok();
            // SAFETY: the caller vouches that the objects have no user left.
            result = result.and(unsafe { self.free_remote(env, id, slots, no_others, &mut aside) });
        }
        // SAFETY: what is set aside was given up and checked.
        result.and(unsafe { self.free_batch(env, &mut aside.objects[..aside.count]) })
    }

    /// In 6.18 from the CPU's slab, in 7.0 from the slabs of the nodes.
    fn alloc_past<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>> {
        if self.rules.cpu_slabs {
            return self.slub.alloc(env, node);
        }
        self.alloc_direct(env, node)
    }

    /// In 6.18 to the CPU's slab if it is that one, else to the object's slab.
    unsafe fn free_past<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        if self.rules.cpu_slabs {
            // SAFETY: the caller vouches that the object has no user left.
            return unsafe { self.slub.free_slow(env, object) };
        }
        let _pass = env.enter();
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_to_its_slab(env, slab, object) }
    }

    fn fill_past<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        if slots.is_empty() {
            return 0;
        }
        if self.rules.cpu_slabs {
            return match front::alloc_many(&self.slub, env, node, slots) {
                true => slots.len(),
                false => 0,
            };
        }
        let machine = env.machine();
        let _pass = env.enter();
        if let Some(node) = node {
            return slabs::fill_each(slots, || self.alloc_from_slabs(env, Some(node)));
        }
        let mut stats = Stats::default();
        let local = machine.current_node();
        let filled = self.fill(env, slots, local, &mut stats);
        stats.count_by(Stat::AllocSlowpath, filled as u64);
        env.cache.shared_stats.add(&stats);
        filled
    }

    unsafe fn empty_past<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let _pass = env.enter();
        let mut result = Ok(());
        for batch in slots.chunks_mut(REMOTE_BATCH) {
            // SAFETY: the caller vouches that the objects have no user left.
            result = result.and(unsafe { self.free_batch(env, batch) });
        }
        result
    }

    unsafe fn defer<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that only readers that run already use the object.
        unsafe { self.defer_free(env, object) }
    }
}

impl<K: Kind> Sheaves<K> {
    fn count_mismatch(&self, cpu: &mut CpuSheaves) {
        if self.rules.counts_node_mismatch {
            cpu.stats.count(Stat::AllocNodeMismatch);
        }
    }
}
