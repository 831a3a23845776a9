//! Report of a run.

use std::collections::BTreeMap;

use quarry_core::design::{Design, Usage};
use quarry_core::machine::{Access, CpuId, Cpus as _, Line, LockClass, Work};
use quarry_core::page::{ORDERS, PcpStats};
use quarry_core::stats::{Stat, Stats};
use quarry_sim::Counters;
use quarry_sim::driver::{CacheView, Driver};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::check::Check;
use super::engine::Asked;
use super::memory::Memory;
use super::pages::{PageEvents, PageReport};
use crate::run::RunSpec;

/// Results of one run. All but `events_per_second` depend on the trace and the run alone.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RunReport {
    /// Design.
    pub design: &'static str,
    /// Kernel release whose rules apply.
    pub era: &'static str,
    /// Bytes of a page.
    pub page_size: u64,
    /// CPUs of the virtual machine.
    pub cpus: u32,
    /// Values that the run has of lists given to `--set`, such as `cpu_partial=6`; `default` for the run without
    /// any of them. Left out if no list is for the design.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub set: String,
    /// CPUs that the recording, or its copies, gave events to.
    pub cpus_with_events: u32,
    /// Debugging options in force; left out without debugging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slub_debug: Option<String>,
    /// Heap of a machine that has run, on which the replay began; left out if it began empty or with what the recorded
    /// kernel held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<String>,
    /// Bytes of pages that were slabs before the first event: what the recorded kernel held then, as this run's kernel
    /// would, or the heap of another machine; 0 for a replay that starts empty.
    pub initial_slab_bytes: u64,
    /// Most bytes of pages that were slabs at once. Large kmallocs, which take pages directly, are not
    /// slabs. Null if allocations or frees of objects were not recorded: what is alive is not known then.
    pub peak_slab_bytes: Option<u64>,
    /// Bytes of pages that are slabs at the end.
    pub final_slab_bytes: u64,
    /// Bytes that callers asked for by the objects in slabs when the peak was first reached.
    pub object_bytes: u64,
    /// `object_bytes` over `peak_slab_bytes`.
    pub utilisation: f64,
    /// Number of the event at which the peak was first reached, from 1; 0 without slabs.
    pub peak_event: u64,
    /// Bytes that callers asked for by the objects in slabs at the end.
    pub final_object_bytes: u64,
    /// Most bytes of pages at once of kmallocs that are too large for a slab.
    pub large_bytes_peak: u64,
    /// Allocations on the fast path, as the kernel counts them: served by the CPU's own list, queue or sheaves. With
    /// sheaves that includes a spare swapped in, one from the barn, and a refill. SLOB has no such path.
    pub alloc_fastpath: u64,
    /// Allocations on the slow path: all others.
    pub alloc_slowpath: u64,
    /// Frees on the fast path, as the kernel counts them: taken by the CPU's own list, queue or sheaves.
    pub free_fastpath: u64,
    /// Frees on the slow path: all others.
    pub free_slowpath: u64,
    /// Frees on another virtual CPU than the one that allocated; a property of the load, so the same in all
    /// designs.
    pub cross_cpu_frees: u64,
    /// Slab memory over recorded time.
    pub memory: Memory,
    /// Slabs at the end.
    pub slabs: u64,
    /// Slabs of 2^n pages at the end, for each order n.
    pub slabs_by_order: [u64; ORDERS],
    /// Slabs at the end that are neither full nor empty and that no CPU allocates from.
    pub partial_slabs: u64,
    /// Partial slabs at the end with exactly one object in use: pages that a single object pins.
    pub one_object_slabs: u64,
    /// Calls to the page allocator for a slab or a large kmalloc.
    pub page_allocs: u64,
    /// Calls to the page allocator that give a slab or a large kmalloc back.
    pub page_frees: u64,
    /// Events of the trace per second of the whole run on this computer, decoding included: Quarry's speed,
    /// not a kernel's. 0 if not measured.
    pub events_per_second: f64,
    /// Fate of the trace's events.
    pub replayed: Tally,
    /// Counters of the design by their sysfs names (CONFIG_SLUB_STATS), summed over all caches.
    #[serde(serialize_with = "by_sysfs_name")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub stats: Stats,
    /// Per-CPU page lists, for slabs and page events together.
    pub pcp: PcpReport,
    /// Zones, lowest first, of a run that began with those of a zoneinfo; left out otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<ZoneTraffic>,
    /// Kind of page events that were replayed.
    pub page_events: PageEvents,
    /// Page events: their fate and their cost; left out if none were replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageReport>,
    /// Acquisitions by class of lock, over the whole run.
    #[serde(serialize_with = "as_map")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub locks: Vec<(&'static str, u64)>,
    /// Reads, writes and atomic operations by kind of cache line, over the whole run.
    #[serde(serialize_with = "as_map")]
    #[schemars(with = "BTreeMap<String, Touches>")]
    pub touches: Vec<(&'static str, Touches)>,
    /// Work that is not memory access, by kind, over the whole run. Turning interrupts off counts only if
    /// they were on.
    #[serde(serialize_with = "as_map")]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub work: Vec<(&'static str, u64)>,
    /// Bytes filled with zeros because allocations asked for it.
    pub zeroed_bytes: u64,
    /// Bytes of the allocators' own structures at the end, outside of slabs.
    pub overhead_bytes: u64,
    /// Predicted memory next to what the kernel reported, with `--check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Caches that served something, by slab memory, largest first.
    pub caches: Vec<CacheReport>,
}

impl RunReport {
    /// Name of the run among others on one machine: the design, and its values of listed tunables.
    #[must_use]
    pub fn title(&self) -> String {
        RunSpec::title(self.design, self.era, &self.set)
    }
}

/// Fate of the events of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Tally {
    /// Objects allocated.
    pub allocs: u64,
    /// Objects freed, implied frees included.
    pub frees: u64,
    /// Frees that the importer inserted, among `frees`.
    pub implied_frees: u64,
    /// Frees skipped because their object was allocated before the recording, or before the replayed part.
    pub orphans: u64,
    /// Frees of objects from before that freed one of the initial state.
    pub initial_frees: u64,
    /// kmallocs among `allocs` that are too large for a slab.
    pub large: u64,
    /// kmallocs that the release cannot serve; their frees are skipped.
    pub unserved: u64,
    /// Events of the page allocator that were not replayed.
    pub page_events: u64,
}

/// A zone and its per-CPU page lists, for slabs and page events together.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct ZoneTraffic {
    /// Name.
    pub zone: &'static str,
    /// Pages of the zone.
    pub pages: u64,
    /// Blocks that the zone handed out, through its per-CPU lists or past them.
    pub allocs: u64,
    /// Blocks that the zone took back, through its per-CPU lists or past them.
    pub frees: u64,
    /// Blocks that refills brought to the zone's lists.
    pub refilled: u64,
    /// Blocks that the zone's lists gave back: on overflow, in a spree of frees or in the periodic work.
    pub drained: u64,
    /// Pages free in the zone at the beginning.
    pub initial_free_pages: u64,
    /// Pages free in the zone at the end, without those on lists.
    pub free_pages: u64,
    /// Pages on the zone's lists at the beginning.
    pub initial_pcp_pages: u64,
    /// Pages on the zone's lists at the end.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PcpReport {
    /// Blocks handed out.
    pub allocs: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Times a list was empty and the zone was asked for blocks, even if it had none.
    pub refills: u64,
    /// Blocks that refills brought.
    pub refilled: u64,
    /// Times the lists were drained: on overflow, by a spree of frees of larger blocks, or by the periodic
    /// work.
    pub drains: u64,
    /// Blocks that drains gave back, as `mm_page_pcpu_drain` counts them.
    pub drained: u64,
    /// Drains by the periodic work.
    pub decays: u64,
    /// Blocks that the periodic work gave back, among `drained`.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Touches {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Locked read-modify-writes.
    pub atomics: u64,
}

/// One cache at the end of a run: the columns of slabinfo, and more.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CacheReport {
    /// Name; kmalloc caches have the names of the design's release.
    pub name: String,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub aliases: Vec<String>,
    /// Bytes of an object, without alignment and debugging's records.
    pub object_size: u32,
    /// Bytes from one object to the next.
    pub slab_size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Objects in use as /proc/slabinfo counts them, which takes the whole slab of a CPU as used.
    pub active_objs: u64,
    /// Objects that all slabs of the cache can hold.
    pub num_objs: u64,
    /// Objects in a slab of the normal order.
    pub objs_per_slab: u32,
    /// Pages in a slab of the normal order.
    pub pages_per_slab: u32,
    /// Order of a normal slab.
    pub order: u32,
    /// Slabs of the cache.
    pub slabs: u64,
    /// Bytes of all slabs of the cache before the first event.
    pub initial_bytes: u64,
    /// Bytes of all slabs of the cache; with SLOB, whose caches share pages, bytes of its objects in these.
    pub slab_bytes: u64,
    /// Bytes asked for by the objects that are alive. An object from before the recording, or of the
    /// allocators' own, counts with `object_size`. `object_bytes`, `waste_bytes` and `free_bytes` add up to
    /// `slab_bytes`.
    pub object_bytes: u64,
    /// Bytes that no object can use: requests rounded up to the object's size, padding, debugging's records
    /// and the tails of slabs.
    pub waste_bytes: u64,
    /// Bytes of free objects in slabs, those on lists, queues and sheaves of CPUs included.
    pub free_bytes: u64,
    /// Slabs that are neither full nor empty and that no CPU allocates from.
    pub partial_slabs: u64,
    /// Partial slabs with exactly one object in use.
    pub one_object_slabs: u64,
    /// Slabs that a node keeps even if they are empty.
    pub min_partial: u64,
    /// Allocations.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Frees without an event, which only the later use of the memory shows; among `frees`. Bulk frees have
    /// no event: a cache with implied frees may hold more in a replay than it did in the kernel.
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
        before: Option<&(Stats, u64)>,
        asked: Asked,
    ) -> (Self, Stats, Usage) {
        let all = cache.stats();
        let usage = used(&all, cache);
        let stats = before.map_or(all, |(before, _)| all.since(before));
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
            aliases: Vec::new(),
            object_size: geometry.layout.object_size,
            slab_size: geometry.layout.size,
            align: geometry.layout.align,
            active_objs: usage.active_objs,
            num_objs: usage.num_objs,
            objs_per_slab: attribute("objs_per_slab", geometry.objects),
            pages_per_slab: 1 << order,
            order,
            slabs: usage.slabs,
            initial_bytes: before.map_or(0, |(_, bytes)| *bytes),
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

/// The use of a cache's memory. Most kmalloc classes are never used, and looking for their slabs takes time.
fn used<D: Design>(stats: &Stats, cache: &CacheView<'_, D>) -> Usage {
    match stats.get(Stat::AllocFastpath) + stats.get(Stat::AllocSlowpath) {
        0 => Usage::default(),
        _ => cache.usage(),
    }
}

/// Bytes of a cache's slabs.
pub(super) fn slab_bytes<D: Design>(
    stats: &Stats,
    cache: &CacheView<'_, D>,
    page_bytes: u64,
) -> u64 {
    let usage = used(stats, cache);
    usage.pages * page_bytes + usage.shared_bytes
}

/// The machine's lock counters.
pub(crate) fn locks(counters: &Counters) -> Vec<(&'static str, u64)> {
    LockClass::ALL
        .iter()
        .filter(|(class, _)| class.is_allocators())
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

pub(super) fn as_map<S: Serializer, V: Serialize>(
    pairs: &[(&'static str, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

fn by_sysfs_name<S: Serializer>(stats: &Stats, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(stats.iter().map(|(stat, value)| (stat.name(), value)))
}
