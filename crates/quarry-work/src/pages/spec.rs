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
    /// Pages, in the mean, after which a process moves to another CPU; `None` if none moves.
    pub move_every: Option<u32>,
    /// Pages are on lists for reclaim, whose lock is taken.
    pub lru: bool,
    /// The kernel and the machine.
    pub setup: Setup,
}

impl PagesSpec {
    /// The usual run of a kernel on a machine.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            processes: 1,
            pages: 1024,
            rounds: 1,
            move_every: None,
            lru: false,
            setup,
        }
    }

    /// Processes, those that wait for a CPU included.
    pub(super) fn all_processes(&self) -> u32 {
        self.processes + u32::from(self.move_every.is_some())
    }

    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        format!(
            "{} processes{} with {} pages of {}k, era {}, {}",
            self.processes,
            match self.move_every {
                Some(_) => " that move",
                None => "",
            },
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
        if self.move_every == Some(0) {
            return Err(usage("move-every must be at least 1".to_string()));
        }
        if self.move_every.is_some() && self.processes < 2 {
            let message = "processes must be at least 2 with move-every: one CPU has no other";
            return Err(usage(message.to_string()));
        }
        let processes = self.all_processes();
        let wanted = u64::from(self.pages) * u64::from(processes) * self.setup.page_bytes;
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
