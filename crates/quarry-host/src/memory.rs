//! The four ranges of a machine, cut out of one reservation of address space.
//!
//! ```text
//!   | slack | pages, descriptors (huge pages welcome) | meta | per-CPU areas | slack |
//!           ^ aligned to 2^10 pages                    (no huge pages: most stays untouched)
//! ```
//!
//! One `mmap` with `MAP_NORESERVE` costs nothing until pages are touched, and one `munmap` gives
//! everything back. Huge pages of the system's pool are a mapping of their own ([`crate::huge`]).

use core::ffi::c_void;
use core::ptr::NonNull;

use quarry_core::machine::{DESCRIPTOR_BYTES, Ranges, RawRange};

use crate::error::HostError;
use crate::huge::{self, HUGE_PAGE_BYTES, HugePageUse, HugePages, HugePagesUnavailable};
use crate::os;

/// log2 of the pages in the largest block of the page allocator.
const MAX_BLOCK_PAGES_SHIFT: u32 = 10;

/// Sizes of the ranges in bytes, in the order in which they follow one another. The first three
/// are multiples of 64 KiB, so every range is aligned to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pages: usize,
    descriptors: usize,
    meta: usize,
    percpu: usize,
    align: usize,
}

impl Layout {
    /// Rounds the wishes up; `None` if they do not fit into an address space.
    pub(crate) fn new(
        memory_bytes: usize,
        meta_bytes: usize,
        page_shift: u32,
        percpu_bytes: usize,
    ) -> Option<Self> {
        let align = 1_usize << (page_shift + MAX_BLOCK_PAGES_SHIFT);
        let pages = memory_bytes.checked_next_multiple_of(align)?;
        Some(Self {
            pages,
            descriptors: (pages >> page_shift) * DESCRIPTOR_BYTES,
            meta: meta_bytes.checked_next_multiple_of(align)?,
            percpu: percpu_bytes,
            align,
        })
    }

    /// Bytes to reserve so that an aligned base is among them.
    fn reserved(&self) -> Option<usize> {
        [self.descriptors, self.meta, self.percpu, self.align]
            .into_iter()
            .try_fold(self.pages, usize::checked_add)
            .filter(|&bytes| isize::try_from(bytes).is_ok())
    }
}

/// Address space, returned when dropped.
#[derive(Debug)]
struct Mapping {
    map: NonNull<c_void>,
    bytes: usize,
}

impl Mapping {
    /// Address space on credit: it costs nothing until it is touched.
    fn reserve(bytes: usize) -> Result<Self, HostError> {
        let error = |errno| HostError::AddressSpace { bytes, errno };
        let no_reserve = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory
        // in use.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | no_reserve,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(error(os::errno()));
        }
        let map = NonNull::new(map).ok_or(error(libc::ENOMEM))?;
        Ok(Self { map, bytes })
    }

    /// Memory of the system's pool of huge pages, aligned to `align` bytes.
    fn pool(bytes: usize, align: usize) -> Result<Self, HugePagesUnavailable> {
        // Find address space that is free now; if another thread maps it meanwhile, the next step fails.
        let no_space = HugePagesUnavailable::Pool {
            pages: bytes / HUGE_PAGE_BYTES,
            errno: libc::ENOMEM,
        };
        let with_slack = bytes.checked_add(align).ok_or(no_space)?;
        let free = Self::reserve(with_slack).map_err(|_| no_space)?;
        let address = free.map.addr().get().next_multiple_of(align);
        drop(free);
        let map = huge::map_pool(address, bytes)?;
        Ok(Self { map, bytes })
    }

    /// Part of the mapping.
    fn cut(&self, start: usize, bytes: usize) -> RawRange {
        assert!(
            start + bytes <= self.bytes,
            "a range outside of its mapping"
        );
        // SAFETY: the assertion keeps the start inside the mapping.
        let base = unsafe { self.map.cast::<u8>().byte_add(start) };
        RawRange { base, bytes }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the constructors made exactly this mapping; the machine's owner, who drops it, promises
        // that nothing uses its ranges any more (M2 binds users to the machine's lifetime).
        unsafe { libc::munmap(self.map.as_ptr(), self.bytes) };
    }
}

/// The memory of a machine.
#[derive(Debug)]
pub(crate) struct Memory {
    _mapping: Mapping,
    _pool: Option<Mapping>,
    pub(crate) ranges: Ranges,
    pub(crate) huge_pages: HugePageUse,
}

impl Memory {
    pub(crate) fn reserve(layout: &Layout, wanted: HugePages) -> Result<Self, HostError> {
        let (pool, reason) = match wanted {
            HugePages::Hugetlb => match Mapping::pool(layout.pages, layout.align) {
                Ok(pool) => (Some(pool), None),
                Err(reason) => (None, Some(reason)),
            },
            _ => (None, None),
        };
        let mut layout = *layout;
        let page_bytes = layout.pages;
        if pool.is_some() {
            layout.pages = 0;
        }
        let bytes = layout.reserved().ok_or(HostError::AddressSpace {
            bytes: usize::MAX,
            errno: libc::ENOMEM,
        })?;
        let mapping = Mapping::reserve(bytes)?;
        let address = mapping.map.addr().get();
        let mut at = address.next_multiple_of(layout.align) - address;
        // `reserved` counted all ranges and one `align`, which is more than `at`.
        let mut cut = |bytes| {
            let range = mapping.cut(at, bytes);
            at += bytes;
            range
        };
        let pages = cut(layout.pages);
        let descriptors = cut(layout.descriptors);
        let meta = cut(layout.meta);
        let percpu = cut(layout.percpu);
        // Sparse ranges would waste huge pages; but one of descriptors is for 128 MiB of pages, which
        // have huge pages themselves if they are wanted. A kernel without them refuses the advice, which
        // is as good.
        let of_descriptors = match wanted {
            HugePages::Transparent | HugePages::TransparentBeyond(_) | HugePages::Hugetlb => {
                libc::MADV_HUGEPAGE
            }
            HugePages::System | HugePages::Never => libc::MADV_NOHUGEPAGE,
        };
        // Bytes of pages without huge ones, and of descriptors, whose first huge page is for many more.
        let (small, small_descriptors) = match wanted {
            HugePages::TransparentBeyond(bytes) => {
                let small = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES);
                (small.unwrap_or(usize::MAX), HUGE_PAGE_BYTES)
            }
            _ => (0, 0),
        };
        let first = |range: RawRange, bytes: usize| RawRange {
            bytes: bytes.min(range.bytes),
            ..range
        };
        let behind = |range: RawRange, bytes: usize| {
            let bytes = bytes.min(range.bytes);
            let start = range.base.addr().get() - address;
            mapping.cut(start + bytes, range.bytes - bytes)
        };
        for (range, advice) in [
            (first(pages, small), libc::MADV_NOHUGEPAGE),
            (first(descriptors, small_descriptors), libc::MADV_NOHUGEPAGE),
            (behind(descriptors, small_descriptors), of_descriptors),
            (meta, libc::MADV_NOHUGEPAGE),
            (percpu, libc::MADV_NOHUGEPAGE),
        ] {
            if range.bytes == 0 {
                continue;
            }
            // SAFETY: the range is part of the mapping just made; the advice discards nothing.
            let _ = unsafe { os::advise(range, advice) };
        }
        let huge_pages = match &pool {
            Some(_) => HugePageUse {
                wanted,
                in_use: HugePages::Hugetlb,
                reason: None,
            },
            // SAFETY: the range is part of the mapping just made, which no code uses yet.
            None => unsafe { advise(behind(pages, small), wanted, reason) },
        };
        let pages = pool.as_ref().map_or(pages, |pool| pool.cut(0, page_bytes));
        Ok(Self {
            _mapping: mapping,
            _pool: pool,
            ranges: Ranges {
                pages,
                descriptors,
                meta,
                percpu,
            },
            huge_pages,
        })
    }
}

/// Advises on ordinary memory; `reason` says why it is not from the pool.
///
/// # Safety
///
/// As for [`huge::advise`].
unsafe fn advise(
    pages: RawRange,
    wanted: HugePages,
    reason: Option<HugePagesUnavailable>,
) -> HugePageUse {
    let next_best = match wanted {
        HugePages::Hugetlb => HugePages::Transparent,
        other => other,
    };
    // SAFETY: `Memory::reserve` mapped the range just now, and no code uses it yet.
    match unsafe { huge::advise(pages, next_best) } {
        Ok(()) => HugePageUse {
            wanted,
            in_use: next_best,
            reason,
        },
        // What was wanted first is what the user has to hear of.
        Err(second) => HugePageUse {
            wanted,
            in_use: HugePages::System,
            reason: reason.or(Some(second)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_to_largest_blocks() {
        for page_shift in [12, 14, 16] {
            let layout = Layout::new(1, 1, page_shift, 1 << 22).unwrap();
            let block = 1 << (page_shift + 10);
            assert_eq!(layout.pages, block);
            assert_eq!(layout.meta, block);
            assert_eq!(layout.descriptors, 1024 * DESCRIPTOR_BYTES);
            assert_eq!(layout.percpu, 1 << 22);
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(Layout::new(usize::MAX, 1, 12, 1), None);
        assert_eq!(Layout::new(1, usize::MAX, 12, 1), None);
        let layout = Layout::new(usize::MAX / 2, usize::MAX / 2, 12, 1).unwrap();
        assert!(matches!(
            Memory::reserve(&layout, HugePages::System),
            Err(HostError::AddressSpace { .. })
        ));
    }
}
