//! Hardened caches and the kmalloc over them ([`crate::harden`]).

use core::ptr::NonNull;

use super::{CacheBody, CacheView, CreateError, Heap};
use crate::debug::{self, CallSite};
use crate::design::{CacheHead, CacheSpec, Design, FreeError};
use crate::geometry::{
    CacheFlags, CacheParams, Geometry, Hardening, KmallocTarget, TRAILER, kmalloc_index,
};
use crate::harden::{self, Armour, Hardened};
use crate::machine::{Machine, NodeId};
use crate::system::SMALL_STEP;

/// Alignment of all slots.
const SLOT_ALIGN: usize = 8;

impl<D: Design> CacheBody<D> {
    /// State behind the facade, if the cache is hardened.
    #[inline(always)]
    pub(super) fn hardened(&self) -> Option<&Hardened<D>> {
        // SAFETY: `create_body` gave the head the armour of a state of this design.
        let of = |armour| unsafe { Hardened::of(armour) };
        self.head.armour().map(of)
    }

    /// State that has the slabs: for all but fast paths.
    pub(super) fn behind(&self) -> &D {
        self.hardened()
            .map_or(&self.design, |hardened| &hardened.design)
    }
}

impl<M: Machine, D: Design> Heap<M, D> {
    /// True if the heap's caches are hardened.
    #[inline(always)]
    pub fn hardens(&self) -> bool {
        self.system.boot.hardening.caches()
    }

    /// The measures that the heap takes.
    pub fn hardening(&self) -> Hardening {
        self.system.boot.hardening
    }

    /// Reports a free that the caller refuses.
    ///
    /// # Errors
    ///
    /// The given one, always.
    pub fn refuse(
        &self,
        object: NonNull<u8>,
        error: FreeError,
        site: CallSite,
    ) -> Result<(), FreeError> {
        self.kfree_refused(object, error, site)
    }

    /// Adds the flags of `slub_debug` and the trailer of a hardened cache to a request, and computes its geometry.
    pub(super) fn settle<'a>(
        &self,
        spec: CacheSpec<'a>,
    ) -> Result<(CacheSpec<'a>, Geometry), CreateError> {
        let (spec, plain) = self.settle_flags(spec)?;
        let spec = self.with_trailer(spec);
        if !spec.flags.contains(CacheFlags::HARDENED) {
            return Ok((spec, plain));
        }
        let params = CacheParams {
            object_size: spec.object_size,
            align: spec.align,
            flags: spec.flags,
            sheaf_capacity: spec.sheaf_capacity,
        };
        let system = &self.system;
        let geometry = D::geometry(system.era, &system.params, &system.boot, &params)?;
        Ok((spec, geometry))
    }

    /// The request for a cache, with room for a trailer if the cache is to be hardened. A cache with debugging is not.
    fn with_trailer<'a>(&self, spec: CacheSpec<'a>) -> CacheSpec<'a> {
        let is_class = spec.flags.contains(CacheFlags::KMALLOC);
        // No request goes to a class that is no larger than a trailer.
        let tiny = is_class && spec.object_size <= TRAILER;
        if !self.hardens() || spec.flags.debug() || tiny {
            return spec;
        }
        let object_size = match is_class {
            // The class's size is that of its slots.
            true => spec.object_size,
            false => spec
                .object_size
                .next_multiple_of(SLOT_ALIGN as u32)
                .saturating_add(TRAILER),
        };
        CacheSpec {
            object_size,
            flags: spec.flags | CacheFlags::HARDENED,
            ..spec
        }
    }

    /// Makes the two states of a hardened cache; the facade is the result. `None` if there is no room.
    pub(super) fn create_hardened(&self, spec: &CacheSpec<'_>, head: &CacheHead) -> Option<D> {
        let armour = NonNull::from(head.armour()?);
        let (system, shared) = (&self.system, self.system.shared.cast());
        // As a cache with debugging, a facade has nothing per CPU.
        let flags = spec.flags | CacheFlags::CONSISTENCY;
        let params = CacheParams {
            object_size: spec.object_size,
            align: spec.align,
            flags,
            sheaf_capacity: 0,
        };
        let geometry = D::geometry(system.era, &system.params, &system.boot, &params).ok()?;
        let front = CacheHead::new(&CacheSpec { flags, ..*spec }, system.era, geometry);
        // SAFETY: the heap made `shared` (`D::share`) and frees it after its caches. Designs keep nothing of the head.
        let facade = unsafe { D::create(self.env(&front), shared) }?;
        // SAFETY: as above.
        let design = unsafe { D::create(self.env(head), shared) };
        let Some(design) = design else {
            // SAFETY: no code has used it.
            unsafe { facade.release(self.env(head)) };
            return None;
        };
        let Some(new) = Armour::new(self.env(head)) else {
            // SAFETY: no code has used them.
            unsafe { facade.release(self.env(head)) };
            // SAFETY: as above.
            unsafe { design.release(self.env(head)) };
            return None;
        };
        let state = Hardened {
            armour: new,
            design,
        };
        // SAFETY: `create_body` took the block for such a state; no other code knows the cache yet.
        unsafe { armour.cast::<Hardened<D>>().write(state) };
        Some(facade)
    }

    /// Returns per-CPU slots and rings of a cache.
    ///
    /// # Safety
    ///
    /// The cache has no slabs and no user left; [`Heap::free_body`] follows.
    pub(super) unsafe fn release_design(&self, body: &CacheBody<D>) {
        let env = self.env(&body.head);
        if let Some(hardened) = body.hardened() {
            // SAFETY: the cache has no user left: the caller says so.
            unsafe { hardened.design.release(env) };
            // SAFETY: read once; the block is only given back from here on.
            let armour = unsafe { core::ptr::read(&raw const hardened.armour) };
            armour.release(env);
        }
        // SAFETY: as above.
        unsafe { body.design.release(env) };
    }

    /// The class of an index, if it is made.
    #[inline]
    pub(super) fn made_hardened(&self, index: u32) -> Option<&CacheBody<D>> {
        Self::in_place(&self.system.hardened_classes[index as usize])
    }

    /// kmalloc of a hardened heap, with an alignment, a power of two; the trailer knows the bytes of the request. `None` also
    /// if no class serves it.
    #[inline(always)]
    pub fn kmalloc_hardened(
        &self,
        bytes: usize,
        align: usize,
        node: Option<NodeId>,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        let rest = align.max(SMALL_STEP) - 1;
        let need = bytes.checked_add(TRAILER as usize + rest)? & !rest;
        let body = match self.system.hardened_by_size.get(need / SMALL_STEP) {
            Some(place) => Self::in_place(place),
            None => self
                .index_of(need)
                .and_then(|index| self.made_hardened(index)),
        };
        match body {
            Some(body) if body.head.geometry.layout.align as usize >= align => {
                self.alloc_hardened(body, bytes, node, site)
            }
            _ => self.kmalloc_hardened_rare(bytes, need, align, node, site),
        }
    }

    /// Allocates from a class that is not made yet, or whose size is a power of two for its alignment.
    #[cold]
    #[inline(never)]
    fn kmalloc_hardened_rare(
        &self,
        bytes: usize,
        need: usize,
        align: usize,
        node: Option<NodeId>,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        let class = |size: usize| {
            let (rules, params) = (self.system.kmalloc, &self.system.params);
            let body = self.class(kmalloc_index(rules, params, size as u64))?;
            let is_aligned = body.head.geometry.layout.align as usize >= align;
            is_aligned.then_some(body)
        };
        let power = need.max(align).checked_next_power_of_two()?;
        let body = class(need).or_else(|| class(power))?;
        self.alloc_hardened(body, bytes, node, site)
    }

    #[inline(always)]
    fn alloc_hardened(
        &self,
        body: &CacheBody<D>,
        bytes: usize,
        node: Option<NodeId>,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        match body.hardened() {
            Some(hardened) => {
                harden::alloc(hardened, self.env(&body.head), node, bytes, false, site)
            }
            // A class with debugging.
            None => self.alloc_slow(body, node, bytes as u32, site),
        }
    }

    /// [`Heap::kmalloc_hardened`], or a block of pages where no class serves the request.
    #[cold]
    pub(super) fn kmalloc_hardened_or_pages(
        &self,
        bytes: usize,
        align: usize,
        node: Option<NodeId>,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        let (rules, params) = (self.system.kmalloc, &self.system.params);
        let object = self.kmalloc_hardened(bytes, align, node, site);
        let pages = bytes.max(align) as u64;
        object.or_else(|| match kmalloc_index(rules, params, pages) {
            KmallocTarget::TooLarge | KmallocTarget::Design => None,
            _ => self.kmalloc_large(params.order_for(pages), node),
        })
    }

    /// [`Heap::alloc_slow`] of a hardened cache. Apart, so that others save no registers for it.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow_hardened(
        &self,
        body: &CacheBody<D>,
        node: Option<NodeId>,
        bytes: usize,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        let hardened = body.hardened()?;
        harden::alloc(hardened, self.env(&body.head), node, bytes, false, site)
    }

    /// [`Heap::free_slow`] of a hardened cache.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_slow_hardened(
        &self,
        body: &CacheBody<D>,
        object: NonNull<u8>,
        site: CallSite,
    ) -> Result<(), FreeError> {
        let hardened = body.hardened().ok_or(FreeError::Foreign)?;
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.free_hardened(body, hardened, object, (None, false), site) }
    }

    /// Frees an object of a hardened cache, given the size that its user says, and whether it is known to be in a slab of the
    /// cache.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline]
    pub(super) unsafe fn free_hardened(
        &self,
        body: &CacheBody<D>,
        hardened: &Hardened<D>,
        object: NonNull<u8>,
        (size, owned): (Option<usize>, bool),
        site: CallSite,
    ) -> Result<(), FreeError> {
        let env = self.env(&body.head);
        // SAFETY: the caller vouches that the object has no user left.
        let freed = unsafe { harden::free(hardened, env, object, size, (owned, false), site) };
        match freed {
            Ok(()) => Ok(()),
            Err(error) => self.refused_hardened(body, object, error, site),
        }
    }

    /// [`Heap::free_hardened`] past all per-CPU state.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn free_hardened_direct(
        &self,
        body: &CacheBody<D>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        let (env, site) = (self.env(&body.head), CallSite::UNKNOWN);
        let hardened = body.hardened().ok_or(FreeError::Foreign)?;
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { harden::free(hardened, env, object, None, (true, true), site) }
    }

    #[cold]
    #[inline(never)]
    fn refused_hardened(
        &self,
        body: &CacheBody<D>,
        object: NonNull<u8>,
        error: FreeError,
        site: CallSite,
    ) -> Result<(), FreeError> {
        if error != FreeError::Corrupt {
            let env = self.env(&body.head);
            debug::refused(env, object, error, site, self.describe(object));
        }
        Err(error)
    }

    /// [`Heap::kfree`] of an object that a hardened class has; `None` for other addresses, which it leaves alone. `size` is
    /// what the user says that the object has.
    ///
    /// # Safety
    ///
    /// As [`Heap::kfree`].
    #[inline(always)]
    pub unsafe fn kfree_hardened(
        &self,
        object: NonNull<u8>,
        size: Option<usize>,
        site: CallSite,
    ) -> Option<Result<(), FreeError>> {
        let body = self.class_of(object)?;
        let hardened = body.hardened()?;
        // SAFETY: the caller vouches that the object has no user left.
        Some(unsafe { self.free_hardened(body, hardened, object, (size, true), site) })
    }

    /// Changes the request of an object of a hardened heap in place, where its class has room; `false` if it has not.
    ///
    /// # Safety
    ///
    /// Only the caller uses the object.
    pub unsafe fn resize_hardened(&self, object: NonNull<u8>, bytes: usize) -> bool {
        let Some(body) = self.class_of(object) else {
            return false;
        };
        let Some(armour) = body.head.armour() else {
            return false;
        };
        // SAFETY: only the caller uses the object.
        unsafe { harden::set_request(self.env(&body.head), armour, object, bytes) }
    }
}

impl<M: Machine, D: Design> CacheView<'_, M, D> {
    /// Empties what hardening keeps of freed objects into the slabs and looks for writes to them.
    pub(super) fn drain_ring(&self) {
        if let Some(hardened) = self.body.hardened() {
            harden::drain(hardened, self.env());
        }
    }
}
