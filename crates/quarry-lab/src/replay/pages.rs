//! Page events: the blocks of the trace that are no slabs, on the same page allocator as the slabs.
//!
//! What of them is driven, and what it does not tell, is in the [replay's documentation](super).

mod before;
mod events;
pub(super) mod parts;
mod report;

use quarry_core::design::Design;
use quarry_core::page::{AllocOptions, MAX_ORDER, MigrateType, PageError};
use quarry_sim::driver::{Driver, PageRef};
use quarry_trace::{Flags, ReplayEvent};

use super::by_type;
use super::fragmentation::Fragmentation;
use super::frames::Frames;
use super::input::Input;
use super::lists::Start;
use super::placement::Placement;
use crate::error::LabError;
use parts::{Fit, PartOf, Parts, SplitInto};

pub use events::{PageEvents, PageMode};
pub use report::PageReport;

/// A block of the trace.
pub(super) enum Slot<'h> {
    /// Not allocated.
    Empty,
    /// Not allocated, and this CPU's free waits.
    Awaited(u16),
    /// Allocated, on this CPU, with this order by the recording.
    Driven {
        memory: Held<'h>,
        cpu: u16,
        recorded_order: u8,
    },
    /// Left out: the recorded kernel's slab.
    Slab,
    /// Left out: too large, or without memory.
    Unserved,
    /// Allocated before the part that is replayed.
    Before,
}

const _: () = assert!(size_of::<Slot<'_>>() <= 16);

/// Places of all pages cost a walk, so they are taken with one of this many samples of free memory, and at the end.
const PLACED_EACH: usize = 4;

/// A page event's request.
#[derive(Clone, Copy)]
struct Wanted {
    migratetype: MigrateType,
    zero: bool,
    atomic: bool,
}

/// The memory of a block of the trace.
pub(super) enum Held<'h> {
    Block(PageRef<'h>),
    /// A part of a page.
    Part(PartOf),
    /// Several pages.
    Split(SplitInto),
}

/// A block from before.
pub(super) enum Initial<'h> {
    /// There was no memory for it.
    None,
    /// A part of the page that a later one of them frees.
    Part,
    /// Pages that its free frees.
    Pages(Vec<PageRef<'h>>),
}

/// The page events of a replay that drives them.
pub(super) struct Pages<'h> {
    pub(super) table: Vec<Slot<'h>>,
    /// Those from before, in the order of their frees; `None` if there was no memory for one.
    pub(super) initial: std::vec::IntoIter<Initial<'h>>,
    /// Pages of them now.
    initial_pages: u64,
    skip_slabs: bool,
    recorded_page_shift: u32,
    page_shift: u32,
    pub(super) parts: Parts<'h>,
    /// Pages of blocks now.
    pub(super) pages: u64,
    /// Bytes of them by the recording.
    recorded_bytes: u64,
    peak_pages: u64,
    report: PageReport,
}

/// Reason why a page event cannot be performed.
pub(super) enum BadPage {
    AllocatedTwice,
    NotAllocated,
    Refused(PageError),
}

impl BadPage {
    pub(super) fn text(&self, block: u32) -> String {
        match self {
            Self::AllocatedTwice => format!("page block {block} is allocated twice"),
            Self::NotAllocated => format!("page block {block} is freed, but it is not allocated"),
            Self::Refused(error) => format!("the free of page block {block} is refused ({error})"),
        }
    }
}

impl<'h> Pages<'h> {
    /// `None` if no page events are driven.
    pub(super) fn new(input: &Input, page_bytes: u64, cpus: u32) -> Result<Option<Self>, LabError> {
        let events = PageEvents::of(input);
        if !events.driven() {
            return Ok(None);
        }
        let meta = input.file.meta();
        Ok(Some(Self {
            table: input.table(input.file.meta().page_slots, || Slot::Empty)?,
            initial: Vec::new().into_iter(),
            initial_pages: 0,
            skip_slabs: events == PageEvents::OutsideSlabs,
            recorded_page_shift: meta.page_size.max(1).ilog2(),
            page_shift: page_bytes.ilog2(),
            parts: Parts::new(meta.page_size, page_bytes, cpus),
            pages: 0,
            recorded_bytes: 0,
            peak_pages: 0,
            report: PageReport {
                fragmentation: Fragmentation::new(meta.rows, page_bytes),
                ..PageReport::default()
            },
        }))
    }

    /// Allocates the blocks from before, and fills zones and lists as they are reported.
    pub(super) fn prepare<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        input: &Input,
        start: Option<&Start<'_>>,
        mut frames: Option<&mut Frames>,
    ) -> Result<(), LabError> {
        let found = before::find(input, self.skip_slabs, frames.is_some())?;
        if let Some(frames) = frames.as_deref_mut() {
            // What the slabs of an initial state left on the lists is not in addition to the report.
            driver.pages().drain_all();
            frames.lay_free(driver);
        }
        let mut initial = Vec::with_capacity(found.blocks.len());
        let copies = input.copies as usize;
        let blocks = found.blocks.iter();
        let mut places = found.frames.iter().copied();
        // Parts of the page that the next movable blocks share.
        let mut parts = 0;
        for block in blocks.flat_map(|block| std::iter::repeat_n(block, copies)) {
            let place = places.next().flatten();
            let laid = frames.as_deref_mut().zip(place).and_then(|(frames, pfn)| {
                let order = block.recorded_order.into();
                frames.lay_old(driver, pfn, order, block.migratetype)
            });
            initial.push(match laid {
                Some(page) => {
                    self.initial_pages += 1 << page.order();
                    Initial::Pages(vec![page])
                }
                None => self.make_initial(driver, block, &mut parts),
            });
        }
        if parts > 0 {
            self.end_shared(driver, &mut initial);
        }
        self.initial = initial.into_iter();
        self.report.initial_bytes = self.initial_pages << self.page_shift;
        let shares = |pages| match &frames {
            Some(frames) => frames.stock(pages),
            None => by_type::shares(pages, &found.singles),
        };
        if start.is_some() && frames.is_none() {
            // What the slabs of an initial state left on the lists is not in addition to the report.
            driver.pages().drain_all();
        }
        for zone in start.map_or(Ok(Vec::new()), |start| start.zones(shares))? {
            for (cpu, stock) in &zone.lists {
                let pages = driver.pages().stock_pcp(*cpu, stock);
                self.report.initial_pcp_pages += u64::from(pages.unwrap_or(0));
            }
            if frames.is_none() {
                driver.pages().leave_free(zone.zone, &zone.free);
            }
            driver.pages().set_boost(zone.zone, zone.boost);
        }
        Ok(())
    }

    /// Allocates a block from before, or counts it as a part of the page that a later one frees.
    fn make_initial<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        block: &before::Block,
        parts: &mut u32,
    ) -> Initial<'h> {
        let movable = block.migratetype == MigrateType::Movable;
        let (order, pages) = match self.fit(block.recorded_order, movable) {
            Fit::Block(order) => (order, 1),
            Fit::Pages(pages) => (0, pages),
            Fit::Parts(taken) => {
                *parts += taken;
                if *parts < self.parts.capacity() {
                    return Initial::Part;
                }
                *parts = 0;
                (0, 1)
            }
        };
        let taken: Vec<_> = (0..pages)
            .map_while(|_| driver.alloc_old_pages(order, block.migratetype))
            .collect();
        self.initial_pages += (taken.len() as u64) << order;
        match taken.is_empty() {
            true => Initial::None,
            false => Initial::Pages(taken),
        }
    }

    /// The last of the parts frees a page that is not full.
    fn end_shared<D: Design>(&mut self, driver: &Driver<'h, D>, initial: &mut [Initial<'h>]) {
        let last = initial
            .iter_mut()
            .rev()
            .find(|one| matches!(one, Initial::Part));
        let page = driver.alloc_old_pages(0, MigrateType::Movable);
        if let (Some(last), Some(page)) = (last, page) {
            self.initial_pages += 1;
            *last = Initial::Pages(vec![page]);
        }
    }

    /// Counts the zone locks that the periodic work took.
    pub(super) fn periodic(&mut self, zone_locks: u64) {
        self.report.periodic_zone_locks += zone_locks;
    }

    /// Accounts where pages lie from now on.
    pub(super) fn account_placement(&mut self, frames: Option<Frames>) {
        self.report.placement = Some(Placement::of(frames));
    }

    /// Notes where pages lie, if that is accounted.
    pub(super) fn note_placement<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        at: (u64, u64),
        last: bool,
    ) {
        let taken = self.report.fragmentation.samples.len();
        let due = taken.is_multiple_of(PLACED_EACH);
        if let Some(placement) = &mut self.report.placement
            && (due || last)
        {
            placement.take(driver, at);
        }
    }

    pub(super) fn fragmentation(&mut self) -> &mut Fragmentation {
        &mut self.report.fragmentation
    }

    /// Pages of blocks now.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages of blocks from before now.
    pub(super) fn initial_pages(&self) -> u64 {
        self.initial_pages
    }

    /// Fit of a recorded block at the replayed page size.
    pub(super) fn fit(&self, recorded_order: u8, movable: bool) -> Fit {
        Fit::new(
            self.recorded_page_shift,
            self.page_shift,
            recorded_order,
            movable,
        )
    }

    /// Remembers which blocks are alive when the replayed part begins.
    pub(super) fn note(&mut self, event: &ReplayEvent) {
        if !event.flags.has(Flags::UNKNOWN) {
            self.table[event.object as usize] = match event.kind.is_free() {
                true => Slot::Empty,
                false if self.skip_slabs && event.flags.has(Flags::SLAB) => Slot::Slab,
                false => Slot::Before,
            };
        }
    }

    /// Performs an allocation on the running CPU.
    pub(super) fn alloc<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        event: &ReplayEvent,
        cpu: u16,
    ) -> Result<(), BadPage> {
        let migratetype = named_type(event).unwrap_or(MigrateType::Unmovable);
        let fit = self.fit(event.order, migratetype == MigrateType::Movable);
        let order = fit.order();
        let slot = &mut self.table[event.object as usize];
        if !matches!(slot, Slot::Empty) {
            return Err(BadPage::AllocatedTwice);
        }
        let report = &mut self.report;
        if self.skip_slabs && event.flags.has(Flags::SLAB) {
            report.slab_allocs += 1;
            *slot = Slot::Slab;
            return Ok(());
        }
        if order > MAX_ORDER {
            report.too_large += 1;
            *slot = Slot::Unserved;
            return Ok(());
        }
        let wanted = Wanted {
            migratetype,
            zero: event.flags.has(Flags::ZERO),
            atomic: event.flags.has(Flags::ATOMIC),
        };
        let Some(memory) = self.place(driver, fit, wanted, cpu)? else {
            self.report.no_memory += 1;
            self.table[event.object as usize] = Slot::Unserved;
            return Ok(());
        };
        self.table[event.object as usize] = Slot::Driven {
            memory,
            cpu,
            recorded_order: event.order,
        };
        self.peak_pages = self.peak_pages.max(self.pages);
        self.recorded_bytes += recorded_bytes(self.recorded_page_shift, event.order);
        let peak = &mut self.report.peak_recorded_bytes;
        *peak = (*peak).max(self.recorded_bytes);
        Ok(())
    }

    /// Takes memory for a block, if there is any.
    fn place<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        fit: Fit,
        wanted: Wanted,
        cpu: u16,
    ) -> Result<Option<Held<'h>>, BadPage> {
        match fit {
            Fit::Block(order) => Ok(self.take(driver, order, wanted).map(Held::Block)),
            Fit::Parts(parts) => {
                if let Some(of) = self.parts.take(cpu, parts) {
                    self.report.packed_allocs += 1;
                    return Ok(Some(Held::Part(of)));
                }
                let page = self.take(driver, 0, wanted);
                Ok(page.map(|page| Held::Part(self.parts.open(cpu, page, parts))))
            }
            Fit::Pages(count) => {
                let mut pages = Vec::with_capacity(count as usize);
                while pages.len() < count as usize {
                    let Some(page) = self.take(driver, 0, wanted) else {
                        for page in pages {
                            self.give_back(driver, page)?;
                        }
                        return Ok(None);
                    };
                    pages.push(page);
                }
                Ok(Some(Held::Split(self.parts.keep(pages))))
            }
        }
    }

    /// Allocates a block for page events.
    fn take<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        order: u32,
        wanted: Wanted,
    ) -> Option<PageRef<'h>> {
        let locks_before = driver.zone_locks();
        let block = driver.alloc_pages_with(&AllocOptions {
            order,
            migratetype: wanted.migratetype,
            atomic: wanted.atomic,
            ..AllocOptions::default()
        });
        let locks = driver.zone_locks() - locks_before;
        let report = &mut self.report;
        report.zone_locks += locks;
        let block = block?;
        if wanted.zero {
            driver.zero_pages(&block);
        }
        report.allocs += 1;
        report.allocs_by_order[order as usize] += 1;
        report.allocs_by_migratetype[wanted.migratetype as usize] += 1;
        report.alloc_pcp += u64::from(locks == 0);
        report.refills += u64::from(locks > 0 && driver.pcp_holds(order));
        self.pages += 1 << order;
        Some(block)
    }

    /// Frees a block of page events.
    fn give_back<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        block: PageRef<'h>,
    ) -> Result<(), BadPage> {
        self.pages -= 1 << block.order();
        self.free_block(driver, block)
    }

    /// Frees the memory of a block.
    fn release<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        memory: Held<'h>,
        recorded_order: u8,
    ) -> Result<(), BadPage> {
        match memory {
            Held::Block(block) => self.give_back(driver, block),
            Held::Part(of) => match self.parts.give_back(of, 1 << recorded_order) {
                Some(page) => self.give_back(driver, page),
                None => {
                    self.report.packed_frees += 1;
                    Ok(())
                }
            },
            Held::Split(at) => self
                .parts
                .take_split(at)
                .into_iter()
                .try_for_each(|page| self.give_back(driver, page)),
        }
    }

    /// Performs a free on the running CPU.
    pub(super) fn free<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        event: &ReplayEvent,
        cpu: u16,
    ) -> Result<(), BadPage> {
        if event.flags.has(Flags::UNKNOWN) {
            if self.skip_slabs && event.flags.has(Flags::SLAB) {
                self.report.slab_frees += 1;
                return Ok(());
            }
            return self.free_initial(driver);
        }
        let report = &mut self.report;
        let slot = &mut self.table[event.object as usize];
        match std::mem::replace(slot, Slot::Empty) {
            Slot::Empty | Slot::Awaited(_) => return Err(BadPage::NotAllocated),
            Slot::Slab => report.slab_frees += 1,
            Slot::Unserved => report.unserved_frees += 1,
            Slot::Before => return self.free_initial(driver),
            Slot::Driven {
                memory,
                cpu: allocated_on,
                recorded_order,
            } => {
                report.implied_frees += u64::from(event.flags.has(Flags::IMPLIED));
                report.cross_cpu_frees += u64::from(cpu != allocated_on);
                self.recorded_bytes -= recorded_bytes(self.recorded_page_shift, recorded_order);
                self.release(driver, memory, recorded_order)?;
            }
        }
        Ok(())
    }

    /// The free of the next block from before.
    #[cold]
    fn free_initial<D: Design>(&mut self, driver: &Driver<'h, D>) -> Result<(), BadPage> {
        let pages = match self.initial.next() {
            None | Some(Initial::None) => {
                self.report.unknown_frees += 1;
                return Ok(());
            }
            Some(Initial::Part) => Vec::new(),
            Some(Initial::Pages(pages)) => pages,
        };
        self.report.initial_frees += 1;
        self.report.packed_frees += u64::from(pages.is_empty());
        for page in pages {
            self.initial_pages -= 1 << page.order();
            self.free_block(driver, page)?;
        }
        Ok(())
    }

    fn free_block<D: Design>(
        &mut self,
        driver: &Driver<'h, D>,
        block: PageRef<'h>,
    ) -> Result<(), BadPage> {
        let order = block.order();
        let locks_before = driver.zone_locks();
        driver.free_pages(block).map_err(BadPage::Refused)?;
        let locks = driver.zone_locks() - locks_before;
        let report = &mut self.report;
        report.zone_locks += locks;
        report.frees += 1;
        report.free_pcp += u64::from(locks == 0);
        report.drains += u64::from(locks > 0 && driver.pcp_holds(order));
        Ok(())
    }

    /// The report. `zone_locks` are those of the whole replay.
    pub(super) fn finish(self, zone_locks: u64) -> PageReport {
        let live = |slot: &&Slot<'_>| matches!(slot, Slot::Driven { .. });
        PageReport {
            live_blocks: self.table.iter().filter(live).count() as u64,
            slab_zone_locks: zone_locks - self.report.zone_locks - self.report.periodic_zone_locks,
            peak_bytes: self.peak_pages << self.page_shift,
            final_bytes: self.pages << self.page_shift,
            ..self.report
        }
    }
}

/// The migrate type that an event tells. The number is the kernel's, and those of 6.x are meant;
/// other types than these three do not appear in allocations.
pub(super) fn named_type(event: &ReplayEvent) -> Option<MigrateType> {
    Some(match event.migratetype()? {
        1 => MigrateType::Movable,
        2 => MigrateType::Reclaimable,
        _ => MigrateType::Unmovable,
    })
}

fn recorded_bytes(page_shift: u32, order: u8) -> u64 {
    1 << (page_shift + u32::from(order))
}

#[cfg(test)]
mod tests;
