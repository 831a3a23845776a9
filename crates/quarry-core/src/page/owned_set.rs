//! Sets of owned pages: many single pages with one handle, which come and go with one hold of the
//! running CPU's lists.
//!
//! Nobody but the handle can free its pages, so nothing has to be looked up or decided for each of
//! them when they go back, and their descriptors stay as they are: they say [`PageKind::Owned`]
//! while the pages lie in the CPU's array, where an entry notes it ([`Entry`]), until an allocation
//! makes them something else or they move on to the list behind the array. What everybody else may
//! do with such a page is what may be done with a page that is on a list: nothing.
//!
//! # Bounds
//!
//! One hold of a CPU's lists copies at most as many entries as the array has; if there is no room,
//! the oldest half of it moves to the list behind first. At `high` pages go back one by one, and one
//! hold of the zone lock moves what it does for single pages.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::blocks::Tag;
use super::hot::{Entry, HOT_PAGES};
use super::{OwnedBlock, PageAllocator, PageKind, Pfn};
use crate::machine::Machine;

/// Up to `N` single unmovable pages that are their set's alone: freed when it is cleared or dropped,
/// and by nobody else.
///
/// As [`OwnedBlock`], but for many pages at a time, each for a fraction of what it costs alone.
///
/// ```
/// # use quarry_core::page::PageAllocator;
/// # fn demo<M: quarry_core::machine::Machine>(pages: &PageAllocator<M>) {
/// let mut set = pages.owned_pages::<64>();
/// set.fill(); // 64 pages, or less
/// let one = set.pop().unwrap(); // an `OwnedBlock`
/// if let Some(bytes) = set.as_uninit_bytes_mut(0) {
///     bytes[0].write(7);
/// }
/// set.clear(); // all but one are free
/// drop(one);
/// # }
/// ```
pub struct OwnedPages<'p, M: Machine, const N: usize> {
    pages: &'p PageAllocator<M>,
    /// The first `len` are pages of the set, all of them [`Entry::is_owned`] where there is room for
    /// that.
    entries: [Entry; N],
    len: usize,
}

impl<'p, M: Machine, const N: usize> OwnedPages<'p, M, N> {
    /// Pages in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds pages of the running CPU's node until the set is full; returns how many it has then.
    ///
    /// That may be less although memory is left, as for [`PageAllocator::alloc_bulk`]: memory has run
    /// out if a call adds nothing to a set that is not full.
    pub fn fill(&mut self) -> usize {
        let room = &mut self.entries[self.len..];
        let mut got = 0;
        // For one page the ordinary way is as good.
        if room.len() > 1 {
            got = self.pages.take_owned(room);
        }
        if got == 0
            && !room.is_empty()
            && let Some(block) = self.pages.alloc_owned(0)
        {
            room[0] = Entry::owned(block.into_owned_pfn());
            got = 1;
        }
        self.len += got;
        self.len
    }

    /// Frees all pages.
    pub fn clear(&mut self) {
        let len = core::mem::take(&mut self.len);
        self.pages.free_owned(&self.entries[..len]);
    }

    /// Takes a page out of the set.
    #[inline]
    pub fn pop(&mut self) -> Option<OwnedBlock<'p, M>> {
        self.len = self.len.checked_sub(1)?;
        Some(self.pages.owned(self.entries[self.len].pfn(), 0))
    }

    /// Adds a single page.
    ///
    /// # Errors
    ///
    /// Gives the block back if the set is full, if it has more than a page, or if it is another page
    /// allocator's.
    #[inline]
    pub fn push(&mut self, block: OwnedBlock<'p, M>) -> Result<(), OwnedBlock<'p, M>> {
        let fits = block.order() == 0 && core::ptr::eq(block.pages, self.pages);
        match self.entries.get_mut(self.len) {
            Some(entry) if fits => {
                *entry = Entry::owned(block.into_owned_pfn());
                self.len += 1;
                Ok(())
            }
            _ => Err(block),
        }
    }

    /// The pages, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Pfn> {
        self.entries[..self.len].iter().map(|entry| entry.pfn())
    }

    /// First byte of the page at an index; `None` if there are not so many. The memory is valid as
    /// long as the page is in the set.
    #[inline]
    pub fn address(&self, index: usize) -> Option<NonNull<u8>> {
        let entry = self.entries[..self.len].get(index)?;
        Some(self.pages.map().address(entry.pfn()))
    }

    /// Memory of the page at an index, which holds whatever it held before
    /// ([`OwnedBlock::as_uninit_bytes_mut`]).
    #[inline]
    pub fn as_uninit_bytes_mut(&mut self, index: usize) -> Option<&mut [MaybeUninit<u8>]> {
        let address = self.address(index)?;
        let bytes = 1 << self.pages.map().page_shift();
        // SAFETY: the page is memory of the machine (M2) and only its set's, which is borrowed;
        // `MaybeUninit` asks for no initialised value.
        Some(unsafe { core::slice::from_raw_parts_mut(address.cast().as_ptr(), bytes) })
    }
}

impl<M: Machine, const N: usize> Drop for OwnedPages<'_, M, N> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<M: Machine, const N: usize> fmt::Debug for OwnedPages<'_, M, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<M: Machine> PageAllocator<M> {
    /// An empty set of owned pages.
    #[inline]
    pub fn owned_pages<const N: usize>(&self) -> OwnedPages<'_, M, N> {
        OwnedPages {
            pages: self,
            entries: [Entry::owned(Pfn(0)); N],
            len: 0,
        }
    }

    /// Takes pages for a set from the running CPU's lists, as far as they and a zone of the node
    /// reach; how many.
    fn take_owned(&self, room: &mut [Entry]) -> usize {
        let zone = self
            .pick_node(None)
            .and_then(|node| self.zone_for_bulk(node, room.len(), || room.len()));
        let Some(zone) = zone else {
            return 0;
        };
        let got = self.alloc_by_lists(zone, |pcp, lists, shape| {
            pcp.alloc_owned(lists, shape, room) as u64
        });
        got as usize
    }

    /// Frees pages of a set.
    fn free_owned(&self, entries: &[Entry]) {
        let mut rest = entries;
        while let Some((first, others)) = rest.split_first() {
            let freed = self.free_owned_listed(rest).unwrap_or(0);
            if freed > 0 {
                rest = &rest[freed..];
            } else {
                // Somebody has to look at `high`, or the page goes elsewhere.
                drop(self.owned(first.pfn(), 0));
                rest = others;
            }
        }
    }

    /// Puts pages of a set into the running CPU's array from the first on, as far as there is room
    /// and they belong there; how many. `None` if the lists cannot be used.
    #[inline(never)]
    fn free_owned_listed(&self, entries: &[Entry]) -> Option<usize> {
        if !Entry::NOTES_OWNED {
            return None;
        }
        let first = entries.first()?.pfn();
        let zone = self.zone_of(first);
        let lists = zone.pageset(self.machine(), self.map());
        lists.with(&zone.pcp, |pcp, _| {
            let room = pcp.room(&lists).min(entries.len()).min(HOT_PAGES);
            let here = self.tagged(&entries[..room], zone.unmovable);
            let vacant = pcp.vacant(&lists, here.len()).unwrap_or_default();
            let Some(vacant) = vacant.get_mut(..here.len()) else {
                return 0;
            };
            vacant.copy_from_slice(here);
            if !here.is_empty() {
                pcp.freed_many(&lists, here.len() as u32);
            }
            here.len()
        })
    }

    /// The entries up to the first one whose pageblock has another tag by now.
    #[inline(always)]
    fn tagged<'e>(&self, entries: &'e [Entry], tag: Tag) -> &'e [Entry] {
        let blocks = self.map().blocks();
        let Some(first) = entries.first().map(|entry| entry.pfn()) else {
            return entries;
        };
        let mut differ = 0;
        for entry in entries {
            let pfn = entry.pfn();
            debug_assert!(self.map().page(pfn).is_block(PageKind::Owned, 0));
            differ |= pfn.0 ^ first.0;
        }
        if differ >> blocks.order() == 0 && blocks.tag(first) == tag {
            return entries;
        }
        let fits = |entry: &&Entry| blocks.tag(entry.pfn()) == tag;
        &entries[..entries.iter().take_while(fits).count()]
    }
}
