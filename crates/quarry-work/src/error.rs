//! Errors of workloads, by what the caller can do about them.

use quarry_core::design::CheckError;
use quarry_core::page::PageInconsistency;
use quarry_designs::{DesignError, Refused};
use quarry_sim::driver::SetupError;
use quarry_sim::time::Deadlock;

/// Reason for which a workload was refused or ended early.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The request names something that does not exist, or is out of range: ask for something else.
    #[error("{0}")]
    Usage(String),
    /// A run, or a part of one, has failed.
    #[error("{run}: {problem}")]
    Run {
        /// The run, or the part of it.
        run: String,
        /// The reason.
        problem: Box<WorkError>,
    },
    /// [`crate::Progress`] ended the run.
    #[error("stopped before its end")]
    Stopped,
    /// The heap cannot be made.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The machine has no room for what the drivers keep pages in.
    #[error("no room for {0}; ask for smaller caches or fewer rings")]
    NoRoom(&'static str),
    /// A cache does not take a tunable's value.
    #[error(
        "{name} = {value} is refused: the cache's per-CPU structures have no room for it, or \
         another setting bounds it (order: slub_min_order to slub_max_order); give a smaller value, or \
         set that one too"
    )]
    Refused {
        /// The tunable.
        name: &'static str,
        /// The value.
        value: u64,
    },
    /// A tunable is to be set in a cache that does not exist.
    #[error("there is no cache {cache}; there are {known}")]
    NoCache {
        /// The name.
        cache: String,
        /// Names of those there are.
        known: String,
    },
    /// The machine has too little memory.
    #[error("no room for {0}; give the machine more memory, or ask for less")]
    Exhausted(&'static str),
    /// The machine has too little memory for what sockets may have at once.
    #[error(
        "no room for socket buffers, which alone may need {} MiB at once; give the machine more memory, or ask for less",
        bytes.div_ceil(1 << 20)
    )]
    NoBuffers {
        /// Bytes that they need at most.
        bytes: u64,
    },
    /// All CPUs wait for each other: a defect of this library.
    #[error("{0}; please report this")]
    Deadlock(#[from] Deadlock),
    /// The page allocator contradicts itself at the end: a defect of this library.
    #[error("the page allocator is inconsistent at the end ({0}); please report this")]
    Inconsistent(#[from] PageInconsistency),
    /// A cache contradicts itself at the end: a defect of this library.
    #[error("{cache} is inconsistent at the end ({source}); please report this")]
    InconsistentCache {
        /// The cache.
        cache: String,
        /// The contradiction.
        source: CheckError,
    },
    /// The heap in this process cannot be made, or no thread is available.
    #[error("{0}")]
    Host(String),
    /// Objects were not freed at the end, or were freed that were none of the run: a defect of this library.
    #[error("{objects} objects more than before are in use at the end; please report this")]
    LostObjects {
        /// Number of objects; below 0 if there are fewer than before.
        objects: i64,
    },
    /// The heap cannot begin in this state.
    #[error("{0}")]
    Start(Box<dyn std::error::Error + Send + Sync>),
    /// Not all pages came back at the end, or more than there were: a defect of this library.
    #[error("{pages} pages did not come back at the end; please report this")]
    Lost {
        /// Number of pages; below 0 if more came back.
        pages: i64,
    },
}

impl WorkError {
    /// The reason, without the run's name.
    #[must_use]
    pub fn problem(&self) -> &Self {
        match self {
            Self::Run { problem, .. } => problem,
            problem => problem,
        }
    }

    /// The error of a run. The name of a part that has failed follows that of the run.
    pub(crate) fn of(self, run: String) -> Self {
        match self {
            Self::Run { run: part, problem } => Self::Run {
                run: format!("{run}, {part}"),
                problem,
            },
            problem => Self::Run {
                run,
                problem: Box::new(problem),
            },
        }
    }

    /// Refuses an end at which not as many pages are free as before the run.
    pub(crate) fn if_pages_are_lost(before: u64, after: u64) -> Result<(), Self> {
        match before as i64 - after as i64 {
            0 => Ok(()),
            pages => Err(Self::Lost { pages }),
        }
    }
}

impl From<DesignError> for WorkError {
    fn from(error: DesignError) -> Self {
        Self::Usage(error.0)
    }
}

impl From<Refused> for WorkError {
    fn from(Refused { name, value }: Refused) -> Self {
        Self::Refused { name, value }
    }
}

/// Result of a run on a virtual machine; an error names the run.
pub(crate) fn of_run<T>(
    ran: Result<Result<T, WorkError>, SetupError>,
    label: impl FnOnce() -> String,
) -> Result<T, WorkError> {
    let ran = ran.map_err(WorkError::from).flatten();
    ran.map_err(|error| error.of(label()))
}
