//! `quarry run pages`: processes that fault and exit, in simulated time.

use quarry_core::design::Design as _;
use quarry_core::era::Era;
use quarry_core::slub::Slub;
use quarry_designs::{DesignSpec, Setting, parse_era, resolve};
use quarry_machines::Machine;
use quarry_sim::time::TimeCounters;
use quarry_work::pages::{self, PagesReport, PagesSpec};
use quarry_work::sensitivity::{Arm, Figure, First};
use quarry_work::{Tuning, WorkError};

use crate::error;
use crate::experiment::{Command, Experiment, Progress};
use crate::machine_args::TimedArgs;
use crate::output::{self, Asked};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Processes, each on a CPU of its own.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,4,12"
    )]
    processes: Vec<u32>,
    /// Release of Linux with the page allocator to use: 2.6.22 or later.
    #[arg(
        long,
        value_name = "ERA,...",
        value_delimiter = ',',
        default_value = "4.13,6.18"
    )]
    era: Vec<String>,
    /// Pages that each process faults in and frees in a round.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pages: u32,
    /// Rounds that each process ends while counting, after one in step and one out of step.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Set a sysctl of the page allocator; may be repeated.
    #[arg(long = "set", value_name = "page.NAME=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    timed: TimedArgs,
}

const EXAMPLES: &str = "\
What processes do:
  Each maps memory, touches every page of it, and unmaps it, as page_fault1 of
  will-it-scale does. A fault enters the kernel, allocates a page of order 0 and
  fills it with zeros; the unmapping frees them all. Processes are out of step,
  each anywhere in its rounds. Page tables, reverse maps and the lists for
  reclaim are left out: the share of the zone lock is that of a kernel whose
  other locks cost nothing. docs/micro.md explains the columns.

Exit codes:
  0 done; 1 failed; 2 wrong usage; 3 the memory of a virtual machine was exhausted

Examples:
  quarry run pages
  quarry run pages --processes 1,24 --era 2.6.32,4.13,6.18
  quarry run pages --set page.percpu_pagelist_high_fraction=8 --era 6.18
  quarry run pages --machine milan-2x64 --processes 1,16,500
  quarry run pages --processes 12 --sensitivity
  quarry run pages --json | jq '.runs[] | [.era, .processes, .zone_wait]'";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let machine = args.timed.machine.machine()?;
    let runs = runs(args, &machine)?;
    output::note_eras(runs.iter().map(|run| run.setup.era));
    output::note_cpus(&machine, runs.iter().map(|run| run.processes));
    let command = Command {
        name: "pages",
        machine: &machine,
        args: &args.timed,
        settings: Asked {
            set: &args.settings,
            at: None,
            heap: None,
        },
    };
    let reports = command.run_all(&Pages, &runs)?;
    command.print(&Pages, &runs, &reports, |_| {
        format!("{}\n{}\n", finding(&reports), table(&reports))
    })
}

/// Figure that orders releases: millions of pages per second.
const THROUGHPUT: &str = "mpages";

/// The experiment.
struct Pages;

impl Experiment for Pages {
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
        (of(report.processes), report.era.to_string())
    }
}

/// `1 process`, `2 processes`.
fn of(processes: u32) -> String {
    match processes {
        1 => "1 process".to_string(),
        several => format!("{several} processes"),
    }
}

fn runs(args: &Args, machine: &Machine) -> anyhow::Result<Vec<PagesSpec>> {
    let eras: Result<Vec<Era>, _> = args.era.iter().map(|name| parse_era(name)).collect();
    let eras = eras?;
    let tunings = tunings(args, &eras)?;
    let mut runs = Vec::new();
    for &processes in &args.processes {
        for (&era, tuning) in eras.iter().zip(&tunings) {
            let spec = PagesSpec {
                processes,
                pages: args.pages,
                rounds: args.rounds,
                setup: args.timed.setup(era, tuning, machine),
            };
            spec.config()?;
            runs.push(spec);
        }
    }
    Ok(runs)
}

/// The sysctls of each release.
fn tunings(args: &Args, eras: &[Era]) -> anyhow::Result<Vec<Tuning>> {
    let settings = args.settings.iter().map(|text| Setting::parse(text));
    let settings: Vec<Setting> = settings.collect::<Result<_, _>>()?;
    let texts = args.settings.iter().zip(&settings);
    if let Some((text, _)) = texts.clone().find(|(_, setting)| !setting.is_for_pages()) {
        return Err(error::usage(format!(
            "setting {text:?}: pages heed sysctls of the page allocator only; write page.NAME=VALUE"
        )));
    }
    // Sysctls are looked up beside a design; any that the release has will do.
    let designs = eras.iter().map(|era| match Slub::RELEASES.contains(era) {
        true => DesignSpec::parse(&format!("slub@{era}")),
        false => DesignSpec::parse(&format!("sheaf@{era}")),
    });
    let designs: Vec<DesignSpec> = designs.collect::<Result<_, _>>()?;
    Ok(resolve(&settings, &designs)?)
}

/// Zone-lock waits and throughput with the most processes, in a sentence for each release.
fn finding(reports: &[PagesReport]) -> String {
    let first = reports.first().map_or(0, |first| first.processes);
    let firsts = reports
        .iter()
        .take_while(|report| report.processes == first);
    let sentence = |few: &PagesReport| {
        let of_era = reports.iter().filter(|report| report.era == few.era);
        let many = of_era.max_by_key(|report| report.processes).unwrap_or(few);
        let times = match many.processes == few.processes {
            true => String::new(),
            false => {
                let times = many.per_second / few.per_second;
                format!(", {times:.1} times those of {}", of(few.processes))
            }
        };
        format!(
            "{}, {}: {:.0} % of the time are waits for the zone lock; {:.2} million pages a second{times}.\n",
            many.era,
            of(many.processes),
            many.zone_wait * 100.0,
            many.per_second / 1e6
        )
    };
    firsts.map(sentence).collect()
}

fn table(reports: &[PagesReport]) -> output::Grid {
    let header = [
        "number,\nera",
        "fault\nns",
        "free\nns",
        "Mpages\n/s",
        "wait\n%",
        "faults:\nheld\nns",
        "\nwait\nns",
        "frees:\nheld\nns",
        "\nwait\nns",
    ];
    let mut table = output::grid(&header, &[]);
    for run in reports {
        table.add_row([
            format!("{}, {}", run.processes, run.era),
            format!("{:.1}", run.fault.ns),
            format!("{:.1}", run.free.ns),
            format!("{:.2}", run.per_second / 1e6),
            format!("{:.1}", run.zone_wait * 100.0),
            format!("{:.1}", run.fault_lock.hold_ns),
            format!("{:.1}", run.fault_lock.wait_ns),
            format!("{:.1}", run.free_lock.hold_ns),
            format!("{:.1}", run.free_lock.wait_ns),
        ]);
    }
    table
}
