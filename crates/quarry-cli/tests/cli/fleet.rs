//! Checks of `docs/fleet.md`: the scripts for Slurm and GNU parallel, `--status`, and a full disk.
//! `python/tests/test_fleet.py` checks the job of Kubernetes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::{assert_has, text};
use crate::sweep::{hosts, in_folder, results};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap()
}

/// Runs a script with the command in its path.
fn shell(folder: &Path, script: &str, variables: &[(&str, &str)]) -> Output {
    let quarry = Path::new(env!("CARGO_BIN_EXE_quarry")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    Command::new("bash")
        .args(["-eu", "-c", script])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", quarry.display()))
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// The same with file systems of its own: by `unshare`, root mounts what no other process sees.
pub(crate) fn with_file_systems(folder: &Path, script: &str) -> Output {
    shell(
        folder,
        "exec unshare -m bash -uc \"$script\"",
        &[("script", script)],
    )
}

/// A plan over the hosts, and the rows that one process makes of it in `whole`.
fn planned(folder: &Path) -> Vec<u8> {
    let plan =
        "input = \"hosts/*.gz\"\nrelease = [\"6.12\", \"7.3\"]\npage-size = [\"4k\", \"64k\"]\n";
    fs::write(folder.join("plan.toml"), plan).unwrap();
    text(&in_folder(folder, "sweep plan.toml -o whole"));
    results(folder, "whole")
}

/// The tasks of the array are the parts of the sweep, and each runs as Slurm starts it.
#[test]
fn a_job_array_of_slurm_runs_all_parts() {
    let script = page("fleet/sweep.sbatch");
    let syntax = Command::new("bash")
        .arg("-n")
        .arg(docs().join("fleet/sweep.sbatch"))
        .output()
        .unwrap();
    assert!(syntax.status.success(), "{syntax:?}");
    let options: BTreeMap<&str, &str> = script
        .lines()
        .filter_map(|line| line.strip_prefix("#SBATCH --")?.split_once('='))
        .collect();
    let (first, last) = options["array"].split_once('-').unwrap();
    let last: usize = last.parse().unwrap();
    assert_eq!(first, "0");
    assert_has(&script, &[&format!("$SLURM_ARRAY_TASK_ID/{}\"", last + 1)]);
    // The command's own bound stays below that of the job.
    assert_eq!(options["mem"], "4G");
    assert_has(&script, &["--max-memory 3G"]);

    let folder = hosts();
    let whole = planned(folder.path());
    // Few tasks in place of a hundred: this sweep has few chunks.
    let script = script.replace(&format!("/{}\"", last + 1), "/3\"");
    for task in ["0", "1", "2"] {
        let variables = [("SLURM_ARRAY_TASK_ID", task), ("SLURM_CPUS_PER_TASK", "1")];
        let done = shell(folder.path(), &script, &variables);
        assert!(done.status.success(), "{done:?}");
    }
    assert!(results(folder.path(), "results") == whole);
}

/// The block of the page that needs GNU parallel.
#[test]
#[ignore = "needs the Debian package parallel: cargo xtask root"]
fn gnu_parallel_runs_all_parts() {
    let text = page("fleet.md");
    let block = text.split("# needs GNU parallel\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    let folder = hosts();
    let whole = planned(folder.path());
    let done = shell(folder.path(), block, &[]);
    assert!(done.status.success(), "{done:?}");
    assert!(results(folder.path(), "results") == whole);
}

#[test]
fn status_names_what_is_missing_and_what_failed() {
    let folder = hosts();
    let line = "sweep --input hosts --release 6.12,7.3 --page-size 4k,64k -o out";
    text(&in_folder(folder.path(), line));
    let status = |line: &str| in_folder(folder.path(), line);
    let told = text(&status("sweep --status out"));
    assert_has(
        &told,
        &[
            "12 cells with rows, 4 of them with an error",
            "failed, 4 cells: ",
        ],
    );
    assert!(!told.contains("without a row"), "{told}");

    // Rows of an input go away, others are torn, and a process has left a file.
    let mut parts: Vec<PathBuf> = fs::read_dir(folder.path().join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("part-")
        })
        .collect();
    parts.sort();
    let torn = &parts[0];
    let bytes = fs::read(torn).unwrap();
    fs::write(torn, &bytes[..bytes.len() / 2]).unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let left = format!("out/.part-0.parquet.quarry-{}-1-0.part", host.trim());
    let left = folder.path().join(left);
    fs::write(&left, "begun").unwrap();
    let output = status("sweep --status out");
    let told = text(&output);
    assert_has(
        &told,
        &["without a row: ", "the same sweep again runs them"],
    );
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_has(
        &notes,
        &[
            &format!(
                "{} is damaged",
                Path::new("out").join(torn.file_name().unwrap()).display()
            ),
            "-1-0.part is not whole",
        ],
    );
    let report: Value =
        serde_json::from_slice(&status("sweep --status out --json").stdout).unwrap();
    let cells = |list: &Value| -> u64 {
        let all = list.as_array().unwrap().iter();
        all.map(|of| of["cells"].as_u64().unwrap()).sum()
    };
    let missing = cells(&report["missing"]);
    assert!(missing > 0, "{report}");
    assert_eq!(report["present"].as_u64().unwrap() + missing, 12);
    assert_eq!(json!(cells(&report["errors"])), report["failed"]);
    assert_has(&told, &[report["missing"][0]["input"].as_str().unwrap()]);

    // The same sweep again makes them, and removes what was left.
    text(&in_folder(folder.path(), line));
    let told = text(&status("sweep --status out"));
    assert_has(&told, &["12 cells with rows"]);
    assert!(!left.exists() && !told.contains("without a row"), "{told}");
}

/// A file system of some pages.
#[test]
#[ignore = "needs root, which may mount: cargo xtask root"]
fn a_full_disk_is_said_and_a_later_run_goes_on() {
    let folder = hosts();
    let sweep = "sweep --input 'hosts/*.gz' --release 6.12,6.18,7.3 --page-size 4k,64k --set min_partial=0..9";
    text(&shell(
        folder.path(),
        &format!("quarry {sweep} -o whole"),
        &[],
    ));
    let whole = results(folder.path(), "whole");
    // With room for some chunks, then for all.
    let script = format!(
        "mkdir small kept; mount -t tmpfs -o size=100k none small
         set +e; quarry {sweep} -o small/out; echo code $?
         quarry sweep --status small/out; ls -A small/out | grep -c '[.]part$'
         mount -o remount,size=10m small; quarry {sweep} -o small/out >kept/again; echo code $?
         cp -r small/out kept"
    );
    let done = with_file_systems(folder.path(), &script);
    let (told, errors) = (
        String::from_utf8_lossy(&done.stdout).into_owned(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    );
    assert_has(
        &errors,
        &[
            "cells have no row, those of hosts/",
            "No space left on device",
        ],
    );
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.first(), Some(&"code 3"), "{told}{errors}");
    assert_has(&told, &["without a row: ", "\n0\ncode 0"]);
    assert!(results(folder.path(), "kept/out") == whole);
}
