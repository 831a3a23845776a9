//! Batches: pages that are taken and given back together.

use super::World;
use crate::prelude::*;
use quarry_core::pool::BATCH_PAGES;

impl World<'_> {
    /// Adds pages to a pool's batch, and checks each as a single allocation.
    pub(super) fn fill_batch(&mut self, at: usize, cpu: CpuId, count: usize) -> Check {
        let pool = &mut self.pools[at];
        let before = pool.batch.len();
        let site = CallSite::code(0x3000 + at as u64);
        let got = pool.owner.fill_batch_at(&mut pool.batch, count, site);
        let after = pool.batch.len();
        ensure_eq!(got, Ok(after - before), "pages added to {before}");
        if before == 0 {
            pool.batch_cpu = cpu;
        }
        // The model must not know them before they are checked.
        let pages = pool.batch.pages()[before..].to_vec();
        let batch = std::mem::replace(&mut pool.batch, pool.handle.batch());
        let wanted = count.min(BATCH_PAGES - before);
        let checked = self.expect_run(at, cpu, &pages, after - before < wanted);
        self.pools[at].batch = batch;
        checked
    }

    /// Puts a pool's batch; another pool refuses it.
    pub(super) fn put_batch(&mut self, at: usize, by_owner: bool) -> Check {
        let pages = self.pools[at].batch.pages().to_vec();
        let other = (at + 1) % self.pools.len();
        if other != at && !pages.is_empty() {
            let empty = self.pools[at].handle.batch();
            let mut batch = std::mem::replace(&mut self.pools[at].batch, empty);
            let refused = self.pools[other].owner.put_batch(&mut batch);
            ensure_eq!(refused.is_err(), true, "another pool's batch");
            let refused = self.pools[other].handle.put_batch(&mut batch);
            ensure_eq!(refused.is_err(), true, "another pool's batch, by its ring");
            ensure_eq!(batch.pages(), pages, "what was refused");
            self.pools[at].batch = batch;
        }
        let pool = &mut self.pools[at];
        let put = if by_owner {
            pool.owner.put_batch(&mut pool.batch)
        } else {
            pool.handle.put_batch(&mut pool.batch)
        };
        ensure_eq!(put, Ok(()), "a put of {} pages", pages.len());
        ensure_eq!(pool.batch.len(), 0, "pages left");
        // The owner's stack takes the pages that would go out first.
        let room = CACHE_PAGES - pool.expected.cached_count();
        let kept = if by_owner { pages.len().min(room) } else { 0 };
        let (rest, direct) = pages.split_at(pages.len() - kept);
        for &pfn in direct.iter().chain(rest) {
            self.expect_put(at, pfn, by_owner);
        }
        Ok(())
    }

    /// Takes pages out of a pool's batch: they are in flight each by itself.
    pub(super) fn pop_batch(&mut self, at: usize, count: usize) -> Check {
        let pool = &mut self.pools[at];
        for _ in 0..count {
            let last = pool.batch.pages().last().copied();
            let popped = pool.batch.pop();
            ensure_eq!(popped, last, "the last page");
            let Some(pfn) = popped else { break };
            let state = pool.handle.state_of(pfn);
            ensure_eq!(state, PoolState::InFlight, "the state of {pfn:?}");
            pool.expected.whole.insert(pfn, pool.batch_cpu);
        }
        Ok(())
    }
}
