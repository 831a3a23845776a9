//! Looking at a cache from outside: usage, live objects, consistency.

use core::ptr::NonNull;

use super::owners::{Mark, Owners};
use super::slab::HeapPage;
use super::types::{Lists, Shared, Slob};
use crate::design::{Busy, CacheHead, CheckError, Env, Show, SlabInconsistency, Upkeep, Usage};
use crate::machine::{Machine, PerCpu};
use crate::page::{PageAllocator, PageKind, Pfn};
use crate::rest::Rest;
use crate::slabs::slabs_of;
use crate::stats::Stats;
use crate::sync::Ordering;

type Check = Result<(), SlabInconsistency>;

impl Show for Slob {
    fn stats<M: Machine>(&self, env: Env<'_, M>) -> Stats {
        env.cache.shared_stats.snapshot()
    }

    /// Objects in use, and the pages of those that have their own. Heap pages belong to no cache:
    /// they are only in the heap's sum of slab pages.
    fn usage<M: Machine>(&self, _: Env<'_, M>) -> Usage {
        let objects = self.live.load(Ordering::Relaxed);
        let mut usage = Usage {
            num_objs: objects,
            active_objs: objects,
            shared_bytes: self.block_bytes.load(Ordering::Relaxed),
            ..Usage::default()
        };
        for (order, runs) in self.runs.iter().enumerate() {
            let runs = runs.load(Ordering::Relaxed);
            usage.slabs_by_order[order] = runs;
            usage.slabs += runs;
            usage.pages += runs << order;
        }
        usage.active_slabs = usage.slabs;
        usage
    }

    fn at_rest<M: Machine, R>(&self, env: Env<'_, M>, f: impl FnOnce() -> R) -> Result<R, Busy> {
        let no_slots = PerCpu::<()>::absent();
        let _rest = Rest::of(env, &no_slots)?;
        Ok(f())
    }

    fn live_objects<M: Machine>(
        &self,
        env: Env<'_, M>,
        from: usize,
        flush: bool,
        found: &mut dyn FnMut(NonNull<u8>) -> bool,
    ) -> Result<(), Busy> {
        if flush {
            self.flush(env);
        }
        let no_slots = PerCpu::<()>::absent();
        let _rest = Rest::of(env, &no_slots)?;
        let lists = self.shared().lists.lock(env.machine()).ok_or(Busy)?;
        let map = env.map();
        let mut more = true;
        for pfn in slabs_of(env, |_| true) {
            let mine = map.owner(pfn) == env.cache.id();
            if mine && map.address(pfn).addr().get() >= from {
                more = more && found(map.address(pfn));
            }
            self.blocks_of(env, pfn, &mut |object| {
                if object.addr().get() >= from {
                    more = more && found(object);
                }
            });
            if !more {
                break;
            }
        }
        drop(lists);
        Ok(())
    }

    fn check_consistency<M: Machine>(&self, env: Env<'_, M>) -> Result<(), CheckError> {
        self.flush(env);
        let no_slots = PerCpu::<()>::absent();
        let rest = Rest::of(env, &no_slots)?;
        let shared = self.shared();
        let lists = shared.lists.lock(env.machine());
        let lists = lists.ok_or(CheckError::Busy)?;
        let listed = shared.check_lists(env, &lists);
        let checked = listed.and_then(|listed| self.check_pages(env, listed));
        rest.verdict(checked.map_err(CheckError::from))
    }
}

impl Slob {
    /// The objects of this cache on a heap page.
    fn blocks_of<M: Machine>(&self, env: Env<'_, M>, pfn: Pfn, found: &mut dyn FnMut(NonNull<u8>)) {
        let heap = env.map().owner(pfn).is_null();
        let owners = heap.then(|| Owners::of(env.pages(), pfn)).flatten();
        for (offset, mark) in owners.into_iter().flat_map(Owners::objects) {
            if mark.id() == self.id && !mark.is_deferred() {
                let first = env.map().address(pfn);
                // SAFETY: the table has entries for words of the page.
                found(unsafe { first.byte_add(offset as usize) });
            }
        }
    }

    fn check_pages<M: Machine>(&self, env: Env<'_, M>, listed: u64) -> Check {
        let map = env.map();
        let (mut objects, mut bytes, mut marked) = (0, 0, 0);
        for pfn in slabs_of(env, |_| true) {
            let cache = map.owner(pfn);
            if !cache.is_null() {
                objects += u64::from(cache == env.cache.id());
                continue;
            }
            marked += u64::from(map.page(pfn).on_list());
            let (more, more_bytes) = self.check_page(env, pfn)?;
            objects += more;
            bytes += more_bytes;
        }
        let equal = SlabInconsistency::equal;
        equal("pages marked as listed", None, listed, marked)?;
        let live = self.live.load(Ordering::Relaxed);
        equal("objects of the cache", None, live, objects)?;
        let recorded = self.block_bytes.load(Ordering::Relaxed);
        equal("bytes of the cache's blocks", None, recorded, bytes)
    }

    /// Blocks and free blocks of a heap page: they are end to end. Returns how many objects of this
    /// cache there are, and the bytes of their blocks.
    fn check_page<M: Machine>(
        &self,
        env: Env<'_, M>,
        pfn: Pfn,
    ) -> Result<(u64, u64), SlabInconsistency> {
        let equal = |what, recorded: u32, found: u32| {
            SlabInconsistency::equal(what, Some(pfn), recorded.into(), found.into())
        };
        let shared = self.shared();
        let page = HeapPage::new(env, pfn);
        let state = page.state();
        let on_list = u32::from(page.page().on_list());
        equal(
            "page with free units listed",
            on_list,
            u32::from(state.units > 0),
        )?;
        let mut objects = Owners::of(env.pages(), pfn)
            .into_iter()
            .flat_map(Owners::objects);
        let (mut at, mut free, mut free_units) = (0, state.first, 0);
        let mut mine = (0, 0);
        if state.units == 0 {
            free = page.total();
        }
        let mut behind_free = false;
        while at < page.total() {
            if at == free {
                let Some((size, next)) = page.read(at) else {
                    equal("free block overwritten at unit", at, page.total())?;
                    break;
                };
                let merged = !(behind_free && shared.era.merge_before_first);
                equal("free neighbours merged", 1, u32::from(merged))?;
                (at, free, free_units) = (at + size, next, free_units + size);
                behind_free = true;
                continue;
            }
            behind_free = false;
            let Some((offset, mark)) = objects.next() else {
                equal("block or free block at unit", at, page.total())?;
                break;
            };
            let first = env.map().address(pfn);
            // SAFETY: the table has entries for words of the page.
            let object = unsafe { first.byte_add(offset as usize) };
            let Some(block) = shared.registry.block_of(env.pages(), object, mark) else {
                equal("header overwritten at byte", offset, page.total())?;
                break;
            };
            equal("start of a block", at, page.at(offset - block.lead))?;
            at += page.units(block.bytes);
            if mark.id() == self.id && !mark.is_deferred() {
                mine = (mine.0 + 1, mine.1 + u64::from(block.bytes));
            }
        }
        equal("end of the last block", page.total(), at)?;
        equal("free units", state.units, free_units)?;
        equal("objects behind the last", 0, objects.count() as u32)?;
        equal(
            "page without objects kept",
            0,
            u32::from(state.units == page.total()),
        )?;
        Ok(mine)
    }
}

impl Shared {
    /// Pages on the lists.
    fn check_lists<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &Lists,
    ) -> Result<u64, SlabInconsistency> {
        let equal = SlabInconsistency::equal;
        let map = env.map();
        let mut listed = 0;
        for (number, list) in lists.pages.iter().enumerate() {
            let mut len = 0;
            for pfn in list.iter(map) {
                let page = map.page(pfn);
                let mark = u64::from(page.on_list());
                equal("listed page's mark", Some(pfn), mark, 1)?;
                let heap = page.kind() == PageKind::Slab;
                equal("listed page in use", Some(pfn), u64::from(heap), 1)?;
                let recorded = HeapPage::new(env, pfn).state().list as u64;
                equal("listed page's list", Some(pfn), recorded, number as u64)?;
                len += 1;
            }
            equal("length of a page list", None, u64::from(list.len()), len)?;
            listed += len;
        }
        Ok(listed)
    }

    /// The cache whose object an address is in, on a heap page.
    pub(super) fn owner_of<M: Machine>(
        &self,
        pages: &PageAllocator<M>,
        address: NonNull<u8>,
    ) -> Option<NonNull<CacheHead>> {
        let map = pages.map();
        let pfn = map.pfn_of(address)?;
        let page = map.page(pfn);
        let heap = page.kind() == PageKind::Slab && map.owner(pfn).is_null();
        let owners = heap.then(|| Owners::of(pages, pfn)).flatten()?;
        let at = address.addr().get() as u32 & ((1 << map.page_shift()) - 1);
        let (offset, mark) = owners.object_before(at)?;
        if mark == Mark::NONE || mark.is_deferred() {
            return None;
        }
        // SAFETY: the table has entries for words of the page.
        let object = unsafe { map.address(pfn).byte_add(offset as usize) };
        let block = self.registry.block_of(pages, object, mark)?;
        let inside = at - offset < block.bytes - block.lead;
        inside.then(|| self.registry.get(mark.id())).flatten()
    }
}
