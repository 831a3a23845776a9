//! Where an address lies: which slot of a cache.

use core::ptr::NonNull;

use crate::design::{Design, Env, FreeError};
use crate::machine::Machine;
use crate::page::{PageKind, Pfn};
use crate::sync::Ordering;

use super::about::slab_of;

/// An address in memory of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The slab, or the page that the slot lies in.
    pub slab: Pfn,
    /// The slot that it is in.
    pub base: NonNull<u8>,
    /// It is where the slot's object starts.
    pub exact: bool,
}

/// Why an address is no object of a cache, and the slab that it lies in, if it is in any.
pub type NoPlace = (FreeError, Option<Pfn>);

/// [`Design::find_slot`] in slabs whose slots follow each other at the geometry's distance.
pub(crate) fn slot_in_slab<M: Machine, D: Design>(
    design: &D,
    env: Env<'_, M>,
    address: NonNull<u8>,
) -> Result<Place, NoPlace> {
    let slab = slab_of(env, address).ok_or((FreeError::Foreign, None))?;
    let page = env.pages.map().page(slab);
    if page.kind() != PageKind::Slab {
        return Err((FreeError::Foreign, None));
    }
    if page.cache.load(Ordering::Relaxed) != env.cache.id() {
        return Err((FreeError::WrongCache, Some(slab)));
    }
    let layout = &env.cache.geometry.layout;
    let size = layout.size as usize;
    let first = design.first_slot(env, slab);
    let objects = page.objects.load(Ordering::Relaxed) as usize;
    let offset = address.addr().get().wrapping_sub(first.addr().get());
    if offset / size >= objects {
        return Err((FreeError::NotAnObject, Some(slab)));
    }
    // SAFETY: the slot's number is below `objects`, so the slot lies in the slab.
    let base = unsafe { first.byte_add(offset / size * size) };
    Ok(Place {
        slab,
        base,
        exact: offset % size == layout.red_left_pad as usize,
    })
}
