//! The memory map as its users see it on a machine, which accounts their accesses.

use core::ops::Deref;

use super::MemMap;
use super::page::Page;
use crate::machine::{Access, Accounting, Line, Machine, Work, access, work};
use crate::page::types::Pfn;

/// [`MemMap`] with the machine that accounts accesses to descriptors.
pub(crate) struct MapOn<'a, M> {
    pub(crate) machine: &'a M,
    pub(crate) map: &'a MemMap,
}

impl<M> Clone for MapOn<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for MapOn<'_, M> {}

impl<M> Deref for MapOn<'_, M> {
    type Target = MemMap;
    #[inline(always)]
    fn deref(&self) -> &MemMap {
        self.map
    }
}

impl MemMap {
    /// The map on a machine.
    #[inline(always)]
    pub(crate) fn on<'a, M>(&'a self, machine: &'a M) -> MapOn<'a, M> {
        MapOn { machine, map: self }
    }
}

impl<'a, M: Accounting> MapOn<'a, M> {
    #[inline(always)]
    fn accessed(self, kind: Access, pfn: Pfn) -> &'a Page {
        let page = self.map.page(pfn);
        access(self.machine, Line::PageDescriptor, kind, page);
        page
    }

    /// Descriptor of a page whose state is read, to see whether it is free.
    #[inline(always)]
    pub(crate) fn page_to_read(self, pfn: Pfn) -> &'a Page {
        self.accessed(Access::Check, pfn)
    }

    /// Descriptor of a page whose state changes: it comes off a list, or goes on one.
    #[inline(always)]
    pub(crate) fn page_to_write(self, pfn: Pfn) -> &'a Page {
        self.accessed(Access::Write, pfn)
    }

    /// Descriptor of a page whose references are changed.
    #[inline(always)]
    pub(in crate::page) fn page_to_count(self, pfn: Pfn) -> &'a Page {
        self.accessed(Access::Atomic, pfn)
    }

    /// Descriptor of a page whose new state does not depend on the old one.
    #[inline(always)]
    pub(in crate::page) fn page_to_set(self, pfn: Pfn) -> &'a Page {
        self.accessed(Access::Store, pfn)
    }

    /// A block comes off a list that is gone through: its own links are read, and those of the one behind it are written.
    /// So that one's line is on its way before it is read in turn.
    #[inline(always)]
    pub(in crate::page) fn unlink(self, pfn: Pfn, behind: Option<Pfn>) {
        if let Some(behind) = behind {
            self.page_to_set(behind);
        }
        self.page_to_write(pfn);
    }

    /// The kernel prefetches a page's descriptor, which need not exist.
    #[inline(always)]
    pub(in crate::page) fn fetch_early(self, pfn: Pfn) {
        if pfn.0 < self.map.pages() {
            self.accessed(Access::Prefetch, pfn);
        }
    }

    /// Descriptor of the first page of one half of a merge; accounts one level of it.
    #[inline(always)]
    pub(in crate::page) fn half(self, pfn: Pfn) -> &'a Page {
        work(self.machine, Work::BuddyStep);
        self.page_to_write(pfn)
    }

    /// [`MapOn::half`] for the upper half of a split.
    #[inline(always)]
    pub(in crate::page) fn split_off(self, pfn: Pfn) {
        work(self.machine, Work::BuddyStep);
        self.page_to_set(pfn);
    }
}

impl<M: Machine> MapOn<'_, M> {
    /// Prefetches a page's descriptor for writing; the number need not be a page's.
    #[inline(always)]
    pub(crate) fn prefetch(self, pfn: Pfn) {
        let descriptors = self.map.descriptors.as_ptr();
        let page = descriptors.wrapping_add(pfn.0 as usize);
        self.machine.prefetch_for_write(page.cast());
    }

    /// Prefetches the descriptor of a block further on the list of this one ([`Page::set_ahead`]).
    /// Callers take blocks off the list one after the other. Following a list waits for each descriptor
    /// in turn; this way it waits for several at a time.
    #[inline(always)]
    pub(in crate::page) fn prefetch_ahead(self, page: &Page) {
        if let Some(further) = page.ahead() {
            self.prefetch(further);
        }
    }
}
