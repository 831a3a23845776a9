//! What every slab allocator design offers, and what all of their caches share.

use core::cell::UnsafeCell;
use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::debug::{self, CacheDebug, NoPlace, Place};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheFlags, CacheParams, Geometry, GeometryError, KmallocRules, MachineParams,
};
use crate::machine::{CpuId, Machine, NodeId, SpinLock};
use crate::merge::{MergeRules, Merged};
use crate::page::{PageAllocator, Pfn};
use crate::rcu::{self, Batches};
use crate::stats::{SharedStats, Stat, Stats};
use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::system::System;

pub use crate::rest::{Busy, CheckError};
pub use crate::usage::{CpuUsage, NodeUsage};

/// Longest cache name in bytes; longer ones are cut.
pub const NAME_BYTES: usize = 48;

/// Nanoseconds between two rounds of [`Design::reap`] on a CPU (`REAPTIMEOUT_AC` of SLAB).
pub const REAP_INTERVAL_NS: u64 = 2_000_000_000;

/// What a new cache is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct CacheSpec<'a> {
    /// Name, as in slabinfo.
    pub name: &'a str,
    /// Bytes of one object.
    pub object_size: u32,
    /// Alignment in bytes, a power of two; 0 for the default.
    pub align: u32,
    /// Hardware-cache alignment, type-safe by RCU, constructor and the like.
    pub flags: CacheFlags,
    /// Objects that a sheaf of the cache should hold at least; 0 to leave it to the era. Designs
    /// without sheaves ignore it.
    pub sheaf_capacity: u32,
}

impl<'a> CacheSpec<'a> {
    /// A cache of plain objects: default alignment, no flags, the design's own sheaf capacity.
    #[must_use]
    pub const fn new(name: &'a str, object_size: u32) -> Self {
        Self {
            name,
            object_size,
            align: 0,
            flags: CacheFlags::NONE,
            sheaf_capacity: 0,
        }
    }
}

/// Why an object could not be freed. Nothing has changed when this is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// The address is not in this machine's memory, or not in a slab.
    Foreign,
    /// The object belongs to another cache.
    WrongCache,
    /// The address is inside a slab of this cache but is not the start of an object.
    NotAnObject,
    /// The object is free already.
    DoubleFree,
    /// There is no memory to note a deferred free: wait until no reader can hold the object, then
    /// free it at once.
    NoRoom,
    /// The object was overrun, as far as debugging can tell. It is not used again; the report says
    /// more.
    Corrupt,
    /// The cache has debugging: the object has to pass [`crate::debug`]. Designs say this to their
    /// heap; no heap says it to its users.
    Unchecked,
}

impl core::fmt::Display for FreeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Foreign => "the address is not in a slab of this allocator",
            Self::WrongCache => "the object belongs to another cache",
            Self::NotAnObject => "the address is not the start of an object",
            Self::DoubleFree => "the object is free already",
            Self::NoRoom => "there is no memory to defer the free; wait for readers, then free it",
            Self::Corrupt => "memory around the object was overwritten",
            Self::Unchecked => "the cache has debugging and the object was not checked",
        })
    }
}

impl core::error::Error for FreeError {}

/// How a cache's memory is used at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Slabs.
    pub slabs: u64,
    /// Pages of all slabs.
    pub pages: u64,
    /// Objects that all slabs could hold (`num_objs`).
    pub num_objs: u64,
    /// Objects as `/proc/slabinfo` counts active ones: what no node list offers as free.
    pub active_objs: u64,
    /// Slabs as `/proc/slabinfo` counts active ones.
    pub active_slabs: u64,
    /// Objects in the arrays that CPUs of a node share (`sharedavail`).
    pub shared_avail: u64,
    /// Slabs that CPUs allocate from. Sysfs `cpu_slabs` adds `cpu_partial_slabs`.
    pub cpu_slabs: u64,
    /// Slabs on the CPUs' partial lists (sysfs `slabs_cpu_partial`).
    pub cpu_partial_slabs: u64,
    /// Slabs that are neither full nor empty and that no CPU allocates from.
    pub partial_slabs: u64,
    /// Those of `partial_slabs` with exactly one object in use.
    pub one_object_slabs: u64,
    /// Slabs by order, orders 0..=10.
    pub slabs_by_order: [u64; crate::page::ORDERS],
    /// Bytes of objects in pages that caches share, which are nobody's slabs (SLOB).
    pub shared_bytes: u64,
}

impl Usage {
    /// Adds another cache's usage.
    pub fn add(&mut self, other: &Self) {
        self.slabs += other.slabs;
        self.pages += other.pages;
        self.num_objs += other.num_objs;
        self.active_objs += other.active_objs;
        self.active_slabs += other.active_slabs;
        self.shared_avail += other.shared_avail;
        self.cpu_slabs += other.cpu_slabs;
        self.cpu_partial_slabs += other.cpu_partial_slabs;
        self.partial_slabs += other.partial_slabs;
        self.one_object_slabs += other.one_object_slabs;
        self.shared_bytes += other.shared_bytes;
        for (sum, slabs) in self.slabs_by_order.iter_mut().zip(other.slabs_by_order) {
            *sum += slabs;
        }
    }
}

/// What a design's consistency walker found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabInconsistency {
    /// Which rule is broken.
    pub what: &'static str,
    /// The slab, if the contradiction is in one.
    pub slab: Option<Pfn>,
    /// What the lists or counters say.
    pub recorded: u64,
    /// What the walk found.
    pub found: u64,
}

impl SlabInconsistency {
    pub(crate) fn equal(
        what: &'static str,
        slab: Option<Pfn>,
        recorded: u64,
        found: u64,
    ) -> Result<(), Self> {
        if recorded == found {
            Ok(())
        } else {
            Err(Self {
                what,
                slab,
                recorded,
                found,
            })
        }
    }
}

impl core::fmt::Display for SlabInconsistency {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(slab) = self.slab {
            write!(f, "slab at page {}: ", slab.0)?;
        }
        write!(
            f,
            "{}: recorded {}, found {}",
            self.what, self.recorded, self.found
        )
    }
}

impl core::error::Error for SlabInconsistency {}

/// A name as structures keep it, and its length.
pub(crate) fn cut_name(name: &str) -> ([u8; NAME_BYTES], usize) {
    let mut cut = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut bytes = [0; NAME_BYTES];
    bytes[..cut].copy_from_slice(&name.as_bytes()[..cut]);
    (bytes, cut)
}

/// What all designs know of a cache. It lies at the head of every cache's structure and its
/// address names the cache in page descriptors.
pub struct CacheHead {
    name: [u8; NAME_BYTES],
    name_len: usize,
    pub(crate) era: Era,
    pub(crate) geometry: Geometry,
    pub(crate) flags: CacheFlags,
    /// Counts what happens without a CPU's slot.
    pub(crate) shared_stats: SharedStats,
    /// Objects whose free found a lock re-entered: a stack linked through their first word.
    deferred: AtomicPtr<u8>,
    /// References and names, if other caches were merged into this one.
    pub(crate) merged: Merged,
    /// Frees that wait for readers.
    pub(crate) rcu: SpinLock<Batches>,
    /// 1 if there may be any, else 0.
    pub(crate) rcu_noted: AtomicU32,
    /// What debugging keeps, in the machine's structure range; null without debugging.
    debug: *const CacheDebug,
    /// Links of the heap's list of caches, under its lock.
    pub(crate) list_next: UnsafeCell<*const CacheHead>,
}

// SAFETY: `list_next` is only accessed under the heap's cache-list lock; everything else is
// immutable or atomic; `debug` points to what is itself `Sync`.
unsafe impl Sync for CacheHead {}
// SAFETY: as for `Sync`; the pointer in `list_next` is an address in the heap's structures.
unsafe impl Send for CacheHead {}

impl CacheHead {
    /// Gives a new cache what debugging keeps.
    ///
    /// # Safety
    ///
    /// It lives as long as the cache.
    pub(crate) unsafe fn set_debug(&mut self, debug: NonNull<CacheDebug>) {
        self.debug = debug.as_ptr();
    }

    /// What debugging keeps of the cache, if it has debugging.
    pub(crate) fn debug(&self) -> Option<&CacheDebug> {
        // SAFETY: null, or of `set_debug`, whose caller keeps it alive.
        unsafe { self.debug.as_ref() }
    }

    pub(crate) fn new(spec: &CacheSpec<'_>, era: Era, geometry: Geometry) -> Self {
        let (name, name_len) = cut_name(spec.name);
        Self {
            name,
            name_len,
            era,
            geometry,
            flags: spec.flags,
            shared_stats: SharedStats::new(),
            deferred: AtomicPtr::new(core::ptr::null_mut()),
            merged: Merged::new(spec.object_size),
            rcu: Batches::new(),
            rcu_noted: AtomicU32::new(0),
            debug: core::ptr::null(),
            list_next: UnsafeCell::new(core::ptr::null()),
        }
    }

    /// The cache's name.
    #[must_use]
    pub fn name(&self) -> &str {
        core::str::from_utf8(&self.name[..self.name_len]).unwrap_or("?")
    }

    /// The era whose rules it follows.
    #[must_use]
    pub fn era(&self) -> Era {
        self.era
    }

    /// Sizes and orders.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of an object: of the largest, if caches were merged into this one.
    #[must_use]
    pub fn object_size(&self) -> u32 {
        self.merged.object_size.load(Ordering::Relaxed)
    }

    /// Flags it was created with.
    #[must_use]
    pub fn flags(&self) -> CacheFlags {
        self.flags
    }

    pub(crate) fn id(&self) -> *mut () {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Leaves an object for the next slow operation; with debugging, by its slot.
    ///
    /// # Safety
    ///
    /// The object is this cache's and its user has given it up.
    #[cold]
    pub(crate) unsafe fn defer(&self, object: NonNull<u8>) {
        let mut head = self.deferred.load(Ordering::Relaxed);
        // SAFETY: the offset is 0, or one inside the slot (geometry).
        let link = unsafe { object.byte_add(debug::deferred_link(self)) };
        loop {
            if head == object.as_ptr() {
                // Freed twice in a row; a link to itself would never end.
                return;
            }
            // SAFETY: the caller owns the object, whose slot is at least one aligned word long
            // (geometry: sizes and offsets are multiples of a word).
            unsafe { link.cast::<*mut u8>().write(head) };
            // Release: pairs with the Acquire in `take_deferred`, which follows the links.
            match self.deferred.compare_exchange(
                head,
                object.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether objects wait to be freed.
    #[inline(always)]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.load(Ordering::Relaxed).is_null()
    }

    /// Takes the whole stack of deferred objects.
    pub(crate) fn take_deferred(&self) -> impl Iterator<Item = NonNull<u8>> + use<'_> {
        // Acquire: pairs with the Release in `defer`.
        let mut next = self.deferred.swap(core::ptr::null_mut(), Ordering::Acquire);
        let at = debug::deferred_link(self);
        core::iter::from_fn(move || {
            let object = NonNull::new(next)?;
            // SAFETY: the offset is 0, or one inside the slot (geometry).
            let link = unsafe { object.byte_add(at) };
            // SAFETY: `defer` wrote the link there, and nobody else has taken the object.
            next = unsafe { link.cast::<*mut u8>().read() };
            debug::settle(self, object);
            Some(object)
        })
    }
}

/// What an operation on a cache works with: two words, which travel in registers. More would be
/// stored to the stack before every fast path.
pub struct Env<'a, M: Machine> {
    /// Where slabs come from, the machine, and all else that the caches of a heap hang on.
    pub pages: &'a System<M>,
    /// The cache.
    pub cache: &'a CacheHead,
}

impl<M: Machine> Env<'_, M> {
    /// kmalloc of the same heap, for what a design itself keeps in general caches: SLAB's arrays
    /// and off-slab management, sheaves. `None` when memory is exhausted.
    pub fn kmalloc(&self, bytes: usize, node: Option<NodeId>) -> Option<NonNull<u8>> {
        // SAFETY: the function is called with its own system.
        unsafe { (self.pages.general.kmalloc)(self.pages, bytes, node) }
    }

    /// Frees what [`Env::kmalloc`] allocated.
    ///
    /// # Safety
    ///
    /// Nobody uses the object any more.
    pub unsafe fn kfree(&self, object: NonNull<u8>) {
        // SAFETY: the function is called with its own system; the caller's contract is the same.
        unsafe { (self.pages.general.kfree)(self.pages, object) }
    }

    /// [`Env::kmalloc`] past all per-CPU state, so that a cache can allocate from itself while it
    /// holds a CPU's slot.
    pub fn kmalloc_direct(&self, bytes: usize, node: Option<NodeId>) -> Option<NonNull<u8>> {
        // SAFETY: the function is called with its own system.
        unsafe { (self.pages.general.kmalloc_direct)(self.pages, bytes, node) }
    }

    /// Frees what [`Env::kmalloc_direct`] allocated, past all per-CPU state.
    ///
    /// # Safety
    ///
    /// Nobody uses the object any more.
    pub unsafe fn kfree_direct(&self, object: NonNull<u8>) {
        // SAFETY: the function is called with its own system; the caller's contract is the same.
        unsafe { (self.pages.general.kfree_direct)(self.pages, object) }
    }
}

impl<M: Machine> Clone for Env<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Env<'_, M> {}

/// One slab allocator design: the per-cache state and everything that can be done with it.
///
/// The methods take the cache's [`Env`]; callers go through [`crate::heap::Heap`], which keeps the
/// two together.
///
/// # Walks
///
/// [`Design::at_rest`], [`Design::live_objects`] and [`Design::check_consistency`] look at all of a
/// cache, and are safe on a cache in use: they hold the slots of all its CPUs, then keep everybody out
/// who works without one. Other threads' operations on the cache wait for the end of the walk. Where
/// that cannot be had in bounded time they return [`Busy`] and have looked at nothing. Counters and
/// usage do not wait: on a cache in use they are sums of parts that were read one after the other.
pub trait Design: Sized + Send + Sync + 'static {
    /// What all caches of a heap share; `()` for most designs.
    type Shared: Send + Sync + 'static;

    /// The name on the command line: `slub`, `slubq`.
    const NAME: &'static str;
    /// Releases of Linux that have the design.
    const RELEASES: RangeInclusive<Era>;
    /// One release of each generation of it, oldest first: what tests and tables go through.
    const ERAS: &'static [Era];
    /// The era meant when none is given.
    const DEFAULT_ERA: Era;

    /// Sizes, order and limits of a cache.
    ///
    /// # Errors
    ///
    /// [`GeometryError`] if the cache cannot exist.
    fn geometry(
        era: Era,
        machine: &MachineParams,
        boot: &BootParams,
        cache: &CacheParams,
    ) -> Result<Geometry, GeometryError>;

    /// Which kmalloc caches the design has in this era. `None` if it has no such era.
    fn kmalloc_rules(era: Era) -> Option<&'static KmallocRules>;

    /// How caches are merged in this era; `None` if they never are.
    fn merge_rules(_era: Era) -> Option<&'static MergeRules> {
        None
    }

    /// What the caches of a new heap share.
    fn share(era: Era) -> Self::Shared;

    /// State of a new cache. `None` if there is no room for it. `shared` outlives the cache.
    fn create<M: Machine>(env: Env<'_, M>, shared: NonNull<Self::Shared>) -> Option<Self>;

    /// Returns the state's per-CPU slots. Only after [`Design::flush`] and when no slab is left.
    ///
    /// # Safety
    ///
    /// Nobody uses the cache any more.
    unsafe fn release<M: Machine>(&self, env: Env<'_, M>);

    /// Allocates an object, on the given node if one is wanted. `None` when memory is exhausted.
    fn alloc<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>>;

    /// Frees an object.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where the design can tell that the object is not one of this cache's live
    /// objects.
    ///
    /// # Safety
    ///
    /// Nobody uses the object any more.
    unsafe fn free<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError>;

    /// The part of [`Design::alloc`] that is worth having in the caller's code: one attempt, with
    /// nothing alive behind it, so that what follows a miss is a jump and no register is saved for
    /// it. A design without such a part has none.
    #[inline(always)]
    fn alloc_fast<M: Machine>(
        &self,
        _env: Env<'_, M>,
        _node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        None
    }

    /// The rest of [`Design::alloc`] after a miss of [`Design::alloc_fast`].
    #[inline(always)]
    fn alloc_slow<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>> {
        self.alloc(env, node)
    }

    /// The same for [`Design::free`]: whether the object has been freed.
    ///
    /// # Safety
    ///
    /// As [`Design::free`].
    #[inline(always)]
    unsafe fn free_fast<M: Machine>(&self, _env: Env<'_, M>, _object: NonNull<u8>) -> bool {
        false
    }

    /// The rest of [`Design::free`] after [`Design::free_fast`] said no.
    ///
    /// # Errors
    ///
    /// As [`Design::free`].
    ///
    /// # Safety
    ///
    /// As [`Design::free`].
    #[inline(always)]
    unsafe fn free_slow<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.free(env, object) }
    }

    /// Fills all slots with objects, or none (then `false`).
    fn alloc_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> bool;

    /// Frees the objects of all filled slots and empties these.
    ///
    /// # Errors
    ///
    /// The first [`FreeError`]; slots of objects that could not be freed stay filled.
    ///
    /// # Safety
    ///
    /// Nobody uses the objects any more.
    unsafe fn free_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> Result<(), FreeError>;

    /// Allocates an object from the slabs of the nodes, past all per-CPU state: what an operation
    /// does that cannot have its CPU's slot, and how caches with debugging always allocate.
    fn alloc_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>>;

    /// Frees an object to its slab, past all per-CPU state.
    ///
    /// # Errors
    ///
    /// As [`Design::free`].
    ///
    /// # Safety
    ///
    /// As [`Design::free`].
    unsafe fn free_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError>;

    /// Frees an object when every reader that runs now has finished, as the machine tells.
    ///
    /// # Errors
    ///
    /// As [`Design::free`], and [`FreeError::NoRoom`].
    ///
    /// # Safety
    ///
    /// Nobody but readers that run already uses the object any more.
    unsafe fn free_rcu<M: Machine>(
        &self,
        env: Env<'_, M>,
        object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller's contract is the same.
        unsafe { rcu::defer(self, env, object) }
    }

    /// What debugging writes into slots; `None` if the design has no debugging.
    fn debug_rules(era: Era) -> Option<debug::Rules> {
        Some(debug::Rules::slub(era))
    }

    /// The slot that an address lies in.
    ///
    /// # Errors
    ///
    /// What a free of the address would be.
    fn find_slot<M: Machine>(
        &self,
        env: Env<'_, M>,
        address: NonNull<u8>,
    ) -> Result<Place, NoPlace> {
        debug::slot_in_slab(self, env, address)
    }

    /// The first slot of a slab; the others follow at the distance of the geometry's `size`.
    fn first_slot<M: Machine>(&self, env: Env<'_, M>, slab: Pfn) -> NonNull<u8> {
        env.pages.map().address(slab)
    }

    /// Calls `found` for the free slots of a slab of a cache with debugging, until it returns
    /// `false`. Nobody allocates from the cache meanwhile. Slots with free objects are given as
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

    /// The free object of a slab in which the design names the slab's free objects, as its slot and
    /// how many bytes of the object are the design's, from the first on. None in most designs.
    fn held_by<M: Machine>(&self, _env: Env<'_, M>, _slab: Pfn) -> Option<(NonNull<u8>, u32)> {
        None
    }

    /// Makes a slab with a damaged list of free objects full: all its objects count as in use.
    /// Designs whose lists are not in memory of users have nothing to do.
    fn isolate<M: Machine>(&self, _env: Env<'_, M>, _slab: Pfn) {}

    /// A kmalloc of a design that serves all sizes itself ([`KmallocService::Design`]); the cache
    /// is the heap's nameless one.
    ///
    /// [`KmallocService::Design`]: crate::geometry::KmallocService::Design
    fn kmalloc<M: Machine>(
        &self,
        _env: Env<'_, M>,
        _bytes: usize,
        _node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        None
    }

    /// Frees what [`Design::kmalloc`] allocated.
    ///
    /// # Errors
    ///
    /// As [`Design::free`].
    ///
    /// # Safety
    ///
    /// As [`Design::free`].
    unsafe fn kfree<M: Machine>(
        &self,
        _env: Env<'_, M>,
        _object: NonNull<u8>,
    ) -> Result<(), FreeError> {
        Err(FreeError::Foreign)
    }

    /// The cache whose object an address lies in, if it is in a slab that holds objects of many
    /// caches; asked only for slabs that name no cache. Designs without such slabs have none.
    fn owner_of<M: Machine>(
        _pages: &PageAllocator<M>,
        _shared: &Self::Shared,
        _address: NonNull<u8>,
    ) -> Option<NonNull<CacheHead>> {
        None
    }

    /// What the kernel does from time to time on the running CPU: expires what lies idle in queues.
    /// `now_ns` counts from any moment; rounds come every [`REAP_INTERVAL_NS`]. Designs without such
    /// work do nothing.
    fn reap<M: Machine>(&self, _env: Env<'_, M>, _now_ns: u64) {}

    /// Empties all per-CPU state into the slabs. Returns how many CPUs were busy and kept theirs.
    fn flush<M: Machine>(&self, env: Env<'_, M>) -> u32;

    /// Flushes and gives empty slabs back. Returns how many CPUs were busy.
    fn shrink<M: Machine>(&self, env: Env<'_, M>) -> u32;

    /// Counters of all CPUs and of what happened without one.
    fn stats<M: Machine>(&self, env: Env<'_, M>) -> Stats;

    /// How the memory is used. Busy CPUs' private state counts as in use.
    fn usage<M: Machine>(&self, env: Env<'_, M>) -> Usage;

    /// One node's part of [`Design::usage`]. By default node 0 has everything, which is right for
    /// machines of one node.
    fn node_usage<M: Machine>(&self, env: Env<'_, M>, node: NodeId) -> NodeUsage {
        if node.0 != 0 {
            return NodeUsage::default();
        }
        let usage = self.usage(env);
        let free = usage.num_objs.saturating_sub(usage.active_objs);
        let on_list = usage.partial_slabs * u64::from(env.cache.geometry.objects);
        NodeUsage {
            slabs: usage.slabs,
            total_objects: usage.num_objs,
            objects: usage.active_objs,
            partial: usage.partial_slabs,
            objects_partial: on_list.saturating_sub(free),
            cpu_slabs: usage.cpu_slabs + usage.cpu_partial_slabs,
        }
    }

    /// One CPU's part; empty if the CPU is busy. By default CPU 0 has counted everything and no
    /// CPU has slabs.
    fn cpu_usage<M: Machine>(&self, env: Env<'_, M>, cpu: CpuId) -> CpuUsage {
        CpuUsage {
            stats: match cpu {
                CpuId(0) => self.stats(env),
                _ => Stats::default(),
            },
            ..CpuUsage::default()
        }
    }

    /// Sets a counter to 0 everywhere. Returns how many CPUs were busy and kept theirs; by default
    /// that is all of them. Where fast operations count the entries of a stack by its counters
    /// ([`crate::machine::StackLayout`]), the stack's floor has to move along.
    fn clear_stat<M: Machine>(&self, env: Env<'_, M>, _stat: Stat) -> u32 {
        env.pages.machine().topology().cpus
    }

    /// Runs `f` with the cache at rest. It takes no locks but the cache's own, and calls no users' code.
    ///
    /// # Errors
    ///
    /// [`Busy`]: `f` was not run.
    fn at_rest<M: Machine, R>(&self, env: Env<'_, M>, f: impl FnOnce() -> R) -> Result<R, Busy>;

    /// Calls `found` for every object from the address on that a user has allocated, or whose free is
    /// deferred, in address order, until it returns `false`. The cache is at rest; `found` is bound by
    /// the rule of [`Design::at_rest`].
    ///
    /// # Errors
    ///
    /// [`Busy`]: `found` may have been called for a part of the objects.
    fn live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        from: usize,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy>;

    /// Checks all lists and counters.
    ///
    /// # Errors
    ///
    /// The first contradiction, or that the cache was busy.
    fn check_consistency<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError>;

    /// Value of a tunable or attribute by its sysfs name.
    fn attribute(&self, cache: &CacheHead, name: &str) -> Option<u64>;

    /// Sets a tunable while the cache is in use. `false` if the design has none of that name; the
    /// value has been checked against [`crate::tunables`].
    fn set_attribute<M: Machine>(&self, env: Env<'_, M>, name: &str, value: u64) -> bool;

    /// Takes all per-CPU slots for a fork; returns how many could not be had.
    fn quiesce<M: Machine>(&self, env: Env<'_, M>) -> u32;

    /// Frees the slots that [`Design::quiesce`] took.
    fn resume<M: Machine>(&self, env: Env<'_, M>);
}
