//! Folders with the seeds of the targets.

/// A target's folders below the repository's root: inputs in which it found something, and data of tests.
pub fn folders(target: &str) -> Vec<String> {
    let data: &[&str] = match target {
        "snapshot" => &["forms"],
        "zoneinfo" => &[
            "4.18-x86_64-4k",
            "6.1-ppc64el-64k",
            "6.1-x86_64-4k",
            "6.18-x86_64-4k",
        ],
        _ => &[],
    };
    let data = data
        .iter()
        .map(|folder| format!("crates/quarry-snapshot/tests/data/{folder}"));
    std::iter::once(format!("fuzz/seeds/{target}"))
        .chain(data)
        .collect()
}
