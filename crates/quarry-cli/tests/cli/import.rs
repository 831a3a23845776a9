//! `quarry import`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Output;

use flate2::Compression;
use flate2::write::GzEncoder;
use quarry_trace::TraceFile;
use serde_json::Value;

use crate::common::{assert_fails, quarry, quarry_with, recording, stdout, text};

const SLABINFO: &str = "slabinfo - version: 2.1\n\
    dentry 21 42 192 21 1 : tunables 0 0 0 : slabdata 2 2 0\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn import(dir: &Path, input: &[u8], extra: &str) -> Output {
    let (from, to) = (dir.join("in"), dir.join("out.parquet"));
    fs::write(&from, input).unwrap();
    quarry(&format!(
        "import {} -o {} --force {extra}",
        from.display(),
        to.display()
    ))
}

/// Files in a directory.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_summary_counts() {
    let dir = tempfile::tempdir().unwrap();
    let output = import(
        dir.path(),
        &gzip(recording().as_bytes()),
        "--json --kernel 6.18.1 --lost 7 --command demo --page-size 4k",
    );
    let json: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(json["events_by_kind"]["kmalloc"], 999);
    assert_eq!(json["events"], 1 + 2999 + 2400 + 1);
    assert_eq!(json["orphans"]["unknown_kfree"], 1);
    assert_eq!(json["orphans"]["never_freed_objects"], 599);
    assert_eq!(json["lost_events"], 7);
    assert_eq!(json["cpus"], 2);
    assert_eq!(json["kernel"], "6.18.1");
    assert_eq!(json["page_size"], 4096);
    let size = fs::metadata(dir.path().join("out.parquet")).unwrap().len();
    assert_eq!(json["bytes_out"], size);
    let table = text(&import(dir.path(), recording().as_bytes(), ""));
    for part in [
        "kmem_cache_alloc",
        "not seen allocated",
        "peak alive",
        "bytes per event",
        "the architecture is x86_64 by the addresses of objects",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn stdin_and_gzip_give_the_same_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (a, b) = (path("a.parquet"), path("b.parquet"));
    text(&quarry_with(
        &format!("import - -o {a}"),
        recording().as_bytes(),
    ));
    text(&quarry_with(
        &format!("import - -o {b}"),
        &gzip(recording().as_bytes()),
    ));
    assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
}

#[test]
fn bad_lines_fail_or_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let bad = recording().replacen("bytes_req=184", "bytes_req=x", 1);
    let output = import(dir.path(), bad.as_bytes(), "");
    assert_fails(
        &output,
        1,
        &["in:2: bytes_req: `x` is not a number", "--skip-bad"],
    );
    assert_eq!(names(dir.path()), ["in"]);
    let output = import(dir.path(), bad.as_bytes(), "--skip-bad --json");
    let json: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(json["skipped_lines"], 1);
    assert!(
        json["first_skipped"]
            .as_str()
            .unwrap()
            .contains("bytes_req")
    );
}

/// Sizes that no kernel gives, and that no replay could.
#[test]
fn impossible_sizes_are_refused_with_the_line() {
    let dir = tempfile::tempdir().unwrap();
    for (from, to, part) in [
        (
            "bytes_req=184",
            "bytes_req=0",
            "in:2: bytes_req: 0 is impossible",
        ),
        (
            "bytes_req=184 bytes_alloc=192",
            "bytes_req=1073741824 bytes_alloc=1073741824",
            "in:2: bytes_req: 1073741824 is impossible, at most 67108864",
        ),
        (
            "bytes_req=184 bytes_alloc=192",
            "bytes_req=8388608 bytes_alloc=8388608",
            "in:2: bytes_alloc: 8388608 is impossible, at most 4194304",
        ),
    ] {
        let bad = recording().replacen(from, to, 1);
        let output = import(dir.path(), bad.as_bytes(), "--page-size 4k");
        assert_fails(&output, 1, &[part, "--skip-bad"]);
        assert_eq!(names(dir.path()), ["in"]);
    }
}

/// A snapshot is one line of a megabyte.
#[test]
fn a_wrong_report_is_quoted_by_a_line_that_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (slabinfo, snapshot) = (path("slabinfo"), path("snapshot.json"));
    fs::write(&slabinfo, SLABINFO).unwrap();
    fs::write(
        &snapshot,
        format!("{{\"slabinfo\": [{}0]}}", "0, ".repeat(100_000)),
    )
    .unwrap();
    let reports = format!("--before {slabinfo} --zoneinfo {snapshot}");
    let output = import(dir.path(), recording().as_bytes(), &reports);
    assert_fails(
        &output,
        1,
        &["snapshot.json: line 1: \"Node 0, zone ...\" is expected"],
    );
    assert!(output.stderr.len() < 400, "{}", output.stderr.len());
}

/// A recording without frees has no figure about what is alive: the head says why, and JSON has null.
#[test]
fn a_paste_without_frees_has_no_live_figures() {
    let dir = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quarry-trace/tests/data/text");
    let paste = fs::read(data.join("ftrace-hashed-paste.txt.gz")).unwrap();
    let trace = dir.path().join("out.parquet");
    let flat = |output: Output| -> String {
        let words = text(&output);
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let missing = "no frees (kmem_cache_free) were recorded: lifetimes, peaks and what was never freed are not known.";
    let shown = flat(import(dir.path(), &paste, ""));
    for part in [
        &format!("9 events read, 0 lost; {missing}"),
        "never freed unknown",
        "peak alive unknown",
        "addresses are hashed pointers of a 64-bit kernel",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = flat(quarry(&format!("info {}", trace.display())));
    for part in [missing, "peak alive unknown", "alive at the end: unknown"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = flat(quarry(&format!("callers {}", trace.display())));
    let part = format!("was given the most memory, 90.7 KiB of 90.7 KiB (100.0 %); {missing}");
    assert!(shown.contains(&part), "{shown}");
    let json = |command: &str| -> Value {
        let output = quarry(&format!("{command} {} --json", trace.display()));
        serde_json::from_str(&text(&output)).unwrap()
    };
    let (info, callers) = (json("info"), json("callers"));
    for (of, path) in [
        (&info, "/trace/peak_live_objects"),
        (&info, "/trace/peak_live_bytes"),
        (&info, "/trace/orphans_by_kind/never_freed_objects"),
        (&info, "/trace/orphans_by_kind/never_freed_pages"),
        (&callers, "/totals/peak_live_bytes"),
        (&callers, "/totals/end_live_bytes"),
        (&callers, "/callers/0/peak_live_bytes"),
        (&callers, "/callers/0/end_live_objects"),
        (&callers, "/callers/0/caches/0/peak_live_bytes"),
    ] {
        assert_eq!(of.pointer(path), Some(&Value::Null), "{path}: {of}");
    }
    assert_eq!(
        format!("{}.", info["trace"]["missing_events"].as_str().unwrap()),
        missing
    );
    for time in ["", "--time"] {
        let replay = format!("replay {} --design slab,slub {time}", trace.display());
        let shown = flat(quarry(&replay));
        let part = "No frees (kmem_cache_free) were recorded: lifetimes, peaks and what was never freed are not known, \
            so runs are not ranked.";
        assert!(shown.contains(part), "{shown}");
        for rank in [
            "needs the least",
            "need the same",
            "the least time",
            "the same time",
        ] {
            assert!(!shown.contains(rank), "{rank}: {shown}");
        }
    }
    let replay = json("replay --design slab,slub");
    let peak = |path: &str| replay.pointer(path) == Some(&Value::Null);
    assert!(
        peak("/runs/0/peak_slab_bytes") && peak("/runs/1/peak_slab_bytes"),
        "{replay}"
    );
    let folded = |amount: &str| quarry(&format!("callers {} --folded={amount}", trace.display()));
    assert_fails(
        &folded("peak"),
        1,
        &["no frees (kmem_cache_free)", "--folded=all"],
    );
    assert!(text(&folded("all")).ends_with(" 92880\n"));
}

/// LTTng's folder is printed by another program first: one sentence says how.
#[test]
fn a_folder_of_lttng_names_the_way_to_its_text() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = dir.path().join("session/kernel");
    fs::create_dir_all(&kernel).unwrap();
    fs::write(kernel.join("metadata"), b"/* CTF 1.8 */").unwrap();
    fs::write(kernel.join("channel0_0"), b"\xc1\x1f\xfc\xc1").unwrap();
    let out = dir.path().join("out.parquet");
    for folder in [kernel.clone(), dir.path().join("session")] {
        let output = quarry(&format!("import {} -o {}", folder.display(), out.display()));
        let advice = "babeltrace2 --clock-seconds FOLDER | quarry import - -o OUT";
        assert_fails(
            &output,
            1,
            &[&folder.display().to_string(), "LTTng (CTF)", advice],
        );
    }
    assert!(!out.exists());
}

#[test]
fn what_is_no_recording_is_refused_and_nothing_left() {
    let dir = tempfile::tempdir().unwrap();
    let whole = recording();
    let packed = gzip(whole.as_bytes());
    let cases: [(&[u8], &str); 5] = [
        (b"", "the file is empty"),
        (b"hello\nworld\n", "no kmem event in 2 lines"),
        (b"PERFILE2....", "this perf.data cannot be read"),
        (b"PAR1....", "a Parquet file"),
        (&packed[..packed.len() / 2], "the gzip data ends early"),
    ];
    for (bytes, part) in cases {
        assert_fails(&import(dir.path(), bytes, ""), 1, &[part]);
        assert_eq!(names(dir.path()), ["in"], "{part}");
    }
    assert_fails(
        &import(dir.path(), recording().as_bytes(), "--cpus 1"),
        1,
        &["cpu: 1 is impossible"],
    );
    assert_fails(&import(dir.path(), b"x", "--cpus 0"), 2, &["--cpus"]);
    assert_fails(
        &import(dir.path(), b"x", "--page-size 5k"),
        2,
        &["4k, 16k and 64k"],
    );
    assert_eq!(names(dir.path()), ["in"]);
}

#[test]
fn no_room_for_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("in");
    fs::write(&from, recording()).unwrap();
    let from = from.to_str().unwrap();
    let nowhere = dir.path().join("absent/out.parquet");
    let output = quarry(&format!("import {from} -o {}", nowhere.display()));
    assert_fails(&output, 1, &["cannot write", "make the directory first"]);
    let directory = quarry(&format!("import {from} -o {}", dir.path().display()));
    assert_fails(&directory, 1, &["not a regular file"]);
    assert_fails(
        &quarry(&format!("import {from} -o /dev/full")),
        1,
        &["not a regular file"],
    );
    assert_fails(
        &quarry(&format!("import {from} -o {from}")),
        1,
        &["input and output are the same file"],
    );
    assert_fails(&quarry("import absent -o x"), 1, &["cannot read absent"]);
    assert_eq!(names(dir.path()), ["in"]);
    // A failed import leaves what was there.
    let kept = dir.path().join("kept.parquet");
    stdout(&format!("import {from} -o {}", kept.display()));
    let before = fs::read(&kept).unwrap();
    fs::write(dir.path().join("bad"), "hello\n").unwrap();
    let bad = dir.path().join("bad");
    assert_fails(
        &quarry(&format!(
            "import {} -o {} --force",
            bad.display(),
            kept.display()
        )),
        1,
        &["no kmem event"],
    );
    assert_eq!(fs::read(&kept).unwrap(), before);
}

/// An import marks the recorder's threads and the part that is the load, which others' recordings do not name.
#[test]
fn recorder_and_load_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let text = recording().replacen("demo  77/77", "perf  70/71", 900);
    fs::write(dir.path().join("slabinfo"), SLABINFO).unwrap();
    let slabinfo = dir.path().join("slabinfo");
    let before = format!("--before {}", slabinfo.display());
    let marked = format!("--recorder-pid 71 --from +0.002 --until 12.004 {before}");
    crate::common::text(&import(dir.path(), text.as_bytes(), &marked));
    let out = dir.path().join("out.parquet");
    let load = |out: &Path| {
        let trace = TraceFile::open(out).unwrap();
        let meta = trace.meta();
        assert_eq!(meta.recorder_pids, [71]);
        let part = meta.load_part().unwrap();
        (
            meta.first_time_ns,
            part.from_ns,
            part.until_ns,
            meta.reports.len(),
        )
    };
    let second = 1_000_000_000;
    let (from, until) = (12 * second + 2_000_000, 12 * second + 4_000_000);
    assert_eq!(load(&out), (12 * second, from, until, 1));
    let trace = TraceFile::open(&out).unwrap();
    assert_eq!(trace.meta().reports[0].time_ns, from);

    let part = dir.path().join("part.parquet");
    let (out, to) = (out.display(), part.display());
    stdout(&format!("filter {out} -o {to} --from +0.003"));
    assert_eq!(
        load(&part),
        (12 * second + 3_000_000, 12 * second + 3_000_000, until, 0)
    );

    for (wrong, code, part) in [
        ("--recorder-pid 4711", 1, "no event is of thread 4711"),
        (
            "--from +9",
            1,
            "no event is of the load from 21.000000000 to",
        ),
        ("--from +0.003 --until +0.002", 1, "no event is of the load"),
        ("--from 1s", 2, "is not a time"),
        ("--recorder-pid perf", 2, "--recorder-pid"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        assert_fails(&import(dir.path(), text.as_bytes(), wrong), code, &[part]);
        assert_eq!(names(dir.path()), ["in"], "{wrong}");
    }
}
