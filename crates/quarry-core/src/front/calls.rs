//! The calls of all designs with per-CPU state, written with the hooks of their fronts.

use core::ptr::NonNull;

use super::CpuFront;
use crate::design::{Allocate, Env, Free, FreeError};
use crate::machine::{CpuId, Machine, NodeId, SlotLock, Work, work};
use crate::page::Pfn;
use crate::slabs;
use crate::stats::Stat;

impl<T: CpuFront> Allocate for T {
    #[inline(always)]
    fn alloc_fast<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>> {
        match node {
            None => self.pop_step(env),
            Some(_) => None,
        }
    }

    #[inline(always)]
    fn alloc_slow<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>> {
        if self.is_on() {
            let held = self.slots().try_with(env.machine(), |cpu, id| {
                // No closure: its captures would be stored before every pop.
                match self.pop_held(env, cpu, node) {
                    None => alloc_behind(self, env, cpu, id, node),
                    object => {
                        Self::protections(env.cache.era).alloc.hit(env.machine());
                        object
                    }
                }
            });
            match held {
                // Without PASSES a miss behind the slot is final: memory is short.
                Some(object) if object.is_some() || !Self::PASSES => return object,
                Some(_) => {}
                // Another context of this CPU has the slot, or this thread was moved: do not wait for it.
                None => count_busy(env),
            }
        }
        alloc_past(self, env, node)
    }

    #[inline]
    fn alloc_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> bool {
        !env.cache.flags.checked() && alloc_many(self, env, node, slots)
    }

    fn alloc_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let _pass = env.enter();
        self.alloc_from_slabs(env, node)
    }
}

impl<T: CpuFront> Free for T {
    #[inline(always)]
    unsafe fn free_fast<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.push_step(env, object) }
    }

    #[inline(always)]
    unsafe fn free_own_fast<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.push_own_step(env, object) }
    }

    fn cpu_stacks(&self) -> Option<NonNull<SlotLock>> {
        self.step_slots()
    }

    #[inline(always)]
    unsafe fn push_to<M: Machine>(
        machine: &M,
        slots: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool {
        // SAFETY: the caller vouches for the slots, and that the object has no user left.
        unsafe { T::push_step_at(machine, slots, object) }
    }

    // Always: the slow path of heaps is this one, though hardened caches call it, too.
    #[inline(always)]
    unsafe fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // `free_fast` has accounted the look at the object's page.
        let slab = slabs::lookup(env, object)?;
        // SAFETY: the caller vouches that the object has no user left.
        if !self.takes_any_node() && unsafe { self.push_local_step(env, object) } {
            return Ok(());
        }
        if self.is_on() {
            let held = self.slots().try_with(env.machine(), |cpu, id| {
                // SAFETY: the caller vouches that the object has no user left.
                unsafe { free_held(self, env, cpu, id, slab, object) }
            });
            match held {
                Some(Ok(false)) if Self::PASSES => {}
                Some(freed) => return freed.map(|_| ()),
                None => count_busy(env),
            }
        }
        // SAFETY: the caller vouches for the object, which the attempt above has not freed.
        unsafe { free_past(self, env, slab, object) }
    }

    #[inline]
    unsafe fn free_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        match env.cache.flags.checked() {
            true => Err(FreeError::Unchecked),
            // SAFETY: the caller vouches that the objects have no user left.
            false => unsafe { free_many(self, env, slots) },
        }
    }

    unsafe fn free_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let _pass = env.enter();
        let slab = slabs::slab_of(env, object)?;
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_to_its_slab(env, slab, object) }
    }

    unsafe fn free_rcu<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that only readers that run already use the object.
        unsafe { self.defer(env, object) }
    }
}

/// [`Allocate::alloc_bulk`] also of hardened caches, whose callers check each object.
#[inline(always)]
pub(crate) fn alloc_many<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    node: Option<NodeId>,
    slots: &mut [Option<NonNull<u8>>],
) -> bool {
    let mut filled = 0;
    // First what the CPU has, as this is inlined; a refill, if needed, is in `alloc_rest`.
    if node.is_none() && front.is_on() {
        let popped = front.slots().try_with(env.machine(), |cpu, _| {
            T::protections(env.cache.era).alloc.bulk(env.machine());
            front.pop_run(env, cpu, slots)
        });
        filled = popped.unwrap_or(0);
    }
    filled == slots.len() || alloc_rest(front, env, node, slots, filled)
}

/// [`Free::free_bulk`] also of hardened caches, whose callers have checked each object.
///
/// # Safety
///
/// The objects have no user left.
#[inline(always)]
pub(crate) unsafe fn free_many<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    slots: &mut [Option<NonNull<u8>>],
) -> Result<(), FreeError> {
    let mut left = 0..slots.len();
    if front.is_on() && front.takes_any_node() {
        let pushed = front.slots().try_with(env.machine(), |cpu, _| {
            T::protections(env.cache.era).free.bulk(env.machine());
            // SAFETY: the caller vouches that the objects have no user left.
            unsafe { front.push_run(env, cpu, slots) }
        });
        left = pushed.unwrap_or(left);
    }
    match slots.get_mut(left) {
        // SAFETY: the caller vouches that the objects have no user left.
        Some(slots) if !slots.is_empty() => unsafe { free_rest(front, env, slots) },
        _ => Ok(()),
    }
}

#[cold]
fn count_busy<M: Machine>(env: Env<'_, M>) {
    env.cache.shared_stats.count(Stat::CpuSlotBusy);
}

#[cold]
#[inline(never)]
fn alloc_behind<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    cpu: &mut T::Cpu,
    id: CpuId,
    node: Option<NodeId>,
) -> Option<NonNull<u8>> {
    if env.cache.flags.debug() {
        return None;
    }
    work(env.machine(), Work::SlowPath);
    T::protections(env.cache.era).alloc.behind(env.machine());
    front.alloc_behind(env, cpu, id, node)
}

/// Frees an object that is in a slab of the cache, with the CPU's slot held.
///
/// # Safety
///
/// The object has no user left.
#[inline(always)]
pub(super) unsafe fn free_held<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    cpu: &mut T::Cpu,
    id: CpuId,
    slab: Pfn,
    object: NonNull<u8>,
) -> Result<bool, FreeError> {
    // SAFETY: the caller vouches that the object has no user left.
    match unsafe { front.push_held(env, cpu, id, slab, object) } {
        Ok(true) => T::protections(env.cache.era).free.hit(env.machine()),
        // SAFETY: the caller vouches for the object, which the attempt above has not freed.
        Ok(false) => return unsafe { free_behind(front, env, cpu, id, slab, object) },
        Err(error) => return Err(error),
    }
    Ok(true)
}

/// # Safety
///
/// The object has no user left.
#[inline(never)]
unsafe fn free_behind<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    cpu: &mut T::Cpu,
    id: CpuId,
    slab: Pfn,
    object: NonNull<u8>,
) -> Result<bool, FreeError> {
    if env.cache.flags.debug() {
        return Err(FreeError::Unchecked);
    }
    work(env.machine(), Work::SlowPath);
    T::protections(env.cache.era).free.behind(env.machine());
    // SAFETY: the caller vouches that the object has no user left.
    unsafe { front.free_behind(env, cpu, id, slab, object) }
}

#[cold]
#[inline(never)]
fn alloc_past<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    node: Option<NodeId>,
) -> Option<NonNull<u8>> {
    if env.cache.flags.debug() {
        return None;
    }
    work(env.machine(), Work::SlowPath);
    front.alloc_past(env, node)
}

/// # Safety
///
/// The object has no user left.
#[cold]
#[inline(never)]
unsafe fn free_past<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    slab: Pfn,
    object: NonNull<u8>,
) -> Result<(), FreeError> {
    if env.cache.flags.debug() {
        return Err(FreeError::Unchecked);
    }
    work(env.machine(), Work::SlowPath);
    // SAFETY: the caller vouches that the object has no user left.
    unsafe { front.free_past(env, slab, object) }
}

/// Fills the slots behind the first `filled` ones, or frees the objects of these.
#[inline(never)]
fn alloc_rest<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    node: Option<NodeId>,
    slots: &mut [Option<NonNull<u8>>],
    mut filled: usize,
) -> bool {
    if front.is_on() {
        let held = front.slots().try_with(env.machine(), |cpu, id| {
            T::protections(env.cache.era).alloc.bulk(env.machine());
            front.fill_held(env, cpu, id, node, &mut slots[filled..])
        });
        match held {
            Some(more) => filled += more,
            None => count_busy(env),
        }
    }
    filled += front.fill_past(env, node, &mut slots[filled..]);
    if filled == slots.len() {
        return true;
    }
    // All or nothing: memory ended before the slots did.
    // SAFETY: the objects were allocated above and given to no user.
    let undone = unsafe { free_many(front, env, &mut slots[..filled]) };
    debug_assert!(undone.is_ok(), "{undone:?}");
    false
}

/// Frees what was not moved to the CPU's state at once.
///
/// # Safety
///
/// The objects have no user left.
#[inline(never)]
unsafe fn free_rest<T: CpuFront, M: Machine>(
    front: &T,
    env: Env<'_, M>,
    slots: &mut [Option<NonNull<u8>>],
) -> Result<(), FreeError> {
    if front.is_on() {
        let held = front.slots().try_with(env.machine(), |cpu, id| {
            T::protections(env.cache.era).free.bulk(env.machine());
            // SAFETY: the caller vouches that the objects have no user left.
            unsafe { front.empty_held(env, cpu, id, slots) }
        });
        match held {
            Some(result) => return result,
            None => count_busy(env),
        }
    }
    // SAFETY: the caller vouches that the objects have no user left.
    unsafe { front.empty_past(env, slots) }
}
