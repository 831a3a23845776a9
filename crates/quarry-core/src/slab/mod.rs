//! SLAB: object pointers in arrays per CPU, per node and between nodes, over slabs whose free
//! objects are named by indices.
//!
//! # 1 Idea and source
//!
//! The allocator of Linux from 2.2 to 6.7, after Bonwick's (1994, 2001): the objects freed last on
//! a CPU are the first to be allocated there, and freeing touches no object. Queues pay for that
//! where SLUB has lists in objects: an array per CPU and cache, one that the CPUs of a node share,
//! and with several nodes one for each pair of them. Eras are all releases from 2.6.22 to 6.7;
//! sources are facts read from kernels, most from 2.6.24 and 6.1, not their code.
//!
//! # 2 Objects
//!
//! ```text
//!  CpuArray (one per CPU, behind its slot)    Node (one per NUMA node), under `list_lock`
//!  +-------+-------------------------+        +---------+------+------+--------+
//!  | avail | [o][o][o][o][ ][ ][ ]   |        | partial | full | free | shared |
//!  +-------+-------------------------+        +----|----+--|---+--|---+---|----+
//!       oldest ^         ^ newest: popped next     v       v      v       v
//!                                                slab    slab   slab   [o][o][o][ ]
//!  alien array (node pair, own lock): [o][o][ ]
//!
//!  to 3.12: |colour|descriptor|indices|[o][o][o][o]|   or descriptor and indices elsewhere
//!  later:   |colour|[o][o][o][o]|indices|   or indices in a free object, or elsewhere
//! ```
//!
//! The indices of a slab are a stack: entries `active..objects` name the free objects. Shared and
//! alien arrays and indices off the slab are objects of general caches.
//!
//! # 3 States of a slab
//!
//! free (`active` 0), partial, full; always on the list of its state on its node. Objects in any
//! array count as taken.
//!
//! # 4 Paths
//!
//! *Alloc*: pop the newest entry. Empty: move a batch from the shared array; if that is empty, from
//! the first partial slabs, then free ones; if there are none, from a new slab. A fresh slab is
//! handed out in descending order of addresses within a batch, because it was pushed ascending.
//!
//! *Free*: push. Full: move the oldest batch to the shared array if it has any room, else to the
//! slabs. An object of another node goes to the alien array for that node; when this is full all of
//! it goes home.
//!
//! *Empty slabs* stay on the free list until the node has more free objects than `free_limit`.
//! *Reaping* takes a fifth of what idle arrays may hold and of what an idle node may keep.
//!
//! # 5 Locks and their order
//!
//! The CPU's slot (tried only) -> an alien array -> a node's `list_lock`. General caches and the
//! page allocator are only called without the last two.
//!
//! # 6 Invariants
//!
//! * **I1** An object is in exactly one place: with a user, in one array, or named by its slab's
//!   indices.
//! * **I2** `active`, indices and lists of a slab change only under its node's `list_lock`, or
//!   while only one thread knows the slab.
//! * **I3** The filled entries of an array are free objects of this cache; only the holder of the
//!   CPU's slot or of the array's lock touches them. Shared arrays hold objects of their node only.
//! * **I4** `private` is the offset of a slab's first object. `private2` is the address of its
//!   indices, which have room for as many as it has objects; 0 while a full slab has them nowhere.
//!   Inside an object they begin with it, behind its red zone.
//!
//! # 7 Departures from the kernel
//!
//! * The array runs under the CPU's try-lock instead of disabled interrupts; when the lock is held
//!   the operation goes to the slab at once (counted as `cpu_slot_busy`).
//! * `touched` of a CPU array is no flag: it is whether the CPU's allocation counters have moved
//!   since it was last cleared.
//! * CPU arrays are in the per-CPU range in all eras, as in 6.1; 2.6.24 has them in general caches,
//!   so their 16 + 8 * limit bytes per CPU and cache are missing from its slab memory.
//! * Shared and alien arrays are made when a slow operation first misses them, not with the cache.
//!   A shrink gives them back when they are empty. The pointers to alien arrays, 8 bytes per node,
//!   are not charged.
//! * 2.6.24 links its 4-byte indices and keeps `inuse` and `free` in the descriptor. Here they are
//!   the same stack as in 6.1, which hands out in the same order, and the page's descriptor counts.
//!   Accesses are accounted as the kernel's: to 3.12 the page's descriptor says where the slab's own one
//!   is, which has the links, the counts and the node.
//! * There is no early boot: no cache starts with a limit of 1.
//! * A cache's first reap stands for the time of its creation; reap nodes advance per cache.
//! * Debugging is asked for by letters, not built in. Caches with it keep nothing in arrays
//!   ([`crate::debug`]), whose limits only show that they are capped at 32. Red zones are the
//!   kernel's words; where 6.1 drops them and the user's word, because an alignment above a word is
//!   asked for (all of kmalloc), they make room here: the zone in front grows to the alignment.
//!   2.6.24 gives the alignment to cache lines up, in both. The user's word holds a number and the
//!   CPU of both the last allocation and the last free, where the kernel has one address. All
//!   eras find indices that a user has overwritten; the slab then counts as full.
//! * Freelist randomising, emergency reserves and cgroup accounting are left out.
//!
//! Without debugging neither era notices a double free. Here it is refused if the object is the
//! newest of the array; and, when it goes to its slab directly, if it is among the last 64 that came
//! back there; when an array is flushed such an object is passed over. It goes unnoticed if the
//! object is deeper in an array, or in another CPU's, or longer in a slab of more than 64 objects.
//! A pointer into an object is noticed only where the object goes to its slab directly.
//!
//! # 8 Memory
//!
//! Per CPU and cache 8 bytes per entry, per node 16 + 8 * `sharedfactor` * `batchcount`; 1 to 4 bytes
//! per object. What an operation accesses is a table:
//! `crates/quarry/tests/virtual/accounting/designs.rs`.

mod alloc;
mod check;
mod free;
mod front;
pub mod geometry;
mod partial;
mod shrink;
#[expect(
    clippy::module_inception,
    reason = "the designs have files of the same names"
)]
mod slab;
mod stats;
mod tunables;
mod types;

use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::design::{CacheHead, Design, Env, Features};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheFlags, CacheParams, DebugRules, Geometry, GeometryError, KmallocRules,
    MachineParams,
};
use crate::machine::{LockClass, Machine, PerCpu, SpinLock};
use crate::slabs::{self};
use crate::sync::{AtomicU32, Ordering};
use crate::tunables::Table;

use geometry::slab_era;
use types::{Beside, HeapWide, Lists, QueueConfig};
pub use types::{Shrinks, SlabCache};

// SAFETY: an object is free in its slab, in one array, or its user's (I1); its memory is a slot of the cache's geometry.
unsafe impl Design for SlabCache {
    const NAME: &'static str = "slab";
    const TUNABLES: &'static Table = &Table {
        design: Self::NAME,
        rows: tunables::ROWS,
    };
    const RELEASES: RangeInclusive<Era> = geometry::RELEASES;
    const ERAS: &'static [Era] = &[Era::V2_6_24, Era::V6_1];
    const GROWS_BY_KMALLOC: bool = true;
    const FEATURES: Features = Features {
        arrays_in_slabinfo: true,
        bulk_since: Some(Era::V4_6),
        ..Features::NONE
    };
    const DEFAULT_ERA: Era = Era::V6_1;

    fn geometry(
        era: Era,
        machine: &MachineParams,
        boot: &BootParams,
        cache: &CacheParams,
    ) -> Result<Geometry, GeometryError> {
        let rules = slab_era(era).ok_or(GeometryError::UnknownEra { era })?;
        geometry::geometry(rules, machine, boot, cache)
    }

    fn kmalloc_rules(era: Era) -> Option<&'static KmallocRules> {
        slab_era(era).map(|era| &era.kmalloc)
    }

    fn share(_: Era) -> Shrinks {
        Shrinks::new()
    }

    unsafe fn create<M: Machine>(env: Env<'_, M>, shared: NonNull<Shrinks>) -> Option<Self> {
        let geometry = &env.cache.geometry;
        let machine = env.machine();
        let era = slab_era(env.cache.era)?;
        // SAFETY: all-zero is a valid `CpuArray`: no entries, no room for any, zero counters.
        let cpu = unsafe { PerCpu::new(machine, env.pages().percpu()) }?;
        let Some(entries) = types::alloc_entries(env, geometry.queue) else {
            // SAFETY: no code has used the slots.
            unsafe { cpu.free(machine, env.pages().percpu()) };
            return None;
        };
        let config = QueueConfig {
            entries,
            queue: geometry.queue,
        };
        // A CPU that comes up is not counted yet when its node's limits are computed again. So a
        // cache from before never learns of the last one.
        let early = CacheFlags::KMALLOC | CacheFlags::EARLY;
        let missed = match env.cache.flags().intersects(early) {
            true => u64::from(geometry.batch),
            false => 0,
        };
        let lists = |node| Lists::new(Self::free_limit(env, node, geometry.batch) - missed);
        Some(Self {
            cpu,
            numa: machine.topology().nodes > 1,
            index_bytes: geometry.slab.index_bytes,
            size: geometry.layout.size as usize,
            era,
            batch: AtomicU32::new(geometry.batch),
            limit: AtomicU32::new(geometry.queue),
            shared_factor: AtomicU32::new(geometry.slab.shared_factor),
            config: SpinLock::new(LockClass::QueueConfig, config),
            nodes: slabs::nodes_with(lists),
            beside: core::array::from_fn(|_| Beside::new()),
            heap: HeapWide::new(shared),
        })
    }

    unsafe fn release<M: Machine>(&self, env: Env<'_, M>) {
        self.free_arrays(env);
        if let Some(config) = self.config.lock(env.machine()) {
            // SAFETY: the caller guarantees that the cache has no user left.
            unsafe { types::free_entries(env, &config) };
        }
        // SAFETY: the cache has no user left: the caller says so.
        unsafe { self.cpu.free(env.machine(), env.pages().percpu()) };
    }

    fn debug_rules(era: Era) -> Option<DebugRules> {
        Some(geometry::debug_rules(era))
    }

    fn attribute(&self, cache: &CacheHead, name: &str) -> Option<u64> {
        let value = match name {
            "limit" => self.limit.load(Ordering::Relaxed),
            "batchcount" => self.batch.load(Ordering::Relaxed),
            "sharedfactor" => self.shared_factor.load(Ordering::Relaxed),
            "object_size" => cache.geometry.layout.object_size,
            _ => return cache.attribute(name),
        };
        Some(u64::from(value))
    }

    fn set_attribute<M: Machine>(&self, env: Env<'_, M>, name: &str, value: u64) -> bool {
        let value = value.min(u64::from(u32::MAX)) as u32;
        match name {
            "limit" => return self.resize(env, value.max(1)),
            "batchcount" => self.batch.store(value.max(1), Ordering::Relaxed),
            "sharedfactor" => self.shared_factor.store(value, Ordering::Relaxed),
            _ => return false,
        }
        self.tune(env);
        true
    }
}
