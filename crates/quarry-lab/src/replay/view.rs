//! Replays as people read them: figures of the runs side by side, memory over time, caches, and the kernel's own reports.

use std::collections::{BTreeMap, BTreeSet};

use quarry_designs::DesignEntry;
use quarry_view::Form::{Bytes, Count, Ms, Of, Orders, Rate, Share, Text};
use quarry_view::units::count;
use quarry_view::value::{list, merged, number, text};
use quarry_view::{
    Axis, Cell, Chart, Column, Doc, Grid, Line, LineKind, Part, Section, Spec, Table,
};
use quarry_view::{View, column, grouped, headed, runs, short_names};
use serde_json::Value;

use super::check_view::{CHECK, check};
use super::placed;
use crate::callers::{self, By};

const MIB: f64 = 1_048_576.0;
/// The largest order that allocations count on (`PAGE_ALLOC_COSTLY_ORDER`), and by default that of slabs.
const COSTLY_ORDER: usize = 3;
/// A huge page of x86-64, and of ppc64 with radix page tables.
const HUGE_PAGE_BYTES: f64 = 2.0 * MIB;

/// Tables of replays.
pub const TABLES: [Spec; 5] = [RUNS, CACHES, COMPARED, CHECK, FREE];

const RUNS: Spec = Spec {
    title: "Figures",
    rows: "runs",
    first: 0,
    columns: || {
        let mut columns = vec![
            column("slab memory, peak", "peak_slab_bytes", Bytes),
            column("  asked for, peak", "object_bytes", Of("peak_slab_bytes")).about(OF_SLABS),
            column("  peak at event", "peak_event", Count).more(),
            column("slab memory, end", "final_slab_bytes", Bytes),
            column(
                "  asked for, end",
                "final_object_bytes",
                Of("final_slab_bytes"),
            )
            .about(OF_SLABS),
            column("  free in slabs", "caches.free_bytes", Bytes)
                .about("Sum over all caches, and SLOB's free blocks in pages that caches share.")
                .computed(free_in),
            column("  waste", "caches.waste_bytes", Bytes).about("Sum over all caches."),
            column("large kmallocs, peak", "large_bytes_peak", Bytes).more(),
            column("slabs", "slabs", Count).more(),
            column("  by order", "slabs_by_order", Orders).more(),
            column("  partial", "partial_slabs", Count).more(),
            column("  one object", "one_object_slabs", Count).more(),
            column(
                "alloc fast path",
                "alloc_fastpath",
                Of("alloc_fastpath alloc_slowpath"),
            )
            .about("The row has them as a part of all allocations."),
            column(
                "free fast path",
                "free_fastpath",
                Of("free_fastpath free_slowpath"),
            )
            .about("The row has them as a part of all frees."),
            column("slow paths", "alloc_slowpath free_slowpath", Count).about("Sum of both."),
            column("  of allocations", "alloc_slowpath", Count).more(),
            column("  of frees", "free_slowpath", Count).more(),
            column("cross-CPU frees", "cross_cpu_frees", Count),
            column("zone locks", "locks.zone", Count)
                .about("Locks of zones, taken for slabs, page events and periodic work."),
            column("node list locks", "locks.node_list", Count)
                .about("Locks of nodes' slab lists.")
                .more(),
            column("slab pages: calls", "page_allocs", Count).more(),
            column("  given back", "page_frees", Count).more(),
            column("own structures", "overhead_bytes", Bytes).more(),
        ];
        columns.extend(pages());
        columns.push(column("events/s", "events_per_second", Rate).more());
        columns
    },
};

/// Note of rows that are a part of the slab memory.
const OF_SLABS: &str = "The row has them as a part of the slab memory.";

/// Columns of runs that drive page events.
fn pages() -> Vec<Column> {
    let mut columns = vec![
        column("page event allocs", "pages.allocs", Count).more(),
        column("  by order", "pages.allocs_by_order", Orders).more(),
        column(
            "  from per-CPU lists",
            "pages.alloc_pcp",
            Of("pages.allocs"),
        )
        .about("The row has them as a part of the allocations.")
        .more(),
        column("  refills", "pages.refills", Count).more(),
        column("  too large", "pages.too_large", Count)
            .more()
            .rare(),
        column("  no memory", "pages.no_memory", Count).rare(),
        column("page event frees", "pages.frees", Count).more(),
        column("  of blocks from before", "pages.initial_frees", Count).more(),
        column("  to per-CPU lists", "pages.free_pcp", Of("pages.frees"))
            .about("The row has them as a part of the frees.")
            .more(),
        column("  drains", "pages.drains", Count).more(),
        column("  on another CPU", "pages.cross_cpu_frees", Count).more(),
        column("peak page blocks", "pages.peak_bytes", Bytes).more(),
        column("  as recorded", "pages.peak_recorded_bytes", Bytes).more(),
        column("zone locks: page events", "pages.zone_locks", Count).more(),
        column("zone locks: slabs", "pages.slab_zone_locks", Count).more(),
        column("zone locks: periodic", "pages.periodic_zone_locks", Count)
            .more()
            .rare(),
        column(
            "on per-CPU lists at first",
            "pages.initial_pcp_pages",
            Count,
        )
        .more()
        .rare(),
    ];
    columns.extend(placed::columns());
    for zone in ["Normal", "DMA32", "DMA"] {
        let of = |name: String, member: &str| {
            column(name, "", Count)
                .of(format!("zones.={zone}.{member}"))
                .more()
                .rare()
        };
        columns.extend([
            of(format!("blocks from {zone}"), "allocs"),
            of("  refilled".to_string(), "refilled"),
            of("  drained".to_string(), "drained"),
            of("  free pages at the end".to_string(), "free_pages"),
        ]);
    }
    columns.extend([
        column("free below 2 MiB", "", Bytes)
            .about("Bytes of free memory at the end in blocks smaller than a huge page of 2 MiB.")
            .computed(|run| below(run, list(run, SAMPLES).last()?, huge_order(run)?))
            .more(),
        column("  peak", "", Bytes)
            .about("Most bytes of such memory in any sample of free memory over time.")
            .computed(|run| {
                let order = huge_order(run)?;
                let all = list(run, SAMPLES)
                    .iter()
                    .filter_map(|sample| below(run, sample, order));
                all.reduce(f64::max)
            })
            .more(),
    ]);
    columns
}

const CACHES: Spec = Spec {
    title: "Caches at the end",
    rows: "runs.caches",
    first: 15,
    columns: || {
        vec![
            column("name", "name aliases", Text).worded(merged),
            column("memory", "slab_bytes", Bytes),
            column("waste", "waste_bytes", Bytes),
            column("free", "free_bytes", Bytes),
            column("num\nslabs", "slabs", Count),
            column("active\nobjs", "active_objs", Count),
            column("num\nobjs", "num_objs", Count),
            column("obj\nsize", "slab_size", Count),
            column("objs per\nslab", "objs_per_slab", Count),
        ]
    },
};

/// Caches of several runs; a column for each run follows.
const COMPARED: Spec = Spec {
    title: "Caches of several runs",
    rows: "runs.caches",
    first: 15,
    columns: || {
        vec![
            column("cache", "name aliases", Text).worded(merged),
            column("spread", "slab_bytes", Bytes).about("Most bytes in any run less the least."),
        ]
    },
};

/// Path of the samples of free memory in a run.
const SAMPLES: &str = "pages.fragmentation.samples";

const FREE: Spec = Spec {
    title: "Free memory over time",
    rows: "runs.pages.fragmentation.samples",
    first: 0,
    columns: || {
        vec![
            column("event", "event", Count),
            column("time, ms", "time_ns", Ms),
            column("slabs", "slab_bytes", Bytes),
            column("page blocks", "block_bytes", Bytes),
            column("  from before", "initial_bytes", Bytes),
            column("free on per-CPU lists", "pcp_bytes", Bytes),
            column("free in the zone", "free_bytes", Bytes),
            column("  below order 3", "unusable_index", Bytes)
                .about("The row has the bytes, the one below it this index.")
                .computed(|sample| below(sample, sample, COSTLY_ORDER)),
            column("    of it", "unusable_index", Share)
                .computed(|sample| unusable(sample, COSTLY_ORDER)),
            column("  below 2 MiB", "unusable_index", Bytes)
                .about("The row has the bytes, the one below it this index.")
                .computed(|sample| below(sample, sample, huge_order(sample)?)),
            column("    of it", "unusable_index", Share)
                .computed(|sample| unusable(sample, huge_order(sample)?)),
            column("free blocks, by order", "free_blocks", Orders),
        ]
    },
};

/// The column that shows a member of runs first.
#[must_use]
pub fn label_of(field: &str) -> Option<String> {
    let columns = (RUNS.columns)().into_iter();
    let mut columns = columns
        .map(|column| ("", column))
        .chain((CACHES.columns)().into_iter().map(|of| ("caches", of)));
    let found =
        columns.find(|(of, column)| column.paths(of).next().is_some_and(|path| path == field));
    found.map(|(_, column)| column.plain())
}

/// Bytes of free objects in slabs at the end. Pages that caches share (SLOB) are of no cache: what no object has of them is
/// free.
pub(super) fn free_in(run: &Value) -> Option<f64> {
    let design = DesignEntry::find(run["design"].as_str()?);
    let slab_bytes = number(run, "final_slab_bytes")?;
    let free = match design.is_some_and(|design| design.features.shared_slabs) {
        true => {
            slab_bytes - number(run, "final_object_bytes")? - number(run, "caches.waste_bytes")?
        }
        false => {
            let of_caches = number(run, "caches.slab_bytes")?;
            number(run, "caches.free_bytes")? + (slab_bytes - of_caches).max(0.0)
        }
    };
    Some(free.max(0.0))
}

/// The order of a huge page with the pages of a run.
fn huge_order(run: &Value) -> Option<usize> {
    let pages = HUGE_PAGE_BYTES / number(run, "page_size")?.max(1.0);
    Some(pages.log2().max(0.0) as usize)
}

/// Bytes of free memory of a sample in blocks below an order, with the pages of a run.
fn below(run: &Value, sample: &Value, order: usize) -> Option<f64> {
    let blocks = list(sample, "free_blocks").iter().take(order).enumerate();
    let pages = blocks.map(|(order, blocks)| (blocks.as_u64().unwrap_or(0) << order) as f64);
    Some(pages.sum::<f64>() * number(run, "page_size")?)
}

fn unusable(sample: &Value, order: usize) -> Option<f64> {
    list(sample, "unusable_index").get(order)?.as_f64()
}

/// The view of replays of any outputs.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let all = runs(docs);
    let grid = Grid::of(&all);
    let [growth, all] = memory(&grid);
    let mut view = titled(docs, "slab memory").with(growth).with(all);
    view = view.with(Section::new(RUNS.title).with(grid.table(&RUNS)));
    for (run, places) in &grid.runs {
        let name = match grid.runs.len() {
            1 => String::new(),
            _ => grid.whole_label(places),
        };
        view = view.with(check(run, &name)).with(free_memory(run, &name));
    }
    for (doc, name) in docs.iter().zip(short_names(docs)) {
        let callers = list(&doc.content, "callers");
        if !callers.is_empty() {
            let heading = headed("Recorded allocations by call site", &name);
            view = view.with(Section::new(heading).with(callers::table(callers, By::Site)));
        }
    }
    view.with(caches(&grid))
}

/// The view with the names of the recordings.
pub(super) fn titled(docs: &[Doc], what: &str) -> View {
    let names = docs.iter().map(|doc| text(&doc.content, "trace.name"));
    let mut names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    names.dedup();
    View::of(format!("{}: {what}", names.join(", ")), docs)
}

/// Runs by page size and CPUs, which have a chart each: runs differ in their designs there.
pub(super) fn machines<'a>(grid: &'a Grid<'a>) -> Vec<(String, Vec<(String, &'a Value)>)> {
    let is_machine = |at: &usize| ["page_size", "cpus"].contains(&grid.axes[*at].name.as_str());
    let (machine, others): (Vec<usize>, Vec<usize>) = (0..grid.axes.len()).partition(is_machine);
    let named = grid.runs.iter().map(|(run, places)| {
        let machine = match machine.is_empty() {
            true => String::new(),
            false => grid.label(places, &machine),
        };
        (machine, (grid.label(places, &others), *run))
    });
    grouped(named)
}

/// A line of bytes over recorded time.
fn over_time(name: &str, samples: &[Value], field: &str) -> Line {
    let points = samples.iter().map(|at| {
        let number = |of: &str| number(at, of).unwrap_or(0.0);
        (number("time_ns") / 1e9, number(field) / MIB)
    });
    Line::new(name, points).kind(LineKind::Steps)
}

/// The line less its first value.
fn grown(mut line: Line) -> Line {
    let first = line.points.first().map_or(0.0, |(_, value)| *value);
    line.points
        .iter_mut()
        .for_each(|(_, value)| *value -= first);
    line
}

/// True if the lines begin so high that what is held from before hides how they change.
fn begin_full(lines: &[Line]) -> bool {
    let held = |line: &Line| {
        let values = || line.points.iter().map(|(_, value)| *value);
        let first = values().next().unwrap_or(0.0);
        first > values().fold(0.0, f64::max) / 2.0
    };
    lines.iter().any(|line| !line.points.is_empty()) && lines.iter().all(held)
}

/// Slab memory over the recording's time, a chart for each machine. Where a recording begins on a full machine it is the growth,
/// and a folded section has all of it.
fn memory(grid: &Grid<'_>) -> [Section; 2] {
    let mut section = Section::new("Slab memory over recorded time");
    let mut all = Section::new("All slab memory over recorded time").folded();
    for (machine, runs) in machines(grid) {
        let samples = |run: &'_ Value| list(run, "memory.samples").to_vec();
        let lines = runs
            .iter()
            .map(|(name, run)| over_time(name, &samples(run), "slab_bytes"));
        let lines: Vec<Line> = lines.collect();
        // What objects asked for is the load's, so the same in all runs.
        let asked = runs
            .first()
            .map(|(_, run)| over_time("asked for", &samples(run), "object_bytes"));
        let chart = |what: &str, y: &str, lines: Vec<Line>| {
            let title = if machine.is_empty() { what } else { &machine };
            let [x, y] = ["recorded time, seconds", y].map(Axis::linear);
            Chart::lines(title, x, y, lines)
        };
        let is_growth = begin_full(&lines);
        let lines: Vec<Line> = lines.into_iter().chain(asked).collect();
        if lines.iter().all(|line| line.points.is_empty()) {
            continue;
        }
        let whole = chart("Slab memory", "slab memory, MiB", lines.clone());
        if !is_growth {
            section = section.with(whole);
            continue;
        }
        let held = lines.iter().filter_map(|line| {
            let (_, first) = line.points.first()?;
            Some(format!("{} {first:.1} MiB", line.name))
        });
        let held: Vec<String> = held.collect();
        let note = format!("Held at the beginning, and left out: {}.", held.join(", "));
        let lines = lines.into_iter().map(grown).collect();
        section = section.with(
            chart(
                "Growth of slab memory",
                "more than at the beginning, MiB",
                lines,
            )
            .noted(note),
        );
        all = all.with(whole);
    }
    [zoomed(section), zoomed(all)]
}

/// The section with a note on what a reader can do with its charts.
pub(super) fn zoomed(mut section: Section) -> Section {
    let note = "Drag to move, Ctrl and the wheel to zoom on both axes, double-click to go back; a box hides its line.";
    let charts = section.parts.iter_mut().filter_map(|part| match part {
        Part::Chart(chart) => Some(chart),
        _ => None,
    });
    if let Some(chart) = charts.last() {
        chart.note = format!("{} {note}", chart.note).trim().to_string();
    }
    section
}

/// Memory of each cache at the end, a column for each run; of one run what its slabs have.
fn caches(grid: &Grid<'_>) -> Section {
    let [(run, _)] = grid.runs.as_slice() else {
        let note = "Bytes of slabs. The caches that differ most between the runs are first.";
        return of_caches(CACHES.title, compared(grid, &COMPARED, of_slabs), note);
    };
    let mut caches: Vec<&Value> = list(run, "caches").iter().collect();
    let size = |cache: &Value, name: &str| number(cache, name).unwrap_or(0.0);
    caches.sort_by(|a, b| {
        let by = |of| size(b, of).total_cmp(&size(a, of));
        by("waste_bytes").then(by("free_bytes"))
    });
    let note = "Those that waste most are first.";
    of_caches(CACHES.title, CACHES.table(caches), note)
}

/// A section of caches; it has no table without them.
pub(super) fn of_caches(title: &str, table: Table, note: &str) -> Section {
    let section = Section::new(title).id("caches");
    match table.rows.is_empty() {
        true => section,
        false => section.with(table.noted(note)),
    }
}

/// A row for each cache, a column for each run with the sum of `value` over the caches of a name; those that differ most are
/// first. A cache without a value is not there.
pub(super) fn compared(
    grid: &Grid<'_>,
    spec: &Spec,
    value: impl Fn(&Value) -> Option<f64>,
) -> Table {
    let by_name = |run| {
        let mut sums = BTreeMap::new();
        for cache in list(run, "caches") {
            if let Some(value) = value(cache) {
                *sums.entry(text(cache, "name")).or_insert(0.0) += value;
            }
        }
        sums
    };
    let of_runs: Vec<BTreeMap<&str, f64>> =
        grid.runs.iter().map(|(run, _)| by_name(*run)).collect();
    let caches = grid.runs.iter().flat_map(|(run, _)| list(run, "caches"));
    let labels_of: BTreeMap<&str, String> = caches
        .map(|cache| (text(cache, "name"), merged(cache)))
        .collect();
    let names: BTreeSet<&str> = of_runs.iter().flat_map(BTreeMap::keys).copied().collect();
    let spread = |name: &str| {
        let values = || {
            let runs = of_runs.iter();
            runs.map(|run| run.get(name).copied().unwrap_or(0.0))
        };
        values().fold(0.0, f64::max) - values().fold(f64::INFINITY, f64::min)
    };
    let mut names: Vec<(f64, &str)> = names.into_iter().map(|name| (spread(name), name)).collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    let own = (spec.columns)();
    let form = own.last().map_or(Text, |difference| difference.form);
    let labels = grid.runs.iter();
    let labels = labels.map(|(_, places)| Column::number(grid.whole_label(places)));
    let mut table = Table::new(own.into_iter().chain(labels)).shown(spec.first);
    table.of = spec.rows;
    let cell = |value: f64| Cell::number(form.print(value), value);
    for (spread, name) in names {
        let values = of_runs.iter().map(|run| run.get(name).copied());
        let cells = values.map(|value| value.map_or_else(|| Cell::maybe(None), cell));
        let label = Cell::text(labels_of.get(name).map_or(name, String::as_str));
        table.row([label, cell(spread)].into_iter().chain(cells));
    }
    table
}

/// Bytes of a cache's slabs. Slabs that caches share (SLOB) are of none.
fn of_slabs(cache: &Value) -> Option<f64> {
    let number = |name: &str| number(cache, name).unwrap_or(0.0);
    (number("slab_bytes") > 0.0 || number("active_objs") == 0.0).then(|| number("slab_bytes"))
}

/// Uses of the machine's memory over time, of a run that drives page events; and the moments that tell most.
fn free_memory(run: &Value, name: &str) -> Section {
    const USES: [(&str, &str); 4] = [
        ("slabs", "slab_bytes"),
        ("page blocks", "block_bytes"),
        ("page blocks from before", "initial_bytes"),
        ("free on per-CPU lists", "pcp_bytes"),
    ];
    let mut samples = list(run, SAMPLES).to_vec();
    let section = Section::new(headed(FREE.title, name))
        .id("fragmentation")
        .folded();
    if samples.len() < 2 {
        return section;
    }
    for sample in &mut samples {
        sample["page_size"] = run["page_size"].clone();
    }
    let lines = USES.map(|(name, field)| over_time(name, &samples, field));
    let [x, y] = ["recorded time, seconds", "MiB"].map(Axis::linear);
    let chart = Chart::lines("Memory of page events", x, y, lines.to_vec());
    let moments = moments(&samples, huge_order(run).unwrap_or(0)).into_iter();
    let moments = moments.map(|(name, sample)| (vec![Cell::text(name)], sample));
    let table = FREE.led(vec![Column::text("moment")], moments).turned(1);
    let interval = number(run, "pages.fragmentation.interval").unwrap_or(0.0);
    let note = format!(
        "{} samples, one every {} events.",
        samples.len(),
        count(interval as u64)
    );
    section.with(chart).with(table.noted(note))
}

/// The samples that people look at.
fn moments(samples: &[Value], huge_order: usize) -> Vec<(&'static str, &Value)> {
    let first_max = |key: &dyn Fn(&Value) -> f64| {
        let better = |best: &'_ Value, sample: &'_ Value| key(sample) > key(best);
        samples
            .iter()
            .reduce(|best, sample| if better(best, sample) { sample } else { best })
    };
    let used = first_max(&|sample| {
        let uses = ["slab_bytes", "block_bytes", "initial_bytes"];
        uses.iter().filter_map(|of| number(sample, of)).sum()
    });
    let unusable = first_max(&|sample| unusable(sample, huge_order).unwrap_or(0.0));
    let named = [
        ("start", samples.first()),
        ("most in use", used),
        ("most unusable", unusable),
        ("end", samples.last()),
    ];
    named
        .into_iter()
        .filter_map(|(name, sample)| Some((name, sample?)))
        .collect()
}
