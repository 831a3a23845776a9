//! Running the command.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The command with the words of a line as arguments; its output is 100 columns wide.
pub(crate) fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quarry"));
    command.args(line.split_whitespace()).env("COLUMNS", "100");
    command
}

pub(crate) fn quarry(line: &str) -> Output {
    command(line).output().unwrap()
}

/// Runs the command with this on its stdin.
pub(crate) fn quarry_with(line: &str, stdin: &[u8]) -> Output {
    let mut child = command(line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command may stop reading before the end of what it refuses.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

/// Standard output of a run that must succeed.
pub(crate) fn stdout(line: &str) -> String {
    text(&quarry(line))
}

/// The JSON that a run prints.
pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(&stdout(line)).unwrap()
}

/// Runs a command that calibrates until its figures agree. What a busy computer measures may contradict itself: the
/// command says so, and another try helps.
pub(crate) fn measured(calibrate: impl Fn() -> Output) -> Output {
    let again = |made: &Output| String::from_utf8_lossy(&made.stderr).contains("measure again");
    let made = (0..20).map(|_| calibrate()).find(|made| !again(made));
    made.expect("20 measurements contradict themselves")
}

/// A short thread as `reproduce` ran it.
pub(crate) struct Thread {
    /// The words that print it again from its results, which are in a test's own file.
    pub(crate) again: String,
    pub(crate) keep: String,
    /// Output and page of the run.
    pub(crate) tables: &'static str,
    pub(crate) html: &'static str,
}

/// Runs a short thread once for all tests, as it takes both CPUs for a while.
pub(crate) fn kept_thread(dir: &Path) -> Thread {
    static RUN: OnceLock<(Vec<u8>, String, String)> = OnceLock::new();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let line = |keep: &str| format!("reproduce wakeup-2007 --quick --keep {keep}");
    let (kept, tables, html) = RUN.get_or_init(|| {
        let (keep, page) = (path("kept-first"), path("first.html"));
        let tables = stdout(&format!("{} --html {page} --tables", line(&keep)));
        let html = std::fs::read_to_string(page).unwrap();
        (std::fs::read(keep).unwrap(), tables, html)
    });
    let keep = path("kept");
    std::fs::write(&keep, kept).unwrap();
    Thread {
        again: line(&keep),
        keep,
        tables,
        html,
    }
}

/// Standard output of a run that must have succeeded.
pub(crate) fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks that a run failed: exit code, nothing on stdout, one line on stderr with these parts.
pub(crate) fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_has(&stderr, parts);
}

/// Checks that a text has all of these parts.
pub(crate) fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// Checks that runs are refused with an exit code. A line of the table has the options after `base`, and behind `=>`
/// parts of the error with `|` between them.
pub(crate) fn assert_refuses(base: &str, code: i32, table: &str) {
    for line in table.trim().lines() {
        let (options, parts) = line.split_once("=> ").unwrap();
        let parts: Vec<&str> = parts.split(" | ").collect();
        assert_fails(&quarry(&format!("{base} {options}")), code, &parts);
    }
}

/// Text of `perf script`: three caches' worth of allocations, some freed on another CPU, one orphan.
pub(crate) fn recording() -> String {
    let mut text = String::new();
    let mut line = |n: u64, cpu: u64, event: &str| {
        let (seconds, nanos) = (12 + n / 1_000_000, n % 1_000_000 * 1000);
        text.push_str(&format!(
            "demo  77/77  [{cpu:03}]  {seconds}.{nanos:09}: {event}\n"
        ));
    };
    let address = |n: u64| 0xffff_8881_0000_0000 + n * 0x1000;
    let pointer = |n: u64| format!("call_site=demo+0x1 ptr={:#x}", address(n));
    line(0, 0, &format!("kmem:kfree: {}", pointer(9_999)));
    for n in 1..3000 {
        let (cpu, p) = (n % 2, pointer(n));
        let event = match n % 3 {
            0 => format!(
                "kmem:kmalloc: {p} bytes_req=100 bytes_alloc=128 gfp_flags=GFP_KERNEL node=-1 accounted=false"
            ),
            1 => format!(
                "kmem:kmem_cache_alloc: {p} name=filp bytes_req=184 bytes_alloc=192 gfp_flags=GFP_KERNEL node=-1 accounted=false"
            ),
            _ => format!(
                "kmem:kmem_cache_alloc: {p} name=dentry bytes_req=192 bytes_alloc=192 gfp_flags=GFP_KERNEL node=-1 accounted=false"
            ),
        };
        line(n * 2, cpu, &event);
        if n % 5 != 0 {
            let event = match n % 3 {
                0 => format!("kmem:kfree: {p}"),
                1 => format!("kmem:kmem_cache_free: {p} name=filp"),
                _ => format!("kmem:kmem_cache_free: {p} name=dentry"),
            };
            line(n * 2 + 1, n / 7 % 2, &event);
        }
    }
    line(
        9_000,
        1,
        "kmem:mm_page_alloc: page=0x0 pfn=0x1000 order=0 migratetype=0 gfp_flags=GFP_KERNEL",
    );
    text
}

/// Imports [`recording`] into a directory.
pub(crate) fn small_trace(dir: &Path) -> String {
    let (text, trace) = (dir.join("small.txt"), dir.join("small.parquet"));
    std::fs::write(&text, recording()).unwrap();
    let [text, trace] = [&text, &trace].map(|path| path.to_str().unwrap());
    let machine = "--kernel 6.18.44 --page-size 4096 --cpus 2";
    stdout(&format!("import {text} -o {trace} --force {machine}"));
    trace.to_string()
}

/// Adds reports of the kernel to a trace, as `quarry filter` does with these options; returns the new one.
pub(crate) fn with_reports(dir: &Path, trace: &str, options: &str) -> String {
    let out = dir.join("with-reports.parquet");
    let out = out.to_str().unwrap();
    stdout(&format!("filter {trace} -o {out} --force {options}"));
    out.to_string()
}
