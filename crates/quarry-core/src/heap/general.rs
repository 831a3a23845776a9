//! kmalloc for designs: what they keep in general caches of their own heap.
//!
//! SLAB's arrays and off-slab indices, sheaves, and pages of deferred frees come from the heap whose caches they
//! serve. A design has an [`Env`], which knows the heap's system but not its type; the design names itself, and
//! the heap is found if it was made for that design.

use core::any::TypeId;
use core::ptr::NonNull;

use super::Heap;
use crate::debug::CallSite;
use crate::design::{Design, Env};
use crate::harden;
use crate::machine::{Machine, NodeId};
use crate::system::System;

impl<M: Machine, D: Design> Heap<M, D> {
    /// The heap of a system; `None` if that was made for another design.
    fn of_system(system: &System<M>) -> Option<&Self> {
        let is_mine = system.design == TypeId::of::<D>();
        debug_assert!(is_mine, "a heap of another design than {}", D::NAME);
        // SAFETY: `Heap::with_pages` alone makes systems, and stores the design of the heap around them, which
        // is this one. A heap is its system and nothing else (`repr(transparent)`).
        is_mine.then(|| unsafe { &*core::ptr::from_ref(system).cast() })
    }
}

impl<M: Machine> Env<'_, M> {
    /// Allocates from the kmalloc of this heap, whose design is `D`. `None` when memory is exhausted.
    pub(crate) fn kmalloc<D: Design>(
        &self,
        bytes: usize,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        Heap::<M, D>::of_system(self.system)?.kmalloc(bytes, node)
    }

    /// Frees what [`Env::kmalloc`] allocated.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    pub(crate) unsafe fn kfree<D: Design>(&self, object: NonNull<u8>) {
        if let Some(heap) = Heap::<M, D>::of_system(self.system) {
            // SAFETY: the caller guarantees that the object has no user left.
            let freed = unsafe { heap.kfree(object) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }

    /// [`Env::kmalloc`] past all per-CPU state. A cache whose sheaves come from itself holds a CPU's slot
    /// meanwhile; its own fast path would find the slot taken.
    pub(crate) fn kmalloc_direct<D: Design>(
        &self,
        bytes: usize,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let heap = Heap::<M, D>::of_system(self.system)?;
        if let Some(class) = heap.kmalloc_cache(bytes)
            && let Some(hardened) = class.body.hardened()
        {
            return harden::alloc(hardened, class.env(), node, bytes, true, CallSite::UNKNOWN);
        }
        match heap.kmalloc_cache(bytes) {
            // A class with debugging keeps nothing per CPU, so its checked way is as direct.
            Some(class) if !class.head().flags().debug() => {
                class.body.design.alloc_direct(class.env(), node)
            }
            _ => heap.kmalloc(bytes, node),
        }
    }

    /// Frees what [`Env::kmalloc_direct`] allocated, past all per-CPU state.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    pub(crate) unsafe fn kfree_direct<D: Design>(&self, object: NonNull<u8>) {
        let Some(heap) = Heap::<M, D>::of_system(self.system) else {
            return;
        };
        // SAFETY: the object is allocated, so its class has a slab and is not destroyed meanwhile.
        let freed = match unsafe { heap.cache_of(object) } {
            Some(class) if class.body.hardened().is_some() => {
                // SAFETY: the caller guarantees that the object has no user left.
                unsafe { heap.free_hardened_direct(class.body, object) }
            }
            Some(class) if !class.head().flags().debug() => {
                // SAFETY: the caller guarantees that the object has no user left.
                unsafe { class.body.design.free_direct(class.env(), object) }
            }
            // SAFETY: as for `free_direct`; the object has not been freed.
            _ => unsafe { heap.kfree(object) },
        };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}
