//! `quarry info`: what a trace or a snapshot is of, and what is in it.

pub(crate) mod view;

use std::collections::BTreeMap;
use std::ffi::OsString;

use quarry_core::era::Era;
use quarry_core::tunables::Scope;
use quarry_designs::DesignEntry;
use quarry_lab::ask::Source;
use quarry_snapshot::{Detail, Snapshot};
use quarry_trace::{Table, TraceMeta, UnseenFrees};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::trace_info::TraceInfo;
use crate::terminal::{self, Show};
use crate::{input, output};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace, the name of a bundled one (hackbench, kv, tbench), or a snapshot: JSON, packed with gzip or not, or
    /// a folder with slabinfo and slab/. A file of a bundled name wins; `-` reads stdin.
    #[arg(value_name = "TRACE|SNAPSHOT")]
    file: OsString,
    /// Stage of a recorded boot; the first by default.
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// Number of processes, call sites, caches and flags to print: the busiest.
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
    /// Print all of it as JSON (quarry explain --all).
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Everything is from the file's footer, or from the snapshot: no event is read, so
that the answer comes at once. `quarry callers` reads the events.

Exit codes:
  0 done; 1 the file cannot be read, or is neither; 2 wrong usage

Examples:
  quarry info mine.parquet
  quarry info hackbench --top 20
  quarry info now.json --json
  sudo quarry snapshot -o - | quarry info -";

/// Fields of `info --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a> {
    /// File, as given.
    pub(crate) name: String,
    /// `trace` or `snapshot`.
    pub(crate) kind: &'static str,
    /// Release of the kernel; null if unknown.
    pub(crate) kernel: Option<&'a str>,
    /// Architecture; null if unknown.
    pub(crate) arch: Option<&'a str>,
    /// Bytes of a page; null if unknown.
    pub(crate) page_size: Option<u64>,
    /// CPUs of the machine; null if unknown.
    pub(crate) cpus: Option<u32>,
    /// Number of possible CPUs (`nr_cpu_ids`); null if unknown.
    pub(crate) possible_cpus: Option<u32>,
    /// Bytes of the machine's memory (`MemTotal`); null if unknown.
    pub(crate) memory_bytes: Option<u64>,
    /// Identity of the boot; null if unknown.
    pub(crate) boot_id: Option<&'a str>,
    /// Parameters of the kernel's command line about slabs, pages and CPUs; null if the line is unknown.
    pub(crate) parameters: Option<Vec<&'a str>>,
    /// Tunables that the kernel ran with, from the snapshot, or the first one in a trace.
    pub(crate) tunables: Vec<TunableValue>,
    /// Sysctls of the page allocator by name (`vm.min_free_kbytes`), as the kernel prints them; empty if unknown.
    pub(crate) sysctls: BTreeMap<&'a str, &'a str>,
    /// Slab caches of the snapshot, or of the first one in a trace; null without one.
    pub(crate) slabs: Option<Slabs<'a>>,
    /// Contents of a trace; null for a snapshot.
    pub(crate) trace: Option<Trace<'a>>,
    /// Things that are not in it, and what follows from that, a sentence each.
    pub(crate) lacks: Vec<String>,
}

/// Values of a tunable.
#[derive(JsonSchema, Serialize)]
pub(crate) struct TunableValue {
    /// Name, as in the kernel.
    pub(crate) name: String,
    /// Least value of any cache.
    pub(crate) least: u64,
    /// Largest value of any cache.
    pub(crate) largest: u64,
    /// Value that most caches have.
    pub(crate) usual: u64,
    /// Caches whose value is known.
    pub(crate) caches: u64,
}

/// Slab caches that a kernel reported.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Slabs<'a> {
    /// Bytes of all slabs.
    pub(crate) slab_bytes: u64,
    /// Bytes of objects that the kernel counts as active.
    pub(crate) active_bytes: u64,
    /// Caches, with most bytes first.
    pub(crate) caches: Vec<SlabCache<'a>>,
}

/// A slab cache that a kernel reported.
#[derive(JsonSchema, Serialize)]
pub(crate) struct SlabCache<'a> {
    /// Name.
    pub(crate) name: &'a str,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub(crate) aliases: Vec<String>,
    /// Bytes of its slabs.
    pub(crate) slab_bytes: u64,
    /// Objects that the kernel counts as active.
    pub(crate) active_objs: u64,
    /// Objects that the slabs have room for.
    pub(crate) num_objs: u64,
    /// Bytes from object to object.
    pub(crate) object_size: u64,
}

/// Contents of a trace.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Trace<'a> {
    /// The recording.
    #[serde(flatten)]
    pub(crate) recording: TraceInfo<'a>,
    /// Recorder, such as `tracefs` or `perf script`.
    pub(crate) source: &'a str,
    /// Time of the first event, by the recording's clock.
    pub(crate) first_time_ns: u64,
    /// Part of the recording that is the load's; null if nothing says so.
    pub(crate) load: Option<Load>,
    /// Part of the rows that are the recorder's own, from 0 to 1; null if its threads are unknown.
    pub(crate) recorder_share: Option<f64>,
    /// Thread ids of the recorder.
    pub(crate) recorder_pids: &'a [i32],
    /// Allocations that have a call stack.
    pub(crate) stack_rows: u64,
    /// Memory of objects whose free has no event (bulk calls, `kfree_rcu()`), each from its allocation to the next use of
    /// its memory: at most what waits for a grace period or lies free. Null if unknown.
    pub(crate) unseen_frees: Option<UnseenFrees>,
    /// Objects that batches of `kfree_rcu()` freed, as the kernel told; 0 if it told of none.
    pub(crate) rcu_objects: u64,
    /// Allocations of pages that took a block of another migrate type (`mm_page_alloc_extfrag`); null if these events
    /// were not recorded.
    pub(crate) extfrag_events: Option<u64>,
    /// Pages that CPUs' lists gave back to their zone (`mm_page_pcpu_drain`); null if these events were not recorded.
    pub(crate) drain_events: Option<u64>,
    /// Frees of NULL or of the zero-size pointer.
    pub(crate) null_frees: u64,
    /// Allocations that returned nothing.
    pub(crate) failed_allocs: u64,
    /// Process names with most rows first.
    pub(crate) processes: Vec<Busy<'a>>,
    /// Number of all process names.
    pub(crate) process_count: u64,
    /// Call sites with most rows first.
    pub(crate) call_sites: Vec<Busy<'a>>,
    /// Number of all call sites.
    pub(crate) call_site_count: u64,
    /// Allocation flags with most rows first.
    pub(crate) gfp_flags: Vec<Busy<'a>>,
    /// Number of all combinations of flags.
    pub(crate) gfp_flags_count: u64,
    /// Caches with most rows first; `kmalloc` is one of them.
    pub(crate) caches: Vec<BusyCache<'a>>,
    /// Reports of the kernel about itself, in the order of their times.
    pub(crate) reports: Vec<ReportInfo<'a>>,
}

/// Part of a recording.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Load {
    /// First moment, by the recording's clock.
    pub(crate) from_ns: u64,
    /// First moment after it.
    pub(crate) until_ns: u64,
}

/// Rows of one process, call site, cache or combination of flags.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Busy<'a> {
    /// Name.
    pub(crate) name: &'a str,
    /// Rows of the trace.
    pub(crate) rows: u64,
    /// `rows` as a part of all rows, from 0 to 1.
    pub(crate) share: f64,
}

/// Rows of one cache.
#[derive(JsonSchema, Serialize)]
pub(crate) struct BusyCache<'a> {
    #[serde(flatten)]
    pub(crate) busy: Busy<'a>,
    /// Other names of the cache, which the kernel merged with it: those of links in sysfs, sorted. Empty if none are known.
    pub(crate) aliases: Vec<String>,
}

/// A report of the kernel about itself.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ReportInfo<'a> {
    /// Kind: `snapshot`, `zoneinfo`, `pagetypeinfo` or `vmstat`.
    pub(crate) name: &'a str,
    /// When it was read, by the recording's clock.
    pub(crate) time_ns: u64,
    /// Bytes of its text.
    pub(crate) bytes: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match input::source(&args.file, args.stage.as_deref())? {
        Source::Trace(input) => {
            let meta = input.file.meta();
            let snapshots = input.snapshots()?;
            print(args, &of_trace(&input.name, meta, snapshots.first()))
        }
        Source::Snapshots(moments) => {
            let name = input::shown(args.file.as_ref());
            print(args, &of_snapshot(&name, &Snapshot::last(moments)))
        }
    }
}

fn print(args: &Args, report: &Report<'_>) -> anyhow::Result<()> {
    match args.json {
        true => output::print_json("info", report),
        false => {
            let view = view::view(&[output::doc("info", report)?]);
            let show = Show {
                rows: Some(args.top),
                ..Show::default()
            };
            terminal::print_view(&view, show)
        }
    }
}

fn of_trace<'a>(name: &'a str, meta: &'a TraceMeta, snapshot: Option<&'a Snapshot>) -> Report<'a> {
    let mut lacks = Vec::new();
    if meta.reports.is_empty() {
        lacks.push(
            "reports of the kernel: a replay starts from an empty machine and cannot be checked (quarry record keeps \
             them, quarry filter --before adds them)",
        );
    } else if snapshot.is_none() {
        lacks.push("snapshots: a replay does not know what slabs the kernel held (quarry filter --before adds one)");
    }
    if meta.slab_memory.is_none() {
        lacks.push("the pages of slabs: page events cannot be told from those of slabs, and are not replayed");
    }
    if meta.call_sites.entries.is_empty() {
        lacks.push("call sites: quarry callers knows processes and caches only");
    }
    let rows = meta.rows.max(1);
    let share = |part: u64| part as f64 / rows as f64;
    let busy = |table: &'a Table| -> Vec<Busy<'a>> {
        let entries = table.entries.iter();
        let named = entries.map(|(name, rows)| Busy {
            name,
            rows: *rows,
            share: share(*rows),
        });
        named.collect()
    };
    let all = |table: &Table| table.entries.len() as u64 + table.omitted;
    let moves = &meta.moves;
    let trace = Trace {
        recording: TraceInfo::of(name, meta),
        source: &meta.source,
        first_time_ns: meta.first_time_ns,
        load: meta.load_part().map(|part| Load {
            from_ns: part.from_ns,
            until_ns: part.until_ns,
        }),
        recorder_share: recorder_rows(meta).map(share),
        recorder_pids: &meta.recorder_pids,
        stack_rows: meta.stack_rows,
        unseen_frees: meta.unseen_frees,
        rcu_objects: meta.rcu.bulk_objects,
        extfrag_events: (moves.extfrag_on || moves.extfrag_events > 0)
            .then_some(moves.extfrag_events),
        drain_events: (moves.drain_on || moves.drain_events > 0).then_some(moves.drain_events),
        null_frees: meta.null_frees,
        failed_allocs: meta.failed_allocs,
        processes: busy(&meta.comms),
        process_count: all(&meta.comms),
        call_sites: busy(&meta.call_sites),
        call_site_count: all(&meta.call_sites),
        gfp_flags: busy(&meta.gfp_flags),
        gfp_flags_count: all(&meta.gfp_flags),
        caches: caches(meta, snapshot),
        reports: reports(meta),
    };
    Report {
        kernel: meta.kernel.as_deref(),
        arch: meta.arch.as_deref(),
        page_size: Some(meta.page_size.into()),
        cpus: Some(meta.cpus),
        boot_id: meta.boot_id.as_deref(),
        trace: Some(trace),
        ..of_machine(name, "trace", snapshot, lacks)
    }
}

/// Rows of the recorder itself. A thread beyond those that the footer lists counts for nothing.
fn recorder_rows(meta: &TraceMeta) -> Option<u64> {
    let own = |task: &&(String, u64)| {
        let pid = task.0.split_once(' ').map_or("", |(pid, _)| pid);
        pid.parse().is_ok_and(|pid| meta.is_recorder(pid))
    };
    let rows = meta.tasks.entries.iter().filter(own);
    (!meta.recorder_pids.is_empty()).then(|| rows.map(|(_, rows)| rows).sum())
}

/// Caches of a trace by name; provisional ones count for the cache that they turned out to be.
fn caches<'a>(meta: &'a TraceMeta, snapshot: Option<&Snapshot>) -> Vec<BusyCache<'a>> {
    let named = meta.caches.iter().filter_map(|entry| {
        let cache = meta.caches.get(usize::from(entry.resolved))?;
        Some((cache.name.as_str(), entry.allocs + entry.frees))
    });
    let grouped = quarry_view::grouped(named).into_iter();
    let summed = grouped.map(|(name, rows)| (name, rows.into_iter().sum::<u64>()));
    let mut caches: Vec<BusyCache<'_>> = summed
        .filter(|(_, rows)| *rows > 0)
        .map(|(name, rows)| BusyCache {
            busy: Busy {
                name,
                rows,
                share: rows as f64 / meta.rows.max(1) as f64,
            },
            aliases: snapshot.map_or_else(Vec::new, |of| of.aliases_of(name)),
        })
        .collect();
    caches.sort_by(|a, b| {
        let by_rows = b.busy.rows.cmp(&a.busy.rows);
        by_rows.then_with(|| a.busy.name.cmp(b.busy.name))
    });
    caches
}

fn reports(meta: &TraceMeta) -> Vec<ReportInfo<'_>> {
    let reports = meta.reports.iter().map(|report| ReportInfo {
        name: &report.name,
        time_ns: report.time_ns,
        bytes: report.text.len() as u64,
    });
    reports.collect()
}

fn of_snapshot<'a>(name: &str, snapshot: &'a Snapshot) -> Report<'a> {
    let mut lacks = Vec::new();
    if snapshot.release.is_none() {
        lacks.push("the release (kernel_release): the rules that explain most caches are taken");
    }
    if snapshot.present_cpus.is_none() {
        lacks.push("the CPUs (cpu_present, cpu_possible): their number is guessed from the slabs");
    }
    if !snapshot.has_sysfs() {
        lacks
            .push("/sys/kernel/slab: what CPUs and partial lists hold is estimated for all caches");
    }
    if snapshot.cmdline.is_none() {
        lacks.push("the command line (cmdline): boot parameters are taken to be the defaults");
    }
    if snapshot.memory_bytes.is_none() {
        lacks.push("meminfo: the machine's memory is unknown");
    }
    let mut report = of_machine(name, "snapshot", Some(snapshot), lacks);
    let guesses = quarry_lab::known::guesses(snapshot).into_iter();
    let guesses = guesses.map(|(field, reason)| match (field, snapshot.releases) {
        ("kernel_range", Some(releases)) => format!("the kernel may be {releases}: {reason}"),
        ("page_size", _) => format!("the page size is a guess: {reason}"),
        _ => format!("{field} is a guess: {reason}"),
    });
    report.lacks.extend(guesses);
    report.lacks.extend(quarry_lab::known::lacks(snapshot));
    report
}

/// Facts that a snapshot has about its machine.
fn of_machine<'a>(
    name: &str,
    kind: &'static str,
    snapshot: Option<&'a Snapshot>,
    lacks: Vec<&str>,
) -> Report<'a> {
    // Guessed ones are no facts.
    let machine = snapshot.filter(|of| of.facts.present_cpus.is_fact());
    Report {
        name: name.to_string(),
        kind,
        kernel: snapshot.and_then(|of| of.release.as_deref()),
        arch: snapshot.and_then(|of| of.architecture.as_deref()),
        page_size: snapshot.map(|of| of.page_bytes).filter(|bytes| *bytes > 0),
        cpus: machine.and_then(|of| of.present_cpus),
        possible_cpus: machine.and_then(|of| of.nr_cpu_ids),
        memory_bytes: snapshot.and_then(|of| of.memory_bytes),
        boot_id: snapshot.and_then(|of| of.boot_id.as_deref()),
        parameters: snapshot.and_then(|of| of.cmdline.as_deref().map(parameters)),
        tunables: snapshot.map_or_else(Vec::new, tunables),
        sysctls: snapshot.map_or_else(BTreeMap::new, |of| {
            let sysctls = of.sysctls.iter();
            sysctls
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect()
        }),
        slabs: snapshot.filter(|of| of.detail() > Detail::Bytes).map(slabs),
        trace: None,
        lacks: lacks.into_iter().map(str::to_string).collect(),
    }
}

/// Parameters that allocators or the number of CPUs depend on.
fn parameters(cmdline: &str) -> Vec<&str> {
    const PREFIXES: [&str; 12] = [
        "slab_",
        "slub_",
        "sl[ua]b_",
        "cgroup",
        "hugepage",
        "init_on_",
        "kasan",
        "maxcpus=",
        "mem=",
        "nr_cpus=",
        "page_",
        "transparent_hugepage=",
    ];
    let words = cmdline.split_whitespace();
    words
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

/// Values that caches have in sysfs, and in slabinfo those of SLAB.
fn tunables(snapshot: &Snapshot) -> Vec<TunableValue> {
    let rows = &snapshot.slabinfo.rows;
    let arrays = rows.iter().any(|row| row.limit > 0);
    let era = snapshot.release.as_deref().and_then(Era::parse);
    let Some(design) = DesignEntry::of_kernel(era, arrays) else {
        return Vec::new();
    };
    let era = era.unwrap_or(design.default_era);
    let of_caches = design
        .tunables
        .of(era)
        .filter(|tunable| tunable.scope == Scope::Cache);
    let found = of_caches.filter_map(|tunable| {
        let in_sysfs = snapshot
            .sysfs
            .values()
            .filter_map(|cache| cache.number(tunable.name));
        let in_slabinfo = rows.iter().filter_map(|row| match tunable.name {
            "limit" => Some(row.limit),
            "batchcount" => Some(row.batchcount),
            "sharedfactor" => Some(row.sharedfactor),
            _ => None,
        });
        let in_slabinfo = in_slabinfo.filter(|_| arrays);
        value(tunable.name, in_sysfs.chain(in_slabinfo))
    });
    found.collect()
}

/// A tunable of caches with these values; `None` without any.
fn value(name: &str, values: impl Iterator<Item = u64>) -> Option<TunableValue> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let runs = values.chunk_by(|a, b| a == b);
    let usual = runs.max_by_key(|run| run.len())?.first().copied()?;
    Some(TunableValue {
        name: name.to_string(),
        least: values.first().copied()?,
        largest: values.last().copied()?,
        usual,
        caches: values.len() as u64,
    })
}

fn slabs(snapshot: &Snapshot) -> Slabs<'_> {
    let rows = snapshot.slabinfo.rows.iter();
    let mut caches: Vec<SlabCache<'_>> = rows
        .map(|row| SlabCache {
            name: &row.name,
            aliases: snapshot.aliases_of(&row.name),
            slab_bytes: row.slab_bytes(snapshot.page_bytes),
            active_objs: row.active_objs,
            num_objs: row.num_objs,
            object_size: row.objsize,
        })
        .collect();
    caches.sort_by(|a, b| {
        b.slab_bytes
            .cmp(&a.slab_bytes)
            .then_with(|| a.name.cmp(b.name))
    });
    Slabs {
        slab_bytes: snapshot.slab_bytes(),
        active_bytes: snapshot.slabinfo.active_bytes(),
        caches,
    }
}
