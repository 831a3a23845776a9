//! The simulated kernel and machine that a workload runs on.

use quarry_core::era::Era;
use quarry_designs::Tuning;
use quarry_machines::{Draw, Machine, MachineError};
use quarry_sim::Config;

use crate::error::WorkError;
use crate::sensitivity::Arm;

/// The kernel of a workload in simulated time, and its machine with the values of its costs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Release whose rules hold.
    pub era: Era,
    /// Its tunables.
    pub tuning: Tuning,
    /// The machine, whose costs time follows.
    pub machine: Machine,
    /// Values of its costs.
    pub draw: Draw,
    /// Decides what is left to chance.
    pub seed: u64,
    /// Number of the state in which the heap begins, among those that are possible ([`crate::Start`]): 0 is the expected one.
    pub state: u32,
}

impl Setup {
    /// A release's defaults, 4 KiB pages and 8 GiB of memory on a machine whose costs are as their values say.
    #[must_use]
    pub fn new(era: Era, machine: Machine) -> Self {
        Self {
            page_bytes: 4096,
            memory_bytes: 8 << 30,
            era,
            tuning: Tuning::default(),
            machine,
            draw: Draw::VALUES,
            seed: 1,
            state: 0,
        }
    }

    /// The same with the costs, the seed and the state of an arm.
    #[must_use]
    pub fn in_arm(&self, arm: &Arm) -> Self {
        Self {
            draw: arm.draw.clone(),
            seed: arm.seed,
            state: arm.state,
            ..self.clone()
        }
    }

    /// The virtual machine with n CPUs.
    pub(crate) fn config(&self, cpus: u32) -> Result<Config, WorkError> {
        let base = Config {
            page_bytes: self.page_bytes,
            memory_bytes: self.memory_bytes,
            ..Config::default()
        };
        checked(
            self.machine
                .config(cpus, self.era, &self.draw, self.seed, base),
        )
    }
}

/// The machine that a workload asks for, if it can be made.
///
/// # Errors
///
/// [`WorkError::Usage`] if the real machine does not have such CPUs, or the virtual one is invalid.
pub(crate) fn checked(config: Result<Config, MachineError>) -> Result<Config, WorkError> {
    let config = config.map_err(|error| WorkError::Usage(error.to_string()))?;
    let can_be = config.check();
    can_be.map_err(|error| WorkError::Usage(error.to_string()))?;
    Ok(config)
}
