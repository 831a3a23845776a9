//! Giving blocks back to the zone: which lists, and how much under one hold of its lock.

use super::{Pageset, Pcp};
use crate::machine::Machine;
use crate::page::types::Pfn;
use crate::page::zone::AreaGuard;

/// Blocks that a drain takes off a list before it gives them to the zone.
const FREED_TOGETHER: usize = 64;

impl Pcp {
    /// Gives `pages` pages back to the zone, oldest first, but no more than one hold of the zone lock moves.
    /// The last block may exceed them. Returns the number of blocks. Does nothing if the zone lock is
    /// re-entered: the lists then stay longer until the next free.
    ///
    /// `from` is the list of the block that was freed last, 0 if none was.
    fn drain<M: Machine>(&mut self, at: &Pageset<'_, M>, from: u8, pages: u32) -> u64 {
        let Some(mut area) = at.zone.lock(at.map) else {
            return 0;
        };
        self.spill(at);
        let target = self.pages.saturating_sub(pages.min(at.hold()));
        if at.zone.rules.drains_from_freed() {
            self.drain_from(at, &mut area, from, target)
        } else {
            self.drain_in_turn(at, &mut area, target)
        }
    }

    /// Empties one list after the other, beginning with `from`, until `target` pages are left.
    fn drain_from<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        area: &mut AreaGuard<'_, M>,
        from: u8,
        target: u32,
    ) -> u64 {
        let (lists, from) = (usize::from(at.zone.rules.lists), usize::from(from));
        let round = (0..lists).map(|next| (from + next) % lists);
        round
            .map(|list| self.drain_list(at, area, list, u32::MAX, target))
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
        area: &mut AreaGuard<'_, M>,
        target: u32,
    ) -> u64 {
        let lists = usize::from(at.zone.rules.lists);
        let (mut turn, mut quota, mut blocks) = (0, 0, 0);
        while self.pages > target {
            turn = (turn + 1) % lists;
            quota += 1;
            if self.lists[turn].blocks.is_empty() {
                continue;
            }
            let gone = self.drain_list(at, area, turn, quota, target);
            quota -= gone;
            blocks += u64::from(gone);
        }
        blocks
    }

    /// Gives up to `most` of a list's blocks back, oldest first, until `target` pages are left. Returns
    /// the number of blocks.
    fn drain_list<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        area: &mut AreaGuard<'_, M>,
        list: usize,
        most: u32,
        target: u32,
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
            area.free_all(at.map, popped, order);
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
