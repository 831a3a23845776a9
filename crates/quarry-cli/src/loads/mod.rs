//! `quarry run hackbench`, `tbench`, `tcp_rr`: the classic loads, in simulated time.

mod args;
pub(crate) mod host;
mod tables;

pub(crate) use args::{HackbenchArgs, TbenchArgs, TcpRrArgs};

use args::{Asked, Common};

use quarry_core::design::Design;
use quarry_designs::{DesignSpec, ForDesign};
use quarry_machines::Machine;
use quarry_work::load::{self, Load, LoadReport, LoadSpec, PAGE_ALLOCATOR, SLAB_SLOW};
use quarry_work::sensitivity::{Figure, First, Study};
use quarry_work::{WorkError, run_all};

use crate::output;
use crate::sensitivity::{self, Group, Timed};

/// A run on a design.
#[derive(Clone)]
pub(crate) struct Run {
    design: DesignSpec,
    spec: LoadSpec,
}

impl Run {
    /// Runs it, and tells how many per cent of it are done.
    fn report(&self, progress: &dyn Fn(u64)) -> Result<LoadReport, WorkError> {
        let spec = &self.spec;
        self.design.design.run(Shown { spec, progress })
    }
}

/// A run, and the call that shows how far it is.
struct Shown<'a> {
    spec: &'a LoadSpec,
    progress: &'a dyn Fn(u64),
}

impl ForDesign for Shown<'_> {
    type Output = Result<LoadReport, WorkError>;

    fn run<D: Design>(self) -> Self::Output {
        load::run::<D>(self.spec, self.progress)
    }
}

/// Runs loads of one kind, which differ in size, on all designs and numbers of CPUs.
fn run(common: &Common, asked: &Asked<'_>) -> anyhow::Result<()> {
    if common.host {
        return host::run(common, asked);
    }
    let machine = common.timed.machine.machine()?;
    let runs = common.runs(asked, &machine)?;
    output::note_eras(runs.iter().map(|run| run.spec.era));
    let name = asked.loads.first().map_or("load", Load::name);
    let jobs = common.timed.machine.jobs();
    let bar = output::progress_bar(name, 100 * runs.len() as u64, "% of a run");
    let reports = run_all(&runs, jobs, |run| run.report(&|percent| bar.inc(percent)))?;
    bar.finish_and_clear();
    let late = runs.iter().zip(&reports);
    for (run, report) in late.filter(|(_, report)| report.late_changes > 0) {
        note_late(report.late_changes, &run.spec.label());
    }
    let groups = groups(&reports);
    let sensitivity = match common.timed.sensitivity {
        true => Some(explore(common, &machine, &runs, &reports, &groups)?),
        false => None,
    };
    let timed = Timed {
        workload: name,
        settings: Some(common.settings()),
        runs: &reports,
        sensitivity: sensitivity.as_ref(),
    };
    timed.print(common.timed.json, &groups, || {
        let mut text = format!("{}\n", machine.about);
        text += &output::settings_line(&common.settings);
        text += &tables::text(&reports, &groups);
        if common.profile {
            text += &tables::profiles(&reports);
        }
        text
    })
}

/// Says that tunables were not set.
fn note_late(changes: u32, run: &str) {
    output::note(&format!("{run}: it ended before {changes} of --at"));
}

/// The figure by which designs are compared.
const RATE: &str = "per_second";

fn figures(report: &LoadReport) -> Vec<Figure> {
    vec![
        (RATE, report.per_second),
        ("cpu_us", report.cpu_us),
        ("slab_slow_percent", report.profile.percent(SLAB_SLOW)),
        ("page_percent", report.profile.percent(PAGE_ALLOCATOR)),
    ]
}

fn explore(
    common: &Common,
    machine: &Machine,
    runs: &[Run],
    reports: &[LoadReport],
    groups: &[Group],
) -> anyhow::Result<sensitivity::Report> {
    let spent = reports.iter().map(|report| &report.spent);
    let study = Study::new(machine, spent, common.timed.machine.seed);
    let values = reports.iter().map(figures).collect();
    let jobs = common.timed.machine.jobs();
    let samples = sensitivity::explore(&study, runs, values, jobs, |run, arm| {
        let mut run = run.clone();
        run.spec.draw = arm.draw.clone();
        run.spec.seed = arm.seed;
        run.report(&|_| ()).map(|report| figures(&report))
    })?;
    Ok(sensitivity::Report::of_order(
        &samples,
        groups,
        (RATE, First::Most),
    ))
}

/// The designs that did the same.
fn groups(reports: &[LoadReport]) -> Vec<Group> {
    Group::all(reports, |report| {
        let name = format!("{}@{}", report.design, report.era);
        (tables::about(report), name)
    })
}
