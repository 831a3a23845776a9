//! Allocation: a block from the page lists, or a run of pages.

use core::ptr::NonNull;

use super::geometry::{HEADER_BYTES, kmalloc_is_block};
use super::owners::Mark;
use super::slab::take_pages;
use super::stats::Stat;
use super::types::{Request, Slob};
use crate::design::{Allocate, Env, Free};
use crate::machine::{Access, Line, Machine, NodeId, Work, access, work};
use crate::page::MAX_ORDER;
use crate::slabs;
use crate::sync::Ordering;

impl Allocate for Slob {
    fn alloc_fast<M: Machine>(&self, _: Env<'_, M>, _: Option<NodeId>) -> Option<NonNull<u8>> {
        None
    }

    fn alloc_slow<M: Machine>(&self, env: Env<'_, M>, node: Option<NodeId>) -> Option<NonNull<u8>> {
        let _pass = env.enter();
        let geometry = &env.cache.geometry;
        let layout = &geometry.layout;
        work(env.machine(), Work::SlowPath);
        env.cache.shared_stats.count(Stat::AllocSlowpath);
        if u64::from(layout.size) >= 1 << env.map().page_shift() {
            return self.alloc_run(env, geometry.order, node);
        }
        let request = Request {
            bytes: layout.size,
            lead: 0,
            align: layout.align,
        };
        self.alloc_block(env, node, &request, Mark::new(self.id, false))
    }

    /// All slots or none: single allocations, as in the kernel.
    fn alloc_bulk<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        slots: &mut [Option<NonNull<u8>>],
    ) -> bool {
        let filled = slabs::fill_each(slots, || self.alloc(env, node));
        if filled == slots.len() {
            return true;
        }
        // SAFETY: the objects were allocated above and given to no user.
        let undone = unsafe { self.free_bulk(env, &mut slots[..filled]) };
        debug_assert!(undone.is_ok(), "{undone:?}");
        false
    }

    fn alloc_direct<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        self.alloc_slow(env, node)
    }

    /// A block with a header, or pages.
    fn kmalloc<M: Machine>(
        &self,
        env: Env<'_, M>,
        bytes: usize,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let _pass = env.enter();
        work(env.machine(), Work::SlowPath);
        env.cache.shared_stats.count(Stat::AllocSlowpath);
        if !kmalloc_is_block(env.map().page_shift(), bytes as u64) {
            return self.kmalloc_run(env, bytes, node);
        }
        let bytes = bytes as u32;
        let request = Request {
            bytes: bytes + HEADER_BYTES,
            lead: HEADER_BYTES,
            align: self.shared().era.kmalloc_align(bytes),
        };
        let object = self.alloc_block(env, node, &request, Mark::new(self.id, true))?;
        // SAFETY: the block begins with the header.
        let header = unsafe { object.byte_sub(HEADER_BYTES as usize) }.cast::<u32>();
        access(env.machine(), Line::Object, Access::Store, header.as_ptr());
        // SAFETY: the header is the caller's and aligned to a word.
        unsafe { header.write(bytes) };
        Some(object)
    }
}

impl Slob {
    /// A kmalloc that is a run of pages.
    fn kmalloc_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        bytes: usize,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let map = env.map();
        let pages = bytes.div_ceil(1 << map.page_shift());
        let order = (0..=MAX_ORDER).find(|&order| pages <= 1 << order)?;
        self.alloc_run(env, order, node)
    }

    /// A block whose object has this mark.
    pub(super) fn alloc_block<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: Option<NodeId>,
        request: &Request,
        mark: Mark,
    ) -> Option<NonNull<u8>> {
        let (pfn, offset) = self.shared().take_block(env, node, request, mark)?;
        self.live.fetch_add(1, Ordering::Relaxed);
        self.block_bytes
            .fetch_add(request.bytes.into(), Ordering::Relaxed);
        let first = env.map().address(pfn);
        // SAFETY: `take_block` returns an offset inside the page.
        Some(unsafe { first.byte_add(offset as usize) })
    }

    /// An object that has pages of its own.
    pub(super) fn alloc_run<M: Machine>(
        &self,
        env: Env<'_, M>,
        order: u32,
        node: Option<NodeId>,
    ) -> Option<NonNull<u8>> {
        let pfn = take_pages(env, order, node, env.cache.id())?;
        env.cache.shared_stats.count(Stat::AllocSlab);
        self.live.fetch_add(1, Ordering::Relaxed);
        self.runs[order as usize].fetch_add(1, Ordering::Relaxed);
        Some(env.map().address(pfn))
    }
}
