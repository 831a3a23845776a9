//! Slabs: made from pages, taken apart, and the lists of free objects in them.

use core::ptr::NonNull;

use super::geometry::{order_objects, slub_era};
use super::stats::CountsSlabs;
use super::types::{Detached, Slub};
use super::word::SlabWord;
use crate::debug;
use crate::design::{Env, FreeError};
use crate::geometry::WORD_BYTES;
use crate::machine::{Access, Line, Machine, Work, access, work};
use crate::page::{MAX_ORDER, PageKind, Pfn};
use crate::slabs::{self, NewSlab};
use crate::stats::Counters;
use crate::sync::Ordering;

impl Slub {
    /// The next object after a free one.
    ///
    /// # Safety
    ///
    /// I1: the caller owns the list that the object is on.
    #[inline(always)]
    pub(crate) unsafe fn next_free<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> *mut u8 {
        // SAFETY: geometry puts the free pointer inside the slot.
        let link = unsafe { object.byte_add(self.free_pointer) }.cast::<*mut u8>();
        access(env.machine(), Line::Object, Access::Read, link.as_ptr());
        // SAFETY: the slot and the offset are multiples of a word, and I1 says that the object is
        // the allocator's and holds a link.
        unsafe { link.read() }
    }

    /// Links a free object to the next one.
    ///
    /// # Safety
    ///
    /// The caller owns the object and its user has given it up.
    #[inline(always)]
    pub(crate) unsafe fn set_next_free<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
        next: *mut u8,
    ) {
        // SAFETY: the caller owns the object, which no user has; geometry puts the free pointer inside the slot.
        unsafe { Self::set_link(env, object, self.free_pointer, next) };
    }

    /// [`Slub::set_next_free`] for loops, which keep the free pointer's offset in a register.
    ///
    /// # Safety
    ///
    /// As there; `free_pointer` is the cache's.
    #[inline(always)]
    pub(crate) unsafe fn set_link<M: Machine>(
        env: Env<'_, M>,
        object: NonNull<u8>,
        free_pointer: usize,
        next: *mut u8,
    ) {
        // SAFETY: geometry puts the free pointer inside the slot.
        let link = unsafe { object.byte_add(free_pointer) }.cast::<*mut u8>();
        access(env.machine(), Line::Object, Access::Store, link.as_ptr());
        // SAFETY: word-aligned as in `next_free`; the caller owns the object.
        unsafe { link.write(next) };
    }

    /// An object's place as a slab's word names it.
    #[inline(always)]
    pub(crate) fn place<M: Machine>(env: Env<'_, M>, slab: Pfn, object: NonNull<u8>) -> u32 {
        let base = env.map().address(slab);
        ((object.addr().get() - base.addr().get()) / WORD_BYTES as usize) as u32 + 1
    }

    /// The first object of a slab's list.
    #[inline(always)]
    pub(crate) fn first<M: Machine>(env: Env<'_, M>, slab: Pfn, word: SlabWord) -> *mut u8 {
        if word.first == 0 {
            return core::ptr::null_mut();
        }
        let offset = (word.first - 1) as usize * WORD_BYTES as usize;
        env.map().address(slab).as_ptr().wrapping_byte_add(offset)
    }

    /// Accounts the CPU's list of an object's slab where that is in the descriptor. Nothing in later releases: there it is in
    /// the CPU's state, which machines account.
    #[inline(always)]
    pub(super) fn account_list<M: Machine>(&self, env: Env<'_, M>, object: NonNull<u8>) {
        if self.rules.list_in_descriptor
            && let Some((_, page)) = env.map().page_of(object)
        {
            access(env.machine(), Line::Slab, Access::Write, page);
        }
    }

    /// Link to the slab that an object would be in, whichever cache's it is; 0 for none.
    #[inline(always)]
    pub(super) fn slab_link<M: Machine>(env: Env<'_, M>, object: NonNull<u8>) -> u32 {
        let Some((_, page)) = env.map().page_of(object) else {
            return 0;
        };
        // Nearly all objects are their cache's, and which slab it is shows in the object's address.
        access(env.machine(), Line::Slab, Access::Check, page);
        page.head_link()
    }

    /// [`Slub::slab_link`] as a page number.
    pub(crate) fn slab_of<M: Machine>(
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<Pfn, FreeError> {
        Pfn::from_link(Self::slab_link(env, object)).ok_or(FreeError::Foreign)
    }

    /// Refuses what is not one of this cache's slots.
    pub(crate) fn check_object<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let page = env.map().page(slab);
        if page.kind() != PageKind::Slab {
            return Err(FreeError::Foreign);
        }
        if env.map().owner(slab) != env.cache.id() {
            return Err(FreeError::WrongCache);
        }
        if !self.is_slot(env, slab, object) {
            return Err(FreeError::NotAnObject);
        }
        Ok(())
    }

    /// True if a slot of the slab starts at this address.
    pub(super) fn is_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        object: NonNull<u8>,
    ) -> bool {
        let base = env.map().address(slab).addr().get();
        let offset = object.addr().get().wrapping_sub(base);
        let objects = env.map().page(slab).objects.load(Ordering::Relaxed) as usize;
        offset.is_multiple_of(self.size) && offset / self.size < objects
    }

    /// Takes a slab's whole list of free objects, counting all its objects as in use. `None` if
    /// the list is empty; the slab then stops being frozen, as it has no owner.
    ///
    /// The caller owns the slab (I3).
    pub(super) fn take_freelist<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
    ) -> Option<(NonNull<u8>, u32)> {
        self.take_objects(env, slab, true)
    }

    /// The same, freezing the slab only if `freeze`; if not, the slab is full and has no owner.
    pub(crate) fn take_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        freeze: bool,
    ) -> Option<(NonNull<u8>, u32)> {
        let page = env.map().page(slab);
        let objects = page.objects.load(Ordering::Relaxed);
        let mut old = SlabWord::load(env.machine(), page);
        loop {
            let taken = SlabWord {
                first: 0,
                inuse: objects,
                frozen: freeze && old.first != 0,
            };
            match old.replace(env.machine(), page, taken) {
                Ok(()) => break,
                Err(now) => old = now,
            }
        }
        let head = NonNull::new(Self::first(env, slab, old))?;
        Some((head, objects - old.inuse))
    }

    /// Gives detached objects back to their slab's list. Returns the slab's word before and after.
    ///
    /// # Safety
    ///
    /// The caller owns the objects, which are this slab's and linked from head to tail.
    pub(super) unsafe fn push_freelist<M: Machine>(
        &self,
        env: Env<'_, M>,
        slab: Pfn,
        old: SlabWord,
        list: Detached,
        freeze: bool,
    ) -> Result<SlabWord, SlabWord> {
        let page = env.map().page(slab);
        // SAFETY: the caller owns the tail object.
        unsafe { self.set_next_free(env, list.tail, Self::first(env, slab, old)) };
        let new = SlabWord {
            first: Self::place(env, slab, list.head),
            // Never below 0, even if objects are freed twice.
            inuse: old.inuse.saturating_sub(list.count),
            frozen: freeze,
        };
        old.replace(env.machine(), page, new).map(|()| new)
    }

    /// A new slab of pages that `pages` finds, whose objects are linked in ascending order and all
    /// count as in use. It belongs to the caller.
    pub(crate) fn new_slab<M: Machine, C: CountsSlabs>(
        &self,
        env: Env<'_, M>,
        stats: &mut Counters<C>,
        pages: impl Fn(u32) -> Option<Pfn>,
    ) -> Option<(Pfn, NonNull<u8>, u32)> {
        let NewSlab {
            slab,
            objects,
            fallback,
        } = slabs::take_from(env, &self.nodes, self.orders(env), pages)?;
        if fallback {
            stats.count(C::ORDER_FALLBACK);
        }
        let map = env.map();
        let page = map.page(slab);
        SlabWord {
            first: 0,
            inuse: objects,
            frozen: true,
        }
        .init(page);
        let first = map.address(slab);
        debug::set_up(env, slab, first, objects);
        for i in 0..objects as usize {
            // SAFETY: objects * size <= bytes of the slab (geometry).
            let object = unsafe { first.byte_add(i * self.size) };
            let last = i + 1 == objects as usize;
            let next = if last {
                core::ptr::null_mut()
            } else {
                object.as_ptr().wrapping_byte_add(self.size)
            };
            work(env.machine(), Work::SlabObject);
            // SAFETY: the slab is new, so all its objects are the caller's.
            unsafe { self.set_next_free(env, object, next) };
        }
        stats.count(C::ALLOC_SLAB);
        Some((slab, first, objects))
    }

    /// Order of a normal slab, and its objects.
    pub(super) fn normal_order(&self) -> (u32, u32) {
        let packed = self.normal.load(Ordering::Relaxed);
        (packed >> 16, packed & 0xffff)
    }

    /// The same of a normal slab and of one to fall back to.
    fn orders<M: Machine>(&self, env: Env<'_, M>) -> [(u32, u32); 2] {
        let normal = self.normal_order();
        let geometry = &env.cache.geometry;
        let fallback = (geometry.min_order, geometry.min_objects);
        if self.rules.has_fallback_order {
            [normal, fallback]
        } else {
            [normal; 2]
        }
    }

    /// Sets the order of new slabs if the boot parameters allow it (`order_store()`, 2.6.35).
    pub(super) fn set_order<M: Machine>(&self, env: Env<'_, M>, order: u32) -> bool {
        let (machine, boot) = (&env.system.params, &env.system.boot);
        let orders = slub_era(env.cache.era).map(|era| era.order.effective_orders(machine, boot));
        let allowed = orders.is_some_and(|(min, max)| (min..=max).contains(&order));
        if allowed {
            self.use_order(env, order);
        }
        allowed
    }

    /// Sets the order of slabs while there are none.
    pub(super) fn choose_order<M: Machine>(&self, env: Env<'_, M>, order: u32) -> bool {
        let nodes = env.machine().topology().nodes as usize;
        let unused = self.nodes[..nodes]
            .iter()
            .all(|node| node.nr_slabs.load(Ordering::Relaxed) == 0);
        if unused {
            self.use_order(env, order);
        }
        unused
    }

    /// Makes new slabs of this order, or of the nearest that one object and the limit of objects in
    /// a slab allow.
    fn use_order<M: Machine>(&self, env: Env<'_, M>, order: u32) {
        let machine = &env.system.params;
        let size = env.cache.geometry.layout.size;
        let lowest = machine.order_for(size.into());
        let fits = |order| order_objects(machine, order, size) <= slabs::OBJECTS_MAX;
        let highest = (lowest..=MAX_ORDER).rev().find(|&order| fits(order));
        let order = order.clamp(lowest, highest.unwrap_or(lowest));
        let objects = order_objects(machine, order, size);
        self.normal.store(order << 16 | objects, Ordering::Relaxed);
    }

    /// Gives an empty slab's pages back. The caller owns the slab and holds no list lock.
    pub(crate) fn discard<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) {
        debug::discard(env, slab, env.map().address(slab));
        slabs::give_back(env, &self.nodes, slab);
    }
}
