//! `quarry filter`: a part of a trace as a trace of its own, or all of it packed again.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use quarry_trace::{Filter, Moment, TraceMeta, filter_file, filter_to};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::report_args::ReportArgs;
use crate::commands::trace_info::{Orphans, alive};
use crate::{input, output, terminal, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace, or the name of a bundled one: hackbench, kv, tbench. A file of that name wins; `-` reads
    /// stdin.
    #[arg(value_name = "TRACE")]
    trace: OsString,
    /// The trace to write (Parquet). It appears only when it is complete. With `-` it goes to stdout and
    /// what is left to stderr.
    #[arg(short, long, value_name = "OUT.parquet")]
    output: PathBuf,
    /// Keep events from this time on: seconds as the recording prints them, or +SECONDS after its
    /// first event.
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// Keep events before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Keep events of processes with this name; may be repeated.
    #[arg(long, value_name = "NAME")]
    comm: Vec<String>,
    /// Keep events of this thread; may be repeated.
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pid: Vec<i32>,
    /// Keep events of this cache, kmalloc for those of all sizes, and no page events; may be repeated.
    #[arg(long, value_name = "CACHE")]
    cache: Vec<String>,
    /// Keep the recorder's own events. They are left out otherwise, where the trace says which threads were the
    /// recorder's.
    #[arg(long)]
    recorder: bool,
    #[command(flatten)]
    reports: ReportArgs,
    #[command(flatten)]
    force: output::Force,
    /// Print what is left as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
What crosses the cut is handled as an import does it: a free of an object that
was allocated before is kept and marked unknown, an object that is freed later
stays alive. A free by another process within the cut counts as an implied one.
Without a cut, --before and the options below it add reports of the recorded
kernel to a trace that has none. Without any of them the trace is packed
again, as hard as zstd can, which takes a while.

Exit codes:
  0 done; 1 failed, and no output is left behind; 2 wrong usage

Examples:
  quarry filter kmem.parquet -o part.parquet --from +1 --until +2.5
  quarry filter hackbench -o - --until +0.5 | quarry replay -
  quarry filter hackbench -o skb.parquet --cache skbuff_head_cache --cache kmalloc
  quarry filter kmem.parquet -o mine.parquet --comm bash --comm make
  quarry filter kmem.parquet -o full.parquet --before a.json --after b.json
  quarry filter kmem.parquet -o small.parquet --recorder";

/// Fields of `filter --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a> {
    /// Trace that was written.
    output: String,
    /// Rows of that trace.
    rows: u64,
    /// Rows of the trace that it was cut from.
    rows_before: u64,
    /// Events of that trace, without implied frees.
    events: u64,
    /// Frees and allocations without a partner, by kind.
    orphans: Orphans,
    /// Time of the first row.
    first_time_ns: u64,
    /// Latest time of any row.
    last_time_ns: u64,
    /// Checksum of what a replay reads, in hexadecimal: traces with equal digests replay equally.
    digest: String,
    /// Assumptions in place of what the recording does not say, a sentence each. The last one says what was
    /// cut.
    assumptions: &'a [String],
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    output::check_binary(&args.output, args.json)?;
    let trace = ("TRACE", Some(Path::new(&args.trace)));
    let inputs: Vec<_> = args.reports.inputs().chain([trace]).collect();
    input::check_one_stdin(&inputs)?;
    let reports = args.reports.read(None, None)?;
    let input = input::trace(&args.trace)?;
    let whole = input.file.meta();
    let clock = |moment: Moment| moment.clock_ns(whole.first_time_ns);
    let filter = Filter {
        from_ns: args.from.map(clock),
        until_ns: args.until.map(clock),
        comms: args.comm.clone(),
        pids: args.pid.clone(),
        caches: args.cache.clone(),
        without_recorder: !args.recorder && !whole.recorder_pids.is_empty(),
        reports,
    };
    if output::is_stdout(&args.output) {
        let meta = filter_to(&input.file, &filter, io::stdout(), Path::new("<stdout>"))?;
        terminal::beside(&text(args, whole, &meta));
        return Ok(());
    }
    let meta = filter_file(&input.file, &filter, &args.output, args.force.existing())?;
    if args.json {
        output::print_json(
            "filter",
            &Report {
                output: args.output.display().to_string(),
                rows: meta.rows,
                rows_before: whole.rows,
                events: meta.events.total(),
                orphans: Orphans::of(&meta),
                first_time_ns: meta.first_time_ns,
                last_time_ns: meta.last_time_ns,
                digest: format!("{:016x}", meta.digest),
                assumptions: &meta.assumptions,
            },
        )
    } else {
        terminal::print_text(&text(args, whole, &meta))
    }
}

fn text(args: &Args, whole: &TraceMeta, meta: &TraceMeta) -> String {
    let orphans = &meta.orphans;
    let known = Orphans::of(meta);
    let mut text = format!(
        "{}: {} of {} rows, {:.3} s\n\
         frees of what was not seen allocated: {}; implied frees: {}; alive at the end: {}\n",
        args.output.display(),
        units::count(meta.rows),
        units::count(whole.rows),
        meta.duration_ns() as f64 / 1e9,
        units::count(orphans.unknown_frees()),
        units::count(orphans.implied_frees()),
        alive(known.never_freed_objects, None, known.never_freed_pages),
    );
    for assumption in &meta.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
    text
}
