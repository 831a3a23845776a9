//! Files that know bytes alone: a report of exhausted memory, meminfo, call sites. Nothing is computed of
//! objects and slabs that it does not have.

use quarry_snapshot::{Detail, Snapshot};
use quarry_view::Form::{Bytes, Count, Of, Text};
use quarry_view::units::{bytes, percent};
use quarry_view::value::list;
use quarry_view::{Doc, Section, Spec, View};
use quarry_view::{column, file_name};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::known;

/// Tables of such an answer.
pub const TABLES: [Spec; 2] = [CACHES, SITES];

const CACHES: Spec = Spec {
    title: "Caches in bytes",
    rows: "cache_bytes",
    first: 10,
    columns: || {
        vec![
            column("cache", "name", Text),
            column("total", "total_bytes", Bytes),
            column("used", "used_bytes", Of("total_bytes")),
        ]
    },
};

const SITES: Spec = Spec {
    title: "Call sites",
    rows: "sites",
    first: 10,
    columns: || {
        vec![
            column("call site", "place", Text),
            column("bytes", "bytes", Bytes),
            column("calls", "calls", Count),
        ]
    },
};

/// The answer about a file without slabs.
#[derive(JsonSchema, Serialize)]
pub struct Bare<'a> {
    /// Files, in the order of their moments.
    pub files: Vec<&'a str>,
    /// Kernel's release; null if unknown.
    pub kernel: Option<&'a str>,
    /// Bytes of a page; null if unknown.
    pub page_size: Option<u64>,
    /// Result in sentences.
    pub finding: String,
    /// Sentences about what the file has, and what it lacks.
    pub notes: Vec<String>,
    /// Bytes of memory; null if unknown.
    pub memory_bytes: Option<u64>,
    /// Bytes of slabs whose objects the kernel frees when memory is short; null if unknown.
    pub reclaimable_bytes: Option<u64>,
    /// Bytes of all other slabs; null if unknown.
    pub unreclaimable_bytes: Option<u64>,
    /// Caches without objects and slabs, with most bytes first.
    pub cache_bytes: Vec<OfCache<'a>>,
    /// Call sites that hold memory, with most bytes first.
    pub sites: Vec<OfSite<'a>>,
}

/// Bytes of a cache.
#[derive(JsonSchema, Serialize)]
pub struct OfCache<'a> {
    /// Name; several caches may have the same.
    pub name: &'a str,
    /// Bytes of objects in use.
    pub used_bytes: u64,
    /// Bytes of all objects.
    pub total_bytes: u64,
}

/// Memory that a call site holds.
#[derive(JsonSchema, Serialize)]
pub struct OfSite<'a> {
    /// File, line, module and function.
    pub place: &'a str,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Allocations that have not been freed.
    pub calls: u64,
}

impl<'a> Bare<'a> {
    /// The answer about the last of some snapshots; `None` if that one has slabs.
    #[must_use]
    pub fn of(snapshots: &'a [Snapshot]) -> Option<Self> {
        let last = snapshots
            .last()
            .filter(|last| last.detail() == Detail::Bytes)?;
        let page_size = Some(last.page_bytes).filter(|bytes| *bytes > 0);
        let in_bytes = |pages: Option<u64>| pages?.checked_mul(page_size?);
        let sums = last.oom.unwrap_or_default();
        let mut cache_bytes: Vec<OfCache<'_>> = last
            .cache_bytes
            .iter()
            .map(|cache| OfCache {
                name: &cache.name,
                used_bytes: cache.used_bytes,
                total_bytes: cache.total_bytes,
            })
            .collect();
        cache_bytes.sort_by_key(|cache| std::cmp::Reverse(cache.total_bytes));
        let mut sites: Vec<OfSite<'_>> = last
            .call_sites
            .iter()
            .map(|site| OfSite {
                place: &site.place,
                bytes: site.bytes,
                calls: site.calls,
            })
            .collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
        let mut bare = Self {
            files: snapshots.iter().map(|one| one.file.as_str()).collect(),
            kernel: last.release.as_deref(),
            page_size,
            finding: String::new(),
            notes: known::lacks(last),
            memory_bytes: last.memory_bytes.or(in_bytes(sums.ram_pages)),
            reclaimable_bytes: last
                .reclaimable_bytes
                .or(in_bytes(sums.slab_reclaimable_pages)),
            unreclaimable_bytes: last
                .unreclaimable_bytes
                .or(in_bytes(sums.slab_unreclaimable_pages)),
            cache_bytes,
            sites,
        };
        bare.finding = bare.found(last);
        if snapshots.len() > 1 {
            let note = format!("the last of {} moments", snapshots.len());
            bare.notes.insert(0, note);
        }
        bare.notes.insert(0, bare.machine(last));
        Some(bare)
    }

    /// The amounts, and the caches and sites that hold most, in sentences.
    fn found(&self, snapshot: &Snapshot) -> String {
        let sums = snapshot.oom.unwrap_or_default();
        let share = |part: Option<u64>, whole: Option<u64>| match part.zip(whole) {
            Some((part, whole)) => format!(" ({} of memory)", percent(part, whole)),
            None => String::new(),
        };
        let amount = |what: Option<u64>, pages: Option<u64>| match (what, pages) {
            (Some(what), _) => Some(format!(
                "{}{}",
                bytes(what),
                share(Some(what), self.memory_bytes)
            )),
            (None, Some(pages)) => Some(format!(
                "{pages} pages{}",
                share(Some(pages), sums.ram_pages)
            )),
            (None, None) => None,
        };
        let mut parts = Vec::new();
        for (what, pages, kind) in [
            (
                self.unreclaimable_bytes,
                sums.slab_unreclaimable_pages,
                "that cannot be reclaimed",
            ),
            (
                self.reclaimable_bytes,
                sums.slab_reclaimable_pages,
                "that can be reclaimed",
            ),
        ] {
            parts.extend(amount(what, pages).map(|amount| format!("{amount} in slabs {kind}")));
        }
        let name = &snapshot.file;
        let mut sentences = Vec::new();
        if !parts.is_empty() {
            sentences.push(format!("{name} has {}.", parts.join(" and ")));
        }
        let listed = self.cache_bytes.iter().map(|cache| cache.total_bytes);
        let listed = listed.fold(0, u64::saturating_add);
        if let Some(totals) = snapshot.excerpt.and_then(|excerpt| excerpt.totals) {
            sentences.push(format!(
                "{name} has {} in {} slabs of {} caches, {} of it in {} objects.",
                bytes(totals.slab_bytes),
                totals.slabs,
                totals.caches,
                bytes(totals.object_bytes),
                totals.num_objs
            ));
        }
        if let Some(most) = self.cache_bytes.first() {
            sentences.push(format!(
                "Of the caches listed {} has most, {} of {} ({}): if it grows from report to report, it leaks.",
                most.name,
                bytes(most.total_bytes),
                bytes(listed),
                percent(most.total_bytes, listed)
            ));
        }
        if let Some(most) = self.sites.first() {
            let all = self
                .sites
                .iter()
                .map(|site| site.bytes)
                .fold(0, u64::saturating_add);
            sentences.push(format!(
                "{} call sites hold {}; {} holds most, {} ({}).",
                self.sites.len(),
                bytes(all),
                most.place,
                bytes(most.bytes),
                percent(most.bytes, all)
            ));
        }
        if sentences.is_empty() {
            sentences.push(format!("{name} has no sum of slabs."));
        }
        sentences.join(" ")
    }

    fn machine(&self, snapshot: &Snapshot) -> String {
        let kernel = self.kernel.map_or_else(
            || "kernel unknown (--kernel)".to_string(),
            |release| format!("kernel {release}"),
        );
        let memory = match (
            self.memory_bytes,
            snapshot.oom.and_then(|oom| oom.ram_pages),
        ) {
            (Some(memory), _) => format!("{} of memory", bytes(memory)),
            (None, Some(pages)) => format!("{pages} pages of memory, whose size is not told"),
            (None, None) => "memory unknown".to_string(),
        };
        format!("{kernel}, {memory}")
    }
}

/// The view of such an answer.
pub(super) fn view(doc: &Doc) -> View {
    let answer = &doc.content;
    let file = list(answer, "files").last().and_then(Value::as_str);
    let title = format!("Slab memory of {}", file_name(file.unwrap_or_default()));
    let notes = list(answer, "notes").iter().filter_map(Value::as_str);
    let notes = notes.fold(Section::default(), Section::note);
    let mut view = View::of(title, std::slice::from_ref(doc)).with(notes);
    for spec in TABLES {
        if !list(answer, spec.rows).is_empty() {
            view = view.with(Section::new(spec.title).with(spec.of(answer)));
        }
    }
    view
}

/// True for an answer about a file without slabs.
pub(super) fn is(doc: &Doc) -> bool {
    doc.content["cache_bytes"].is_array()
}
