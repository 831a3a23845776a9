//! Allocation: the alloc cache, the ring, the page allocator.

use super::PoolOwner;
use super::map::Mapper;
use super::stats::{count, count_by};
use super::types::{PoolState, REFILL_PAGES, StateWord};
use crate::debug::CallSite;
use crate::machine::{Access, Line, Machine, NodeId, touch};
use crate::page::{PageKind, Pfn};
use crate::sync::{AtomicU64, Ordering};

impl<M: Machine, H: Mapper> PoolOwner<'_, M, H> {
    /// Allocates a block of the pool's order, whose pages hold whatever they held before. `None`
    /// when memory is exhausted.
    #[inline(always)]
    #[track_caller]
    pub fn alloc(&mut self) -> Option<Pfn> {
        self.alloc_at(CallSite::caller())
    }

    /// [`PoolOwner::alloc`] for the given call site, which the report of pages in flight names.
    #[inline]
    pub fn alloc_at(&mut self, site: CallSite) -> Option<Pfn> {
        self.alloc_as(site, PoolState::InFlight)
    }

    #[inline(always)]
    pub(super) fn alloc_as(&mut self, site: CallSite, state: PoolState) -> Option<Pfn> {
        let site = self.site_number(site);
        let owner = &self.pool.body().owner;
        self.touch_cache();
        match owner.pop() {
            Some(pfn) if self.hand_out(pfn, site, state) => Some(pfn),
            _ => self.alloc_slow(site, state),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, site: u32, state: PoolState) -> Option<Pfn> {
        let owner = &self.pool.body().owner;
        let mut way = None;
        loop {
            // Below a stale entry there may be good ones.
            while let Some(pfn) = owner.pop() {
                if self.hand_out(pfn, site, state) {
                    way.map(count);
                    return Some(pfn);
                }
            }
            way = Some(self.fill()?);
        }
    }

    /// Hands a page of the alloc cache out. `false` if it is not there: its entry is one of two
    /// that puts of the same moment made, and the page went with the other (I3).
    #[inline(always)]
    fn hand_out(&self, pfn: Pfn, site: u32, state: PoolState) -> bool {
        let machine = self.pool.pages.machine();
        let page = self.pool.pages.map().page(pfn);
        let body = self.pool.body();
        touch(machine, Line::PageDescriptor, Access::Write, pfn.0 as usize);
        if !StateWord::of(page).is(PoolState::Cached) || !body.owns(page) {
            count(&body.owner.stats.stale);
            return false;
        }
        StateWord::new(state, site, machine.current_cpu()).store(page);
        page.set_stamp(count(&body.owner.clock));
        true
    }

    /// Number of a call site in the pool's table. Mostly it is the last one's.
    #[inline(always)]
    pub(super) fn site_number(&mut self, site: CallSite) -> u32 {
        if self.last_site.0 != site {
            self.change_site(site);
        }
        self.last_site.1
    }

    #[cold]
    #[inline(never)]
    fn change_site(&mut self, site: CallSite) {
        self.last_site = (site, self.pool.body().sites.number(site));
    }

    /// Fills the empty alloc cache with at least one page, and returns what counts the way it took.
    fn fill(&self) -> Option<&AtomicU64> {
        let body = self.pool.body();
        let stats = &body.owner.stats;
        let node = body.node.unwrap_or_else(|| self.running_node());
        if self.refill(node) {
            return Some(&stats.refill);
        }
        if body.order > 0 {
            let pfn = self.pool.pages.alloc(body.order, Some(node))?;
            return self.adopt(pfn).then_some(&stats.slow_high_order);
        }
        let mut slots = [None; REFILL_PAGES];
        let slots = &mut slots[..body.rules.bulk as usize];
        self.pool.pages.alloc_bulk(Some(node), slots);
        // The first page is handed out first, as it comes from the page allocator.
        let got = slots.iter().rev().flatten();
        let adopted = got.filter(|&&pfn| self.adopt(pfn)).count();
        (adopted > 0).then_some(&stats.slow)
    }

    fn running_node(&self) -> NodeId {
        let machine = self.pool.pages.machine();
        machine.topology().node_of(machine.current_cpu())
    }

    /// Moves pages from the ring to the alloc cache as long as they are on the node.
    fn refill(&self, node: NodeId) -> bool {
        let body = self.pool.body();
        let machine = self.pool.pages.machine();
        let owner = &body.owner;
        let mut moved = 0;
        let taken = body.ring.take(machine, &owner.head, REFILL_PAGES, |pfn| {
            let page = self.pool.pages.map().page(pfn);
            touch(machine, Line::PageDescriptor, Access::Write, pfn.0 as usize);
            if !StateWord::of(page).is(PoolState::Ring) || !body.owns(page) {
                count(&owner.stats.stale);
                return true;
            }
            if self.pool.pages.node_of(pfn) != node {
                count(&owner.stats.waive);
                self.pool.raw().release_from(pfn, PoolState::Ring);
                return false;
            }
            owner.push(pfn, || StateWord::in_pool(PoolState::Cached).store(page));
            moved += 1;
            true
        });
        count_by(&owner.consumed, taken as u64);
        if taken == 0 {
            count(&owner.stats.empty);
        }
        moved > 0
    }

    /// Makes a block of the page allocator the pool's and puts it into the alloc cache. `false`, and
    /// it goes back, if it cannot be mapped.
    fn adopt(&self, pfn: Pfn) -> bool {
        let body = self.pool.body();
        let pages = self.pool.pages;
        let page = pages.map().page(pfn);
        if H::MAPS {
            let bytes = body.block_bytes as usize;
            let Some(mapping) = body.mapper.map(pages.map().address(pfn), bytes) else {
                let freed = pages.free(pfn, body.order);
                debug_assert!(freed.is_ok(), "{freed:?}");
                return false;
            };
            page.private.store(mapping, Ordering::Relaxed);
        }
        page.cache.store(body.id(), Ordering::Relaxed);
        page.set_kind(PageKind::Pool, body.order);
        body.alive.fetch_add(1, Ordering::Relaxed);
        let ready = || StateWord::in_pool(PoolState::Cached).store(page);
        let pushed = body.owner.push(pfn, ready);
        debug_assert!(pushed, "only an empty alloc cache is filled");
        true
    }

    #[inline(always)]
    pub(super) fn touch_cache(&self) {
        let pool = &self.pool;
        touch(
            pool.pages.machine(),
            Line::PoolCache,
            Access::Write,
            pool.body().id().addr(),
        );
    }
}
