//! The summary of an import as people read it: a sentence, the trace's facts, and its events.

use quarry_view::Form::{Bytes, Count, Text};
use quarry_view::units::{bytes, count, counted};
use quarry_view::value::{at, list, number, text};
use quarry_view::{Doc, Section, Spec, View, column};
use serde_json::{Value, json};

use crate::commands::trace_info::{alive, peak_alive};

/// Tables of an import.
pub(crate) const TABLES: [Spec; 2] = [FACTS, EVENTS];

/// Names of other tracepoints that are printed.
const NAMES: usize = 5;

const FACTS: Spec = Spec {
    title: "Trace",
    rows: "",
    first: 0,
    columns: || {
        vec![
            column("trace", "output", Text),
            column("kernel", "kernel", Text),
            column("page size", "page_size", Bytes),
            column("architecture", "arch", Text),
            column("CPUs", "cpus", Count),
            column("duration", "duration_ns", Text)
                .worded(|of| format!("{:.3} s", number(of, "duration_ns").unwrap_or(0.0) / 1e9)),
            column("frees of nothing", "null_frees", Count),
            column("failed allocations", "failed_allocs", Count),
            column(
                "never freed",
                "orphans.never_freed_objects orphans.never_freed_pages",
                Text,
            )
            .worded(|of| {
                let [objects, blocks] = ["objects", "pages"]
                    .map(|kind| at(of, &format!("orphans.never_freed_{kind}")).as_u64());
                alive(objects, None, blocks)
            }),
            column("lost events", "lost_events", Count),
            column("ignored events", "other_events other_event_names", Text).worded(ignored),
            column("skipped lines", "skipped_lines", Count),
            column("first skipped", "first_skipped", Text).rare(),
            column(
                "peak alive",
                "peak_live_objects peak_live_bytes peak_live_page_blocks",
                Text,
            )
            .worded(peak_alive),
            column("size", "bytes_out bytes_per_event", Text).worded(|of| {
                let per_event = number(of, "bytes_per_event").unwrap_or(0.0);
                let all = bytes(whole(of, "bytes_out"));
                format!("{all}, {per_event:.2} bytes per event")
            }),
            column("assumed", "assumptions", Text)
                .worded(|of| {
                    let texts = list(of, "assumptions").iter().filter_map(Value::as_str);
                    texts.collect::<Vec<_>>().join("\n")
                })
                .rare(),
        ]
    },
};

const EVENTS: Spec = Spec {
    title: "Events",
    rows: "",
    first: 0,
    columns: || {
        vec![
            column("event", "events_by_kind", Text),
            column("read", "events", Count),
            column("not seen allocated", "orphans", Count)
                .about("The column has the frees of what was allocated before.")
                .computed(|row| number(row, "unknown")),
            column("implied", "orphans", Count)
                .about("Frees that a later event proved, and that the importer inserted.")
                .computed(|row| number(row, "implied")),
        ]
    },
};

/// The view of an import.
pub(crate) fn view(docs: &[Doc]) -> View {
    docs.iter().fold(View::new("Import"), |view, doc| {
        let of = &doc.content;
        let events = at(of, "events_by_kind").as_object().into_iter().flatten();
        let events = events.filter(|(_, events)| **events != 0);
        let events = events.map(|(kind, events)| {
            let orphans = |names: [&str; 2]| names.map(|name| of["orphans"][name].clone());
            let [unknown, implied] = match kind.as_str() {
                "kfree" => orphans(["unknown_kfree", ""]),
                "kmem_cache_free" => orphans(["unknown_kmem_cache_free", "implied_object_frees"]),
                "mm_page_free" => orphans(["unknown_page_free", "implied_page_frees"]),
                _ => Default::default(),
            };
            json!({"events_by_kind": kind, "events": events, "unknown": unknown, "implied": implied})
        });
        let events: Vec<Value> = events.collect();
        view.finding(finding(of))
            .with(Section::default().with(FACTS.of(of).turned(0)))
            .with(Section::new(EVENTS.title).with(EVENTS.table(&events)))
    })
}

/// Counts the events, and the frees that have no allocation or were inserted.
fn finding(of: &Value) -> String {
    let sum = |names: &[&str]| -> usize {
        let of = names.iter().map(|name| whole(&of["orphans"], name));
        of.sum::<u64>() as usize
    };
    let unknown = sum(&[
        "unknown_kfree",
        "unknown_kmem_cache_free",
        "unknown_page_free",
    ]);
    let implied = sum(&["implied_object_frees", "implied_page_frees"]);
    let missing = at(of, "missing_events").as_str();
    let told = match missing.is_some() && at(of, "peak_live_objects").is_null() {
        true => String::new(),
        false => format!(
            ": {} of what was not seen allocated, {} implied by later events",
            counted(unknown, "free"),
            count(implied as u64),
        ),
    };
    let missing = missing.map_or_else(String::new, |missing| format!("; {missing}"));
    format!(
        "{} read, {} lost{told}{missing}.",
        counted(whole(of, "events") as usize, "event"),
        count(whole(of, "lost_events")),
    )
}

fn whole(of: &Value, path: &str) -> u64 {
    number(of, path).unwrap_or(0.0) as u64
}

fn told(of: &Value, path: &str) -> String {
    count(whole(of, path))
}

/// Events of other tracepoints: their number, and the names of the most frequent ones.
fn ignored(of: &Value) -> String {
    let names = list(of, "other_event_names");
    let shown = names.iter().take(NAMES);
    let shown: Vec<String> = shown
        .map(|event| {
            let [name, events] = [0, 1].map(|at| &event[at]);
            format!("{} {}", text(name, ""), told(events, ""))
        })
        .collect();
    let more = if names.len() > NAMES { ", ..." } else { "" };
    match told(of, "other_events") {
        none if none == "0" => none,
        all => format!("{all} ({}{more})", shown.join(", ")),
    }
}
