//! The loop: one event after the other.

pub(super) mod caches;
mod memory;
pub(super) mod periodic;
mod rare;

use std::collections::{BTreeMap, BTreeSet};

use quarry_core::design::{Design, REAP_INTERVAL_NS};
use quarry_core::machine::CpuId;
use quarry_sim::driver::{Driver, ObjectRef};
use quarry_trace::{Flags, Kind, NO_OBJECT, Place, ReplayEvent};

use super::Before;
use super::fragmentation::Moment;
use super::frames::Frames;
use super::initial::{Held, Preparation};
use super::input::Input;
use super::lists::Start;
use super::memory::{Memory, Sampler};
use super::objects::{self, BEFORE, Entry, KMALLOC, NONE};
use super::pages::{PageReport, Pages};
use super::part::{Phase, Window};
use super::report::Tally;
use super::same::{Comparison, SameSlabs};
use crate::error::LabError;
use crate::run::{Kmalloc, RunSpec};
pub(super) use memory::Asked;
use periodic::Periodic;
use quarry_snapshot::Snapshot;
use quarry_state::Draw;

/// Nanoseconds between two rounds of the page lists' periodic work (`vm.stat_interval`, default).
pub(super) const VMSTAT_INTERVAL_NS: u64 = 1_000_000_000;
/// Sums at the end of a replay.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) peak_pages: u64,
    pub(super) peak_object_bytes: u64,
    pub(super) peak_row: u64,
    /// On the recording's clock; 0 where the part begins with the peak.
    pub(super) peak_time_ns: u64,
    pub(super) object_bytes: u64,
    pub(super) large_bytes: u64,
    pub(super) large_bytes_peak: u64,
    pub(super) memory: Memory,
    /// Bytes that the objects alive at the end asked for, by cache.
    pub(super) asked: BTreeMap<String, Asked>,
    /// Virtual CPUs with events.
    pub(super) cpus_with_events: u32,
    /// If page events were driven.
    pub(super) pages: Option<PageReport>,
    /// Implied frees by cache: the objects' own frees have no event.
    pub(super) implied: BTreeMap<String, u64>,
    /// By cache, if slabs were compared with the recording.
    pub(super) same_slabs: BTreeMap<String, SameSlabs>,
}

/// A replay under way.
pub(super) struct Engine<'a, 'h, D: Design> {
    driver: &'a mut Driver<'h, D>,
    spec: &'a RunSpec,
    input: &'a Input,
    kmalloc: Kmalloc,
    /// Virtual CPU by CPU of the load.
    cpu_of: Vec<u16>,
    /// By CPU of the load, whether an event of the part happened on it.
    cpu_seen: Vec<bool>,
    /// Copies of the load beside the first.
    copies: std::ops::Range<u32>,
    /// The driver's cache by cache index of the trace, [`NONE`] until its first use.
    cache_of: Vec<u16>,
    table: Vec<Entry<'h>>,
    window: Window,
    /// Objects and slabs from before the part, if the input has a report of them.
    held: Option<Held<'h>>,
    /// The page events, if they are driven.
    pages: Option<Pages<'h>>,
    /// Comparison of slabs with the recording's, if the run asks for it and the trace has them.
    comparison: Option<Comparison>,
    row: u64,
    /// Time of the last event of the part so far.
    now_ns: u64,
    /// When all CPUs reap.
    reap: Periodic,
    /// When the page lists' periodic work is done.
    vmstat: Periodic,
    /// When slab memory is noted.
    sampler: Sampler,
    /// The earliest of these.
    due_ns: u64,
    outcome: Outcome,
}

impl<'a, 'h, D: Design> Engine<'a, 'h, D> {
    pub(super) fn new(
        driver: &'a mut Driver<'h, D>,
        spec: &'a RunSpec,
        input: &'a Input,
    ) -> Result<Self, LabError> {
        let meta = input.file.meta();
        let table = input.table(meta.object_slots, || Entry::EMPTY)?;
        // A machine has at most 4096 CPUs.
        let cpu_of: Vec<u16> = (0..input.load_cpus())
            .map(|cpu| (cpu % spec.config.cpus) as u16)
            .collect();
        let pages = Pages::new(input, spec.config.page_bytes, spec.config.cpus)?;
        let window = Window::new(input.part);
        let (from_ns, until_ns) = window.bounds(meta.first_time_ns, meta.last_time_ns);
        let engine = Self {
            driver,
            spec,
            input,
            kmalloc: spec.kmalloc()?,
            cpu_seen: vec![false; cpu_of.len()],
            copies: 1..input.copies,
            cpu_of,
            cache_of: vec![NONE; meta.caches.len()],
            table,
            window,
            held: None,
            pages,
            comparison: None,
            row: 0,
            now_ns: meta.first_time_ns,
            reap: Periodic::every(REAP_INTERVAL_NS),
            vmstat: Periodic::every(VMSTAT_INTERVAL_NS),
            sampler: Sampler::new(meta.first_time_ns, from_ns, until_ns),
            due_ns: 0,
            outcome: Outcome::default(),
        };
        caches::tune_all(engine.driver, spec)?;
        Ok(engine)
    }

    /// Leaves the room of the slabs from before free, and behind it the free memory.
    pub(super) fn lay_slabs(&mut self, frames: &Frames) {
        frames.lay_slabs(self.driver);
    }

    /// Allocates what the kernel held before the part.
    pub(super) fn hold(&mut self, initial: &Snapshot) -> Result<(), LabError> {
        let preparation = Preparation {
            spec: self.spec,
            input: Some(self.input),
            kmalloc: self.kmalloc,
            draw: Draw::of_state(self.spec.state),
        };
        let held = Held::prepare(&preparation, initial, self.driver, &mut self.cache_of)?;
        self.outcome.object_bytes = held.object_bytes;
        self.held = Some(held);
        Ok(())
    }

    /// Compares with the recording which slabs objects come from. Every chunk then has its places.
    pub(super) fn compare(&mut self) {
        self.comparison = Some(Comparison::default());
    }

    /// Takes the places of the next chunk's events.
    pub(super) fn set_places(&mut self, places: &mut Vec<Option<Place>>) {
        if let Some(comparison) = &mut self.comparison {
            comparison.begin(places);
        }
    }

    /// Allocates the blocks from before the part that it frees, and fills the CPUs' page lists.
    /// Then brings the zones to the state of `start`, if there is one.
    pub(super) fn prepare_pages(
        &mut self,
        start: Option<&Start<'_>>,
        mut frames: Option<Frames>,
    ) -> Result<(), LabError> {
        let Some(pages) = &mut self.pages else {
            return Ok(());
        };
        pages.prepare(self.driver, self.input, start, frames.as_mut())?;
        if self.spec.settings.policy.is_some() {
            pages.account_placement(frames);
        }
        Ok(())
    }

    /// Peaks and counters begin with what is held now.
    pub(super) fn start(&mut self) -> Before {
        let outcome = &mut self.outcome;
        outcome.peak_pages = self.driver.slab_pages();
        outcome.peak_object_bytes = outcome.object_bytes;
        let before = Before::new(self.driver, self.spec.config.page_bytes);
        self.sample(false);
        before
    }

    /// Performs the events of a chunk; false behind the last event of the part.
    pub(super) fn run_chunk(&mut self, chunk: &[ReplayEvent]) -> Result<bool, LabError> {
        let mut rest = chunk;
        // A sample of fragmentation is due after a number of rows: the chunk is cut there, so that rows need not ask.
        while let Some(pages) = &mut self.pages {
            let due = pages.fragmentation().due_in(self.row) as usize;
            let Some((events, later)) = rest.split_at_checked(due) else {
                break;
            };
            if !self.run_events(events)? {
                return Ok(false);
            }
            if self.window.has_begun() {
                self.sample(false);
            }
            rest = later;
        }
        self.run_events(rest)
    }

    fn run_events(&mut self, events: &[ReplayEvent]) -> Result<bool, LabError> {
        let first = self.row;
        let goes_on = self.run_part(events)?;
        let done = (self.row - first) as usize;
        if let Some(last) = done.checked_sub(1).and_then(|at| events.get(at)) {
            self.now_ns = last.time_ns;
        }
        Ok(goes_on)
    }

    fn run_part(&mut self, events: &[ReplayEvent]) -> Result<bool, LabError> {
        for event in events {
            self.row += 1;
            if let Some(comparison) = &mut self.comparison {
                comparison.next(event);
            }
            match self.window.phase(event.time_ns) {
                Phase::In => {}
                Phase::Before => {
                    self.note(event);
                    for copy in self.copies.clone() {
                        self.note(&self.copy(event, copy));
                    }
                    continue;
                }
                Phase::After => {
                    self.row -= 1;
                    return Ok(false);
                }
            }
            // One comparison covers reaping, the page lists' work and samples; it fails for all but some events a second.
            if self.due_ns <= event.time_ns {
                self.silent_changes(event.time_ns)?;
                self.periodic(event.time_ns);
            }
            self.perform(event)?;
            for copy in self.copies.clone() {
                self.perform(&self.copy(event, copy))?;
            }
        }
        Ok(true)
    }

    /// The same event in another copy of the load.
    fn copy(&self, event: &ReplayEvent, copy: u32) -> ReplayEvent {
        let meta = self.input.file.meta();
        let slots = match event.kind.is_page() {
            true => meta.page_slots,
            false => meta.object_slots,
        };
        let object = match event.object {
            NO_OBJECT => NO_OBJECT,
            object => object + copy * slots,
        };
        // `Input::check_copies` keeps both numbers in their types.
        let cpu = event.cpu + (copy * meta.cpus) as u16;
        ReplayEvent {
            object,
            cpu,
            ..*event
        }
    }

    #[inline(always)]
    fn perform(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        self.cpu_seen[usize::from(event.cpu)] = true;
        match event.kind {
            Kind::Kmalloc | Kind::KmallocNode | Kind::KmemCacheAlloc | Kind::KmemCacheAllocNode => {
                self.alloc(event)
            }
            Kind::Kfree | Kind::KmemCacheFree => self.free(event),
            Kind::MmPageAlloc | Kind::MmPageFree if self.pages.is_none() => {
                self.outcome.tally.page_events += 1;
                Ok(())
            }
            Kind::MmPageAlloc | Kind::MmPageFree => self.page(event),
        }
    }

    /// Remembers which objects are alive when the part begins.
    #[cold]
    fn note(&mut self, event: &ReplayEvent) {
        if event.kind.is_page() {
            if let Some(pages) = &mut self.pages {
                pages.note(event);
            }
            return;
        }
        if event.flags.has(Flags::UNKNOWN) {
            return;
        }
        self.table[event.object as usize] = Entry {
            object: None,
            bytes: event.bytes_req,
            cache: if event.kind.is_free() { NONE } else { BEFORE },
            cpu: 0,
        };
    }

    /// The periodic work that is due by the recording's clock.
    #[cold]
    fn periodic(&mut self, now_ns: u64) {
        // A sample that is due by now shows memory as it was before this reap.
        for at_ns in self.reap.take(now_ns) {
            self.note_memory(at_ns);
            self.driver.reap(at_ns);
        }
        self.note_memory(now_ns);
        let locks_before = self.driver.zone_locks();
        for _ in self.vmstat.take(now_ns) {
            self.driver.pages().vmstat_update();
        }
        if let Some(pages) = &mut self.pages {
            pages.periodic(self.driver.zone_locks() - locks_before);
        }
        let work_ns = self.reap.due_ns().min(self.vmstat.due_ns());
        let held_ns = self.held.as_ref().map_or(u64::MAX, Held::due_ns);
        self.due_ns = work_ns.min(self.sampler.due_ns()).min(held_ns);
    }

    pub(super) fn finish(mut self) -> Outcome {
        self.sample(true);
        let [peak, end] = self.peak_and_end();
        let asked = self.asked();
        let zone_locks = self.driver.zone_locks();
        let pages = self.pages.map(|pages| pages.finish(zone_locks));
        if let Some(pages) = &pages {
            self.outcome.tally.page_events = pages.left_out();
        }
        let seen = self.cpu_of.iter().zip(&self.cpu_seen);
        let seen: BTreeSet<u16> = seen
            .filter(|(_, seen)| **seen)
            .map(|(cpu, _)| *cpu)
            .collect();
        Outcome {
            cpus_with_events: seen.len() as u32,
            pages,
            memory: self.sampler.finish(peak, end),
            asked,
            same_slabs: self.comparison.map(Comparison::finish).unwrap_or_default(),
            ..self.outcome
        }
    }

    /// True if an event of the part was replayed.
    pub(super) fn has_begun(&self) -> bool {
        self.cpu_seen.contains(&true)
    }

    /// Notes where the pages are now, if page events are driven; `last` at the end.
    fn sample(&mut self, last: bool) {
        let Some(pages) = &mut self.pages else {
            return;
        };
        let first_ns = self.input.file.meta().first_time_ns;
        let time_ns = self.now_ns.saturating_sub(first_ns);
        pages.note_placement(self.driver, (self.row, time_ns), last);
        let moment = Moment {
            event: self.row,
            time_ns,
            slab_pages: self.driver.slab_pages(),
            block_pages: pages.pages(),
            initial_pages: pages.initial_pages(),
            stats: &self.driver.page_stats(),
        };
        pages.fragmentation().take(&moment);
    }

    /// A page event that is to be driven.
    #[inline(never)]
    fn page(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        let Some(pages) = &mut self.pages else {
            return Ok(());
        };
        let cpu = self.cpu_of[usize::from(event.cpu)];
        self.driver.run_on(CpuId(cpu.into()));
        let done = match event.kind.is_free() {
            true => pages.free(self.driver, event, cpu),
            false => pages.alloc(self.driver, event, cpu),
        };
        done.map_err(|bad| self.bad_row(&bad.text(event.object)))
    }

    #[inline(always)]
    fn alloc(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        let cpu = self.cpu_of[usize::from(event.cpu)];
        self.driver.run_on(CpuId(cpu.into()));
        if self.table[event.object as usize].cache != NONE {
            return Err(self.bad_row(&format!("object {} is allocated twice", event.object)));
        }
        let cache = if event.kind.is_kmalloc() {
            if u64::from(event.bytes_req) > self.kmalloc.slab_bytes_max {
                return self.kmalloc_large(event, cpu);
            }
            self.typed(event.bytes_req, event.flags).unwrap_or(KMALLOC)
        } else {
            match self.cache_of[usize::from(event.cache)] {
                NONE => self.first_use(event)?,
                cache => cache,
            }
        };
        let Some(object) = objects::alloc(self.driver, cache, event.bytes_req) else {
            return Err(self.out_of_memory(event));
        };
        if self.comparison.is_some() {
            self.compare_slab(event, cache, &object);
        }
        if event.flags.has(Flags::ZERO) {
            self.driver.zero(&object, event.bytes_req);
        }
        self.table[event.object as usize] = Entry {
            object: Some(object),
            bytes: event.bytes_req,
            cache,
            cpu,
        };
        let outcome = &mut self.outcome;
        outcome.tally.allocs += 1;
        outcome.object_bytes += u64::from(event.bytes_req);
        // Only an allocation makes slabs, so this is the one place where a peak can be. Most allocations make none.
        let pages = self.driver.slab_pages();
        if pages > outcome.peak_pages {
            outcome.peak_pages = pages;
            outcome.peak_object_bytes = outcome.object_bytes;
            outcome.peak_row = self.row;
            outcome.peak_time_ns = event.time_ns;
        }
        Ok(())
    }

    #[cold]
    fn compare_slab(&mut self, event: &ReplayEvent, cache: u16, object: &ObjectRef<'h>) {
        let view = self.view(cache, event.bytes_req);
        if let (Some(comparison), Some(view)) = (&mut self.comparison, view) {
            comparison.allocated(self.driver, &view, object, self.row);
        }
    }

    #[inline(always)]
    fn free(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        if event.flags.has(Flags::UNKNOWN) {
            return self.orphan(event);
        }
        let cpu = self.cpu_of[usize::from(event.cpu)];
        self.driver.run_on(CpuId(cpu.into()));
        let entry = &mut self.table[event.object as usize];
        let Some(object) = entry.object.take() else {
            return self.free_without_object(event);
        };
        let (cache, bytes) = (entry.cache, u64::from(entry.bytes));
        entry.cache = NONE;
        if let Err(source) = objects::free(self.driver, cache, object, entry.cpu) {
            return Err(self.input.bad_free(self.row, event.object, source));
        }
        self.outcome.tally.frees += 1;
        if event.flags.has(Flags::IMPLIED) {
            self.outcome.tally.implied_frees += 1;
            self.count_implied(cache, bytes as u32);
        }
        if cache == KMALLOC && bytes > self.kmalloc.slab_bytes_max {
            self.outcome.large_bytes -= self.kmalloc.large_bytes(bytes).unwrap_or_default();
        } else {
            self.outcome.object_bytes -= bytes;
        }
        Ok(())
    }

    /// The driver's cache for a kmalloc, if a normal kmalloc cache is not it.
    #[inline(always)]
    fn typed(&self, bytes: u32, flags: Flags) -> Option<u16> {
        let held = self.held.as_ref()?;
        held.typed(self.kmalloc.class(bytes)?, flags)
    }
}
