//! Debugging as a heap's users set it up, and what happens where a fast path misses.

use core::ptr::NonNull;

use super::{Cache, CacheBody, CacheView, Heap};
use crate::debug::{self, CallSite, Described, Report, Reporter, SlubDebug, Tracer, Validation};
use crate::design::{Design, FreeError};
use crate::geometry::GeometryError;
use crate::machine::{Machine, NodeId};
use crate::rcu;

impl<M: Machine, D: Design> Heap<M, D> {
    /// Switches debugging on for the caches that the setting names and that are made from now on,
    /// those of kmalloc included. Caches may ask for debugging by themselves with the flags of
    /// their [`CacheSpec`](crate::design::CacheSpec).
    ///
    /// # Errors
    ///
    /// [`GeometryError::NoDebugging`] if the design has none. `None` is always possible.
    pub fn set_slub_debug(&self, setting: Option<SlubDebug>) -> Result<(), GeometryError> {
        if setting.is_some() && D::debug_rules(self.system.era).is_none() {
            return Err(GeometryError::NoDebugging { design: D::NAME });
        }
        let _pass = self.system.pages.gate().enter(self.machine());
        self.system.debug.set_setting(self.machine(), setting);
        Ok(())
    }

    /// Sets the function that receives reports of mistakes: all that caches with debugging find, and
    /// frees that other caches refuse. There is none by default. The function runs on the thread that
    /// found the mistake and may use the heap.
    pub fn set_reporter(&self, reporter: Option<Reporter>) {
        self.system.debug.set_reporter(reporter);
    }

    /// Sets the function that receives the allocations and frees of caches with the letter T.
    pub fn set_tracer(&self, tracer: Option<Tracer>) {
        self.system.debug.set_tracer(tracer);
    }

    /// What follows a miss of the fast path: a jump out of the caller's code, with the call site.
    /// The size of a request is only known to kmalloc's callers.
    #[inline(never)]
    pub(super) fn alloc_slow(
        &self,
        body: &CacheBody<D>,
        node: Option<NodeId>,
        bytes: u32,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        match body.design.alloc_slow(self.env(&body.head), node) {
            None => self.alloc_missed(body, node, bytes, site),
            object => object,
        }
    }

    /// The same for a free.
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
        // SAFETY: the caller's contract is the same.
        match unsafe { body.design.free_slow(self.env(&body.head), object) } {
            Ok(()) => Ok(()),
            // SAFETY: as above; the design refused and changed nothing.
            Err(error) => unsafe { self.free_missed(body, object, error, site) },
        }
    }

    /// The design has nothing: memory is exhausted, or the cache has debugging.
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

    /// The design refuses a free: it is a mistake, or the cache has debugging.
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
            // SAFETY: the caller's contract is the same.
            return unsafe { debug::free(&body.design, env, object, site, owner) };
        }
        debug::refused(env, object, error, site, self.describe(object));
        Err(error)
    }

    /// Whose object it is, if it is in a slab.
    fn describe(&self, object: NonNull<u8>) -> Option<Described> {
        // SAFETY: the handle is not used longer than this call. A mistaken free of an object of a
        // cache that is being destroyed meanwhile is the one case that is not covered, as in
        // `kfree`: caches are only destroyed when they have no slabs.
        let owner = unsafe { self.cache_of(object) }?;
        Some(debug::describe(&owner.body.design, owner.env(), object))
    }

    /// A kfree of what belongs to no cache is refused.
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
    #[cold]
    pub(super) fn alloc_bulk_missed(
        &self,
        slots: &mut [Option<NonNull<u8>>],
        site: CallSite,
    ) -> bool {
        if !self.body.head.flags.debug() {
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
        let debug = self.body.head.flags.debug();
        let mut result = if debug { Ok(()) } else { Err(error) };
        for slot in slots {
            let Some(object) = *slot else { continue };
            if !debug {
                let error = debug::reason(&self.body.design, self.env(), object);
                let owner = self.heap.describe(object);
                debug::refused(self.env(), object, error, site, owner);
                continue;
            }
            // SAFETY: the caller's contract is the same.
            match unsafe { self.free_at(object, site) } {
                Ok(()) => *slot = None,
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}

impl<M: Machine, D: Design> CacheView<'_, M, D> {
    /// Looks at every slab of the cache (sysfs `validate`): red zones, poison, padding, lists of
    /// free objects. What is damaged is reported and restored. Without debugging only lists and
    /// counters are looked at. The cache may be in use: others wait meanwhile.
    #[track_caller]
    pub fn validate(&self) -> Validation {
        debug::validate(&self.body.design, self.env(), CallSite::caller())
    }
}
