//! The classic loads.

use quarry_view::Form::{Bytes, Count, Lines, Number, Rate, Share, Text};
use quarry_view::value::{list, number, text};
use quarry_view::{Grid, Section, Spec, column};
use quarry_work::load::{Hackbench, Load, PAGE_ALLOCATOR, SLAB_SLOW, Tbench, TcpRr, WillItScale};
use serde_json::Value;

use super::{PROFILES, Workload, causes, most, of, tables};
use crate::replay::notes::begins;

pub(super) const TABLES: [Spec; 2] = [RUNS, PROFILE];

const RUNS: Spec = Spec {
    title: "Figures of an operation",
    rows: "runs",
    first: 0,
    columns: || {
        let mut columns = vec![
            column("result", "per_second mb_per_second", Text)
                .about("As the program prints it: seconds, MB/s, or transactions per second.")
                .worded(result),
            column("operations/s", "per_second", Rate).more(),
            column("CPU us a piece", "cpu_us", Number),
            column("idle", "idle_percent", Share).computed(|run| Some(of(run, "idle_percent") / 100.0)),
            column("switches a piece", "switches", Lines),
            column("  wake-ups", "wakeups", Lines).more(),
            column("  of other CPUs", "remote_wakeups", Lines).more(),
            column("  migrations", "migrations", Lines).more(),
            fast_path("caches.alloc_hits"),
            column("slab miss", "profile.rows.percent", Share)
                .about(
                    "The row has time in misses, as a profile of functions shows it: code behind the CPU's own list, queue \
                     or main sheaf.",
                )
                .computed(|run| Some(share(run, |symbol| symbol == SLAB_SLOW))),
            column("page alloc", "profile.rows.percent", Share)
                .about("The row has time in the page allocator.")
                .computed(|run| Some(share(run, |symbol| symbol == PAGE_ALLOCATOR))),
            column("lock wait", "profile.rows.percent", Share)
                .about("The row has time in which CPUs wait for locks.")
                .computed(|run| Some(share(run, |symbol| symbol.starts_with("spin_lock")))),
            column("slab memory, end", "slab_kib", Bytes)
                .computed(|run| Some(of(run, "slab_kib") * 1024.0))
                .more(),
        ];
        columns.extend(causes().into_iter().map(quarry_view::Column::more));
        columns
    },
};

const PROFILE: Spec = Spec {
    title: "Profile",
    rows: "runs.profile.rows",
    first: 0,
    columns: || {
        vec![
            column("symbol name", "symbol", Text),
            column("samples", "samples", Count),
            column("%", "percent", Number),
        ]
    },
};

pub(super) const LOAD: Workload = Workload {
    charts: &["per_second", "cpu_us"],
    told: |grid| most(grid, tail, printed),
    notes,
    sections: |grid| {
        let apart = with_sizes(&["test", "cpus", "page_size"]);
        let mut sections = tables(grid, &RUNS, &apart);
        sections.extend(profiles(grid));
        sections
    },
};

/// Names of loads, and of what their sizes count.
fn units() -> [(&'static str, &'static str); 4] {
    let loads = [
        Load::Hackbench(Hackbench::default()),
        Load::Tbench(Tbench::default()),
        Load::TcpRr(TcpRr::default()),
        Load::WillItScale(WillItScale::default()),
    ];
    loads.map(|load| (load.name(), load.size().0))
}

/// The name of what the size of a run's load counts.
fn unit(run: &Value) -> Option<&'static str> {
    let load = text(run, "load");
    let found = units().into_iter().find(|(name, _)| *name == load);
    found.map(|(_, unit)| unit)
}

/// Names of axes, with those of sizes.
pub(super) fn with_sizes(names: &[&'static str]) -> Vec<&'static str> {
    let sizes = units().into_iter().map(|(_, unit)| unit);
    names.iter().copied().chain(sizes).collect()
}

/// Runs whose sizes have the name of what they count.
pub(super) fn sized(mut runs: Vec<Value>) -> Vec<Value> {
    for run in &mut runs {
        if let (Some(unit), true) = (unit(run), run["size"].is_number()) {
            run[unit] = run["size"].take();
        }
    }
    runs
}

/// The size of a load and what it counts, such as `hackbench with 4 groups`.
pub(super) fn named(run: &Value) -> String {
    let load = text(run, "load");
    let size = unit(run).and_then(|unit| Some((unit, number(run, unit)?)));
    match size {
        Some((unit, 1.0)) => format!("{load} with 1 {}", unit.trim_end_matches('s')),
        Some((unit, size)) => format!("{load} with {size} {unit}"),
        None => load.to_string(),
    }
}

/// The column of allocations on the fast path.
pub(super) fn fast_path(hits: &'static str) -> quarry_view::Column {
    column("fast path", hits, Share)
        .about("Mean over all caches, by their allocations.")
        .computed(|run| {
            let caches = ["caches", "last.caches"]
                .map(|path| list(run, path))
                .concat();
            let hits = caches.iter();
            let hits: f64 = hits
                .map(|cache| of(cache, "alloc_hits") * of(cache, "allocs"))
                .sum();
            let all: f64 = caches.iter().map(|cache| of(cache, "allocs")).sum();
            Some(hits / all.max(1.0) / 100.0)
        })
}

/// The part of a run's time in symbols.
fn share(run: &Value, is: impl Fn(&str) -> bool) -> f64 {
    let rows = list(run, "profile.rows").iter();
    let rows = rows.filter(|row| is(text(row, "symbol")));
    rows.fold(0.0, |all, row| all + of(row, "percent")) / 100.0
}

/// The result as the program prints it; of hackbench for all messages that were asked for.
fn result(run: &Value) -> String {
    let rate = of(run, "per_second");
    match text(run, "load") {
        "hackbench" => {
            let members = ["groups", "descriptors", "descriptors", "loops"];
            let asked = members.map(|name| of(&run["options"], name));
            let asked: f64 = asked.iter().product();
            format!("{:.4} s", asked / rate.max(f64::MIN_POSITIVE))
        }
        "tbench" => format!("{:.2} MB/s", of(run, "mb_per_second")),
        _ => format!("{rate:.0} /s"),
    }
}

/// The result beside the rate, where the program prints another figure than that.
fn printed(run: &Value) -> String {
    match text(run, "load") {
        "hackbench" | "tbench" => format!(" ({})", result(run)),
        _ => String::new(),
    }
}

/// Share of a run's operations that must be counted for its rate to be that of the run.
const COUNTED_MIN: f64 = 0.5;
/// Idle time in percent up to which the rate is the CPUs', not that of a few tasks that are left.
const IDLE_PERCENT_MAX: f64 = 10.0;

/// The share of a run's operations that is counted.
fn counted(run: &Value) -> f64 {
    let (before, then) = (of(run, "warm_up_operations"), of(run, "operations"));
    then / (before + then).max(1.0)
}

/// Reason for which a load that ends by itself tells no rate: what is counted is its end, or too few tasks for its CPUs.
fn tail(run: &Value) -> Option<String> {
    if text(run, "load") != "hackbench" {
        return None;
    }
    let (counted, idle) = (counted(run), of(run, "idle_percent"));
    let few = format!("counts only {:.0} % of its messages", 100.0 * counted);
    let idles = format!("idles for {idle:.0} % of its CPUs' time");
    let found = [
        (counted < COUNTED_MIN, few),
        (idle > IDLE_PERCENT_MAX, idles),
    ];
    let found = found.into_iter().filter(|(holds, _)| *holds);
    let reasons: Vec<String> = found.map(|(_, reason)| reason).collect();
    let reasons = (!reasons.is_empty()).then(|| reasons.join(", and "))?;
    Some(format!(
        "{reasons}. That tells no rate of the run: more loops, more groups or fewer CPUs do."
    ))
}

/// States in which heaps begin, the part of the runs that is counted, and what one run of each design does not tell.
fn notes(grid: &Grid<'_>) -> Vec<String> {
    let runs = || grid.runs.iter().map(|(run, _)| *run);
    let states = begins(runs().map(|run| {
        (
            text(run, "design"),
            text(run, "era"),
            run["initial"].as_str(),
        )
    }));
    let mut told: Vec<String> = states.lines().map(str::to_string).collect();
    let warm = runs().filter(|run| of(run, "warm_up_operations") > 0.0);
    let parts: Vec<f64> = warm.map(|run| 100.0 * (1.0 - counted(run))).collect();
    let least = parts.iter().copied().fold(100.0, f64::min);
    let most = parts.iter().copied().fold(0.0, f64::max);
    told.push(match runs().next().map(|run| text(run, "load")) {
        _ if parts.is_empty() => "All of the run is counted.".to_string(),
        Some("hackbench") => format!(
            "Counted from the moment at which nine of ten receivers had read a full socket, after {least:.0} to {most:.0} % of the \
             messages. Results are for all messages that were asked for."
        ),
        _ => format!("Counted after a warm-up, of {least:.0} to {most:.0} % of what was done."),
    });
    let has_seeds = runs().any(|run| run["seeds"].is_number());
    if grid.runs.len() > 1 && !has_seeds {
        told.push(
            "One seed: others may order designs otherwise; --sensitivity tells, or --seed."
                .to_string(),
        );
    }
    told
}

/// The profile of each run.
fn profiles(grid: &Grid<'_>) -> impl Iterator<Item = Section> {
    grid.runs.iter().map(|(run, places)| {
        let name = match grid.runs.len() {
            1 => super::design(run),
            _ => grid.whole_label(places),
        };
        Section::new(format!("{}: {name}", PROFILE.title))
            .id(PROFILES)
            .folded()
            .note(format!("CPU: {}", text(run, "profile.cpu")))
            .note("A sample is 100,000 cycles outside of halt state.")
            .with(PROFILE.table(list(run, "profile.rows")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(design: &str, counted: u32, idle: f64, rate: f64) -> Value {
        json!({"load": "hackbench", "size": 40, "design": design, "era": "7.0", "warm_up_operations": 100 - counted,
            "operations": counted, "idle_percent": idle, "per_second": rate})
    }

    #[test]
    fn the_tail_of_a_run_orders_nothing() {
        let told = |runs: &[Value]| most(&Grid::of(runs), tail, |_| String::new());
        let (slub, sheaf) = (run("slub", 60, 9.0, 3e6), run("sheaf", 50, 10.0, 2e6));
        assert_eq!(
            told(&[slub.clone(), sheaf.clone()]),
            ["slub@7.0 does most, 3.0 M/s, 1.50 times sheaf@7.0."]
        );
        for (run, reason) in [
            (
                run("sheaf", 49, 0.0, 2e6),
                "counts only 49 % of its messages. That",
            ),
            (
                run("sheaf", 90, 11.0, 2e6),
                "idles for 11 % of its CPUs' time. That",
            ),
            (
                run("sheaf", 1, 99.0, 2e6),
                "counts only 1 % of its messages, and idles for 99 %",
            ),
        ] {
            let told = told(&[slub.clone(), run]).concat();
            assert!(
                told.starts_with(&format!("no order of designs: sheaf@7.0 {reason}")),
                "{told}"
            );
        }
        let mut served = run("sheaf", 1, 99.0, 2e6);
        served["load"] = json!("tcp_rr");
        assert_eq!(tail(&served), None);
    }
}
