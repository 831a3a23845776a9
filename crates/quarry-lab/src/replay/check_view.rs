//! Replays beside the kernel's own reports, as people read them.

use quarry_view::Form::{Bytes, Change, Count, Ratio, Text};
use quarry_view::units::{count, signed};
use quarry_view::value::{list, merged, number};
use quarry_view::{Section, Spec, column, headed};
use serde_json::Value;

pub(super) const CHECK: Spec = Spec {
    title: "Prediction and report",
    rows: "runs.check.caches",
    first: 20,
    columns: || {
        vec![
            column("cache", "name aliases", Text)
                .about("With a star if it has allocations or frees without an event.")
                .worded(starred),
            column("before", "initial_bytes", Bytes),
            column("predicted", "predicted_bytes", Bytes),
            column("observed", "observed_bytes", Bytes),
            column("difference", "", Change)
                .about("Predicted less observed.")
                .computed(difference),
            column("of it", "", Ratio)
                .about("The difference as a part of what was observed.")
                .computed(|cache| {
                    let observed = number(cache, "observed_bytes").filter(|bytes| *bytes > 0.0)?;
                    Some(difference(cache)? / observed)
                }),
            column("frees without event", "implied_frees", Count)
                .about("Bulk frees have none: the cache may hold more here than in the kernel.")
                .more(),
        ]
    },
};

fn difference(of: &Value) -> Option<f64> {
    Some(number(of, "predicted_bytes")? - number(of, "observed_bytes")?)
}

/// The name of a cache, with a star if it has allocations or frees without an event.
fn starred(cache: &Value) -> String {
    let misses = ["implied_frees", "unseen_allocs"];
    let misses = misses
        .iter()
        .any(|of| number(cache, of).unwrap_or(0.0) > 0.0);
    merged(cache) + if misses { " *" } else { "" }
}

/// The caches of a run as predicted and as the kernel reported them.
pub(super) fn check(run: &Value, name: &str) -> Section {
    let check = &run["check"];
    let mut section = Section::new(headed(CHECK.title, name));
    if !check.is_object() {
        return section;
    }
    let is_recorded = check["recorded"] == true;
    if !is_recorded {
        section =
            section.note("The kernel was recorded with other settings: the difference is theirs.");
    }
    let mut all = check.clone();
    all["name"] = "all caches".into();
    let rows = std::iter::once(&all).chain(list(check, "caches"));
    section = section.with(CHECK.table(rows));
    let told = if is_recorded {
        missed(check)
    } else {
        Vec::new()
    };
    told.into_iter().fold(section, Section::note)
}

/// Growth, allocations from the kernel's own slabs, and events that a recording lacks; a sentence each.
fn missed(check: &Value) -> Vec<String> {
    let growth = |of: &Value, name: &str| {
        let before = number(of, "initial_bytes")?;
        let [predicted, observed] = ["predicted_bytes", "observed_bytes"]
            .map(|path| number(of, path).unwrap_or(0.0) - before);
        let share = match observed {
            0.0 => String::new(),
            _ => format!(
                " ({})",
                Ratio.print((predicted - observed) / observed.abs())
            ),
        };
        let [predicted, observed] = [predicted, observed].map(|bytes| signed(bytes as i128));
        Some(format!(
            "{name}: {predicted} predicted, {observed} observed{share}"
        ))
    };
    let mut told: Vec<String> = growth(check, "growth").into_iter().collect();
    if number(check, "seen.left_out").unwrap_or(0.0) > 0.0 {
        told.extend(growth(&check["seen"], "growth without *"));
    }
    let caches = list(check, "caches");
    let sum = |path: &str| {
        let counts = caches
            .iter()
            .filter_map(|cache| number(cache, path))
            .filter(|count| *count > 0.0);
        let counts: Vec<f64> = counts.collect();
        (count(counts.iter().sum::<f64>() as u64), counts.len())
    };
    let departed = caches
        .iter()
        .filter(|cache| number(cache, "same_slabs.first_departure").is_some());
    if let ((all, 1..), (same, _)) = (sum("same_slabs.told"), sum("same_slabs.same")) {
        told.push(format!(
            "{same} of {all} allocations came from the slab that the kernel took them from; caches with others: {}",
            departed.count()
        ));
    }
    if let (frees, caches @ 1..) = sum("implied_frees") {
        told.push(format!(
            "* {frees} frees of {caches} caches had no event (bulk frees have none): only the later use of the memory told \
             them, so these caches may hold more here than in the kernel"
        ));
    }
    if let (allocs, caches @ 1..) = sum("unseen_allocs") {
        told.push(format!(
            "* {allocs} slabs of {caches} caches were made for allocations without an event, or with another cache's name: \
             these caches may hold less here than in the kernel"
        ));
    }
    told
}
