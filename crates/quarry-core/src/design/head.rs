//! The head of a cache, common to all designs: name, sizes, flags, and objects whose free waits.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::NonNull;

use crate::debug::CacheDebug;
use crate::era::Era;
use crate::geometry::{CacheFlags, Geometry};
use crate::harden::Armour;
use crate::machine::SpinLock;
use crate::merge::Merged;
use crate::name::Name;
use crate::rcu::Batches;
use crate::stats::SharedStats;
use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::system::ListLinks;

/// A function that sets up an object once, when its slab is made (`ctor`). While the object is free nothing writes to
/// it, so it keeps its state from one user to the next, who have to leave it as the function does.
#[derive(Clone, Copy, Debug)]
pub struct Constructor(unsafe extern "C" fn(*mut c_void));

impl Constructor {
    /// The function runs in the middle of an allocation, on any thread. A panic in it ends the process.
    ///
    /// # Safety
    ///
    /// The function can be called with any memory of the cache's object size and alignment, on any thread. It writes
    /// to nothing else that it does not own, and returns. It neither uses the cache nor forks.
    pub const unsafe fn new(function: unsafe extern "C" fn(*mut c_void)) -> Self {
        Self(function)
    }

    /// Sets an object up.
    ///
    /// # Safety
    ///
    /// The object is of the cache and is the caller's alone.
    pub(crate) unsafe fn run(self, object: NonNull<u8>) {
        // SAFETY: who made the constructor vouches for the function, the caller for the object.
        unsafe { (self.0)(object.as_ptr().cast()) };
    }
}

/// Request for a new cache.
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
    /// Sets up the objects of new slabs; implies [`CacheFlags::CTOR`]. With [`CacheFlags::FREEPTR_OFFSET`] the design
    /// writes into free objects all the same, where its era does.
    pub ctor: Option<Constructor>,
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
            ctor: None,
        }
    }
}

/// Part of a cache that all designs share. It is first in every cache's structure, and its address names the
/// cache in the table of pages' owners.
pub struct CacheHead {
    name: Name,
    pub(crate) era: Era,
    pub(crate) geometry: Geometry,
    pub(crate) flags: CacheFlags,
    /// Bytes of an object that are its user's.
    pub(crate) usable: u32,
    /// Sets up the objects of new slabs.
    pub(crate) ctor: Option<Constructor>,
    /// Counts what happens without a CPU's slot.
    pub(crate) shared_stats: SharedStats,
    /// Objects whose free found a lock re-entered: a stack linked through their first word.
    deferred: AtomicPtr<u8>,
    /// The last address that a drain did not give to a slab, because no object begins there.
    pub(crate) dropped: AtomicPtr<u8>,
    /// References and names, if other caches were merged into this one.
    pub(crate) merged: Merged,
    /// Frees that wait for readers.
    pub(crate) rcu: SpinLock<Batches>,
    /// 1 if there may be any, else 0.
    pub(crate) rcu_noted: AtomicU32,
    /// State of debugging, in the machine's structure range; null without debugging.
    debug: *const CacheDebug,
    /// State of hardening and, behind it, of the design, in the machine's structure range; null without hardening.
    armour: *const Armour,
    /// Links of the heap's list of caches, under its lock.
    pub(crate) links: UnsafeCell<ListLinks>,
}

// SAFETY: `links` are only accessed under the heap's cache-list lock; everything else is
// immutable or atomic; `debug` points to what is itself `Sync`.
unsafe impl Sync for CacheHead {}
// SAFETY: as for `Sync`; the pointers in `links` are addresses in the heap's structures.
unsafe impl Send for CacheHead {}

impl CacheHead {
    /// Gives a new cache its state of debugging.
    ///
    /// # Safety
    ///
    /// It lives as long as the cache.
    pub(crate) unsafe fn set_debug(&mut self, debug: NonNull<CacheDebug>) {
        self.debug = debug.as_ptr();
    }

    /// State of debugging, if the cache has debugging.
    pub(crate) fn debug(&self) -> Option<&CacheDebug> {
        // SAFETY: null, or of `set_debug`, whose caller keeps it alive.
        unsafe { self.debug.as_ref() }
    }

    /// Gives a new cache the place of its state of hardening.
    ///
    /// # Safety
    ///
    /// It is initialised before other code knows the cache, and lives as long as that.
    pub(crate) unsafe fn set_armour(&mut self, armour: NonNull<Armour>) {
        self.armour = armour.as_ptr();
    }

    /// Says which bytes of an object are its user's, where that are not all.
    pub(crate) fn set_usable(&mut self, bytes: u32) {
        self.usable = bytes;
        self.merged = Merged::new(bytes);
    }

    /// State of hardening, if the cache is hardened.
    #[inline(always)]
    pub(crate) fn armour(&self) -> Option<&Armour> {
        // SAFETY: null, or of `set_armour`, whose caller keeps it alive.
        unsafe { self.armour.as_ref() }
    }

    pub(crate) fn new(spec: &CacheSpec<'_>, era: Era, geometry: Geometry) -> Self {
        Self {
            name: Name::new(spec.name),
            era,
            geometry,
            flags: spec.flags,
            usable: spec.object_size,
            ctor: spec.ctor,
            shared_stats: SharedStats::new(),
            deferred: AtomicPtr::new(core::ptr::null_mut()),
            dropped: AtomicPtr::new(core::ptr::null_mut()),
            merged: Merged::new(spec.object_size),
            rcu: Batches::new(),
            rcu_noted: AtomicU32::new(0),
            debug: core::ptr::null(),
            armour: core::ptr::null(),
            links: UnsafeCell::new(ListLinks::new()),
        }
    }

    /// The cache's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
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

    /// An attribute that follows from the geometry, by its sysfs name.
    pub(crate) fn attribute(&self, name: &str) -> Option<u64> {
        let value = match name {
            "order" => self.geometry.order,
            "objs_per_slab" => self.geometry.objects,
            "slab_size" => self.geometry.layout.size,
            "object_size" => self.object_size(),
            "align" => self.geometry.layout.align,
            _ => return None,
        };
        Some(u64::from(value))
    }

    pub(crate) fn id(&self) -> *mut () {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Offset of a deferred object's link in bytes from the slot's start: that of a free object's link, if it has one.
    fn deferred_link(&self) -> usize {
        let layout = &self.geometry.layout;
        match layout.free_pointer {
            Some(pointer) if self.flags.checked() || self.ctor.is_some() => {
                (layout.red_left_pad + pointer) as usize
            }
            _ => 0,
        }
    }

    /// Sets up an object if the cache has a constructor, given the start of its slot.
    ///
    /// # Safety
    ///
    /// It is a slot of the cache and the caller's alone.
    pub(crate) unsafe fn construct(&self, slot: NonNull<u8>) {
        if let Some(ctor) = self.ctor {
            // SAFETY: geometry puts the object inside the slot.
            let object = unsafe { slot.byte_add(self.geometry.layout.red_left_pad as usize) };
            // SAFETY: the caller has it alone.
            unsafe { ctor.run(object) };
        }
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
        let link = unsafe { object.byte_add(self.deferred_link()) };
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

    /// True if objects wait to be freed.
    #[inline(always)]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.load(Ordering::Relaxed).is_null()
    }

    /// Takes the whole stack of deferred objects; designs with debugging take them by
    /// [`debug::take_deferred`](crate::debug::take_deferred).
    pub(crate) fn take_deferred(&self) -> impl Iterator<Item = NonNull<u8>> + use<'_> {
        // Acquire: pairs with the Release in `defer`.
        let mut next = self.deferred.swap(core::ptr::null_mut(), Ordering::Acquire);
        let at = self.deferred_link();
        core::iter::from_fn(move || {
            let object = NonNull::new(next)?;
            // SAFETY: the offset is 0, or one inside the slot (geometry).
            let link = unsafe { object.byte_add(at) };
            // SAFETY: `defer` wrote the link there, and no other code has taken the object.
            next = unsafe { link.cast::<*mut u8>().read() };
            if self.geometry.layout.free_pointer.is_none() {
                // The link was in the object.
                // SAFETY: as above.
                unsafe { self.construct(object) };
            }
            Some(object)
        })
    }
}
