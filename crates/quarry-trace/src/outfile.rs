//! Files and folders that appear only when they are complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::{Result, TraceError};
use crate::schema::Checksum;

/// Mark between the target's name and the numbers, in the name of an unfinished output.
const MARK: &str = ".quarry-";
/// End of such a name.
const PART: &str = ".part";

/// The fate of a file that has the name of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the output is refused ([`TraceError::OutputExists`]).
    #[default]
    Keep,
    /// The complete output takes its place.
    Replace,
}

/// An output that is written next to its target under a temporary name: [`OutFile::commit`] renames it, dropping
/// removes it.
///
/// ```
/// use quarry_trace::{Existing, OutFile};
/// use std::io::Write;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("page.html");
/// let mut out = OutFile::create(&path, Existing::Keep)?;
/// out.file().write_all(b"<p>done</p>")?;
/// assert!(!path.exists());
/// out.commit()?;
/// assert!(path.exists() && OutFile::create(&path, Existing::Keep).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OutFile {
    target: PathBuf,
    temporary: PathBuf,
    file: File,
    committed: bool,
}

impl OutFile {
    /// Opens the temporary file. An existing target stays as it is until [`OutFile::commit`].
    ///
    /// # Errors
    /// If the target exists and is to be kept, or is no regular file, or the temporary file cannot be made.
    pub fn create(path: &Path, existing: Existing) -> Result<OutFile> {
        if let Ok(target) = target(path, existing) {
            remove_stale(&target);
        }
        Self::create_among(path, existing)
    }

    /// The same, but parts that dead writers left beside it stay: listing a folder of thousands of outputs for each of them
    /// takes long, and its first output has removed them.
    ///
    /// # Errors
    /// As [`OutFile::create`].
    pub fn create_among(path: &Path, existing: Existing) -> Result<OutFile> {
        let failed = |source| TraceError::Write {
            path: path.to_path_buf(),
            source,
        };
        let target = target(path, existing)?;
        let Some(name) = target.file_name() else {
            return Err(TraceError::OutputNotFile {
                path: path.to_path_buf(),
            });
        };
        for attempt in 0..100_u32 {
            let temporary = target.with_file_name(part_name(name, attempt));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&temporary)
            {
                Ok(file) if is_kept(&file, &temporary) => {
                    register(&temporary);
                    return Ok(OutFile {
                        target,
                        temporary,
                        file,
                        committed: false,
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "every temporary name beside it is taken",
        )))
    }

    /// The temporary file.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// A second handle to the temporary file, for the encoder.
    pub(crate) fn handle(&self) -> Result<File> {
        self.file.try_clone().map_err(|source| TraceError::Write {
            path: self.target.clone(),
            source,
        })
    }

    /// Makes the file appear under its name, and gives its length.
    ///
    /// # Errors
    /// If the disk is full or the file cannot be renamed.
    pub fn commit(mut self) -> Result<u64> {
        let failed = |source| TraceError::Write {
            path: self.target.clone(),
            source,
        };
        // Some file systems report a full disk only here.
        self.file.sync_all().map_err(failed)?;
        let length = self.file.metadata().map_err(failed)?.len();
        fs::rename(&self.temporary, &self.target).map_err(failed)?;
        self.committed = true;
        unregister(&self.temporary);
        Ok(length)
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing can be done about a failure here, and the error that led here is the one to report.
            let _ = fs::remove_file(&self.temporary);
            unregister(&self.temporary);
        }
    }
}

/// A folder of files that is written next to its target under a temporary name, as an [`OutFile`] is.
#[derive(Debug)]
pub struct OutFolder {
    target: PathBuf,
    temporary: PathBuf,
    committed: bool,
}

impl OutFolder {
    /// Makes the temporary folder, and those above it. An empty target is as good as none.
    ///
    /// # Errors
    /// If the target has something in it and is to be kept, or is no folder, or the temporary one cannot be made.
    pub fn create(target: &Path, existing: Existing) -> Result<OutFolder> {
        let failed = |source| TraceError::Write {
            path: target.to_path_buf(),
            source,
        };
        match fs::read_dir(target).map(|mut entries| entries.next().is_some()) {
            Ok(true) if existing == Existing::Keep => {
                return Err(TraceError::OutputExists {
                    path: target.to_path_buf(),
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let Some(name) = target.file_name() else {
            return Err(failed(io::ErrorKind::InvalidFilename.into()));
        };
        let temporary = target.with_file_name(part_name(name, 0));
        // One of a process that had this number before.
        let _ = fs::remove_dir_all(&temporary);
        fs::create_dir_all(&temporary).map_err(failed)?;
        register(&temporary);
        Ok(OutFolder {
            target: target.to_path_buf(),
            temporary,
            committed: false,
        })
    }

    /// The temporary folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Makes the folder appear under its name, in the place of the one that had it.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn commit(mut self) -> Result<()> {
        let failed = |source| TraceError::Write {
            path: self.target.clone(),
            source,
        };
        // Takes the place of an empty folder, too.
        match fs::rename(&self.temporary, &self.target) {
            Ok(()) => self.committed = true,
            // The other one goes when this is dropped.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                let (own, other) = (&self.temporary, &self.target);
                renameat_with(CWD, own, CWD, other, RenameFlags::EXCHANGE)
                    .map_err(|error| failed(error.into()))?;
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }
}

impl Drop for OutFolder {
    fn drop(&mut self) {
        if !self.committed {
            let _ = fs::remove_dir_all(&self.temporary);
        }
        unregister(&self.temporary);
    }
}

/// The file that an output becomes.
fn target(path: &Path, existing: Existing) -> Result<PathBuf> {
    let failed = |source| TraceError::Write {
        path: path.to_path_buf(),
        source,
    };
    // Through a symbolic link, what it points to is replaced and the link stays.
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(TraceError::OutputNotFile {
            path: path.to_path_buf(),
        }),
        Ok(_) if existing == Existing::Keep => Err(TraceError::OutputExists {
            path: path.to_path_buf(),
        }),
        Ok(_) => fs::canonicalize(path).map_err(failed),
        Err(_) => Ok(path.to_path_buf()),
    }
}

/// Name of an output's part: `.NAME.quarry-HOST-PID-N.part`.
fn part_name(name: &OsStr, attempt: u32) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    let (host, process) = (host_name().unwrap_or_default(), std::process::id());
    hidden.push(format!("{MARK}{host}-{process}-{attempt}{PART}"));
    hidden
}

/// The name of this computer.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_string())
}

/// Parts of this process that are not complete.
static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn register(part: &Path) {
    if let Ok(mut parts) = PARTS.lock() {
        parts.push(part.to_path_buf());
    }
}

fn unregister(part: &Path) {
    if let Ok(mut parts) = PARTS.lock() {
        parts.retain(|other| other != part);
    }
}

/// Removes what this process has written of outputs that are not complete, for a program that is about to
/// end by a signal. Outputs under way fail from then on.
pub fn remove_unfinished_outputs() {
    let parts = PARTS.lock().map(|mut parts| std::mem::take(&mut *parts));
    for part in parts.unwrap_or_default() {
        // The process ends: nothing can be done about a failure here.
        let _ = match part.is_dir() {
            true => fs::remove_dir_all(part),
            false => fs::remove_file(part),
        };
    }
}

/// Locks a part that was just made, for as long as its file is open. False if another process took it
/// for a stale one in between and removed it.
fn is_kept(file: &File, path: &Path) -> bool {
    // A file system without locks has no stale parts removed, either.
    let _ = file.lock();
    is_named(file, path)
}

/// True if the file is the one of this name.
fn is_named(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(own), Ok(named)) => (own.dev(), own.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Removes the parts beside `target` whose processes on this computer have ended: a living one holds a lock on its own,
/// which ends with it however it ends. Of another computer's process nothing is known: a file system that both have need not
/// show its locks here. Failures are passed over, as these are others' files.
fn remove_stale(target: &Path) {
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let host = host_name().unwrap_or_default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|found| found.is_file());
        if !is_file || !is_part(&entry.file_name(), &host) {
            continue;
        }
        let Ok(part) = OpenOptions::new().write(true).open(entry.path()) else {
            continue;
        };
        if part.try_lock().is_ok() && is_named(&part, &entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
        // The lock ends after the removal: a writer that has just made this part waits for it, and then sees that the part
        // has gone.
        drop(part);
    }
}

/// True if the name is that of an unfinished output of this host: `.NAME.quarry-HOST-PID-N.part`.
fn is_part(name: &OsStr, host: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = name.to_string_lossy();
    let middle = name
        .strip_prefix('.')
        .and_then(|name| name.strip_suffix(PART));
    let writer = middle.and_then(|name| name.rsplit_once(MARK));
    let numbers = writer.and_then(|(_, writer)| writer.strip_prefix(host)?.strip_prefix('-'));
    numbers
        .and_then(|numbers| numbers.split_once('-'))
        .is_some_and(|(process, attempt)| digits(process) && digits(attempt))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let host = host_name().unwrap();
        let parts = entries.filter(|entry| is_part(&entry.file_name(), &host));
        parts.count()
    }

    #[test]
    fn only_parts_without_a_living_writer_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let host = host_name().unwrap();
        let stale = format!(".other.parquet.quarry-{host}-1-0.part");
        let stale = folder.path().join(stale);
        fs::write(&stale, "left behind").unwrap();
        // The last one's writer may live, with a lock that this computer does not see.
        let named = [
            ".mine.part",
            "a.quarry-HOST-1-0.part",
            ".a.quarry-HOST-x-0.part",
        ];
        let named = named.map(|name| name.replace("HOST", &host));
        let elsewhere = format!(".a.quarry-not-{host}-1-0.part");
        for name in named.iter().chain([&elsewhere]) {
            fs::write(folder.path().join(name), "not ours").unwrap();
        }
        let first = OutFile::create(&folder.path().join("t.parquet"), Existing::Keep).unwrap();
        assert!(!stale.exists());
        // A lock belongs to an open file, so the same process finds its own taken.
        let second = OutFile::create(&folder.path().join("t.parquet"), Existing::Keep).unwrap();
        assert_eq!(parts(folder.path()), 2);
        first.commit().unwrap();
        drop(second);
        assert_eq!(parts(folder.path()), 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn writers_of_one_folder_do_not_take_each_others_parts() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let folder = folder.path();
                scope.spawn(move || {
                    for turn in 0..500 {
                        let path = folder.join(format!("{writer}-{}", turn % 2));
                        let mut out = OutFile::create(&path, Existing::Replace).unwrap();
                        out.file().write_all(b"x").unwrap();
                        // The file system's own time for a commit is not what this is about.
                        fs::rename(&out.temporary, &out.target).unwrap();
                        out.committed = true;
                        unregister(&out.temporary);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 8);
    }

    #[test]
    fn what_exists_is_kept_unless_it_is_to_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "mine").unwrap();
        let kept = OutFile::create(&path, Existing::Keep).unwrap_err();
        assert!(kept.to_string().contains("--force"), "{kept}");
        let mut out = OutFile::create(&path, Existing::Replace).unwrap();
        out.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(out.commit().unwrap(), 3);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_folder_appears_whole() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a/b");
        let write = |existing, name: &str| {
            let out = OutFolder::create(&target, existing)?;
            fs::write(out.path().join(name), name).unwrap();
            assert!(!target.join(name).exists());
            Ok::<_, TraceError>(out)
        };
        drop(write(Existing::Keep, "first").unwrap());
        assert!(!target.exists());
        write(Existing::Keep, "first").unwrap().commit().unwrap();
        assert!(target.join("first").exists());
        write(Existing::Keep, "second").unwrap_err();
        write(Existing::Replace, "second")
            .unwrap()
            .commit()
            .unwrap();
        let names = fs::read_dir(folder.path().join("a")).unwrap().count();
        assert_eq!((names, fs::read_dir(&target).unwrap().count()), (1, 1));
        assert!(target.join("second").exists());
    }
}
