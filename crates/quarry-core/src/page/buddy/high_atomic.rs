//! Pageblocks reserved for requests of several pages that cannot wait (`MIGRATE_HIGHATOMIC`, from 4.4 on).
//!
//! A request of this kind that got its block below the low watermark reserves the pageblock around it. Only such
//! requests take blocks out of it, once their own lists have none, until all reserves are released because another
//! request found no memory.
//!
//! Requests with `__GFP_NOMEMALLOC` are none of this kind. Guests confirm limit and choice (`docs/pages.md`).
//!
//! Its limit by release is in `zone/watermark.rs`, with what the checks of other requests leave out: all reserved
//! pages, from 6.12 on the free ones among them.

use super::{FreeArea, Machine};
use crate::era::Era;
use crate::page::memmap::{MapOn, MemMap};
use crate::page::types::{BlockType, MAX_ORDER, MigrateType, Pfn};

impl FreeArea {
    /// Pages that the watermark checks of all but such requests leave out.
    pub(crate) fn kept_for_atomic(&self) -> u64 {
        match self.era >= Era::V6_12 {
            true => self.free_reserved,
            false => self.reserved_pages,
        }
    }

    /// True if one of two neighbouring pageblocks is reserved and the other is not: from 5.18 on they do not merge
    /// ("avoid merging non-fallbackable pageblocks with others", Z. Yan, Mar 2022).
    pub(super) fn stays_apart(&self, map: &MemMap, a: Pfn, b: Pfn) -> bool {
        let [a, b] = [a, b].map(|pfn| map.blocks().block_type(pfn) == BlockType::HIGH_ATOMIC);
        self.era >= Era::V5_18 && a != b
    }

    /// The least order of free buddies that may both be on lists, pageblocks of this order given.
    pub(crate) fn unmerged_from(&self, block_order: u32) -> u32 {
        match self.kept_apart {
            true => block_order,
            false => self.max_order,
        }
    }

    /// Reserves the pageblock of a block that a request which cannot wait just got, up to `most` pages of the zone.
    pub(crate) fn reserve<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, most: u64) {
        let of = map.blocks().block_type(pfn);
        if self.reserved_pages >= most || of == BlockType::HIGH_ATOMIC {
            return;
        }
        self.reserved_pages += 1 << map.blocks().order();
        self.retag(&map, pfn, BlockType::HIGH_ATOMIC);
        self.move_block(map, pfn, BlockType::HIGH_ATOMIC);
    }

    /// Gives a reserved pageblock that has a free block to requests of a type. Returns whether there was one.
    pub(crate) fn unreserve<M: Machine>(&mut self, map: MapOn<'_, M>, to: MigrateType) -> bool {
        let mut smallest_first = 0..=MAX_ORDER;
        let Some(pfn) = smallest_first.find_map(|order| self.first(order, BlockType::HIGH_ATOMIC))
        else {
            return false;
        };
        let pages = 1 << map.blocks().order();
        self.reserved_pages = self.reserved_pages.saturating_sub(pages);
        self.retag(&map, pfn, to.into());
        self.move_block(map, pfn, to.into());
        true
    }
}
