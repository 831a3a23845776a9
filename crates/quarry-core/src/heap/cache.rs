//! A cache as its users see it.

use core::ptr::NonNull;

use super::{CacheBody, Heap};
use crate::debug::{self, CallSite, Track};
use crate::design::{
    Busy, CacheHead, CheckError, CpuUsage, Design, Env, FreeError, NodeUsage, Usage,
};
use crate::geometry::CacheFlags;
use crate::machine::{CpuId, Guard, Machine, NodeId, Topology, Work, work};
use crate::name::Name;
use crate::rcu;
use crate::stats::{Stat, Stats};
use crate::sync::Ordering;

/// Files in sysfs that tell a cache's debug flags.
const DEBUG_ATTRIBUTES: &[(&str, CacheFlags)] = &[
    ("sanity_checks", CacheFlags::CONSISTENCY),
    ("trace", CacheFlags::TRACE),
    ("red_zone", CacheFlags::RED_ZONE),
    ("poison", CacheFlags::POISON),
    ("store_user", CacheFlags::STORE_USER),
    ("failslab", CacheFlags::FAILSLAB),
];

/// A cache of a heap.
pub struct Cache<'h, M: Machine, D: Design> {
    pub(super) heap: &'h Heap<M, D>,
    pub(super) body: &'h CacheBody<D>,
}

/// Objects that a [`DestroyError`] names.
const NAMED: usize = 8;

/// A cache was not destroyed, because it has live objects or was busy. The handle that the caller still
/// has, a copy, stays valid.
#[derive(Clone, Copy)]
pub struct DestroyError {
    name: Name,
    /// Objects that are still allocated.
    pub live: u64,
    /// CPUs whose private objects could not be seen because they were busy.
    pub busy_cpus: u32,
    /// Addresses of the first objects, and who allocated them.
    first: [Option<(usize, Option<Track>)>; NAMED],
}

impl DestroyError {
    fn new(name: &str, busy_cpus: u32) -> Self {
        Self {
            name: Name::new(name),
            live: 0,
            busy_cpus,
            first: [None; NAMED],
        }
    }
}

impl core::fmt::Display for DestroyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = self.name.as_str();
        if self.live == 0 {
            return write!(
                f,
                "cache {name}: {} CPUs are busy, try again",
                self.busy_cpus
            );
        }
        write!(f, "cache {name} still has {} objects:", self.live)?;
        for (address, track) in self.first.iter().flatten() {
            match track {
                Some(track) => write!(f, " {address:#x} allocated in {track};")?,
                None => write!(f, " {address:#x}")?,
            }
        }
        match self.live.saturating_sub(NAMED as u64) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

crate::error::debug_is_display!(DestroyError);

impl core::error::Error for DestroyError {}

impl<'h, M: Machine, D: Design> Cache<'h, M, D> {
    pub(super) fn env(&self) -> Env<'h, M> {
        self.heap.env(&self.body.head)
    }

    /// The heap that has it.
    pub fn heap(&self) -> &'h Heap<M, D> {
        self.heap
    }

    /// Name, geometry and flags.
    pub fn head(&self) -> &'h CacheHead {
        &self.body.head
    }

    /// The name it was created with.
    pub fn name(&self) -> &'h str {
        self.body.head.name()
    }

    /// Allocates an object on the running CPU's node. `None` when memory is exhausted.
    #[inline(always)]
    #[track_caller]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        self.alloc_at(None, CallSite::caller())
    }

    /// Allocates an object, on the given node if it can be had there. Where a design looks when
    /// that node has nothing differs between eras: SLUB until 2.6.35 sometimes takes partial slabs
    /// of other nodes first. `None` when memory is exhausted.
    #[inline]
    #[track_caller]
    pub fn alloc_node(&self, node: NodeId) -> Option<NonNull<u8>> {
        self.alloc_at(Some(node), CallSite::caller())
    }

    /// Allocates an object for the given call site, which only caches with debugging keep.
    #[inline(always)]
    pub fn alloc_at(&self, node: Option<NodeId>, site: CallSite) -> Option<NonNull<u8>> {
        work(self.heap.machine(), Work::Call);
        match self.body.design.alloc_fast(self.env(), node) {
            None => {
                let bytes = self.body.head.geometry.layout.object_size;
                self.heap.alloc_slow(self.body, node, bytes, site)
            }
            object => object,
        }
    }

    /// Frees an object.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where the design can tell that it is not one of this cache's live objects.
    ///
    /// # Safety
    ///
    /// The object has no user left.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn free(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.free_at(object, CallSite::caller()) }
    }

    /// Frees an object for the given call site, which only reports and caches with debugging keep.
    ///
    /// # Errors
    ///
    /// As [`Cache::free`].
    ///
    /// # Safety
    ///
    /// As [`Cache::free`].
    #[inline(always)]
    pub unsafe fn free_at(&self, object: NonNull<u8>, site: CallSite) -> Result<(), FreeError> {
        work(self.heap.machine(), Work::Call);
        // SAFETY: the caller's contract is the same.
        if unsafe { self.body.design.free_fast(self.env(), object) } {
            return Ok(());
        }
        // SAFETY: as above; the object has not been freed.
        unsafe { self.heap.free_slow(self.body, object, site) }
    }

    /// Fills all slots with objects, or none (then `false`). Slots must be empty.
    #[track_caller]
    #[inline]
    pub fn alloc_bulk(&self, slots: &mut [Option<NonNull<u8>>]) -> bool {
        work(self.heap.machine(), Work::Call);
        self.body.design.alloc_bulk(self.env(), None, slots)
            || self.alloc_bulk_missed(slots, CallSite::caller())
    }

    /// Frees the objects of all filled slots and empties these.
    ///
    /// # Errors
    ///
    /// The first [`FreeError`]; slots of objects that could not be freed stay filled.
    ///
    /// # Safety
    ///
    /// The objects have no user left.
    #[track_caller]
    #[inline]
    pub unsafe fn free_bulk(&self, slots: &mut [Option<NonNull<u8>>]) -> Result<(), FreeError> {
        work(self.heap.machine(), Work::Call);
        // SAFETY: the caller's contract is the same.
        match unsafe { self.body.design.free_bulk(self.env(), slots) } {
            Ok(()) => Ok(()),
            // SAFETY: as above; slots of objects that were not freed are still filled.
            Err(error) => unsafe { self.free_bulk_missed(slots, error, CallSite::caller()) },
        }
    }

    /// Frees an object when every reader that runs now has finished, as the machine tells
    /// ([`Readers::rcu_cookie`](crate::machine::Readers::rcu_cookie)). Until it is freed it counts as allocated.
    ///
    /// # Errors
    ///
    /// As [`Cache::free`]; [`FreeError::NoRoom`] if there is no memory to note the free, which is
    /// then the caller's to make later.
    ///
    /// # Safety
    ///
    /// Only readers that run already may still use the object.
    pub unsafe fn free_rcu(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.body.design.free_rcu(self.env(), object) }
    }

    /// Empties per-CPU state and gives every empty slab back. Returns how many CPUs were busy and
    /// kept theirs.
    pub fn shrink(&self) -> u32 {
        rcu::settle(&self.body.design, self.env());
        let busy = self.body.design.shrink(self.env());
        debug::deliver(self.env());
        busy
    }

    /// Empties per-CPU state into the slabs. Returns how many CPUs were busy.
    pub fn flush(&self) -> u32 {
        rcu::settle(&self.body.design, self.env());
        let busy = self.body.design.flush(self.env());
        debug::deliver(self.env());
        busy
    }

    /// Counters; those of CPUs that are busy at this moment are missing.
    pub fn stats(&self) -> Stats {
        self.body.design.stats(self.env())
    }

    /// How the cache's memory is used. Costs time proportional to the pages ever used.
    pub fn usage(&self) -> Usage {
        let _pass = self.heap.system.pages.gate().enter(self.heap.machine());
        self.body.design.usage(self.env())
    }

    /// One node's part of the usage. Costs at most as much as [`Cache::usage`].
    pub fn node_usage(&self, node: NodeId) -> NodeUsage {
        if node.0 >= self.topology().nodes {
            return NodeUsage::default();
        }
        let _pass = self.heap.system.pages.gate().enter(self.heap.machine());
        self.body.design.node_usage(self.env(), node)
    }

    /// One CPU's part: its counters and slabs; empty if the CPU is busy at this moment.
    pub fn cpu_usage(&self, cpu: CpuId) -> CpuUsage {
        if cpu.0 >= self.topology().cpus {
            return CpuUsage::default();
        }
        self.body.design.cpu_usage(self.env(), cpu)
    }

    /// Sets a counter to 0. Returns how many CPUs were busy and kept theirs.
    pub fn clear_stat(&self, stat: Stat) -> u32 {
        self.body.design.clear_stat(self.env(), stat)
    }

    /// Whether kmalloc allocates from this cache.
    pub fn serves_kmalloc(&self) -> bool {
        let me = core::ptr::from_ref(self.body).cast_mut();
        // Relaxed: the address is compared and not followed.
        let mut classes = self.heap.system.classes.iter();
        classes.any(|class| class.load(Ordering::Relaxed) == me.cast())
    }

    /// CPUs and nodes of the machine.
    pub(crate) fn topology(&self) -> &'h Topology {
        self.heap.machine().topology()
    }

    /// Calls `f` for every allocated object, in address order. The cache may be in use: an object was
    /// allocated when its part of memory was looked at, and others may have freed it since. `f` may use
    /// the heap.
    ///
    /// # Errors
    ///
    /// [`Busy`] if a part of the cache could not be looked at; `f` has seen the objects in front of it.
    pub fn for_each_live(&self, mut f: impl FnMut(NonNull<u8>)) -> Result<(), Busy> {
        self.for_each_live_with_track(|object, _| f(object))
    }

    /// The same with who allocated the object, in caches with user tracking.
    ///
    /// # Errors
    ///
    /// As [`Cache::for_each_live`].
    pub fn for_each_live_with_track(
        &self,
        mut f: impl FnMut(NonNull<u8>, Option<&Track>),
    ) -> Result<(), Busy> {
        /// Objects that are looked at while others wait; `f` is called for them afterwards.
        const BATCH: usize = 128;
        let env = self.env();
        let mut from = 0;
        loop {
            let mut batch = [None; BATCH];
            let mut count = 0;
            self.body.design.live_objects(env, from, &mut |slot| {
                batch[count] = debug::live(env, slot);
                count += usize::from(batch[count].is_some());
                from = slot.addr().get() + 1;
                count < BATCH
            })?;
            for (object, track) in batch.iter().flatten() {
                f(*object, track.as_ref());
            }
            if count < BATCH {
                return Ok(());
            }
        }
    }

    /// Checks lists and counters. The cache may be in use: others wait meanwhile.
    ///
    /// # Errors
    ///
    /// The first contradiction, or that the cache was busy and was not looked at.
    pub fn check_consistency(&self) -> Result<(), CheckError> {
        self.body.design.check_consistency(self.env())
    }

    /// Value of a tunable or attribute by its sysfs name.
    pub fn attribute(&self, name: &str) -> Option<u64> {
        if let Some((_, flag)) = DEBUG_ATTRIBUTES.iter().find(|(known, _)| *known == name) {
            return Some(u64::from(self.body.head.flags.contains(*flag)));
        }
        self.body.design.attribute(&self.body.head, name)
    }

    /// Sets a tunable by its sysfs name. `false` if the design has no writable one of that name.
    /// Ranges are the caller's to check ([`Table::check`](crate::tunables::Table::check)).
    pub fn set_attribute(&self, name: &str, value: u64) -> bool {
        self.body.design.set_attribute(self.env(), name, value)
    }

    /// Empties per-CPU state, gives every empty slab back, and checks that no object is left.
    ///
    /// # Errors
    ///
    /// [`DestroyError`] if objects are still allocated: its message names them.
    #[allow(
        clippy::result_large_err,
        reason = "it names objects, and there is no heap to box it in"
    )]
    pub fn check_unused(&self) -> Result<(), DestroyError> {
        debug::release(&self.body.design, self.env());
        let mut error = DestroyError::new(self.name(), self.shrink());
        let walked = self.for_each_live_with_track(|object, track| {
            if let Some(place) = error.first.get_mut(error.live as usize) {
                *place = Some((object.addr().get(), track.copied()));
            }
            error.live += 1;
        });
        if error.live == 0 && walked.is_ok() && self.usage().slabs == 0 {
            return Ok(());
        }
        error.busy_cpus = error.busy_cpus.max(u32::from(walked.is_err()));
        Err(error)
    }

    /// Destroys the cache, or gives up this reference to it if it has others by merging; its name
    /// stays among the aliases then.
    ///
    /// # Errors
    ///
    /// [`DestroyError`] if objects are still allocated: its message names them.
    ///
    /// # Safety
    ///
    /// No copy of this handle is used any more, whichever thread has it; if the cache is a kmalloc
    /// class, no other thread uses kmalloc meanwhile. An error leaves the cache as it was.
    #[allow(
        clippy::result_large_err,
        reason = "it names objects, and there is no heap to box it in"
    )]
    pub unsafe fn destroy(self) -> Result<(), DestroyError> {
        if self.aliases() > 0 {
            let _pass = self.heap.system.pages.gate().enter(self.heap.machine());
            let newest = self.heap.system.caches.lock(self.heap.machine());
            if newest.is_some() && Heap::<M, D>::drop_reference(&self.body.head) {
                return Ok(());
            }
        }
        self.check_unused()?;
        let machine = self.heap.machine();
        let _pass = self.heap.system.pages.gate().enter(machine);
        let Some(mut newest) = self.heap.system.caches.lock(machine) else {
            return Err(DestroyError::new(self.name(), 1));
        };
        if Heap::<M, D>::drop_reference(&self.body.head) {
            // Another cache was merged into this one just now.
            return Ok(());
        }
        self.unlist(&mut newest);
        drop(newest);
        // A kmalloc class is made anew at its next use.
        let body = core::ptr::from_ref(self.body).cast_mut().cast();
        for class in &self.heap.system.classes {
            // Relaxed: by the caller's contract no other thread uses the cache.
            let _ = class.compare_exchange(
                body,
                core::ptr::null_mut(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        // SAFETY: the cache is off the list, and by the caller's contract no other code uses it.
        unsafe { self.heap.free_aliases(&self.body.head) };
        // SAFETY: no slab is left, and by the caller's contract no other code uses the cache.
        unsafe { self.body.design.release(self.env()) };
        // SAFETY: the cache is off the list, and no other code uses it.
        unsafe { self.heap.free_body(NonNull::from(self.body)) };
        Ok(())
    }

    /// Takes the cache off the heap's list; `newest` is the guard of that list.
    fn unlist(&self, newest: &mut Guard<'_, M, *const CacheHead>) {
        let me: *const CacheHead = &self.body.head;
        // SAFETY: the link is this cache's own, under the list's lock.
        let after = unsafe { *self.body.head.list_next.get() };
        if **newest == me {
            **newest = after;
        } else {
            let mut at = **newest;
            while !at.is_null() {
                // SAFETY: listed heads live as long as they are listed.
                let link = unsafe { &*at }.list_next.get();
                // SAFETY: links are only touched under the list's lock, which is held.
                let next = unsafe { *link };
                if next == me {
                    // SAFETY: as above.
                    unsafe { *link = after };
                    break;
                }
                at = next;
            }
        }
        self.heap
            .system
            .list_changes
            .fetch_add(1, Ordering::Relaxed);
    }
}

impl<M: Machine, D: Design> Clone for Cache<'_, M, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine, D: Design> Copy for Cache<'_, M, D> {}
