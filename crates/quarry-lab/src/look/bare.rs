//! Files that know bytes alone: a report of exhausted memory, meminfo, call sites, owners of pages. Nothing is computed
//! of objects and slabs that it does not have.

use std::collections::BTreeMap;

use quarry_snapshot::{Detail, Snapshot, Totals};
use quarry_view::Form::{Bytes, Change, Count, Of, Text};
use quarry_view::units::{bytes, in_brackets, percent, signed};
use quarry_view::value::list;
use quarry_view::{Doc, Section, Spec, View};
use quarry_view::{column, file_name};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::growth;
use super::owners::{OfOwners, sum};
use super::why::{WHY, Why};
use super::zones::{ZONES, Zones};
use crate::known;

/// Tables of such an answer.
pub const TABLES: [Spec; 4] = [WHY, CACHES, SITES, ZONES];

const CACHES: Spec = Spec {
    title: "Caches in bytes",
    rows: "cache_bytes",
    first: 10,
    columns: || {
        vec![
            column("cache", "name", Text),
            column("total", "total_bytes", Bytes),
            column("used", "used_bytes", Of("total_bytes")),
            column("grew", "grew_bytes", Change).rare(),
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
            column("pages", "pages", Count).rare(),
            column("bytes", "bytes", Bytes).rare(),
            column("calls", "calls", Count).rare(),
            column("grew", "grew_bytes", Change).rare(),
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
    /// Bytes of all slabs (`Slab:` of meminfo, or both sums of an OOM report); null if unknown.
    pub slab_bytes: Option<u64>,
    /// Bytes of slabs whose objects the kernel frees when memory is short; null if unknown.
    pub reclaimable_bytes: Option<u64>,
    /// Bytes of all other slabs; null if unknown.
    pub unreclaimable_bytes: Option<u64>,
    /// Caches without objects and slabs, with most bytes first.
    pub cache_bytes: Vec<OfCache<'a>>,
    /// Call sites that hold memory, with most bytes or pages first.
    pub sites: Vec<OfSite<'a>>,
    /// Sums of pages by their owners; null if the file has no owners.
    pub owners: Option<OfOwners<'a>>,
    /// Free pages by zone.
    #[serde(flatten)]
    pub free: Zones<'a>,
    /// Requests for pages that failed.
    #[serde(flatten)]
    pub why: Why<'a>,
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
    /// Bytes more than in the first report; null if there is one alone, or if that does not list the cache.
    pub grew_bytes: Option<i64>,
}

/// Memory that a call site holds.
#[derive(JsonSchema, Serialize)]
pub struct OfSite<'a> {
    /// File, line, module and function. Of an owner of pages the function that asked for them, and three callers at most;
    /// of the slab allocators' own functions the first and the last.
    pub place: &'a str,
    /// Pages that it holds; null if unknown.
    pub pages: Option<u64>,
    /// Bytes that it holds; null if the size of a page is unknown.
    pub bytes: Option<u64>,
    /// Allocations that have not been freed; null if unknown.
    pub calls: Option<u64>,
    /// Bytes more than in the first report; null if there is one alone, or if that does not list the site.
    pub grew_bytes: Option<i64>,
}

impl<'a> Bare<'a> {
    /// The answer about the last of some snapshots; `None` if that one has slabs.
    #[must_use]
    pub fn of(snapshots: &'a [Snapshot]) -> Option<Self> {
        let all = snapshots;
        let (snapshots, left_out) = with_amounts(all);
        let last = snapshots
            .last()
            .filter(|last| last.detail() == Detail::Bytes)?;
        let page_size = Some(last.page_bytes).filter(|bytes| *bytes > 0);
        let [
            slab_bytes,
            reclaimable_bytes,
            unreclaimable_bytes,
            memory_bytes,
        ] = sums_of(last);
        let others = known::Others::of(snapshots);
        let differences = growth::differences(snapshots);
        let is_series = snapshots.len() > 1 && others.is_none() && differences.is_empty();
        let before = snapshots.first().filter(|_| is_series);
        let caches = |of: &'a Snapshot| of.cache_bytes.iter().map(|it| (&*it.name, it.total_bytes));
        let grew = Grew::between(before.map(caches), caches(last));
        let mut cache_bytes: Vec<OfCache<'_>> = last
            .cache_bytes
            .iter()
            .map(|cache| OfCache {
                name: &cache.name,
                used_bytes: cache.used_bytes,
                total_bytes: cache.total_bytes,
                grew_bytes: grew.of(&cache.name),
            })
            .collect();
        cache_bytes.sort_by_key(|cache| std::cmp::Reverse(cache.total_bytes));
        let mut sites = sites_of(last, page_size);
        let earlier = before.map(|before| sites_of(before, page_size));
        let known = |sites: &[OfSite<'a>]| -> Vec<(&'a str, u64)> {
            let known = sites
                .iter()
                .filter_map(|site| Some((site.place, site.bytes?)));
            known.collect()
        };
        let grew = Grew::between(
            earlier.map(|sites| known(&sites).into_iter()),
            known(&sites).into_iter(),
        );
        for site in &mut sites {
            site.grew_bytes = grew.of(site.place);
        }
        sites.sort_by_key(|site| std::cmp::Reverse((site.bytes, site.pages, site.calls)));
        let mut bare = Self {
            files: all.iter().map(|one| one.file.as_str()).collect(),
            kernel: last.release.as_deref(),
            page_size,
            finding: String::new(),
            notes: known::lacks(last),
            memory_bytes,
            slab_bytes,
            reclaimable_bytes,
            unreclaimable_bytes,
            cache_bytes,
            sites,
            owners: last.page_owners.as_ref().map(OfOwners::of),
            free: Zones::of(last, page_size),
            why: Why::of(all),
        };
        bare.finding = bare.found(last);
        if let Some(before) = before {
            let grown = bare.grown(before, last);
            bare.finding = format!("{} {grown}", bare.finding);
        }
        let told = others.map(|others| others.told()).or_else(|| {
            let differ = differences.join(", ");
            (!differ.is_empty()).then(|| format!("different machines or kernels ({differ})"))
        });
        if let Some(told) = told {
            bare.finding += &format!(
                " The readings are not compared, as they are of {told}; this is of the last."
            );
            let place = |of: &Snapshot| (of.host.clone(), of.listed_in.clone(), of.boot_id.clone());
            let runs = snapshots.chunk_by(|one, other| place(one) == place(other));
            for run in runs.filter(|run| run.len() > 1) {
                let name = run[0].host.as_ref().or(run[0].listed_in.as_ref());
                if let Some((name, own)) = name.zip(Bare::of(run)) {
                    bare.finding +=
                        &format!(" {name}: {}", own.grown(&run[0], &run[run.len() - 1]));
                }
            }
        }
        if left_out > 0 {
            bare.notes.push(format!(
                "readings that are cut before the sums of slabs, at the end: {left_out}; the last that has them is shown"
            ));
        }
        if page_size.is_none() && bare.owners.is_some() {
            let note = "pages without bytes: the file has no page size (--had-page-size)";
            bare.notes.push(note.to_string());
        }
        bare.notes.extend(bare.free.assumed(last));
        bare.notes.extend(known::order(all));
        bare.notes.insert(0, bare.machine(last));
        Some(bare)
    }

    /// The amounts, and the caches and sites that hold most, in sentences.
    fn found(&self, snapshot: &Snapshot) -> String {
        let sums = snapshot.oom.unwrap_or_default();
        let share = |part: Option<u64>, whole: Option<u64>| match part.zip(whole) {
            Some((part, whole)) if whole > 0 => format!(" ({} of memory)", percent(part, whole)),
            _ => String::new(),
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
        let all = self.slab_bytes.filter(|_| parts.is_empty());
        parts.extend(amount(all, None).map(|amount| format!("{amount} in slabs")));
        let name = &snapshot.file;
        let mut sentences: Vec<String> = self.why.found().into_iter().collect();
        if !parts.is_empty() {
            sentences.push(format!("{name} has {}.", parts.join(" and ")));
        }
        let listed = self.cache_bytes.iter().map(|cache| cache.total_bytes);
        let listed = listed.fold(0, u64::saturating_add);
        if let Some(totals) = snapshot.excerpt.and_then(|excerpt| excerpt.totals) {
            sentences.push(format!("{name} has {}.", of_head(&totals)));
        }
        if let Some(most) = self.cache_bytes.first() {
            let all = self.unreclaimable_bytes.filter(|all| *all > 0);
            let is_part = all.is_some_and(|all| listed < all / 2);
            // Two reports tell.
            let leak = match self.files.len() {
                1 if !is_part => "; if it grows from report to report, it leaks",
                _ => "",
            };
            let share = all.map_or_else(String::new, |all| {
                format!(
                    ": {} of what cannot be reclaimed is listed",
                    percent(listed, all)
                )
            });
            let rest = match is_part {
                true => "; the table is cut, or pages that are no cache's have the rest",
                false => "",
            };
            sentences.push(format!(
                "Of the caches listed {} has most, {} of {}{}{share}{rest}{leak}.",
                most.name,
                bytes(most.total_bytes),
                bytes(listed),
                in_brackets(most.total_bytes, listed)
            ));
        }
        let told = |site: &OfSite<'_>| site.bytes;
        match (&self.owners, self.sites.first()) {
            (Some(owners), _) => sentences.extend(owners.found(name, &self.sites, self.page_size)),
            (None, Some(most)) => {
                let all = sum(self.sites.iter().map(told)).unwrap_or_default();
                let bytes_of_most = told(most).unwrap_or_default();
                sentences.push(format!(
                    "{} call sites hold {}; {} holds most, {}{}.",
                    self.sites.len(),
                    bytes(all),
                    most.place,
                    bytes(bytes_of_most),
                    in_brackets(bytes_of_most, all)
                ));
            }
            (None, None) => {}
        }
        sentences.extend(self.free.found(name, self.page_size));
        if sentences.is_empty() {
            sentences.push(format!("{name} has no sum of slabs."));
        }
        sentences.join(" ")
    }

    /// The change since the first report, in sentences.
    fn grown(&self, first: &Snapshot, last: &Snapshot) -> String {
        let caches = self.cache_bytes.iter();
        let caches = caches.map(|cache| (cache.name, cache.grew_bytes));
        let sites = self.sites.iter().map(|site| (site.place, site.grew_bytes));
        let grew = caches.chain(sites);
        let most = grew
            .filter_map(|(name, grew)| Some((name, grew?)))
            .max_by_key(|(_, grew)| *grew);
        let slabs = |of: [Option<u64>; 2]| of[0].zip(of[1]);
        let [all_first, _, unreclaimable_first, _] = sums_of(first);
        let sums = slabs([self.unreclaimable_bytes, unreclaimable_first]);
        let sums = sums.map(|sums| (sums, "slabs that cannot be reclaimed"));
        let sums = sums.or_else(|| {
            let all = slabs([self.slab_bytes, all_first])?;
            Some((all, "slabs"))
        });
        let of_heads = || {
            let of = |snapshot: &Snapshot| {
                let sum = snapshot.excerpt?.totals?.object_bytes;
                Some(sum).filter(|bytes| *bytes > 0)
            };
            Some((slabs([of(last), of(first)])?, "objects in slabs"))
        };
        let sums = sums.or_else(of_heads);
        let sums = sums.map(|((last, first), what)| {
            let grew = i128::from(last) - i128::from(first);
            format!("{what} changed by {}", signed(grew))
        });
        let pages = [first, last].map(|of| of.oom?.slab_unreclaimable_pages);
        let sums = sums.or_else(|| {
            let grew = i128::from(pages[1]?) - i128::from(pages[0]?);
            Some(format!(
                "slabs that cannot be reclaimed changed by {grew:+} pages"
            ))
        });
        let has_grown = sums.as_ref().is_some_and(|told| told.contains(" by +"));
        let most = match most {
            Some((name, grew)) if grew > 0 => {
                format!("{name} grew most, by {}", signed(grew.into()))
            }
            Some(_) if has_grown => {
                "nothing that both list grew, so what grew is not listed".to_string()
            }
            Some(_) => "nothing that both list grew".to_string(),
            None if sums.is_some() => String::new(),
            None if self.owners.is_some() && self.page_size.is_none() => {
                "owners are compared by bytes, which need --had-page-size".to_string()
            }
            None => {
                let free = self.free.grown(&Zones::of(first, self.page_size));
                free.unwrap_or_else(|| "they list nothing in common".to_string())
            }
        };
        let parts = sums.into_iter().chain((!most.is_empty()).then_some(most));
        let parts: Vec<String> = parts.collect();
        let since = match first.file == *self.files.last().unwrap_or(&"") {
            true => "the first of its readings",
            false => &first.file,
        };
        format!("Since {since}: {}.", parts.join("; "))
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

/// The readings of a text from the first to the last that has amounts, and the number of those behind it: the end of a text
/// may cut its last copy of meminfo. All of them if none has such.
fn with_amounts(snapshots: &[Snapshot]) -> (&[Snapshot], usize) {
    let has = |of: &Snapshot| {
        let oom = of.oom.unwrap_or_default();
        let pages = [oom.slab_reclaimable_pages, oom.slab_unreclaimable_pages];
        of.detail() != Detail::Bytes
            || sums_of(of)[..3].iter().chain(&pages).any(Option::is_some)
            || !of.cache_bytes.is_empty()
            || !of.call_sites.is_empty()
            || of.page_owners.is_some()
            || of.excerpt.is_some()
            || !of.page_failures.is_empty()
            || !Zones::of(of, None).zones.is_empty()
    };
    let ends = (
        snapshots.iter().position(has),
        snapshots.iter().rposition(has),
    );
    match ends {
        (Some(first), Some(last)) => {
            // Another file is another's to show.
            let file = |one: &Snapshot| one.file == snapshots[last].file;
            let behind = &snapshots[last + 1..];
            match behind.iter().all(file) {
                true => (&snapshots[first..=last], behind.len()),
                false => (snapshots, 0),
            }
        }
        _ => (snapshots, 0),
    }
}

/// Bytes of all slabs, of reclaimable and of other ones, and of memory; `None` for what the file lacks. A report of exhausted
/// memory has its own; meminfo beside it is of another moment.
fn sums_of(snapshot: &Snapshot) -> [Option<u64>; 4] {
    let page_size = Some(snapshot.page_bytes).filter(|bytes| *bytes > 0);
    let in_bytes = |pages: Option<u64>| pages?.checked_mul(page_size?);
    let own = snapshot.oom.unwrap_or_default();
    let reclaimable = in_bytes(own.slab_reclaimable_pages).or(snapshot.reclaimable_bytes);
    let unreclaimable = in_bytes(own.slab_unreclaimable_pages).or(snapshot.unreclaimable_bytes);
    let both = reclaimable.zip(unreclaimable);
    [
        snapshot
            .meminfo_slab_bytes
            .or_else(|| both.and_then(|(one, other)| one.checked_add(other))),
        reclaimable,
        unreclaimable,
        snapshot.memory_bytes.or(in_bytes(own.ram_pages)),
    ]
}

/// Call sites, and owners of pages.
fn sites_of(snapshot: &Snapshot, page_size: Option<u64>) -> Vec<OfSite<'_>> {
    let sites = snapshot.call_sites.iter().map(|site| OfSite {
        place: &site.place,
        pages: None,
        bytes: Some(site.bytes),
        calls: Some(site.calls),
        grew_bytes: None,
    });
    let owners = snapshot.page_owners.iter().flat_map(|owners| &owners.sites);
    let owners = owners.map(|site| OfSite {
        place: &site.place,
        pages: site.pages,
        bytes: site
            .pages
            .zip(page_size)
            .and_then(|(pages, size)| pages.checked_mul(size)),
        calls: site.allocations,
        grew_bytes: None,
    });
    sites.chain(owners).collect()
}

/// Growth of what several reports list, by name: several rows may have one.
struct Grew<'a>(BTreeMap<&'a str, [Option<u64>; 2]>);

impl<'a> Grew<'a> {
    /// The bytes of a first report, if there is one, and of a last.
    fn between(
        first: Option<impl Iterator<Item = (&'a str, u64)>>,
        last: impl Iterator<Item = (&'a str, u64)>,
    ) -> Self {
        let mut by_name: BTreeMap<&str, [Option<u64>; 2]> = BTreeMap::new();
        let first = first.into_iter().flatten().map(|row| (0, row));
        for (at, (name, bytes)) in first.chain(last.map(|row| (1, row))) {
            let sum = &mut by_name.entry(name).or_default()[at];
            *sum = Some(sum.unwrap_or(0).saturating_add(bytes));
        }
        Self(by_name)
    }

    fn of(&self, name: &str) -> Option<i64> {
        let [first, last] = *self.0.get(name)?;
        last?.checked_signed_diff(first?)
    }
}

/// The view of such an answer.
pub(super) fn view(doc: &Doc) -> View {
    let answer = &doc.content;
    let file = list(answer, "files").last().and_then(Value::as_str);
    let has_slabs = ["unreclaimable_bytes", "reclaimable_bytes"];
    let has_slabs = has_slabs.iter().any(|name| !answer[name].is_null());
    let of = match (answer["owners"].is_null(), list(answer, ZONES.rows)) {
        (false, _) => "Owners of pages in",
        (true, _) if !list(answer, WHY.rows).is_empty() => "Failed requests for pages in",
        (true, []) => "Slab memory of",
        (true, _) if has_slabs || !list(answer, CACHES.rows).is_empty() => "Slab memory of",
        (true, _) => "Free pages of",
    };
    let title = format!("{of} {}", file_name(file.unwrap_or_default()));
    let notes = list(answer, "notes").iter().filter_map(Value::as_str);
    let notes = notes.fold(Section::default(), Section::note);
    let mut view = View::of(title, std::slice::from_ref(doc)).with(notes);
    for spec in TABLES {
        if !list(answer, spec.rows).is_empty() {
            let mut table = spec.of(answer);
            // A place is known by its end, too.
            table.blocks = spec.rows == SITES.rows;
            view = view.with(Section::new(spec.title).with(table));
        }
    }
    view
}

/// True for an answer about a file without slabs.
pub(super) fn is(doc: &Doc) -> bool {
    doc.content["cache_bytes"].is_array()
}

/// The sums of a head without rows; those that it lacks are left out. The head of slabtop has no bytes of slabs.
fn of_head(totals: &Totals) -> String {
    let objects = match (totals.object_bytes, totals.num_objs) {
        (0, count) => format!("{count} objects"),
        (all, 0) => format!("{} of objects", bytes(all)),
        (all, count) => format!("{} in {count} objects", bytes(all)),
    };
    let caches = match totals.caches {
        0 => String::new(),
        caches => format!(" of {caches} caches"),
    };
    match (totals.slab_bytes, totals.slabs) {
        (0, 0) => format!("{objects}{caches}"),
        (0, slabs) => format!("{objects}, in {slabs} slabs{caches}"),
        (all, slabs) => {
            let objects = objects.replacen(" in ", " of it in ", 1);
            format!("{} in {slabs} slabs{caches}, {objects}", bytes(all))
        }
    }
}
