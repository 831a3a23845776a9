//! Giving blocks back to the zone: which lists, and how much under one hold of its lock.
//!
//! Blocks are picked off their lists under the zone lock, and each is merged as it comes. From 4.17 to 5.17
//! all of a drain are picked before the lock is taken, and the buddies of the first batch are prefetched.

use super::stack::BlockStack;
use super::{Pageset, Pcp};
use crate::machine::Machine;
use crate::page::memmap::MapOn;
use crate::page::types::Pfn;

/// Blocks that a drain takes off a list before it gives them to the zone.
const FREED_TOGETHER: usize = 64;

impl Pcp {
    /// Gives `pages` pages back to the zone, oldest first, but no more than one hold of the zone lock moves.
    /// The last block may exceed them. Returns the number of blocks. Does nothing if the zone lock is
    /// re-entered: the lists then stay longer until the next free.
    ///
    /// `from` is the list of the block that was freed last, 0 if none was.
    fn drain<M: Machine>(&mut self, at: &Pageset<'_, M>, from: u8, pages: u32) -> u64 {
        if at.zone.rules.picks_unlocked() {
            return self.drain_picked(at, pages);
        }
        let Some(mut area) = at.zone.lock(at.map) else {
            return 0;
        };
        self.spill(at);
        let target = self.pages.saturating_sub(pages.min(at.hold()));
        let free = |blocks: &[Pfn], order| area.free_all(at.map, blocks, order, true);
        if at.zone.rules.drains_from_freed() {
            self.drain_from(at, from, target, free)
        } else {
            self.drain_in_turn(at, target, free)
        }
    }

    /// [`Pcp::drain`] of releases that pick the blocks before they take the zone lock. If that is re-entered, its
    /// next holder frees them.
    fn drain_picked<M: Machine>(&mut self, at: &Pageset<'_, M>, pages: u32) -> u64 {
        self.spill(at);
        let target = self.pages.saturating_sub(pages.min(at.hold()));
        let mut picked = BlockStack::EMPTY;
        let mut prefetches = at.zone.limits.batch();
        let blocks = self.drain_in_turn(at, target, |blocks, order| {
            let behind = blocks.iter().skip(1).map(|&pfn| Some(pfn)).chain([None]);
            for (&pfn, behind) in blocks.iter().zip(behind) {
                at.map.unlink(pfn, behind);
                if prefetches > 0 {
                    at.map.fetch_early(Pfn(pfn.0 ^ (1 << order)));
                    prefetches -= 1;
                }
                picked.push_back(&at.map, pfn);
            }
        });
        let Some(mut area) = at.zone.lock(at.map) else {
            while let Some(pfn) = picked.pop_front(&at.map) {
                at.zone.defer(&at.map, pfn);
            }
            return blocks;
        };
        let mut room = [Pfn(0); FREED_TOGETHER];
        loop {
            let (together, order) = pop_alike(&mut picked, at.map, &mut room);
            if together.is_empty() {
                return blocks;
            }
            area.free_all(at.map, together, order, false);
        }
    }

    /// Empties one list after the other, beginning with `from`, until `target` pages are left.
    fn drain_from<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        from: u8,
        target: u32,
        mut take: impl FnMut(&[Pfn], u32),
    ) -> u64 {
        let (lists, from) = (usize::from(at.zone.rules.lists), usize::from(from));
        let round = (0..lists).map(|next| (from + next) % lists);
        round
            .map(|list| self.drain_list(at, list, u32::MAX, target, &mut take))
            .map(u64::from)
            .sum()
    }

    /// Takes blocks from the lists in turn, until `target` pages are left: from the second list on, and
    /// one more from a list for each list that was empty before it. What a list cannot give of that, the
    /// next one gives as well. (Since 2.6.39 the only list that has blocks gives all of them at once, which
    /// are the same.)
    fn drain_in_turn<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        target: u32,
        mut take: impl FnMut(&[Pfn], u32),
    ) -> u64 {
        let lists = usize::from(at.zone.rules.lists);
        let (mut turn, mut quota, mut blocks) = (0, 0, 0);
        while self.pages > target {
            turn = (turn + 1) % lists;
            quota += 1;
            if self.lists[turn].blocks.is_empty() {
                continue;
            }
            let gone = self.drain_list(at, turn, quota, target, &mut take);
            quota -= gone;
            blocks += u64::from(gone);
        }
        blocks
    }

    /// Takes up to `most` of a list's blocks off it, oldest first, until `target` pages are left, and passes them
    /// on with their order. Returns the number of blocks.
    fn drain_list<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        list: usize,
        most: u32,
        target: u32,
        take: &mut impl FnMut(&[Pfn], u32),
    ) -> u32 {
        let order = u32::from(at.zone.rules.order_of[list]);
        let list = &mut self.lists[list].blocks;
        let mut room = [Pfn(0); FREED_TOGETHER];
        let mut gone = 0;
        while gone < most && self.pages > target {
            let wanted = (self.pages - target).div_ceil(1 << order).min(most - gone);
            let popped = list.pop_back_many(at.map, order, &mut room, wanted as usize);
            if popped.is_empty() {
                break;
            }
            take(popped, order);
            self.pages -= (popped.len() as u32) << order;
            gone += popped.len() as u32;
        }
        gone
    }

    /// Gives `pages` pages back, at most `hold` under each hold of the zone lock. Returns the number of
    /// holds and of blocks.
    fn drain_by<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        from: u8,
        hold: u32,
        pages: u32,
    ) -> [u64; 2] {
        let target = self.pages.saturating_sub(pages);
        let (mut holds, mut blocks) = (0, 0);
        while self.pages > target {
            match self.drain(at, from, hold.min(self.pages - target)) {
                0 => break,
                more => blocks += more,
            }
            holds += 1;
        }
        [holds, blocks]
    }

    /// Gives pages back because a free brought too many, a block of the list `from`: where one hold of the
    /// zone lock moves less than all of them in this process, no more than one.
    pub(super) fn drain_freed<M: Machine>(&mut self, at: &Pageset<'_, M>, from: u8, pages: u32) {
        let hold = at.zone.rules.drain_hold(at.zone.limits.batch());
        let [holds, blocks] = self.drain_by(at, from, hold, pages.min(at.hold()));
        self.drains += holds;
        self.drained += blocks;
    }

    /// Gives pages back because time has passed.
    pub(super) fn drain_idle<M: Machine>(&mut self, at: &Pageset<'_, M>, pages: u32) {
        let hold = at.zone.rules.drain_hold(at.zone.limits.batch());
        let [holds, blocks] = self.drain_by(at, 0, hold, pages);
        self.drains += holds;
        self.drained += blocks;
        self.decays += holds;
        self.decayed += blocks;
    }

    /// Gives all pages back; with as many holds of the zone lock as the release takes for it.
    pub(crate) fn flush<M: Machine>(&mut self, at: &Pageset<'_, M>) {
        let hold = at.zone.rules.flush_hold(at.zone.limits.batch());
        self.drain_by(at, 0, hold, self.pages);
    }
}

/// Takes the first blocks of a list, as many as have one order, into `room`.
fn pop_alike<'a, M: Machine>(
    list: &mut BlockStack,
    map: MapOn<'_, M>,
    room: &'a mut [Pfn],
) -> (&'a [Pfn], u32) {
    let order = |pfn| map.page(pfn).order();
    let alike = list.first().map_or(0, order);
    let mut popped = 0;
    for place in room.iter_mut() {
        if list.first().is_none_or(|pfn| order(pfn) != alike) {
            break;
        }
        let Some(pfn) = list.pop_front(&map) else {
            break;
        };
        *place = pfn;
        popped += 1;
    }
    (&room[..popped], alike)
}
