//! Errors of the lab, by what the caller can do about them.

use std::path::PathBuf;

use quarry_core::design::FreeError;
use quarry_core::heap::CreateError;
use quarry_designs::DesignError;
use quarry_sim::driver::SetupError;
use quarry_sim::time::Deadlock;
use quarry_trace::{TraceError, seconds};
use quarry_work::WorkError;

use crate::replay::part::Part;
use quarry_snapshot::ReportError;
use quarry_state::StateError;

/// Reason why something was refused or ended early.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The request does not exist or is out of range: ask for something else.
    #[error("{0}")]
    Usage(String),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(Box<TraceError>),
    /// There is neither a file nor a bundled recording of this name.
    #[error("{source}; bundled recordings are {bundled}, without snapshots")]
    NoTrace {
        /// Names of the bundled recordings.
        bundled: String,
        /// The error of opening the file.
        source: Box<TraceError>,
    },
    /// A kernel's report cannot be used.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A load cannot run.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// [`quarry_work::Progress`] ended the replay.
    #[error("stopped before its end")]
    Stopped,
    /// A row of the trace contradicts the rows before it.
    #[error("{trace}: row {row}: {what}; the trace is damaged: import the recording again")]
    BadRow {
        /// The trace.
        trace: String,
        /// Row, counted from 1.
        row: u64,
        /// The contradiction.
        what: String,
    },
    /// No event lies in the part that is to be replayed.
    #[error(
        "{trace}: no event lies {part}; the recording goes from {} to {} s",
        seconds(*first_ns), seconds(*last_ns)
    )]
    EmptyPart {
        /// The trace.
        trace: String,
        /// The part.
        part: Part,
        /// Time of the first event.
        first_ns: u64,
        /// Time of the last event.
        last_ns: u64,
    },
    /// The heap refuses a free that the trace says is possible.
    #[error(
        "{trace}: row {row}: the free of object {object} is refused ({source}); the trace is \
         damaged: import the recording again"
    )]
    Free {
        /// The trace.
        trace: String,
        /// Row, counted from 1.
        row: u64,
        /// The object's number in the trace.
        object: u32,
        /// The heap's error.
        source: FreeError,
    },
    /// The virtual machine has no memory left.
    #[error(
        "{run}: memory is exhausted at event {row} of {rows}: {used_bytes} of {memory_bytes} bytes \
         are in use, and {wanted} bytes for {cache} were asked for; give the machine more with \
         --memory"
    )]
    Memory {
        /// The run.
        run: String,
        /// Row, counted from 1.
        row: u64,
        /// Rows of the trace.
        rows: u64,
        /// Bytes of slabs, and of the trace's page blocks if they are replayed.
        used_bytes: u64,
        /// Bytes of the machine.
        memory_bytes: u64,
        /// Bytes asked for.
        wanted: u32,
        /// For which cache.
        cache: String,
    },
    /// A cache of the trace cannot exist in the design.
    #[error("{run}: event {row}: cache {cache} of {object_size} bytes: {source}")]
    Cache {
        /// The run.
        run: String,
        /// Row, counted from 1.
        row: u64,
        /// The cache.
        cache: String,
        /// Bytes of an object.
        object_size: u32,
        /// The heap's error.
        source: CreateError,
    },
    /// A cache of the initial state cannot exist in the design.
    #[error("{run}: initial state: cache {cache} of {object_size} bytes: {source}")]
    InitialCache {
        /// The run.
        run: String,
        /// The cache.
        cache: String,
        /// Bytes of an object.
        object_size: u32,
        /// The heap's error.
        source: CreateError,
    },
    /// The initial state does not fit.
    #[error(
        "{run}: initial state: no memory for the {objects} objects of cache {cache}; give the \
         machine more than {memory_bytes} bytes (--memory)"
    )]
    InitialMemory {
        /// The run.
        run: String,
        /// The cache.
        cache: String,
        /// Objects that it is to hold.
        objects: u64,
        /// Bytes of the machine.
        memory_bytes: u64,
    },
    /// The heap refuses to free an object of the initial state.
    #[error("{run}: initial state: an object of cache {cache} cannot be freed: {source}")]
    InitialFree {
        /// The run.
        run: String,
        /// The cache.
        cache: String,
        /// The heap's error.
        source: FreeError,
    },
    /// A cache does not take a tunable's value.
    #[error(
        "{run}: cache {cache} refuses {name} = {value}: its per-CPU structures have no room for it, \
         or another setting bounds it (order: slub_min_order to slub_max_order); give a smaller \
         value, or set that one too"
    )]
    Refused {
        /// The run.
        run: String,
        /// The cache.
        cache: String,
        /// The tunable.
        name: &'static str,
        /// The value.
        value: u64,
    },
    /// The machine or its heap cannot be made.
    #[error("{run}: {source}")]
    Setup {
        /// The run.
        run: String,
        /// The driver's error.
        source: SetupError,
    },
    /// All virtual CPUs wait for each other: a defect of this library.
    #[error("{run}: {source}; please report this")]
    Deadlock {
        /// The run.
        run: String,
        /// The CPUs that wait, and what for.
        source: Deadlock,
    },
    /// A heap's files cannot be written.
    #[error("cannot write {}: {source}; name a folder that can be written", path.display())]
    Inspect {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The table of live objects does not fit into memory.
    #[error("{trace}: no memory for the table of {objects} objects that are alive at once")]
    Table {
        /// The trace.
        trace: String,
        /// Objects.
        objects: u32,
    },
}

impl From<StateError> for LabError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Question(text) => Self::Usage(text),
            StateError::Report(error) => Self::Report(error),
        }
    }
}

impl From<DesignError> for LabError {
    fn from(error: DesignError) -> Self {
        Self::Usage(error.0)
    }
}

impl From<TraceError> for LabError {
    fn from(error: TraceError) -> Self {
        Self::Trace(Box::new(error))
    }
}
