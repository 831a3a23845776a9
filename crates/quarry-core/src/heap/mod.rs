//! A heap: one machine, its page allocator, and named caches of one design.
//!
//! ```text
//!   Heap  --> kmalloc-8 ... kmalloc-8k      (each made at its first use)
//!     |   --> cache "dentry" ...            (Heap::create_cache)
//!     +-----> PageAllocator --> Machine
//! ```
//!
//! Caches live in the machine's structure range and never move. A [`Cache`] handle borrows the
//! heap, so it cannot outlive it; [`Cache::destroy`] consumes the handle.

mod cache;
mod debug;
mod general;
mod hardened;
mod kmalloc;
mod merge;
mod owned;
mod slow;
mod stacks;
mod view;

pub use cache::Cache;
pub use owned::OwnedObject;
pub use stacks::CpuStacks;
pub use view::{CacheView, DestroyError};

use core::any::TypeId;
use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::debug::CacheDebug;
use crate::design::{CacheHead, CacheSpec, Design, Env};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheFlags, CacheParams, DebugRules, Geometry, GeometryError, MachineParams,
    TRAILER,
};
use crate::harden::Hardened;
use crate::machine::{Guard, Machine};
use crate::page::{BootError, PageAllocator, PageConfig, TrimPolicy, Trimmed};
use crate::rcu;
use crate::sync::Ordering;
use crate::system::{CacheList, PLACE_BYTES, System};

/// The address that a kmalloc of 0 bytes returns; freeing it does nothing (`ZERO_SIZE_PTR`).
pub const ZERO_SIZE_ADDRESS: usize = 16;

/// Reason why a cache or heap could not be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CreateError {
    /// The geometry has no answer.
    Geometry(GeometryError),
    /// The structure or per-CPU ranges are full.
    NoRoom,
    /// The page allocator could not be set up.
    Boot(BootError),
    /// [`Heap::create_unique_cache`] found a cache of this name.
    Duplicate,
    /// The design's slabs hold objects of all caches and run no constructor.
    Constructor,
}

impl core::fmt::Display for CreateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Geometry(error) => error.fmt(f),
            Self::NoRoom => f.write_str("no room for the cache's own structures"),
            Self::Boot(error) => error.fmt(f),
            Self::Duplicate => f.write_str("the heap has a cache of this name"),
            Self::Constructor => f.write_str("the design runs no constructors; the others do"),
        }
    }
}

crate::error::debug_is_display!(CreateError);

impl core::error::Error for CreateError {}

impl From<GeometryError> for CreateError {
    fn from(error: GeometryError) -> Self {
        Self::Geometry(error)
    }
}

/// A cache's structure: the shared head first, so that its address is the cache's name in page
/// descriptors.
#[repr(C)]
struct CacheBody<D> {
    head: CacheHead,
    design: D,
}

/// See the [module's documentation](self).
// Transparent: `Heap::of_system` relies on the two being one in memory.
#[repr(transparent)]
pub struct Heap<M: Machine, D: Design> {
    system: System<M>,
    design: PhantomData<fn() -> D>,
}

impl<M: Machine, D: Design> Heap<M, D> {
    /// Boots a heap on a fresh machine. Its kmalloc caches are made at their first use, or all at
    /// once by [`Heap::make_kmalloc_caches`].
    ///
    /// # Errors
    ///
    /// [`CreateError`]: the era is not one of the design's, or the machine is too small.
    pub fn new(machine: M, era: Era, boot: BootParams) -> Result<Self, CreateError> {
        Self::with_pages(machine, &PageConfig::new(era), boot)
    }

    /// [`Heap::new`] with a page allocator that is set up in another way. The era is the same for both.
    ///
    /// # Errors
    ///
    /// As [`Heap::new`]; also if the configuration does not fit the machine.
    ///
    /// # Examples
    ///
    /// ```
    /// # use quarry_core::machine::Machine;
    /// use quarry_core::era::Era;
    /// use quarry_core::geometry::BootParams;
    /// use quarry_core::heap::Heap;
    /// use quarry_core::page::{MinFree, PageConfig, ZoneLayout};
    /// use quarry_core::slub::Slub;
    ///
    /// # fn demo<M: Machine>(machine: M) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = PageConfig {
    ///     zones: ZoneLayout::Kernel,
    ///     min_free: MinFree::Computed,
    ///     ..PageConfig::new(Era::V6_18)
    /// };
    /// let heap = Heap::<_, Slub>::with_pages(machine, &config, BootParams::default())?;
    /// let zone = heap.pages().zone_reports().next().ok_or("no zone")?;
    /// println!("{:?} keeps back {} pages", zone.id.zone, zone.watermarks.min);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_pages(
        machine: M,
        config: &PageConfig,
        boot: BootParams,
    ) -> Result<Self, CreateError> {
        let era = config.era;
        let topology = *machine.topology();
        let params = MachineParams {
            page_shift: topology.page_shift,
            nr_cpus: topology.cpus,
            cache_line: topology.cache_line,
        };
        let kmalloc = D::kmalloc_rules(era).ok_or(GeometryError::UnknownEra { era })?;
        if boot.hardening.caches() && !D::FEATURES.hardens {
            return Err(GeometryError::NoHardening { design: D::NAME }.into());
        }
        let pages = PageAllocator::with_config(machine, config).map_err(CreateError::Boot)?;
        let shared = pages
            .meta()
            .alloc(pages.machine(), size_of::<D::Shared>().max(1))
            .ok_or(CreateError::NoRoom)?
            .cast::<D::Shared>();
        // SAFETY: the block is fresh, large enough and aligned to at least 64 bytes (Region).
        unsafe { shared.write(D::share(era)) };
        let design = TypeId::of::<D>();
        let heap = Self {
            system: System::new(pages, era, params, boot, kmalloc, design, shared.cast()),
            design: PhantomData,
        };
        heap.prepare_merging()?;
        Ok(heap)
    }

    /// The page allocator below.
    pub fn pages(&self) -> &PageAllocator<M> {
        &self.system.pages
    }

    /// The machine below.
    pub fn machine(&self) -> &M {
        self.system.pages.machine()
    }

    /// The era whose rules the heap follows.
    pub fn era(&self) -> Era {
        self.system.era
    }

    /// Kmallocs too large for a slab: blocks allocated and freed.
    pub fn large_counts(&self) -> (u64, u64) {
        (
            self.system.large_allocs.load(Ordering::Relaxed),
            self.system.large_frees.load(Ordering::Relaxed),
        )
    }

    /// Makes a cache, or with [`BootParams::merge`] an alias of one that can serve it, which the
    /// handle then stands for.
    ///
    /// # Errors
    ///
    /// [`CreateError`].
    pub fn create_cache(&self, spec: &CacheSpec<'_>) -> Result<Cache<'_, M, D>, CreateError> {
        self.create(spec, false)
    }

    /// [`Heap::create_cache`], unless a cache of this name is listed already. Of several threads that ask
    /// for the same name at once, one gets it.
    ///
    /// # Errors
    ///
    /// As [`Heap::create_cache`]; [`CreateError::Duplicate`].
    pub fn create_unique_cache(
        &self,
        spec: &CacheSpec<'_>,
    ) -> Result<Cache<'_, M, D>, CreateError> {
        self.create(spec, true)
    }

    fn create(&self, spec: &CacheSpec<'_>, unique: bool) -> Result<Cache<'_, M, D>, CreateError> {
        let mut spec = *spec;
        if spec.ctor.is_some() {
            if D::FEATURES.shared_slabs {
                return Err(CreateError::Constructor);
            }
            spec.flags |= CacheFlags::CTOR;
        }
        let body = match self.merge(&spec, unique)? {
            Some(body) => body,
            None => self.create_body(&spec, unique)?,
        };
        self.make_what_debugging_needs(body)?;
        Ok(Cache::new(self, body))
    }

    /// Makes the kmalloc caches now if one may be needed inside a debug lock, where none can be made.
    fn make_what_debugging_needs(&self, body: &CacheBody<D>) -> Result<(), CreateError> {
        if D::GROWS_BY_KMALLOC && body.head.flags.debug() {
            self.make_kmalloc_caches()?;
        }
        Ok(())
    }

    fn create_body(
        &self,
        spec: &CacheSpec<'_>,
        unique: bool,
    ) -> Result<&CacheBody<D>, CreateError> {
        // A region's block is aligned to its size.
        const { assert!(size_of::<CacheBody<D>>().next_power_of_two() >= PLACE_BYTES) };
        let (asked, (spec, geometry)) = (spec.object_size, self.settle(*spec)?);
        let machine = self.machine();
        let _pass = self.system.pages.gate().enter(machine);
        let place = self
            .system
            .pages
            .meta()
            .alloc(machine, size_of::<CacheBody<D>>())
            .ok_or(CreateError::NoRoom)?
            .cast::<CacheBody<D>>();
        let mut head = CacheHead::new(&spec, self.system.era, geometry);
        if let Some(rules) = D::debug_rules(self.system.era).filter(|_| spec.flags.debug()) {
            let Some(debug) = self.create_debug(rules) else {
                // SAFETY: no other code knows the block, and it is still zeroed.
                unsafe {
                    self.system
                        .free_meta(place.cast(), size_of::<CacheBody<D>>())
                };
                return Err(CreateError::NoRoom);
            };
            // SAFETY: `free_body` frees it with the cache.
            unsafe { head.set_debug(debug) };
        }
        if spec.flags.contains(CacheFlags::HARDENED) {
            let meta = self.system.pages.meta();
            let Some(armour) = meta.alloc(machine, size_of::<Hardened<D>>()) else {
                // SAFETY: no other code knows the block, and it is still zeroed.
                unsafe {
                    self.system
                        .free_meta(place.cast(), size_of::<CacheBody<D>>())
                };
                return Err(CreateError::NoRoom);
            };
            let is_class = spec.object_size == asked;
            head.set_usable(if is_class { asked - TRAILER } else { asked });
            // SAFETY: `create_hardened` initialises it; `free_body` frees it with the cache.
            unsafe { head.set_armour(armour.cast()) };
        }
        // SAFETY: the block is fresh, large enough and aligned to at least 64 bytes (Region); the
        // head is the first field.
        unsafe { place.cast::<CacheHead>().write(head) };
        // SAFETY: initialised just now, and the block is never moved (M3).
        let head = unsafe { place.cast::<CacheHead>().as_ref() };
        let design = match spec.flags.contains(CacheFlags::HARDENED) {
            true => self.create_hardened(&spec, head),
            // SAFETY: the heap made `shared` (`D::share`) and frees it after its caches.
            false => unsafe { D::create(self.env(head), self.system.shared.cast()) },
        };
        let Some(design) = design else {
            // SAFETY: no other code knows the block.
            unsafe { self.free_body(place) };
            return Err(CreateError::NoRoom);
        };
        // SAFETY: the field is inside the block and is not initialised yet.
        let slot = unsafe { &raw mut (*place.as_ptr()).design };
        // SAFETY: the slot is inside the block, aligned, and not initialised yet.
        unsafe { slot.write(design) };
        // SAFETY: both fields are initialised; the block lives as long as the heap.
        let body = unsafe { place.as_ref() };
        let listed = match self.system.caches.lock(machine) {
            // SAFETY: the list's lock is held.
            Some(caches) if unique && unsafe { caches.has_named(spec.name) } => {
                Err(CreateError::Duplicate)
            }
            Some(mut caches) => {
                // SAFETY: the list's lock is held. The new head begins a block of the range of structures, whose size
                // is asserted above. It is on no list, and `destroy` removes it before its end.
                unsafe { caches.insert(head) };
                Ok(body)
            }
            None => Err(CreateError::NoRoom),
        };
        if listed.is_err() {
            // SAFETY: the cache is on no list, so no other code knows it.
            unsafe { self.release_design(body) };
            // SAFETY: `create_body` took the block; the cache was not listed, so no other code knows it.
            unsafe { self.free_body(place) };
        }
        listed
    }

    /// Adds the flags of `slub_debug` to a request, and computes its geometry. An object that has no room for
    /// records in the largest slab goes without.
    fn settle_flags<'a>(
        &self,
        spec: CacheSpec<'a>,
    ) -> Result<(CacheSpec<'a>, Geometry), CreateError> {
        let geometry = |flags| {
            let params = CacheParams {
                object_size: spec.object_size,
                align: spec.align,
                flags,
                sheaf_capacity: spec.sheaf_capacity,
            };
            let system = &self.system;
            D::geometry(system.era, &system.params, &system.boot, &params)
        };
        let setting = {
            let _pass = self.system.pages.gate().enter(self.machine());
            self.system.debug.setting(self.machine())
        };
        let added = setting.map_or(CacheFlags::NONE, |setting| setting.flags_for(spec.name));
        let flags = spec.flags | added;
        let with = match geometry(flags) {
            Err(GeometryError::SizeTooLarge { .. }) if added.debug() => {
                return Ok((spec, geometry(spec.flags)?));
            }
            with => with?,
        };
        if setting.is_some_and(|setting| setting.keeps_order()) && added.debug() {
            let without = geometry(spec.flags)?;
            let order = |geometry: &Geometry| {
                let bytes = u64::from(geometry.layout.size);
                self.system.params.order_for(bytes)
            };
            if order(&with) > order(&without) {
                return Ok((spec, without));
            }
        }
        Ok((CacheSpec { flags, ..spec }, with))
    }

    fn create_debug(&self, rules: DebugRules) -> Option<NonNull<CacheDebug>> {
        let meta = self.system.pages.meta();
        let block = meta.alloc(self.machine(), size_of::<CacheDebug>())?;
        let debug = block.cast::<CacheDebug>();
        // SAFETY: the block is fresh, large enough and aligned to at least 64 bytes (Region).
        unsafe { debug.write(CacheDebug::new(rules)) };
        Some(debug)
    }

    /// Returns a cache's block, and what debugging kept.
    ///
    /// # Safety
    ///
    /// `create_body` took the block from the region and wrote the head, and no code uses it any
    /// more.
    unsafe fn free_body(&self, place: NonNull<CacheBody<D>>) {
        // SAFETY: the head was written and is first in the block.
        let head = unsafe { place.cast::<CacheHead>().as_ref() };
        if let Some(debug) = head.debug().map(NonNull::from) {
            // SAFETY: `create_debug` took the block for these bytes; the cache is not used.
            unsafe { self.system.free_meta(debug.cast(), size_of::<CacheDebug>()) };
        }
        if let Some(armour) = head.armour().map(NonNull::from) {
            // SAFETY: `create_body` took the block for these bytes; the cache is not used.
            unsafe {
                self.system
                    .free_meta(armour.cast(), size_of::<Hardened<D>>())
            };
        }
        // SAFETY: the region handed out this block for these bytes.
        unsafe {
            self.system
                .free_meta(place.cast(), size_of::<CacheBody<D>>())
        };
    }

    /// Calls `f` for every cache, newest first. The list of caches is locked meanwhile, so `f` can
    /// neither make nor destroy caches, nor be the first to kmalloc of a class. While another thread
    /// waits to do so, a walk that `f` makes over a cache is [`Busy`](crate::design::Busy).
    pub fn for_each_cache(&self, mut f: impl FnMut(CacheView<'_, M, D>)) {
        let _pass = self.system.pages.gate().enter(self.machine());
        if let Some(caches) = self.system.caches.lock(self.machine()) {
            self.walk(&caches, &mut f);
        }
    }

    /// Calls `f` for the caches of the list, whose lock is held, newest first.
    fn walk<'h>(
        &'h self,
        caches: &Guard<'_, M, CacheList>,
        f: &mut impl FnMut(CacheView<'h, M, D>),
    ) {
        // SAFETY: the guard holds the list's lock, and outlives the walk; views of caches are as good as handles, whose
        // users see to it that a cache is not destroyed (`Cache::destroy`).
        for head in unsafe { caches.iter() } {
            let head = core::ptr::from_ref::<CacheHead>(head).cast::<CacheBody<D>>();
            // SAFETY: the list holds heads of caches of this heap, which are first in their
            // bodies; bodies are never unmapped while the heap lives.
            let body = unsafe { &*head };
            f(CacheView { heap: self, body });
        }
    }

    fn env<'a>(&'a self, head: &'a CacheHead) -> Env<'a, M> {
        Env {
            system: &self.system,
            cache: head,
        }
    }

    /// The cache that an address is in, if it is in a slab.
    ///
    /// # Safety
    ///
    /// That cache is not destroyed while the handle is used, for example because an object of it
    /// stays allocated.
    pub unsafe fn cache_of(&self, object: NonNull<u8>) -> Option<Cache<'_, M, D>> {
        let map = self.system.pages.map();
        let slab = map.page(map.pfn_of(object)?).head()?;
        let body = map.owner(slab).cast::<CacheBody<D>>();
        // SAFETY: not null means that a cache of this heap stored its own address there, and by the
        // caller's contract it is not destroyed.
        if let Some(body) = unsafe { body.as_ref() } {
            return Some(Cache::new(self, body));
        }
        // SAFETY: initialised in `new`, and it lives as long as the heap.
        let shared = unsafe { self.system.shared.cast::<D::Shared>().as_ref() };
        let head = D::owner_of(&self.system.pages, shared, object)?;
        // SAFETY: heads of caches of this heap are first in their bodies; by the caller's contract
        // this one is not destroyed.
        let body = unsafe { head.cast::<CacheBody<D>>().as_ref() };
        Some(Cache::new(self, body))
    }

    /// Does for every cache on the running CPU what the kernel does there from time to time, such as
    /// expiring idle queues. Frees deferred objects whose readers have finished. Gives memory back if that
    /// is switched on ([`PageAllocator::set_auto_trim`]). The machine's clock decides what is due.
    pub fn reap(&self) {
        self.reap_caches(self.machine().now_ns());
        self.system.pages.auto_trim();
    }

    /// Gives free memory back to the machine: the empty slabs of all caches, then what the page
    /// allocator has free ([`PageAllocator::trim`]).
    pub fn trim(&self, policy: TrimPolicy) -> Trimmed {
        self.shrink();
        self.system.pages.trim(policy)
    }

    /// Gives the free objects of all caches back to their slabs, also from CPUs, and the empty slabs of all caches to the page
    /// allocator. Does nothing while another thread has the list of caches.
    pub fn shrink(&self) {
        let _pass = self.system.pages.gate().enter(self.machine());
        if let Some(caches) = self.system.caches.lock(self.machine()) {
            self.walk(&caches, &mut |cache| {
                let env = self.env(&cache.body.head);
                cache.drain_ring();
                rcu::settle(cache.body.behind(), env);
                cache.body.behind().shrink(env);
            });
        }
    }

    fn reap_caches(&self, now_ns: u64) {
        let _pass = self.system.pages.gate().enter(self.machine());
        if let Some(caches) = self.system.caches.lock(self.machine()) {
            self.walk(&caches, &mut |cache| {
                let env = self.env(&cache.body.head);
                rcu::settle(cache.body.behind(), env);
                cache.body.behind().reap(env, now_ns);
            });
        }
    }

    /// Stops all operations of other threads, so that the process can fork: takes every per-CPU
    /// slot, then waits until no code works without one. Returns how much could not be brought to
    /// rest in bounded time, 0 if all is well. In the child of a fork after a miss, allocation may
    /// wait for ever: that child should do no more than `exec`.
    ///
    /// # Safety
    ///
    /// [`Heap::resume`] follows before another call of this function, by any thread. A heap with hooks that
    /// forks call is theirs to stop.
    pub unsafe fn quiesce(&self) -> u32 {
        /// Attempts; each but the last is spoilt by the use of a cache that was made between the walk and the closing.
        const ATTEMPTS: u32 = 8;
        let gate = self.system.pages.gate();
        let (mut attempt, mut passed) = (1, 0);
        loop {
            self.rest(true);
            // Without the list's lock: occupants may need it to leave.
            let closed = gate.close(self.machine());
            let is_last = attempt == ATTEMPTS || !closed;
            // Also the slots of caches that were made meanwhile: from here on none is made.
            let missed = self.rest(is_last) + u32::from(!closed);
            if missed == 0 || is_last {
                return missed + passed;
            }
            // The holder of a slot of such a cache may wait at the gate, to make one itself.
            passed += gate.open(self.machine());
            attempt += 1;
        }
    }

    /// Takes the per-CPU slots that it has not yet, at last with a longer `wait` for holders that do not run. Returns how many
    /// stay with their holders.
    fn rest(&self, wait: bool) -> u32 {
        const LOOKS: u32 = if cfg!(loom) { 2 } else { 1 << 12 };
        let mut missed = 0;
        for look in 0..LOOKS {
            missed = self.hold_slots(false);
            if missed == 0 {
                return 0;
            }
            // Without the list's lock: the holder of a slot may make a cache, and so wait for it.
            self.machine().pause(look);
        }
        match wait {
            true => self.hold_slots(true),
            false => missed,
        }
    }

    /// One walk over the slots for [`Self::rest`]; counts the list of caches as one if it stays locked.
    fn hold_slots(&self, wait: bool) -> u32 {
        let mut missed = self.system.pages.quiesce(wait);
        match self.system.caches.lock(self.machine()) {
            Some(caches) => self.walk(&caches, &mut |cache| {
                let env = self.env(&cache.body.head);
                missed += cache.body.behind().quiesce(env, wait);
            }),
            None => missed += 1,
        }
        missed
    }

    /// Ends what [`Heap::quiesce`] began. `in_child` says that all other threads are gone. Returns how
    /// many threads did not wait for it: to be counted as misses.
    ///
    /// # Safety
    ///
    /// The calling thread has called [`Heap::quiesce`], or its parent had when it forked, and ends that once.
    /// `in_child` is true only in a process that has no other thread.
    pub unsafe fn resume(&self, in_child: bool) -> u32 {
        if in_child {
            self.system.pages.gate().forget_others(self.machine());
        }
        let caches = if in_child {
            // After a miss the holder may be a thread that the child does not have.
            self.system.caches.try_lock(self.machine())
        } else {
            self.system.caches.lock(self.machine())
        };
        if let Some(caches) = caches {
            self.walk(&caches, &mut |cache| {
                cache.body.behind().resume(self.env(&cache.body.head));
            });
        }
        self.system.pages.resume();
        self.system.pages.gate().open(self.machine())
    }
}
