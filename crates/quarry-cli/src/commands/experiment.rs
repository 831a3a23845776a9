//! Runs in simulated time. An experiment says how a run is made, judged and described; running all of them, repeating
//! them in the arms of a study, and printing is the same for all.

use quarry_ask::Part;
use quarry_lab::experiments;
use quarry_machines::Machine;
use quarry_sim::time::TimeCounters;
use quarry_view::View;
use quarry_view::frame::schema::meanings;
use quarry_work::run_all;
use quarry_work::sensitivity::{Arm, Figure, First, Study};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::sensitivity::{self, Group, Report, Timed};
use crate::commands::several::{self, Kept};
use crate::jobs::JobsArgs;
use crate::output::{self, Given, PageArgs};
use crate::terminal::{self, Show};

/// Options that all workloads in simulated time share beside their questions.
#[derive(clap::Args)]
pub(crate) struct TimedArgs {
    #[command(flatten)]
    pub(crate) jobs: JobsArgs,
    /// Run all again with the machine's constants elsewhere in their ranges, and say which results
    /// hold. It takes about 100 times as long.
    #[arg(long, conflicts_with = "draw")]
    pub(crate) sensitivity: bool,
    #[command(flatten)]
    pub(crate) out: OutArgs,
}

/// Options for outputs of a workload beside the tables.
#[derive(clap::Args)]
pub(crate) struct OutArgs {
    #[command(flatten)]
    page: PageArgs,
    /// Print JSON: one object, with what the time went into (quarry explain --all).
    #[arg(long)]
    pub(crate) json: bool,
}

/// Progress of a run, in steps that are done.
pub(crate) type Progress<'a> = &'a dyn quarry_work::Progress;

/// Runs whose times are compared.
pub(crate) trait Experiment: Sync {
    /// All that a run depends on.
    type Run: Sync;
    /// Results of a run.
    type Report: JsonSchema + Serialize + Send + Sync;
    /// Error of a run.
    type Error: Into<anyhow::Error> + Send;

    /// Figure that orders the runs of a group.
    const ORDER: (&'static str, First);

    /// Steps of a run, and their unit on the progress bar.
    const STEPS: (u64, &'static str) = (1, "runs");

    /// The run with the constants, the seed and the state of an arm.
    fn in_arm(run: &Self::Run, arm: &Arm) -> Self::Run;

    /// Does a run.
    fn run(&self, run: &Self::Run, progress: Progress<'_>) -> Result<Self::Report, Self::Error>;

    /// True if heaps begin in one of several states.
    fn has_states(&self) -> bool {
        false
    }

    /// Figures of a run that a study follows.
    fn figures(report: &Self::Report) -> Vec<Figure>;

    /// Time counters of a run: constants that no run used are not studied.
    fn spent(report: &Self::Report) -> &TimeCounters;

    /// Description of the group of a run, and name of the run in it.
    fn named(report: &Self::Report) -> (String, String);

    /// Repeats all runs in the arms of a study of a machine, several at a time.
    fn study(
        &self,
        (machine, seed, jobs): (&Machine, u64, usize),
        runs: &[Self::Run],
        reports: &[Self::Report],
        groups: &[Group],
    ) -> Result<Report, Self::Error> {
        let mut study = Study::new(machine, reports.iter().map(Self::spent), seed);
        if self.has_states() {
            study = study.over_states();
        }
        let values = reports.iter().map(Self::figures).collect();
        let samples = sensitivity::explore(&study, runs, values, jobs, |run, arm| {
            let report = self.run(&Self::in_arm(run, arm), &|_| ())?;
            Ok(Self::figures(&report))
        })?;
        Ok(Report::of_order(&samples, groups, Self::ORDER))
    }
}

/// A command of `quarry run`.
pub(crate) struct Command<'a> {
    /// Name of the workload.
    pub(crate) name: &'static str,
    /// Machine whose time is simulated.
    pub(crate) machine: &'a Machine,
    /// Seed of what is left to chance.
    pub(crate) seed: u64,
    /// Options that all workloads have.
    pub(crate) args: &'a TimedArgs,
    /// Settings as given.
    pub(crate) settings: Given,
}

impl Command<'_> {
    /// Does all runs, and prints them.
    pub(crate) fn answer<E: Experiment>(
        &self,
        experiment: &E,
        runs: &[E::Run],
        kept: Kept<'_>,
    ) -> anyhow::Result<()> {
        let reports = self.run_all(experiment, runs)?;
        self.print(experiment, runs, &reports, false, kept)
    }

    /// Does all runs.
    pub(crate) fn run_all<E: Experiment>(
        &self,
        experiment: &E,
        runs: &[E::Run],
    ) -> anyhow::Result<Vec<E::Report>> {
        let (steps, unit) = E::STEPS;
        let bar = terminal::progress_bar(self.name, steps * runs.len() as u64, unit);
        let reports = run_all(runs, self.args.jobs.jobs(), |run| {
            experiment.run(run, &|steps| bar.inc(steps))
        });
        bar.finish_and_clear();
        reports.map_err(Into::into)
    }

    /// Studies the runs if asked to, and prints all.
    pub(crate) fn print<E: Experiment>(
        &self,
        experiment: &E,
        runs: &[E::Run],
        reports: &[E::Report],
        has_profiles: bool,
        kept: Kept<'_>,
    ) -> anyhow::Result<()> {
        let groups = Group::all(reports, E::named);
        let machine = (self.machine, self.seed, self.args.jobs.jobs());
        let study = match self.args.sensitivity {
            true => Some(
                experiment
                    .study(machine, runs, reports, &groups)
                    .map_err(Into::into)?,
            ),
            false => None,
        };
        let timed = Timed {
            workload: self.name,
            settings: &self.settings,
            runs: reports,
            sensitivity: study.as_ref(),
        };
        let settings = self.settings.line();
        let notes = format!("{}\n{settings}", self.machine.about);
        print(self.name, &timed, notes, &self.args.out, has_profiles, kept)
    }
}

/// Prints a workload's answer: JSON, or its view with a line first for each note; and its page, if one was asked for.
pub(crate) fn print(
    name: &str,
    answer: &(impl JsonSchema + Serialize),
    notes: String,
    out: &OutArgs,
    has_profiles: bool,
    kept: Kept<'_>,
) -> anyhow::Result<()> {
    let command = format!("run {name}");
    if let Some(kept) = kept {
        kept.push(output::doc(&command, answer)?);
        return Ok(());
    }
    let mut view = output::viewed(&command, answer, experiments::view, &out.page)?;
    if out.json {
        return output::print_json(&command, answer);
    }
    if out.page.is_stdout() {
        return Ok(());
    }
    view = with_profiles(view, has_profiles);
    view.note_first(notes.lines().map(str::to_string));
    terminal::print_view(&view, SHOW)
}

/// Answers a workload's question for each combination of its values; `alone` are the options that one answer alone has.
pub(crate) fn answer<B: JsonSchema, Q: Part>(
    question: &Q,
    alone: &[(&str, bool)],
    out: &OutArgs,
    has_profiles: bool,
    one: impl FnMut(&Q, Kept<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    out.page.check(out.json)?;
    several::answer(
        question,
        alone,
        (out.json, &out.page),
        (experiments::view, meanings::<B>),
        (|view| with_profiles(view, has_profiles), SHOW),
        one,
    )
}

/// Parts of a view that are printed.
const SHOW: Show<'_> = Show {
    all: false,
    rows: None,
    hint: "`quarry explain NAME` says what a row means.",
};

/// The view with or without profiles.
fn with_profiles(mut view: View, has_profiles: bool) -> View {
    view.sections
        .retain(|section| has_profiles || section.id != experiments::PROFILES);
    view
}
