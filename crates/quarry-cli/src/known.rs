//! Facts about a snapshot's machine from the user, where its files lack them.

use quarry_lab::LabError;
use quarry_snapshot::{Asked, Snapshot};

use crate::units;

/// Facts that a file may lack.
#[derive(clap::Args)]
pub(crate) struct KnownArgs {
    /// The release of the snapshot's kernel, if its file does not have it.
    #[arg(long, value_name = "RELEASE")]
    kernel: Option<String>,
    /// CPUs that the snapshot's machine has, if its file does not have them.
    #[arg(long, value_name = "N")]
    had_cpus: Option<u32>,
    /// Page size of the snapshot's machine, if its file does not have it: 4k, 16k, 64k.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_page_bytes)]
    had_page_size: Option<u64>,
}

impl KnownArgs {
    /// The snapshot with these facts.
    pub(crate) fn applied(&self, snapshot: Snapshot) -> anyhow::Result<Snapshot> {
        let asked = Asked {
            release: self.kernel.clone(),
            cpus: self.had_cpus,
            page_bytes: self.had_page_size,
        };
        Ok(snapshot.asked(&asked).map_err(LabError::from)?)
    }
}
