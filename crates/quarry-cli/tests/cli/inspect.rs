//! `quarry replay --inspect`: slabinfo and sysfs files of a replay.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{assert_fails, quarry, small_trace, stdout};
use crate::golden::check;

/// Replays a small trace on both designs; the report.
fn replay(dir: &Path, cpus: &str) -> (Value, String) {
    let trace = small_trace(dir);
    let files = dir.join("files").to_str().unwrap().to_string();
    let report = stdout(&format!(
        "replay {trace} --json --no-timing --design slub@5.9,slub@6.18,slubq --page-size 4k,64k --cpus {cpus} --inspect {files}"
    ));
    (serde_json::from_str(&report).unwrap(), files)
}

fn folder(run: &Value) -> String {
    let text = |key: &str| run[key].as_str().unwrap();
    format!(
        "{}@{}-{}k-{}",
        text("design"),
        text("era"),
        run["page_size"].as_u64().unwrap() >> 10,
        run["cpus"]
    )
}

/// The first number of an attribute.
fn number(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    let end = text.find([' ', '(', '\n']).unwrap();
    text[..end].parse().unwrap()
}

#[test]
fn files_add_up_to_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let (report, files) = replay(dir.path(), "2,64");
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 12);
    for run in runs {
        let folder = Path::new(&files).join(folder(run));
        let text = fs::read_to_string(folder.join("slabinfo")).unwrap();
        let bytes: u64 = text
            .lines()
            .skip(2)
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let number = |at: usize| words[at].parse::<u64>().unwrap();
                number(5) * number(14) * run["page_size"].as_u64().unwrap()
            })
            .sum();
        assert_eq!(bytes, run["final_slab_bytes"].as_u64().unwrap());
        let caches: Vec<_> = fs::read_dir(folder.join("slab"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(caches.len(), text.lines().count() - 2);
        for (attribute, key) in [
            ("slabs", "slabs"),
            ("alloc_fastpath", "alloc_fastpath"),
            ("alloc_slowpath", "alloc_slowpath"),
            ("free_fastpath", "free_fastpath"),
            ("free_slowpath", "free_slowpath"),
        ] {
            let sum: u64 = caches
                .iter()
                .map(|cache| number(&cache.join(attribute)))
                .sum();
            assert_eq!(sum, run[key].as_u64().unwrap(), "{key} in {folder:?}");
        }
        let slabs = run["stats"]["alloc_slab"].as_u64().unwrap();
        let made: u64 = caches
            .iter()
            .map(|cache| number(&cache.join("alloc_slab")))
            .sum();
        assert_eq!(made, slabs);
    }
}

/// Reads of the files as monitoring scripts do them, by tool.
#[test]
fn awk_reads_slabinfo() {
    let dir = tempfile::tempdir().unwrap();
    let (report, files) = replay(dir.path(), "2");
    let run = &report["runs"][0];
    let slabinfo = Path::new(&files).join(folder(run)).join("slabinfo");
    let sum = "FNR > 2 { bytes += $(NF - 1) * $6 * 4096 } END { print bytes }";
    let output = Command::new("awk").arg(sum).arg(&slabinfo).output();
    let output = output.expect("awk, which every Debian has");
    let bytes = String::from_utf8(output.stdout).unwrap();
    assert_eq!(bytes.trim(), run["final_slab_bytes"].to_string());
}

#[test]
fn files_are_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let (report, files) = replay(dir.path(), "2");
    let mut text = String::new();
    for run in report["runs"].as_array().unwrap() {
        if run["page_size"] != 4096 {
            continue;
        }
        let folder = Path::new(&files).join(folder(run));
        let name = folder.file_name().unwrap().to_str().unwrap();
        let slabinfo = fs::read_to_string(folder.join("slabinfo")).unwrap();
        write!(text, "{name}/slabinfo\n{slabinfo}").unwrap();
        let cache = folder.join("slab/filp");
        let mut attributes: Vec<_> = fs::read_dir(&cache)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        attributes.sort();
        writeln!(text, "{name}/slab/filp").unwrap();
        for attribute in attributes {
            let value = fs::read_to_string(cache.join(&attribute)).unwrap();
            writeln!(text, "{attribute}: {}", value.trim_end_matches('\n')).unwrap();
        }
    }
    let text: Vec<&str> = text.lines().map(str::trim_end).collect();
    check("inspect.txt", &(text.join("\n") + "\n"));
}

/// The texts about pages after a replay: free pages and those in slabs add up to all pages.
#[test]
fn page_files_are_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let (report, files) = replay(dir.path(), "2");
    let mut text = String::new();
    for run in report["runs"].as_array().unwrap() {
        if run["design"] != "slub" {
            continue;
        }
        let folder = Path::new(&files).join(folder(run));
        let name = folder.file_name().unwrap().to_str().unwrap();
        for file in ["buddyinfo", "pagetypeinfo", "zoneinfo", "vmstat"] {
            let found = fs::read_to_string(folder.join(file)).unwrap();
            write!(text, "{name}/{file}\n{found}").unwrap();
        }
        let sysctls = folder.join("sys/vm");
        let mut names: Vec<_> = fs::read_dir(&sysctls)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        for sysctl in names {
            let value = fs::read_to_string(sysctls.join(&sysctl)).unwrap();
            write!(text, "{name}/sys/vm/{sysctl}\n{value}").unwrap();
        }
    }
    let text: Vec<&str> = text.lines().map(str::trim_end).collect();
    check("page_files.txt", &(text.join("\n") + "\n"));
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let files = dir.path().join("files").to_str().unwrap().to_string();
    let run = |cpus: &str, into: &str| {
        let args = format!("--page-size 4k --cpus {cpus}");
        let design = if cpus.contains("--design") {
            ""
        } else {
            "--design slub"
        };
        quarry(&format!("replay {trace} --inspect {into} {args} {design}"))
    };
    // An empty folder is taken.
    fs::create_dir_all(Path::new(&files).join("slub@6.17-4k-2")).unwrap();
    assert!(run("2", &files).status.success());
    assert_fails(
        &run("2", &files),
        2,
        &["slub@6.17-4k-2: the output exists; replace it with --force"],
    );
    let stale = Path::new(&files).join("slub@6.17-4k-2/stale");
    fs::write(&stale, "").unwrap();
    assert!(run("2 --force", &files).status.success());
    assert!(!stale.exists());
    assert!(run("4", &files).status.success());
    assert_fails(
        &run("8 --design slub,slub@6.17", &files),
        2,
        &["two runs would write to", "slub@6.17-4k-8"],
    );
    assert_fails(&run("2", &trace), 1, &["cannot write"]);
}
