//! Parquet of `pcp2arrow`: a row for each moment, a column for each metric of each cache.

use std::path::Path;

use quarry_trace::{NumberColumn, number_columns};
use serde_json::json;

use super::metrics::{Metrics, PCP, PCP_PREFIX};
use super::{Form, Moment};
use crate::file::ReportError;

/// True for a file with columns of slabs. Traces are Parquet, too.
pub(crate) fn is(path: &Path) -> bool {
    let mut found = false;
    // The numbers are read only when the names are those of slabs.
    let _ = number_columns(path, |name| {
        found |= name.starts_with(PCP_PREFIX);
        false
    });
    found
}

/// The column's metric and cache: `mem.slabinfo.objects.active[dentry]`.
fn metric(name: &str) -> Option<(usize, &str)> {
    let (metric, rest) = name.strip_prefix(PCP_PREFIX)?.split_once('[')?;
    let (_, place) = PCP.iter().find(|(known, _)| *known == metric)?;
    Some((*place, rest.strip_suffix(']')?))
}

/// The times of the rows, in seconds since 1970.
fn is_time(name: &str) -> bool {
    ["time", "timestamp"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// A moment for each row.
pub(crate) fn read(file: &str, path: &Path) -> Result<Vec<Moment>, ReportError> {
    let bad = |what: &dyn std::fmt::Display| ReportError::bad(file, "Parquet", what);
    let columns = number_columns(path, |name| metric(name).is_some() || is_time(name));
    let columns: Vec<NumberColumn> = columns.map_err(|error| bad(&error))?;
    let rows = columns.iter().map(|column| column.values.len()).max();
    let whole = |value: f64| (0.0..1e18).contains(&value).then_some(value as u64);
    let mut moments = Vec::new();
    for row in 0..rows.unwrap_or(0) {
        let mut metrics = Metrics::default();
        let mut time = None;
        for column in &columns {
            let value = column.values.get(row).copied().flatten().and_then(whole);
            match (metric(&column.name), value) {
                (Some((place, cache)), Some(value)) => metrics.set(cache, place, value),
                (None, Some(value)) => time = Some(value),
                (_, None) => {}
            }
        }
        let mut moment = metrics.moment(Form::Pcp2arrow, file)?;
        if let Some(time) = time {
            moment.insert("unix_time_s".to_string(), json!(time));
        }
        moments.push(moment);
    }
    match moments.is_empty() {
        true => Err(bad(&"it has no row")),
        false => Ok(moments),
    }
}
