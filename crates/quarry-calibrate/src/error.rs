//! Reasons for which a computer cannot be measured.

use std::path::PathBuf;

use quarry_machines::MachineError;

/// Reason for which a computer cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A file of the kernel cannot be read.
    #[error(
        "cannot read {}: {source}; calibration needs what Linux says there about CPUs and caches", path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file of the kernel has an invalid value.
    #[error("{}: {text:?} is not {expected}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Contents of the file.
        text: String,
        /// The expected contents.
        expected: &'static str,
    },
    /// The kernel describes no first-level cache.
    #[error(
        "{} describes no data cache; write a machine file by hand (crates/quarry-machines/machines/README.md), or take a bundled one",
        path.display()
    )]
    NoCache {
        /// Path of the missing file.
        path: PathBuf,
    },
    /// A thread cannot choose its CPU.
    #[error("cannot run on CPU {cpu}: {source}; calibration pins its threads (sched_setaffinity)")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// The reason.
        source: std::io::Error,
    },
    /// A thread cannot be made.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// No CPU of the machine may be used.
    #[error("none of the computer's CPUs is usable: allow one of {0} (taskset, cpuset)")]
    NoCpu(String),
    /// A bundled machine is damaged.
    #[error("the machine to take values over from: {0}")]
    Donor(MachineError),
    /// The measured figures contradict each other.
    #[error("the figures contradict each other, measure again while the computer is idle: {0}")]
    Contradiction(MachineError),
}
