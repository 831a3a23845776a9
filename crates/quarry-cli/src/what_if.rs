//! `quarry what-if`: a real kernel's slab memory under other settings or in another release.

use std::ffi::OsString;

use quarry_lab::ask::{self, WhatIf};
use quarry_lab::whatif::{self, Prediction, Question, SnapshotInfo};

use quarry_view::frame::Frame;
use schemars::JsonSchema;
use serde::Serialize;

use crate::known::KnownArgs;
use crate::terminal::{self, Show};
use crate::{input, output, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A snapshot: JSON of quarry snapshot, a copy of /proc/slabinfo, a folder or an archive, or any form in
    /// docs/inputs.md; `-` reads stdin. Or a trace that has snapshots, as `quarry record` keeps them.
    #[arg(value_name = "SNAPSHOT|TRACE")]
    snapshot: OsString,
    /// Snapshot of a trace: what the kernel held at the begin or at the end of the load. [default: begin]
    #[arg(long, value_name = "WHEN", value_enum, conflicts_with = "stage")]
    at: Option<At>,
    /// Stage of a recorded boot; the first by default.
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    #[command(flatten)]
    known: KnownArgs,
    /// Another release of Linux, 2.6.22 or later, with the design and the rules that it has.
    #[arg(long, value_name = "RELEASE", conflicts_with = "design")]
    release: Option<String>,
    /// Other designs or eras, separated by commas; the snapshot's own by default.
    #[arg(long, value_name = "DESIGN[@ERA],...", value_delimiter = ',')]
    design: Vec<String>,
    /// Other page sizes: 4k, 16k, 64k, separated by commas.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        value_parser = units::parse_page_bytes
    )]
    page_size: Vec<u64>,
    /// Other numbers of CPUs, separated by commas; present and possible ones.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Another number of possible CPUs (nr_cpu_ids), which eras until 5.9 choose orders by; what each
    /// costs beside that is not known. As many as are present by default.
    #[arg(long, value_name = "N")]
    possible_cpus: Option<u32>,
    /// Set a tunable; may be repeated. `quarry tunables` lists them. A list, cpu_partial=0,6,13, has a prediction for
    /// each value beside the one without; several lists have one for each combination. slub_debug=FZP asks for the
    /// snapshot with other debugging, slub_debug= for it without.
    #[arg(long = "set", value_name = "[DESIGN[@ERA].]NAME=VALUE[,...]")]
    settings: Vec<String>,
    /// Add what an option of the kernel's configuration costs or saves, such as MEMCG=n or RANDOM_KMALLOC_CACHES=y; may
    /// be repeated.
    #[arg(long, value_name = "NAME=y|n")]
    config: Vec<String>,
    /// Show every cache, not only those that change most.
    #[arg(long)]
    caches: bool,
    /// Answer although the formulas give fewer than 70 % of the caches their slabs.
    #[arg(long)]
    force: bool,
    /// Print JSON (quarry explain --all); `runs` has a prediction each.
    #[arg(long)]
    json: bool,
    /// Print comma-separated values: a line for each prediction, or with --caches for each cache.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
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
  0 done; 1 the file cannot be read; 2 wrong usage, a trace without snapshots,
  or a kernel that the formulas do not explain (--force)

Examples:
  quarry what-if now.json --release 7.3
  quarry what-if mine.parquet --at end --page-size 64k
  quarry what-if now.json --set cpu_partial=0,6,13
  quarry what-if now.json --set slub_debug=FZP
  quarry what-if now.json --config SLAB_MERGE_DEFAULT=n --config MEMCG=n
  quarry what-if now.json --release 7.3 --set sheaf_capacity=4
  quarry what-if now.json --page-size 64k
  quarry what-if sosreport-host.tar.xz --release 6.12
  quarry what-if slabinfo --kernel 5.4 --had-cpus 16 --release 6.12
  quarry what-if boot.json.gz --stage boot --set slub_max_order=0
  quarry what-if now.json --cpus 2,16,64 --caches
  quarry what-if folder/ --design slub@5.9,slubq --page-size 4k,64k --json";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let asked = args.asked();
    let questions = asked.questions()?;
    output::note_eras(questions.iter().filter_map(Question::era));
    let source = input::source(&args.snapshot, args.stage.as_deref())?;
    let snapshot = source.into_snapshot(args.at.map(ask::At::from))?;
    let snapshot = args.known.applied(snapshot)?;
    let predictions = asked.ask(&snapshot)?;
    if args.csv {
        let first = ["design", "page_size", "cpus"];
        let table = match args.caches {
            true => Frame::of_parts(&predictions, |run| &run.caches, &first)?,
            false => Frame::of(&predictions)?,
        };
        return output::print_csv(table, &first);
    }
    let report = Report {
        snapshot: SnapshotInfo::of(&snapshot),
        settings: output::Asked {
            set: &args.settings,
            at: None,
            heap: None,
        },
        finding: whatif::finding(&predictions),
        runs: &predictions,
    };
    if args.json {
        return output::print_json("what-if", &report);
    }
    let mut view = whatif::view(&[output::doc("what-if", &report)?]);
    view.note_first(whatif::about(&snapshot, &predictions));
    let show = Show {
        rows: args.caches.then_some(usize::MAX),
        hint: "`quarry explain NAME` says what a column means.",
        ..Show::default()
    };
    terminal::print(&view, show)
}

/// Fields of `what-if --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a> {
    /// The snapshot.
    snapshot: SnapshotInfo<'a>,
    /// Settings as given.
    settings: output::Asked<'a>,
    /// Result in a sentence.
    finding: String,
    /// Predictions: one for each question.
    runs: &'a [Prediction],
}

/// Moment of a recorded load.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum At {
    Begin,
    End,
}

impl From<At> for ask::At {
    fn from(at: At) -> Self {
        match at {
            At::Begin => Self::Begin,
            At::End => Self::End,
        }
    }
}

impl Args {
    /// The question.
    fn asked(&self) -> WhatIf {
        WhatIf {
            releases: self.release.clone().into_iter().collect(),
            designs: self.design.clone(),
            page_bytes: self.page_size.clone(),
            cpus: self.cpus.clone(),
            possible_cpus: self.possible_cpus,
            set: self.settings.clone(),
            config: self.config.clone(),
            force: self.force,
        }
    }
}
