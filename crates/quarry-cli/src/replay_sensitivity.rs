//! `quarry replay --time --sensitivity`: which designs stay in order wherever the machine's constants are.

use quarry_lab::Plan;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::timed::Timing;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_work::sensitivity::{Figure, First, Study};

use crate::sensitivity::{self, Group, Report};
use crate::units;

/// The figure by which designs are compared.
const OPERATION: &str = "operation_ns";

fn figures(report: &TimedReport) -> Vec<Figure> {
    vec![
        (OPERATION, report.operation_ns),
        ("alloc_ns", report.alloc.mean_ns),
        ("free_ns", report.free.mean_ns),
        ("lock_wait_ns", report.causes.lock_wait_ns()),
    ]
}

/// Replays the trace in all arms.
pub(crate) fn explore(
    plan: &Plan,
    input: &Input,
    timing: &Timing,
    jobs: usize,
    reports: &[TimedReport],
) -> anyhow::Result<(Report, Vec<Group>)> {
    let spent = reports.iter().map(|report| &report.spent);
    let study = Study::new(&timing.machine, spent, timing.seed);
    let values = reports.iter().map(figures).collect();
    let samples = sensitivity::explore(&study, &plan.runs, values, jobs, |run, arm| {
        let plan = Plan {
            runs: vec![run.clone()],
        };
        let timing = Timing {
            draw: arm.draw.clone(),
            seed: arm.seed,
            ..timing.clone()
        };
        let reports = plan.execute_timed(input, &timing, 1, &|_| ())?;
        Ok::<_, quarry_lab::LabError>(reports.iter().flat_map(figures).collect())
    })?;
    let groups = groups(reports);
    let order = (OPERATION, First::Least);
    Ok((Report::of_order(&samples, &groups, order), groups))
}

/// The designs of each page size and number of CPUs.
fn groups(reports: &[TimedReport]) -> Vec<Group> {
    Group::all(reports, |report| {
        let pages = units::bytes(report.page_size);
        let about = match report.cpus {
            1 => format!("{pages} pages, 1 CPU"),
            cpus => format!("{pages} pages, {cpus} CPUs"),
        };
        (about, format!("{}@{}", report.design, report.era))
    })
}
