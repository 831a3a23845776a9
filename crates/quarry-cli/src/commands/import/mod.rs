//! `quarry import`: recordings of perf, ftrace, trace-cmd, LTTng and Perfetto to a trace.

pub(crate) mod view;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use quarry_trace::{
    ImportOptions, ImportSummary, Kind, Moment, import, import_file, import_to_file, open_recording,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::report_args::ReportArgs;
use crate::commands::trace_info::Orphans;
use crate::error::usage;
use crate::terminal::{self, Show};
use crate::{input, output, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// `perf.data`, trace-cmd's `trace.dat`, a trace of Perfetto, or text of `perf script`, `trace-cmd report`,
    /// ftrace's `trace` file or LTTng's `babeltrace2`, packed with gzip, xz or zstd or not; `-` reads
    /// stdin.
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// The trace to write (Parquet). It appears only when it is complete. With `-` it goes to stdout and the
    /// summary to stderr.
    #[arg(short, long, value_name = "OUT.parquet")]
    output: PathBuf,
    /// Kernel release; otherwise from the text's header.
    #[arg(long, value_name = "RELEASE")]
    kernel: Option<String>,
    /// Architecture; otherwise from the header, or from the addresses of objects.
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// Page size of the recorded machine: 4k, 16k or 64k; otherwise from addresses and page frame
    /// numbers, or from the architecture. If nothing tells it 4k is assumed.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_page_bytes)]
    page_size: Option<u64>,
    /// CPUs of the recorded machine; otherwise from the header, otherwise the largest seen.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    cpus: Option<u32>,
    /// The recorded command; otherwise from the header.
    #[arg(long, value_name = "TEXT")]
    command: Option<String>,
    /// Events that the recorder lost, beside those that the text reports.
    #[arg(long, value_name = "N", default_value_t = 0)]
    lost: u64,
    /// Pass over lines that do not parse, and count them.
    #[arg(long)]
    skip_bad: bool,
    /// Thread ids of the recorder, such as that of perf: replays leave out what it allocated.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    recorder_pid: Vec<i32>,
    /// The load began then: seconds as the recording prints them, or +SECONDS after the first event. Nothing is
    /// cut; replays begin there. [default: the first event]
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// The load ended then. [default: after the last event]
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    #[command(flatten)]
    reports: ReportArgs,
    #[command(flatten)]
    force: output::Force,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Orphans, by one rule: what an event says is believed over what is missing.
  A free of something that was not seen allocated is kept, marked unknown and
  without an object. An allocation of memory that still seems allocated proves
  that its free was missed, so a free is inserted before it (implied). A block
  of pages that is freed or allocated proves the same of the objects in it. What
  is never freed stays alive to the end.

Recording, as root:
  perf record -a -m128M -e kmem:kmalloc,kmem:kfree,kmem:kmem_cache_alloc,\\
  kmem:kmem_cache_free,kmem:mm_page_alloc,kmem:mm_page_free -- COMMAND
  quarry import perf.data -o kmem.parquet
or, where quarry cannot read the file:
  perf script --ns --header -F comm,pid,tid,cpu,time,event,trace \\
    | gzip > kmem.txt.gz
LTTng's folders are printed first:
  babeltrace2 --clock-seconds FOLDER | quarry import - -o kmem.parquet
Text of ftrace may be a paste: prompts, quotes, escapes and a cut last line are
passed over, and buffers one after another are sorted by time.

With reports of the recorded kernel in the trace, as quarry record keeps them, a
replay begins with what the kernel held (quarry replay --initial), and its end
is compared with what it held then (--check).

Exit codes:
  0 done; 1 failed, and no output is left behind; 2 wrong usage

Examples:
  quarry import perf.data -o kmem.parquet --before a.json --after b.json
  quarry import kmem.txt.gz -o kmem.parquet --page-size 64k
  quarry import perf.data -o load.parquet --recorder-pid 4711 --from +0.5
  quarry import trace.dat -o kmem.parquet
  cat /sys/kernel/tracing/per_cpu/cpu*/trace | quarry import - -o kmem.parquet";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    output::check_binary(&args.output, args.json)?;
    let recording = ("FILE", Some(args.input.as_path()));
    let inputs: Vec<_> = args.reports.inputs().chain([recording]).collect();
    input::check_one_stdin(&inputs)?;
    let options = ImportOptions {
        kernel: args.kernel.clone(),
        arch: args.arch.clone(),
        command: args.command.clone(),
        page_size: match args.page_size.map(u32::try_from).transpose() {
            Ok(bytes) => bytes,
            Err(_) => return Err(usage("the page size is too large")),
        },
        cpus: args.cpus,
        lost_events: args.lost,
        skip_bad: args.skip_bad,
        reports: args.reports.read(args.from, args.until)?,
        recorder_pids: args.recorder_pid.clone(),
        load_from: args.from,
        load_until: args.until,
        existing: args.force.existing(),
        ..ImportOptions::default()
    };
    let stdin = args.input == Path::new("-");
    let bar = progress_bar(if stdin { None } else { file_bytes(&args.input) });
    let mut progress = |bytes| bar.set_position(bytes);
    let summary = if output::is_stdout(&args.output) {
        import_to_stdout(&args.input, &options, &mut progress)
    } else if stdin {
        import_to_file(
            io::stdin().lock(),
            Path::new("<stdin>"),
            &args.output,
            &options,
            &mut progress,
        )
    } else {
        import_file(&args.input, &args.output, &options, &mut progress)
    };
    bar.finish_and_clear();
    let summary = summary?;
    let report = Summary::of(&summary, &args.output);
    if args.json {
        return output::print_json("import", &report);
    }
    let mut view = view::view(&[output::doc("import", &report)?]);
    let names = summary.meta.comms.entries.iter();
    for (comm, events) in names.filter(|(comm, _)| is_odd(comm)).take(1) {
        view.warnings.push(format!(
            "a process is called `{comm}`, which looks like a part of an event; its {} events were read by the last \
             columns of their lines",
            units::count(*events)
        ));
    }
    match output::is_stdout(&args.output) {
        true => {
            terminal::beside(&terminal::text(&view, Show::default()));
            Ok(())
        }
        false => terminal::print_view(&view, Show::default()),
    }
}

/// Writes the trace to stdout as it is made: Parquet needs no seeking.
fn import_to_stdout(
    path: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(u64),
) -> quarry_trace::Result<ImportSummary> {
    let name = PathBuf::from(input::shown(path));
    let text: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(open_recording(path)?),
    };
    let mut out = Counted::default();
    let stdout = Path::new("<stdout>");
    let mut summary = import(text, &name, &mut out, stdout, options, progress)?;
    summary.bytes_out = out.bytes;
    Ok(summary)
}

/// Stdout that counts what it is given.
#[derive(Default)]
struct Counted {
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = io::stdout().write(buffer)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

fn file_bytes(path: &Path) -> Option<u64> {
    let found = std::fs::metadata(path).ok()?;
    found.is_file().then_some(found.len())
}

fn progress_bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "import [{bar:40}] {binary_bytes} of {binary_total_bytes}, {eta} left",
        ),
        None => (
            ProgressBar::no_length(),
            "import {spinner} {binary_bytes}, {binary_bytes_per_sec}",
        ),
    };
    terminal::on_terminal(bar, template)
}

/// Fields of `import --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Summary<'a> {
    /// Trace that was written.
    output: String,
    /// Lines of text read.
    lines: u64,
    /// Bytes read, compressed if the input was.
    bytes_in: u64,
    /// Bytes of the trace; 0 if it did not go to a file.
    bytes_out: u64,
    /// Rows of the trace.
    rows: u64,
    /// Events read.
    events: u64,
    /// `bytes_out` over `events`.
    bytes_per_event: f64,
    /// Events read, by tracepoint.
    events_by_kind: &'a quarry_trace::KindCounts,
    /// Frees and allocations without a partner, by kind.
    orphans: Orphans,
    /// Frees of NULL or of the zero-size pointer, which have no row.
    null_frees: u64,
    /// Allocations that returned nothing, which have no row.
    failed_allocs: u64,
    /// Events of other tracepoints.
    other_events: u64,
    /// Events that the recorder reported lost.
    lost_events: u64,
    /// Lines that looked like events and did not parse.
    skipped_lines: u64,
    /// Error of the first skipped line; null if none was skipped.
    first_skipped: Option<&'a str>,
    /// Most objects alive at once; null if their allocations or frees were not recorded, as `assumptions` says.
    peak_live_objects: Option<u32>,
    /// Most bytes asked for by live objects at once; null if that is unknown, as `assumptions` says.
    peak_live_bytes: Option<u64>,
    /// Most page blocks alive at once; null if that is unknown, as `assumptions` says.
    peak_live_page_blocks: Option<u32>,
    /// Events that are missing beside those that were recorded, and what is not known without them; null if none are.
    missing_events: Option<String>,
    /// Caches.
    caches: usize,
    /// Events that the recorder printed below one of a later time.
    time_steps_back: u64,
    /// Names of other tracepoints with their events, most frequent first.
    other_event_names: &'a [(String, u64)],
    /// Release of the recorded kernel; null if unknown.
    kernel: Option<&'a str>,
    /// Architecture of the recorded machine; null if unknown.
    arch: Option<&'a str>,
    /// Bytes of the recorded machine's pages.
    page_size: u32,
    /// Assumptions in place of what the recording does not say, a sentence each.
    assumptions: &'a [String],
    /// CPUs of the recorded machine.
    cpus: u32,
    /// Nanoseconds from the first to the last event.
    duration_ns: u64,
}

impl<'a> Summary<'a> {
    fn of(summary: &'a ImportSummary, output: &Path) -> Self {
        let meta = &summary.meta;
        Self {
            output: output.display().to_string(),
            lines: summary.lines,
            bytes_in: summary.bytes_in,
            bytes_out: summary.bytes_out,
            rows: meta.rows,
            events: meta.events.total(),
            bytes_per_event: bytes_per_event(summary),
            events_by_kind: &meta.events,
            orphans: Orphans::of(meta),
            null_frees: meta.null_frees,
            failed_allocs: meta.failed_allocs,
            other_events: meta.other_events,
            lost_events: meta.lost_events,
            skipped_lines: meta.skipped_lines,
            first_skipped: meta.first_skipped.as_deref(),
            peak_live_objects: meta.knows_live_objects().then_some(meta.object_slots),
            peak_live_bytes: meta.knows_live_objects().then_some(meta.peak_bytes_req),
            peak_live_page_blocks: meta.knows_live_pages().then_some(meta.page_slots),
            missing_events: meta.missing_events(),
            caches: meta.canonical_caches().count(),
            time_steps_back: meta.time_steps_back,
            other_event_names: &meta.other_event_names.entries,
            kernel: meta.kernel.as_deref(),
            arch: meta.arch.as_deref(),
            page_size: meta.page_size,
            assumptions: &meta.assumptions,
            cpus: meta.cpus,
            duration_ns: meta.duration_ns(),
        }
    }
}

fn bytes_per_event(summary: &ImportSummary) -> f64 {
    summary.bytes_out as f64 / summary.meta.events.total().max(1) as f64
}

/// True if a process name looks like a field, an event or the columns before it.
fn is_odd(comm: &str) -> bool {
    let event = comm.trim_end_matches(':');
    let event = event.strip_prefix("kmem:").unwrap_or(event);
    comm.contains('=') || comm.contains("] ") || Kind::from_name(event.as_bytes()).is_some()
}
