//! Programs in C under the library, on every design: they are compiled with the system's compiler and preload it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Designs, one of an older release and a way of running without restartable sequences.
const SETTINGS: [(&str, &str); 8] = [
    ("QUARRY_DESIGN", "magazine"),
    ("QUARRY_DESIGN", "sheaf"),
    ("QUARRY_DESIGN", "slab"),
    ("QUARRY_DESIGN", "slub"),
    ("QUARRY_DESIGN", "slub@4.13"),
    ("QUARRY_DESIGN", "slubq"),
    ("QUARRY_DESIGN", "slob"),
    ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
];

/// The library that cargo built for these tests.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("the test's own path");
    let folders = program.ancestors().skip(1).take(2);
    let mut places = folders.map(|folder| folder.join("libquarry_malloc.so"));
    places
        .find(|path| path.exists())
        .expect("the library beside the tests")
}

/// Compiles a program of `tests/c` into a folder.
fn compile(name: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name);
    let program = folder.join(name).with_extension("");
    let mut compiler = Command::new("cc");
    compiler
        .args([
            "-O1",
            "-g",
            "-Wall",
            "-fno-builtin",
            "-Wno-free-nonheap-object",
            "-Wno-deprecated-declarations",
            "-Wno-use-after-free",
        ])
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(["-pthread", "-l:libstdc++.so.6"]);
    let status = compiler.status().expect("a C compiler, `cc`");
    assert!(status.success(), "{compiler:?}");
    program
}

fn run(program: &Path, argument: Option<&str>, (name, value): (&str, &str)) -> Output {
    let mut command = Command::new(program);
    command
        .args(argument)
        .env("LD_PRELOAD", library())
        .env(name, value);
    command.output().expect("the program starts")
}

#[test]
fn the_whole_family_works_on_every_design() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("family.c", folder.path());
    for setting in SETTINGS {
        let output = run(&program, None, setting);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{setting:?}: {} {errors}",
            output.status
        );
        assert_eq!(output.stdout, b"ok\n", "{setting:?}");
        assert_eq!(errors, "", "{setting:?}");
    }
}

/// The message names the address, and of a free object its cache and slab; the program is aborted.
#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("mistakes.c", folder.path());
    for design in ["magazine", "sheaf", "slab", "slub", "slubq", "slob"] {
        for mistake in ["double", "stack", "mapping", "sixteen", "realloc"] {
            let output = run(&program, Some(mistake), ("QUARRY_DESIGN", design));
            let errors = String::from_utf8_lossy(&output.stderr);
            let what = format!("{design}, {mistake}: {} {errors}", output.status);
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{what}");
            let (address, message) = errors.split_once('\n').expect("the address first");
            assert!(message.contains(address), "{what}");
            let call = if mistake == "realloc" {
                "realloc"
            } else {
                "free"
            };
            assert!(
                message.contains(&format!("libquarry_malloc: {call}")),
                "{what}"
            );
            let class = match design {
                "magazine" => "kmalloc-112",
                _ => "kmalloc-128",
            };
            if mistake == "double" && design != "slob" {
                assert!(
                    message.contains(class) && message.contains("slab"),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn a_wrong_design_is_refused_with_the_right_ones() {
    for (wish, named) in [
        ("slap", "magazine, sheaf, slab, slub, slubq and slob"),
        ("slub@1", "2.6.22"),
        ("slob@7.0", "does not exist in era 7.0"),
    ] {
        let output = run(Path::new("true"), None, ("QUARRY_DESIGN", wish));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(named),
            "{wish}: {errors}"
        );
    }
}

/// Each process that ends by `exit` leaves a report, with its heap and its forks.
#[test]
fn a_process_reports_at_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report");
    let program = compile("forks.c", folder.path());
    let mut command = Command::new(&program);
    command
        .env("LD_PRELOAD", library())
        .env("QUARRY_REPORT", &path);
    command.env("QUARRY_DESIGN", "slub");
    assert!(command.status().expect("the program starts").success());
    std::fs::remove_file(program).expect("the program");
    let reports = std::fs::read_dir(folder.path()).expect("the folder");
    let reports: Vec<_> = reports
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a report"))
        .collect();
    assert_eq!(reports.len(), 3, "{reports:?}");
    for report in &reports {
        let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
        assert!(
            report["design"]
                .as_str()
                .is_some_and(|design| design.starts_with("slub@")),
            "{report}"
        );
        assert!(
            report["rss"].as_u64().is_some_and(|bytes| bytes > 0),
            "{report}"
        );
        let caches = report["caches"].as_array().expect("caches");
        for cache in caches {
            assert!(
                cache["live"].as_u64() <= cache["objects"].as_u64(),
                "{report}"
            );
        }
        let allocated = |cache: &serde_json::Value| cache["alloc_slowpath"].as_u64() > Some(0);
        assert!(caches.iter().any(allocated), "{report}");
    }
    let forks = |report: &&String| report.contains("\"forks\": 2");
    assert_eq!(reports.iter().filter(forks).count(), 1, "{reports:?}");
}
