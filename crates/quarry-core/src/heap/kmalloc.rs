//! kmalloc: size classes over the heap's caches, large blocks over the page allocator.
//!
//! ```text
//!  kmalloc   placed: one load from `System::by_size` or `by_eighth`, then the class's fast path
//!                | not made yet, 0 bytes, a design without classes, pages
//!            kmalloc_rare: `kmalloc_index`
//!
//!  kfree     the table of pages' owners names the class: its fast path
//!                | no slab of a class
//!            kfree_slow: 0 bytes, a design without classes, pages, mistakes
//! ```
//!
//! The table has a place for each eighth byte of small sizes, and eight for each doubling of larger ones. A constant size is a
//! constant place for the compiler. Places are empty until their class is made, so that nothing but the load decides.

mod resize;

use core::hint::cold_path;
use core::ptr::NonNull;

use super::{Cache, CacheBody, CreateError, Heap, ZERO_SIZE_ADDRESS};
use crate::debug::CallSite;
use crate::design::{CacheSpec, Design, FreeError};
use crate::geometry::{
    CacheFlags, KmallocClass, KmallocService, KmallocTarget, TRAILER, kmalloc_classes,
    kmalloc_index, kmalloc_params,
};
use crate::machine::{Machine, NodeId, Work, work};
use crate::name::Name;
use crate::page::{PageKind, Pfn};
use crate::sync::{AtomicPtr, Ordering};
use crate::system::{SMALL_ALIGN, SMALL_MAX, SMALL_STEP, System, eighth, eighth_sizes};

impl<M: Machine, D: Design> Heap<M, D> {
    /// The cache of a size, if it is made, by a place of [`System::by_size`] or of the table for aligned objects. Larger sizes
    /// have a table of their own.
    #[inline(always)]
    fn placed(&self, places: &[AtomicPtr<()>], bytes: usize) -> Option<&CacheBody<D>> {
        let place = match bytes <= SMALL_MAX {
            // Rounded up by a mask: `div_ceil` would test the rest.
            true => places.get(((bytes + (SMALL_STEP - 1)) & !(SMALL_STEP - 1)) / SMALL_STEP)?,
            false => {
                // Rarer than small sizes, whose place is where the code goes on.
                cold_path();
                self.system.by_eighth.get(eighth(bytes))?
            }
        };
        // Acquire: pairs with the Release in `publish`.
        let body = place.load(Ordering::Acquire).cast::<CacheBody<D>>();
        // SAFETY: not null means that `publish` stored an initialised body.
        unsafe { body.as_ref() }
    }

    /// The cache of a kmalloc class, made at its first use.
    #[inline]
    pub(super) fn class(&self, target: KmallocTarget) -> Option<&CacheBody<D>> {
        let KmallocTarget::Class(class) = target else {
            return None;
        };
        let made = match self.hardens() {
            true => self.made_hardened(class.index),
            false => self.made(class.index),
        };
        made.or_else(|| self.make_class(class).ok())
    }

    /// The cache of an index, if it is made.
    #[inline]
    fn made(&self, index: u32) -> Option<&CacheBody<D>> {
        Self::in_place(&self.system.classes[index as usize])
    }

    /// The cache in a place of a table of classes.
    #[inline]
    pub(super) fn in_place(place: &AtomicPtr<()>) -> Option<&CacheBody<D>> {
        // Acquire: pairs with the Release in `publish`.
        let body = place.load(Ordering::Acquire);
        let body = body.cast::<CacheBody<D>>();
        // SAFETY: not null means that `publish` stored an initialised body.
        unsafe { body.as_ref() }
    }

    /// The cache of a class that had none.
    #[cold]
    fn make_class(&self, class: KmallocClass) -> Result<&CacheBody<D>, CreateError> {
        let params = kmalloc_params(self.system.kmalloc, class);
        let name = Name::of(class);
        let spec = CacheSpec {
            name: name.as_str(),
            object_size: params.object_size,
            align: params.align,
            flags: params.flags,
            sheaf_capacity: params.sheaf_capacity,
            ctor: None,
        };
        let body = self.create_body(&spec, false)?;
        let body = self.publish(class.index, body);
        let fill = |places: &[AtomicPtr<()>], size_at: &dyn Fn(usize) -> usize| {
            for (at, place) in places.iter().enumerate() {
                if self.index_of(size_at(at)) == Some(class.index) {
                    // Release: publishes the body, again.
                    let body = core::ptr::from_ref(body).cast_mut().cast();
                    place.store(body, Ordering::Release);
                }
            }
        };
        if self.hardens() {
            fill(&self.system.hardened_by_size, &|at| at * SMALL_STEP);
            return self.completed(body);
        }
        fill(&self.system.by_size, &|at| at * SMALL_STEP);
        fill(&self.system.by_aligned_size, &|at| match at * SMALL_STEP {
            bytes @ ..=SMALL_STEP => bytes,
            bytes => bytes.next_multiple_of(SMALL_ALIGN),
        });
        fill(&self.system.by_eighth, &|at| {
            let (first, end) = eighth_sizes(at).into_inner();
            debug_assert_eq!(
                self.index_of(first),
                self.index_of(end),
                "a class ends within the sizes of a place"
            );
            end
        });
        self.completed(body)
    }

    /// A class with what debugging needs. It is published, so this comes to an end.
    fn completed<'a>(&'a self, body: &'a CacheBody<D>) -> Result<&'a CacheBody<D>, CreateError> {
        self.make_what_debugging_needs(body)?;
        Ok(body)
    }

    /// The class of a size.
    #[inline(always)]
    pub(super) fn index_of(&self, bytes: usize) -> Option<u32> {
        self.system.kmalloc.index(&self.system.params, bytes as u64)
    }

    /// Forgets a cache that is destroyed, if it is a kmalloc class: it is made anew at its next use.
    pub(super) fn unpublish(&self, body: &CacheBody<D>) {
        let body = core::ptr::from_ref(body).cast_mut().cast();
        let System {
            classes,
            by_size,
            by_aligned_size,
            by_eighth,
            hardened_classes,
            hardened_by_size,
            ..
        } = &self.system;
        let places = classes.iter().chain(by_size).chain(by_aligned_size);
        let places = places.chain(by_eighth).chain(hardened_classes);
        for place in places.chain(hardened_by_size) {
            // Relaxed: by the contract of `destroy` no other thread uses the cache.
            let (order, nothing) = (Ordering::Relaxed, core::ptr::null_mut());
            let _ = place.compare_exchange(body, nothing, order, order);
        }
    }

    /// The cache through which a design serves kmallocs of all sizes, made at its first use.
    fn direct(&self) -> Option<&CacheBody<D>> {
        // Such designs have no classes, so the first place is free for this.
        const INDEX: u32 = 0;
        if let Some(body) = self.made(INDEX) {
            return Some(body);
        }
        let spec = CacheSpec {
            flags: CacheFlags::KMALLOC,
            ..CacheSpec::new("kmalloc", 1)
        };
        let body = self.create_body(&spec, false);
        Some(self.publish(INDEX, body.ok()?))
    }

    /// Makes a new cache the one of its index, or gives the one that another thread made.
    fn publish<'a>(&'a self, index: u32, body: &'a CacheBody<D>) -> &'a CacheBody<D> {
        // Release: publishes the body. Acquire on failure: another thread's body is used instead;
        // this one stays on the list, empty.
        let classes = match self.hardens() {
            true => &self.system.hardened_classes,
            false => &self.system.classes,
        };
        let stored = classes[index as usize].compare_exchange(
            core::ptr::null_mut(),
            core::ptr::from_ref(body).cast_mut().cast(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match stored {
            Ok(_) => body,
            // SAFETY: not null, so stored by another `publish`.
            Err(other) => unsafe { other.cast::<CacheBody<D>>().as_ref() }.unwrap_or(body),
        }
    }

    /// Makes all kmalloc caches now instead of at their first use.
    ///
    /// # Errors
    ///
    /// [`CreateError`] of the first class that cannot exist: boot parameters may ask for slabs that no
    /// page holds. Kernels panic at this point of their boot.
    pub fn make_kmalloc_caches(&self) -> Result<(), CreateError> {
        for class in kmalloc_classes(self.system.kmalloc, &self.system.params) {
            if self.made(class.index).is_none() && self.made_hardened(class.index).is_none() {
                self.make_class(class)?;
            }
        }
        Ok(())
    }

    /// The cache that serves kmallocs of this size; `None` for 0 bytes and for sizes that go to
    /// the page allocator or fail.
    pub fn kmalloc_cache(&self, bytes: usize) -> Option<Cache<'_, M, D>> {
        let bytes = match self.hardens() && bytes != 0 {
            true => bytes as u64 + u64::from(TRAILER),
            false => bytes as u64,
        };
        let target = kmalloc_index(self.system.kmalloc, &self.system.params, bytes);
        self.class(target).map(|body| Cache::new(self, body))
    }

    /// Allocates at least `bytes` bytes, aligned as the era aligns kmalloc. `None` when memory is
    /// exhausted or the size is above the era's largest. 0 bytes yield [`ZERO_SIZE_ADDRESS`].
    #[inline]
    #[track_caller]
    pub fn kmalloc(&self, bytes: usize, node: Option<NodeId>) -> Option<NonNull<u8>> {
        self.kmalloc_at(bytes, node, CallSite::caller())
    }

    /// [`Heap::kmalloc`] for the given call site, which only caches with debugging keep.
    #[inline(always)]
    pub fn kmalloc_at(
        &self,
        bytes: usize,
        node: Option<NodeId>,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        match self.placed(&self.system.by_size, bytes) {
            Some(body) => self.kmalloc_of_class(body, bytes, node, site),
            None => self.kmalloc_rare(bytes, node, site),
        }
    }

    /// One attempt of [`Heap::kmalloc`] with nothing alive behind it, for callers that want the common outcome in their own
    /// code: a small size whose class has an object on the running CPU.
    #[inline(always)]
    pub fn kmalloc_fast(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.pop_placed(self.placed(&self.system.by_size, bytes)?)
    }

    /// [`Heap::kmalloc_fast`] for C: an object of more than 8 bytes is aligned to 16, a smaller one to 8.
    #[inline(always)]
    pub fn kmalloc_aligned_fast(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.pop_placed(self.placed(&self.system.by_aligned_size, bytes)?)
    }

    #[inline(always)]
    fn pop_placed(&self, body: &CacheBody<D>) -> Option<NonNull<u8>> {
        work(self.machine(), Work::Call);
        work(self.machine(), Work::Call);
        body.design.alloc_fast(self.env(&body.head), None)
    }

    /// Allocates from the cache of a class.
    #[inline(always)]
    fn kmalloc_of_class(
        &self,
        body: &CacheBody<D>,
        bytes: usize,
        node: Option<NodeId>,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        // Two calls: the look-up of a size's cache, which a compiler does for constant sizes, and the cache's.
        work(self.machine(), Work::Call);
        work(self.machine(), Work::Call);
        match body.design.alloc_fast(self.env(&body.head), node) {
            None => self.alloc_slow(body, node, bytes as u32, site),
            object => object,
        }
    }

    /// Allocates what no class serves, or none that is made.
    #[cold]
    #[inline(never)]
    fn kmalloc_rare(
        &self,
        bytes: usize,
        node: Option<NodeId>,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        if self.hardens() && bytes != 0 {
            return self.kmalloc_hardened_or_pages(bytes, 1, node, site);
        }
        match kmalloc_index(self.system.kmalloc, &self.system.params, bytes as u64) {
            target @ KmallocTarget::Class(_) => match self.class(target) {
                Some(body) => self.kmalloc_of_class(body, bytes, node, site),
                // The caller is inside a walk over the caches, whose list it holds, or there is no room for a cache. A
                // kernel has its classes from the start, so that this is no reason to fail.
                None => self.kmalloc_large(self.system.params.order_for(bytes as u64), node),
            },
            KmallocTarget::ZeroSize => {
                NonNull::new(core::ptr::without_provenance_mut(ZERO_SIZE_ADDRESS))
            }
            KmallocTarget::Design => {
                let body = self.direct()?;
                work(self.machine(), Work::Call);
                match body.design.kmalloc(self.env(&body.head), bytes, node) {
                    None => self.alloc_missed(body, node, bytes as u32, site),
                    object => object,
                }
            }
            KmallocTarget::Pages { order } => self.kmalloc_large(order, node),
            KmallocTarget::TooLarge => None,
        }
    }

    #[cold]
    pub(super) fn kmalloc_large(&self, order: u32, node: Option<NodeId>) -> Option<NonNull<u8>> {
        let pages = &self.system.pages;
        let block = || pages.alloc(order, node);
        let pfn = pages.claimed_as(PageKind::LargeKmalloc, order, block)?;
        let map = self.system.pages.map();
        map.page(pfn).set_head(Some(pfn));
        self.system.large_allocs.fetch_add(1, Ordering::Relaxed);
        Some(map.address(pfn))
    }

    /// Frees what [`Heap::kmalloc`] or any cache of this heap allocated; with a design that serves
    /// kmalloc itself only the former.
    ///
    /// # Errors
    ///
    /// [`FreeError`]; [`FreeError::WrongCache`] for a cache's object with such a design, which
    /// needs the object's cache.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline]
    #[track_caller]
    pub unsafe fn kfree(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.kfree_at(object, CallSite::caller()) }
    }

    /// [`Heap::kfree`] for the given call site, which only reports and caches with debugging keep.
    ///
    /// # Errors
    ///
    /// As [`Heap::kfree`].
    ///
    /// # Safety
    ///
    /// As [`Heap::kfree`].
    #[inline(always)]
    pub unsafe fn kfree_at(&self, object: NonNull<u8>, site: CallSite) -> Result<(), FreeError> {
        match self.class_of(object) {
            Some(body) => {
                work(self.machine(), Work::Call);
                // SAFETY: the caller vouches that the object has no user left.
                if unsafe { body.design.free_own_fast(self.env(&body.head), object) } {
                    return Ok(());
                }
                // SAFETY: the caller vouches for the object, which the attempt above has not freed.
                unsafe { self.free_slow(body, object, site) }
            }
            // SAFETY: the caller vouches that the object has no user left.
            None => unsafe { self.kfree_slow(object, site) },
        }
    }

    /// One attempt of [`Heap::kfree`], as [`Heap::kmalloc_fast`]: whether the object has been freed.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    pub unsafe fn kfree_fast(&self, object: NonNull<u8>) -> bool {
        let Some(body) = self.class_of(object) else {
            return false;
        };
        work(self.machine(), Work::Call);
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { body.design.free_own_fast(self.env(&body.head), object) }
    }

    /// The cache of the slab that an address is in, by the owner of the address's own page. `None` with designs
    /// whose slabs hold objects of all caches: their kfree is their own.
    #[inline(always)]
    pub(super) fn class_of(&self, object: NonNull<u8>) -> Option<&CacheBody<D>> {
        if D::FEATURES.shared_slabs {
            return None;
        }
        let body = self.system.pages.map().owner_of(object);
        let body = body.cast::<CacheBody<D>>();
        // SAFETY: an address that is not null is that of a cache of this heap, which stored it there, and so its body's;
        // caches are only destroyed when they have no slabs.
        unsafe { body.as_ref() }
    }

    /// Frees what is in no slab of a cache.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(never)]
    unsafe fn kfree_slow(&self, object: NonNull<u8>, site: CallSite) -> Result<(), FreeError> {
        if object.addr().get() == ZERO_SIZE_ADDRESS {
            return Ok(());
        }
        let map = self.system.pages.map();
        let head = map.pfn_of(object).and_then(|pfn| map.page(pfn).head());
        let Some(first) = head else {
            return self.kfree_refused(object, FreeError::Foreign, site);
        };
        if self.system.kmalloc.service == KmallocService::Design {
            let body = self.direct().ok_or(FreeError::Foreign)?;
            work(self.machine(), Work::Call);
            // SAFETY: the caller vouches that the object has no user left.
            return match unsafe { body.design.kfree(self.env(&body.head), object) } {
                Ok(()) => Ok(()),
                // SAFETY: the caller vouches for the object; the design refused it and changed nothing.
                Err(error) => unsafe { self.free_missed(body, object, error, site) },
            };
        }
        self.kfree_large(first, object)
            .or_else(|error| self.kfree_refused(object, error, site))
    }

    #[cold]
    fn kfree_large(&self, pfn: Pfn, object: NonNull<u8>) -> Result<(), FreeError> {
        let map = self.system.pages.map();
        let page = map.page(pfn);
        if page.kind() != PageKind::LargeKmalloc {
            return Err(FreeError::Foreign);
        }
        if object != map.address(pfn) {
            return Err(FreeError::NotAnObject);
        }
        let order = page.order();
        // No other code frees an owner's block, or counts references to it.
        if !page.claim_kind(PageKind::LargeKmalloc, PageKind::Owned, order) {
            return Err(FreeError::DoubleFree);
        }
        page.set_head(None);
        self.system.large_frees.fetch_add(1, Ordering::Relaxed);
        drop(self.system.pages.owned(pfn, order));
        Ok(())
    }
}
