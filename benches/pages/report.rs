//! Medians, ratios, and how they are shown.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::common::{median, right_align};
use crate::dpdk::Missing;
use crate::latency::Latency;
use crate::patterns::Pattern;

/// The arms that the others are compared with: the first that has the pattern.
pub(crate) const REFERENCES: [&str; 2] = ["DPDK mempool", "page allocator"];

/// Nanoseconds per page, by arm and pattern, one per round.
pub(crate) struct Results {
    missing: Option<Missing>,
    arms: Vec<&'static str>,
    times: BTreeMap<(usize, Pattern), Vec<f64>>,
}

struct Summary {
    median: f64,
    min: f64,
    ratio: f64,
}

impl Results {
    pub(crate) fn new(missing: Option<Missing>) -> Self {
        Self {
            missing,
            arms: Vec::new(),
            times: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, arm: &'static str, pattern: Pattern, ns: f64) {
        let known = self.arms.iter().position(|&name| name == arm);
        let at = known.unwrap_or_else(|| {
            self.arms.push(arm);
            self.arms.len() - 1
        });
        self.times.entry((at, pattern)).or_default().push(ns);
    }

    fn times(&self, arm: &str, pattern: Pattern) -> Option<&Vec<f64>> {
        let at = self.arms.iter().position(|&name| name == arm)?;
        self.times.get(&(at, pattern))
    }

    fn ratio(&self, arm: &str, pattern: Pattern, base: &str, base_pattern: Pattern) -> Option<f64> {
        let times = self.times(arm, pattern)?;
        let base = self.times(base, base_pattern)?;
        Some(median(
            times.iter().zip(base).map(|(time, base)| time / base),
        ))
    }

    fn summary(&self, arm: &str, pattern: Pattern) -> Option<Summary> {
        let times = self.times(arm, pattern)?;
        let reference = REFERENCES
            .into_iter()
            .find(|name| self.times(name, pattern).is_some())?;
        Some(Summary {
            median: median(times.iter().copied()),
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            ratio: self.ratio(arm, pattern, reference, pattern)?,
        })
    }

    /// Cost of a page in bulk calls, relative to single calls of the same arm.
    fn bulk_share(&self, arm: &str) -> Option<f64> {
        self.ratio(arm, Pattern::Bulk64, arm, Pattern::Single)
    }

    /// Ratios of the null arm to the page allocator: the noise of two runs of the same code.
    fn noise(&self) -> impl Iterator<Item = f64> {
        Pattern::ALL
            .into_iter()
            .filter_map(|pattern| self.ratio("again (null)", pattern, "page allocator", pattern))
    }

    pub(crate) fn print(&self, rounds: usize, pages: usize) {
        println!(
            "\nalloc+free of pages, ns for each page (block of order 3): median (min) over {rounds} \
             rounds of {pages} pages, and median ratio to {}, or to {} in patterns that it has not",
            REFERENCES[0], REFERENCES[1]
        );
        if let Some(Missing(reason)) = &self.missing {
            println!("without {}: {reason}", REFERENCES[0]);
        }
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        let mut header = vec!["pattern"];
        header.extend(&self.arms);
        table.set_header(header);
        for pattern in Pattern::ALL {
            let cells = self.arms.iter().map(|arm| {
                self.summary(arm, pattern).map_or_else(String::new, |s| {
                    format!("{:.2} ({:.2}) {:.2}x", s.median, s.min, s.ratio)
                })
            });
            table.add_row(std::iter::once(pattern.name().to_owned()).chain(cells));
        }
        right_align(&mut table);
        println!("{table}");
        for arm in &self.arms {
            if let Some(share) = self.bulk_share(arm) {
                println!("{arm}: bulk 64 costs {share:.2}x of single, for each page");
            }
        }
        let (low, high) = self
            .noise()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), ratio| {
                (low.min(ratio), high.max(ratio))
            });
        if high > 0.0 {
            println!("noise: the null arm takes {low:.2}x to {high:.2}x of the same");
        }
        println!(
            "2 threads: each has a pool of its own, and a cache of the one mempool. Other thread: the \
             pool's owner allocates, the other\nthread puts into its CPU's lane; one core of the \
             mempool gets, another puts into its cache. A pool looks at each page,\nor at the first \
             of a batch, and notes who has it; a mempool copies pointers, and its debugging, which \
             would check\nthem, is off."
        );
    }

    pub(crate) fn json(&self, latencies: &[Latency]) -> Value {
        let arms = self.arms.iter().map(|arm| {
            let patterns = Pattern::ALL.into_iter().filter_map(|pattern| {
                let s = self.summary(arm, pattern)?;
                let value = json!({
                    "ns_median": s.median, "ns_min": s.min, "ratio_to_reference": s.ratio,
                });
                Some((pattern.name().to_owned(), value))
            });
            let patterns: serde_json::Map<String, Value> = patterns.collect();
            let share = self.bulk_share(arm);
            json!({ "allocator": arm, "patterns": patterns, "bulk_64_of_single": share })
        });
        json!({
            "references": REFERENCES,
            "dpdk_missing": self.missing.as_ref().map(|missing| &missing.0),
            "arms": arms.collect::<Vec<_>>(),
            "latency": latencies.iter().map(Latency::json).collect::<Vec<_>>(),
        })
    }
}

/// Figures of the thread "Page allocator bottleneck" (linux-mm, September 2017) and what follows
/// from them, by driver: pages for a packet, most megabits per second and with how many rings.
const KERNEL: [[&str; 4]; 3] = [
    [
        "#1, two packets a page, no cache",
        "1/2",
        "94,210 at 6 rings",
        "4.07 M (line rate)",
    ],
    [
        "#2, one packet a page, no cache",
        "1",
        "63,637 at 6 rings",
        "5.49 M",
    ],
    [
        "#3, one packet a page, large cache",
        "about 0",
        "94,350 at 8 rings",
        "about 0",
    ],
];

/// Prints what a kernel needed for a page.
pub(crate) fn print_kernel_figures() {
    println!(
        "\nfor orientation, OTHER HARDWARE: a Linux 4.13 kernel receiving at 100 Gbit/s (thread \
         \"Page allocator bottleneck\", linux-mm, 2017)"
    );
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "driver",
        "pages per packet",
        "Mbit/s at most",
        "pages per second",
    ]);
    for row in KERNEL {
        table.add_row(row);
    }
    right_align(&mut table);
    println!("{table}");
    println!(
        "one ring: about 130 ns for a page more (inferred from 1.626 and 2.056 M packets/s); zone lock: \
         2/31 holds for a page when\nanother CPU frees, 524,000 holds/s of 31 pages at line rate; 85.58 % of the \
         time of #2 went into waiting for that lock"
    );
}
