//! Allocation: the fast path, then the refill, then the path without a CPU's slot.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::partial::{LockedNode, Room};
use super::types::{CpuArray, Slab};
use crate::design::Env;
use crate::machine::{CpuId, Machine, NodeId};
use crate::page::Pfn;
use crate::slabs;
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;

impl Slab {
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
            // SAFETY: `cpu` is a slot of the per-CPU range with a `CpuArray` (I3).
            return unsafe { machine.percpu_pop_stack::<CpuArray>(self.cpu.slot0()) };
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
        let machine = env.pages.machine();
        let allocated = self
            .cpu
            .try_with(machine, |cpu, id| self.alloc_on_cpu(env, cpu, id, node));
        match allocated {
            Some(object) => object,
            None => self.alloc_without_slot(env, node),
        }
    }

    /// One object with the CPU's slot held.
    #[inline(always)]
    fn alloc_on_cpu<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        if (node.is_none() || self.matches(env, cpu, node))
            && let Some(object) = cpu.queue.pop(machine)
        {
            return Some(object);
        }
        self.alloc_slow(env, cpu, id, node)
    }

    fn matches<M: Machine>(&self, env: Env<'_, M>, cpu: &CpuArray, node: Option<NodeId>) -> bool {
        let Some(wanted) = node else { return true };
        let newest = cpu.queue.newest();
        newest.is_some_and(|object| self.node_of(env, object) == wanted)
    }

    /// The array is empty, or of the wrong node.
    #[cold]
    #[inline(never)]
    fn alloc_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.flags().debug() {
            return None;
        }
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        let local = env.pages.machine().node_of_cpu(id);
        let past_array = match node {
            Some(node) if node != local || cpu.queue.objects() > 0 => Some(node),
            _ => None,
        };
        let object = match past_array {
            Some(node) => {
                stats.count(Stat::NodeAllocs);
                self.take_one(env, node, &mut stats)
            }
            None => {
                self.refill(env, cpu, id, local, &mut stats);
                cpu.queue.take_newest(env.pages.machine())
            }
        };
        let through_array = object.is_some() && past_array.is_none();
        let object =
            object.or_else(|| self.take_of_any_node(env, node.unwrap_or(local), &mut stats));
        cpu.queue.stats.add(&stats);
        if through_array {
            cpu.queue.stats.count(Stat::AllocSlowpath);
        } else {
            cpu.count_past_array();
        }
        object
    }

    /// Gives a CPU the configured array; `false` if the lock on it is re-entered.
    pub(super) fn adopt_config<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
    ) -> bool {
        let Some(config) = self.config.lock(env.pages.machine()) else {
            return false;
        };
        cpu.queue.adopt::<M>(&config, id);
        true
    }

    /// Brings up to a batch of objects into an empty array (`cache_alloc_refill()`).
    fn refill<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        local: NodeId,
        stats: &mut Stats,
    ) {
        if cpu.queue.queue == 0 && !self.adopt_config(env, cpu, id) {
            return;
        }
        self.make_shared(env, local);
        let mut batch = self.batch.load(Ordering::Relaxed).max(1);
        if !cpu.touched() {
            batch = batch.min(self.era.run.untouched_batch);
        }
        let before = cpu.queue.objects();
        let room = cpu.queue.vacant(batch);
        let filled = self.fill(env, local, room, stats);
        cpu.queue.set_filled(env.pages.machine(), before + filled);
    }

    /// Fills places with objects of a node, which grows if it has none. Says how many.
    fn fill<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        room: Room<'_>,
        stats: &mut Stats,
    ) -> u32 {
        if room.is_empty() {
            return 0;
        }
        let beside = &self.beside[node.0 as usize];
        let look = !self.era.run.looks_before_lock
            || beside.free_objects.load(Ordering::Relaxed) > 0
            || beside.shared_avail.load(Ordering::Relaxed) > 0;
        if look {
            let Some(mut lists) = self.lock_node(env, node) else {
                return 0;
            };
            let drawn = self.draw(env, &mut lists, room, true, stats);
            if drawn > 0 {
                return drawn;
            }
        }
        let Some((mut lists, slab)) = self.grow(env, node, false, stats) else {
            return 0;
        };
        self.draw_new(env, &mut lists, slab, room, true, stats)
    }

    /// A new slab of a node, or of another one if `anywhere`, and the lists of its node.
    fn grow<'a, M: Machine>(
        &'a self,
        env: Env<'a, M>,
        node: NodeId,
        anywhere: bool,
        stats: &mut Stats,
    ) -> Option<(LockedNode<'a, M>, Pfn)> {
        let slab = self.new_slab(env, node, anywhere, stats)?;
        let lists = self.lock_node(env, env.pages.node_of_page(slab));
        if lists.is_none() {
            stats.count(Stat::FreeSlab);
            self.discard(env, slab);
        }
        lists.map(|lists| (lists, slab))
    }

    /// One object of a node's slabs, which grows if it has none (`____cache_alloc_node()`).
    fn take_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        stats: &mut Stats,
    ) -> Option<NonNull<u8>> {
        if let Some(object) = self.take_listed(env, node, stats)? {
            return Some(object);
        }
        self.take_new(env, node, false, stats)
    }

    /// One object of a new slab.
    fn take_new<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        anywhere: bool,
        stats: &mut Stats,
    ) -> Option<NonNull<u8>> {
        let (mut lists, slab) = self.grow(env, node, anywhere, stats)?;
        let mut room = [MaybeUninit::uninit()];
        let drawn = self.draw_new(env, &mut lists, slab, &mut room, false, stats);
        Self::only(drawn, room)
    }

    /// One object of a node's slabs, `Some(None)` if it has none. `None` if its lock is re-entered
    /// or there is no such node.
    #[expect(clippy::option_option, reason = "two ways to have none")]
    fn take_listed<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        stats: &mut Stats,
    ) -> Option<Option<NonNull<u8>>> {
        let mut lists = self.lock_node(env, node)?;
        let mut room = [MaybeUninit::uninit()];
        let drawn = self.draw(env, &mut lists, &mut room, false, stats);
        Some(Self::only(drawn, room))
    }

    fn only(drawn: u32, room: [MaybeUninit<NonNull<u8>>; 1]) -> Option<NonNull<u8>> {
        // SAFETY: `draw` and `draw_new` have written as many places as they say.
        (drawn == 1).then(|| unsafe { room[0].assume_init() })
    }

    /// One object of any node's slabs, or of a new slab of any node (`fallback_alloc()`): the wanted
    /// node cannot grow.
    fn take_of_any_node<M: Machine>(
        &self,
        env: Env<'_, M>,
        wanted: NodeId,
        stats: &mut Stats,
    ) -> Option<NonNull<u8>> {
        let nodes = env.pages.machine().topology().nodes;
        if !self.numa || wanted.0 >= nodes {
            return None;
        }
        for distance in 0..nodes {
            let node = NodeId((wanted.0 + distance) % nodes);
            if let Some(object) = self.take_listed(env, node, stats)? {
                return Some(object);
            }
        }
        self.take_new(env, wanted, true, stats)
    }

    /// The CPU's slot is held by somebody else: one object from the slabs.
    #[cold]
    #[inline(never)]
    fn alloc_without_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.flags().debug() {
            return None;
        }
        let _pass = env.pages.gate().enter(env.pages.machine());
        env.cache.shared_stats.count(Stat::CpuSlotBusy);
        self.alloc_from_slabs(env, node)
    }

    /// One object from a node's lists or a new slab. The gate has been entered.
    pub(super) fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        let mut stats = Stats::default();
        if env.cache.has_deferred() {
            self.settle_deferred(env, &mut stats);
        }
        stats.count(Stat::AllocSlowpath);
        let wanted = node.unwrap_or_else(|| machine.current_node());
        let object = self
            .take_one(env, wanted, &mut stats)
            .or_else(|| self.take_of_any_node(env, wanted, &mut stats));
        env.cache.shared_stats.add(&stats);
        object
    }

    /// Fills slots with the CPU's slot held, as many as memory allows, and returns how many. Each
    /// run of entries is copied and counted at once.
    fn fill_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuArray,
        id: CpuId,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let mut filled = 0;
        while filled < slots.len() {
            if node.is_none() {
                filled += cpu.queue.pop_many(env, &mut slots[filled..]);
            }
            let Some(slot) = slots.get_mut(filled) else {
                break;
            };
            *slot = self.alloc_on_cpu(env, cpu, id, node);
            if slot.is_none() {
                break;
            }
            filled += 1;
        }
        filled
    }

    /// All slots or none. What the array has needs no more than a copy.
    #[inline]
    pub(super) fn alloc_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> bool {
        let machine = env.pages.machine();
        let mut filled = 0;
        if node.is_none() {
            let popped = self
                .cpu
                .try_with(machine, |cpu, _| cpu.queue.pop_many(env, slots));
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
        filled: usize,
    ) -> bool {
        let rest = self.cpu.try_with(env.pages.machine(), |cpu, id| {
            self.fill_slots(env, cpu, id, node, &mut slots[filled..])
        });
        let filled = filled + rest.unwrap_or(0);
        let alloc = || self.alloc_one(env, node);
        slabs::fill_or_undo(slots, filled, alloc, |objects| {
            // SAFETY: the objects were allocated above and nobody has seen them.
            unsafe { self.free_many(env, objects) }
        })
    }
}
