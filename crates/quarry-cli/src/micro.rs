//! `quarry run micro`: the micro-benchmarks of kernel developers, in simulated time.

use quarry_core::design::Design;
use quarry_lab::DesignSpec;
use quarry_lab::design::ForDesign;
use quarry_machines::Draw;
use quarry_work::micro::{self, MicroReport, MicroSpec, Pattern};
use quarry_work::{Tuning, WorkError};
use serde::Serialize;

use crate::machine_args::MachineArgs;
use crate::{error, output, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What CPUs do: batch, pair, cross, bulk.
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
    /// Page size: 4k, 16k, 64k.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = units::parse_page_bytes,
        default_value = "4k"
    )]
    page_size: u64,
    /// Memory of each virtual machine. Only what is used becomes resident.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "16G")]
    memory: u64,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print JSON: one object, with what the time went into.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Patterns:
  batch  each CPU allocates --count objects, then frees them
  pair   each CPU allocates an object and frees it, --count times
  cross  each CPU allocates --count objects, which its neighbour frees
  bulk   each CPU allocates and frees --bulk objects a call

Times are those of an operation on its CPU (a pair of them with pair and bulk,
where they are an object's share). Lines moved and lock waits are of an object's
allocation and free together. docs/time.md tells what is simulated and how.

Exit codes:
  0 done; 1 failed; 2 wrong usage

Examples:
  quarry run micro
  quarry run micro --pattern batch --size 8,256,4096 --design slub@3.18
  quarry run micro --pattern cross --cpus 2,12,24
  quarry run micro --pattern bulk --bulk 1,16,128 --machine milan-2x64
  quarry run micro --json | jq '.runs[] | [.design, .alloc.ns, .causes.locks]'";

#[derive(Serialize)]
struct Report<'a> {
    workload: &'static str,
    runs: &'a [MicroReport],
}

/// A run on a design.
struct Run {
    design: DesignSpec,
    spec: MicroSpec,
}

impl ForDesign for &Run {
    type Output = Result<MicroReport, WorkError>;

    fn run<D: Design>(self) -> Self::Output {
        micro::run::<D>(&self.spec)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runs = runs(args)?;
    output::note_eras(runs.iter().map(|run| run.spec.era));
    let reports =
        quarry_work::run_all(&runs, args.machine.jobs(), |run| run.design.design.run(run))?;
    if args.json {
        let report = Report {
            workload: "micro",
            runs: &reports,
        };
        return output::print_json("run micro", &report);
    }
    let machine = args.machine.machine()?;
    output::print_text(&text(&reports, &machine.about))
}

fn runs(args: &Args) -> anyhow::Result<Vec<Run>> {
    let machine = args.machine.machine()?;
    let designs = args.design.iter().map(|text| DesignSpec::parse(text));
    let designs: Vec<DesignSpec> = designs.collect::<Result<_, _>>()?;
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
                for &design in &designs {
                    let spec = MicroSpec {
                        pattern,
                        object_bytes,
                        count: args.count,
                        bulk,
                        cpus,
                        rounds: args.rounds,
                        page_bytes: args.page_size,
                        memory_bytes: args.memory,
                        era: design.era,
                        tuning: Tuning::default(),
                        machine: machine.clone(),
                        draw: Draw::VALUES,
                        seed: args.machine.seed,
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

/// A table for each pattern.
fn text(reports: &[MicroReport], about: &str) -> String {
    let mut text = format!("{about}\n");
    for runs in reports.chunk_by(|a, b| a.pattern == b.pattern) {
        let Some(first) = runs.first() else { continue };
        let apart = first.free.is_some();
        let bulk = runs.iter().any(|run| run.bulk > 1);
        let mut header = vec!["design", "bytes", "CPUs"];
        if bulk {
            header.push("a call");
        }
        header.extend(match apart {
            true => ["alloc\nns", "\ncycles", "free\nns", "\ncycles"].as_slice(),
            false => ["pair\nns", "\ncycles"].as_slice(),
        });
        header.extend(["Mops\n/s", "lock\nwait ns", "lines of\nCPUs", "\nmemory"]);
        let mut table = output::grid(&header, &[]);
        for run in runs {
            let mut row = vec![
                format!("{}@{}", run.design, run.era),
                run.object_bytes.to_string(),
                run.cpus.to_string(),
            ];
            if bulk {
                row.push(run.bulk.to_string());
            }
            let phases = [Some(run.alloc), run.free];
            for phase in phases.iter().flatten() {
                row.push(format!("{:.1}", phase.ns));
                row.push(format!("{:.0}", phase.cycles));
            }
            // An allocation and its free, whether apart or not.
            let seconds: f64 = phases
                .iter()
                .flatten()
                .map(|phase| 1.0 / phase.per_second)
                .sum();
            row.push(format!("{:.2}", 1e-6 / seconds));
            row.push(format!("{:.1}", run.causes.lock_wait_ns()));
            row.push(format!("{:.2}", run.causes.lines.between_cpus()));
            row.push(format!(
                "{:.2}",
                run.causes.lines.memory.iter().sum::<f64>()
            ));
            table.add_row(row);
        }
        text += &format!("\n{}\n{table}\n", first.pattern);
    }
    text
}
