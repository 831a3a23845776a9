//! A sweep that was run as people read it: the number of cells, what failed, and what the rows say.

use std::collections::BTreeMap;

use quarry_sweep::Outcome;
use quarry_sweep::table::{Column, Table};
use quarry_view::View;

use crate::commands::report::sweep as pages;
use crate::units::{count, counted};

/// Errors that are printed at most.
const ERRORS: usize = 3;

/// The view of a sweep and its rows.
///
/// # Errors
///
/// If the rows have no figure to judge settings by.
pub(crate) fn view(outcome: &Outcome, rows: Option<Table>) -> anyhow::Result<View> {
    let mut told = vec![format!(
        "{}; {} of them had rows before, {} failed",
        counted(outcome.cells, "cell"),
        count(outcome.present as u64),
        count(outcome.failed as u64),
    )];
    let Some(rows) = rows else {
        return Ok(told.into_iter().fold(View::new("Sweep"), View::finding));
    };
    let errors = errors(&rows);
    for (error, cells) in errors.iter().take(ERRORS) {
        told.push(format!("failed, {}: {error}", counted(*cells, "cell")));
    }
    if errors.len() > ERRORS {
        let more = counted(errors.len() - ERRORS, "other error");
        told.push(format!("{more}; quarry sweep --status names them"));
    }
    let mut view = pages::summary(rows)?;
    view.findings.splice(..0, told);
    Ok(view)
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
