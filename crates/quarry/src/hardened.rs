//! Hardened heaps: how they are made, memory of any size for callers that know what they asked for, and reports.

use std::fmt::Write as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use quarry_core::debug::{CallSite, During};
use quarry_core::design::{Design, FreeError};
use quarry_core::geometry::Hardening;
use quarry_core::machine::Cpus as _;

use crate::{Builder, Caller, HostHeap, Report, TextOut, kvmalloc};

impl<D: Design> Builder<D> {
    /// Takes measures against mistakes with memory in all caches, kmalloc and mappings ([`Hardening`]; `docs/hardening.md`
    /// has their costs). Refused frees are errors. The function of [`Builder::reporter`] hears of each mistake.
    ///
    /// # Examples
    ///
    /// ```
    /// use quarry::{Builder, FreeError, Hardening, Magazine};
    ///
    /// let heap = Builder::<Magazine>::new().hardened(Hardening::ALL).build()?;
    /// let object = heap.kmalloc(100).ok_or("out of memory")?;
    /// // SAFETY: refused, as nothing has been freed.
    /// assert_eq!(unsafe { heap.kfree(object.byte_add(16)) }, Err(FreeError::NotAnObject));
    /// // SAFETY: the object is not used any more.
    /// unsafe { heap.kfree(object) }?;
    /// let others = [heap.kmalloc(100), heap.kmalloc(100)];
    /// // SAFETY: refused, as the object is free already.
    /// assert_eq!(unsafe { heap.kfree(object) }, Err(FreeError::DoubleFree));
    /// # let _ = others;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn hardened(mut self, hardening: Hardening) -> Self {
        self.boot.hardening = hardening;
        self.boot.secret = quarry_host::secret();
        self
    }
}

impl<D: Design> HostHeap<D> {
    /// [`HostHeap::kvmalloc`] of a hardened heap, for the given call site: without attempts that only other heaps need.
    #[must_use]
    pub fn kvmalloc_hardened(
        &self,
        bytes: usize,
        align: usize,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        match self.kmalloc_hardened(bytes, align, None, site) {
            None => self.kvmalloc_large(bytes, align, false),
            object => object,
        }
    }

    /// Memory for a request that no class serves: a mapping if these have guards, else what [`HostHeap::kvmalloc`] takes.
    #[cold]
    #[inline(never)]
    pub(crate) fn kvmalloc_large(
        &self,
        bytes: usize,
        align: usize,
        zeroed: bool,
    ) -> Option<NonNull<u8>> {
        match self.hardening().contains(Hardening::GUARD) {
            true if bytes >= kvmalloc::MAPPED_MIN || align >= kvmalloc::MAPPED_MIN => {
                kvmalloc::mapped(self, bytes, align, zeroed)
            }
            _ if zeroed => self.kvzalloc(bytes, align),
            _ => self.kvmalloc(bytes, align),
        }
    }

    /// [`HostHeap::kvmalloc_hardened`] of zeros.
    #[must_use]
    pub fn kvzalloc_hardened(
        &self,
        bytes: usize,
        align: usize,
        site: CallSite,
    ) -> Option<NonNull<u8>> {
        let Some(object) = self.kmalloc_hardened(bytes, align, None, site) else {
            return self.kvmalloc_large(bytes, align, true);
        };
        // SAFETY: the object has these bytes, and no code has seen it.
        unsafe { object.write_bytes(0, bytes) };
        Some(object)
    }

    /// [`HostHeap::kvfree`] by who knows the size that was asked for. Hardened heaps compare it; others do not look at it.
    ///
    /// # Errors
    ///
    /// As [`HostHeap::kvfree`]; [`FreeError::WrongSize`].
    ///
    /// # Safety
    ///
    /// As [`HostHeap::kvfree`].
    #[track_caller]
    pub unsafe fn kvfree_sized(&self, object: NonNull<u8>, bytes: usize) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        unsafe { self.kvfree_hardened(object, Some(bytes), CallSite::caller()) }
    }

    /// [`HostHeap::kvfree`] of a hardened heap, for the given call site, and with the size if the caller knows it.
    ///
    /// # Errors
    ///
    /// As [`HostHeap::kvfree`]; [`FreeError::WrongSize`].
    ///
    /// # Safety
    ///
    /// As [`HostHeap::kvfree`].
    #[inline]
    pub unsafe fn kvfree_hardened(
        &self,
        object: NonNull<u8>,
        bytes: Option<usize>,
        site: CallSite,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller vouches that the object has no user left.
        match unsafe { self.kfree_hardened(object, bytes, site) } {
            Some(freed) => freed,
            // SAFETY: as above; nothing has been freed.
            None => unsafe { self.kvfree_rare(object, bytes, site) },
        }
    }

    /// Frees what no hardened class has: pages, a mapping, or a mistake.
    ///
    /// # Safety
    ///
    /// As [`HostHeap::kvfree`].
    #[cold]
    #[inline(never)]
    unsafe fn kvfree_rare(
        &self,
        object: NonNull<u8>,
        bytes: Option<usize>,
        site: CallSite,
    ) -> Result<(), FreeError> {
        if kvmalloc::is_kmallocs(self, object) {
            // SAFETY: the caller vouches that the object has no user left.
            return unsafe { self.kfree_at(object, site) };
        }
        let (machine, checks) = (self.machine(), Hardening::SIZES);
        let checked = bytes.filter(|_| self.hardening().contains(checks));
        if let (Some(bytes), Some(mapped)) = (checked, machine.block_bytes(object)) {
            // Mappings are whole pages; the rest of the last one is not known.
            let page = 1 << machine.topology().page_shift;
            if bytes > mapped || bytes.saturating_add(page) <= mapped {
                return self.refuse(object, FreeError::WrongSize, site);
            }
        }
        // SAFETY: the caller vouches that the object has no user left.
        match unsafe { machine.unmap_block(object) } {
            true => Ok(()),
            false => self.refuse(object, FreeError::Foreign, site),
        }
    }
}

/// The reports of a shared library on the standard error output. With measures against mistakes, the first one ends the process.
#[derive(Debug)]
pub struct LibraryReports {
    library: &'static str,
    /// The process ends with its first mistake.
    ends: AtomicBool,
}

impl LibraryReports {
    /// Those of a library of this name.
    #[must_use]
    pub const fn new(library: &'static str) -> Self {
        Self {
            library,
            ends: AtomicBool::new(false),
        }
    }

    /// Has a heap take the measures ([`Builder::hardened`]), and [`LibraryReports::write`] end the process if there are any.
    #[must_use]
    pub fn hardened<D: Design>(&self, builder: Builder<D>, hardening: Hardening) -> Builder<D> {
        self.ends
            .store(hardening != Hardening::NONE, Ordering::Relaxed);
        builder.hardened(hardening)
    }

    /// Writes a report, without a heap: with the code of the program that made the call, and with the functions or files of
    /// the code that allocated and freed the object, where a report has their addresses.
    #[cold]
    pub fn write(&self, report: &Report) {
        let mut out = TextOut::errors();
        // A failure to write has nowhere to be reported.
        let _ = write!(out, "{}: {report}", self.library);
        let tracks = [("allocated in", report.alloc), ("freed in", report.free)];
        for (what, track) in tracks {
            if let Some(address) = track.and_then(|track| track.site.address()) {
                let _ = write!(out, "\n  {what} {}", Caller::at(address as usize));
            }
        }
        let caller = Caller::outside().filter(|_| report.during != During::Validate);
        if let Some(caller) = caller {
            let _ = write!(out, "\n  called from {caller}");
        }
        let _ = writeln!(out);
        let _ = out.flush();
        if self.ends.load(Ordering::Relaxed) {
            // SAFETY: ends the process.
            unsafe { libc::abort() }
        }
    }
}
