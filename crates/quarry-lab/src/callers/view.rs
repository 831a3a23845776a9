//! Callers as people read them.

use quarry_view::Form::{Bytes, Count, Of, Text};
use quarry_view::value::{list, merged, number, text};
use quarry_view::{Chart, Doc, Section, Spec, Table, View, column};
use serde_json::Value;

use super::{By, MERGED};

/// Callers, those with most bytes alive at the peak first.
pub const CALLERS: Spec = Spec {
    title: "Recorded allocations",
    rows: "callers",
    first: 10,
    columns: || {
        vec![
            column("name", "name aliases", Text).worded(merged),
            column("live at\npeak", "peak_live_bytes", Bytes),
            column("live at\nend", "end_live_bytes", Bytes),
            column("allocs", "allocs", Count),
            column("bytes\nin all", "bytes_alloc", Bytes),
            column("waste", "waste_bytes", Of("bytes_alloc"))
                .about("The column has it as a part of `bytes_alloc`."),
            column("freed on\nother CPU", "cross_cpu_frees", Of("frees"))
                .about("The column has them as a part of all frees of its objects."),
            column("waiting,\nat most", "waiting_mean_bytes", Bytes)
                .about("For a grace period, or free, in the mean: from the allocation to the next use of the memory.")
                .more(),
            column("caches", "caches.name", Text)
                .about(LARGEST)
                .worded(|caller| largest(list(caller, "caches"))),
            column("processes", "processes.name", Text)
                .about(LARGEST)
                .worded(|caller| largest(list(caller, "processes"))),
            column("call sites", "sites.name", Text)
                .about(LARGEST)
                .worded(|caller| largest(list(caller, "sites"))),
        ]
    },
};

const LARGEST: &str = "The column has the largest, and how many more there are.";

/// The table of callers by one property, which has no column of its own.
#[must_use]
pub fn table(callers: &[Value], by: By) -> Table {
    let mut table = CALLERS.table(callers);
    let (name, own) = match by {
        By::Site => ("call site", "call sites"),
        By::Process => ("process", "processes"),
        By::Cache => ("cache", "caches"),
    };
    if let Some(at) = table.columns.iter().position(|column| column.name == own) {
        table.columns.remove(at);
        table
            .rows
            .iter_mut()
            .for_each(|row| drop(row.cells.remove(at)));
    }
    table.columns[0].name = name.into();
    table
}

/// Amounts that a flame graph may be of, with its title.
const FLAMES: [(&str, &str); 3] = [
    ("peak_live_bytes", "Bytes alive at the peak, by call stack"),
    ("end_live_bytes", "Bytes alive at the end, by call stack"),
    ("bytes_alloc", "Bytes of all allocations, by call stack"),
];

/// The view of callers of any outputs.
#[must_use]
pub fn view(docs: &[Doc]) -> View {
    let mut view = View::of("Callers", docs);
    for doc in docs {
        let of = &doc.content;
        let by = match text(of, "by") {
            "process" => By::Process,
            "cache" => By::Cache,
            _ => By::Site,
        };
        let notes = list(of, "notes").iter().filter_map(Value::as_str);
        view = view.with(notes.fold(Section::default(), Section::note));
        let heading = match docs.len() {
            1 => "Callers".to_string(),
            _ => format!("Callers of {}", doc.file),
        };
        let section = Section::new(heading).with(table(list(of, "callers"), by));
        view = view.with(
            flames(list(of, "stacks"))
                .into_iter()
                .fold(section, Section::with),
        );
        let merged = list(of, MERGED.rows);
        if !merged.is_empty() {
            let note = "The kernel merged these caches. By its name a call site allocates what is guessed.";
            let sites = MERGED.table(merged).noted(note);
            view = view.with(Section::new(MERGED.title).with(sites));
        }
    }
    view
}

/// Flame graphs of the amounts that are known; of all allocations only where the live ones are not.
fn flames(stacks: &[Value]) -> Vec<Chart> {
    let of = |(path, title): &(&str, &str)| {
        let stacks = stacks.iter().filter_map(|stack| {
            let frames = list(stack, "frames").iter().filter_map(Value::as_str);
            let bytes = number(stack, path).filter(|bytes| *bytes > 0.0)?;
            Some((frames.map(str::to_string).collect(), bytes))
        });
        let stacks: Vec<(Vec<String>, f64)> = stacks.collect();
        (!stacks.is_empty()).then(|| Chart::flame(title, &stacks))
    };
    let [peak, end, all] = &FLAMES;
    let live: Vec<Chart> = [peak, end].into_iter().filter_map(of).collect();
    match live.is_empty() {
        true => of(all).into_iter().collect(),
        false => live,
    }
}

/// The first of a list and the number of the others.
pub(super) fn largest(list: &[Value]) -> String {
    let first = list.first().map_or_else(|| "-".to_string(), merged);
    match list.len() {
        0 | 1 => first,
        more => format!("{first} +{}", more - 1),
    }
}
