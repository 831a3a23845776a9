//! The options of `quarry replay`, and its help.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use quarry_ask::Asked;
use quarry_lab::ask::Replay;

use crate::{error, output, question};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace, or the name of a bundled one: hackbench, kv, tbench. A file of that name wins; `-` reads
    /// stdin.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: Option<OsString>,
    #[command(flatten)]
    asked: Asked<Replay>,
    /// Start from an empty machine, also where the trace has what its kernel held before the load.
    #[arg(long, conflicts_with_all = ["booted", "initial", "check"])]
    empty: bool,
    /// Start from the kernel's zoneinfo also where the trace has no snapshot of its slabs: zones, free memory and
    /// per-CPU page lists. They are used where page events are replayed at the recorded page size and number of CPUs;
    /// elsewhere only the amount of memory, if --memory says none. With FILE begin on another machine's heap instead: that of a
    /// snapshot, or of a recording with one. Other kernels have what quarry what-if predicts of it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "booted")]
    initial: Option<String>,
    /// Stage of the file of --initial, if it has several; the first by default.
    #[arg(long, value_name = "NAME", requires = "initial")]
    stage: Option<String>,
    /// Compare the end with what the kernel held then.
    #[arg(long, conflicts_with_all = ["booted", "time"])]
    check: bool,
    /// Replay all again with the machine's constants elsewhere in their ranges, and say which orders of designs hold.
    /// It takes about 100 times as long.
    #[arg(
        long,
        requires = "time",
        conflicts_with_all = ["csv", "draw"],
        help_heading = "Simulated time"
    )]
    pub(crate) sensitivity: bool,
    /// Print all rows, not only those that tell designs apart.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print caches in all runs, too: the memory of those that differ most, or with --time the time in their operations.
    /// A single run has those that waste most, or take most time.
    #[arg(long)]
    pub(crate) caches: bool,
    /// Print who allocated, too: the call sites with most memory at the recorded peak, as `quarry callers` does, which
    /// also has processes, caches and flame graphs.
    #[arg(long, conflicts_with_all = ["csv", "time"])]
    pub(crate) callers: bool,
    /// Number of caches and callers to print.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(crate) top: usize,
    /// Print free memory over time for each run that replays page events, too.
    #[arg(long, conflicts_with = "time")]
    pub(crate) fragmentation: bool,
    /// Write slabinfo, slab/CACHE/ATTRIBUTE, buddyinfo, pagetypeinfo, zoneinfo, vmstat and
    /// sys/vm/SYSCTL to DIR/DESIGN@ERA-PAGE-CPUS/ for each run, as they are at the end. Files that
    /// the design's kernel does not have are left out.
    #[arg(long, value_name = "DIR", conflicts_with = "time")]
    pub(crate) inspect: Option<PathBuf>,
    /// Print JSON with everything that is counted (quarry explain --all).
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) page: output::PageArgs,
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

impl Args {
    pub(crate) fn question(&self) -> anyhow::Result<Replay> {
        let mut asked = self.asked.clone();
        match self.initial.as_deref() {
            Some("") if self.stage.is_some() || asked.has("time") => {
                let option = if asked.has("time") {
                    "--time"
                } else {
                    "--stage"
                };
                return Err(error::usage(format!(
                    "--initial without a file is the recording's own state, which {option} does not go with; --initial=FILE is \
                     another machine's"
                )));
            }
            Some("") => asked.give("start", "initial"),
            Some(file) => asked.give("heap", question::heap(file, self.stage.as_deref())),
            None => {}
        }
        for (given, start) in [(self.empty, "empty"), (self.check, "check")] {
            if given {
                asked.give("start", start);
            }
        }
        let replay = question::of(&asked)?;
        question::note_heap(&replay.heap);
        Ok(replay)
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
  quarry replay kv --design slub@5.9,slub@6.12 --page-size 64k --cpus 64
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
