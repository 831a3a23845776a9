//! A cache as its users see it.

use core::ops::Deref;
use core::ptr::NonNull;

use super::{CacheBody, CacheView, DestroyError, Heap};
use crate::debug::CallSite;
use crate::design::{Design, FreeError};
use crate::machine::{Machine, NodeId, Work, work};

/// A cache of a heap. It derefs to its [`CacheView`], which has all that needs no owner.
pub struct Cache<'h, M: Machine, D: Design> {
    view: CacheView<'h, M, D>,
}

impl<'h, M: Machine, D: Design> Deref for Cache<'h, M, D> {
    type Target = CacheView<'h, M, D>;

    #[inline(always)]
    fn deref(&self) -> &CacheView<'h, M, D> {
        &self.view
    }
}

impl<'h, M: Machine, D: Design> Cache<'h, M, D> {
    #[inline(always)]
    pub(super) fn new(heap: &'h Heap<M, D>, body: &'h CacheBody<D>) -> Self {
        Self {
            view: CacheView { heap, body },
        }
    }

    /// Allocates an object on the running CPU's node. `None` when memory is exhausted.
    #[inline(always)]
    #[track_caller]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        self.alloc_at(None, CallSite::caller())
    }

    /// Allocates an object, on the given node if memory is available there. Where a design looks when
    /// that node has nothing differs between eras: SLUB until 2.6.35 sometimes takes partial slabs
    /// of other nodes first. `None` when memory is exhausted.
    #[inline]
    #[track_caller]
    pub fn alloc_node(&self, node: NodeId) -> Option<NonNull<u8>> {
        self.alloc_at(Some(node), CallSite::caller())
    }

    /// Allocates an object for the given call site, which only caches with debugging keep.
    #[inline(always)]
    pub fn alloc_at(&self, node: Option<NodeId>, site: CallSite) -> Option<NonNull<u8>> {
        work(self.heap.machine(), Work::Call);
        match self.body.design.alloc_fast(self.env(), node) {
            None => {
                let bytes = self.body.head.usable;
                self.heap.alloc_slow(self.body, node, bytes, site)
            }
            object => object,
        }
    }

    /// Frees an object.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where the design can tell that it is not one of this cache's live objects.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn free(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_at(object, CallSite::caller()) }
    }

    /// An attempt before [`Cache::free`], for an object that is known to be of this cache: its page is not looked at.
    /// `false` if nothing was done: then `free` has to follow.
    ///
    /// # Safety
    ///
    /// As [`Cache::free`]; the object is one of this cache.
    #[inline(always)]
    #[must_use]
    pub unsafe fn free_own_fast(&self, object: NonNull<u8>) -> bool {
        // SAFETY: the caller vouches that the object is of this cache and has no user left.
        let freed = unsafe { self.body.design.free_own_fast(self.env(), object) };
        if freed {
            // Else `free` accounts it.
            work(self.heap.machine(), Work::Call);
        }
        freed
    }

    /// Frees an object for the given call site, which only reports and caches with debugging keep.
    ///
    /// # Errors
    ///
    /// As [`Cache::free`].
    ///
    /// # Safety
    ///
    /// As [`Cache::free`].
    #[inline(always)]
    pub unsafe fn free_at(&self, object: NonNull<u8>, site: CallSite) -> Result<(), FreeError> {
        work(self.heap.machine(), Work::Call);
        // SAFETY: the caller vouches that the object has no user left.
        if unsafe { self.body.design.free_fast(self.env(), object) } {
            return Ok(());
        }
        // SAFETY: the caller vouches for the object, which the attempt above has not freed.
        unsafe { self.heap.free_slow(self.body, object, site) }
    }

    /// Fills all slots with objects, or none (then `false`). Slots must be empty.
    #[track_caller]
    #[inline]
    pub fn alloc_bulk(&self, slots: &mut [Option<NonNull<u8>>]) -> bool {
        self.account_bulk(slots.len());
        self.body.design.alloc_bulk(self.env(), None, slots)
            || self.alloc_bulk_missed(slots, CallSite::caller())
    }

    /// Frees the objects of all filled slots and empties these.
    ///
    /// # Errors
    ///
    /// The first [`FreeError`]; slots of objects that could not be freed stay filled.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[track_caller]
    #[inline]
    pub unsafe fn free_bulk(&self, slots: &mut [Option<NonNull<u8>>]) -> Result<(), FreeError> {
        self.account_bulk(slots.len());
        // SAFETY: the caller vouches that the objects have no user left.
        match unsafe { self.body.design.free_bulk(self.env(), slots) } {
            Ok(()) => Ok(()),
            // SAFETY: the caller vouches for the objects; slots of those that were not freed are still filled.
            Err(error) => unsafe { self.free_bulk_missed(slots, error, CallSite::caller()) },
        }
    }

    /// Accounts a bulk call beside what it accesses.
    #[inline(always)]
    fn account_bulk(&self, objects: usize) {
        work(self.heap.machine(), Work::Call);
        for _ in 0..objects {
            work(self.heap.machine(), Work::BulkObject);
        }
    }

    /// Frees an object when every reader that runs now has finished, as the machine reports
    /// ([`Readers::rcu_cookie`](crate::machine::Readers::rcu_cookie)). Until it is freed it counts as allocated.
    ///
    /// # Errors
    ///
    /// As [`Cache::free`]; [`FreeError::NoRoom`] if there is no memory to note the free, which is
    /// then the caller's to make later.
    ///
    /// # Safety
    ///
    /// Only readers that run already may still use the object.
    pub unsafe fn free_rcu(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that only readers that run already use the object.
        unsafe { self.body.behind().free_rcu(self.env(), object) }
    }

    /// Destroys the cache, or gives up this reference to it if it has others by merging; its name
    /// stays among the aliases then.
    ///
    /// # Errors
    ///
    /// [`DestroyError`] if objects are still allocated: its message names them.
    ///
    /// # Safety
    ///
    /// No copy of this handle is used any more, whichever thread has it; if the cache is a kmalloc
    /// class, no other thread uses kmalloc meanwhile. An error leaves the cache as it was.
    #[allow(
        clippy::result_large_err,
        reason = "it names objects, and there is no heap to box it in"
    )]
    pub unsafe fn destroy(self) -> Result<(), DestroyError> {
        if self.aliases() > 0 {
            let _pass = self.heap.system.pages.gate().enter(self.heap.machine());
            let caches = self.heap.system.caches.lock(self.heap.machine());
            if caches.is_some() && Heap::<M, D>::drop_reference(&self.body.head) {
                return Ok(());
            }
        }
        self.check_unused()?;
        let machine = self.heap.machine();
        let pass = self.heap.system.pages.gate().enter(machine);
        let Some(mut caches) = self.heap.system.caches.lock(machine) else {
            return Err(DestroyError::new(self.name(), 1));
        };
        if Heap::<M, D>::drop_reference(&self.body.head) {
            // Another cache was merged into this one just now.
            return Ok(());
        }
        // Since the first check an alias may have been made, have allocated, and have gone without its objects. From
        // here on no alias is made: that takes the list's lock.
        if self.usage().slabs != 0 {
            drop((caches, pass));
            let unused = self.check_unused();
            return unused.and(Err(DestroyError::new(self.name(), 1)));
        }
        // SAFETY: the list's lock is held. The cache is on the list, as this call, which its caller makes once, is the
        // only one that takes it off.
        unsafe { caches.remove(&self.body.head) };
        drop(caches);
        self.heap.unpublish(self.body);
        // SAFETY: the cache is off the list, and by the caller's contract no other code uses it.
        unsafe { self.heap.free_aliases(&self.body.head) };
        // SAFETY: no slab is left, and by the caller's contract no other code uses the cache.
        unsafe { self.heap.release_design(self.body) };
        // SAFETY: the cache is off the list, and no other code uses it.
        unsafe { self.heap.free_body(NonNull::from(self.body)) };
        Ok(())
    }
}

impl<M: Machine, D: Design> Clone for Cache<'_, M, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, D: Design> Copy for Cache<'_, M, D> {}
