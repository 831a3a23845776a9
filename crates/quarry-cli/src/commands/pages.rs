//! `quarry run pages`: processes that fault and exit, in simulated time.

use quarry_ask::Asked;
use quarry_lab::ask::Pages;
use quarry_sim::time::TimeCounters;
use quarry_work::WorkError;
use quarry_work::pages::{self, PagesReport, PagesSpec};
use quarry_work::sensitivity::{Arm, Figure, First};

use crate::commands::experiment::{self, Command, Experiment, Progress, TimedArgs};
use crate::commands::sensitivity::Timed;
use crate::commands::several::Kept;
use crate::{output, question};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked<Pages>,
    #[command(flatten)]
    timed: TimedArgs,
}

const EXAMPLES: &str = "\
What processes do:
  Each maps memory, touches every page of it, and unmaps it, as page_fault1 of
  will-it-scale does. A fault enters the kernel, allocates a page of order 0 and
  fills it with zeros; the unmapping frees them all. Processes are out of step,
  each anywhere in its rounds. Page tables and reverse maps are left out, and
  without --lru the lists for reclaim: the share of the zone lock is that of a
  kernel whose other locks cost nothing. With --move-every pages are freed on
  other CPUs than they were allocated on. docs/micro.md explains the columns.

Exit codes:
  0 done; 1 failed; 2 wrong usage; 3 the memory of a virtual machine was exhausted

Examples:
  quarry run pages
  quarry run pages --processes 1,24 --era 2.6.32,4.13,6.18
  quarry run pages --set page.percpu_pagelist_high_fraction=8 --era 6.18
  quarry run pages --machine milan-2x64 --processes 1,16,500
  quarry run pages --processes 24 --move-every 512 --era 6.6,6.7
  quarry run pages --processes 24 --lru --pages 32768
  quarry run pages --processes 12 --sensitivity
  quarry run pages --json | jq '.runs[] | [.era, .processes, .zone_wait]'";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = question::of(&args.asked)?;
    let alone = [("--sensitivity", args.timed.sensitivity)];
    let one = |asked: &_, kept: Kept<'_>| one(args, asked, kept);
    experiment::answer::<Timed<'_, PagesReport>, _>(&asked, &alone, &args.timed.out, false, one)
}

/// Answers one question.
fn one(args: &Args, asked: &Pages, kept: Kept<'_>) -> anyhow::Result<()> {
    let (machine, runs) = asked.runs()?;
    output::note_eras(runs.iter().map(|run| run.setup.era));
    output::note_cpus(&machine, runs.iter().map(|run| run.processes));
    let command = Command {
        name: "pages",
        machine: &machine,
        seed: asked.clock.seed.or(1),
        args: &args.timed,
        settings: output::Given::of(asked),
    };
    command.answer(&Bench, &runs, kept)
}

/// Figure that orders releases: millions of pages per second.
const THROUGHPUT: &str = "mpages";

/// The experiment.
struct Bench;

impl Experiment for Bench {
    type Run = PagesSpec;
    type Report = PagesReport;
    type Error = WorkError;

    const ORDER: (&'static str, First) = (THROUGHPUT, First::Most);

    fn in_arm(run: &PagesSpec, arm: &Arm) -> PagesSpec {
        PagesSpec {
            setup: run.setup.in_arm(arm),
            ..run.clone()
        }
    }

    fn run(&self, run: &PagesSpec, progress: Progress<'_>) -> Result<PagesReport, WorkError> {
        let report = pages::run(run);
        progress.advance(1);
        report
    }

    fn figures(report: &PagesReport) -> Vec<Figure> {
        vec![
            ("fault_ns", report.fault.ns),
            ("free_ns", report.free.ns),
            (THROUGHPUT, report.per_second / 1e6),
            ("zone_wait", report.zone_wait),
        ]
    }

    fn spent(report: &PagesReport) -> &TimeCounters {
        &report.spent
    }

    /// The releases of each number of processes.
    fn named(report: &PagesReport) -> (String, String) {
        (about(report), report.era.to_string())
    }
}

/// `1 process`; `2 processes that move every 512 pages, LRU`.
fn about(run: &PagesReport) -> String {
    let processes = match run.processes {
        1 => "1 process".to_string(),
        several => format!("{several} processes"),
    };
    let moves = run.move_every.map_or_else(String::new, |pages| {
        format!(" that move every {pages} pages")
    });
    let lru = if run.lru { ", LRU" } else { "" };
    format!("{processes}{moves}{lru}")
}
