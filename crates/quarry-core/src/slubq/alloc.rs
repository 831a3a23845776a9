//! Allocation behind the CPU's queue: the refill, and objects past it.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::slab::LockedSlab;
use super::stats::{Stat, Stats};
use super::types::{CpuQueue, Slubq};
use crate::design::Env;
use crate::machine::{CpuId, Machine, NodeId};
use crate::sync::Ordering;

/// Objects that a refill brings at most to a queue that was not used since its last expiry.
const IDLE_REFILL: u32 = 16;

impl Slubq {
    /// The queue is empty, or of the wrong node.
    pub(super) fn refill_and_pop<M: Machine>(
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
        let own = env.machine().node_of_cpu(id);
        if let Some(wanted) = node
            && wanted != own
            && self.alien_queue_size.load(Ordering::Relaxed) > 0
        {
            return self.alloc_alien(env, cpu, own, wanted);
        }
        if !cpu.stack.is_empty() {
            // The patches keep one node per queue: another wish empties it.
            cpu.stats.count(Stat::QueueFlush);
            self.drain(env, cpu, cpu.stack.objects());
        }
        if cpu.stack.room() == 0 && !self.adopt_config(env, cpu, id) {
            return None;
        }
        let batch = self.batch.load(Ordering::Relaxed).min(cpu.stack.room());
        let batch = if idle { batch.min(IDLE_REFILL) } else { batch };
        if node.is_some() || !self.pull_shared(env, cpu, own, batch) {
            self.refill(env, cpu, node, batch);
        }
        cpu.stack.pop(env.machine())
    }

    /// Gives a CPU the configured queue; `false` if the lock on it is re-entered.
    pub(super) fn adopt_config<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        id: CpuId,
    ) -> bool {
        let Some(config) = self.config.lock(env.machine()) else {
            return false;
        };
        // SAFETY: the configured memory is that of `alloc_entries`, and the slot is `id`'s.
        unsafe { cpu.adopt::<M>(&config, id) };
        true
    }

    /// Brings up to a batch of objects into an empty queue. Each slab's portion is above the one
    /// before, with its lowest address on top, so the slab found last is popped first.
    fn refill<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        node: Option<NodeId>,
        batch: u32,
    ) {
        let machine = env.machine();
        let wanted = node.unwrap_or_else(|| machine.current_node());
        let mut have = 0;
        while have < batch {
            let found = self.find_partial(env, wanted, Some(&mut cpu.stats));
            let Some(locked) = found.or_else(|| self.lock_new(env, node, cpu)) else {
                break;
            };
            let portion = locked.free().min(batch - have);
            let mut at = have + portion;
            let room = cpu.stack.vacant(batch as usize);
            have += locked.take(self.size, portion, |object| {
                at -= 1;
                room[at as usize] = MaybeUninit::new(object);
            });
            self.put_partial(env, locked);
        }
        // SAFETY: the portions fill all entries below `have`.
        unsafe { cpu.stack.grow(machine, have) };
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

    /// One object from a node's list or a new slab.
    pub(super) fn take_one<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        mut stats: Option<&mut Stats>,
    ) -> Option<NonNull<u8>> {
        let machine = env.machine();
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
}
