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
    /// The heap cannot be made.
    #[error("{run}: {source}")]
    Setup {
        /// The run.
        run: String,
        /// The reason.
        source: SetupError,
    },
    /// The machine has no room for what the drivers keep pages in.
    #[error("{run}: no room for {what}; ask for smaller caches or fewer rings")]
    NoRoom {
        /// The run.
        run: String,
        /// For what.
        what: &'static str,
    },
    /// A cache does not take a tunable's value.
    #[error(
        "{run}: {name} = {value} is refused: the cache's per-CPU structures have no room for it, or \
         another setting bounds it (order: slub_min_order to slub_max_order); give a smaller value, or \
         set that one too"
    )]
    Refused {
        /// The run.
        run: String,
        /// The tunable.
        name: &'static str,
        /// The value.
        value: u64,
    },
    /// A tunable is to be set in a cache that does not exist.
    #[error("{run}: there is no cache {cache}; there are {known}")]
    NoCache {
        /// The run.
        run: String,
        /// The name.
        cache: String,
        /// Names of those there are.
        known: String,
    },
    /// The machine has too little memory.
    #[error("{run}: no room for {what}; give the machine more memory, or ask for less")]
    Exhausted {
        /// The run.
        run: String,
        /// For what.
        what: &'static str,
    },
    /// The machine has too little memory for what sockets may have at once.
    #[error(
        "{run}: no room for socket buffers, which alone may need {} MiB at once; give the machine more memory, or ask for less",
        bytes.div_ceil(1 << 20)
    )]
    NoBuffers {
        /// The run.
        run: String,
        /// Bytes that they need at most.
        bytes: u64,
    },
    /// All CPUs wait for each other: a defect of this library.
    #[error("{run}: {source}; please report this")]
    Deadlock {
        /// The run.
        run: String,
        /// The CPUs, and the lock that each waits for.
        source: Deadlock,
    },
    /// The page allocator contradicts itself at the end: a defect of this library.
    #[error("{run}: the page allocator is inconsistent at the end ({source}); please report this")]
    Inconsistent {
        /// The run.
        run: String,
        /// The contradiction.
        source: PageInconsistency,
    },
    /// A cache contradicts itself at the end: a defect of this library.
    #[error("{run}: {cache} is inconsistent at the end ({source}); please report this")]
    InconsistentCache {
        /// The run.
        run: String,
        /// The cache.
        cache: String,
        /// The contradiction.
        source: CheckError,
    },
    /// The heap in this process cannot be made, or no thread is available.
    #[error("{run}: {problem}")]
    Host {
        /// The run.
        run: String,
        /// The reason.
        problem: String,
    },
    /// Objects were not freed at the end, or were freed that were none of the run: a defect of this library.
    #[error("{run}: {objects} objects more than before are in use at the end; please report this")]
    LostObjects {
        /// The run.
        run: String,
        /// Number of objects; below 0 if there are fewer than before.
        objects: i64,
    },
    /// Not all pages came back at the end, or more than there were: a defect of this library.
    #[error("{run}: {pages} pages did not come back at the end; please report this")]
    Lost {
        /// The run.
        run: String,
        /// Number of pages; below 0 if more came back.
        pages: i64,
    },
}

impl WorkError {
    /// Error of a run whose page allocator refuses a sysctl.
    pub(crate) fn of_sysctl(run: &str, error: &DesignError) -> Self {
        Self::Usage(format!("{run}: {error}"))
    }

    /// Error of a run in which a cache refuses a tunable.
    pub(crate) fn refused(run: String, Refused { name, value }: Refused) -> Self {
        Self::Refused { run, name, value }
    }

    /// Refuses an end at which not as many pages are free as before the run.
    pub(crate) fn if_pages_are_lost(
        run: impl FnOnce() -> String,
        before: u64,
        after: u64,
    ) -> Result<(), Self> {
        match before as i64 - after as i64 {
            0 => Ok(()),
            pages => Err(Self::Lost { run: run(), pages }),
        }
    }
}
