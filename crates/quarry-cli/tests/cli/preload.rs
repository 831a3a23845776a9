//! `quarry run --preload`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// `quarry run`. It heeds interrupts: a script has its background jobs ignore them, `cargo test` among these.
fn command() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_quarry"), "run"]);
    command.env("COLUMNS", "100");
    command
}

/// `quarry run` with these words; some have spaces.
fn run(words: &[&str]) -> Output {
    command().args(words).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that forks, allocates, and says the same each time.
const PROGRAM: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "for i in 1 2 3; do ls / | sort; done; exit 0",
];

#[test]
fn a_program_runs_on_designs_in_turns() {
    let mut words = vec![
        "--preload",
        "--design",
        "slub,slab@4.13",
        "--rounds",
        "2",
        "--json",
    ];
    words.extend(PROGRAM);
    let output = run(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["command"], "run --preload");
    assert_eq!(json["rounds"], 2);
    let arms = json["arms"].as_array().expect("arms");
    let names: Vec<_> = arms
        .iter()
        .map(|arm| arm["allocator"].as_str().unwrap())
        .collect();
    assert_eq!(
        names[..4],
        ["glibc", "glibc again", "slub@6.17", "slab@4.13"]
    );
    for (arm, name) in arms.iter().zip(names) {
        assert_eq!(arm["same_output"], true, "{name}");
        assert!(arm["seconds"].as_f64() > Some(0.0), "{name}");
        let processes = arm["processes"].as_array().expect("processes");
        let of_quarry = name.contains('@');
        // `ls` and `sort` end by `exit`, three times.
        assert_eq!(processes.len() >= 6, of_quarry, "{name}");
        for process in processes {
            assert_eq!(process["design"], name);
            let caches = process["caches"].as_array().expect("caches");
            let calls: u64 = caches
                .iter()
                .map(|cache| {
                    cache["alloc_fastpath"].as_u64().unwrap()
                        + cache["alloc_slowpath"].as_u64().unwrap()
                })
                .sum();
            assert!(calls > 0, "{process}");
        }
    }
}

#[test]
fn the_answer_comes_first_and_fits_the_screen() {
    let mut words = vec!["--preload", "--design", "sheaf", "--rounds", "1"];
    words.extend(PROGRAM);
    let output = run(&words);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // One round claims nothing about time.
    assert!(
        out.starts_with("One round does not tell differences from noise"),
        "{out}"
    );
    for part in ["glibc again", "hits", "largest process at its end"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}

/// A design is compared with glibc by what the two runs on glibc differ by, each design for itself.
#[test]
fn two_rounds_say_which_designs_differ() {
    let mut words = vec!["--preload", "--design", "sheaf,slub", "--rounds", "2"];
    words.extend(PROGRAM);
    let output = run(&words);
    let out = text(&output.stdout);
    assert!(out.starts_with("Times glibc's time (noise "), "{out}");
    let answer = out.split("\n\n").next().unwrap().replace('\n', " ");
    for design in ["sheaf@7.0 (", "slub@6.17 ("] {
        assert_eq!(answer.matches(design).count(), 1, "{answer}");
    }
}

/// A program's own exit code is no failure, whatever it is, as long as it has it on all allocators.
#[test]
fn an_exit_code_is_expected_again() {
    let words = ["--preload", "--design", "slub", "--rounds", "1", "--json"];
    let program = ["--", "sh", "-c", "echo no match >&2; exit 7"];
    let output = run(&[&words[..], &program].concat());
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(
        errors.contains("exit code 7 with the C library's malloc (no match)"),
        "{errors}"
    );
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["exit_code"], 7);
    assert!(json["arms"][0]["failed"].is_null());
}

/// The command on a program that runs until it is ended, and the number of the program.
fn started(dir: &Path) -> (Child, Process) {
    let file = dir.join("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", file.display());
    let child = command()
        .args(["--preload", "--design", "slub"])
        .args(["--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let program = loop {
        let number = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some(number) = number.strip_suffix('\n') {
            break Process(number.parse().expect("a number"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    while !program.stat().contains("(sleep) ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    (child, program)
}

/// A process by its number.
struct Process(i32);

impl Process {
    fn stat(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default()
    }

    fn has_ended(&self) -> bool {
        let stat = self.stat();
        !stat.contains("(sleep) ") || stat.contains("(sleep) Z")
    }
}

/// Reads the errors of a command up to a line with these words.
fn read_until(errors: &mut impl BufRead, words: &str) {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "no {words}");
    }
}

/// A second interrupt ends the command, and the program with it.
#[test]
fn a_second_interrupt_ends_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, program) = started(dir.path());
    let command = Pid::from_child(&child);
    kill_process(command, Signal::INT).unwrap();
    read_until(
        &mut BufReader::new(child.stderr.take().expect("a pipe")),
        "another interrupt",
    );
    assert!(!program.has_ended());
    kill_process(command, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    // It was killed before the command ended, but may not have left yet.
    let start = Instant::now();
    while !program.has_ended() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The run under way at an interrupt is the last one.
#[test]
fn an_interrupt_ends_the_rounds() {
    // The first one.
    // The command learns of it on another thread, while the round is under way.
    let script = "kill -INT $PPID; sleep 0.5; exit 0";
    let output = run(&["--preload", "--design", "slub", "--", "sh", "-c", script]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.contains("interrupted before a round"), "{errors}");
    assert!(output.stdout.is_empty());
}

/// The peak is the program's, not this command's, which is larger; that of a program that does nothing is not known.
#[test]
fn peaks_are_the_programs() {
    let words = [
        "--preload",
        "--design",
        "slub",
        "--rounds",
        "1",
        "--json",
        "--",
    ];
    let peak = |program: &[&str]| {
        let output = run(&[&words[..], program].concat());
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        json["arms"][0]["peak_bytes"].as_u64()
    };
    assert_eq!(peak(&["true"]), None);
    let mib = "x=$(head -c 1000000 /dev/zero | tr '\\0' x); y=$x$x$x$x; exit 0";
    let some = peak(&["sh", "-c", mib]).expect("5 MB are more than nothing");
    assert!((5_000_000..12_000_000).contains(&some), "{some}");
}

/// A program that cannot run with any malloc is no result, and one that fails or does not end on a design is named.
#[test]
fn failures_are_told_apart() {
    let words = ["--preload", "--design", "slub"];
    let output = run(&[
        &words[..],
        &["--", "sh", "-c", "echo broken >&2; kill -9 $$"],
    ]
    .concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("with the C library's malloc: signal 9: broken"),
        "{errors}"
    );

    let script = "case $QUARRY_DESIGN in slub*) exit 3;; slab*) sleep 60;; esac";
    let words = [
        "--preload",
        "--design",
        "slub,slab,sheaf",
        "--rounds",
        "1",
        "--timeout",
        "2s",
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = run(&words);
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("does not end as it should on slub@6.17, slab@6.1"),
        "{errors}"
    );
    assert!(
        out.contains("slub@6.17: exit code 3") && out.contains("slab@6.1: no end within 2.0 s"),
        "{out}"
    );
}

/// The command finds the library where packages have it; alone, as `cargo install` leaves it, it says what installs both.
#[test]
fn the_library_is_found_where_packages_have_it() {
    let built = Path::new(env!("CARGO_BIN_EXE_quarry"));
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (bin, lib) = (folder.path().join("bin"), folder.path().join("lib/quarry"));
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::create_dir_all(&lib).expect("a folder");
    std::fs::hard_link(built, bin.join("quarry")).expect("the command");
    let run = || {
        let mut command = Command::new(bin.join("quarry"));
        command.args(["run", "--preload", "--design", "slub", "--rounds", "1"]);
        command.args(["--", "true"]).output().expect("it starts")
    };
    let output = run();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("`cargo xtask install`"), "{errors}");
    let name = "libquarry_malloc.so";
    let library = built.with_file_name("deps").join(name);
    std::os::unix::fs::symlink(library, lib.join(name)).expect("the library");
    let output = run();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn what_is_missing_is_named() {
    for (words, code, part) in [
        (&["--preload"][..], 2, "PROGRAM"),
        (
            &["--preload", "--library", "/nowhere.so", "--", "true"],
            2,
            "/nowhere.so: no such file",
        ),
        (
            &["--preload", "--beside", "/nowhere.so", "--", "true"],
            2,
            "/nowhere.so: no such file",
        ),
        (
            &["--preload", "--rounds", "0", "--", "true"],
            2,
            "--rounds must be at least 1",
        ),
        (&["--preload", "--design", "slap", "--", "true"], 2, "slap"),
        (
            &["--preload", "--library", "/etc/passwd", "--", "true"],
            2,
            "/etc/passwd cannot be preloaded: ERROR: ld.so",
        ),
        (
            &["--preload", "--timeout", "0s", "--", "true"],
            2,
            "--timeout must be greater than 0",
        ),
        (
            &["--preload", "--record", "-", "--", "true"],
            2,
            "name a file",
        ),
        (
            &["--preload", "--design", "slub", "--", "/nowhere"],
            1,
            "cannot run /nowhere",
        ),
        (&["--design", "slub", "--", "true"], 2, "--preload"),
    ] {
        let output = run(words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {errors}");
        assert!(errors.contains(part), "{words:?}: {errors}");
    }
}

#[test]
fn a_daemon_ends_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let number = folder.path().join("number");
    let script = format!(
        "rm -f {0}; setsid sh -c 'echo $$ > {0}; exec sleep 100' & until [ -s {0} ]; do sleep 0.01; done",
        number.display()
    );
    let words = [
        "--preload",
        "--design",
        "slub",
        "--rounds",
        "1",
        "--",
        "sh",
        "-c",
    ];
    let output = run(&[&words[..], &[&script]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let number = std::fs::read_to_string(number).unwrap();
    let process = std::path::Path::new("/proc").join(number.trim());
    assert!(!process.exists(), "{number} runs on");
}

/// A recording of a program is a trace like any other: replays of it answer for other page sizes.
#[test]
fn what_a_program_allocates_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sort.parquet");
    let path = path.to_str().unwrap();
    let words = [
        "--preload",
        "--design",
        "slub",
        "--rounds",
        "1",
        "--record",
        path,
    ];
    let program = ["--", "sh", "-c", "ls / | sort; exit 0"];
    let output = run(&[&words[..], &program].concat());
    let errors = text(&output.stderr);
    assert!(
        output.status.success() && errors.contains("recorded "),
        "{errors}"
    );
    // Nothing is left beside the trace.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let replay = crate::common::json(&format!(
        "replay {path} --design slub,sheaf --page-size 4k,64k --json"
    ));
    let runs = replay["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    let peaks: Vec<_> = runs
        .iter()
        .map(|run| run["peak_slab_bytes"].as_u64())
        .collect();
    assert!(peaks.iter().all(|peak| *peak > Some(0)), "{peaks:?}");
    let info = crate::common::stdout(&format!("info {path}"));
    assert!(
        info.contains("malloc and free, taken for kmalloc"),
        "{info}"
    );

    let output = run(&[&words[..], &program].concat());
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("--force"),
        "{}",
        text(&output.stderr)
    );
}

/// Each run reads the standard input from its beginning.
#[test]
fn every_run_gets_the_whole_input() {
    use std::io::Write as _;
    // A run that gets a part of the lines fails.
    let program = ["sh", "-c", "[ $(wc -l) -eq 20000 ]"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_quarry"));
    command
        .args([
            "run",
            "--preload",
            "--design",
            "slub",
            "--rounds",
            "2",
            "--json",
            "--",
        ])
        .args(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let lines = "a line\n".repeat(20_000);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["exit_code"], 0);
}
