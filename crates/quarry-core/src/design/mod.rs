//! What every slab allocator design offers, and what all of their caches share.

mod env;
mod error;
mod head;
mod usage;

use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::debug::{self, NoPlace, Place};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheParams, Geometry, GeometryError, KmallocRules, MachineParams,
};
use crate::machine::{CpuId, Machine, NodeId};
use crate::merge::MergeRules;
use crate::page::{PageAllocator, Pfn};
use crate::rcu;
use crate::stats::{Stat, Stats};
use crate::tunables::Table;

pub use crate::rest::{Busy, CheckError};
pub use env::Env;
pub use error::{FreeError, SlabInconsistency};
pub(crate) use head::cut_name;
pub use head::{CacheHead, CacheSpec, NAME_BYTES};
pub use usage::{CpuUsage, NodeUsage, Usage};

/// Nanoseconds between two rounds of [`Design::reap`] on a CPU (`REAPTIMEOUT_AC` of SLAB).
pub const REAP_INTERVAL_NS: u64 = 2_000_000_000;

/// One slab allocator design: the per-cache state and everything that can be done with it.
///
/// The methods take the cache's [`Env`]; callers go through [`crate::heap::Heap`], which keeps the
/// two together.
///
/// # What is unsafe
///
/// A function that takes an object back from its user is unsafe in every design, down to the one that
/// puts it on a queue or in its slab: the user has to be done with it. A function that moves objects
/// which the allocator owns already (drains, refills, flushes) is safe if it says whose they are.
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
    /// The tunables and the eras that have them.
    const TUNABLES: &'static Table;
    /// Releases of Linux that have the design.
    const RELEASES: RangeInclusive<Era>;
    /// One release of each generation of it, oldest first: what tests and tables go through.
    const ERAS: &'static [Era];
    /// Whether slabs, or what is beside them, come with kmallocs of the same heap ([`Env::kmalloc`]).
    const GROWS_BY_KMALLOC: bool;
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
    /// The cache has no user left.
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
    /// The object has no user left.
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
    /// The objects have no user left.
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
