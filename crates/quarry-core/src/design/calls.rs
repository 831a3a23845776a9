//! Allocation and free, one method for each path that an operation can take.

use core::ptr::NonNull;

use super::env::Env;
use super::error::FreeError;
use crate::machine::{Machine, NodeId, SlotLock};

/// Allocation.
///
/// [`Allocate::alloc_fast`] and [`Allocate::alloc_slow`] are the two halves of [`Allocate::alloc`], for
/// callers that want the first one in their own code.
pub trait Allocate: Sized {
    /// Allocates an object, on the given node if one is wanted. `None` when memory is exhausted.
    #[inline(always)]
    fn alloc<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>> {
        self.alloc_fast(env, node)
            .or_else(|| self.alloc_slow(env, node))
    }

    /// One attempt with nothing alive behind it, so that what follows a miss is a jump and no register
    /// is saved for it. A design without such a part always misses.
    fn alloc_fast<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>>;

    /// Allocates after a miss of [`Allocate::alloc_fast`].
    fn alloc_slow<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>>;

    /// Fills all slots with objects, or none (then `false`).
    fn alloc_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> bool;

    /// Allocates an object from the slabs of the nodes, past all per-CPU state: what an operation
    /// does that cannot have its CPU's slot, and how caches with debugging always allocate.
    fn alloc_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>>;

    /// A kmalloc of a design that serves all sizes itself ([`KmallocService::Design`]); the cache
    /// is the heap's nameless one.
    ///
    /// [`KmallocService::Design`]: crate::geometry::KmallocService::Design
    fn kmalloc<M: Machine>(
        &self,
        _env: Env<'_, M>,
        _bytes: usize,
        _node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        None
    }
}

/// Free.
///
/// All of it is unsafe, down to the function that puts an object on a queue or in its slab: the object's
/// user has to be done with it.
pub trait Free: Sized {
    /// Frees an object.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where the design can tell that the object is not one of this cache's live
    /// objects.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    unsafe fn free<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        if unsafe { self.free_fast(env, object) } {
            return Ok(());
        }
        // SAFETY: the caller vouches for the object, which the attempt above has not freed.
        unsafe { self.free_slow(env, object) }
    }

    /// One attempt, as [`Allocate::alloc_fast`]: whether the object has been freed.
    ///
    /// # Safety
    ///
    /// As [`Free::free`].
    unsafe fn free_fast<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool;

    /// [`Free::free_fast`] of an object that is in a slab of the cache, as the caller has found by its page.
    ///
    /// # Safety
    ///
    /// As [`Free::free`].
    #[inline(always)]
    unsafe fn free_own_fast<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) -> bool {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_fast(env, object) }
    }

    /// The slots of the CPUs' stacks, if these take any object of the cache. They stay where they are until the cache is
    /// released. A design without such stacks has none.
    fn cpu_stacks(&self) -> Option<NonNull<SlotLock>> {
        None
    }

    /// [`Free::free_own_fast`] with what [`Free::cpu_stacks`] returned, without a look at the cache.
    ///
    /// # Safety
    ///
    /// As [`Free::free`]; the slots are those of the object's cache, which is of the machine and of this design.
    #[inline(always)]
    unsafe fn push_to<M: Machine>(_: &M, _slots: &NonNull<SlotLock>, _object: NonNull<u8>) -> bool {
        false
    }

    /// Frees an object that [`Free::free_fast`] did not take.
    ///
    /// # Errors
    ///
    /// As [`Free::free`].
    ///
    /// # Safety
    ///
    /// As [`Free::free`].
    unsafe fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError>;

    /// Frees the objects of all filled slots and empties these.
    ///
    /// # Errors
    ///
    /// The first [`FreeError`]; slots of objects that could not be freed stay filled.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    unsafe fn free_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError>;

    /// Frees an object to its slab, past all per-CPU state.
    ///
    /// # Errors
    ///
    /// As [`Free::free`].
    ///
    /// # Safety
    ///
    /// As [`Free::free`].
    unsafe fn free_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError>;

    /// Frees an object when every reader that runs now has finished, as the machine reports.
    ///
    /// # Errors
    ///
    /// As [`Free::free`], and [`FreeError::NoRoom`].
    ///
    /// # Safety
    ///
    /// Only readers that run already use the object.
    unsafe fn free_rcu<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError>;

    /// Bytes that were asked for by [`Allocate::kmalloc`]; `None` if the object is none of its.
    fn ksize<M: Machine>(&self, _env: Env<'_, M>, _object: NonNull<u8>) -> Option<usize> {
        None
    }

    /// Frees what [`Allocate::kmalloc`] allocated.
    ///
    /// # Errors
    ///
    /// As [`Free::free`].
    ///
    /// # Safety
    ///
    /// As [`Free::free`].
    unsafe fn kfree<M: Machine>(
        &self,
        _env: Env<'_, M>,
        _object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        Err(FreeError::Foreign)
    }
}
