//! The alloc cache: pages that only the pool's owner reaches.

use super::types::CACHE_PAGES;
use crate::page::Pfn;
use crate::sync::{AtomicUsize, Ordering};

/// The entries of a stack of pages. Its length is in the pool's body, where others can read it.
pub(super) struct AllocCache {
    pages: [Pfn; CACHE_PAGES],
}

/// The stack, its length at hand: others see what has changed when it is dropped.
pub(super) struct Stack<'c> {
    pages: &'c mut [Pfn; CACHE_PAGES],
    cached: &'c AtomicUsize,
    len: usize,
}

impl AllocCache {
    pub(super) const fn new() -> Self {
        Self {
            pages: [Pfn(0); CACHE_PAGES],
        }
    }

    /// The stack, with the first `cached` entries filled.
    #[inline(always)]
    pub(super) fn open<'c>(&'c mut self, cached: &'c AtomicUsize) -> Stack<'c> {
        Stack {
            pages: &mut self.pages,
            cached,
            // Relaxed: the owner alone writes it.
            len: cached.load(Ordering::Relaxed),
        }
    }
}

impl Stack<'_> {
    /// All pages, the oldest first.
    pub(super) fn pages(&self) -> &[Pfn] {
        self.pages.get(..self.len).unwrap_or_default()
    }

    /// Takes the newest page.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Pfn> {
        let newest = self.len.wrapping_sub(1);
        let pfn = *self.pages.get(newest)?;
        self.len = newest;
        Some(pfn)
    }

    /// Takes up to `pages` of the newest pages; the last is the newest.
    #[inline(always)]
    pub(super) fn take(&mut self, pages: usize) -> &[Pfn] {
        let end = self.len.min(CACHE_PAGES);
        let start = end - pages.min(end);
        self.len = start;
        &self.pages[start..end]
    }

    /// The free entries, the lowest first; [`Stack::grow`] counts those that were filled.
    #[inline(always)]
    pub(super) fn room(&mut self) -> &mut [Pfn] {
        self.pages.get_mut(self.len..).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn grow(&mut self, pages: usize) {
        debug_assert!(self.len + pages <= CACHE_PAGES);
        self.len += pages;
    }

    /// Puts pages while there is room, and returns the number put.
    #[inline(always)]
    pub(super) fn push_all(&mut self, pages: impl Iterator<Item = Pfn>) -> usize {
        let mut pushed = 0;
        for (place, pfn) in self.room().iter_mut().zip(pages) {
            *place = pfn;
            pushed += 1;
        }
        self.grow(pushed);
        pushed
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

impl Drop for Stack<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cached.store(self.len, Ordering::Relaxed);
    }
}
