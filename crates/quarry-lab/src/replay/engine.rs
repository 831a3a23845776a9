//! The loop: one event after the other.

mod caches;
mod memory;
mod periodic;

use std::collections::BTreeMap;

use quarry_core::design::{Design, REAP_INTERVAL_NS};
use quarry_core::geometry::MachineParams;
use quarry_core::geometry::{KmallocRules, KmallocService, KmallocTarget, kmalloc_index};
use quarry_core::machine::CpuId;
use quarry_sim::driver::{CacheIndex, Driver, ObjectRef};
use quarry_trace::{Flags, Kind, Place, ReplayEvent};

use super::Before;
use super::fragmentation::Moment;
use super::initial::{Held, Preparation, kmalloc_class};
use super::input::Input;
use super::lists::Start;
use super::memory::{Memory, Sampler};
use super::pages::{PageReport, Pages};
use super::part::{Phase, Window};
use super::report::Tally;
use super::same::{Comparison, SameSlabs};
use crate::error::LabError;
use crate::kernel::Slabinfo;
use crate::run::RunSpec;
pub(super) use memory::Asked;
use periodic::Periodic;

/// [`Entry::cache`] of an object of kmalloc.
const KMALLOC: u16 = u16::MAX - 1;
/// [`Entry::cache`] of an object that the era's kmalloc does not serve.
const UNSERVED: u16 = u16::MAX - 2;
/// [`Entry::cache`] of an entry without an object, and of a cache that is not made yet.
pub(super) const NONE: u16 = u16::MAX;
/// [`Entry::cache`] of an object that was allocated before the part that is replayed.
const BEFORE: u16 = u16::MAX - 3;

/// An object of the trace while it is alive.
struct Entry<'h> {
    /// What frees it.
    object: Option<ObjectRef<'h>>,
    /// Bytes asked for.
    bytes: u32,
    /// The driver's cache, or one of the constants.
    cache: u16,
    /// The virtual CPU that allocated it.
    cpu: u16,
}

const _: () = assert!(size_of::<Entry<'_>>() == 16);

/// Nanoseconds between two rounds of the page lists' periodic work (`vm.stat_interval`, default).
const VMSTAT_INTERVAL_NS: u64 = 1_000_000_000;
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
    /// What the objects that are alive at the end asked for, by cache.
    pub(super) asked: BTreeMap<String, Asked>,
    /// If page events were driven.
    pub(super) pages: Option<PageReport>,
    /// By cache, if slabs were compared with the recording.
    pub(super) same_slabs: BTreeMap<String, SameSlabs>,
}

/// A replay under way.
pub(super) struct Engine<'a, 'h, D: Design> {
    driver: &'a mut Driver<'h, D>,
    spec: &'a RunSpec,
    input: &'a Input,
    kmalloc: &'static KmallocRules,
    params: MachineParams,
    /// kmallocs of more bytes are not served from slabs.
    kmalloc_bytes_max: u64,
    /// Virtual CPU by recorded CPU.
    cpu_of: Vec<u16>,
    /// The driver's cache by cache index of the trace, [`NONE`] until its first use.
    cache_of: Vec<u16>,
    table: Vec<Entry<'h>>,
    window: Window,
    /// What the kernel held before the part, if the input has it.
    held: Option<Held<'h>>,
    /// The page events, if they are driven.
    pages: Option<Pages<'h>>,
    /// Which slabs objects come from beside the recording, if the run asks for it and the trace has it.
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
        let table = input.table(meta.object_slots, || Entry {
            object: None,
            bytes: 0,
            cache: NONE,
            cpu: 0,
        })?;
        let kmalloc = D::kmalloc_rules(spec.design.era)
            .ok_or_else(|| LabError::Usage(format!("{} cannot be replayed", spec.design)))?;
        let params = MachineParams {
            page_shift: spec.config.page_bytes.ilog2(),
            nr_cpus: spec.config.cpus,
            cache_line: spec.config.cache_line,
        };
        // A machine has at most 4096 CPUs.
        let cpu_of = (0..meta.cpus)
            .map(|cpu| (cpu % spec.config.cpus) as u16)
            .collect();
        let pages = Pages::new(input, spec.config.page_bytes)?;
        let window = Window::new(input.part, meta.first_time_ns);
        let (from_ns, until_ns) = window.bounds(meta.first_time_ns, meta.last_time_ns);
        let engine = Self {
            kmalloc_bytes_max: match kmalloc.service {
                KmallocService::Classes => 1 << kmalloc.shift_high(params.page_shift),
                KmallocService::Design => u64::MAX,
            },
            driver,
            spec,
            input,
            kmalloc,
            params,
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
        engine.tune_kmalloc()?;
        Ok(engine)
    }

    /// Allocates what the kernel held before the part.
    pub(super) fn hold(&mut self, initial: &Slabinfo) -> Result<(), LabError> {
        let preparation = Preparation {
            spec: self.spec,
            input: self.input,
            kmalloc: self.kmalloc,
            params: self.params,
        };
        let held = Held::prepare(&preparation, &initial.rows, self.driver, &mut self.cache_of)?;
        self.outcome.object_bytes = held.object_bytes();
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
    pub(super) fn prepare_pages(&mut self, start: Option<&Start<'_>>) -> Result<(), LabError> {
        let Some(pages) = &mut self.pages else {
            return Ok(());
        };
        pages.prepare(self.driver, self.input, start)
    }

    /// Peaks and counters begin with what is held now.
    pub(super) fn start(&mut self) -> Before {
        let outcome = &mut self.outcome;
        outcome.peak_pages = self.driver.slab_pages();
        outcome.peak_object_bytes = outcome.object_bytes;
        let before = Before::new(self.driver);
        self.sample();
        before
    }

    /// Performs the events of a chunk; false behind the last event of the part.
    pub(super) fn run_chunk(&mut self, chunk: &[ReplayEvent]) -> Result<bool, LabError> {
        let mut rest = chunk;
        while let Some(pages) = &mut self.pages {
            let due = pages.fragmentation().due_in(self.row) as usize;
            let Some((events, later)) = rest.split_at_checked(due) else {
                break;
            };
            if !self.run_events(events)? {
                return Ok(false);
            }
            if self.window.has_begun() {
                self.sample();
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
                    continue;
                }
                Phase::After => {
                    self.row -= 1;
                    return Ok(false);
                }
            }
            if self.due_ns <= event.time_ns {
                self.periodic(event.time_ns);
            }
            match event.kind {
                Kind::Kmalloc
                | Kind::KmallocNode
                | Kind::KmemCacheAlloc
                | Kind::KmemCacheAllocNode => self.alloc(event)?,
                Kind::Kfree | Kind::KmemCacheFree => self.free(event)?,
                Kind::MmPageAlloc | Kind::MmPageFree if self.pages.is_none() => {
                    self.outcome.tally.page_events += 1;
                }
                Kind::MmPageAlloc | Kind::MmPageFree => self.page(event)?,
            }
        }
        Ok(true)
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
        self.due_ns = work_ns.min(self.sampler.due_ns());
    }

    pub(super) fn finish(mut self) -> Outcome {
        self.sample();
        let [peak, end] = self.peak_and_end();
        let asked = self.asked();
        let zone_locks = self.driver.zone_locks();
        let pages = self.pages.map(|pages| pages.finish(zone_locks));
        if let Some(pages) = &pages {
            self.outcome.tally.page_events = pages.left_out();
        }
        Outcome {
            pages,
            memory: self.sampler.finish(peak, end),
            asked,
            same_slabs: self.comparison.map(Comparison::finish).unwrap_or_default(),
            ..self.outcome
        }
    }

    /// Notes where the pages are now, if page events are driven.
    fn sample(&mut self) {
        let Some(pages) = &mut self.pages else {
            return;
        };
        let moment = Moment {
            event: self.row,
            time_ns: self
                .now_ns
                .saturating_sub(self.input.file.meta().first_time_ns),
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
        let (cache, object) = if event.kind.is_kmalloc() {
            if u64::from(event.bytes_req) > self.kmalloc_bytes_max {
                return self.kmalloc_large(event, cpu);
            }
            match self.typed(event.bytes_req, event.flags) {
                Some(cache) => (cache, self.driver.alloc(CacheIndex(cache))),
                None => (KMALLOC, self.driver.kmalloc(event.bytes_req)),
            }
        } else {
            let mut cache = self.cache_of[usize::from(event.cache)];
            if cache == NONE {
                cache = self.first_use(event)?;
            }
            (cache, self.driver.alloc(CacheIndex(cache)))
        };
        let Some(object) = object else {
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
        let view = match cache {
            KMALLOC => self.driver.kmalloc_cache(event.bytes_req),
            index => self.driver.cache(CacheIndex(index)),
        };
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
        let allocated_on = CpuId(entry.cpu.into());
        let freed = if cache == KMALLOC {
            self.driver.kfree(object, allocated_on)
        } else {
            self.driver.free(CacheIndex(cache), object, allocated_on)
        };
        if let Err(source) = freed {
            return Err(LabError::Free {
                trace: self.input.name.clone(),
                row: self.row,
                object: event.object,
                source,
            });
        }
        self.outcome.tally.frees += 1;
        if event.flags.has(Flags::IMPLIED) {
            self.outcome.tally.implied_frees += 1;
        }
        if cache == KMALLOC && bytes > self.kmalloc_bytes_max {
            self.outcome.large_bytes -= self.large_bytes(bytes).unwrap_or_default();
        } else {
            self.outcome.object_bytes -= bytes;
        }
        Ok(())
    }

    /// The driver's cache for a kmalloc, if a normal kmalloc cache is not it.
    #[inline(always)]
    fn typed(&self, bytes: u32, flags: Flags) -> Option<u16> {
        let held = self.held.as_ref()?;
        held.typed(kmalloc_class(self.kmalloc, &self.params, bytes)?, flags)
    }

    /// A free of an object from before the part.
    #[cold]
    fn orphan(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        let cpu = CpuId(self.cpu_of[usize::from(event.cpu)].into());
        self.driver.run_on(cpu);
        let row = self.row;
        let Some(orphan) = self.held.as_mut().and_then(|held| held.take(row)) else {
            self.outcome.tally.orphans += 1;
            return Ok(());
        };
        let freed = match orphan.cache {
            Some(cache) => self.driver.free(cache, orphan.object, cpu),
            None => self.driver.kfree(orphan.object, cpu),
        };
        freed.map_err(|source| LabError::Free {
            trace: self.input.name.clone(),
            row,
            object: event.object,
            source,
        })?;
        self.outcome.tally.initial_frees += 1;
        self.outcome.object_bytes -= u64::from(orphan.bytes);
        Ok(())
    }

    /// A kmalloc that no slab serves.
    #[cold]
    fn kmalloc_large(&mut self, event: &ReplayEvent, cpu: u16) -> Result<(), LabError> {
        let mut entry = Entry {
            object: None,
            bytes: event.bytes_req,
            cache: UNSERVED,
            cpu,
        };
        if let Some(bytes) = self.large_bytes(event.bytes_req.into()) {
            let object = self.driver.kmalloc(event.bytes_req);
            if object.is_none() {
                return Err(self.out_of_memory(event));
            }
            (entry.object, entry.cache) = (object, KMALLOC);
            let outcome = &mut self.outcome;
            outcome.tally.allocs += 1;
            outcome.tally.large += 1;
            outcome.large_bytes += bytes;
            outcome.large_bytes_peak = outcome.large_bytes_peak.max(outcome.large_bytes);
        } else {
            self.outcome.tally.unserved += 1;
        }
        self.table[event.object as usize] = entry;
        Ok(())
    }

    /// Bytes of the pages that serve a large kmalloc; `None` if the era does not serve it.
    fn large_bytes(&self, bytes: u64) -> Option<u64> {
        match kmalloc_index(self.kmalloc, &self.params, bytes) {
            KmallocTarget::Pages { order } => Some(self.params.slab_bytes(order)),
            _ => None,
        }
    }

    #[cold]
    fn free_without_object(&mut self, event: &ReplayEvent) -> Result<(), LabError> {
        let entry = &mut self.table[event.object as usize];
        if entry.cache == UNSERVED {
            entry.cache = NONE;
            return Ok(());
        }
        if entry.cache == BEFORE {
            entry.cache = NONE;
            return self.orphan(event);
        }
        Err(self.bad_row(&format!(
            "object {} is freed, but it is not allocated",
            event.object
        )))
    }

    #[cold]
    fn bad_row(&self, what: &str) -> LabError {
        LabError::BadRow {
            trace: self.input.name.clone(),
            row: self.row,
            what: what.to_string(),
        }
    }

    #[cold]
    fn out_of_memory(&self, event: &ReplayEvent) -> LabError {
        let group = self.input.cache_of.get(usize::from(event.cache));
        let cache = group.map(|group| &self.input.caches[usize::from(*group)]);
        LabError::Memory {
            run: self.spec.label(),
            row: self.row,
            rows: self.input.file.meta().rows,
            used_bytes: {
                let held = |pages: &Pages<'_>| pages.pages() + pages.initial_pages();
                let blocks = self.pages.as_ref().map_or(0, held);
                (self.driver.slab_pages() + blocks) * self.spec.config.page_bytes
            },
            memory_bytes: self.spec.config.memory_bytes,
            wanted: event.bytes_req,
            cache: cache.map_or_else(|| "kmalloc".to_string(), |cache| cache.name.clone()),
        }
    }
}
