//! What is wrong with a machine.

use std::path::PathBuf;

/// Why there is no such machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// It is neither bundled nor a file.
    #[error("there is no machine {name:?}; machines are {known}, or a file such as {name}.toml")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The bundled ones.
        known: String,
    },
    /// Its file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Its file is no TOML, or has what no machine has.
    #[error("{name}: {message}")]
    Syntax {
        /// The machine.
        name: String,
        /// Where and what, by the parser.
        message: String,
    },
    /// Something in its file cannot be.
    #[error("{name}, line {line}: {key}: {problem}")]
    Value {
        /// The machine.
        name: String,
        /// Line of its file, from 1.
        line: usize,
        /// What is wrong.
        key: String,
        /// Why, and what it may be.
        problem: String,
    },
    /// It has not that many CPUs, or cannot lay them out.
    #[error("{cpus} CPUs on {name}: {advice}")]
    Cpus {
        /// The machine.
        name: String,
        /// What was asked for.
        cpus: u32,
        /// What can be asked for.
        advice: String,
    },
}
