//! Outputs of all commands: none replaces a file without `--force`. Names and numbers as users give them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::common::{
    assert_fails, assert_has, command, json, kept_thread, measured, quarry, recording, small_trace,
    stdout, text,
};
use crate::fleet::with_file_systems;

/// Commands that write a file or folder, without its name, which comes last. Those that need root or minutes
/// refuse the file before that.
fn writers(trace: &str, input: &str) -> Vec<(String, bool)> {
    let replay = format!("replay {trace} --design slub --page-size 4k");
    vec![
        (format!("import {input} -o"), true),
        (format!("filter {trace} --from +0 -o"), true),
        (format!("{replay} --html"), true),
        ("record --duration 1s -o".to_string(), false),
        ("snapshot -o".to_string(), false),
        ("calibrate --quick -o".to_string(), false),
        ("reproduce all --html".to_string(), false),
    ]
}

#[test]
fn no_output_takes_the_place_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let input = dir.path().join("small.txt").to_str().unwrap().to_string();
    let out = dir.path().join("out.toml");
    let path = out.to_str().unwrap();
    let files = || fs::read_dir(dir.path()).unwrap().count();
    for (line, is_quick) in writers(&trace, &input) {
        fs::write(&out, "mine").unwrap();
        let before = files();
        let refused = "out.toml: the output exists; replace it with --force, or name another";
        assert_fails(&quarry(&format!("{line} {path}")), 2, &[refused]);
        assert_eq!(fs::read(&out).unwrap(), b"mine", "{line}");
        if is_quick {
            text(&quarry(&format!("{line} {path} --force")));
            assert!(fs::read(&out).unwrap().len() > 1000, "{line}");
        }
        assert_eq!(files(), before, "{line}");
    }
}

/// All that is written, to a file system without a free page: the message has the file and the reason, and no part is left.
#[test]
#[ignore = "needs root, which may mount: cargo xtask root"]
fn a_full_disk_ends_every_writer_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let thread = kept_thread(dir.path()).again;
    let replay = format!("replay {trace} --design slub --page-size 4k");
    let writers = [
        "import small.txt -o full/out".to_string(),
        format!("filter {trace} --from +0 -o full/out"),
        format!("{replay} --html full/out"),
        format!("{replay} --inspect full/out"),
        "snapshot -o full/out".to_string(),
        "record -o full/out -- true".to_string(),
        "run --preload --design sheaf --rounds 1 --record full/out -- true".to_string(),
        format!("{thread} --html full/out"),
        "man full/out".to_string(),
        "calibrate --quick -o full/out.toml".to_string(),
    ];
    for line in writers {
        let script = format!(
            "mkdir -p full; mount -t tmpfs -o size=4k none full; head -c 4096 /dev/zero >full/filler
             quarry {line} >/dev/null; code=$?; find full -type f; exit $code"
        );
        let done = measured(|| with_file_systems(dir.path(), &script));
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{line}: {told}");
        assert_has(&told, &["full/out", "No space left on device"]);
        let left = String::from_utf8_lossy(&done.stdout);
        assert_eq!(left, "full/filler\n", "{line}");
    }
}

#[test]
fn man_pages_are_replaced_only_if_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, page) = (dir.path().to_str().unwrap(), dir.path().join("quarry.1"));
    fs::write(&page, "mine").unwrap();
    fs::write(dir.path().join("other.1"), "stays").unwrap();
    assert_fails(
        &quarry(&format!("man {folder}")),
        2,
        &["quarry.1: the output exists"],
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    assert_eq!(fs::read(&page).unwrap(), b"mine");
    stdout(&format!("man {folder} --force"));
    assert!(fs::read_to_string(&page).unwrap().contains(".SH"));
    assert!(dir.path().join("other.1").exists());
}

/// A device holds nothing that could be lost.
#[test]
fn devices_are_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    stdout(&format!(
        "replay {trace} --design slub --page-size 4k --html /dev/null"
    ));
}

#[test]
fn names_of_files_need_not_be_utf_8() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let name = |bytes: &[u8]| dir.path().join(OsStr::from_bytes(bytes));
    let (copy, part, text_file) = (
        name(b"a\xff.parquet"),
        name(b"b\xff.parquet"),
        name(b"c\xff.txt"),
    );
    fs::copy(&trace, &copy).unwrap();
    fs::write(&text_file, recording()).unwrap();
    let run = |line: &str, paths: &[&std::path::PathBuf]| {
        text(&command(line).args(paths).output().unwrap())
    };
    run("filter --from +0 -o", &[&part, &copy]);
    run("import --force -o", &[&part, &text_file]);
    let shown = run("replay --design slub --page-size 4k", &[&part]);
    assert!(shown.contains("b\u{fffd}.parquet"), "{shown}");
    for line in ["info", "callers"] {
        run(line, &[&part]);
    }
    let absent = command("replay").arg(name(b"d\xff")).output().unwrap();
    assert_fails(&absent, 1, &["cannot read"]);
}

#[test]
fn designs_may_have_capitals() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let run = |design: &str| {
        let report = json(&format!(
            "replay {trace} --json --no-timing --page-size 4k --design {design}@6.1 --set {design}.cpu_partial=0"
        ));
        report["runs"][0].clone()
    };
    assert_eq!(run("SLUB"), run("slub"));
}

/// The error is about the value, not about an option `-1` that there is not.
#[test]
fn negative_numbers_are_values() {
    for line in [
        "replay hackbench --cpus -1",
        "geometry --cpus -4",
        "run micro --size -8",
        "record --ring -1 -o x",
    ] {
        let option = line.split(' ').find(|word| word.starts_with("--")).unwrap();
        assert_fails(&quarry(line), 2, &["invalid value '-", option]);
    }
}
