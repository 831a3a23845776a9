//! The shortest ways: an allocation of unmovable pages and a free of a single page that stay on the
//! running CPU's lists.
//!
//! # Who may free without a compare-and-swap
//!
//! [`PageAllocator::free`] claims its block by a compare-and-swap, so of two frees of one block, even
//! at the same time on two CPUs, one is refused. The swap waits for all earlier stores of the CPU,
//! which is a third of the time of an allocation and a free. [`PageAllocator::free_exclusive`] looks
//! and then stores: a second free that comes after the first, on whatever CPU, still sees that the
//! block is free and is refused. Only two at the same time could both pass, and that nobody does
//! this its caller promises.

use super::pcp::Pcp;
use super::zone::Zone;
use super::{AllocOptions, Claim, Freed, MigrateType, PageAllocator, PageError, PageKind, Pfn};
use crate::machine::{Machine, NodeId};
use crate::sync::Ordering;

impl<M: Machine> PageAllocator<M> {
    /// Allocates a block of 2^order unmovable pages, on the running CPU's node unless another is
    /// preferred. The pages hold whatever they held before. `None` when no zone has such a block,
    /// or when the order is above [`super::MAX_ORDER`].
    #[inline]
    pub fn alloc(&self, order: u32, node: Option<NodeId>) -> Option<Pfn> {
        let node = self.pick_node(node)?;
        match self.alloc_listed(order, node) {
            Some(pfn) => Some(pfn),
            None => self.alloc_unlisted(order, node),
        }
    }

    #[inline(always)]
    fn alloc_listed(&self, order: u32, node: NodeId) -> Option<Pfn> {
        if self.keeps_back.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let zone = self.first_zone(node)?;
        let list = zone.plain_list(order, MigrateType::Unmovable as u8)?;
        let pfn = zone.pcp.try_with(&self.machine, |pcp, cpu| {
            let pfn = match pcp.pop(&zone.pageset(&self.machine, &self.map), list, order) {
                Some(pfn) => pfn,
                None => self.refill(zone, pcp, order)?,
            };
            self.map.page(pfn).set_kind(PageKind::Allocated, order);
            if self.machine.topology().nodes > 1 {
                pcp.numa_other += u64::from(self.node_of_cpu(cpu) != zone.id.node);
            }
            Some(pfn)
        });
        pfn.flatten()
    }

    /// Takes few arguments, so that the way past it is short.
    #[cold]
    #[inline(never)]
    fn refill(&self, zone: &Zone, pcp: &mut Pcp, order: u32) -> Option<Pfn> {
        let shape = zone.shape(order, MigrateType::Unmovable)?;
        pcp.refill_first(&zone.pageset(&self.machine, &self.map), shape)
    }

    #[cold]
    #[inline(never)]
    fn overflow(&self, zone: &Zone, pcp: &mut Pcp) -> bool {
        pcp.overflow(&zone.pageset(&self.machine, &self.map))
    }

    #[cold]
    #[inline(never)]
    fn alloc_unlisted(&self, order: u32, node: NodeId) -> Option<Pfn> {
        let options = AllocOptions {
            order,
            node: Some(node),
            ..AllocOptions::default()
        };
        // Lists with blocks of all types are still to be tried.
        if self.first_zone(node).is_some_and(|zone| zone.rules.mixed) {
            return self.alloc_with(&options);
        }
        let _pass = self.gate.enter(&self.machine);
        self.alloc_slow(&options, node)
    }

    /// Frees a block.
    ///
    /// # Errors
    ///
    /// [`PageError`] if `pfn` is not the first page of an allocated block of this order; nothing
    /// has changed then.
    #[inline]
    pub fn free(&self, pfn: Pfn, order: u32) -> Result<(), PageError> {
        let page = self.check_free(pfn, order)?;
        self.free_claimed(pfn, order, Claim::Allocated(page))
    }

    /// [`PageAllocator::free`] for those who alone free the block; without a compare-and-swap.
    ///
    /// # Errors
    ///
    /// As for [`PageAllocator::free`]; a block that was freed before is still refused.
    ///
    /// # Safety
    ///
    /// Nobody else frees the block at the same time. If two do, both may succeed, and the block's
    /// pages may be handed out twice, to slabs for example.
    #[inline]
    pub unsafe fn free_exclusive(&self, pfn: Pfn, order: u32) -> Result<(), PageError> {
        let page = self.check_free(pfn, order)?;
        self.free_claimed(pfn, order, Claim::Exclusive(page))
    }

    #[inline(always)]
    fn free_claimed(&self, pfn: Pfn, order: u32, claim: Claim<'_>) -> Result<(), PageError> {
        match self.free_single(pfn, order, claim) {
            Some(Freed::Kept) => Ok(()),
            freed => self.free_unlisted(pfn, order, claim, freed),
        }
    }

    #[inline(always)]
    fn free_single(&self, pfn: Pfn, order: u32, claim: Claim<'_>) -> Option<Freed> {
        if order != 0 {
            return self.free_pcp(self.zone_of(pfn), pfn, order, claim);
        }
        // Most pages are unmovable ones of the running CPU's own zone. Where their list is follows
        // from a comparison then and not from what was loaded, so that the next allocation need
        // not wait for it.
        let tag = self.map.blocks().tag(pfn);
        let near = self.first_zone(self.pick_node(None)?)?;
        let (zone, list) = if tag == near.unmovable {
            (near, near.plain_list(0, MigrateType::Unmovable as u8))
        } else {
            let zone = self.zone_of(pfn);
            (zone, zone.plain_list(0, tag.type_bits()))
        };
        let Some(list) = list else {
            return self.free_pcp(zone, pfn, order, claim);
        };
        zone.pcp.try_with(&self.machine, |pcp, _| {
            if !claim.make(0) {
                return Freed::Refused;
            }
            let full = pcp.push_single(&zone.pageset(&self.machine, &self.map), pfn, list);
            Freed::by_lists(full && self.overflow(zone, pcp))
        })
    }

    #[cold]
    #[inline(never)]
    fn free_unlisted(
        &self,
        pfn: Pfn,
        order: u32,
        claim: Claim<'_>,
        freed: Option<Freed>,
    ) -> Result<(), PageError> {
        self.free_by(pfn, order, claim, |_, _| freed)
    }
}
