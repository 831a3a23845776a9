//! One zone: buddy free lists for orders 0..=10 and all migrate types under one lock.
//!
//! # Migrate types
//!
//! A pageblock (2 MiB of 4 KiB pages) has a [`MigrateType`]; blocks that are freed in it go on lists
//! of that type. What a request gets whose type has no block is in `fallback.rs`.
//!
//! # Ends of lists
//!
//! A block is taken from a list's front. A block that was freed goes there too, but from 2.6.35 on to the
//! end if its merge is likely to come soon: if the pair that it makes with its buddy has a free buddy.
//! Blocks of the two largest orders always go in front.

mod fallback;
mod fill;
mod free;
mod high_atomic;
pub(super) mod lists;
pub mod policy;
pub(super) mod vacancy;

pub use fill::FreeBlockCounts;

use crate::era::Era;
use crate::machine::{Access, Line, Machine, Work, access, looked, work};
use crate::page::memmap::list::{Links, PageList};
use crate::page::memmap::{MapOn, MemMap};
use crate::page::rules::Rules;
use crate::page::types::{BLOCK_TYPES, BlockType, MAX_ORDER, MigrateType, ORDERS, PageKind, Pfn};
use fallback::FALLBACKS;
use lists::Lists;
use policy::Policy;
use vacancy::Vacancy;

/// Blocks of other types that a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixing {
    /// Any block, once its own type has none.
    Allowed,
    /// Whole pageblocks only, in which nothing is in use that types could be mixed with.
    WholeBlocks,
    /// Single blocks of other types, without a look at the own lists or for a claim.
    Steals,
}

/// A request to a zone's lists.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) order: u32,
    pub(crate) migratetype: MigrateType,
    /// Kind that the block becomes.
    pub(crate) kind: PageKind,
    pub(crate) mixing: Mixing,
    /// Taken from pageblocks that are reserved for requests that cannot wait, or not at all.
    pub(crate) reserved: bool,
}

impl Wanted {
    /// The type on whose lists the request looks first.
    #[inline(always)]
    fn own_type(&self) -> BlockType {
        match self.reserved {
            true => BlockType::HIGH_ATOMIC,
            false => self.migratetype.into(),
        }
    }
}

/// A block that has left its list.
struct Taken {
    pfn: Pfn,
    order: u32,
    /// The type that what is left of it goes to.
    rest: BlockType,
    /// It was another type's.
    stolen: bool,
}

/// The lists of a zone; behind the zone lock, whose word has a cache line of its own: those that wait
/// look at it all the time.
///
/// The counters come first, then the lists that requests name: simulated time goes by the lines that they are on.
#[repr(C, align(64))]
pub(crate) struct FreeArea {
    /// Pages below the frontier without memory.
    pub(crate) vacancy: Vacancy,
    free_pages: u64,
    /// Blocks allocated and freed under the lock, by order.
    pub(crate) allocated: [u64; ORDERS],
    pub(crate) freed: [u64; ORDERS],
    pub(crate) splits: u64,
    pub(crate) merges: u64,
    /// Allocations that took a block of another type.
    pub(crate) extfrag: u64,
    /// Pageblocks whose type that changed.
    pub(crate) retagged: u64,
    lists: Lists,
    /// First page that was never handed out: everything from here to `end` is free but on no
    /// list, so a large reservation costs no descriptor until it is needed.
    frontier: u32,
    /// Behind the last page: the zone's, or where others use the rest for good (`fill.rs`).
    end: u32,
    /// The release whose rules hold.
    era: Era,
    /// log2 of the pages of the largest block.
    max_order: u32,
    /// Type of the pageblocks beyond the frontier.
    boot_type: BlockType,
    /// Chooses blocks in place of the release's rules.
    policy: Option<Policy>,
    /// Lists that the request at hand has looked at beyond those of its own type.
    looks: u32,
    /// Pages of pageblocks that are reserved, and free ones among them.
    reserved_pages: u64,
    free_reserved: u64,
    /// A free block did not merge with its free buddy because one of them was reserved. They stay two when it no longer is.
    kept_apart: bool,
    /// Allocations that mixed types although the policy asks to reclaim memory first.
    pub(crate) forced: u64,
}

impl FreeArea {
    /// A zone over pages `start..end`, all free, in pageblocks of one type.
    pub(crate) fn new(
        start: u32,
        end: u32,
        rules: &Rules,
        (vacancy, lists): (Vacancy, Lists),
    ) -> Self {
        let boot_type = rules.boot_type().into();
        Self {
            era: rules.era,
            max_order: rules.max_order,
            lists,
            policy: rules.policy,
            looks: 0,
            frontier: start,
            end,
            boot_type,
            free_pages: u64::from(end - start),
            reserved_pages: 0,
            free_reserved: 0,
            kept_apart: false,
            vacancy,
            allocated: [0; ORDERS],
            freed: [0; ORDERS],
            splits: 0,
            merges: 0,
            extfrag: 0,
            retagged: 0,
            forced: 0,
        }
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.free_pages
    }

    pub(crate) fn frontier(&self) -> u32 {
        self.frontier
    }

    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    fn boot_type(&self) -> BlockType {
        self.boot_type
    }

    /// Accounts the line that every holder of the zone lock writes, that of the counters.
    pub(in crate::page) fn account<M: Machine>(&self, machine: &M) {
        let counters = core::ptr::from_ref(&self.free_pages);
        access(machine, Line::Zone, Access::Write, counters);
    }

    /// Notes that all pages below `at` have been handed out or are on a list, and that pages from `end` on are
    /// in use for good.
    fn begin_untouched(&mut self, at: u32, end: u32) {
        (self.frontier, self.end) = (at, end);
        let listed: u64 = self.lists.grids().map(|grid| grid.free_pages).sum();
        self.free_pages = listed + u64::from(end - at);
    }

    /// Takes a block that was laid off its list.
    fn unlay<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, order: u32, of: BlockType) {
        self.remove(map, pfn, order, of);
        map.page(pfn).set_kind(PageKind::Untouched, 0);
        self.vacancy.occupy(pfn, order);
    }

    /// Puts a block without memory on a list.
    fn lay<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, order: u32, of: BlockType) {
        self.put_last(map, pfn, order, of);
        self.vacancy.vacate(pfn, order);
    }

    /// Free pages known to have memory.
    pub(crate) fn resident_free_pages(&self) -> u64 {
        let untouched = u64::from(self.end - self.frontier);
        self.free_pages - untouched - self.vacancy.pages()
    }

    /// Free blocks by order and type, as `/proc/pagetypeinfo` counts them; untouched memory counts
    /// in the largest blocks that it will be split from.
    pub(crate) fn free_blocks(&self) -> FreeBlockCounts {
        let mut blocks = [[0; BLOCK_TYPES]; ORDERS];
        for (counts, order) in blocks.iter_mut().zip(0..) {
            for (count, of) in counts.iter_mut().zip(BlockType::all()) {
                *count = self.listed(order, of).into();
            }
        }
        let untouched = self.boot_type.index();
        let mut at = self.frontier;
        while at < self.end {
            let order = self.order_at(at);
            // Whole runs of the largest block are counted at once: there may be millions.
            let run = if order == self.max_order {
                (self.end - at) >> order
            } else {
                1
            };
            blocks[order as usize][untouched] += u64::from(run);
            at += run << order;
        }
        blocks
    }

    /// Order of the largest block that starts at the untouched page `at`.
    fn order_at(&self, at: u32) -> u32 {
        let aligned = at.trailing_zeros().min(self.max_order);
        aligned.min((self.end - at).ilog2())
    }

    /// The list for a block, and the counts of its region.
    #[inline(always)]
    fn counted(&mut self, pfn: Pfn, order: u32, of: BlockType, free: bool) -> &mut PageList {
        let count = |sum: &mut u64| {
            *sum = match free {
                true => *sum + (1 << order),
                false => *sum - (1 << order),
            }
        };
        if of == BlockType::HIGH_ATOMIC {
            count(&mut self.free_reserved);
        }
        let region = self.lists.region_of(pfn);
        let grid = self.lists.grid_mut(region);
        count(&mut grid.free_pages);
        grid.list_mut(order, of)
    }

    /// Puts a block on a list and notes which.
    fn put<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, order: u32, of: BlockType) {
        map.page(pfn).set_free(PageKind::Buddy, order, of);
        self.counted(pfn, order, of, true)
            .push_front(Links::of_zone(map), pfn);
    }

    /// Puts a block at the end of a list and notes which.
    fn put_last<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, order: u32, of: BlockType) {
        map.page(pfn).set_free(PageKind::Buddy, order, of);
        self.counted(pfn, order, of, true)
            .push_back(Links::of_zone(map), pfn);
    }

    /// Takes a block off its list.
    fn remove<M: Machine>(&mut self, map: MapOn<'_, M>, pfn: Pfn, order: u32, of: BlockType) {
        self.counted(pfn, order, of, false)
            .remove(Links::of_zone(map), pfn);
    }

    /// Takes the first block of a list off it.
    #[inline(always)]
    fn pop<M: Machine>(&mut self, map: MapOn<'_, M>, order: u32, of: BlockType) -> Option<Pfn> {
        let first = self.first(order, of)?;
        self.counted(first, order, of, false)
            .pop_front(Links::of_zone(map))
    }

    /// Puts the next untouched block on its list. `false` when there is none.
    fn extend<M: Machine>(&mut self, map: MapOn<'_, M>) -> bool {
        if self.frontier >= self.end {
            return false;
        }
        let pfn = Pfn(self.frontier);
        let order = self.order_at(pfn.0);
        self.frontier += 1 << order;
        self.put_last(map, pfn, order, self.boot_type);
        self.vacancy.vacate(pfn, order);
        true
    }

    /// Takes the first block of a list away without splitting it. Who does so owns the block, and
    /// puts it back by [`FreeArea::restore`]. As it is not free meanwhile, its units without memory
    /// leave [`FreeArea::vacancy`], which others set against the free pages.
    pub(crate) fn isolate<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        order: u32,
        of: BlockType,
    ) -> Option<Pfn> {
        let pfn = self.pop(map, order, of)?;
        map.page(pfn).set_free(PageKind::Pcp, order, of);
        self.vacancy.occupy(pfn, order);
        self.free_pages -= 1 << order;
        Some(pfn)
    }

    /// Puts an isolated block back, where it is used last; the bits of `vacant` are set for its
    /// units without memory, from its first one on.
    pub(crate) fn restore<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        (pfn, order): (Pfn, u32),
        vacant: u64,
    ) {
        self.vacancy.vacate_units(pfn, order, vacant);
        let (pfn, merged, of) = self.merge(map, pfn, order);
        self.put_last(map, pfn, merged, of);
    }

    /// Takes a block of the order, splitting a larger one if need be; the upper half goes back at
    /// each level (facts 7.1).
    pub(crate) fn alloc<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        mut wanted: Wanted,
    ) -> Option<Pfn> {
        let mut taken = None;
        self.alloc_run(map, &mut wanted, 1, |pfn| {
            taken = Some(pfn);
        });
        taken
    }

    /// [`FreeArea::alloc`] of up to `most` blocks that come one after the other out of one larger one: each is
    /// given to `each`. Returns the number of blocks, 0 if the zone has none. From 6.15 on a stolen block turns
    /// what is wanted to [`Mixing::Steals`], for the rest of the caller's hold.
    ///
    /// While a block is being used up, the lists of its type below it hold only its own remains, lowest address
    /// first. So cutting it once leaves the same lists as cutting it again for each block. The cost of the
    /// latter is charged.
    #[inline]
    pub(crate) fn alloc_run<M: Machine>(
        &mut self,
        map: MapOn<'_, M>,
        wanted: &mut Wanted,
        most: u32,
        mut each: impl FnMut(Pfn),
    ) -> u32 {
        let Some(taken) = self.take(map, wanted) else {
            return 0;
        };
        if taken.stolen && self.era >= Era::V6_15 {
            wanted.mixing = Mixing::Steals;
        }
        let Wanted {
            order,
            migratetype,
            kind,
            ..
        } = *wanted;
        let levels = taken.order - order;
        let all = 1 << levels;
        // A stolen block came past smaller ones. The next one might be among these.
        let run = if taken.stolen { 1 } else { most.min(all) };
        for at in 0..run {
            let pfn = Pfn(taken.pfn.0 + (at << order));
            let cuts = if at == 0 { levels } else { at.trailing_zeros() };
            self.splits += u64::from(cuts);
            for level in (0..cuts).rev() {
                map.split_off(Pfn(pfn.0 + (1 << (order + level))));
            }
            work(map.machine, Work::ZoneTake);
            let page = map.page_to_set(pfn);
            match kind {
                PageKind::Pcp => page.set_free(kind, order, migratetype.into()),
                _ => page.set_kind(kind, order),
            }
            if at == 0 || Vacancy::begins_unit(pfn) {
                self.vacancy.occupy(pfn, order);
            }
            each(pfn);
        }
        let mut at = run;
        while at < all {
            let level = at.trailing_zeros();
            let left = Pfn(taken.pfn.0 + (at << order));
            self.put(map, left, order + level, taken.rest);
            at += 1 << level;
        }
        looked(map.machine, self.looks + levels + 1, run);
        self.looks = 0;
        self.free_pages -= u64::from(run) << order;
        self.allocated[order as usize] += u64::from(run);
        run
    }

    /// A block of at least the order, off its list.
    fn take<M: Machine>(&mut self, map: MapOn<'_, M>, wanted: &Wanted) -> Option<Taken> {
        if wanted.reserved {
            return self.take_own(map, wanted);
        }
        if let Some(policy) = self.policy {
            return self.take_by(policy, map, wanted);
        }
        self.take_by_rules(map, wanted)
    }

    /// [`FreeArea::take`] by the release's rules.
    fn take_by_rules<M: Machine>(&mut self, map: MapOn<'_, M>, wanted: &Wanted) -> Option<Taken> {
        loop {
            if wanted.mixing != Mixing::Steals
                && let Some(own) = self.take_own(map, wanted)
            {
                return Some(own);
            }
            // Untouched memory is as if on the lists of its type, behind all that is there: it is
            // wanted by that type, and by others as long as they see no block as large.
            let others = FALLBACKS[wanted.migratetype as usize];
            let largest = |&other: &MigrateType| self.listed(self.max_order, other.into()) > 0;
            let enough = self.boot_type != wanted.migratetype && others.iter().any(largest);
            if enough || !self.extend(map) {
                let foreign = self.take_foreign(map, wanted)?;
                self.note_foreign(&map, &foreign, wanted.migratetype);
                return Some(foreign);
            }
        }
    }

    /// The smallest block of the request's type that is large enough, off its list.
    fn take_own<M: Machine>(&mut self, map: MapOn<'_, M>, wanted: &Wanted) -> Option<Taken> {
        let of = wanted.own_type();
        let mut smallest_first = wanted.order..=MAX_ORDER;
        smallest_first.find_map(|order| {
            let pfn = self.pop(map, order, of)?;
            map.prefetch_ahead(map.page(pfn));
            Some(Taken {
                pfn,
                order,
                rest: of,
                stolen: false,
            })
        })
    }

    /// Length of a list.
    pub(crate) fn listed(&self, order: u32, of: BlockType) -> u32 {
        self.lists.len(order, of)
    }

    /// The block that a list begins with.
    #[inline(always)]
    fn first(&self, order: u32, of: BlockType) -> Option<Pfn> {
        self.lists.first(order, of)
    }

    /// The blocks on a list.
    pub(crate) fn blocks<'a>(
        &self,
        map: &'a MemMap,
        order: u32,
        of: BlockType,
    ) -> impl Iterator<Item = Pfn> + use<'a, '_> {
        self.lists
            .grids()
            .flat_map(move |grid| grid.list(order, of).iter(map))
    }
}
