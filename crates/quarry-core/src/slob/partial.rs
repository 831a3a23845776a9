//! The page lists: taking a block from the first page that has one, and the lock around them.

use super::owners::{Mark, Owners};
use super::slab::{HeapPage, give_pages_back, take_pages};
use super::types::{Lists, Request, Shared};
use crate::design::{Env, FreeError};
use crate::machine::{Access, Line, Machine, NodeId, access};
use crate::page::{PageKind, PageList, Pfn};
use crate::sync::Ordering;

impl Shared {
    /// Does something with the lock held, deferred frees done before it. Pages that become entirely
    /// free go to the list that `f` gets, and from there back to the page allocator once the lock is
    /// dropped. `None` if the lock is re-entered.
    pub(super) fn with_lists<M: Machine, R>(
        &self,
        env: Env<'_, M>,
        f: impl FnOnce(&mut Lists, &mut PageList) -> R,
    ) -> Option<R> {
        let machine = env.machine();
        let mut empty = PageList::EMPTY;
        let mut lists = self.lists.lock(machine)?;
        if self.has_deferred() {
            self.settle_deferred(env, &mut lists, &mut empty);
        }
        let result = f(&mut lists, &mut empty);
        drop(lists);
        while let Some(pfn) = empty.pop_front(env.call_links()) {
            give_pages_back(env, pfn, PageKind::Slab);
        }
        Some(result)
    }

    /// Takes a block for an object with this mark. Returns the page and where in it the object is,
    /// in bytes, behind the block's header. `None` when memory is exhausted or the lock re-entered.
    pub(super) fn take_block<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        request: &Request,
        mark: Mark,
    ) -> Option<(Pfn, u32)> {
        let list = self.era.list_of(request.bytes);
        let found = self.with_lists(env, |lists, _| {
            let found = self.take_listed(env, &mut lists.pages[list], node, request);
            found.inspect(|&(pfn, offset)| Self::mark(env, pfn, offset, mark))
        })?;
        if found.is_some() {
            return found;
        }
        // Without the lock, which is the only one of all caches. Another CPU may free blocks meanwhile; the new page is
        // used nevertheless, as in the kernel, since the request has waited for it.
        let pfn = Self::new_page(env, node, list)?;
        let taken = self.with_lists(env, |lists, _| {
            let page = HeapPage::new(env, pfn);
            let offset = page.take(request)? + request.lead;
            Self::mark(env, pfn, offset, mark);
            if page.state().units > 0 {
                page.page().set_on_list(true);
                lists.pages[list].push_front(env.links(), pfn);
            }
            Some(offset)
        });
        match taken.flatten() {
            Some(offset) => Some((pfn, offset)),
            None => {
                give_pages_back(env, pfn, PageKind::Slab);
                None
            }
        }
    }

    fn mark<M: Machine>(env: Env<'_, M>, pfn: Pfn, offset: u32, mark: Mark) {
        if let Some(owners) = Owners::of(env.pages(), pfn) {
            owners.set(offset, mark);
        }
    }

    /// Next fit over pages, first fit within: the list begins at the page that served last, or at
    /// its successor if it became full and the era moves the head nevertheless.
    fn take_listed<M: Machine>(
        &self,
        env: Env<'_, M>,
        list: &mut PageList,
        node: Option<NodeId>,
        request: &Request,
    ) -> Option<(Pfn, u32)> {
        let map = env.map();
        let machine = env.machine();
        let (pfn, offset) = list.iter(map).find_map(|pfn| {
            access(machine, Line::Slab, Access::Read, env.map().page(pfn));
            if node.is_some_and(|node| env.pages().node_of_page(pfn) != node) {
                return None;
            }
            let page = HeapPage::new(env, pfn);
            if page.state().units < page.units(request.bytes) {
                return None;
            }
            Some((pfn, page.take(request)?))
        })?;
        access(machine, Line::Slab, Access::Write, env.map().page(pfn));
        let full = HeapPage::new(env, pfn).state().units == 0;
        if !full || self.era.head_moves_past_full {
            list.rotate_to(env.links(), pfn);
        }
        if full {
            map.page(pfn).set_on_list(false);
            list.remove(env.links(), pfn);
        }
        Some((pfn, offset + request.lead))
    }

    /// A heap page that is one free block, on no list, with its table of owners.
    fn new_page<M: Machine>(env: Env<'_, M>, node: Option<NodeId>, list: usize) -> Option<Pfn> {
        let pfn = take_pages(env, 0, node, core::ptr::null_mut())?;
        if !Owners::make(env.pages(), pfn) {
            give_pages_back(env, pfn, PageKind::Slab);
            return None;
        }
        HeapPage::new(env, pfn).clear(list);
        Some(pfn)
    }

    /// Gives a block of `bytes` bytes back, with the lock held.
    ///
    /// # Errors
    ///
    /// [`FreeError::DoubleFree`] if free blocks overlap it or have been overwritten; nothing has
    /// changed then.
    pub(super) fn give_block<M: Machine>(
        &self,
        env: Env<'_, M>,
        lists: &mut Lists,
        empty: &mut PageList,
        pfn: Pfn,
        offset: u32,
        bytes: u32,
    ) -> Result<(), FreeError> {
        access(
            env.machine(),
            Line::Slab,
            Access::Write,
            env.map().page(pfn),
        );
        let page = HeapPage::new(env, pfn);
        let mut state = page.state();
        let units = page.units(bytes);
        if state.units + units > page.total() {
            return Err(FreeError::DoubleFree);
        }
        // A page with its last block back is not merged first: it leaves the heap as it is.
        if state.units + units == page.total() {
            if page.page().on_list() {
                page.page().set_on_list(false);
                lists.pages[state.list].remove(env.links(), pfn);
            }
            empty.push_front(env.call_links(), pfn);
            return Ok(());
        }
        let was_full = state.units == 0;
        page.give(page.at(offset), units, self.era.merge_before_first)?;
        if was_full {
            // A full page is on no list, so it joins that of the block's size, whatever it held before.
            state = page.state();
            state.list = self.era.list_of(bytes);
            page.set_state(state);
            page.page().set_on_list(true);
            lists.pages[state.list].push_front(env.links(), pfn);
        }
        Ok(())
    }

    /// True if objects wait to be freed.
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed) != 0
    }
}
