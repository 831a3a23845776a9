//! Uses of pages: which blocks are slabs, and which objects share old pages.
//!
//! # Idea
//!
//! No event says that a page block became a slab. But objects have addresses, and an object lies in
//! exactly one block: if the address of an object lies in a block that is allocated, that block is a
//! slab or a large kmalloc, and nothing else. Page events tell page frame numbers, object events tell
//! addresses of the direct map, and the two differ by a constant, which [`DirectMap`] finds.
//!
//! Pages on which objects lie get ids, which are never given again: rows of allocations, and of frees
//! whose allocation is not in the recording, have the page of their object. Page events of slabs have
//! the first page of their block. An object on a page of no allocated block lies on a page from before
//! the recording. An allocation also tells whether its place is *fresh*: whether the recording has no
//! earlier event of an object there. That place was free when the recording, or its slab, began.
//!
//! # Delay
//!
//! A slab is seen as one when its first object is, which is after its allocation: mostly by the
//! next event, now and then by thousands, where objects come from bulk calls that have no events. So
//! the last [`HELD_ROWS`] rows are held back, and a block's allocation is marked while it is among them.
//! If the evidence comes later still, allocation and free of that block both stay unmarked
//! ([`crate::SlabMemory::late_allocs`]). Rows that are held when the constant is found are gone through
//! then.
//!
//! The free of a block from before the recording gets the migrate type of its surroundings
//! (`types`) as it is known when the row leaves: later rows that are held tell of it, too.
//!
//! # Invariants
//!
//! * P1: blocks are disjoint, as the page blocks of [`crate::TraceBuilder`] are.
//! * P2: the free of a block is marked if and only if its allocation is.
//! * P3: rows leave in the order in which they came.

mod ids;
mod map;
mod places;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::build::PAGE_SIZE_ASSUMED;
use crate::event::{Flags, Kind, NO_PAGE, Place};
use crate::meta::SlabMemory;
use crate::write::Row;
use ids::PageIds;
use map::DirectMap;
use places::Places;
use types::PageTypes;

/// Rows that are held back at most: half of what the writer holds anyway.
pub(crate) const HELD_ROWS: usize = 1 << 16;

/// A row and what it is about.
#[derive(Clone, Copy, Debug)]
struct Held {
    row: Row,
    /// Address of the object, or page frame number.
    place: u64,
}

/// Known use of an allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// No object was seen in it.
    Plain,
    Slab,
    /// A slab whose allocation could not be marked any more.
    Late,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    order: u8,
    /// Number of the row that allocated it.
    row: u64,
    used_as: Use,
    /// Id of its first page, once it is known to be a slab.
    first_id: u32,
}

/// The rows that are held back, and what is known of the pages.
#[derive(Debug)]
pub(crate) struct Pages {
    held: VecDeque<Held>,
    capacity: usize,
    /// Rows that have left.
    gone: u64,
    /// Held rows that were gone through: all, once the direct map is found.
    done: usize,
    map: DirectMap,
    blocks: BTreeMap<u64, Block>,
    ids: PageIds,
    places: Places,
    types: PageTypes,
    page_bytes: u32,
    counts: SlabMemory,
}

impl Pages {
    pub(crate) fn new(capacity: usize) -> Pages {
        Pages {
            held: VecDeque::new(),
            capacity,
            gone: 0,
            done: 0,
            map: DirectMap::default(),
            blocks: BTreeMap::new(),
            ids: PageIds::default(),
            places: Places::default(),
            types: PageTypes::default(),
            page_bytes: 0,
            counts: SlabMemory::default(),
        }
    }

    /// Takes the next row; gives the oldest one if too many are held.
    pub(crate) fn push(&mut self, row: Row, place: u64, page_bytes: u32) -> Option<Row> {
        let event = &row.event;
        if page_bytes != 0 {
            self.page_bytes = page_bytes;
        }
        let page_bytes = self.page_bytes;
        if event.kind == Kind::MmPageAlloc {
            self.map
                .page_alloc(event.cpu, place, event.order, page_bytes);
            self.types.allocated(place, event.place, page_bytes);
        } else if !event.kind.is_page() && !event.kind.is_free() {
            self.map.object_alloc(event.cpu, place);
        }
        self.held.push_back(Held { row, place });
        if self.map.is_found() {
            self.inferred();
            while self.done < self.held.len() {
                self.go_through(self.done);
                self.done += 1;
            }
        }
        (self.held.len() > self.capacity).then(|| self.pop())?
    }

    /// Gives the oldest row that is held.
    pub(crate) fn pop(&mut self) -> Option<Row> {
        if self.done == 0 && !self.held.is_empty() {
            self.go_through(0);
            self.done = 1;
        }
        let Held { mut row, place } = self.held.pop_front()?;
        self.gone += 1;
        self.done -= 1;
        if row.event.kind == Kind::MmPageFree && row.event.flags.has(Flags::UNKNOWN) {
            row.migratetype = self.types.of(place, self.page_bytes);
            row.event.place = row.migratetype;
        }
        Some(row)
    }

    /// The page frame that an address lies in; `None` if addresses could not be related to page
    /// frames yet.
    pub(crate) fn page_of(&self, address: u64) -> Option<u64> {
        self.map.page_of(address).map(|(page, _)| page)
    }

    /// Addresses of a block of pages; `None` if addresses could not be related to page frames yet.
    pub(crate) fn addresses(&self, page: u64, order: u8) -> Option<Range<u64>> {
        self.map.addresses(page, order)
    }

    /// Takes the page size that the direct map tells, if none was named. Types of what has left already
    /// were noted by another size, if it is not the one that is assumed.
    fn inferred(&mut self) {
        if self.page_bytes != 0 {
            return;
        }
        self.page_bytes = self.map.page_bytes().unwrap_or_default();
        if self.page_bytes != PAGE_SIZE_ASSUMED {
            self.types = PageTypes::default();
            for Held { row, place } in &self.held {
                if row.event.kind == Kind::MmPageAlloc {
                    self.types
                        .allocated(*place, row.event.place, self.page_bytes);
                }
            }
        }
    }

    /// The page size that addresses and page frame numbers tell, if none was named.
    pub(crate) fn page_bytes(&self) -> Option<u32> {
        self.map.page_bytes()
    }

    /// Slab pages that were identified; `None` if addresses could not be related to page frames.
    pub(crate) fn found(&self) -> Option<SlabMemory> {
        self.map.is_found().then_some(SlabMemory {
            pages: self.ids.count(),
            ..self.counts
        })
    }

    /// Learns from the held row at `at`, and marks it and what it tells of.
    fn go_through(&mut self, at: usize) {
        let Held { row, place } = self.held[at];
        let event = row.event;
        match event.kind {
            Kind::MmPageAlloc => {
                // A block that was freed without an event is not old any more.
                self.ids.freed(place, event.order);
                self.places.forget(place, event.order);
                let block = Block {
                    order: event.order,
                    row: self.gone + at as u64,
                    used_as: Use::Plain,
                    first_id: NO_PAGE,
                };
                self.blocks.insert(place, block);
            }
            Kind::MmPageFree => {
                self.places.forget(place, event.order);
                let slab = if event.flags.has(Flags::UNKNOWN) {
                    self.ids.freed(place, event.order)
                } else {
                    let block = self.blocks.remove(&place);
                    let slab = block.filter(|block| block.used_as == Use::Slab);
                    slab.map(|block| block.first_id)
                };
                if let Some(first_id) = slab {
                    self.counts.frees += 1;
                    self.mark(at, first_id);
                }
            }
            kind if !kind.is_free() || event.flags.has(Flags::UNKNOWN) => {
                if let Some((page, offset)) = self.map.page_of(place) {
                    let id = self.object_on(page);
                    if id != NO_PAGE {
                        let fresh = self.places.touch(page, offset) && !kind.is_free();
                        self.held[at].row.page = Place { page: id, fresh }.encode();
                    }
                }
            }
            _ => {}
        }
    }

    /// An object lies on this page. Gives the page's id.
    fn object_on(&mut self, page: u64) -> u32 {
        let last = self.blocks.range_mut(..=page).next_back();
        let block = last.filter(|(start, block)| page - **start < 1 << block.order);
        let Some((start, block)) = block else {
            return self.ids.old(page).unwrap_or(NO_PAGE);
        };
        let (order, offset) = (block.order, (page - start) as u32);
        if block.used_as == Use::Plain {
            let Some(at) = block.row.checked_sub(self.gone) else {
                block.used_as = Use::Late;
                self.counts.late_allocs += 1;
                return NO_PAGE;
            };
            block.used_as = Use::Slab;
            block.first_id = self.ids.block(order).unwrap_or(NO_PAGE);
            let first_id = block.first_id;
            self.counts.allocs += 1;
            self.mark(at as usize, first_id);
            return ids::of_block(first_id, order, offset);
        }
        ids::of_block(block.first_id, order, offset)
    }

    fn mark(&mut self, at: usize, first_id: u32) {
        let row = &mut self.held[at].row;
        row.event.flags = row.event.flags.with(Flags::SLAB);
        row.page = if first_id == NO_PAGE {
            NO_PAGE
        } else {
            let (page, fresh) = (first_id, false);
            Place { page, fresh }.encode()
        };
    }
}
