//! Times of arms in rounds, for benchmarks that compare allocators.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::common::{median, table};

/// Nanoseconds of `f`.
pub(crate) fn timed(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64
}

/// Spins until another thread has set the flag to `value`, with the Release that this pairs with.
pub(crate) fn wait(full: &AtomicBool, value: bool) {
    let mut spins = 0_u32;
    // Acquire: pairs with the Release of the other side.
    while full.load(Ordering::Acquire) != value {
        spins += 1;
        if spins.is_multiple_of(256) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Nanoseconds by arm and pattern, one for each round. Arms keep the order in which they came.
pub(crate) struct Times<P> {
    arms: Vec<String>,
    times: BTreeMap<(usize, P), Vec<f64>>,
}

/// Times of an arm and pattern in all rounds; shown as `median (min) ratio`.
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    /// Median of the ratios to the reference, round by round.
    pub(crate) ratio: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, min, ratio } = self;
        write!(formatter, "{median:.2} ({min:.2}) {ratio:.2}x")
    }
}

impl<P: Copy + Ord> Times<P> {
    pub(crate) fn new() -> Self {
        Self {
            arms: Vec::new(),
            times: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, arm: &str, pattern: P, ns: f64) {
        let known = self.arms.iter().position(|name| name == arm);
        let at = known.unwrap_or_else(|| {
            self.arms.push(arm.to_owned());
            self.arms.len() - 1
        });
        self.times.entry((at, pattern)).or_default().push(ns);
    }

    pub(crate) fn arms(&self) -> &[String] {
        &self.arms
    }

    fn of(&self, arm: &str, pattern: P) -> Option<&Vec<f64>> {
        let at = self.arms.iter().position(|name| name == arm)?;
        self.times.get(&(at, pattern))
    }

    /// Median of the ratios of two arms or patterns, round by round.
    pub(crate) fn ratio(&self, arm: &str, pattern: P, base: &str, base_pattern: P) -> Option<f64> {
        let times = self.of(arm, pattern)?;
        let base = self.of(base, base_pattern)?;
        Some(median(
            times.iter().zip(base).map(|(time, base)| time / base),
        ))
    }

    /// Compares with the first of the references that has the pattern.
    pub(crate) fn summary(&self, arm: &str, pattern: P, references: &[&str]) -> Option<Summary> {
        let times = self.of(arm, pattern)?;
        let reference = references
            .iter()
            .find(|name| self.of(name, pattern).is_some())?;
        Some(Summary {
            median: median(times.iter().copied()),
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            ratio: self.ratio(arm, pattern, reference, pattern)?,
        })
    }
}

/// Prints rows of cells under a header; numbers are aligned to the right.
pub(crate) fn print_table(header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = table(header);
    for row in rows {
        table.add_row(row);
    }
    println!("{table}");
}
