//! Errors of questions about a state.

use quarry_designs::DesignError;

/// A question names something that does not exist, or the snapshot cannot answer it; the text says which and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StateError(pub String);

impl From<DesignError> for StateError {
    fn from(error: DesignError) -> Self {
        Self(error.0)
    }
}
