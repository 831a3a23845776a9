//! Verdicts.

use schemars::JsonSchema;
use serde::Serialize;

use crate::others::{Nearest, nearest};
use crate::results::Results;
use crate::setting::Mode;
use crate::show::{Plot, Table, band};
use crate::spec::{ClaimSpec, Sides, is_missed, row};
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
    /// The single change of machine or load with which a figure that is not in its range comes nearest; null if none was tried.
    pub nearest: Option<Nearest>,
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

fn claim(thread: &Thread, spec: ClaimSpec, mode: Mode, results: &Results) -> Claim {
    let figures = results.arms().filter_map(&spec.figure);
    let figures: Vec<f64> = figures.collect();
    let measured = (spec.figure)(results.values());
    let sides = Sides::of(&spec, figures.iter().copied());
    let all = figures.len();
    let due_arms = results.due(&spec.figure);
    let verdict = match measured {
        _ if all < due_arms => Verdict::Incomplete,
        None => Verdict::NotRun,
        Some(_) if sides.inside == all => Verdict::Holds,
        Some(_) if sides.inside == 0 && sides.count() == 1 => Verdict::Fails,
        // Figures on both sides of the range say nothing either.
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
        true_arms: [sides.inside, all],
        due_arms,
        verdict,
        before: before(thread.name, spec.id, mode),
        cause: match verdict {
            Verdict::Fails | Verdict::Undecided => spec.cause,
            _ => "",
        },
        nearest: match is_missed(&spec, results) {
            true => nearest(&(thread.others)(), &spec, results),
            false => None,
        },
    }
}
