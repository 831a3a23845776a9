//! Errors in descriptions of machines.

use std::path::PathBuf;

/// Reason for which there is no such machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// It is neither bundled nor a file.
    #[error("there is no machine {name:?}; machines are {known}, or a file such as {name}.toml")]
    Unknown {
        /// The requested name.
        name: String,
        /// The bundled ones.
        known: String,
    },
    /// Its file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Its file is no TOML, or has what no machine has.
    #[error("{name}: {message}")]
    Syntax {
        /// The machine.
        name: String,
        /// The parser's message, with the place.
        message: String,
    },
    /// A value in its file is invalid.
    #[error("{name}, line {line}: {key}: {problem}")]
    Value {
        /// The machine.
        name: String,
        /// Line of its file, from 1.
        line: usize,
        /// The key that is wrong.
        key: String,
        /// The reason, and the values that it may have.
        problem: String,
    },
    /// It has not that many CPUs, or cannot lay them out.
    #[error("{cpus} CPUs on {name}: {advice}")]
    Cpus {
        /// The machine.
        name: String,
        /// The requested number.
        cpus: u32,
        /// Numbers that the machine has.
        advice: String,
    },
}
