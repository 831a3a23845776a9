//! Callers as people read them.

use quarry_view::Form::{Bytes, Count, Of, Text};
use quarry_view::value::{list, merged};
use quarry_view::{Spec, Table, column};
use serde_json::Value;

use super::By;

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

/// The first of a list and the number of the others.
pub(super) fn largest(list: &[Value]) -> String {
    let first = list.first().map_or_else(|| "-".to_string(), merged);
    match list.len() {
        0 | 1 => first,
        more => format!("{first} +{}", more - 1),
    }
}
