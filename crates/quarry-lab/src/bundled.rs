//! The recordings that come with the program.

use quarry_trace::{TraceError, TraceFile};

/// A recording inside of the program.
pub struct Bundled {
    /// Its name on the command line.
    pub name: &'static str,
    /// The load that was recorded.
    pub about: &'static str,
    /// Its file.
    pub bytes: &'static [u8],
}

/// All of them; the first is the default.
pub static BUNDLED: &[Bundled] = &[
    Bundled {
        name: "hackbench",
        about: "320 processes that send each other messages over local sockets",
        bytes: include_bytes!("../data/recordings/hackbench.parquet"),
    },
    Bundled {
        name: "kv",
        about: "a key-value server and its load generator over loopback",
        bytes: include_bytes!("../data/recordings/kv.parquet"),
    },
    Bundled {
        name: "tbench",
        about: "a file server's traffic over TCP on loopback",
        bytes: include_bytes!("../data/recordings/tbench.parquet"),
    },
];

impl Bundled {
    /// The recording of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        BUNDLED.iter().find(|bundled| bundled.name == name)
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// [`TraceError`] if the program was built with a damaged recording.
    pub fn open(&self) -> Result<TraceFile, TraceError> {
        TraceFile::from_bytes(self.bytes)
    }
}
