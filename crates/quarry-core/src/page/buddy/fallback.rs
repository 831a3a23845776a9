//! Blocks for a request whose own type has none free, by release.
//!
//! A request *claims* a pageblock when it moves the free blocks around the one that it found to its own type.
//! The pageblock moves with them if enough of it is free. Else the request takes one block alone. It may claim if the
//! block is at least half a pageblock's order, or if the request is reclaimable, from 4.1 on unmovable.
//!
//! | from | block | claim | else |
//! |---|---|---|---|
//! | 2.6.24 | the largest | the type changes if half of the pageblock is free | what is left of the block stays with its type; from 4.1 on it goes to the request's |
//! | 3.13 to 3.17 | | what is left goes to the old type unless the pageblock changed its own | |
//! | 4.12 | | blocks in use that suit the request count as free ones | |
//! | 4.13 | | the request takes the smallest block of what was claimed | a movable request takes the smallest block |
//! | 6.10 | | all, if the type changes, or nothing | what is left of the block stays with its type |
//! | 6.15 | the largest that can be claimed | | the smallest block |
//!
//! From 6.15 on a refill that got a block without a claim gets its other blocks in the same way. It does not
//! ask whether the pageblock of the next one can be claimed.
//!
//! A request may also ask for nothing but whole pageblocks ([`Mixing::WholeBlocks`], from 5.0 on).
//!
//! # Departure from the kernel
//!
//! From 4.12 on kernels know movable blocks in use by their contents. A machine that does not track contents
//! ([`PageConfig::tracks_contents`](crate::page::PageConfig::tracks_contents)) takes an allocated block for its
//! pageblock's type. Slabs, pools and pages on per-CPU lists count as unmovable.

use core::ops::Range;

use super::{FreeArea, Mixing, Taken, Wanted};
use crate::era::Era;
use crate::machine::Machine;
use crate::page::memmap::{MapOn, MemMap};
use crate::page::types::{BlockType, MAX_ORDER, MIGRATE_TYPES, MigrateType, PageKind, Pfn};

/// Types in which a request looks that finds none of its own, first to last (facts 7.1).
pub(super) const FALLBACKS: [[MigrateType; 2]; MIGRATE_TYPES] = [
    [MigrateType::Reclaimable, MigrateType::Movable],
    [MigrateType::Reclaimable, MigrateType::Unmovable],
    [MigrateType::Unmovable, MigrateType::Movable],
];

impl FreeArea {
    /// A block for a request whose type has none: another type's, or one of those that the type has claimed.
    pub(super) fn take_foreign<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        wanted: &Wanted,
    ) -> Option<Taken> {
        let whole = map.blocks().order();
        let least = match wanted.mixing {
            Mixing::Steals => return self.steal(map, wanted),
            Mixing::Allowed => wanted.order,
            Mixing::WholeBlocks => wanted.order.max(whole),
        };
        let (era, new) = (self.era, wanted.migratetype);
        // The largest block first: claiming a whole pageblock keeps later requests of the type out of other
        // pageblocks, so mixing stays rare. A small block would be mixed in at once.
        for order in (least..=self.max_order).rev() {
            let Some((pfn, old)) = self.foreign(order, new) else {
                continue;
            };
            // No smaller block can be claimed either: the order only falls from here on.
            if !self.may_claim(order, whole / 2, new) {
                if era >= Era::V4_13 {
                    break;
                }
                let rest = if era >= Era::V4_1 { new.into() } else { old };
                return Some(self.take_block(map, (pfn, order, old), rest));
            }
            if !self.claim(map, (pfn, order), new) {
                if era >= Era::V6_15 {
                    continue;
                }
                return Some(self.take_block(map, (pfn, order, old), old));
            }
            // The claimed blocks are on the own lists now, and the smallest that fits leaves the larger ones
            // whole.
            if era >= Era::V4_13 {
                return self.take_own(map, wanted);
            }
            let rest = if (Era::V3_13..Era::V3_18).contains(&era) {
                map.blocks().block_type(pfn)
            } else {
                new.into()
            };
            return Some(self.take_block(map, (pfn, order, new.into()), rest));
        }
        match wanted.mixing {
            Mixing::WholeBlocks => None,
            _ => self.steal(map, wanted),
        }
    }

    /// The smallest block of another type, and nothing but it.
    fn steal<M: Machine>(&mut self, map: MapOn<'_, M>, wanted: &Wanted) -> Option<Taken> {
        let new = wanted.migratetype;
        let mut smallest_first = wanted.order..=MAX_ORDER;
        let (order, (pfn, old)) =
            smallest_first.find_map(|order| Some((order, self.foreign(order, new)?)))?;
        let rest = if self.era >= Era::V6_10 {
            old
        } else {
            new.into()
        };
        Some(self.take_block(map, (pfn, order, old), rest))
    }

    /// The first block of an order in the lists where a type looks, and its list's type.
    fn foreign(&mut self, order: u32, wanted: MigrateType) -> Option<(Pfn, BlockType)> {
        let mut others = FALLBACKS[wanted as usize].into_iter().map(BlockType::from);
        others.find_map(|other| {
            self.looks += 1;
            Some((self.first(order, other)?, other))
        })
    }

    /// True if a request may claim the pageblock of a block of this order.
    fn may_claim(&self, order: u32, half_a_block: u32, wanted: MigrateType) -> bool {
        let by_type = match wanted {
            MigrateType::Reclaimable => true,
            MigrateType::Unmovable => self.era >= Era::V4_1,
            MigrateType::Movable => false,
        };
        by_type || order >= half_a_block
    }

    /// Takes a block off its list; what is not wanted of it becomes the type `rest`.
    fn take_block<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        (pfn, order, listed): (Pfn, u32, BlockType),
        rest: BlockType,
    ) -> Taken {
        self.remove(map, pfn, order, listed);
        Taken {
            pfn,
            order,
            rest,
            stolen: true,
        }
    }

    /// Moves the free blocks around a free block to the wanted type, and the pageblock itself if enough of it
    /// suits. Returns true if the blocks moved.
    fn claim<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        (pfn, order): (Pfn, u32),
        wanted: MigrateType,
    ) -> bool {
        let whole = map.blocks().order();
        if order >= whole {
            for block in (pfn.0..pfn.0 + (1 << order)).step_by(1 << whole) {
                self.retag(&map, Pfn(block), wanted.into());
            }
            self.move_to(map, pfn, wanted.into());
            return true;
        }
        let suits = self.suits(&map, pfn, wanted);
        if self.era >= Era::V6_10 && !suits {
            return false;
        }
        if suits {
            self.retag(&map, pfn, wanted.into());
        }
        self.move_block(map, pfn, wanted.into());
        true
    }

    /// True if half of a page's pageblock suits a type: the pageblock may become of it.
    fn suits(&self, map: &MemMap, pfn: Pfn, wanted: MigrateType) -> bool {
        let (block, order) = (self.block_around(map, pfn), map.blocks().order());
        self.suiting_pages(map, block, wanted) >= (1 << order) / 2
    }

    /// The pages of a page's pageblock that have been handed out or are on a list.
    pub(super) fn block_around(&self, map: &MemMap, pfn: Pfn) -> Range<u32> {
        let whole = 1 << map.blocks().order();
        let start = pfn.0 & !(whole - 1);
        start..(start + whole).min(self.frontier())
    }

    /// Moves the free blocks of a page's pageblock to lists of another type.
    pub(super) fn move_block<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, to: BlockType) {
        for (pfn, kind, _) in blocks_in(*map.map, self.block_around(&map, pfn)) {
            if kind == PageKind::Buddy {
                self.move_to(map, pfn, to);
            }
        }
    }

    /// Counts a block that was taken from another type: whether its pageblock is still the other's.
    pub(super) fn note_foreign(&mut self, map: &MemMap, taken: &Taken, wanted: MigrateType) {
        self.extfrag += 1;
        let of = map.blocks().block_type(taken.pfn);
        if of == MigrateType::Movable && wanted != MigrateType::Movable {
            let region = self.lists.region_of(taken.pfn);
            self.lists.grid_mut(region).mixed += 1;
        }
    }

    /// Pages of a pageblock that are free or, from 4.12 on, suit the wanted type.
    fn suiting_pages(&self, map: &MemMap, block: Range<u32>, wanted: MigrateType) -> u32 {
        let old = map.blocks().block_type(Pfn(block.start));
        let (counts, contents) = (self.era >= Era::V4_12, map.contents());
        let for_movable = wanted == MigrateType::Movable;
        // Of a movable pageblock what is not movable suits the others; movable blocks suit a movable request.
        let pinned_suits = counts && old == MigrateType::Movable && !for_movable;
        let movable_suits = counts && for_movable && contents.is_tracked();
        let suits = |pfn, kind| match kind {
            PageKind::Buddy => true,
            PageKind::Allocated if contents.is_movable(pfn) => movable_suits,
            PageKind::Allocated => pinned_suits && contents.is_tracked(),
            _ => pinned_suits,
        };
        let blocks = blocks_in(*map, block).filter(|&(pfn, kind, _)| suits(pfn, kind));
        blocks.map(|(_, _, order)| 1 << order).sum()
    }

    /// Puts a free block on another type's list.
    fn move_to<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, to: BlockType) {
        let page = map.page(pfn);
        let (order, from) = (page.order(), page.listed_as());
        self.remove(map, pfn, order, from);
        self.put(map, pfn, order, to);
    }

    /// Changes the type of a page's pageblock.
    pub(super) fn retag(&mut self, map: &MemMap, pfn: Pfn, to: BlockType) {
        let from = map.blocks().block_type(pfn);
        if from == to {
            return;
        }
        map.blocks().retag(pfn, to);
        self.retagged += 1;
        let region = self.lists.region_of(pfn);
        let pinned = &mut self.lists.grid_mut(region).pinned_blocks;
        *pinned += u32::from(from == MigrateType::Movable);
        *pinned = pinned.saturating_sub(u32::from(to == MigrateType::Movable));
    }
}

/// The blocks of a pageblock, free or in use: first page, kind, order.
fn blocks_in(map: MemMap, pages: Range<u32>) -> impl Iterator<Item = (Pfn, PageKind, u32)> {
    let mut at = pages.start;
    core::iter::from_fn(move || {
        let pfn = (at < pages.end).then_some(Pfn(at))?;
        let (kind, order, _) = map.page(pfn).seen();
        at += 1 << order;
        Some((pfn, kind, order))
    })
}
