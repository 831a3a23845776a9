//! One replay, as a plan asks for it.

use std::path::PathBuf;

use quarry_sim::Config;

use crate::design::DesignSpec;
use crate::setting::Settings;

/// One replay.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// Design and era.
    pub design: DesignSpec,
    /// The virtual machine.
    pub config: Config,
    /// Tunables.
    pub settings: Settings,
    /// Where the heap's slabinfo and sysfs files are written at the end.
    pub inspect: Option<PathBuf>,
}

impl RunSpec {
    /// The run in words, for messages.
    #[must_use]
    pub fn label(&self) -> String {
        let Config {
            cpus, page_bytes, ..
        } = self.config;
        format!("{}, {}k pages, {cpus} CPUs", self.design, page_bytes >> 10)
    }

    /// The run as the name of a folder, such as `slub@6.18-4k-16`.
    #[must_use]
    pub fn folder(&self) -> String {
        let Config {
            cpus, page_bytes, ..
        } = self.config;
        format!("{}-{}k-{cpus}", self.design, page_bytes >> 10)
    }
}

/// Called with the number of events that were just done, by any thread.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);
