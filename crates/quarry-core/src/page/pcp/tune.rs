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
        // What a refill brings will come back as frees. Unless memory is short they get room in advance, or
        // the drain they cause would return the very pages.
        if !at.zone.is_below_high() {
            high = high.saturating_add(wanted).min(at.zone.limits.high_max());
        }
        self.high = high;
        if order > 0 {
            return batch;
        }
        // A batch of room stays for frees. The factor doubles only if the larger refill would have fitted: a list
        // that is full by its limit must not ask for more each time.
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
        // From 6.7 on it takes two larger frees in a row: a single one between single pages says nothing
        // about who frees.
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
        // Too few pages to be worth a hold of the zone lock; the spree goes on counting.
        if self.pages < at.zone.rules.spree_kept(at.zone.limits.batch()) {
            return None;
        }
        self.high = self.high(at.zone).saturating_sub(most).max(least);
        Some(self.pages.min(most))
    }

    /// Drains the lists if they hold too much, and tunes `high` (facts 7.3); `from` is the list of the block
    /// that was freed last. Returns true if they were.
    #[cold]
    pub(crate) fn overflow<M: Machine>(&mut self, at: &Pageset<'_, M>, from: u8) -> bool {
        let batch = at.zone.limits.batch();
        // The first call after a change of the limits learns `high`, and mostly drains nothing: callers compare
        // with a `high` of 0 until then.
        self.high = self.high(at.zone);
        // Before the comparison: while memory is short, `tune` lowers the limit to what the lists hold, so that
        // each free gives pages back instead of waiting until the lists have grown to the old `high`.
        let limit = match at.zone.rules.tuning {
            Tuning::Batch | Tuning::FreeFactor => self.high,
            Tuning::Auto => self.tune(at, batch),
        };
        if self.pages < limit {
            return false;
        }
        // A batch stays, for the next allocations. Without it lists at a low limit would be refilled after
        // each drain.
        let most = limit.saturating_sub(batch);
        let pages = match at.zone.rules.tuning {
            Tuning::Batch => batch,
            Tuning::FreeFactor => {
                // Doubled for as long as frees come without an allocation in between, which halves `spree`
                // (`Pcp::pop`): a process that exits needs fewer holds of the zone lock.
                let wanted = u64::from(batch) << self.spree.min(u32::BITS);
                if wanted < u64::from(most) {
                    self.spree += 1;
                }
                wanted.min(most.into()) as u32
            }
            // What was freed since the last allocations: those pages are the ones without a user here.
            Tuning::Auto => self.spree.min(most),
        };
        self.drain_freed(at, from, pages.max(batch));
        true
    }

    /// Moves `high`, and returns the page count at which the lists are too long this time.
    fn tune<M: Machine>(&mut self, at: &Pageset<'_, M>, batch: u32) -> u32 {
        let (least, most) = (at.zone.limits.high_min(), at.zone.limits.high_max());
        let high = self.high;
        // A sysctl has set `high`, which is not tuned then.
        if least == most {
            return high;
        }
        // Rare: memory is short. `high` falls by the spree, which will not come back soon, and the lists are
        // too long at whatever they hold.
        if at.zone.is_below_high() {
            self.high = high.saturating_sub(self.spree.max(batch)).max(least);
            return self.pages.max(least);
        }
        // Common: a spree has filled the lists. The next one of its length is to fit, so `high` grows to hold it.
        // The old `high` is returned all the same. Growth and drain come together, or a stream of frees that
        // no allocation answers would grow the lists up to `most` before any page went back.
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
            // By an eighth each interval, or faster if more is held than one drain moves: an idle CPU keeps
            // no more than its least after some dozen intervals.
            if high > least {
                let kept = self.pages.saturating_sub(at.tuned_most());
                self.high = kept.max(high - high / 8).max(least);
            }
            excess = self.pages.saturating_sub(self.high);
        }
        // Lists of a remote zone serve this CPU's rare requests for that node. Idle, they keep pages from the
        // node's own CPUs.
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
