//! Queues that CPUs share: one per node for its own objects, and one per pair of nodes, for
//! objects on one that CPUs of the other free. There are none until `shared_queue_size` or
//! `alien_queue_size` is set.

use core::ptr::NonNull;

use super::stats::Stat;
use super::types::{CpuQueue, Slubq};
use crate::array::Array;
use crate::design::{Busy, Env, FreeError};
use crate::machine::{Guard, LockClass, MAX_NODES, Machine, NodeId, SpinLock};
use crate::page::Pfn;
use crate::sync::Ordering;

/// The queues of all nodes; in the heap's structures, made when a size is first set.
pub(super) struct SharedQueues {
    shared: [SpinLock<Array>; MAX_NODES],
    /// By the node of the CPU, then by the node of the objects.
    alien: [[SpinLock<Array>; MAX_NODES]; MAX_NODES],
}

fn queue() -> SpinLock<Array> {
    SpinLock::new(LockClass::SharedQueue, Array::NONE)
}

/// Queues that a size is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Shared,
    Alien,
}

impl SharedQueues {
    /// All queues of a kind that this machine uses.
    fn of<M: Machine>(
        &self,
        env: Env<'_, M>,
        kind: Kind,
    ) -> impl Iterator<Item = &SpinLock<Array>> {
        let nodes = env.machine().topology().nodes as usize;
        let alien = self.alien[..nodes]
            .iter()
            .enumerate()
            .flat_map(move |(own, to)| {
                let others = to[..nodes].iter().enumerate();
                others.filter(move |(other, _)| *other != own)
            });
        let alien = alien.filter(move |_| kind == Kind::Alien);
        let shared = self.shared[..nodes].iter();
        let shared = shared.filter(move |_| kind == Kind::Shared);
        shared.chain(alien.map(|(_, queue)| queue))
    }
}

impl Slubq {
    fn shared_queues(&self) -> Option<&SharedQueues> {
        // Acquire: pairs with the Release by which `make_shared_queues` shows them.
        let queues = self.shared.load(Ordering::Acquire);
        // SAFETY: null or made by `make_shared_queues`, and kept until the cache is destroyed.
        unsafe { queues.as_ref() }
    }

    fn make_shared_queues<M: Machine>(&self, env: Env<'_, M>) -> Option<&SharedQueues> {
        if let Some(queues) = self.shared_queues() {
            return Some(queues);
        }
        let (machine, bytes) = (env.machine(), size_of::<SharedQueues>());
        let block = env.pages().meta().alloc(machine, bytes)?;
        let queues = block.cast::<SharedQueues>();
        let made = SharedQueues {
            shared: core::array::from_fn(|_| queue()),
            alien: core::array::from_fn(|_| core::array::from_fn(|_| queue())),
        };
        // SAFETY: the block is fresh, large enough and aligned to at least 64 bytes (Region).
        unsafe { queues.write(made) };
        // Release: shows the queues' contents with them. Relaxed on failure: loaded again below.
        let shown = self.shared.compare_exchange(
            core::ptr::null_mut(),
            queues.as_ptr(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if shown.is_err() {
            // SAFETY: taken above for these bytes, and no other code has seen it.
            unsafe { env.system.free_meta(block, bytes) };
        }
        self.shared_queues()
    }

    /// Gives all queues of a kind another size. `false` if there is no room: they have none then.
    pub(super) fn resize_shared<M: Machine>(&self, env: Env<'_, M>, kind: Kind, size: u32) -> bool {
        let _pass = env.enter();
        let configured = match kind {
            Kind::Shared => &self.shared_queue_size,
            Kind::Alien => &self.alien_queue_size,
        };
        if size == 0 && self.shared_queues().is_none() {
            return true;
        }
        let Some(queues) = self.make_shared_queues(env) else {
            return false;
        };
        let resized = queues
            .of(env, kind)
            .all(|queue| self.resize_queue(env, queue, size));
        if !resized {
            for queue in queues.of(env, kind) {
                self.resize_queue(env, queue, 0);
            }
        }
        configured.store(if resized { size } else { 0 }, Ordering::Relaxed);
        resized
    }

    fn resize_queue<M: Machine>(
        &self,
        env: Env<'_, M>,
        queue: &SpinLock<Array>,
        size: u32,
    ) -> bool {
        let (machine, meta) = (env.machine(), env.pages().meta());
        let bytes = |size: u32| size as usize * size_of::<usize>();
        let mut new = Array::NONE;
        if size > 0 {
            let Some(block) = meta.alloc(machine, bytes(size)) else {
                return false;
            };
            // SAFETY: the block has this many bytes and is this queue's until the next resize.
            new = unsafe { Array::new(block, 0, size) };
        }
        let swapped = queue.lock(machine).map(|mut queue| {
            self.drain_shared(env, &mut queue, u32::MAX);
            core::mem::replace(&mut *queue, new)
        });
        // Without the lock, which a handler may interrupt, the new entries are lost.
        let old = swapped.unwrap_or(Array::NONE);
        let bytes = bytes(old.limit());
        if let Some(block) = old.into_block() {
            // SAFETY: an earlier call took the old entries for these bytes; no CPU can reach them any more.
            unsafe { env.system.free_meta(block, bytes) };
        }
        true
    }

    /// Returns the memory of all shared queues.
    ///
    /// # Safety
    ///
    /// The cache has no user left.
    pub(super) unsafe fn free_shared<M: Machine>(&self, env: Env<'_, M>) {
        for kind in [Kind::Shared, Kind::Alien] {
            self.resize_shared(env, kind, 0);
        }
        let queues = self.shared.swap(core::ptr::null_mut(), Ordering::Acquire);
        let Some(block) = NonNull::new(queues.cast::<u8>()) else {
            return;
        };
        // SAFETY: `make_shared_queues` took the block; the cache has no user left, as the caller says.
        unsafe { env.system.free_meta(block, size_of::<SharedQueues>()) };
    }

    /// Gives the oldest entries of a shared queue, whose lock is held, back to their slabs.
    fn drain_shared<M: Machine>(&self, env: Env<'_, M>, queue: &mut Array, n: u32) {
        let machine = env.machine();
        let stats = self.drain_objects(env, queue.oldest(machine, n));
        env.cache.shared_stats.add(&stats);
        queue.forget_oldest(machine, n);
    }

    /// Drains all shared queues.
    pub(super) fn flush_shared<M: Machine>(&self, env: Env<'_, M>) {
        let Some(queues) = self.shared_queues() else {
            return;
        };
        for kind in [Kind::Shared, Kind::Alien] {
            for queue in queues.of(env, kind) {
                if let Some(mut queue) = queue.lock(env.machine()) {
                    self.drain_shared(env, &mut queue, u32::MAX);
                }
            }
        }
    }

    /// Objects in all shared queues.
    pub(super) fn shared_objects<M: Machine>(&self, env: Env<'_, M>) -> u64 {
        let kinds = [Kind::Shared, Kind::Alien].into_iter();
        let queues = self.shared_queues().into_iter();
        queues
            .flat_map(|queues| kinds.clone().flat_map(move |kind| queues.of(env, kind)))
            .filter_map(|queue| queue.lock(env.machine()))
            .map(|queue| u64::from(queue.avail()))
            .sum()
    }

    /// Fills an empty CPU queue from its node's shared queue with at most `batch` objects; whether
    /// it got any.
    pub(super) fn pull_shared<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        node: NodeId,
        batch: u32,
    ) -> bool {
        if self.shared_queue_size.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let Some(queues) = self.shared_queues() else {
            return false;
        };
        let Some(mut queue) = lock_used(env, &queues.shared[node.0 as usize]) else {
            return false;
        };
        let pulled = queue.give(env.machine(), &mut cpu.stack, batch);
        drop(queue);
        cpu.stats.count_by(Stat::AllocShared, u64::from(pulled));
        pulled > 0
    }

    /// True if an object is in a shared or alien queue.
    pub(super) fn is_shared<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<bool, Busy> {
        let Some(queues) = self.shared_queues() else {
            return Ok(false);
        };
        for kind in [Kind::Shared, Kind::Alien] {
            for queue in queues.of(env, kind) {
                let queue = queue.lock(env.machine()).ok_or(Busy)?;
                if queue.filled().contains(&object) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Moves the oldest entries of a CPU queue to its node's shared queue, at most `batch`, and
    /// returns how many found room.
    pub(super) fn push_shared<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        node: NodeId,
        batch: u32,
    ) -> u32 {
        if self.shared_queue_size.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let Some(queues) = self.shared_queues() else {
            return 0;
        };
        let Some(mut queue) = lock_used(env, &queues.shared[node.0 as usize]) else {
            return 0;
        };
        let machine = env.machine();
        let pushed = queue.append(machine, cpu.stack.oldest(machine, batch));
        drop(queue);
        cpu.stack.forget_oldest(machine, pushed);
        cpu.stats.count_by(Stat::FreeShared, u64::from(pushed));
        pushed
    }

    /// An object of another node for a CPU of `own`: from their alien queue, or straight from a
    /// slab.
    pub(super) fn alloc_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        own: NodeId,
        wanted: NodeId,
    ) -> Option<NonNull<u8>> {
        let queues = self.shared_queues()?;
        let queue = queues.alien[own.0 as usize].get(wanted.0 as usize)?;
        let taken = lock_used(env, queue).and_then(|mut queue| queue.pop(env.machine()));
        if taken.is_some() {
            cpu.stats.count(Stat::AllocAlien);
            return taken;
        }
        cpu.stats.count(Stat::AllocDirect);
        self.take_one(env, Some(wanted), Some(&mut cpu.stats))
    }

    /// Frees an object that is on another node than the CPU: to their alien queue, which gives a
    /// batch back first if it is full, or straight to its slab.
    pub(super) fn free_alien<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut CpuQueue,
        own: NodeId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let theirs = env.pages().node_of_page(slab);
        let queue = self
            .shared_queues()
            .map(|queues| &queues.alien[own.0 as usize][theirs.0 as usize]);
        if let Some(mut queue) = queue.and_then(|queue| lock_used(env, queue)) {
            if queue.newest() == Some(object) {
                return Err(FreeError::DoubleFree);
            }
            if !queue.has_room() {
                let batch = self.batch.load(Ordering::Relaxed).max(1);
                self.drain_shared(env, &mut queue, batch);
            }
            if queue.push(env.machine(), object) {
                cpu.stats.count(Stat::FreeSlowpath);
                cpu.stats.count(Stat::FreeAlien);
                return Ok(());
            }
        }
        if !self.free_to_slab(env, slab, &[object], Some(&mut cpu.stats)) {
            return Err(FreeError::DoubleFree);
        }
        cpu.stats.count(Stat::FreeSlowpath);
        cpu.stats.count(Stat::FreeDirect);
        Ok(())
    }

    /// Drains those queues of a node that were not used since the last time.
    pub(super) fn expire_shared<M: Machine>(&self, env: Env<'_, M>, node: NodeId) {
        let Some(queues) = self.shared_queues() else {
            return;
        };
        let own = node.0 as usize;
        let shared = core::iter::once(&queues.shared[own]);
        for queue in shared.chain(&queues.alien[own]) {
            let Some(mut queue) = queue.lock(env.machine()) else {
                continue;
            };
            if !queue.touched {
                self.drain_shared(env, &mut queue, u32::MAX);
            }
            queue.touched = false;
        }
    }
}

/// Locks a queue to use it.
fn lock_used<'a, M: Machine>(
    env: Env<'a, M>,
    queue: &'a SpinLock<Array>,
) -> Option<Guard<'a, M, Array>> {
    let mut queue = queue.lock(env.machine())?;
    queue.touched = true;
    Some(queue)
}
