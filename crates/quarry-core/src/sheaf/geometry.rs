//! Geometry of caches with sheaves: SLUB's slabs, and how many objects a sheaf holds.
//!
//! # Theory
//!
//! The slot, the slab order and `min_partial` are SLUB's ([`crate::slub::geometry`]); 7.0 has no
//! cpu partial lists and keeps a constructor cache's free pointer inside the object where the
//! creator names a place for it.
//!
//! **Capacity.** 6.18 gives a cache sheaves only if its creator asks for them, of exactly that many
//! objects. 7.0 gives them to every cache without debugging: fewer for larger objects, as the cpu
//! partial lists were sized before. A sheaf is itself a kmalloc object, a header and one pointer
//! for each object. So the capacity is rounded up to what the kmalloc class holds: 26 pointers
//! behind 32 bytes leave 16 bytes of `kmalloc-256`, which makes 28 ([`sheaf_capacity`]). A larger
//! wish of the creator is taken as it is. Caches with [`CacheFlags::NO_SHEAVES`] have none.
//!
//! **Barn.** A node keeps at most 10 full and 10 empty sheaves of a cache.
//!
//! Every number is a field of [`SheafEra`].

mod eras;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use eras::V7_3;
pub use eras::{ERAS, RELEASES, sheaf_era};
pub use rules::{
    BarnRules, BulkOrder, Capacity, EmptyMain, RefillOrder, RunRules, SheafEra, Sizing,
};

use crate::geometry::{
    BootParams, CacheFlags, CacheParams, Geometry, GeometryError, KmallocRules, KmallocTarget,
    MachineParams, SizeClasses, WORD_BYTES, kmalloc_index,
};
use crate::slub;

/// Bytes of a sheaf in front of its pointers.
pub const HEADER_BYTES: u32 = 32;

/// Largest `sheaf_capacity`, in objects: such a sheaf fills the largest kmalloc class with 4 KiB
/// pages, 8 KiB.
pub const SHEAF_CAPACITY_MAX: u32 = (8192 - HEADER_BYTES) / WORD_BYTES;

/// The geometry of a cache.
///
/// # Errors
/// [`GeometryError`] if an input is out of range or no slab holds the object.
///
/// ```
/// use quarry_core::era::Era;
/// use quarry_core::geometry::{BootParams, CacheParams, MachineParams};
/// use quarry_core::sheaf::geometry::{geometry, sheaf_era};
///
/// let era = sheaf_era(Era::V7_0).unwrap();
/// let machine = MachineParams { page_shift: 12, nr_cpus: 8, cache_line: 64 };
/// let of = |cache| geometry(era, &machine, &BootParams::default(), &cache).unwrap();
/// assert_eq!(of(CacheParams::new(256)).sheaf_capacity, 28);
/// assert_eq!(of(CacheParams::new(256).with_sheaf_capacity(32)).sheaf_capacity, 32);
/// ```
pub fn geometry(
    era: &SheafEra,
    machine: &MachineParams,
    boot: &BootParams,
    cache: &CacheParams,
) -> Result<Geometry, GeometryError> {
    let slabs = slub::geometry::geometry(&era.slub, machine, boot, cache)?;
    let size = slabs.layout.size;
    let computed = match &era.capacity {
        Capacity::Asked => 0,
        Capacity::BySize(rules) => sheaf_capacity(rules, &era.slub.kmalloc, machine, size),
        Capacity::Misses(sizing) => sizing.first(size),
    };
    let sheaf_capacity = if cache.flags.debug() || cache.flags.contains(CacheFlags::NO_SHEAVES) {
        0
    } else {
        computed.max(cache.sheaf_capacity)
    };
    let min_partial = match &era.capacity {
        Capacity::Misses(sizing) => {
            let kept = u64::from(sizing.empty_bytes) / machine.slab_bytes(slabs.order);
            slabs.min_partial.min(kept as u32)
        }
        Capacity::Asked | Capacity::BySize(_) => slabs.min_partial,
    };
    Ok(Geometry {
        sheaf_capacity,
        min_partial,
        ..slabs
    })
}

/// Objects of a sheaf for slots of `size` bytes (`calculate_sheaf_capacity()`).
pub fn sheaf_capacity(
    rules: &SizeClasses,
    kmalloc: &KmallocRules,
    machine: &MachineParams,
    size: u32,
) -> u32 {
    let wanted = rules.from_bounds(machine, size);
    let bytes = sheaf_bytes(wanted);
    match kmalloc_index(kmalloc, machine, u64::from(bytes)) {
        KmallocTarget::Class(class) => (class.size - HEADER_BYTES) / WORD_BYTES,
        _ => wanted,
    }
}

/// Bytes that a sheaf of this many objects asks kmalloc for.
pub const fn sheaf_bytes(capacity: u32) -> u32 {
    HEADER_BYTES.saturating_add(capacity.saturating_mul(WORD_BYTES))
}

/// Flags that a kernel's cache of this name has for sheaves. The allocator's own caches, which others are made
/// of, have no sheaves.
pub fn own_flags(name: &str) -> CacheFlags {
    match name {
        "kmem_cache" | "kmem_cache_node" => CacheFlags::NO_SHEAVES,
        _ => CacheFlags::NONE,
    }
}

/// The sheaf capacity that the creator of a cache of this name asks for in Linux 6.18 and 7.0; 0
/// for most.
pub fn asked_capacity(name: &str) -> u32 {
    match name {
        "maple_node" | "vm_area_struct" => 32,
        _ => 0,
    }
}
