//! A file by its content: a trace or a snapshot.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use quarry_snapshot::{ReportError, Snapshot};
use quarry_trace::TraceFile;

use crate::error::LabError;
use crate::replay::input::Input;

/// First bytes of a file that say what it is.
const HEAD_BYTES: u64 = 64;

/// Moment of a recorded load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before the load.
    Begin,
    /// After it.
    End,
}

impl At {
    /// Both, by name.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Begin, "begin"), (Self::End, "end")];
}

/// A trace or snapshots.
pub enum Source {
    /// A trace.
    Trace(Box<Input>),
    /// The moments of a file, oldest first: at least one.
    Snapshots(Vec<Snapshot>),
}

impl Source {
    /// Opens what a file is, by its first bytes, or a folder: a trace, or snapshots, of a boot the one with this stage.
    /// Bundled names are traces.
    ///
    /// # Errors
    ///
    /// [`LabError::Report`] or [`LabError::Trace`] if it cannot be read, [`LabError::Usage`] for a stage of a trace.
    pub fn open(name: &OsStr, stage: Option<&str>) -> Result<Self, LabError> {
        let path = Path::new(name);
        if Self::is_snapshot(path) {
            return Ok(Self::Snapshots(Snapshot::read_all(path, stage)?));
        }
        if stage.is_some() {
            return Err(no_stages(&path.display().to_string()));
        }
        let input = match name.to_str() {
            Some(name) => Input::open(name)?,
            // No bundled trace has such a name.
            None => Input::new(TraceFile::open(name)?, &name.to_string_lossy()),
        };
        Ok(Self::Trace(Box::new(input)))
    }

    /// True for a folder, and for a file that is not empty and no trace. What cannot be read is none.
    #[must_use]
    pub fn is_snapshot(path: &Path) -> bool {
        let mut head = Vec::new();
        if let Some(file) = File::open(path).ok().filter(|_| path.is_file()) {
            // An unreadable file is refused when it is opened as a trace, with the cause.
            let _ = file.take(HEAD_BYTES).read_to_end(&mut head);
        }
        path.is_dir() || !head.is_empty() && !head.starts_with(b"PAR1") || Snapshot::is_table(path)
    }

    /// The last snapshot, of a trace the one of this moment. So a trace without a moment is of its end, as a file of several
    /// moments is.
    ///
    /// # Errors
    ///
    /// [`LabError::Report`] if the trace has none of that moment, [`LabError::Usage`] if a moment of a snapshot is asked for.
    pub fn into_snapshot(self, at: Option<At>) -> Result<Snapshot, LabError> {
        let input = match self {
            Self::Trace(input) => input,
            Self::Snapshots(moments) => {
                let last = Snapshot::last(moments);
                if at.is_some() {
                    return Err(LabError::Usage(format!(
                        "{} is a snapshot of one moment; --at is for traces",
                        last.file
                    )));
                }
                return Ok(last);
            }
        };
        let mut snapshots = input.snapshots()?;
        let (found, of) = match at {
            None => (snapshots.pop(), ""),
            Some(At::End) => (
                snapshots.pop().filter(|_| !snapshots.is_empty()),
                " of the end of its load",
            ),
            Some(At::Begin) => (snapshots.into_iter().next(), " of the begin of its load"),
        };
        found.ok_or_else(|| no_snapshot(&input.name, of))
    }
}

/// The error of a trace that lacks a snapshot.
pub(crate) fn no_snapshot(trace: &str, of: &str) -> LabError {
    let what = format!(
        "it has no snapshot{of}: record it with quarry record, or add one with quarry filter --before and --after"
    );
    let (file, place) = (trace.to_string(), "trace".to_string());
    ReportError::Bad { file, place, what }.into()
}

/// The error of a stage of a trace.
fn no_stages(shown: &str) -> LabError {
    LabError::Usage(format!(
        "{shown} is no snapshot; --stage is for snapshots of several moments"
    ))
}
