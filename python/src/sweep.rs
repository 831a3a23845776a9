//! Sweeps: one question about many inputs. `quarry/_sweep.py` lets threads, executors and clusters run them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quarry_sweep::{Chunk, Folder, Here, Input, Options, Part, Plan, SweepError};
use quarry_trace::{Existing, OutFile, TraceError};
use quarry_work::Progress;
use serde_json::{Map, Value};

use crate::args::{Bytes, argument};
use crate::error::raised;
use crate::running::{self, Bar};
use crate::table::PyTable;

/// All cells of a plan.
#[pyclass(module = "quarry._quarry", frozen)]
pub(crate) struct Sweep {
    of: quarry_sweep::Sweep,
}

/// A chunk: name of the file of its rows, its JSON, its inputs, the number of its cells.
type Listed = (String, String, Vec<String>, usize);

/// Files of a chunk with their bytes, and the number of its cells that failed.
type Files<'py> = (Vec<(String, Bound<'py, PyBytes>)>, usize);

#[pymethods]
impl Sweep {
    /// Plans a sweep: `plan` is JSON. `inputs` are JSON of inputs that were examined elsewhere.
    #[new]
    #[pyo3(signature = (plan, caches, inputs = None))]
    fn new(py: Python<'_>, plan: &str, caches: bool, inputs: Option<&str>) -> PyResult<Self> {
        let object: Map<String, Value> = serde_json::from_str(plan).map_err(raised)?;
        let plan = Plan::of_object(&object).map_err(raised)?;
        let of = match inputs {
            Some(text) => {
                let found: Vec<Input> = serde_json::from_str(text).map_err(raised)?;
                quarry_sweep::Sweep::with_inputs(&plan, caches, found)
            }
            None => py.detach(|| quarry_sweep::Sweep::of(&plan, caches)),
        };
        Ok(Self {
            of: of.map_err(raised)?,
        })
    }

    /// Number of cells.
    #[getter]
    fn cells(&self) -> usize {
        self.of.cells.len()
    }

    /// Names of inputs whose content is that of another one, with the other's name.
    #[getter]
    fn same(&self) -> Vec<(String, String)> {
        self.of.inputs.same.clone()
    }

    /// Runs it with threads, and keeps the rows in a folder: cells, those that had rows, those that failed.
    #[pyo3(signature = (folder, jobs, memory, retry, progress))]
    fn run(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        jobs: Option<Bound<'_, PyAny>>,
        memory: Option<Bound<'_, PyAny>>,
        retry: bool,
        progress: bool,
    ) -> PyResult<(usize, usize, usize)> {
        let jobs = argument("jobs", jobs.as_ref())?;
        let memory: Option<Bytes> = argument("memory", memory.as_ref())?;
        let folder = Folder::create(&folder, &self.of).map_err(raised)?;
        let options = Options {
            jobs: std::num::NonZeroUsize::new(running::jobs(jobs)),
            shard: None,
            memory_bytes: memory.map(|bytes| bytes.0),
            retry,
        };
        let bar = Bar::new(py, progress, "sweep", self.of.cells.len() as u64, "cells")?;
        let work = |shared: &running::Shared| {
            self.of
                .execute(&folder, &options, shared.stop_flag(), &|_| {
                    shared.advance(1)
                })
        };
        let outcome = running::run(py, &bar, work)?.map_err(raised)?;
        Ok((outcome.cells, outcome.present, outcome.failed))
    }

    /// Begins in a folder, and returns the chunks that have no rows there, and the number of cells that have.
    fn left(&self, folder: PathBuf, retry: bool) -> PyResult<(Vec<Listed>, usize)> {
        let folder = Folder::create(&folder, &self.of).map_err(raised)?;
        let options = Options {
            retry,
            ..Options::default()
        };
        let left = self.of.left(&folder, &options).map_err(raised)?;
        let chunk = |chunk: &Chunk| {
            let mut inputs: Vec<String> = chunk
                .cells
                .iter()
                .map(|cell| cell.input.name.clone())
                .collect();
            inputs.dedup();
            let text = serde_json::to_string(chunk).map_err(raised)?;
            let file = Folder::file_name("part", &chunk.id());
            Ok((file, text, inputs, chunk.cells.len()))
        };
        let chunks = left.chunks.iter().map(chunk);
        Ok((chunks.collect::<PyResult<_>>()?, left.present()))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Sweep is not pickled: send its plan",
        ))
    }
}

/// Runs a chunk of a sweep. `local` has files of inputs that are elsewhere than their names say.
#[pyfunction]
pub(crate) fn run_chunk<'py>(
    py: Python<'py>,
    chunk: &str,
    local: BTreeMap<String, PathBuf>,
) -> PyResult<Files<'py>> {
    let chunk: Chunk = serde_json::from_str(chunk).map_err(raised)?;
    let here = Here {
        local,
        ..Here::default()
    };
    let part = py.detach(|| chunk.run(&here)).map_err(raised)?;
    files(py, &chunk, part)
}

/// The files of a chunk that no process could run, with this error in each row.
#[pyfunction]
pub(crate) fn failed_chunk<'py>(py: Python<'py>, chunk: &str, error: &str) -> PyResult<Files<'py>> {
    let chunk: Chunk = serde_json::from_str(chunk).map_err(raised)?;
    files(py, &chunk, Some(chunk.failed(error)))
}

/// The files of a part in the order in which they are written: with the last the chunk is done.
fn files<'py>(py: Python<'py>, chunk: &Chunk, part: Option<Part>) -> PyResult<Files<'py>> {
    let (mut files, Some(part)) = (Vec::new(), part) else {
        return Ok((Vec::new(), 0));
    };
    for (name, table) in chunk.files(&part) {
        let bytes = table.to_parquet().map_err(raised)?;
        files.push((name, PyBytes::new(py, &bytes)));
    }
    Ok((files, part.failed))
}

/// Writes files to a folder. Each appears when it is whole.
#[pyfunction]
pub(crate) fn write_files(
    py: Python<'_>,
    folder: PathBuf,
    files: Vec<(String, Vec<u8>)>,
) -> PyResult<()> {
    let write = || -> Result<(), TraceError> {
        for (name, bytes) in &files {
            let path = folder.join(name);
            let mut out = OutFile::create_among(&path, Existing::Replace)?;
            let written = out.file().write_all(bytes);
            written.map_err(|source| TraceError::Write { path, source })?;
            out.commit()?;
        }
        Ok(())
    };
    py.detach(write).map_err(raised)
}

/// Examines inputs, whose files may be elsewhere than their names say: JSON of a list.
#[pyfunction]
pub(crate) fn examine(py: Python<'_>, inputs: Vec<(String, String)>) -> PyResult<String> {
    let of = |(name, path): (String, String)| Input {
        name,
        ..Input::of(&path)
    };
    let examined: Vec<Input> = py.detach(|| inputs.into_iter().map(of).collect());
    serde_json::to_string(&examined).map_err(raised)
}

/// The names of files and folders that a plan's inputs mean.
#[pyfunction]
pub(crate) fn input_names(inputs: Vec<String>) -> PyResult<Vec<String>> {
    quarry_sweep::input_names(&inputs).map_err(raised)
}

/// Checks the keys of a plan in JSON, before its inputs are looked at.
#[pyfunction]
pub(crate) fn check_plan(plan: &str) -> PyResult<()> {
    let object: Map<String, Value> = serde_json::from_str(plan).map_err(raised)?;
    let plan = Plan::of_object(&object).map_err(raised)?;
    plan.asked().map(drop).map_err(raised)
}

/// A plan of TOML as JSON, with paths relative to the working folder.
#[pyfunction]
pub(crate) fn read_plan(path: PathBuf) -> PyResult<String> {
    let plan = Plan::read(&path).map_err(raised)?;
    serde_json::to_string(&plan.to_object()).map_err(raised)
}

/// All rows in a folder, ordered by input and settings.
#[pyfunction]
pub(crate) fn read_results(py: Python<'_>, folder: PathBuf) -> PyResult<PyTable> {
    let read = || -> Result<_, SweepError> { Folder::open(&folder)?.results(|_| true) };
    let found = py.detach(read).map_err(raised)?;
    Ok(PyTable::of_table(found.unwrap_or_default()).shows("sweep"))
}
