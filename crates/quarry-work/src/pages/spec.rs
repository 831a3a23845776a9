//! Parameters of processes that fault pages in.

use quarry_sim::Config;

use crate::error::WorkError;
use crate::setup::Setup;

/// A run.
#[derive(Clone, Debug)]
pub struct PagesSpec {
    /// Processes, each on a CPU of its own.
    pub processes: u32,
    /// Pages that each of them maps.
    pub pages: u32,
    /// Rounds that each process ends while counting, at least.
    pub rounds: u32,
    /// The kernel and the machine.
    pub setup: Setup,
}

impl PagesSpec {
    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        format!(
            "{} processes with {} pages of {}k, era {}, {}",
            self.processes,
            self.pages,
            self.setup.page_bytes >> 10,
            self.setup.era,
            self.setup.machine.name
        )
    }

    /// The virtual machine.
    ///
    /// # Errors
    ///
    /// [`WorkError::Usage`] if the parameters are invalid.
    pub fn config(&self) -> Result<Config, WorkError> {
        let usage = |message: String| WorkError::Usage(message);
        if self.pages == 0 || self.rounds == 0 {
            let message = "pages and rounds must be at least 1";
            return Err(usage(message.to_string()));
        }
        let wanted = u64::from(self.pages) * u64::from(self.processes) * self.setup.page_bytes;
        if wanted > self.setup.memory_bytes {
            return Err(usage(format!(
                "{} need {wanted} bytes of the machine's {}",
                self.label(),
                self.setup.memory_bytes
            )));
        }
        self.setup.config(self.processes)
    }
}
