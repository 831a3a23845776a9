//! The `perf` command lines of a recording.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::lists::{DRAIN, REFILL};
use crate::shell;

/// The clock of the time stamps.
pub(super) const CLOCK: &str = "CLOCK_MONOTONIC";

/// Events every kernel in question has.
const REQUIRED: [&str; 6] = [
    "kmalloc",
    "kfree",
    "kmem_cache_alloc",
    "kmem_cache_free",
    "mm_page_alloc",
    "mm_page_free",
];
/// Events of their own in kernels before 6.1, merged into the ones above since.
const OPTIONAL: [&str; 2] = ["kmalloc_node", "kmem_cache_alloc_node"];
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Only root may record the whole system.
pub(super) fn check_root() -> Result<()> {
    let status =
        fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    if effective_user(&status) != Some(0) {
        bail!("recording the whole system needs root: run `cargo xtask record` as root");
    }
    if shell::find_tool("perf").is_none() {
        bail!("`perf` is not installed: on Debian, `apt-get install linux-perf`");
    }
    Ok(())
}

fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether the kernel has an event of this name, without its `kmem:`.
fn has(name: &str) -> bool {
    TRACEFS.iter().any(|root| {
        Path::new(root)
            .join("events/kmem")
            .join(name)
            .join("id")
            .is_file()
    })
}

/// The names of the events to record, or what to do to get them.
pub(super) fn available_events() -> Result<Vec<String>> {
    if !TRACEFS
        .iter()
        .any(|root| Path::new(root).join("events").is_dir())
    {
        bail!(
            "tracefs is not mounted: `mount -t tracefs none {}`",
            TRACEFS[0]
        );
    }
    if let Some(missing) = REQUIRED.iter().find(|name| !has(name)) {
        bail!(
            "this kernel has no event kmem:{missing}: it was built without its memory trace events"
        );
    }
    let optional = OPTIONAL.iter().filter(|name| has(name));
    let of_allocations = REQUIRED.iter().chain(optional);
    let mut events: Vec<_> = of_allocations.map(|name| format!("kmem:{name}")).collect();
    for name in [REFILL, DRAIN] {
        if !has(name.trim_start_matches("kmem:")) {
            bail!("this kernel has no event {name}, which tells how far a replay is right");
        }
        events.push(name.to_owned());
    }
    Ok(events)
}

/// Records one workload and returns the command line, with its files by name only.
pub(super) fn record(
    name: &str,
    events: &[String],
    buffer_mib: u32,
    dir: &Path,
    data: &Path,
) -> Result<String> {
    let this = env::current_exe().context("cannot find the program that is running")?;
    let options = [
        "record".to_owned(),
        "-a".to_owned(),
        format!("-m{buffer_mib}M"),
        "-k".to_owned(),
        CLOCK.to_owned(),
    ];
    let events = ["-e".to_owned(), events.join(",")];
    let mut perf = Command::new("perf");
    perf.args(&options)
        .args(&events)
        .arg("-o")
        .arg(data)
        .arg("--");
    perf.arg(this)
        .args(["record-workload", name, "--dir"])
        .arg(dir);
    // Its summary is not ours to print; its errors are.
    shell::run(perf.stdout(Stdio::inherit()))?;
    Ok(format!("perf {} {}", options.join(" "), events.join(" ")))
}

/// How many events the kernel could not put into its buffers.
pub(super) fn lost_events(data: &Path) -> Result<u64> {
    let stats = shell::output(
        Command::new("perf")
            .args(["report", "--stats", "-i"])
            .arg(data)
            .stdin(Stdio::null()),
    )?;
    sum_lost(&stats).context("`perf report --stats` printed no statistics")
}

/// Adds up what each event lost. Without those lines (older kernels) the number of gaps stands in.
fn sum_lost(stats: &str) -> Option<u64> {
    let (total, per_event) = match stats.split_once("\nkmem:") {
        Some((total, rest)) => (total, rest),
        None => (stats, ""),
    };
    let count = |text: &str, name: &str| -> u64 {
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" events:"));
        lines
            .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .sum()
    };
    if !total.contains("TOTAL events:") {
        return None;
    }
    let gaps = count(total, "LOST") + count(total, "LOST_SAMPLES");
    Some(count(per_event, "LOST_SAMPLES").max(gaps))
}

/// `perf script` of a recording, one line an event.
pub(super) fn script(data: &Path) -> Command {
    let mut perf = Command::new("perf");
    perf.args([
        "script",
        "--header",
        "--ns",
        "-F",
        "comm,pid,tid,cpu,time,event,trace",
        "-i",
    ])
    .arg(data);
    perf
}

/// The version of `perf`.
pub(super) fn version() -> Result<String> {
    Ok(shell::output(Command::new("perf").arg("--version"))?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &str = "\nAggregated stats:\n  TOTAL events: 9\n  SAMPLE events: 9\nkmem:kfree stats:\n  SAMPLE events: 9\n";
    const SOME: &str = "\nAggregated stats:\n  TOTAL events: 9\n  LOST events: 134 ( 0.8%)\n  LOST_SAMPLES events: 14\n\
        kmem:kmalloc stats:\n  SAMPLE events: 980\n  LOST_SAMPLES events: 8841\nkmem:kfree stats:\n  LOST_SAMPLES events: 9\n";

    #[test]
    fn lost_events_are_added_up() {
        assert_eq!(sum_lost(NONE), Some(0));
        assert_eq!(sum_lost(SOME), Some(8_850));
        assert_eq!(sum_lost("  TOTAL events: 9\n  LOST events: 3\n"), Some(3));
        assert_eq!(sum_lost("not statistics"), None);
    }

    #[test]
    fn the_effective_user_is_the_second_number() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }
}
