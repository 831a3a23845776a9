//! The answers of a chunk's cells, as rows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quarry_ask::{Part as Fields, Settings};
use quarry_lab::ask::{
    AskLoad, At, Hackbench, Known, Micro, Replay, Source, Tbench, TcpRr, WhatIf,
};
use quarry_lab::replay::input::Input as Trace;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_lab::whatif::Baseline;
use quarry_lab::{LabError, Plan, RunReport};
use quarry_snapshot::Snapshot;
use quarry_trace::guarded;
use quarry_work::{Progress, WorkError};
use serde::Serialize;
use serde_json::Value;

use crate::ask::{Cost, Needs, Question};
use crate::cell::{Cell, Chunk};
use crate::error::SweepError;
use crate::inputs::{Input, digest};
use crate::rows;
use crate::table::Table;
use crate::version::version;

/// Answers of a chunk.
#[derive(Clone, Debug)]
pub struct Part {
    /// A row for each run of each cell; the same bytes wherever the chunk runs.
    pub rows: Table,
    /// A row for each cache of each run, if the plan asks for them.
    pub caches: Option<Table>,
    /// A row for each cell with what it took here.
    pub costs: Table,
    /// Cells that failed.
    pub failed: usize,
}

/// The setting in which a chunk runs.
#[derive(Default)]
pub struct Here<'a> {
    /// Files of inputs that lie elsewhere than their names say, by name.
    pub local: BTreeMap<String, PathBuf>,
    /// True to end at once, within a cell, too.
    pub stop: Option<&'a AtomicBool>,
    /// Called after each cell.
    pub done: Option<&'a (dyn Fn(&Cell) + Sync)>,
}

impl Progress for Here<'_> {
    fn advance(&self, _: u64) {}

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// A run's report, and the reports of its caches.
#[derive(Debug)]
pub struct Answer {
    pub(crate) run: Value,
    pub(crate) caches: Vec<Value>,
}

impl Answer {
    /// The reports as JSON; those of caches only if they are asked for, as they are no small part of the work.
    fn of<T: Serialize, P: Serialize>(run: &T, caches: &[P], wanted: bool) -> Result<Self, String> {
        let caches = caches.iter().filter(|_| wanted);
        Ok(Self {
            caches: caches.map(value).collect::<Result<_, _>>()?,
            run: value(run)?,
        })
    }
}

/// An input that is read.
pub enum Ready<'a> {
    /// None.
    Nothing,
    /// A snapshot with its baseline.
    Snapshot(&'a Snapshot, &'a Baseline<'a>),
    /// A recording.
    Recording(&'a Trace),
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

/// A kind of question, with what it answers.
pub trait Answers: Fields + Send + Sync + 'static {
    /// Its tunables.
    fn set(&self) -> &Settings;

    /// Its tunables, to change them.
    fn set_mut(&mut self) -> &mut Settings;

    /// Facts that decide how an input is read.
    fn of_input(&self) -> OfInput {
        OfInput::default()
    }

    /// Refuses what no cell can ask, whatever its input.
    ///
    /// # Errors
    ///
    /// A sentence that names the setting.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Cost of a cell; `is_first` if the input has to be read.
    fn cost(&self, input: &Input, is_first: bool) -> Cost;

    /// Answers a cell.
    ///
    /// # Errors
    ///
    /// A sentence, which is the error of the cell's row.
    fn answer(
        &self,
        ready: &Ready<'_>,
        here: &Here<'_>,
        caches: bool,
    ) -> Result<Vec<Answer>, String>;
}

/// The answers of a cell, or its error, and the seconds that it took.
pub(crate) struct Answered {
    pub(crate) runs: Result<Vec<Answer>, String>,
    pub(crate) seconds: f64,
}

impl Chunk {
    /// Answers all cells.
    ///
    /// # Errors
    ///
    /// [`SweepError::Version`] if another version planned it, [`SweepError::Table`] if a report is no row. `None` if it was
    /// stopped before its end.
    pub fn run(&self, here: &Here<'_>) -> Result<Option<Part>, SweepError> {
        if self.version != version() {
            return Err(SweepError::Version {
                planned: self.version.clone(),
                own: version(),
            });
        }
        let mut answered: Vec<Answered> = Vec::with_capacity(self.cells.len());
        // Cells that ask about one state of one input share what it takes to read it.
        for cells in self.cells.chunk_by(same_source) {
            let Some(found) = self.of_one_source(cells, here) else {
                return Ok(None);
            };
            answered.extend(found);
        }
        Ok(Some(self.part(&answered)))
    }

    /// Rows with one error for all cells, of a chunk that no process could run.
    #[must_use]
    pub fn failed(&self, error: &str) -> Part {
        let answered = self.cells.iter().map(|_| Answered {
            runs: Err(error.to_string()),
            seconds: 0.0,
        });
        self.part(&answered.collect::<Vec<_>>())
    }

    fn part(&self, answered: &[Answered]) -> Part {
        Part {
            rows: rows::of_runs(self, answered),
            caches: self.caches.then(|| rows::of_caches(self, answered)),
            costs: rows::of_costs(self, answered),
            failed: answered.iter().filter(|it| it.runs.is_err()).count(),
        }
    }

    /// Answers cells that ask about one state of one input; `None` if it was stopped.
    fn of_one_source(&self, cells: &[Cell], here: &Here<'_>) -> Option<Vec<Answered>> {
        let start = Instant::now();
        let first = cells.first()?;
        let all = |ready: Result<&Ready<'_>, &String>| {
            each(cells, here, start, |cell| match &ready {
                Ok(ready) => cell.asked.question.answer(ready, here, self.caches),
                Err(error) => Err((*error).clone()),
            })
        };
        if self.ask.needs() == Needs::Nothing {
            return all(Ok(&Ready::Nothing));
        }
        let source = open(&first.input, &*first.asked.question, here);
        if self.ask.needs() == Needs::Recording {
            let trace = source.and_then(|source| match source {
                Source::Trace(trace) => Ok(trace),
                Source::Snapshot(snapshot) => Err(format!(
                    "{} is a snapshot; {} needs a recording",
                    snapshot.file, self.ask
                )),
            });
            let ready = trace.as_ref().map(|trace| Ready::Recording(trace));
            return all(ready.as_ref().map_err(|error| *error));
        }
        let snapshot = source.and_then(|source| snapshot(source, &*first.asked.question));
        let read = snapshot.as_ref().map_err(Clone::clone);
        let baseline = read
            .and_then(|snapshot| guarded(|| baseline(snapshot)).unwrap_or_else(|| Err(panicked())));
        match (&snapshot, &baseline) {
            (Ok(snapshot), Ok(baseline)) => all(Ok(&Ready::Snapshot(snapshot, baseline))),
            (_, Err(error)) | (Err(error), _) => all(Err(error)),
        }
    }
}

/// Answers cells one after the other; the first one's time begins at `start`. `None` if it was stopped.
fn each(
    cells: &[Cell],
    here: &Here<'_>,
    mut start: Instant,
    answer: impl Fn(&Cell) -> Result<Vec<Answer>, String>,
) -> Option<Vec<Answered>> {
    let mut all = Vec::with_capacity(cells.len());
    for cell in cells {
        if here.is_stopped() {
            return None;
        }
        let runs = guarded(|| answer(cell)).unwrap_or_else(|| Err(panicked()));
        if here.is_stopped() {
            // Its error may be that it was stopped.
            return None;
        }
        all.push(Answered {
            // A message names the input, not where it lies here.
            runs: runs.map_err(|error| match here.local.get(&cell.input.name) {
                Some(path) => error.replace(&path.display().to_string(), &cell.input.name),
                None => error,
            }),
            seconds: start.elapsed().as_secs_f64(),
        });
        start = Instant::now();
        if let Some(done) = here.done {
            done(cell);
        }
    }
    Some(all)
}

/// True if two cells ask about one state of one input.
fn same_source(a: &Cell, b: &Cell) -> bool {
    a.input == b.input && a.asked.of_input == b.asked.of_input
}

fn panicked() -> String {
    "the computation panicked: a defect of Quarry; please report it with the input".to_string()
}

/// Opens an input, if it has the content that it was planned with.
fn open(input: &Input, asked: &dyn Question, here: &Here<'_>) -> Result<Source, String> {
    let path = match here.local.get(&input.name) {
        Some(path) => path.display().to_string(),
        None => input.name.clone(),
    };
    let stage = asked.of_input().stage;
    let opened = guarded(|| Source::open(path.as_ref(), stage.as_deref()));
    let opened = opened.ok_or_else(panicked)?;
    let mut source = opened.map_err(|error| error.to_string().replace(&path, &input.name))?;
    if digest(&path) != input.digest {
        return Err(format!(
            "{}: the file has changed since the sweep was planned; run the sweep again",
            input.name
        ));
    }
    match &mut source {
        Source::Trace(trace) => trace.name.clone_from(&input.name),
        Source::Snapshot(snapshot) => snapshot.file.clone_from(&input.name),
    }
    Ok(source)
}

/// The snapshot that a question is about, with the facts that the plan adds.
fn snapshot(source: Source, asked: &dyn Question) -> Result<Snapshot, String> {
    let of = asked.of_input();
    let snapshot = source.into_snapshot(of.at);
    let snapshot = snapshot.and_then(|snapshot| of.known.applied(snapshot));
    snapshot.map_err(|error| error.to_string())
}

fn baseline(snapshot: &Snapshot) -> Result<Baseline<'_>, String> {
    let checked = quarry_lab::ask::check_slabs(snapshot, "a prediction");
    checked
        .and_then(|()| Baseline::of(snapshot))
        .map_err(|error| error.to_string())
}

/// A report as JSON. That always works, as the commands print all of them so.
fn value<T: Serialize>(report: &T) -> Result<Value, String> {
    serde_json::to_value(report).map_err(|error| error.to_string())
}

/// Nominal costs in milliseconds of one CPU, by which cells are put together to chunks. Chunks must be the same on every
/// machine, so these are constants; what a cell really takes is measured.
const SNAPSHOT_MS: u64 = 40;
const WHAT_IF_MS: u64 = 4;
const REPLAY_MS: u64 = 30;
const EVENTS_A_MS: u64 = 2000;
const TIMED_EVENTS_A_MS: u64 = 800;
const LOAD_MS: u64 = 1000;
const MICRO_MS: u64 = 100;

/// A snapshot of some thousand caches with its baseline.
const WHAT_IF_BYTES: u64 = 32 << 20;
/// A virtual machine with the decoded chunk of a trace.
const REPLAY_BYTES: u64 = 96 << 20;
/// Tasks, sockets and messages of a load on some hundred CPUs.
const LOAD_BYTES: u64 = 512 << 20;
/// An object that can be alive: its place in the table, and the slab that it may keep alone, in the records of the virtual
/// machine.
const SLOT_BYTES: u64 = 128;

impl Answers for WhatIf {
    fn set(&self) -> &Settings {
        &self.set
    }

    fn set_mut(&mut self) -> &mut Settings {
        &mut self.set
    }

    fn of_input(&self) -> OfInput {
        OfInput {
            stage: self.stage.one().cloned(),
            at: self.at.one().copied(),
            known: self.known.clone(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let questions = self.questions();
        questions.map(drop).map_err(|error| error.to_string())
    }

    fn cost(&self, _: &Input, is_first: bool) -> Cost {
        let reading = if is_first { SNAPSHOT_MS } else { 0 };
        Cost {
            ms: reading + WHAT_IF_MS,
            bytes: WHAT_IF_BYTES,
        }
    }

    fn answer(&self, ready: &Ready<'_>, _: &Here<'_>, caches: bool) -> Result<Vec<Answer>, String> {
        let Ready::Snapshot(snapshot, baseline) = ready else {
            return Err("what-if needs a snapshot".to_string());
        };
        let questions = self.questions().map_err(|error| error.to_string())?;
        let answer = |question| {
            let told = WhatIf::answer(self, baseline, snapshot, question);
            let told = told.map_err(|error| error.to_string())?;
            answer_with(told, |told| std::mem::take(&mut told.caches), caches)
        };
        questions.iter().map(answer).collect()
    }
}

impl Answers for Replay {
    fn set(&self) -> &Settings {
        &self.set
    }

    fn set_mut(&mut self) -> &mut Settings {
        &mut self.set
    }

    fn check(&self) -> Result<(), String> {
        Replay::check(self).map_err(|error| error.to_string())
    }

    fn cost(&self, input: &Input, _: bool) -> Cost {
        let copies = u64::from(self.copies.or(1));
        let a_ms = match self.time.is_true() {
            true => TIMED_EVENTS_A_MS,
            false => EVENTS_A_MS,
        };
        let slots = input.slots.saturating_mul(copies);
        Cost {
            ms: REPLAY_MS + input.events.saturating_mul(copies) / a_ms,
            bytes: REPLAY_BYTES.saturating_add(slots.saturating_mul(SLOT_BYTES)),
        }
    }

    fn answer(
        &self,
        ready: &Ready<'_>,
        here: &Here<'_>,
        caches: bool,
    ) -> Result<Vec<Answer>, String> {
        let Ready::Recording(trace) = ready else {
            return Err("replay needs a recording".to_string());
        };
        let mut input = (*trace).clone();
        let failed = |error: LabError| error.to_string();
        let axes = self.on(&mut input).map_err(failed)?;
        let plan = Plan::new(&axes).map_err(failed)?;
        match self.timing().map_err(failed)? {
            None => {
                plan.check_debug(&input).map_err(failed)?;
                let runs = plan.execute(&input, 1, here).map_err(failed)?;
                let of = |run: RunReport| {
                    answer_with(run, |run| std::mem::take(&mut run.caches), caches)
                };
                runs.into_iter().map(of).collect()
            }
            Some(timing) => {
                let runs = plan
                    .execute_timed(&input, &timing, 1, here)
                    .map_err(failed)?;
                let of = |run: TimedReport| {
                    answer_with(run, |run| std::mem::take(&mut run.caches), caches)
                };
                runs.into_iter().map(of).collect()
            }
        }
    }
}

/// A run without its caches, and these.
fn answer_with<T: Serialize, P: Serialize>(
    mut run: T,
    take: impl FnOnce(&mut T) -> Vec<P>,
    wanted: bool,
) -> Result<Answer, String> {
    let caches = take(&mut run);
    Answer::of(&run, &caches, wanted)
}

/// Answers of loads.
macro_rules! loads {
    ($($of:ty),*) => {$(
        impl Answers for $of {
            fn set(&self) -> &Settings {
                &self.rules.set
            }

            fn set_mut(&mut self) -> &mut Settings {
                &mut self.rules.set
            }

            fn cost(&self, _: &Input, _: bool) -> Cost {
                Cost { ms: LOAD_MS, bytes: LOAD_BYTES }
            }

            fn answer(&self, _: &Ready<'_>, here: &Here<'_>, caches: bool) -> Result<Vec<Answer>, String> {
                let failed = |error: WorkError| error.to_string();
                let (_, runs) = self.runs().map_err(failed)?;
                let start = self.kernel.start();
                let answer = |run: quarry_work::load::LoadRun| {
                    let report = run.run_from(&start, here).map_err(failed)?;
                    answer_with(report, |report| std::mem::take(&mut report.caches), caches)
                };
                runs.into_iter().map(answer).collect()
            }
        }
    )*};
}

loads!(Hackbench, Tbench, TcpRr);

impl Answers for Micro {
    fn set(&self) -> &Settings {
        &self.set
    }

    fn set_mut(&mut self) -> &mut Settings {
        &mut self.set
    }

    fn cost(&self, _: &Input, _: bool) -> Cost {
        Cost {
            ms: MICRO_MS,
            bytes: LOAD_BYTES,
        }
    }

    fn answer(&self, _: &Ready<'_>, _: &Here<'_>, caches: bool) -> Result<Vec<Answer>, String> {
        let failed = |error: WorkError| error.to_string();
        let (_, runs) = self.runs().map_err(failed)?;
        let answer = |run: quarry_lab::ask::MicroRun| {
            let report = run.spec.run_on(&run.design).map_err(failed)?;
            Answer::of::<_, ()>(&report, &[], caches)
        };
        runs.into_iter().map(answer).collect()
    }
}
