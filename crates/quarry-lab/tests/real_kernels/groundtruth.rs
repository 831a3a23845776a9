//! Recordings of real kernels, which are not part of the repository.
//!
//! `QUARRY_SHARED` names the folder that holds `groundtruth/`; `cargo xtask recordings` sets it.

use std::path::{Path, PathBuf};

use quarry_designs::DesignSpec;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::{Plan, RunReport};
use quarry_snapshot::read_report;
use quarry_trace::{ImportOptions, import_file};

/// The folder with the recordings: `$QUARRY_SHARED/groundtruth`.
pub(crate) fn folder() -> PathBuf {
    let shared = std::env::var_os("QUARRY_SHARED").expect("the folder with groundtruth/");
    PathBuf::from(shared).join("groundtruth")
}

/// Imports a recording's text and replays it on designs, on a machine like the recorded one.
pub(crate) fn replay(
    file: &str,
    designs: &[&str],
    page_bytes: u64,
    cpus: u32,
) -> (Input, Vec<RunReport>) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("recording.parquet");
    let options = ImportOptions {
        page_size: Some(page_bytes as u32),
        ..ImportOptions::default()
    };
    import_file(&folder().join(file), &trace, &options, &mut |_| ()).unwrap();
    let input = Input::open(trace.to_str().unwrap()).unwrap();
    let designs = designs.iter().map(|text| DesignSpec::parse(text).unwrap());
    let axes = Axes {
        designs: designs.collect(),
        page_bytes: vec![page_bytes],
        cpus: vec![cpus],
        memory_bytes: 2 << 30,
        ..Axes::default()
    };
    let runs = Plan::new(&axes).unwrap().execute(&input, 1, &|_| ());
    (input, runs.unwrap())
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
