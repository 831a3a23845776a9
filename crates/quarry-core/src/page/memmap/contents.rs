//! Contents of blocks in use: whether what they hold can be moved.
//!
//! Kernels see that from a page itself, and ask when a pageblock may change its type (4.12). Here it is noted for a
//! block's first page when the block is allocated, on machines whose configuration asks for it
//! ([`PageConfig::tracks_contents`](crate::page::PageConfig::tracks_contents)). A process has no use for it.

use core::ptr::NonNull;

use crate::machine::{Machine, Region};
use crate::page::types::Pfn;
use crate::sync::{AtomicU64, Ordering};

/// A bit for each page, or nothing.
#[derive(Clone, Copy)]
pub(crate) struct Contents {
    words: Option<NonNull<AtomicU64>>,
}

impl Contents {
    /// Notes nothing.
    pub(crate) const NONE: Self = Self { words: None };

    /// For `pages` pages. `None` when the range for structures is full.
    pub(crate) fn new<M: Machine>(machine: &M, meta: &Region, pages: u32) -> Option<Self> {
        let words = (pages as usize).div_ceil(u64::BITS as usize);
        let words = meta.alloc(machine, words * size_of::<u64>())?.cast();
        Some(Self { words: Some(words) })
    }

    /// True if contents are noted.
    #[inline(always)]
    pub(crate) fn is_tracked(&self) -> bool {
        self.words.is_some()
    }

    fn word(&self, pfn: Pfn) -> Option<(&AtomicU64, u64)> {
        let (at, bit) = (pfn.0 / u64::BITS, pfn.0 % u64::BITS);
        // SAFETY: page numbers are below the number of pages (`MemMap::page`), and `new` reserved
        // a bit for each of them.
        let word = unsafe { self.words?.add(at as usize) };
        // SAFETY: the word is in a zero-filled range that lives as long as the machine (M2, M3) and is only
        // accessed through this atomic.
        Some((unsafe { word.as_ref() }, 1 << bit))
    }

    /// Notes what a block is allocated for.
    #[inline(always)]
    pub(crate) fn note(&self, pfn: Pfn, movable: bool) {
        if self.is_tracked() {
            self.store(pfn, movable);
        }
    }

    #[cold]
    fn store(&self, pfn: Pfn, movable: bool) {
        if let Some((word, bit)) = self.word(pfn) {
            match movable {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }

    /// True if the allocated block that begins here was noted as movable.
    pub(crate) fn is_movable(&self, pfn: Pfn) -> bool {
        self.word(pfn)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}
