//! `quarry replay`: recorded allocations on other designs.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_core::slub::Slub;
use quarry_lab::bundled::BUNDLED;
use quarry_lab::kernel::{Pagetypeinfo, Slabinfo, Snapshot, Zoneinfo};
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::lists;
use quarry_lab::replay::pages::{PageEvents, PageMode};
use quarry_lab::replay::part::{Moment, Part};
use quarry_lab::setting::Setting;
use quarry_lab::{DESIGNS, DesignSpec, Plan, RunReport};
use quarry_trace::TraceMeta;
use serde::Serialize;

use crate::{output, replay_tables, units};

/// Memory of a virtual machine if nothing is asked for.
const MEMORY_BYTES: u64 = 16 << 30;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace, or the name of a bundled one: hackbench, kv, tbench. A file of that name wins.
    #[arg(value_name = "TRACE")]
    trace: Option<String>,
    /// Designs with optional eras, separated by commas; all designs by default, the recorded one
    /// with --initial or --check.
    #[arg(long, value_name = "DESIGN[@ERA],...", value_delimiter = ',')]
    design: Vec<String>,
    /// Page sizes: 4k, 16k, 64k, separated by commas; 4k,64k by default, the recorded one with
    /// --initial, --check or --zoneinfo.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        value_parser = units::parse_page_bytes
    )]
    page_size: Vec<u64>,
    /// CPUs of the virtual machine, 1 to 4096; several separated by commas; the trace's by default.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Set a tunable; may be repeated. For one design: slub.cpu_partial=0, slub@6.1.cpu_partial=0.
    #[arg(long = "set", value_name = "[DESIGN[@ERA].]NAME=VALUE")]
    settings: Vec<String>,
    /// Debugging as in the kernel's slub_debug: FZPU for all caches, FZ,kmalloc-*;U,dentry for some.
    #[arg(long, value_name = "LETTERS[,CACHE,...][;...]")]
    debug: Option<String>,
    /// Memory of each virtual machine; 16G by default. With --zoneinfo that of its zones by default,
    /// and more or less of it is the highest zone's. Only what is used becomes resident.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    memory: Option<u64>,
    /// Cache-line size in bytes; 64 on x86-64, 128 on ppc64.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    cache_line: u32,
    /// Start from what the kernel held: a snapshot (quarry snapshot), a folder with slabinfo and slab/ (a
    /// copy of /sys/kernel/slab), a copy of /proc/slabinfo, or a JSON list of its rows.
    #[arg(long, value_name = "SNAPSHOT")]
    initial: Option<PathBuf>,
    /// Compare the end with what the kernel reported: the same forms.
    #[arg(long, value_name = "SNAPSHOT")]
    check: Option<PathBuf>,
    /// Start with the zones, free memory and per-CPU page lists that the kernel had: a copy of its
    /// /proc/zoneinfo. Heeded where page events are replayed at the recorded page size and number
    /// of CPUs; elsewhere only the amount of memory, if --memory says none.
    #[arg(long, value_name = "ZONEINFO")]
    zoneinfo: Option<PathBuf>,
    /// Which blocks of these zones were free, beside --zoneinfo: a copy of /proc/pagetypeinfo.
    #[arg(long, value_name = "PAGETYPEINFO", requires = "zoneinfo")]
    pagetypeinfo: Option<PathBuf>,
    /// A CPU's share of the last-level cache: its size by the CPUs that share it. Page lists of 6.7
    /// and later heed it when blocks of several pages are freed.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = units::parse_bytes,
        default_value_t = CACHE_SHARE_BYTES
    )]
    cache_share: u64,
    /// Start at this time: seconds as the recording prints them, or +SECONDS after its first event.
    #[arg(long, value_name = "T", value_parser = Moment::parse)]
    from: Option<Moment>,
    /// Stop before this time, written in the same way.
    #[arg(long, value_name = "T", value_parser = Moment::parse)]
    until: Option<Moment>,
    /// Page events on the same page allocator: auto replays those outside the slabs if the trace
    /// tells which pages were slabs, all those of slabs too, off none.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = PagesArg::Auto)]
    pages: PagesArg,
    /// Print slabinfo's columns for each cache, too.
    #[arg(long)]
    caches: bool,
    /// Print free memory over time for each run that replays page events, too.
    #[arg(long)]
    fragmentation: bool,
    /// Write slabinfo, slab/CACHE/ATTRIBUTE, buddyinfo, pagetypeinfo, zoneinfo, vmstat and
    /// sys/vm/SYSCTL, as far as the design's kernel has these files and as they are at the end, to
    /// DIR/DESIGN@ERA-PAGE-CPUS/ for each run.
    #[arg(long, value_name = "DIR")]
    inspect: Option<PathBuf>,
    /// Print JSON: one object, with everything that is counted.
    #[arg(long)]
    json: bool,
    /// Leave out what depends on the computer, so that outputs can be compared byte by byte.
    #[arg(long)]
    no_timing: bool,
    /// Runs at the same time; the number of CPUs by default.
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// Which page events are replayed.
#[derive(Clone, Copy, clap::ValueEnum)]
enum PagesArg {
    Auto,
    Off,
    All,
}

impl From<PagesArg> for PageMode {
    fn from(arg: PagesArg) -> Self {
        match arg {
            PagesArg::Auto => Self::Auto,
            PagesArg::Off => Self::Off,
            PagesArg::All => Self::All,
        }
    }
}

const EXAMPLES: &str = "\
How a trace is replayed:
  An event of recorded CPU c runs on virtual CPU c mod N. A kmalloc goes to the
  design's own class for the bytes asked for, others to a cache of their name,
  whose alignment and flags are inferred from the recorded sizes. Frees of
  objects from before the recording (orphans) are skipped and counted; implied
  frees are performed. Peaks are over time, slab counts are at the end. All but
  events/s is the same in every run.
  With --debug objects grow by red zones and records, and per-CPU state is not
  used: what debugging costs in memory shows beside a run without.

Page events:
  Blocks of pages that were no slabs are allocated and freed on the event's CPU
  by the page allocator that the design takes its slabs from; the recorded slab
  pages are left out, since the design makes its own. At another page size a
  block becomes the smallest one that holds its bytes, at least a page. Blocks
  above order 10, and blocks that --memory has no room for, are counted and
  left out. A call is served by the CPU's lists if it takes no zone lock.
  Blocks from before the recording that it frees are allocated before its first
  event, and the lists are shortened once a second of its clock, as in a kernel.
  What was on the lists at the beginning is not recorded: they begin empty, which
  makes refills extra, unless --zoneinfo tells. The machine then has the kernel's
  zones with as much free memory as they had, of movable pageblocks, unless
  --pagetypeinfo tells; the rest is used by others and never reclaimed.
  Free memory is sampled up to 64 times. What of it lies in blocks too small for
  an order is, as a part of it, the order's unusable free space index.

Predicted beside observed:
  --initial gives every cache the slabs that the kernel reported. How its
  objects lay in them is not reported; assumed are full slabs, the free objects
  in slabs free as a whole, and on each CPU one that is half free (the library's
  documentation says more). A snapshot with sysfs tells how many slabs were on
  each CPU's list. Orphans then free objects of this state. --check
  prints the slabs at the end beside those of another report. With either, the
  design, page size and CPUs are the recorded ones if nothing else is asked for;
  give --cache-line if it is not 64. --from and --until take the time of a
  report: events at --from are replayed, those at --until are not.

Exit codes:
  0 done; 1 failed (unreadable or impossible trace, memory exhausted);
  2 wrong usage

Examples:
  quarry replay
  quarry replay kv --design slub@5.9,slub@6.18 --page-size 64k --cpus 64
  quarry replay tbench --caches --design slubq
  quarry replay --inspect files && awk 'FNR > 2 { print $1, $3 * $4 }' files/*/slabinfo
  quarry replay --set slub.cpu_partial=0 --set slubq.cpu_queue_size=16
  quarry replay --design slub --debug FZPU
  quarry replay my.parquet --pages all --fragmentation --memory 1G --design slub
  quarry replay my.parquet --json --no-timing > run.json
  quarry replay my.parquet --initial before.slabinfo --check after.slabinfo
  quarry replay my.parquet --initial a.json --from 16.957 --until +3.5 --check b.json";

#[derive(Serialize)]
struct Report<'a> {
    trace: TraceInfo<'a>,
    runs: &'a [RunReport],
}

#[derive(Serialize)]
struct TraceInfo<'a> {
    name: &'a str,
    kernel: Option<&'a str>,
    arch: Option<&'a str>,
    command: Option<&'a str>,
    page_size: u32,
    cpus: u32,
    duration_ns: u64,
    /// Events that were recorded.
    events: u64,
    /// Frees of what was not seen allocated.
    orphans: u64,
    /// Rows of the trace: events without frees of nothing, with implied frees.
    rows: u64,
    lost_events: u64,
    peak_live_objects: u32,
    peak_live_bytes: u64,
    events_by_kind: &'a quarry_trace::KindCounts,
    orphans_by_kind: &'a quarry_trace::Orphans,
    digest: String,
}

impl<'a> TraceInfo<'a> {
    fn of(name: &'a str, meta: &'a TraceMeta) -> Self {
        Self {
            name,
            kernel: meta.kernel.as_deref(),
            arch: meta.arch.as_deref(),
            command: meta.command.as_deref(),
            page_size: meta.page_size,
            cpus: meta.cpus,
            duration_ns: meta.duration_ns(),
            events: meta.events.total(),
            orphans: meta.orphans.unknown_frees(),
            rows: meta.rows,
            lost_events: meta.lost_events,
            peak_live_objects: meta.object_slots,
            peak_live_bytes: meta.peak_bytes_req,
            events_by_kind: &meta.events,
            orphans_by_kind: &meta.orphans,
            digest: format!("{:016x}", meta.digest),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // Refuse wrong arguments before opening the trace.
    let mut axes = axes(args)?;
    let default = BUNDLED.first().map_or("hackbench", |bundled| bundled.name);
    let trace = args.trace.as_deref().unwrap_or(default);
    if !axes.cpus.is_empty() {
        Plan::new(&axes)?;
    }
    let input = open(args, trace)?;
    heed_recorded(args, &input, &mut axes)?;
    let meta = input.file.meta();
    let mut plan = Plan::new(&axes)?;
    if let Some(dir) = &args.inspect {
        plan.inspect_into(dir)?;
    }
    // Print the notes before the runs: they explain a run that fails.
    let notes = unheeded(args, &plan, &input);
    notes.iter().for_each(|text| output::note(text));
    output::note_eras(plan.runs.iter().map(|run| run.design.era));
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get);
    let bar = progress_bar(meta.rows * plan.runs.len() as u64);
    let runs = plan.execute(&input, jobs, &|events| bar.inc(events));
    bar.finish_and_clear();
    let mut runs = runs?;
    if args.no_timing {
        runs.iter_mut().for_each(|run| run.events_per_second = 0.0);
    }
    if args.json {
        output::print_json(&Report {
            trace: TraceInfo::of(&input.name, meta),
            runs: &runs,
        })
    } else {
        let more = replay_tables::More {
            caches: args.caches,
            fragmentation: args.fragmentation,
        };
        output::print_text(&replay_tables::text(&input.name, meta, &runs, more))
    }
}

/// Opens the trace, with the reports that the options name.
fn open(args: &Args, trace: &str) -> anyhow::Result<Input> {
    let read = |file: &Option<PathBuf>| file.as_deref().map(Snapshot::read_moment).transpose();
    let (initial, initial_lists) = read(&args.initial)?.unzip();
    let check = read(&args.check)?.map(|(slabinfo, _)| slabinfo);
    let zoneinfo = args.zoneinfo.as_deref().map(Zoneinfo::read).transpose()?;
    let types = args.pagetypeinfo.as_deref();
    let free = types.map(Pagetypeinfo::read).transpose()?;
    let mut input = Input::open(trace)?;
    input.part = Part {
        from: args.from,
        until: args.until,
    };
    input.pages = args.pages.into();
    input.cache_share_bytes = args.cache_share;
    (input.initial, input.check) = (initial, check);
    input.initial_lists = initial_lists.unwrap_or_default();
    (input.zoneinfo, input.free) = (zoneinfo, free);
    Ok(input)
}

/// Completes the axes by what the recorded kernel had, as far as the trace and the reports tell it and no
/// option does.
fn heed_recorded(args: &Args, input: &Input, axes: &mut Axes) -> anyhow::Result<()> {
    let meta = input.file.meta();
    if let Some(report) = input.initial.as_ref().or(input.check.as_ref()) {
        let recorded = recorded(meta, report)?;
        if args.design.is_empty() {
            axes.designs = vec![recorded];
        }
        if args.page_size.is_empty() {
            axes.page_bytes = vec![meta.page_size.into()];
        }
    }
    if let Some(zoneinfo) = &input.zoneinfo {
        let recorded = meta.page_size.into();
        if args.page_size.is_empty() {
            axes.page_bytes = vec![recorded];
        }
        if args.memory.is_none() {
            axes.memory_bytes = lists::memory_bytes(zoneinfo, recorded)?;
        }
    }
    if axes.cpus.is_empty() {
        axes.cpus
            .push(meta.cpus.min(quarry_core::machine::MAX_CPUS));
    }
    Ok(())
}

/// Options that were given and have no effect on some run, or less than on others, and why.
fn unheeded(args: &Args, plan: &Plan, input: &Input) -> Vec<String> {
    let options = match (&args.pagetypeinfo, args.memory) {
        (None, None) => "of --zoneinfo only the amount of memory is heeded",
        (Some(_), None) => "of --zoneinfo and --pagetypeinfo only the amount of memory is heeded",
        (None, Some(_)) => "--zoneinfo is not heeded",
        (Some(_), Some(_)) => "--zoneinfo and --pagetypeinfo are not heeded",
    };
    let mut notes: Vec<String> = Vec::new();
    for reason in plan
        .runs
        .iter()
        .filter_map(|run| lists::unheeded(run, input))
    {
        let note = format!("{options} where {reason}");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let events = PageEvents::of(input);
    if args.fragmentation && !events.driven() {
        let why = events.why_none();
        notes.push(format!("--fragmentation is not heeded where {why}"));
    }
    notes
}

/// The design that a kernel had: the era from its release, the allocator from its slabinfo, where
/// only SLAB has tunables. A kernel whose release is not known has the allocator's default era: the
/// newest release may lack the allocator.
fn recorded(meta: &TraceMeta, report: &Slabinfo) -> anyhow::Result<DesignSpec> {
    let era = meta.kernel.as_deref().and_then(Era::parse);
    let name = match report.rows.iter().any(|row| row.limit > 0) {
        true => "slab",
        false if era.is_none_or(|era| Slub::RELEASES.contains(&era)) => "slub",
        false => "sheaf",
    };
    let era = era.map_or_else(String::new, |era| format!("@{era}"));
    Ok(DesignSpec::parse(&format!("{name}{era}"))?)
}

fn axes(args: &Args) -> anyhow::Result<Axes> {
    let designs = if args.design.is_empty() {
        DESIGNS
            .iter()
            .map(|design| DesignSpec {
                design,
                era: design.default_era,
            })
            .collect()
    } else {
        let parsed: Result<_, _> = args
            .design
            .iter()
            .map(|text| DesignSpec::parse(text))
            .collect();
        parsed?
    };
    let settings: Result<Vec<_>, _> = args
        .settings
        .iter()
        .map(|text| Setting::parse(text))
        .collect();
    Ok(Axes {
        designs,
        page_bytes: match args.page_size.as_slice() {
            [] => vec![4096, 65536],
            sizes => sizes.to_vec(),
        },
        cpus: args.cpus.clone(),
        settings: settings?,
        debug: args.debug.clone(),
        memory_bytes: args.memory.unwrap_or(MEMORY_BYTES),
        cache_line: args.cache_line,
    })
}

fn progress_bar(events: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(events);
    let template = "replay [{bar:40}] {human_pos} of {human_len} events, {eta} left";
    // The template is a constant; if it were wrong the default style would do.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
