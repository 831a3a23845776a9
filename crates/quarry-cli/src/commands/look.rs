//! `quarry look`: the first answer about a kernel's slab memory, on one screen.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use quarry_ask::Asked;
use quarry_lab::LabError;
use quarry_lab::ask::{self, Known, Source};
use quarry_lab::look::{self, Answer, Look};
use quarry_snapshot::Snapshot;

use crate::error::usage;
use crate::terminal::{self, Show};
use crate::{input, output, question};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Snapshots, oldest first: of `quarry snapshot`, or any file of docs/inputs.md, such as slabinfo or a sosreport; or
    /// traces that have snapshots; `-` reads stdin. Without any, this computer.
    #[arg(value_name = "FILE")]
    files: Vec<OsString>,
    /// Stage of a recorded boot; the first by default. A list has a snapshot for each.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    stage: Vec<String>,
    #[command(flatten)]
    known: Asked<Known>,
    /// Number of caches to print: those with most bytes.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Write a page with bars and charts as well, which needs no network. `-` is stdout.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    force: output::Force,
    /// Print all of it as JSON (quarry explain --all).
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
What it says of one snapshot: how much slab memory there is, in which caches, and
why; what shrinking the caches, or dropping what can be reclaimed, would give
back; and what other releases, pages and orders of slabs would need. The parts
add up to slabinfo's bytes. What CPUs hold is estimated, as no kernel counts it;
a snapshot of drgn has it (docs/inputs.md).

Of several snapshots, or a trace with two, it says what grew from the first to
the last: objects (a leak, if it goes on and they cannot be reclaimed) or the
allocator's own stock of places.

Exit codes:
  0 done; 1 a file cannot be read; 2 wrong usage, or a trace without snapshots

Examples:
  sudo quarry look
  quarry look now.json
  quarry look monday.json tuesday.json wednesday.json
  quarry look boot.json.gz --stage boot,later
  quarry look monday.json tuesday.json wednesday.json --html week.html
  quarry look mine.parquet --json";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.html {
        output::check_page(path, args.json, args.force)?;
    }
    let snapshots = snapshots(args)?;
    let known = question::of(&args.known)?;
    let snapshots = snapshots.into_iter().map(|one| known.applied(one));
    let snapshots = snapshots.collect::<Result<Vec<_>, _>>()?;
    for snapshot in &snapshots {
        ask::check_slabs(snapshot, "a look")?;
    }
    let look = Look::of(&snapshots)?;
    let answer = Answer::of(&look, &snapshots).context("there is no snapshot")?;
    let html = args.html.as_deref();
    let view = output::viewed("look", &answer, look::view, html, args.force)?;
    match args.json {
        true => output::print_json("look", &answer),
        false if html.is_some_and(output::is_stdout) => Ok(()),
        false => {
            let show = Show {
                rows: Some(args.top),
                hint: "`quarry what-if` asks for more, `quarry explain NAME` says what a column means.",
                ..Show::default()
            };
            terminal::print(&view, show)
        }
    }
}

/// Reads the snapshots: of each file, or of this computer.
fn snapshots(args: &Args) -> anyhow::Result<Vec<Snapshot>> {
    let inputs: Vec<_> = args
        .files
        .iter()
        .map(|file| ("FILE", Some(file.as_ref())))
        .collect();
    input::check_one_stdin(&inputs)?;
    if args.files.is_empty() {
        if !args.stage.is_empty() {
            return Err(usage(
                "--stage is for the files of recorded boots".to_string(),
            ));
        }
        return Ok(vec![Snapshot::now().map_err(LabError::from)?]);
    }
    let mut stages: Vec<Option<&str>> = args.stage.iter().map(|name| Some(name.as_str())).collect();
    if stages.is_empty() {
        stages.push(None);
    }
    if args.files.iter().any(|file| file == "-") && stages.len() > 1 {
        return Err(usage("stdin is read once: give one --stage".to_string()));
    }
    let mut snapshots = Vec::new();
    for file in &args.files {
        for stage in &stages {
            match input::source(file, *stage)? {
                Source::Snapshot(_) if stage.is_none() && file != "-" => {
                    // Some forms have several moments.
                    let all = Snapshot::read_all(Path::new(file)).map_err(LabError::from)?;
                    snapshots.extend(all);
                }
                Source::Snapshot(mut snapshot) => {
                    if let Some(stage) = &snapshot.stage {
                        snapshot.file = format!("{}, stage {stage}", snapshot.file);
                    }
                    snapshots.push(*snapshot);
                }
                Source::Trace(input) => snapshots.extend(of_trace(&input)?),
            }
        }
    }
    Ok(snapshots)
}

fn of_trace(input: &quarry_lab::replay::input::Input) -> anyhow::Result<Vec<Snapshot>> {
    let found = input.snapshots()?;
    match found.is_empty() {
        false => Ok(found),
        true => Err(usage(format!(
            "{} has no snapshot: record it with quarry record, or add one with quarry filter --before and --after",
            input.name
        ))),
    }
}
