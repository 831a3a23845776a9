//! `quarry sweep --status`: how far a sweep is, what is missing, and what failed.

use std::path::Path;

use quarry_sweep::{Folder, Status};
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::sweep::{Report, of_folder};
use crate::units::{count, counted};
use crate::{output, terminal};

/// Inputs and errors that are printed at most.
const LINES: usize = 10;

/// An input with cells that have no row.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Missing {
    /// Name of the input.
    input: String,
    /// Its cells without a row.
    cells: usize,
}

/// Cells that failed with one error.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Failing {
    /// The error.
    error: String,
    /// Its cells.
    cells: usize,
}

/// Prints the state of a folder.
pub(crate) fn run(path: &Path, is_json: bool) -> anyhow::Result<()> {
    let status = Folder::open(path)?.status()?;
    let notes = notes(&status);
    if is_json {
        return output::print_json("sweep", &report(path, status, notes));
    }
    notes.iter().for_each(|text| terminal::note(text));
    terminal::print_text(&text(&status))
}

fn report(path: &Path, status: Status, notes: Vec<String>) -> Report {
    let missing = status.missing.into_iter();
    let errors = status.errors.into_iter();
    Report {
        cells: status.cells,
        present: status.done.ok.len() + status.done.failed.len(),
        failed: status.done.failed.len(),
        missing: missing
            .map(|(input, cells)| Missing { input, cells })
            .collect(),
        errors: errors
            .map(|(error, cells)| Failing { error, cells })
            .collect(),
        notes,
        ..Report::of(Some(path))
    }
}

/// Sentences about files that do not count.
fn notes(status: &Status) -> Vec<String> {
    let mut notes = of_folder(&status.done);
    if let Some(version) = &status.other_version {
        notes.push(format!(
            "Quarry {version} ran the sweep, this is {}: no row of it counts here",
            quarry_sweep::version()
        ));
    }
    notes.extend(status.unfinished.iter().map(|path| {
        format!(
            "{} is not whole: a process writes it, or was ended; a later run removes it",
            path.display()
        )
    }));
    notes
}

fn text(status: &Status) -> String {
    let (ok, failed) = (status.done.ok.len(), status.done.failed.len());
    let mut text = format!(
        "{} with rows, {} of them with an error; the sweep that ran last has {}\n",
        counted(ok + failed, "cell"),
        count(failed as u64),
        counted(status.cells, "cell"),
    );
    let mut line = |line: String| text.push_str(&format!("{}\n", terminal::wrap(&line)));
    if !status.missing.is_empty() {
        line(format!(
            "without a row: {} of {}; the same sweep again runs them",
            counted(status.missing_cells(), "cell"),
            counted(status.missing.len(), "input"),
        ));
    }
    for (input, cells) in status.missing.iter().take(LINES) {
        line(format!("  {input}: {}", counted(*cells, "cell")));
    }
    if status.missing.len() > LINES {
        let more = status.missing.len() - LINES;
        line(format!("  {} more; --json names all", count(more as u64)));
    }
    for (error, cells) in status.errors.iter().take(LINES) {
        line(format!("failed, {}: {error}", counted(*cells, "cell")));
    }
    if status.errors.len() > LINES {
        let more = status.errors.len() - LINES;
        line(format!(
            "{} other errors; --json names all",
            count(more as u64)
        ));
    }
    text
}
