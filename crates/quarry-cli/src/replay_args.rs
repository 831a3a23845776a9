//! The options of `quarry replay`, and its help.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use quarry_core::page::CACHE_SHARE_BYTES;
use quarry_lab::ask::{Replay, Start};
use quarry_lab::booted::Booted;
use quarry_lab::replay::pages::PageMode;
use quarry_lab::replay::timed::{Pace, Timing};
use quarry_machines::{DEFAULT_MACHINE, Draw, Machine};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{error, input, output, units};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace, or the name of a bundled one: hackbench, kv, tbench. A file of that name wins; `-` reads
    /// stdin.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: Option<OsString>,
    /// Designs with optional eras, separated by commas; with --initial or --check the recorded one
    /// by default, else slab, slob and slub of 6.3, slub of 6.18 and sheaf of 7.0: 6.3 is the last
    /// release that has all three, 6.18 the last with long support before sheaves, and 7.0 has
    /// sheaves in all caches. Older ones, and slubq of 2.6.35, are shown if they are named.
    #[arg(long, value_name = "DESIGN[@ERA],...", value_delimiter = ',')]
    pub(crate) design: Vec<String>,
    /// Page sizes: 4k, 16k, 64k, separated by commas; 4k,64k by default, the recorded one with
    /// --initial or --check.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        value_parser = units::parse_page_bytes
    )]
    pub(crate) page_size: Vec<u64>,
    /// CPUs of the virtual machine, 1 to 4096; several separated by commas; the trace's by default.
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub(crate) cpus: Vec<u32>,
    /// Replay N independent copies of the recorded load, each on CPUs of its own: copy k of recorded
    /// CPU c is CPU k * recorded CPUs + c. Every machine has as many CPUs by default, and at least as
    /// many.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) copies: u32,
    /// Set a tunable; may be repeated. For one design: slub.cpu_partial=0, slub@6.1.cpu_partial=0;
    /// a sysctl of the page allocator: page.min_free_kbytes=8192. A list, cpu_partial=0,6,13, has a run for each
    /// value beside the default; several lists have one for each combination.
    #[arg(long = "set", value_name = "[DESIGN[@ERA].]NAME=VALUE[,...]")]
    pub(crate) settings: Vec<String>,
    /// Debugging as in the kernel's slub_debug: FZPU for all caches, FZ,kmalloc-*;U,dentry for some.
    #[arg(long, value_name = "LETTERS[,CACHE,...][;...]")]
    pub(crate) debug: Option<String>,
    /// Memory of each virtual machine; 16G by default. With --initial that of the kernel's zones by default,
    /// and more or less of it is the highest zone's. Only what is used becomes resident.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Cache-line size in bytes; 64 on x86-64, 128 on ppc64.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub(crate) cache_line: u32,
    /// Start from an empty machine, also where the trace has what its kernel held before the load.
    #[arg(long, conflicts_with_all = ["initial", "check"])]
    pub(crate) empty: bool,
    /// Begin on the heap of a real kernel that has run: the bundled one of the nearest design and release.
    #[arg(long, conflicts_with_all = ["empty", "initial", "check"])]
    pub(crate) booted: bool,
    /// Start from the kernel's zoneinfo also where the trace has no snapshot of its slabs: zones, free memory and
    /// per-CPU page lists. They are used where page events are replayed at the recorded page size and number of CPUs;
    /// elsewhere only the amount of memory, if --memory says none. With FILE begin on another machine's heap instead: that of a
    /// snapshot, or of a recording with one. Other kernels have what quarry what-if predicts of it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[expect(
        clippy::option_option,
        reason = "an option whose value may be left out"
    )]
    pub(crate) initial: Option<Option<OsString>>,
    /// Stage of the file of --initial, if it has several; the first by default.
    #[arg(long, value_name = "NAME", requires = "initial")]
    stage: Option<String>,
    /// Compare the end with what the kernel held then.
    #[arg(long)]
    pub(crate) check: bool,
    /// A CPU's share of the last-level cache: its size by the CPUs that share it. Page lists of 6.7
    /// and later heed it when blocks of several pages are freed.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = units::parse_bytes,
        default_value_t = CACHE_SHARE_BYTES
    )]
    pub(crate) cache_share: u64,
    /// Page events on the same page allocator: auto replays those outside the slabs if the trace
    /// tells which pages were slabs, all those of slabs too, off none.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = PagesArg::Auto)]
    pub(crate) pages: PagesArg,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    /// Print all rows, not only those that tell designs apart.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the memory of caches in all runs, too: of those that differ most; with --all what they waste and keep
    /// free. Of a single run those that waste most.
    #[arg(long)]
    pub(crate) caches: bool,
    /// Print who allocated, too: the call sites with most memory at the recorded peak, as `quarry callers` does, which
    /// also has processes, caches and flame graphs.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) callers: bool,
    /// Number of caches and callers to print.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) top: usize,
    /// Print free memory over time for each run that replays page events, too.
    #[arg(long)]
    pub(crate) fragmentation: bool,
    /// Write slabinfo, slab/CACHE/ATTRIBUTE, buddyinfo, pagetypeinfo, zoneinfo, vmstat and
    /// sys/vm/SYSCTL to DIR/DESIGN@ERA-PAGE-CPUS/ for each run, as they are at the end. Files that
    /// the design's kernel does not have are left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) inspect: Option<PathBuf>,
    /// Print JSON with everything that is counted (quarry explain --all).
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with charts of slab memory over time and the tables; it needs no network. `-`
    /// for stdout instead of the tables.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: output::Force,
    /// Print comma-separated values: a line for each run, or with --caches for each cache.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Leave out what depends on the computer, so that outputs can be compared byte by byte.
    #[arg(long)]
    pub(crate) no_timing: bool,
    /// Runs at the same time; the number of CPUs by default.
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
}

/// Simulated time.
#[derive(clap::Args)]
pub(crate) struct TimeArgs {
    /// Replay in simulated time: what an allocation and a free cost in nanoseconds, and why. The page size is the
    /// recorded one by default, slob is left out (its searches take minutes to simulate), and the cache line is the
    /// machine's.
    #[arg(long, conflicts_with_all = [
        "debug", "cache_line", "check", "caches", "callers", "fragmentation", "inspect"
    ])]
    pub(crate) time: bool,
    /// Machine whose time is simulated: a name of `quarry machines`, or a file. It must have the CPUs: a part of a
    /// socket, or whole sockets. [default: haswell-ep-2x12]
    #[arg(long, value_name = "NAME|FILE", requires = "time")]
    pub(crate) machine: Option<String>,
    /// When events happen: at their recorded times, and where a CPU is late as fast as it can; or all as fast as
    /// the CPUs can. [default: recorded]
    #[arg(long, value_name = "PACE", value_enum, requires = "time")]
    pub(crate) pace: Option<PaceArg>,
    /// Decides what is left to chance: which of several waiting CPUs is first, and when copies begin. [default: 1]
    #[arg(long, value_name = "N", requires = "time")]
    pub(crate) seed: Option<u64>,
    /// Replay all again with the machine's constants elsewhere in their ranges, and say which orders of designs hold.
    /// It takes about 100 times as long.
    #[arg(long, requires = "time", conflicts_with = "csv")]
    pub(crate) sensitivity: bool,
}

impl Args {
    /// The request.
    pub(crate) fn asked(&self) -> anyhow::Result<Replay> {
        let of_recording = matches!(self.initial, Some(None));
        if of_recording && (self.time.time || self.stage.is_some()) {
            let option = if self.time.time { "--time" } else { "--stage" };
            return Err(error::usage(format!(
                "--initial without a file is the recording's own state, which {option} does not go with; --initial=FILE is another \
                 machine's"
            )));
        }
        Ok(Replay {
            designs: self.design.clone(),
            page_bytes: self.page_size.clone(),
            cpus: self.cpus.clone(),
            copies: self.copies,
            set: self.settings.clone(),
            debug: self.debug.clone(),
            memory_bytes: self.memory,
            cache_line: self.cache_line,
            cache_share_bytes: self.cache_share,
            start: match (self.check, &self.initial, self.empty) {
                (true, _, _) => Start::Check,
                (_, Some(None), _) => Start::Reports,
                (_, _, true) => Start::Empty,
                _ => Start::Usual,
            },
            booted: match &self.initial {
                Some(Some(file)) => Some(input::booted(file, self.stage.as_deref())?),
                _ => self.booted.then_some(Booted::Bundled),
            },
            pages: self.pages.into(),
            window: None,
            timing: match self.time.time {
                true => Some(self.time.timing()?),
                false => None,
            },
        })
    }
}

impl TimeArgs {
    /// Machine whose time is simulated, and the settings of the simulation.
    fn timing(&self) -> anyhow::Result<Timing> {
        Ok(Timing {
            machine: Machine::open(self.machine.as_deref().unwrap_or(DEFAULT_MACHINE))?,
            draw: Draw::VALUES,
            pace: match self.pace {
                Some(PaceArg::Full) => Pace::Full,
                Some(PaceArg::Recorded) | None => Pace::Recorded,
            },
            seed: self.seed.unwrap_or(1),
        })
    }
}

/// When events happen.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum PaceArg {
    Recorded,
    Full,
}

/// Kind of page events that are replayed.
#[derive(Clone, Copy, clap::ValueEnum, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PagesArg {
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
  An event of recorded CPU c runs on virtual CPU c mod N: with more CPUs than
  were recorded, the others stay idle unless --copies gives them work. A kmalloc goes to the
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
  block becomes the smallest one that holds its bytes, at least a page; user and
  page-cache pages keep their bytes: several share a larger page. Blocks
  above order 10, and blocks that --memory has no room for, are counted and
  left out. A call is served by the CPU's lists if it takes no zone lock.
  Blocks from before the recording that it frees are allocated before its first
  event, and the lists are shortened once a second of its clock, as in a kernel.
  What was on the lists at the beginning is not recorded: they begin empty, which
  makes refills extra, unless --initial finds a zoneinfo in the trace. The machine
  then has the kernel's zones with as much free memory as they had, of movable
  pageblocks, unless there is a pagetypeinfo, too; the rest is used by others and
  never reclaimed.
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
  give --cache-line if it is not 64. Replayed are the events from the first report
  to the last. quarry filter cuts any other window out of a recording.

Simulated time:
  With --time the CPUs have clocks: caches, lines that move between CPUs, and
  locks that are waited for cost what they cost on --machine. A free follows its
  object's allocation, and the events of a task follow each other, on whichever
  CPUs; no CPU is more than 16384 events ahead of the last one. Printed is the time
  of allocations and frees from call to return, and what it goes into. Between
  events CPUs do nothing: with the recorded pace contention is the least that the
  load can have, with the full pace the most. Copies of the load share caches,
  nodes and zones, and begin up to 100 us after the first.

Exit codes:
  0 done; 1 failed (unreadable or impossible trace); 2 wrong usage;
  3 the memory of a virtual machine was exhausted

Examples:
  quarry replay
  quarry replay kv --design slub@5.9,slub@6.18 --page-size 64k --cpus 64
  quarry replay tbench --caches --design slubq
  quarry replay --inspect files && awk 'FNR > 2 { print $1, $3 * $4 }' files/*/slabinfo
  quarry replay --set slub.cpu_partial=0 --set slubq.cpu_queue_size=16
  quarry replay kv --design slub --page-size 4k --set cpu_partial=0,6,13
  quarry replay --set page.percpu_pagelist_high_fraction=8 --design slub
  quarry replay --copies 32 --design slub,sheaf --page-size 4k
  quarry replay --design slub --debug FZPU
  quarry replay --time --design slub@6.17,sheaf@7.0
  quarry replay --time --pace full --copies 64 --machine milan-2x64 --design sheaf
  quarry filter kv -o - --until +0.2 | quarry replay - --time --sensitivity
  quarry replay my.parquet --pages all --fragmentation --memory 1G --design slub
  quarry replay my.parquet --json --no-timing > run.json
  quarry replay my.parquet --check
  quarry replay hackbench --initial --design slub";
