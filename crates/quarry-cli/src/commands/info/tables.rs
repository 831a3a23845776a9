//! The output of `quarry info`: a sentence, facts, and the busiest of each kind.

use quarry_trace::{Kind, KindCounts};

use crate::commands::info::{Busy, Report, Slabs, Trace, TunableValue};
use crate::output;
use crate::units::{bytes, count, percent};

/// Everything that the command prints.
pub(crate) fn text(report: &Report<'_>, top: usize) -> String {
    let mut text = format!("{}\n\n", output::wrap(&finding(report)));
    let mut facts = output::table(&["", ""], &[1]);
    for (name, value) in facts_of(report) {
        facts.add_row([name.to_string(), value]);
    }
    text.push_str(&headless(&facts.to_string()));
    if let Some(trace) = &report.trace {
        text.push_str(&format!("\n{}\n", kinds(trace.recording.events_by_kind)));
        for (what, list, all) in [
            ("process", &trace.processes, trace.process_count),
            ("call site", &trace.call_sites, trace.call_site_count),
            ("cache", &trace.caches, trace.caches.len() as u64),
            ("gfp flags", &trace.gfp_flags, trace.gfp_flags_count),
        ] {
            text.push_str(&busiest(what, list, all, top));
        }
    }
    if let Some(slabs) = &report.slabs {
        text.push_str(&largest(slabs, top));
    }
    text
}

/// Lines of a table without its header and the rule below it.
fn headless(table: &str) -> String {
    let lines = table.lines().skip(2);
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Names the input's kernel and contents, and its use for a replay, in a sentence.
fn finding(report: &Report<'_>) -> String {
    let kernel = report.kernel.unwrap_or("an unknown kernel");
    let name = &report.name;
    let Some(trace) = &report.trace else {
        let slabs = report.slabs.as_ref();
        return format!(
            "{name} is a snapshot of {kernel}: {} in the slabs of {} caches, {} of it in active objects.",
            bytes(slabs.map_or(0, |slabs| slabs.slab_bytes)),
            slabs.map_or(0, |slabs| slabs.caches.len()),
            slabs.map_or_else(String::new, |slabs| percent(
                slabs.active_bytes,
                slabs.slab_bytes
            )),
        );
    };
    let seconds = trace.recording.duration_ns as f64 / 1e9;
    let busiest = trace.processes.iter().find(|process| {
        // The recorder has a line of its own.
        trace
            .recorder_share
            .is_none_or(|share| (process.share - share).abs() > 1e-9)
    });
    let busiest = busiest.map_or_else(String::new, |process| {
        format!("; {} has most of them, {}", process.name, share(process))
    });
    let snapshots = trace
        .reports
        .iter()
        .filter(|report| report.name == "snapshot");
    let usable = match snapshots.count() {
        0 => "a replay of it starts from an empty machine",
        1 => "a replay of it can start from what the kernel held",
        _ => "a replay of it can start from what the kernel held, and be checked",
    };
    format!(
        "{name} is a recording of {kernel}: {} events in {seconds:.3} s, {} lost{busiest}; {usable}.",
        count(trace.recording.events),
        match trace.recording.lost_events {
            0 => "none".to_string(),
            lost => count(lost),
        },
    )
}

/// Facts about the machine and the recording, a name and a value each.
fn facts_of(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_string();
    let mut facts = Vec::new();
    if let Some(trace) = &report.trace {
        let command = trace.recording.command.map(str::to_string);
        facts.push(("command", command.unwrap_or_else(unknown)));
    }
    let cpus = report
        .cpus
        .map_or_else(|| "unknown CPUs".to_string(), |cpus| format!("{cpus} CPUs"));
    let possible = match (report.cpus, report.possible_cpus) {
        (Some(present), Some(possible)) if possible > present => format!(" ({possible} possible)"),
        _ => String::new(),
    };
    let memory = report.memory_bytes.map_or_else(
        || "memory unknown".to_string(),
        |memory| format!("{} of memory", bytes(memory)),
    );
    let arch = report
        .arch
        .map_or_else(String::new, |arch| format!("{arch}, "));
    let pages = bytes(report.page_size);
    facts.push((
        "machine",
        format!("{arch}{cpus}{possible}, {pages} pages, {memory}"),
    ));
    if let Some(parameters) = &report.parameters {
        let parameters = match parameters.as_slice() {
            [] => "none about memory".to_string(),
            some => some.join(" "),
        };
        facts.push(("parameters", parameters));
    }
    if !report.tunables.is_empty() {
        let values: Vec<String> = report.tunables.iter().map(tunable).collect();
        facts.push(("tunables", values.join("\n")));
    }
    if !report.sysctls.is_empty() {
        let sysctls = report.sysctls.iter();
        // Kernels print lists with tabs.
        let sysctls = sysctls.map(|(name, value)| format!("{name}={}", value.replace('\t', ",")));
        facts.push(("sysctls", sysctls.collect::<Vec<_>>().join("\n")));
    }
    if let Some(trace) = &report.trace {
        facts.extend(facts_of_trace(trace));
    }
    if !report.lacks.is_empty() {
        facts.push(("lacks", report.lacks.join("\n")));
    }
    facts
}

fn facts_of_trace(trace: &Trace<'_>) -> Vec<(&'static str, String)> {
    let recording = &trace.recording;
    let mut facts = Vec::new();
    let recorder = match trace.recorder_share {
        Some(share) => format!(
            "{}, {:.1} % of the rows are its own",
            trace.source,
            share * 100.0
        ),
        None => format!("{}, its own rows are not marked", trace.source),
    };
    facts.push(("recorder", recorder));
    if let Some(load) = &trace.load {
        let length = load.until_ns.saturating_sub(load.from_ns);
        let from = offset(load.from_ns, trace.first_time_ns);
        facts.push((
            "load",
            format!("{:.3} s, from {from} s on", length as f64 / 1e9),
        ));
    }
    let mut moments: Vec<(String, Vec<&str>)> = Vec::new();
    for report in &trace.reports {
        let at = offset(report.time_ns, trace.first_time_ns);
        match moments.last_mut().filter(|(of, _)| *of == at) {
            Some((_, names)) => names.push(report.name),
            None => moments.push((at, vec![report.name])),
        }
    }
    let moments = moments
        .iter()
        .map(|(at, names)| format!("{at} s: {}", names.join(", ")));
    let reports = moments.collect::<Vec<_>>().join("\n");
    facts.push((
        "reports",
        if reports.is_empty() {
            "none".to_string()
        } else {
            reports
        },
    ));
    facts.push((
        "peak alive",
        format!(
            "{} objects, {} asked for",
            count(recording.peak_live_objects.into()),
            bytes(recording.peak_live_bytes)
        ),
    ));
    facts.push((
        "unmatched",
        format!(
            "{} frees of what was allocated before, {} implied frees, {} alive at the end",
            count(recording.orphans),
            count(recording.orphans_by_kind.implied_frees()),
            count(recording.orphans_by_kind.never_freed()),
        ),
    ));
    if !recording.assumptions.is_empty() {
        facts.push(("assumed", recording.assumptions.join("\n")));
    }
    facts
}

/// Seconds after the first event, or before it.
fn offset(time_ns: u64, first_ns: u64) -> String {
    let after = time_ns as f64 - first_ns as f64;
    format!("{:+.3}", after / 1e9)
}

fn tunable(value: &TunableValue) -> String {
    let TunableValue {
        name,
        least,
        largest,
        usual,
        caches,
    } = value;
    match caches {
        caches if least == largest => format!("{name} {usual} in all {caches} caches"),
        caches => format!("{name} {least} to {largest}, {usual} in most of {caches} caches"),
    }
}

/// Events by tracepoint.
fn kinds(counts: &KindCounts) -> String {
    let mut table = output::table(&["event", "count", "share"], &[]);
    let all = counts.total();
    for kind in Kind::ALL.into_iter().filter(|kind| counts.get(*kind) > 0) {
        let events = counts.get(kind);
        table.add_row([kind.name().to_string(), count(events), percent(events, all)]);
    }
    table.to_string()
}

fn share(of: &Busy<'_>) -> String {
    format!("{:.1} %", of.share * 100.0)
}

/// The busiest of a list.
fn busiest(what: &str, list: &[Busy<'_>], all: u64, top: usize) -> String {
    if list.is_empty() || top == 0 {
        return String::new();
    }
    let title = match all as usize > top {
        true => format!("{what} ({top} of {})", count(all)),
        false => what.to_string(),
    };
    let mut table = output::table(&[&title, "rows", "share"], &[]);
    for of in list.iter().take(top) {
        table.add_row([output::shortened(of.name, 48), count(of.rows), share(of)]);
    }
    format!("\n{table}\n")
}

/// The largest caches of a snapshot.
fn largest(slabs: &Slabs<'_>, top: usize) -> String {
    if slabs.caches.is_empty() || top == 0 {
        return String::new();
    }
    let title = match slabs.caches.len() > top {
        true => format!("slab cache ({top} of {})", slabs.caches.len()),
        false => "slab cache".to_string(),
    };
    let header = [
        title.as_str(),
        "memory",
        "share",
        "active objs",
        "num objs",
        "obj size",
    ];
    let mut table = output::table(&header, &[]);
    for cache in slabs.caches.iter().take(top) {
        table.add_row([
            output::shortened(cache.name, 30),
            bytes(cache.slab_bytes),
            percent(cache.slab_bytes, slabs.slab_bytes),
            count(cache.active_objs),
            count(cache.num_objs),
            count(cache.object_size),
        ]);
    }
    format!("\n{table}\n")
}
