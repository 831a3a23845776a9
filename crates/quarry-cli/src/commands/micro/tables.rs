//! Tables of `quarry run micro`.

use quarry_work::micro::MicroReport;

use crate::commands::sensitivity::Group;
use crate::output;

/// Properties besides the design in which runs of a pattern differ, in words.
const AXES: [fn(&MicroReport) -> String; 4] = [
    |run| String::from(if run.kmalloc { "kmalloc" } else { "" }),
    |run| format!("{} bytes", run.object_bytes),
    |run| match run.cpus {
        1 => "1 CPU".to_string(),
        several => format!("{several} CPUs"),
    },
    |run| match run.pattern {
        "bulk" => format!("{} a call", run.bulk),
        _ => String::new(),
    },
];

/// Describes a run: its pattern, and the axes that are wanted.
fn described(
    run: &MicroReport,
    first: &str,
    wanted: impl Fn(&fn(&MicroReport) -> String) -> bool,
) -> String {
    let words = AXES
        .iter()
        .filter(|axis| wanted(axis))
        .map(|axis| axis(run));
    let words = words.filter(|words| !words.is_empty());
    words.fold(first.to_string(), |text, words| format!("{text}, {words}"))
}

/// Describes a run.
pub(crate) fn about(run: &MicroReport) -> String {
    described(run, run.pattern, |_| true)
}

/// Names the fastest design of each group, in a sentence.
fn finding(reports: &[MicroReport], groups: &[Group]) -> String {
    let of = |run: usize| reports.get(run).map_or(0.0, |run| run.per_second / 1e6);
    let mut text = String::new();
    for group in groups {
        let mut runs: Vec<&(usize, String)> = group.runs.iter().collect();
        runs.sort_by(|(a, _), (b, _)| of(*b).total_cmp(&of(*a)));
        if let [(first, name), (second, next), ..] = runs.as_slice() {
            text += &format!(
                "{}: {name} is fastest, {:.2} million a second, {:.2} times {next}.\n",
                group.about,
                of(*first),
                of(*first) / of(*second)
            );
        }
    }
    text
}

/// The findings, then a table for each pattern.
pub(crate) fn text(reports: &[MicroReport], groups: &[Group]) -> String {
    let mut text = finding(reports, groups);
    for runs in reports.chunk_by(|a, b| a.pattern == b.pattern) {
        let Some(first) = runs.first() else { continue };
        let alike =
            |axis: &fn(&MicroReport) -> String| runs.iter().all(|run| axis(run) == axis(first));
        let heading = described(first, first.pattern, alike);
        text += &format!("\n{heading}\n{}\n", table(runs, |axis| !alike(axis)));
    }
    text
}

/// A row for each run; its name has the axes on which the runs differ.
fn table(
    runs: &[MicroReport],
    differ: impl Fn(&fn(&MicroReport) -> String) -> bool,
) -> output::Grid {
    let apart = runs.iter().any(|run| run.free.is_some());
    let mut header = vec!["design"];
    header.extend(match apart {
        true => ["alloc\nns", "\ncycles", "free\nns", "\ncycles"].as_slice(),
        false => ["pair\nns", "\ncycles"].as_slice(),
    });
    header.extend(["Mops\n/s", "lock\nwait ns", "lines of\nCPUs", "\nmemory"]);
    let mut table = output::grid(&header, &[]);
    for run in runs {
        let name = format!("{}@{}", run.design, run.era);
        let mut row = vec![described(run, &name, &differ)];
        for phase in [Some(run.alloc), run.free].iter().flatten() {
            row.push(format!("{:.1}", phase.ns));
            row.push(format!("{:.0}", phase.cycles));
        }
        row.push(format!("{:.2}", run.per_second / 1e6));
        row.push(format!("{:.1}", run.causes.lock_wait_ns()));
        row.push(format!("{:.2}", run.causes.lines.between_cpus()));
        let memory = run.causes.lines.memory.iter().sum::<f64>();
        row.push(format!("{memory:.2}"));
        table.add_row(row);
    }
    table
}
