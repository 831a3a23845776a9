//! Slots of slabs, as debugging and walks from outside see them.

use core::ptr::NonNull;

use super::env::Env;
use super::error::{FreeError, SlabInconsistency};
use super::head::CacheHead;
use crate::machine::Machine;
use crate::page::{PageAllocator, PageKind, Pfn};
use crate::sync::Ordering;

/// An address in memory of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The slab, or the page that the slot is in.
    pub slab: Pfn,
    /// The slot that it is in.
    pub base: NonNull<u8>,
    /// It is where the slot's object starts.
    pub exact: bool,
}

/// Reason why an address is no object of a cache, and its slab, if it is in any.
pub type NoPlace = (FreeError, Option<Pfn>);

/// The slots of a slab: their places, and the free ones among them. The defaults are those of slabs whose first
/// slot is at their first byte.
pub trait Slots: Sized {
    /// State that all caches of a heap share; `()` for most designs.
    type Shared: Send + Sync + 'static;

    /// The slot that an address is in: by default one of those that follow each other at the distance
    /// of the geometry's `size`.
    ///
    /// # Errors
    ///
    /// What a free of the address would be.
    fn find_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        address: NonNull<u8>,
    ) -> Result<Place, NoPlace> {
        let map = env.map();
        let slab = map.pfn_of(address).and_then(|pfn| map.page(pfn).head());
        let slab = slab.ok_or((FreeError::Foreign, None))?;
        let page = map.page(slab);
        if page.kind() != PageKind::Slab {
            return Err((FreeError::Foreign, None));
        }
        if map.owner(slab) != env.cache.id() {
            return Err((FreeError::WrongCache, Some(slab)));
        }
        let layout = &env.cache.geometry.layout;
        let size = layout.size as usize;
        let first = self.first_slot(env, slab);
        let objects = page.objects.load(Ordering::Relaxed) as usize;
        let offset = address.addr().get().wrapping_sub(first.addr().get());
        if offset / size >= objects {
            return Err((FreeError::NotAnObject, Some(slab)));
        }
        // SAFETY: the slot's number is below `objects`, so the slot is in the slab.
        let base = unsafe { first.byte_add(offset / size * size) };
        Ok(Place {
            slab,
            base,
            exact: offset % size == layout.red_left_pad as usize,
        })
    }

    /// The first slot of a slab; the others follow at the distance of the geometry's `size`.
    fn first_slot<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) -> NonNull<u8> {
        env.map().address(slab)
    }

    /// Calls `found` for the free slots of a slab of a cache with debugging, until it returns
    /// `false`. No code allocates from the cache meanwhile. Slots with free objects are given as
    /// `alloc_direct` gives them.
    ///
    /// # Errors
    ///
    /// The list leads out of the slab, or round in circles.
    fn free_slots<M: Machine>(
        &self,
        _env: Env<'_, M>,
        _slab: Pfn,
        _found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), SlabInconsistency> {
        Ok(())
    }

    /// The free object that holds a slab's index of free objects: its slot, and the number of its first
    /// bytes that the index uses. `None` in designs that keep no index in objects.
    fn held_by<M: Machine>(&self, _env: Env<'_, M>, _slab: Pfn) -> Option<(NonNull<u8>, u32)> {
        None
    }

    /// Makes a slab with a damaged list of free objects full: all its objects count as in use.
    /// Designs whose lists are not in memory of users have nothing to do.
    fn isolate<M: Machine>(&self, _env: Env<'_, M>, _slab: Pfn) {}

    /// The cache whose object an address is in, if it is in a slab that holds objects of many
    /// caches; asked only for slabs that name no cache. Designs without such slabs have none.
    fn owner_of<M: Machine>(
        _pages: &PageAllocator<M>,
        _shared: &Self::Shared,
        _address: NonNull<u8>,
    ) -> Option<NonNull<CacheHead>> {
        None
    }
}
