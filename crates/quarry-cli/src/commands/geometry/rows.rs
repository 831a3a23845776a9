//! `quarry geometry --from`: many caches at once.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use quarry_ask::{Asked, Door, read};
use quarry_lab::LabError;
use quarry_lab::ask::{Geometry, Known};
use quarry_lab::geometry::{self, Computed, OfSnapshot};
use quarry_snapshot::Snapshot;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::usage;
use crate::{input, terminal};

/// Answers every row of a file, or every cache of a snapshot; prints nothing if a row has no answer.
pub(crate) fn run(path: &Path, asked: &Asked<Geometry>, known: &Known) -> anyhow::Result<()> {
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
        && serde_json::from_slice::<Vec<Value>>(text).map_or(!is_log, |rows| {
            rows.iter().all(|row| row.get("active_objs").is_none())
        });
    match is_rows {
        true => print(&of_rows(&name, text, &asked.given)?),
        false => print(&of_snapshot(&name, path, bytes, known)?),
    }
}

/// Prints a line for each answer.
fn print(answers: &[impl Serialize]) -> anyhow::Result<()> {
    terminal::print(|out| {
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

fn of_rows(name: &str, text: &[u8], asked: &Map<String, Value>) -> anyhow::Result<Vec<Computed>> {
    let rows: Vec<Value> = serde_json::from_slice(text)
        .map_err(|error| usage(format!("{name}: not a JSON array of rows: {error}")))?;
    let answers = rows.iter().zip(1_u64..).map(|(row, number)| {
        answer(row, asked).map_err(|error| usage(format!("{name}: row {number}: {error:#}")))
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

/// The answer of a row, which is a question of one value of each field.
fn answer(row: &Value, asked: &Map<String, Value>) -> anyhow::Result<Computed> {
    let row = row
        .as_object()
        .with_context(|| format!("{row} is no object"))?;
    for name in ["design", "page_size", "cpus", "object_size"] {
        let is_there = row
            .get(name)
            .is_some_and(|it| !it.is_null() && *it != json!([]));
        anyhow::ensure!(is_there, "missing field `{name}`");
    }
    let layers = [asked, row].map(|layer| (layer, Path::new("")));
    let question: Geometry = read(&layers, Door::Python).map_err(anyhow::Error::msg)?;
    Ok(Computed::of(&question.query()?.answer()?))
}
