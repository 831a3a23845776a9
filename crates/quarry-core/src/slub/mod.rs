//! SLUB, the unqueued slab allocator: one slab per CPU to allocate from, free objects linked
//! through themselves.
//!
//! # 1 Idea and source
//!
//! Christoph Lameter's SLUB (Linux 2.6.22, 2007) keeps no queues: each CPU owns one slab and takes
//! its whole list of free objects; frees go straight to the object's slab. From 3.2 to 6.19 a CPU
//! also keeps a short list of partial slabs. Eras are all releases from 2.6.22 to 6.19; what differs
//! between them is data ([`geometry::RunRules`]), and `docs/fidelity.md` lists what differs from each
//! kernel. Facts, not code, of those kernels were used.
//!
//! # 2 Objects
//!
//! ```text
//!  CpuSlab (one per CPU, behind its slot)        Node (one per NUMA node)
//!  +----------+------+---------+                 +-----------+--------------+
//!  | freelist | slab | partial |                 | list_lock | partial list |
//!  +----|-----+--|---+----|----+                 +-----------+------|-------+
//!       v        v        v                                         v
//!   object ->  slab     slab -> slab                              slab <-> slab
//!   object     [o][o][.][o]      a free object holds the address of the next free one
//! ```
//!
//! # 3 States of a slab
//!
//! | state | frozen | on node list | who changes it |
//! |---|---|---|---|
//! | CPU slab | yes | no | its CPU; frees from elsewhere push on the slab's own list |
//! | on a cpu partial list | until 6.7: yes; from 6.8: no | no | its CPU; frees push |
//! | on the node's list | no | yes | list lock; frees push |
//! | full | no | no | the first free finds it and decides where it goes |
//!
//! # 4 Paths
//!
//! *Alloc*: pop the CPU's list; else take the CPU slab's own list whole; else the first slab of
//! the cpu partial list; else slabs from the node's list; else a new slab. *Free*: if the object's
//! slab is the CPU slab, push on the CPU's list; else push on the slab by compare-and-swap, taking
//! the list lock first if the slab was full or becomes empty.
//!
//! # 5 Locks and their order
//!
//! The CPU's slot (tried only) -> `list_lock` of one node -> a slab's word by compare-and-swap.
//! Pages are allocated and freed with no list lock held.
//!
//! # 6 Invariants
//!
//! * **I1** An object on a CPU's list or a slab's list belongs to the allocator: no other code reads
//!   or writes it. Its free pointer holds the next object of the same list or null.
//! * **I2** A slab's list and `inuse` change only together, by compare-and-swap on its word; only
//!   a slab's owner (I3) takes objects off, others only push.
//! * **I3** The owner of a slab is: the CPU whose slot holds it (CPU slab, cpu partial list); the
//!   holder of the list lock (on the node's list); the operation that took its list whole.
//! * **I4** `objects`, `head` and owner of a slab's pages do not change while it is a slab.
//!
//! # 7 Departures from the kernel
//!
//! The fast path runs under the CPU's try-lock instead of a double-word compare-and-swap on a
//! transaction id; an operation that finds the lock held goes to the node's list
//! (counted as `cpu_slot_busy`). A slab's list and counters share one 64-bit word. A free that
//! finds the list lock re-entered is deferred through its first word, even in caches with
//! constructors. An operation without a slot takes single objects and does not count
//! `alloc_from_partial`. RCU caches free their slabs at once. Caches with debugging have no cpu
//! slabs in any era ([`crate::debug`]); 2.6 kept them. A node list's slab whose free pointers lead
//! astray counts as full from there on.
//!
//! Knobs of its own: `cpu_slabs` sets a CPU's number of slabs in any era, by means of the cpu partial
//! list, whose slabs are not frozen until 3.1; `slab_order` chooses the order before the first
//! slab, where the kernel's file `order` can be written from 2.6.25 to 5.8 only.
//!
//! # 8 Memory
//!
//! No memory per object; 64 bytes per page descriptor. What an operation accesses is a table:
//! `crates/quarry/tests/virtual/accounting/designs.rs`.

mod alloc;
mod check;
mod free;
mod front;
pub mod geometry;
mod partial;
mod shrink;
mod slab;
pub(crate) mod stats;
pub(crate) mod tunables;
pub(crate) mod types;
pub(crate) mod word;

use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::design::{CacheHead, Design, Env, Features, Upkeep};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheParams, DebugRules, Geometry, GeometryError, KmallocRules, MachineParams,
};
use crate::machine::{Machine, PerCpu};
use crate::merge::MergeRules;
use crate::slabs::{self, RemoteSearch};
use crate::sync::{AtomicU32, Ordering};
use crate::tunables::Table;

use stats::Stat;
use types::CpuSlab;
pub use types::Slub;

// SAFETY: an object is on one list of free objects or its user's (I1); its memory is a slot of the cache's geometry.
unsafe impl Design for Slub {
    const NAME: &'static str = "slub";
    const TUNABLES: &'static Table = &Table {
        design: Self::NAME,
        rows: tunables::ROWS,
    };
    const RELEASES: RangeInclusive<Era> = geometry::RELEASES;
    const ERAS: &'static [Era] = &[
        Era::V2_6_22,
        Era::V2_6_24,
        Era::V2_6_35,
        Era::V4_13,
        Era::V5_9,
        Era::V6_1,
        Era::V6_18,
    ];
    const GROWS_BY_KMALLOC: bool = false;
    const FEATURES: Features = Features {
        sysfs: true,
        hardens: true,
        bulk_since: Some(Era::V4_3),
        ..Features::NONE
    };
    // Some caches of later releases have sheaves.
    const DEFAULT_ERA: Era = Era::V6_17;

    fn geometry(
        era: Era,
        machine: &MachineParams,
        boot: &BootParams,
        cache: &CacheParams,
    ) -> Result<Geometry, GeometryError> {
        let era = geometry::slub_era(era).ok_or(GeometryError::UnknownEra { era })?;
        geometry::geometry(era, machine, boot, cache)
    }

    fn kmalloc_rules(era: Era) -> Option<&'static KmallocRules> {
        geometry::slub_era(era).map(|era| &era.kmalloc)
    }

    fn merge_rules(era: Era) -> Option<&'static MergeRules> {
        geometry::slub_era(era).map(|era| &era.merge)
    }

    fn share(_: Era) {}

    fn debug_rules(era: Era) -> Option<DebugRules> {
        Some(geometry::debug_rules(era))
    }

    unsafe fn create<M: Machine>(env: Env<'_, M>, _: NonNull<()>) -> Option<Self> {
        let era = geometry::slub_era(env.cache.era)?;
        // SAFETY: all-zero is a valid `CpuSlab`: no list, no slab, zero counters.
        let cpu = unsafe { PerCpu::new(env.machine(), env.pages().percpu()) }?;
        Self::on(env, &era.run, cpu)
    }

    unsafe fn release<M: Machine>(&self, env: Env<'_, M>) {
        // SAFETY: the caller guarantees that the cache has no user left.
        unsafe { self.cpu.free(env.machine(), env.pages().percpu()) };
    }

    fn attribute(&self, cache: &CacheHead, name: &str) -> Option<u64> {
        let value = match name {
            "min_partial" => self.min_partial.load(Ordering::Relaxed),
            "cpu_partial" => self.cpu_partial.load(Ordering::Relaxed),
            name if name == self.rules.defrag_ratio_name => self.remote.shown(),
            "cpu_slabs_max" => self.cpu_slabs_max(),
            "order" | "slab_order" => self.normal_order().0,
            "objs_per_slab" => self.normal_order().1,
            _ => return cache.attribute(name),
        };
        Some(u64::from(value))
    }

    fn set_attribute<M: Machine>(&self, env: Env<'_, M>, name: &str, value: u64) -> bool {
        let value = value.min(u64::from(u32::MAX)) as u32;
        match name {
            "min_partial" if env.cache.era >= Era::V2_6_30 => {
                self.min_partial.store(value, Ordering::Relaxed);
            }
            "cpu_partial" if self.rules.has_cpu_partial => {
                let objects = self.normal_order().1;
                let slabs = geometry::cpu_partial_slabs(value, objects);
                self.cpu_slabs.store(0, Ordering::Relaxed);
                self.cpu_partial.store(value, Ordering::Relaxed);
                self.cpu_partial_slabs.store(slabs, Ordering::Relaxed);
                self.flush(env);
            }
            name if name == self.rules.defrag_ratio_name => self.remote.set(value),
            "cpu_slabs_max" => {
                self.cpu_slabs.store(value.max(1), Ordering::Relaxed);
                self.flush(env);
            }
            "order" if (Era::V2_6_25..=Era::V5_8).contains(&env.cache.era) => {
                return self.set_order(env, value);
            }
            "slab_order" => return self.choose_order(env, value),
            _ => return false,
        }
        true
    }
}

impl Slub {
    /// A new cache over these slots.
    fn on<M: Machine>(
        env: Env<'_, M>,
        rules: &'static geometry::RunRules,
        cpu: PerCpu<CpuSlab>,
    ) -> Option<Self> {
        let geometry = &env.cache.geometry;
        Some(Self {
            cpu,
            free_pointer: (geometry.layout.red_left_pad + geometry.layout.free_pointer?) as usize,
            size: geometry.layout.size as usize,
            rules,
            min_partial: AtomicU32::new(geometry.min_partial),
            cpu_partial: AtomicU32::new(geometry.cpu_partial),
            cpu_partial_slabs: AtomicU32::new(geometry.cpu_partial_slabs),
            cpu_slabs: AtomicU32::new(0),
            remote: RemoteSearch::new(rules.remote_node_defrag_ratio),
            normal: AtomicU32::new(geometry.order << 16 | geometry.objects),
            nodes: slabs::nodes(),
        })
    }

    /// The slabs and nodes of a cache without CPU slabs, for designs that have something else on
    /// top; only what takes no CPU's slot may be done with it.
    pub(crate) fn without_cpu_slabs<M: Machine>(
        env: Env<'_, M>,
        rules: &'static geometry::RunRules,
    ) -> Option<Self> {
        Self::on(env, rules, PerCpu::absent())
    }
}

/// Counts on the CPU's counters if its slot is held, else on the shared ones.
fn count<M: Machine>(env: Env<'_, M>, cpu: Option<&mut CpuSlab>, stat: Stat) {
    match cpu {
        Some(cpu) => cpu.stats.count(stat),
        None => env.cache.shared_stats.count(stat),
    }
}
