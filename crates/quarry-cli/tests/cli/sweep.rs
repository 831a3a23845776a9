//! `quarry sweep`: from the command line and from plans, killed and started again, in parts, and refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{assert_fails, assert_has, command, quarry, stdout, text};

fn data(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quarry-lab/tests/data");
    tests.join("6.17-to-7.3-x86_64-4k").join(name)
}

/// A folder with `hosts`, of two snapshots and one that is none.
pub(crate) fn hosts() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    fs::create_dir(&hosts).unwrap();
    fs::copy(data("6.17.13.json.gz"), hosts.join("a.json.gz")).unwrap();
    fs::copy(data("7.3.4.json.gz"), hosts.join("b.json.gz")).unwrap();
    fs::write(hosts.join("c.txt"), "no report\n").unwrap();
    folder
}

/// Runs the command in a folder.
pub(crate) fn in_folder(folder: &Path, line: &str) -> std::process::Output {
    command(line).current_dir(folder).output().unwrap()
}

pub(crate) fn results(folder: &Path, out: &str) -> Vec<u8> {
    text(&in_folder(folder, &format!("sweep --merge {out}")));
    fs::read(folder.join(out).join("results.parquet")).unwrap()
}

#[test]
fn a_sweep_says_how_memory_changes_over_the_hosts() {
    let folder = hosts();
    let line = "sweep --input hosts/*.gz --release 6.12,7.3 --set slub_max_order=0..1 -o out";
    let told = text(&in_folder(folder.path(), line));
    assert_has(
        &told,
        &[
            "12 cells; 0 of them had rows before, 0 failed",
            "2 inputs under 6 settings: 12 rows; none failed.",
            "rows: out/part-*.parquet; quarry sweep --merge out",
        ],
    );
    let header = told.lines().find(|line| line.contains("slub_max_order "));
    let words: Vec<&str> = header.unwrap().split_whitespace().collect();
    let expected = [
        "release",
        "slub_max_order",
        "median",
        "most",
        "host",
        "surely",
        "may",
    ];
    assert!(words.starts_with(&expected), "{words:?}");
    // The table has a line for each setting: two releases with three limits.
    let lines = told.lines().filter(|line| line.contains(".json.gz"));
    assert!(lines.count() >= 6, "{told}");
    // The page says the same.
    let report = text(&in_folder(folder.path(), "report out"));
    assert_has(
        &told,
        &[report.trim_end_matches("--html PAGE writes the tables and charts.\n")],
    );
    let again = text(&in_folder(folder.path(), line));
    assert_has(&again, &["12 of them had rows before"]);
    let merged = text(&in_folder(folder.path(), "sweep --merge out"));
    assert_has(
        &merged,
        &["out/results.parquet: 12 rows", "out/costs.parquet: 12 rows"],
    );
    let status = text(&in_folder(folder.path(), "sweep --status out"));
    assert_has(&status, &["12 cells with rows, 0 of them with an error"]);
}

#[test]
fn a_plan_is_what_its_options_are() {
    let folder = hosts();
    let plan = "ask = \"what-if\"\ninput = \"hosts\"\npage-size = [\"4k\", \"64k\"]\n[set]\nmin_partial = [1, 9]\n";
    fs::write(folder.path().join("plan.toml"), plan).unwrap();
    // Inputs are beside the plan, wherever it is read from.
    let path = folder.path().join("plan.toml");
    let out = folder.path().join("of-plan");
    let told = stdout(&format!("sweep {} -o {}", path.display(), out.display()));
    assert_has(&told, &["18 cells; ", "6 failed", "failed, 6 cells: "]);
    let line =
        "sweep --input hosts --page-size 4096,64k --set min_partial=1,9 -o of-options --json";
    let report: Value = serde_json::from_slice(&in_folder(folder.path(), line).stdout).unwrap();
    assert_eq!(
        [&report["cells"], &report["failed"], &report["present"]],
        [&json!(18), &json!(6), &json!(0)]
    );
    // An option takes the place of the plan's key.
    let line = "sweep plan.toml --page-size 16k --dry-run";
    let told = text(&in_folder(folder.path(), line));
    assert_has(
        &told,
        &[
            "9 cells: 3 inputs with 3 settings; 0 have rows already",
            "time: ",
            "memory: ",
        ],
    );
    assert!(!folder.path().join("of-dry-run").exists());
}

/// Killed at any moment, it ends with the same rows.
#[test]
fn a_killed_sweep_goes_on() {
    let folder = hosts();
    let line = |out: &str| {
        format!(
            "sweep --input hosts --release 6.6,6.12,6.18,7.3 --page-size 4k,16k,64k --set min_partial=0..9 -o {out} -j 2"
        )
    };
    text(&in_folder(folder.path(), &line("whole")));
    let expected = results(folder.path(), "whole");
    let mut killed = 0;
    // Each run lives a little longer than the one before, so that some die in every part of the work.
    for wait_ms in (0..20).map(|step| 10 + 12 * step) {
        let mut child = command(&line("killed"))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(wait_ms));
        killed += usize::from(child.try_wait().unwrap().is_none());
        // SIGKILL; an error means that it has ended.
        let _ = child.kill();
        child.wait().unwrap();
    }
    assert!(
        killed > 3,
        "{killed} of 20 runs were killed before their end"
    );
    let told = text(&in_folder(folder.path(), &line("killed")));
    assert_has(&told, &["396 cells"]);
    assert!(results(folder.path(), "killed") == expected);
}

#[test]
fn parts_make_the_whole() {
    let folder = hosts();
    let line = "sweep --input hosts/*.gz --release 6.12,6.18,7.3 --page-size 4k,64k --set min_partial=0..4";
    text(&in_folder(folder.path(), &format!("{line} -o whole")));
    // As docs/fleet.md has it for GNU parallel, with what every system has in its place.
    let script = format!(
        "seq 0 3 | xargs -P 2 -I I '{}' {line} -o parts --shard I/4",
        env!("CARGO_BIN_EXE_quarry")
    );
    let done = Command::new("sh")
        .args(["-c", &script.replace("hosts/*.gz", "'hosts/*.gz'")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(results(folder.path(), "parts") == results(folder.path(), "whole"));
}

#[test]
fn a_folder_stands_for_all_of_its_hosts_and_a_result_for_one_question() {
    let folder = hosts();
    // A reader finds the report of this one host in the whole folder.
    let one = folder.path().join("hosts/h");
    fs::create_dir(&one).unwrap();
    fs::copy(data("../field/memcg-4.18/slabinfo"), one.join("slabinfo")).unwrap();
    let told = text(&in_folder(
        folder.path(),
        "sweep --input hosts --release 7.3 --dry-run",
    ));
    assert_has(&told, &["4 cells: 4 inputs with 1 setting"]);
    let told = text(&in_folder(
        folder.path(),
        "sweep --input hosts/h --release 7.3 --dry-run",
    ));
    assert_has(&told, &["1 cell: 1 input"]);
    text(&in_folder(
        folder.path(),
        "sweep --input hosts/a.json.gz --release 7.3 -o out",
    ));
    let other = in_folder(folder.path(), "sweep --ask replay --input kv -o out");
    assert_fails(
        &other,
        2,
        &["out: the folder has rows of what-if, and not of replay"],
    );
}

#[test]
fn wrong_sweeps_are_refused() {
    let folder = hosts();
    let refused = |line: &str, code: i32, parts: &[&str]| {
        assert_fails(&in_folder(folder.path(), line), code, parts);
    };
    fs::write(folder.path().join("bad.toml"), "relase = \"7.3\"\n").unwrap();
    fs::write(folder.path().join("not.toml"), "input = [\n").unwrap();
    refused(
        "sweep bad.toml -o out",
        2,
        &["plan bad.toml: a plan has no key \"relase\"; the nearest is \"release\""],
    );
    fs::write(
        folder.path().join("table.toml"),
        "[sets]\ncpu_partial = 0\n",
    )
    .unwrap();
    refused(
        "sweep table.toml -o out",
        2,
        &["a plan has no key \"sets\"; the nearest is \"set\""],
    );
    refused(
        "sweep --input hosts --set slub_max_ordr=0..3 -o out",
        2,
        &["no release has such a tunable (the nearest is slub_max_order)"],
    );
    refused(
        "sweep --input hosts --release 6.12,99.1 -o out",
        2,
        &["there is no era \"99.1\""],
    );
    refused(
        "sweep --input hosts --release 7.3 -o bad.toml",
        1,
        &[
            "cannot make the folder bad.toml",
            "name a folder that you may write to",
        ],
    );
    let machine = "ask = \"run hackbench\"\nmachine = \"nosuch\"\n";
    fs::write(folder.path().join("machine.toml"), machine).unwrap();
    refused("sweep machine.toml -o out", 2, &["nosuch"]);
    refused("sweep not.toml -o out", 2, &["plan not.toml: "]);
    refused(
        "sweep gone.toml -o out",
        2,
        &["plan gone.toml: No such file"],
    );
    refused(
        "sweep --input *.none -o out",
        2,
        &["input \"*.none\": no file has such a name"],
    );
    refused("sweep --input hosts", 2, &["-o names the folder"]);
    refused("sweep -o out", 2, &["the plan has no input"]);
    refused(
        "sweep --input hosts -o hosts",
        2,
        &["of no sweep and not empty"],
    );
    refused(
        "sweep --input hosts --copies 2 -o out",
        2,
        &["copies applies to replay, replay --time, not to what-if"],
    );
    refused(
        "sweep --input hosts --ask nothing -o out",
        2,
        &["ask = \"nothing\": there are"],
    );
    refused(
        "sweep --input hosts --shard 4/4 -o out",
        2,
        &["write I/N with I from 0 to N - 1"],
    );
    refused(
        "sweep --status hosts",
        1,
        &["it is no folder that quarry sweep -o wrote"],
    );
    // All cells fail: the rows are there, and the exit code says it.
    let all = in_folder(folder.path(), "sweep --input hosts/c.txt -o failed");
    assert_eq!(all.status.code(), Some(1));
    assert_has(
        &String::from_utf8_lossy(&all.stderr),
        &["1 cell failed, and no other; the rows have the errors"],
    );
    // A place that cannot be written.
    let file = quarry(&format!(
        "sweep --input {} -o /dev/null/out",
        data("7.3.4.json.gz").display()
    ));
    assert_eq!(file.status.code(), Some(1), "{file:?}");
}
