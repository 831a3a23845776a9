//! Parameters of processes that fault pages in.

use quarry_core::era::Era;
use quarry_machines::{Draw, Machine};
use quarry_sim::Config;

use crate::config::checked;
use crate::error::WorkError;
use quarry_designs::Tuning;

/// A run.
#[derive(Clone, Debug)]
pub struct PagesSpec {
    /// Processes, each on a CPU of its own.
    pub processes: u32,
    /// Pages that each of them maps.
    pub pages: u32,
    /// Rounds that are counted.
    pub rounds: u32,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Release of the page allocator.
    pub era: Era,
    /// Its tunables.
    pub tuning: Tuning,
    /// The machine, whose costs time follows.
    pub machine: Machine,
    /// Values of its costs.
    pub draw: Draw,
    /// Decides what is left to chance.
    pub seed: u64,
}

impl PagesSpec {
    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        format!(
            "{} processes with {} pages of {}k, era {}, {}",
            self.processes,
            self.pages,
            self.page_bytes >> 10,
            self.era,
            self.machine.name
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
            let message = "0 pages or 0 rounds: a run has at least one of each";
            return Err(usage(message.to_string()));
        }
        let wanted = u64::from(self.pages) * u64::from(self.processes) * self.page_bytes;
        if wanted > self.memory_bytes {
            return Err(usage(format!(
                "{} need {wanted} bytes of the machine's {}",
                self.label(),
                self.memory_bytes
            )));
        }
        let base = Config {
            page_bytes: self.page_bytes,
            memory_bytes: self.memory_bytes,
            ..Config::default()
        };
        let machine = &self.machine;
        checked(machine.config(self.processes, self.era, &self.draw, self.seed, base))
    }
}
