//! Files that know bytes alone: a report of exhausted memory, meminfo, call sites, owners of pages. Nothing is computed
//! of objects and slabs that it does not have.

mod growth;

use quarry_snapshot::blocks::SpreadChange;
use quarry_snapshot::{Detail, Snapshot, Totals};
use quarry_view::Form::{Bytes, Change, Count, Of, Text};
use quarry_view::units::{bytes, in_brackets, percent};
use quarry_view::value::list;
use quarry_view::{Doc, Section, Spec, View};
use quarry_view::{column, file_name};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::owners::{OfOwners, OfSite, sum};
use super::spread::{self, BLOCKS, CHANGED, Places};
use super::why::{WHY, Why};
use super::zones::{ZONES, Zones};
use crate::known;
use growth::Grew;

/// Tables of such an answer.
pub const TABLES: [Spec; 6] = [WHY, CACHES, SITES, ZONES, BLOCKS, CHANGED];

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
    /// Places of pages, by a map of blocks.
    #[serde(flatten)]
    pub places: Places,
    /// Change from the first file to the last; null if there is one alone.
    pub growth: Option<BlockGrowth>,
    /// Requests for pages that failed.
    #[serde(flatten)]
    pub why: Why<'a>,
}

/// Change of blocks from the first file to the last.
#[derive(JsonSchema, Serialize)]
pub struct BlockGrowth {
    /// Blocks of memory by what changed in them, a row for each size; none unless both files have maps of one boot.
    pub blocks: Vec<SpreadChange>,
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
        let differences = super::growth::differences(snapshots);
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
            places: Places::of(last),
            growth: before.map(|first| BlockGrowth {
                blocks: spread::since(first, last),
            }),
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
        bare.notes.extend(bare.places.found(last));
        let since = bare.growth.as_ref().map(|growth| growth.blocks.as_slice());
        bare.notes.extend(since.and_then(spread::changed));
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
        let by_flags = slabs_by_flags(snapshot).filter(|_| self.slab_bytes.is_none());
        sentences.extend(by_flags.map(|slabs| {
            let slabs = bytes(slabs);
            format!("{name} has {slabs} in slabs by the flags of pages.")
        }));
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
            || of.blocks.is_some()
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

/// Bytes of slabs by a map of blocks.
fn slabs_by_flags(snapshot: &Snapshot) -> Option<u64> {
    let sums = snapshot.blocks.as_ref()?.sums();
    sums.slab.checked_mul(snapshot.page_bytes)
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

/// The view of such an answer.
pub(super) fn view(doc: &Doc) -> View {
    let answer = &doc.content;
    let file = list(answer, "files").last().and_then(Value::as_str);
    let has_slabs = ["unreclaimable_bytes", "reclaimable_bytes", "slab_bytes"];
    let has_slabs = has_slabs.iter().any(|name| !answer[name].is_null());
    let of = match (answer["owners"].is_null(), list(answer, ZONES.rows)) {
        (false, _) => "Owners of pages in",
        (true, _) if !list(answer, WHY.rows).is_empty() => "Failed requests for pages in",
        (true, _) if has_slabs || !list(answer, CACHES.rows).is_empty() => "Slab memory of",
        (true, _) if !list(answer, BLOCKS.rows).is_empty() => "Blocks of memory of",
        (true, []) => "Slab memory of",
        (true, _) => "Free pages of",
    };
    let title = format!("{of} {}", file_name(file.unwrap_or_default()));
    let notes = list(answer, "notes").iter().filter_map(Value::as_str);
    let notes = notes.fold(Section::default(), Section::note);
    let mut view = View::of(title, std::slice::from_ref(doc)).with(notes);
    for spec in [WHY, CACHES, SITES, ZONES] {
        if !list(answer, spec.rows).is_empty() {
            let mut table = spec.of(answer);
            // A place is known by its end, too.
            table.blocks = spec.rows == SITES.rows;
            view = view.with(Section::new(spec.title).with(table));
        }
    }
    spread::section(answer).into_iter().fold(view, View::with)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::look::{self, Answer, Look};

    /// A view of an answer, and its JSON.
    fn shown(answer: &impl Serialize) -> (View, Value) {
        let content = serde_json::to_value(answer).unwrap();
        let doc = Doc {
            file: String::new(),
            content: content.clone(),
        };
        (look::view(&[doc]), content)
    }

    /// Tables, sentences and the map of blocks do not depend on slabinfo.
    #[test]
    fn blocks_need_no_slabs() {
        let blocks = |slab: u32| {
            format!(
                "quarry blocks - version: 1\npage_bytes 4096\nblock_bytes 2097152\non_cpu_lists 5\n\
                # first blocks free movable slab page_tables kernel untold cached\n0 9 512 0 0 0 0 0 0\n\
                9 1 {} 8 {slab} 0 0 0 8\n10 1 500 7 0 0 0 5 0\n",
                504 - slab
            )
        };
        let moment = |slab| {
            json!({
                "kernel_release": "6.12.1",
                "page_size": 4096,
                "cpu_present": "0-1",
                "boot_id": "b",
                "meminfo": "MemTotal: 40000 kB\n",
                "slabinfo_text": "slabinfo - version: 2.1\n# name\n\
                    thing 16 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n",
                "blocks": blocks(slab),
            })
        };
        let parsed = |moment: Value| Snapshot::parse("f", &moment.to_string(), None).unwrap();
        let mut moments = [moment(0), moment(4)];
        let whole = moments.clone().map(parsed);
        moments.iter_mut().for_each(|moment| {
            moment.as_object_mut().unwrap().remove("slabinfo_text");
        });
        let without = moments.map(parsed);
        let look = Look::of(&whole).unwrap();
        let (with, with_slabs) = shown(&Answer::of(&look, &whole).unwrap());
        let bare = Bare::of(&without).unwrap();
        let (view, answer) = shown(&bare);
        for key in ["blocks", "pages", "on_cpu_lists", "map"] {
            assert_eq!(answer[key], with_slabs[key], "{key}");
            assert!(!answer[key].is_null(), "{key}");
        }
        assert_eq!(answer["growth"]["blocks"], with_slabs["growth"]["blocks"]);
        assert_eq!(answer["growth"]["blocks"][0]["got_slabs"], 1);
        let section = |view: &View| {
            let mut sections = view.sections.iter();
            let found = sections.find(|section| section.heading == BLOCKS.title);
            format!("{:?}", found.unwrap())
        };
        assert_eq!(section(&view), section(&with));
        let told = |notes: &Value| {
            let words = ["packed", "drop_caches", "without a flag", "got slabs"];
            words.map(|word| {
                let mut notes = list(notes, "notes").iter().filter_map(Value::as_str);
                notes.find(|note| note.contains(word)).unwrap().to_string()
            })
        };
        assert_eq!(told(&answer), told(&with_slabs));
        assert_eq!(
            bare.finding,
            "f has 16 KiB in slabs by the flags of pages. Since the first of its readings: slabs by the flags of pages changed by \
             +16 KiB."
        );
    }
}
