//! Tunings of the eras: the size of a refill, and the length at which lists are drained (facts 7.3).

use super::{Pageset, Pcp};
use crate::machine::Machine;
use crate::page::rules::Tuning;

/// Largest order whose frees may end a spree: 3, as the lists of huge pages are left out
/// (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: u32 = 3;
/// Statistics intervals without use after which a remote zone's lists give a batch back.
const REMOTE_IDLE: u8 = 3;

impl Pcp {
    /// Blocks that a refill brings (facts 7.3).
    pub(super) fn refill_blocks<M: Machine>(&mut self, at: &Pageset<'_, M>, order: u32) -> u32 {
        let batch = at.zone.limits.batch();
        let pages = match at.zone.rules.tuning {
            Tuning::Batch | Tuning::FreeFactor => batch,
            Tuning::Auto => self.refill_pages(at, order, batch),
        };
        let pages = pages.min(at.hold());
        if pages > 1 {
            (pages >> order).max(2)
        } else {
            1
        }
    }

    fn refill_pages<M: Machine>(&mut self, at: &Pageset<'_, M>, order: u32, batch: u32) -> u32 {
        let wanted = match order {
            0 => batch << self.alloc_factor,
            _ => batch,
        };
        let mut high = self.high(at.zone);
        if !at.zone.is_below_high() {
            high = high.saturating_add(wanted).min(at.zone.limits.high_max());
        }
        self.high = high;
        if order > 0 {
            return batch;
        }
        let room = high.saturating_sub(self.pages).saturating_sub(batch);
        let room = room.max(batch);
        if wanted <= room && u32::from(self.alloc_factor) < at.zone.rules.batch_scale_max {
            self.alloc_factor += 1;
        }
        wanted.min(room)
    }

    /// Pages that are to go because blocks of more than a page are being freed one after the
    /// other, whatever `high` is.
    #[inline(always)]
    pub(super) fn ends_spree<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        order: u32,
    ) -> Option<u32> {
        if order == 0 || order > COSTLY_ORDER {
            self.high_order_before = false;
            return None;
        }
        let before = core::mem::replace(&mut self.high_order_before, true);
        let rules = &at.zone.rules;
        match rules.tuning {
            Tuning::Batch => None,
            Tuning::FreeFactor => {
                (rules.larger_frees_empty() && self.spree > 0).then_some(self.pages)
            }
            Tuning::Auto if before && self.spree >= at.zone.limits.spree_least() => {
                self.end_spree(at)
            }
            Tuning::Auto => None,
        }
    }

    /// Pages that are to go because a spree of larger frees is long enough, if the lists hold enough.
    #[cold]
    fn end_spree<M: Machine>(&mut self, at: &Pageset<'_, M>) -> Option<u32> {
        let (most, least) = (at.tuned_most(), at.zone.limits.high_min());
        if self.pages < at.zone.rules.spree_kept(at.zone.limits.batch()) {
            return None;
        }
        self.high = self.high(at.zone).saturating_sub(most).max(least);
        Some(self.pages.min(most))
    }

    /// Drains the lists if they hold too much, and tunes `high` (facts 7.3); `from` is the list of the block
    /// that was freed last. Whether they were.
    #[cold]
    pub(crate) fn overflow<M: Machine>(&mut self, at: &Pageset<'_, M>, from: u8) -> bool {
        let batch = at.zone.limits.batch();
        self.high = self.high(at.zone);
        let limit = match at.zone.rules.tuning {
            Tuning::Batch | Tuning::FreeFactor => self.high,
            Tuning::Auto => self.tune(at, batch),
        };
        if self.pages < limit {
            return false;
        }
        let most = limit.saturating_sub(batch);
        let pages = match at.zone.rules.tuning {
            Tuning::Batch => batch,
            Tuning::FreeFactor => {
                let wanted = u64::from(batch) << self.spree.min(u32::BITS);
                if wanted < u64::from(most) {
                    self.spree += 1;
                }
                wanted.min(most.into()) as u32
            }
            Tuning::Auto => self.spree.min(most),
        };
        self.drain_freed(at, from, pages.max(batch));
        true
    }

    /// Moves `high` and gives the pages at which the lists are too long this time.
    fn tune<M: Machine>(&mut self, at: &Pageset<'_, M>, batch: u32) -> u32 {
        let (least, most) = (at.zone.limits.high_min(), at.zone.limits.high_max());
        let high = self.high;
        if least == most {
            return high;
        }
        if at.zone.is_below_high() {
            self.high = high.saturating_sub(self.spree.max(batch)).max(least);
            return self.pages.max(least);
        }
        if self.pages >= high {
            self.high = high.max((self.spree + batch).max(least).min(most));
        }
        high
    }

    /// Periodic work of a CPU, once in each statistics interval: `high` decays, and idle lists of a remote zone
    /// give pages back.
    pub(crate) fn interval<M: Machine>(&mut self, at: &Pageset<'_, M>, remote: bool) {
        let mut excess = 0;
        let batch = at.zone.limits.batch();
        if at.zone.rules.tuning == Tuning::Auto && !self.is_untouched() {
            let (high, least) = (self.high(at.zone), at.zone.limits.high_min());
            self.high = high;
            if high > least {
                let kept = self.pages.saturating_sub(at.tuned_most());
                self.high = kept.max(high - high / 8).max(least);
            }
            excess = self.pages.saturating_sub(self.high);
        }
        let used = self.uses();
        if !remote || used != self.seen || self.pages == 0 {
            self.expire = REMOTE_IDLE;
        } else {
            self.expire = self.expire.saturating_sub(1);
            if self.expire == 0 {
                self.expire = REMOTE_IDLE;
                excess = excess.max(batch.min(self.pages));
            }
        }
        self.seen = used;
        if excess > 0 {
            self.drain_idle(at, excess);
        }
    }
}
