//! Errors of experiments.

use std::path::PathBuf;

use quarry_designs::DesignError;
use quarry_lab::LabError;
use quarry_machines::MachineError;
use quarry_work::WorkError;

/// Reason for which an experiment ended early, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// There is no such thread.
    #[error("there is no thread {name:?}; there are {known}, and all")]
    Thread {
        /// The requested name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A load.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// A prediction of memory.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A design or a setting.
    #[error(transparent)]
    Design(#[from] DesignError),
    /// A machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Another run keeps its results in the same file.
    #[error("{path}: another run keeps its results there; wait until it ends, or name another file", path = path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Results that were kept cannot be read or written.
    #[error("{path}: {problem}; name another file, or remove this one to begin anew", path = path.display())]
    Keep {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
}
