//! `quarry geometry --from`: many caches at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use quarry_core::geometry::{CacheFlags, CacheParams, MachineParams};
use quarry_designs::{DesignSpec, Setting};
use quarry_lab::LabError;
use quarry_lab::ask::Known;
use quarry_lab::geometry::{self, Computed, OfSnapshot, Query, settings_of};
use quarry_snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use crate::error::usage;
use crate::{input, output, units};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    design: String,
    page_size: Bytes,
    cpus: u32,
    object_size: u32,
    #[serde(default)]
    align: Option<u32>,
    #[serde(default)]
    flags: Option<Flags>,
    #[serde(default)]
    set: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    cache_line: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Bytes {
    Number(u64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Flags {
    Text(String),
    List(Vec<String>),
}

/// Answers every row of a file, or every cache of a snapshot; prints nothing if a row has no answer.
pub(crate) fn run(path: &Path, cache_line: u32, known: &Known) -> anyhow::Result<()> {
    let name = input::shown(path);
    let mut bytes = Vec::new();
    let is_folder = path.is_dir();
    if !is_folder {
        let file = File::open(input::report(path));
        file.and_then(|mut file| file.read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {name}"))?;
    }
    let text = bytes.trim_ascii_start();
    // Rows of questions are a JSON list, too, but none has this column of slabinfo.
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_log = first.windows(2).any(|pair| pair == b"] ");
    let is_rows = text.starts_with(b"[")
        && !is_folder
        && serde_json::from_slice::<Vec<serde_json::Value>>(text).map_or(!is_log, |rows| {
            rows.iter().all(|row| row.get("active_objs").is_none())
        });
    match is_rows {
        true => print(&of_rows(&name, text, cache_line)?),
        false => print(&of_snapshot(&name, path, bytes, known)?),
    }
}

/// Prints a line for each answer.
fn print(answers: &[impl Serialize]) -> anyhow::Result<()> {
    output::print(|out| {
        for (i, answer) in answers.iter().enumerate() {
            out.write_all(if i == 0 { b"[\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, answer)?;
        }
        out.write_all(if answers.is_empty() {
            b"[]\n"
        } else {
            b"\n]\n"
        })
    })
}

fn of_rows(name: &str, text: &[u8], cache_line: u32) -> anyhow::Result<Vec<Computed>> {
    let rows: Vec<serde_json::Value> = serde_json::from_slice(text)
        .map_err(|error| usage(format!("{name}: not a JSON array of rows: {error}")))?;
    let answers = rows.into_iter().zip(1_u64..).map(|(row, number)| {
        answer(row, cache_line).map_err(|error| usage(format!("{name}: row {number}: {error:#}")))
    });
    answers.collect()
}

/// The geometry of each cache of a snapshot by the formulas of its kernel, beside the reported one.
fn of_snapshot(
    name: &str,
    path: &Path,
    bytes: Vec<u8>,
    known: &Known,
) -> anyhow::Result<Vec<OfSnapshot>> {
    let mut snapshot = match path.is_dir() {
        true => Snapshot::read(path, None).map_err(LabError::from)?,
        false => {
            let moments = Snapshot::of_bytes(name, bytes.as_slice()).map_err(LabError::from)?;
            let last = moments.into_iter().next_back();
            last.with_context(|| format!("{name}: no moment is in it"))?
        }
    };
    snapshot = known.applied(snapshot)?;
    Ok(geometry::of_snapshot(&snapshot)?)
}

fn answer(row: serde_json::Value, cache_line: u32) -> anyhow::Result<Computed> {
    let row: Row = serde_json::from_value(row)?;
    let page_bytes = match &row.page_size {
        Bytes::Number(bytes) => units::parse_page_bytes(&bytes.to_string()),
        Bytes::Text(text) => units::parse_page_bytes(text),
    };
    let flags = match row.flags {
        None => String::new(),
        Some(Flags::Text(text)) => text,
        Some(Flags::List(list)) => list.join(","),
    };
    let design = DesignSpec::parse(&row.design)?;
    let settings: Vec<Setting> = row
        .set
        .iter()
        .flatten()
        .map(|(name, value)| Setting::of(name, *value))
        .collect();
    let query = Query {
        design,
        machine: MachineParams {
            page_shift: page_bytes
                .map_err(|error| anyhow::anyhow!("page_size: {error}"))?
                .ilog2(),
            nr_cpus: row.cpus,
            cache_line: row.cache_line.unwrap_or(cache_line),
        },
        cache: CacheParams {
            object_size: row.object_size,
            align: row.align.unwrap_or(0),
            flags: CacheFlags::parse_list(&flags).map_err(|error| anyhow::anyhow!("{error}"))?,
            sheaf_capacity: 0,
        },
        settings: settings_of(design, &settings)?,
    };
    Ok(Computed::of(&query.answer()?))
}
