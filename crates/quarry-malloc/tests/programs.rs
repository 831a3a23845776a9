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

/// Faults of `faults.c`, with the sizes of 7 at which each mode catches them: default, hardened, `FZPU`. Of the realloc there
/// are 4.
const FAULTS: [(&str, [usize; 3]); 18] = [
    ("none", [0, 0, 0]),
    ("over1", [1, 7, 7]),
    ("over8", [1, 7, 7]),
    ("overmany", [1, 7, 7]),
    ("under", [0, 6, 6]),
    ("double", [7, 7, 7]),
    ("doublelater", [7, 7, 7]),
    ("doublereused", [7, 7, 7]),
    ("inner", [7, 7, 7]),
    ("unaligned", [7, 7, 7]),
    ("stack", [7, 7, 7]),
    ("static", [7, 7, 7]),
    ("mapping", [7, 7, 7]),
    ("size", [5, 7, 5]),
    ("align", [7, 7, 7]),
    ("write", [1, 5, 6]),
    ("stale", [1, 7, 7]),
    ("realloc", [4, 4, 4]),
];
const SIZES: [usize; 7] = [16, 64, 256, 1024, 5000, 100_000, 8 << 20];

/// One process for each fault and size: it is caught if the process is ended by a signal, writes a report, or reads nothing
/// old.
#[test]
fn faults_are_caught_as_the_table_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("faults.c", folder.path());
    let modes = [
        ("QUARRY_HARDENED", "0"),
        ("QUARRY_HARDENED", "1"),
        ("QUARRY_SLUB_DEBUG", "FZPU"),
    ];
    let is_caught = |fault: &str, size: usize, (name, value): (&str, &str)| {
        let mut command = Command::new(&program);
        command
            .args([fault, &size.to_string()])
            .env("LD_PRELOAD", library())
            .env(name, value);
        let output = command.output().expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(2), "{fault} {size}");
        output.status.signal().is_some()
            || output.status.code() == Some(3)
            || errors.contains("BUG ")
    };
    let mut totals = [0; 3];
    for (fault, expected) in FAULTS {
        let sizes: &[usize] = match fault {
            "realloc" => &[16, 256, 5000, 100_000],
            _ => &SIZES,
        };
        for (mode, total) in totals.iter_mut().enumerate() {
            let caught = |size: &&usize| is_caught(fault, **size, modes[mode]);
            let found: Vec<_> = sizes.iter().filter(caught).collect();
            assert_eq!(
                found.len(),
                expected[mode],
                "{fault}, {:?}: {found:?}",
                modes[mode]
            );
            *total += found.len();
        }
    }
    let sizes = 7 * (FAULTS.len() - 2) + 4;
    assert_eq!((totals, sizes), ([77, 113, 112], 116));
}

/// A report names the program's code, and the object's cache and slab.
#[test]
fn reports_say_where() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("faults.c", folder.path());
    let path = program.to_str().expect("plain text");
    for (fault, setting, words) in [
        (
            "over1",
            ("QUARRY_HARDENED", "canary"),
            "bytes +256..=+263, expected 6b, found 78",
        ),
        (
            "inner",
            ("QUARRY_HARDENED", "check"),
            "Free of an address inside an object",
        ),
        (
            "size",
            ("QUARRY_HARDENED", "sizes"),
            "Free with a size that was not asked for",
        ),
        (
            "write",
            ("QUARRY_HARDENED", "reuse"),
            "Poison overwritten (use after free)",
        ),
        (
            "write",
            ("QUARRY_SLUB_DEBUG", "FZPU"),
            "Poison overwritten (use after free)",
        ),
        (
            "inner",
            ("QUARRY_SLUB_DEBUG", "FZPU"),
            "Free of an address inside an object",
        ),
        ("over1", ("QUARRY_SLUB_DEBUG", "Z"), "Redzone overwritten"),
    ] {
        let mut command = Command::new(&program);
        command.args([fault, "256"]).env("LD_PRELOAD", library());
        let output = command
            .env(setting.0, setting.1)
            .output()
            .expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = format!("{fault} {setting:?}: {errors}");
        for word in [
            words,
            "libquarry_malloc: BUG kmalloc-",
            " slab 0x",
            "called from",
            path,
        ] {
            assert!(errors.contains(word), "{what}, {word}");
        }
        if fault == "write" && setting.0 == "QUARRY_SLUB_DEBUG" {
            assert!(errors.matches(path).count() == 3, "{what}");
        } else {
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{what}");
        }
    }
}

#[test]
fn a_wrong_measure_is_refused_with_the_right_ones() {
    for (name, value, named) in [
        (
            "QUARRY_HARDENED",
            "filled",
            "QUARRY_HARDENED: no measure is named \"filled\"; there are check, sizes",
        ),
        ("QUARRY_SLUB_DEBUG", "FX", "no letter 'X'"),
    ] {
        let output = run(Path::new("true"), None, (name, value));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(named),
            "{errors}"
        );
    }
}

/// Programs that are right run as without measures, on each design that can be hardened.
#[test]
fn the_family_works_in_hardened_heaps() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("family.c", folder.path());
    for design in ["magazine", "sheaf", "slub", "slub@4.13", "slubq"] {
        let mut command = Command::new(&program);
        command
            .env("LD_PRELOAD", library())
            .env("QUARRY_DESIGN", design)
            .env("QUARRY_HARDENED", "1");
        let output = command.output().expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = format!("{design}: {} {errors}", output.status);
        assert!(output.status.success() && errors.is_empty(), "{what}");
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

/// Forks meet the locks of hardened caches, guarded mappings and reports, too, also those that a first use takes.
#[test]
fn children_of_threads_at_work_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("storm.c", folder.path());
    for mode in [("QUARRY_HARDENED", "0"), ("QUARRY_HARDENED", "1")] {
        let output = run(&program, None, mode);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{mode:?}: {} {errors}",
            output.status
        );
        assert_eq!(errors, "", "{mode:?}");
    }
}

/// The recording of a process.
struct Recording {
    process: u64,
    lost: u64,
    /// Threads of the calls.
    threads: Vec<u64>,
}

/// The recordings in a folder.
fn recordings(folder: &Path) -> Vec<Recording> {
    let files = std::fs::read_dir(folder).expect("the folder");
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        let bytes = std::fs::read(file.expect("a file").path()).expect("a recording");
        let words = |record: &[u8]| {
            let word = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().expect("8"));
            [0, 8, 16, 24].map(word)
        };
        let [head, second, calls @ ..] = &bytes.chunks(32).map(words).collect::<Vec<_>>()[..]
        else {
            panic!("no head");
        };
        let calls = calls.iter().filter(|call| call[0] != 0);
        Recording {
            process: head[2],
            lost: second[1],
            threads: calls.map(|call| call[3] >> 32).collect(),
        }
    };
    files.map(read).collect()
}

/// Records a program of `record.c`, which makes this many calls in each process.
fn record(what: &[&str], processes: usize, calls_each: u64) -> Vec<Recording> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("record.c", folder.path());
    let calls = folder.path().join("calls");
    std::fs::create_dir(&calls).expect("a folder");
    // Others may write in it, as a process does that has dropped its rights.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&calls, mode).expect("the folder's mode");
    let mut command = Command::new(program);
    command
        .args(what)
        .current_dir(&calls)
        .env("LD_PRELOAD", library())
        .env("QUARRY_RECORD", "calls");
    let output = command.output().expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what:?}: {} {errors}",
        output.status
    );
    let recordings = recordings(&calls);
    assert_eq!(recordings.len(), processes, "{what:?}: {errors}");
    for recording in &recordings {
        let all = recording.threads.len() as u64 + recording.lost;
        assert!(all >= calls_each, "{what:?}: {all} calls");
        let mut threads = recording.threads.iter();
        assert!(
            threads.all(|&thread| thread == recording.process),
            "{what:?}"
        );
    }
    recordings
}

#[test]
fn calls_are_lost_where_the_file_cannot_grow() {
    let recordings = record(&["limit"], 1, 200_000);
    assert!(recordings[0].lost > 100_000 && recordings[0].threads.len() > 10_000);
}

#[test]
fn no_call_is_lost_where_a_program_becomes_a_daemon() {
    assert_eq!(record(&["daemon"], 1, 1_200_000)[0].lost, 0);
}

/// No handlers of forks run in it.
#[test]
fn a_child_that_a_system_call_makes_has_a_recording_of_its_own() {
    let recordings = record(&["clone"], 2, 200_000);
    assert!(recordings.iter().all(|recording| recording.lost == 0));
}

#[test]
#[ignore = "needs root: cargo xtask root"]
fn no_call_is_lost_in_another_root_and_without_rights() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().to_str().expect("plain text");
    let recordings = record(&["rights", path], 2, 200_000);
    assert!(recordings.iter().all(|recording| recording.lost == 0));
}

#[test]
#[ignore = "needs root: cargo xtask root"]
fn a_full_disk_ends_no_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("record.c", folder.path());
    let [disk, copies] = ["disk", "copies"].map(|name| folder.path().join(name));
    for folder in [&disk, &copies] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let script = "mount -t tmpfs -o size=1m none $0 && LD_PRELOAD=$1 QUARRY_RECORD=$0/calls $2 && cp $0/calls.* $3";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&disk);
    let status = command.arg(library()).arg(program).arg(&copies).status();
    assert!(status.expect("unshare").success());
    let [recording] = &recordings(&copies)[..] else {
        panic!("one process");
    };
    assert!(recording.lost > 100_000 && recording.threads.len() > 10_000);
}
