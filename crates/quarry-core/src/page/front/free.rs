//! Frees beyond the shortest way: claims, and the lists or the zone that take the block.

use crate::machine::Machine;
use crate::page::pcp::Pagesets;
use crate::page::{Page, PageAllocator, PageError, PageKind, Pfn};

/// Way in which a block becomes the lists' own.
#[derive(Clone, Copy)]
pub(super) enum Claim {
    /// Compare-and-swap: another caller may be freeing the allocated block too.
    Allocated,
    /// Store: the block is the caller's handle's ([`PageKind::Owned`]), and no other code can free it.
    Owned,
    /// Nothing to do: it already is.
    Made,
}

impl Claim {
    /// Claims the block whose first page this is. Returns `false` if another caller was faster.
    #[inline(always)]
    pub(super) fn make(self, page: &Page, order: u32) -> bool {
        match self {
            Self::Allocated => page.claim_kind(PageKind::Allocated, PageKind::Pcp, order),
            Self::Owned => {
                page.set_kind(PageKind::Pcp, order);
                true
            }
            Self::Made => true,
        }
    }

    /// Takes back what [`Claim::make`] did. No other code has seen the block since: it was on no list.
    pub(super) fn undo(self, page: &Page, order: u32) {
        match self {
            Self::Allocated => page.set_kind(PageKind::Allocated, order),
            Self::Owned => page.set_kind(PageKind::Owned, order),
            Self::Made => {}
        }
    }
}

/// Outcome of a free.
pub(super) enum Freed {
    /// It is on the CPU's list.
    Kept,
    /// It, or older blocks of the CPU's lists, went to the zone.
    ToZone,
    /// It was not the caller's to free.
    Refused,
}

impl Freed {
    #[inline(always)]
    pub(super) fn by_lists(drained: bool) -> Self {
        if drained { Self::ToZone } else { Self::Kept }
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Frees a block by way of lists, or else to its zone.
    pub(super) fn free_by(
        &self,
        pfn: Pfn,
        order: u32,
        claim: Claim,
        lists: impl FnOnce(&Pagesets, Claim) -> Option<Freed>,
    ) -> Result<(), PageError> {
        let sets = self.pagesets_of(pfn);
        // The claim is made where a fork waits for its end, or the child would miss the block.
        let freed = lists(sets, claim).unwrap_or_else(|| {
            let _pass = self.gate.enter(&self.machine);
            if !claim.make(self.map.page(pfn), order) {
                return Freed::Refused;
            }
            sets.zone.free_direct(self.map_on(), pfn, order);
            Freed::ToZone
        });
        match freed {
            Freed::Kept => Ok(()),
            Freed::ToZone => {
                self.trim_after_free();
                Ok(())
            }
            Freed::Refused => Err(self.why_not_freed(pfn, order)),
        }
    }

    /// The descriptor of a block that may be freed with this order, as it looks now.
    #[inline(always)]
    pub(super) fn check_free(&self, pfn: Pfn, order: u32) -> Result<&Page, PageError> {
        match self.map.get(pfn) {
            Some(page) if page.is_sole_block(order) => Ok(page),
            _ => Err(self.why_not_freed(pfn, order)),
        }
    }

    /// Error of a free that is refused.
    #[cold]
    #[inline(never)]
    pub(super) fn why_not_freed(&self, pfn: Pfn, given: u32) -> PageError {
        let Some(page) = self.map.get(pfn) else {
            return PageError::Foreign(pfn);
        };
        match page.seen() {
            (PageKind::Allocated, allocated, _) if allocated != given => PageError::WrongOrder {
                pfn,
                given,
                allocated,
            },
            (PageKind::Allocated, _, extra @ 1..) => PageError::Referenced {
                pfn,
                count: extra.saturating_add(1),
            },
            // An allocated one, too: another free was faster, and the block is allocated anew.
            (kind, ..) => PageError::NotAllocated(pfn, kind),
        }
    }

    /// `None` if the per-CPU lists cannot be used, else what became of the block.
    #[inline(always)]
    pub(super) fn free_pcp(
        &self,
        sets: &Pagesets,
        pfn: Pfn,
        order: u32,
        claim: Claim,
    ) -> Option<Freed> {
        let shape = sets
            .zone
            .shape(order, self.map.blocks().block_type(pfn).of_requests())?;
        let lists = sets.at(self.map_on());
        if let Some(owner) = self.map.blocks().owner(pfn) {
            let freed = lists.with_remote(owner, |pcp| {
                lists.account_protection(pcp);
                if !claim.make(self.map.page(pfn), order) {
                    return Freed::Refused;
                }
                Freed::by_lists(pcp.free(&lists, pfn, shape))
            });
            if freed.is_some() {
                return freed;
            }
        }
        lists.with(|pcp, _| {
            if !claim.make(self.map.page(pfn), order) {
                return Freed::Refused;
            }
            Freed::by_lists(pcp.free(&lists, pfn, shape))
        })
    }

    /// Free for callers that hold a per-CPU slot or are inside the gate: changes a block of kind
    /// `from` into a free one.
    pub(crate) fn free_block(&self, pfn: Pfn, order: u32, from: PageKind) {
        let page = self.map.page(pfn);
        debug_assert!(
            page.is_block(from, order),
            "{:?} order {}",
            page.kind(),
            page.order()
        );
        page.set_kind(PageKind::Pcp, order);
        let sets = self.pagesets_of(pfn);
        if self.free_pcp(sets, pfn, order, Claim::Made).is_none() {
            sets.zone.free_direct(self.map_on(), pfn, order);
        }
    }
}
