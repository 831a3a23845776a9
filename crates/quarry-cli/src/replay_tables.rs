//! The tables of `quarry replay`: one column per run, and slabinfo's columns per cache.

use quarry_lab::replay::check::{CacheCheck, Check};
use quarry_lab::{CacheReport, RunReport};
use quarry_trace::TraceMeta;

use crate::units::{bytes, count, percent, rate};
use crate::{output, replay_pages};

/// Columns that the names of the rows take, with their padding.
const NAME_COLUMNS: u16 = 27;
/// Columns that one run takes, with its padding.
const RUN_COLUMNS: u16 = 16;

/// Tables that are printed if they are asked for.
#[derive(Clone, Copy)]
pub(crate) struct More {
    /// Slabinfo's columns for each cache.
    pub(crate) caches: bool,
    /// Free memory over time.
    pub(crate) fragmentation: bool,
}

/// Everything that a replay prints.
pub(crate) fn text(
    name: &str,
    meta: &TraceMeta,
    settings: &str,
    runs: &[RunReport],
    more: More,
) -> String {
    let mut text = head(name, meta, settings, runs);
    let per_table = (output::width().saturating_sub(NAME_COLUMNS) / RUN_COLUMNS).max(1);
    for runs in runs.chunks(per_table.into()) {
        text.push_str(&format!("\n{}\n", run_table(runs)));
    }
    for run in runs {
        let title = format!(
            "{}@{}, {} pages, {} CPUs",
            run.design,
            run.era,
            bytes(run.page_size),
            run.cpus
        );
        if let Some(check) = &run.check {
            let (table, left_out) = check_table(check);
            text.push_str(&format!(
                "\n{title}, predicted beside observed, in KiB\n{table}\n"
            ));
            if left_out > 0 {
                text.push_str(&format!(
                    "{left_out} caches beyond {HOLDING_PERCENT} % of the memory, which neither \
                     changed nor differ, are left out\n"
                ));
            }
            text.push_str(&unseen_frees(check));
            text.push_str(&same_slabs(check));
        }
        if let Some(pages) = run.pages.as_ref().filter(|_| more.fragmentation) {
            text.push_str(&replay_pages::fragmentation(&title, run.page_size, pages));
        }
        if more.caches {
            let table = cache_table(&run.caches);
            text.push_str(&format!("\n{title}, at the end\n{table}\n"));
        }
    }
    text
}

/// The caches that hold this much of the memory are always shown.
const HOLDING_PERCENT: u64 = 95;

/// How many objects came from the slabs that the kernel took them from, if the trace tells.
fn same_slabs(check: &Check) -> String {
    let sum = |of: fn(&CacheCheck) -> u64| check.caches.iter().map(of).sum::<u64>();
    let told = sum(|cache| cache.same_slabs.told);
    if told == 0 {
        return String::new();
    }
    let same = sum(|cache| cache.same_slabs.same);
    let departed = |cache: &&CacheCheck| cache.same_slabs.first_departure.is_some();
    format!(
        "{} of {} allocations came from the slab that the kernel took them from; caches with others: {}\n",
        count(same),
        count(told),
        check.caches.iter().filter(departed).count()
    )
}

/// The memory of each cache before, as predicted and as observed, and the number of caches that
/// are left out.
fn check_table(check: &Check) -> (comfy_table::Table, usize) {
    let header = [
        "cache",
        "before",
        "predicted",
        "observed",
        "difference",
        "of it",
    ];
    let mut table = output::unbroken(output::table(&header, &[]));
    let kib = |bytes: u64| (bytes >> 10).to_string();
    let mut row = |name: &str, before: Option<u64>, predicted: u64, observed: u64| {
        let difference = i128::from(predicted) - i128::from(observed);
        let share = share(difference, observed.into());
        table.add_row([
            name.to_string(),
            before.map_or_else(|| "-".to_string(), kib),
            kib(predicted),
            kib(observed),
            format!("{:+}", difference / 1024),
            share,
        ]);
    };
    let holding = check.holding(HOLDING_PERCENT).len();
    let tells = |cache: &CacheCheck| {
        let same = cache.predicted_bytes == cache.observed_bytes;
        let before = cache.initial_bytes;
        !same || before.is_some_and(|before| before != cache.observed_bytes)
    };
    let mut left_out = 0;
    for (at, cache) in check.caches.iter().enumerate() {
        let (predicted, observed) = (cache.predicted_bytes, cache.observed_bytes);
        if at < holding || tells(cache) {
            let mark = if cache.implied_frees > 0 { " *" } else { "" };
            let name = format!("{}{mark}", cache.name);
            row(&name, cache.initial_bytes, predicted, observed);
        } else {
            left_out += 1;
        }
    }
    let (predicted, observed) = (check.predicted_bytes, check.observed_bytes);
    row("all caches", check.initial_bytes, predicted, observed);
    if let Some(before) = check.initial_bytes {
        table.add_row(growth("growth", before, predicted, observed));
    }
    let seen = &check.seen;
    if let (Some(before), true) = (seen.initial_bytes, seen.left_out > 0) {
        let (predicted, observed) = (seen.predicted_bytes, seen.observed_bytes);
        table.add_row(growth("growth without *", before, predicted, observed));
    }
    (table, left_out)
}

/// By how much memory grew.
fn growth(name: &str, before: u64, predicted: u64, observed: u64) -> [String; 6] {
    let grown = |bytes: u64| (i128::from(bytes) - i128::from(before)) / 1024;
    let (predicted, observed) = (grown(predicted), grown(observed));
    let difference = predicted - observed;
    [
        name.to_string(),
        String::new(),
        format!("{predicted:+}"),
        format!("{observed:+}"),
        format!("{difference:+}"),
        share(difference, observed),
    ]
}

/// A difference as a part of what was observed, in per cent; `-` of nothing.
fn share(difference: i128, observed: i128) -> String {
    match observed {
        0 => "-".to_string(),
        _ => format!(
            "{:+.1} %",
            difference as f64 / observed.abs() as f64 * 100.0
        ),
    }
}

/// What the mark of caches means, if one has it.
fn unseen_frees(check: &Check) -> String {
    let marked = check.seen.left_out;
    if marked == 0 {
        return String::new();
    }
    let frees: u64 = check.caches.iter().map(|cache| cache.implied_frees).sum();
    format!(
        "* {} frees of {marked} caches had no event (bulk frees have none): only the reuse of an \
         address told them, so these caches may hold more here than in the kernel\n",
        count(frees)
    )
}

/// The trace in a few lines, with what of it was not replayed.
fn head(name: &str, meta: &TraceMeta, settings: &str, runs: &[RunReport]) -> String {
    let kernel = meta.kernel.as_deref().unwrap_or("unknown");
    let mut text = format!(
        "{name}: {} events in {:.3} s, kernel {kernel}, {} pages, {} CPUs\n\
         quarry {}, trace digest {:016x}\n",
        count(meta.events.total()),
        meta.duration_ns() as f64 / 1e9,
        bytes(meta.page_size.into()),
        meta.cpus,
        env!("CARGO_PKG_VERSION"),
        meta.digest,
    );
    text.push_str(settings);
    for assumption in &meta.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
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

type Row = (&'static str, fn(&RunReport) -> String);

/// Rows of a run, top to bottom.
const ROWS: &[Row] = &[
    ("peak slab memory", |run| bytes(run.peak_slab_bytes)),
    ("  asked for by objects", |run| bytes(run.object_bytes)),
    ("  utilisation", |run| {
        percent(run.object_bytes, run.peak_slab_bytes)
    }),
    ("final slab memory", |run| bytes(run.final_slab_bytes)),
    ("  utilisation", |run| {
        percent(run.final_object_bytes, run.final_slab_bytes)
    }),
    ("peak large kmallocs", |run| bytes(run.large_bytes_peak)),
    ("final slabs", |run| count(run.slabs)),
    ("  by order", orders),
    ("  partial", |run| count(run.partial_slabs)),
    ("  partial, one object", |run| count(run.one_object_slabs)),
    ("alloc fast path", |run| {
        percent(run.alloc_fastpath, run.alloc_fastpath + run.alloc_slowpath)
    }),
    ("  slow paths", |run| count(run.alloc_slowpath)),
    ("free fast path", |run| {
        percent(run.free_fastpath, run.free_fastpath + run.free_slowpath)
    }),
    ("  slow paths", |run| count(run.free_slowpath)),
    ("cross-CPU frees", |run| count(run.cross_cpu_frees)),
    ("page allocator allocs", |run| count(run.page_allocs)),
    ("page allocator frees", |run| count(run.page_frees)),
    (LAST_ROW, |run| rate(run.events_per_second)),
];

fn orders(run: &RunReport) -> String {
    let lines: Vec<String> = run
        .slabs_by_order
        .iter()
        .enumerate()
        .filter(|(_, slabs)| **slabs > 0)
        .map(|(order, slabs)| format!("{order}: {:>5}", count(*slabs)))
        .collect();
    lines.join("\n")
}

fn run_table(runs: &[RunReport]) -> String {
    let mut header = vec![String::new()];
    header.extend(runs.iter().map(|run| {
        format!(
            "{}@{}\n{} pages\n{} CPUs",
            run.design,
            run.era,
            bytes(run.page_size),
            run.cpus
        )
    }));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = output::table(&header, &[]);
    let page_rows = replay_pages::rows(runs);
    for (name, value) in ROWS {
        if *name == LAST_ROW {
            page_rows.iter().for_each(|row| {
                table.add_row(row);
            });
        }
        if runs
            .iter()
            .all(|run| *name == "peak large kmallocs" && run.large_bytes_peak == 0)
        {
            continue;
        }
        let mut row = vec![(*name).to_string()];
        row.extend(runs.iter().map(value));
        table.add_row(row);
    }
    table.to_string()
}

/// Slabinfo's columns, and where the memory is.
fn cache_table(caches: &[CacheReport]) -> String {
    let header = [
        "name",
        "active\nobjs",
        "num\nobjs",
        "obj\nsize",
        "objs per\nslab",
        "pages per\nslab",
        "num\nslabs",
        "partial\nslabs",
        "memory",
    ];
    let mut table = output::unbroken(output::table(&header, &[]));
    for cache in caches {
        table.add_row([
            cache.name.clone(),
            cache.active_objs.to_string(),
            cache.num_objs.to_string(),
            cache.slab_size.to_string(),
            cache.objs_per_slab.to_string(),
            cache.pages_per_slab.to_string(),
            cache.slabs.to_string(),
            cache.partial_slabs.to_string(),
            bytes(cache.slab_bytes),
        ]);
    }
    table.to_string()
}
