//! Reserved address space: zero-filled pages that cost nothing until they are touched.

use std::io;
use std::ptr::NonNull;

use quarry_core::machine::RawRange;

/// Asks the system to keep a large table in huge pages: looks into it then miss fewer of the processor's translations.
pub(crate) fn advise_huge<T>(table: &mut [T]) {
    const ALIGN: usize = 4096;
    let range = table.as_mut_ptr_range();
    let first = range.start.addr().next_multiple_of(ALIGN);
    let bytes = (range.end.addr() & !(ALIGN - 1)).saturating_sub(first);
    let address = range.start.with_addr(first).cast();
    // Refused where pages are larger than `ALIGN`, which only costs time.
    // SAFETY: advice on memory of the table, which is this caller's alone, changes no contents.
    unsafe { libc::madvise(address, bytes, libc::MADV_HUGEPAGE) };
}

/// An anonymous mapping; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Reserves `bytes` of zero-filled memory. `dense` says that most of what is used is close
    /// together: huge pages then save most page faults; elsewhere they would make resident what is
    /// never touched.
    pub(crate) fn new(bytes: usize, dense: bool) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing
        // that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = if dense {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // A kernel that refuses only costs time or memory.
        // SAFETY: advice on the mapping just made changes no contents.
        unsafe { libc::madvise(base, bytes, advice) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Part of the mapping.
    pub(crate) fn range(&self, start: usize, bytes: usize) -> RawRange {
        assert!(start + bytes <= self.bytes, "range outside of its mapping");
        // SAFETY: the assertion keeps the start inside the mapping.
        let base = unsafe { self.base.byte_add(start) };
        RawRange { base, bytes }
    }

    /// Gives the memory behind part of a mapping back; it is zero-filled afterwards. `false` if the
    /// system refuses.
    ///
    /// # Safety
    ///
    /// The range is part of a mapping, whole pages of the operating system, and no code uses it.
    pub(crate) unsafe fn discard(range: RawRange) -> bool {
        let address = range.base.as_ptr().cast();
        // SAFETY: the range is of a mapping made by `new`, and no code uses its contents (the caller, `Memory::release`): the
        // kernel may replace it by zeros.
        unsafe { libc::madvise(address, range.bytes, libc::MADV_DONTNEED) == 0 }
    }

    /// Offset of the first multiple of `align` bytes.
    pub(crate) fn aligned(&self, align: usize) -> usize {
        self.base.addr().get().next_multiple_of(align) - self.base.addr().get()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and is unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
