//! Metadata of a trace, in the footer.
//!
//! Three keys of the Parquet footer hold it: `quarry.format_version` (a number, so that any reader
//! can tell at once), `quarry.meta` (JSON of [`TraceMeta`]) and `quarry.meta_checksum` (of that
//! JSON, in hexadecimal).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Result, TraceError};
use crate::event::{Kind, NO_CACHE};
use crate::moves::PageMoves;
use crate::report::{KernelReport, NewReport};
use crate::schema::Checksum;
use crate::waiting::UnseenFrees;

/// The version of the file format that this crate writes.
///
/// * 1: the first one.
/// * 2: page events of slabs have [`crate::Flags::SLAB`]; the optional column `page`;
///   [`TraceMeta::slab_memory`].
pub const FORMAT_VERSION: u32 = 2;
/// The oldest version that this crate reads.
pub const FORMAT_VERSION_MIN: u32 = 1;
/// The footer key of the version.
pub(crate) const VERSION_KEY: &str = "quarry.format_version";
/// The footer key of everything else.
pub(crate) const META_KEY: &str = "quarry.meta";
/// The footer key of the checksum of everything else.
pub(crate) const CHECKSUM_KEY: &str = "quarry.meta_checksum";
/// Most CPUs of a trace: their numbers have 16 bits.
pub(crate) const CPUS_MAX: u32 = 1 << 16;
/// Most entries that the footer lists of one string table; the rest are only counted.
pub(crate) const TABLE_ENTRIES_MAX: usize = 10_000;

/// Metadata of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceMeta {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Source of the events: `perf script`, `ftrace`, or a name that their maker chose.
    pub source: String,
    /// The kernel's release, if it is known.
    pub kernel: Option<String>,
    /// The machine's architecture, if it is known.
    pub arch: Option<String>,
    /// The command that was recorded, if it is known.
    pub command: Option<String>,
    /// Page size of the recorded machine.
    pub page_size: u32,
    /// True if the page size was unknown and 4096 was assumed.
    pub page_size_assumed: bool,
    /// Gaps of the recording and what fills them: a sentence each, for every output
    /// that rests on it. Writers add their own; [`crate::TraceBuilder::finish`] adds those about the page
    /// size and the kernel.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// Texts of the recorded kernel about itself, in the order of their times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<KernelReport>,
    /// Thread ids of the recorder. Rows with one of them as `pid` are the recorder's own work
    /// ([`TraceMeta::is_recorder`]). Empty if they are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorder_pids: Vec<i32>,
    /// The load's part of the recording, if the recorder or the importer knew it; [`TraceMeta::load_part`]
    /// also takes it from the reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadPart>,
    /// Name of the events' clock by ftrace: `mono` is `CLOCK_MONOTONIC`. `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Identity of the recorded boot (`/proc/sys/kernel/random/boot_id`), if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Number of CPUs: every event's CPU is below it.
    pub cpus: u32,
    /// Rows in the file: events plus implied frees.
    pub rows: u64,
    /// Rows that have a call stack.
    #[serde(default)]
    pub stack_rows: u64,
    /// Events read, by kind. Implied frees are not in it, null frees and failed allocations are.
    pub events: KindCounts,
    /// Kinds of events that are known to have been switched on, though none may have happened. Empty if that is
    /// unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<Kind>,
    /// True if buffers of ftrace follow one another in the order of a text, not of time.
    #[serde(default)]
    pub unsorted_buffers: bool,
    /// Allocations and frees without a partner.
    pub orphans: Orphans,
    /// Frees of NULL or of the zero-size pointer: read, no row.
    pub null_frees: u64,
    /// Allocations that returned nothing (or the zero-size pointer): read, no row.
    pub failed_allocs: u64,
    /// Events of other tracepoints.
    pub other_events: u64,
    /// These tracepoints, most frequent first.
    #[serde(default)]
    pub other_event_names: Table,
    /// Lines that are no event: comments, blank lines, call chains.
    pub other_lines: u64,
    /// Lines that looked like events and did not parse (only if skipping was asked for).
    pub skipped_lines: u64,
    /// The fault in the first of them.
    pub first_skipped: Option<String>,
    /// Events that the recorder reported lost.
    pub lost_events: u64,
    /// Events whose time is before that of the row above: the recorder's, and frees before which
    /// the importer has put the allocation of a new slab.
    pub time_regressions: u64,
    /// Events that the recorder printed below one of a later time.
    #[serde(default)]
    pub time_steps_back: u64,
    /// By how much at most.
    #[serde(default)]
    pub time_step_back_ns_max: u64,
    /// Time of the first row.
    pub first_time_ns: u64,
    /// Latest time of any row.
    pub last_time_ns: u64,
    /// True if addresses were hashed (`%p`), so that only equal addresses could prove an object gone.
    pub hashed_addresses: bool,
    /// Most slab objects alive at once = size of the table that a replay needs.
    pub object_slots: u32,
    /// Most page blocks alive at once = size of the table that a replay needs.
    pub page_slots: u32,
    /// Most bytes asked for that were alive at once (slab objects).
    pub peak_bytes_req: u64,
    /// Most bytes set aside that were alive at once (slab objects).
    pub peak_bytes_alloc: u64,
    /// Most pages alive at once (page events).
    pub peak_pages: u64,
    /// Slab pages that were identified. `None` if that was not possible: addresses are
    /// hashed, page events were not recorded, few slabs were made, the given page size is wrong, or the
    /// file is of version 1.
    #[serde(default)]
    pub slab_memory: Option<SlabMemory>,
    /// Frees of `kfree_rcu()`, if the kernel told of any when their grace periods were over.
    #[serde(default, skip_serializing_if = "RcuFrees::is_empty")]
    pub rcu: RcuFrees,
    /// Fallbacks between migrate types, and pages that left CPUs' lists.
    #[serde(default, skip_serializing_if = "PageMoves::is_empty")]
    pub moves: PageMoves,
    /// Memory of objects whose free has no event, each from its allocation to the later use of its memory: at most what
    /// waits for a grace period or lies free. `None` if it was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen_frees: Option<UnseenFrees>,
    /// Numbers of caches by the way in which they were named.
    pub cache_resolution: CacheResolution,
    /// The cache table; entry 0 is kmalloc.
    pub caches: Vec<CacheEntry>,
    /// Call sites, most used first.
    pub call_sites: Table,
    /// Allocation flags, most used first.
    pub gfp_flags: Table,
    /// Task names, most used first.
    pub comms: Table,
    /// Threads as `pid comm`, busiest first.
    pub tasks: Table,
    /// Checksum of what a replay reads, in row order: equal digests replay equally.
    pub digest: u64,
    /// Checksum of the bytes of each row group.
    pub group_checksums: Vec<u64>,
}

impl TraceMeta {
    /// Texts of a trace's footer, by key. Rows that another program keeps together with it are a trace again
    /// ([`crate::TraceFile::open`]).
    ///
    /// # Errors
    /// If a text of it is no JSON.
    pub fn footer(&self) -> serde_json::Result<[(&'static str, String); 3]> {
        let json = serde_json::to_string(self)?;
        let checksum = format!("{:016x}", Checksum::of(json.as_bytes()));
        Ok([
            (VERSION_KEY, self.format_version.to_string()),
            (META_KEY, json),
            (CHECKSUM_KEY, checksum),
        ])
    }

    /// The canonical index of a cache: several provisional indexes may mean one cache.
    #[must_use]
    pub fn resolve(&self, cache: u16) -> u16 {
        self.caches
            .get(usize::from(cache))
            .map_or(NO_CACHE, |entry| entry.resolved)
    }

    /// The cache of an index.
    #[must_use]
    pub fn cache(&self, cache: u16) -> Option<&CacheEntry> {
        self.caches.get(usize::from(self.resolve(cache)))
    }

    /// The caches that are canonical, with their index: what a replay has to create.
    pub fn canonical_caches(&self) -> impl Iterator<Item = (u16, &CacheEntry)> {
        (0u16..)
            .zip(&self.caches)
            .filter(|(index, entry)| entry.resolved == *index)
    }

    /// True if rows with this `pid` are the recorder's own work.
    #[must_use]
    pub fn is_recorder(&self, pid: i32) -> bool {
        self.recorder_pids.contains(&pid)
    }

    /// The part of the machine's events that a recording has, such as `only events of threads called make are here`, if it
    /// is of some tasks alone or a filter took some of them.
    #[must_use]
    pub fn part_of_tasks(&self) -> Option<&str> {
        let filtered = [
            "(of processes",
            "(of threads",
            " of processes",
            " of threads",
        ];
        let said = self.assumptions.iter().find(|said| {
            let is_filtered = said.starts_with("only a part of a recording ");
            said.starts_with("only events ")
                || is_filtered && filtered.iter().any(|by| said.contains(by))
        })?;
        said.split(':').next()
    }

    /// The part of the recording that is the load's: [`TraceMeta::load`], else from the first snapshot (zoneinfo,
    /// if there is none) to the last. With one report it ends with the last row. `None` without any.
    #[must_use]
    pub fn load_part(&self) -> Option<LoadPart> {
        let between = |name: &str| {
            let times = self.reports.iter().filter(|report| report.name == name);
            let mut times = times.map(|report| report.time_ns);
            let from_ns = times.next()?;
            let until_ns = times.next_back();
            Some(LoadPart {
                from_ns,
                until_ns: until_ns.unwrap_or(self.last_time_ns.saturating_add(1)),
            })
        };
        self.load
            .or_else(|| between("snapshot"))
            .or_else(|| between("zoneinfo"))
    }

    /// True if there is a report of what the kernel's slabs held.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        self.reports.iter().any(|report| report.name == "snapshot")
    }

    /// Adds reports, in the place of those that have the same names. One that was read after the last event was
    /// read just behind it.
    ///
    /// # Errors
    ///
    /// [`TraceError::OtherOrigin`] if one is known to be of another boot, kernel or moment.
    pub(crate) fn add_reports(&mut self, reports: &[NewReport]) -> Result<()> {
        for report in reports {
            if let Some(what) = report.origin.differs(self) {
                return Err(TraceError::OtherOrigin {
                    report: report.name.clone(),
                    what,
                });
            }
        }
        let is_new = |name: &str| reports.iter().any(|report| report.name == name);
        self.reports.retain(|report| !is_new(&report.name));
        let (first_ns, end_ns) = (self.first_time_ns, self.last_time_ns.saturating_add(1));
        let added = reports.iter().map(|report| KernelReport {
            name: report.name.clone(),
            time_ns: report.at.clock_ns(first_ns).min(end_ns),
            text: report.text.clone(),
        });
        self.reports.extend(added);
        self.reports.sort_by_key(|report| report.time_ns);
        Ok(())
    }

    /// Nanoseconds from the first to the last row.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.last_time_ns.saturating_sub(self.first_time_ns)
    }
}

/// The part of a recording between two moments of the events' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPart {
    /// First moment of the part.
    pub from_ns: u64,
    /// First moment after it.
    pub until_ns: u64,
}

impl LoadPart {
    /// The time that this part and the window share; `None` if they share none.
    #[must_use]
    pub fn within(self, from_ns: Option<u64>, until_ns: Option<u64>) -> Option<LoadPart> {
        let part = LoadPart {
            from_ns: self.from_ns.max(from_ns.unwrap_or(0)),
            until_ns: self.until_ns.min(until_ns.unwrap_or(u64::MAX)),
        };
        (part.from_ns < part.until_ns).then_some(part)
    }
}

/// A counter for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct KindCounts {
    /// `kmalloc` events.
    pub kmalloc: u64,
    /// `kmalloc_node` events.
    pub kmalloc_node: u64,
    /// `kfree` events.
    pub kfree: u64,
    /// `kmem_cache_alloc` events.
    pub kmem_cache_alloc: u64,
    /// `kmem_cache_alloc_node` events.
    pub kmem_cache_alloc_node: u64,
    /// `kmem_cache_free` events.
    pub kmem_cache_free: u64,
    /// `mm_page_alloc` events.
    pub mm_page_alloc: u64,
    /// `mm_page_free` events.
    pub mm_page_free: u64,
}

impl KindCounts {
    /// The counter of a kind.
    pub fn get_mut(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Kmalloc => &mut self.kmalloc,
            Kind::KmallocNode => &mut self.kmalloc_node,
            Kind::Kfree => &mut self.kfree,
            Kind::KmemCacheAlloc => &mut self.kmem_cache_alloc,
            Kind::KmemCacheAllocNode => &mut self.kmem_cache_alloc_node,
            Kind::KmemCacheFree => &mut self.kmem_cache_free,
            Kind::MmPageAlloc => &mut self.mm_page_alloc,
            Kind::MmPageFree => &mut self.mm_page_free,
        }
    }

    /// The count of a kind.
    #[must_use]
    pub fn get(&self, kind: Kind) -> u64 {
        let mut copy = *self;
        *copy.get_mut(kind)
    }

    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        Kind::ALL.iter().map(|kind| self.get(*kind)).sum()
    }
}

/// Allocations and frees that have no partner in the recording. The crate's documentation has the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Orphans {
    /// `kfree` of objects whose allocation was not seen.
    pub unknown_kfree: u64,
    /// `kmem_cache_free` of objects whose allocation was not seen.
    pub unknown_kmem_cache_free: u64,
    /// `mm_page_free` of blocks whose allocation was not seen.
    pub unknown_page_free: u64,
    /// Objects that a later event proved gone; the importer inserted a free for each.
    pub implied_object_frees: u64,
    /// Page blocks that a later event proved gone; the importer inserted a free for each.
    pub implied_page_frees: u64,
    /// Objects still alive at the end.
    pub never_freed_objects: u64,
    /// Page blocks still alive at the end.
    pub never_freed_pages: u64,
    /// Page blocks freed with another order than they were allocated with (split blocks).
    pub page_order_mismatches: u64,
}

impl Orphans {
    /// Frees of what was never seen allocated.
    #[must_use]
    pub fn unknown_frees(&self) -> u64 {
        self.unknown_kfree + self.unknown_kmem_cache_free + self.unknown_page_free
    }

    /// Rows that the importer inserted.
    #[must_use]
    pub fn implied_frees(&self) -> u64 {
        self.implied_object_frees + self.implied_page_frees
    }

    /// Objects and blocks that are alive at the end.
    #[must_use]
    pub fn never_freed(&self) -> u64 {
        self.never_freed_objects + self.never_freed_pages
    }
}

/// Objects of `kfree_rcu()` that were freed when their grace periods were over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RcuFrees {
    /// Bulk calls, by time: their objects have no event of their own. The first [`RcuFrees::BATCHES_MAX`].
    pub batches: Vec<RcuBatch>,
    /// Objects of all bulk calls.
    pub bulk_objects: u64,
    /// Objects that were freed one by one, each with an event of its own.
    pub singles: u64,
}

impl RcuFrees {
    /// Most batches that the footer has; objects of further ones are only counted.
    pub const BATCHES_MAX: usize = 100_000;

    /// Those in a window. Of frees one by one the times are not kept: a window has none.
    pub(crate) fn within(&self, from_ns: Option<u64>, until_ns: Option<u64>) -> Self {
        if (from_ns, until_ns) == (None, None) {
            return self.clone();
        }
        let window = from_ns.unwrap_or(0)..until_ns.unwrap_or(u64::MAX);
        let batches = self.batches.iter();
        let batches = batches.filter(|batch| window.contains(&batch.time_ns));
        let batches: Vec<RcuBatch> = batches.copied().collect();
        Self {
            bulk_objects: batches.iter().map(|batch| u64::from(batch.objects)).sum(),
            batches,
            singles: 0,
        }
    }

    /// True if the kernel told of no free.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A bulk call of `kfree_rcu()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RcuBatch {
    /// Time by the events' clock.
    pub time_ns: u64,
    /// The CPU that freed.
    pub cpu: u16,
    /// Objects that it freed.
    pub objects: u32,
}

/// Slab pages that were identified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlabMemory {
    /// Page allocations that have [`crate::Flags::SLAB`].
    pub allocs: u64,
    /// Page frees that have it.
    pub frees: u64,
    /// Page allocations that turned out to be slabs when their rows were written already: neither
    /// they nor their frees have the flag.
    pub late_allocs: u64,
    /// Ids of pages are below.
    pub pages: u32,
}

/// Numbers of provisional caches by the way in which they were named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheResolution {
    /// Provisional caches: distinct (call site, bytes asked, bytes given) of allocations without a name.
    pub provisional: u64,
    /// Named by the frees of their objects.
    pub by_frees: u64,
    /// Named because exactly one known cache has their sizes.
    pub by_size: u64,
    /// Given a synthetic name.
    pub synthetic: u64,
    /// Frees that voted for another name than the one that won.
    pub outvoted_frees: u64,
}

/// Source of a cache's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheOrigin {
    /// Entry 0: everything that kmalloc served; a replay picks the size class.
    Kmalloc,
    /// An event told the name.
    Event,
    /// Most frees of its objects told this name.
    Frees,
    /// The one named cache with its sizes.
    Size,
    /// Made up: `anon-<bytes asked>-<bytes given>`.
    Synthetic,
}

/// One entry of the cache table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheEntry {
    /// The cache's name; `kmalloc` for entry 0.
    pub name: String,
    /// Source of the name.
    pub origin: CacheOrigin,
    /// Bytes asked for per object; 0 if only frees of foreign objects were seen, and for entry 0.
    pub object_size: u32,
    /// Bytes set aside per object; 0 likewise.
    pub slab_size: u32,
    /// True if some allocation was charged to a memory control group.
    pub accounted: bool,
    /// Rows that allocate from this index.
    pub allocs: u64,
    /// Rows that free to this index, implied ones included.
    pub frees: u64,
    /// The index to use instead of this one; its own index for a canonical entry.
    pub resolved: u16,
    /// For a provisional entry, the call site that it stands for.
    pub call_site: Option<String>,
}

/// A table of strings with the number of rows of each, most used first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// String and rows.
    pub entries: Vec<(String, u64)>,
    /// Strings beyond the first ten thousand, which are left out.
    pub omitted: u64,
}

impl Table {
    pub(crate) fn new(mut entries: Vec<(String, u64)>) -> Table {
        let omitted = entries.len().saturating_sub(TABLE_ENTRIES_MAX);
        entries.truncate(TABLE_ENTRIES_MAX);
        Table {
            entries,
            omitted: omitted as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_between_the_reports_unless_told() {
        let report = |name: &str, time_ns| KernelReport {
            name: name.to_string(),
            time_ns,
            text: String::new(),
        };
        let part = |from_ns, until_ns| LoadPart { from_ns, until_ns };
        let mut meta = TraceMeta {
            last_time_ns: 90,
            ..TraceMeta::default()
        };
        assert_eq!(meta.load_part(), None);
        meta.reports = vec![report("zoneinfo", 10)];
        assert_eq!(meta.load_part(), Some(part(10, 91)));
        meta.reports.push(report("snapshot", 20));
        meta.reports.push(report("snapshot", 70));
        assert_eq!(meta.load_part(), Some(part(20, 70)));
        meta.load = Some(part(30, 60));
        assert_eq!(meta.load_part(), meta.load);
        let within = |from_ns, until_ns| part(30, 60).within(from_ns, until_ns);
        assert_eq!(within(None, None), meta.load);
        assert_eq!(within(Some(40), Some(50)), Some(part(40, 50)));
        assert_eq!(within(Some(60), None), None);
    }

    #[test]
    fn a_footer_without_the_newer_fields_is_read() {
        let meta = TraceMeta::default();
        let text = serde_json::to_string(&meta).unwrap();
        for name in ["recorder_pids", "load", "clock", "boot_id"] {
            assert!(!text.contains(name), "{name}");
        }
        let read: TraceMeta = serde_json::from_str(&text).unwrap();
        assert_eq!(read, meta);
        assert!(!read.is_recorder(1));
    }
}
