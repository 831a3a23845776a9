//! `--machine` and what goes with it.

use std::num::NonZeroUsize;

use quarry_core::era::Era;
use quarry_machines::{DEFAULT_MACHINE, Machine};

use crate::units;
use quarry_work::{Setup, Tuning};

/// The machine whose time is simulated, and the seed.
#[derive(clap::Args)]
pub(crate) struct MachineArgs {
    /// Machine whose time is simulated: a name of `quarry machines`, or a file.
    #[arg(long, value_name = "NAME|FILE", default_value = DEFAULT_MACHINE)]
    machine: String,
    /// Seed of everything that is random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    jobs: JobsArgs,
}

/// Number of runs at the same time.
#[derive(clap::Args)]
pub(crate) struct JobsArgs {
    /// Runs at the same time; the number of CPUs by default.
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// Options that all workloads in simulated time share.
#[derive(clap::Args)]
pub(crate) struct TimedArgs {
    /// Page size: 4k, 16k, 64k.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = units::parse_page_bytes,
        default_value = "4k"
    )]
    pub(crate) page_size: u64,
    /// Memory of each virtual machine. Only what is used becomes resident.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "16G")]
    pub(crate) memory: u64,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Run all again with the machine's constants elsewhere in their ranges, and say which results
    /// hold. It takes about 100 times as long.
    #[arg(long)]
    pub(crate) sensitivity: bool,
    /// Print JSON: one object, with what the time went into (quarry explain --all).
    #[arg(long)]
    pub(crate) json: bool,
}

impl TimedArgs {
    /// A release with its tunables on the machine that is asked for.
    pub(crate) fn setup(&self, era: Era, tuning: &Tuning, machine: &Machine) -> Setup {
        Setup {
            page_bytes: self.page_size,
            memory_bytes: self.memory,
            tuning: tuning.clone(),
            seed: self.machine.seed,
            ..Setup::new(era, machine.clone())
        }
    }
}

impl MachineArgs {
    /// The machine.
    pub(crate) fn machine(&self) -> anyhow::Result<Machine> {
        Ok(Machine::open(&self.machine)?)
    }

    /// Threads to run on.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.jobs()
    }
}

impl JobsArgs {
    /// Threads to run on.
    pub(crate) fn jobs(&self) -> usize {
        let all = || std::thread::available_parallelism().ok();
        self.jobs.or_else(all).map_or(1, NonZeroUsize::get)
    }
}
