//! Copies of `/sys/kernel/slab` as a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

use serde_json::{Map, Value, json};

use crate::file::ReportError;
use crate::sysfs::CacheAttributes;

/// Adds what [`directories`] found to the JSON of a moment.
pub(crate) fn add_directories(moment: &mut Map<String, Value>, (caches, aliases): &Directories) {
    let files = |files: &CacheAttributes| {
        let files = files.iter();
        Value::Object(
            files
                .map(|(file, text)| (file.to_string(), json!(text)))
                .collect(),
        )
    };
    let caches = caches.iter();
    let caches = caches.map(|(name, attributes)| (name.clone(), files(attributes)));
    moment.insert("sysfs_slab".to_string(), Value::Object(caches.collect()));
    moment.insert("sysfs_aliases".to_string(), json!(aliases));
}

/// Attributes by cache, and directories by alias.
pub(crate) type Directories = (BTreeMap<String, CacheAttributes>, BTreeMap<String, String>);

/// The caches of a folder such as `/sys/kernel/slab`; `None` if there is no such folder. Files that
/// cannot be read, as some of sysfs are only to be written, are left out.
pub(crate) fn directories(folder: &Path) -> Option<Result<Directories, ReportError>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(source) => {
            let file = folder.display().to_string();
            return Some(Err(ReportError::Read { file, source }));
        }
    };
    let entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    // Thousands of small files take a kernel longer than all that is done with them.
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = entries.len().div_ceil(threads.min(THREADS)).max(1);
    let parts: Vec<Directories> = thread::scope(|scope| {
        let start = |share| {
            let reader = thread::Builder::new().spawn_scoped(scope, move || read_entries(share));
            (share, reader)
        };
        let readers: Vec<_> = entries.chunks(share).map(start).collect();
        let read = |(share, reader): (_, io::Result<ScopedJoinHandle<'_, _>>)| match reader {
            Ok(reader) => reader.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system makes no more threads.
            Err(_) => read_entries(share),
        };
        readers.into_iter().map(read).collect()
    });
    let (mut caches, mut aliases) = (BTreeMap::new(), BTreeMap::new());
    for (some, others) in parts {
        caches.extend(some);
        aliases.extend(others);
    }
    Some(Ok((caches, aliases)))
}

/// Threads that read at most.
const THREADS: usize = 4;

/// Reads some entries of the folder: caches, and links that are aliases.
fn read_entries(entries: &[PathBuf]) -> Directories {
    let (mut caches, mut aliases) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        let name = entry.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        if let Ok(own) = fs::read_link(entry) {
            let own = own
                .file_name()
                .map(|own| own.to_string_lossy().into_owned());
            aliases.extend(own.map(|own| (name, own)));
            continue;
        }
        let mut attributes = CacheAttributes::default();
        for file in fs::read_dir(entry).into_iter().flatten().flatten() {
            // Something else, a pipe for example, would be waited for.
            if file.file_type().is_ok_and(|kind| kind.is_file())
                && let Ok(text) = fs::read_to_string(file.path())
            {
                attributes.set(&file.file_name().to_string_lossy(), &text);
            }
        }
        caches.insert(name, attributes);
    }
    (caches, aliases)
}
