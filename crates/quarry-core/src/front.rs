//! The front of a design: what its calls do with the running CPU's state, and when they go past it.
//!
//! ```text
//!  alloc_fast   one step of the machine on the CPU's list or stack
//!      | missed
//!  alloc_slow   the CPU's slot is taken: pop_held, and if that misses alloc_behind, which refills
//!      | another context has the slot, or alloc_behind passes
//!  alloc_past   the slabs of the nodes (alloc_direct)
//! ```
//!
//! Frees go the same way. Bulk calls move a run of objects from or to the CPU's state at once. Then they
//! go on object by object, first with the slot held, then past it. Caches with debugging keep nothing per
//! CPU, so each way behind or past that refuses them: their calls are checked ones, to the slabs.

use core::ops::Range;
use core::ptr::NonNull;

use crate::design::{Allocate, Design, Env, Free, FreeError};
use crate::era::Era;
use crate::machine::{CpuId, Machine, NodeId, PerCpu, PerCpuState, Work, work};
use crate::page::Pfn;
use crate::protection::Protections;
use crate::rcu;
use crate::slabs;
use crate::stats::Stat;

/// The hooks of a design's front. Only [`Allocate`] and [`Free`] call them.
pub(crate) trait CpuFront: Design {
    /// State of a CPU, behind its slot.
    type Cpu: PerCpuState;

    /// True if an operation that holds the slot may still have to go past it to the slabs.
    const PASSES: bool = false;

    /// Protection of a CPU's state from other users in this release.
    fn protections(era: Era) -> Protections;

    /// The slots.
    fn slots(&self) -> &PerCpu<Self::Cpu>;

    /// True if CPUs keep objects at present; else all calls go past their slots.
    fn is_on(&self) -> bool {
        true
    }

    /// Takes an object of any node off the running CPU's state in one step of the machine.
    fn pop_step<M: Machine>(&self, env: Env<'_, M>) -> Option<NonNull<u8>>;

    /// Puts an object on the running CPU's state in one step of the machine; `false` if that is not
    /// where it belongs.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn push_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool;

    /// Takes an object off the CPU's state, whose slot is held, if it has one of the wanted node.
    fn pop_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>>;

    /// Puts an object of a slab of the cache on the CPU's state, whose slot is held. Returns `Ok(false)` if that
    /// is full or the object must go elsewhere.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn push_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError>;

    /// Allocates after a miss of [`CpuFront::pop_held`], with the slot still held: most designs refill.
    fn alloc_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>>;

    /// Frees an object that [`CpuFront::push_held`] did not take, with the slot still held. Returns `Ok(false)` if
    /// the object has to go past the slot ([`CpuFront::PASSES`]).
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn free_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError>;

    /// Allocates from the slabs of the nodes. The gate has been entered.
    fn alloc_from_slabs<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>>;

    /// Frees an object to its slab. The gate has been entered; the cache may have debugging.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn free_to_its_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError>;

    /// Moves objects off the CPU's state to slots, from the first on, until either runs out. Returns their number.
    fn pop_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize;

    /// Moves a run of objects from slots to the CPU's state. Returns the slots that it has not looked at.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn push_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Range<usize>;

    /// True if objects of any node may be put on a CPU's state now.
    fn takes_any_node(&self) -> bool {
        true
    }

    /// True if objects of a slab may be put on a CPU's state now.
    #[inline(always)]
    fn takes<M: Machine>(&self, env: Env<'_, M>, id: CpuId, slab: Pfn) -> bool {
        self.takes_any_node() || slabs::is_local(env, slab, id)
    }

    /// Fills slots from the first on with the CPU's slot held, until the slots, memory or the CPU's state run
    /// out. Returns their number.
    fn fill_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        id: CpuId,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        let mut filled = 0;
        loop {
            // Each refill brings a batch: move it as a run, not object by object. A run looks at no node.
            if node.is_none() {
                filled += self.pop_run(env, cpu, &mut slots[filled..]);
            }
            let Some(slot) = slots.get_mut(filled) else {
                return filled;
            };
            *slot = self
                .pop_held(env, cpu, node)
                .or_else(|| self.alloc_behind(env, cpu, id, node));
            if slot.is_none() {
                return filled;
            }
            filled += 1;
        }
    }

    /// Frees the objects of slots with the CPU's slot held.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn empty_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        id: CpuId,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        let mut result = Ok(());
        let mut at = 0;
        // Alternates between a run, which costs a store per object, and one object by the slow path, which makes
        // room for the next run. So n objects cost n / batch drains. The default order is from the first slot on;
        // designs that free by slab have their own (SLUB, sheaves).
        while at < slots.len() {
            if self.takes_any_node() {
                // A run ends at the first object without room; that one drains or flushes below. Its start counts:
                // slots in front of it are done, empty or refused.
                // SAFETY: the caller vouches that the objects have no user left.
                at += unsafe { self.push_run(env, cpu, &mut slots[at..]) }.start;
            }
            let Some(slot) = slots.get_mut(at) else { break };
            at += 1;
            let Some(object) = *slot else { continue };
            let freed = slabs::slab_of(env, object).and_then(|slab| {
                // SAFETY: the caller vouches that the object has no user left.
                unsafe { free_held(self, env, cpu, id, slab, object) }
            });
            match freed {
                Ok(_) => *slot = None,
                // The slot stays filled and the others are freed: a mistake in one object leaks no other.
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Allocates past the CPU's slot.
    fn alloc_past<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>> {
        self.alloc_direct(env, node)
    }

    /// Frees an object that lies in a slab of the cache past the CPU's slot.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn free_past<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let _pass = env.enter();
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_to_its_slab(env, slab, object) }
    }

    /// [`CpuFront::fill_held`] past the CPU's slot.
    fn fill_past<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        slabs::fill_each(slots, || self.alloc_past(env, node))
    }

    /// [`CpuFront::empty_held`] past the CPU's slot.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn empty_past<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError> {
        slabs::free_each(slots, |object| {
            let slab = slabs::slab_of(env, object)?;
            // SAFETY: the caller vouches that the object has no user left.
            unsafe { self.free_past(env, slab, object) }
        })
    }

    /// Notes a free that waits for readers.
    ///
    /// # Safety
    ///
    /// Only readers that run already use the object.
    unsafe fn defer<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that only readers that run already use the object.
        unsafe { rcu::defer(self, env, object) }
    }
}

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
        if env.cache.flags.debug() {
            return false;
        }
        let mut filled = 0;
        // First what the CPU has, as this is inlined; a refill, if needed, is in `alloc_rest`.
        if node.is_none() && self.is_on() {
            let popped = self.slots().try_with(env.machine(), |cpu, _| {
                Self::protections(env.cache.era).alloc.bulk(env.machine());
                self.pop_run(env, cpu, slots)
            });
            filled = popped.unwrap_or(0);
        }
        filled == slots.len() || alloc_rest(self, env, node, slots, filled)
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

    #[inline]
    unsafe fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // `free_fast` has accounted the look at the object's page.
        let slab = slabs::lookup(env, object)?;
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
        if env.cache.flags.debug() {
            return Err(FreeError::Unchecked);
        }
        let mut left = 0..slots.len();
        if self.is_on() && self.takes_any_node() {
            let pushed = self.slots().try_with(env.machine(), |cpu, _| {
                Self::protections(env.cache.era).free.bulk(env.machine());
                // SAFETY: the caller vouches that the objects have no user left.
                unsafe { self.push_run(env, cpu, slots) }
            });
            left = pushed.unwrap_or(left);
        }
        match slots.get_mut(left) {
            // SAFETY: the caller vouches that the objects have no user left.
            Some(slots) if !slots.is_empty() => unsafe { free_rest(self, env, slots) },
            _ => Ok(()),
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

/// Frees an object that lies in a slab of the cache, with the CPU's slot held.
///
/// # Safety
///
/// The object has no user left.
#[inline(always)]
unsafe fn free_held<T: CpuFront, M: Machine>(
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
    let undone = unsafe { front.free_bulk(env, &mut slots[..filled]) };
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
