//! The environment of an operation on a cache.

use super::head::CacheHead;
use crate::machine::{Machine, Pass};
use crate::page::{Links, MemMap, PageAllocator};
use crate::system::System;

/// Environment of an operation on a cache: two words, which travel in registers. A third would be stored to
/// the stack before every fast path.
pub struct Env<'a, M: Machine> {
    /// Pages, kmalloc and list of caches of the heap.
    pub system: &'a System<M>,
    /// The cache.
    pub cache: &'a CacheHead,
}

impl<'a, M: Machine> Env<'a, M> {
    /// The page allocator, where slabs come from.
    #[inline(always)]
    pub fn pages(&self) -> &'a PageAllocator<M> {
        &self.system.pages
    }

    /// The machine.
    #[inline(always)]
    pub fn machine(&self) -> &'a M {
        self.system.pages.machine()
    }

    /// The pages' descriptors and addresses.
    #[inline(always)]
    pub(crate) fn map(&self) -> &'a MemMap {
        self.system.pages.map()
    }

    /// Enters the gate, for what works without a CPU's slot.
    pub(crate) fn enter(&self) -> Pass<'a> {
        self.system.pages.gate().enter(self.machine())
    }

    /// Links for changes to nodes' lists of slabs.
    #[inline(always)]
    pub(crate) fn links(&self) -> Links<'a, M> {
        Links::of_slabs(self.map().on(self.machine()))
    }

    /// Links for changes to a function's own lists of slabs.
    #[inline(always)]
    pub(crate) fn call_links(&self) -> Links<'a, M> {
        Links::of_call(self.map().on(self.machine()))
    }
}

impl<M: Machine> Clone for Env<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Env<'_, M> {}
