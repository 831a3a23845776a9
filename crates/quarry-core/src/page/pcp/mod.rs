//! Per-CPU page lists of one zone: recently freed blocks, refilled and drained by the batch.
//!
//! The fast paths are the same for all eras: what differs is in [`Rules`] and
//! in the limits, and is looked at when a list is empty or the CPU holds `high` pages. The list of
//! single unmovable pages begins in an array ([`FrontPages`]). The machine's single steps reach it
//! without the lists being held, and bulk calls as n steps (`stepped.rs`). All other code goes by
//! [`Pageset::with`], which first takes into account what steps have done.
//!
//! # Departure from the kernel
//!
//! From 6.7 on each free lengthens a spree and each allocation of a single block halves it. Steps are only
//! counted, so of steps in both directions since the lists were held last the difference counts. A spree is
//! exact when they went one way, and else off by the array's length at most. A machine without steps has
//! no such difference.

pub(super) mod array;
mod bulk;
mod drain;
mod policy;
mod sets;
mod stack;
mod stock;
mod tune;

pub(in crate::page) use bulk::fill_slots;
pub(super) use sets::{Pageset, Pagesets, Zones};
pub use stock::PcpStock;

use core::mem::offset_of;

use crate::machine::{CpuId, Line, Machine, PerCpuState};
use crate::page::buddy::Wanted;
use crate::page::buddy::policy::CpuLists;
use crate::page::memmap::MemMap;
use crate::page::memmap::page::Page;
use crate::page::rules::{NO_LIST, PCP_LISTS, Rules, Tuning};
use crate::page::types::{FRONT_PAGES, MIGRATE_TYPES, PageKind, Pfn};
use crate::page::zone::{Shape, Zone};
use array::{Entry, Fill, FrontPages, Steps};
use stack::BlockStack;

/// Counters of the per-CPU lists, summed over CPUs in [`crate::page::PageStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpStats {
    /// Blocks handed out.
    pub allocs: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Times a list was empty and the zone was asked for blocks: a hold of its lock each, also if it
    /// had none.
    pub refills: u64,
    /// Blocks that refills brought.
    pub refilled: u64,
    /// Holds of the zone's lock by which the lists were drained because they had overflowed, a spree ended,
    /// or by the periodic work. What empties them on request counts in none of these.
    pub drains: u64,
    /// Blocks that drains gave back to the zone.
    pub drained: u64,
    /// Holds by the periodic work among `drains`, because `high` decays or a remote zone's lists were idle.
    pub decays: u64,
    /// Blocks that these gave back, among `drained`.
    pub decayed: u64,
}

impl PcpStats {
    pub(crate) fn add(&mut self, other: &Self) {
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.refills += other.refills;
        self.refilled += other.refilled;
        self.drains += other.drains;
        self.drained += other.drained;
        self.decays += other.decays;
        self.decayed += other.decayed;
    }
}

/// A list and what went through it.
struct PcpList {
    blocks: BlockStack,
    allocs: u64,
    frees: u64,
}

impl PerCpuState for Pcp {
    const LINE: Line = Line::Pcp;
}

/// One CPU's lists; all-zero is empty.
#[repr(C)]
pub(crate) struct Pcp {
    /// In front of the list [`Zone::hot_list`].
    front: FrontPages,
    /// Pages on all lists, [`Pcp::front`] included; steps since the last hold are not counted yet.
    pages: u32,
    /// Page count that triggers [`Pcp::overflow`]; 0 until the first call and after a change of the limits, so
    /// that the next free calls it.
    high: u32,
    /// `free_factor` with [`Tuning::FreeFactor`], `free_count` with [`Tuning::Auto`].
    spree: u32,
    alloc_factor: u8,
    /// The previous free was of an order above 0.
    high_order_before: bool,
    /// Intervals until idle lists of a remote zone give pages back.
    expire: u8,
    /// Allocations by CPUs of other nodes (`numa_other`).
    pub(crate) numa_other: u64,
    lists: [PcpList; PCP_LISTS],
    /// Blocks allocated and freed at the last interval.
    seen: u64,
    refills: u64,
    refilled: u64,
    drains: u64,
    drained: u64,
    decays: u64,
    decayed: u64,
}

impl Pcp {
    /// Offset of the array.
    pub(crate) const FRONT: usize = offset_of!(Pcp, front);

    /// Does something between taking steps into account and letting steps through again.
    #[inline(always)]
    pub(super) fn held<M: Machine, R>(
        &mut self,
        at: &Pageset<'_, M>,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        // First, as `f` relies on `pages`. On a machine with steps there mostly were some: the lists are held
        // only when the array is empty or full, for another list, or by another CPU.
        if let Some(steps) = self.front.steps() {
            self.settle(at, &steps);
        }
        let result = f(self);
        if at.zone.hot_list != NO_LIST {
            // A step must not bring the pages to `high`, where `overflow` has to look; nor must one
            // follow where they are there already.
            let elsewhere = self.pages - self.front.len() as u32;
            self.front
                .arm(self.high.saturating_sub(1).saturating_sub(elsewhere));
        }
        result
    }

    /// Takes into account what steps did.
    #[inline(never)]
    fn settle<M: Machine>(&mut self, at: &Pageset<'_, M>, steps: &Steps) {
        let of = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        // Only allocations of single blocks shorten a spree.
        let single = steps.pops.saturating_sub(self.front.take_bulk_pops());
        let (pops, pushes) = (of(single), of(steps.pushes));
        self.pages = self.pages.wrapping_add_signed(steps.grown);
        self.alloc_factor = self.alloc_factor.checked_shr(pushes).unwrap_or(0);
        self.high_order_before &= pushes == 0;
        let most = at.zone.limits.spree_max().max(self.spree);
        let spree = self.spree.checked_shr(pops).unwrap_or(0);
        let longer = u32::from(at.zone.rules.tuning == Tuning::Auto) * pushes.saturating_sub(pops);
        self.spree = spree.saturating_add(longer).min(most);
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages on all lists, with those steps that nothing has taken into account yet.
    pub(crate) fn pages_now(&self) -> u32 {
        let grown = self.front.steps().map_or(0, |steps| steps.grown);
        self.pages.wrapping_add_signed(grown)
    }

    /// The array, for callers that take and put pages as steps do. They must not arm it, which would lose the
    /// count of steps not yet settled.
    #[inline(always)]
    pub(in crate::page) fn front_mut(&mut self) -> &mut FrontPages {
        &mut self.front
    }

    /// The pages at which the lists are drained.
    pub(crate) fn high(&self, zone: &Zone) -> u32 {
        // Not `clamp`: the two may be seen between two changes.
        self.high
            .max(zone.limits.high_min())
            .min(zone.limits.high_max())
    }

    /// The `high` that `/proc/zoneinfo` shows: 0 for lists that were never used, in eras that tune it. A
    /// recorded 6.18 shows 0 for DMA, which was never used, and the least for DMA32, which was.
    pub(crate) fn shown_high<M: Machine>(&self, at: &Pageset<'_, M>) -> u32 {
        let tuned = at.zone.rules.tuning == Tuning::Auto
            && at.zone.limits.high_min() < at.zone.limits.high_max();
        if tuned && self.is_untouched() {
            return 0;
        }
        self.high(at.zone)
    }

    /// True if no block was ever on the lists or asked of them.
    fn is_untouched(&self) -> bool {
        self.high == 0 && self.pages == 0 && self.uses() == 0
    }

    /// Blocks allocated and freed.
    fn uses(&self) -> u64 {
        let by_lists = self.lists.iter().map(|list| list.allocs + list.frees);
        by_lists.chain(self.front.traffic()).sum()
    }

    /// Forgets what was tuned: the limits were changed.
    pub(crate) fn forget_high(&mut self) {
        self.high = 0;
    }

    /// Pages allocated and freed.
    pub(crate) fn traffic(&self, rules: &Rules) -> [u64; 2] {
        let mut pages = self.front.traffic();
        for (list, order) in self.lists.iter().zip(rules.order_of) {
            pages[0] += list.allocs << order;
            pages[1] += list.frees << order;
        }
        pages
    }

    pub(crate) fn stats(&self) -> PcpStats {
        let [pops, pushes] = self.front.traffic();
        PcpStats {
            allocs: pops + self.lists.iter().map(|list| list.allocs).sum::<u64>(),
            frees: pushes + self.lists.iter().map(|list| list.frees).sum::<u64>(),
            refills: self.refills,
            refilled: self.refilled,
            drains: self.drains,
            drained: self.drained,
            decays: self.decays,
            decayed: self.decayed,
        }
    }

    /// Takes a block, refilling from the zone if there is none.
    #[inline]
    pub(crate) fn alloc<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        cpu: CpuId,
        shape: Shape,
    ) -> Option<Pfn> {
        if !at.zone.rules.plain {
            return match at.zone.rules.mixed {
                true => self.alloc_mixed(at, shape),
                false => self.alloc_split(at, cpu, shape),
            };
        }
        match self.pop(at, shape.list, shape.order) {
            Some(pfn) => Some(pfn),
            None => self.refill_first(at, shape),
        }
    }

    /// Takes the first block of a list with blocks of one type, if it has any.
    #[inline(always)]
    pub(crate) fn pop<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        list: u8,
        order: u32,
    ) -> Option<Pfn> {
        let pfn = self.pop_front(at, list)?;
        self.lists[usize::from(list)].allocs += 1;
        self.taken(at, pfn, order);
        self.spree >>= 1;
        Some(pfn)
    }

    /// A block has left the lists to be handed out.
    #[inline(always)]
    fn taken<M: Machine>(&mut self, at: &Pageset<'_, M>, pfn: Pfn, order: u32) {
        at.map.page_to_write(pfn);
        self.pages -= 1 << order;
    }

    /// A block has come back to the lists.
    #[inline(always)]
    fn put_back<'m, M: Machine>(&mut self, at: &Pageset<'m, M>, pfn: Pfn, order: u32) -> &'m Page {
        self.pages += 1 << order;
        self.alloc_factor >>= 1;
        at.map.page_to_write(pfn)
    }

    #[inline(always)]
    fn pop_front<M: Machine>(&mut self, at: &Pageset<'_, M>, list: u8) -> Option<Pfn> {
        let blocks = &mut self.lists.get_mut(usize::from(list))?.blocks;
        if list == at.zone.hot_list {
            self.front.pop(&at.map, blocks)
        } else {
            blocks.pop_front(&at.map)
        }
    }

    #[inline(always)]
    fn push_front<M: Machine>(&mut self, at: &Pageset<'_, M>, list: u8, pfn: Pfn) {
        let blocks = &mut self.lists[usize::from(list)].blocks;
        if list == at.zone.hot_list {
            self.front.push(&at.map, blocks, pfn);
        } else {
            blocks.push_front(&at.map, pfn);
        }
    }

    /// Puts all pages of the array on their list.
    fn spill<M: Machine>(&mut self, at: &Pageset<'_, M>) {
        if let Some(behind) = self.lists.get_mut(usize::from(at.zone.hot_list)) {
            self.front.spill(&at.map, &mut behind.blocks, FRONT_PAGES);
        }
    }

    /// The rest of [`Pcp::alloc`] when [`Pcp::pop`] found nothing.
    #[cold]
    pub(crate) fn refill_first<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        shape: Shape,
    ) -> Option<Pfn> {
        let pfn = self.refill(at, shape)?;
        self.taken(at, pfn, shape.order);
        self.spree >>= 1;
        Some(pfn)
    }

    /// [`Pcp::alloc`] from a list with blocks of all types: the first of the type asked for.
    #[inline(never)]
    fn alloc_mixed<M: Machine>(&mut self, at: &Pageset<'_, M>, shape: Shape) -> Option<Pfn> {
        let list = &mut self.lists[usize::from(shape.list)];
        // Taking the block accounts its descriptor, so only the others are accounted here.
        let fits = |pfn: &Pfn| {
            let fits = at.map.page(*pfn).listed_as() == shape.migratetype;
            if !fits {
                at.map.page_to_read(*pfn);
            }
            fits
        };
        let pfn = match list.blocks.iter(&at.map).find(fits) {
            Some(pfn) => {
                list.blocks.remove(&at.map, pfn);
                list.allocs += 1;
                pfn
            }
            None => self.refill(at, shape)?,
        };
        self.taken(at, pfn, shape.order);
        Some(pfn)
    }

    /// Fills the list under one hold of the zone lock and takes the first block.
    #[cold]
    fn refill<M: Machine>(&mut self, at: &Pageset<'_, M>, shape: Shape) -> Option<Pfn> {
        let Shape {
            order, migratetype, ..
        } = shape;
        let mut wanted = Wanted {
            order,
            migratetype,
            kind: PageKind::Pcp,
            mixing: at.mixing,
            reserved: false,
        };
        let blocks = self.refill_blocks(at, order);
        // `None` in a signal handler that interrupted the lock's holder: the allocation fails, as an atomic
        // one may.
        let mut area = at.zone.lock(at.map)?;
        let list = &mut self.lists[usize::from(shape.list)].blocks;
        // Both ends are empty, so what comes first goes in front.
        let in_front = if shape.list == at.zone.hot_list {
            FRONT_PAGES
        } else {
            0
        };
        let mut fill = Fill::new(in_front);
        let (front, mut first, mut got) = (&mut self.front, None, 0);
        // In the order of allocation, so that neighbours come out one after the other.
        let mut keep = |pfn| match first {
            None => first = Some(pfn),
            Some(_) if !fill.is_full() => fill.put_below(front, pfn),
            Some(_) => list.push_back(&at.map, pfn),
        };
        while got < blocks {
            let run = area.alloc_run(at.map, &mut wanted, blocks - got, &mut keep);
            if run == 0 {
                break;
            }
            got += run;
        }
        self.pages += got << order;
        self.refilled += u64::from(got);
        if in_front > 0 {
            fill.finish(&mut self.front);
        }
        self.refills += 1;
        self.lists[usize::from(shape.list)].allocs += u64::from(first.is_some());
        first
    }

    /// Takes back a block whose descriptor already says [`PageKind::Pcp`]. Returns true if that made the lists
    /// too long, and older blocks went to the zone.
    #[inline]
    pub(crate) fn free<M: Machine>(&mut self, at: &Pageset<'_, M>, pfn: Pfn, shape: Shape) -> bool {
        if at.zone.rules.cpu_lists != CpuLists::Release {
            return self.free_merged(at, pfn, shape);
        }
        self.push_front(at, shape.list, pfn);
        self.lists[usize::from(shape.list)].frees += 1;
        self.freed(at, pfn, shape)
    }

    /// [`Pcp::free`] of a single page on a list with blocks of one type, except for the overflow: if this
    /// returns true, the caller has to call [`Pcp::overflow`].
    #[inline(always)]
    pub(crate) fn push_single<M: Machine>(
        &mut self,
        at: &Pageset<'_, M>,
        pfn: Pfn,
        list: u8,
    ) -> bool {
        self.push_front(at, list, pfn);
        self.lists[usize::from(list)].frees += 1;
        self.put_back(at, pfn, 0);
        self.high_order_before = false;
        if self.spree < at.zone.limits.spree_max() {
            self.spree += 1;
        }
        self.pages >= self.high || at.zone.is_below_high()
    }

    #[inline(always)]
    fn freed<M: Machine>(&mut self, at: &Pageset<'_, M>, pfn: Pfn, shape: Shape) -> bool {
        let Shape {
            order, migratetype, ..
        } = shape;
        let page = self.put_back(at, pfn, order);
        if at.zone.rules.mixed {
            page.set_free(PageKind::Pcp, order, migratetype.into());
        }
        let ends_spree = self.ends_spree(at, order);
        if self.spree < at.zone.limits.spree_max() {
            self.spree += 1 << order;
        }
        if let Some(pages) = ends_spree {
            self.drain_freed(at, shape.list, pages);
            return true;
        }
        let look = self.pages >= self.high || at.zone.is_below_high();
        look && self.overflow(at, shape.list)
    }

    /// All blocks behind the array with their lists, for the consistency walker.
    pub(crate) fn blocks<'a>(&'a self, map: &'a MemMap) -> impl Iterator<Item = (Pfn, usize)> + 'a {
        self.lists
            .iter()
            .enumerate()
            .flat_map(|(at, list)| list.blocks.iter(map).map(move |pfn| (pfn, at)))
    }

    /// The pages of the array.
    pub(crate) fn front(&self) -> &[Entry] {
        self.front.entries()
    }
}

const _: () = assert!(MIGRATE_TYPES * 5 == PCP_LISTS);
