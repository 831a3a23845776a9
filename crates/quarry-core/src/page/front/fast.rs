//! The shortest ways: an allocation of unmovable pages and a free of a single page that stay on the
//! running CPU's lists. Where the machine has single steps, a single unmovable page takes one
//! (`front.rs`), and bulk calls are n of them (`stepped.rs`); else the lists are held.
//!
//! # Between the list and the caller
//!
//! A page's descriptor follows a step that took it and precedes a step that puts it. In between the
//! descriptor says that the page is on a list. A process that is forked at this moment has neither
//! the thread nor the page: [`PageCensus::in_hand`](crate::page::PageCensus::in_hand) counts it.
//!
//! # Two frees of one block
//!
//! [`PageAllocator::free`] claims its block by a compare-and-swap: of two frees of one block, even at the
//! same time on two CPUs, one is refused. The swap waits for all earlier stores of the CPU, which is a third
//! of the time of an allocation and a free. An [`OwnedBlock`](crate::page::OwnedBlock) frees without it, because no
//! other code can.

use super::free::{Claim, Freed};
use crate::machine::{Machine, NodeId};
use crate::page::pcp::array;
use crate::page::pcp::{Pagesets, Pcp};
use crate::page::{AllocOptions, MigrateType, Page, PageAllocator, PageError, PageKind, Pfn};

impl<M: Machine> PageAllocator<M> {
    /// Allocates a block of 2^order unmovable pages, on the running CPU's node unless another is
    /// preferred. The pages hold whatever they held before. `None` when no zone has such a block,
    /// or when the order is above [`crate::page::MAX_ORDER`].
    #[inline(always)]
    pub fn alloc(&self, order: u32, node: Option<NodeId>) -> Option<Pfn> {
        if order == 0
            && let Some(pfn) = self.alloc_step(node, PageKind::Allocated)
        {
            return Some(pfn);
        }
        self.alloc_unstepped(order, node)
    }

    /// The page that was freed last on the running CPU, as one of this kind.
    #[inline(always)]
    pub(super) fn alloc_step(&self, node: Option<NodeId>, kind: PageKind) -> Option<Pfn> {
        let (near, _) = self.near_for(node)?;
        // SAFETY: `near` is CPU 0's slot of a `Pcp` in the per-CPU range (`boot.rs`), which `StackLayout for Pcp`
        // describes; `near_for` gives only slots that exist.
        let entry = unsafe { self.machine.percpu_pop_stack::<Pcp>(near.slot0()) }?;
        let pfn = array::page_of(entry);
        self.map.page(pfn).set_kind(kind, 0);
        Some(pfn)
    }

    /// Not inlined, so that the way past it is short.
    #[inline(never)]
    fn alloc_unstepped(&self, order: u32, node: Option<NodeId>) -> Option<Pfn> {
        let node = self.pick_node(node)?;
        let sets = self.first_pagesets(node)?;
        if !self.keeps_back()
            && let Some(pfn) = self.alloc_listed(sets, order)
        {
            return Some(pfn);
        }
        self.alloc_unlisted(order, node)
    }

    #[inline(always)]
    fn alloc_listed(&self, sets: &Pagesets, order: u32) -> Option<Pfn> {
        let zone = &sets.zone;
        let list = zone.plain_list(order, MigrateType::Unmovable as u8)?;
        let lists = sets.at(self.map_on());
        let pfn = lists.with(|pcp, cpu| {
            let pfn = match pcp.pop(&lists, list, order) {
                Some(pfn) => pfn,
                None => self.refill(sets, pcp, order)?,
            };
            self.map.page(pfn).set_kind(PageKind::Allocated, order);
            if self.machine.topology().nodes > 1 {
                pcp.numa_other += u64::from(zone.is_remote(&self.machine, cpu));
            }
            Some(pfn)
        });
        pfn.flatten()
    }

    /// Takes few arguments, so that the way past it is short.
    #[cold]
    #[inline(never)]
    fn refill(&self, sets: &Pagesets, pcp: &mut Pcp, order: u32) -> Option<Pfn> {
        let shape = sets.zone.shape(order, MigrateType::Unmovable)?;
        pcp.refill_first(&sets.at(self.map_on()), shape)
    }

    #[cold]
    #[inline(never)]
    fn overflow(&self, sets: &Pagesets, pcp: &mut Pcp, from: u8) -> bool {
        pcp.overflow(&sets.at(self.map_on()), from)
    }

    #[cold]
    #[inline(never)]
    fn alloc_unlisted(&self, order: u32, node: NodeId) -> Option<Pfn> {
        let options = AllocOptions {
            order,
            node: Some(node),
            ..AllocOptions::default()
        };
        // Lists with blocks of all types, or that split blocks, are still to be tried.
        if self
            .first_pagesets(node)
            .is_some_and(|sets| !sets.zone.rules.plain)
            && let Some(pfn) = self.alloc_first(&options, node)
        {
            return Some(pfn);
        }
        let _pass = self.gate.enter(&self.machine);
        self.alloc_slow(&options, node, false)
    }

    /// Frees a block that is held by its number ([Handles and numbers](PageAllocator#handles-and-numbers)).
    ///
    /// # Errors
    ///
    /// [`PageError`] if `pfn` is not the first page of an allocated block of this order; nothing
    /// has changed then.
    ///
    /// # Safety
    ///
    /// If a block of this order that is held by its number begins at `pfn`, it is the caller's to free: the
    /// caller allocated it from this allocator, or its owner handed it to the caller. No code uses its
    /// memory any longer but users with references of their own, for whom the free is refused. All other
    /// numbers are refused too, so they may be any.
    #[inline(always)]
    pub unsafe fn free(&self, pfn: Pfn, order: u32) -> Result<(), PageError> {
        let page = self.check_free(pfn, order)?;
        // SAFETY: the caller of `free` owns the block if it is allocated, as this contract asks; the claim is
        // not `Owned`.
        unsafe { self.free_claimed(page, pfn, order, Claim::Allocated) }
    }

    /// Frees a block with this first page.
    ///
    /// # Safety
    ///
    /// As for [`PageAllocator::free`]. [`Claim::Owned`] needs the block's handle, which ends with this call.
    #[inline(always)]
    pub(super) unsafe fn free_claimed(
        &self,
        page: &Page,
        pfn: Pfn,
        order: u32,
        claim: Claim,
    ) -> Result<(), PageError> {
        if self.free_step(page, pfn, order, claim) {
            return Ok(());
        }
        self.free_unstepped(pfn, order, claim)
    }

    #[inline(never)]
    fn free_unstepped(&self, pfn: Pfn, order: u32, claim: Claim) -> Result<(), PageError> {
        match self.free_listed(pfn, order, claim) {
            Some(Freed::Kept) => Ok(()),
            freed => self.free_unlisted(pfn, order, claim, freed),
        }
    }

    /// Frees a single unmovable page of the running CPU's own zone, which most pages are, if there
    /// is room in the array; else it is as it was.
    #[inline(always)]
    fn free_step(&self, page: &Page, pfn: Pfn, order: u32, claim: Claim) -> bool {
        if order > 0 {
            return false;
        }
        let Some((near, tag)) = self.near_of_running() else {
            return false;
        };
        // One comparison for three questions: the zone, an unmovable pageblock, and no shortage of memory
        // (`Zone::publish_near`). Mostly it holds.
        if self.map.blocks().tag(pfn) != tag {
            return false;
        }
        // Before the step: once the page is in the array, this CPU's next allocation may hand it out.
        if !claim.make(page, 0) {
            return false;
        }
        // SAFETY: `near` is CPU 0's slot of a `Pcp` in the per-CPU range (`boot.rs`), which `StackLayout for Pcp`
        // describes. It exists, or no page would have its node's tag (`Zone::publish_near`). The claim made the
        // page this call's, which owns the entry.
        let put = unsafe {
            self.machine
                .percpu_push_stack::<Pcp>(near.slot0(), array::entry_of(pfn))
        };
        if !put {
            // The slot may be held for a fork, which must find the page in a state that it can count.
            claim.undo(page, 0);
        }
        put
    }

    #[inline(always)]
    fn free_listed(&self, pfn: Pfn, order: u32, claim: Claim) -> Option<Freed> {
        let sets = self.pagesets_of(pfn);
        let tag = self.map.blocks().tag(pfn);
        let list = (order == 0)
            .then(|| sets.zone.plain_list(0, tag.type_bits()))
            .flatten();
        let Some(list) = list else {
            return self.free_pcp(sets, pfn, order, claim);
        };
        let lists = sets.at(self.map_on());
        lists.with(|pcp, _| {
            if !claim.make(self.map.page(pfn), 0) {
                return Freed::Refused;
            }
            let full = pcp.push_single(&lists, pfn, list);
            Freed::by_lists(full && self.overflow(sets, pcp, list))
        })
    }

    #[cold]
    #[inline(never)]
    fn free_unlisted(
        &self,
        pfn: Pfn,
        order: u32,
        claim: Claim,
        freed: Option<Freed>,
    ) -> Result<(), PageError> {
        self.free_by(pfn, order, claim, |_, _| freed)
    }
}
