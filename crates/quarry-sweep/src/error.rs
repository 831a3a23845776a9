//! Errors of sweeps.

use std::io;
use std::path::PathBuf;

use quarry_lab::LabError;
use quarry_lab::fault::{Fault, own_fault};
use quarry_trace::TraceError;

use crate::table::TableError;

/// A sweep that cannot be planned or kept. What fails in a cell is a row.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A key or a value of the plan does not exist: ask for something else.
    #[error("{0}")]
    Usage(String),
    /// A plan's file cannot be read or means nothing.
    #[error("plan {}: {problem}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A folder of inputs cannot be read.
    #[error("input {name}: {problem}")]
    Input {
        /// Its name.
        name: String,
        /// The problem.
        problem: String,
    },
    /// A folder for results has other files.
    #[error("{}: the folder is of no sweep and not empty; name a new folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// A folder for results has rows of another question.
    #[error("{}: the folder has rows of {there}, and not of {here}; name a folder for each", path.display())]
    OtherAsk {
        /// The folder.
        path: PathBuf,
        /// Its question.
        there: String,
        /// The sweep's.
        here: String,
    },
    /// A folder for results has rows of a plan with other settings.
    #[error("{}: the folder has rows of a plan that sets {there}, and this one sets {here}; name a folder for each (-o), or remove it", path.display())]
    OtherPlan {
        /// The folder.
        path: PathBuf,
        /// Names of its settings.
        there: String,
        /// Names of the sweep's.
        here: String,
    },
    /// A folder for results cannot be made.
    #[error("cannot make the folder {}: {source}; name a folder that you may write to", path.display())]
    Place {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A folder has no results.
    #[error("{}: {problem}", path.display())]
    NoSweep {
        /// The folder.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A file of results cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of results cannot be read.
    #[error("{}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: TableError,
    },
    /// Results cannot be written: some cells have none.
    #[error(
        "{missing} of {cells} cells have no row, those of {inputs}: {source}; run the same sweep again, and it goes on where \
         it stopped (quarry sweep --status names all)"
    )]
    Incomplete {
        /// Cells without a row.
        missing: usize,
        /// All cells of this run.
        cells: usize,
        /// The inputs that they are of.
        inputs: String,
        /// The cause.
        source: Box<SweepError>,
    },
    /// A chunk was planned by another version.
    #[error("the chunk is of Quarry {planned}, this is {own}: use one version on all machines")]
    Version {
        /// The version that planned it.
        planned: String,
        /// The version that was asked to run it.
        own: &'static str,
    },
    /// A table cannot be made.
    #[error(transparent)]
    Table(#[from] TableError),
    /// An output cannot be written.
    #[error(transparent)]
    Output(#[from] TraceError),
    /// The lab refuses a request.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl SweepError {
    /// The kind that the error itself gives, whatever its cause.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Usage(_) | Self::Plan { .. } | Self::Foreign { .. } | Self::OtherAsk { .. } => {
                Some(Fault::Usage)
            }
            Self::Incomplete { .. } => Some(Fault::Exhausted),
            Self::Lab(error) => own_fault(error),
            Self::File { source, .. }
            | Self::Place { source, .. }
            | Self::Output(TraceError::Write { source, .. }) => {
                is_full(source).then_some(Fault::Exhausted)
            }
            _ => None,
        }
    }
}

/// True if a disk or a quota has no room.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}
