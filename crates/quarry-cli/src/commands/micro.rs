//! `quarry run micro`: the micro-benchmarks of kernel developers, in simulated time.

use quarry_ask::Asked;
use quarry_lab::ask::{Micro, MicroRun};
use quarry_sim::time::TimeCounters;
use quarry_work::WorkError;
use quarry_work::micro::MicroReport;
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
    asked: Asked<Micro>,
    #[command(flatten)]
    timed: TimedArgs,
}

const EXAMPLES: &str = "\
Patterns:
  batch  each CPU allocates --count objects, then frees them
  pair   each CPU allocates an object and frees it, --count times
  cross  each CPU allocates --count objects, which its neighbour frees
  spread the first CPU allocates --count objects, which all others free
  bulk   each CPU allocates and frees --bulk objects a call

Times are those of an operation on its CPU (a pair of them with pair and bulk,
where they are an object's share). Lines moved and lock waits are of an object's
allocation and free together. docs/micro.md explains the columns, docs/time.md
what is simulated and how.

Exit codes:
  0 done; 1 failed; 2 wrong usage; 3 the memory of a virtual machine was exhausted

Examples:
  quarry run micro
  quarry run micro --kmalloc --size 8,256,4096 --design slub@3.18
  quarry run micro --pattern cross --cpus 2,12,24
  quarry run micro --pattern bulk --bulk 1,16,128 --machine milan-2x64
  quarry run micro --design sheaf --set sheaf_capacity=60 --pattern cross --cpus 12
  quarry run micro --node 0,1 --machine milan-2x64
  quarry run micro --node 1 --node-free 1:64M --design slub@6.9,slub@6.10
  quarry run micro --pattern pair --sensitivity
  quarry run micro --json | jq '.runs[] | [.design, .alloc.ns, .causes.locks]'";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = question::of(&args.asked)?;
    let alone = [("--sensitivity", args.timed.sensitivity)];
    let one = |asked: &_, kept: Kept<'_>| one(args, asked, kept);
    experiment::answer::<Timed<'_, MicroReport>, _>(&asked, &alone, &args.timed.out, false, one)
}

/// Answers one question.
fn one(args: &Args, asked: &Micro, kept: Kept<'_>) -> anyhow::Result<()> {
    let (machine, runs) = asked.runs()?;
    output::note_eras(runs.iter().map(|run| run.spec.setup.era));
    output::note_cpus(&machine, runs.iter().map(|run| run.spec.cpus));
    let command = Command {
        name: "micro",
        machine: &machine,
        seed: asked.clock.seed.or(1),
        args: &args.timed,
        settings: output::Given::of(asked),
    };
    command.answer(&Bench, &runs, kept)
}

/// Figure that orders designs: millions of objects per second.
const THROUGHPUT: &str = "mops";

/// The experiment.
struct Bench;

impl Experiment for Bench {
    type Run = MicroRun;
    type Report = MicroReport;
    type Error = WorkError;

    const ORDER: (&'static str, First) = (THROUGHPUT, First::Most);

    fn in_arm(run: &MicroRun, arm: &Arm) -> MicroRun {
        let mut run = run.clone();
        run.spec.setup = run.spec.setup.in_arm(arm);
        run
    }

    fn run(&self, run: &MicroRun, progress: Progress<'_>) -> Result<MicroReport, WorkError> {
        let report = run.spec.run_on(&run.design);
        progress.advance(1);
        report
    }

    fn figures(report: &MicroReport) -> Vec<Figure> {
        let mut figures = match report.free {
            Some(free) => vec![("alloc_ns", report.alloc.ns), ("free_ns", free.ns)],
            None => vec![("pair_ns", report.alloc.ns)],
        };
        figures.push((THROUGHPUT, report.per_second / 1e6));
        figures
    }

    fn spent(report: &MicroReport) -> &TimeCounters {
        &report.spent
    }

    /// The designs that did the same.
    fn named(report: &MicroReport) -> (String, String) {
        let name = format!("{}@{}", report.design, report.era);
        (about(report), name)
    }
}

/// Describes what a run's design does.
fn about(run: &MicroReport) -> String {
    let kmalloc = if run.kmalloc { ", kmalloc" } else { "" };
    let cpus = match run.cpus {
        1 => "1 CPU".to_string(),
        several => format!("{several} CPUs"),
    };
    let bulk = match run.pattern {
        "bulk" => format!(", {} a call", run.bulk),
        _ => String::new(),
    };
    let node = run
        .node
        .map_or_else(String::new, |node| format!(", node {node}"));
    format!(
        "{}{kmalloc}, {} bytes, {cpus}{bulk}{node}",
        run.pattern, run.object_bytes
    )
}
