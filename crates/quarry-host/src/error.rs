//! Reasons for which a machine is not built.

use core::fmt;

use crate::rseq::RseqUnavailable;

/// The reason for which a [`HostMachine`](crate::HostMachine) was not built.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// The page size is not one of 4, 16 and 64 KiB.
    PageSize {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The page size is not a multiple of the operating system's.
    PageSizeBelowSystem {
        /// Bytes that were asked for.
        bytes: usize,
        /// The operating system's page size.
        system_bytes: usize,
    },
    /// The memory has more pages than there are page numbers.
    Memory {
        /// Bytes that were asked for.
        memory_bytes: usize,
        /// Most bytes with pages of this size ([`Builder::memory_bytes`](crate::Builder::memory_bytes)).
        limit: usize,
    },
    /// A size is 0, or the sizes do not fit into an address space.
    Size {
        /// Bytes of memory that were asked for.
        memory_bytes: usize,
        /// Bytes for the allocators' structures that were asked for.
        meta_bytes: usize,
    },
    /// The number of CPUs is 0 or above [`MAX_CPUS`](quarry_core::machine::MAX_CPUS).
    Cpus {
        /// Number that was asked for or found.
        cpus: u32,
    },
    /// The operating system refused the address space.
    AddressSpace {
        /// Bytes that were asked of `mmap`.
        bytes: usize,
        /// Its `errno`.
        errno: i32,
    },
    /// Restartable sequences were demanded and are not available.
    Rseq(RseqUnavailable),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PageSize { bytes } => {
                write!(f, "page_size is {bytes}: choose 4096, 16384 or 65536")
            }
            Self::PageSizeBelowSystem {
                bytes,
                system_bytes,
            } => write!(
                f,
                "page_size is {bytes}, not a multiple of the system's {system_bytes}: choose a larger one"
            ),
            Self::Memory {
                memory_bytes,
                limit,
            } => write!(
                f,
                "memory_bytes is {memory_bytes}: the limit is {limit}, or more with a larger page_size"
            ),
            Self::Size {
                memory_bytes,
                meta_bytes,
            } => write!(
                f,
                "memory_bytes is {memory_bytes} and meta_bytes is {meta_bytes}: both must be above 0 \
                 and fit into an address space"
            ),
            Self::Cpus { cpus } => write!(
                f,
                "cpus is {cpus}: the number must be from 1 to {}",
                quarry_core::machine::MAX_CPUS
            ),
            Self::AddressSpace { bytes, errno } => write!(
                f,
                "mmap of {bytes} bytes of address space failed with errno {errno}: lower \
                 `memory_bytes`, or look at `ulimit -v` and vm.overcommit_memory"
            ),
            Self::Rseq(reason) => write!(
                f,
                "restartable sequences are not available: {reason}; Mode::Auto would use the \
                 fallback"
            ),
        }
    }
}

quarry_core::debug_is_display!(HostError);

impl core::error::Error for HostError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Rseq(reason) => Some(reason),
            _ => None,
        }
    }
}
