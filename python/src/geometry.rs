//! Slabs of a cache without running anything.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quarry_lab::ask::{Ask, Ready};
use quarry_lab::geometry::of_snapshot;

use crate::args::Keywords;
use crate::ask::answered;
use crate::error::{raised, usage};
use crate::snapshot::Snapshot;
use crate::table::PyTable;

/// Slab size, order, objects per slab and limits of a cache, a row for each combination of listed values; or, of a
/// snapshot, of each of its caches, next to what its kernel reports.
///
/// `object_size` is in bytes, as are `slab_size`, `slab_bytes` and `slack`; other columns are counts.
///
/// >>> quarry.geometry(9856, page_size="64k", cpus=16)[0]["objects_per_slab"]
/// 26
#[pyfunction]
#[pyo3(signature = (object_size = None, /, *, snapshot = None, **given))]
pub(crate) fn geometry(
    py: Python<'_>,
    object_size: Option<Bound<'_, PyAny>>,
    snapshot: Option<&Snapshot>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<PyTable> {
    let mut keywords = Keywords::of(given)?;
    match (object_size, snapshot) {
        (Some(sizes), None) => keywords.set_once("object_size", &sizes)?,
        (None, None) if keywords.any_of(&["object_size"]).is_some() => {}
        (None, Some(snapshot)) if given.is_none_or(|given| given.is_empty()) => {
            let rows = py.detach(|| of_snapshot(&snapshot.of)).map_err(raised)?;
            let table = PyTable::of(&rows, &["name", "design"])?;
            return Ok(table
                .noted("command", "geometry")
                .noted("input", &snapshot.of.file));
        }
        (None, Some(_)) => {
            return Err(usage(
                "the caches of a snapshot are those of its own kernel and machine",
            ));
        }
        _ => return Err(usage("give object_size, or snapshot")),
    }
    answered(
        py,
        Ask::GEOMETRY,
        "geometry",
        keywords,
        &Ready::Nothing,
        None,
    )
}
