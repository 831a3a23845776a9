//! A trace with what every run on it needs to know first.

use std::collections::HashMap;
use std::path::Path;

use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_trace::{CacheOrigin, KernelReport, TraceFile, seconds};

use crate::bundled::{BUNDLED, Bundled};
use crate::design::list;
use crate::error::LabError;
use crate::infer::{Inferred, Recorded, infer};
use crate::kernel::{CpuPartialLists, Pagetypeinfo, Slabinfo, Snapshot, Zoneinfo};
use crate::replay::pages::PageMode;
use crate::replay::part::{Moment, Part};
use crate::run::RunSpec;

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
    /// What it is created with. `None` if no event tells its sizes.
    pub inferred: Option<Inferred>,
}

/// An open trace and its caches.
#[derive(Clone, Debug)]
pub struct Input {
    /// The trace.
    pub file: TraceFile,
    /// What messages call it.
    pub name: String,
    /// The recorded kernel's caches.
    pub caches: Vec<RecordedCache>,
    /// Which part of it is replayed.
    pub part: Part,
    /// Copies of the recorded load that run side by side, each on its own CPUs and with its own objects;
    /// 1 for the load as it was recorded.
    pub copies: u32,
    /// What the kernel held before that part.
    pub initial: Option<Slabinfo>,
    /// How many of these slabs were on each CPU's partial list, for caches whose lists sysfs reported.
    pub initial_lists: CpuPartialLists,
    /// What it held after it.
    pub check: Option<Slabinfo>,
    /// What the kernel's zones and page lists held before that part ([`super::lists`]).
    pub zoneinfo: Option<Zoneinfo>,
    /// Which blocks of its zones were free then; heeded beside a zoneinfo.
    pub free: Option<Pagetypeinfo>,
    /// Which page events are replayed.
    pub pages: PageMode,
    /// Bytes of a CPU's share of the last-level cache, which page lists of 6.7 and later heed
    /// ([`PageConfig::cache_share_bytes`](quarry_core::page::PageConfig::cache_share_bytes)).
    pub cache_share_bytes: u64,
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

    /// The CPUs of all copies of the recorded load: copy k of recorded CPU c is CPU k * `cpus` + c.
    #[must_use]
    pub fn load_cpus(&self) -> u32 {
        self.file.meta().cpus.saturating_mul(self.copies)
    }

    /// Whether the copies can be replayed: their CPUs and objects have numbers, every run has a CPU for
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

    /// Replays the part between the first and the last of the snapshots that `quarry record` kept in the
    /// trace; compares the end with the last. What is set already stays as it is.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if the trace has no two snapshots, [`LabError::Report`] if one cannot be read.
    pub fn take_reports(&mut self) -> Result<(), LabError> {
        let reports = &self.file.meta().reports;
        let of = |name: &'static str| reports.iter().filter(move |report| report.name == name);
        let (Some(first), Some(last)) = (of("snapshot").next(), of("snapshot").nth(1)) else {
            return Err(LabError::Usage(format!(
                "{} does not have what its kernel held at both ends: record it with quarry record, or \
                 name a report: --check FILE",
                self.name
            )));
        };
        let parse = |report: &KernelReport| {
            let file = format!("{}: snapshot at {}", self.name, seconds(report.time_ns));
            Snapshot::parse(&file, &report.text, None)
        };
        if self.initial.is_none() {
            let snapshot = parse(first)?;
            self.initial_lists = snapshot.cpu_partial_lists(&snapshot.slabinfo);
            self.initial = Some(snapshot.slabinfo);
        }
        if self.check.is_none() {
            self.check = Some(parse(last)?.slabinfo);
        }
        if self.zoneinfo.is_none()
            && let Some(report) = of("zoneinfo").next()
        {
            self.zoneinfo = Some(Zoneinfo::parse(&self.name, &report.text)?);
            let free = of("pagetypeinfo").next();
            let free = free.map(|report| Pagetypeinfo::parse(&self.name, &report.text));
            self.free = free.transpose()?;
        }
        let part = &mut self.part;
        part.from = part.from.or(Some(Moment::Clock(first.time_ns)));
        part.until = part.until.or(Some(Moment::Clock(last.time_ns)));
        Ok(())
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
            initial_lists: CpuPartialLists::new(),
            check: None,
            zoneinfo: None,
            free: None,
            pages: PageMode::default(),
            cache_share_bytes: CACHE_SHARE_BYTES,
            slab_pages_known: file.meta().slab_memory.is_some(),
            cache_of,
            file,
        }
    }
}
