//! Replays whose results are checked in. `UPDATE_GOLDEN=1 cargo test -p quarry-cli --test cli golden`
//! writes them again; a change needs a reason in its commit.

use std::fmt::Write;
use std::path::Path;

use crate::common::{small_trace, stdout};
use serde_json::Value;

const KEYS: [&str; 13] = [
    "peak_slab_bytes",
    "final_slab_bytes",
    "object_bytes",
    "alloc_fastpath",
    "alloc_slowpath",
    "free_fastpath",
    "free_slowpath",
    "cross_cpu_frees",
    "slabs",
    "partial_slabs",
    "one_object_slabs",
    "page_allocs",
    "page_frees",
];

/// The numbers of every run, a line for each.
fn digest(trace: &str) -> String {
    let report = stdout(&[
        "replay",
        trace,
        "--json",
        "--no-timing",
        "--design",
        "slub@5.9,slub@6.1,slub@6.18,slubq",
        "--cpus",
        "2,64",
    ]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let mut text = format!("trace digest {}\n", report["trace"]["digest"]);
    for run in report["runs"].as_array().unwrap() {
        let part = |key: &str| run[key].to_string().replace('"', "");
        write!(
            text,
            "{}@{} page_size={} cpus={}:",
            part("design"),
            part("era"),
            part("page_size"),
            part("cpus")
        )
        .unwrap();
        for key in KEYS {
            write!(text, " {key}={}", part(key)).unwrap();
        }
        text.push('\n');
    }
    text
}

pub(crate) fn check(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
}

#[test]
fn a_small_trace() {
    let dir = tempfile::tempdir().unwrap();
    check("small.txt", &digest(&small_trace(dir.path())));
}

#[test]
fn bundled_recordings() {
    for name in ["hackbench", "kv", "tbench"] {
        check(&format!("{name}.txt"), &digest(name));
    }
}
