//! Tables and JSON of the results.

use serde_json::{Value, json};

use crate::dpdk::Missing;
use crate::latency::Latency;
use crate::patterns::Pattern;
use crate::times::{Times, print_table};

/// The arms that the others are compared with: the first that has the pattern.
pub(crate) const REFERENCES: [&str; 2] = ["DPDK mempool", "page allocator"];

/// Nanoseconds per page, and why a peer is missing.
pub(crate) struct Results {
    missing: Option<Missing>,
    pub(crate) times: Times<Pattern>,
}

impl Results {
    pub(crate) fn new(missing: Option<Missing>) -> Self {
        Self {
            missing,
            times: Times::new(),
        }
    }

    /// Cost of a page in bulk calls, relative to single calls of the same arm.
    fn bulk_share(&self, arm: &str) -> Option<f64> {
        self.times.ratio(arm, Pattern::Bulk64, arm, Pattern::Single)
    }

    /// Ratios of the null arm to the page allocator: the noise of two runs of the same code.
    fn noise(&self) -> impl Iterator<Item = f64> {
        Pattern::ALL.into_iter().filter_map(|pattern| {
            let [null, base] = ["again (null)", "page allocator"];
            self.times.ratio(null, pattern, base, pattern)
        })
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
        let arms = self.times.arms();
        let mut header = vec!["pattern".to_owned()];
        header.extend_from_slice(arms);
        let rows = Pattern::ALL.map(|pattern| {
            let cells = arms.iter().map(|arm| {
                let summary = self.times.summary(arm, pattern, &REFERENCES);
                summary.map_or_else(String::new, |summary| summary.to_string())
            });
            let name = std::iter::once(pattern.name().to_owned());
            name.chain(cells).collect()
        });
        print_table(header, rows);
        for arm in arms {
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
        let arms = self.times.arms().iter().map(|arm| {
            let patterns = Pattern::ALL.into_iter().filter_map(|pattern| {
                let s = self.times.summary(arm, pattern, &REFERENCES)?;
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
    let header = [
        "driver",
        "pages per packet",
        "Mbit/s at most",
        "pages per second",
    ];
    let owned = |row: [&str; 4]| row.map(str::to_owned).to_vec();
    print_table(owned(header), KERNEL.map(owned));
    println!(
        "one ring: about 130 ns for a page more (inferred from 1.626 and 2.056 M packets/s); zone lock: \
         2/31 holds for a page when\nanother CPU frees, 524,000 holds/s of 31 pages at line rate; 85.58 % of the \
         time of #2 went into waiting for that lock"
    );
}
