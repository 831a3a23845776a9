//! `quarry run --preload`: a program of this computer on several allocators, in turns.

mod arms;
mod child;
mod recording;
mod runs;
pub(crate) mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::terminal::{self, Show};
use crate::{error, output, signals, units};
use arms::Arm;
use runs::{HeapReport, Program, RunReport, Runner, What};

/// Arguments.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Run PROGRAM with its malloc on each of the designs, and on the C library's, in turns.
    #[arg(long, requires = "program")]
    pub(crate) preload: bool,
    /// Designs, each with a release after @ if not its newest.
    #[arg(
        long,
        value_name = "DESIGN[@ERA],...",
        value_delimiter = ',',
        default_value = "magazine,sheaf,slub,slab,slubq,slob",
        requires = "preload"
    )]
    design: Vec<String>,
    /// Rounds; each runs the program once on every allocator.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "preload")]
    rounds: u32,
    /// End a run after this time (90s, 5m); an allocator that does not end in time is left out from then on.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, requires = "preload")]
    timeout: Option<Duration>,
    /// The library to preload, if it is not beside this command.
    #[arg(long, value_name = "FILE", requires = "preload")]
    library: Option<PathBuf>,
    /// Another malloc to run beside, a library to preload; may be repeated. mimalloc and jemalloc are found by themselves
    /// where they are installed.
    #[arg(long, value_name = "FILE", requires = "preload")]
    beside: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long, requires = "preload")]
    json: bool,
    /// Run the program once more, on sheaves, and write what it allocates and frees as a trace for `quarry replay`
    /// (Parquet). Of several processes, that with most calls is recorded.
    #[arg(long, value_name = "OUT.parquet", requires = "preload")]
    record: Option<PathBuf>,
    #[command(flatten)]
    force: output::Force,
    /// The program and its arguments.
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) program: Vec<OsString>,
}

/// Examples of this way to run, for the help of `quarry run`.
pub(crate) const EXAMPLES: &str = "\
With --preload a program of this computer runs on the designs: its malloc is
libquarry_malloc.so, in rounds; a round runs it once on every allocator. Times
are compared with the C library's of the same round; the C library runs twice, and
what these two differ by is noise. One run before the rounds does not count. In one
more run on each design every process reports at its end what its heap holds; one
that ends by _exit or a signal reports nothing. Standard input is read once;
every run gets all of it. An interrupt ends the command after the run under way, a
second one at once.

Exit codes:
  0 done
  1 the program cannot be run, or ended otherwise on an allocator than in the first
    run on the C library
  2 wrong usage
  130 interrupted; rounds that had ended were printed

Examples:
  quarry run --preload -- python3 -c 'print(sum(range(10**6)))'
  quarry run --preload --design magazine,slub --rounds 5 -- git log --stat -200
  quarry run --preload --beside ./libmine.so --json -- sqlite3 my.db < my.sql
  quarry run --preload --record git.parquet -- git log --stat -200
  quarry replay git.parquet --design slub,sheaf --page-size 4k,64k";

/// Output of `quarry run --preload --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PreloadOutput {
    /// The program and its arguments.
    pub(super) program: Vec<String>,
    /// Its exit code on the C library's malloc, which the others' runs need to have, too.
    pub(super) exit_code: i32,
    /// Rounds that ended.
    pub(super) rounds: u32,
    /// The allocators, the C library's first.
    pub(super) arms: Vec<ArmReport>,
}

/// All runs on one allocator.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ArmReport {
    /// The allocator: `glibc`, `glibc again`, a design with its release, or the name of a library.
    pub(super) allocator: String,
    /// Median of the runs' times in seconds; absent if none ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    /// Times in relation to the C library's of the same round: median, least and most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<Ratio>,
    /// Median of the CPU time in seconds, of the program and of the children that it waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_seconds: Option<f64>,
    /// Median of the most memory that the program, or a child that it waited for, had at a time, in bytes; absent if it is
    /// not clearly more than that of a program that does nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peak_bytes: Option<u64>,
    /// Reports of the processes of one more run, the one with most memory first; empty for other allocators.
    pub(super) processes: Vec<HeapReport>,
    /// The program's standard output was that of the first run on the C library, in all runs; absent if none ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) same_output: Option<bool>,
    /// Reason why the allocator was left out, such as a status or a timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
}

/// Values in relation to others.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct Ratio {
    /// The one in the middle.
    pub(super) median: f64,
    /// The least.
    pub(super) min: f64,
    /// The most.
    pub(super) max: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.rounds == 0 {
        return Err(error::usage("--rounds must be at least 1"));
    }
    if args.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(error::usage("--timeout must be greater than 0"));
    }
    if args.record.as_deref() == Some(Path::new("-")) {
        return Err(error::usage(
            "--record -: the tables go to stdout; name a file",
        ));
    }
    let [name, arguments @ ..] = args.program.as_slice() else {
        return Err(error::usage("--preload needs a program"));
    };
    let program = Program { name, arguments };
    if let Some(path) = &args.record {
        recording::check(path, args.force)?;
    }
    let arms = arms::arms(&args.design, args.library.as_deref(), &args.beside)?;
    let runner = Runner::new(program, args.timeout)?;
    let stop = signals::stop_between_runs()?;
    let designs = arms.iter().filter(|arm| arm.design.is_some()).count();
    let total = u64::from(args.rounds) * arms.len() as u64 + 1 + designs as u64;
    let bar = terminal::progress_bar("runs", total, "");
    let mut results: Vec<ArmRuns> = arms.into_iter().map(ArmRuns::new).collect();
    signals::before_end(child::end_for_good);
    // The first run reads files that later ones find in memory, so it does not count.
    let first = runner.run(None, &results[0].arm, What::Measure)?;
    bar.inc(1);
    let first = first.map_err(|failure| {
        let name = name.to_string_lossy();
        anyhow::anyhow!("{name} fails with the C library's malloc: {failure}")
    })?;
    let code = first.code;
    if code != 0 {
        let errors = match first.errors.is_empty() {
            true => String::new(),
            false => format!(" ({})", first.errors),
        };
        terminal::note(&format!(
            "exit code {code} with the C library's malloc{errors}; the others should have it, too"
        ));
    }
    let mut rounds = 0;
    let stopped = || stop.load(Ordering::Relaxed);
    'rounds: for round in 0..args.rounds as usize {
        // Each round begins with another allocator, so that none has the best place in all.
        for at in 0..results.len() {
            let at = (at + round) % results.len();
            let arm = &mut results[at];
            if stopped() {
                break 'rounds;
            }
            if arm.failed.is_none() {
                match runner.run(Some(code), &arm.arm, What::Measure)? {
                    Ok(run) => {
                        arm.same_output &= first.output == run.output;
                        arm.runs.push(run);
                    }
                    Err(failure) => arm.failed = Some(failure),
                }
            }
            bar.inc(1);
        }
        rounds += 1;
    }
    // Reports are runs of their own: writing one takes a time that grows with the heap.
    for arm in &mut results {
        if arm.arm.design.is_some() && arm.failed.is_none() && !stopped() {
            let run = runner.run(Some(code), &arm.arm, What::Report)?;
            arm.processes = run.map(|run| run.processes).unwrap_or_default();
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if rounds == 0 {
        return Err(error::interrupted(
            "interrupted before a round ended".to_owned(),
        ));
    }
    let reference: Vec<f64> = results[0].runs.iter().map(|run| run.seconds).collect();
    let output = PreloadOutput {
        program: program.words(),
        exit_code: code,
        rounds,
        arms: results.iter().map(|arm| arm.report(&reference)).collect(),
    };
    if args.json {
        output::print_json("run --preload", &output)?;
    } else {
        let doc = output::doc("run --preload", &output)?;
        let show = Show {
            hint: "`quarry explain NAME` says what a column means.",
            ..Show::default()
        };
        terminal::print_view(&view::view(&output, &doc), show)?;
    }
    let library = results.iter().find_map(|arm| {
        arm.arm
            .design
            .is_some()
            .then_some(arm.arm.library.as_ref()?)
    });
    if stopped() {
        let recorded = match &args.record {
            Some(path) => format!("; {} was not written", path.display()),
            None => String::new(),
        };
        return Err(error::interrupted(format!("interrupted{recorded}")));
    }
    if let (Some(path), Some(library)) = (&args.record, library) {
        recording::record(&runner, code, library, path, args.force)?;
    }
    let failed: Vec<&str> = output
        .arms
        .iter()
        .filter(|arm| arm.failed.is_some())
        .map(|arm| arm.allocator.as_str())
        .collect();
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(anyhow::anyhow!(
            "the program does not end as it should on {}",
            failed.join(", ")
        )),
    }
}

/// Runs on one allocator so far.
struct ArmRuns {
    arm: Arm,
    runs: Vec<RunReport>,
    processes: Vec<HeapReport>,
    same_output: bool,
    failed: Option<String>,
}

impl ArmRuns {
    fn new(arm: Arm) -> Self {
        Self {
            arm,
            runs: Vec::new(),
            processes: Vec::new(),
            same_output: true,
            failed: None,
        }
    }

    /// The runs together, compared with the reference's times by round.
    fn report(&self, reference: &[f64]) -> ArmReport {
        let median = |of: &dyn Fn(&RunReport) -> Option<f64>| {
            let mut values: Vec<f64> = self.runs.iter().filter_map(of).collect();
            values.sort_by(f64::total_cmp);
            (!values.is_empty()).then(|| units::median(&values))
        };
        let mut ratios: Vec<f64> = self
            .runs
            .iter()
            .zip(reference)
            .map(|(run, base)| run.seconds / base)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = match (ratios.first(), ratios.last()) {
            (Some(&min), Some(&max)) => Some(Ratio {
                median: units::median(&ratios),
                min,
                max,
            }),
            _ => None,
        };
        ArmReport {
            allocator: self.arm.name.clone(),
            seconds: median(&|run| Some(run.seconds)),
            ratio,
            cpu_seconds: median(&|run| Some(run.cpu_seconds)),
            peak_bytes: median(&|run| Some(run.peak_bytes? as f64)).map(|bytes| bytes as u64),
            processes: self.processes.clone(),
            same_output: (!self.runs.is_empty()).then_some(self.same_output),
            failed: self.failed.clone(),
        }
    }
}
