//! The four ranges of a machine, cut out of one reservation of address space.
//!
//! ```text
//!   | slack | pages (huge pages welcome) | descriptors | meta | per-CPU areas | slack |
//!           ^ aligned to 2^10 pages                    (no huge pages: most stays untouched)
//! ```
//!
//! One `mmap` with `MAP_NORESERVE` costs nothing until pages are touched, and one `munmap` gives
//! everything back.

use core::ffi::c_void;
use core::ptr::NonNull;

use quarry_core::machine::{DESCRIPTOR_BYTES, Ranges, RawRange};

use crate::error::HostError;
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

/// Reserved address space, returned when dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    map: NonNull<c_void>,
    map_bytes: usize,
    pub(crate) ranges: Ranges,
}

impl Memory {
    pub(crate) fn reserve(layout: &Layout) -> Result<Self, HostError> {
        let error = |bytes, errno| HostError::AddressSpace { bytes, errno };
        let map_bytes = layout.reserved().ok_or(error(usize::MAX, libc::ENOMEM))?;
        let no_reserve = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory
        // that anybody uses.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                map_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | no_reserve,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(error(map_bytes, os::errno()));
        }
        let map = NonNull::new(map).ok_or(error(map_bytes, libc::ENOMEM))?;
        let slack = map.addr().get().next_multiple_of(layout.align) - map.addr().get();
        let cut = |start: usize, bytes: usize| RawRange {
            // SAFETY: slack < align, and `reserved` counted all ranges and one `align`, so every
            // range lies inside the mapping.
            base: unsafe { map.cast::<u8>().byte_add(slack + start) },
            bytes,
        };
        let pages = cut(0, layout.pages);
        let descriptors = cut(layout.pages, layout.descriptors);
        let meta = cut(layout.pages + layout.descriptors, layout.meta);
        let percpu = cut(
            layout.pages + layout.descriptors + layout.meta,
            layout.percpu,
        );
        for range in [descriptors, meta, percpu] {
            no_huge_pages(range);
        }
        Ok(Self {
            map,
            map_bytes,
            ranges: Ranges {
                pages,
                descriptors,
                meta,
                percpu,
            },
        })
    }
}

/// Asks the kernel to back a range by small pages; sparse ranges would waste large ones.
fn no_huge_pages(range: RawRange) {
    if cfg!(miri) {
        return;
    }
    // A kernel without huge pages refuses the advice, which is as good.
    // SAFETY: the range belongs to the mapping just made, and the advice changes no content.
    unsafe {
        libc::madvise(
            range.base.as_ptr().cast(),
            range.bytes,
            libc::MADV_NOHUGEPAGE,
        )
    };
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `reserve` made exactly this mapping; whoever drops the machine promises that
        // nothing uses its ranges any more (M2 binds users to the machine's lifetime).
        unsafe { libc::munmap(self.map.as_ptr(), self.map_bytes) };
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
            Memory::reserve(&layout),
            Err(HostError::AddressSpace { .. })
        ));
    }
}
