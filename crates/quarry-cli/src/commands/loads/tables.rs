//! Tables of the loads.

use quarry_work::load::{CacheReport, LoadReport, PAGE_ALLOCATOR, SLAB_SLOW};
use quarry_work::sensitivity::within;

use crate::commands::sensitivity::Group;
use crate::output;

/// Describes a run.
pub(super) fn about(run: &LoadReport) -> String {
    let cpus = match run.cpus {
        1 => "1 CPU".to_string(),
        several => format!("{several} CPUs"),
    };
    format!("{}, {} {}, {cpus}", run.load, run.size, unit(run))
}

/// Unit of a load's size.
fn unit(run: &LoadReport) -> &'static str {
    match (run.load, run.size) {
        ("hackbench", 1) => "group",
        ("hackbench", _) => "groups",
        ("tbench", 1) => "client",
        ("tbench", _) => "clients",
        (_, 1) => "pair",
        _ => "pairs",
    }
}

/// Its result as the program prints it; of hackbench for all messages that were asked for.
fn result(run: &LoadReport) -> String {
    let asked = run.options.operations().unwrap_or(run.operations) as f64;
    match run.load {
        "hackbench" => format!("{:.4} s", asked / run.per_second.max(f64::MIN_POSITIVE)),
        "tbench" => format!("{:.2} MB/s", run.mb_per_second),
        _ => format!("{:.0} /s", run.per_second),
    }
}

/// The findings, then a table for each group.
pub(super) fn text(reports: &[LoadReport], groups: &[Group]) -> String {
    let mut text = String::new();
    for group in groups {
        text += &finding(reports, group);
    }
    text += &quarry_lab::replay::notes::begins(
        reports
            .iter()
            .map(|run| (run.design, run.era, run.initial.as_deref())),
    );
    for group in groups {
        text += &format!("\n{}\n{}\n", group.about, table(reports, group));
    }
    text + &counted(reports) + one_seed(reports)
}

/// A note on what one run of each design does not tell.
fn one_seed(reports: &[LoadReport]) -> &'static str {
    match reports {
        [] | [_] => "",
        _ => "One seed: others may order designs otherwise; --sensitivity tells, or --seed.\n",
    }
}

/// The part of the runs that is counted, in a sentence.
fn counted(reports: &[LoadReport]) -> String {
    let warm = || reports.iter().filter(|run| run.warm_up_operations > 0);
    let parts = warm().map(|run| {
        let before = run.warm_up_operations as f64;
        100.0 * before / (before + run.operations as f64)
    });
    let (least, most) = parts.fold((100.0_f64, 0.0_f64), |(least, most), part| {
        (least.min(part), most.max(part))
    });
    match reports.first().map(|run| run.load) {
        _ if warm().next().is_none() => "\nAll of the run is counted.\n".to_string(),
        Some("hackbench") => format!(
            "\nCounted from the moment at which each receiver had read a full socket, after {least:.0} to {most:.0} % of the \
             messages.\nResults are for all messages that were asked for.\n"
        ),
        _ => format!("\nCounted after a warm-up, of {least:.0} to {most:.0} % of what was done.\n"),
    }
}

/// Names the design that does most in a group, in a sentence.
fn finding(reports: &[LoadReport], group: &Group) -> String {
    let rate = |run: usize| reports.get(run).map_or(0.0, |run| run.per_second);
    let mut runs: Vec<&(usize, String)> = group.runs.iter().collect();
    runs.sort_by(|(a, _), (b, _)| rate(*b).total_cmp(&rate(*a)));
    match (runs.first(), runs.last()) {
        (Some((first, _)), Some((last, _)))
            if first != last && within(rate(*last), 0.1, rate(*first)) =>
        {
            format!("{}: designs do the same within 0.1 %.\n", group.about)
        }
        (Some((first, name)), Some((last, slowest))) if first != last => format!(
            "{}: {name} does most, {:.2} times {slowest}.\n",
            group.about,
            rate(*first) / rate(*last).max(f64::MIN_POSITIVE)
        ),
        _ => String::new(),
    }
}

/// A row for each run of a group.
fn table(reports: &[LoadReport], group: &Group) -> output::Grid {
    let header = [
        "design",
        "result",
        "CPU us\na piece",
        "idle\n%",
        "switches\na piece",
        "fast\npath %",
        "slab\nmiss %",
        "page\nalloc %",
        "lock\nwait %",
    ];
    let mut table = output::grid(&header, &[]);
    for (number, name) in &group.runs {
        let Some(run) = reports.get(*number) else {
            continue;
        };
        let waits = run.profile.rows.iter();
        let waits = waits.filter(|row| row.symbol.starts_with("spin_lock"));
        let waits = waits.fold(0.0, |all, row| all + row.percent);
        table.add_row([
            name.clone(),
            result(run),
            format!("{:.2}", run.cpu_us),
            format!("{:.1}", run.idle_percent),
            format!("{:.3}", run.switches),
            format!("{:.1}", hits(&run.caches)),
            format!("{:.1}", run.profile.percent(SLAB_SLOW)),
            format!("{:.1}", run.profile.percent(PAGE_ALLOCATOR)),
            format!("{waits:.1}"),
        ]);
    }
    table
}

/// Allocations on the fast path, in percent of all.
pub(super) fn hits(caches: &[CacheReport]) -> f64 {
    let all: u64 = caches.iter().map(|cache| cache.allocs).sum();
    let hits = caches.iter();
    let hits: f64 = hits
        .map(|cache| cache.alloc_hits * cache.allocs as f64)
        .sum();
    hits / all.max(1) as f64
}

/// The profile of each run.
pub(super) fn profiles(reports: &[LoadReport]) -> String {
    let profile = |run: &LoadReport| {
        let name = format!("{}@{}", run.design, run.era);
        format!("\n{}, {name}\n{}", about(run), run.profile)
    };
    reports.iter().map(profile).collect()
}
