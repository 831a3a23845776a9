//! `quarry what-if`: a real kernel's slab memory under other settings or in another release.

use std::ffi::OsString;

use quarry_ask::Asked;
use quarry_lab::ask::WhatIf;
use quarry_lab::whatif::{self, SnapshotInfo};
use quarry_state::{Prediction, Question};
use quarry_view::frame::Frame;
use quarry_view::frame::schema::meanings;
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::several::{self, Kept};
use crate::terminal::{self, Show};
use crate::{input, output, question};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A snapshot: JSON of quarry snapshot, a copy of /proc/slabinfo, a folder or an archive, or any form in
    /// docs/inputs.md; `-` reads stdin. Or a trace that has snapshots, as `quarry record` keeps them.
    #[arg(value_name = "SNAPSHOT|TRACE")]
    snapshot: OsString,
    #[command(flatten)]
    asked: Asked<WhatIf>,
    /// Show every cache, not only those that change most.
    #[arg(long)]
    caches: bool,
    /// Print JSON (quarry explain --all); `runs` has a prediction each.
    #[arg(long)]
    json: bool,
    /// Print comma-separated values: a line for each prediction, or with --caches for each cache.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    page: output::Page,
}

const EXAMPLES: &str = "\
A snapshot is what `quarry snapshot` writes, or a folder with a copy of
/proc/slabinfo as slabinfo and of /sys/kernel/slab as slab/; beside them, if
wanted, files page_size, cpu_possible, cpu_present, kernel_release, cmdline and
meminfo, or meta.json with these keys. Without them release, page size and CPUs
are guessed from the slabs, and said to be guesses; --kernel, --had-cpus and
--had-page-size give what you know. sosreports, slabtop, node_exporter and
others are read, too (docs/inputs.md).

How it is predicted:
  Exact: the slabs of each cache under other settings have the size and objects
  that the design's formulas give; full slabs and the objects on nodes' partial
  lists are counted by the kernel.
  Estimated, because no snapshot tells: what CPUs use of the slabs they hold
  (the kernel counts all of it as used), from how many they have filled before;
  where objects lie in partial slabs, as if left over at random; how many CPUs
  would use a cache, from how many do. Other settings apply to the same live
  objects: what the kernel allocates for every CPU or page is not known.
  `low` and `high` put all of these at their best and worst, in all caches at
  once. Two boots of one machine differ by about 2 %.
  With --release, kernels from 7.0 on have sheaves and barns for all caches:
  what they keep after a load, which slabs that pins, and the sheaves' own
  memory are estimated. Tunables that both releases have stay. Differences of
  releases that are not computed widen the bounds and are named: memory groups'
  own caches (3.8 to 5.8), accounting vectors, arm64's smallest kmalloc class,
  objects that were made larger and caches that were added.
  Facts that the file does not tell are named, too; the bounds then hold for
  all that explains the slabs as well.
  Caches that cannot exist with other pages (kmalloc above the largest class,
  thread_stack with pages below its size) leave the slabs for the page
  allocator; the output gives their bytes.

Exit codes:
  0 done; 1 the file cannot be read or cannot answer: it has no slabs, is a trace
  without snapshots, of a 32-bit kernel, or of one that the formulas do not
  explain (--force); 2 wrong usage

Examples:
  quarry what-if now.json --release 7.3
  quarry what-if mine.parquet --at begin --page-size 64k
  quarry what-if now.json --set cpu_partial=0,6,13
  quarry what-if now.json --set slub_debug=FZP
  quarry what-if now.json --config SLAB_MERGE_DEFAULT=n --config MEMCG=n
  quarry what-if now.json --release 7.3 --set sheaf_capacity=4
  quarry what-if now.json --page-size 64k --html pages.html
  quarry what-if sosreport-host.tar.xz --release 6.12
  quarry what-if slabinfo --kernel 5.4 --had-cpus 16 --release 6.12
  quarry what-if boot.json.gz --stage boot --set slub_max_order=0
  quarry what-if now.json --cpus 2,16,64 --caches
  quarry what-if folder/ --design slub@5.9,slubq --page-size 4k,64k --json";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = question::of(&args.asked)?;
    // One option for both: an answer in spite of a bad fit, and over a page that exists.
    let page = &output::PageArgs {
        page: args.page.clone(),
        force: output::Force::given(asked.force.is_true()),
    };
    page.check(args.json || args.csv)?;
    // stdin is read once.
    let alone = [("--csv", args.csv), ("-", args.snapshot == "-")];
    several::answer(
        &asked,
        &alone,
        (args.json, page),
        (whatif::view, meanings::<Report<'_>>),
        (|view| view, show(args)),
        |asked, kept| one(args, page, asked, kept),
    )
}

/// Parts of a view that are printed.
fn show(args: &Args) -> Show<'_> {
    Show {
        rows: args.caches.then_some(usize::MAX),
        hint: "`quarry explain NAME` says what a column means.",
        ..Show::default()
    }
}

/// Answers one question.
fn one(args: &Args, page: &output::PageArgs, asked: &WhatIf, kept: Kept<'_>) -> anyhow::Result<()> {
    let questions = asked.questions()?;
    output::note_eras(questions.iter().filter_map(Question::era));
    let source = input::source(&args.snapshot, asked.stage.one().map(String::as_str))?;
    let snapshot = asked
        .known
        .applied(source.into_snapshot(asked.at.one().copied())?)?;
    let predictions = asked.ask(&snapshot)?;
    let report = Report {
        snapshot: SnapshotInfo::of(&snapshot),
        settings: output::Given::of(asked),
        finding: whatif::finding(&snapshot, &predictions),
        runs: &predictions,
    };
    if let Some(kept) = kept {
        kept.push(output::doc("what-if", &report)?);
        return Ok(());
    }
    let mut view = output::viewed("what-if", &report, whatif::view, page)?;
    if args.csv {
        let first = ["design", "page_size", "cpus"];
        let table = match args.caches {
            true => Frame::of_parts(&predictions, |run| &run.caches, &first)?,
            false => Frame::of(&predictions)?,
        };
        return output::print_csv(table, &first);
    }
    if args.json {
        return output::print_json("what-if", &report);
    }
    if page.is_stdout() {
        return Ok(());
    }
    view.note_first(whatif::about(&snapshot, &predictions));
    terminal::print_view(&view, show(args))
}

/// Fields of `what-if --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a> {
    /// The snapshot.
    snapshot: SnapshotInfo<'a>,
    /// Settings as given.
    settings: output::Given,
    /// Result in a sentence.
    finding: String,
    /// Predictions: one for each question.
    runs: &'a [Prediction],
}
