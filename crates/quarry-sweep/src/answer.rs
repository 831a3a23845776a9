//! The answers of a chunk's cells, as rows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quarry_lab::ask::{Answer, How, Needs, Question, Ready, Source};
use quarry_snapshot::Snapshot;
use quarry_state::State;
use quarry_trace::{TraceMeta, guarded};
use quarry_work::Progress;

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

/// Known facts about the machine of an input.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) release: Option<String>,
    pub(crate) architecture: Option<String>,
    pub(crate) page_bytes: Option<u64>,
    pub(crate) cpus: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
}

impl Host {
    fn of_snapshot(of: &Snapshot) -> Self {
        Self {
            release: of.release.clone(),
            architecture: of.architecture.clone(),
            page_bytes: Some(of.page_bytes),
            cpus: of.present_cpus,
            memory_bytes: of.memory_bytes,
        }
    }

    fn of_trace(of: &TraceMeta) -> Self {
        Self {
            release: of.kernel.clone(),
            architecture: of.arch.clone(),
            page_bytes: (!of.page_size_assumed).then_some(of.page_size.into()),
            cpus: Some(of.cpus),
            memory_bytes: None,
        }
    }
}

/// The answers of a cell, or its error, and the seconds that it took.
pub(crate) struct Answered {
    pub(crate) host: Arc<Host>,
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
            host: Arc::default(),
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
        // Cells are what runs at once; a cell has one thread.
        let how = How {
            jobs: 1,
            caches: self.caches,
            progress: here,
        };
        let all = |host: Host, ready: Result<&Ready<'_>, &String>| {
            each(cells, here, (start, &Arc::new(host)), |cell| match &ready {
                Ok(ready) => {
                    let question = &cell.asked.question;
                    let mut answers = question.answer(ready, &how).map_err(|it| it.to_string())?;
                    let varied = question.settings().varied();
                    for answer in &mut answers {
                        answer.insert("set", varied.clone());
                    }
                    Ok(answers)
                }
                Err(error) => Err((*error).clone()),
            })
        };
        if self.ask.needs() == Needs::Nothing {
            return all(Host::default(), Ok(&Ready::Nothing));
        }
        let source = open(&first.input, &*first.asked.question, here);
        if self.ask.needs() == Needs::Recording {
            let trace = source.and_then(|source| match source {
                Source::Trace(trace) => Ok(trace),
                Source::Snapshots(_) => Err(format!(
                    "{} is a snapshot; {} needs a recording",
                    first.input.name, self.ask
                )),
            });
            let ready = trace.as_ref().map(|trace| Ready::Recording(trace));
            let host = trace
                .as_ref()
                .map(|trace| Host::of_trace(trace.file.meta()));
            return all(
                host.unwrap_or_default(),
                ready.as_ref().map_err(|error| *error),
            );
        }
        let snapshot = source.and_then(|source| snapshot(source, &*first.asked.question));
        let read = snapshot.as_ref().map_err(Clone::clone);
        let state = read
            .and_then(|snapshot| guarded(|| state(snapshot)).unwrap_or_else(|| Err(panicked())));
        match (&snapshot, &state) {
            (Ok(snapshot), Ok(state)) => all(
                Host::of_snapshot(snapshot),
                Ok(&Ready::Snapshot(snapshot, state)),
            ),
            (Ok(snapshot), Err(error)) => all(Host::of_snapshot(snapshot), Err(error)),
            (Err(error), _) => all(Host::default(), Err(error)),
        }
    }
}

/// Answers cells one after the other; the first one's time begins at `start`. `None` if it was stopped.
fn each(
    cells: &[Cell],
    here: &Here<'_>,
    (mut start, host): (Instant, &Arc<Host>),
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
            host: Arc::clone(host),
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
        Source::Snapshots(moments) => {
            for moment in moments {
                moment.file.clone_from(&input.name);
            }
        }
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

fn state(snapshot: &Snapshot) -> Result<State<'_>, String> {
    State::of(snapshot).map_err(|error| error.to_string())
}
