//! One replay: the events of a trace, performed on one heap.
//!
//! ```text
//!   trace --chunk--> Engine::run_chunk --+--> table[object] (16 bytes: object, bytes, cache, CPU)
//!                                        +--> Driver (alloc, free) --> design --> page allocator
//!                                        +--> Pages: table[block] --> Driver (pages) ---^
//! ```
//!
//! # Page events
//!
//! A recording has two streams of pages: those that the kernel made slabs and large kmallocs of, and
//! the rest (page cache, anonymous memory, page tables, network buffers). The replayed design makes
//! slabs of its own, so the recorded slab pages, which the importer marks, are left out; the rest is
//! allocated and freed on the design's page allocator, with the recorded migrate type, on the
//! event's CPU. Both then compete for the same per-CPU lists, the same zone lock and the same
//! memory. [`pages::PageReport`] says what page events took of them, beside the slabs. A trace
//! without marks is not driven ([`pages::PageEvents::NotToldApart`]) unless [`pages::PageMode::All`]
//! asks for it; slab pages then count twice.
//!
//! At another page size a block keeps its bytes: it becomes the smallest block that holds them.
//! User and page-cache pages, which are movable, keep them as a kernel with such pages would have it
//! (`pages/parts.rs`): at larger pages several share one, at smaller ones a page becomes several. Of the
//! others (page tables, stacks, buffers), a block smaller than a page becomes a page of its own. An allocation
//! above the largest order, or without memory, is counted and left out, and so is its free. Nothing of
//! the trace is lost.
//!
//! Blocks from before the replayed part that it frees are found by reading the trace once. They are
//! allocated before its first event, past the per-CPU lists. So frees drive the lists in both
//! directions. The free tells order and CPU, and mostly the migrate type
//! ([`quarry_trace::ReplayEvent::migratetype`]); where it does not, the types of the part's other blocks
//! of that order are handed out in their proportions. A trace has no page frame numbers: the blocks lie
//! in the order of their frees, each type from the lowest free address on. So blocks that are freed one
//! after the other merge more readily than a kernel's would.
//!
//! The lists' periodic work runs once a second (`vm.stat_interval`) of the recording's clock, on all CPUs
//! at once. The first time is a second after the first event.
//!
//! The machine's memory is what the run says, in one zone, all of it free but for what the part
//! frees: the limits of the per-CPU lists follow from it. With a zoneinfo ([`lists`]) it has the
//! recorded kernel's zones, with as many free pages and with lists as long as there; so requests go
//! from zone to zone by the page allocator's own rules, and [`report::ZoneTraffic`] says what each
//! zone did. What a replay cannot tell:
//!
//! * Without a zoneinfo, what was on the lists at the beginning. It then begins with empty ones, and its
//!   first refills are extra.
//! * At which moment of the second a CPU does its periodic work: in a recording shorter than that, none
//!   is done, where the kernel may have done it once.
//! * Where the free pages lie, if no pagetypeinfo tells it. It decides whether Normal or DMA32 serves what is not
//!   movable. The recordings beside `tests/page_traffic.rs` begin with 1.1 to 1.5 % of Normal free, none of it in
//!   whole pageblocks. The replay takes these pages for movable halves of pageblocks. Movable single pages, or
//!   single pages of all types in equal parts, change the blocks drained by at most 1 %. (With the latter, 1275
//!   blocks are refilled in kv instead of 771.) With unmovable halves among them, or with whole pageblocks,
//!   Normal would serve all. Then no block would be drained in hackbench, where the kernel drained 4383.
//! * What types and orders the blocks on the lists have. A kernel refills lists that hold enough pages of
//!   other types, and gives larger blocks back: in tbench its free pages tell that the 742 blocks that it drained
//!   were at least 1682 pages; the replay drains 1756 single pages.
//! * What bulk calls allocate, which have no events; a kernel's stacks are. They take pages of Normal and mix
//!   types there, which raises the boost of Normal's watermarks; here it stays as it was. In the bundled
//!   hackbench Normal's free pages became 6690 fewer and its lists 6568 pages longer, and the replay refills
//!   nothing there: the blocks that it refills are all DMA32's.
//! * Reclaim and compaction, which have no events here, empty lists: in a recording in which the
//!   kernel compacted memory, its lists gave 31 226 blocks back, a replay's 5 014.
//! * Frees in interrupts or by CPUs whose lists are busy, which pass the lists.
//! * Slab pages from before: the replayed design has no slabs then, unless the input has the initial
//!   state, so the recorded kernel's frees of them are left out.
//! * Slab pages whose objects no event shows (bulk calls have no events) are taken for others.
//!
//! How near it comes, beside what the kernel's own tracepoints counted, is in
//! `tests/page_traffic.rs`, and beside buddyinfo in `tests/prediction`. Zones are chosen as in the
//! kernel as long as the boost stays as it was reported. Where it rises meanwhile, it raises the
//! low watermark above the free pages. In a kernel movable blocks then come from a lower zone too,
//! and in a replay they do not. Nine other hackbench runs on 6.18 were recorded with page frame
//! numbers and not kept. In six of them the boost stayed: there the replay took 0.89 to 1.03 of the
//! kernel's blocks from DMA32, or none where the kernel took none; in the three others 0.001 to
//! 0.32. Blocks drained were 0.7 to 2.1 of the kernel's in five of the six and none, for 21, in the
//! sixth.
//!
//! [`fragmentation`] samples where the pages are at intervals of a fixed number of events.

mod begin;
mod by_type;
pub mod check;
mod check_view;
mod engine;
mod finding;
pub mod fragmentation;
mod frames;
mod initial;
pub mod input;
pub(crate) mod inspect;
pub mod lists;
pub mod memory;
pub mod notes;
mod objects;
pub mod pages;
pub mod part;
mod placed;
pub mod placement;
pub mod report;
pub mod same;
#[cfg(test)]
mod tests;
pub mod timed;
mod view;

pub use finding::told;
pub use view::{TABLES, label_of, view};

use std::collections::BTreeMap;
use std::time::Instant;

use quarry_core::design::{Design, Usage};
use quarry_core::page::{MinFree, PageConfig, PageStats, ZoneLayout};
use quarry_core::stats::{Stat, Stats};
use quarry_sim::Config;
use quarry_sim::driver::{self, Driver};
use quarry_trace::ReplayEvent;

use crate::error::LabError;
use crate::run::{Progress, RunSpec};
use check::Check;
use engine::{Asked, Engine};
use frames::Frames;
use input::Input;
use lists::Start;
use pages::PageEvents;
use part::Part;
use quarry_designs::ForDesign;
use report::{CacheReport, PcpReport, RunReport, ZoneTraffic};

/// Replays a trace in one run.
pub(crate) fn run(
    spec: &RunSpec,
    input: &Input,
    progress: Progress<'_>,
) -> Result<RunReport, LabError> {
    struct Replay<'a>(&'a RunSpec, &'a Input, Progress<'a>);
    impl ForDesign for Replay<'_> {
        type Output = Result<RunReport, LabError>;
        fn run<D: Design>(self) -> Self::Output {
            run_on::<D>(self.0, self.1, self.2)
        }
    }
    spec.design.design.run(Replay(spec, input, progress))
}

/// Memory by address at the beginning of a run under a policy, if the recording tells it. The trace is read for it once,
/// for all runs.
fn frames(spec: &RunSpec, input: &Input) -> Result<Option<Frames>, LabError> {
    let (Some(_), Some(initial), Some(zoneinfo)) =
        (spec.settings.policy, &input.initial, &input.zoneinfo)
    else {
        return Ok(None);
    };
    if input.copies > 1 || !PageEvents::of(input).driven() {
        return Ok(None);
    }
    let page_bytes = spec.config.page_bytes;
    if let Some(known) = input.frames.get() {
        return Ok((known.page_bytes == page_bytes).then(|| known.clone()));
    }
    let types = input.free.as_ref();
    let read = Frames::of(&input.file, initial, zoneinfo, types, page_bytes)?;
    Ok(read.map(|read| input.frames.get_or_init(|| read).clone()))
}

/// The machine of a run and its memory before the first event.
struct Beginning<'a> {
    /// Zones and lists that the kernel reported.
    reported: Option<Start<'a>>,
    /// Memory by address.
    frames: Option<Frames>,
    config: PageConfig,
    machine: Config,
}

impl<'a> Beginning<'a> {
    fn of(spec: &RunSpec, input: &'a Input) -> Result<Self, LabError> {
        let reported = Start::of(spec, input)?;
        let plain = PageConfig {
            cache_share_bytes: input.cache_share_bytes,
            ..PageConfig::new(spec.design.era)
        };
        let config = match &reported {
            Some(reported) => reported.config(plain),
            // Types are mixed between a kernel's zones and watermarks.
            None if spec.settings.policy.is_some() => PageConfig {
                zones: ZoneLayout::Kernel,
                min_free: MinFree::Computed,
                ..plain
            },
            None => plain,
        };
        let frames = frames(spec, input)?;
        let (config, machine) = match &frames {
            Some(frames) => {
                let machine = Config {
                    memory_bytes: frames.memory_bytes(),
                    ..spec.config
                };
                (frames.config(config), machine)
            }
            None => (config, spec.config),
        };
        let config = spec.settings.page_config(config);
        Ok(Self {
            reported,
            frames,
            config,
            machine,
        })
    }
}

/// Replays a trace on one design.
fn run_on<D: Design>(
    spec: &RunSpec,
    input: &Input,
    progress: Progress<'_>,
) -> Result<RunReport, LabError> {
    let start = Instant::now();
    let Beginning {
        reported,
        frames,
        config,
        machine,
    } = Beginning::of(spec, input)?;
    let driven = driver::drive_pages::<D, _>(
        machine,
        &config,
        spec.settings.boot,
        spec.settings.debug,
        |driver| -> Result<RunReport, LabError> {
            let set = spec.settings.set_pages(driver);
            set.map_err(|error| LabError::Usage(format!("{}: {error}", spec.label())))?;
            if let Some(booted) = &input.booted {
                booted.fill_run(spec, driver)?;
            }
            let mut engine = Engine::new(driver, spec, input)?;
            let (mut events, mut chunk) = (input.file.events(), Vec::new());
            let (mut told, mut places) = (input.file.events_with_pages(), Vec::new());
            let compares = input.check.is_some() && input.file.meta().slab_memory.is_some();
            if compares {
                engine.compare();
            }
            if let Some(frames) = &frames {
                engine.lay_slabs(frames);
            }
            if let Some(initial) = &input.initial {
                engine.hold(initial)?;
            }
            engine.prepare_pages(reported.as_ref(), frames)?;
            let before = engine.start();
            let mut next_chunk = |engine: &mut Engine<'_, '_, D>, chunk: &mut Vec<ReplayEvent>| {
                if !compares {
                    return events.next_chunk(chunk);
                }
                let more = told.next_chunk(chunk, &mut places)?;
                engine.set_places(&mut places);
                Ok(more)
            };
            while next_chunk(&mut engine, &mut chunk)? {
                let goes_on = engine.run_chunk(&chunk)?;
                progress.advance(chunk.len() as u64);
                if progress.is_stopped() {
                    return Err(LabError::Stopped);
                }
                if !goes_on {
                    break;
                }
            }
            // A kernel that does nothing in the part still holds what it held.
            let is_empty = !engine.has_begun() && input.initial.is_none();
            if is_empty && input.part != Part::default() {
                return Err(input.empty_part());
            }
            engine.silent_changes(u64::MAX)?;
            let outcome = engine.finish();
            let mut report = report(spec, input, driver, outcome, &before);
            if reported.is_some() {
                report.zones = before.zones_since(driver);
            }
            if let Some(folder) = &spec.inspect {
                inspect::write(folder, driver)?;
            }
            Ok(report)
        },
    );
    let mut report = driven.map_err(|source| LabError::Setup {
        run: spec.label(),
        source,
    })??;
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    report.events_per_second = input.file.meta().rows as f64 / seconds;
    Ok(report)
}

/// Counters before the first event: making the initial state counts nothing.
pub(super) struct Before {
    /// By cache, newest first: counters, and bytes of slabs.
    caches: Vec<(Stats, u64)>,
    /// Bytes of all slabs.
    slab_bytes: u64,
    pages: PageStats,
    /// Lowest first.
    zones: Vec<ZoneTraffic>,
}

impl Before {
    pub(super) fn new<D: Design>(driver: &Driver<'_, D>, page_bytes: u64) -> Self {
        let mut caches = Vec::new();
        driver.for_each_cache(|cache| {
            let stats = cache.stats();
            caches.push((stats, report::slab_bytes(&stats, &cache, page_bytes)));
        });
        driver.machine().reset_counters();
        Self {
            caches,
            slab_bytes: driver.slab_pages() * page_bytes,
            pages: driver.page_stats(),
            zones: ZoneTraffic::now(driver),
        }
    }

    /// Traffic of the zones since then.
    fn zones_since<D: Design>(&self, driver: &Driver<'_, D>) -> Vec<ZoneTraffic> {
        let zones = ZoneTraffic::now(driver).into_iter().zip(&self.zones);
        zones.map(|(now, before)| now.since(before)).collect()
    }
}

fn report<D: Design>(
    spec: &RunSpec,
    input: &Input,
    driver: &Driver<'_, D>,
    outcome: engine::Outcome,
    before: &Before,
) -> RunReport {
    let page_bytes = spec.config.page_bytes;
    let (mut caches, stats, usage) =
        cache_reports(driver, input, page_bytes, before, &outcome.asked);
    for cache in &mut caches {
        cache.implied_frees = outcome.implied.get(&cache.name).copied().unwrap_or(0);
    }
    let counters = driver.machine().counters();
    let (pages, pages_before) = (driver.page_stats(), &before.pages);
    let of_events = outcome
        .pages
        .as_ref()
        .map_or((0, 0), |pages| (pages.allocs, pages.frees));
    let peak_slab_bytes = outcome.peak_pages * page_bytes;
    RunReport {
        design: spec.design.design.name,
        era: spec.design.era.name(),
        page_size: page_bytes,
        cpus: spec.config.cpus,
        set: spec.set.clone(),
        cpus_with_events: outcome.cpus_with_events,
        slub_debug: spec.settings.debug.map(|debug| debug.as_str().to_string()),
        initial: input.other_heap(spec),
        initial_slab_bytes: before.slab_bytes,
        peak_slab_bytes: (input.file.meta().no_peak().is_none()).then_some(peak_slab_bytes),
        final_slab_bytes: driver.slab_pages() * page_bytes,
        object_bytes: outcome.peak_object_bytes,
        utilisation: outcome.peak_object_bytes as f64 / peak_slab_bytes.max(1) as f64,
        peak_event: outcome.peak_row,
        final_object_bytes: outcome.object_bytes,
        large_bytes_peak: outcome.large_bytes_peak,
        alloc_fastpath: stats.get(Stat::AllocFastpath),
        alloc_slowpath: stats.get(Stat::AllocSlowpath),
        free_fastpath: stats.get(Stat::FreeFastpath),
        free_slowpath: stats.get(Stat::FreeSlowpath),
        cross_cpu_frees: counters.cross_cpu_frees,
        slabs: usage.slabs,
        slabs_by_order: usage.slabs_by_order,
        partial_slabs: usage.partial_slabs,
        one_object_slabs: usage.one_object_slabs,
        page_allocs: pages.allocs() - pages_before.allocs() - of_events.0,
        page_frees: pages.frees() - pages_before.frees() - of_events.1,
        events_per_second: 0.0,
        replayed: outcome.tally,
        memory: outcome.memory,
        stats,
        pcp: PcpReport::of(&pages.pcp, &pages_before.pcp),
        zones: Vec::new(),
        page_events: pages::PageEvents::of(input),
        pages: outcome.pages,
        locks: report::locks(&counters),
        touches: report::touches(&counters),
        work: report::work(&counters),
        zeroed_bytes: counters.zeroed_bytes,
        overhead_bytes: driver.overhead_bytes() as u64,
        check: Check::new(spec, input, &caches, &outcome.same_slabs),
        caches,
    }
}

/// Reports of the caches that were used, largest first, and the counters and usage of all together.
fn cache_reports<D: Design>(
    driver: &Driver<'_, D>,
    input: &Input,
    page_bytes: u64,
    before: &Before,
    asked: &BTreeMap<String, Asked>,
) -> (Vec<CacheReport>, Stats, Usage) {
    let (mut stats, mut usage) = (Stats::default(), Usage::default());
    let mut caches = Vec::new();
    let mut newer = 0;
    driver.for_each_cache(|_| newer += 1);
    newer -= before.caches.len();
    let mut before_of_cache =
        std::iter::repeat_n(None, newer).chain(before.caches.iter().map(Some));
    driver.for_each_cache(|cache| {
        let before = before_of_cache.next().flatten();
        let asked = asked.get(cache.head().name()).copied().unwrap_or_default();
        let (mut report, cache_stats, cache_usage) =
            CacheReport::of(&cache, page_bytes, before, asked);
        report.aliases = input.aliases_of(&report.name);
        stats.add(&cache_stats);
        usage.add(&cache_usage);
        if report.allocs > 0 || report.slabs > 0 {
            caches.push(report);
        }
    });
    caches.sort_by(|a, b| {
        let key = |cache: &CacheReport| (std::cmp::Reverse(cache.slab_bytes), cache.slab_size);
        (key(a), &a.name).cmp(&(key(b), &b.name))
    });
    (caches, stats, usage)
}
