//! A file that appears only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::error::{Result, TraceError};
use crate::schema::Checksum;

/// Writes beside its target under a temporary name; [`OutFile::commit`] renames, dropping removes.
#[derive(Debug)]
pub(crate) struct OutFile {
    target: PathBuf,
    temporary: PathBuf,
    file: File,
    committed: bool,
}

impl OutFile {
    /// Opens the temporary file. An existing target stays as it is until [`OutFile::commit`].
    pub(crate) fn create(path: &Path) -> Result<OutFile> {
        let failed = |source| TraceError::Write {
            path: path.to_path_buf(),
            source,
        };
        // Through a symbolic link, what it points to is replaced and the link stays.
        let target = match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                return Err(TraceError::OutputNotFile {
                    path: path.to_path_buf(),
                });
            }
            Ok(_) => fs::canonicalize(path).map_err(failed)?,
            Err(_) => path.to_path_buf(),
        };
        let Some(name) = target.file_name() else {
            return Err(TraceError::OutputNotFile {
                path: path.to_path_buf(),
            });
        };
        for attempt in 0..100_u32 {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{attempt}.part", std::process::id()));
            let temporary = target.with_file_name(hidden);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&temporary)
            {
                Ok(file) => {
                    return Ok(OutFile {
                        target,
                        temporary,
                        file,
                        committed: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "every temporary name beside it is taken",
        )))
    }

    /// A second handle to the temporary file, for the encoder.
    pub(crate) fn handle(&self) -> Result<File> {
        self.file.try_clone().map_err(|source| TraceError::Write {
            path: self.target.clone(),
            source,
        })
    }

    /// Makes the file appear under its name, and gives its length.
    pub(crate) fn commit(mut self) -> Result<u64> {
        let failed = |source| TraceError::Write {
            path: self.target.clone(),
            source,
        };
        // Some file systems report a full disk only here.
        self.file.sync_all().map_err(failed)?;
        let length = self.file.metadata().map_err(failed)?.len();
        fs::rename(&self.temporary, &self.target).map_err(failed)?;
        self.committed = true;
        Ok(length)
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing can be done about a failure here, and the error that led here is the one to report.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Sits under the encoder: keeps the system's error, which the encoder would turn into text, and sums up
/// what passes.
pub(crate) struct Tap<W> {
    inner: W,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    error: Option<io::Error>,
    checksum: Checksum,
}

/// The other end of a [`Tap`].
#[derive(Clone)]
pub(crate) struct TapHandle(Arc<Mutex<Seen>>);

impl TapHandle {
    /// The first error, once.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.0.lock().ok().and_then(|mut seen| seen.error.take())
    }

    /// The checksum of the bytes since the last call.
    pub(crate) fn take_checksum(&self) -> u64 {
        match self.0.lock() {
            Ok(mut seen) => std::mem::replace(&mut seen.checksum, Checksum::new()).value(),
            // Only a panic inside the few lines below can poison the lock.
            Err(_) => 0,
        }
    }
}

impl<W: Write> Tap<W> {
    pub(crate) fn new(inner: W) -> (Tap<W>, TapHandle) {
        let seen = Arc::new(Mutex::new(Seen {
            error: None,
            checksum: Checksum::new(),
        }));
        (
            Tap {
                inner,
                seen: seen.clone(),
            },
            TapHandle(seen),
        )
    }

    fn note(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::Interrupted {
            return;
        }
        let copy = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        if let Ok(mut seen) = self.seen.lock() {
            seen.error.get_or_insert(copy);
        }
    }
}

impl<W: Write> Write for Tap<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self
            .inner
            .write(buffer)
            .inspect_err(|error| self.note(error))?;
        if let Ok(mut seen) = self.seen.lock() {
            seen.checksum.add(&buffer[..count]);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().inspect_err(|error| self.note(error))
    }
}
