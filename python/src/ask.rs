//! Questions of any kind, and the classic loads, which need no input.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quarry_ask::{Door, Json};
use quarry_designs::parse_era;
use quarry_lab::LabError;
use quarry_lab::ask::{Ask, HeapFile, How, Ready};
use quarry_lab::booted::Booted;
use quarry_work::run_all;

use crate::args::Keywords;
use crate::error::{raised, usage};
use crate::running::{self, Bar, note, note_eras};
use crate::snapshot::Snapshot;
use crate::table::PyTable;

/// Columns that come first where a question has them.
const LEAD: [&str; 6] = ["load", "size", "design", "era", "page_size", "cpus"];

/// Answers a question: a row for each run, or for each cache with `caches`. `function` is what Python calls it.
pub(crate) fn answered(
    py: Python<'_>,
    ask: Ask,
    function: &str,
    mut given: Keywords,
    ready: &Ready<'_>,
    heap: Option<HeapFile>,
) -> PyResult<PyTable> {
    let (caches, progress) = (given.flag("caches")?, given.flag("progress")?);
    let jobs = running::jobs(given.jobs()?);
    let fields = ask.declared();
    given.check(&fields, function)?;
    let question = ask.read(&[given.layer()], Door::Python).map_err(raised)?;
    let question = match heap {
        Some(heap) => question.begun(heap).map_err(raised)?,
        None => question,
    };
    let outer = question.outer();
    // Counting prepares a recording as answering does: only for a bar that shows it.
    let counted = outer.iter().filter(|_| progress);
    let steps = counted.map(|(cell, _)| cell.steps(ready));
    let steps = steps.sum::<Result<u64, _>>().map_err(raised)?;
    let bar = Bar::new(py, progress, function, steps, "steps")?;
    let answers = running::run(py, &bar, |shared| {
        let how = How {
            jobs: (jobs / outer.len().max(1)).max(1),
            caches: true,
            progress: shared,
        };
        run_all(&outer, jobs, |(cell, values)| {
            let mut answers = cell.answer(ready, &how)?;
            for answer in answers.iter_mut().filter(|_| !values.is_empty()) {
                answer.insert("asked", values.clone());
            }
            Ok::<_, LabError>(answers)
        })
    })?;
    let answers = answers.map_err(raised)?.concat();
    let named = |name: &'static str| answers.iter().filter_map(move |one| one.run.get(name));
    // A design may have its release in its name.
    let of_name = |name: &Json| Some(name.as_str()?.split_once('@')?.1.to_string());
    let of_names = named("design").filter_map(of_name);
    let eras = named("era").filter_map(|era| Some(era.as_str()?.to_string()));
    let eras = eras.chain(of_names);
    note_eras(py, eras.filter_map(|era| parse_era(&era).ok()))?;
    for late in named("late_changes").filter_map(Json::as_u64) {
        if late > 0 {
            note(py, &format!("a run ended before {late} of at"))?;
        }
    }
    let table = PyTable::of_answers(ask.reports(), answers, caches, &LEAD);
    let asked = Json::Object(question.object(false));
    Ok(table.shows(ask).noted("command", ask).noted("asked", asked))
}

/// Runs a load in simulated time: hackbench, tbench, tcp_rr or will-it-scale of a size (groups, clients, pairs or processes),
/// micro, pages or rx. A list has a row for each of its values. A run begins on an empty heap; with `initial` on the heap of a
/// snapshot, with `booted` on that of a bundled kernel that has run.
///
/// `time` is seconds or a text such as `"20ms"`, `memory` bytes or a text such as `"1G"`. Columns end with their unit.
///
/// >>> table = quarry.run("tbench", 1, cpus=2, time="1ms", design="sheaf@7.0")
/// >>> table["size"], table["load"]
/// ([1], ['tbench'])
#[pyfunction]
#[pyo3(signature = (load, size = None, *, initial = None, **given))]
pub(crate) fn run(
    py: Python<'_>,
    load: &str,
    size: Option<Bound<'_, PyAny>>,
    initial: Option<PyRef<'_, Snapshot>>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyTable> {
    let loads = || Ask::all().filter_map(|ask| Some((ask, ask.name().strip_prefix("run ")?)));
    let Some((ask, _)) = loads().find(|(_, name)| *name == load) else {
        let names: Vec<&str> = loads().map(|(_, name)| name).collect();
        return Err(usage(format!(
            "load: there is no {load:?}; there are {}",
            names.join(", ")
        )));
    };
    let mut given = Keywords::of(given)?;
    if let Some(size) = size {
        let of_load = ask.declared().into_iter().find(|field| field.is_size);
        let field = of_load.ok_or_else(|| usage(format!("size: {load} has none")))?;
        given.set_once(field.name, &size)?;
    }
    if ask.declared().iter().any(|field| field.name == "response")
        && let Some(sizes) = given.take("sizes")
    {
        match sizes.as_array().map(Vec::as_slice) {
            Some([request, response]) => {
                given.give("request", request.clone());
                given.give("response", response.clone());
            }
            _ => return Err(usage("sizes: give bytes of a request and of a response")),
        }
    }
    let heap = match initial {
        Some(initial) => {
            let booted = Booted::of(initial.of.clone()).map_err(raised)?;
            Some(HeapFile::of(&initial.of.file, booted))
        }
        None => None,
    };
    answered(py, ask, "run", given, &Ready::Nothing, heap)
}
