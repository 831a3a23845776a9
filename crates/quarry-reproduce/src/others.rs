//! Single changes of machine and load under which a claim that does not hold might.
//!
//! A claim can fail since the mechanism is wrong, or since something that the publication does not say was otherwise.
//! Each thread names what it does not know, with the reason for which it is plausible or not. These are run, one at a time,
//! and change no verdict: they tell what decides.

use quarry_machines::{Draw, Key};
use quarry_work::load::LoadSpec;
use schemars::JsonSchema;
use serde::Serialize;

use crate::results::Results;
use crate::setting::Setting;
use crate::spec::ClaimSpec;

/// A change of a run.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// The load.
    Load(fn(&mut LoadSpec)),
    /// A cost of the machine, to the high end of its range or the low one.
    Cost(Key, bool),
}

/// A change, and whether it may have been so.
pub(crate) struct Other {
    /// The change in words, as in `tasks stay on their CPUs (--wake-place previous)`.
    pub(crate) name: String,
    /// Reason for which it is plausible or not, from `yes:` or `no:` on.
    pub(crate) plausible: &'static str,
    /// Beginnings of the ids of claims that it may decide; none for all.
    pub(crate) claims: &'static [&'static str],
    pub(crate) change: Change,
}

impl Other {
    /// A change of the load.
    pub(crate) fn load(
        name: &str,
        plausible: &'static str,
        claims: &'static [&'static str],
        change: fn(&mut LoadSpec),
    ) -> Self {
        Self {
            name: name.to_string(),
            plausible,
            claims,
            change: Change::Load(change),
        }
    }

    /// Costs of the machine, each at both ends of its range.
    pub(crate) fn costs(keys: &[Key]) -> impl Iterator<Item = Self> {
        let ends = keys.iter().flat_map(|&key| [(key, false), (key, true)]);
        ends.map(|(key, high)| Self {
            name: format!(
                "{} at the {} end of its range",
                key.path(),
                if high { "high" } else { "low" }
            ),
            plausible: "yes: the sources of the cost differ as much",
            claims: &[],
            change: Change::Cost(key, high),
        })
    }

    /// True if it may decide a claim.
    pub(crate) fn decides(&self, claim: &ClaimSpec) -> bool {
        self.claims.is_empty() || self.claims.iter().any(|id| claim.id.starts_with(id))
    }

    /// The setting of the values with it.
    pub(crate) fn setting(&self, values: &Setting) -> Setting {
        let values = values.clone();
        match self.change {
            Change::Load(change) => Setting {
                change: Some(change),
                ..values
            },
            Change::Cost(key, high) => Setting {
                draw: Draw::end(key, high),
                ..values
            },
        }
    }
}

/// The single change with which a claim's figure comes nearest to its range.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Nearest {
    /// The change in words.
    pub change: String,
    /// Figure with it, and all else as the values say.
    pub figure: f64,
    /// True if the figure is in the range with it.
    pub holds: bool,
    /// `yes` or `no`, and the reason: whether it may have been so.
    pub plausible: &'static str,
    /// Changes that were tried, one at a time.
    pub tried: usize,
}

/// The nearest of the changes that were run: of those in the range the first plausible one, else the least distant.
pub(crate) fn nearest(others: &[Other], spec: &ClaimSpec, results: &Results) -> Option<Nearest> {
    let [from, to] = spec.range;
    let distance = |figure: f64| (from - figure).max(figure - to).max(0.0);
    let tried = results.elsewhere().iter().zip(others);
    let tried: Vec<(f64, &Other)> = tried
        .filter(|(_, other)| other.decides(spec))
        .filter_map(|(results, other)| Some(((spec.figure)(results.values())?, other)))
        .collect();
    let rank =
        |(figure, other): &(f64, &Other)| (distance(*figure), other.plausible.starts_with("no"));
    let (figure, other) = tried.iter().min_by(|one, two| {
        let (one, two) = (rank(one), rank(two));
        one.0.total_cmp(&two.0).then(one.1.cmp(&two.1))
    })?;
    Some(Nearest {
        change: other.name.clone(),
        figure: *figure,
        holds: distance(*figure) == 0.0,
        plausible: other.plausible,
        tried: tried.len(),
    })
}
