//! Tables and JSON of the results.

use serde_json::{Value, json};

use crate::patterns::Pattern;
use crate::times::{Times, print_table};

/// The arm that the others are compared with.
const REFERENCE: &str = "mimalloc";

/// Prints nanoseconds per object.
pub(crate) fn print(times: &Times<Pattern>, size: usize, rounds: usize, objects: usize) {
    println!(
        "alloc+free of {size}-byte objects, ns per object: median (min) over {rounds} rounds \
         of {objects} objects, and median ratio to {REFERENCE}"
    );
    let names = Pattern::ALL.iter().map(|pattern| pattern.name());
    let header = std::iter::once("allocator".to_owned()).chain(names);
    let rows = times.arms().iter().map(|arm| {
        let cells = Pattern::ALL.iter().map(|&pattern| {
            let summary = times.summary(arm, pattern, &[REFERENCE]);
            summary.map_or_else(String::new, |summary| summary.to_string())
        });
        std::iter::once(arm.clone()).chain(cells).collect()
    });
    print_table(header.collect(), rows);
}

pub(crate) fn json(times: &Times<Pattern>, size: usize) -> Value {
    let arms = times.arms().iter().map(|arm| {
        let patterns = Pattern::ALL.iter().filter_map(|&pattern| {
            let s = times.summary(arm, pattern, &[REFERENCE])?;
            let value = json!({
                "ns_median": s.median, "ns_min": s.min, "ratio_to_mimalloc": s.ratio,
            });
            Some((pattern.name(), value))
        });
        let patterns: serde_json::Map<String, Value> = patterns.collect();
        json!({ "allocator": arm, "patterns": patterns })
    });
    json!({ "object_size": size, "arms": arms.collect::<Vec<_>>() })
}
