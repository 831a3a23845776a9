//! State of a folder: which inputs have cells without rows, and what failed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::SweepError;
use crate::folder::{Done, Folder};
use crate::version::version;

/// State of the sweep that ran last in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// All rows of the folder.
    pub done: Done,
    /// Cells of the sweep.
    pub cells: usize,
    /// Inputs with cells that have no row, and the number of these cells, in the plan's order.
    pub missing: Vec<(String, usize)>,
    /// Errors of failed cells with the number of their cells, most cells first.
    pub errors: Vec<(String, usize)>,
    /// Files that a process still writes, or left behind when it was ended.
    pub unfinished: Vec<PathBuf>,
    /// Version that ran the sweep, if it is another one: none of its rows counts.
    pub other_version: Option<String>,
}

impl Status {
    /// Number of cells without a row.
    #[must_use]
    pub fn missing_cells(&self) -> usize {
        self.missing.iter().map(|(_, cells)| cells).sum()
    }
}

impl Folder {
    /// The state of the sweep that ran last here. Its inputs are not read: their digests are kept with the rows.
    ///
    /// # Errors
    ///
    /// As [`Folder::done`].
    pub fn status(&self) -> Result<Status, SweepError> {
        let mark = self.mark();
        let done = self.done()?;
        let all = self.cells()?;
        let mut missing: Vec<(String, usize)> = Vec::new();
        for cell in &all {
            if done.ok.contains(&cell.id) || done.failed.contains_key(&cell.id) {
                continue;
            }
            match missing.last_mut() {
                Some((name, cells)) if *name == cell.input.name => *cells += 1,
                _ => missing.push((cell.input.name.clone(), 1)),
            }
        }
        let mut errors: BTreeMap<&str, usize> = BTreeMap::new();
        for error in done.failed.values() {
            *errors.entry(error).or_default() += 1;
        }
        let errors = errors.into_iter();
        let mut errors: Vec<(String, usize)> = errors
            .map(|(text, cells)| (text.to_string(), cells))
            .collect();
        errors.sort_by_key(|(_, cells)| std::cmp::Reverse(*cells));
        Ok(Status {
            cells: all.len(),
            missing,
            errors,
            unfinished: self.unfinished()?,
            other_version: (mark.quarry != version()).then(|| mark.quarry.clone()),
            done,
        })
    }
}
