//! Recordings of real kernels, which are not part of the repository.

use std::path::{Path, PathBuf};

use quarry_lab::kernel::read_report;

/// The folder with the recordings: `$QUARRY_SHARED/groundtruth`.
pub(crate) fn folder() -> PathBuf {
    let shared = std::env::var_os("QUARRY_SHARED").expect("the folder with groundtruth/");
    PathBuf::from(shared).join("groundtruth")
}

/// The recordings that are snapshots, by name.
pub(crate) fn kernels() -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut kernels: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".json.gz")?;
            (!name.ends_with(".meta")).then(|| (name.to_string(), path.clone()))
        })
        .collect();
    assert!(
        !kernels.is_empty(),
        "no snapshots in {}",
        folder().display()
    );
    // Kernels with SLUB tell what caches were asked to be: they come before the one with SLAB.
    kernels.sort_by_key(|(name, _)| (name.contains("-slab-"), name.clone()));
    kernels
}

/// The stages of a recording; one without a name if it has none.
pub(crate) fn stages(path: &Path) -> Vec<Option<String>> {
    let value: serde_json::Value = serde_json::from_str(&read_report(path).unwrap()).unwrap();
    match value["stages"].as_object() {
        Some(stages) => stages.keys().map(|name| Some(name.clone())).collect(),
        None => vec![None],
    }
}
