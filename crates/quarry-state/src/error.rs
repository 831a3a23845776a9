//! Errors of questions about a state.

use quarry_designs::DesignError;
use quarry_snapshot::ReportError;

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
