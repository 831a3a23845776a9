//! Loads on real threads of this computer: rounds in turn, medians, and a null arm.

use std::sync::atomic::Ordering;

use quarry_lab::ask::AskLoad;
use quarry_work::load::HostRun;
use quarry_work::load::host::HostReport;
use schemars::JsonSchema;
use serde::Serialize;

use super::args::{self, Common};
use crate::units::median;
use crate::{error, output, signals};

/// Results of the rounds of an arm.
#[derive(JsonSchema, Serialize)]
struct Arm {
    /// Design and era.
    design: String,
    /// Load.
    load: &'static str,
    /// Groups, clients or pairs.
    size: u32,
    /// True if it is the first arm again, whose difference from the first is chance.
    null: bool,
    /// Operations per second: median of the rounds.
    per_second: f64,
    /// Least and most operations per second.
    per_second_range: [f64; 2],
    /// Rounds that ended.
    rounds: usize,
    /// Percent by which the arm is above the first one in the same round: median.
    against_first: f64,
    /// Least and most of these percentages.
    against_first_range: [f64; 2],
    /// Millions of bytes of payload per second, median.
    mb_per_second: f64,
    /// Microseconds of CPU time per operation, median; null if the kernel does not count it.
    cpu_us: Option<f64>,
    /// Share of the CPUs' time that the threads did not use, in percent, median; null if the kernel does
    /// not count it.
    idle_percent: Option<f64>,
    /// Task switches per operation, median; null if the kernel does not count them.
    switches: Option<f64>,
    /// Last round.
    last: HostReport,
}

/// Fields of `--host --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Document<'a> {
    /// Workload.
    workload: &'static str,
    /// True.
    host: bool,
    /// Rounds asked for.
    rounds: u32,
    /// Settings as given.
    settings: output::Asked,
    /// Arms.
    runs: Vec<&'a Arm>,
}

/// Runs loads of one kind on all designs.
pub(super) fn run(common: &Common, load: &impl AskLoad) -> anyhow::Result<()> {
    if common.rounds == 0 {
        return Err(error::usage("--rounds must be at least 1"));
    }
    let runs = load.host_runs()?;
    let name = runs.first().map_or("load", |run| run.spec.load.name());
    let of_load = load.designs()?.len();
    let groups = runs.len() / of_load.max(1);
    let rounds = common.rounds;
    let all = u64::from(rounds) * (runs.len() + groups) as u64;
    let bar = output::progress_bar(name, all, "runs");
    let stop = signals::stop_between_runs()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let mut loads = Vec::new();
    for group in runs.chunks(of_load.max(1)) {
        // The first again: what differs is chance.
        let mut group = group.to_vec();
        group.extend(group.first().cloned());
        let mut reports: Vec<Vec<HostReport>> = vec![Vec::new(); group.len()];
        'rounds: for _ in 0..rounds {
            for (run, reports) in group.iter().zip(&mut reports) {
                if stopped() {
                    break 'rounds;
                }
                reports.push(run.run()?);
                bar.inc(1);
            }
        }
        // A round that is not whole has arms without the first one beside them.
        let whole = reports.iter().map(Vec::len).min().unwrap_or(0);
        if whole == 0 {
            break;
        }
        reports
            .iter_mut()
            .for_each(|reports| reports.truncate(whole));
        let arms = arms(&group, reports);
        for arm in arms
            .iter()
            .filter(|arm| !arm.null && arm.last.late_changes > 0)
        {
            let label = format!("{}, {}", arm.design, arm.load);
            super::note_late(arm.last.late_changes, &label);
        }
        loads.push(arms);
    }
    bar.finish_and_clear();
    print(common, name, args::settings(load), &loads)?;
    match stopped() {
        true if loads.is_empty() => Err(error::interrupted(
            "interrupted before the first round ended".to_string(),
        )),
        true => Err(error::interrupted(
            "interrupted; rounds that ended are printed".to_string(),
        )),
        false => Ok(()),
    }
}

/// Prints the arms of each load.
fn print(
    common: &Common,
    name: &'static str,
    settings: output::Asked,
    loads: &[Vec<Arm>],
) -> anyhow::Result<()> {
    if common.timed.json {
        return output::print_json(
            &format!("run {name}"),
            &Document {
                workload: name,
                host: true,
                rounds: common.rounds,
                settings,
                runs: loads.iter().flatten().collect(),
            },
        );
    }
    output::print_text(&text(&settings.set, loads))
}

/// The arms of a load; the last is the first again.
fn arms(group: &[HostRun], reports: Vec<Vec<HostReport>>) -> Vec<Arm> {
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let first = reports.first().into_iter().flatten();
    let first: Vec<f64> = first.map(|report| report.per_second).collect();
    let last_arm = group.len() - 1;
    let arm = |(number, (run, reports)): (usize, (&HostRun, Vec<HostReport>))| {
        let rates = sorted(reports.iter().map(|report| report.per_second).collect());
        let middle = |of: fn(&HostReport) -> Option<f64>| {
            let values = reports.iter().map(of).collect::<Option<Vec<f64>>>();
            values.map(|values| median(&sorted(values)))
        };
        let rate = median(&rates);
        let ratios = reports.iter().zip(&first);
        let ratios = ratios.map(|(report, first)| 100.0 * (report.per_second / first - 1.0));
        let ratios = sorted(ratios.collect());
        Some(Arm {
            design: run.design.to_string(),
            load: run.spec.load.name(),
            size: run.spec.load.size().1,
            null: number == last_arm,
            rounds: rates.len(),
            per_second: rate,
            per_second_range: [*rates.first()?, *rates.last()?],
            against_first: median(&ratios),
            against_first_range: [*ratios.first()?, *ratios.last()?],
            mb_per_second: {
                let last = reports.last()?;
                rate * last.mb_per_second / last.per_second
            },
            cpu_us: middle(|report| report.cpu_us),
            idle_percent: middle(|report| report.idle_percent),
            switches: middle(|report| report.switches),
            last: reports.into_iter().last()?,
        })
    };
    let all = group.iter().zip(reports).enumerate();
    all.filter_map(arm).collect()
}

/// Says which arms differ from the first by more than chance, as the null arm shows it, and which do not.
fn told_apart(group: &[Arm]) -> String {
    let null = group.iter().find(|arm| arm.null);
    let (Some(first), Some(null)) = (group.first(), null) else {
        return String::new();
    };
    let [low, high] = null.against_first_range;
    let load = format!("{} {}", first.load, first.size);
    let chance = format!(
        "{} again differs by {low:+.1} to {high:+.1} %",
        first.design
    );
    let others: Vec<&Arm> = group.iter().skip(1).filter(|arm| !arm.null).collect();
    if others.is_empty() {
        return format!("{load}: {chance}; a second design would be compared with that.");
    }
    if first.rounds < ROUNDS_LEAST {
        return format!(
            "{load}: {} rounds tell nothing apart; give --rounds {ROUNDS_LEAST} or more.",
            first.rounds
        );
    }
    let is_apart = |arm: &&&Arm| {
        let [least, most] = arm.against_first_range;
        least > high || most < low
    };
    let apart: Vec<String> = others
        .iter()
        .filter(is_apart)
        .map(|arm| {
            let word = if arm.against_first > 0.0 {
                "faster"
            } else {
                "slower"
            };
            format!("{} is {:.1} % {word}", arm.design, arm.against_first.abs())
        })
        .collect();
    let same: Vec<&str> = others
        .iter()
        .filter(|arm| !is_apart(arm))
        .map(|arm| arm.design.as_str())
        .collect();
    let mut parts = Vec::new();
    if !apart.is_empty() {
        parts.push(format!(
            "{} than {}, in every round by more than chance",
            apart.join(", "),
            first.design
        ));
    }
    if !same.is_empty() {
        parts.push(format!(
            "{} cannot be told apart from {}",
            same.join(" and "),
            first.design
        ));
    }
    format!("{load}: {} ({chance}).", parts.join("; "))
}

/// Rounds from which on a difference in all of them says something.
const ROUNDS_LEAST: usize = 3;

/// A table for each load.
fn text(settings: &[String], loads: &[Vec<Arm>]) -> String {
    let mut text = match loads.iter().flatten().next() {
        Some(arm) => format!(
            "{} on {} CPUs of this computer, real threads: medians of {} rounds in turn. What the last row differs by is \
             chance.\n",
            arm.load, arm.last.cpus, arm.rounds
        ),
        None => String::new(),
    };
    text = format!("{}\n", output::wrap(text.trim_end()));
    for group in loads {
        text += &format!("{}\n", output::wrap(&told_apart(group)));
    }
    text += &output::settings_line(settings);
    for group in loads {
        let Some(first) = group.first() else { continue };
        let header = [
            "design",
            "k ops\n/s",
            "least",
            "most",
            "against\nfirst, %",
            "least\n%",
            "most\n%",
            "MB/s",
            "CPU us\na piece",
            "idle\n%",
            "switches\na piece",
            "fast\npath %",
        ];
        let mut table = output::grid(&header, &[]);
        for arm in group {
            let again = if arm.null { ", again" } else { "" };
            let [least, most] = arm.per_second_range;
            let [below, above] = arm.against_first_range;
            let of = |value: Option<f64>, digits| match value {
                Some(value) => format!("{value:.digits$}"),
                None => "-".to_string(),
            };
            table.add_row([
                format!("{}{again}", arm.design),
                format!("{:.1}", arm.per_second / 1e3),
                format!("{:.1}", least / 1e3),
                format!("{:.1}", most / 1e3),
                format!("{:+.1}", arm.against_first),
                format!("{below:+.1}"),
                format!("{above:+.1}"),
                format!("{:.1}", arm.mb_per_second),
                of(arm.cpu_us, 2),
                of(arm.idle_percent, 1),
                of(arm.switches, 3),
                format!("{:.1}", super::tables::hits(&arm.last.caches)),
            ]);
        }
        let (size, threads) = (first.size, first.last.threads);
        text += &format!("\n{} {size}, {threads} threads\n{table}\n", first.load);
    }
    text
}

#[cfg(test)]
mod tests {
    use quarry_work::load::{Hackbench, Load};

    use super::*;

    /// An arm whose rounds differ from the first arm by these percentages.
    fn arm(design: &str, null: bool, range: [f64; 2], rounds: usize) -> Arm {
        Arm {
            design: design.to_string(),
            load: "hackbench",
            size: 4,
            null,
            per_second: 1.0,
            per_second_range: [1.0, 1.0],
            rounds,
            against_first: (range[0] + range[1]) / 2.0,
            against_first_range: range,
            mb_per_second: 0.0,
            cpu_us: None,
            idle_percent: None,
            switches: None,
            last: HostReport {
                design: "slub",
                era: "6.18",
                load: "hackbench",
                size: 4,
                options: Load::Hackbench(Hackbench::default()),
                skb_sizes: "fixed",
                cpus: 2,
                threads: 2,
                seconds: 1.0,
                operations: 1,
                per_second: 1.0,
                mb_per_second: 1.0,
                cpu_us: None,
                idle_percent: None,
                switches: None,
                late_changes: 0,
                caches: Vec::new(),
            },
        }
    }

    #[test]
    fn the_null_arm_says_what_chance_is() {
        let arms = |rounds| {
            [
                arm("slub@6.18", false, [0.0, 0.0], rounds),
                arm("sheaf@7.0", false, [4.0, 6.0], rounds),
                arm("slab@6.3", false, [-2.0, -0.5], rounds),
                arm("slub@6.18", true, [-1.0, 1.5], rounds),
            ]
        };
        assert_eq!(
            told_apart(&arms(5)),
            "hackbench 4: sheaf@7.0 is 5.0 % faster than slub@6.18, in every round by more than chance; slab@6.3 cannot \
             be told apart from slub@6.18 (slub@6.18 again differs by -1.0 to +1.5 %)."
        );
        assert!(told_apart(&arms(2)).contains("2 rounds tell nothing apart; give --rounds 3"));
        let alone = [
            arm("a", false, [0.0, 0.0], 5),
            arm("a", true, [-1.0, 1.0], 5),
        ];
        assert!(told_apart(&alone).contains("a again differs by -1.0 to +1.0 %"));
    }
}
