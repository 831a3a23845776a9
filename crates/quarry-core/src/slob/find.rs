//! Look-up of an address among SLOB's objects.

use core::ptr::NonNull;

use super::owners::Owners;
use super::types::{Shared, Slob};
use crate::design::{CacheHead, NoPlace, Place, Slots};
use crate::design::{Env, FreeError};
use crate::geometry::WORD_BYTES;
use crate::machine::Machine;
use crate::page::{PageAllocator, Pfn};

impl Slots for Slob {
    type Shared = Shared;

    fn find_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        address: NonNull<u8>,
    ) -> Result<Place, NoPlace> {
        let map = env.map();
        let slab = Self::first_page(env, address).map_err(|error| (error, None))?;
        let owner = map.owner(slab);
        let base = if owner == env.cache.id() {
            Ok(map.address(slab))
        } else if owner.is_null() {
            self.find_block(env, slab, address)
        } else {
            Err(FreeError::WrongCache)
        };
        let base = base.map_err(|error| (error, Some(slab)))?;
        Ok(Place {
            slab,
            base,
            exact: address == base,
        })
    }

    fn owner_of<M: Machine>(
        pages: &PageAllocator<M>,
        shared: &Shared,
        address: NonNull<u8>,
    ) -> Option<NonNull<CacheHead>> {
        shared.owner_of(pages, address)
    }
}

impl Slob {
    /// The object of a block of the cache.
    fn find_block<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        address: NonNull<u8>,
    ) -> Result<NonNull<u8>, FreeError> {
        let offset = Self::offset(env, address);
        let nobodys = match offset.is_multiple_of(WORD_BYTES) {
            true => FreeError::DoubleFree,
            false => FreeError::NotAnObject,
        };
        let at = Owners::of(env.pages(), slab).and_then(|owners| owners.object_before(offset));
        let Some((start, mark)) = at.filter(|(_, mark)| !mark.is_deferred()) else {
            return Err(nobodys);
        };
        if mark.id() != self.id {
            return Err(match offset == start {
                true => FreeError::WrongCache,
                false => nobodys,
            });
        }
        // SAFETY: the table has entries for words of the page.
        let object = unsafe { env.map().address(slab).byte_add(start as usize) };
        let registry = &self.shared().registry;
        match registry.block_of(env.pages(), object, mark) {
            None => Err(FreeError::Corrupt),
            Some(block) if offset - start >= block.bytes - block.lead => Err(nobodys),
            Some(_) => Ok(object),
        }
    }
}
