//! The contents of an input as people read them: a sentence, facts, and the busiest of each kind.

use quarry_view::Form::{Bytes, Count, More, Of, Share, Text};
use quarry_view::units::{bytes, count};
use quarry_view::value::{at, list, merged, number, text};
use quarry_view::{Column, Doc, Section, Spec, View, column, grouped};
use serde_json::{Value, json};

use crate::commands::trace_info::{alive, peak_alive};

/// Tables of an input.
pub(crate) const TABLES: [Spec; 7] = [FACTS, EVENTS, PROCESSES, SITES, CACHES, FLAGS, SLABS];

const FACTS: Spec = Spec {
    title: "Facts",
    rows: "",
    first: 0,
    columns: || {
        vec![
            column("command", "trace.command", Text)
                .worded(|of| of_trace(of, |of| known(of, "command")))
                .rare(),
            column(
                "machine",
                "arch cpus possible_cpus page_size memory_bytes",
                Text,
            )
            .worded(machine),
            column("parameters", "parameters", Text)
                .worded(
                    |of| match (&of["parameters"], lines(of, "parameters", " ")) {
                        (Value::Null, _) => String::new(),
                        (_, none) if none.is_empty() => "none about memory".to_string(),
                        (_, some) => some,
                    },
                )
                .rare(),
            column("tunables", "tunables", Text)
                .worded(|of| joined(list(of, "tunables").iter().map(tunable)))
                .rare(),
            column("sysctls", "sysctls", Text).worded(sysctls).rare(),
            column("recorder", "trace.source trace.recorder_share", Text)
                .worded(|of| of_trace(of, recorder))
                .rare(),
            column("load", "trace.load", Text)
                .worded(|of| of_trace(of, load))
                .rare(),
            column("reports", "trace.reports", Text)
                .about("The row has their times after the first event.")
                .worded(|of| of_trace(of, reports))
                .rare(),
            column(
                "peak alive",
                "trace.peak_live_objects trace.peak_live_bytes trace.peak_live_page_blocks",
                Text,
            )
            .about(
                "Allocated in the recording, the recorder's own with them: each at its own peak. `callers` counts the load's.",
            )
            .worded(|of| of_trace(of, peak_alive))
            .rare(),
            column("unmatched", "trace.orphans_by_kind", Text)
                .worded(|of| of_trace(of, unmatched))
                .rare(),
            column("waiting", "trace.unseen_frees trace.rcu_objects", Text)
                .about("Memory that waits for a grace period or lies free, without an event: at most so much.")
                .worded(|of| of_trace(of, waiting))
                .rare(),
            column("page moves", "trace.extfrag_events trace.drain_events", Text)
                .about("Events that the trace keeps beside its rows.")
                .worded(|of| of_trace(of, moves))
                .rare(),
            column("assumed", "trace.assumptions", Text)
                .worded(|of| lines(of, "trace.assumptions", "\n"))
                .rare(),
            column("lacks", "lacks", Text)
                .worded(|of| lines(of, "lacks", "\n"))
                .rare(),
        ]
    },
};

const EVENTS: Spec = Spec {
    title: "Events and rows",
    rows: "trace.events_by_kind",
    first: 0,
    columns: || {
        vec![
            column("event", "event", Text)
                .about("Name of the tracepoint; behind them what makes rows of the recorded events."),
            column("count", "count", Count)
                .about("The last line is the sum of those above: the rows that the file has, of which all shares are parts.")
                .worded(|row| {
                    let events = number(row, "count").unwrap_or(0.0);
                    let form = if row["changes"] == true { More } else { Count };
                    form.print(events)
                }),
        ]
    },
};

const PROCESSES: Spec = busiest("Processes", "trace.processes");
const SITES: Spec = busiest("Call sites", "trace.call_sites");
const CACHES: Spec = Spec {
    columns: || {
        let mut columns = busy();
        columns[0] = column("name", "name aliases", Text).worded(merged);
        columns
    },
    ..busiest("Caches", "trace.caches")
};
const FLAGS: Spec = busiest("GFP flags", "trace.gfp_flags");

const fn busiest(title: &'static str, rows: &'static str) -> Spec {
    Spec {
        title,
        rows,
        first: 5,
        columns: busy,
    }
}

fn busy() -> Vec<Column> {
    vec![
        column("name", "name", Text),
        column("rows", "rows", Count),
        column("share", "share", Share),
    ]
}

const SLABS: Spec = Spec {
    title: "Slab caches",
    rows: "slabs.caches",
    first: 5,
    columns: || {
        vec![
            column("name", "name aliases", Text).worded(merged),
            column("memory", "slab_bytes", Bytes),
            column("share", "slab_bytes", Of("all")).about("Part of all slab memory."),
            column("active objs", "active_objs", Count),
            column("num objs", "num_objs", Count),
            column("obj size", "object_size", Count),
        ]
    },
};

/// The view of an input.
pub(crate) fn view(docs: &[Doc]) -> View {
    let titled = View::new("Contents of an input");
    docs.iter().fold(titled, |view, doc| {
        let of = &doc.content;
        let facts = Section::default().with(FACTS.of(of).turned(0));
        let mut view = view.finding(finding(of)).with(facts);
        let with_sum = |rows: Vec<Value>, path: &str| -> Vec<Value> {
            let all: f64 = rows.iter().filter_map(|row| number(row, path)).sum();
            let rows = rows.into_iter();
            rows.map(|mut row| {
                row["all"] = all.into();
                row
            })
            .collect()
        };
        let kinds = counted(&of["trace"]);
        if !kinds.is_empty() {
            view = view.with(Section::new(EVENTS.title).with(EVENTS.table(&kinds)));
        }
        for (spec, all) in [
            (PROCESSES, "trace.process_count"),
            (SITES, "trace.call_site_count"),
            (CACHES, ""),
            (FLAGS, "trace.gfp_flags_count"),
        ] {
            let (rows, all) = (list(of, spec.rows), whole(of, all));
            let note = match all > rows.len() as u64 {
                true => format!("The file names {} of {}.", rows.len(), count(all)),
                false => String::new(),
            };
            if !rows.is_empty() {
                view = view.with(Section::new(spec.title).with(spec.table(rows).noted(note)));
            }
        }
        let slabs = with_sum(list(of, SLABS.rows).to_vec(), "slab_bytes");
        match slabs.is_empty() {
            true => view,
            false => view.with(Section::new(SLABS.title).with(SLABS.table(&slabs))),
        }
    })
}

/// Recorded events by kind, what has no row or no event, and their sum: the rows.
fn counted(trace: &Value) -> Vec<Value> {
    let kinds = trace["events_by_kind"].as_object().into_iter().flatten();
    let kinds = kinds.filter(|(_, events)| **events != 0);
    let mut counted: Vec<Value> = kinds
        .map(|(kind, events)| json!({"event": kind, "count": events}))
        .collect();
    if counted.is_empty() {
        return counted;
    }
    let implied = ["implied_object_frees", "implied_page_frees"];
    let implied = implied.map(|name| whole(&trace["orphans_by_kind"], name));
    for (name, change) in [
        ("frees of nothing", -(whole(trace, "null_frees") as i64)),
        (
            "failed allocations",
            -(whole(trace, "failed_allocs") as i64),
        ),
        ("implied frees", implied.iter().sum::<u64>() as i64),
    ] {
        if change != 0 {
            counted.push(json!({"event": name, "count": change, "changes": true}));
        }
    }
    counted.push(json!({"event": "rows", "count": trace["rows"]}));
    counted
}

fn whole(of: &Value, path: &str) -> u64 {
    number(of, path).unwrap_or(0.0) as u64
}

fn known(of: &Value, path: &str) -> String {
    at(of, path).as_str().unwrap_or("unknown").to_string()
}

fn joined(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn lines(of: &Value, path: &str, between: &str) -> String {
    let texts = list(of, path).iter().filter_map(Value::as_str);
    texts.collect::<Vec<_>>().join(between)
}

/// A text about the trace; empty for a snapshot.
fn of_trace(of: &Value, text: fn(&Value) -> String) -> String {
    match &of["trace"] {
        Value::Null => String::new(),
        trace => text(trace),
    }
}

/// Names the input's kernel and contents, and its use for a replay, in a sentence.
fn finding(of: &Value) -> String {
    let kernel = of["kernel"].as_str().unwrap_or("an unknown kernel");
    let (name, trace) = (text(of, "name"), &of["trace"]);
    if trace.is_null() && of["slabs"].is_null() {
        return format!("{name} is of {kernel}, and has no slabs: quarry look says what it has.");
    }
    if trace.is_null() {
        let (all, active) = (
            whole(of, "slabs.slab_bytes"),
            whole(of, "slabs.active_bytes"),
        );
        return format!(
            "{name} is a snapshot of {kernel}: {} in the slabs of {} caches, {} of it in active objects.",
            bytes(all),
            list(of, "slabs.caches").len(),
            quarry_view::units::percent(active, all),
        );
    }
    let recorder = number(trace, "recorder_share");
    let busiest = list(trace, "processes").iter().find_map(|process| {
        let share = number(process, "share")?;
        // The recorder has a line of its own.
        let is_recorder = recorder.is_some_and(|of| (share - of).abs() <= 1e-9);
        let told = || {
            format!(
                "; {} has most of them, {}",
                text(process, "name"),
                Share.print(share)
            )
        };
        (!is_recorder).then(told)
    });
    let reports = list(trace, "reports").iter();
    let usable = match reports
        .filter(|report| report["name"] == "snapshot")
        .count()
    {
        0 => "a replay of it starts from an empty machine",
        1 => "a replay of it can start from what the kernel held",
        _ => "a replay of it can start from what the kernel held, and be checked",
    };
    format!(
        "{name} is a recording of {kernel}: {} rows ({} events recorded) in {:.3} s, {} lost{}; {usable}{}.",
        count(whole(trace, "rows")),
        count(whole(trace, "events")),
        whole(trace, "duration_ns") as f64 / 1e9,
        match whole(trace, "lost_events") {
            0 => "none".to_string(),
            lost => count(lost),
        },
        busiest.unwrap_or_default(),
        at(trace, "missing_events")
            .as_str()
            .map(|missing| format!("; {missing}"))
            .unwrap_or_default(),
    )
}

fn machine(of: &Value) -> String {
    let arch = of["arch"]
        .as_str()
        .map_or_else(String::new, |arch| format!("{arch}, "));
    let (cpus, possible) = (number(of, "cpus"), number(of, "possible_cpus"));
    let mut told = cpus.map_or_else(|| "unknown CPUs".to_string(), |cpus| format!("{cpus} CPUs"));
    if let (Some(cpus), Some(possible)) = (cpus, possible)
        && possible > cpus
    {
        told += &format!(" ({possible} possible)");
    }
    let memory = number(of, "memory_bytes").map_or_else(
        || "memory unknown".to_string(),
        |memory| format!("{} of memory", bytes(memory as u64)),
    );
    let pages = number(of, "page_size").map_or_else(
        || "pages of unknown size".to_string(),
        |page| format!("{} pages", bytes(page as u64)),
    );
    format!("{arch}{told}, {pages}, {memory}")
}

fn sysctls(of: &Value) -> String {
    let sysctls = of["sysctls"].as_object().into_iter().flatten();
    // Kernels print lists with tabs.
    let value = |value: &Value| value.as_str().unwrap_or_default().replace('\t', ",");
    joined(sysctls.map(|(name, of)| format!("{name}={}", value(of))))
}

fn tunable(of: &Value) -> String {
    let [least, largest, usual, caches] =
        ["least", "largest", "usual", "caches"].map(|path| whole(of, path));
    let name = text(of, "name");
    match least == largest {
        true => format!("{name} {usual} in all {caches} caches"),
        false => format!("{name} {least} to {largest}, {usual} in most of {caches} caches"),
    }
}

fn recorder(trace: &Value) -> String {
    let source = text(trace, "source");
    match number(trace, "recorder_share") {
        Some(share) => format!("{source}, {} of the rows are its own", Share.print(share)),
        None => format!("{source}, its own rows are not marked"),
    }
}

fn load(trace: &Value) -> String {
    let (Some(from), Some(until)) = (
        number(trace, "load.from_ns"),
        number(trace, "load.until_ns"),
    ) else {
        return String::new();
    };
    let length = (until - from).max(0.0) / 1e9;
    format!("{length:.3} s, from {} s on", offset(trace, from))
}

fn reports(trace: &Value) -> String {
    let reports = list(trace, "reports").iter();
    let moments = grouped(reports.map(|report| {
        let time = number(report, "time_ns").unwrap_or(0.0);
        (offset(trace, time), text(report, "name"))
    }));
    let moments = moments.iter();
    match joined(moments.map(|(time, names)| format!("{time} s: {}", names.join(", ")))) {
        none if none.is_empty() => "none".to_string(),
        some => some,
    }
}

/// Seconds after the first event, or before it.
fn offset(trace: &Value, time_ns: f64) -> String {
    let after = time_ns - number(trace, "first_time_ns").unwrap_or(0.0);
    format!("{:+.3}", after / 1e9)
}

/// Memory of objects that end without an event; empty if there are none.
fn waiting(trace: &Value) -> String {
    let unseen = &trace["unseen_frees"];
    let [mean, most] = ["mean_bytes", "most_bytes"].map(|name| whole(unseen, name));
    if most == 0 {
        return String::new();
    }
    let told = match whole(trace, "rcu_objects") {
        0 => "the kernel did not tell of its batches".to_string(),
        objects => format!("the kernel told of batches of {} objects", count(objects)),
    };
    format!(
        "for a grace period, or free: at most {} in the mean and {} at once; {told}",
        bytes(mean),
        bytes(most)
    )
}

/// Fallbacks between migrate types, and pages that left CPUs' lists; empty if neither was recorded.
fn moves(trace: &Value) -> String {
    let told = [
        ("extfrag_events", "fallbacks to another migrate type"),
        ("drain_events", "pages drained from CPUs' lists"),
    ];
    let told = told.into_iter().filter_map(|(name, what)| {
        let events = number(trace, name)? as u64;
        Some(format!("{} {what}", count(events)))
    });
    told.collect::<Vec<_>>().join(", ")
}

fn unmatched(trace: &Value) -> String {
    let sum = |names: [&str; 2]| -> String {
        let of = names.map(|name| whole(&trace["orphans_by_kind"], name));
        count(of.iter().sum())
    };
    let [objects, blocks] = ["never_freed_objects", "never_freed_pages"]
        .map(|name| trace["orphans_by_kind"][name].as_u64());
    let alive = format!("alive at the end: {}", alive(objects, None, blocks));
    format!(
        "{} frees of what was allocated before, {} implied frees; {alive}",
        count(whole(trace, "orphans")),
        sum(["implied_object_frees", "implied_page_frees"]),
    )
}
