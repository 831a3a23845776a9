//! Allocation: the fast path, then the refill, then the path without a CPU's slot.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::slab::LockedSlab;
use super::types::{CpuQueue, Slubq};
use crate::design::Env;
use crate::machine::{CpuId, Machine, NodeId};
use crate::slabs;
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;

/// Objects that a refill brings at most to a queue that was not used since its last expiry.
const IDLE_REFILL: u32 = 16;

impl Slubq {
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
            // SAFETY: `cpu` is a slot of the per-CPU range with a `CpuQueue` (I3).
            return unsafe { machine.percpu_pop_stack::<CpuQueue>(self.cpu.slot0()) };
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
        if env.cache.flags.debug() {
            return None;
        }
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
        cpu: &mut CpuQueue,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        if (node.is_none() || self.matches(env, cpu, node))
            && let Some(object) = cpu.pop(machine)
        {
            return Some(object);
        }
        self.alloc_slow(env, cpu, id, node)
    }

    fn matches<M: Machine>(&self, env: Env<'_, M>, cpu: &CpuQueue, node: Option<NodeId>) -> bool {
        let Some(wanted) = node else { return true };
        let newest = cpu.newest().and_then(|object| env.pages.pfn_of(object));
        newest.is_none_or(|pfn| env.pages.node_of_page(pfn) == wanted)
    }

    /// The queue is empty, or of the wrong node.
    #[cold]
    #[inline(never)]
    fn alloc_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.has_deferred() {
            self.settle_deferred(env, Some(&mut cpu.stats));
        }
        let idle = cpu.is_idle();
        cpu.stats.count(Stat::AllocSlowpath);
        let own = env.pages.machine().node_of_cpu(id);
        if let Some(wanted) = node
            && wanted != own
            && self.alien_queue_size.load(Ordering::Relaxed) > 0
        {
            return self.alloc_alien(env, cpu, own, wanted);
        }
        if cpu.objects() > 0 {
            // The patches keep one node per queue: another wish empties it.
            cpu.stats.count(Stat::QueueFlush);
            self.drain(env, cpu, cpu.objects());
        }
        if cpu.queue == 0 && !self.adopt_config(env, cpu, id) {
            return None;
        }
        let batch = self.batch.load(Ordering::Relaxed).min(cpu.queue);
        let batch = if idle { batch.min(IDLE_REFILL) } else { batch };
        if node.is_some() || !self.pull_shared(env, cpu, own, batch) {
            self.refill(env, cpu, node, batch);
        }
        cpu.take_newest(env.pages.machine())
    }

    /// Gives a CPU the configured queue; `false` if the lock on it is re-entered.
    pub(super) fn adopt_config<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
    ) -> bool {
        let Some(config) = self.config.lock(env.pages.machine()) else {
            return false;
        };
        cpu.adopt::<M>(&config, id);
        true
    }

    /// Brings up to a batch of objects into an empty queue. Each slab's portion lies above the one
    /// before, with its lowest address on top, so the slab found last is popped first.
    fn refill<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        node: Option<NodeId>,
        batch: u32,
    ) {
        let machine = env.pages.machine();
        let wanted = node.unwrap_or_else(|| machine.current_node());
        let mut have = 0;
        while have < batch {
            let found = self.find_partial(env, wanted, Some(&mut cpu.stats));
            let Some(locked) = found.or_else(|| self.lock_new(env, node, cpu)) else {
                break;
            };
            let portion = locked.free().min(batch - have);
            let mut at = have + portion;
            let room = cpu.room(batch);
            have += locked.take(self.size, portion, |object| {
                at -= 1;
                room[at as usize] = MaybeUninit::new(object);
            });
            self.put_partial(env, locked);
        }
        cpu.set_filled(env.pages.machine(), have);
    }

    fn lock_new<'a, M: Machine>(
        &self,
        env: Env<'a, M>,
        node: Option<NodeId>,
        cpu: &mut CpuQueue,
    ) -> Option<LockedSlab<'a, M>> {
        if self.lists_reentered(env) {
            return None;
        }
        let slab = self.new_slab(env, node, Some(&mut cpu.stats))?;
        LockedSlab::lock(env, slab)
    }

    /// The CPU's slot is held by somebody else: one object from a partial or new slab.
    #[cold]
    #[inline(never)]
    fn alloc_without_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let _pass = env.pages.gate().enter(env.pages.machine());
        env.cache.shared_stats.count(Stat::CpuSlotBusy);
        self.alloc_from_slabs(env, node)
    }

    /// One object from a node's list or a new slab. The gate has been entered.
    pub(super) fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if env.cache.has_deferred() {
            self.settle_deferred(env, None);
        }
        env.cache.shared_stats.count(Stat::AllocSlowpath);
        self.take_one(env, node, None)
    }

    /// One object from a node's list or a new slab.
    pub(super) fn take_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        mut stats: Option<&mut Stats>,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        let wanted = node.unwrap_or_else(|| machine.current_node());
        let locked = match self.find_partial(env, wanted, stats.as_deref_mut()) {
            Some(locked) => locked,
            None if self.lists_reentered(env) => return None,
            None => LockedSlab::lock(env, self.new_slab(env, node, stats)?)?,
        };
        let mut taken = None;
        locked.take(self.size, 1, |object| taken = Some(object));
        self.put_partial(env, locked);
        taken
    }

    /// Fills slots with the CPU's slot held, as many as memory allows, and returns how many. Each
    /// run of entries is copied and counted at once.
    fn fill_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let mut filled = 0;
        while filled < slots.len() {
            if node.is_none() {
                filled += cpu.pop_many(env, &mut slots[filled..]);
            }
            let Some(slot) = slots.get_mut(filled) else {
                break;
            };
            let object = if node.is_none() {
                self.alloc_slow(env, cpu, id, node)
            } else {
                self.alloc_on_cpu(env, cpu, id, node)
            };
            if object.is_none() {
                break;
            }
            *slot = object;
            filled += 1;
        }
        filled
    }

    /// All slots or none. What the queue has needs no more than a copy.
    #[inline]
    pub(super) fn alloc_many<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> bool {
        if env.cache.flags.debug() {
            return false;
        }
        let machine = env.pages.machine();
        let mut filled = 0;
        if node.is_none() {
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
