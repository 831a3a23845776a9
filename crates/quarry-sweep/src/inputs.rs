//! The inputs of a plan: which files its names and patterns mean, and what is in them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use quarry_lab::ask::Source;
use quarry_lab::bundled::Bundled;
use quarry_snapshot::Snapshot;
use quarry_trace::TraceFile;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::SweepError;

/// An input with all that a sweep plans by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Input {
    /// Name or path, as rows have it.
    pub name: String,
    /// SHA-256 of its content, the first 128 bits in hexadecimal digits; of a folder that of all that is
    /// read of it, through links and with the names of aliases.
    pub digest: String,
    /// Events of a trace; 0 of a snapshot.
    pub events: u64,
    /// Objects and page blocks of a trace that can be alive at once; 0 of a snapshot.
    pub slots: u64,
}

impl Input {
    /// Examines a file or a folder, or the bundled recording of this name. An input that cannot be read has a digest of its
    /// own, and fails when it is asked.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let path = Path::new(name);
        let file = match bundled(name) {
            Some(bundled) => bundled.open().ok(),
            None if Source::is_snapshot(path) => None,
            None => TraceFile::open(path).ok(),
        };
        let meta = file.as_ref().map(TraceFile::meta);
        Self {
            name: name.to_string(),
            digest: digest(name),
            events: meta.map_or(0, |meta| meta.rows),
            slots: meta.map_or(0, |meta| {
                u64::from(meta.object_slots) + u64::from(meta.page_slots)
            }),
        }
    }

    /// The input of a question that has none; its name stands in the rows.
    pub(crate) fn none(name: &str) -> Self {
        Self {
            name: name.to_string(),
            digest: hex(Sha256::digest("")),
            events: 0,
            slots: 0,
        }
    }

    /// True for a recording.
    #[must_use]
    pub fn is_trace(&self) -> bool {
        self.events > 0
    }
}

/// Inputs without those of the same content, and the names of the others by the first of each.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// One of each content, in the plan's order.
    pub all: Vec<Arc<Input>>,
    /// Names whose content is that of an earlier input, with that input's name.
    pub same: Vec<(String, String)>,
}

impl Inputs {
    /// Leaves out inputs whose content others have.
    #[must_use]
    pub fn of(found: Vec<Input>) -> Self {
        let mut inputs = Self::default();
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        for input in found {
            match first.get(&input.digest) {
                Some(name) if *name == input.name => {}
                Some(name) => inputs.same.push((input.name, name.clone())),
                None => {
                    first.insert(input.digest.clone(), input.name.clone());
                    inputs.all.push(Arc::new(input));
                }
            }
        }
        inputs
    }
}

/// The names of files and folders that a plan's inputs mean: patterns are filled in, and a folder that is no snapshot
/// stands for all that is in it. Sorted within each of the plan's inputs.
///
/// # Errors
///
/// [`SweepError::Usage`] if a pattern or a folder has nothing, or a name does not exist.
pub fn input_names(inputs: &[String]) -> Result<Vec<String>, SweepError> {
    let mut names = Vec::new();
    for text in inputs {
        let path = Path::new(text);
        if path.is_dir() {
            names.extend(of_folder(path)?);
        } else if path.exists() || Bundled::find(text).is_some() {
            names.push(text.clone());
        } else if text.contains(['*', '?', '[']) {
            names.extend(of_pattern(text)?);
        } else {
            return Err(SweepError::Usage(format!(
                "input {text:?}: there is no such file or folder"
            )));
        }
    }
    Ok(names)
}

fn of_pattern(pattern: &str) -> Result<Vec<String>, SweepError> {
    let wrong = |problem: String| SweepError::Usage(format!("input {pattern:?}: {problem}"));
    let paths = glob::glob(pattern).map_err(|error| wrong(error.to_string()))?;
    let mut names = Vec::new();
    for path in paths {
        names.push(
            path.map_err(|error| wrong(error.to_string()))?
                .display()
                .to_string(),
        );
    }
    match names.is_empty() {
        true => Err(wrong("no file has such a name".to_string())),
        false => Ok(names),
    }
}

/// Entries of a folder that make it one machine's, whatever else is in it.
const OF_ONE: [&str; 3] = ["slabinfo", "proc", "sos_commands"];

fn of_folder(path: &Path) -> Result<Vec<String>, SweepError> {
    let shown = path.display().to_string();
    let failed = |error: io::Error| SweepError::Input {
        name: shown.clone(),
        problem: error.to_string(),
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            names.push(entry.path().display().to_string());
        }
    }
    names.sort();
    if names.is_empty() {
        return Err(SweepError::Usage(format!(
            "input {shown:?}: the folder is empty"
        )));
    }
    // A reader looks for a report in all of a folder, and finds that of one host among many.
    let is_one = || OF_ONE.iter().any(|name| path.join(name).exists());
    let is_host = |name: &&String| Snapshot::read(Path::new(name), None).is_ok();
    let are_many = || names.iter().filter(is_host).nth(1).is_some();
    match Snapshot::read(path, None).is_ok() && (is_one() || !are_many()) {
        true => Ok(vec![shown]),
        false => Ok(names),
    }
}

/// The bundled recording of this name, unless a file has it.
fn bundled(name: &str) -> Option<&'static Bundled> {
    Bundled::find(name).filter(|_| !Path::new(name).exists())
}

/// Digest of bytes, as [`Input::digest`] of a file that has them.
#[must_use]
pub fn bytes_digest(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}

/// Digest of an input, as [`Input::digest`].
#[must_use]
pub fn digest(name: &str) -> String {
    let path = Path::new(name);
    let of_content = match bundled(name) {
        Some(bundled) => return bytes_digest(bundled.bytes),
        None if path.is_dir() => Snapshot::content(path)
            .map(|content| bytes_digest(content.as_bytes()))
            .map_err(|error| error.to_string()),
        None => file_digest(path).map_err(|error| error.to_string()),
    };
    of_content.unwrap_or_else(|error| bytes_digest(format!("{name}: {error}").as_bytes()))
}

fn file_digest(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(hash.finalize())),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The first 128 bits of a hash in hexadecimal digits.
pub(crate) fn hex(hash: impl AsRef<[u8]>) -> String {
    use std::fmt::Write;
    let bytes = hash.as_ref().iter().take(16);
    bytes.fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_are_files_folders_and_patterns() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        for name in ["b.json", "a.json", "c.txt"] {
            fs::write(base.join(name), name).unwrap();
        }
        fs::create_dir(base.join("many")).unwrap();
        fs::write(base.join("many/x"), "x").unwrap();
        fs::write(base.join("many/.hidden"), "x").unwrap();
        fs::create_dir(base.join("empty")).unwrap();
        let found = |inputs: &[&str]| {
            let is_bundled = |name: &str| Bundled::find(name).is_some();
            let of = |name: &&str| match is_bundled(name) {
                true => name.to_string(),
                false => base.join(name).display().to_string(),
            };
            let inputs: Vec<String> = inputs.iter().map(of).collect();
            let names = input_names(&inputs).map_err(|error| error.to_string())?;
            let short = |name: &String| {
                let path = Path::new(name);
                path.strip_prefix(base)
                    .unwrap_or(path)
                    .display()
                    .to_string()
            };
            Ok::<Vec<String>, String>(names.iter().map(short).collect())
        };
        assert_eq!(
            found(&["*.json", "c.txt"]).unwrap(),
            ["a.json", "b.json", "c.txt"]
        );
        assert_eq!(found(&["many", "kv"]).unwrap(), ["many/x", "kv"]);
        for (name, part) in [
            ("*.xz", "no file has such a name"),
            ("nothing", "there is no such file or folder"),
            ("empty", "the folder is empty"),
            ("[", "input"),
        ] {
            let error = found(&[name]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn content_decides() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("a"), "slabinfo - version: 2.1\n").unwrap();
        fs::write(path("b"), "slabinfo - version: 2.1\n").unwrap();
        fs::write(path("c"), "slabinfo - version: 2.0\n").unwrap();
        let all = ["a", "b", "c"].map(|name| Input::of(&path(name)));
        let inputs = Inputs::of(all.to_vec());
        assert_eq!(inputs.all.len(), 2);
        assert_eq!(inputs.same, [(path("b"), path("a"))]);
        let kv = Input::of("kv");
        assert!(kv.is_trace() && kv.slots > 0);
        let gone = ["gone", "away"].map(|name| Input::of(&path(name)));
        assert_eq!(Inputs::of(gone.to_vec()).all.len(), 2);
    }

    #[test]
    fn a_folder_is_what_is_read_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let slabinfo = |objects: u32| {
            let row =
                format!("kmalloc-64 {objects} 640 64 64 1 : tunables 0 0 0 : slabdata 10 10 0");
            format!("slabinfo - version: 2.1\n{row}\n")
        };
        for (name, objects) in [("one", 600), ("two", 630), ("copy", 600)] {
            fs::write(at(name), slabinfo(objects)).unwrap();
            let host = at(&format!("host-{name}"));
            fs::create_dir_all(host.join("slab/:0000064")).unwrap();
            symlink(at(name), host.join("slabinfo")).unwrap();
            symlink(":0000064", host.join("slab/kmalloc-64")).unwrap();
        }
        let digest = |name: &str| Input::of(&at(name).display().to_string()).digest;
        let all = ["host-one", "host-two", "host-copy"].map(digest);
        assert_ne!(all[0], all[1], "links to different files");
        assert_eq!(all[0], all[2], "one content at two places");
        fs::write(at("copy"), slabinfo(601)).unwrap();
        assert_ne!(digest("host-copy"), all[0], "the target has changed");
        // A file that is not read is of no account; the directory that an alias names is.
        fs::write(at("host-one/notes"), "").unwrap();
        assert_eq!(digest("host-one"), all[0]);
        let alias = at("host-one/slab/kmalloc-64");
        fs::remove_file(&alias).unwrap();
        symlink(":a-0000064", &alias).unwrap();
        assert_ne!(digest("host-one"), all[0], "another alias");
    }
}
