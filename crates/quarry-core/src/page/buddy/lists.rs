//! Free lists of a zone, by order and type, for the whole zone or for each region of it.
//!
//! Kernels have one set of lists for a zone. A policy may have one for each run of 2^n pages
//! ([`PagePolicy::region_bytes`](crate::page::policy::PagePolicy::region_bytes)), with counts by which it chooses.

use core::ptr::NonNull;

use crate::machine::{Machine, Region as Range};
use crate::page::memmap::list::PageList;
use crate::page::types::{BLOCK_TYPES, BlockType, MAX_ORDER, MIGRATE_TYPES, ORDERS, Pfn};

/// Lists of a region; all-zero is empty. Those that requests name are together, so that few lines have them all.
#[repr(C)]
pub(super) struct Grid {
    requested: [[PageList; MIGRATE_TYPES]; ORDERS],
    others: [[PageList; BLOCK_TYPES - MIGRATE_TYPES]; ORDERS],
    /// Free pages on the lists.
    pub(super) free_pages: u64,
    /// Pageblocks that are not movable.
    pub(super) pinned_blocks: u32,
    /// Requests that were not movable took single blocks out of movable pageblocks.
    pub(super) mixed: u32,
}

impl Grid {
    const EMPTY: Self = Self {
        requested: [const { [const { PageList::EMPTY }; MIGRATE_TYPES] }; ORDERS],
        others: [const { [const { PageList::EMPTY }; BLOCK_TYPES - MIGRATE_TYPES] }; ORDERS],
        free_pages: 0,
        pinned_blocks: 0,
        mixed: 0,
    };

    #[inline(always)]
    pub(super) fn list(&self, order: u32, of: BlockType) -> &PageList {
        let order = order as usize;
        match of.index().checked_sub(MIGRATE_TYPES) {
            None => &self.requested[order][of.index()],
            Some(other) => &self.others[order][other],
        }
    }

    #[inline(always)]
    pub(super) fn list_mut(&mut self, order: u32, of: BlockType) -> &mut PageList {
        let order = order as usize;
        match of.index().checked_sub(MIGRATE_TYPES) {
            None => &mut self.requested[order][of.index()],
            Some(other) => &mut self.others[order][other],
        }
    }
}

/// The lists of a zone.
#[repr(C)]
pub(crate) struct Lists {
    /// Those of the zone, or of its first region.
    first: Grid,
    /// Those of the other regions, `others` of them.
    more: NonNull<Grid>,
    others: u32,
    /// log2 of the pages of a region, above all page numbers if there is one.
    region_order: u32,
    /// Number of the region that the zone begins in.
    begin: u32,
}

// SAFETY: what `more` points to is the zone's own, reserved by `new`, and only reached through the borrow of
// `Lists`.
unsafe impl Send for Lists {}

impl Lists {
    /// The lists of a zone over `pages`, by regions of this size if its policy has them. `None` if the range for
    /// structures is full.
    pub(in crate::page) fn new<M: Machine>(
        machine: &M,
        meta: &Range,
        pages: &core::ops::Range<u32>,
        region_bytes: Option<u64>,
    ) -> Option<Self> {
        match region_bytes {
            None => Some(Self::single()),
            Some(bytes) => {
                let pages_of_region = bytes >> machine.topology().page_shift;
                let order = pages_of_region.max(1).ilog2().max(MAX_ORDER);
                Self::by_region(machine, meta, pages, order)
            }
        }
    }

    /// One set of lists for a zone.
    const fn single() -> Self {
        Self {
            first: Grid::EMPTY,
            more: NonNull::dangling(),
            others: 0,
            region_order: u32::BITS - 1,
            begin: 0,
        }
    }

    /// Lists for each run of 2^`region_order` pages that the zone has pages of.
    fn by_region<M: Machine>(
        machine: &M,
        meta: &Range,
        pages: &core::ops::Range<u32>,
        region_order: u32,
    ) -> Option<Self> {
        let region_order = region_order.min(u32::BITS - 1);
        let begin = pages.start >> region_order;
        let others = (pages.end.saturating_sub(1) >> region_order).saturating_sub(begin);
        let more = match others {
            0 => NonNull::dangling(),
            _ => meta
                .alloc(machine, others as usize * size_of::<Grid>())?
                .cast(),
        };
        Some(Self {
            more,
            others,
            region_order,
            begin,
            ..Self::single()
        })
    }

    /// Number of regions.
    #[inline]
    pub(super) fn regions(&self) -> u32 {
        self.others + 1
    }

    /// The region of a page.
    #[inline(always)]
    pub(super) fn region_of(&self, pfn: Pfn) -> u32 {
        if self.others == 0 {
            0
        } else {
            (pfn.0 >> self.region_order) - self.begin
        }
    }

    /// Lists of a region; those of the first one for a number that is none's.
    #[inline(always)]
    pub(super) fn grid(&self, region: u32) -> &Grid {
        match region.checked_sub(1) {
            Some(at) if at < self.others => {
                // SAFETY: `by_region` reserved `others` grids, and `at` is below that.
                let grid = unsafe { self.more.add(at as usize) };
                // SAFETY: a grid of zeros is an empty one (M2); it is only changed through `&mut self`.
                unsafe { grid.as_ref() }
            }
            _ => &self.first,
        }
    }

    #[inline(always)]
    pub(super) fn grid_mut(&mut self, region: u32) -> &mut Grid {
        match region.checked_sub(1) {
            Some(at) if at < self.others => {
                // SAFETY: `by_region` reserved `others` grids, and `at` is below that.
                let mut grid = unsafe { self.more.add(at as usize) };
                // SAFETY: as in `grid`; `&mut self` is borrowed for as long as the result.
                unsafe { grid.as_mut() }
            }
            _ => &mut self.first,
        }
    }

    /// All regions' lists.
    pub(super) fn grids(&self) -> impl Iterator<Item = &Grid> {
        (0..self.regions()).map(|region| self.grid(region))
    }

    /// Blocks of an order and type.
    pub(super) fn len(&self, order: u32, of: BlockType) -> u32 {
        self.grids().map(|grid| grid.list(order, of).len()).sum()
    }

    /// The first block of an order and type, of the first region that has one.
    #[inline(always)]
    pub(super) fn first(&self, order: u32, of: BlockType) -> Option<Pfn> {
        if self.others == 0 {
            return self.first.list(order, of).first();
        }
        self.grids().find_map(|grid| grid.list(order, of).first())
    }
}
