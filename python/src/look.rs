//! First answer about a kernel's slab memory.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use quarry_ask::{Door, fields, read};
use quarry_lab::ask::{self, Source};
use quarry_lab::look::{Answer, Bare, WhatIf};
use quarry_view::Doc;

use crate::args::Keywords;
use crate::error::{raised, usage};
use crate::snapshot::Snapshot;
use crate::table::PyTable;

/// The first answer about a kernel's slab memory: how much, of what and why, what grew, and what would change it.
#[pyclass(module = "quarry", frozen)]
pub(crate) struct Look {
    of: Told,
    files: String,
    /// Digest of each file; None if this computer is among them.
    digests: Option<String>,
}

/// The look at slabs, or the snapshots of files that have bytes alone.
enum Told {
    Slabs(Box<quarry_lab::look::Look>, Vec<quarry_snapshot::Snapshot>),
    Bytes(Vec<quarry_snapshot::Snapshot>),
}

/// Looks at snapshots, oldest first: each a `Snapshot`, or a file that is read with all its moments. Without any, at this
/// computer. Of several, `growth` says what grew from the first to the last. Keywords say what files lack.
///
/// Printed, it is the screen of the command; its tables are `summary`, `caches`, `what_ifs` and `growth`.
///
/// >>> look = quarry.look("host.json")
/// >>> look.growth is None, len(look.summary)
/// (True, 1)
#[pyfunction]
#[pyo3(signature = (*snapshots, **given))]
pub(crate) fn look(
    py: Python<'_>,
    snapshots: &Bound<'_, PyTuple>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Look> {
    let given = Keywords::of(given)?;
    given.check(&fields::<ask::Look>(), "look")?;
    let asked: ask::Look = read(&[given.layer()], Door::Python).map_err(usage)?;
    let (mut all, mut digests) = (Vec::new(), Vec::new());
    for one in snapshots {
        match one.cast::<Snapshot>() {
            Ok(snapshot) => {
                let of = asked.known.applied(snapshot.get().of.clone());
                all.push(of.map_err(raised)?);
                digests.push(snapshot.get().digest.clone());
            }
            Err(_) => {
                let path: PathBuf = one.extract()?;
                let open = |stage: Option<&str>| Source::open(path.as_os_str(), stage);
                let moments = py.detach(|| asked.snapshots(open));
                let moments = moments.map_err(raised)?;
                let name = path.display().to_string();
                let digest = py.detach(|| quarry_sweep::digest(&name));
                digests.extend(moments.iter().map(|_| Some(digest.clone())));
                all.extend(moments);
            }
        }
    }
    if snapshots.is_empty() {
        all.push(py.detach(quarry_snapshot::Snapshot::now).map_err(raised)?);
        digests.push(None);
    }
    let files: Vec<&str> = all.iter().map(|snapshot| snapshot.file.as_str()).collect();
    let files = files.join("; ");
    quarry_lab::look::prepare(&mut all);
    let of = match Bare::of(&all).is_some() {
        true => Told::Bytes(all),
        false => {
            let look = py.detach(|| quarry_lab::look::Look::of(&all));
            Told::Slabs(Box::new(look.map_err(raised)?), all)
        }
    };
    Ok(Look {
        of,
        files,
        digests: digests
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .map(|all| all.join("; ")),
    })
}

impl Look {
    fn noted(&self, table: PyTable) -> PyTable {
        let table = table.noted("command", "look").noted("input", &self.files);
        let table = match &self.of {
            Told::Slabs(look, _) => table.noted("slab_bytes", look.slab_bytes),
            Told::Bytes(_) => table,
        };
        match &self.digests {
            Some(digests) => table.noted("input_digest", digests),
            None => table,
        }
    }
}

#[pymethods]
impl Look {
    /// One row: all slab memory, its parts, what shrinking frees, blocks.
    #[getter]
    fn summary(&self) -> PyResult<PyTable> {
        let table = match &self.of {
            Told::Slabs(look, _) => PyTable::of(std::slice::from_ref(look), &["design"])
                .map(|table| table.shows("look parts")),
            Told::Bytes(all) => PyTable::of(&bare(all), &[]),
        };
        Ok(self.noted(table?))
    }

    /// A row for each cache that has slabs, that with most bytes first; or its bytes, where a file has no more.
    #[getter]
    fn caches(&self) -> PyResult<PyTable> {
        let table = match &self.of {
            Told::Slabs(look, _) => {
                PyTable::of(&look.caches, &["name"]).map(|table| table.shows("look caches"))
            }
            Told::Bytes(all) => {
                let caches = bare(all).into_iter().flat_map(|bare| bare.cache_bytes);
                PyTable::of(&caches.collect::<Vec<_>>(), &["name"])
            }
        };
        Ok(self.noted(table?))
    }

    /// A row for each call site that a file without slabs has, that with most bytes first; None of slabs.
    #[getter]
    fn sites(&self) -> PyResult<Option<PyTable>> {
        let Told::Bytes(all) = &self.of else {
            return Ok(None);
        };
        let sites = bare(all).into_iter().flat_map(|bare| bare.sites);
        let table = PyTable::of(&sites.collect::<Vec<_>>(), &["place"])?;
        Ok(Some(self.noted(table)))
    }

    /// A row for each prediction: other releases, pages and orders.
    #[getter]
    fn what_ifs(&self) -> PyResult<PyTable> {
        let table = match &self.of {
            Told::Slabs(look, _) => {
                PyTable::of(&look.what_ifs, &[]).map(|table| table.shows("look what-ifs"))
            }
            Told::Bytes(_) => PyTable::of::<WhatIf>(&[], &[]),
        };
        Ok(self.noted(table?))
    }

    /// A row for each cache that changed between the first and the last snapshot; None of one snapshot, or without slabs.
    #[getter]
    fn growth(&self) -> PyResult<Option<PyTable>> {
        let Told::Slabs(look, _) = &self.of else {
            return Ok(None);
        };
        let growth = look.growth.as_ref();
        let table = growth.map(|growth| PyTable::of(&growth.caches, &["name"]));
        let table = table.transpose()?.map(|table| table.shows("look growth"));
        Ok(table.map(|table| self.noted(table)))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Look is not pickled: send its tables",
        ))
    }

    /// The screen that the command prints.
    fn __str__(&self) -> PyResult<String> {
        let content = match &self.of {
            Told::Slabs(look, all) => serde_json::to_value(Answer::of(look, all)),
            Told::Bytes(all) => serde_json::to_value(Bare::of(all)),
        };
        let doc = Doc {
            file: String::new(),
            content: content.map_err(raised)?,
        };
        Ok(quarry_cli::text(&quarry_lab::look::view(&[doc])))
    }

    fn __repr__(&self) -> String {
        match &self.of {
            Told::Slabs(look, _) => format!(
                "<quarry.Look at {}: {} bytes of slabs, {}>",
                self.files, look.slab_bytes, look.design
            ),
            Told::Bytes(_) => format!("<quarry.Look at {}: bytes alone>", self.files),
        }
    }
}

/// The answer about files that have bytes alone.
fn bare(all: &[quarry_snapshot::Snapshot]) -> Vec<Bare<'_>> {
    Bare::of(all).into_iter().collect()
}
