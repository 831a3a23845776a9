//! Doubly linked lists of pages, linked through their descriptors.

use super::map::MemMap;
use super::types::Pfn;

/// A list of pages. All-zero is the empty list. Whoever may change the list may change the links
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

    pub(crate) fn push_front(&mut self, map: &MemMap, pfn: Pfn) {
        let old = self.first();
        let page = map.page(pfn);
        page.set_prev(None);
        page.set_next(old);
        match old {
            Some(old) => map.page(old).set_prev(Some(pfn)),
            None => self.tail = Pfn::link(Some(pfn)),
        }
        self.head = Pfn::link(Some(pfn));
        self.len += 1;
    }

    pub(crate) fn push_back(&mut self, map: &MemMap, pfn: Pfn) {
        let old = self.last();
        let page = map.page(pfn);
        page.set_next(None);
        page.set_prev(old);
        match old {
            Some(old) => map.page(old).set_next(Some(pfn)),
            None => self.head = Pfn::link(Some(pfn)),
        }
        self.tail = Pfn::link(Some(pfn));
        self.len += 1;
    }

    /// Takes a page that is on this list off it.
    pub(crate) fn remove(&mut self, map: &MemMap, pfn: Pfn) {
        let page = map.page(pfn);
        let (prev, next) = (page.prev(), page.next());
        match prev {
            Some(prev) => map.page(prev).set_next(next),
            None => self.head = Pfn::link(next),
        }
        match next {
            Some(next) => map.page(next).set_prev(prev),
            None => self.tail = Pfn::link(prev),
        }
        page.set_prev(None);
        page.set_next(None);
        self.len -= 1;
    }

    pub(crate) fn pop_front(&mut self, map: &MemMap) -> Option<Pfn> {
        let first = self.first()?;
        let page = map.page(first);
        let next = page.next();
        match next {
            Some(next) => map.page(next).set_prev(None),
            None => self.tail = 0,
        }
        self.head = Pfn::link(next);
        page.set_next(None);
        self.len -= 1;
        Some(first)
    }

    pub(crate) fn pop_back(&mut self, map: &MemMap) -> Option<Pfn> {
        let last = self.last()?;
        self.remove(map, last);
        Some(last)
    }

    /// Makes a page that is on this list its first: those before it move, in order, to the end.
    pub(crate) fn rotate_to(&mut self, map: &MemMap, pfn: Pfn) {
        let (Some(before), Some(first), Some(last)) =
            (map.page(pfn).prev(), self.first(), self.last())
        else {
            return;
        };
        map.page(last).set_next(Some(first));
        map.page(first).set_prev(Some(last));
        map.page(before).set_next(None);
        map.page(pfn).set_prev(None);
        self.head = Pfn::link(Some(pfn));
        self.tail = Pfn::link(Some(before));
    }

    /// The pages from first to last; the list must not change meanwhile.
    pub(crate) fn iter<'a>(&self, map: &'a MemMap) -> impl Iterator<Item = Pfn> + use<'a> {
        core::iter::successors(self.first(), |&pfn| map.page(pfn).next())
    }
}
