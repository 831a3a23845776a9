//! `quarry run micro`: the micro-benchmarks of kernel developers, in simulated time.

use quarry_designs::{DesignSpec, Setting, resolve};
use quarry_machines::Machine;
use quarry_sim::time::TimeCounters;
use quarry_work::WorkError;
use quarry_work::micro::{MicroReport, MicroSpec, Pattern};
use quarry_work::sensitivity::{Arm, Figure, First};

use crate::experiment::{Command, Experiment, Progress};
use crate::machine_args::TimedArgs;
use crate::output::{self, Asked};
use crate::{error, micro_tables, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Patterns: batch, pair, cross, spread, bulk.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "batch,pair"
    )]
    pattern: Vec<String>,
    /// Designs, each with an era.
    #[arg(
        long,
        value_name = "DESIGN[@ERA],...",
        value_delimiter = ',',
        default_value = "slab@6.1,slob@6.1,slub@6.18,sheaf@7.0"
    )]
    design: Vec<String>,
    /// Bytes of an object.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        value_parser = units::parse_bytes,
        default_value = "256"
    )]
    size: Vec<u64>,
    /// Allocate with kmalloc() of the size, as slab_test does, and not from a cache of this size.
    /// Not with pattern bulk.
    #[arg(long)]
    kmalloc: bool,
    /// CPUs that do it at the same time, all on one cache.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    cpus: Vec<u32>,
    /// Objects that each CPU allocates and frees in a round.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    count: u32,
    /// Objects of a call, for pattern bulk: 1 to 1024.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "16"
    )]
    bulk: Vec<u32>,
    /// Rounds that are counted, after one that fills caches and lists.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Set a tunable; may be repeated. For one design: slub.cpu_partial=0, slub@6.1.cpu_partial=0;
    /// a sysctl of the page allocator: page.min_free_kbytes=8192.
    #[arg(long = "set", value_name = "[DESIGN[@ERA].]NAME=VALUE")]
    settings: Vec<String>,
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
  quarry run micro --pattern pair --sensitivity
  quarry run micro --json | jq '.runs[] | [.design, .alloc.ns, .causes.locks]'";

/// A run on a design.
#[derive(Clone)]
struct Run {
    design: DesignSpec,
    spec: MicroSpec,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let machine = args.timed.machine.machine()?;
    let runs = runs(args, &machine)?;
    output::note_eras(runs.iter().map(|run| run.spec.setup.era));
    output::note_cpus(&machine, runs.iter().map(|run| run.spec.cpus));
    let command = Command {
        name: "micro",
        machine: &machine,
        args: &args.timed,
        settings: Asked {
            set: &args.settings,
            at: None,
            heap: None,
        },
    };
    let reports = command.run_all(&Micro, &runs)?;
    command.print(&Micro, &runs, &reports, |groups| {
        micro_tables::text(&reports, groups)
    })
}

/// Figure that orders designs: millions of objects per second.
const THROUGHPUT: &str = "mops";

/// The experiment.
struct Micro;

impl Experiment for Micro {
    type Run = Run;
    type Report = MicroReport;
    type Error = WorkError;

    const ORDER: (&'static str, First) = (THROUGHPUT, First::Most);

    fn in_arm(run: &Run, arm: &Arm) -> Run {
        let mut run = run.clone();
        run.spec.setup = run.spec.setup.in_arm(arm);
        run
    }

    fn run(&self, run: &Run, progress: Progress<'_>) -> Result<MicroReport, WorkError> {
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
        (micro_tables::about(report), name)
    }
}

fn runs(args: &Args, machine: &Machine) -> anyhow::Result<Vec<Run>> {
    let designs = args.design.iter().map(|text| DesignSpec::parse(text));
    let designs: Vec<DesignSpec> = designs.collect::<Result<_, _>>()?;
    let settings = args.settings.iter().map(|text| Setting::parse(text));
    let settings: Vec<Setting> = settings.collect::<Result<_, _>>()?;
    let tunings = resolve(&settings, &designs)?;
    let mut runs = Vec::new();
    for name in &args.pattern {
        let pattern = pattern(name)?;
        let bulks = match pattern {
            Pattern::Bulk => args.bulk.as_slice(),
            _ => &[1],
        };
        for (&size, &cpus) in args
            .size
            .iter()
            .flat_map(|size| args.cpus.iter().map(move |cpus| (size, cpus)))
        {
            let object_bytes = u32::try_from(size)
                .map_err(|_| error::usage(format!("{size} bytes: too large for an object")))?;
            for &bulk in bulks {
                for (&design, tuning) in designs.iter().zip(&tunings) {
                    let spec = MicroSpec {
                        pattern,
                        object_bytes,
                        kmalloc: args.kmalloc,
                        count: args.count,
                        bulk,
                        cpus,
                        rounds: args.rounds,
                        setup: args.timed.setup(design.era, tuning, machine),
                    };
                    spec.config()?;
                    runs.push(Run { design, spec });
                }
            }
        }
    }
    Ok(runs)
}

fn pattern(name: &str) -> anyhow::Result<Pattern> {
    let found = Pattern::ALL.iter().find(|(_, known)| *known == name);
    found.map(|(pattern, _)| *pattern).ok_or_else(|| {
        let known = Pattern::ALL.map(|(_, name)| name).join(", ");
        error::usage(format!(
            "there is no pattern {name:?}; patterns are {known}"
        ))
    })
}
