//! Reports as files: reading them, packed or not, and what is wrong with them.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reason why a kernel's report cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file does not say what such a report says.
    #[error("{file}: {place}: {what}")]
    Bad {
        /// The file.
        file: String,
        /// Place in it, for example `line 3`.
        place: String,
        /// The fault.
        what: String,
    },
}

impl ReportError {
    pub(crate) fn bad(file: &str, place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::Bad {
            file: file.to_string(),
            place: place.to_string(),
            what: what.to_string(),
        }
    }
}

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads a text file, which may be packed with gzip, whatever its name.
///
/// # Errors
///
/// [`ReportError::Read`], also if the text is not UTF-8.
pub fn read_report(path: &Path) -> Result<String, ReportError> {
    let read = |source| ReportError::Read {
        file: path.display().to_string(),
        source,
    };
    let bytes = std::fs::read(path).map_err(read)?;
    let mut text = String::new();
    if bytes.starts_with(&GZIP) {
        flate2::read::MultiGzDecoder::new(bytes.as_slice())
            .read_to_string(&mut text)
            .map_err(read)?;
        return Ok(text);
    }
    String::from_utf8(bytes).map_err(|_| {
        read(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not a text: not UTF-8",
        ))
    })
}

/// A file of the machine whose files are below `root`.
pub(crate) fn at(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Says what to do where the kernel lets only root read.
pub(crate) fn explain_permission(error: ReportError) -> ReportError {
    match error {
        ReportError::Read { file, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            let what = "only root may read it: run quarry as root";
            let source = io::Error::new(source.kind(), what);
            ReportError::Read { file, source }
        }
        error => error,
    }
}
