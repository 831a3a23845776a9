//! `--sensitivity`: how far figures move when the machine's constants are other than their values say.
//!
//! A command makes a [`Study`] of the time counters of its runs, [`explore`] repeats these in all arms, and a [`Report`] is made
//! of the [`Samples`] and claims about them: a part of the JSON.

use quarry_work::sensitivity::{
    Arm, Claim, DRAWS, Figure, FigureBand, First, SEEDS, STATES, Samples, Study,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{output, terminal};

/// Runs that are compared with each other.
pub(crate) struct Group {
    /// Description of what the runs share.
    pub(crate) about: String,
    /// Their numbers, and their names in the group.
    pub(crate) runs: Vec<(usize, String)>,
}

impl Group {
    /// Runs in groups, by what `of` says that they have in common; it names each in its group, too.
    pub(crate) fn all<R>(reports: &[R], of: impl Fn(&R) -> (String, String)) -> Vec<Self> {
        let runs = reports.iter().enumerate().map(|(number, report)| {
            let (about, name) = of(report);
            (about, (number, name))
        });
        let groups = quarry_view::grouped(runs).into_iter();
        groups.map(|(about, runs)| Self { about, runs }).collect()
    }
}

/// Results of a sensitivity study.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Sensitivity")]
pub(crate) struct Report {
    /// Draws of all constants at once.
    draws: u32,
    /// Other seeds.
    seeds: u32,
    /// Other states of the heap; 0 if it begins empty.
    states: u32,
    /// Constants with a range that cost no run any time: none of them is changed alone.
    unused: Vec<String>,
    /// Figures of each run with their bands.
    figures: Vec<FigureBand>,
    /// Claims with their verdicts.
    claims: Vec<Claim>,
}

/// Fields of a command that simulates time.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Timed<'a, R> {
    /// Workload.
    pub(crate) workload: &'static str,
    /// Settings as given.
    pub(crate) settings: &'a output::Given,
    /// Runs: one for each combination of the axes.
    pub(crate) runs: &'a [R],
    /// Results of `--sensitivity`; left out without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sensitivity: Option<&'a Report>,
}

/// Runs a study's arms. `run` gives the figures of a run in an arm; `values` are those without one.
pub(crate) fn explore<T: Sync, E: Send>(
    study: &Study,
    runs: &[T],
    values: Vec<Vec<Figure>>,
    jobs: usize,
    run: impl Fn(&T, &Arm) -> Result<Vec<Figure>, E> + Sync,
) -> Result<Samples, E> {
    let all = (study.arms().len() * runs.len()) as u64;
    let bar = terminal::progress_bar("sensitivity", all, "runs");
    let samples = study.run(runs, values, jobs, &|| bar.inc(1), run);
    bar.finish_and_clear();
    samples
}

impl Report {
    /// The report on a study's samples, with claims about them.
    pub(crate) fn new(samples: &Samples, claims: Vec<Claim>) -> Self {
        let figures = samples.bands();
        let has_states = figures.iter().any(|band| band.states.is_some());
        Self {
            draws: DRAWS,
            seeds: SEEDS,
            states: if has_states { STATES } else { 0 },
            unused: samples.unused(),
            figures,
            claims,
        }
    }

    /// With claims that the runs of each group come in the order that they have by a figure.
    pub(crate) fn of_order(samples: &Samples, groups: &[Group], figure: (&str, First)) -> Self {
        let claims = groups
            .iter()
            .flat_map(|group| samples.order(&group.about, figure, &group.runs));
        Self::new(samples, claims.collect())
    }
}
