//! The tables of `quarry replay --time`: what operations cost, and why; one column per run.

use quarry_core::machine::LockClass;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_lab::replay::timed::{Pace, Timing};

use serde_json::Value;

use crate::output::column;
use crate::rows::Form::{Bytes, Count, Lines, Ns, Of, Own, Rate, Share};
use crate::rows::{self, Row, first, line, more};
use crate::units::{bytes, count};
use crate::{output, replay_tables};

/// Runs whose times differ by less count as equal.
const EQUAL: f64 = 1.02;

/// A class of locks is shown without `--all` from this many nanoseconds an operation on.
const WAIT_NS_SHOWN: f64 = 0.5;

/// Everything that a replay in simulated time prints.
pub(crate) fn text(
    input: &Input,
    timing: &Timing,
    settings: &str,
    runs: &[TimedReport],
    all: bool,
) -> String {
    let head = head(input, timing, settings, runs);
    let lines: Vec<String> = head.lines().map(output::wrap).collect();
    let groups = groups(runs);
    let mut text = format!("{}\n", lines.join("\n"));
    text.push_str(&format!("\n{}\n", output::wrap(&told(runs))));
    for group in &groups {
        let title = title(group);
        for table in output::side_by_side(&rows(group, all)) {
            text.push_str(&format!("\n{title}\n{table}\n"));
        }
    }
    text.push_str(match all {
        true => "\n`quarry explain NAME` says what a row means.\n",
        false => "\n--all has more rows; `quarry explain NAME` says what one means.\n",
    });
    text
}

/// The finding about the first machine with several runs, in a sentence.
pub(crate) fn told(runs: &[TimedReport]) -> String {
    let groups = groups(runs);
    let several = groups.iter().find(|group| group.len() > 1);
    let group = several.or(groups.first());
    group.map_or_else(String::new, |group| finding(group))
}

fn head(input: &Input, timing: &Timing, settings: &str, runs: &[TimedReport]) -> String {
    let meta = input.file.meta();
    let mut text = replay_tables::about(&input.name, meta);
    text.push_str(&format!(
        "time of {}: {}\n",
        timing.machine.name, timing.machine.about
    ));
    text.push_str(&format!(
        "pace: {}; seed {}\n",
        match timing.pace {
            Pace::Recorded => "recorded, events begin at their recorded times if their CPU is free",
            Pace::Full => "full, CPUs go as fast as they can",
        },
        timing.seed
    ));
    let states = runs.iter();
    let states = states.map(|run| (run.design, run.era, run.initial.as_deref()));
    text.push_str(&output::begins(states));
    text.push_str(settings);
    text.push_str(&replay_tables::load_of(meta));
    for assumption in &meta.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
    text.push_str(&replay_tables::start(
        meta,
        input.booted.is_some(),
        std::iter::empty(),
    ));
    if let Some(run) = runs.first() {
        let replayed = run.replayed;
        text.push_str(&format!(
            "replayed: {} allocations, {} frees, {} page events; not replayed: {} orphaned frees, {} page events\n",
            count(replayed.allocs),
            count(replayed.frees),
            count(run.page_alloc.count + run.page_free.count),
            count(replayed.orphans),
            count(replayed.page_events),
        ));
    }
    text
}

/// Runs by page size and number of CPUs, in the order of the runs.
fn groups(runs: &[TimedReport]) -> Vec<Vec<&TimedReport>> {
    let on_machines = runs.iter().map(|run| ((run.page_size, run.cpus), run));
    let groups = quarry_view::grouped(on_machines).into_iter();
    groups.map(|(_, runs)| runs).collect()
}

fn title(group: &[&TimedReport]) -> String {
    let of = |run: &&TimedReport| {
        let (used, all) = (run.cpus_with_events, run.cpus);
        let idle = match used < all {
            true => format!(", {used} of them with events"),
            false => String::new(),
        };
        format!(
            "{} pages, {all} CPUs{idle}; ns an operation",
            bytes(run.page_size)
        )
    };
    group.first().map(of).unwrap_or_default()
}

/// The row that the classes of locks follow.
const LOCK_ROW: &str = "lock wait, ns";

/// Rows of a run, top to bottom.
pub(crate) const ROWS: &[Row] = &[
    first("alloc, ns", "alloc.mean_ns", Ns),
    first("  p50", "alloc.p50_ns", Ns),
    first("  p99", "alloc.p99_ns", Ns),
    first("  p99.9", "alloc.p999_ns", Ns),
    more("  longest", "alloc.max_ns", Ns),
    first("free, ns", "free.mean_ns", Ns),
    first("  p50", "free.p50_ns", Ns),
    first("  p99", "free.p99_ns", Ns),
    first("  p99.9", "free.p999_ns", Ns),
    more("  longest", "free.max_ns", Ns),
    more("page event alloc, ns", "page_alloc.mean_ns", Ns),
    more("page event free, ns", "page_free.mean_ns", Ns),
    first("time in hits", "paths.hit.share", Share),
    first("  misses", "paths.miss.share", Share),
    first("  page allocator", "paths.pages.share", Share),
    first("  lock wait", "paths.lock_wait.share", Share),
    more("a hit, ns", "paths.hit.mean_ns", Ns),
    more("a miss, ns", "paths.miss.mean_ns", Ns),
    more("with page allocator, ns", "paths.pages.mean_ns", Ns),
    first(
        "slow paths, of all",
        "alloc_slowpath free_slowpath",
        Of("alloc_slowpath free_slowpath alloc_fastpath free_fastpath"),
    )
    .note("The row has their sum as a part of all operations on objects."),
    more("cross-CPU frees", "cross_cpu_frees", Count),
    first(LOCK_ROW, "causes.locks.wait_ns", Own(lock_wait, tenths))
        .note("Sum over all classes of locks, per operation."),
    first(
        "lines of other CPUs",
        "causes.lines.clean causes.lines.dirty causes.lines.upgrades",
        Lines,
    )
    .note("Sum of all, per operation."),
    more("  clean", "causes.lines.clean", Lines).note(DISTANCES),
    more("  dirty", "causes.lines.dirty", Lines).note(DISTANCES),
    more("  upgrades", "causes.lines.upgrades", Lines).note(DISTANCES),
    more("lines of own LLC", "causes.lines.llc", Lines).note("Per operation."),
    first("lines from memory", "causes.lines.memory", Lines).note("Sum of both, per operation."),
    first("operations/s", "operations_per_second", Rate),
    more(
        "events that began late",
        "late_events",
        Own(late, |events| count(events as u64)),
    ),
    more(
        "simulated, ms",
        "simulated_ns",
        Own(
            |run| Some(run["simulated_ns"].as_f64()? / 1e6),
            |ms| format!("{ms:.3}"),
        ),
    )
    .note("The row is in milliseconds."),
    more("slab memory, peak", "peak_slab_bytes", Bytes),
    more("slab memory, end", "final_slab_bytes", Bytes),
    more("events/s", "events_per_second", Rate),
];

/// Note of rows about lines that move between CPUs.
const DISTANCES: &str = "Sum over the distances, per operation.";

fn lock_wait(run: &Value) -> Option<f64> {
    let locks = run["causes"]["locks"].as_array()?.iter();
    Some(
        locks
            .filter_map(|lock| lock["wait_ns"].as_f64())
            .fold(0.0, |all, wait| all + wait),
    )
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

/// Events that began late; with the full pace none has a time to begin at.
fn late(run: &Value) -> Option<f64> {
    run["late_events"]
        .as_f64()
        .filter(|_| run["pace"] == "recorded")
}

/// The rows with their names, the header first.
fn rows(runs: &[&TimedReport], all: bool) -> Vec<Vec<String>> {
    let header = runs.iter().map(|run| column(&run.title()));
    let mut rows = vec![line("", header)];
    for (name, cells) in rows::lines(ROWS, runs, all) {
        rows.push(line(name, cells));
        if name == LOCK_ROW {
            rows.extend(lock_rows(runs, all));
        }
    }
    rows
}

/// Classes of locks that were waited for.
fn lock_rows(runs: &[&TimedReport], all: bool) -> Vec<Vec<String>> {
    let wait = |run: &TimedReport, class: &str| {
        let locks = run.causes.locks.iter();
        let of_class = locks.filter(|lock| lock.class == class);
        of_class.fold(0.0, |all, lock| all + lock.wait_ns)
    };
    let least = if all { 0.0 } else { WAIT_NS_SHOWN };
    let mut rows = Vec::new();
    for (_, class) in LockClass::ALL {
        if runs.iter().any(|run| wait(run, class) > least) {
            let values = runs.iter().map(|run| format!("{:.1}", wait(run, class)));
            rows.push(line(format!("  {class}"), values));
        }
    }
    rows
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
    use quarry_lab::replay::timed::report::PathTime;

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
