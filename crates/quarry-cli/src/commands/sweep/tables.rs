//! Texts of `quarry sweep`: what was run, what failed, and what the rows say.

use std::collections::BTreeMap;
use std::path::Path;

use quarry_sweep::Outcome;
use quarry_sweep::table::{Column, Table};

use crate::commands::report::sweep as pages;
use crate::output;
use crate::units::{count, counted};

/// Errors that are printed at most.
const ERRORS: usize = 3;

/// Everything that a sweep prints.
///
/// # Errors
///
/// If the rows have no figure to judge settings by.
pub(crate) fn text(
    outcome: &Outcome,
    rows: Option<&Table>,
    folder: &Path,
) -> anyhow::Result<String> {
    let mut text = format!(
        "{}; {} of them had rows before, {} failed\n",
        counted(outcome.cells, "cell"),
        count(outcome.present as u64),
        count(outcome.failed as u64),
    );
    let Some(rows) = rows else {
        return Ok(text);
    };
    let errors = errors(rows);
    for (error, cells) in errors.iter().take(ERRORS) {
        let line = format!("failed, {}: {error}", counted(*cells, "cell"));
        text.push_str(&format!("{}\n", output::wrap(&line)));
    }
    if errors.len() > ERRORS {
        let more = counted(errors.len() - ERRORS, "other error");
        text.push_str(&format!("{more}; quarry sweep --status names them\n"));
    }
    text.push_str(&pages::text(rows)?);
    let folder = folder.display();
    text.push_str(&format!(
        "\nrows: {folder}/part-*.parquet; quarry sweep --merge {folder} writes them to one file, quarry report {folder} \
         --html draws them\n"
    ));
    Ok(text)
}

/// Errors with the number of their rows, most rows first.
fn errors(rows: &Table) -> Vec<(&str, usize)> {
    let mut errors: BTreeMap<&str, usize> = BTreeMap::new();
    if let Some(Column::Text(texts)) = rows.column("error") {
        for error in texts.iter().flatten() {
            *errors.entry(error).or_default() += 1;
        }
    }
    let mut errors: Vec<(&str, usize)> = errors.into_iter().collect();
    errors.sort_by_key(|(_, cells)| std::cmp::Reverse(*cells));
    errors
}
