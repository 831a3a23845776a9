//! The shapes of the rules: what an era's numbers mean.

use crate::era::Era;
use crate::geometry::{KmallocRules, SizeClasses};

/// Form and place of a slab's list of free objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreelistRules {
    /// A descriptor with the indices behind it, in front of the objects; off the slab for large
    /// objects [until 3.12].
    Descriptor {
        /// Bytes of the descriptor.
        descriptor_bytes: u32,
        /// Bytes of one index.
        index_bytes: u32,
        /// Objects of a page divided by this, or more, have it off the slab.
        off_slab_page_part: u32,
    },
    /// Only the indices [3.13 and later].
    Array {
        /// Size of an index.
        index: IndexBytes,
        /// Place of the array.
        place: ArrayPlace,
    },
}

/// Place of a slab's array of indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayPlace {
    /// As with descriptors: in front of the objects, off the slab for large ones [until 4.5].
    BySize {
        /// Objects of a page divided by this, or more, have it off the slab: 8 until 3.14, 32 later. From 4.4 on they
        /// must be larger than the smallest kmalloc class as well, which they are but on arm64. The changes are dated
        /// by a Debian 3.16 and messages on linux-mm of November 2015; that 3.15 has the first one is inferred.
        off_slab_page_part: u32,
    },
    /// In a free object, else off the slab if that saves something, else at the slab's end [4.6 and later].
    InObject,
}

/// Size of an index of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexBytes {
    /// Four bytes [3.13, 3.14].
    Word,
    /// One byte where it can name the objects of a page, else two [3.15 and later].
    Narrow {
        /// Smallest object in bytes where indices are one byte.
        min_bytes: u32,
    },
}

/// A CPU array's room by buffer size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitRules {
    /// Objects of more bytes than this have [`LimitRules::huge`].
    pub huge_bytes: u32,
    /// For those.
    pub huge: u32,
    /// For the others.
    pub limits: SizeClasses,
    /// The shared factor of objects up to a page, with more than one CPU.
    pub shared_factor: u32,
    /// Room of an alien array; 1 in caches whose limit is 1.
    pub alien_limit: u32,
    /// Most that a CPU array may hold with debugging.
    pub debug_max: u32,
}

/// Choice of the empty slab that goes back when a node has more free objects than its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseRule {
    /// Asked at each object: the slab that this object has just emptied [until 4.6].
    JustEmptied,
    /// Asked once after a group of objects: the last ones of the free list [4.7 and later].
    TailAfterGroup,
}

/// Destination of a growing cache's new slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrowRule {
    /// It joins the tail of the free list, and the refill starts again [until 4.6].
    FreeListTail,
    /// It feeds the CPU array at once, then joins the head of the list it belongs to [4.7 and
    /// later].
    FeedArray,
}

/// Step of a node's colour counter when a slab is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColourRule {
    /// Its value is used, then it advances: the first slab has colour 0 [until 4.6,
    /// inferred].
    UseThenAdvance,
    /// It advances, then its value is used: the first slab has colour 1, if there is one [4.7
    /// and later].
    AdvanceThenUse,
}

/// Use of a node's shared array that saves it from the next reap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedUse {
    /// An alien array's overflow into it: `transfer_objects()` marks the array that receives
    /// [until 2.6.32].
    AlienOverflow,
    /// A refill out of it [2.6.33 and later].
    Refill,
}

/// Differences between eras at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunRules {
    /// Choice of the empty slabs that go.
    pub release: ReleaseRule,
    /// New slabs.
    pub grow: GrowRule,
    /// Colours of new slabs.
    pub colour: ColourRule,
    /// A refill looks for free and shared objects before it takes the node's lock, and grows at
    /// once if there are none [4.7 and later].
    pub looks_before_lock: bool,
    /// Use that saves a node's shared array from the next reap.
    pub shared_use: SharedUse,
    /// Objects that a CPU array brings at once if it was not used since the last reap.
    pub untouched_batch: u32,
}

/// Reaping, the same in both eras.
pub mod reaping {
    /// A queue idle since the last reap gives back this part of its limit, rounded up.
    pub const LIMIT_PART: u32 = 5;
    /// An idle node gives back this part of the slabs that `free_limit` allows, rounded up.
    pub const FREE_LIMIT_PART: u32 = 5;
    /// Nanoseconds between two looks at a node's shared array and free slabs (`REAPTIMEOUT_NODE`).
    pub const NODE_INTERVAL_NS: u64 = 4_000_000_000;
}

/// One era of SLAB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlabEra {
    /// The era.
    pub era: Era,
    /// Form and place of the list of free objects.
    pub freelist: FreelistRules,
    /// Largest order that is tried because a smaller one wastes more than an eighth
    /// (`slab_break_gfp_order`, `slab_max_order`), on machines with more than 32 MiB.
    pub max_order: u32,
    /// True if a boot parameter changes that.
    pub has_max_order_parameter: bool,
    /// Red zones leave the alignment to cache lines as it is [6.1]; before, they give it up
    /// [2.6.24].
    pub line_beats_debug: bool,
    /// Room of the arrays.
    pub limits: LimitRules,
    /// kmalloc.
    pub kmalloc: KmallocRules,
    /// Run time.
    pub run: RunRules,
}
