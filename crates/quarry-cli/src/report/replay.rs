//! The page of `quarry replay`, with or without `--time`.

use std::collections::BTreeMap;

use quarry_lab::replay::timed::report::QUANTILES;
use quarry_view::figure::figure;
use quarry_view::{Axis, Cell, Chart, Column, Line, LineKind, Section, Table, View};
use quarry_view::{Doc, short_names};
use quarry_view::{Grid, figure_cell};
use serde_json::Value;

use crate::rows::{Label, Row};
use crate::{replay_pages, replay_tables, replay_time};

/// Caches that are shown at first.
const CACHES: usize = 12;

/// The page of replays of any files.
pub(crate) fn page(documents: &[Doc]) -> View {
    let all = quarry_view::runs(documents);
    let grid = Grid::of(&all);
    let is_timed = documents
        .iter()
        .any(|document| document.command() == "replay --time");
    let mut names: Vec<&str> = documents
        .iter()
        .filter_map(|document| document.content["trace"]["name"].as_str())
        .collect();
    names.dedup();
    let of = names.join(", ");
    let mut page = match is_timed {
        true => View::new(format!("{of}: simulated time")),
        false => View::new(format!("{of}: slab memory")),
    };
    page.findings = View::of("", documents).findings;
    let charts = match is_timed {
        true => latencies(&grid),
        false => memory(&grid),
    };
    for section in [
        charts,
        figures(&grid, is_timed),
        caches(&grid),
        free_memory(&grid),
    ] {
        page = page.with(section);
    }
    for (run, places) in &grid.runs {
        page = page.with(check(run, &grid.whole_label(places)));
    }
    for (document, name) in documents.iter().zip(short_names(documents)) {
        page = page.with(callers(&document.content["callers"], &name));
        page = page.with(super::runs::sensitivity(
            &document.content["sensitivity"],
            &name,
        ));
    }
    page
}

/// A table with a row for each run and a column for each figure.
fn figures(grid: &Grid<'_>, is_timed: bool) -> Section {
    let rows: Vec<&Row> = match is_timed {
        true => replay_time::ROWS.iter().collect(),
        false => replay_tables::ROWS
            .iter()
            .chain(replay_pages::ROWS)
            .collect(),
    };
    let meanings = super::meanings(if is_timed { "replay --time" } else { "replay" });
    let mut parent = "";
    let columns = rows.iter().map(|row| {
        let name = row.label.plain();
        let named = rows.iter().filter(|row| row.label.plain() == name).count();
        if !row.label.name.starts_with(' ') {
            parent = row.label.name;
        }
        // Parts of several rows have one name.
        let name = match (named, parent.split(',').next()) {
            (2.., Some(parent)) => format!("{parent} {name}"),
            _ => name,
        };
        let column = Column::number(name).about(about(&row.label, &meanings));
        if row.first { column } else { column.more() }
    });
    let columns: Vec<Column> = columns.collect();
    let mut table = Table::new(grid.columns().into_iter().chain(columns)).noted(grid.common());
    for (run, places) in &grid.runs {
        let cells = rows.iter().map(|row| match row.number(run) {
            Some(number) => Cell::number(row.cell(run), number),
            None => Cell::text(row.cell(run)),
        });
        table.row(grid.cells(places).into_iter().chain(cells));
    }
    Section::new("Figures").with(table)
}

/// Meaning of the fields that a row shows, and its note.
fn about(label: &Label, meanings: &BTreeMap<String, String>) -> String {
    let fields = label
        .fields()
        .filter_map(|field| meanings.get(&format!("runs.{field}")));
    let texts = fields.map(String::as_str).chain([label.note]);
    texts
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Axes of the machine, which have a chart each: runs differ in their designs there.
fn machines<'a>(grid: &'a Grid<'a>) -> Vec<(String, Vec<(String, &'a Value)>)> {
    let is_machine = |at: &usize| ["page_size", "cpus"].contains(&grid.axes[*at].name.as_str());
    let (machine, others): (Vec<usize>, Vec<usize>) = (0..grid.axes.len()).partition(is_machine);
    let named = grid.runs.iter().map(|(run, places)| {
        let machine = match machine.is_empty() {
            true => String::new(),
            false => grid.label(places, &machine),
        };
        (machine, (grid.label(places, &others), *run))
    });
    quarry_view::grouped(named)
}

/// Slab memory over the recording's time, a chart for each machine.
fn memory(grid: &Grid<'_>) -> Section {
    let samples = |run: &Value| -> Vec<[u64; 3]> {
        let samples = run["memory"]["samples"].as_array().into_iter().flatten();
        let names = ["time_ns", "slab_bytes", "object_bytes"];
        samples
            .map(|at| names.map(|name| at[name].as_u64().unwrap_or(0)))
            .collect()
    };
    let mut section = Section::new("Slab memory over recorded time");
    for (machine, runs) in machines(grid) {
        let line = |name: &str, samples: &[[u64; 3]], which: usize| {
            let points = samples
                .iter()
                .map(|at| (at[0] as f64 / 1e9, at[which] as f64 / MIB));
            Line::new(name, points).kind(LineKind::Steps)
        };
        let mut lines: Vec<Line> = runs
            .iter()
            .map(|(name, run)| line(name, &samples(run), 1))
            .collect();
        // What objects asked for is the load's, so the same in all runs.
        if let Some((_, run)) = runs.first() {
            lines.push(line("asked for", &samples(run), 2));
        }
        if lines.iter().any(|line| !line.points.is_empty()) {
            let title = if machine.is_empty() {
                "Slab memory"
            } else {
                &machine
            };
            let [x, y] = [
                Axis::linear("recorded time, seconds"),
                Axis::linear("slab memory, MiB"),
            ];
            section = section.with(Chart::lines(title, x, y, lines));
        }
    }
    zoomed(section)
}

const MIB: f64 = 1_048_576.0;

/// The section with a note on what a reader can do with its charts.
fn zoomed(section: Section) -> Section {
    match section.parts.is_empty() {
        true => section,
        false => section.note("Drag to move, Ctrl and the wheel to zoom, double-click to go back; a box hides its line."),
    }
}

/// Times of allocations and frees by percentile.
fn latencies(grid: &Grid<'_>) -> Section {
    let mut section = Section::new("Simulated time by percentile");
    for (machine, runs) in machines(grid) {
        for (what, member) in [("allocations", "alloc"), ("frees", "free")] {
            let lines = runs.iter().filter_map(|(name, run)| {
                let times = run[member]["quantiles_ns"].as_array()?.iter();
                let points = QUANTILES.iter().zip(times.filter_map(Value::as_f64));
                Some(Line::new(
                    name,
                    points.map(|(part, ns)| (-(1.0 - part).log10(), ns.max(0.1))),
                ))
            });
            let lines: Vec<Line> = lines.collect();
            if lines.is_empty() {
                continue;
            }
            let title = if machine.is_empty() {
                what.to_string()
            } else {
                format!("{what}, {machine}")
            };
            let x = Axis::percentiles("percentile of the operations");
            section = section.with(Chart::lines(
                &title,
                x,
                Axis::logarithmic("simulated time, ns"),
                lines,
            ));
        }
    }
    zoomed(section)
}

/// Memory of each cache at the end, a column for each run; of one run what its slabs have.
fn caches(grid: &Grid<'_>) -> Section {
    let list = |run: &Value| run["caches"].as_array().cloned().unwrap_or_default();
    let section = Section::new("Caches at the end");
    if let [(run, _)] = grid.runs.as_slice() {
        let caches = list(run);
        if caches.is_empty() {
            return section;
        }
        let meanings = super::meanings("replay");
        let fields: Vec<(Label, &str)> = replay_tables::CACHE_COLUMNS
            .iter()
            .skip(1)
            .filter_map(|label| Some((*label, label.fields().next()?.strip_prefix("caches.")?)))
            .collect();
        let columns = fields.iter().map(|(label, _)| {
            // The numbers have their units here.
            let about = Label::new(label.name, "").note("");
            let field = label.fields().next().unwrap_or_default();
            let meaning = meanings
                .get(&format!("runs.{field}"))
                .cloned()
                .unwrap_or_default();
            Column::number(about.plain()).about(meaning)
        });
        let mut table =
            Table::new(std::iter::once(Column::text("cache")).chain(columns)).shown(CACHES);
        let mut caches = caches;
        let size = |cache: &Value, name: &str| cache[name].as_u64().unwrap_or(0);
        caches.sort_by_key(|cache| {
            std::cmp::Reverse((size(cache, "waste_bytes"), size(cache, "free_bytes")))
        });
        for cache in &caches {
            let name = Cell::text(cache["name"].as_str().unwrap_or_default());
            table.row(
                std::iter::once(name)
                    .chain(fields.iter().map(|(_, field)| figure_cell(cache, field))),
            );
        }
        return section.with(table);
    }
    let of_runs: Vec<BTreeMap<String, f64>> = grid
        .runs
        .iter()
        .map(|(run, _)| by_name(&list(run)))
        .collect();
    let mut names: Vec<&String> = of_runs.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return section;
    }
    let spread = |name: &String| {
        let bytes = || {
            of_runs
                .iter()
                .map(|run| run.get(name).copied().unwrap_or(0.0))
        };
        bytes().fold(0.0, f64::max) - bytes().fold(f64::INFINITY, f64::min)
    };
    names.sort_by(|a, b| spread(b).total_cmp(&spread(a)));
    let columns = grid
        .runs
        .iter()
        .map(|(_, places)| Column::number(grid.whole_label(places)));
    let first = [
        Column::text("cache"),
        Column::number("difference").about("Most bytes in any run less the least."),
    ];
    let mut table = Table::new(first.into_iter().chain(columns))
        .shown(CACHES)
        .noted("Bytes of slabs. The caches that differ most between the runs are first.");
    for name in names {
        let cells = of_runs.iter().map(|run| {
            let bytes = run.get(name).copied();
            Cell::maybe(bytes.map(|bytes| (figure("slab_bytes", bytes), bytes)))
        });
        let spread = spread(name);
        let head = [
            Cell::text(name),
            Cell::number(figure("slab_bytes", spread), spread),
        ];
        table.row(head.into_iter().chain(cells));
    }
    section.with(table)
}

/// Bytes of slabs by the name of the cache. Slabs that caches share (SLOB) are of none.
fn by_name(caches: &[Value]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for cache in caches {
        let number = |name: &str| cache[name].as_f64().unwrap_or(0.0);
        if number("slab_bytes") > 0.0 || number("active_objs") == 0.0 {
            let name = cache["name"].as_str().unwrap_or_default().to_string();
            *sums.entry(name).or_insert(0.0) += number("slab_bytes");
        }
    }
    sums
}

/// Uses of the machine's memory over time, of runs that drive page events.
fn free_memory(grid: &Grid<'_>) -> Section {
    const USES: [(&str, &str); 4] = [
        ("slabs", "slab_bytes"),
        ("page blocks", "block_bytes"),
        ("page blocks from before", "initial_bytes"),
        ("free on per-CPU lists", "pcp_bytes"),
    ];
    let mut section = Section::new("Memory of page events over time").folded();
    for (run, places) in &grid.runs {
        let samples = run["pages"]["fragmentation"]["samples"].as_array();
        let Some(samples) = samples.filter(|samples| samples.len() > 1) else {
            continue;
        };
        let lines = USES.map(|(name, field)| {
            let number = |at: &Value, name: &str| at[name].as_f64().unwrap_or(0.0);
            let points = samples
                .iter()
                .map(|at| (number(at, "time_ns") / 1e9, number(at, field) / MIB));
            Line::new(name, points).kind(LineKind::Steps)
        });
        let [x, y] = [Axis::linear("recorded time, seconds"), Axis::linear("MiB")];
        section = section.with(Chart::lines(
            &grid.whole_label(places),
            x,
            y,
            lines.to_vec(),
        ));
    }
    section
}

/// The caches of a run as predicted and as the kernel reported them.
fn check(run: &Value, name: &str) -> Section {
    let check = &run["check"];
    let section = Section::new(format!("Prediction and report: {name}"));
    let Some(caches) = check["caches"].as_array() else {
        return section;
    };
    let columns = [
        Column::number("before").about("Bytes of slabs before the replayed part."),
        Column::number("predicted").about("Bytes of slabs at the end of the replay."),
        Column::number("observed").about("Bytes of slabs in the kernel's report."),
        Column::number("difference").about("Predicted less observed."),
        Column::number("frees without event")
            .about("Bulk frees have none: the cache may hold more here than in the kernel."),
    ];
    let mut table = Table::new(std::iter::once(Column::text("cache")).chain(columns)).shown(20);
    let all = std::iter::once(check).chain(caches);
    for (at, cache) in all.enumerate() {
        let name = cache["name"]
            .as_str()
            .filter(|_| at > 0)
            .unwrap_or("all caches");
        let number = |name: &str| cache[name].as_f64();
        let difference = number("predicted_bytes").zip(number("observed_bytes"));
        let difference = difference.map(|(predicted, observed)| predicted - observed);
        let signed = |bytes: f64| (crate::units::signed(bytes as i128), bytes);
        table.row([
            Cell::text(name),
            figure_cell(cache, "initial_bytes"),
            figure_cell(cache, "predicted_bytes"),
            figure_cell(cache, "observed_bytes"),
            Cell::maybe(difference.map(signed)),
            figure_cell(cache, "implied_frees"),
        ]);
    }
    section.with(table)
}

/// Callers of the recorded allocations.
fn callers(callers: &Value, file: &str) -> Section {
    const FIELDS: [&str; 5] = [
        "peak_live_bytes",
        "end_live_bytes",
        "allocs",
        "bytes_alloc",
        "waste_bytes",
    ];
    let heading = match file {
        "" => "Recorded allocations by call site".to_string(),
        file => format!("Recorded allocations by call site: {file}"),
    };
    let section = Section::new(heading);
    let Some(callers) = callers.as_array().filter(|callers| !callers.is_empty()) else {
        return section;
    };
    let meanings = super::meanings("callers");
    let columns = FIELDS.map(|field| {
        let about = meanings
            .get(&format!("callers.{field}"))
            .cloned()
            .unwrap_or_default();
        let name = field.trim_end_matches("_bytes").replace('_', " ");
        Column::number(name).about(about)
    });
    let mut table = Table::new(std::iter::once(Column::text("call site")).chain(columns)).shown(20);
    for caller in callers {
        let name = Cell::text(caller["name"].as_str().unwrap_or_default());
        table.row(std::iter::once(name).chain(FIELDS.map(|field| figure_cell(caller, field))));
    }
    section.with(table)
}
