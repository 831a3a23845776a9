//! Questions of any kind with what they answer, for doors that need not know which kind it is.

use quarry_snapshot::Snapshot;
use quarry_work::Progress;
use serde::Serialize;
use serde_json::Value as Json;

use super::{At, HeapFile, Known};
use crate::error::LabError;
use crate::replay::input::Input;
use quarry_state::State;

/// Input of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// None: a load.
    Nothing,
    /// A snapshot, or a recording with one.
    Snapshot,
    /// A recording.
    Recording,
}

/// An input that is read.
pub enum Ready<'a> {
    /// None.
    Nothing,
    /// A snapshot with its state.
    Snapshot(&'a Snapshot, &'a State<'a>),
    /// A recording.
    Recording(&'a Input),
}

/// Amount of an input, for the cost of a cell.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputSize {
    /// Events of a trace; 0 of a snapshot.
    pub events: u64,
    /// Objects and page blocks of a trace that can be alive at once; 0 of a snapshot.
    pub slots: u64,
}

/// Cost of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Nominal milliseconds of one CPU to read its input, of the first of an input's cells.
    pub reading_ms: u64,
    /// Nominal milliseconds of one CPU to answer it.
    pub ms: u64,
    /// Bytes that it may need at once, beside the program: an estimate from above.
    pub bytes: u64,
}

impl Cost {
    /// A load: tasks, sockets and messages on some hundred CPUs.
    pub(super) const fn of_load(ms: u64) -> Self {
        Self {
            reading_ms: 0,
            ms,
            bytes: 512 << 20,
        }
    }
}

/// The moment of an input, and facts that its file lacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfInput {
    /// Stage of a recorded boot.
    pub stage: Option<String>,
    /// Moment of a recorded load.
    pub at: Option<At>,
    /// Facts.
    pub known: Known,
}

/// Manner in which an answer is made.
pub struct How<'a> {
    /// Threads.
    pub jobs: usize,
    /// True to have the reports of caches, too.
    pub caches: bool,
    /// Told of each step; ends the work.
    pub progress: &'a dyn Progress,
}

/// A run's report as JSON, and the reports of its caches.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The run.
    pub run: Json,
    /// Its caches, if they were asked for.
    pub caches: Vec<Json>,
}

impl Answer {
    /// Gives the run another member.
    pub fn insert(&mut self, name: &str, value: impl Into<Json>) {
        if let Some(members) = self.run.as_object_mut() {
            members.insert(name.to_string(), value.into());
        }
    }

    /// The answers of reports without caches.
    pub(super) fn all<T: Serialize>(runs: &[T]) -> Result<Vec<Self>, LabError> {
        let of = |run| {
            let caches = Vec::new();
            json(run).map(|run| Self { run, caches })
        };
        runs.iter().map(of).collect()
    }

    /// The answers of reports whose caches `take` removes: these are no small part of the work, and stay away unless they are
    /// asked for.
    pub(super) fn apart<T: Serialize, P: Serialize>(
        runs: Vec<T>,
        take: impl Fn(&mut T) -> Vec<P>,
        how: &How<'_>,
    ) -> Result<Vec<Self>, LabError> {
        let of = |mut run: T| {
            let caches = take(&mut run);
            let caches = caches.iter().filter(|_| how.caches);
            Ok(Self {
                caches: caches.map(json).collect::<Result<_, _>>()?,
                run: json(&run)?,
            })
        };
        runs.into_iter().map(of).collect()
    }
}

/// A report as JSON. That always works, as the commands print all of them so.
fn json<T: Serialize>(report: &T) -> Result<Json, LabError> {
    serde_json::to_value(report).map_err(|error| LabError::Usage(error.to_string()))
}

/// A kind of question, with what it answers.
pub trait Answers: Send + Sync {
    /// Facts that decide how an input is read.
    fn of_input(&self) -> OfInput {
        OfInput::default()
    }

    /// Begins on the heap of a machine that has run.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if the question has no such beginning, or another one.
    fn begin(&mut self, _heap: HeapFile) -> Result<(), LabError> {
        Err(LabError::Usage(
            "initial: it has no heap to begin on".to_string(),
        ))
    }

    /// Refuses what no cell can ask, whatever its input.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] that names the setting.
    fn check(&self) -> Result<(), LabError> {
        Ok(())
    }

    /// Steps that an answer tells its progress.
    ///
    /// # Errors
    ///
    /// As [`Self::answer`].
    fn steps(&self, _: &Ready<'_>) -> Result<u64, LabError> {
        Ok(1)
    }

    /// Cost of a cell.
    fn cost(&self, size: InputSize) -> Cost;

    /// Answers: a report for each run.
    ///
    /// # Errors
    ///
    /// [`LabError`] if the settings do not go together or do not suit the input, or a run fails.
    fn answer(&self, ready: &Ready<'_>, how: &How<'_>) -> Result<Vec<Answer>, LabError>;
}
