//! What can go wrong in a workload, by what the caller can do about it.

use quarry_core::design::CheckError;
use quarry_core::page::{BootError, PageInconsistency};
use quarry_sim::ConfigError;
use quarry_sim::driver::SetupError;
use quarry_sim::time::Deadlock;

/// Why a workload was refused or ended early.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// What was asked for does not exist or is out of range: ask for something else.
    #[error("{0}")]
    Usage(String),
    /// There is no such virtual machine.
    #[error("{run}: {source}")]
    Machine {
        /// The run.
        run: String,
        /// Why not.
        source: ConfigError,
    },
    /// The machine is too small for a page allocator.
    #[error("{run}: {source}; give the machine more memory")]
    Boot {
        /// The run.
        run: String,
        /// Why not.
        source: BootError,
    },
    /// The heap cannot be made.
    #[error("{run}: {source}")]
    Setup {
        /// The run.
        run: String,
        /// Why not.
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
    /// The machine has too little memory.
    #[error("{run}: no room for {what}; give the machine more memory, or ask for less")]
    Exhausted {
        /// The run.
        run: String,
        /// For what.
        what: &'static str,
    },
    /// All CPUs wait for each other: a defect of this library.
    #[error("{run}: {source}; please report this")]
    Deadlock {
        /// The run.
        run: String,
        /// Which CPU waits for what.
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
    /// The heap in this process cannot be made, or a thread cannot be had.
    #[error("{run}: {problem}")]
    Host {
        /// The run.
        run: String,
        /// Why not.
        problem: String,
    },
    /// Not all objects were freed at the end: a defect of this library.
    #[error("{run}: {objects} objects were not freed at the end; please report this")]
    LostObjects {
        /// The run.
        run: String,
        /// How many.
        objects: u64,
    },
    /// Not all pages came back at the end: a defect of this library.
    #[error("{run}: {pages} pages did not come back at the end; please report this")]
    Lost {
        /// The run.
        run: String,
        /// How many.
        pages: u64,
    },
}
