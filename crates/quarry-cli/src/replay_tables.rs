//! The tables of `quarry replay`: one column per run, and where the memory of each cache is.

use quarry_lab::callers::{By, Caller};
use quarry_lab::{CacheReport, RunReport};
use quarry_trace::TraceMeta;

use crate::chart::{Panel, panels};
use crate::finding::{finding, free_in, waste_in};
use crate::output::column;
use crate::rows::Form::{Bytes, Count, Of, Orders, Own, Rate};
use crate::rows::{self, Label, Row, first, line, more};
use crate::units::{bytes, count};
use crate::{callers, output, replay_check, replay_pages};

/// Tables that are printed if they are asked for.
#[derive(Clone, Copy)]
pub(crate) struct More<'a> {
    /// Every row.
    pub(crate) all: bool,
    /// The caches that differ most between the runs, of one run those that waste most; at most this number.
    pub(crate) caches: Option<usize>,
    /// The callers with most memory, at most this number; none if they were not asked for.
    pub(crate) callers: (&'a [Caller], usize),
    /// Free memory over time.
    pub(crate) fragmentation: bool,
}

/// Everything that a replay prints.
pub(crate) fn text(
    name: &str,
    meta: &TraceMeta,
    settings: &str,
    runs: &[RunReport],
    more: More<'_>,
) -> String {
    let head = head(name, meta, settings, runs);
    let lines: Vec<String> = head.lines().map(output::wrap).collect();
    let mut text = format!("{}\n", lines.join("\n"));
    text.push_str(&format!("\n{}\n", output::wrap(&told(meta, runs))));
    for table in run_tables(runs, more.all) {
        text.push_str(&format!("\n{table}\n"));
    }
    text.push_str(match more.all {
        true => "\n`quarry explain NAME` says what a row means.\n",
        false => "\n--all has more rows; `quarry explain NAME` says what one means.\n",
    });
    for run in runs {
        let title = format!(
            "{}, {} pages, {} CPUs",
            run.title(),
            bytes(run.page_size),
            run.cpus
        );
        if let Some(check) = &run.check {
            text.push_str(&replay_check::text(&title, check));
        }
        if let Some(pages) = run.pages.as_ref().filter(|_| more.fragmentation) {
            text.push_str(&replay_pages::fragmentation(&title, run.page_size, pages));
        }
    }
    if let (callers @ [_, ..], top) = more.callers {
        let table = callers::table(callers, By::Site, top);
        text.push_str(&format!("\nrecorded allocations by call site: {table}"));
    }
    match (runs, more.caches) {
        (_, None) => {}
        ([run], Some(top)) => text.push_str(&format!("\n{}", cache_table(&run.caches, top))),
        (runs, Some(top)) => {
            text.push_str(&format!("\n{}", compared_caches(runs, top, more.all)));
        }
    }
    text
}

/// The finding in sentences. With --check the question is how far the prediction is right.
pub(crate) fn told(meta: &TraceMeta, runs: &[RunReport]) -> String {
    match replay_check::finding(runs) {
        told if told.is_empty() => finding(meta, runs),
        told => told,
    }
}

/// The trace in two lines.
pub(crate) fn about(name: &str, meta: &TraceMeta) -> String {
    let kernel = meta.kernel.as_deref().unwrap_or("unknown");
    format!(
        "{name}: {} events in {:.3} s, kernel {kernel}, {} pages, {} CPUs\n\
         quarry {}, trace digest {:016x}\n",
        count(meta.events.total()),
        meta.duration_ns() as f64 / 1e9,
        bytes(meta.page_size.into()),
        meta.cpus,
        env!("CARGO_PKG_VERSION"),
        meta.digest,
    )
}

/// The trace in a few lines, with what of it was not replayed.
fn head(name: &str, meta: &TraceMeta, settings: &str, runs: &[RunReport]) -> String {
    let mut text = about(name, meta);
    text.push_str(settings);
    text.push_str(&load_of(meta));
    for assumption in &meta.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
    let held = runs.iter().map(|run| run.initial_slab_bytes);
    let states = runs.iter();
    let states = states.map(|run| (run.design, run.era, run.initial.as_deref()));
    text.push_str(&output::begins(states));
    let other_heap = runs.iter().any(|run| run.initial.is_some());
    text.push_str(&start(meta, other_heap, held));
    text.push_str(&idle_cpus(runs));
    if let Some(command) = &meta.command {
        text.push_str(&format!("recorded: {command}\n"));
    }
    if let Some(replayed) = runs.first().map(|run| run.replayed) {
        text.push_str(&format!(
            "replayed: {} allocations, {} frees ({} implied); not replayed: {} orphaned frees, {} \
             page events\n",
            count(replayed.allocs),
            count(replayed.frees),
            count(replayed.implied_frees),
            count(replayed.orphans),
            count(replayed.page_events),
        ));
        if replayed.initial_frees > 0 {
            text.push_str(&format!(
                "orphaned frees that freed an object of the initial state: {}\n",
                count(replayed.initial_frees)
            ));
        }
    }
    text.push_str(&replay_pages::summary(meta, runs));
    if let Some(debug) = runs.first().and_then(|run| run.slub_debug.as_deref()) {
        text.push_str(&format!("debugging: slub_debug={debug}\n"));
    }
    if meta.lost_events > 0 {
        text.push_str(&format!(
            "warning: the recorder lost {} events\n",
            count(meta.lost_events)
        ));
    }
    text
}

/// A line about what of the recording is the load; nothing where all is.
pub(crate) fn load_of(meta: &TraceMeta) -> String {
    let part = meta.load_part().map(|load| {
        let until_ns = load.until_ns.min(meta.last_time_ns);
        let ns = until_ns.saturating_sub(load.from_ns);
        format!("{:.3} s of the recording", ns as f64 / 1e9)
    });
    let recorder =
        (!meta.recorder_pids.is_empty()).then(|| "without the recorder's own events".to_string());
    let parts: Vec<String> = part.into_iter().chain(recorder).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("load: {}\n", parts.join(", ")),
    }
}

/// A line about the state that runs begin with, which hold these bytes of slabs then.
///
/// Empty if the heap is another machine's: [`output::begins`] names it.
pub(crate) fn start(
    meta: &TraceMeta,
    other_heap: bool,
    held: impl Iterator<Item = u64> + Clone,
) -> String {
    if other_heap {
        return String::new();
    }
    let least = held.clone().min().unwrap_or(0);
    match held.max().unwrap_or(0) {
        0 if meta.has_snapshot() => {
            "starts empty: what the kernel held before is in the trace, and left out\n".to_string()
        }
        0 => "starts empty: what the kernel held before is not in the trace\n".to_string(),
        most if least != most => format!(
            "starts with what the kernel held: {} to {} of slabs\n",
            bytes(least),
            bytes(most)
        ),
        most => format!(
            "starts with what the kernel held: {} of slabs\n",
            bytes(most)
        ),
    }
}

/// A line for machines most of whose CPUs have no events.
fn idle_cpus(runs: &[RunReport]) -> String {
    let mut seen: Vec<(u32, u32)> = runs
        .iter()
        .filter(|run| run.cpus_with_events < run.cpus)
        .map(|run| (run.cpus_with_events, run.cpus))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    let parts: Vec<String> = seen
        .iter()
        .map(|(used, cpus)| format!("{used} of {cpus} CPUs have events"))
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("{}; --copies N gives others work\n", parts.join(", ")),
    }
}

/// The row that stays below those of page events.
const LAST_ROW: &str = "events/s";

/// Rows of a run, top to bottom.
pub(crate) const ROWS: &[Row] = &[
    first("slab memory, peak", "peak_slab_bytes", Bytes),
    first("  asked for, peak", "object_bytes", Of("peak_slab_bytes")).note(OF_SLABS),
    more("  peak at event", "peak_event", Count),
    first("slab memory, end", "final_slab_bytes", Bytes),
    first(
        "  asked for, end",
        "final_object_bytes",
        Of("final_slab_bytes"),
    )
    .note(OF_SLABS),
    first(
        "  free in slabs",
        "caches.free_bytes",
        Own(free_in, |free| bytes(free as u64)),
    )
    .note("Sum over all caches, and SLOB's free blocks in pages that caches share."),
    first(
        "  waste",
        "caches.waste_bytes",
        Own(waste_in, |waste| bytes(waste as u64)),
    )
    .note("Sum over all caches."),
    more("large kmallocs, peak", "large_bytes_peak", Bytes),
    more("slabs", "slabs", Count),
    more("  by order", "slabs_by_order", Orders),
    more("  partial", "partial_slabs", Count),
    more("  one object", "one_object_slabs", Count),
    first(
        "alloc fast path",
        "alloc_fastpath",
        Of("alloc_fastpath alloc_slowpath"),
    )
    .note("The row has them as a part of all allocations."),
    first(
        "free fast path",
        "free_fastpath",
        Of("free_fastpath free_slowpath"),
    )
    .note("The row has them as a part of all frees."),
    first("slow paths", "alloc_slowpath free_slowpath", Count).note("Sum of both."),
    more("  of allocations", "alloc_slowpath", Count),
    more("  of frees", "free_slowpath", Count),
    first("cross-CPU frees", "cross_cpu_frees", Count),
    first("zone locks", "locks.zone", Count)
        .note("Locks of zones, taken for slabs, page events and periodic work."),
    more("node list locks", "locks.node_list", Count).note("Locks of nodes' slab lists."),
    more("slab pages: calls", "page_allocs", Count),
    more("  given back", "page_frees", Count),
    more("own structures", "overhead_bytes", Bytes),
    more(LAST_ROW, "events_per_second", Rate),
];

/// Note of rows that are a part of the slab memory.
const OF_SLABS: &str = "The row has them as a part of the slab memory.";

/// A table for each page size and number of CPUs if these have several runs each, else one table; each
/// as wide as the output, with as many tables below it as its runs need.
fn run_tables(runs: &[RunReport], all: bool) -> Vec<String> {
    let panels = panels(runs);
    if panels.iter().all(|panel| panel.runs.len() == 1) {
        let runs: Vec<&RunReport> = runs.iter().collect();
        return output::side_by_side(&rows(&runs, all, true));
    }
    let mut tables = Vec::new();
    for Panel { title, runs } in panels {
        for table in output::side_by_side(&rows(&runs, all, false)) {
            tables.push(format!("{title}\n{table}"));
        }
    }
    tables
}

/// The rows with their names, the header first.
fn rows(runs: &[&RunReport], all: bool, machines: bool) -> Vec<Vec<String>> {
    let header = runs.iter().map(|run| match machines {
        true => format!(
            "{}\n{} pages\n{} CPUs",
            column(&run.title()),
            bytes(run.page_size),
            run.cpus
        ),
        false => column(&run.title()),
    });
    let mut rows = vec![line("", header)];
    let mut shown = rows::lines(ROWS, runs, all);
    let last = shown.pop_if(|(name, _)| *name == LAST_ROW);
    rows.extend(shown.into_iter().map(|(name, cells)| line(name, cells)));
    rows.extend(replay_pages::rows(runs, all));
    rows.extend(last.map(|(name, cells)| line(name, cells)));
    rows
}

/// Columns of `--caches`, which `quarry explain` takes with spaces for line breaks.
pub(crate) const CACHE_COLUMNS: [Label; 9] = [
    Label::new("name", "caches.name"),
    Label::new("memory", "caches.slab_bytes").note("The column is in KiB."),
    Label::new("waste", "caches.waste_bytes").note("The column is in KiB."),
    Label::new("free", "caches.free_bytes").note("The column is in KiB."),
    Label::new("num\nslabs", "caches.slabs"),
    Label::new("active\nobjs", "caches.active_objs"),
    Label::new("num\nobjs", "caches.num_objs"),
    Label::new("obj\nsize", "caches.slab_size"),
    Label::new("objs per\nslab", "caches.objs_per_slab"),
];

/// The row or column that shows a field of `runs` first.
pub(crate) fn label_of(field: &str) -> Option<Label> {
    let rows = ROWS.iter().map(|row| row.label);
    let mut labels = rows.chain(replay_pages::labels()).chain(CACHE_COLUMNS);
    labels.find(|label| label.fields().next() == Some(field))
}

/// Caches of a run at its end: those that waste most, then those that hold most free memory.
fn cache_table(caches: &[CacheReport], top: usize) -> String {
    let mut sorted: Vec<&CacheReport> = caches.iter().collect();
    sorted.sort_by_key(|cache| std::cmp::Reverse((cache.waste_bytes, cache.free_bytes)));
    let mut rows = vec![CACHE_COLUMNS.map(|column| column.name.to_string()).to_vec()];
    rows.extend(sorted.iter().take(top).map(|cache| {
        vec![
            cache.name.clone(),
            kib(cache.slab_bytes),
            kib(cache.waste_bytes),
            kib(cache.free_bytes),
            cache.slabs.to_string(),
            cache.active_objs.to_string(),
            cache.num_objs.to_string(),
            cache.slab_size.to_string(),
            cache.objs_per_slab.to_string(),
        ]
    }));
    let tables = output::side_by_side(&rows).join("\n\n");
    let shown = match caches.len() > top {
        true => format!(": {top} of {} caches, those that waste most", caches.len()),
        false => ", by waste".to_string(),
    };
    format!("caches at the end, KiB{shown}\n{tables}\n")
}

fn kib(bytes: u64) -> String {
    count(bytes.div_ceil(1024))
}

/// Slab memory of each cache in all runs, and with `all` what it wastes and keeps free there: those whose memory
/// differs most between the runs.
fn compared_caches(runs: &[RunReport], top: usize, all: bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for cache in runs.iter().flat_map(|run| &run.caches) {
        if !names.contains(&cache.name.as_str()) {
            names.push(&cache.name);
        }
    }
    let mut caches: Vec<(u64, &str, Vec<Option<CacheSums>>)> = names
        .into_iter()
        .map(|name| {
            let of_runs: Vec<_> = runs.iter().map(|run| CacheSums::of(run, name)).collect();
            let memory = || of_runs.iter().map(|of| of.map_or(0, |of| of.slab));
            let spread = memory().max().unwrap_or(0) - memory().min().unwrap_or(0);
            (spread, name, of_runs)
        })
        .collect();
    caches.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let machine = |run: &RunReport| {
        format!(
            "{}\n{} pages\n{} CPUs",
            column(&run.title()),
            bytes(run.page_size),
            run.cpus
        )
    };
    let mut rows = vec![line("cache", runs.iter().map(machine))];
    let cells = |of_runs: &[Option<CacheSums>], value: fn(&CacheSums) -> u64| -> Vec<String> {
        let cell = |of: &Option<CacheSums>| {
            of.as_ref()
                .map_or_else(|| "-".to_string(), |of| kib(value(of)))
        };
        of_runs.iter().map(cell).collect()
    };
    for (_, name, of_runs) in caches.iter().take(top) {
        rows.push(line(*name, cells(of_runs, |of| of.slab)));
        if all {
            rows.push(line("  waste", cells(of_runs, |of| of.waste)));
            rows.push(line("  free", cells(of_runs, |of| of.free)));
        }
    }
    let shown = match caches.len() > top {
        true => format!("{top} of {} caches, those that differ most", caches.len()),
        false => "caches, those that differ most first".to_string(),
    };
    let tables = output::side_by_side(&rows).join("\n\n");
    format!("slab memory at the end, KiB: {shown}\n{tables}\n")
}

/// Memory of the caches of one name in a run.
#[derive(Clone, Copy)]
struct CacheSums {
    slab: u64,
    waste: u64,
    free: u64,
}

impl CacheSums {
    /// `None` if the run has no such cache, or its slabs are no cache's (SLOB).
    fn of(run: &RunReport, name: &str) -> Option<Self> {
        let mut found = run
            .caches
            .iter()
            .filter(|cache| cache.name == name)
            .peekable();
        let shared = |cache: &&CacheReport| cache.slab_bytes == 0 && cache.active_objs > 0;
        if shared(found.peek()?) {
            return None;
        }
        let none = Self {
            slab: 0,
            waste: 0,
            free: 0,
        };
        Some(found.fold(none, |sums, cache| Self {
            slab: sums.slab + cache.slab_bytes,
            waste: sums.waste + cache.waste_bytes,
            free: sums.free + cache.free_bytes,
        }))
    }
}
