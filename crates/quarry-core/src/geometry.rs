//! Inputs and outputs of cache geometry, shared by the designs.
//!
//! *Geometry* is everything about a cache that is decided when it is created and needs no memory:
//! the object's place in its slot, the slot's size, a slab's pages and objects. The limits of what a
//! design keeps per CPU and per node belong to it, too. It is a pure function
//! of four things: the era's numbers, the machine ([`MachineParams`]), the boot parameters
//! ([`BootParams`]) and the cache's own request ([`CacheParams`]).
//!
//! The functions live with their design: [`crate::slab::geometry`], [`crate::slub::geometry`],
//! [`crate::slubq::geometry`], [`crate::slob::geometry`], [`crate::sheaf::geometry`].
//!
//! # One slot
//!
//! ```text
//! |<- red_left_pad ->|<------ inuse ------>|
//! | left red zone    | object | red zone   | free pointer | tracks | request | red zone, padding |
//! |<------------------------------------- size ------------------------------------------------>|
//! ```
//!
//! Every part but the object may be absent. Offsets in [`Layout`] count from the object's first
//! byte, as the kernel counts them, not from the slot's.

mod classes;
mod debug;
mod error;
mod flags;
mod hardening;
pub(crate) mod kmalloc;

pub use classes::SizeClasses;
pub use debug::{DebugRules, TrackLayout};
pub use error::GeometryError;
pub use flags::{CacheFlags, FlagError};
pub(crate) use hardening::TRAILER;
pub use hardening::{Hardening, HardeningError};
pub use kmalloc::{
    KmallocAlign, KmallocBeyond, KmallocClass, KmallocRules, KmallocService, KmallocSizes,
    KmallocTarget, kmalloc_classes, kmalloc_index, kmalloc_params,
};

/// Bytes in a machine word: the size of a pointer on the 64-bit machines modelled here, and their
/// minimum slab alignment (`ARCH_KMALLOC_MINALIGN`, `ARCH_SLAB_MINALIGN` on x86-64).
pub const WORD_BYTES: u32 = 8;

/// Largest order the page allocator hands out (`MAX_ORDER - 1` until 6.3, `MAX_PAGE_ORDER` later).
pub const PAGE_ORDER_MAX: u32 = 10;

/// Smallest supported `page_shift`: 4 KiB pages.
pub const PAGE_SHIFT_MIN: u32 = 12;

/// Largest supported `page_shift`: 64 KiB pages.
pub const PAGE_SHIFT_MAX: u32 = 16;

/// Largest supported number of CPUs.
pub const NR_CPUS_MAX: u32 = 65536;

/// The machine as the formulas see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MachineParams {
    /// log2 of the page size in bytes (`PAGE_SHIFT`): 12 for 4 KiB, 14 for 16 KiB, 16 for 64 KiB.
    pub page_shift: u32,
    /// The number of CPUs that the era's formulas use: `nr_cpu_ids` until 5.10, present CPUs from
    /// 5.11 on (`SlubEra::formula_cpus` chooses).
    pub nr_cpus: u32,
    /// Cache-line size in bytes (`cache_line_size()`): 64 on x86-64.
    pub cache_line: u32,
}

impl MachineParams {
    /// Page size in bytes.
    pub const fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// Bytes of a slab of this order.
    pub const fn slab_bytes(&self, order: u32) -> u64 {
        self.page_bytes() << order
    }

    /// Largest slab of this machine in bytes.
    pub const fn slab_bytes_max(&self) -> u64 {
        self.slab_bytes(PAGE_ORDER_MAX)
    }

    /// The smallest order whose slab holds `bytes` (`get_order()`); 0 for no bytes.
    pub const fn order_for(&self, bytes: u64) -> u32 {
        if bytes <= self.page_bytes() {
            return 0;
        }
        fls(bytes - 1) - self.page_shift
    }

    /// Refuses a machine the formulas do not cover.
    ///
    /// # Errors
    /// [`GeometryError::PageShift`], [`GeometryError::NrCpus`] or [`GeometryError::CacheLine`].
    pub fn check(&self) -> Result<(), GeometryError> {
        if !(PAGE_SHIFT_MIN..=PAGE_SHIFT_MAX).contains(&self.page_shift) {
            return Err(GeometryError::PageShift {
                page_shift: self.page_shift,
            });
        }
        if self.nr_cpus == 0 || self.nr_cpus > NR_CPUS_MAX {
            return Err(GeometryError::NrCpus {
                nr_cpus: self.nr_cpus,
            });
        }
        let line = self.cache_line;
        if !line.is_power_of_two() || line < WORD_BYTES || u64::from(line) > self.page_bytes() {
            return Err(GeometryError::CacheLine { cache_line: line });
        }
        Ok(())
    }
}

/// Parameters of a new cache (`kmem_cache_create()`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CacheParams {
    /// Object size in bytes, at least 1.
    pub object_size: u32,
    /// Alignment in bytes, a power of two; 0 for the default.
    pub align: u32,
    /// Properties of the objects and debugging of the cache.
    pub flags: CacheFlags,
    /// Objects that a sheaf of the cache should hold at least (`kmem_cache_args.sheaf_capacity`,
    /// 6.18 and later); 0 to leave it to the era. Designs without sheaves ignore it.
    pub sheaf_capacity: u32,
}

impl CacheParams {
    /// A cache of plain objects: default alignment, no flags.
    pub const fn new(object_size: u32) -> Self {
        CacheParams {
            object_size,
            align: 0,
            flags: CacheFlags::NONE,
            sheaf_capacity: 0,
        }
    }

    /// The same with an alignment in bytes.
    pub const fn with_align(self, align: u32) -> Self {
        CacheParams { align, ..self }
    }

    /// The same with these flags instead of its own.
    pub const fn with_flags(self, flags: CacheFlags) -> Self {
        CacheParams { flags, ..self }
    }

    /// The same with a wish for sheaves of this many objects.
    pub const fn with_sheaf_capacity(self, sheaf_capacity: u32) -> Self {
        CacheParams {
            sheaf_capacity,
            ..self
        }
    }

    /// Refuses a request that no slab of the machine can serve.
    ///
    /// # Errors
    /// [`GeometryError::ZeroSize`], [`GeometryError::SizeTooLarge`],
    /// [`GeometryError::AlignNotPowerOfTwo`] or [`GeometryError::AlignTooLarge`].
    pub fn check(&self, machine: &MachineParams) -> Result<(), GeometryError> {
        let max_bytes = machine.slab_bytes_max();
        if self.object_size == 0 {
            return Err(GeometryError::ZeroSize);
        }
        if u64::from(self.object_size) > max_bytes {
            return Err(GeometryError::SizeTooLarge {
                bytes: self.object_size.into(),
                max_bytes,
            });
        }
        if self.align != 0 && !self.align.is_power_of_two() {
            return Err(GeometryError::AlignNotPowerOfTwo { align: self.align });
        }
        if u64::from(self.align) > max_bytes {
            return Err(GeometryError::AlignTooLarge {
                align: self.align,
                max_bytes,
            });
        }
        Ok(())
    }
}

/// Boot parameters that enter geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct BootParams {
    /// `slub_min_order`: no slab is smaller than this order if it can be helped.
    pub slub_min_order: u32,
    /// `slub_max_order`: slabs are not larger than this order unless one object needs it. `None`
    /// for the era's default; values above [`PAGE_ORDER_MAX`] count as that.
    pub slub_max_order: Option<u32>,
    /// `slab_max_order` of SLAB [6.1]: a slab that wastes much is not made larger than this order
    /// for that. `None` for the default.
    pub slab_max_order: Option<u32>,
    /// `slub_min_objects`: how many objects a slab should hold at least; 0 for the era's default.
    pub slub_min_objects: u32,
    /// The `cpu_partial` that every cache begins with, in objects, in eras with cpu partial lists;
    /// `None` for the era's. Not a parameter of any kernel: the report of October 2020 about memory
    /// at 64 KiB pages measured kernels built so.
    pub slub_cpu_partial: Option<u32>,
    /// The cpu partial classes that the same report proposed for `set_cpu_partial()`: large objects
    /// by their size in bytes and not by the page size. Until 5.9, which counts objects.
    pub slub_cpu_partial_by_size: bool,
    /// New caches become aliases of existing ones where the kernel would merge them: the opposite
    /// of `slub_nomerge`. Off by default, as the kernel's default suits few programs and no replay:
    /// recorded events carry the names that caches have after merging.
    pub merge: bool,
    /// Measures against mistakes. Hardened heaps merge no caches.
    pub hardening: Hardening,
    /// A number for these that a program cannot guess.
    pub secret: u64,
}

impl BootParams {
    /// Refuses a minimum order that the page allocator does not have.
    ///
    /// # Errors
    /// [`GeometryError::OrderOutOfRange`].
    pub fn check(&self) -> Result<(), GeometryError> {
        if self.slub_min_order > PAGE_ORDER_MAX {
            return Err(GeometryError::OrderOutOfRange {
                name: "slub_min_order",
                order: self.slub_min_order,
            });
        }
        Ok(())
    }
}

/// Layout of a slot in bytes. Offsets count from the object's first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Layout {
    /// The size asked for (`object_size`; `objsize` in 2.6).
    pub object_size: u32,
    /// Bytes used by the object and its right red zone; metadata starts here (`inuse`).
    pub inuse: u32,
    /// Distance from one object to the next (`size`; sysfs `slab_size`).
    pub size: u32,
    /// Alignment of every object in the slab (`align`).
    pub align: u32,
    /// Offset of the free pointer (`offset`); `None` for a design that has none. Inside the object
    /// when it is below `inuse`.
    pub free_pointer: Option<u32>,
    /// Offset of the two track records (allocation, then free), with user tracking.
    pub tracks: Option<u32>,
    /// Offset of the recorded request, in kmalloc caches with user tracking.
    pub requested_size: Option<u32>,
    /// Bytes of red zone in front of the object (`red_left_pad`): the object's offset in its slot.
    pub red_left_pad: u32,
}

impl Layout {
    /// True if the free pointer is behind the object, so that freeing leaves the object intact.
    pub const fn free_pointer_outside(&self) -> bool {
        matches!(self.free_pointer, Some(offset) if offset >= self.inuse)
    }
}

/// A cache's geometry. Fields a design does not have are 0 or `false`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Geometry {
    /// The slot.
    pub layout: Layout,
    /// Order of a normal slab: it has `1 << order` pages (`oo`; sysfs `order`).
    pub order: u32,
    /// Objects in a normal slab (sysfs `objs_per_slab`).
    pub objects: u32,
    /// Order of a slab if no normal one is available (`min`). Equal to `order` in eras
    /// without a fallback order.
    pub min_order: u32,
    /// Objects in a slab of `min_order`.
    pub min_objects: u32,
    /// Bytes of a normal slab that hold neither a slot nor an in-slab bitmap.
    pub slack_bytes: u32,
    /// Slabs a node keeps on its partial list even when they are empty (`min_partial`).
    pub min_partial: u32,
    /// Objects wanted on a CPU's partial list (sysfs `cpu_partial`); 0 without such lists.
    pub cpu_partial: u32,
    /// The same in slabs (`cpu_partial_slabs`), for eras that count slabs; otherwise 0.
    pub cpu_partial_slabs: u32,
    /// Objects a CPU's queue holds. SLUB with queues: `cpu_queue_size`; SLAB: `limit`.
    pub queue: u32,
    /// Objects moved per refill or drain. SLUB with queues: `cpu_batch_size`; SLAB: `batchcount`.
    pub batch: u32,
    /// SLUB with queues: the bitmap of a normal slab is behind its last object instead of in
    /// one word of its descriptor.
    pub bitmap_in_slab: bool,
    /// Objects of a full sheaf (sysfs `sheaf_capacity`); 0 in caches without sheaves.
    pub sheaf_capacity: u32,
    /// SLAB: where a slab's free objects are named, and colours.
    pub slab: SlabGeometry,
}

/// Place of the indices of a SLAB slab's free objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum FreelistPlace {
    /// The design has no such indices.
    #[default]
    None,
    /// In front of the first object, behind the slab's descriptor [2.6.24].
    SlabStart,
    /// Behind the last object, at the very end of the slab [6.1].
    SlabEnd,
    /// In an object of a general cache.
    OffSlab,
    /// At the start of one of the free objects [6.1].
    InObject,
}

/// Part of a cache's geometry that only SLAB has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct SlabGeometry {
    /// Place of the indices of free objects.
    pub freelist: FreelistPlace,
    /// Bytes of one index.
    pub index_bytes: u32,
    /// Bytes of the descriptor and the indices (`slabp_size`, `freelist_size`).
    pub freelist_bytes: u32,
    /// Bytes in front of the first index that the descriptor takes [2.6.24].
    pub descriptor_bytes: u32,
    /// Different offsets of the first object (`colour`); 0 and 1 both mean that there is one.
    pub colours: u32,
    /// Bytes between two such offsets (`colour_off`).
    pub colour_off: u32,
    /// Room of a node's shared array in batches (`shared`, `sharedfactor`); 0 without one.
    pub shared_factor: u32,
}

/// The position of the highest set bit, counted from 1; 0 for 0 (`fls()`).
pub const fn fls(x: u64) -> u32 {
    u64::BITS - x.leading_zeros()
}

/// `bytes` rounded up to a multiple of `align`, a power of two.
pub(crate) const fn up(bytes: u32, align: u32) -> u32 {
    (bytes + align - 1) & !(align - 1)
}
