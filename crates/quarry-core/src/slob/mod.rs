//! SLOB: blocks of any size side by side in pages, found by first fit.
//!
//! # 1 Idea and source
//!
//! The kernel's allocator for the smallest machines: objects take the room that they need and share pages
//! whatever their size, paid for with a search under one lock. (Room that alignment or the page's end
//! cuts off is lost all the same: a load of large messages can need more pages than with SLUB.) Eras are
//! all releases from 2.6.22 to 6.3; the facts are about 2.6.24 and 6.1. What differs between them is data
//! ([`geometry::SlobEra`]).
//!
//! # 2 Objects
//!
//! ```text
//!  Shared: the one lock, and pages with free room by block size (2.6.24: one list for all)
//!  +------+-------------+---------------------------+
//!  | lock | below 256   | page <-> page <-> page    |   the front is where the last search
//!  |      | below 1024  | page <-> page             |   on this list ended
//!  |      | larger      | page                      |
//!  +------+-------------+---------------------------+
//!  page:  [block][free][block][block][  free       ][block]     descriptor: free units,
//!                 |                   ^                         first free block
//!                 +-- size, next -----+          owners: whose object starts at each word
//! ```
//!
//! A page is divided into units of 2 bytes (4 on 64 KiB pages). A free block holds its size and
//! the next one's offset, in units, in its first two units; one of a single unit holds the negated
//! offset. The last one's next is the page's end.
//!
//! # 3 States of a page
//!
//! full (no free unit, on no list), partial (on a list), empty (given back at once). The list is
//! that of the block that was first taken from it or, once it has been full, first given back to
//! it. A run of pages that is one object has none of this.
//!
//! # 4 Paths
//!
//! *Alloc*: walk the list of the block's size; in each page with enough free units take the first
//! free block that holds the wanted one aligned. What alignment leaves in front stays a free block.
//! If the page keeps free units, the list is rotated to begin with it; else it leaves the list, which
//! in 2.6.24 begins at its successor then. No
//! page: a new one, with the lock dropped meanwhile, at the front. *Free*: link the block in by
//! address and merge it with free neighbours; 2.6.24 does not merge in front of the first free
//! block. *kmalloc*: a block with its size in an 8-byte header; 6.1 aligns powers of two to
//! themselves, and it is the address behind the header that is aligned. Objects of a page, and
//! kmallocs of a page less the header, are runs of pages.
//!
//! # 5 Locks and their order
//!
//! The one lock (`slob`), with nothing inside it. Pages come and go with it dropped.
//!
//! # 6 Invariants
//!
//! * **I1** Free blocks, a heap page's descriptor word and the lists change only under the lock;
//!   the memory of a free block is no other code's.
//! * **I2** Blocks and free blocks of a heap page are end to end from its start to its end. Free
//!   ones are linked in ascending order of address. Where merging is complete no two are
//!   neighbours.
//! * **I3** A heap page is on a list exactly if it has free units, whenever the lock is free.
//! * **I4** An entry in a page's table of owners is set exactly while an object starts at its word.
//!
//! # 7 Departures from the kernel
//!
//! A table for each page says whose objects start where (module `owners`): the kernel cannot name the
//! objects of a cache, nor notice a free of what is no object; here both are required. A `kfree` of
//! a cache's object, which in the kernel reads the object's neighbour as its size, is refused.
//! A free that finds the lock re-entered is noted in the table. Objects of RCU caches have their
//! footer but are freed at once. Constructors are the user's affair. An alignment above the page,
//! or above an object's own pages, is refused. 2.6.24's usable-size bug is not reproduced: nothing
//! asks for that size.
//! The kernel has no statistics of SLOB; here all calls count as slow ones, and the runs of pages as
//! slabs of one object. Heap pages belong to no cache and show only in the heap's slab pages; a cache
//! knows the bytes of its blocks.
//!
//! *Debugging*: the kernel's SLOB has none, whatever `slub_debug` says, and a build without it. Here a
//! setting, or a cache whose flags ask for debugging, is an error ([`GeometryError::NoDebugging`]): a
//! program that asks for checks should not go on without them.
//!
//! # 8 Memory
//!
//! No per-CPU state. The table of owners takes 2 bytes per word of every page ever used, a quarter of
//! the heap, outside of slab memory; it bounds a heap to four times the machine's range for
//! structures, and its numbers bound the caches to 16383. What an operation accesses is a table:
//! `crates/quarry/tests/virtual/accounting/designs.rs`.

mod alloc;
mod check;
mod find;
mod free;
pub mod geometry;
mod owners;
mod partial;
mod shrink;
mod slab;
mod stats;
mod types;

use core::ops::RangeInclusive;
use core::ptr::NonNull;

use crate::design::{CacheHead, Design, Env, Features};
use crate::era::Era;
use crate::geometry::{
    BootParams, CacheParams, DebugRules, Geometry, GeometryError, KmallocRules, MachineParams,
};
use crate::machine::Machine;
use crate::sync::AtomicU64;
use crate::tunables::Table;

use geometry::{ERAS, slob_era};
pub use types::{Shared, Slob};

// SAFETY: a block is on its page's list or its user's; its memory is a slot of the cache's geometry.
unsafe impl Design for Slob {
    const NAME: &'static str = "slob";
    const TUNABLES: &'static Table = &Table {
        design: Self::NAME,
        rows: &[],
    };
    const RELEASES: RangeInclusive<Era> = geometry::RELEASES;
    const ERAS: &'static [Era] = &[Era::V2_6_24, Era::V6_1];
    const GROWS_BY_KMALLOC: bool = false;
    const FEATURES: Features = Features {
        shared_slabs: true,
        ..Features::NONE
    };
    const DEFAULT_ERA: Era = Era::V6_1;

    fn geometry(
        era: Era,
        machine: &MachineParams,
        boot: &BootParams,
        cache: &CacheParams,
    ) -> Result<Geometry, GeometryError> {
        let rules = slob_era(era).ok_or(GeometryError::UnknownEra { era })?;
        if cache.flags.debug() {
            return Err(GeometryError::NoDebugging { design: Self::NAME });
        }
        geometry::geometry(rules, machine, boot, cache)
    }

    fn kmalloc_rules(era: Era) -> Option<&'static KmallocRules> {
        slob_era(era).map(|era| &era.kmalloc)
    }

    fn share(era: Era) -> Shared {
        // A heap is only made in an era with kmalloc rules.
        Shared::new(slob_era(era).unwrap_or(&ERAS[0]))
    }

    unsafe fn create<M: Machine>(env: Env<'_, M>, shared: NonNull<Shared>) -> Option<Self> {
        let mut slob = Self {
            id: 0,
            shared,
            live: AtomicU64::new(0),
            block_bytes: AtomicU64::new(0),
            runs: core::array::from_fn(|_| AtomicU64::new(0)),
        };
        slob.id = slob.shared().registry.enter(env)?;
        Some(slob)
    }

    unsafe fn release<M: Machine>(&self, _: Env<'_, M>) {
        self.shared().registry.leave(self.id);
    }

    fn debug_rules(_: Era) -> Option<DebugRules> {
        None
    }

    fn attribute(&self, cache: &CacheHead, name: &str) -> Option<u64> {
        match name {
            "object_size" => Some(u64::from(cache.geometry.layout.object_size)),
            _ => cache.attribute(name),
        }
    }

    fn set_attribute<M: Machine>(&self, _: Env<'_, M>, _: &str, _: u64) -> bool {
        false
    }
}
