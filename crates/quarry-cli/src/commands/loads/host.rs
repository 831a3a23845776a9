//! Loads on real threads of this computer: rounds in turn, medians, and a null arm.

use std::sync::atomic::Ordering;

use quarry_lab::ask::AskLoad;
use quarry_work::load::HostRun;
use quarry_work::load::host::HostReport;
use schemars::JsonSchema;
use serde::Serialize;

use super::args::{self, Common};
use crate::commands::experiment;
use crate::units::median;
use crate::{error, output, signals, terminal};

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
    settings: output::Given,
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
    let bar = terminal::progress_bar(name, all, "runs");
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
    let document = Document {
        workload: name,
        host: true,
        rounds: common.rounds,
        settings: args::settings(load),
        runs: loads.iter().flatten().collect(),
    };
    let notes = document.settings.line();
    let out = &common.timed.out;
    if out.json || !loads.is_empty() {
        experiment::print(name, &document, notes, out, false, None)?;
    }
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
