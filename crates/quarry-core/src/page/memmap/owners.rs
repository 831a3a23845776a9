//! The cache that each page's objects are of.
//!
//! A free finds the cache by its object's address and nothing else, so this is the line that it waits for when the heap is
//! large. A table of its own has eight pages a line; in the descriptors each page has a line.

use core::ptr::NonNull;

use crate::machine::{Machine, Region};
use crate::sync::{AtomicPtr, Ordering};

/// An address for each page: that of its slab's cache, null if it has none.
#[derive(Clone, Copy)]
pub(crate) struct Owners {
    words: NonNull<AtomicPtr<()>>,
}

impl Owners {
    /// For `pages` pages. `None` when the range for structures is full.
    pub(crate) fn new<M: Machine>(machine: &M, meta: &Region, pages: u32) -> Option<Self> {
        let bytes = pages as usize * size_of::<AtomicPtr<()>>();
        let words = meta.alloc(machine, bytes.max(1))?.cast();
        #[cfg(loom)]
        for page in 0..pages as usize {
            let word = AtomicPtr::new(core::ptr::null_mut());
            // SAFETY: the block has room for this many words.
            let place = unsafe { words.add(page) };
            // SAFETY: no code uses it yet.
            unsafe { place.write(word) };
        }
        Some(Self { words })
    }

    /// No words; no code may ask for one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn none() -> Self {
        Self {
            words: NonNull::dangling(),
        }
    }

    /// # Safety
    ///
    /// The page is one of those that the table was made for.
    #[inline(always)]
    unsafe fn word(&self, page: usize) -> &AtomicPtr<()> {
        // SAFETY: by the caller's contract `new` reserved a word for the page.
        let word = unsafe { self.words.add(page) };
        // SAFETY: the word is in a zero-filled range that lives as long as the machine (M2, M3) and is only
        // accessed through this atomic.
        unsafe { word.as_ref() }
    }

    /// The owner of a page, by a number of the machine's width: that needs no step to become an address.
    ///
    /// # Safety
    ///
    /// As for [`Owners::word`].
    #[inline(always)]
    pub(super) unsafe fn of(&self, page: usize) -> *mut () {
        // Relaxed: an object's owner was stored before the object was given out.
        // SAFETY: the caller's contract.
        unsafe { self.word(page) }.load(Ordering::Relaxed)
    }

    /// # Safety
    ///
    /// As for [`Owners::word`].
    #[inline(always)]
    pub(super) unsafe fn set(&self, page: usize, owner: *mut ()) {
        // SAFETY: the caller's contract.
        unsafe { self.word(page) }.store(owner, Ordering::Relaxed);
    }
}
