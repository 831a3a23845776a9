//! The consistency walker: P1 and P2 of the page allocator.
//!
//! A zone is walked while all of its per-CPU slots and then its lock are held. So no block is on its way
//! between lists, nor is one split or merged. Other threads may still change one word: the kind of a block that
//! is on no list, when they take it off a list or are about to put it on one. Its pages count as one kind or
//! the other.

use super::buddy::FreeArea;
use super::pcp::{Pagesets, Pcp};
use super::zone::Zone;
use super::{BlockType, MAX_ORDER, PageAllocator, PageKind, Pfn};
use crate::machine::{CpuId, HeldSlots, Machine};

/// Pages of a machine by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCensus {
    /// Never handed out.
    pub untouched: u64,
    /// On buddy lists.
    pub buddy: u64,
    /// On per-CPU lists, or deferred.
    pub pcp: u64,
    /// Between a list and a thread that is allocating, freeing or trimming them. In a process that was made by a
    /// fork: pages in the hands of threads that stayed with the parent. Such a thread was taking or putting
    /// one page by a single step, and each signal handler that had interrupted it another one.
    pub in_hand: u64,
    /// Allocated by callers of the page allocator.
    pub allocated: u64,
    /// In slabs.
    pub slab: u64,
    /// In kmallocs too large for slabs.
    pub large: u64,
    /// In page pools or handed out by them.
    pub pool: u64,
}

impl PageCensus {
    /// All pages.
    #[must_use]
    pub fn total(&self) -> u64 {
        let free = self.untouched + self.buddy + self.pcp + self.in_hand;
        free + self.allocated + self.slab + self.large + self.pool
    }
}

/// A block that [`PageAllocator::visit_blocks`] tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBlock {
    /// Its first page.
    pub first: Pfn,
    /// Its pages.
    pub pages: u32,
    /// Its place.
    pub kind: PageKind,
    /// It was allocated for what can be moved, on a machine that tracks contents.
    pub movable: bool,
}

/// Contradiction that the walker found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageInconsistency {
    /// A CPU held its lists too long; try again when it is idle. The walk was given up.
    Busy(CpuId),
    /// A lock is held by the calling thread.
    Reentered,
    /// A page's descriptor contradicts the block around it.
    BadBlock(Pfn, PageKind),
    /// A free block is on the list of one migrate type, and its descriptor names another.
    WrongList(Pfn, BlockType, BlockType),
    /// Two free buddies that should have been merged.
    Unmerged(Pfn, u32),
    /// A list's length or a counter differs from what the walk found.
    Count {
        /// Name of the count.
        what: &'static str,
        /// Value of the list or counter.
        recorded: u64,
        /// Value that the walk found.
        found: u64,
    },
}

impl core::fmt::Display for PageInconsistency {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Busy(cpu) => write!(f, "CPU {} is busy, its page lists were not seen", cpu.0),
            Self::Reentered => f.write_str("the calling thread holds a zone lock"),
            Self::BadBlock(pfn, kind) => {
                write!(
                    f,
                    "page {} lies in no block (its descriptor says {kind:?})",
                    pfn.0
                )
            }
            Self::WrongList(pfn, list, noted) => write!(
                f,
                "page {} is on the list of {} blocks, its descriptor says {}",
                pfn.0,
                list.name(),
                noted.name()
            ),
            Self::Unmerged(pfn, order) => {
                write!(
                    f,
                    "page {} and its buddy of order {order} are both free",
                    pfn.0
                )
            }
            Self::Count {
                what,
                recorded,
                found,
            } => {
                write!(f, "{what}: recorded {recorded}, found {found}")
            }
        }
    }
}

crate::error::debug_is_display!(PageInconsistency);

impl core::error::Error for PageInconsistency {}

fn equal(what: &'static str, recorded: u64, found: u64) -> Result<(), PageInconsistency> {
    if recorded == found {
        Ok(())
    } else {
        Err(PageInconsistency::Count {
            what,
            recorded,
            found,
        })
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Walks every page and every list, one zone after the other, and holds each still meanwhile: other
    /// threads wait for it or use another zone. Costs time proportional to the pages ever used.
    ///
    /// # Errors
    ///
    /// [`PageInconsistency`]: the first contradiction, or a CPU that was busy.
    pub fn check_consistency(&self) -> Result<PageCensus, PageInconsistency> {
        let _pass = self.gate().enter(self.machine());
        let mut census = PageCensus::default();
        for sets in self.pagesets() {
            self.check_zone(sets, &mut census)?;
        }
        equal("all pages", self.managed(), census.total())?;
        Ok(census)
    }

    /// Tells every block of every zone, lowest address first: those on lists, in use, and of untouched memory. Other
    /// threads may allocate and free meanwhile: the blocks are of no single moment then.
    pub fn visit_blocks(&self, mut tell: impl FnMut(PageBlock)) {
        let _pass = self.gate().enter(self.machine());
        for zone in self.zones() {
            let Some(area) = zone.lock(self.map_on()) else {
                continue;
            };
            let mut at = zone.start;
            while at < zone.end {
                let page = self.map().page(Pfn(at));
                let untouched = (area.frontier()..area.end()).contains(&at);
                let (kind, order, _) = match untouched {
                    true => (
                        PageKind::Untouched,
                        at.trailing_zeros().min(self.max_order()),
                        0,
                    ),
                    false if at >= area.end() => (PageKind::Owned, 0, 0),
                    false => page.seen(),
                };
                let movable =
                    kind == PageKind::Allocated && self.map().contents().is_movable(Pfn(at));
                let end = match untouched {
                    true => area.end(),
                    false => zone.end,
                };
                let pages = (1u32 << order).min(end - at);
                tell(PageBlock {
                    first: Pfn(at),
                    pages,
                    kind,
                    movable,
                });
                at += pages;
            }
        }
    }

    /// Adds a zone's pages to the census.
    fn check_zone(
        &self,
        sets: &Pagesets,
        census: &mut PageCensus,
    ) -> Result<(), PageInconsistency> {
        let zone = &sets.zone;
        let machine = self.machine();
        let slots = sets.slots.hold_all(machine);
        let slots = slots.map_err(PageInconsistency::Busy)?;
        let area = zone.lock(self.map_on());
        let area = area.ok_or(PageInconsistency::Reentered)?;
        let listed_pcp = self.walk_pcp(zone, &slots)?;
        let listed_buddy = self.walk_lists(&area)?;
        let mut of_zone = PageCensus {
            untouched: u64::from(area.end() - area.frontier()),
            ..PageCensus::default()
        };
        let unmerged_from = area.unmerged_from(self.map().blocks().order());
        self.walk_zone(zone.start..area.frontier(), unmerged_from, &mut of_zone)?;
        equal("pages on buddy lists", listed_buddy, of_zone.buddy)?;
        let free = of_zone.buddy + of_zone.untouched;
        equal("free pages of a zone", area.free_pages(), free)?;
        // More on the lists than there are: one is on two, or not what it says.
        let in_hand = of_zone.pcp.checked_sub(listed_pcp);
        census.in_hand += in_hand.ok_or(PageInconsistency::Count {
            what: "pages on per-CPU lists",
            recorded: listed_pcp,
            found: of_zone.pcp,
        })?;
        census.pcp += listed_pcp;
        census.untouched += of_zone.untouched;
        census.buddy += of_zone.buddy;
        let in_use = of_zone.allocated + u64::from(zone.end - area.end());
        census.allocated += in_use.saturating_sub(zone.absent.into());
        census.slab += of_zone.slab;
        census.large += of_zone.large;
        census.pool += of_zone.pool;
        Ok(())
    }

    /// Pages on the CPUs' lists of a zone.
    fn walk_pcp(
        &self,
        zone: &Zone,
        slots: &HeldSlots<'_, M, Pcp>,
    ) -> Result<u64, PageInconsistency> {
        let mut pages = 0;
        for pcp in slots.states() {
            let mut on_lists = 0;
            for entry in pcp.front() {
                self.expect_block(entry.pfn(), PageKind::Pcp, 0)?;
                on_lists += 1;
            }
            for (pfn, list) in pcp.blocks(self.map()) {
                let order = u32::from(zone.rules.order_of[list]);
                self.expect_block(pfn, PageKind::Pcp, order)?;
                on_lists += 1 << order;
            }
            let recorded = u64::from(pcp.pages_now());
            equal("pages of a CPU's lists", recorded, on_lists)?;
            pages += on_lists;
        }
        Ok(pages)
    }

    /// Pages on the buddy lists of a zone.
    fn walk_lists(&self, area: &FreeArea) -> Result<u64, PageInconsistency> {
        let mut pages = 0;
        for order in 0..=MAX_ORDER {
            for migratetype in BlockType::all() {
                let mut blocks = 0;
                for pfn in area.blocks(self.map(), order, migratetype) {
                    self.expect_block(pfn, PageKind::Buddy, order)?;
                    let noted = self.map().page(pfn).listed_as();
                    if noted != migratetype {
                        return Err(PageInconsistency::WrongList(pfn, migratetype, noted));
                    }
                    blocks += 1;
                }
                let listed = area.listed(order, migratetype);
                equal("blocks on a buddy list", u64::from(listed), blocks)?;
                pages += blocks << order;
            }
        }
        Ok(pages)
    }

    fn expect_block(&self, pfn: Pfn, kind: PageKind, order: u32) -> Result<(), PageInconsistency> {
        let page = self.map().page(pfn);
        if page.is_block(kind, order) {
            Ok(())
        } else {
            Err(PageInconsistency::BadBlock(pfn, page.kind()))
        }
    }

    /// Steps from block to block. Buddies below an order must have merged.
    fn walk_zone(
        &self,
        core::ops::Range { start, end }: core::ops::Range<u32>,
        unmerged_from: u32,
        census: &mut PageCensus,
    ) -> Result<(), PageInconsistency> {
        let mut at = start;
        while at < end {
            let (kind, order, _) = self.map().page(Pfn(at)).seen();
            let pages = 1u64 << order;
            match kind {
                PageKind::Buddy => {
                    let buddy = Pfn(at ^ (1 << order));
                    let whole = order < unmerged_from && buddy.0 < end;
                    if whole && self.map().page(buddy).is_block(PageKind::Buddy, order) {
                        return Err(PageInconsistency::Unmerged(Pfn(at), order));
                    }
                    census.buddy += pages;
                }
                PageKind::Pcp => census.pcp += pages,
                PageKind::Allocated | PageKind::Owned => census.allocated += pages,
                PageKind::Slab => census.slab += pages,
                PageKind::LargeKmalloc => census.large += pages,
                PageKind::Pool => census.pool += pages,
                PageKind::Untouched | PageKind::Tail => {
                    return Err(PageInconsistency::BadBlock(Pfn(at), kind));
                }
            }
            at += 1 << order;
        }
        Ok(())
    }
}
