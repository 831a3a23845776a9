//! Reference counts of allocated blocks (`page_count()`, `get_page()`, `put_page()`), and the handle of one
//! reference.
//!
//! A block begins with one reference, its allocator's. The descriptor counts those beyond it in the word of its
//! kind and order. A block that never has a second user costs no count, and one comparison shows that it may be
//! freed. If a thread takes a reference while another frees the block by a compare-and-swap, one of the two is
//! refused.

use core::fmt;

use crate::machine::Machine;
use crate::page::PageAllocator;
use crate::page::memmap::page::Page;
use crate::page::types::{PageError, PageKind, Pfn};

impl<M: Machine> PageAllocator<M> {
    /// References to a block: 1 for an allocated one with a single user, 0 for a page that is free
    /// or not the first of its block.
    ///
    /// A count of 1 is ordered behind the [`put_page`](Self::put_page) of every other user: what they
    /// did with the block has happened.
    ///
    /// ```
    /// # use quarry_core::page::Pfn;
    /// # fn demo<M: quarry_core::machine::Machine>(pages: &quarry_core::page::PageAllocator<M>) {
    /// let page = pages.alloc(0, None).unwrap();
    /// // SAFETY: the page is this function's.
    /// unsafe { pages.get_page(page) }.unwrap();
    /// assert_eq!(pages.page_count(page), 2);
    /// // SAFETY: the page has two references, and both are this function's.
    /// assert_eq!(unsafe { pages.put_page(page) }, Ok(false));
    /// // SAFETY: the last reference is this function's.
    /// assert_eq!(unsafe { pages.put_page(page) }, Ok(true));
    /// # }
    /// ```
    pub fn page_count(&self, pfn: Pfn) -> u32 {
        let Ok(page) = self.looked_at(pfn) else {
            return 0;
        };
        match page.seen() {
            (PageKind::Allocated | PageKind::Pool, _, extra) => extra.saturating_add(1),
            (PageKind::Slab | PageKind::LargeKmalloc | PageKind::Owned, ..) => 1,
            (PageKind::Untouched | PageKind::Buddy | PageKind::Pcp | PageKind::Tail, ..) => 0,
        }
    }

    /// Takes one more reference to a block that the caller has a reference to: it stays allocated
    /// until as many are given back.
    ///
    /// # Errors
    ///
    /// [`PageError`] if `pfn` is not the first page of an allocated block or of a page pool's, or
    /// if no more references can be counted.
    ///
    /// # Safety
    ///
    /// If a block begins at `pfn`, the caller has a reference to it, or its owner has lent it: code that finds
    /// itself the only user takes the block's memory for its own.
    pub unsafe fn get_page(&self, pfn: Pfn) -> Result<(), PageError> {
        if pfn.0 >= self.map().pages() {
            return Err(PageError::Foreign(pfn));
        }
        let page = self.map_on().page_to_count(pfn);
        page.add_reference(pfn)
    }

    /// Gives a reference back; the last one frees the block. Returns whether it did.
    ///
    /// # Errors
    ///
    /// [`PageError`] if `pfn` is not the first page of an allocated block. The last reference to a
    /// block of a page pool is the pool's: put it there.
    ///
    /// # Safety
    ///
    /// If `pfn` is the first page of a block whose references are counted, the caller has one of them and gives
    /// it up: it does not use the block's memory after this. All other numbers are refused.
    pub unsafe fn put_page(&self, pfn: Pfn) -> Result<bool, PageError> {
        let page = self.looked_at(pfn)?;
        let shared = page.kind().counts_references() && !page.is_sole_reference();
        if shared && self.map_on().page_to_count(pfn).drop_reference() {
            return Ok(false);
        }
        match page.kind() {
            // SAFETY: the caller's reference was the last one.
            PageKind::Allocated => unsafe { self.free(pfn, page.order()) }.map(|()| true),
            kind => Err(PageError::NotAllocated(pfn, kind)),
        }
    }

    /// The descriptor of a page whose state and references are looked at.
    fn looked_at(&self, pfn: Pfn) -> Result<&Page, PageError> {
        if pfn.0 >= self.map().pages() {
            return Err(PageError::Foreign(pfn));
        }
        Ok(self.map_on().page_to_read(pfn))
    }
}

/// One reference to a block of 2^order pages that several users may have: the last handle frees it.
///
/// The block is allocated by its number like those of [`PageAllocator::alloc`], so
/// [`PageAllocator::page_count`] and [`PageAllocator::get_page`] work on it.
///
/// ```
/// # fn demo<M: quarry_core::machine::Machine>(pages: &quarry_core::page::PageAllocator<M>) {
/// let driver = pages.alloc_shared(0).unwrap();
/// let packet = driver.share().unwrap();
/// assert_eq!(packet.count(), 2);
/// drop(driver);
/// assert_eq!(packet.count(), 1);
/// drop(packet); // and now it is free
/// # }
/// ```
pub struct SharedBlock<'p, M: Machine> {
    pages: &'p PageAllocator<M>,
    pfn: Pfn,
}

impl<M: Machine> SharedBlock<'_, M> {
    /// The block's first page.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// References to the block, this one included ([`PageAllocator::page_count`]).
    #[must_use]
    pub fn count(&self) -> u32 {
        self.pages.page_count(self.pfn)
    }

    /// Takes one more reference.
    ///
    /// # Errors
    ///
    /// [`PageError::TooManyReferences`].
    pub fn share(&self) -> Result<Self, PageError> {
        // SAFETY: this handle has a reference.
        unsafe { self.pages.get_page(self.pfn) }?;
        let Self { pages, pfn } = *self;
        Ok(Self { pages, pfn })
    }
}

impl<M: Machine> Drop for SharedBlock<'_, M> {
    fn drop(&mut self) {
        // SAFETY: the handle has a reference, and ends here.
        let put = unsafe { self.pages.put_page(self.pfn) };
        debug_assert!(put.is_ok(), "{put:?}");
    }
}

impl<M: Machine> fmt::Debug for SharedBlock<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBlock")
            .field("pfn", &self.pfn)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> PageAllocator<M> {
    /// A block of unmovable pages of the running CPU's node with one reference, the handle's. `None` as for
    /// [`PageAllocator::alloc`].
    pub fn alloc_shared(&self, order: u32) -> Option<SharedBlock<'_, M>> {
        let pfn = self.alloc(order, None)?;
        Some(SharedBlock { pages: self, pfn })
    }
}
