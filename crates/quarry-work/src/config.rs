//! The virtual machines that workloads run on.

use quarry_machines::MachineError;
use quarry_sim::Config;

use crate::error::WorkError;

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
