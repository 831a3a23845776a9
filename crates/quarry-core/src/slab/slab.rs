//! Slabs: made from pages, taken apart, their stacks of indices.

use core::num::NonZeroUsize;
use core::ptr::NonNull;

use super::geometry::ColourRule;
use super::stats::{Stat, Stats};
use super::types::SlabCache;
use crate::debug;
use crate::design::{Env, FreeError};
use crate::geometry::FreelistPlace;
use crate::machine::{Access, Line, Machine, NodeId, Work, access, access_run, work};
use crate::page::{Links, Page, Pfn};
use crate::slabs::{self, ObjectSet};
use crate::sync::Ordering;

/// Number of a slab's free objects that a returning object is compared with.
const COMPARED: u32 = 64;

/// A slab that no other code changes: it is new, or its node's `list_lock` is held (I2).
///
/// The indices of the objects are a stack: entries `active..objects` name the free ones, the next
/// to be taken first.
pub(super) struct OpenSlab<'a, M: Machine> {
    env: Env<'a, M>,
    size: usize,
    index_bytes: u32,
    pub(super) slab: Pfn,
}

impl<'a, M: Machine> OpenSlab<'a, M> {
    fn page(&self) -> &'a Page {
        self.env.map().page(self.slab)
    }

    pub(super) fn objects(&self) -> u32 {
        self.page().objects.load(Ordering::Relaxed)
    }

    /// Objects taken out of the slab.
    pub(super) fn active(&self) -> u32 {
        self.page().word.load(Ordering::Relaxed) as u32
    }

    fn set_active(&self, active: u32) {
        self.page().word.store(u64::from(active), Ordering::Relaxed);
    }

    /// First object.
    pub(super) fn first(&self) -> NonNull<u8> {
        let offset = self.page().private.load(Ordering::Relaxed) as usize;
        // SAFETY: I4 - `new_slab` stored an offset inside the slab.
        unsafe { self.env.map().address(self.slab).byte_add(offset) }
    }

    pub(super) fn object(&self, number: u32) -> NonNull<u8> {
        // SAFETY: number < objects, which are one behind the other in the slab (geometry).
        unsafe { self.first().byte_add(number as usize * self.size) }
    }

    /// Number of the object that an address is in; `None` if in none.
    pub(super) fn number(&self, object: NonNull<u8>) -> Option<u32> {
        let first = self.first().addr().get();
        let number = object.addr().get().checked_sub(first)? / self.size;
        (number < self.objects() as usize).then_some(number as u32)
    }

    /// First entry of the indices; `None` while a full slab has them nowhere.
    fn indices(&self) -> Option<NonNull<u8>> {
        let address = self.page().private2.load(Ordering::Relaxed) as usize;
        let address = NonZeroUsize::new(address)?;
        // Slabs and general objects are all in the machine's pages.
        Some(self.env.map().address(Pfn(0)).with_addr(address))
    }

    fn set_indices(&self, indices: Option<NonNull<u8>>) {
        let address = indices.map_or(0, |at| at.addr().get() as u64);
        self.page().private2.store(address, Ordering::Relaxed);
    }

    fn entry(&self, entry: u32) -> Option<NonNull<u8>> {
        debug_assert!(entry < self.objects());
        let offset = entry as usize * self.index_bytes as usize;
        // SAFETY: I4 - there is room for `objects` indices, and entry < objects.
        self.indices().map(|at| unsafe { at.byte_add(offset) })
    }

    /// Accounts the descriptor, which has the numbers of objects and where the indices are.
    fn account(&self) {
        account(self.env, self.slab, Access::Write);
    }

    /// Accounts an entry of the indices.
    fn account_index(&self, at: *const u8, kind: Access) {
        let machine = self.env.machine();
        access_run(machine, Line::Bitmap, kind, at, self.index_bytes as usize);
    }

    /// The number of the object that an entry names.
    fn read(&self, entry: u32) -> Option<u32> {
        let at = self.entry(entry)?;
        self.account_index(at.as_ptr(), Access::Read);
        Some(match self.index_bytes {
            // SAFETY: I2 and I4 - the entry is inside the array, which no other code changes.
            1 => u32::from(unsafe { at.read() }),
            // SAFETY: I2 and I4 - the entry is inside the array; entries are aligned to their width (geometry).
            2 => u32::from(unsafe { at.cast::<u16>().read() }),
            // SAFETY: I2 and I4 - the entry is inside the array; entries are aligned to their width (geometry).
            _ => unsafe { at.cast::<u32>().read() },
        })
    }

    fn write(&self, entry: u32, number: u32) {
        let Some(at) = self.entry(entry) else { return };
        self.account_index(at.as_ptr(), Access::Store);
        match self.index_bytes {
            // SAFETY: I2 and I4 - the entry is inside the array, which no other code uses.
            1 => unsafe { at.write(number as u8) },
            // SAFETY: I2 and I4 - the entry is inside the array; entries are aligned to their width (geometry).
            2 => unsafe { at.cast::<u16>().write(number as u16) },
            // SAFETY: I2 and I4 - the entry is inside the array; entries are aligned to their width (geometry).
            _ => unsafe { at.cast::<u32>().write(number) },
        }
    }

    fn in_object(&self) -> bool {
        self.env.cache.geometry.slab.freelist == FreelistPlace::InObject
    }

    /// Place of the slab's indices in a free object: behind its red zone.
    fn place_in(&self, number: u32) -> NonNull<u8> {
        let pad = self.env.cache.geometry.layout.red_left_pad as usize;
        // SAFETY: geometry puts the object inside its slot.
        unsafe { self.object(number).byte_add(pad) }
    }

    /// The slot of the free object that holds the indices, and how many bytes they take.
    pub(super) fn holder(&self) -> Option<(NonNull<u8>, u32)> {
        let indices = self.indices().filter(|_| self.in_object())?;
        let geometry = &self.env.cache.geometry;
        // SAFETY: `place_in` put the indices so far behind the slot's start.
        let slot = unsafe { indices.byte_sub(geometry.layout.red_left_pad as usize) };
        Some((slot, geometry.slab.freelist_bytes))
    }

    /// Takes the indices out of the object that holds them: the slab is full, or about to go.
    fn let_go(&self) {
        if let Some((slot, bytes)) = self.holder() {
            debug::cover(self.env, slot, bytes);
            self.set_indices(None);
        }
    }

    /// Counts all objects as taken.
    pub(super) fn make_full(&self) {
        self.set_active(self.objects());
        if self.in_object() {
            self.set_indices(None);
        }
    }

    /// True if the indices name free objects, each once: a user may have written to them.
    pub(super) fn names_each_once(&self) -> bool {
        let mut seen = ObjectSet::new();
        let objects = self.objects();
        let mut sound = true;
        self.each_free(|number| sound &= number < objects && seen.insert(number as usize));
        sound
    }

    /// Takes free objects, at most `wanted`, handing each to `give`. Says how many.
    pub(super) fn take(&self, wanted: u32, mut give: impl FnMut(NonNull<u8>)) -> u32 {
        self.account();
        let (active, objects) = (self.active(), self.objects());
        let taken = wanted.min(objects - active);
        for entry in active..active + taken {
            if let Some(number) = self.read(entry) {
                give(self.object(number));
            }
        }
        self.set_active(active + taken);
        if active + taken == objects && self.in_object() {
            // The object that held the indices has been the last to go.
            self.let_go();
        }
        taken
    }

    /// Takes an object back. `false` if it is seen to be free already, or is none of the slab's: then
    /// the object around it stays in use.
    pub(super) fn give_back(&self, object: NonNull<u8>) -> bool {
        let starts = |&number: &u32| self.object(number) == object;
        let Some(number) = self.number(object).filter(starts) else {
            return false;
        };
        let active = self.active();
        if active == 0 || self.came_back_lately(number) {
            return false;
        }
        if self.indices().is_none() {
            self.set_indices(Some(self.place_in(number)));
        }
        self.account();
        self.set_active(active - 1);
        self.write(active - 1, number);
        true
    }

    /// True if an object is among the free ones that came back last.
    fn came_back_lately(&self, number: u32) -> bool {
        let active = self.active();
        let compared = (self.objects() - active).min(COMPARED) as usize;
        if compared == 0 {
            return false;
        }
        let Some(at) = self.entry(active) else {
            return false;
        };
        match self.index_bytes {
            // SAFETY: I2 and I4 - entries from `active` on are indices that no code changes.
            1 => unsafe { core::slice::from_raw_parts(at.as_ptr(), compared) }
                .contains(&(number as u8)),
            // SAFETY: I4 - the entries are inside the array, and aligned to their width (geometry).
            2 => unsafe { core::slice::from_raw_parts(at.cast::<u16>().as_ptr(), compared) }
                .contains(&(number as u16)),
            // SAFETY: I4 - the entries are inside the array, and aligned to their width (geometry).
            _ => unsafe { core::slice::from_raw_parts(at.cast::<u32>().as_ptr(), compared) }
                .contains(&number),
        }
    }

    /// Calls `found` with the number of each free object, the next to be taken first.
    pub(super) fn each_free(&self, mut found: impl FnMut(u32)) {
        for entry in self.active()..self.objects() {
            if let Some(number) = self.read(entry) {
                found(number);
            }
        }
    }
}

/// Accounts the descriptor of a slab: its own in front of its indices until 3.12, then the page's.
fn account<M: Machine>(env: Env<'_, M>, slab: Pfn, kind: Access) {
    let page = env.map().page(slab);
    match env.cache.geometry.slab.descriptor_bytes {
        0 => access(env.machine(), Line::Slab, kind, page),
        bytes => {
            let own = page.own_descriptor(bytes);
            access_run(env.machine(), Line::Slab, kind, own, bytes as usize);
        }
    }
}

impl SlabCache {
    /// Links for changes to nodes' lists of slabs.
    pub(super) fn links<M: Machine>(env: Env<'_, M>) -> Links<'_, M> {
        env.links().in_own(env.cache.geometry.slab.descriptor_bytes)
    }

    /// Links for changes to a function's own lists of slabs.
    pub(super) fn call_links<M: Machine>(env: Env<'_, M>) -> Links<'_, M> {
        env.call_links()
            .in_own(env.cache.geometry.slab.descriptor_bytes)
    }

    /// The slab of an object that goes back to it. Until 3.12 what follows needs what the page's descriptor has: where the
    /// slab's own one is.
    pub(super) fn slab_of<M: Machine>(
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<Pfn, FreeError> {
        if env.cache.geometry.slab.descriptor_bytes == 0 {
            return slabs::slab_of(env, object);
        }
        let slab = slabs::lookup(env, object)?;
        let page = env.map().page(slab);
        access(env.machine(), Line::Slab, Access::Read, page);
        Ok(slab)
    }

    /// Accounts the look at an object's node, which until 3.12 the slab's own descriptor has, and then the page's.
    pub(super) fn account_node<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) {
        if env.cache.geometry.slab.descriptor_bytes != 0
            && let Ok(slab) = slabs::lookup(env, object)
        {
            account(env, slab, Access::Check);
        }
    }

    /// A slab that no other code changes: it is new, or its node's `list_lock` is held.
    pub(super) fn open<'a, M: Machine>(&self, env: Env<'a, M>, slab: Pfn) -> OpenSlab<'a, M> {
        OpenSlab {
            env,
            size: self.size,
            index_bytes: self.index_bytes,
            slab,
        }
    }

    /// True if an object of the slab starts at this address.
    pub(super) fn is_object<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> bool {
        let open = self.open(env, slab);
        open.number(object)
            .is_some_and(|number| open.object(number) == object)
    }

    /// A new slab with all objects free, on no list, on the given node or, if `anywhere`, on
    /// another one that has memory.
    pub(super) fn new_slab<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        anywhere: bool,
        stats: &mut Stats,
    ) -> Option<Pfn> {
        let place = env.cache.geometry.slab;
        let descriptor = place.descriptor_bytes as usize;
        let elsewhere = match place.freelist {
            FreelistPlace::OffSlab => {
                let bytes = place.freelist_bytes as usize;
                Some(env.kmalloc::<Self>(bytes, Some(node))?)
            }
            _ => None,
        };
        let taken = if anywhere || !self.numa {
            slabs::take(env, &self.nodes, Some(node))
        } else {
            slabs::take_on(env, &self.nodes, node)
        };
        let Some(new) = taken else {
            if let Some(object) = elsewhere {
                // SAFETY: allocated above for a slab that does not come about.
                unsafe { env.kfree::<Self>(object) };
            }
            return None;
        };
        let slab = new.slab;
        let map = env.map();
        let (page, objects) = (map.page(slab), new.objects);
        let colour = self.next_colour(env, env.pages().node_of_page(slab)) * place.colour_off;
        let in_front = match place.freelist {
            FreelistPlace::SlabStart => place.freelist_bytes,
            _ => 0,
        };
        page.private
            .store(u64::from(colour + in_front), Ordering::Relaxed);
        let open = self.open(env, slab);
        open.set_active(0);
        debug::set_up(env, slab, open.first(), objects);
        let start = map.address(slab);
        let (holder, offset) = match (elsewhere, place.freelist) {
            (Some(general), _) => (general, descriptor),
            (None, FreelistPlace::SlabStart) => (start, colour as usize + descriptor),
            (None, FreelistPlace::InObject) => (open.place_in(objects - 1), 0),
            (None, _) => {
                let slab_bytes = 1usize << (map.page_shift() + page.order());
                (start, slab_bytes - place.freelist_bytes as usize)
            }
        };
        // SAFETY: I4 - the holder is the slab, an object, or a general object with room for the
        // descriptor and the indices (geometry).
        open.set_indices(Some(unsafe { holder.byte_add(offset) }));
        open.account();
        for number in 0..objects {
            work(env.machine(), Work::SlabObject);
            open.write(number, number);
        }
        stats.count(Stat::AllocSlab);
        Some(slab)
    }

    /// The colour of the next slab of a node (`colour_next`).
    fn next_colour<M: Machine>(&self, env: Env<'_, M>, node: NodeId) -> u32 {
        let colours = env.cache.geometry.slab.colours;
        let after = |colour: u32| if colour + 1 < colours { colour + 1 } else { 0 };
        let counter = &self.beside[node.0 as usize].colour_next;
        let mut colour = counter.load(Ordering::Relaxed);
        // Two CPUs may use the same colour, as in the kernel.
        counter.store(after(colour), Ordering::Relaxed);
        if self.era.run.colour == ColourRule::AdvanceThenUse {
            colour = after(colour);
        }
        colour
    }

    /// Gives an empty slab's pages and indices back. It is on no list, and no lock is held.
    pub(super) fn discard<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        let place = env.cache.geometry.slab;
        let open = self.open(env, slab);
        let indices = open.indices();
        open.let_go();
        debug::discard(env, slab, open.first());
        slabs::give_back(env, &self.nodes, slab);
        if place.freelist == FreelistPlace::OffSlab
            && let Some(indices) = indices
        {
            // SAFETY: `new_slab` put the indices so far behind the general object's start.
            let object = unsafe { indices.byte_sub(place.descriptor_bytes as usize) };
            // SAFETY: `new_slab` allocated it, and the slab is gone.
            unsafe { env.kfree::<Self>(object) };
        }
    }
}
