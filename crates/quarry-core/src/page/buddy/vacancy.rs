//! Free pages without memory, so that none is given back twice.
//!
//! A zone's pages are taken in units of 2^[`UNIT_ORDER`]. A unit's bit is set while no page of it
//! has been handed out since it was given back, or since it was new. So splits and merges of the
//! blocks need not look at the bits. An allocation from the zone clears one bit, in the word of its
//! largest block: 64 units are 2^10 pages, and a block never crosses them (P3).

use core::ptr::NonNull;

use crate::machine::{Machine, Region};
use crate::page::types::{MAX_ORDER, Pfn};

/// log2 of the pages of a unit, which is the least that is given back at a time.
pub(crate) const UNIT_ORDER: u32 = MAX_ORDER - u64::BITS.ilog2();
/// Pages of a unit.
const UNIT_PAGES: u64 = 1 << UNIT_ORDER;

/// The bits of one zone, behind its lock.
pub(crate) struct Vacancy {
    /// One word for each 2^10 pages of the zone.
    words: NonNull<u64>,
    /// First page of the zone.
    start: u32,
    len: usize,
    /// Pages of units whose bit is set.
    pages: u64,
}

// SAFETY: the words are the zone's own, reserved by `new`, and only reached through `&mut self`.
unsafe impl Send for Vacancy {}

impl Vacancy {
    /// For a zone over `pages`; no page is known to be without memory yet. `None` if the range for
    /// structures is full.
    pub(crate) fn new<M: Machine>(
        machine: &M,
        meta: &Region,
        pages: &core::ops::Range<u32>,
    ) -> Option<Self> {
        let len = ((pages.end - pages.start) as usize).div_ceil(1 << MAX_ORDER);
        let words = meta.alloc(machine, len * size_of::<u64>())?.cast();
        Some(Self {
            words,
            start: pages.start,
            len,
            pages: 0,
        })
    }

    /// Pages that are known to have no memory behind them.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// The word of a block and the bits of its units; a block below a unit is in one unit.
    #[inline]
    fn place(&mut self, pfn: Pfn, order: u32) -> Option<(&mut u64, u64)> {
        // P3: a zone starts at a multiple of the largest block, so a block's units are in one word.
        let at = pfn.0 - self.start;
        let index = (at >> MAX_ORDER) as usize;
        if index >= self.len {
            return None;
        }
        // SAFETY: `new` reserved `len` words, aligned to a cache line and zero-filled.
        let word = unsafe { self.words.add(index) };
        let first = (at >> UNIT_ORDER) % u64::BITS;
        let units = 1u32 << order.saturating_sub(UNIT_ORDER);
        let bits = (u64::MAX >> (u64::BITS - units)) << first;
        // SAFETY: `place` checked the index against `len`; the words are only reached through `&mut self`,
        // which is borrowed here.
        Some((unsafe { &mut *word.as_ptr() }, bits))
    }

    /// True if a page is the first of a unit.
    #[inline(always)]
    pub(crate) fn begins_unit(pfn: Pfn) -> bool {
        pfn.0.trailing_zeros() >= UNIT_ORDER
    }

    /// Notes that a block is handed out: it, or the unit around it, will have memory.
    #[inline]
    pub(crate) fn occupy(&mut self, pfn: Pfn, order: u32) {
        if let Some((word, bits)) = self.place(pfn, order) {
            let changed = *word & bits;
            if changed != 0 {
                *word &= !bits;
                self.pages -= u64::from(changed.count_ones()) * UNIT_PAGES;
            }
        }
    }

    /// Notes that a free block has no memory; blocks below a unit are not tracked.
    pub(crate) fn vacate(&mut self, pfn: Pfn, order: u32) {
        if order >= UNIT_ORDER {
            self.vacate_units(pfn, order, u64::MAX);
        }
    }

    /// These units of a free block of at least a unit have no memory: bits as
    /// [`Vacancy::of_block`] gives them.
    pub(crate) fn vacate_units(&mut self, pfn: Pfn, order: u32, units: u64) {
        if let Some((word, bits)) = self.place(pfn, order) {
            let bits = bits & units << bits.trailing_zeros();
            let changed = !*word & bits;
            *word |= bits;
            self.pages += u64::from(changed.count_ones()) * UNIT_PAGES;
        }
    }

    /// Bits of the units of a block of at least a unit, from its first one on; set where there is
    /// no memory.
    pub(crate) fn of_block(&mut self, pfn: Pfn, order: u32) -> u64 {
        self.place(pfn, order)
            .map_or(0, |(word, bits)| (*word & bits) >> bits.trailing_zeros())
    }
}
