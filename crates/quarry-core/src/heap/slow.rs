//! The slow paths of allocations and frees: what follows where a fast path misses.
//!
//! ```text
//!  alloc_fast missed -> alloc_slow: the design's slow path
//!                         | None: memory is short, or the cache has debugging
//!                       alloc_missed: deferred frees whose readers are done, or debug::alloc
//!
//!  free_fast refused -> free_slow: the design's slow path
//!                         | an error: a mistake, or the cache has debugging
//!                       free_missed: debug::free, or a report
//! ```
//!
//! Caches with debugging come here with every call: their fast paths always miss and their designs refuse.

use core::ptr::NonNull;

use super::{Cache, CacheBody, Heap};
use crate::debug::{self, CallSite, Described, Report};
use crate::design::{Design, FreeError};
use crate::machine::{Machine, NodeId};
use crate::rcu;

impl<M: Machine, D: Design> Heap<M, D> {
    /// Allocates after a miss of the fast path. Never inlined, so that the caller's code has one jump and saves no
    /// registers for it. `bytes` is the size of the request, which only kmalloc's callers know.
    #[inline(never)]
    pub(super) fn alloc_slow(
        &self,
        body: &CacheBody<D>,
        node: Option<NodeId>,
        bytes: u32,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        if body.head.armour().is_some() {
            return self.alloc_slow_hardened(body, node, bytes as usize, site);
        }
        match body.design.alloc_slow(self.env(&body.head), node) {
            None => self.alloc_missed(body, node, bytes, site),
            object => object,
        }
    }

    /// Frees after a miss of the fast path.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(never)]
    pub(super) unsafe fn free_slow(
        &self,
        body: &CacheBody<D>,
        object: NonNull<u8>,
        site: CallSite,
    ) -> Result<(), FreeError> {
        if body.head.armour().is_some() {
            // SAFETY: the caller vouches that the object has no user left.
            return unsafe { self.free_slow_hardened(body, object, site) };
        }
        // SAFETY: the caller vouches that the object has no user left.
        match unsafe { body.design.free_slow(self.env(&body.head), object) } {
            Ok(()) => Ok(()),
            // SAFETY: the caller vouches for the object; the design refused it and changed nothing.
            Err(error) => unsafe { self.free_missed(body, object, error, site) },
        }
    }

    /// Allocates where the design has nothing: memory is exhausted, or the cache has debugging.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_missed(
        &self,
        body: &CacheBody<D>,
        node: Option<NodeId>,
        bytes: u32,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        let env = self.env(&body.head);
        if !body.head.flags.debug() {
            // Deferred frees whose readers have finished are memory.
            let settled = rcu::settle_for_memory(&body.design, env);
            return settled.then(|| body.design.alloc(env, node)).flatten();
        }
        debug::alloc(&body.design, env, node, bytes, site)
    }

    /// Settles a free that the design refused: it is a mistake, or the cache has debugging.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_missed(
        &self,
        body: &CacheBody<D>,
        object: NonNull<u8>,
        error: FreeError,
        site: CallSite,
    ) -> Result<(), FreeError> {
        let env = self.env(&body.head);
        if body.head.flags.debug() {
            let owner = || self.describe(object);
            // SAFETY: the caller vouches that the object has no user left.
            return unsafe { debug::free(&body.design, env, object, site, owner) };
        }
        debug::refused(env, object, error, site, self.describe(object));
        Err(error)
    }

    /// The owner of an object, if it is in a slab.
    pub(super) fn describe(&self, object: NonNull<u8>) -> Option<Described> {
        // SAFETY: the handle is not used longer than this call. A mistaken free of an object of a
        // cache that is being destroyed meanwhile is the one case that is not covered, as in
        // `kfree`: caches are only destroyed when they have no slabs.
        let owner = unsafe { self.cache_of(object) }?;
        Some(debug::describe(owner.body.behind(), owner.env(), object))
    }

    /// Reports a kfree of what belongs to no cache.
    #[cold]
    #[inline(never)]
    pub(super) fn kfree_refused(
        &self,
        object: NonNull<u8>,
        error: FreeError,
        site: CallSite,
    ) -> Result<(), FreeError> {
        let report = Report::of_kfree(self.machine(), object, error, site);
        self.system.debug.report(&report);
        Err(error)
    }
}

impl<M: Machine, D: Design> Cache<'_, M, D> {
    /// Fills slots one by one, all or none, if the cache has debugging; else memory is exhausted.
    #[cold]
    pub(super) fn alloc_bulk_missed(
        &self,
        slots: &mut [Option<NonNull<u8>>],
        site: CallSite,
    ) -> bool {
        if !self.body.head.flags.checked() {
            return false;
        }
        for filled in 0..slots.len() {
            slots[filled] = self.alloc_at(None, site);
            if slots[filled].is_none() {
                for slot in &mut slots[..filled] {
                    let Some(object) = slot.take() else { continue };
                    // SAFETY: allocated just now, and no code has seen it.
                    let undone = unsafe { self.free_at(object, site) };
                    debug_assert!(undone.is_ok(), "{undone:?}");
                }
                return false;
            }
        }
        true
    }

    /// Frees slots one by one if the cache has debugging; else reports the objects that the design refused.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[cold]
    pub(super) unsafe fn free_bulk_missed(
        &self,
        slots: &mut [Option<NonNull<u8>>],
        error: FreeError,
        site: CallSite,
    ) -> Result<(), FreeError> {
        let debug = self.body.head.flags.checked();
        let mut result = if debug { Ok(()) } else { Err(error) };
        for slot in slots {
            let Some(object) = *slot else { continue };
            if !debug {
                let error = debug::reason(self.body.behind(), self.env(), object);
                let owner = self.heap.describe(object);
                debug::refused(self.env(), object, error, site, owner);
                continue;
            }
            // SAFETY: the caller vouches that the object has no user left.
            match unsafe { self.free_at(object, site) } {
                Ok(()) => *slot = None,
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}
