//! The answer as people read it: parts, caches, growth, and what could change.

use std::collections::BTreeMap;

use quarry_view::Form::{Bar, Bytes, Change, Count, More, Of, Seconds, Share};
use quarry_view::units::{bytes, counted, signed};
use quarry_view::value::{at, list, merged, number, text};
use quarry_view::{Axis, Cell, Chart, Column, Doc, Line, Section, Spec, Table, View};
use quarry_view::{column, file_name, short_names};
use serde_json::{Value, json};

use super::bare;
use super::spread::{self, BLOCKS, CHANGED};
use super::why::WHY;

/// Caches that a chart has lines of.
const LINES: usize = 6;
const MIB: f64 = 1_048_576.0;

/// Tables of a look.
pub const TABLES: [Spec; 10] = [
    PART, PARTS, CACHES, BLOCKS, CHANGED, GROWTH, MOMENTS, WHAT_IFS, SERIES, WHY,
];

const PART: Spec = Spec {
    title: "Parts",
    rows: "parts",
    first: 0,
    columns: || {
        vec![
            Column::text("part").about("A part of the slab memory."),
            Column::number("slabs").about("Bytes of the part."),
            Column::number("share").about("The part of all slabs, in per cent."),
        ]
    },
};

/// Parts of the slabs of several machines or moments.
pub const PARTS: Spec = Spec {
    title: "Parts of slab memory",
    rows: "parts",
    first: 0,
    columns: || parts(""),
};

/// Caches, those with most bytes first.
pub const CACHES: Spec = Spec {
    title: "Caches",
    rows: "caches",
    first: 10,
    columns: || {
        vec![
            column("cache", "name aliases", quarry_view::Form::Text).worded(starred),
            column("slabs", "slab_bytes", Bytes),
            column("objects", "objects", Count),
            column("live", "parts.live_bytes", Of("slab_bytes"))
                .about("The column has it as a part of the cache's slabs."),
            column("held", "parts.held_bytes", Bytes),
            column("free", "parts.partly_filled_bytes", Bytes),
            column("padding", "parts.padding_bytes", Bytes).more(),
            column("shrinking frees", "shrink.bytes", Bytes).more(),
            column("in blocks", "blocks", Count)
                .about("Blocks of 2 MiB that the cache's slabs lie in, if a debugger read it.")
                .computed(|cache| number(cache.get("blocks")?.get(0)?, "blocks"))
                .rare(),
            column("alone", "blocks", Count)
                .about(
                    "Blocks of 2 MiB in which its slabs are the only pages of the kernel; without a map of blocks, the only cache.",
                )
                .computed(|cache| {
                    let small = cache.get("blocks")?.get(0)?;
                    number(small, "only_kernel").or_else(|| number(small, "only_cache"))
                })
                .rare(),
        ]
    },
};

/// Growth of each cache.
pub const GROWTH: Spec = Spec {
    title: "Growth",
    rows: "growth.caches",
    first: 10,
    columns: || {
        vec![
            column("cache", "name aliases", quarry_view::Form::Text).worded(starred),
            column("grew", "slab_bytes", Change),
            column("objects", "objects", More),
            column("by objects", "objects_bytes", Change),
            column("allocator", "allocator_bytes", Change),
            column("steps", "each_bytes", Count)
                .about("The column has the steps from one snapshot to the next in which they grew, of all.")
                .computed(|cache| Some(steps(cache)?[0]))
                .worded(|cache| {
                    steps(cache).map_or_else(String::new, |[grew, all]| format!("{grew} of {all}"))
                }),
        ]
    },
};

const MOMENTS: Spec = Spec {
    title: "The series",
    rows: "growth.moments",
    first: 10,
    columns: || {
        vec![
            column("snapshot", "file", quarry_view::Form::Text)
                .worded(|moment| file_name(text(moment, "file")).to_string()),
            column("of", "of", quarry_view::Form::Text).rare(),
            column("after", "seconds", Seconds).rare(),
            column("slabs", "slab_bytes", Bytes),
            column("live objects", "parts.live_bytes", Bytes),
            column("held by CPUs", "parts.held_bytes", Bytes).more(),
            column("partly filled", "parts.partly_filled_bytes", Bytes).more(),
            column("", "parts.live_bytes", Bar("slab_bytes"))
                .about("A bar as long as the slabs, full as far as they are live objects."),
        ]
    },
};

const MACHINES: Spec = Spec {
    title: "Growth of each machine",
    rows: "growth.machines",
    first: 10,
    columns: || {
        vec![
            column("machine", "name", quarry_view::Form::Text),
            column("readings", "readings", Count),
            column("in", "seconds", Seconds).rare(),
            column("grew", "slab_bytes", Change),
        ]
    },
};

/// Other kernels and settings.
pub const WHAT_IFS: Spec = Spec {
    title: "Other kernels and settings",
    rows: "what_ifs",
    first: 0,
    columns: || {
        vec![
            column("with", "change", quarry_view::Form::Text),
            column("predicted", "predicted_bytes", Bytes),
            column("change", "", Change)
                .about("Predicted less what the slabs are now.")
                .computed(|told| Some(number(told, "predicted_bytes")? - number(told, "now")?))
                .worded(changed),
            column("9 in 10\nfrom", "likely_low_bytes", Bytes),
            column("9 in 10\nto", "likely_high_bytes", Bytes),
            column("low", "low_bytes", Bytes).more(),
            column("high", "high_bytes", Bytes).more(),
        ]
    },
};

/// Caches of several files.
const SERIES: Spec = Spec {
    title: "Caches of several files",
    rows: "caches",
    first: 10,
    columns: || {
        vec![
            Column::text("cache").about("Name of the cache."),
            Column::number("change")
                .about("Bytes of slabs in the last file less those in the first."),
        ]
    },
};

/// Columns of the parts of what is at a path.
fn parts(of: &str) -> Vec<Column> {
    let names = [
        ("live objects", "live_bytes"),
        ("held by CPUs", "held_bytes"),
        ("partly filled slabs", "partly_filled_bytes"),
        ("debugging", "debugging_bytes"),
        ("padding", "padding_bytes"),
    ];
    let of_part = |(name, field)| column(name, "", Bytes).of(format!("{of}{field}"));
    names.map(of_part).to_vec()
}

/// The name of a cache, with a star if the kernel frees its objects when memory is short.
fn starred(cache: &Value) -> String {
    let star = if cache["reclaimable"] == true {
        " *"
    } else {
        ""
    };
    merged(cache) + star
}

/// Bytes of a cache in each snapshot.
fn each(cache: &Value) -> Vec<f64> {
    let each = list(cache, "each_bytes").iter();
    each.filter_map(Value::as_f64).collect()
}

/// Steps of a series in which a cache grew, and all steps.
fn steps(cache: &Value) -> Option<[f64; 2]> {
    let each = each(cache);
    let grew = each.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let all = each.len().checked_sub(1)?;
    Some([grew as f64, all as f64])
}

/// The change by a prediction; "none" where nothing differs.
fn changed(told: &Value) -> String {
    let [now, low, middle, high] = ["now", "low_bytes", "predicted_bytes", "high_bytes"]
        .map(|of| number(told, of).unwrap_or(0.0));
    match [low, middle, high] == [now; 3] {
        true => "none".to_string(),
        false => signed((middle - now) as i128),
    }
}

/// The view of a look, or of several as a series in the order of the files.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    match docs {
        [doc] if bare::is(doc) => bare::view(doc),
        [doc] => single(doc),
        several => series(several),
    }
}

fn single(doc: &Doc) -> View {
    let look = &doc.content;
    let file = list(look, "files").last().and_then(Value::as_str);
    let title = format!("Slab memory of {}", file_name(file.unwrap_or_default()));
    let notes = list(look, "notes").iter().filter_map(Value::as_str);
    let notes = notes.fold(Section::default(), Section::note);
    let growth = &look["growth"];
    let mut view = View::of(title, std::slice::from_ref(doc)).with(notes);
    if !list(look, WHY.rows).is_empty() {
        view = view.with(Section::new(WHY.title).with(WHY.of(look)));
    }
    view = view.with(divided(look)).with(caches(look));
    if growth.is_object() {
        let is_other = !list(growth, "other_machine").is_empty() || growth["listed_in"].is_string();
        view = view.with(grown(growth, is_other));
        if is_other {
            let table = MOMENTS.table(list(growth, "moments"));
            view = view.with(Section::new("The readings").with(table));
            let machines = list(growth, "machines");
            if !machines.is_empty() {
                let table = MACHINES.table(machines);
                view = view.with(Section::new(MACHINES.title).with(table));
            }
        } else if list(growth, "moments").len() > 2 {
            let changed = list(growth, "caches").iter().take(LINES);
            let changed = changed.map(|cache| (starred(cache), each(cache)));
            view = view.with(over_time(list(growth, "moments"), changed.collect()));
        }
    }
    if let Some(blocks) = spread::section(look) {
        view = view.with(blocks);
    }
    view.with(gives_back(look)).with(what_ifs(look))
}

fn divided(look: &Value) -> Section {
    let all = number(look, "slab_bytes").unwrap_or(0.0);
    let mut table = Table::new((PART.columns)());
    for part in parts("") {
        let cell = part.cell(&look["parts"]);
        let share = cell.value.filter(|_| all > 0.0).map(|bytes| bytes / all);
        let share = share.map(|share| (Share.print(share), share));
        table.row([Cell::text(part.plain()), cell, Cell::maybe(share)]);
    }
    let bar = [json!({"name": "all slabs", "parts": look["parts"]})];
    let chart = Chart::bars_of("Parts of all slabs", "MiB", &bar, starred, &parts("parts."));
    Section::new(PART.title).with(chart).with(table)
}

fn caches(look: &Value) -> Section {
    let caches = list(look, CACHES.rows);
    let largest = &caches[..caches.len().min(CACHES.first)];
    let chart = Chart::bars_of(
        "Largest caches",
        "MiB of slabs",
        largest,
        starred,
        &parts("parts."),
    );
    let note = "The kernel frees objects of those with * when memory is short.";
    let table = CACHES.of(look).noted(note);
    Section::new(CACHES.title).with(chart).with(table)
}

/// Changes from the first snapshot to the last; those between machines are no growth.
fn grown(growth: &Value, is_other: bool) -> Section {
    let caches = list(growth, "caches");
    let changed = &caches[..caches.len().min(GROWTH.first)];
    let causes: Vec<Column> = [
        ("by objects", "objects_bytes"),
        ("by the allocator", "allocator_bytes"),
    ]
    .map(|(name, field)| column(name, field, Bytes))
    .to_vec();
    let chart = Chart::bars_of(
        "Caches that changed most",
        "MiB more",
        changed,
        starred,
        &causes,
    );
    let mut all = growth.clone();
    all["name"] = "all caches".into();
    let mut table = GROWTH.table(std::iter::once(&all).chain(caches));
    if list(growth, "moments").len() < 3 {
        table.columns.pop();
    }
    let caches = counted(caches.len(), "cache");
    let (title, note) = match is_other {
        true => {
            let note =
                format!("{caches} differ: the last snapshot less the first, which is no growth.");
            ("Differences", note)
        }
        false => {
            let note = format!("{caches} changed from the first snapshot to the last.");
            (GROWTH.title, note)
        }
    };
    Section::new(title).with(chart).with(table.noted(note))
}

/// The axis of a series: the time since the first snapshot where it is known, else the number of the snapshot.
fn places(moments: &[Value]) -> (&'static str, Vec<f64>) {
    let times: Option<Vec<f64>> = moments
        .iter()
        .map(|moment| moment["seconds"].as_f64())
        .collect();
    let Some(times) = times.filter(|times| times.is_sorted_by(|a, b| a < b)) else {
        let numbers = (1..=moments.len()).map(|at| at as f64);
        return ("number of the snapshot", numbers.collect());
    };
    let (name, seconds) = match times.last().copied().unwrap_or(0.0) {
        all if all < 180.0 => ("seconds since the first snapshot", 1.0),
        all if all < 3.0 * 3600.0 => ("minutes since the first snapshot", 60.0),
        all if all < 3.0 * 86_400.0 => ("hours since the first snapshot", 3600.0),
        _ => ("days since the first snapshot", 86_400.0),
    };
    (name, times.iter().map(|time| time / seconds).collect())
}

/// Parts of all slabs and the caches that changed most, over time; and a row for each snapshot.
fn over_time(moments: &[Value], caches: Vec<(String, Vec<f64>)>) -> Section {
    let (x, places) = places(moments);
    let line = |name: String, values: Vec<f64>| Line::new(name, places.iter().copied().zip(values));
    let mut all = parts("parts.");
    all.push(column("all slabs", "slab_bytes", Bytes));
    let lines = all.iter().map(|part| {
        let bytes = moments
            .iter()
            .map(|moment| part.value(moment).unwrap_or(0.0) / MIB);
        line(part.plain(), bytes.collect())
    });
    let [across, mib, more] = [x, "MiB", "MiB more"].map(Axis::linear);
    let memory = Chart::lines(
        "Slab memory and its parts",
        across.clone(),
        mib,
        lines.collect(),
    );
    let changes = caches.into_iter().map(|(name, each)| {
        let first = each.first().copied().unwrap_or(0.0);
        line(
            name,
            each.iter().map(|bytes| (bytes - first) / MIB).collect(),
        )
    });
    let title = "Caches that changed most, since the first snapshot";
    let changed = Chart::lines(title, across, more, changes.collect());
    let mut table = MOMENTS
        .table(moments)
        .noted("█ live objects, ░ the rest of the slabs.");
    table.is_series = true;
    Section::new(MOMENTS.title)
        .with(memory)
        .with(changed)
        .with(table)
}

/// Bytes that shrinking and dropping would free, in sentences.
fn gives_back(look: &Value) -> Section {
    let of = |value: &Value, name: &str| bytes(number(value, name).unwrap_or(0.0) as u64);
    let shrink = &look["shrink"];
    // Where both are equal they were read, not estimated.
    let bounds = match [of(shrink, "low_bytes"), of(shrink, "high_bytes")] {
        [low, high] if low == high => String::new(),
        [low, high] => format!(", between {low} and {high}"),
    };
    let shrunk = format!(
        "Shrinking all caches (slabinfo -s) would free {} in whole slabs{bounds}.",
        of(shrink, "bytes")
    );
    let mut section = Section::new("Memory that shrinking and dropping give back");
    let mut ranges = vec![
        json!({"name": "shrinking all caches", "low_bytes": shrink["low_bytes"],
        "bytes": shrink["bytes"], "high_bytes": shrink["high_bytes"]}),
    ];
    let mut cases = Vec::new();
    for case in list(look, "drop") {
        let bytes = &case["bytes"];
        let (name, told) = match number(case, "staying").unwrap_or(0.0) * 100.0 {
            staying if staying > 0.0 => (
                format!("drop_caches, {staying:.0} % of the objects stay"),
                format!(
                    "{} if {staying:.0} % of the objects stay",
                    of(case, "bytes")
                ),
            ),
            _ => (
                "drop_caches, at most".to_string(),
                format!("at most {}", of(case, "bytes")),
            ),
        };
        ranges.push(json!({"name": name, "low_bytes": bytes, "bytes": bytes, "high_bytes": bytes}));
        cases.push(told);
    }
    let paths = ["name", "low_bytes", "bytes", "high_bytes"];
    section = section
        .with(Chart::ranges_of("Memory given back", &ranges, paths, None))
        .text(shrunk);
    match number(look, "reclaimable_bytes") {
        Some(reclaimable) if reclaimable > 0.0 => section.text(format!(
            "Dropping what can be reclaimed (drop_caches) would free {}: each that stays pins its slab.",
            cases.join(", ")
        )),
        _ => section,
    }
}

fn what_ifs(look: &Value) -> Section {
    let section = Section::new(WHAT_IFS.title);
    let mut told = list(look, WHAT_IFS.rows).to_vec();
    if told.is_empty() {
        return section.text("No predictions: the formulas do not explain this kernel.");
    }
    for told in &mut told {
        told["now"] = look["slab_bytes"].clone();
    }
    let now = number(look, "slab_bytes");
    let paths = [
        "change",
        "likely_low_bytes",
        "predicted_bytes",
        "likely_high_bytes",
    ];
    let chart = Chart::ranges_of("Predicted slab memory", &told, paths, now);
    section.with(chart).with(WHAT_IFS.table(&told))
}

/// The view of several looks, in the order of the files. Those without slabs have sections alone.
fn series(all: &[Doc]) -> View {
    type Named<'a> = (&'a Doc, String);
    let named = all.iter().zip(short_names(all));
    let (bare, named): (Vec<Named<'_>>, Vec<Named<'_>>) = named.partition(|(doc, _)| bare::is(doc));
    let (docs, names): (Vec<&Doc>, Vec<String>) = named.into_iter().unzip();
    let moments: Vec<Value> = docs
        .iter()
        .zip(&names)
        .map(|(doc, name)| json!({"file": name, "slab_bytes": doc.content["slab_bytes"], "parts": doc.content["parts"]}))
        .collect();
    let mut by_name: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (place, doc) in docs.iter().enumerate() {
        for cache in list(&doc.content, "caches") {
            let each = by_name
                .entry(starred(cache))
                .or_insert_with(|| vec![0.0; docs.len()]);
            each[place] += number(cache, "slab_bytes").unwrap_or(0.0);
        }
    }
    let grew = |each: &[f64]| each[each.len() - 1] - each[0];
    let mut caches: Vec<(String, Vec<f64>)> = by_name.into_iter().collect();
    caches.sort_by(|(_, a), (_, b)| grew(b).abs().total_cmp(&grew(a).abs()));
    let mut view = View::new(format!("Slab memory: {} snapshots", docs.len()));
    if docs.len() > 1 {
        view.findings.push(between(
            &moments,
            caches.first().map(|(name, each)| (name, grew(each))),
        ));
    }
    for (doc, name) in bare {
        let warning = format!("{name} has bytes alone, no slabs: it is not compared.");
        view.warnings.push(warning);
        view = view.with(Section::new(name).text(doc.finding()));
    }
    let kernel = |doc: &Doc| ["kernel", "cpus", "page_size"].map(|of| at(&doc.content, of).clone());
    if docs.iter().any(|doc| kernel(doc) != kernel(docs[0])) {
        let warning =
            "The files are of different machines or kernels: a change between them is no growth.";
        view.warnings.push(warning.to_string());
    }
    for (doc, name) in docs.iter().zip(&names) {
        if doc.content["is_excerpt"] == true {
            view.warnings.push(format!(
                "{name} lists a part of the caches: one that it lacks counts as 0 there."
            ));
        }
    }
    let columns = (SERIES.columns)()
        .into_iter()
        .chain(names.iter().cloned().map(Column::number));
    let mut table = Table::new(columns).shown(SERIES.first);
    for (name, each) in &caches {
        let change = Cell::number(Change.print(grew(each)), grew(each));
        let cells = each
            .iter()
            .map(|bytes| Cell::number(Bytes.print(*bytes), *bytes));
        table.row([Cell::text(name), change].into_iter().chain(cells));
    }
    let charted = caches.into_iter().take(LINES).collect();
    if docs.len() > 1 {
        view = view
            .with(over_time(&moments, charted))
            .with(Section::new(CACHES.title).with(table));
    }
    for (doc, name) in docs.iter().zip(&names) {
        let section = Section::new(name).text(doc.finding());
        view = view.with(section.with(PARTS.of(&doc.content)));
    }
    view
}

/// The change from the first file to the last, and the cache that changed most.
fn between(moments: &[Value], most: Option<(&String, f64)>) -> String {
    let of =
        |moment: Option<&Value>, path| moment.map_or("", |moment| text(moment, path)).to_string();
    let [first, last] = [moments.first(), moments.last()];
    let [a, b] = [first, last].map(|moment| {
        moment
            .and_then(|of| number(of, "slab_bytes"))
            .unwrap_or(0.0)
    });
    let most = most.map_or_else(String::new, |(name, grew)| {
        format!("; {name} changed most, by {}", Change.print(grew))
    });
    format!(
        "From {} to {} slab memory changed by {}, from {} to {}{most}.",
        of(first, "file"),
        of(last, "file"),
        Change.print(b - a),
        Bytes.print(a),
        Bytes.print(b),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_times_where_all_are_known() {
        let moments = |times: &[f64]| -> Vec<Value> {
            times
                .iter()
                .map(|seconds| json!({"seconds": seconds}))
                .collect()
        };
        let (name, at) = places(&moments(&[0.0, 3600.0, 14_400.0]));
        assert!(name.starts_with("hours"), "{name}");
        assert_eq!(at, [0.0, 1.0, 4.0]);
        for unknown in [vec![json!({}); 3], moments(&[0.0, 9.0, 5.0])] {
            assert_eq!(places(&unknown).1, [1.0, 2.0, 3.0]);
        }
    }
}
