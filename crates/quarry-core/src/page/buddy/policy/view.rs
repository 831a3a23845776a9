//! A zone as a policy sees it: its free lists, region by region.

use core::cell::Cell;
use core::ops::Range;

use super::Request;
use crate::page::buddy::FreeArea;
use crate::page::buddy::lists::Grid;
use crate::page::memmap::MemMap;
use crate::page::types::{BlockType, MAX_ORDER, MigrateType, PageKind, Pfn};

/// A free block on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlock {
    /// Its first page.
    pub pfn: Pfn,
    /// log2 of its pages.
    pub order: u32,
    /// Type of its list.
    pub of: BlockType,
}

/// A zone's free lists. Every list that is asked for its first block counts as looked at.
pub struct ZoneView<'a> {
    area: &'a FreeArea,
    map: &'a MemMap,
    looks: Cell<u32>,
}

impl<'a> ZoneView<'a> {
    pub(super) fn new(area: &'a FreeArea, map: &'a MemMap) -> Self {
        Self {
            area,
            map,
            looks: Cell::new(0),
        }
    }

    /// Lists that were looked at.
    pub(super) fn looks(&self) -> u32 {
        self.looks.get()
    }

    fn grid(&self, region: u32) -> &'a Grid {
        self.area.lists.grid(region)
    }

    /// The regions that have lists of their own, by number.
    #[must_use]
    pub fn regions(&self) -> Range<u32> {
        0..self.area.lists.regions()
    }

    /// log2 of the pages of a pageblock.
    #[must_use]
    pub fn block_order(&self) -> u32 {
        self.map.blocks().order()
    }

    /// Free pages on a region's lists.
    #[must_use]
    pub fn free_pages(&self, region: u32) -> u64 {
        self.grid(region).free_pages
    }

    /// Free blocks of a region that are at least a pageblock, in pageblocks.
    #[must_use]
    pub fn free_pageblocks(&self, region: u32) -> u64 {
        let whole = self.block_order();
        let of = |order| {
            let lists = BlockType::all().map(move |of| self.grid(region).list(order, of));
            lists.map(move |list| u64::from(list.len()) << (order - whole))
        };
        (whole..=MAX_ORDER).flat_map(of).sum()
    }

    /// True if a region has a pageblock that is not movable, or blocks of movable ones were once taken for what is
    /// not movable.
    #[must_use]
    pub fn is_spoiled(&self, region: u32) -> bool {
        let grid = self.grid(region);
        grid.pinned_blocks > 0 || grid.mixed > 0
    }

    /// The block that a list begins with.
    #[must_use]
    pub fn first(&self, region: u32, order: u32, of: impl Into<BlockType>) -> Option<FreeBlock> {
        self.looks.set(self.looks.get() + 1);
        let of = of.into();
        let pfn = self.grid(region).list(order, of).first()?;
        Some(FreeBlock { pfn, order, of })
    }

    /// The smallest block of a region and type that is large enough for a request.
    #[must_use]
    pub fn smallest(
        &self,
        region: u32,
        request: &Request,
        of: impl Into<BlockType>,
    ) -> Option<FreeBlock> {
        let of = of.into();
        (request.order..=MAX_ORDER).find_map(|order| self.first(region, order, of))
    }

    /// The largest block of a region and type that is large enough for a request.
    #[must_use]
    pub fn largest(
        &self,
        region: u32,
        request: &Request,
        of: impl Into<BlockType>,
    ) -> Option<FreeBlock> {
        let of = of.into();
        (request.order..=MAX_ORDER)
            .rev()
            .find_map(|order| self.first(region, order, of))
    }

    /// The types in which a request looks that finds none of its own, first to last.
    #[must_use]
    pub fn others(&self, of: MigrateType) -> [MigrateType; 2] {
        super::super::fallback::FALLBACKS[of as usize]
    }
}

impl FreeArea {
    /// The smallest free block that is large enough for a request, among those of its type in a pageblock.
    pub(super) fn smallest_around(
        &self,
        map: &MemMap,
        pfn: Pfn,
        request: &Request,
    ) -> Option<FreeBlock> {
        let of = BlockType::from(request.migratetype);
        let region = self.lists.region_of(pfn);
        let block = self.block_around(map, pfn);
        let listed = |order| {
            let list = self.lists.grid(region).list(order, of).iter(map);
            list.take(1 << (MAX_ORDER + 1 - request.order.min(MAX_ORDER)))
                .find(|pfn| {
                    block.contains(&pfn.0)
                        || pfn.0 <= block.start && block.start < pfn.0 + (1 << order)
                })
        };
        (request.order..=MAX_ORDER).find_map(|order| {
            let pfn = listed(order)?;
            debug_assert!(map.page(pfn).is_block(PageKind::Buddy, order));
            Some(FreeBlock { pfn, order, of })
        })
    }
}
