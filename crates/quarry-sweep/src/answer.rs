//! The answers of a chunk's cells, as rows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quarry_designs::named;
use quarry_lab::ask::{At, Source};
use quarry_lab::replay::input::Input as Trace;
use quarry_lab::replay::timed::report::TimedReport;
use quarry_lab::whatif::Baseline;
use quarry_lab::{LabError, Plan, RunReport};
use quarry_snapshot::{Asked as Told, Snapshot};
use quarry_trace::guarded;
use quarry_work::Progress;
use quarry_work::load::LoadReport;
use quarry_work::micro::MicroReport;
use serde::Serialize;
use serde_json::Value;

use crate::ask::Ask;
use crate::cell::{Cell, Chunk};
use crate::error::SweepError;
use crate::inputs::{Input, digest};
use crate::load;
use crate::plan::Asked;
use crate::requests;
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
pub(crate) struct Answer {
    pub(crate) run: Value,
    pub(crate) caches: Vec<Value>,
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
        if self.ask == Ask::Micro {
            return each(cells, here, start, |cell| {
                let reports = load::run_micro(&cell.asked).map_err(|error| error.to_string())?;
                let of = |report| self.answer::<_, MicroReport>(&report, &[], cell);
                let answers: Result<Vec<Answer>, LabError> = reports.into_iter().map(of).collect();
                answers.map_err(|error| error.to_string())
            });
        }
        if self.ask.is_load() {
            return each(cells, here, start, |cell| {
                let reports = load::run(self.ask, &cell.asked, here);
                let of = |mut report: LoadReport| {
                    let caches = std::mem::take(&mut report.caches);
                    self.answer(&report, &caches, cell)
                };
                let reports = reports.map_err(|error| error.to_string())?;
                let answers: Result<Vec<Answer>, LabError> = reports.into_iter().map(of).collect();
                answers.map_err(|error| error.to_string())
            });
        }
        let source = open(&first.input, &first.asked, here);
        match self.ask {
            Ask::WhatIf => {
                let snapshot = source.and_then(|source| snapshot(source, &first.asked));
                let ready = snapshot.as_ref().map_err(Clone::clone);
                let ready = ready.and_then(|snapshot| {
                    let baseline = guarded(|| baseline(snapshot));
                    Ok((snapshot, baseline.unwrap_or_else(|| Err(panicked()))?))
                });
                each(cells, here, start, |cell| match &ready {
                    Ok((snapshot, baseline)) => self.what_if(cell, snapshot, baseline),
                    Err(error) => Err(error.clone()),
                })
            }
            _ => {
                let trace = source.and_then(|source| match source {
                    Source::Trace(trace) => Ok(trace),
                    Source::Snapshot(snapshot) => Err(format!(
                        "{} is a snapshot; {} needs a recording",
                        snapshot.file, self.ask
                    )),
                });
                each(cells, here, start, |cell| match &trace {
                    Ok(trace) => self.replay(cell, trace, here),
                    Err(error) => Err(error.clone()),
                })
            }
        }
    }

    fn replay(&self, cell: &Cell, trace: &Trace, here: &Here<'_>) -> Result<Vec<Answer>, String> {
        let run = || {
            let asked = requests::replay(self.ask, &cell.asked)?;
            asked.check()?;
            let mut input = trace.clone();
            let axes = asked.on(&mut input)?;
            let plan = Plan::new(&axes)?;
            match &asked.timing {
                None => {
                    plan.check_debug(&input)?;
                    let runs = plan.execute(&input, 1, here)?;
                    let of = |mut run: RunReport| {
                        let caches = std::mem::take(&mut run.caches);
                        self.answer(&run, &caches, cell)
                    };
                    runs.into_iter().map(of).collect()
                }
                Some(timing) => {
                    let runs = plan.execute_timed(&input, timing, 1, here)?;
                    let of = |mut run: TimedReport| {
                        let caches = std::mem::take(&mut run.caches);
                        self.answer(&run, &caches, cell)
                    };
                    runs.into_iter().map(of).collect()
                }
            }
        };
        let answers: Result<Vec<Answer>, LabError> = run();
        answers.map_err(|error| error.to_string())
    }

    fn what_if(
        &self,
        cell: &Cell,
        snapshot: &Snapshot,
        baseline: &Baseline<'_>,
    ) -> Result<Vec<Answer>, String> {
        let request = requests::what_if(&cell.asked);
        let run = || {
            let mut answers = Vec::new();
            for question in request.questions()? {
                let mut prediction = request.answer(baseline, snapshot, &question)?;
                let caches = std::mem::take(&mut prediction.caches);
                answers.push(self.answer(&prediction, &caches, cell)?);
            }
            Ok(answers)
        };
        run().map_err(|error: LabError| error.to_string())
    }

    /// A run's report, and those of its caches if they are asked for. They are no small part of the work.
    fn answer<T: Serialize, P: Serialize>(
        &self,
        run: &T,
        caches: &[P],
        cell: &Cell,
    ) -> Result<Answer, LabError> {
        let mut run = value(run)?;
        if let Some(members) = run.as_object_mut() {
            members.insert("set".to_string(), cell.asked.varied.clone().into());
        }
        let caches = caches.iter().filter(|_| self.caches);
        Ok(Answer {
            caches: caches.map(value).collect::<Result<_, _>>()?,
            run,
        })
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
    let of_source = ["stage", "at", "kernel", "had-cpus", "had-page-size"];
    a.input == b.input
        && of_source
            .iter()
            .all(|key| a.asked.axes.get(*key) == b.asked.axes.get(*key))
}

fn panicked() -> String {
    "the computation panicked: a defect of Quarry; please report it with the input".to_string()
}

/// Opens an input, if it has the content that it was planned with.
fn open(input: &Input, asked: &Asked, here: &Here<'_>) -> Result<Source, String> {
    let path = match here.local.get(&input.name) {
        Some(path) => path.display().to_string(),
        None => input.name.clone(),
    };
    let stage = asked.axes.get("stage").map(String::as_str);
    let opened = guarded(|| Source::open(path.as_ref(), stage));
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
fn snapshot(source: Source, asked: &Asked) -> Result<Snapshot, String> {
    let at = asked.axes.get("at").map(|name| named("at", &At::ALL, name));
    let at = at.transpose().map_err(|error| error.to_string())?;
    let snapshot = source
        .into_snapshot(at)
        .map_err(|error| error.to_string())?;
    let told = Told {
        release: asked.axes.get("kernel").cloned(),
        cpus: requests::number(asked, "had-cpus"),
        page_bytes: requests::number(asked, "had-page-size"),
    };
    snapshot.asked(&told).map_err(|error| error.to_string())
}

fn baseline(snapshot: &Snapshot) -> Result<Baseline<'_>, String> {
    let checked = quarry_lab::ask::check_slabs(snapshot, "a prediction");
    checked
        .and_then(|()| Baseline::of(snapshot))
        .map_err(|error| error.to_string())
}

/// A report as JSON. That always works, as the commands print all of them so.
fn value<T: Serialize>(report: &T) -> Result<Value, LabError> {
    serde_json::to_value(report).map_err(|error| LabError::Usage(error.to_string()))
}
