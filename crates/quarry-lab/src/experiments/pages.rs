//! Processes that fault and exit.

use quarry_view::Form::{Ns, Number, Share};
use quarry_view::{Grid, Spec, column, grouped};
use serde_json::Value;

use super::{Workload, causes, of, tables};

pub(super) const TABLES: [Spec; 1] = [RUNS];

const RUNS: Spec = Spec {
    title: "Figures of a page",
    rows: "runs",
    first: 0,
    columns: || {
        let mut columns = vec![
            column("fault, ns", "fault.ns", Ns),
            column("  cycles", "fault.cycles", Ns).more(),
            column("free, ns", "free.ns", Ns),
            column("  cycles", "free.cycles", Ns).more(),
            column("million pages/s", "per_second", Number)
                .about("The row is in millions.")
                .computed(|run| Some(of(run, "per_second") / 1e6)),
            column("waits for zone lock", "zone_wait", Share).about("The row is in per cent."),
            column("zone lock in faults: held, ns", "fault_lock.hold_ns", Ns),
            column("  waited for, ns", "fault_lock.wait_ns", Ns),
            column("  taken", "fault_lock.taken", Number).more(),
            column("zone lock in frees: held, ns", "free_lock.hold_ns", Ns),
            column("  waited for, ns", "free_lock.wait_ns", Ns),
            column("  taken", "free_lock.taken", Number).more(),
            column("waits for LRU's lock", "lru_wait", Share)
                .about("The row is in per cent.")
                .rare(),
            column("LRU's lock in faults: held, ns", "fault_lru.hold_ns", Ns).rare(),
            column("  waited for, ns", "fault_lru.wait_ns", Ns).rare(),
            column("  taken", "fault_lru.taken", Number).rare().more(),
            column("LRU's lock in frees: held, ns", "free_lru.hold_ns", Ns).rare(),
            column("  waited for, ns", "free_lru.wait_ns", Ns).rare(),
            column("  taken", "free_lru.taken", Number).rare().more(),
            column("freed on another CPU", "other_cpu", Share)
                .about("Share of the pages that are freed.")
                .computed(|run| Some(of(run, "other_cpu")).filter(|share| *share > 0.0))
                .rare(),
        ];
        columns.extend(causes().into_iter().map(quarry_view::Column::more));
        columns
    },
};

pub(super) const PAGES: Workload = Workload {
    charts: &["per_second", "zone_wait", "fault.ns"],
    told,
    notes: |_| Vec::new(),
    sections: |grid| tables(grid, &RUNS, &["page_size"]),
};

/// Zone-lock waits and throughput with the most processes, in a sentence for each release.
fn told(grid: &Grid<'_>) -> Vec<String> {
    let by_era = grid.runs.iter().map(|(run, _)| (run["era"].clone(), *run));
    let sentence = |(era, runs): (Value, Vec<&Value>)| {
        let processes = |run: &&&Value| of(run, "processes") as u64;
        let (few, many) = (
            runs.iter().min_by_key(processes)?,
            runs.iter().max_by_key(processes)?,
        );
        let named = |run: &Value| match of(run, "processes") {
            1.0 => "1 process".to_string(),
            several => format!("{several} processes"),
        };
        let rate = |run: &Value| of(run, "per_second");
        let times = match std::ptr::eq(*few, *many) {
            true => String::new(),
            false => format!(
                ", {:.1} times those of {}",
                rate(many) / rate(few),
                named(few)
            ),
        };
        Some(format!(
            "{}, {}: {:.0} % of the time are waits for the zone lock; {:.2} million pages a second{times}.",
            era.as_str().unwrap_or_default(),
            named(many),
            of(many, "zone_wait") * 100.0,
            rate(many) / 1e6
        ))
    };
    grouped(by_era).into_iter().filter_map(sentence).collect()
}
