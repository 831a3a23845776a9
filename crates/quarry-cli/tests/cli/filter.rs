//! `quarry filter`, what signals leave behind, and Parquet that other programs wrote.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{assert_fails, assert_refuses, command, json, quarry, recording, small_trace};

/// Replays on two designs; gives what of it depends on the trace alone.
fn replay(trace: &str) -> Value {
    let designs = "--design slub,slab --page-size 4k";
    let args = format!("replay {trace} --json --no-timing {designs}");
    json(&args)["runs"].take()
}

#[test]
fn a_part_is_a_trace_that_replays() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let out = dir.path().join("part.parquet");
    let out = out.to_str().unwrap();
    let cut = |options: &str| {
        let report = json(&format!("filter {trace} -o {out} --force --json {options}"));
        replay(out);
        report
    };
    let whole = cut("--from +0");
    assert_eq!(whole["rows"], whole["rows_before"]);
    let packed = cut("");
    assert_eq!(packed["rows"], packed["rows_before"]);
    assert_eq!(
        packed["digest"],
        json(&format!("info {trace} --json"))["trace"]["digest"]
    );
    let (first, last) = (&whole["first_time_ns"], &whole["last_time_ns"]);
    let middle_ns = (first.as_u64().unwrap() + last.as_u64().unwrap()) / 2;
    let middle = format!(
        "{}.{:09}",
        middle_ns / 1_000_000_000,
        middle_ns % 1_000_000_000
    );
    let early = cut(&format!("--until {middle}"));
    let late = cut(&format!("--from {middle}"));
    let rows = |report: &Value| report["rows"].as_u64().unwrap();
    assert_eq!(rows(&early) + rows(&late), rows(&whole));
    assert!(early["last_time_ns"].as_u64() < Some(middle_ns));
    let cache = cut("--cache kmalloc");
    assert!(rows(&cache) < rows(&whole));
    let said = cache["assumptions"].to_string();
    assert!(said.contains("of caches kmalloc"), "{said}");
}

/// Objects that a cut takes the allocation of are freed as those from before a recording.
#[test]
fn frees_behind_a_cut_are_of_unknown_objects() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("late.parquet");
    let out = out.to_str().unwrap();
    let late = json(&format!("filter hackbench -o {out} --from +0.15 --json"));
    let unknown = |kind: &str| late["orphans"][kind].as_u64().unwrap();
    assert!(unknown("unknown_kfree") > 7000);
    assert!(unknown("unknown_kmem_cache_free") > 26_000);
    let run = &replay(out)[0];
    // A few come after the load.
    let orphans = run["replayed"]["orphans"].as_u64().unwrap();
    let unknown = unknown("unknown_kfree") + unknown("unknown_kmem_cache_free");
    assert!(orphans <= unknown && orphans > unknown - 100, "{orphans}");
}

#[test]
fn a_filter_that_keeps_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let out = dir.path().join("part.parquet");
    let out = out.to_str().unwrap();
    assert_refuses(
        &format!("filter {trace} -o {out}"),
        1,
        r#"
            --comm nobody => of processes nobody | goes from
            --from +99 => no event is from
        "#,
    );
    assert_fails(
        &quarry(&format!("filter {trace} -o {trace} --pid 1")),
        1,
        &["same file"],
    );
    assert!(!Path::new(out).exists());
}

/// True if a process ignores a signal; false if it has ended.
fn is_ignored(signal: &str, pid: &str) -> bool {
    let number = match signal {
        "HUP" => 1,
        "INT" => 2,
        _ => 15,
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (number - 1) & 1 == 1
}

#[test]
fn a_signal_leaves_no_part_behind() {
    for signal in ["INT", "TERM", "HUP"] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out.parquet");
        let mut child = command(&format!("import - -o {}", out.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(recording().as_bytes()).unwrap();
        let parts = || fs::read_dir(dir.path()).unwrap().count();
        let start = Instant::now();
        while parts() == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "no part appears");
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = child.id().to_string();
        let killed = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(killed.unwrap().success());
        if is_ignored(signal, &pid) {
            // `nohup cargo test`: tests and command outlive the terminal.
            drop(stdin);
            assert!(child.wait().unwrap().success(), "{signal}");
            assert!(out.exists());
            continue;
        }
        assert!(!child.wait().unwrap().success());
        assert_eq!(parts(), 0, "{signal}");
    }
}

/// The rows of `small_trace` as DuckDB, pandas and pyarrow wrote them: `tests/data/README.md`.
#[test]
fn rewritten_parquet_replays_as_the_trace_did() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let file = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let original = replay(&file("original.parquet"));
    for name in ["duckdb", "pandas", "pyarrow"] {
        let rewritten = replay(&file(&format!("{name}.parquet")));
        for (run, other) in [0, 1].map(|at| (&original[at], &rewritten[at])) {
            for field in ["peak_slab_bytes", "final_slab_bytes", "replayed"] {
                assert!(!run[field].is_null(), "{field}: {run}");
                assert_eq!(run[field], other[field], "{name}: {field}");
            }
        }
    }
    let gzip = quarry(&format!("replay {}", file("gzip.parquet")));
    assert_fails(&gzip, 1, &["compressed by GZIP", "COMPRESSION zstd"]);
    let column = quarry(&format!("replay {}", file("columns.parquet")));
    assert_fails(&column, 1, &["column `object` is missing"]);
}

/// A snapshot of another kernel says nothing about a recording; nothing is written.
#[test]
fn a_snapshot_of_another_kernel_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (snapshot, out) = (path("other.json"), path("out.parquet"));
    let rows = r#"[{"name": "pid", "active_objs": 16, "num_objs": 16, "objsize": 256, "objperslab": 16,
        "pagesperslab": 1, "num_slabs": 1, "active_slabs": 1}]"#;
    let text = format!(r#"{{"kernel_release": "6.1.0", "slabinfo": {rows}}}"#);
    fs::write(&snapshot, text).unwrap();
    let args = format!("filter {trace} -o {out} --before {snapshot}");
    assert_fails(
        &quarry(&args),
        1,
        &["kernel 6.1.0, the recording of 6.18.44", "--force-report"],
    );
    assert!(!Path::new(&out).exists());
    json(&format!("{args} --force-report --json"));
}

/// The recorder's allocations are left out, wherever they were freed.
#[test]
fn the_recorder_is_left_out_of_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (text, trace, out) = (path("t.txt"), path("t.parquet"), path("out.parquet"));
    let event = |n: u64, pid: u64, what: &str, more: &str| {
        format!(
            "p {pid}/{pid} [000] 1.{n:06}: kmem:{what}: call_site=f ptr={:#x}{more}\n",
            0xffff_8880_0000_0000_u64 + (n << 12)
        )
    };
    let sizes = " bytes_req=64 bytes_alloc=64 gfp_flags=GFP_KERNEL node=-1 accounted=false";
    let mut lines = String::new();
    for (n, pid) in [(1, 71), (2, 72), (3, 71)] {
        lines += &event(n, pid, "kmalloc", sizes);
    }
    lines += &format!(
        "p 9/9 [000] 1.000009: kmem:kfree: call_site=f ptr={:#x}\n",
        0xffff_8880_0000_1000_u64
    );
    fs::write(&text, lines).unwrap();
    json(&format!(
        "import {text} -o {trace} --kernel 6.18 --page-size 4k --cpus 1 --recorder-pid 71 --json"
    ));
    let rows = |options: &str| {
        let args = format!("filter {trace} -o {out} --force --json {options}");
        json(&args)["rows"].as_u64().unwrap()
    };
    assert_eq!(rows("--from +0"), 1);
    assert_eq!(rows("--from +0 --recorder"), 4);
    // Nothing else has to be asked for.
    assert_eq!(rows(""), 1);
}
