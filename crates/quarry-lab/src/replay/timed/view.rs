//! Replays in simulated time as people read them: what operations cost, and why.

use quarry_view::Form::{Bytes, Count, Ms, Ns, Of, Rate, Share, Text};
use quarry_view::value::{list, merged, number};
use quarry_view::{Axis, Chart, Doc, Grid, Line, Section, Spec, View, column, grouped, runs};
use serde_json::Value;

use quarry_trace::TraceMeta;

use super::report::{QUANTILES, TimedReport};
use crate::experiments::study;
use crate::replay::finding::unranked;
use crate::replay::placed;
use crate::replay::view::{compared, machines, of_caches, titled, zoomed};

/// Runs whose times differ by less count as equal.
const EQUAL: f64 = 1.02;

/// Tables of replays in simulated time.
pub const TABLES: [Spec; 3] = [RUNS, CACHES, COMPARED];

const CACHES: Spec = Spec {
    title: "Caches",
    rows: "runs.caches",
    first: 15,
    columns: || {
        vec![
            column("name", "name aliases", Text).worded(merged),
            column("operations", "operations", Count),
            column("operation,\nns", "operation_ns", Ns),
            column("lock wait,\nns", "lock_wait_ns", Ns),
            column("misses", "misses", Share),
            column("memory", "slab_bytes", Bytes),
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
            column("difference", "operations operation_ns", Ms).about(
                "Milliseconds in all of its operations: the most in any run less the least.",
            ),
        ]
    },
};

const RUNS: Spec = Spec {
    title: "Nanoseconds an operation",
    rows: "runs",
    first: 0,
    columns: || {
        let mut columns = vec![
            column("alloc, ns", "alloc.mean_ns", Ns),
            column("  p50", "alloc.p50_ns", Ns),
            column("  p99", "alloc.p99_ns", Ns),
            column("  p99.9", "alloc.p999_ns", Ns),
            column("  longest", "alloc.max_ns", Ns).more(),
            column("free, ns", "free.mean_ns", Ns),
            column("  p50", "free.p50_ns", Ns),
            column("  p99", "free.p99_ns", Ns),
            column("  p99.9", "free.p999_ns", Ns),
            column("  longest", "free.max_ns", Ns).more(),
            column("page event alloc, ns", "page_alloc.mean_ns", Ns).more(),
            column("page event free, ns", "page_free.mean_ns", Ns).more(),
            column("time in hits", "paths.hit.share", Share),
            column("  misses", "paths.miss.share", Share),
            column("  page allocator", "paths.pages.share", Share),
            column("  lock wait", "paths.lock_wait.share", Share),
            column("a hit, ns", "paths.hit.mean_ns", Ns).more(),
            column("a miss, ns", "paths.miss.mean_ns", Ns).more(),
            column("with page allocator, ns", "paths.pages.mean_ns", Ns).more(),
            column(
                "slow paths, of all",
                "alloc_slowpath free_slowpath",
                Of("alloc_slowpath free_slowpath alloc_fastpath free_fastpath"),
            )
            .about("The row has their sum as a part of all operations on objects."),
            column("cross-CPU frees", "cross_cpu_frees", Count).more(),
        ];
        columns.extend(crate::experiments::causes());
        columns.extend(placed::columns());
        columns.extend([
            column("zone locks", "locks.zone", Count).about("Holds of the zones' locks."),
            column("  waits", "lock_waits.zone", Count)
                .about("Holds that waited for another CPU."),
            column("  waited, ms", "lock_waits_ns.zone", Ms).about(
                "Time that CPUs waited for the zones' locks, all together. The row is in milliseconds.",
            ),
        ]);
        columns.extend([
            column("operations/s", "operations_per_second", Rate),
            column("events that began late", "late_events", Count)
                .computed(late)
                .more(),
            column("simulated, ms", "simulated_ns", Ms)
                .about("The row is in milliseconds.")
                .more(),
            column("slab memory, peak", "peak_slab_bytes", Bytes).more(),
            column("slab memory, end", "final_slab_bytes", Bytes).more(),
            column("events/s", "events_per_second", Rate).more(),
        ]);
        columns
    },
};

/// Events that began late; with the full pace none has a time to begin at.
fn late(run: &Value) -> Option<f64> {
    number(run, "late_events").filter(|_| run["pace"] == "recorded")
}

/// The view of replays in simulated time of any outputs.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let all = runs(docs);
    let grid = Grid::of(&all);
    let table = Section::new(RUNS.title).with(grid.table(&RUNS));
    let view = titled(docs, "simulated time").with(latencies(&grid));
    study::with(view.with(table).with(caches(&grid)), docs)
}

/// Time of each cache, a column for each run; of one run what its operations take.
fn caches(grid: &Grid<'_>) -> Section {
    let [(run, _)] = grid.runs.as_slice() else {
        let note = "Milliseconds in all operations of a cache. Those that differ most between the runs are first.";
        let ns =
            |cache: &Value| Some(number(cache, "operations")? * number(cache, "operation_ns")?);
        return of_caches(CACHES.title, compared(grid, &COMPARED, ns), note);
    };
    let note = "Those with most time in their operations are first.";
    of_caches(CACHES.title, CACHES.table(list(run, "caches")), note)
}

/// Times of allocations and frees by percentile.
fn latencies(grid: &Grid<'_>) -> Section {
    let mut section = Section::new("Simulated time by percentile");
    for (machine, runs) in machines(grid) {
        for (what, member) in [("allocations", "alloc"), ("frees", "free")] {
            let lines = runs.iter().map(|(name, run)| {
                let times = list(run, &format!("{member}.quantiles_ns")).iter();
                let points = QUANTILES.iter().zip(times.filter_map(Value::as_f64));
                Line::new(
                    name,
                    points.map(|(part, ns)| (-(1.0 - part).log10(), ns.max(0.1))),
                )
            });
            let lines: Vec<Line> = lines.collect();
            if lines.iter().all(|line| line.points.is_empty()) {
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

/// The finding about the first machine with several runs, in a sentence, and where pages lie if a policy was asked for. It
/// names the events that the recording lacks if it is not known what is alive.
#[must_use]
pub fn told(meta: &TraceMeta, runs: &[TimedReport]) -> String {
    if let Some(unranked) = unranked(meta) {
        return unranked;
    }
    let groups = groups(runs);
    let several = groups.iter().find(|group| group.len() > 1);
    let group = several.or(groups.first());
    let time = group.map_or_else(String::new, |group| finding(group));
    let placements = runs
        .iter()
        .filter_map(|run| Some((run.title(), &run.pages.as_ref()?.placement)));
    let placements: Vec<_> = placements.collect();
    match placed::told(meta, &placements) {
        Some(places) => format!("{time} {places}"),
        None => time,
    }
}

/// Runs by page size and number of CPUs, in the order of the runs.
fn groups(runs: &[TimedReport]) -> Vec<Vec<&TimedReport>> {
    let on_machines = runs.iter().map(|run| ((run.page_size, run.cpus), run));
    let groups = grouped(on_machines).into_iter();
    groups.map(|(_, runs)| runs).collect()
}

/// Names the design that takes the least time, and the cause, in a sentence.
fn finding(runs: &[&TimedReport]) -> String {
    let name = TimedReport::title;
    let by_time = |a: &&&TimedReport, b: &&&TimedReport| a.operation_ns.total_cmp(&b.operation_ns);
    let (Some(least), Some(most)) = (runs.iter().min_by(by_time), runs.iter().max_by(by_time))
    else {
        return String::new();
    };
    let (fast, slow) = (least.operation_ns, most.operation_ns);
    if runs.len() == 1 {
        let parts = parts(least).map(|(what, ns)| format!("{ns:.1} ns {what}"));
        return format!(
            "An allocation or free of an object takes {} {fast:.1} ns: {}.",
            name(least),
            parts.join(", ")
        );
    }
    if slow < fast * EQUAL {
        return format!(
            "All runs take the same time within 2 %, {fast:.1} to {slow:.1} ns an allocation or free of an object."
        );
    }
    let differences = parts(least).into_iter().zip(parts(most));
    let largest = differences.max_by(|(a, b), (c, d)| (b.1 - a.1).total_cmp(&(d.1 - c.1)));
    let cause = largest.map_or_else(String::new, |((what, less), (_, more))| {
        format!(": the largest difference is in time {what}, {more:.1} ns beside {less:.1}")
    });
    format!(
        "{} takes the least time, {fast:.1} ns an allocation or free of an object, and {} the most, {slow:.1} ns \
         ({:.1} times){cause}.",
        name(least),
        name(most),
        slow / fast,
    )
}

/// Parts of an operation's time.
fn parts(run: &TimedReport) -> [(&'static str, f64); 4] {
    let paths = &run.paths;
    [
        ("in hits", paths.hit),
        ("in misses", paths.miss),
        ("with the page allocator", paths.pages),
        ("waiting for locks", paths.lock_wait),
    ]
    .map(|(what, path)| (what, path.share * run.operation_ns))
}

#[cfg(test)]
mod tests {
    use super::super::report::PathTime;

    use super::*;

    fn run(design: &'static str, operation_ns: f64, waits: f64) -> TimedReport {
        let share = |share| PathTime {
            share,
            ..PathTime::default()
        };
        let mut run = TimedReport::default();
        (run.design, run.era, run.operation_ns) = (design, "1", operation_ns);
        run.paths.hit = share(1.0 - waits);
        run.paths.lock_wait = share(waits);
        run
    }

    #[test]
    fn a_difference_has_its_cause() {
        let (a, b) = (run("a", 20.0, 0.0), run("b", 50.0, 0.6));
        assert_eq!(
            finding(&[&b, &a]),
            "a@1 takes the least time, 20.0 ns an allocation or free of an object, and b@1 the most, 50.0 ns \
             (2.5 times): the largest difference is in time waiting for locks, 30.0 ns beside 0.0."
        );
        let near = run("c", 20.3, 0.0);
        assert!(
            finding(&[&a, &near])
                .starts_with("All runs take the same time within 2 %, 20.0 to 20.3")
        );
        let alone = finding(&[&b]);
        assert!(
            alone.contains("takes b@1 50.0 ns: 20.0 ns in hits, 0.0 ns in misses"),
            "{alone}"
        );
    }
}
