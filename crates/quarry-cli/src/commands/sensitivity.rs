//! `--sensitivity`: how far figures move when the machine's constants are other than their values say.
//!
//! A command makes a [`Study`] of the time counters of its runs, [`explore`] repeats these in all arms, and a [`Report`] is made
//! of the [`Samples`] and claims about them: a part of the JSON, and a text below the tables.

use quarry_work::sensitivity::{
    Arm, Claim, DRAWS, Decides, Figure, FigureBand, First, SEEDS, STATES, Samples, Study, Verdict,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output;

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
    /// Settings as given; left out if the workload has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<&'a output::Asked>,
    /// Runs: one for each combination of the axes.
    pub(crate) runs: &'a [R],
    /// Results of `--sensitivity`; left out without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sensitivity: Option<&'a Report>,
}

impl<R: Serialize> Timed<'_, R> {
    /// Prints JSON, or the text and what the study found of the groups.
    pub(crate) fn print(
        &self,
        json: bool,
        groups: &[Group],
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if json {
            return output::print_json(&format!("run {}", self.workload), self);
        }
        let study = self.sensitivity.map(|report| report.text(groups));
        output::print_text(&(text() + &study.unwrap_or_default()))
    }
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
    let bar = output::progress_bar("sensitivity", all, "runs");
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

    /// A line that says how many claims hold, then for each group its bands and claims.
    pub(crate) fn text(&self, groups: &[Group]) -> String {
        let count = |verdict| {
            let of = self.claims.iter().filter(|claim| claim.verdict == verdict);
            of.count()
        };
        let claims = match self.claims.is_empty() {
            true => String::new(),
            false => format!(
                " claims that hold {}, undecided {}, that fail {}.",
                count(Verdict::Holds),
                count(Verdict::Undecided),
                count(Verdict::Fails)
            ),
        };
        let mut text = format!(
            "\nSensitivity:{claims} One at a time: each constant \
             of the machine at the ends of its range. Draws: all of them anywhere in their ranges. \
             Seeds: the width of chance alone.{}\n",
            match self.states {
                0 => "",
                _ => " States: facts about the heap that no report has, drawn anew.",
            }
        );
        for group in groups {
            text += &format!("\n{}\n{}\n\n", group.about, self.bands(group));
            text += &self.decides(group);
            for claim in self
                .claims
                .iter()
                .filter(|claim| claim.about == group.about)
            {
                text += &format!("{claim}\n");
            }
        }
        text
    }

    /// Names what moves the first figure of a group's runs most: the machine's constants, the state of the heap, or chance.
    fn decides(&self, group: &Group) -> String {
        let of_group = |band: &&FigureBand| group.runs.iter().any(|(run, _)| *run == band.run);
        let Some(first) = self.figures.iter().find(of_group) else {
            return String::new();
        };
        let bands = self.figures.iter().filter(of_group);
        let bands: Vec<&FigureBand> = bands.filter(|band| band.name == first.name).collect();
        let figure = first.name.replace('_', " ");
        let moved = |band: &FigureBand| match band.decides {
            Decides::Constant => {
                let most = band.most.as_deref().unwrap_or_default();
                format!("is moved most by a constant of the machine, {most}")
            }
            Decides::State => "is moved most by the state of the heap".to_string(),
            Decides::Chance if self.states > 0 => {
                "is moved most by chance: no constant and no state goes beyond it".to_string()
            }
            Decides::Chance => "is moved most by chance: no constant goes beyond it".to_string(),
            Decides::Nothing => "is moved by nothing".to_string(),
        };
        let mut text = match bands.iter().all(|band| moved(band) == moved(first)) {
            true => format!("{figure} {}.\n", moved(first)),
            false => group
                .runs
                .iter()
                .filter_map(|(run, name)| {
                    let band = bands.iter().find(|band| band.run == *run)?;
                    Some(format!("{name}: {figure} {}.\n", moved(band)))
                })
                .collect(),
        };
        if bands.iter().all(|band| band.seeds[0] == band.seeds[1]) {
            text +=
                "No run depends on the seed; another recording or load may differ all the same.\n";
        }
        text + "\n"
    }

    /// A row for each figure of each run.
    fn bands(&self, group: &Group) -> output::Grid {
        let draws = format!("{} draws\n%", self.draws);
        let seeds = format!("{} seeds\n%", self.seeds);
        let states = format!("{} states\n%", self.states);
        let mut header = vec![
            "",
            "value",
            "one at a\ntime, %",
            "moved most\nby",
            &draws,
            &seeds,
        ];
        if self.states > 0 {
            header.push(&states);
        }
        let mut table = output::grid(&header, &[3]);
        for (run, name) in &group.runs {
            for band in self.figures.iter().filter(|band| band.run == *run) {
                // The section of a constant's name is left out: `latency.llc`.
                let most = band.most.as_deref().unwrap_or("-");
                let most = most.rsplit('.').next().unwrap_or_default();
                let [low, high] = band.seeds;
                let mut row = vec![
                    format!("{name} {}", band.name.replace('_', " ")),
                    number(band.value),
                    range(band.value, band.one),
                    most.to_string(),
                    range(band.value, band.drawn),
                    format!("{:.1}", percent(band.value, band.value + high - low)),
                ];
                row.extend(band.states.map(|states| range(band.value, states)));
                table.add_row(row);
            }
        }
        table
    }
}

/// Three digits or more.
fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

fn percent(value: f64, figure: f64) -> f64 {
    match value == 0.0 {
        true => 0.0,
        false => (figure - value) / value * 100.0,
    }
}

fn range(value: f64, [low, high]: [f64; 2]) -> String {
    format!("{:+.0} {:+.0}", percent(value, low), percent(value, high))
}
