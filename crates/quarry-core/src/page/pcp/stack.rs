//! Blocks on a per-CPU list: pushed and popped at the front, drained from the back.
//!
//! Unlike [`crate::page::PageList`] it is made for the front: a push writes its own page's descriptor and the
//! `prev` of the former first; a pop writes none. So the `prev` of the first page and the `next` of the last
//! are stale.

use crate::machine::Machine;
use crate::page::memmap::{MapOn, MemMap};
use crate::page::types::Pfn;

/// A list of blocks. All-zero is the empty list.
pub(crate) struct BlockStack {
    first: u32,
    /// 0 exactly if `first` is.
    last: u32,
}

impl BlockStack {
    pub(crate) const EMPTY: Self = Self { first: 0, last: 0 };

    /// The block at the front.
    pub(crate) fn first(&self) -> Option<Pfn> {
        Pfn::from_link(self.first)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0
    }

    #[inline(always)]
    pub(crate) fn push_front(&mut self, map: &MemMap, pfn: Pfn) {
        let first = Pfn::from_link(self.first);
        let page = map.page(pfn);
        page.set_next(first);
        page.set_ahead(None);
        self.first = Pfn::link(Some(pfn));
        match first {
            Some(first) => map.page(first).set_prev(Some(pfn)),
            None => self.last = Pfn::link(Some(pfn)),
        }
    }

    pub(crate) fn push_back(&mut self, map: &MemMap, pfn: Pfn) {
        let last = Pfn::from_link(self.last);
        map.page(pfn).set_ahead(None);
        self.last = Pfn::link(Some(pfn));
        match last {
            Some(last) => {
                map.page(last).set_next(Some(pfn));
                map.page(pfn).set_prev(Some(last));
            }
            None => self.first = Pfn::link(Some(pfn)),
        }
    }

    #[inline(always)]
    pub(crate) fn pop_front(&mut self, map: &MemMap) -> Option<Pfn> {
        let pfn = Pfn::from_link(self.first)?;
        if self.first == self.last {
            *self = Self::EMPTY;
        } else {
            self.first = Pfn::link(map.page(pfn).next());
        }
        Some(pfn)
    }

    pub(crate) fn pop_back(&mut self, map: &MemMap) -> Option<Pfn> {
        let pfn = Pfn::from_link(self.last)?;
        if self.first == self.last {
            *self = Self::EMPTY;
        } else {
            self.last = Pfn::link(map.page(pfn).prev());
        }
        Some(pfn)
    }

    /// Takes up to `most` blocks from the back into `room`, to be freed.
    pub(crate) fn pop_back_many<'a, M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        order: u32,
        room: &'a mut [Pfn],
        most: usize,
    ) -> &'a [Pfn] {
        let mut popped = 0;
        for place in room.iter_mut().take(most) {
            let Some(pfn) = self.pop_back(&map) else {
                break;
            };
            *place = pfn;
            popped += 1;
            map.prefetch_ahead(map.page(pfn));
            // Its buddy, which is looked at when it is freed.
            map.prefetch(Pfn(pfn.0 ^ (1 << order)));
        }
        &room[..popped]
    }

    /// Takes a block that is on this list off it.
    pub(crate) fn remove(&mut self, map: &MemMap, pfn: Pfn) {
        let link = Pfn::link(Some(pfn));
        if link == self.first {
            self.pop_front(map);
        } else if link == self.last {
            self.pop_back(map);
        } else {
            let page = map.page(pfn);
            let (prev, next) = (page.prev(), page.next());
            if let (Some(prev), Some(next)) = (prev, next) {
                map.page(prev).set_next(Some(next));
                map.page(next).set_prev(Some(prev));
            }
        }
    }

    /// The blocks from first to last; the list must not change meanwhile.
    pub(crate) fn iter<'a>(&self, map: &'a MemMap) -> impl Iterator<Item = Pfn> + use<'a> {
        let last = self.last;
        core::iter::successors(Pfn::from_link(self.first), move |&pfn| {
            (Pfn::link(Some(pfn)) != last)
                .then(|| map.page(pfn).next())
                .flatten()
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::vec::Vec;

    use super::*;
    use crate::page::memmap::page::Page;

    const PAGES: u32 = 32;

    fn descriptors() -> Vec<Page> {
        // SAFETY: all-zero is a valid descriptor, as in a machine's zero-filled range.
        (0..PAGES).map(|_| unsafe { core::mem::zeroed() }).collect()
    }

    /// Every sequence of operations leaves what a deque holds.
    #[test]
    fn a_stack_is_a_deque() {
        let descriptors = descriptors();
        let map = MemMap::of_descriptors(&descriptors);
        let mut state = 1_u64;
        let mut dice = move |sides: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % sides
        };
        let mut stack = BlockStack::EMPTY;
        let mut model = VecDeque::new();
        let mut free: Vec<Pfn> = (0..PAGES).map(Pfn).collect();
        for _ in 0..20_000 {
            match dice(6) {
                0 | 1 if !free.is_empty() => {
                    let pfn = free.swap_remove(dice(free.len() as u64) as usize);
                    stack.push_front(&map, pfn);
                    model.push_front(pfn);
                }
                2 if !free.is_empty() => {
                    let pfn = free.swap_remove(dice(free.len() as u64) as usize);
                    stack.push_back(&map, pfn);
                    model.push_back(pfn);
                }
                3 => {
                    let pfn = stack.pop_front(&map);
                    assert_eq!(pfn, model.pop_front());
                    free.extend(pfn);
                }
                5 => {
                    let pfn = stack.pop_back(&map);
                    assert_eq!(pfn, model.pop_back());
                    free.extend(pfn);
                }
                _ if !model.is_empty() => {
                    let pfn = model.remove(dice(model.len() as u64) as usize);
                    let pfn = pfn.expect("a place in the deque");
                    stack.remove(&map, pfn);
                    free.push(pfn);
                }
                _ => {}
            }
            assert!(stack.iter(&map).eq(model.iter().copied()));
            assert_eq!(stack.is_empty(), model.is_empty());
        }
    }
}
