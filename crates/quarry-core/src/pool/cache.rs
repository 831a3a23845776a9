//! The alloc cache: pages that only the pool's owner reaches.

use super::types::CACHE_PAGES;
use crate::page::Pfn;

/// A stack of pages, newest at the top.
pub(super) struct AllocCache {
    len: usize,
    pages: [Pfn; CACHE_PAGES],
}

impl AllocCache {
    pub(super) const fn new() -> Self {
        Self {
            len: 0,
            pages: [Pfn(0); CACHE_PAGES],
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes the newest page.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Pfn> {
        let newest = self.len.wrapping_sub(1);
        let pfn = *self.pages.get(newest)?;
        self.len = newest;
        Some(pfn)
    }

    /// Takes up to so many of the newest pages; the last is the newest.
    #[inline(always)]
    pub(super) fn take(&mut self, pages: usize) -> &[Pfn] {
        let end = self.len.min(CACHE_PAGES);
        self.len = end - pages.min(end);
        &self.pages[self.len..end]
    }

    /// The free places, the lowest first; [`AllocCache::grow`] says how many have been filled.
    #[inline(always)]
    pub(super) fn room(&mut self) -> &mut [Pfn] {
        self.pages.get_mut(self.len..).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn grow(&mut self, pages: usize) {
        debug_assert!(self.len + pages <= CACHE_PAGES);
        self.len += pages;
    }

    /// Puts a page. `false` if there is no room.
    #[inline(always)]
    pub(super) fn push(&mut self, pfn: Pfn) -> bool {
        let Some(place) = self.pages.get_mut(self.len) else {
            return false;
        };
        *place = pfn;
        self.len += 1;
        true
    }
}
