//! Lines before the tables of a replay: the recording, its part that was replayed, and the state that it began with.

use quarry_core::era::Era;
use quarry_trace::TraceMeta;
use quarry_view::units::{bytes, count};

use super::input::Input;
use super::pages::PageEvents;
use super::report::RunReport;
use super::timed::report::TimedReport;
use super::timed::{Pace, Timing};

/// The trace in two lines.
fn about(name: &str, meta: &TraceMeta) -> String {
    let kernel = meta.kernel.as_deref().unwrap_or("unknown");
    format!(
        "{name}: {} rows ({} events recorded) in {:.3} s, kernel {kernel}, {} pages, {} CPUs\n\
         quarry {}, trace digest {:016x}\n",
        count(meta.rows),
        count(meta.events.total()),
        meta.duration_ns() as f64 / 1e9,
        bytes(meta.page_size.into()),
        meta.cpus,
        env!("CARGO_PKG_VERSION"),
        meta.digest,
    )
}

/// The assumption about the recorded kernel's allocator, where its release had several and no report tells.
fn own_design(meta: &TraceMeta) -> &'static str {
    let era = meta.kernel.as_deref().and_then(Era::parse);
    match era {
        Some(era) if era <= Era::V6_7 && !meta.has_snapshot() => {
            "assumed: the recorded kernel has SLUB; events do not tell it from SLAB and SLOB, which kernels before 6.8 may have\n"
        }
        _ => "",
    }
}

/// The trace in a few lines, with what of it was not replayed.
#[must_use]
pub fn replayed(name: &str, meta: &TraceMeta, settings: &str, runs: &[RunReport]) -> String {
    let mut text = about(name, meta);
    text.push_str(settings);
    text.push_str(&load_of(meta));
    for assumption in &meta.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
    text.push_str(own_design(meta));
    let held = runs.iter().map(|run| run.initial_slab_bytes);
    let states = runs.iter();
    let states = states.map(|run| (run.design, run.era, run.initial.as_deref()));
    text.push_str(&begins(states));
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
    text.push_str(&summary(meta, runs));
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
fn load_of(meta: &TraceMeta) -> String {
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
/// Empty if the heap is another machine's: [`begins`] names it.
fn start(meta: &TraceMeta, other_heap: bool, held: impl Iterator<Item = u64> + Clone) -> String {
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

/// Fate of the trace's page events: two lines, or nothing.
fn summary(meta: &TraceMeta, runs: &[RunReport]) -> String {
    let Some(run) = runs.first() else {
        return String::new();
    };
    match (run.page_events, &run.pages) {
        (events, Some(pages)) => {
            let (which, slabs) = match events {
                PageEvents::All => ("page events, slab pages counted twice", String::new()),
                _ => (
                    "page events outside slabs",
                    format!(
                        "; of slabs: {} allocations, {} frees",
                        count(pages.slab_allocs),
                        count(pages.slab_frees),
                    ),
                ),
            };
            format!(
                "{which}: {} allocations, {} frees ({} implied, {} of blocks from before)\n  \
                   left out: {} frees of blocks without memory{slabs}\n",
                count(pages.allocs),
                count(pages.frees),
                count(pages.implied_frees),
                count(pages.initial_frees),
                count(pages.unknown_frees),
            )
        }
        (PageEvents::NotToldApart, None) => format!(
            "page events are not replayed: the trace does not tell which were of slabs;\n  {}\n",
            match meta.format_version {
                1 => "import the recording again with this version, or replay all with --pages all",
                _ => "addresses are hashed, or hardly any slab was made; --pages all replays all",
            }
        ),
        _ => String::new(),
    }
}

/// The trace and the simulation in a few lines.
#[must_use]
pub fn timed(input: &Input, timing: &Timing, settings: &str, runs: &[TimedReport]) -> String {
    let meta = input.file.meta();
    let mut text = about(&input.name, meta);
    text.push_str(&format!(
        "time of {}: {}\n",
        timing.machine.name, timing.machine.about
    ));
    text.push_str(&format!(
        "pace: {}; seed {}\n",
        match timing.pace {
            Pace::Recorded => "recorded, events begin at their recorded times if their CPU is free",
            Pace::Full => "full, CPUs go as fast as they can",
        },
        timing.seed
    ));
    let states = runs.iter();
    let states = states.map(|run| (run.design, run.era, run.initial.as_deref()));
    text.push_str(&begins(states));
    text.push_str(settings);
    text.push_str(&load_of(meta));
    for assumption in &meta.assumptions {
        text.push_str(&format!("assumed: {assumption}\n"));
    }
    text.push_str(&match input.initial.is_some() {
        true => "starts with the kernel's memory, but no objects: slabs from before stay in use\n"
            .to_string(),
        false => start(meta, input.booted.is_some(), std::iter::empty()),
    });
    if let Some(run) = runs.first() {
        let replayed = run.replayed;
        text.push_str(&format!(
            "replayed: {} allocations, {} frees, {} page events; not replayed: {} orphaned frees, {} page events\n",
            count(replayed.allocs),
            count(replayed.frees),
            count(run.page_alloc.count + run.page_free.count),
            count(replayed.orphans),
            count(replayed.page_events),
        ));
    }
    text
}

/// Says in which states the heaps of runs begin, a line for each design and release that has one; nothing of empty heaps.
#[must_use]
pub fn begins<'a>(runs: impl IntoIterator<Item = (&'a str, &'a str, Option<&'a str>)>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (design, era, state) in runs {
        let line = state.map(|state| format!("{design}@{era} begins as {state}\n"));
        lines.extend(line.filter(|line| !lines.contains(line)));
    }
    lines.concat()
}
