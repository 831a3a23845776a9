//! Slabs of a cache without running anything.

use pyo3::prelude::*;
use quarry_designs::DesignSpec;
use quarry_lab::geometry::{Ask, of_snapshot};
use serde_json::json;

use crate::args::{Name, PageBytes, Pairs, Several};
use crate::error::{raised, usage};
use crate::running::note_eras;
use crate::snapshot::Snapshot;
use crate::table::PyTable;

/// Slab size, order, objects per slab and limits of a cache, a row for each combination of listed values; or, of a
/// snapshot, of each of its caches, next to what its kernel reports.
#[pyfunction]
#[pyo3(signature = (
    object_size = None, *, snapshot = None, design = None, page_size = None, cpus = None, cache_line = 64, align = 0,
    flags = None, set = None
))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn geometry(
    py: Python<'_>,
    object_size: Option<Several<u32>>,
    snapshot: Option<&Snapshot>,
    design: Option<Several<Name>>,
    page_size: Option<Several<PageBytes>>,
    cpus: Option<Several<u32>>,
    cache_line: u32,
    align: u32,
    flags: Option<Several<String>>,
    set: Option<Pairs>,
) -> PyResult<PyTable> {
    let others = [
        design.is_some(),
        page_size.is_some(),
        cpus.is_some(),
        flags.is_some(),
        set.is_some(),
    ];
    let object_sizes = match (object_size, snapshot) {
        (Some(sizes), None) => sizes.0,
        (None, Some(snapshot)) if !others.contains(&true) => {
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
    };
    let usual = Ask::default();
    let or = |given: Option<Vec<String>>, usual: Vec<String>| given.unwrap_or(usual);
    let ask = Ask {
        designs: or(
            design.map(|all| all.0.into_iter().map(|name| name.0).collect()),
            usual.designs,
        ),
        page_bytes: match page_size {
            Some(sizes) => sizes.0.into_iter().map(|size| size.0).collect(),
            None => usual.page_bytes,
        },
        cpus: cpus.map_or(usual.cpus, |all| all.0),
        cache_line,
        object_sizes,
        align,
        flags: flags.unwrap_or_default().0.join(","),
        set: set.unwrap_or_default().0,
    };
    let rows = ask.ask().map_err(raised)?;
    let designs = ask
        .designs
        .iter()
        .filter_map(|text| DesignSpec::parse(text).ok());
    note_eras(py, designs.map(|design| design.era))?;
    let asked = json!({
        "design": ask.designs, "page_size": ask.page_bytes, "cpus": ask.cpus, "cache_line": ask.cache_line,
        "object_size": ask.object_sizes, "align": ask.align, "flags": ask.flags, "set": ask.set,
    });
    let table = PyTable::of(&rows, &["design", "page_size", "cpus", "object_size"])?;
    Ok(table.noted("command", "geometry").noted("asked", asked))
}
