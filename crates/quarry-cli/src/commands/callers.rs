//! `quarry callers`: who allocates, and how much of it is alive.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use quarry_lab::callers::taints::{self, Cause, Taints};
use quarry_lab::callers::{self, Amount, By, Caller, Callers, MergedSite, Stack, Totals};
use quarry_lab::replay::input::Input;
use quarry_trace::TraceMeta;
use quarry_view::frame::Frame;
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::trace_info::TraceInfo;
use crate::terminal::{self, Show};
use crate::units::{bytes, count, percent};
use crate::{input, output};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace, or the name of a bundled one: hackbench, kv, tbench. A file of that name wins; `-` reads
    /// stdin.
    #[arg(value_name = "TRACE")]
    trace: OsString,
    /// Add up the allocations of each call site, process or cache. [default: site, with --taints cache]
    #[arg(long, value_name = "WHAT", value_enum)]
    by: Option<ByArg>,
    /// Number of callers to print: those with most bytes alive at the peak.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Count the recorder's own allocations, too.
    #[arg(long)]
    recorder: bool,
    /// Answer who spoils blocks of memory instead: each first page of the kernel in a clean block of the machine's huge
    /// page (2 MiB) and of 1 GiB, how long the block stayed spoiled, and which page left last (see below).
    #[arg(long, conflicts_with_all = ["folded", "recorder"])]
    taints: bool,
    #[command(flatten)]
    page: output::PageArgs,
    /// With --taints, write a trace for ui.perfetto.dev as well: a slice from each taint until its block was clean
    /// again, on tracks by cause, and the number of spoiled blocks.
    #[arg(long, value_name = "FILE", requires = "taints")]
    perfetto: Option<PathBuf>,
    /// Print all callers, or all taints, as JSON (quarry explain --all).
    #[arg(long)]
    json: bool,
    /// Print all callers, or all taints, as comma-separated values, a line each.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print lines `process;functions;cache bytes` for flame graphs: of the bytes alive at the peak, at the end, or of
    /// all allocations. The functions are the call stack of a trace of `record --stacks`, else the call site alone.
    /// [default: peak]
    #[arg(
        long,
        value_name = "BYTES",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "peak",
        conflicts_with_all = ["json", "csv", "by", "top"]
    )]
    folded: Option<AmountArg>,
}

/// Property that makes allocations one caller's.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum ByArg {
    /// Function that called the allocator, with the offset.
    Site,
    /// Name of the running thread.
    Process,
    /// Cache; for kmalloc the size class.
    Cache,
}

/// Bytes that a folded line states.
#[derive(Clone, Copy, clap::ValueEnum)]
enum AmountArg {
    /// Bytes alive when most were.
    Peak,
    /// Bytes alive at the end.
    End,
    /// Bytes of all allocations.
    All,
}

impl From<ByArg> for By {
    fn from(arg: ByArg) -> Self {
        match arg {
            ByArg::Site => Self::Site,
            ByArg::Process => Self::Process,
            ByArg::Cache => Self::Cache,
        }
    }
}

impl From<AmountArg> for Amount {
    fn from(arg: AmountArg) -> Self {
        match arg {
            AmountArg::Peak => Self::Peak,
            AmountArg::End => Self::End,
            AmountArg::All => Self::All,
        }
    }
}

const EXAMPLES: &str = "\
What is counted:
  Objects of slab caches and kmallocs, as the recorded kernel served them; nothing
  is replayed. Bytes are those of slots, so what a caller asked for and what
  rounding adds; `waste` is what rounding adds, as a part of them. A trace of
  `quarry record` is counted between its two reports, without the recorder's own
  objects. Objects from before that are not known. Page events name no call site
  and are left out.

Spoiled blocks (--taints):
  A block is clean while no page lies in it that was allocated as unmovable or
  reclaimable. A trace of `quarry record` as root has a map of memory from its
  beginning, so it is known which blocks were clean; without one a block's state is
  unknown until one allocation takes all of it. The cache is that of the first
  object seen on the page; pages that are no slabs go by their allocation flags, and
  have a call site if the trace was recorded with --stacks.

Flame graphs:
  --html writes a page with one: of the bytes alive at the peak and at the end, or of
  all allocations if frees were not recorded. --folded prints what flamegraph.pl, inferno and speedscope read: frames with
  semicolons between, the outermost first, and bytes. The kernel's functions are
  there if the trace was recorded with --stacks.

Exit codes:
  0 done; 1 TRACE cannot be read; 2 wrong usage

Examples:
  quarry callers mine.parquet
  quarry callers mine.parquet --by process --top 5
  quarry callers mine.parquet --html callers.html
  quarry callers kv --by cache --json
  quarry callers mine.parquet --taints
  quarry callers mine.parquet --taints --by site --perfetto taints.pftrace
  sudo quarry record --stacks -o mine.parquet --duration 5s
  quarry callers mine.parquet --folded | inferno-flamegraph > live.svg
  quarry callers mine.parquet --folded=end > leaked.folded";

/// Fields of `callers --taints --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct TaintReport<'a> {
    /// The recording.
    trace: TraceInfo<'a>,
    /// Property that makes taints one cause's.
    by: By,
    #[serde(flatten)]
    taints: &'a Taints,
    /// Causes, those that spoiled most blocks of the smallest size first.
    causes: &'a [Cause],
}

/// Fields of `callers --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a> {
    /// The recording.
    trace: TraceInfo<'a>,
    /// Property that makes allocations one caller's.
    by: By,
    /// Sums over all callers.
    totals: Totals,
    /// Result in sentences.
    finding: String,
    /// Sentences about the recording, and what is left out.
    notes: Vec<String>,
    /// Callers, that with most bytes alive at the peak first.
    callers: &'a [Caller],
    /// Call stacks with the bytes that they hold.
    stacks: Vec<Stack>,
    /// Call sites of merged caches, that with most bytes alive at the peak first.
    merged: &'a [MergedSite],
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.page
        .check(args.json || args.csv || args.folded.is_some())?;
    let input = input::trace(&args.trace)?;
    if args.taints {
        return run_taints(args, &input);
    }
    let meta = input.file.meta();
    let callers = Callers::of(&input.file, args.recorder)?;
    if let Some(amount) = args.folded {
        let lines = callers.folded(amount.into()).with_context(|| {
            let missing = meta.missing_events();
            let missing =
                missing.unwrap_or_else(|| "no allocations of objects were recorded".to_string());
            format!(
                "{}: {missing}; --folded=all counts all allocations",
                input.name
            )
        })?;
        return terminal::print(|out| {
            let mut lines = lines.iter();
            lines.try_for_each(|line| writeln!(out, "{}", terminal::visible(line)))
        });
    }
    let by = args.by.map_or(By::Site, By::from);
    let (rows, merged) = (callers.by(by), callers.merged());
    let totals = callers.totals();
    let report = Report {
        trace: TraceInfo::of(&input.name, meta),
        by,
        totals,
        finding: finding(meta, &totals, &rows),
        notes: notes(&input::shown(args.trace.as_ref()), meta, &totals),
        callers: &rows,
        stacks: callers.stacks(),
        merged: &merged,
    };
    let view = output::viewed("callers", &report, callers::view, &args.page)?;
    if args.json {
        return output::print_json("callers", &report);
    }
    if args.csv {
        return output::print_csv(Frame::of(&rows)?, &["name"]);
    }
    if args.page.is_stdout() {
        return Ok(());
    }
    let show = Show {
        rows: Some(args.top),
        hint: "`quarry explain NAME` says what a column means.",
        ..Show::default()
    };
    terminal::print_view(&view, show)
}

fn run_taints(args: &Args, input: &Input) -> anyhow::Result<()> {
    if let Some(path) = &args.perfetto {
        output::check_binary(path, args.json || args.csv)?;
        output::check_writable(path, args.page.force)?;
    }
    let meta = input.file.meta();
    let taints = Taints::of(&input.file, &input.snapshots()?)?;
    let by = args.by.map_or(By::Cache, By::from);
    if let Some(path) = &args.perfetto {
        let file = taints::perfetto(&taints, by, meta.last_time_ns);
        output::write_to(path, file, args.page.force)?;
    }
    let report = TaintReport {
        trace: TraceInfo::of(&input.name, meta),
        by,
        taints: &taints,
        causes: &taints.causes(by),
    };
    let view = output::viewed("callers --taints", &report, taints::view, &args.page)?;
    if args.json {
        return output::print_json("callers --taints", &report);
    }
    if args.csv {
        return output::print_csv(Frame::of(&taints.taints)?, &["time_ns"]);
    }
    let perfetto = args.perfetto.as_deref();
    if args.page.is_stdout() || perfetto.is_some_and(output::is_stdout) {
        return Ok(());
    }
    let show = Show {
        rows: Some(args.top),
        hint: "`quarry explain NAME` says what a column means, --csv has each taint.",
        ..Show::default()
    };
    terminal::print_view(&view, show)
}

/// Counts of the whole recording, and what is left out or lost; a sentence each.
fn notes(name: &str, meta: &TraceMeta, totals: &Totals) -> Vec<String> {
    let left_out = (totals.recorder_allocs > 0).then(|| {
        format!(
            "left out: {} allocations of the recorder itself (--recorder counts them)",
            count(totals.recorder_allocs)
        )
    });
    let lost = (meta.lost_events > 0).then(|| {
        format!(
            "warning: the recorder lost {} events, so objects may look alive",
            count(meta.lost_events)
        )
    });
    // Neither a part of the tasks nor the time outside of the load is in the numbers.
    let part = meta.part_of_tasks().map(|part| {
        format!(
            "warning: {part}: what other tasks free seems to stay allocated, so that the end tells of no leak"
        )
    });
    let load = match meta.load_part() {
        Some(load) => {
            let span = load.until_ns.saturating_sub(load.from_ns);
            format!(", the load's {:.3} s", span as f64 / 1e9)
        }
        None => String::new(),
    };
    let counted = format!("{name}{load}: {}", counted(totals));
    [Some(counted), part, left_out, lost]
        .into_iter()
        .flatten()
        .collect()
}

/// Counts of the whole recording, in a line.
fn counted(totals: &Totals) -> String {
    format!(
        "{} allocations, {} asked for, {} in slots; {} frees, and {} of objects from before",
        count(totals.allocs),
        bytes(totals.bytes_req),
        bytes(totals.bytes_alloc),
        count(totals.frees),
        count(totals.unknown_frees),
    )
}

/// The caller with most memory at the peak, and the one at the end.
fn finding(meta: &TraceMeta, totals: &Totals, rows: &[Caller]) -> String {
    let Some(first) = rows.first().filter(|_| totals.bytes_alloc > 0) else {
        return "No allocation of an object was recorded.".to_string();
    };
    let (Some(peak), Some(end)) = (totals.peak_live_bytes, totals.end_live_bytes) else {
        return format!(
            "{} was given the most memory, {} of {} ({}); {}.",
            first.name,
            bytes(first.bytes_alloc),
            bytes(totals.bytes_alloc),
            percent(first.bytes_alloc, totals.bytes_alloc),
            meta.missing_events().unwrap_or_default(),
        );
    };
    let peak_time_ns = totals.peak_time_ns.unwrap_or(meta.first_time_ns);
    let after = peak_time_ns.saturating_sub(meta.first_time_ns);
    let first_bytes = first.peak_live_bytes.unwrap_or(0);
    let mut text = format!(
        "{} holds the most memory at the peak, {} of {} ({}), {:.3} s after the first event",
        first.name,
        bytes(first_bytes),
        bytes(peak),
        percent(first_bytes, peak),
        after as f64 / 1e9,
    );
    let last = rows.iter().max_by_key(|caller| caller.end_live_bytes);
    let last = last.and_then(|last| Some((last, last.end_live_bytes?)));
    match last.filter(|(_, bytes)| *bytes > 0) {
        Some((last, last_bytes)) => text.push_str(&format!(
            "; at the end {} of {} {} alive, {} of that by {}.",
            bytes(end),
            bytes(totals.bytes_alloc),
            match meta.part_of_tasks() {
                Some(_) => "seem",
                None => "are",
            },
            percent(last_bytes, end),
            last.name,
        )),
        None => text.push_str("; at the end nothing of it is alive."),
    }
    text
}
