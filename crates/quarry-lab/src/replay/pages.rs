//! Page events: the blocks of the trace that are no slabs, on the same page allocator as the slabs.
//!
//! What of them is driven, and what it does not tell, is in the [replay's documentation](super).

mod before;

use quarry_core::design::Design;
use quarry_core::page::{MAX_ORDER, MIGRATE_TYPES, MigrateType, ORDERS, PageError};
use quarry_sim::driver::{Driver, PageRef};
use quarry_trace::{Flags, ReplayEvent};
use serde::Serialize;

use super::fragmentation::Fragmentation;
use super::input::Input;
use super::lists::Start;
use crate::error::LabError;

/// Which page events a replay is to drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageMode {
    /// Those outside the slabs, if the trace tells slab pages from others.
    #[default]
    Auto,
    /// None.
    Off,
    /// All, slab pages among them even where the trace tells them apart.
    All,
}

/// Which page events a replay drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PageEvents {
    /// The trace has none.
    None,
    /// None, as asked.
    Off,
    /// None: the trace does not tell slab pages from others.
    NotToldApart,
    /// Those outside the slabs.
    OutsideSlabs,
    /// All, slab pages too, which are then counted twice.
    All,
}

impl PageEvents {
    /// What becomes of the page events of a trace.
    #[must_use]
    pub fn of(input: &Input) -> Self {
        let events = &input.file.meta().events;
        if events.mm_page_alloc + events.mm_page_free == 0 {
            return Self::None;
        }
        match input.pages {
            PageMode::Off => Self::Off,
            PageMode::All => Self::All,
            PageMode::Auto if input.slab_pages_known => Self::OutsideSlabs,
            PageMode::Auto => Self::NotToldApart,
        }
    }

    /// Whether any are driven.
    #[must_use]
    pub fn driven(self) -> bool {
        matches!(self, Self::OutsideSlabs | Self::All)
    }

    /// Why none are driven; empty if some are.
    #[must_use]
    pub fn why_none(self) -> &'static str {
        match self {
            Self::None => "the trace has no page events",
            Self::Off => "page events are not to be replayed",
            Self::NotToldApart => "the trace does not tell which page events were of slabs",
            Self::OutsideSlabs | Self::All => "",
        }
    }
}

/// What became of the page events that a replay was to drive, and what they cost.
///
/// A call of a page event that takes no zone lock was served by the CPU's page lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageReport {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed, implied frees and those of blocks from before included.
    pub frees: u64,
    /// Frees that the importer inserted, among `frees`.
    pub implied_frees: u64,
    /// Allocations left out because the recorded kernel made a slab or a large kmalloc of them.
    pub slab_allocs: u64,
    /// Frees of such blocks.
    pub slab_frees: u64,
    /// Frees of blocks from before the recording, or the replayed part, among `frees`: these blocks
    /// are allocated before the first event.
    pub initial_frees: u64,
    /// Frees of such blocks that are left out: they were too large or found no memory.
    pub unknown_frees: u64,
    /// Allocations left out because no block of the replayed machine is so large.
    pub too_large: u64,
    /// Allocations that found no memory; the replay goes on without them.
    pub no_memory: u64,
    /// Frees of blocks that were too large or found no memory.
    pub unserved_frees: u64,
    /// Blocks that are still allocated at the end.
    pub live_blocks: u64,
    /// Frees on another CPU than the allocating one, where that is known.
    pub cross_cpu_frees: u64,
    /// `allocs` by the order that the replayed machine gave.
    pub allocs_by_order: [u64; ORDERS],
    /// `allocs` by migrate type: unmovable, movable, reclaimable.
    pub allocs_by_migratetype: [u64; MIGRATE_TYPES],
    /// Allocations that the CPU's page lists served.
    pub alloc_pcp: u64,
    /// Allocations that refilled the CPU's page lists from the zone first.
    pub refills: u64,
    /// Frees that the CPU's page lists kept.
    pub free_pcp: u64,
    /// Frees that drained the CPU's page lists, because these had overflowed or larger blocks went on a
    /// spree of frees.
    /// Drains by frees of slabs and by the periodic work are among
    /// [`PcpReport::drains`](super::report::PcpReport::drains) only.
    pub drains: u64,
    /// Zone-lock acquisitions of page events.
    pub zone_locks: u64,
    /// Zone-lock acquisitions of slabs and large kmallocs.
    pub slab_zone_locks: u64,
    /// Zone-lock acquisitions of the periodic work.
    pub periodic_zone_locks: u64,
    /// Bytes of the blocks from before.
    pub initial_bytes: u64,
    /// Pages that the CPUs' lists hold at the beginning.
    pub initial_pcp_pages: u64,
    /// Most bytes of the recording's own blocks at once, as recorded.
    pub peak_recorded_bytes: u64,
    /// Most bytes of them at once, in the blocks that the replayed machine gave.
    pub peak_bytes: u64,
    /// Bytes of them at the end.
    pub final_bytes: u64,
    /// Free memory over time.
    pub fragmentation: Fragmentation,
}

impl PageReport {
    /// Page events that were left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.slab_allocs
            + self.slab_frees
            + self.unknown_frees
            + self.too_large
            + self.no_memory
            + self.unserved_frees
    }
}

/// A block of the trace.
enum Slot<'h> {
    /// Not allocated.
    Empty,
    /// Allocated, on this CPU, with this order by the recording.
    Driven {
        block: PageRef<'h>,
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

/// The page events of a replay that drives them.
pub(super) struct Pages<'h> {
    table: Vec<Slot<'h>>,
    /// Those from before, in the order of their frees; `None` if there was no memory for one.
    initial: std::vec::IntoIter<Option<PageRef<'h>>>,
    /// Pages of them now.
    initial_pages: u64,
    skip_slabs: bool,
    recorded_page_shift: u32,
    page_shift: u32,
    /// Pages of blocks now.
    pages: u64,
    /// Bytes of them by the recording.
    recorded_bytes: u64,
    peak_pages: u64,
    report: PageReport,
}

/// Why a page event cannot be performed.
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
    pub(super) fn new(input: &Input, page_bytes: u64) -> Result<Option<Self>, LabError> {
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
    ) -> Result<(), LabError> {
        let found = before::find(input, self.skip_slabs)?;
        let mut initial = Vec::with_capacity(found.blocks.len());
        for block in &found.blocks {
            let order = self.order(block.recorded_order);
            let block = driver.alloc_old_pages(order, block.migratetype);
            self.initial_pages += block.as_ref().map_or(0, |block| 1 << block.order());
            initial.push(block);
        }
        self.initial = initial.into_iter();
        self.report.initial_bytes = self.initial_pages << self.page_shift;
        let shares = |pages| before::shares(pages, &found.singles);
        if start.is_some() {
            // What the slabs of an initial state left on the lists is not in addition to the report.
            driver.pages().drain_all();
        }
        for zone in start.map_or(Ok(Vec::new()), |start| start.zones(shares))? {
            for (cpu, stock) in &zone.lists {
                let pages = driver.pages().stock_pcp(*cpu, stock);
                self.report.initial_pcp_pages += u64::from(pages.unwrap_or(0));
            }
            driver.pages().leave_free(zone.zone, &zone.free);
            driver.pages().set_boost(zone.zone, zone.boost);
        }
        Ok(())
    }

    /// Counts the zone locks that the periodic work took.
    pub(super) fn periodic(&mut self, zone_locks: u64) {
        self.report.periodic_zone_locks += zone_locks;
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

    /// Order of the smallest block of the replayed machine that holds a recorded one.
    fn order(&self, recorded: u8) -> u32 {
        (u32::from(recorded) + self.recorded_page_shift).saturating_sub(self.page_shift)
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
        let order = self.order(event.order);
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
        let migratetype = named_type(event).unwrap_or(MigrateType::Unmovable);
        let locks_before = driver.zone_locks();
        let block = driver.alloc_pages(order, migratetype);
        let locks = driver.zone_locks() - locks_before;
        report.zone_locks += locks;
        let Some(block) = block else {
            report.no_memory += 1;
            *slot = Slot::Unserved;
            return Ok(());
        };
        if event.flags.has(Flags::ZERO) {
            driver.zero_pages(&block);
        }
        report.allocs += 1;
        report.allocs_by_order[order as usize] += 1;
        report.allocs_by_migratetype[migratetype as usize] += 1;
        report.alloc_pcp += u64::from(locks == 0);
        report.refills += u64::from(locks > 0 && driver.pcp_holds(order));
        *slot = Slot::Driven {
            block,
            cpu,
            recorded_order: event.order,
        };
        self.pages += 1 << order;
        self.peak_pages = self.peak_pages.max(self.pages);
        self.recorded_bytes += recorded_bytes(self.recorded_page_shift, event.order);
        report.peak_recorded_bytes = report.peak_recorded_bytes.max(self.recorded_bytes);
        Ok(())
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
            Slot::Empty => return Err(BadPage::NotAllocated),
            Slot::Slab => report.slab_frees += 1,
            Slot::Unserved => report.unserved_frees += 1,
            Slot::Before => return self.free_initial(driver),
            Slot::Driven {
                block,
                cpu: allocated_on,
                recorded_order,
            } => {
                let order = block.order();
                report.implied_frees += u64::from(event.flags.has(Flags::IMPLIED));
                report.cross_cpu_frees += u64::from(cpu != allocated_on);
                self.pages -= 1 << order;
                self.recorded_bytes -= recorded_bytes(self.recorded_page_shift, recorded_order);
                self.free_block(driver, block)?;
            }
        }
        Ok(())
    }

    /// The free of the next block from before.
    #[cold]
    fn free_initial<D: Design>(&mut self, driver: &Driver<'h, D>) -> Result<(), BadPage> {
        let Some(block) = self.initial.next().flatten() else {
            self.report.unknown_frees += 1;
            return Ok(());
        };
        self.report.initial_frees += 1;
        self.initial_pages -= 1 << block.order();
        self.free_block(driver, block)
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
fn named_type(event: &ReplayEvent) -> Option<MigrateType> {
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
