//! Medians, ratios, and how they are shown.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::common::{median, right_align};
use crate::patterns::Pattern;

/// The arm that the others are compared with.
const REFERENCE: &str = "mimalloc";

/// Nanoseconds per object, by arm and pattern, one per round.
#[derive(Default)]
pub(crate) struct Results {
    arms: Vec<String>,
    times: BTreeMap<(usize, Pattern), Vec<f64>>,
}

struct Summary {
    median: f64,
    min: f64,
    ratio: f64,
}

impl Results {
    pub(crate) fn add(&mut self, arm: &str, pattern: Pattern, ns: f64) {
        let at = self
            .arms
            .iter()
            .position(|name| name == arm)
            .unwrap_or_else(|| {
                self.arms.push(arm.to_owned());
                self.arms.len() - 1
            });
        self.times.entry((at, pattern)).or_default().push(ns);
    }

    fn summary(&self, arm: usize, pattern: Pattern) -> Option<Summary> {
        let times = self.times.get(&(arm, pattern))?;
        let reference = self.arms.iter().position(|name| name == REFERENCE)?;
        let base = self.times.get(&(reference, pattern))?;
        Some(Summary {
            median: median(times.iter().copied()),
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            ratio: median(times.iter().zip(base).map(|(time, base)| time / base)),
        })
    }

    pub(crate) fn print(&self, size: usize, rounds: usize, objects: usize) {
        println!(
            "alloc+free of {size}-byte objects, ns per object: median (min) over {rounds} rounds \
             of {objects} objects, and median ratio to {REFERENCE}"
        );
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        let mut header = vec!["allocator".to_owned()];
        header.extend(Pattern::ALL.iter().map(|pattern| pattern.name()));
        table.set_header(header);
        for (at, arm) in self.arms.iter().enumerate() {
            let cells = Pattern::ALL.iter().map(|&pattern| {
                self.summary(at, pattern).map_or_else(String::new, |s| {
                    format!("{:.2} ({:.2}) {:.2}x", s.median, s.min, s.ratio)
                })
            });
            table.add_row(std::iter::once(arm.clone()).chain(cells));
        }
        right_align(&mut table);
        println!("{table}");
    }

    pub(crate) fn json(&self, size: usize) -> Value {
        let arms = self.arms.iter().enumerate().map(|(at, arm)| {
            let patterns = Pattern::ALL.iter().filter_map(|&pattern| {
                let s = self.summary(at, pattern)?;
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
}
