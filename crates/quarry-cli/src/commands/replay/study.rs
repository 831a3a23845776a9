//! `quarry replay --time --sensitivity`: which designs stay in order wherever the machine's constants are.

use quarry_lab::replay::input::Input;
use quarry_lab::replay::timed::Timing;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_lab::run::RunSpec;
use quarry_lab::{LabError, Plan};
use quarry_sim::time::TimeCounters;
use quarry_work::sensitivity::{Arm, Figure, First};

use crate::commands::experiment::{Experiment, Progress};
use crate::commands::sensitivity::{Group, Report};
use crate::units;

/// The figure by which designs are compared.
const OPERATION: &str = "operation_ns";

/// A replay under way.
struct Replay<'a> {
    input: &'a Input,
}

impl Experiment for Replay<'_> {
    type Run = (RunSpec, Timing);
    type Report = TimedReport;
    type Error = LabError;

    const ORDER: (&'static str, First) = (OPERATION, First::Least);

    fn in_arm((run, timing): &Self::Run, arm: &Arm) -> Self::Run {
        let timing = Timing {
            draw: arm.draw.clone(),
            seed: arm.seed,
            ..timing.clone()
        };
        let run = RunSpec {
            state: arm.state,
            ..run.clone()
        };
        (run, timing)
    }

    fn run(
        &self,
        (run, timing): &Self::Run,
        _progress: Progress<'_>,
    ) -> Result<TimedReport, LabError> {
        let plan = Plan {
            runs: vec![run.clone()],
        };
        let mut reports = plan.execute_timed(self.input, timing, 1, &|_| ())?;
        Ok(reports.pop().unwrap_or_default())
    }

    fn has_states(&self) -> bool {
        self.input.booted.is_some()
    }

    fn figures(report: &TimedReport) -> Vec<Figure> {
        vec![
            (OPERATION, report.operation_ns),
            ("alloc_ns", report.alloc.mean_ns),
            ("free_ns", report.free.mean_ns),
            ("lock_wait_ns", report.causes.lock_wait_ns()),
        ]
    }

    fn spent(report: &TimedReport) -> &TimeCounters {
        &report.spent
    }

    /// The designs of each page size and number of CPUs.
    fn named(report: &TimedReport) -> (String, String) {
        let pages = units::bytes(report.page_size);
        let about = match report.cpus {
            1 => format!("{pages} pages, 1 CPU"),
            cpus => format!("{pages} pages, {cpus} CPUs"),
        };
        (about, report.title())
    }
}

/// Replays the trace in all arms.
pub(crate) fn explore(
    plan: &Plan,
    input: &Input,
    timing: &Timing,
    jobs: usize,
    reports: &[TimedReport],
) -> anyhow::Result<Report> {
    let replay = Replay { input };
    let runs = plan.runs.iter().map(|run| (run.clone(), timing.clone()));
    let runs: Vec<_> = runs.collect();
    let groups = Group::all(reports, Replay::named);
    let machine = (&timing.machine, timing.seed, jobs);
    Ok(replay.study(machine, &runs, reports, &groups)?)
}
