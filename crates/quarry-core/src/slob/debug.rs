//! Caches with debugging: slots around objects, freed slots that are kept for a while.

use core::ptr::NonNull;

use super::geometry::{self, HEADER_BYTES};
use super::owners::{Mark, Owners};
use super::types::{Request, Slob};
use crate::debug::{self, NoPlace, Place};
use crate::design::{CacheHead, Env, FreeError};
use crate::geometry::{CacheFlags, CacheParams, Layout, MachineParams, WORD_BYTES, up};
use crate::machine::{Machine, NodeId};
use crate::page::{PageAllocator, Pfn};
use crate::stats::Stat;
use crate::sync::Ordering;

/// Whether kmallocs of all sizes come from this cache.
fn serves_kmalloc(cache: &CacheHead) -> bool {
    cache.flags.contains(CacheFlags::KMALLOC)
}

/// What lies in front of a slot: the size of a kmalloc, as in the kernel, and its complement.
pub(super) fn header_bytes(cache: &CacheHead) -> u32 {
    if serves_kmalloc(cache) {
        HEADER_BYTES
    } else {
        0
    }
}

/// How many bytes the kmalloc was for whose slot has this header; `None` if it was overwritten.
fn request_of(header: NonNull<u8>) -> Option<u32> {
    // SAFETY: the callers have found a mark of a kmalloc, which has a header in front of its slot;
    // both begin at a word.
    let word = unsafe { header.cast::<u64>().read() };
    let bytes = word as u32;
    (word == header_of(bytes)).then_some(bytes)
}

/// The header of a kmalloc of so many bytes.
const fn header_of(bytes: u32) -> u64 {
    bytes as u64 | (!bytes as u64) << 32
}

/// How the slot of a kmalloc of so many bytes is laid out.
fn kmalloc_layout<M: Machine>(
    pages: &PageAllocator<M>,
    cache: &CacheHead,
    bytes: u32,
) -> Option<Layout> {
    let era = geometry::slob_era(cache.era)?;
    let topology = pages.machine().topology();
    let machine = MachineParams {
        page_shift: topology.page_shift,
        nr_cpus: topology.cpus,
        cache_line: topology.cache_line,
    };
    let params = CacheParams::new(bytes)
        .with_align(era.kmalloc_align(bytes))
        .with_flags(cache.flags);
    Some(geometry::layout(era, &machine, &params))
}

/// How the slot of an object of a cache with debugging is laid out. The object is on a heap page
/// and has a mark.
pub(super) fn block_layout<M: Machine>(
    pages: &PageAllocator<M>,
    cache: &CacheHead,
    object: NonNull<u8>,
) -> Option<Layout> {
    let plain = cache.geometry.layout;
    if !serves_kmalloc(cache) {
        return Some(plain);
    }
    // SAFETY: an object of a kmalloc with debugging has its slot and header in front of it.
    let header = unsafe { object.byte_sub((plain.red_left_pad + HEADER_BYTES) as usize) };
    let bytes = request_of(header)?;
    let fits = bytes > 0 && u64::from(bytes) < 1 << pages.map().page_shift();
    fits.then(|| kmalloc_layout(pages, cache, bytes)).flatten()
}

impl Slob {
    /// How the object of a request is laid out; `None` for kmallocs that are runs of pages.
    fn layout_for<M: Machine>(&self, env: Env<'_, M>, bytes: u32) -> Option<Layout> {
        if !serves_kmalloc(env.cache) {
            return Some(env.cache.geometry.layout);
        }
        let page_bytes = 1u64 << env.pages.map().page_shift();
        if bytes == 0 || u64::from(bytes) >= page_bytes {
            return None;
        }
        let layout = kmalloc_layout(env.pages, env.cache, bytes)?;
        let pad = env.cache.geometry.layout.red_left_pad;
        let end = up(HEADER_BYTES + pad, layout.align) + layout.size - pad;
        let block = layout.red_left_pad == pad && u64::from(end) <= page_bytes;
        block.then_some(layout)
    }

    /// Whether a kmalloc passes debugging by: with its red zones it would not fit a page.
    pub(super) fn is_unwatched<M: Machine>(&self, env: Env<'_, M>, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.layout_for(env, bytes).is_none()
    }

    /// A slot that looks free: one that was kept, or a new one.
    pub(super) fn alloc_watched<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        bytes: u32,
    ) -> Option<NonNull<u8>> {
        let machine = env.pages.machine();
        let layout = self.layout_for(env, bytes)?;
        let debug = env.cache.debug()?;
        let fits = |slot| {
            let near = node.is_none_or(|node| self.node_of(env, slot) == Some(node));
            near && self.layout_of(env, slot) == Some(layout)
        };
        env.cache.shared_stats.count(Stat::AllocSlowpath);
        let kept = debug.kept.take_newest(machine, fits);
        kept.or_else(|| self.new_slot(env, node, bytes, layout))
    }

    fn node_of<M: Machine>(&self, env: Env<'_, M>, slot: NonNull<u8>) -> Option<NodeId> {
        Some(env.pages.node_of_page(env.pages.map().pfn_of(slot)?))
    }

    fn new_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        bytes: u32,
        layout: Layout,
    ) -> Option<NonNull<u8>> {
        let map = env.pages.map();
        if u64::from(layout.size) >= 1 << map.page_shift() {
            let slot = self.alloc_run(env, env.cache.geometry.order, node)?;
            let slab = map.pfn_of(slot)?;
            map.page(slab).objects.store(1, Ordering::Relaxed);
            debug::set_up(env, slab, slot, 1);
            return Some(slot);
        }
        let header = header_bytes(env.cache);
        let lead = header + layout.red_left_pad;
        let request = Request {
            bytes: header + layout.size,
            lead,
            align: layout.align,
        };
        let object = self.alloc_block(env, node, &request, Mark::new(self.id, false))?;
        // SAFETY: the block begins with the header and the red zone.
        let slot = unsafe { object.byte_sub(layout.red_left_pad as usize) };
        if header > 0 {
            // SAFETY: as above.
            let header = unsafe { slot.byte_sub(header as usize) }.cast::<u64>();
            // SAFETY: the block is the caller's; slots and headers are whole words.
            unsafe { header.write(header_of(bytes)) };
        }
        debug::prepare(env, slot, layout);
        Some(slot)
    }

    /// How a slot is laid out; `None` for a run of pages that is a kmalloc.
    pub(super) fn layout_of<M: Machine>(
        &self,
        env: Env<'_, M>,
        slot: NonNull<u8>,
    ) -> Option<Layout> {
        let map = env.pages.map();
        let page = map.page(map.pfn_of(slot)?);
        if !page.cache.load(Ordering::Relaxed).is_null() {
            return (!serves_kmalloc(env.cache)).then_some(env.cache.geometry.layout);
        }
        block_layout(env.pages, env.cache, Self::object_of(env, slot))
    }

    /// The object of a slot on a heap page.
    fn object_of<M: Machine>(env: Env<'_, M>, slot: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: the object lies in its slot (geometry).
        unsafe { slot.byte_add(env.cache.geometry.layout.red_left_pad as usize) }
    }

    /// Which slot an address is in, whether or not it is free.
    pub(super) fn find<M: Machine>(
        &self,
        env: Env<'_, M>,
        address: NonNull<u8>,
    ) -> Result<Place, NoPlace> {
        let map = env.pages.map();
        let pfn = Self::first_page(env, address).map_err(|error| (error, None))?;
        let owner = map.page(pfn).cache.load(Ordering::Relaxed);
        let found = if owner == env.cache.id() {
            self.find_run(env, pfn, address)
        } else if owner.is_null() {
            self.find_block(env, pfn, address)
        } else {
            Err(FreeError::WrongCache)
        };
        found.map_err(|error| (error, Some(pfn)))
    }

    /// The slot of one of the cache's runs of pages.
    fn find_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        address: NonNull<u8>,
    ) -> Result<Place, FreeError> {
        let base = env.pages.map().address(slab);
        let layout = self.layout_of(env, base).ok_or(FreeError::NotAnObject)?;
        let offset = address.addr().get() - base.addr().get();
        Ok(Place {
            slab,
            base,
            layout,
            exact: offset == layout.red_left_pad as usize,
        })
    }

    /// The slot of one of the cache's blocks.
    fn find_block<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        address: NonNull<u8>,
    ) -> Result<Place, FreeError> {
        let offset = Self::offset(env, address);
        let starts = offset.is_multiple_of(WORD_BYTES);
        let nobodys = match starts {
            true => FreeError::DoubleFree,
            false => FreeError::NotAnObject,
        };
        let at = Owners::of(env.pages, slab).and_then(|owners| owners.object_before(offset));
        let Some((start, mark)) = at.filter(|(_, mark)| !mark.is_deferred()) else {
            return Err(nobodys);
        };
        let exact = offset == start;
        if mark.id() != self.id {
            return Err(if exact {
                FreeError::WrongCache
            } else {
                nobodys
            });
        }
        // SAFETY: the table has entries for words of the page.
        let object = unsafe { env.pages.map().address(slab).byte_add(start as usize) };
        let registry = &self.shared().registry;
        let Some(block) = registry.any_block_of(env.pages, object, mark) else {
            return Err(FreeError::Corrupt);
        };
        if offset - start >= block.bytes - block.lead {
            return Err(nobodys);
        }
        // Without debugging a kmalloc has no layout, and nothing in front of its object.
        let layout = match env.cache.flags.debug() {
            true => block_layout(env.pages, env.cache, object).ok_or(FreeError::Corrupt)?,
            false => env.cache.geometry.layout,
        };
        // SAFETY: the slot begins with the red zone in front of the object.
        let base = unsafe { object.byte_sub(layout.red_left_pad as usize) };
        Ok(Place {
            slab,
            base,
            layout,
            exact,
        })
    }

    /// Frees a slot that looks free: it is kept, and the oldest one that was goes home.
    pub(super) fn free_watched<M: Machine>(
        &self,
        env: Env<'_, M>,
        slot: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let map = env.pages.map();
        let page = map.page(Self::first_page(env, slot)?);
        let Some(debug) = env.cache.debug() else {
            return Err(FreeError::Unchecked);
        };
        if !page.cache.load(Ordering::Relaxed).is_null() {
            // SAFETY: the caller's slot is free, and a run is given back at once.
            return unsafe { self.free_one::<true, M>(env, slot, false) };
        }
        env.cache.shared_stats.count(Stat::FreeSlowpath);
        if let Some(oldest) = debug.kept.put(env.pages.machine(), slot) {
            self.send_home(env, oldest);
        }
        Ok(())
    }

    /// Gives the memory of a kept slot back, after a last look at it.
    fn send_home<M: Machine>(&self, env: Env<'_, M>, slot: NonNull<u8>) {
        if let Some((page, layout)) = env.pages.map().pfn_of(slot).zip(self.layout_of(env, slot)) {
            debug::check_leaving(env, page, slot, layout);
        }
        self.give_unlooked(env, slot);
    }

    /// Gives the memory of a slot on a heap page back.
    fn give_unlooked<M: Machine>(&self, env: Env<'_, M>, slot: NonNull<u8>) {
        let object = Self::object_of(env, slot);
        // A block whose neighbours were overwritten stays where it is: the cache then has an object
        // of nobody's.
        let _ = self.free_object::<true, M>(env, object, false);
    }

    /// Frees a slot without a look at it.
    ///
    /// # Safety
    ///
    /// A live slot of the cache that its user has given up.
    pub(super) unsafe fn free_unwatched<M: Machine>(&self, env: Env<'_, M>, slot: NonNull<u8>) {
        let page = env
            .pages
            .map()
            .pfn_of(slot)
            .map(|pfn| env.pages.map().page(pfn));
        let run = page.is_some_and(|page| !page.cache.load(Ordering::Relaxed).is_null());
        let object = if run {
            slot
        } else {
            Self::object_of(env, slot)
        };
        // SAFETY: the caller's contract is the same.
        let freed = unsafe { self.free_one::<true, M>(env, object, false) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    /// Gives the memory of all kept slots back.
    pub(super) fn let_kept_go<M: Machine>(&self, env: Env<'_, M>) {
        let Some(debug) = env.cache.debug() else {
            return;
        };
        let machine = env.pages.machine();
        let _pass = env.pages.gate().enter(machine);
        while let Some(slot) = debug.kept.take_oldest(machine) {
            self.send_home(env, slot);
        }
    }

    /// Slots on heap pages, and whether they are kept.
    pub(super) fn walk_slots<M: Machine>(
        &self,
        env: Env<'_, M>,
        found: &mut dyn FnMut(&Place, bool),
    ) {
        let Some(debug) = env.cache.debug() else {
            return;
        };
        self.each_block(env, &mut |slab: Pfn, object| {
            let Some(layout) = block_layout(env.pages, env.cache, object) else {
                return;
            };
            // SAFETY: the slot begins with the red zone in front of the object.
            let base = unsafe { object.byte_sub(layout.red_left_pad as usize) };
            let place = Place {
                slab,
                base,
                layout,
                exact: true,
            };
            found(&place, debug.kept.contains(env.pages.machine(), base));
        });
    }

    /// Kept slots, which look like objects in use to the pages.
    pub(super) fn kept<M: Machine>(&self, env: Env<'_, M>) -> u64 {
        let debug = env.cache.debug();
        debug.map_or(0, |debug| debug.kept.len(env.pages.machine()) as u64)
    }
}
