//! Giving blocks back to the zone: which lists, and how much under one hold of its lock.

use super::{Pageset, Pcp, Tuning};
use crate::machine::Machine;
use crate::page::types::Pfn;

/// Blocks that a drain takes off a list before it gives them to the zone.
const FREED_TOGETHER: usize = 64;

impl Pcp {
    /// Gives at least `pages` pages back to the zone, oldest first, as far as there are any and one
    /// hold of the zone lock moves so many, and returns the number of blocks. Nothing happens if the
    /// zone lock is re-entered: the lists then stay longer until the next free.
    ///
    /// The lists take turns; one that comes after empty ones gives theirs as well.
    pub(crate) fn drain<M: Machine>(&mut self, at: &Pageset<'_, M>, pages: u32) -> u64 {
        let Some(mut area) = at.zone.lock(at.machine, at.map) else {
            return 0;
        };
        self.spill(at);
        let lists = usize::from(at.zone.rules.lists);
        let target = self.pages.saturating_sub(pages.min(at.hold()));
        let mut popped = [Pfn(0); FREED_TOGETHER];
        let (mut turn, mut quota, mut blocks) = (0, 1, 0);
        while self.pages > target {
            let order = u32::from(at.zone.rules.order_of[turn]);
            let list = &mut self.lists[turn].blocks;
            turn = (turn + 1) % lists;
            if list.is_empty() {
                quota = (quota + 1).min(lists as u32);
                continue;
            }
            // The only list with pages gives all of them.
            let mut left = if quota == lists as u32 {
                u32::MAX
            } else {
                quota
            };
            quota = 1;
            while left > 0 && self.pages > target {
                let wanted = (self.pages - target).div_ceil(1 << order).min(left);
                let popped =
                    list.pop_back_many(at.machine, at.map, order, &mut popped, wanted as usize);
                if popped.is_empty() {
                    break;
                }
                area.free_all(at.machine, at.map, popped, order);
                let gone = popped.len() as u32;
                self.pages -= gone << order;
                blocks += u64::from(gone);
                left -= gone;
            }
        }
        blocks
    }

    /// Gives so many pages back, with holds of so many each at most. Returns the number of blocks.
    pub(super) fn drain_by<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        hold: u32,
        pages: u32,
    ) -> u64 {
        let target = self.pages.saturating_sub(pages);
        let mut blocks = 0;
        while self.pages > target {
            match self.drain(at, hold.min(self.pages - target)) {
                0 => break,
                more => blocks += more,
            }
        }
        blocks
    }

    /// Gives all pages back; with as many holds of the zone lock as the era takes for it.
    pub(crate) fn flush<M: Machine>(&mut self, at: &Pageset<'_, M>) {
        let hold = match at.zone.rules.tuning {
            Tuning::Batch | Tuning::FreeFactor => self.pages,
            Tuning::Auto => at.tuned_most(),
        };
        self.drain_by(at, hold, self.pages);
    }
}
