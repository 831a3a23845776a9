//! Report of a run.

use quarry_core::design::{Design, Usage};
use quarry_core::machine::{Access, CpuId, Cpus as _, Line, LockClass, Work};
use quarry_core::page::{ORDERS, PcpStats};
use quarry_core::stats::{Stat, Stats};
use quarry_sim::Counters;
use quarry_sim::driver::{CacheView, Driver};
use serde::{Serialize, Serializer};

use super::check::Check;
use super::engine::Asked;
use super::memory::Memory;
use super::pages::{PageEvents, PageReport};

/// One run's results. All but `events_per_second` depend on the trace and the run alone.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The design's name.
    pub design: &'static str,
    /// The era.
    pub era: &'static str,
    /// Bytes of a page.
    pub page_size: u64,
    /// CPUs of the virtual machine.
    pub cpus: u32,
    /// CPUs with events: those that the recording, or its copies, used.
    pub cpus_with_events: u32,
    /// Debugging, if there was any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slub_debug: Option<String>,
    /// Most bytes of slabs at once.
    pub peak_slab_bytes: u64,
    /// Bytes of slabs at the end.
    pub final_slab_bytes: u64,
    /// Bytes asked for by the objects in slabs when the peak was first reached.
    pub object_bytes: u64,
    /// `object_bytes` over `peak_slab_bytes`.
    pub utilisation: f64,
    /// The event at which the peak was first reached, counted from 1; 0 without slabs.
    pub peak_event: u64,
    /// Bytes asked for by the objects in slabs at the end.
    pub final_object_bytes: u64,
    /// Most bytes of pages at once of kmallocs too large for a slab.
    pub large_bytes_peak: u64,
    /// Allocations served by the CPU's own list or queue.
    pub alloc_fastpath: u64,
    /// Allocations that needed more.
    pub alloc_slowpath: u64,
    /// Frees that stayed with the CPU's own list or queue.
    pub free_fastpath: u64,
    /// Frees that needed more.
    pub free_slowpath: u64,
    /// Frees on another CPU than the allocating one.
    pub cross_cpu_frees: u64,
    /// Slab memory over recorded time.
    pub memory: Memory,
    /// Slabs at the end.
    pub slabs: u64,
    /// Slabs at the end by order.
    pub slabs_by_order: [u64; ORDERS],
    /// Slabs at the end that are neither full nor empty and that no CPU allocates from.
    pub partial_slabs: u64,
    /// Those of `partial_slabs` with exactly one object in use.
    pub one_object_slabs: u64,
    /// Calls to the page allocator for a slab or a large kmalloc.
    pub page_allocs: u64,
    /// Calls to the page allocator to take a slab or a large kmalloc back.
    pub page_frees: u64,
    /// Events of the trace per second of the whole run, decoding included; 0 if not measured.
    pub events_per_second: f64,
    /// Fate of the trace's events.
    pub replayed: Tally,
    /// The design's counters by their sysfs names, summed over caches.
    #[serde(serialize_with = "by_sysfs_name")]
    pub stats: Stats,
    /// Per-CPU page lists, of slabs and page events.
    pub pcp: PcpReport,
    /// The zones, if the run began with those of a zoneinfo; lowest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<ZoneTraffic>,
    /// The page events that were driven.
    pub page_events: PageEvents,
    /// Their fate and cost, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageReport>,
    /// Lock acquisitions by class, of the whole run.
    #[serde(serialize_with = "as_map")]
    pub locks: Vec<(&'static str, u64)>,
    /// Cache-line touches by kind: reads and writes, of the whole run.
    #[serde(serialize_with = "as_map")]
    pub touches: Vec<(&'static str, Touches)>,
    /// Work of the allocators other than touching memory, by kind, of the whole run; interrupts that were
    /// off already are not turned off again.
    #[serde(serialize_with = "as_map")]
    pub work: Vec<(&'static str, u64)>,
    /// Bytes that were filled with zeros, as the trace's allocations ask.
    pub zeroed_bytes: u64,
    /// Bytes of the allocators' own structures.
    pub overhead_bytes: u64,
    /// Predicted beside observed, if there is an observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Caches that served something, by slab memory, largest first.
    pub caches: Vec<CacheReport>,
}

/// Fate of the events of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Objects allocated.
    pub allocs: u64,
    /// Objects freed, implied frees included.
    pub frees: u64,
    /// Frees that the importer inserted, among `frees`.
    pub implied_frees: u64,
    /// Frees skipped because their object is from before the recording, or the replayed part.
    pub orphans: u64,
    /// Frees of such objects that freed one of the initial state.
    pub initial_frees: u64,
    /// kmallocs among `allocs` that were too large for a slab.
    pub large: u64,
    /// kmallocs that the era cannot serve; their frees are skipped.
    pub unserved: u64,
    /// Events of the page allocator that were not replayed.
    pub page_events: u64,
}

/// A zone and its per-CPU page lists, of slabs and page events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZoneTraffic {
    /// Its name.
    pub zone: &'static str,
    /// Its pages.
    pub pages: u64,
    /// Blocks handed out, by its lists or past them.
    pub allocs: u64,
    /// Blocks taken back, likewise.
    pub frees: u64,
    /// Blocks that refills brought to its lists.
    pub refilled: u64,
    /// Blocks that its lists gave back to it, because they were too long, in a spree of frees or in the
    /// periodic work.
    pub drained: u64,
    /// Pages that were free in it at the beginning.
    pub initial_free_pages: u64,
    /// Pages that are free in it at the end.
    pub free_pages: u64,
    /// Pages on its lists at the beginning.
    pub initial_pcp_pages: u64,
    /// Pages on its lists at the end.
    pub pcp_pages: u64,
}

impl ZoneTraffic {
    /// The zones as they are, with what was counted so far.
    pub(super) fn now<D: Design>(driver: &Driver<'_, D>) -> Vec<Self> {
        let pages = driver.pages();
        let cpus = (0..driver.machine().topology().cpus).map(CpuId);
        let zones = pages.zone_reports().enumerate().map(|(at, zone)| {
            let listed = cpus.clone();
            let listed = listed.filter_map(|cpu| pages.pageset_report(at, cpu));
            Self {
                zone: zone.id.zone.name(),
                pages: zone.pages,
                allocs: zone.pcp.allocs + zone.direct_allocs,
                frees: zone.pcp.frees + zone.direct_frees,
                refilled: zone.pcp.refilled,
                drained: zone.pcp.drained,
                free_pages: zone.free_pages,
                pcp_pages: listed.map(|set| u64::from(set.count)).sum(),
                ..Self::default()
            }
        });
        driver.machine().uncounted(|| zones.collect())
    }

    /// Traffic since an earlier moment.
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            allocs: self.allocs - before.allocs,
            frees: self.frees - before.frees,
            refilled: self.refilled - before.refilled,
            drained: self.drained - before.drained,
            initial_free_pages: before.free_pages,
            initial_pcp_pages: before.pcp_pages,
            ..self
        }
    }
}

/// Counters of the per-CPU page lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PcpReport {
    /// Blocks handed out.
    pub allocs: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Times a list was empty and the zone was asked for blocks, also if it had none.
    pub refills: u64,
    /// Blocks that refills brought.
    pub refilled: u64,
    /// Times the lists were drained: by an overflow after frees of slabs or page events, by a
    /// spree of frees of larger blocks, or by the periodic work.
    pub drains: u64,
    /// Blocks that drains gave back, as `mm_page_pcpu_drain` counts them.
    pub drained: u64,
    /// Drains by the periodic work.
    pub decays: u64,
    /// Blocks that these gave back, among `drained`.
    pub decayed: u64,
}

impl PcpReport {
    /// Counts since `before`.
    pub(super) fn of(now: &PcpStats, before: &PcpStats) -> Self {
        Self {
            allocs: now.allocs - before.allocs,
            frees: now.frees - before.frees,
            refills: now.refills - before.refills,
            refilled: now.refilled - before.refilled,
            drains: now.drains - before.drains,
            drained: now.drained - before.drained,
            decays: now.decays - before.decays,
            decayed: now.decayed - before.decayed,
        }
    }
}

/// Touches of one kind of cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Touches {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Locked read-modify-writes.
    pub atomics: u64,
}

/// One cache at the end of a run: the columns of slabinfo, and more.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// Name.
    pub name: String,
    /// Bytes of an object.
    pub object_size: u32,
    /// Bytes from one object to the next.
    pub slab_size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Objects in use as slabinfo counts them.
    pub active_objs: u64,
    /// Objects that all slabs could hold.
    pub num_objs: u64,
    /// Objects in a normal slab.
    pub objs_per_slab: u32,
    /// Pages in a normal slab.
    pub pages_per_slab: u32,
    /// Order of a normal slab.
    pub order: u32,
    /// Slabs.
    pub slabs: u64,
    /// Bytes of all slabs; with a design whose caches share pages, bytes of the objects in these.
    pub slab_bytes: u64,
    /// Bytes asked for by the objects that are alive. An object from before the recording, and one
    /// of the allocators' own, counts with the cache's `object_size`. With `waste_bytes` and `free_bytes` it is `slab_bytes`.
    pub object_bytes: u64,
    /// Bytes that no object can use: sizes rounded up, padding, and the tails of slabs.
    pub waste_bytes: u64,
    /// Bytes of free objects in slabs, those on the lists, queues and sheaves of CPUs included.
    pub free_bytes: u64,
    /// Slabs that are neither full nor empty and that no CPU allocates from.
    pub partial_slabs: u64,
    /// Those of `partial_slabs` with exactly one object in use.
    pub one_object_slabs: u64,
    /// Slabs kept on a node even if empty.
    pub min_partial: u64,
    /// Allocations.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Those of `frees` that only the later use of the memory told. Bulk frees have no event: a cache with
    /// implied frees may hold more in a replay than it did in the kernel.
    pub implied_frees: u64,
    /// Allocations on the fast path.
    pub alloc_fastpath: u64,
    /// Frees on the fast path.
    pub free_fastpath: u64,
}

impl CacheReport {
    /// Report of a cache as it is now, with its counts since `before`. Also gives its counters and
    /// how its memory is used.
    pub(crate) fn of<D: Design>(
        cache: &CacheView<'_, D>,
        page_bytes: u64,
        before: Option<&Stats>,
        asked: Asked,
    ) -> (Self, Stats, Usage) {
        let all = cache.stats();
        // Most kmalloc classes were never used, and looking for their slabs takes time.
        let usage = match all.get(Stat::AllocFastpath) + all.get(Stat::AllocSlowpath) {
            0 => Usage::default(),
            _ => cache.usage(),
        };
        let stats = before.map_or(all, |before| all.since(before));
        let geometry = cache.head().geometry();
        let attribute = |name, of_geometry: u32| {
            let value = cache.attribute(name);
            value.map_or(of_geometry, |value| value as u32)
        };
        let order = attribute("order", geometry.order);
        let slab_bytes = usage.pages * page_bytes + usage.shared_bytes;
        let alive = (all.get(Stat::AllocFastpath) + all.get(Stat::AllocSlowpath))
            .saturating_sub(all.get(Stat::FreeFastpath) + all.get(Stat::FreeSlowpath));
        let before_recording = alive.saturating_sub(asked.objects);
        let object_bytes = asked.bytes + before_recording * u64::from(geometry.layout.object_size);
        let free_bytes = usage.num_objs.saturating_sub(alive) * u64::from(geometry.layout.size);
        let report = Self {
            name: cache.head().name().to_string(),
            object_size: geometry.layout.object_size,
            slab_size: geometry.layout.size,
            align: geometry.layout.align,
            active_objs: usage.active_objs,
            num_objs: usage.num_objs,
            objs_per_slab: attribute("objs_per_slab", geometry.objects),
            pages_per_slab: 1 << order,
            order,
            slabs: usage.slabs,
            slab_bytes,
            object_bytes,
            waste_bytes: slab_bytes.saturating_sub(object_bytes + free_bytes),
            free_bytes,
            partial_slabs: usage.partial_slabs,
            one_object_slabs: usage.one_object_slabs,
            min_partial: cache
                .attribute("min_partial")
                .unwrap_or(geometry.min_partial.into()),
            allocs: stats.get(Stat::AllocFastpath) + stats.get(Stat::AllocSlowpath),
            frees: stats.get(Stat::FreeFastpath) + stats.get(Stat::FreeSlowpath),
            implied_frees: 0,
            alloc_fastpath: stats.get(Stat::AllocFastpath),
            free_fastpath: stats.get(Stat::FreeFastpath),
        };
        (report, stats, usage)
    }
}

/// The machine's lock counters.
pub(crate) fn locks(counters: &Counters) -> Vec<(&'static str, u64)> {
    LockClass::ALL
        .iter()
        .map(|(class, name)| (*name, counters.locks(*class)))
        .collect()
}

/// The machine's touch counters.
pub(crate) fn touches(counters: &Counters) -> Vec<(&'static str, Touches)> {
    Line::ALL
        .iter()
        .map(|(line, name)| {
            let touches = Touches {
                reads: counters.touches(*line, Access::Read),
                writes: counters.touches(*line, Access::Write),
                atomics: counters.touches(*line, Access::Atomic),
            };
            (*name, touches)
        })
        .collect()
}

/// The machine's counters of work.
pub(crate) fn work(counters: &Counters) -> Vec<(&'static str, u64)> {
    Work::ALL
        .iter()
        .map(|(work, name)| (*name, counters.work(*work)))
        .collect()
}

fn as_map<S: Serializer, V: Serialize>(
    pairs: &[(&'static str, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

fn by_sysfs_name<S: Serializer>(stats: &Stats, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(stats.iter().map(|(stat, value)| (stat.name(), value)))
}
