//! Copies of `/sys/kernel/slab` as a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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
