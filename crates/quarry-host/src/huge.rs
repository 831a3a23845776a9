//! The operating system's pages behind the pages that the allocator hands out.
//!
//! | choice | what happens | what it costs |
//! |---|---|---|
//! | [`HugePages::System`] | no advice | nothing; with `transparent_hugepage/enabled` at `always` the system still uses huge pages |
//! | [`HugePages::Never`] | `MADV_NOHUGEPAGE` | more page faults |
//! | [`HugePages::Transparent`] | `MADV_HUGEPAGE` | the first touch of 2 MiB takes all of it |
//! | [`HugePages::TransparentBeyond`] | the same for all but the first bytes | the same, of a heap that has become larger |
//! | [`HugePages::Hugetlb`] | `MAP_HUGETLB` | the whole range is taken from the system's pool (`vm.nr_hugepages`) at once |
//!
//! With any of the last three the pages' descriptors have transparent huge pages as well, 2 MiB for
//! 128 MiB of 4 KiB pages: in no order they would miss the TLB as often as the pages do. Of a heap that has them beyond the
//! first bytes, the first 2 MiB of descriptors have small ones.
//!
//! Huge pages of the pool are reserved, not taken on credit (`MAP_NORESERVE`): with credit, a first
//! touch after the pool has run dry would end the process (`SIGBUS`). What is not available is replaced
//! by the next best, from the pool to transparent to small pages, and [`HugePageUse`] says why.
//!
//! Memory of the pool stays the process's until the machine is dropped: nothing is given back. Only
//! since Linux 6.9 does the pool reserve what `MADV_DONTNEED` gave back once more; before, another
//! process may take it, and the next touch is a `SIGBUS`. See [`HugePages::Hugetlb`] for forks.

use core::ffi::{CStr, c_void};
use core::fmt;
use core::ptr::NonNull;

use quarry_core::machine::RawRange;

use crate::os;

/// Bytes of a huge page, transparent or of the pool.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A choice of the operating system's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Whatever the system does without advice.
    #[default]
    System,
    /// Small pages only.
    Never,
    /// Huge pages of 2 MiB where the system finds them, small ones elsewhere.
    Transparent,
    /// The same, but small pages only for the first bytes, a multiple of 2 MiB (others are rounded up): the page allocator
    /// hands out low addresses first, so that a small heap has no more memory than it uses. With several nodes each begins
    /// at its own share of the addresses, and the first bytes are the first node's.
    TransparentBeyond(usize),
    /// Huge pages of 2 MiB from the system's pool, which must hold the whole memory. None of them is
    /// given back while the machine exists: trims come to nothing.
    ///
    /// A child process does not inherit the reservation. After a fork, its first write to a huge page
    /// takes a further one from the pool. It may end by `SIGBUS` if that is empty; so may its next
    /// use of one that the parent wrote to while the pool was empty. Leave room in the pool for
    /// children that use the memory.
    Hugetlb,
}

/// The operating system's pages in use, and the reason if others were wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePageUse {
    /// The choice that was asked for.
    pub wanted: HugePages,
    /// The choice in force.
    pub in_use: HugePages,
    /// The reason if `in_use` is not `wanted`.
    pub reason: Option<HugePagesUnavailable>,
}

/// The reason for which huge pages are not used.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePagesUnavailable {
    /// Transparent huge pages are switched off for the whole system.
    SwitchedOff,
    /// The system refuses the advice.
    Refused {
        /// The `errno` of `madvise`.
        errno: i32,
    },
    /// The system's pool has no room for the whole memory.
    Pool {
        /// Huge pages that it takes.
        pages: usize,
        /// The `errno` of `mmap`.
        errno: i32,
    },
}

impl fmt::Display for HugePagesUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SwitchedOff => f.write_str(
                "transparent huge pages are switched off; write `madvise` to \
                 /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            Self::Refused { errno } => write!(
                f,
                "madvise refused transparent huge pages with errno {errno}; the kernel may be \
                 built without them"
            ),
            Self::Pool { pages, errno } => write!(
                f,
                "the pool has not {pages} huge pages of 2 MiB left (mmap: errno {errno}); raise \
                 vm.nr_hugepages or lower `memory_bytes`"
            ),
        }
    }
}

quarry_core::debug_is_display!(HugePagesUnavailable);

impl core::error::Error for HugePagesUnavailable {}

/// The word in brackets of a sysfs file that lists its choices.
fn chosen(text: &[u8]) -> Option<&[u8]> {
    let from = text.iter().position(|&byte| byte == b'[')? + 1;
    let length = text.get(from..)?.iter().position(|&byte| byte == b']')?;
    text.get(from..from + length)
}

/// True if the system gives transparent huge pages to those who ask, by the files for all sizes
/// and for 2 MiB; the latter does not exist before Linux 6.8.
fn transparent_by(all: Option<&[u8]>, size: Option<&[u8]>) -> bool {
    let willing = |word: &[u8]| word == b"always" || word == b"madvise";
    let all = all.and_then(chosen).is_some_and(willing);
    match size.and_then(chosen) {
        None | Some(b"inherit") => all,
        Some(word) => willing(word),
    }
}

fn transparent_on() -> bool {
    const ALL: &CStr = c"/sys/kernel/mm/transparent_hugepage/enabled";
    const SIZE: &CStr = c"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";
    let (mut all, mut size) = ([0; 128], [0; 128]);
    transparent_by(os::read_file(ALL, &mut all), os::read_file(SIZE, &mut size))
}

/// Memory of the system's pool; `address` is free address space, a multiple of [`HUGE_PAGE_BYTES`]
/// as `bytes` is.
pub(crate) fn map_pool(
    address: usize,
    bytes: usize,
) -> Result<NonNull<c_void>, HugePagesUnavailable> {
    let refused = |errno| HugePagesUnavailable::Pool {
        pages: bytes / HUGE_PAGE_BYTES,
        errno,
    };
    if cfg!(miri) {
        return Err(refused(libc::ENOSYS));
    }
    // SAFETY: the new mapping replaces none (MAP_FIXED_NOREPLACE), so no memory in use changes.
    let map = unsafe {
        libc::mmap(
            core::ptr::without_provenance_mut(address),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_FIXED_NOREPLACE
                | libc::MAP_HUGETLB
                | libc::MAP_HUGE_2MB,
            -1,
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(refused(os::errno()));
    }
    NonNull::new(map).ok_or(refused(libc::ENOMEM))
}

/// Advises the system on ordinary memory.
///
/// # Safety
///
/// The range is part of a mapping of the caller's.
pub(crate) unsafe fn advise(
    range: RawRange,
    wanted: HugePages,
) -> Result<(), HugePagesUnavailable> {
    let advice = match wanted {
        HugePages::Transparent | HugePages::TransparentBeyond(_) if !transparent_on() => {
            return Err(HugePagesUnavailable::SwitchedOff);
        }
        HugePages::Transparent | HugePages::TransparentBeyond(_) => libc::MADV_HUGEPAGE,
        HugePages::Never => libc::MADV_NOHUGEPAGE,
        HugePages::System | HugePages::Hugetlb => return Ok(()),
    };
    // SAFETY: the caller mapped the range; MADV_HUGEPAGE and MADV_NOHUGEPAGE discard nothing.
    match unsafe { os::advise(range, advice) } {
        // A kernel without huge pages uses none, as wanted.
        Err(_) if wanted == HugePages::Never => Ok(()),
        Err(errno) => Err(HugePagesUnavailable::Refused { errno }),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_all_kernels_are_understood() {
        let all = |text: &'static str| transparent_by(Some(text.as_bytes()), None);
        assert!(all("always [madvise] never\n"));
        assert!(all("[always] madvise never\n"));
        assert!(!all("always madvise [never]\n"));
        assert!(!all("always madvise never"));
        assert!(!transparent_by(None, None), "a kernel without huge pages");
        for (all, size, on) in [
            (
                "always [madvise] never",
                "always [inherit] madvise never",
                true,
            ),
            (
                "always madvise [never]",
                "always [inherit] madvise never",
                false,
            ),
            (
                "always [madvise] never",
                "always inherit madvise [never]",
                false,
            ),
            (
                "always madvise [never]",
                "always inherit [madvise] never",
                true,
            ),
        ] {
            let by = transparent_by(Some(all.as_bytes()), Some(size.as_bytes()));
            assert_eq!(by, on, "{all}; {size}");
        }
    }
}
