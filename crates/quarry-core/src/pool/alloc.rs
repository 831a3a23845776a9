//! Allocation: the alloc cache, the lanes and the ring, the page allocator.
//!
//! A pop is `alloc`, `alloc_as` and four steps: `receipt` names call site and CPU, `pop` takes the newest entry
//! of the alloc cache, `find_home` checks its page, `hand_out` writes the receipt and the new state. All other
//! functions here are for an empty alloc cache, or for many pages.

use core::cell::Cell;

use super::cache::Stack;
use super::lanes::page_of;
use super::map::Mapper;
use super::pieces::OPEN;
use super::rules::REFILL_PAGES;
use super::stats::{count, count_by};
use super::types::{PoolState, Receipt};
use super::{PoolOwner, RawPool};
use crate::debug::CallSite;
use crate::machine::{Access, Line, Machine, NodeId, access};
use crate::page::{MapOn, Page, PageKind, Pfn};
use crate::sync::{AtomicU64, Ordering};

impl<M: Machine, H: Mapper> PoolOwner<'_, M, H> {
    /// Allocates a block of the pool's order, whose pages hold whatever they held before. `None`
    /// when memory is exhausted.
    #[inline(always)]
    #[track_caller]
    pub fn alloc(&mut self) -> Option<Pfn> {
        self.alloc_as(CallSite::caller(), PoolState::InFlight)
    }

    /// [`PoolOwner::alloc`] for the given call site, which the report of pages in flight names.
    #[inline]
    pub fn alloc_at(&mut self, site: CallSite) -> Option<Pfn> {
        self.alloc_as(site, PoolState::InFlight)
    }

    #[inline(always)]
    pub(super) fn alloc_as(&mut self, site: CallSite, state: PoolState) -> Option<Pfn> {
        let receipt = self.receipt(site);
        self.touch_cache();
        let raw = self.pool.raw();
        // Mostly the alloc cache has a page: it is refilled by 64. And the page is home unless puts broke their
        // contract.
        if let Some(pfn) = self.pop() {
            if let Some(page) = raw.find_home(raw.pages.map_on(), pfn) {
                raw.hand_out(page, receipt.stamped(raw.tick()), state);
                return Some(pfn);
            }
            raw.count_stale();
        }
        // Split failure off here, or callers would look again at what the short way has found.
        let pfn = self.alloc_slow(receipt, state)?;
        Some(pfn)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&mut self, receipt: Receipt, state: PoolState) -> Option<Pfn> {
        let raw = self.pool.raw();
        let mut way: Option<&AtomicU64> = None;
        loop {
            // Below a stale entry there may be good ones.
            while let Some(pfn) = self.pop() {
                if let Some(page) = raw.find_home(raw.pages.map_on(), pfn) {
                    raw.hand_out(page, receipt.stamped(raw.tick()), state);
                    way.map(count);
                    return Some(pfn);
                }
                raw.count_stale();
            }
            way = Some(self.fill(&raw)?);
            self.prefetch_cached();
        }
    }

    /// The descriptors of the pages in the alloc cache were last written where they were put.
    fn prefetch_cached(&mut self) {
        let pages = self.pool.pages;
        let stack = self.cache.open(&self.pool.body().owner.cached);
        for &pfn in stack.pages().iter().rev() {
            pages.map_on().prefetch(pfn);
        }
    }

    /// Fills the n empty slots of an array with blocks of the pool's order, as n allocations
    /// would. Slots that are filled already are skipped. Returns the number of filled slots before
    /// the first empty one: less than the array's length if memory is exhausted.
    #[inline]
    #[track_caller]
    pub fn alloc_bulk(&mut self, slots: &mut [Option<Pfn>]) -> usize {
        self.alloc_bulk_at(slots, CallSite::caller())
    }

    /// [`PoolOwner::alloc_bulk`] for the given call site.
    pub fn alloc_bulk_at(&mut self, slots: &mut [Option<Pfn>], site: CallSite) -> usize {
        self.alloc_bulk_as(slots, site, Option::is_none, |slot, pfn| *slot = Some(pfn))
    }

    /// [`PoolOwner::alloc_bulk_at`] for slots of any type: `fill` puts a page into a slot that
    /// `is_empty`, and that then is not.
    #[inline]
    pub fn alloc_bulk_as<S>(
        &mut self,
        slots: &mut [S],
        site: CallSite,
        is_empty: impl Fn(&S) -> bool,
        fill: impl Fn(&mut S, Pfn),
    ) -> usize {
        let receipt = self.receipt(site);
        let raw = self.pool.raw();
        self.touch_cache();
        let mut rest = slots.iter_mut();
        self.alloc_run(&mut rest, receipt, &is_empty, &fill);
        while rest.len() > 0 {
            let Some(way) = self.fill(&raw) else { break };
            self.prefetch_cached();
            let before = rest.len();
            self.alloc_run(&mut rest, receipt, &is_empty, &fill);
            // The first slot was empty, so a page has been handed out if any slot is done.
            if rest.len() < before {
                count(way);
            }
        }
        let left = rest.len();
        slots.len() - left
    }

    /// Fills empty slots until the alloc cache is empty; the iterator then begins with the first slot left
    /// empty.
    #[inline(always)]
    fn alloc_run<S>(
        &mut self,
        slots: &mut core::slice::IterMut<'_, S>,
        receipt: Receipt,
        is_empty: &impl Fn(&S) -> bool,
        fill: &impl Fn(&mut S, Pfn),
    ) {
        let raw = self.pool.raw();
        let owner = &raw.body().owner;
        // A copy, or it would be loaded again for each page.
        let own = *raw.pages.map();
        let map = own.on(raw.pages.machine());
        let mut stack = self.cache.open(&owner.cached);
        let clock = owner.clock.load(Ordering::Relaxed);
        let mut receipt = receipt.stamped(clock + 1);
        let mut handed_out = 0;
        while let Some(slot) = slots.as_slice().first() {
            if !is_empty(slot) {
                slots.next();
                continue;
            }
            let Some(pfn) = stack.pop() else { break };
            let Some(page) = raw.find_home(map, pfn) else {
                raw.count_stale();
                continue;
            };
            raw.hand_out(page, receipt, PoolState::InFlight);
            receipt = receipt.next();
            handed_out += 1;
            if let Some(slot) = slots.next() {
                fill(slot, pfn);
            }
        }
        count_by(&owner.clock, handed_out);
    }

    /// Takes the newest page out of the alloc cache.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Pfn> {
        self.cache.open(&self.pool.body().owner.cached).pop()
    }

    /// Receipt for the descriptors of pages handed out to a call site now.
    #[inline(always)]
    pub(super) fn receipt(&mut self, site: CallSite) -> Receipt {
        // Mostly the call site is the last one.
        if self.last_site.0 != site {
            self.change_site(site);
        }
        let cpu = self.pool.pages.machine().current_cpu();
        self.last_site.1.on(cpu)
    }

    #[cold]
    #[inline(never)]
    fn change_site(&mut self, site: CallSite) {
        let number = self.pool.body().sites.number(site);
        self.last_site = (site, Receipt::new(number));
    }

    /// Fills the empty alloc cache with at least one page, and returns what counts the way it took.
    pub(super) fn fill<'b>(&mut self, raw: &'b RawPool<'_, M, H>) -> Option<&'b AtomicU64> {
        let body = raw.body();
        let stats = &body.owner.stats;
        let running = || self.pool.pages.machine().current_node();
        let node = body.node.unwrap_or_else(running);
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

    /// Moves pages from the lanes and the ring to the alloc cache as long as they are on the node.
    fn refill(&mut self, node: NodeId) -> bool {
        let raw = self.pool.raw();
        let owner = &raw.body().owner;
        let machine = raw.pages.machine();
        let one_node = machine.topology().nodes == 1;
        let mut stack = self.cache.open(&owner.cached);
        // Released in the end: the mapper may panic, and the entries must have been taken by then.
        let waived = Cell::new(None);
        let keep = |stack: &mut Stack<'_>, pfn| {
            if one_node || raw.pages.node_of_page(pfn) == node {
                let pushed = stack.push(pfn);
                debug_assert!(pushed, "only an empty alloc cache is filled");
                return true;
            }
            waived.set(Some(pfn));
            false
        };
        // Lanes first: where there are any, most pages come home there, and reading one writes no line that
        // producers write.
        let lanes = &raw.body().lanes;
        let most = raw.body().rules.refill as usize;
        let mut taken = lanes.take::<M>(&mut self.turn, most, |run| {
            if one_node {
                return stack.push_all(run.iter().map(page_of));
            }
            if waived.get().is_some() {
                return 0;
            }
            let far = run
                .iter()
                .position(|entry| !keep(&mut stack, page_of(entry)));
            far.map_or(run.len(), |far| far + 1)
        });
        if taken < most && waived.get().is_none() {
            let rest = most - taken;
            taken += raw
                .body()
                .ring
                .take(machine, rest, |pfn| keep(&mut stack, pfn));
        }
        drop(stack);
        if taken == 0 {
            count(&owner.stats.empty);
            return false;
        }
        let moved = taken as u64 - u64::from(waived.get().is_some());
        count_by(&owner.filled, moved);
        if let Some(pfn) = waived.get() {
            count(&owner.stats.waive);
            raw.release_home(pfn);
        }
        moved > 0
    }

    /// Makes a block of the page allocator the pool's and puts it into the alloc cache. `false`, and
    /// it goes back, if it cannot be mapped.
    fn adopt(&mut self, pfn: Pfn) -> bool {
        let body = self.pool.body();
        let pages = self.pool.pages;
        let page = pages.map().page(pfn);
        // Before the mapper sees it: from here on no free by number accepts it. `Owned` and not yet `Pool`, so
        // that a block that cannot be mapped goes back by its handle.
        if !page.claim_as(PageKind::Owned, body.order) {
            return false;
        }
        if H::MAPS {
            let bytes = body.block_bytes as usize;
            let Some(mapping) = body.mapper.map(pages.map().address(pfn), bytes) else {
                drop(pages.owned(pfn, body.order));
                return false;
            };
            page.private.store(mapping, Ordering::Relaxed);
        }
        page.set_kind(PageKind::Pool, body.order);
        body.alive.fetch_add(1, Ordering::Relaxed);
        body.set_state(page, PoolState::InPool);
        count(&body.owner.filled);
        let pushed = self.cache.open(&body.owner.cached).push(pfn);
        debug_assert!(pushed, "only an empty alloc cache is filled");
        true
    }

    #[inline(always)]
    pub(super) fn touch_cache(&self) {
        let pool = &self.pool;
        let body = pool.body().id().cast::<[u8; 64]>();
        access(pool.pages.machine(), Line::PoolCache, Access::Write, body);
    }
}

impl<M: Machine, H: Mapper> RawPool<'_, M, H> {
    /// The descriptor of a page that was taken out of the alloc cache. `None` if it is not home: its
    /// entry is one of two that puts of the same moment made, and the page went with the other (I3).
    #[inline(always)]
    fn find_home<'m>(self, map: MapOn<'m, M>, pfn: Pfn) -> Option<&'m Page> {
        let page = map.page_to_write(pfn);
        self.body()
            .is_marked(page, PoolState::InPool)
            .then_some(page)
    }

    /// Counts an allocation, and returns the count.
    #[inline(always)]
    fn tick(self) -> u64 {
        count(&self.body().owner.clock)
    }

    /// Hands a page out. The state is stored last in program order, but nothing depends on that: the page's user
    /// gets the page through the caller, which orders both stores before any put.
    #[inline(always)]
    fn hand_out(self, page: &Page, receipt: Receipt, state: PoolState) {
        if state == PoolState::InPieces {
            page.set_stamp(receipt.0);
            page.word.store(OPEN, Ordering::Relaxed);
        } else {
            page.word.store(receipt.0, Ordering::Relaxed);
        }
        self.body().set_state(page, state);
    }

    /// Counts an entry of the alloc cache that was dropped.
    #[cold]
    #[inline(never)]
    fn count_stale(self) {
        let owner = &self.body().owner;
        count(&owner.stats.stale);
        count(&owner.dropped);
    }
}
