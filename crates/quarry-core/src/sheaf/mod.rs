//! Sheaves: SLUB's slabs behind arrays of object pointers, per CPU and in a barn per node.
//!
//! # 1 Idea and source
//!
//! Vlastimil Babka's sheaves (Linux 6.18, 2025) brought per-CPU arrays back to SLUB, first for
//! caches that ask for them and on top of CPU slabs; 7.0 (2026) gave them to every cache and took
//! the CPU slabs and cpu partial lists away. Eras are all releases from 6.18 on; what differs is data
//! ([`geometry::RunRules`]). Facts, not code, of those kernels were used. A [`Kind`] is a set of eras under a name:
//! [`Kernel`], and [`crate::magazine`] for programs.
//!
//! # 2 Objects
//!
//! ```text
//!  CpuSheaves (one per CPU, behind its slot)     Barn (one per NUMA node, behind its lock)
//!  +------+-------+-----+                        +-----------------+------------------+---------+
//!  | main | spare | rcu |                        | full, at most 10| empty, at most 10| waiting |
//!  +---|--+---|---+--|--+                        +--------|--------+---------|--------+----|----+
//!      v      v      v                                    v                  v             v
//!   sheaf   sheaf  sheaf   a kmalloc object:       sheaf -> sheaf     sheaf -> sheaf     sheaf
//!   [head | o o o . .]
//!              ^ newest: popped next              below: SLUB's slabs and node partial lists,
//!                                                 in 6.18 with CPU slabs (see `slub`)
//! ```
//!
//! # 3 States of a sheaf
//!
//! | state | objects in it | who has it |
//! |---|---|---|
//! | main, spare | free | the CPU's slot |
//! | rcu | freed, but readers may still look | the CPU's slot; full or flushed: waiting in a barn |
//! | full, empty | free, or none | a barn |
//! | being filled or flushed | free | an operation |
//!
//! Objects in sheaves count as in use by their slab. States of a slab are SLUB's; in 7.0 none is
//! frozen: it is on its node's list, or full, or in the hands of a refill.
//!
//! # 4 Paths
//!
//! *Alloc*: pop the main sheaf; empty: swap with the spare, or for a full sheaf of the barn, or for
//! an empty one that is filled from slabs: of the node's list as many as it takes, under one hold
//! of the list lock, then other nodes' lists, then new slabs. *Free*: push on the main sheaf; full:
//! swap with the spare, or for an empty sheaf of the barn, or flush the spare if the barn has
//! enough. Objects of another node than the CPU's go straight to their slab; so does everything if
//! the slot is held. *Deferred free*: push on the rcu sheaf; a full one waits until the machine
//! says that readers have finished, and is then a full sheaf of its node's barn; slow operations,
//! flushes and reaping ask the machine.
//!
//! # 5 Locks and their order
//!
//! The CPU's slot (tried only) -> in 6.18 the slot of the CPU slab -> `list_lock` of one node -> a
//! slab's word. A barn's lock is taken under the slot, with no other lock, and nothing is taken
//! under it. Sheaves are allocated with the slot held, but past all sheaves: a cache may be the one
//! that its own sheaves come from.
//!
//! # 6 Invariants
//!
//! * **I1** An object is in exactly one place: with a user (or waiting for readers), in one sheaf,
//!   or free in its slab.
//! * **I2** SLUB's invariants hold for all slabs.
//! * **I3** A sheaf belongs to the holder of its box: a CPU's slot, a barn, an operation. Its first
//!   `size` entries are objects of this cache. Of a main sheaf the CPU's counters tell the size.
//!
//! # 7 Departures from the kernel
//!
//! CPUs have no main sheaves of kmalloc's caches until their first slow operation. Sheaves come from and go
//! to the slabs of their kmalloc class, past that class's own sheaves. The slot stays held
//! while a sheaf is filled or flushed, so no code can have refilled it meanwhile; the kernel drops
//! its lock there. A sheaf is always filled, as in 7.0 final; 6.18 only does so for callers that
//! may sleep, and there is no such caller here to tell apart. A cache without sheaves, and an rcu
//! sheaf for which memory is short, note deferred frees as the other designs do. A thread that moves to
//! another node in the middle of a free may leave one remote object in a sheaf. Objects flushed or
//! filled do not count as slow operations in 7.0; those of bulk operations past the sheaves do.
//!
//! # 8 Memory
//!
//! Per CPU and cache two sheaves of 8 bytes per object and a head of 32; per node and cache up to 20
//! more. What an operation accesses is a table: `crates/quarry/tests/virtual/accounting/designs.rs`.

mod alloc;
mod barn;
mod check;
mod free;
mod front;
pub mod geometry;
mod kind;
mod partial;
mod rcu;
mod shrink;
mod size;
mod slab;
mod stats;
pub(crate) mod tunables;
mod types;

use core::marker::PhantomData;
use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::design::{CacheHead, Design, Env, Features};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheFlags, CacheParams, DebugRules, Geometry, GeometryError, KmallocRules,
    MachineParams,
};
use crate::machine::{LockClass, Machine, PerCpu, SpinLock};
use crate::slub::Slub;
use crate::stats::{Stat, Stats};
use crate::sync::{AtomicU32, Ordering};
use crate::tunables::Table;

use crate::slub;
pub use kind::{Kernel, Kind};
use size::Setting;
pub use types::Sheaves;
use types::{Barn, Sizes};

/// The state of one cache with the kernel's sheaves.
pub type SheafCache = Sheaves<Kernel>;

// SAFETY: objects come from slabs of `slub`, and a sheaf holds those that have no user (I1); its memory is a slot of the cache's geometry.
unsafe impl<K: Kind> Design for Sheaves<K> {
    const NAME: &'static str = K::NAME;
    const TUNABLES: &'static Table = K::TUNABLES;
    const RELEASES: RangeInclusive<Era> = K::RELEASES;
    const ERAS: &'static [Era] = K::ERAS;
    const GROWS_BY_KMALLOC: bool = false;
    const FEATURES: Features = Features {
        sysfs: true,
        sheaves: true,
        for_programs: K::FOR_PROGRAMS,
        hardens: true,
        bulk_since: Some(Era::V4_3),
        ..Features::NONE
    };
    const DEFAULT_ERA: Era = K::DEFAULT_ERA;

    fn geometry(
        era: Era,
        machine: &MachineParams,
        boot: &BootParams,
        cache: &CacheParams,
    ) -> Result<Geometry, GeometryError> {
        let era = K::numbers(era).ok_or(GeometryError::UnknownEra { era })?;
        geometry::geometry(era, machine, boot, cache)
    }

    fn kmalloc_rules(era: Era) -> Option<&'static KmallocRules> {
        K::numbers(era).map(|era| &era.slub.kmalloc)
    }

    fn share(_: Era) {}

    fn debug_rules(era: Era) -> Option<DebugRules> {
        Some(slub::geometry::debug_rules(era))
    }

    unsafe fn create<M: Machine>(env: Env<'_, M>, shared: NonNull<()>) -> Option<Self> {
        let era = K::numbers(env.cache.era)?;
        let slub = match era.run.cpu_slabs {
            // SAFETY: the caller gives what `share` made; both designs share nothing.
            true => unsafe { Slub::create(env, shared) }?,
            false => Slub::without_cpu_slabs(env, &era.slub.run)?,
        };
        let (machine, percpu) = (env.machine(), env.pages().percpu());
        // SAFETY: all-zero is a valid `CpuSheaves`: no sheaf, zero counters.
        let Some(cpu) = (unsafe { PerCpu::new(machine, percpu) }) else {
            // SAFETY: no code has used the slots below.
            unsafe { slub.release(env) };
            return None;
        };
        let sheaves = Self {
            cpu,
            slub,
            rules: &era.run,
            one_node: machine.topology().nodes == 1,
            capacity: Setting::new(env.cache.geometry.sheaf_capacity),
            sizes: Sizes::new(era),
            barn_full: Setting::new(era.barn.full),
            barn_empty: AtomicU32::new(era.barn.empty),
            waiting: AtomicU32::new(0),
            kind: PhantomData,
            barns: core::array::from_fn(|_| SpinLock::new(LockClass::Barn, Barn::EMPTY)),
        };
        sheaves.limit_barn(env);
        // SAFETY: the cache is being made.
        unsafe { sheaves.make_main_sheaves(env) };
        Some(sheaves)
    }

    unsafe fn release<M: Machine>(&self, env: Env<'_, M>) {
        // SAFETY: the caller guarantees that the cache has no user left.
        unsafe { self.free_all_sheaves(env) };
        // SAFETY: the cache has no user left: the caller says so.
        unsafe { self.cpu.free(env.machine(), env.pages().percpu()) };
        // SAFETY: the cache has no user left: the caller says so.
        unsafe { self.slub.release(env) };
    }

    fn attribute(&self, cache: &CacheHead, name: &str) -> Option<u64> {
        let value = match name {
            "sheaf_capacity" => self.capacity(),
            "barn_full" => self.barn_full.get(),
            "barn_empty" => self.barn_empty.load(Ordering::Relaxed),
            _ => return self.slub.attribute(cache, name),
        };
        Some(u64::from(value))
    }

    fn set_attribute<M: Machine>(&self, env: Env<'_, M>, name: &str, value: u64) -> bool {
        let count = value.min(u64::from(u32::MAX)) as u32;
        let never = env.cache.flags.debug() || env.cache.flags.contains(CacheFlags::NO_SHEAVES);
        match name {
            "sheaf_capacity" if !never => self.resize(env, count),
            "barn_full" => self.barn_full.set(count),
            "barn_empty" => self.barn_empty.store(count, Ordering::Relaxed),
            _ if Self::TUNABLES
                .of(env.cache.era)
                .any(|known| known.name == name) =>
            {
                return self.slub.set_attribute(env, name, value);
            }
            _ => return false,
        }
        true
    }
}

impl<K: Kind> Sheaves<K> {
    /// Puts what fast operations counted under the names of the era: 6.18 counts sheaves apart.
    fn rename(&self, sheaves: &mut Stats) {
        if self.rules.sheaf_is_fastpath {
            return;
        }
        sheaves.rename(Stat::AllocFastpath, Stat::AllocCpuSheaf);
        sheaves.rename(Stat::FreeFastpath, Stat::FreeCpuSheaf);
    }
}
