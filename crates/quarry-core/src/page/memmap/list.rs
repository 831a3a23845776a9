//! Doubly linked lists of pages, linked through their descriptors.

use super::page::Page;
use super::{MapOn, MemMap};
use crate::machine::{Access, Accounting, Line, access, access_run};
use crate::page::types::Pfn;

/// Bytes of the two links in a slab's own descriptor: its first ones.
const LINK_BYTES: usize = 2 * size_of::<usize>();

/// The descriptors that link a list, and the lines whose accesses the machine counts.
pub(crate) struct Links<'a, M> {
    map: MapOn<'a, M>,
    page: Line,
    /// Kind of line of the list's head; `None` for a list on its function's stack.
    head: Option<Line>,
    /// Bytes of the slabs' own descriptors, which have the links ([`Page::own_descriptor`]); 0 where the page's have them.
    own_bytes: u32,
}

impl<M> Clone for Links<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Links<'_, M> {}

impl<'a, M: Accounting> Links<'a, M> {
    /// Lists of slabs.
    #[inline(always)]
    pub(crate) fn of_slabs(map: MapOn<'a, M>) -> Self {
        Self {
            map,
            page: Line::Slab,
            head: Some(Line::Node),
            own_bytes: 0,
        }
    }

    /// The same where slabs may have descriptors of their own.
    #[inline(always)]
    pub(crate) fn in_own(self, own_bytes: u32) -> Self {
        Self { own_bytes, ..self }
    }

    /// Lists of a zone's free blocks.
    #[inline(always)]
    pub(crate) fn of_zone(map: MapOn<'a, M>) -> Self {
        Self {
            map,
            page: Line::PageDescriptor,
            head: Some(Line::Zone),
            own_bytes: 0,
        }
    }

    /// Lists local to a function.
    #[inline(always)]
    pub(crate) fn of_call(map: MapOn<'a, M>) -> Self {
        Self {
            head: None,
            ..Self::of_slabs(map)
        }
    }

    /// A page whose links are read and change.
    #[inline(always)]
    fn page(&self, pfn: Pfn) -> &'a Page {
        self.links(pfn, Access::Write)
    }

    /// A page whose links change, whatever they were: it is new on its list, or a neighbour.
    #[inline(always)]
    fn page_to_set(&self, pfn: Pfn) -> &'a Page {
        self.links(pfn, Access::Store)
    }

    #[inline(always)]
    fn links(&self, pfn: Pfn, kind: Access) -> &'a Page {
        let page = self.map.map.page(pfn);
        if self.own_bytes == 0 {
            access(self.map.machine, self.page, kind, page.links());
        } else {
            let own = page.own_descriptor(self.own_bytes);
            access_run(self.map.machine, self.page, kind, own, LINK_BYTES);
        }
        page
    }

    #[inline(always)]
    fn head(&self, list: &PageList) {
        if let Some(line) = self.head {
            access(
                self.map.machine,
                line,
                Access::Write,
                core::ptr::from_ref(list),
            );
        }
    }
}

/// A list of pages. All-zero is the empty list. Code that may change the list may change the links
/// of the pages on it.
pub(crate) struct PageList {
    head: u32,
    tail: u32,
    len: u32,
}

impl PageList {
    pub(crate) const EMPTY: Self = Self {
        head: 0,
        tail: 0,
        len: 0,
    };

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn first(&self) -> Option<Pfn> {
        Pfn::from_link(self.head)
    }

    pub(crate) fn last(&self) -> Option<Pfn> {
        Pfn::from_link(self.tail)
    }

    pub(crate) fn push_front<M: Accounting>(&mut self, by: Links<'_, M>, pfn: Pfn) {
        let old = self.first();
        by.head(self);
        let page = by.page_to_set(pfn);
        page.set_prev(None);
        page.set_next(old);
        match old {
            Some(old) => by.page_to_set(old).set_prev(Some(pfn)),
            None => self.tail = Pfn::link(Some(pfn)),
        }
        self.head = Pfn::link(Some(pfn));
        self.len += 1;
    }

    pub(crate) fn push_back<M: Accounting>(&mut self, by: Links<'_, M>, pfn: Pfn) {
        let old = self.last();
        by.head(self);
        let page = by.page_to_set(pfn);
        page.set_next(None);
        page.set_prev(old);
        match old {
            Some(old) => by.page_to_set(old).set_next(Some(pfn)),
            None => self.head = Pfn::link(Some(pfn)),
        }
        self.tail = Pfn::link(Some(pfn));
        self.len += 1;
    }

    /// Takes a page that is on this list off it.
    pub(crate) fn remove<M: Accounting>(&mut self, by: Links<'_, M>, pfn: Pfn) {
        by.head(self);
        let page = by.page(pfn);
        let (prev, next) = (page.prev(), page.next());
        match prev {
            Some(prev) => by.page_to_set(prev).set_next(next),
            None => self.head = Pfn::link(next),
        }
        match next {
            Some(next) => by.page_to_set(next).set_prev(prev),
            None => self.tail = Pfn::link(prev),
        }
        page.set_prev(None);
        page.set_next(None);
        self.len -= 1;
    }

    pub(crate) fn pop_front<M: Accounting>(&mut self, by: Links<'_, M>) -> Option<Pfn> {
        let first = self.first()?;
        by.head(self);
        let page = by.page(first);
        let next = page.next();
        match next {
            Some(next) => by.page_to_set(next).set_prev(None),
            None => self.tail = 0,
        }
        self.head = Pfn::link(next);
        page.set_next(None);
        self.len -= 1;
        Some(first)
    }

    pub(crate) fn pop_back<M: Accounting>(&mut self, by: Links<'_, M>) -> Option<Pfn> {
        let last = self.last()?;
        self.remove(by, last);
        Some(last)
    }

    /// Makes a page that is on this list its first: those before it move, in order, to the end.
    pub(crate) fn rotate_to<M: Accounting>(&mut self, by: Links<'_, M>, pfn: Pfn) {
        let (Some(before), Some(first), Some(last)) =
            (by.page(pfn).prev(), self.first(), self.last())
        else {
            return;
        };
        by.head(self);
        by.page_to_set(last).set_next(Some(first));
        by.page_to_set(first).set_prev(Some(last));
        by.page_to_set(before).set_next(None);
        by.page_to_set(pfn).set_prev(None);
        self.head = Pfn::link(Some(pfn));
        self.tail = Pfn::link(Some(before));
    }

    /// The pages from first to last; the list must not change meanwhile.
    pub(crate) fn iter<'a>(&self, map: &'a MemMap) -> impl Iterator<Item = Pfn> + use<'a> {
        core::iter::successors(self.first(), |&pfn| map.page(pfn).next())
    }
}
