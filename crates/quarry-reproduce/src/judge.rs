//! Verdicts.

use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::Mode;
use crate::results::{Arm, Results};
use crate::show::{Plot, Table, band};
use crate::threads::Thread;

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The figure is in its range in all arms.
    Holds,
    /// The figure is on one side of its range in all arms.
    Fails,
    /// Neither.
    Undecided,
    /// An interrupt came before all `due_arms` ran.
    Incomplete,
    /// The mode has no runs for the claim.
    NotRun,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Holds,
        Self::Undecided,
        Self::Fails,
        Self::Incomplete,
        Self::NotRun,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Undecided => "undecided",
            Self::Incomplete => "incomplete",
            Self::NotRun => "not run",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

/// Claims of all threads, with the published figure, the range for which each holds, and the name of the cause if it does not.
const CLAIMS: &str = include_str!("../data/claims.tsv");
/// Causes for which claims do not hold, by thread and name.
const CAUSES: &str = include_str!("../data/causes.tsv");

/// The cells that follow a thread and a name in a table.
fn row<'a>(
    table: &'a str,
    separator: char,
    thread: &str,
    name: &str,
) -> impl Iterator<Item = &'a str> {
    let mut rows = table.lines().map(move |line| line.split(separator));
    let row = rows.find_map(|mut cells| {
        let found = cells.next() == Some(thread) && cells.next() == Some(name);
        found.then_some(cells)
    });
    row.into_iter().flatten()
}

/// Finds a claim's figure in an arm.
pub(crate) type Formula = fn(Arm<'_>) -> Option<f64>;

/// A claim as its thread defines it.
pub(crate) struct ClaimSpec {
    /// Names it among those of its thread.
    pub(crate) id: &'static str,
    /// The claim in words.
    pub(crate) text: &'static str,
    /// The published figure.
    pub(crate) published: &'static str,
    pub(crate) unit: &'static str,
    /// The figure's range.
    pub(crate) range: [f64; 2],
    pub(crate) figure: Box<dyn Fn(Arm<'_>) -> Option<f64>>,
    /// Cause of the result, if the claim does not hold.
    pub(crate) cause: &'static str,
}

impl ClaimSpec {
    /// A claim of `data/claims.tsv`. One that is not there has an empty range, which a test rejects.
    pub(crate) fn published(
        thread: &str,
        id: &'static str,
        figure: impl Fn(Arm<'_>) -> Option<f64> + 'static,
    ) -> Self {
        let mut cells = row(CLAIMS, '\t', thread, id);
        let mut text = || cells.next().unwrap_or_default();
        let (published, unit) = (text(), text());
        let mut end = || text().parse().unwrap_or(f64::NAN);
        let range = [end(), end()];
        Self {
            id,
            text: text(),
            published,
            unit,
            range,
            figure: Box::new(figure),
            cause: row(CAUSES, '\t', thread, text()).next().unwrap_or_default(),
        }
    }
}

/// A claim with its verdict.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Claim {
    /// Name, unique among the thread's claims.
    pub id: &'static str,
    /// Statement.
    pub claim: &'static str,
    /// Published figure or observation.
    pub published: &'static str,
    /// Unit of the figure.
    pub unit: &'static str,
    /// Range that the figure must be in.
    pub range: [f64; 2],
    /// Figure with all constants at their own values; null if it was not run.
    pub measured: Option<f64>,
    /// Least and most of the figure over all arms.
    pub band: Option<[f64; 2]>,
    /// Arms in which the claim is true, and all that ran.
    pub true_arms: [usize; 2],
    /// Arms that must run before there is a verdict.
    pub due_arms: usize,
    /// Verdict.
    pub verdict: Verdict,
    /// Verdict found before; null if the claim is new.
    pub before: Option<Verdict>,
    /// Reason why the claim does not hold; empty if it does, or has no verdict.
    pub cause: &'static str,
}

impl Claim {
    /// True if it held before and does not any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.before == Some(Verdict::Holds) && self.verdict == Verdict::Fails
    }
}

/// Results of a thread's experiments.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Judged {
    /// Name of the thread.
    pub thread: &'static str,
    /// Title of the thread.
    pub title: &'static str,
    /// Question that the thread asked, in two sentences.
    pub question: &'static str,
    /// Numbers of the thread that the simulation was given.
    pub taken: &'static str,
    /// Explanation of the results.
    pub why: &'static str,
    /// Claims with verdicts.
    pub claims: Vec<Claim>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Plots.
    pub plots: Vec<Plot>,
    /// Runs that ended, and all that are due.
    pub runs: [usize; 2],
}

/// Verdicts that were found before: thread, claim, quick, full.
const BEFORE: &str = include_str!("../data/verdicts.csv");

fn before(thread: &str, claim: &str, mode: Mode) -> Option<Verdict> {
    let at = match mode {
        Mode::Quick => 0,
        Mode::Full => 1,
    };
    Verdict::parse(row(BEFORE, ',', thread, claim).nth(at)?)
}

/// Says what a thread's results show.
#[must_use]
pub fn judge(thread: &Thread, mode: Mode, results: &Results) -> Judged {
    let claims = (thread.claims)().into_iter();
    let (tables, plots) = (thread.show)(results);
    Judged {
        thread: thread.name,
        title: thread.title,
        question: thread.question,
        taken: thread.taken,
        why: thread.why,
        claims: claims
            .map(|spec| claim(thread, spec, mode, results))
            .collect(),
        tables,
        plots,
        runs: results.runs(),
    }
}

/// Arms on one side of its range after which a claim fails: no further arm can make it hold.
const FAILS_AFTER: usize = 9;

/// True if no further arm changes the verdict: the figure was in its range and outside of it, or on both its sides, or
/// on one side for long enough.
pub(crate) fn is_settled(spec: &ClaimSpec, results: &Results) -> bool {
    let [from, to] = spec.range;
    let figures = results.arms().filter_map(&spec.figure);
    let (mut inside, mut below, mut above) = (0, 0, 0);
    for figure in figures {
        let count = match figure {
            _ if figure < from => &mut below,
            _ if figure > to => &mut above,
            _ => &mut inside,
        };
        *count += 1;
    }
    let sides = [inside, below, above]
        .into_iter()
        .filter(|&count| count > 0);
    sides.count() > 1 || below.max(above) >= FAILS_AFTER
}

fn claim(thread: &Thread, spec: ClaimSpec, mode: Mode, results: &Results) -> Claim {
    let figures = results.arms().filter_map(&spec.figure);
    let figures: Vec<f64> = figures.collect();
    let measured = (spec.figure)(results.values());
    let [from, to] = spec.range;
    let is_true = |figure: &&f64| (from..=to).contains(*figure);
    let true_arms = figures.iter().filter(is_true).count();
    let below = figures.iter().filter(|figure| **figure < from).count();
    let all = figures.len();
    let due_arms = results.due(&spec.figure);
    let verdict = match measured {
        _ if all < due_arms => Verdict::Incomplete,
        None => Verdict::NotRun,
        Some(_) if true_arms == all => Verdict::Holds,
        // Figures on both sides of the range say nothing either.
        Some(_) if true_arms == 0 && (below == 0 || below == all) => Verdict::Fails,
        Some(_) => Verdict::Undecided,
    };
    Claim {
        id: spec.id,
        claim: spec.text,
        published: spec.published,
        unit: spec.unit,
        range: spec.range,
        measured,
        band: measured.map(|value| band(value, &figures)),
        true_arms: [true_arms, all],
        due_arms,
        verdict,
        before: before(thread.name, spec.id, mode),
        cause: match verdict {
            Verdict::Fails | Verdict::Undecided => spec.cause,
            _ => "",
        },
    }
}
