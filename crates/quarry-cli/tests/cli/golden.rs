//! Replays whose results are checked in, and the layout of outputs. `UPDATE_EXPECT=1 cargo test -p kquarry-cli` writes
//! the files again; a change needs a reason in its commit.

use std::fmt::Write;

use expect_test::expect_file;
use serde_json::Value;

use crate::common::{small_trace, stdout};

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
    let report = stdout(&format!(
        "replay {trace} --json --no-timing --design slub@5.9,slub@6.1,slub@6.18,slubq --cpus 2,64"
    ));
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

/// Compares an output with a file of golden/.
pub(crate) fn check(name: &str, found: &str) {
    let path = format!("{}/tests/cli/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    expect_file![path].assert_eq(found);
}

/// Compares the layout of an output with a file of golden/: words, columns and rows, without simulated times.
pub(crate) fn check_layout(name: &str, found: &str) {
    check(name, &masked(found));
}

/// Numbers become `#`, and the space and the rules around them one sign: no constant of a machine moves what is left.
fn masked(text: &str) -> String {
    let mask = |word: &str| {
        let bare = word.trim_matches(|c: char| "(),;:.".contains(c));
        match bare.parse::<f64>() {
            Ok(_) => word.replace(bare, "#"),
            Err(_) if word.starts_with('─') => "─".to_string(),
            Err(_) => word.to_string(),
        }
    };
    let mut lines = String::new();
    for line in text.lines() {
        let words: Vec<String> = line.split_whitespace().map(mask).collect();
        // Digits come in groups of three.
        let mut words = words.as_slice();
        while let [word, rest @ ..] = words {
            if word != "#" || rest.first().is_none_or(|next| !next.starts_with('#')) {
                lines.push_str(word);
                lines.push(' ');
            }
            words = rest;
        }
        lines.truncate(lines.trim_end_matches(' ').len());
        lines.push('\n');
    }
    lines
}

#[test]
fn a_layout_has_no_numbers() {
    let narrow = " alloc  1.5   (2 %)\n ─────────\n slub@6.18   7";
    let wide = " alloc  11.25 (12 %)\n ───────────\n slub@6.18  700";
    assert_eq!(masked(narrow), masked(wide));
    assert!(masked(narrow).contains("slub@6.18 #"));
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
