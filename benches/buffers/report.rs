//! Tables and JSON of the results.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::counters::{Counts, NAMES};
use crate::patterns::{PACKET, Pattern};
use crate::times::{Times, print_table};

/// The arm that the others are compared with.
pub(crate) const REFERENCE: &str = "Mutex<Vec<Box>>";

/// Nanoseconds and counts per buffer.
pub(crate) struct Results {
    pub(crate) times: Times<Pattern>,
    /// Per 1000 buffers.
    counts: BTreeMap<(String, Pattern), [Option<f64>; NAMES.len()]>,
}

impl Results {
    pub(crate) fn new() -> Self {
        Self {
            times: Times::new(),
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn count(
        &mut self,
        arm: &str,
        pattern: Pattern,
        counts: Option<Counts>,
        buffers: usize,
    ) {
        if let Some(counts) = counts {
            let share =
                counts.map(|count| count.map(|count| 1000.0 * count as f64 / buffers as f64));
            self.counts.insert((arm.to_owned(), pattern), share);
        }
    }

    /// One row for each arm, with a cell for each pattern.
    fn print_rows(&self, cell: impl Fn(&str, Pattern) -> String) {
        let patterns = Pattern::ALL.map(|pattern| pattern.name().to_owned());
        let header = std::iter::once("buffers".to_owned())
            .chain(patterns)
            .collect();
        let rows = self.times.arms().iter().map(|arm| {
            let cells = Pattern::ALL.map(|pattern| cell(arm, pattern));
            std::iter::once(arm.clone()).chain(cells).collect()
        });
        print_table(header, rows);
    }

    pub(crate) fn print(&self, rounds: usize, buffers: usize) {
        println!(
            "\ntake+give back of receive buffers of 4096 bytes, ns per buffer: median (min) over {rounds} rounds of \
             {buffers} buffers, and median ratio to {REFERENCE};\nwith bytes: a packet of {PACKET} bytes is copied \
             into the buffer and read. tokio-uring's buffers cannot leave their thread"
        );
        self.print_rows(|arm, pattern| {
            let summary = self.times.summary(arm, pattern, &[REFERENCE]);
            summary.map_or_else(String::new, |summary| summary.to_string())
        });
        println!("\ncounts per 1000 receive buffers: {}", NAMES.join(", "));
        self.print_rows(|arm, pattern| {
            let counts = self.counts.get(&(arm.to_owned(), pattern));
            let shown =
                |count: &Option<f64>| count.map_or("-".into(), |count| format!("{count:.1}"));
            counts.map_or_else(String::new, |counts| counts.each_ref().map(shown).join(" "))
        });
        if self.counts.values().all(|counts| counts[0].is_none()) {
            println!("-: this machine offers no counter of cache misses");
        }
    }

    pub(crate) fn json(&self) -> Value {
        let arms = self.times.arms().iter().map(|arm| {
            let patterns = Pattern::ALL.into_iter().filter_map(|pattern| {
                let times = self.times.summary(arm, pattern, &[REFERENCE])?;
                let counts = self.counts.get(&(arm.to_owned(), pattern));
                let counts = counts.map(|counts| NAMES.into_iter().zip(counts).collect::<BTreeMap<_, _>>());
                let value = json!({
                    "ns_median": times.median, "ns_min": times.min, "ratio_to_reference": times.ratio,
                    "per_1000_buffers": counts,
                });
                Some((pattern.name().to_owned(), value))
            });
            let patterns: serde_json::Map<String, Value> = patterns.collect();
            json!({ "buffers": arm, "patterns": patterns })
        });
        json!({ "reference": REFERENCE, "arms": arms.collect::<Vec<_>>() })
    }
}
