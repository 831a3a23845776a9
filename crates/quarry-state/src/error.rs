//! Errors of questions about a state.

use quarry_designs::DesignError;
use quarry_snapshot::{ReportError, Snapshot};

/// The error of a question about a state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It names something that does not exist, or the snapshot cannot answer it; the text says which and why.
    #[error("{0}")]
    Question(String),
    /// The snapshot has no slabs.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl From<DesignError> for StateError {
    fn from(error: DesignError) -> Self {
        Self::Question(error.0)
    }
}

/// The error of a snapshot that cannot answer, whatever is asked: the file is at fault, not the question.
#[must_use]
pub fn refused(snapshot: &Snapshot, what: String) -> StateError {
    let (file, place) = (snapshot.file.clone(), snapshot.form.name().to_string());
    ReportError::Bad { file, place, what }.into()
}
