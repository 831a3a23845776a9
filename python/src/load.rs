//! The classic loads in simulated time.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quarry_ask::{Json, Part, fields, object};
use quarry_lab::ask::{AskLoad, Hackbench, HeapFile, Tbench, TcpRr};
use quarry_lab::booted::Booted;
use quarry_work::run_all;

use crate::args::Keywords;
use crate::error::{raised, usage};
use crate::recording::one_of_each;
use crate::running::{self, Bar, note, note_eras};
use crate::snapshot::Snapshot;
use crate::table::PyTable;

/// Runs a load in simulated time: hackbench, tbench or tcp_rr of a size (groups, clients or pairs), on each number of CPUs
/// and each design. A list of sizes has a row for each. A run begins on an empty heap; with `initial` on the heap of a
/// snapshot, with `booted` on that of a bundled kernel that has run.
#[pyfunction]
#[pyo3(signature = (load, size = None, *, initial = None, **given))]
pub(crate) fn run(
    py: Python<'_>,
    load: &str,
    size: Option<Bound<'_, PyAny>>,
    initial: Option<PyRef<'_, Snapshot>>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyTable> {
    let initial = match initial {
        Some(initial) => {
            let booted = Booted::of(initial.of.clone()).map_err(raised)?;
            Some(HeapFile::of(&initial.of.file, booted))
        }
        None => None,
    };
    match load {
        "hackbench" => ran(py, load, size, given, |asked: &mut Hackbench| {
            asked.kernel.heap = initial.into_iter().collect::<Vec<_>>().into();
        }),
        "tbench" => ran(py, load, size, given, |asked: &mut Tbench| {
            asked.kernel.heap = initial.into_iter().collect::<Vec<_>>().into();
        }),
        "tcp_rr" => ran(py, load, size, given, |asked: &mut TcpRr| {
            asked.kernel.heap = initial.into_iter().collect::<Vec<_>>().into();
        }),
        _ => Err(usage(format!(
            "load: there is no {load:?}; there are hackbench, tbench, tcp_rr"
        ))),
    }
}

/// Runs a load of one kind.
fn ran<Q: AskLoad + Part>(
    py: Python<'_>,
    load: &str,
    size: Option<Bound<'_, PyAny>>,
    given: Option<&Bound<'_, PyDict>>,
    begin: impl FnOnce(&mut Q),
) -> PyResult<PyTable> {
    let mut given = Keywords::of(given)?;
    let (caches, progress) = (given.flag("caches")?, given.flag("progress")?);
    let jobs = running::jobs(given.jobs()?);
    if let (Some(size), Some(field)) = (size, fields::<Q>().iter().find(|field| field.is_size)) {
        given.set(field.name, &size)?;
    }
    if let Some(sizes) = given.take("sizes") {
        match sizes.as_array().map(Vec::as_slice) {
            Some([request, response]) => {
                given.give("request", request.clone());
                given.give("response", response.clone());
            }
            _ => return Err(usage("sizes: give bytes of a request and of a response")),
        }
    }
    let mut asked: Q = one_of_each(given.question("run")?)?;
    let is_booted = asked.parts().1.booted.is_true();
    begin(&mut asked);
    let (_, kernel, _) = asked.parts();
    if is_booted && !kernel.heap.is_empty() {
        return Err(usage("initial and booted are two states: give one of them"));
    }
    let start = kernel.start();
    let (machine, runs) = asked.runs().map_err(raised)?;
    note_eras(py, runs.iter().map(|run| run.spec.setup.era))?;
    let bar = Bar::new(py, progress, load, 100 * runs.len() as u64, "%")?;
    let reports = running::run(py, &bar, |shared| {
        run_all(&runs, jobs, |run| run.run_from(&start, shared))
    })?;
    let reports = reports.map_err(raised)?;
    for (run, report) in runs
        .iter()
        .zip(&reports)
        .filter(|(_, report)| report.late_changes > 0)
    {
        note(
            py,
            &format!(
                "{}: it ended before {} of at",
                run.spec.label(),
                report.late_changes
            ),
        )?;
    }
    let lead = ["load", "size", "design", "era", "cpus"];
    let table = match caches {
        true => PyTable::of_parts(&reports, |report| &report.caches, &lead)?,
        false => PyTable::of(&reports, &lead)?,
    };
    let mut question = object(&asked, false);
    question.insert("machine".to_string(), machine.name.into());
    Ok(table
        .noted("command", format!("run {load}"))
        .noted("asked", Json::Object(question)))
}
