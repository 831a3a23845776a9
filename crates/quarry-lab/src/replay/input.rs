//! A trace with what every run on it needs to know first.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::OnceLock;

use quarry_core::design::FreeError;
use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_trace::{CacheOrigin, KernelReport, TraceFile, seconds};

use crate::booted::Booted;
use crate::bundled::{BUNDLED, Bundled};
use crate::error::LabError;
use crate::infer::{Inferred, Recorded, infer};
use crate::replay::frames::Frames;
use crate::replay::pages::PageMode;
use crate::replay::part::{Part, Window};
use crate::run::RunSpec;
use quarry_designs::list;
use quarry_snapshot::{Origin, Pagetypeinfo, Slabinfo, Snapshot, Zoneinfo};
use quarry_work::Start as _;

/// A cache of the recorded kernel.
#[derive(Clone, Debug)]
pub struct RecordedCache {
    /// Its name.
    pub name: String,
    /// Bytes of an object, the largest that any event tells.
    pub object_size: u32,
    /// Bytes from object to object; 0 if no event tells.
    pub slab_size: u32,
    /// No event told its name.
    pub synthetic: bool,
    /// Parameters for creating it. `None` if no event has its sizes.
    pub inferred: Option<Inferred>,
}

/// An open trace and its caches.
#[derive(Clone, Debug)]
pub struct Input {
    /// The trace.
    pub file: TraceFile,
    /// Its name in messages.
    pub name: String,
    /// The recorded kernel's caches.
    pub caches: Vec<RecordedCache>,
    /// The part of it that is replayed.
    pub part: Part,
    /// Copies of the recorded load that run side by side, each on its own CPUs and with its own objects;
    /// 1 for the load as it was recorded.
    pub copies: u32,
    /// The kernel's state before that part.
    pub initial: Option<Snapshot>,
    /// Heap of a machine that has run, for the load to begin on: not the recorded one's, so no event frees its objects.
    /// [`RunSpec::state`] numbers its variants.
    pub booted: Option<Booted>,
    /// The kernel's slabs after it.
    pub check: Option<Slabinfo>,
    /// States that the initial report allows and that a check replays, for the range of growth; 1 for the assumed one
    /// alone.
    pub states: u32,
    /// The kernel's zones and page lists before that part ([`super::lists`]).
    pub zoneinfo: Option<Zoneinfo>,
    /// Free blocks of its zones at that moment; used only together with a zoneinfo.
    pub free: Option<Pagetypeinfo>,
    /// Memory at that moment by address, once a run has read it from the trace.
    pub(super) frames: OnceLock<Frames>,
    /// Page events to replay.
    pub pages: PageMode,
    /// Bytes of a CPU's share of the last-level cache, which page lists of 6.7 and later heed
    /// ([`PageConfig::cache_share_bytes`](quarry_core::page::PageConfig::cache_share_bytes)).
    pub cache_share_bytes: u64,
    /// Other names of caches that the kernel merged, by the name that events have; empty without a snapshot.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// The trace tells which blocks of pages were slabs.
    pub(crate) slab_pages_known: bool,
    /// From a cache index of the trace to one of `caches`.
    pub(crate) cache_of: Vec<u16>,
}

impl Input {
    /// Makes a table with `slots` entries for each copy, one for each object or block of the trace that may
    /// be alive at once.
    pub(super) fn table<T>(
        &self,
        slots: u32,
        empty: impl FnMut() -> T,
    ) -> Result<Vec<T>, LabError> {
        // `check_copies` keeps the product in 32 bits.
        let slots = slots.saturating_mul(self.copies);
        let mut table = Vec::new();
        table
            .try_reserve_exact(slots as usize)
            .map_err(|_| LabError::Table {
                trace: self.name.clone(),
                objects: slots,
            })?;
        table.resize_with(slots as usize, empty);
        Ok(table)
    }

    /// Heap of another machine on which a run begins; `None` if it begins empty or with what the recorded kernel held.
    pub(super) fn other_heap(&self, spec: &RunSpec) -> Option<String> {
        let booted = self.booted.as_ref()?;
        booted.about(spec.design.design.name, spec.design.era, &spec.config)
    }

    /// The CPUs of all copies of the recorded load: copy k of recorded CPU c is CPU k * `cpus` + c.
    #[must_use]
    pub fn load_cpus(&self) -> u32 {
        self.file.meta().cpus.saturating_mul(self.copies)
    }

    /// Checks that the copies can be replayed: their CPUs and objects have numbers, every run has a CPU for
    /// each of theirs, and no report of the recorded kernel is theirs.
    pub(crate) fn check_copies(&self, runs: &[RunSpec]) -> Result<(), LabError> {
        let meta = self.file.meta();
        let slots = meta.object_slots.max(meta.page_slots).max(1);
        let most = (1_u32 << 16).checked_div(meta.cpus).unwrap_or(1);
        let most = most.min((u32::MAX - 1) / slots);
        if !(1..=most).contains(&self.copies) {
            return Err(LabError::Usage(format!(
                "{} copies of {}: 1 to {most} can be replayed, as copies have at most 65536 CPUs and \
                 2^32 objects",
                self.copies, self.name
            )));
        }
        let load_cpus = self.load_cpus();
        let narrow = runs.iter().find(|run| run.config.cpus < load_cpus);
        if let Some(run) = narrow.filter(|_| self.copies > 1) {
            return Err(LabError::Usage(format!(
                "{} copies of {} CPUs need {load_cpus} CPUs, and {} has {}: give --cpus \
                 {load_cpus} or more, or fewer copies",
                self.copies,
                meta.cpus,
                run.label(),
                run.config.cpus
            )));
        }
        let reports = [
            (self.initial.is_some(), "an initial state"),
            (self.check.is_some(), "a report to check with"),
            (self.zoneinfo.is_some(), "a zoneinfo"),
        ];
        match reports.into_iter().find(|(given, _)| *given) {
            Some((_, what)) if self.copies > 1 => Err(LabError::Usage(format!(
                "{} copies cannot be replayed with {what}, which is of one machine",
                self.copies
            ))),
            _ => Ok(()),
        }
    }

    /// Replays the part that is the load's, if the trace tells it: what lies between the kernel's reports, or what an
    /// import named.
    pub fn take_load(&mut self) {
        if let Some(load) = self.file.meta().load_part() {
            self.part = Part {
                from_ns: Some(load.from_ns),
                until_ns: Some(load.until_ns),
            };
        }
    }

    /// Begin and end of the part, by the recording's clock.
    pub(super) fn part_bounds(&self) -> (u64, u64) {
        let meta = self.file.meta();
        Window::new(self.part).bounds(meta.first_time_ns, meta.last_time_ns)
    }

    /// True if the trace has what its kernel held before the load.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        self.file.meta().has_snapshot()
    }

    /// Begins with what the kernel reported at the beginning of the recording, and replays from that moment on, until
    /// that of the last report.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if the trace has no report, [`LabError::Report`] if one cannot be read.
    pub fn start_from_reports(&mut self) -> Result<(), LabError> {
        let [snapshots, zoneinfos] = ["snapshot", "zoneinfo"].map(|name| self.reports(name));
        let of_part = if snapshots.is_empty() {
            &zoneinfos
        } else {
            &snapshots
        };
        let Some(first) = of_part.first() else {
            return Err(LabError::Usage(format!(
                "{} has no report of its kernel: record it with quarry record, or add one with quarry import \
                 --before or quarry filter --before",
                self.name
            )));
        };
        self.part = Part {
            from_ns: Some(first.time_ns),
            until_ns: of_part.get(1).map(|report| report.time_ns),
        };
        if let Some(report) = snapshots.first() {
            self.initial = Some(self.snapshot(report)?);
        }
        let zoneinfo = zoneinfos.first();
        let zoneinfo = zoneinfo.map(|report| Zoneinfo::parse(&self.name, &report.text));
        self.zoneinfo = zoneinfo.transpose()?;
        if let Some(report) = self.reports("pagetypeinfo").first() {
            self.free = Some(Pagetypeinfo::parse(&self.name, &report.text)?);
        }
        Ok(())
    }

    /// Does the same, and compares the end with the snapshot of that moment.
    ///
    /// # Errors
    ///
    /// As [`Self::start_from_reports`]; [`LabError::Usage`] if the trace has no two snapshots.
    pub fn check_reports(&mut self) -> Result<(), LabError> {
        let snapshots = self.reports("snapshot");
        let Some(last) = snapshots.get(1) else {
            let (part, tasks) = match self.file.meta().part_of_tasks() {
                Some(part) => (format!(", as {part}"), "all tasks"),
                None => (String::new(), "it"),
            };
            return Err(LabError::Usage(format!(
                "{} does not have what its kernel held at both ends{part}: record {tasks} with quarry record, or add \
                 snapshots with quarry import --before --after or quarry filter --before --after",
                self.name
            )));
        };
        self.check = Some(self.snapshot(last)?.slabinfo);
        self.start_from_reports()
    }

    /// Names of all caches that the trace, or the state that a replay starts from, has.
    pub(crate) fn cache_names(&self) -> impl Iterator<Item = &str> {
        // The trace's first cache stands for kmalloc of all sizes.
        let recorded = self.caches.iter().skip(1).map(|cache| cache.name.as_str());
        let initial = self.initial.iter().flat_map(|report| &report.slabinfo.rows);
        recorded.chain(initial.map(|row| row.name.as_str()))
    }

    /// Other names of a cache that the kernel merged.
    #[must_use]
    pub fn aliases_of(&self, cache: &str) -> Vec<String> {
        self.aliases.get(cache).cloned().unwrap_or_default()
    }

    /// The trace's reports of this name, oldest first.
    fn reports(&self, name: &str) -> Vec<KernelReport> {
        let reports = self.file.meta().reports.iter();
        reports
            .filter(|report| report.name == name)
            .cloned()
            .collect()
    }

    /// The snapshots in the trace, oldest first: what the kernel held at the begin and the end of the load.
    ///
    /// # Errors
    ///
    /// [`LabError::Report`] if one cannot be read.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, LabError> {
        let reports = self.reports("snapshot");
        reports.iter().map(|report| self.snapshot(report)).collect()
    }

    fn snapshot(&self, report: &KernelReport) -> Result<Snapshot, LabError> {
        let file = format!("{}, {}", self.name, self.moment(report));
        let mut snapshot = Snapshot::parse(&file, &report.text, None)?;
        // A slabinfo alone says neither; the recording does.
        let meta = self.file.meta();
        let told = || Origin::Told(self.name.clone());
        if let (None, Some(kernel)) = (&snapshot.release, &meta.kernel) {
            snapshot.release = Some(kernel.clone());
            snapshot.releases = None;
            snapshot.facts.release = told();
        }
        if !snapshot.facts.present_cpus.is_fact() {
            snapshot.present_cpus = Some(meta.cpus);
            snapshot.facts.present_cpus = told();
        }
        Ok(snapshot)
    }

    /// Moment of a snapshot, for people: the begin or the end of the load, or a time between.
    fn moment(&self, report: &KernelReport) -> String {
        let meta = self.file.meta();
        let times = meta.reports.iter().filter(|of| of.name == report.name);
        let mut times = times.map(|of| of.time_ns);
        match (times.next(), times.next_back()) {
            (Some(first), _) if first == report.time_ns => "begin".to_string(),
            (_, Some(last)) if last == report.time_ns => "end".to_string(),
            _ => {
                let first_ns = meta.first_time_ns;
                format!("+{} s", seconds(report.time_ns.saturating_sub(first_ns)))
            }
        }
    }

    /// Name of the cache with this index of the trace, for messages.
    pub(super) fn cache_name(&self, index: u16) -> &str {
        let group = self.cache_of.get(usize::from(index));
        group.map_or("kmalloc", |group| &self.caches[usize::from(*group)].name)
    }

    /// The error of a row that contradicts those before it.
    pub(super) fn bad_row(&self, row: u64, what: impl Into<String>) -> LabError {
        LabError::BadRow {
            trace: self.name.clone(),
            row,
            what: what.into(),
        }
    }

    /// The error of a free that the heap refuses.
    pub(super) fn bad_free(&self, row: u64, object: u32, source: FreeError) -> LabError {
        LabError::Free {
            trace: self.name.clone(),
            row,
            object,
            source,
        }
    }

    /// The error of an allocation for which the machine has no memory.
    pub(super) fn out_of_memory(
        &self,
        spec: &RunSpec,
        row: u64,
        used_pages: u64,
        wanted: u32,
        cache: &str,
    ) -> LabError {
        LabError::Memory {
            run: spec.label(),
            row,
            rows: self.file.meta().rows,
            used_bytes: used_pages * spec.config.page_bytes,
            memory_bytes: spec.config.memory_bytes,
            wanted,
            cache: cache.to_string(),
        }
    }

    /// The error of a part without events.
    pub(super) fn empty_part(&self) -> LabError {
        let meta = self.file.meta();
        LabError::EmptyPart {
            trace: self.name.clone(),
            part: self.part,
            first_ns: meta.first_time_ns,
            last_ns: meta.last_time_ns,
        }
    }

    /// Opens a file, or the bundled recording of this name if there is no such file.
    ///
    /// # Errors
    ///
    /// [`LabError::Trace`], or [`LabError::NoTrace`] if there is neither.
    pub fn open(name: &str) -> Result<Self, LabError> {
        match Bundled::find(name).filter(|_| !Path::new(name).exists()) {
            Some(bundled) => Ok(Self::new(bundled.open()?, name)),
            None => match TraceFile::open(name) {
                Err(error) if !Path::new(name).exists() => Err(LabError::NoTrace {
                    bundled: list(BUNDLED.iter().map(|bundled| bundled.name)),
                    source: Box::new(error),
                }),
                opened => Ok(Self::new(opened?, name)),
            },
        }
    }

    /// Prepares an open trace; `name` is what messages call it.
    #[must_use]
    pub fn new(file: TraceFile, name: &str) -> Self {
        let meta = file.meta();
        let recorded = Recorded::new(meta.kernel.as_deref(), meta.page_size);
        let mut caches: Vec<RecordedCache> = Vec::new();
        let mut known = HashMap::new();
        let mut cache_of = Vec::with_capacity(meta.caches.len());
        for entry in &meta.caches {
            // The same name with another size is another cache: file systems come in several
            // versions, and only its sizes identify a provisional cache.
            let key = (entry.name.as_str(), entry.slab_size);
            let at = *known.entry(key).or_insert_with(|| {
                caches.push(RecordedCache {
                    name: entry.name.clone(),
                    object_size: 0,
                    slab_size: entry.slab_size,
                    synthetic: entry.origin == CacheOrigin::Synthetic,
                    inferred: None,
                });
                caches.len() - 1
            });
            let cache = &mut caches[at];
            cache.object_size = cache.object_size.max(entry.object_size);
            // A trace has fewer than 2^16 caches.
            cache_of.push(u16::try_from(at).unwrap_or(u16::MAX));
        }
        for cache in &mut caches {
            if cache.object_size > 0 {
                cache.inferred = Some(infer(&recorded, cache.object_size, cache.slab_size));
            }
        }
        Self {
            name: name.to_string(),
            caches,
            part: Part::default(),
            copies: 1,
            initial: None,
            booted: None,
            check: None,
            states: 1,
            zoneinfo: None,
            free: None,
            frames: OnceLock::new(),
            pages: PageMode::default(),
            cache_share_bytes: CACHE_SHARE_BYTES,
            aliases: BTreeMap::new(),
            slab_pages_known: file.meta().slab_memory.is_some(),
            cache_of,
            file,
        }
    }
}
