//! The hooks of designs whose CPUs keep a stack of objects: arrays, queues, sheaves.

use core::ops::Range;
use core::ptr::NonNull;

use super::CpuKept;
use crate::design::{Design, Env, FreeError};
use crate::machine::{CpuId, Machine, NodeId, PerCpu, SlotLock};
use crate::page::Pfn;
use crate::queue::CpuStack;
use crate::slabs;
use crate::stack::HasStack;

/// A design whose CPUs keep objects on a stack, the newest on top.
///
/// The word in front of a stack's entries is readable memory of the allocator, as [`HasStack`]'s steps require.
pub(crate) trait StackFront: Design {
    /// State of a CPU, behind its slot.
    type State: HasStack + CpuStack;

    /// No tunable changes what [`StackFront::stacks_any_node`] says of a cache.
    const STACKS_STAY: bool;

    /// The slots.
    fn stacks(&self) -> &PerCpu<Self::State>;

    /// True if objects of any node may be put on a stack now.
    fn stacks_any_node(&self) -> bool;

    /// True if an object of the cache is of a node that the running CPU's stack takes, where that is not any.
    fn stacks_node_of<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool;

    /// True if the newest object may serve a request for a node.
    fn serves<M: Machine>(&self, env: Env<'_, M>, cpu: &Self::State, node: NodeId) -> bool;
}

/// Puts an object of the cache on the running CPU's stack in one step of the machine.
///
/// # Safety
///
/// The object has no user left.
#[inline(always)]
unsafe fn push_on_stack<T: StackFront, M: Machine>(
    design: &T,
    env: Env<'_, M>,
    object: NonNull<u8>,
) -> bool {
    let (machine, slot0) = (env.machine(), design.stacks().slot0());
    // SAFETY: as for `pop_step`; the word in front of the entries can be read (`StackFront`).
    unsafe { machine.percpu_push_stack::<T::State>(slot0, object) }
}

impl<T: StackFront> CpuKept for T {
    type Cpu = T::State;

    #[inline(always)]
    fn slots(&self) -> &PerCpu<T::State> {
        self.stacks()
    }

    #[inline(always)]
    fn pop_step<M: Machine>(&self, env: Env<'_, M>) -> Option<NonNull<u8>> {
        // SAFETY: a `PerCpu` is a slot of the per-CPU range with its state, whose layout `HasStack` describes.
        unsafe {
            env.machine()
                .percpu_pop_stack::<T::State>(self.stacks().slot0())
        }
    }

    #[inline(always)]
    unsafe fn push_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        if !slabs::owns(env, object) || !self.stacks_any_node() {
            return false;
        }
        // SAFETY: as for `pop_step`; the word in front of the entries can be read (`StackFront`).
        unsafe { push_on_stack(self, env, object) }
    }

    #[inline(always)]
    unsafe fn push_own_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        slabs::account_look(env, object);
        // SAFETY: as for `push_step`.
        self.stacks_any_node() && unsafe { push_on_stack(self, env, object) }
    }

    fn step_slots(&self) -> Option<NonNull<SlotLock>> {
        (T::STACKS_STAY && self.stacks_any_node()).then(|| *self.stacks().slot0())
    }

    #[inline(always)]
    unsafe fn push_step_at<M: Machine>(
        machine: &M,
        slots: &NonNull<SlotLock>,
        object: NonNull<u8>,
    ) -> bool {
        // SAFETY: as for `push_step`: the caller vouches for the slots.
        unsafe { machine.percpu_push_stack_afar::<T::State>(slots, object) }
    }

    unsafe fn push_local_step<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        // SAFETY: as for `push_step`.
        self.stacks_node_of(env, object) && unsafe { push_on_stack(self, env, object) }
    }

    #[inline(always)]
    fn pop_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut T::State,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        if node.is_some_and(|node| !self.serves(env, cpu, node)) {
            return None;
        }
        cpu.pop(env.machine())
    }

    #[inline(always)]
    unsafe fn push_held<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut T::State,
        id: CpuId,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<bool, FreeError> {
        match self.takes(env, id, slab) {
            true => cpu.push_freed(env.machine(), object),
            false => Ok(false),
        }
    }

    #[inline(always)]
    fn pop_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut T::State,
        slots: &mut [Option<NonNull<u8>>],
    ) -> usize {
        cpu.pop_many(env, slots)
    }

    #[inline(always)]
    unsafe fn push_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        cpu: &mut T::State,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Range<usize> {
        cpu.push_many(env, slots)..slots.len()
    }

    #[inline(always)]
    fn takes_any_node(&self) -> bool {
        self.stacks_any_node()
    }
}
