//! What pages are used for: which blocks are slabs, and which objects lie together on old pages.
//!
//! # Idea
//!
//! No event says that a page block became a slab. But objects have addresses, and an object lies in
//! exactly one block: if the address of an object lies in a block that is allocated, that block is a
//! slab or a large kmalloc, and nothing else. Page events tell page frame numbers, object events tell
//! addresses of the direct map, and the two differ by a constant, which [`DirectMap`] finds.
//!
//! An object on a page of no allocated block lies on a page from before the recording. Such pages get
//! ids, and rows tell them: what lay together before the recording can be told by nothing else.
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
//! # Invariants
//!
//! * P1: blocks are disjoint, as the page blocks of [`crate::TraceBuilder`] are.
//! * P2: the free of a block is marked if and only if its allocation is.
//! * P3: rows leave in the order in which they came.

mod map;
mod old;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use crate::event::{Flags, Kind, NO_PAGE};
use crate::meta::SlabMemory;
use crate::write::Row;
use map::DirectMap;
use old::OldPages;

/// Rows that are held back at most: half of what the writer holds anyway.
pub(crate) const HELD_ROWS: usize = 1 << 16;

/// A row and what it is about.
#[derive(Clone, Copy, Debug)]
struct Held {
    row: Row,
    /// Address of the object, or page frame number.
    place: u64,
}

/// What an allocated block is known to be.
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
    old: OldPages,
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
            old: OldPages::default(),
            counts: SlabMemory::default(),
        }
    }

    /// Takes the next row; gives the oldest one if too many are held.
    pub(crate) fn push(&mut self, row: Row, place: u64, page_bytes: u32) -> Option<Row> {
        let event = &row.event;
        if event.kind == Kind::MmPageAlloc {
            self.map
                .page_alloc(event.cpu, place, event.order, page_bytes);
        } else if !event.kind.is_page() && !event.kind.is_free() {
            self.map.object_alloc(event.cpu, place);
        }
        self.held.push_back(Held { row, place });
        if self.map.is_found() {
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
        let held = self.held.pop_front()?;
        self.gone += 1;
        self.done -= 1;
        Some(held.row)
    }

    /// What was found; `None` if addresses could not be related to page frames.
    pub(crate) fn found(&self) -> Option<SlabMemory> {
        self.map.is_found().then_some(SlabMemory {
            old_pages: self.old.ids(),
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
                self.old.freed(place, event.order);
                let block = Block {
                    order: event.order,
                    row: self.gone + at as u64,
                    used_as: Use::Plain,
                };
                self.blocks.insert(place, block);
            }
            Kind::MmPageFree => {
                let slab = if event.flags.has(Flags::UNKNOWN) {
                    self.old.freed(place, event.order)
                } else {
                    let block = self.blocks.remove(&place);
                    block.is_some_and(|block| block.used_as == Use::Slab)
                };
                if slab {
                    self.counts.frees += 1;
                    self.mark(at);
                }
            }
            kind if !kind.is_free() || event.flags.has(Flags::UNKNOWN) => {
                if let Some(page) = self.map.page_of(place) {
                    self.held[at].row.page = self.object_on(page);
                }
            }
            _ => {}
        }
    }

    /// An object lies on this page. Gives the page's id if it is from before the recording.
    fn object_on(&mut self, page: u64) -> u32 {
        let last = self.blocks.range_mut(..=page).next_back();
        let block = last.filter(|(start, block)| page - **start < 1 << block.order);
        let Some((_, block)) = block else {
            return self.old.id(page).unwrap_or(NO_PAGE);
        };
        if block.used_as == Use::Plain {
            let held = block.row.checked_sub(self.gone);
            block.used_as = if held.is_some() { Use::Slab } else { Use::Late };
            match held {
                Some(at) => {
                    self.counts.allocs += 1;
                    self.mark(at as usize);
                }
                None => self.counts.late_allocs += 1,
            }
        }
        NO_PAGE
    }

    fn mark(&mut self, at: usize) {
        let flags = &mut self.held[at].row.event.flags;
        *flags = flags.with(Flags::SLAB);
    }
}
