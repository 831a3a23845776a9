//! Snapshots as a folder: copies of `/proc/slabinfo` and `/sys/kernel/slab`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::file::{ReportError, read_report};
use crate::slabinfo::Slabinfo;
use crate::sysfs::CacheAttributes;

/// Files beside the caches, each with the name of its JSON key.
const META: [&str; 7] = [
    "page_size",
    "cpu_possible",
    "cpu_present",
    "kernel_release",
    "meminfo",
    "cmdline",
    "boot_id",
];

/// The folder as JSON of one moment.
pub(super) fn read(folder: &Path) -> Result<Map<String, Value>, ReportError> {
    let file = folder.display().to_string();
    let bad = |what: String| ReportError::bad(&file, "snapshot", what);
    let slabinfo = folder.join("slabinfo");
    if !slabinfo.is_file() {
        return Err(bad(
            "a folder with slabinfo (a copy of /proc/slabinfo) and slab/ (a copy of \
             /sys/kernel/slab) is expected"
                .to_string(),
        ));
    }
    let mut moment = meta(folder)?;
    moment.insert("slabinfo".to_string(), json!(Slabinfo::read(&slabinfo)?));
    if let Some(found) = directories(&folder.join("slab")) {
        add_directories(&mut moment, &found?);
    }
    Ok(moment)
}

/// Adds what [`directories`] found to the JSON of a moment.
pub(super) fn add_directories(moment: &mut Map<String, Value>, (caches, aliases): &Directories) {
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

/// `meta.json`, and over it the files.
fn meta(folder: &Path) -> Result<Map<String, Value>, ReportError> {
    let path = folder.join("meta.json");
    let mut meta = Map::new();
    if path.is_file() {
        let file = path.display().to_string();
        meta = serde_json::from_str(&read_report(&path)?)
            .map_err(|error| ReportError::bad(&file, format!("line {}", error.line()), error))?;
    }
    for name in META {
        let path = folder.join(name);
        if path.is_file() {
            meta.insert(name.to_string(), Value::String(read_report(&path)?));
        }
    }
    Ok(meta)
}

/// Attributes by cache, and directories by alias.
pub(super) type Directories = (BTreeMap<String, CacheAttributes>, BTreeMap<String, String>);

/// The caches of a folder such as `/sys/kernel/slab`; `None` if there is no such folder. Files that
/// cannot be read, as some of sysfs are only to be written, are left out.
pub(super) fn directories(folder: &Path) -> Option<Result<Directories, ReportError>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(source) => {
            let file = folder.display().to_string();
            return Some(Err(ReportError::Read { file, source }));
        }
    };
    let (mut caches, mut aliases) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Ok(own) = fs::read_link(entry.path()) {
            let own = own
                .file_name()
                .map(|own| own.to_string_lossy().into_owned());
            aliases.extend(own.map(|own| (name, own)));
            continue;
        }
        let mut attributes = CacheAttributes::default();
        for file in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            // Something else, a pipe for example, would be waited for.
            if file.file_type().is_ok_and(|kind| kind.is_file())
                && let Ok(text) = fs::read_to_string(file.path())
            {
                attributes.set(&file.file_name().to_string_lossy(), &text);
            }
        }
        caches.insert(name, attributes);
    }
    Some(Ok((caches, aliases)))
}
