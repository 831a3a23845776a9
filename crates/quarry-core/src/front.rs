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
//!
//! The hooks, which designs write, are here; the calls, which are the same for all, are in `calls`. Designs whose
//! CPUs keep a stack of objects share the hooks of `stacked`.

mod calls;
mod stacked;

use core::ops::Range;
use core::ptr::NonNull;

use crate::design::{Design, Env, FreeError};
use crate::era::Era;
use crate::machine::{CpuId, Machine, NodeId, PerCpu, PerCpuState, SlotLock};
use crate::page::Pfn;
use crate::protection::Protections;
use crate::rcu;
use crate::slabs;
use calls::free_held;
pub(crate) use calls::{alloc_many, free_many};
pub(crate) use stacked::StackFront;

/// State of a CPU between calls, and the ways of objects in and out: by one step of the machine, alone and in runs.
pub(crate) trait CpuKept: Design {
    /// State of a CPU, behind its slot.
    type Cpu: PerCpuState;

    fn slots(&self) -> &PerCpu<Self::Cpu>;

    /// Takes an object of any node off the running CPU's state in one step of the machine.
    fn pop_step<M: Machine>(&self, env: Env<'_, M>) -> Option<NonNull<u8>>;

    /// Puts an object on the running CPU's state in one step of the machine; `false` if that is not
    /// where it belongs, or if CPUs keep objects of their own nodes only: that question needs calls, for which every free
    /// would save registers. [`CpuKept::push_local_step`] is for those.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    unsafe fn push_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool;

    /// [`CpuKept::push_step`] of an object that is in a slab of the cache, as the caller has looked.
    ///
    /// # Safety
    ///
    /// As for [`CpuKept::push_step`].
    #[inline(always)]
    unsafe fn push_own_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.push_step(env, object) }
    }

    /// The slots for [`CpuKept::push_step_at`], if CPUs keep any object of the cache.
    fn step_slots(&self) -> Option<NonNull<SlotLock>> {
        None
    }

    /// [`CpuKept::push_own_step`] by the slots alone.
    ///
    /// # Safety
    ///
    /// As for [`CpuKept::push_step`]; the slots are those of the object's cache, of the machine and this design.
    #[inline(always)]
    unsafe fn push_step_at<M: Machine>(
        _: &M,
        _slots: &NonNull<SlotLock>,
        _object: NonNull<u8>,
    ) -> bool {
        false
    }

    /// [`CpuKept::push_own_step`] where CPUs keep objects of their own nodes only, for one that is of the running CPU's.
    ///
    /// # Safety
    ///
    /// As for [`CpuKept::push_step`].
    unsafe fn push_local_step<M: Machine>(&self, _env: Env<'_, M>, _object: NonNull<u8>) -> bool {
        false
    }

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
}

/// The other hooks of a design's front. Only the calls of the module `calls` use them.
pub(crate) trait CpuFront: CpuKept {
    /// True if an operation that holds the slot may still have to go past it to the slabs.
    const PASSES: bool = false;

    /// Protection of a CPU's state from other users in this release.
    fn protections(era: Era) -> Protections;

    /// True if CPUs keep objects at present; else all calls go past their slots.
    fn is_on(&self) -> bool {
        true
    }

    /// Allocates after a miss of [`CpuKept::pop_held`], with the slot still held: most designs refill.
    fn alloc_behind<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut Self::Cpu,
        id: CpuId,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>>;

    /// Frees an object that [`CpuKept::push_held`] did not take, with the slot still held. Returns `Ok(false)` if
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

    /// Frees an object that is in a slab of the cache past the CPU's slot.
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
