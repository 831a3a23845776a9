//! `quarry sweep`: one question about many inputs under many settings.

pub(crate) mod status;
pub(crate) mod view;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches};
use quarry_ask::{Door, Field};
use quarry_lab::ask::Ask;
use quarry_sweep::{Done, Folder, Options, Plan, Shard, Sweep, free_bytes, version};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::commands::report::sweep as pages;
use crate::commands::sweep::status::{Failing, Missing};
use crate::error::usage;
use crate::jobs::JobsArgs;
use crate::terminal::{self, Show};
use crate::units::{bytes, count, counted, duration};
use crate::{output, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A plan of TOML, whose keys are the options below without dashes. Options replace its keys. Its paths are relative to
    /// its folder.
    #[arg(value_name = "PLAN", conflicts_with_all = ["status", "merge"])]
    plan: Option<PathBuf>,
    /// Folder for the rows. If rows of the same sweep are there, it goes on.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Question: what-if, replay, "replay --time", "run hackbench", "run tbench", "run tcp_rr", "run will-it-scale" or "run micro". [default: what-if]
    #[arg(long, value_name = "COMMAND")]
    ask: Option<String>,
    /// Files, folders and patterns, as the command of the question reads them; may be repeated. A folder that is no
    /// snapshot stands for all that is in it.
    #[arg(long, value_name = "PATH")]
    input: Vec<String>,
    #[command(flatten)]
    axes: Axes,
    /// Write a row for each cache of each run, too: caches-*.parquet.
    #[arg(long)]
    caches: bool,
    /// Run one of N parts, I from 0 to N - 1: for job arrays of a cluster.
    #[arg(long, value_name = "I/N")]
    shard: Option<String>,
    /// Run cells again whose rows have errors.
    #[arg(long)]
    retry: bool,
    /// Memory that all running cells may need together; three quarters of the free memory by default.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    max_memory: Option<u64>,
    #[command(flatten)]
    jobs: JobsArgs,
    /// Print the number of cells and an estimate of time and memory, and run nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print how far the sweep in a folder is: inputs without rows, errors, and files that do not count.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["merge", "dry_run", "output"])]
    status: Option<PathBuf>,
    /// Write all rows in a folder to results.parquet there, ordered by input and settings, and the rows of caches and costs
    /// to files of their own.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dry_run", "output"])]
    merge: Option<PathBuf>,
    /// Print JSON (quarry explain --all).
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A cell is one input with one value of each option that has a list. It is known by
a hash of the contents of the input and the machine's file, the settings, the
seed and the version of Quarry. Its rows appear in DIR/part-*.parquet, some
hundred cells at a time, each file when it is whole: a run that is killed goes
on where it was when it is started again, and several processes may work in one
folder. A cell that fails is a row with its error. The same sweep gives the same
bytes with any number of threads and parts. What a cell took is in
costs-*.parquet.
pandas, polars and DuckDB read the files; quarry report DIR --html makes a page.

Exit codes:
  0 every cell has a row (of some it may be an error, which is said); 1 all
  cells failed, a file cannot be read or the folder not be made; 2 wrong usage;
  3 some rows could not be written, as of a full disk

Examples:
  quarry sweep --input 'hosts/*.tar.xz' --release 6.12,6.18,7.3 -o upgrade
  quarry sweep --input fleet/ --page-size 4k,64k --set slub_max_order=0..3 -o orders
  quarry sweep plan.toml -o out --dry-run
  quarry sweep plan.toml -o out && quarry sweep --merge out
  quarry sweep plan.toml -o out --shard $SLURM_ARRAY_TASK_ID/100
  quarry sweep --ask 'replay --time' --input kv --design slub@6.17,sheaf@7.0 --seed 1..8 -o seeds
  quarry sweep --ask 'run tbench' --clients 1,8,16 --design slub@6.17,sheaf@7.0 --draw 0..5 -o draws
  duckdb -c \"select input, design, predicted_bytes from 'upgrade/part-*.parquet'\"

A plan:
  ask = \"what-if\"
  input = [\"hosts/*.json\", \"boot.json.gz\"]
  release = [\"6.12\", \"7.3\"]
  page-size = [\"4k\", \"64k\"]
  [set]
  slub_max_order = \"0..3\"";

/// Options of the axes, one for each key of a plan.
struct Axes(Map<String, Value>);

/// The fields of all questions, each with the questions that have it.
fn all_fields() -> Vec<(Field, Vec<&'static str>)> {
    let mut all: Vec<(Field, Vec<&'static str>)> = Vec::new();
    for ask in Ask::all() {
        for field in ask.fields() {
            match all.iter_mut().find(|(of, _)| of.name == field.name) {
                Some((_, asks)) => asks.push(ask.name()),
                None => all.push((field, vec![ask.name()])),
            }
        }
    }
    all
}

impl clap::Args for Axes {
    fn augment_args(command: clap::Command) -> clap::Command {
        let arg = |(field, asks): &(Field, Vec<&str>)| {
            let name = field.spelled(Door::Plan);
            let about = field.about();
            let about = about.split("\n\n").next().unwrap_or_default();
            let arg = Arg::new(field.name).long(name).action(ArgAction::Append);
            let arg = arg.help(format!("{about} [{}]", asks.join(", ")));
            match field.whole {
                true => arg.value_name("VALUE"),
                false => arg.value_name("VALUE,...").value_delimiter(','),
            }
        };
        command.args(all_fields().iter().map(arg))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Axes {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = all_fields().into_iter().filter_map(|(field, _)| {
            let values = matches.get_many::<String>(field.name)?;
            let values: Vec<&String> = values.collect();
            Some((field.name.to_string(), json!(values)))
        });
        Ok(Self(values.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Fields of `sweep --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report {
    /// Version that rows are kept under.
    pub(crate) version: &'static str,
    /// Folder of the rows; null with `--dry-run` and no folder.
    pub(crate) folder: Option<String>,
    /// Inputs, those of the same content once; 0 with `--status` and `--merge`.
    pub(crate) inputs: usize,
    /// Cells of the sweep, or of this part of it; with `--status` and `--merge` of the sweep that ran last.
    pub(crate) cells: usize,
    /// Cells that had rows before; with `--status` and `--merge` all that have rows.
    pub(crate) present: usize,
    /// Cells whose rows have errors.
    pub(crate) failed: usize,
    /// Estimate of what is to be run; null unless asked for.
    pub(crate) estimate: Option<Estimated>,
    /// Files that were written by `--merge`, with their rows.
    pub(crate) files: BTreeMap<String, usize>,
    /// With `--status` the inputs that have cells without a row.
    pub(crate) missing: Vec<Missing>,
    /// With `--status` the errors of failed cells, most cells first.
    pub(crate) errors: Vec<Failing>,
    /// Sentences about inputs of the same content, rows of other versions, and damaged or unfinished files.
    pub(crate) notes: Vec<String>,
}

/// Estimate of a sweep.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Estimated {
    /// Seconds of one CPU, by the speed of one machine: another may take half or twice as long.
    cpu_seconds: f64,
    /// Most bytes that one chunk may need, from above.
    chunk_bytes: u64,
    /// Chunks.
    chunks: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.status {
        return status::run(path, args.json);
    }
    if let Some(path) = &args.merge {
        return merge(args, &Folder::open(path)?);
    }
    let shard = args.shard.as_deref().map(str::parse::<Shard>);
    let options = Options {
        jobs: NonZeroUsize::new(args.jobs.jobs()),
        shard: shard.transpose()?,
        memory_bytes: args.max_memory,
        retry: args.retry,
    };
    let sweep = Sweep::of(&args.plan()?, args.caches)?;
    let same = sweep.inputs.same.iter();
    let mut notes: Vec<String> = same
        .map(|(name, first)| format!("{name} has the content of {first}, and is asked once"))
        .collect();
    if args.dry_run {
        return dry_run(args, &sweep, &options, notes);
    }
    let Some(path) = &args.output else {
        return Err(usage(
            "-o names the folder for the rows; --dry-run prints the size of the sweep",
        ));
    };
    let folder = Folder::create(path, &sweep)?;
    let left = sweep.left(&folder, &options)?;
    notes.extend(of_folder(&left.done));
    notes.iter().for_each(|text| terminal::note(text));
    let bar = terminal::progress_bar("sweep", left.cells as u64, "cells");
    bar.inc(left.present() as u64);
    let stop = AtomicBool::new(false);
    let outcome = left.execute(&folder, &options, &stop, &|_| bar.inc(1));
    bar.finish_and_clear();
    let outcome = outcome?;
    match args.json {
        true => output::print_json(
            "sweep",
            &Report {
                inputs: sweep.inputs.all.len(),
                cells: outcome.cells,
                present: outcome.present,
                failed: outcome.failed,
                notes,
                ..Report::of(Some(path))
            },
        )?,
        false => {
            let rows = pages::results(&folder)?;
            let has_rows = rows.is_some();
            let view = view::view(&outcome, rows)?;
            let folder = path.display();
            let hint = format!(
                "rows: {folder}/part-*.parquet; quarry sweep --merge {folder} writes them to one file, quarry report \
                 {folder} --html draws them"
            );
            let show = Show {
                hint: if has_rows { &hint } else { "" },
                ..Show::default()
            };
            terminal::print_view(&view, show)?;
        }
    }
    match outcome.failed > 0 && outcome.failed == outcome.cells {
        true => Err(anyhow!(
            "{} failed, and no other; the rows have the errors",
            counted(outcome.cells, "cell")
        )),
        false => Ok(()),
    }
}

impl Report {
    /// A report of nothing yet.
    pub(crate) fn of(folder: Option<&Path>) -> Self {
        Self {
            version: version(),
            folder: folder.map(|path| path.display().to_string()),
            inputs: 0,
            cells: 0,
            present: 0,
            failed: 0,
            estimate: None,
            files: BTreeMap::new(),
            missing: Vec::new(),
            errors: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Args {
    /// The plan of the file, with the options in place of its keys.
    fn plan(&self) -> anyhow::Result<Plan> {
        let mut plan = match &self.plan {
            Some(path) => Plan::read(path)?,
            None => Plan::new(Ask::WHAT_IF),
        };
        let mut given = self.axes.0.clone();
        if let Some(ask) = &self.ask {
            given.insert("ask".to_string(), ask.clone().into());
        }
        if !self.input.is_empty() {
            given.insert("input".to_string(), self.input.clone().into());
        }
        plan.add(given, Path::new(""))?;
        Ok(plan)
    }
}

fn dry_run(
    args: &Args,
    sweep: &Sweep,
    options: &Options,
    notes: Vec<String>,
) -> anyhow::Result<()> {
    let (present, chunks) = match args.output.as_deref().filter(|path| path.exists()) {
        Some(path) => {
            let left = sweep.left(&Folder::open(path)?, options)?;
            (left.present(), left.chunks)
        }
        None => (0, sweep.chunks(options.shard)),
    };
    let estimate = sweep.estimate(&chunks);
    let free = options.memory_bytes.unwrap_or_else(free_bytes);
    let jobs = args.jobs.jobs();
    if args.json {
        return output::print_json(
            "sweep",
            &Report {
                inputs: sweep.inputs.all.len(),
                cells: present + estimate.cells,
                present,
                estimate: Some(Estimated {
                    cpu_seconds: estimate.cpu_seconds,
                    chunk_bytes: estimate.chunk_bytes,
                    chunks: estimate.chunks,
                }),
                notes,
                ..Report::of(args.output.as_deref())
            },
        );
    }
    notes.iter().for_each(|text| terminal::note(text));
    let seconds = estimate.cpu_seconds / jobs.max(1) as f64;
    terminal::print_text(&format!(
        "{}: {} with {}; {} have rows already\n\
         time: {} to {} on {jobs} threads, by the speed of one machine\n\
         memory: up to {} for each thread; all together keep below {}\n",
        counted(sweep.cells.len(), "cell"),
        counted(sweep.inputs.all.len(), "input"),
        counted(sweep.cells.len() / sweep.inputs.all.len().max(1), "setting"),
        count(present as u64),
        duration(seconds / 2.0),
        duration(seconds * 2.0),
        bytes(estimate.chunk_bytes),
        bytes(free),
    ))
}

/// Sentences about files that a sweep does not use.
pub(crate) fn of_folder(done: &Done) -> Vec<String> {
    let others = done.others.iter().map(|(version, files)| {
        format!(
            "{files} files of rows are of Quarry {version}, this is {}: they stay, and their cells are run again",
            quarry_sweep::version()
        )
    });
    let damaged = done
        .damaged
        .iter()
        .map(|path| format!("{} is damaged: its cells are run again", path.display()));
    others.chain(damaged).collect()
}

fn merge(args: &Args, folder: &Folder) -> anyhow::Result<()> {
    let merged = folder.merge()?;
    let notes = of_folder(&merged.done);
    let files = merged.files.iter();
    let files = files.map(|(path, rows)| (path.display().to_string(), *rows));
    if args.json {
        return output::print_json(
            "sweep",
            &Report {
                cells: folder.mark().cells,
                present: merged.done.ok.len() + merged.done.failed.len(),
                failed: merged.done.failed.len(),
                files: files.collect(),
                notes,
                ..Report::of(args.merge.as_deref())
            },
        );
    }
    notes.iter().for_each(|text| terminal::note(text));
    let lines = files.map(|(path, rows)| format!("{path}: {} rows\n", count(rows as u64)));
    terminal::print_text(&lines.collect::<String>())
}
