//! Errors of geometry.

use core::fmt;

use crate::era::Era;

use super::{NR_CPUS_MAX, PAGE_ORDER_MAX, PAGE_SHIFT_MAX, PAGE_SHIFT_MIN, WORD_BYTES};

/// Reason why a cache cannot be laid out. Its message says what is wrong and what is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum GeometryError {
    /// The design has no numbers for this era.
    UnknownEra {
        /// The era.
        era: Era,
    },
    /// The object size is 0.
    ZeroSize,
    /// No slab holds one object with its metadata.
    SizeTooLarge {
        /// Bytes that one object needs.
        bytes: u64,
        /// Bytes of the largest slab.
        max_bytes: u64,
    },
    /// The alignment is not a power of two.
    AlignNotPowerOfTwo {
        /// The alignment in bytes.
        align: u32,
    },
    /// The alignment is above the largest slab.
    AlignTooLarge {
        /// The alignment in bytes.
        align: u32,
        /// Bytes of the largest slab.
        max_bytes: u64,
    },
    /// The alignment is above what the object's page or run of pages has.
    AlignAboveBlock {
        /// The alignment in bytes.
        align: u32,
        /// Bytes of the page or run.
        block_bytes: u64,
    },
    /// The page size is not covered.
    PageShift {
        /// log2 of the page size.
        page_shift: u32,
    },
    /// The number of CPUs is not covered.
    NrCpus {
        /// The number of CPUs.
        nr_cpus: u32,
    },
    /// The cache-line size is not covered.
    CacheLine {
        /// The size in bytes.
        cache_line: u32,
    },
    /// A boot parameter names an order that the page allocator does not have.
    OrderOutOfRange {
        /// The parameter.
        name: &'static str,
        /// Its value.
        order: u32,
    },
    /// The order that the parameters lead to holds more objects than the era can count.
    TooManyObjects {
        /// Objects in the slab.
        objects: u32,
        /// The era's limit.
        limit: u32,
    },
    /// Hardening is asked of a design that cannot have it.
    NoHardening {
        /// The design.
        design: &'static str,
    },
    /// Debugging is asked of a design that has none.
    NoDebugging {
        /// The design.
        design: &'static str,
    },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ZeroSize => write!(f, "object size is 0; it must be at least 1 byte"),
            Self::SizeTooLarge { bytes, max_bytes } => write!(
                f,
                "an object needs {bytes} bytes; \
                 the largest slab, order {PAGE_ORDER_MAX}, has {max_bytes}"
            ),
            Self::AlignNotPowerOfTwo { align } => {
                write!(
                    f,
                    "alignment {align} is not a power of two (0 means the default)"
                )
            }
            Self::AlignTooLarge { align, max_bytes } => {
                write!(
                    f,
                    "alignment {align} is above the largest slab, {max_bytes} bytes"
                )
            }
            Self::AlignAboveBlock { align, block_bytes } => write!(
                f,
                "alignment {align} is above the {block_bytes} bytes of pages that hold the object; \
                 this design aligns within them"
            ),
            Self::PageShift { page_shift } => write!(
                f,
                "page shift {page_shift} is not in {PAGE_SHIFT_MIN}..={PAGE_SHIFT_MAX} \
                 (4 KiB to 64 KiB pages)"
            ),
            Self::UnknownEra { era } => write!(f, "the design does not exist in era {era}"),
            Self::NrCpus { nr_cpus } => {
                write!(f, "{nr_cpus} CPUs is not in 1..={NR_CPUS_MAX}")
            }
            Self::CacheLine { cache_line } => write!(
                f,
                "cache line of {cache_line} bytes is not a power of two \
                 from {WORD_BYTES} to the page size"
            ),
            Self::OrderOutOfRange { name, order } => {
                write!(f, "{name} is {order}; orders are 0..={PAGE_ORDER_MAX}")
            }
            Self::TooManyObjects { objects, limit } => write!(
                f,
                "a slab would hold {objects} objects, above the era's limit of {limit}; \
                 lower slub_min_order or slub_min_objects"
            ),
            Self::NoHardening { design } => write!(
                f,
                "{design} cannot be hardened, as its free objects hold more than a link; take \
                 magazine, sheaf, slub or slubq"
            ),
            Self::NoDebugging { design } => write!(
                f,
                "{design} has no debugging, as its kernels had none; \
                 ask for no debugging, or take another design"
            ),
        }
    }
}

crate::error::debug_is_display!(GeometryError);

impl core::error::Error for GeometryError {}
