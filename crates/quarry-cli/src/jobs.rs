//! Number of runs at the same time.

use std::num::NonZeroUsize;

/// Number of runs at the same time.
#[derive(clap::Args)]
pub(crate) struct JobsArgs {
    /// Runs at the same time; the number of CPUs by default.
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl JobsArgs {
    /// Threads to run on.
    pub(crate) fn jobs(&self) -> usize {
        let all = || std::thread::available_parallelism().ok();
        self.jobs.or_else(all).map_or(1, NonZeroUsize::get)
    }
}
