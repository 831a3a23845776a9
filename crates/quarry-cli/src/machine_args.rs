//! `--machine` and what goes with it.

use std::num::NonZeroUsize;

use quarry_machines::Machine;

/// The machine whose time is simulated if none is named.
pub(crate) const DEFAULT_MACHINE: &str = "haswell-ep-2x12";

/// Whose time is simulated.
#[derive(clap::Args)]
pub(crate) struct MachineArgs {
    /// Machine whose time is simulated: a name of `quarry machines`, or a file.
    #[arg(long, value_name = "NAME|FILE", default_value = DEFAULT_MACHINE)]
    machine: String,
    /// Decides what is left to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Runs at the same time; the number of CPUs by default.
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl MachineArgs {
    /// The machine.
    pub(crate) fn machine(&self) -> anyhow::Result<Machine> {
        Ok(Machine::open(&self.machine)?)
    }

    /// Threads to run on.
    pub(crate) fn jobs(&self) -> usize {
        let all = || std::thread::available_parallelism().ok();
        self.jobs.or_else(all).map_or(1, NonZeroUsize::get)
    }
}
