//! Bulk calls: one for n pages is as n single ones.

use super::{Pool, World};
use crate::prelude::*;

impl World<'_> {
    /// Allocates pages into the empty slots of an array, and checks each as a single allocation.
    pub(super) fn alloc_bulk(
        &mut self,
        at: usize,
        cpu: CpuId,
        count: usize,
        holes: usize,
    ) -> Check {
        let taken = Pfn(u32::MAX);
        let hole = |slot: usize| slot % holes == holes - 1;
        let mut slots: Vec<_> = (0..count).map(|slot| hole(slot).then_some(taken)).collect();
        let site = CallSite::code(0x1000 + at as u64);
        let before = self.pools[at].handle.stats();
        let filled = self.pools[at].owner.alloc_bulk_at(&mut slots, site);
        let first_empty = slots.iter().position(Option::is_none);
        ensure_eq!(filled, first_empty.unwrap_or(count), "the first empty slot");
        let got: Vec<Pfn> = (slots.iter().enumerate())
            .filter(|&(slot, _)| !hole(slot))
            .map_while(|(_, page)| *page)
            .collect();
        let after = self.pools[at].handle.stats();
        let allocs = after.allocs() - before.allocs();
        ensure_eq!(allocs, got.len() as u64, "allocations counted");
        self.expect_run(at, cpu, &got, filled < count)?;
        let whole = &mut self.pools[at].expected.whole;
        whole.extend(got.iter().map(|&pfn| (pfn, cpu)));
        Ok(())
    }

    /// Checks pages that one call allocated, each as by a single allocation; whether memory was
    /// exhausted before the last.
    pub(super) fn expect_run(
        &mut self,
        at: usize,
        cpu: CpuId,
        got: &[Pfn],
        exhausted: bool,
    ) -> Check {
        let left = self.pools[at].handle.stats().pages_cached as usize;
        for &pfn in got {
            if !self.expect_alloc(at, cpu) {
                self.take_cached(at, pfn)?;
                continue;
            }
            ensure!(!self.known(pfn), "{pfn:?} has an owner");
            let single = self.era < Era::V6_1 || self.pools[at].shape.order > 0;
            let exact = self.exact();
            let Pool {
                expected, shape, ..
            } = &mut self.pools[at];
            let (high_order, slow) = if shape.order > 0 { (1, 0) } else { (0, 1) };
            expected.stats.slow_high_order += high_order;
            expected.stats.slow += slow;
            expected.unseen = match (exact, single) {
                (true, true) => 0,
                (true, false) => REFILL_PAGES - 1,
                // The call was for one page then.
                (false, _) => left,
            };
        }
        if exhausted {
            self.expect_fill(at, cpu);
            let cached = self.pools[at].expected.cached_count();
            ensure_eq!(cached, 0, "pages were at hand");
        }
        Ok(())
    }

    /// Puts pages of one pool from an array with empty slots, a page that is there twice, and pages
    /// of others.
    pub(super) fn put_bulk(&mut self, at: usize, pfns: &[Pfn], by_owner: bool) -> Check {
        let plain = self.plain.first().map(|&(pfn, _)| pfn);
        let foreign = Pfn(u32::MAX);
        let mut slots: Vec<_> = pfns.iter().flat_map(|&pfn| [Some(pfn), None]).collect();
        let wrong = [Some(foreign), plain, pfns.first().copied()];
        slots.extend(wrong);
        for &pfn in pfns {
            self.pools[at].expected.whole.remove(&pfn);
            self.expect_put(at, pfn, by_owner);
        }
        let pool = &mut self.pools[at];
        let put = if by_owner {
            pool.owner.lone_put_bulk(&mut slots)
        } else {
            pool.handle.lone_put_bulk(&mut slots)
        };
        ensure_eq!(put, Err(PoolError::Foreign(foreign)), "the first mistake");
        let (good, bad) = slots.split_at(2 * pfns.len());
        ensure!(good.iter().all(Option::is_none), "{good:?} were not put");
        ensure_eq!(bad, wrong.as_slice(), "slots of pages that were refused");
        Ok(())
    }
}
