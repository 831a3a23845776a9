//! Claims about figures, and what becomes of them in all arms.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::Figure;
use super::arms::ArmKind;
use super::bands::Samples;

/// Figures that differ by no more than this part of the larger one are the same.
const SAME: f64 = 0.001;

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// True in all arms.
    Holds,
    /// True in none.
    Fails,
    /// True in some.
    Undecided,
}

/// A claim and its verdict.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Claim {
    /// Runs that the claim is about.
    pub about: String,
    /// Statement.
    pub claim: String,
    /// Verdict over all arms.
    pub verdict: Verdict,
    /// True if the claim holds with all constants at their own values.
    pub true_of_values: bool,
    /// Constants, each with its end, that alone make a true claim false or a false one true; none if a seed alone does so, too,
    /// as this may then be chance.
    pub changed_by: Vec<String>,
    /// Draws of all constants in which the claim is true, and all draws.
    pub true_draws: [u32; 2],
    /// Other seeds with which the claim is true, and all other seeds.
    pub true_seeds: [u32; 2],
    /// Other states of the heap in which the claim is true, and all other states: none if it begins empty.
    pub true_states: [u32; 2],
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::Undecided => "undecided",
        };
        write!(f, "{}: {verdict}", self.claim)?;
        if self.verdict != Verdict::Undecided {
            return Ok(());
        }
        let [draws, all] = self.true_draws;
        write!(f, " (true in {draws} of {all} draws")?;
        let [seeds, all] = self.true_seeds;
        write!(f, ", with {seeds} of {all} other seeds")?;
        let [states, all] = self.true_states;
        if all > 0 {
            write!(f, ", in {states} of {all} states of the heap")?;
        }
        match self.changed_by.as_slice() {
            [] => f.write_str(")"),
            [one] => write!(f, "; changed by {one})"),
            [one, other] => write!(f, "; changed by {one}, {other})"),
            [one, more @ ..] => write!(f, "; changed by {one} and {} others)", more.len()),
        }
    }
}

/// Direction of an order by a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The run with the largest figure comes first: a throughput.
    Most,
    /// The run with the smallest figure comes first: a time.
    Least,
}

/// The figures of all runs in one arm.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a>(&'a [Vec<Figure>]);

impl Sample<'_> {
    /// A figure of a run; `None` if the run has none of this name.
    #[must_use]
    pub fn figure(&self, run: usize, name: &str) -> Option<f64> {
        let figures = self.0.get(run)?.iter();
        let mut named = figures.filter(|(known, _)| *known == name);
        named.next().map(|(_, figure)| *figure)
    }
}

/// True if a figure is at most n per cent of a value away from it.
#[must_use]
pub fn within(figure: f64, percent: f64, value: f64) -> bool {
    (figure - value).abs() <= value.abs() * percent / 100.0
}

impl Samples {
    /// The verdict on a claim. `None` if the predicate is `None` in an arm, as a figure does not exist.
    #[must_use]
    pub fn claim(
        &self,
        about: &str,
        claim: &str,
        holds: impl Fn(Sample<'_>) -> Option<bool>,
    ) -> Option<Claim> {
        let truths = self
            .arms
            .iter()
            .map(|(kind, runs)| Some((*kind, holds(Sample(runs))?)));
        let truths: Vec<(ArmKind, bool)> = truths.collect::<Option<_>>()?;
        let &(_, true_of_values) = truths.first()?;
        let count = |kind: ArmKind| {
            let of_kind = truths.iter().filter(|(of, _)| *of == kind);
            let true_ones = of_kind.clone().filter(|(_, truth)| *truth);
            [true_ones.count() as u32, of_kind.count() as u32]
        };
        let change = |(kind, truth): &(ArmKind, bool)| match kind {
            ArmKind::End { key, high } if *truth != true_of_values => {
                let end = if *high { "high" } else { "low" };
                Some(format!("{} {end}", key.path()))
            }
            _ => None,
        };
        let by_chance = truths
            .iter()
            .any(|(kind, truth)| *kind == ArmKind::Seed && *truth != true_of_values);
        let changed_by = match by_chance {
            true => Vec::new(),
            false => truths.iter().filter_map(change).collect(),
        };
        let changed = truths.iter().any(|(_, truth)| *truth != true_of_values);
        Some(Claim {
            about: about.to_string(),
            claim: claim.to_string(),
            verdict: match (changed, true_of_values) {
                (true, _) => Verdict::Undecided,
                (false, true) => Verdict::Holds,
                (false, false) => Verdict::Fails,
            },
            true_of_values,
            changed_by,
            true_draws: count(ArmKind::Draw),
            true_seeds: count(ArmKind::Seed),
            true_states: count(ArmKind::State),
        })
    }

    /// Claims that runs come in the order that they have by a figure: one for each two that follow each other. Runs whose
    /// figures are the same are claimed to be so.
    #[must_use]
    pub fn order(
        &self,
        about: &str,
        (figure, first): (&str, First),
        runs: &[(usize, String)],
    ) -> Vec<Claim> {
        let Some((_, values)) = self.arms.first() else {
            return Vec::new();
        };
        let of = |run: usize| Sample(values).figure(run, figure).unwrap_or(f64::NAN);
        let same = |a: f64, b: f64| (a - b).abs() <= a.max(b) * SAME;
        let mut runs: Vec<&(usize, String)> = runs.iter().collect();
        let better = |a: f64, b: f64| match first {
            First::Most => b.total_cmp(&a),
            First::Least => a.total_cmp(&b),
        };
        runs.sort_by(|(a, _), (b, _)| better(of(*a), of(*b)));
        let pairs = runs.windows(2).filter_map(|pair| {
            let [(a, first), (b, second)] = pair else {
                return None;
            };
            let both =
                |sample: Sample<'_>| Some((sample.figure(*a, figure)?, sample.figure(*b, figure)?));
            if same(of(*a), of(*b)) {
                let claim = format!("{first} the same as {second}");
                return self.claim(about, &claim, |sample| {
                    both(sample).map(|(a, b)| same(a, b))
                });
            }
            let claim = format!("{first} before {second}");
            self.claim(about, &claim, |sample| {
                both(sample).map(|(a, b)| better(a, b).is_lt())
            })
        });
        pairs.collect()
    }
}
