//! The page of `quarry look`: parts, caches, growth, and predictions as ranges.

use quarry_report::{Axis, Bar, Cell, Chart, Column, Line, Page, Range, Section, Table};
use serde_json::Value;

use super::facts::{figure, meanings};
use super::grid::figure_cell;
use super::{Document, runs, short_names};
use crate::input::file_name;
use crate::units::signed;

/// Names of the parts of slab memory, and their fields.
const PARTS: [(&str, &str); 5] = [
    ("live objects", "live_bytes"),
    ("held by CPUs, estimated", "held_bytes"),
    ("partly filled slabs", "partly_filled_bytes"),
    ("debugging", "debugging_bytes"),
    ("padding", "padding_bytes"),
];
/// Caches that a chart has, and that a table shows at first.
const CHARTED: usize = 10;
const GROWN: usize = 6;
const SHOWN: usize = 15;
const MIB: f64 = 1_048_576.0;

/// The page of one look, or of several as a series.
pub(super) fn page(documents: &[Document]) -> Page {
    match documents {
        [one] => single(one),
        several => series(several),
    }
}

fn bytes_of(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or(0.0)
}

fn mib(value: &Value, name: &str) -> f64 {
    bytes_of(value, name) / MIB
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The name of a cache, with a star if the kernel frees its objects when memory is short.
fn starred(cache: &Value) -> String {
    let star = if cache["reclaimable"] == true {
        " *"
    } else {
        ""
    };
    format!("{}{star}", text(cache, "name"))
}

fn single(document: &Document) -> Page {
    let look = &document.content;
    let file = list(look, "files")
        .last()
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut page = Page::new(format!("Slab memory of {}", file_name(file)));
    page = runs::found(page, std::slice::from_ref(document));
    let mut about = Section::default();
    for note in list(look, "notes") {
        about = about.note(note.as_str().unwrap_or_default());
    }
    let mut page = page.with(about);
    let growth = &look["growth"];
    if growth.is_object() {
        page = page.with(grown(growth));
        if list(growth, "moments").len() > 2 {
            page = page.with(moments(growth));
        }
    }
    page.with(parts(look))
        .with(largest(look))
        .with(gives_back(look))
        .with(what_ifs(look))
}

fn parts(look: &Value) -> Section {
    let mut table = Table::new([
        Column::text("part"),
        Column::number("slabs"),
        Column::number("share"),
    ]);
    let all = bytes_of(look, "slab_bytes").max(1.0);
    for (name, field) in PARTS {
        let bytes = bytes_of(&look["parts"], field);
        let share = Cell::number(format!("{:.1} %", bytes * 100.0 / all), bytes);
        table.row([Cell::text(name), figure_cell(&look["parts"], field), share]);
    }
    let bar = Bar {
        name: "all slabs".to_string(),
        values: PARTS.map(|(_, field)| mib(&look["parts"], field)).to_vec(),
    };
    let names = PARTS.map(|(name, _)| name);
    let chart = Chart::bars("Parts of all slabs", Axis::linear("MiB"), &names, &[bar]);
    Section::new("Parts").with(chart).with(table)
}

fn largest(look: &Value) -> Section {
    let caches = list(look, "caches");
    let bars = caches.iter().take(CHARTED).map(|cache| Bar {
        name: starred(cache),
        values: PARTS.map(|(_, field)| mib(&cache["parts"], field)).to_vec(),
    });
    let bars: Vec<Bar> = bars.collect();
    let names = PARTS.map(|(name, _)| name);
    let chart = Chart::bars(
        "Largest caches",
        Axis::linear("MiB of slabs"),
        &names,
        &bars,
    );
    let meanings = meanings("look");
    let number = |name: &str, field: &str| {
        let about = meanings
            .get(&format!("caches.{field}"))
            .cloned()
            .unwrap_or_default();
        Column::number(name).about(about)
    };
    let columns = [
        Column::text("cache"),
        number("slabs", "slab_bytes"),
        number("objects", "objects"),
        number("live", "parts.live_bytes"),
        number("held", "parts.held_bytes"),
        number("free", "parts.partly_filled_bytes"),
        number("padding", "parts.padding_bytes"),
        number("shrinking frees", "shrink.bytes"),
    ];
    let note = format!(
        "{} caches with slabs. The kernel frees objects of those with * when memory is short.",
        look["used_caches"]
    );
    let mut table = Table::new(columns).shown(SHOWN).noted(note);
    for cache in caches {
        let fields = [
            "slab_bytes",
            "objects",
            "parts.live_bytes",
            "parts.held_bytes",
            "parts.partly_filled_bytes",
            "parts.padding_bytes",
            "shrink.bytes",
        ];
        let cells = fields.map(|field| figure_cell(cache, field));
        table.row(std::iter::once(Cell::text(starred(cache))).chain(cells));
    }
    Section::new("Caches").with(chart).with(table)
}

fn signed_cell(bytes: f64) -> Cell {
    Cell::number(signed(bytes as i128), bytes)
}

fn grown(growth: &Value) -> Section {
    let caches = list(growth, "caches");
    let causes = [
        ("by objects", "objects_bytes"),
        ("by the allocator", "allocator_bytes"),
    ];
    let bars = caches.iter().take(CHARTED).map(|cache| Bar {
        name: starred(cache),
        values: causes.map(|(_, field)| mib(cache, field)).to_vec(),
    });
    let bars: Vec<Bar> = bars.collect();
    let chart = Chart::bars(
        "Caches that changed most",
        Axis::linear("MiB more"),
        &causes.map(|(name, _)| name),
        &bars,
    );
    let columns = [
        Column::text("cache"),
        Column::number("grew"),
        Column::number("by objects"),
        Column::number("by allocator"),
        Column::number("objects"),
        Column::number("steps")
            .about("Steps from one snapshot to the next in which the cache grew."),
    ];
    let mut table = Table::new(columns)
        .shown(SHOWN)
        .noted("From the first snapshot to the last.");
    for cache in caches {
        let each: Vec<f64> = list(cache, "each_bytes")
            .iter()
            .filter_map(Value::as_f64)
            .collect();
        let grew = each.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let steps = each.len().saturating_sub(1);
        table.row([
            Cell::text(starred(cache)),
            signed_cell(bytes_of(cache, "slab_bytes")),
            signed_cell(bytes_of(cache, "objects_bytes")),
            signed_cell(bytes_of(cache, "allocator_bytes")),
            figure_cell(cache, "objects"),
            Cell::number(format!("{grew} of {steps}"), grew as f64),
        ]);
    }
    Section::new("Growth").with(chart).with(table)
}

/// Charts and a table of a series.
fn moments(growth: &Value) -> Section {
    let moments = list(growth, "moments");
    let times = moments
        .iter()
        .map(|moment| moment["seconds"].as_f64())
        .collect();
    let (title, places) = places(times, moments.len());
    let names: Vec<String> = moments
        .iter()
        .map(|moment| file_name(text(moment, "file")).to_string())
        .collect();
    let caches = list(growth, "caches").iter().take(GROWN).map(|cache| {
        let each: Vec<f64> = list(cache, "each_bytes")
            .iter()
            .filter_map(Value::as_f64)
            .collect();
        (starred(cache), each)
    });
    over_time(
        Section::new("The series"),
        title,
        &places,
        &names,
        moments,
        caches.collect(),
    )
}

/// The axis of a series: the time since the first snapshot where it is known, else the number of the snapshot.
fn places(times: Option<Vec<f64>>, count: usize) -> (&'static str, Vec<f64>) {
    match times.filter(|times| times.is_sorted_by(|a, b| a < b)) {
        Some(times) => {
            let (name, seconds) = match times.last().copied().unwrap_or(0.0) {
                all if all < 180.0 => ("seconds since the first snapshot", 1.0),
                all if all < 3.0 * 3600.0 => ("minutes since the first snapshot", 60.0),
                all if all < 3.0 * 86_400.0 => ("hours since the first snapshot", 3600.0),
                _ => ("days since the first snapshot", 86_400.0),
            };
            (name, times.iter().map(|time| time / seconds).collect())
        }
        None => (
            "number of the snapshot",
            (1..=count).map(|at| at as f64).collect(),
        ),
    }
}

/// Parts of all slabs and the caches that changed most, over time; and a row for each snapshot.
fn over_time(
    section: Section,
    x: &str,
    places: &[f64],
    names: &[String],
    moments: &[Value],
    caches: Vec<(String, Vec<f64>)>,
) -> Section {
    let line = |name: &str, values: &mut dyn Iterator<Item = f64>| {
        Line::new(name, places.iter().copied().zip(values))
    };
    let mut lines: Vec<Line> = PARTS
        .iter()
        .map(|(name, field)| {
            line(
                name,
                &mut moments.iter().map(|moment| mib(&moment["parts"], field)),
            )
        })
        .collect();
    lines.push(line(
        "all slabs",
        &mut moments.iter().map(|moment| mib(moment, "slab_bytes")),
    ));
    let memory = Chart::lines(
        "Slab memory and its parts",
        Axis::linear(x),
        Axis::linear("MiB"),
        &lines,
    );
    let changes: Vec<Line> = caches
        .iter()
        .map(|(name, each)| {
            let first = each.first().copied().unwrap_or(0.0);
            line(name, &mut each.iter().map(|bytes| (bytes - first) / MIB))
        })
        .collect();
    let title = "Caches that changed most, since the first snapshot";
    let caches = Chart::lines(title, Axis::linear(x), Axis::linear("MiB more"), &changes);
    let mut table = Table::new([
        Column::text("snapshot"),
        Column::number(x),
        Column::number("slabs"),
        Column::number("live objects"),
        Column::number("held by CPUs"),
        Column::number("partly filled"),
    ])
    .shown(SHOWN);
    for ((moment, name), place) in moments.iter().zip(names).zip(places) {
        let fields = [
            "slab_bytes",
            "parts.live_bytes",
            "parts.held_bytes",
            "parts.partly_filled_bytes",
        ];
        let head = [
            Cell::text(name),
            Cell::number(crate::reproduce_tables::number(*place), *place),
        ];
        table.row(
            head.into_iter()
                .chain(fields.map(|field| figure_cell(moment, field))),
        );
    }
    section.with(memory).with(caches).with(table)
}

fn range(name: &str, low: f64, middle: f64, high: f64) -> Range {
    Range {
        name: name.to_string(),
        low: low / MIB,
        middle: middle / MIB,
        high: high / MIB,
    }
}

fn gives_back(look: &Value) -> Section {
    let shrink = &look["shrink"];
    let mut table = Table::new([
        Column::text("by"),
        Column::number("gives back"),
        Column::number("low"),
        Column::number("high"),
    ]);
    let [low, middle, high] =
        ["low_bytes", "bytes", "high_bytes"].map(|field| bytes_of(shrink, field));
    let mut ranges = vec![range("shrinking all caches", low, middle, high)];
    table.row([
        Cell::text("shrinking all caches"),
        figure_cell(shrink, "bytes"),
        figure_cell(shrink, "low_bytes"),
        figure_cell(shrink, "high_bytes"),
    ]);
    for case in list(look, "drop") {
        let name = match bytes_of(case, "staying") {
            staying if staying > 0.0 => {
                format!("drop_caches, {:.0} % of the objects stay", staying * 100.0)
            }
            _ => "drop_caches, at most".to_string(),
        };
        let bytes = bytes_of(case, "bytes");
        ranges.push(range(&name, bytes, bytes, bytes));
        table.row([
            Cell::text(name),
            figure_cell(case, "bytes"),
            Cell::maybe(None),
            Cell::maybe(None),
        ]);
    }
    let chart = Chart::ranges("Memory given back", Axis::linear("MiB"), &ranges, None);
    Section::new("Memory that shrinking and dropping give back")
        .with(chart)
        .with(table)
}

fn what_ifs(look: &Value) -> Section {
    let section = Section::new("Other kernels and settings");
    let told = list(look, "what_ifs");
    if told.is_empty() {
        return section.text("No predictions: the formulas do not explain this kernel.");
    }
    let now = bytes_of(look, "slab_bytes");
    let mut table = Table::new([
        Column::text("with"),
        Column::number("predicted"),
        Column::number("change"),
        Column::number("low"),
        Column::number("high"),
    ]);
    let mut ranges = Vec::new();
    for told in told {
        let [low, middle, high] =
            ["low_bytes", "predicted_bytes", "high_bytes"].map(|field| bytes_of(told, field));
        ranges.push(range(text(told, "change"), low, middle, high));
        let change = match [low, middle, high] == [now; 3] {
            true => Cell::number("none", 0.0),
            false => signed_cell(middle - now),
        };
        table.row([
            Cell::text(text(told, "change")),
            figure_cell(told, "predicted_bytes"),
            change,
            figure_cell(told, "low_bytes"),
            figure_cell(told, "high_bytes"),
        ]);
    }
    let chart = Chart::ranges(
        "Predicted slab memory",
        Axis::linear("MiB"),
        &ranges,
        Some(("now", now / MIB)),
    )
    .noted("The dashed line is the slab memory now, the thick mark the prediction.");
    section.with(chart).with(table)
}

/// The page of several looks, in the order of the files.
fn series(documents: &[Document]) -> Page {
    let names = short_names(documents);
    let looks: Vec<Value> = documents
        .iter()
        .map(|document| document.content.clone())
        .collect();
    let (first, last) = (&looks[0], &looks[looks.len() - 1]);
    let change = bytes_of(last, "slab_bytes") - bytes_of(first, "slab_bytes");
    let mut page = Page::new(format!("Slab memory: {} snapshots", documents.len()));
    let mut caches: Vec<(String, Vec<f64>)> = Vec::new();
    for (at, look) in looks.iter().enumerate() {
        for cache in list(look, "caches") {
            let name = starred(cache);
            let known = caches.iter().position(|(known, _)| *known == name);
            let known = known.unwrap_or_else(|| {
                caches.push((name, vec![0.0; looks.len()]));
                caches.len() - 1
            });
            caches[known].1[at] += bytes_of(cache, "slab_bytes");
        }
    }
    let grew = |each: &[f64]| each[each.len() - 1] - each[0];
    caches.sort_by(|(_, a), (_, b)| grew(b).abs().total_cmp(&grew(a).abs()));
    let most = caches.first().map_or_else(String::new, |(name, each)| {
        format!("; {name} changed most, by {}", signed(grew(each) as i128))
    });
    page.findings.push(format!(
        "From {} to {} slab memory changed by {}, from {} to {}{most}.",
        names[0],
        names[names.len() - 1],
        signed(change as i128),
        figure("bytes", bytes_of(first, "slab_bytes")),
        figure("bytes", bytes_of(last, "slab_bytes")),
    ));
    let of_kernel = |look: &Value| {
        [
            look["kernel"].clone(),
            look["cpus"].clone(),
            look["page_size"].clone(),
        ]
    };
    if looks.iter().any(|look| of_kernel(look) != of_kernel(first)) {
        let warning =
            "The files are of different machines or kernels: a change between them is no growth.";
        page.warnings.push(warning.to_string());
    }
    let (x, places) = places(None, looks.len());
    let charted = caches.iter().take(GROWN).cloned().collect();
    let section = over_time(
        Section::new("The series"),
        x,
        &places,
        &names,
        &looks,
        charted,
    );
    let columns = names.iter().map(Column::number);
    let head = [Column::text("cache"), Column::number("change")];
    let mut table = Table::new(head.into_iter().chain(columns)).shown(SHOWN);
    for (name, each) in &caches {
        let cells = each
            .iter()
            .map(|bytes| Cell::number(figure("bytes", *bytes), *bytes));
        let head = [Cell::text(name), signed_cell(grew(each))];
        table.row(head.into_iter().chain(cells));
    }
    let mut page = page.with(section).with(Section::new("Caches").with(table));
    for (document, name) in documents.iter().zip(&names) {
        let finding = document.finding().unwrap_or_default();
        page = page.with(
            Section::new(name)
                .text(finding)
                .with(parts_table(&document.content)),
        );
    }
    page
}

/// The parts of one look of a series.
fn parts_table(look: &Value) -> Table {
    let mut table = Table::new(PARTS.map(|(name, _)| Column::number(name)));
    table.row(PARTS.map(|(_, field)| figure_cell(&look["parts"], field)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_times_where_all_are_known() {
        let (name, at) = places(Some(vec![0.0, 3600.0, 14_400.0]), 3);
        assert!(name.starts_with("hours"), "{name}");
        assert_eq!(at, [0.0, 1.0, 4.0]);
        for unknown in [None, Some(vec![0.0, 9.0, 5.0])] {
            assert_eq!(places(unknown, 3).1, [1.0, 2.0, 3.0]);
        }
    }
}
