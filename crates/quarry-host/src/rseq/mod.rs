//! Restartable sequences: taking the running CPU's lock word without an atomic instruction.
//!
//! # Idea
//!
//! A thread tells the kernel, in an area that both share (`struct rseq`, `linux/rseq.h`), "I am
//! inside these instructions". If the kernel then preempts, migrates or signals the thread, it
//! resumes it at an abort address instead. So the instructions up to a final committing store
//! happen on one CPU with nothing in between, or not at all. The GNU C library from 2.35 on
//! registers the area of every thread and says where it is; nothing is registered a second time.
//!
//! # The sequence
//!
//! ```text
//!   arm      area.rseq_cs = descriptor           <- abort resumes here
//!   start    cpu = area.cpu_id
//!            cpu >= cpus?        -> fail          (also -1 and -2: thread not registered)
//!            slot0[cpu << SHIFT] != 0? -> fail
//!   commit   slot0[cpu << SHIFT] = 1             <- the only store to memory that others see
//!   end
//! ```
//!
//! By concurrency id the slot's number is `area.mm_cid`, and a negative `cpu_id` fails first: an area
//! that is not registered has the id 0 ([`SlotIndex`](crate::SlotIndex)).
//!
//! The descriptor (version, flags, start, length, abort address) is in a `.data.rel.ro` section,
//! which is read-only after relocation, so the abort address cannot be overwritten. The kernel
//! demands a signature in front of the abort address; it is in a section of its own, as trapping
//! bytes behind an unconditional jump. An armed descriptor is not taken back: the kernel drops one
//! that the thread has left, when it next takes the CPU from the thread. So an area without one tells that the thread
//! was away since its last sequence ([`HostMachine::was_away`](crate::HostMachine::was_away)).
//!
//! The assembly is written for compilers that inline, duplicate and link-time-optimise it: numeric
//! local labels, no `lateout` (a restart reads the inputs again), no options that would let the
//! compiler move memory accesses across it.

use core::ffi::{CStr, c_uint};
use core::fmt;
use core::sync::atomic::{AtomicIsize, AtomicU64, Ordering};

use crate::os;

#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(miri, loom))
))]
#[path = "x86_64.rs"]
mod arch;

#[cfg(all(
    target_os = "linux",
    target_arch = "aarch64",
    target_pointer_width = "64",
    not(any(miri, loom))
))]
#[path = "aarch64.rs"]
mod arch;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(any(miri, loom))
)))]
#[path = "unsupported.rs"]
mod arch;

#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(miri, loom))
))]
#[path = "commits_x86_64.rs"]
pub(crate) mod commits;

#[cfg(feature = "negative-controls")]
pub(crate) use arch::try_lock_unarmed;
pub(crate) use arch::{concurrency_id, cpu_id, is_armed, thread_pointer, try_lock};

#[cfg(all(
    test,
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(any(miri, loom))
))]
mod tests;

/// Returned instead of an offset when the word is held or the CPU out of range.
pub(crate) const FAILED: usize = usize::MAX;

/// Restarts of sequences in this process, all machines together.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]
static ABORTS: AtomicU64 = AtomicU64::new(0);

/// Number of restarts of this process's sequences by the kernel.
#[must_use]
pub fn aborts() -> u64 {
    ABORTS.load(Ordering::Relaxed)
}

/// The kernel's contract with the area of a thread, by the size with which the C library registered it.
///
/// What both allow is all that sequences do: the only store to an area goes to `rseq_cs`, and no system call is made
/// between start and commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RseqAbi {
    /// 32 bytes, as the GNU C library 2.35 to 2.40 registers and later ones on kernels whose fields fit.
    Original,
    /// More than 32 bytes: the GNU C library 2.41 on, with kernels from 7.0 on. The kernel ends a process that
    /// writes to the fields that are the kernel's, or makes a system call inside a sequence.
    Extended,
}

impl RseqAbi {
    /// Bytes of a registration of the original kind.
    const ORIGINAL_BYTES: c_uint = 32;

    /// By the C library's `__rseq_size`. Until 2.40 that was 32 or less, the fields in use or the whole area;
    /// kernels never have fields of 32 bytes in all, so that more means a larger area.
    const fn of_size(bytes: c_uint) -> Self {
        if bytes > Self::ORIGINAL_BYTES {
            Self::Extended
        } else {
            Self::Original
        }
    }
}

/// The areas of the process's threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Distance from the thread pointer, never 0.
    pub(crate) area: isize,
    pub(crate) abi: RseqAbi,
}

/// Distance of the threads' areas from the thread pointer, or 0 before [`find`] found it. It is the same for all machines.
static AREA: AtomicIsize = AtomicIsize::new(0);

/// The distance that [`find`] found, 0 before. Known without a machine.
#[inline(always)]
pub(crate) fn area() -> isize {
    AREA.load(Ordering::Relaxed)
}

/// The reason for which restartable sequences are not used.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RseqUnavailable {
    /// [`Mode::Fallback`](crate::Mode::Fallback) was asked for.
    Chosen,
    /// The environment variable `QUARRY_RSEQ` is 0.
    Switched,
    /// There is no sequence for this processor, or the program is being interpreted or modelled.
    NotBuilt,
    /// The C library does not report where the areas are.
    NoSymbols,
    /// The C library registered no areas.
    NotRegistered,
    /// The calling thread has no registered area.
    ThreadNotRegistered,
    /// `membarrier` cannot restart sequences.
    NoBarrier {
        /// Its `errno`.
        errno: i32,
    },
}

impl fmt::Display for RseqUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("the fallback was asked for"),
            Self::Switched => f.write_str("the environment variable QUARRY_RSEQ is 0"),
            Self::NotBuilt => f.write_str("no sequence is built for this target"),
            Self::NoSymbols => f.write_str(
                "the C library has no __rseq_offset (it takes the GNU C library 2.35 or later)",
            ),
            Self::NotRegistered => f.write_str(
                "the C library registered no threads (GLIBC_TUNABLES=glibc.pthread.rseq=0, \
                 valgrind, a system call filter, or a kernel before 4.18)",
            ),
            Self::ThreadNotRegistered => {
                f.write_str("the calling thread is not registered with the kernel")
            }
            Self::NoBarrier { errno } => write!(
                f,
                "membarrier cannot restart sequences (errno {errno}; it takes Linux 5.10)"
            ),
        }
    }
}

quarry_core::debug_is_display!(RseqUnavailable);

impl core::error::Error for RseqUnavailable {}

fn symbol<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: `name` is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: `dlsym` returned null or the address of the named variable; both that are looked up
    // are constants of type `T` by the documentation of the C library.
    unsafe { address.cast::<T>().as_ref() }.copied()
}

/// True if this processor has sequences by the concurrency id.
pub(crate) const fn has_ids() -> bool {
    arch::BUILT_BY_ID
}

/// Finds the registered areas, once it is certain that sequences work (H2).
pub(crate) fn find() -> Result<Found, RseqUnavailable> {
    if !arch::BUILT {
        return Err(RseqUnavailable::NotBuilt);
    }
    let area = symbol::<isize>(c"__rseq_offset").ok_or(RseqUnavailable::NoSymbols)?;
    let size = symbol::<c_uint>(c"__rseq_size").ok_or(RseqUnavailable::NoSymbols)?;
    if size == 0 || area == 0 {
        return Err(RseqUnavailable::NotRegistered);
    }
    // SAFETY: the size is not 0, so by the C library's documentation every thread has an area
    // at this distance.
    if (unsafe { cpu_id(area) } as i32) < 0 {
        return Err(RseqUnavailable::ThreadNotRegistered);
    }
    os::check_rseq_barrier().map_err(|errno| RseqUnavailable::NoBarrier { errno })?;
    let abi = RseqAbi::of_size(size);
    // Relaxed: a machine is made behind this, and its users come by what published it.
    AREA.store(area, Ordering::Relaxed);
    Ok(Found { area, abi })
}
