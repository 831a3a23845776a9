//! Recordings of real kernels, which are not part of the repository.

use std::path::{Path, PathBuf};

use quarry_lab::kernel::read_report;

/// The folder with the recordings: `$QUARRY_SHARED/groundtruth`, or the same beside the repository.
pub(crate) fn folder() -> PathBuf {
    let shared = std::env::var_os("QUARRY_SHARED").map_or_else(
        || {
            let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
            let beside = manifest.ancestors().map(|up| up.join("shared"));
            let found = beside.into_iter().find(|shared| shared.is_dir());
            found.unwrap_or_else(|| manifest.join("../../../shared"))
        },
        PathBuf::from,
    );
    shared.join("groundtruth")
}

/// The recordings that are snapshots, by name; none if the folder is not there.
pub(crate) fn kernels() -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder()).into_iter().flatten().flatten();
    let mut kernels: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".json.gz")?;
            (!name.ends_with(".meta")).then(|| (name.to_string(), path.clone()))
        })
        .collect();
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
