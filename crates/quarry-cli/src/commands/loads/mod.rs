//! `quarry run hackbench`, `tbench`, `tcp_rr`, `will-it-scale`: the classic loads, in simulated time.

mod args;
pub(crate) mod host;

pub(crate) use args::{HackbenchArgs, TbenchArgs, TcpRrArgs, WillItScaleArgs};

use args::Common;

use quarry_lab::ask::AskLoad;
use quarry_lab::booted::Booted;
use quarry_sim::time::TimeCounters;
use quarry_work::WorkError;
use quarry_work::load::{LoadReport, LoadRun, PAGE_ALLOCATOR, SLAB_SLOW};
use quarry_work::sensitivity::{Arm, Figure, First};

use crate::commands::experiment::{self, Command, Experiment, Progress};
use crate::commands::sensitivity::Timed;
use crate::commands::several::Kept;
use crate::{output, terminal};

/// Runs loads of one kind, which differ in size, on all designs and numbers of CPUs.
fn run(common: &Common, load: &impl AskLoad) -> anyhow::Result<()> {
    let timed = &common.timed;
    let alone = [
        ("--host", common.host),
        ("--sensitivity", timed.sensitivity),
    ];
    let one = |load: &_, kept: Kept<'_>| match common.host {
        true => host::run(common, load),
        false => one(common, load, kept),
    };
    experiment::answer::<Timed<'_, LoadReport>, _>(load, &alone, &timed.out, common.profile, one)
}

/// Answers one question.
fn one(common: &Common, load: &impl AskLoad, kept: Kept<'_>) -> anyhow::Result<()> {
    let (clock, kernel, _) = load.parts();
    let loads = Loads(kernel.start(&load.designs()?)?);
    let (machine, runs) = load.runs()?;
    output::note_eras(runs.iter().map(|run| run.spec.setup.era));
    output::note_cpus(&machine, runs.iter().map(|run| run.spec.cpus));
    let name = runs.first().map_or("load", |run| run.spec.load.name());
    let command = Command {
        name,
        machine: &machine,
        seed: clock.seed.or(1),
        args: &common.timed,
        settings: args::settings(load),
    };
    let reports = command.run_all(&loads, &runs)?;
    let late = runs.iter().zip(&reports);
    for (run, report) in late.filter(|(_, report)| report.late_changes > 0) {
        note_late(report.late_changes, &run.spec.label());
    }
    command.print(&loads, &runs, &reports, common.profile, kept)
}

/// Says that tunables were not set.
fn note_late(changes: u32, run: &str) {
    terminal::note(&format!("{run}: it ended before {changes} of --at"));
}

/// The experiment, with the state in which heaps begin.
struct Loads(Option<Booted>);

/// Figure that orders designs.
const RATE: &str = "per_second";

impl Experiment for Loads {
    type Run = LoadRun;
    type Report = LoadReport;
    type Error = WorkError;

    const ORDER: (&'static str, First) = (RATE, First::Most);
    const STEPS: (u64, &'static str) = (100, "% of a run");

    fn in_arm(run: &LoadRun, arm: &Arm) -> LoadRun {
        let mut run = run.clone();
        run.spec.setup = run.spec.setup.in_arm(arm);
        run
    }

    fn run(&self, run: &LoadRun, progress: Progress<'_>) -> Result<LoadReport, WorkError> {
        run.run_from(&self.0, progress)
    }

    fn has_states(&self) -> bool {
        self.0.is_some()
    }

    fn figures(report: &LoadReport) -> Vec<Figure> {
        vec![
            (RATE, report.per_second),
            ("cpu_us", report.cpu_us),
            ("slab_slow_percent", report.profile.percent(SLAB_SLOW)),
            ("page_percent", report.profile.percent(PAGE_ALLOCATOR)),
        ]
    }

    fn spent(report: &LoadReport) -> &TimeCounters {
        &report.spent
    }

    /// The designs that did the same.
    fn named(report: &LoadReport) -> (String, String) {
        let name = format!("{}@{}", report.design, report.era);
        (about(report), name)
    }
}

/// Describes a run.
fn about(run: &LoadReport) -> String {
    let cpus = match run.cpus {
        1 => "1 CPU".to_string(),
        several => format!("{several} CPUs"),
    };
    let load = run.test.unwrap_or(run.load);
    format!("{load}, {} {}, {cpus}", run.size, unit(run))
}

/// Unit of a load's size.
fn unit(run: &LoadReport) -> &'static str {
    match (run.load, run.size) {
        ("hackbench", 1) => "group",
        ("hackbench", _) => "groups",
        ("tbench", 1) => "client",
        ("tbench", _) => "clients",
        ("will-it-scale", 1) => "process",
        ("will-it-scale", _) => "processes",
        (_, 1) => "pair",
        _ => "pairs",
    }
}
