//! SLUB+Queuing: SLUB's slabs and partial lists behind a queue of object pointers per CPU.
//!
//! # 1 Idea and source
//!
//! Christoph Lameter's "S+Q" series of 2010 (second posting, on Linux 2.6.35-rc4) answered SLAB's
//! advantage in hackbench and tbench: frees of any slab's objects are buffered per CPU, and free
//! objects are not touched by the allocator. It was never merged; the kernel took the idea up
//! again with sheaves (7.0). Facts of the mails, not code, were used.
//!
//! # 2 Objects
//!
//! ```text
//!  CpuQueue (one per CPU, behind its slot)       Node (one per NUMA node)
//!  +---------+------------------------+          +-----------+--------------+
//!  | objects | [o][o][o][o][ ][ ][ ]  |          | list_lock | partial list |
//!  +---------+------------------------+          +-----------+------|-------+
//!        oldest ^         ^ newest: popped next                     v
//!                                                   slab <-> slab <-> slab
//!   slab: [o][o][o][o]...[bitmap]   bit = 1: free and in the slab
//! ```
//!
//! Later postings (S+Q3, UnifiedV4) added queues that the CPUs of a node share. They added alien queues
//! for objects that a node's CPUs free and that are on another node, and drained idle queues.
//! All are off, as in the second posting, until `shared_queue_size`, `alien_queue_size` or
//! `idle_expiry` is set.
//!
//! Up to 64 objects the bitmap is the descriptor's word, above it is behind the last object.
//!
//! # 3 States of a slab
//!
//! full (no bit set, on no list), partial (on its node's list), empty (given back at once: only a
//! search on other nodes asks `min_partial`). Objects in queues count as in use by their slab.
//!
//! # 4 Paths
//!
//! *Alloc*: pop the newest entry; empty: refill `batch` objects from the node's partial slabs, from
//! other nodes' (as `remote_node_defrag_ratio` says), or from new ones; the slab that comes last is
//! popped first. *Free*: push; full: drain the `batch` oldest entries to their slabs first, one
//! slab lock for neighbours in the queue that share a slab. With shared queues, an empty queue
//! pulls a batch from its node's first and a full one pushes a batch there. With alien queues,
//! objects of other nodes pass the CPU's queue by. *Expiry* (`reap`, if `idle_expiry` is set):
//! queues that were not used since the last one are drained; the next refill of a queue not used
//! since brings at most 16 objects.
//!
//! # 5 Locks and their order
//!
//! The CPU's slot (tried only) -> a shared queue -> slab lock -> `list_lock`. A slab taken from the
//! list has its lock tried, not waited for.
//!
//! # 6 Invariants
//!
//! * **I1** An object is in exactly one place: with a user, in one queue, or free in its slab's
//!   bitmap.
//! * **I2** Bitmap and free count of a slab change only under its lock. A slab is on its node's
//!   list exactly if its count is not 0, whenever its lock is free.
//! * **I3** Entries `0..objects` of a queue are free objects of this cache; only the holder of the
//!   CPU's slot, or of a shared queue's lock, touches them.
//!
//! # 7 Departures from the kernel
//!
//! The queue runs under the CPU's try-lock instead of disabled interrupts; when the lock is held
//! the operation goes to the slab at once (counted as `cpu_slot_busy`). A slab keeps its free
//! count next to the bitmap. A free that finds a lock re-entered is deferred through the object's
//! first word, the only case in which an object is touched; hardened objects have that link in their
//! trailer. `cpu_batch_size` accepts 1..=queue;
//! the posted patch inverted that test. A queue's node is its newest object's; the patch remembers
//! one per queue. Shared queues are per node, as last-level caches are not
//! known; expiry is asked for by the heap's user and not by reclaim; what an alien queue gives up
//! when it is full was not read and is a batch here. Caches with debugging have no queues ([`crate::debug`]);
//! the patches kept them and checked at their ends.
//!
//! # 8 Memory
//!
//! Per CPU and cache 8 bytes per queue entry; 1 bit per object of slabs with more than 64. What an
//! operation accesses is a table: `crates/quarry/tests/virtual/accounting/designs.rs`.

mod alloc;
mod check;
mod free;
mod front;
pub mod geometry;
mod partial;
mod shared;
mod shrink;
mod slab;
mod stats;
mod tunables;
mod types;

use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::design::{CacheHead, Design, Env, Features};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheParams, DebugRules, Geometry, GeometryError, KmallocRules, MachineParams,
};
use crate::machine::{LockClass, Machine, PerCpu, SpinLock};
use crate::merge::MergeRules;
use crate::slabs::{self, RemoteSearch};
use crate::slub::geometry::slub_era;
use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::tunables::Table;

use crate::slub;
use shared::Kind;
use stats::{Stat, Stats};
use types::QueueConfig;
pub use types::Slubq;

// SAFETY: an object is free in its slab, on one queue, or its user's (I1); its memory is a slot of the cache's geometry.
unsafe impl Design for Slubq {
    const NAME: &'static str = "slubq";
    const TUNABLES: &'static Table = &Table {
        design: Self::NAME,
        rows: tunables::ROWS,
    };
    const RELEASES: RangeInclusive<Era> = Era::V2_6_35..=Era::V2_6_35;
    const ERAS: &'static [Era] = &[Era::V2_6_35];
    const GROWS_BY_KMALLOC: bool = false;
    const FEATURES: Features = Features {
        sysfs: true,
        hardens: true,
        ..Features::NONE
    };
    const DEFAULT_ERA: Era = Era::V2_6_35;

    fn geometry(
        era: Era,
        machine: &MachineParams,
        boot: &BootParams,
        cache: &CacheParams,
    ) -> Result<Geometry, GeometryError> {
        if !Self::RELEASES.contains(&era) {
            return Err(GeometryError::UnknownEra { era });
        }
        geometry::geometry(&geometry::RULES, machine, boot, cache)
    }

    fn kmalloc_rules(era: Era) -> Option<&'static KmallocRules> {
        let known = Self::RELEASES
            .contains(&era)
            .then(|| slub_era(era))
            .flatten();
        known.map(|era| &era.kmalloc)
    }

    fn merge_rules(era: Era) -> Option<&'static MergeRules> {
        let known = Self::RELEASES
            .contains(&era)
            .then(|| slub_era(era))
            .flatten();
        known.map(|era| &era.merge)
    }

    fn share(_: Era) {}

    fn debug_rules(era: Era) -> Option<DebugRules> {
        Some(slub::geometry::debug_rules(era))
    }

    unsafe fn create<M: Machine>(env: Env<'_, M>, _: NonNull<()>) -> Option<Self> {
        let geometry = &env.cache.geometry;
        // SAFETY: all-zero is a valid `CpuQueue`: no entries, no room for any, zero counters.
        let cpu = unsafe { PerCpu::new(env.machine(), env.pages().percpu()) }?;
        let Some(entries) = types::alloc_entries(env, geometry.queue) else {
            // SAFETY: no code has used the slots.
            unsafe { cpu.free(env.machine(), env.pages().percpu()) };
            return None;
        };
        let config = QueueConfig {
            entries,
            queue: geometry.queue,
        };
        Some(Self {
            cpu,
            size: geometry.layout.size as usize,
            batch: AtomicU32::new(geometry.batch),
            queue: AtomicU32::new(geometry.queue),
            config: SpinLock::new(LockClass::QueueConfig, config),
            shared: AtomicPtr::new(core::ptr::null_mut()),
            shared_queue_size: AtomicU32::new(0),
            alien_queue_size: AtomicU32::new(0),
            idle_expiry: AtomicU32::new(0),
            min_partial: geometry.min_partial,
            remote: RemoteSearch::new(geometry::RULES.remote_node_defrag_ratio),
            nodes: slabs::nodes(),
        })
    }

    unsafe fn release<M: Machine>(&self, env: Env<'_, M>) {
        // SAFETY: the caller guarantees that the cache has no user left.
        unsafe { self.free_shared(env) };
        if let Some(config) = self.config.lock(env.machine()) {
            // SAFETY: the cache has no user left: the caller says so.
            unsafe { types::free_entries(env, &config) };
        }
        // SAFETY: the cache has no user left: the caller says so.
        unsafe { self.cpu.free(env.machine(), env.pages().percpu()) };
    }

    fn attribute(&self, cache: &CacheHead, name: &str) -> Option<u64> {
        let value = match name {
            // Asked by searches on other nodes only; empty slabs go back whatever it says.
            "min_partial" => self.min_partial,
            "remote_node_defrag_ratio" => self.remote.shown(),
            "idle_expiry" => self.idle_expiry.load(Ordering::Relaxed),
            "cpu_queue_size" => self.queue.load(Ordering::Relaxed),
            "cpu_batch_size" => self.batch.load(Ordering::Relaxed),
            "shared_queue_size" => self.shared_queue_size.load(Ordering::Relaxed),
            "alien_queue_size" => self.alien_queue_size.load(Ordering::Relaxed),
            _ => return cache.attribute(name),
        };
        Some(u64::from(value))
    }

    fn set_attribute<M: Machine>(&self, env: Env<'_, M>, name: &str, value: u64) -> bool {
        let value = value.min(u64::from(u32::MAX)) as u32;
        match name {
            "remote_node_defrag_ratio" => self.remote.set(value),
            "idle_expiry" => self.idle_expiry.store(value, Ordering::Relaxed),
            "cpu_batch_size" => self.batch.store(value.max(1), Ordering::Relaxed),
            "cpu_queue_size" => return self.resize(env, value),
            "shared_queue_size" => return self.resize_shared(env, Kind::Shared, value),
            "alien_queue_size" => return self.resize_shared(env, Kind::Alien, value),
            _ => return false,
        }
        true
    }
}

/// Counts on the CPU's counters if its slot is held, else on the shared ones.
fn count<M: Machine>(env: Env<'_, M>, stats: Option<&mut Stats>, stat: Stat) {
    match stats {
        Some(stats) => stats.count(stat),
        None => env.cache.shared_stats.count(stat),
    }
}
