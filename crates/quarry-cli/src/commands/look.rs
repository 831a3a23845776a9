//! `quarry look`: the first answer about a kernel's slab memory, on one screen.

use std::ffi::OsString;

use anyhow::Context;
use quarry_ask::Asked;
use quarry_lab::LabError;
use quarry_lab::ask;
use quarry_lab::look::{self, Answer, Bare, Look};
use quarry_snapshot::Snapshot;
use schemars::JsonSchema;
use serde::Serialize;

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
    #[command(flatten)]
    asked: Asked<ask::Look, false>,
    /// Number of caches to print: those with most bytes.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    page: output::PageArgs,
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
  0 done; 1 a file cannot be read, or is a trace without snapshots; 2 wrong usage

Examples:
  sudo quarry look
  quarry look now.json
  quarry look monday.json tuesday.json wednesday.json
  quarry look boot.json.gz --stage boot,later
  quarry look monday.json tuesday.json wednesday.json --html week.html
  quarry look post.txt          slabtop, slabinfo or an OOM report in a mail or a log
  quarry look dmesg.txt         why a page allocation failed, or a task was killed
  quarry look mine.parquet --json";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.page.check(args.json)?;
    let snapshots = snapshots(&args.files, &question::of(&args.asked)?)?;
    if let Some(answer) = Bare::of(&snapshots) {
        return print(
            args,
            &answer,
            "`quarry explain NAME` says what a column means.",
        );
    }
    let look = Look::of(&snapshots)?;
    let answer = Answer::of(&look, &snapshots).context("there is no snapshot")?;
    let hint = "`quarry what-if` asks for more, `quarry explain NAME` says what a column means.";
    print(args, &answer, hint)
}

fn print(
    args: &Args,
    answer: &(impl JsonSchema + Serialize),
    hint: &'static str,
) -> anyhow::Result<()> {
    let view = output::viewed("look", answer, look::view, &args.page)?;
    match args.json {
        true => output::print_json("look", answer),
        false if args.page.is_stdout() => Ok(()),
        false => {
            let show = Show {
                rows: Some(args.top),
                hint,
                ..Show::default()
            };
            terminal::print_view(&view, show)
        }
    }
}

/// Reads the snapshots: of each file, or of this computer.
fn snapshots(files: &[OsString], asked: &ask::Look) -> anyhow::Result<Vec<Snapshot>> {
    let inputs: Vec<_> = files
        .iter()
        .map(|file| ("FILE", Some(file.as_ref())))
        .collect();
    input::check_one_stdin(&inputs)?;
    if files.is_empty() {
        if !asked.stage.is_empty() || !asked.at.is_empty() {
            return Err(usage("--stage and --at need a FILE"));
        }
        let now = Snapshot::now().map_err(LabError::from)?.with_blocks();
        return Ok(vec![asked.known.applied(now)?]);
    }
    if files.iter().any(|file| file == "-") && asked.stage.all().len() > 1 {
        return Err(usage("stdin is read once: give one --stage"));
    }
    let mut snapshots = Vec::new();
    for file in files {
        snapshots.extend(asked.snapshots(|stage| input::source(file, stage))?);
    }
    look::prepare(&mut snapshots);
    Ok(snapshots)
}
