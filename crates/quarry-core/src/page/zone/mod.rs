//! A zone: its buddy lists behind the zone lock, the deferred frees, the watermarks, and the rules and limits
//! of the per-CPU lists in front.

mod limits;
pub mod watermark;

use core::ops::{Deref, DerefMut};

use crate::machine::{CpuId, Guard, LockClass, Machine, SpinLock, Work, work};
use crate::page::buddy::lists::Lists;
use crate::page::buddy::vacancy::Vacancy;
use crate::page::buddy::{FreeArea, Wanted};
use crate::page::geometry::{ListLimits, PcpParams, Watermarks};
use crate::page::memmap::blocks::{PageBlocks, Tag};
use crate::page::memmap::page::Page;
use crate::page::memmap::{MapOn, MemMap};
use crate::page::rules::{NO_LIST, Rules, Tuning};
use crate::page::types::{
    AllocOptions, BLOCK_TYPES, BlockType, MigrateType, ORDERS, Pfn, ZONE_TYPES, ZoneId, ZoneType,
};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use limits::PcpLimits;

/// A block's list, order and type.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) list: u8,
    pub(crate) order: u32,
    pub(crate) migratetype: MigrateType,
}

/// The free pages below which an allocation goes elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing is kept back.
    None,
    Min,
    Low,
}

/// NUMA counters of requests that did not stay on the fast path; the rest follows from them.
#[derive(Default)]
pub(crate) struct NumaMisses {
    /// Served here although another node was preferred (`numa_miss`).
    pub(crate) miss: AtomicU64,
    /// Preferred here and served elsewhere (`numa_foreign`).
    pub(crate) foreign: AtomicU64,
    /// Served to a CPU of another node, past the lists (`numa_other`).
    pub(crate) other: AtomicU64,
}

/// See the module's documentation.
pub(crate) struct Zone {
    pub(crate) id: ZoneId,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Pages among them that the page allocator never had.
    pub(crate) absent: u32,
    pub(crate) rules: Rules,
    /// [`Rules::list_of`] by the bits of a pageblock's tag, unless blocks of all types share a list.
    plain_lists: [[u8; BLOCK_TYPES]; ORDERS],
    /// The list of single unmovable pages, which begins in an array; [`NO_LIST`] where blocks of all
    /// types share a list.
    pub(crate) hot_list: u8,
    /// The tag of the zone's unmovable pageblocks.
    pub(crate) unmovable: Tag,
    /// It is the first zone that its node's CPUs try.
    is_first: bool,
    pub(crate) limits: PcpLimits,
    /// 1 while fewer pages are free than the high watermark asks for, in eras whose lists heed it.
    below_high: AtomicU32,
    /// Those of the cold lists, in releases that have them.
    cold_limits: PcpLimits,
    /// Largest order held by the lists, huge pages aside.
    max_order: u32,
    /// Watermarks in pages: min, low, high, and promo or 0.
    marks: [AtomicU64; 4],
    /// Pages that they are raised by.
    boost: AtomicU64,
    /// Pages kept back from requests that could have had a higher zone, by the highest
    /// (`lowmem_reserve`).
    pub(crate) lowmem_reserve: [AtomicU64; ZONE_TYPES],
    pub(crate) shared: Shared,
}

/// Fields that all CPUs write, on cache lines of their own: every allocation and free reads the rest of a zone.
#[repr(align(64))]
pub(crate) struct Shared {
    area: SpinLock<FreeArea>,
    /// Free pages in the area, as its last holder left it.
    free_pages: AtomicU64,
    /// Pages that the watermark checks of most requests leave out, as its last holder left them.
    kept_for_atomic: AtomicU64,
    /// Blocks whose free found the zone lock re-entered: a stack linked by `next`, which the next
    /// holder of the lock takes whole. Push and take-all cannot suffer from reuse of a page.
    deferred: AtomicU32,
    /// Requests that went to the zone without passing a per-CPU list, by order.
    pub(crate) direct_allocs: [AtomicU64; ORDERS],
    pub(crate) direct_frees: [AtomicU64; ORDERS],
    pub(crate) numa: NumaMisses,
}

impl Zone {
    /// A zone over free pages, with its number in the page allocator's table; it has no watermarks
    /// and its lists no limits until [`Zone::set_sizes`].
    pub(crate) fn new(
        (id, number): (ZoneId, usize),
        (pages, absent): (core::ops::Range<u32>, u32),
        rules: Rules,
        free: (Vacancy, Lists),
        max_order: u32,
    ) -> Self {
        let area = FreeArea::new(pages.start, pages.end, &rules, free);
        let plain_lists = plain_lists(&rules);
        Self {
            id,
            start: pages.start,
            end: pages.end,
            absent,
            rules,
            plain_lists,
            hot_list: plain_lists[0][MigrateType::Unmovable as usize],
            unmovable: Tag::new(number, MigrateType::Unmovable.into()),
            is_first: false,
            limits: PcpLimits::new(),
            below_high: AtomicU32::new(0),
            cold_limits: PcpLimits::new(),
            max_order,
            marks: core::array::from_fn(|_| AtomicU64::new(0)),
            boost: AtomicU64::new(0),
            lowmem_reserve: core::array::from_fn(|_| AtomicU64::new(0)),
            shared: Shared {
                free_pages: AtomicU64::new(area.free_pages()),
                kept_for_atomic: AtomicU64::new(0),
                area: SpinLock::new(LockClass::Zone, area),
                deferred: AtomicU32::new(0),
                direct_allocs: core::array::from_fn(|_| AtomicU64::new(0)),
                direct_frees: core::array::from_fn(|_| AtomicU64::new(0)),
                numa: NumaMisses::default(),
            },
        }
    }

    /// Makes it the first zone that its node's CPUs try.
    pub(crate) fn set_first(&mut self, blocks: &PageBlocks) {
        self.is_first = true;
        self.publish_near(blocks);
    }

    /// Publishes whether frees may go by the tag alone.
    fn publish_near(&self, blocks: &PageBlocks) {
        let plain = self.hot_list != NO_LIST && !self.is_below_high();
        if self.is_first {
            blocks.set_near(self.id.node, plain.then_some(self.unmovable));
        }
    }

    /// Changes the limits of the lists and the watermarks, which may be in use.
    pub(crate) fn set_sizes(&self, pcp: &PcpParams, marks: &Watermarks) {
        let hot = ListLimits {
            batch: pcp.batch,
            high: pcp.high,
        };
        self.limits.set(hot, pcp.high_max, &self.rules);
        if let Some(cold) = pcp.cold {
            self.cold_limits.set(cold, cold.high, &self.rules);
        }
        let promo = marks.promo.unwrap_or(0);
        let values = [marks.min, marks.low, marks.high, promo];
        for (mark, value) in self.marks.iter().zip(values) {
            mark.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn params(&self) -> PcpParams {
        let cold = &self.cold_limits;
        PcpParams {
            batch: self.limits.batch(),
            high: self.limits.high_min(),
            high_max: self.limits.high_max(),
            cold: self.rules.cold_list.then(|| ListLimits {
                batch: cold.batch(),
                high: cold.high_min(),
            }),
            max_order: self.max_order,
        }
    }

    /// The watermarks, raised by the boost.
    pub(crate) fn watermarks(&self) -> Watermarks {
        let [min, low, high, promo] = core::array::from_fn(|at| self.mark(at));
        Watermarks {
            min,
            low,
            high,
            promo: (self.marks[3].load(Ordering::Relaxed) > 0).then_some(promo),
        }
    }

    /// A watermark, raised by the boost.
    fn mark(&self, at: usize) -> u64 {
        self.marks[at].load(Ordering::Relaxed) + self.boost()
    }

    /// Pages that the watermarks are raised by.
    pub(crate) fn boost(&self) -> u64 {
        self.boost.load(Ordering::Relaxed)
    }

    /// Raises the watermarks by `pages` pages, at most all of the zone's; the next holder of the zone lock
    /// publishes whether the zone is below its high one.
    pub(crate) fn set_boost(&self, pages: u64) {
        self.boost.store(pages.min(self.pages()), Ordering::Relaxed);
    }

    /// Largest order held by the lists, huge pages aside.
    pub(crate) fn max_order(&self) -> u32 {
        self.max_order
    }

    pub(crate) fn pages(&self) -> u64 {
        u64::from((self.end - self.start).saturating_sub(self.absent))
    }

    /// Free pages on the zone's own lists.
    pub(crate) fn free_pages(&self) -> u64 {
        self.shared.free_pages.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn is_below_high(&self) -> bool {
        self.below_high.load(Ordering::Relaxed) != 0
    }

    /// Publishes the number of free pages and those that are kept for some; the caller holds the zone lock.
    fn publish(&self, blocks: &PageBlocks, area: &FreeArea) {
        let free_pages = area.free_pages();
        let Shared {
            free_pages: published,
            kept_for_atomic,
            ..
        } = &self.shared;
        published.store(free_pages, Ordering::Relaxed);
        kept_for_atomic.store(area.kept_for_atomic(), Ordering::Relaxed);
        let tuned = self.rules.tuning == Tuning::Auto;
        let is_below = tuned && free_pages < self.mark(2);
        // Every free reads the word, so it is written only when it changes: its line stays shared.
        if is_below != self.is_below_high() {
            self.below_high.store(is_below.into(), Ordering::Relaxed);
            self.publish_near(blocks);
        }
    }

    /// True if taking a block leaves at least the mark and the pages kept back from requests that could have
    /// had a higher zone.
    pub(crate) fn is_above(&self, mark: Mark, request: &AllocOptions) -> bool {
        let mark = match mark {
            Mark::None => return true,
            Mark::Min => self.mark(0),
            Mark::Low => self.mark(1),
        };
        let highest = request.highest_zone as usize;
        let kept = mark + self.lowmem_reserve[highest].load(Ordering::Relaxed);
        let reserved = match request.atomic && request.order > 0 {
            true => 0,
            false => self.shared.kept_for_atomic.load(Ordering::Relaxed),
        };
        watermark::leaves(self.free_pages(), kept + reserved, request.order)
    }

    /// Reserves the pageblock of a block for requests that cannot wait, if the zone may reserve more.
    pub(crate) fn reserve<M: Machine>(&self, map: MapOn<'_, M>, pfn: Pfn) {
        let block_pages = 1 << map.blocks().order();
        let most = match self.rules.high_atomic {
            true => watermark::reserve_limit(self.rules.era, self.pages(), block_pages),
            false => 0,
        };
        if most > 0
            && let Some(mut area) = self.lock(map)
        {
            area.reserve(map, pfn, most);
        }
    }

    /// Gives a reserved pageblock to requests of a type; returns whether there was one with a free block.
    pub(crate) fn unreserve<M: Machine>(&self, map: MapOn<'_, M>, to: MigrateType) -> bool {
        if self.shared.kept_for_atomic.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let to = self.rules.group(to);
        let area = self.lock(map);
        area.is_some_and(|mut area| area.unreserve(map, to))
    }

    /// True if the zone is of another node than the CPU.
    #[inline(always)]
    pub(crate) fn is_remote<M: Machine>(&self, machine: &M, cpu: CpuId) -> bool {
        machine.node_of_cpu(cpu) != self.id.node
    }

    /// True if taking `pages` single pages leaves at least the low watermark and the pages kept back.
    pub(crate) fn has_above_low(&self, pages: u64) -> bool {
        let low = self.mark(1);
        let kept = self.lowmem_reserve[ZoneType::Normal as usize].load(Ordering::Relaxed);
        let reserved = self.shared.kept_for_atomic.load(Ordering::Relaxed);
        self.free_pages() >= low + kept + reserved + pages
    }

    /// The list for a block on lists of one type each; `None` also where there are others.
    #[inline(always)]
    pub(crate) fn plain_list(&self, order: u32, migratetype: u8) -> Option<u8> {
        let row = self.plain_lists.get(order as usize)?;
        let list = row[usize::from(migratetype % row.len() as u8)];
        (list != NO_LIST).then_some(list)
    }

    /// The list for a block, if the per-CPU lists hold such blocks.
    #[inline(always)]
    pub(crate) fn shape(&self, order: u32, migratetype: MigrateType) -> Option<Shape> {
        let list = self.rules.list_of.get(order as usize)?[migratetype as usize];
        (list != NO_LIST).then_some(Shape {
            list,
            order,
            migratetype,
        })
    }

    /// Takes the zone lock and settles what was deferred. `None` if re-entered.
    pub(crate) fn lock<'a, M: Machine>(&'a self, map: MapOn<'a, M>) -> Option<AreaGuard<'a, M>> {
        let area = self.shared.area.lock(map.machine)?;
        area.account(map.machine);
        let blocks = *map.blocks();
        let mut guard = AreaGuard {
            zone: self,
            blocks,
            area,
        };
        if self.shared.deferred.load(Ordering::Relaxed) != 0 {
            self.settle(map, &mut guard);
        }
        Some(guard)
    }

    #[cold]
    fn settle<M: Machine>(&self, map: MapOn<'_, M>, area: &mut FreeArea) {
        // Acquire: pairs with the Release in `defer`.
        let mut next = Pfn::from_link(self.shared.deferred.swap(0, Ordering::Acquire));
        while let Some(pfn) = next {
            let page: &Page = map.page(pfn);
            next = page.next();
            area.free(map, pfn, page.order());
        }
    }

    /// Leaves a block for the next holder of the zone lock.
    #[cold]
    pub(crate) fn defer(&self, map: &MemMap, pfn: Pfn) {
        let mut head = self.shared.deferred.load(Ordering::Relaxed);
        loop {
            map.page(pfn).set_next(Pfn::from_link(head));
            // Release: pairs with the Acquire in `settle`.
            match self.shared.deferred.compare_exchange(
                head,
                Pfn::link(Some(pfn)),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes a block past the per-CPU lists.
    pub(crate) fn alloc_direct<M: Machine>(
        &self,
        map: MapOn<'_, M>,
        wanted: Wanted,
    ) -> Option<Pfn> {
        work(map.machine, Work::PageCall);
        let mut area = self.lock(map)?;
        let pfn = area.alloc(map, wanted)?;
        self.shared.direct_allocs[wanted.order as usize].fetch_add(1, Ordering::Relaxed);
        Some(pfn)
    }

    /// Gives a block back past the per-CPU lists. Its descriptor already says that it is free.
    pub(crate) fn free_direct<M: Machine>(&self, map: MapOn<'_, M>, pfn: Pfn, order: u32) {
        work(map.machine, Work::PageCall);
        self.shared.direct_frees[order as usize].fetch_add(1, Ordering::Relaxed);
        match self.lock(map) {
            Some(mut area) => area.free(map, pfn, order),
            None => self.defer(&map, pfn),
        }
    }
}

fn plain_lists(rules: &Rules) -> [[u8; BLOCK_TYPES]; ORDERS] {
    rules.list_of.map(|by_request| {
        let mut row = [NO_LIST; BLOCK_TYPES];
        if rules.plain {
            for (list, of) in row.iter_mut().zip(BlockType::all()) {
                *list = by_request[of.of_requests() as usize];
            }
        }
        row
    })
}

/// The zone lock, held; others see the free pages when it is released.
pub(crate) struct AreaGuard<'a, M: Machine> {
    zone: &'a Zone,
    blocks: PageBlocks,
    area: Guard<'a, M, FreeArea>,
}

impl<M: Machine> Deref for AreaGuard<'_, M> {
    type Target = FreeArea;
    #[inline]
    fn deref(&self) -> &FreeArea {
        &self.area
    }
}

impl<M: Machine> DerefMut for AreaGuard<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut FreeArea {
        &mut self.area
    }
}

impl<M: Machine> Drop for AreaGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.zone.publish(&self.blocks, &self.area);
    }
}
