//! Predictions next to what really was, counted.

use std::fmt;
use std::path::Path;

use quarry_state::Prediction;

pub(crate) const STAGES: [&str; 7] = [
    "boot", "bursts", "peak", "drained", "idle", "dropped", "shrunk",
];

/// Prints lines of tables of `docs/what-if.md`, which has to have them.
pub(crate) fn document(lines: &[String]) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/what-if.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    lines.iter().for_each(|line| println!("{line}"));
    let missing: Vec<&String> = lines.iter().filter(|line| !docs.contains(*line)).collect();
    assert!(missing.is_empty(), "docs/what-if.md lacks: {missing:#?}");
}

/// A prediction next to what really was.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// Prediction less the real value, in per cent of that.
    error: f64,
    /// Bytes between the ends of what is likely, in per cent of the real value.
    width: f64,
    /// The real value lies between them.
    is_inside: bool,
}

impl Case {
    pub(crate) fn of(told: &Prediction, real: u64) -> Self {
        let percent = |bytes: u64| 100.0 * bytes as f64 / real as f64;
        let likely = told.bytes.likely_low_bytes..=told.bytes.likely_high_bytes;
        Self {
            error: percent(told.bytes.predicted_bytes) - 100.0,
            width: percent(told.bytes.likely_high_bytes - told.bytes.likely_low_bytes),
            is_inside: likely.contains(&real),
        }
    }
}

/// Cases together.
pub(crate) struct Class {
    cases: usize,
    inside: usize,
    /// Widths: median, and what 95 of 100 do not exceed.
    pub(crate) widths: [f64; 2],
    /// Errors: median, least, most.
    pub(crate) errors: [f64; 3],
}

impl Class {
    pub(crate) fn of<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Self {
        let cases: Vec<&Case> = cases.into_iter().collect();
        let sorted = |value: fn(&Case) -> f64| {
            let mut values: Vec<f64> = cases.iter().map(|case| value(case)).collect();
            values.sort_by(f64::total_cmp);
            move |part: f64| values[((values.len() - 1) as f64 * part).round() as usize]
        };
        Self {
            cases: cases.len(),
            inside: cases.iter().filter(|case| case.is_inside).count(),
            widths: [0.5, 0.95].map(sorted(|case| case.width)),
            errors: [0.5, 0.0, 1.0].map(sorted(|case| case.error)),
        }
    }

    pub(crate) fn inside_percent(&self) -> f64 {
        100.0 * self.inside as f64 / self.cases as f64
    }
}

/// The columns of the table in `docs/what-if.md`.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([width, wide], [median, least, most]) = (self.widths, self.errors);
        write!(
            f,
            "{} | {:.0} % | {width:.0} % | {wide:.0} % | {median:+.1} % | {least:+.1} to {most:+.1} % |",
            self.cases,
            self.inside_percent()
        )
    }
}
