//! `quarry record` on this machine. Where it may not record, the tests are about what it says then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use quarry_trace::TraceFile;
use serde_json::Value;

use crate::common::{assert_fails, command, json, quarry, stdout};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// True if this process may make an instance of tracing on a kernel with kmem events. Asked once, as tests run
/// side by side and an instance of one name can be made once.
fn can_record() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let probe = Path::new(INSTANCES).join(format!("probe-{}", std::process::id()));
        let made = fs::create_dir(&probe).is_ok();
        let recorded = made && probe.join("events/kmem/kmalloc").exists();
        let _ = fs::remove_dir(&probe);
        recorded
    })
}

/// A refusal names the file, and what to do.
fn assert_refused(recording: &Output, trace: &str) {
    assert_fails(recording, 1, &["cannot ", "/sys/kernel/", "; "]);
    assert!(!Path::new(trace).exists());
}

#[test]
fn a_recording_is_checked_against_its_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("mine.parquet");
    let trace = trace.to_str().unwrap();
    let load = "for n in 1 2 3 4 5 6 7 8; do ls /proc > /dev/null; done; exit 7";
    let mut record = command(&format!("record -o {trace} --ring 16M --json -- sh -c"));
    let output = record.arg(load).output().unwrap();
    if !can_record() {
        return assert_refused(&output, trace);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["exit_code"], 7);
    assert!(report["events"].as_u64().unwrap() > 1000, "{report}");
    let ends = |name: &str| {
        let reports = report["reports"].as_array().unwrap().iter();
        reports.filter(|report| *report == name).count()
    };
    let count = ["snapshot", "zoneinfo", "vmstat"].map(ends);
    assert_eq!(count, [2, 2, 2], "{report}");
    // Where root may read kpageflags, taints count between the maps.
    let taints = json(&format!("callers {trace} --taints --json"));
    assert_eq!(taints["has_map"], taints["until_ns"].is_u64());
    assert!(taints["reclaim"].is_array());
    let info = json(&format!("info {trace} --json"));
    assert!(info["trace"]["extfrag_events"].is_u64());
    assert!(info["trace"]["drain_events"].is_null(), "no --drains");

    let replay = json(&format!("replay {trace} --check --json"));
    assert_eq!(replay["trace"]["command"], format!("sh -c {load}"));
    let check = &replay["runs"][0]["check"];
    assert!(check["observed_bytes"].as_u64().unwrap() > 0, "{check}");
    assert!(check["initial_bytes"].as_u64().unwrap() > 0, "{check}");

    assert_is_the_load(trace);

    let part = dir.path().join("ls.parquet");
    let part = part.to_str().unwrap();
    stdout(&format!("filter {trace} -o {part} --comm ls"));
    // A part of the tasks is not what the kernel's reports are about.
    assert_fails(
        &quarry(&format!("replay {part} --check")),
        2,
        &["quarry record", "--before --after"],
    );
}

/// Between the reports the recorder's threads, which the footer lists, read nothing of sysfs, whose files are kernfs's.
fn assert_is_the_load(trace: &str) {
    let trace = TraceFile::open(trace).unwrap();
    let meta = trace.meta();
    let snapshots = meta
        .reports
        .iter()
        .filter(|report| report.name == "snapshot");
    let times: Vec<u64> = snapshots.map(|report| report.time_ns).collect();
    let part = meta.load_part().unwrap();
    assert_eq!(times, [part.from_ns, part.until_ns]);
    assert_eq!(meta.clock.as_deref(), Some("mono"));
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(meta.boot_id.as_deref(), Some(boot_id.trim()));
    let (mut own, mut walks, mut walks_of_load) = (0, 0, 0);
    let (mut rows, mut chunk) = (trace.rows(), Vec::new());
    while rows.next_chunk(&mut chunk).unwrap() {
        for row in &chunk {
            let is_load = (part.from_ns..part.until_ns).contains(&row.event.time_ns);
            let site = row.call_site.as_deref().unwrap_or_default();
            let walk = meta.is_recorder(row.pid) && site.contains("kernfs");
            assert!(row.comm != "ls" || !meta.is_recorder(row.pid));
            own += u64::from(meta.is_recorder(row.pid));
            walks += u64::from(walk);
            walks_of_load += u64::from(walk && is_load);
        }
    }
    assert!(walks > 1000 && own > walks, "{walks} of {own}");
    assert_eq!(walks_of_load, 0);
}

#[test]
fn a_signal_ends_a_recording_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("mine.parquet");
    let args = format!("record -o {} --ring 4M --duration 60s", trace.display());
    if !can_record() {
        return assert_refused(&quarry(&args), trace.to_str().unwrap());
    }
    let mut recording = command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let instance = wait_until_it_records(&mut recording);
    kill("INT", &recording);
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("events recorded) in") && text.contains("next: quarry replay"),
        "{text}"
    );
    assert!(trace.exists());
    assert!(!instance.exists());
}

/// The instance of a recording, once it records.
fn wait_until_it_records(recording: &mut Child) -> PathBuf {
    let prefix = format!("quarry-{}-", recording.id());
    loop {
        let entries = fs::read_dir(INSTANCES).into_iter().flatten().flatten();
        let mut own =
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        if let Some(instance) = own.next().map(|entry| entry.path())
            && fs::read_to_string(instance.join("tracing_on")).is_ok_and(|on| on.trim() == "1")
        {
            return instance;
        }
        let ended = recording.try_wait().unwrap();
        assert!(ended.is_none(), "it does not record: {ended:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn kill(signal: &str, process: &Child) {
    let mut kill = Command::new("kill");
    let killed = kill
        .args(["-s", signal, &process.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
}

/// A shell that runs scripts has its background jobs ignore SIGINT.
#[test]
#[ignore = "records this machine: cargo xtask root"]
fn a_recording_heeds_a_signal_that_its_shell_ignores() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("mine.parquet");
    let quarry = env!("CARGO_BIN_EXE_quarry");
    let script = format!(
        "trap '' INT TERM; exec {quarry} record -o {} --ring 4M",
        trace.display()
    );
    for signal in ["INT", "TERM"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{script} --force --no-reports")]);
        let mut recording = shell.stdout(Stdio::null()).spawn().unwrap();
        wait_until_it_records(&mut recording);
        kill(signal, &recording);
        assert!(recording.wait().unwrap().success(), "{signal}");
        assert!(trace.exists());
        fs::remove_file(&trace).unwrap();
    }
}

#[test]
#[ignore = "records this machine: cargo xtask root"]
fn a_second_signal_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("mine.parquet");
    let args = format!("record -o {} --ring 4M", trace.display());
    let mut recording = command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_records(&mut recording);
    // Two signals of one kind may become one.
    kill("INT", &recording);
    kill("TERM", &recording);
    let output = recording.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("writing; once more to give up"), "{errors}");
    let trace = TraceFile::open(&trace).unwrap();
    assert_eq!(
        trace
            .meta()
            .reports
            .iter()
            .filter(|report| report.name == "snapshot")
            .count(),
        2
    );
}

#[test]
#[ignore = "records this machine: cargo xtask root"]
fn a_recording_is_written_before_its_command_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, began, end] = ["mine.parquet", "began", "end"].map(|name| dir.path().join(name));
    let load = format!(
        "trap '' INT TERM; touch {}; while ! [ -e {} ]; do sleep 0.02; done; exit 7",
        began.display(),
        end.display()
    );
    let mut record = command(&format!("record -o {} --ring 4M -- sh -c", trace.display()));
    let mut recording = record.arg(load).stdout(Stdio::null()).spawn().unwrap();
    while !began.exists() {
        assert!(recording.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(5));
    }
    kill("TERM", &recording);
    while !trace.exists() {
        assert!(recording.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(5));
    }
    assert!(recording.try_wait().unwrap().is_none(), "the command runs");
    fs::write(&end, "").unwrap();
    assert_eq!(recording.wait().unwrap().code(), Some(7));
}

/// Also of one whose parent has not asked for its end, and whose number is therefore not free.
#[test]
#[ignore = "records this machine: cargo xtask root"]
fn the_next_recording_removes_the_instances_of_dead_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let record = |name: &str| {
        format!(
            "record -o {} --ring 4M --no-reports --duration",
            path(name).display()
        )
    };
    let mut killed = command(&format!("{} 60s", record("a"))).spawn().unwrap();
    let mut living = command(&format!("{} 60s", record("b"))).spawn().unwrap();
    let [of_killed, of_living] = [&mut killed, &mut living].map(wait_until_it_records);
    kill("KILL", &killed);
    while fs::read_to_string(format!("/proc/{}/stat", killed.id()))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        thread::sleep(Duration::from_millis(5));
    }
    // The number of a process that ended, given again to one that is no recorder.
    let reused = Path::new(INSTANCES).join(format!("quarry-{}-1", std::process::id()));
    fs::create_dir(&reused).unwrap();
    stdout(&format!("{} 100ms", record("c")));
    assert!(!of_killed.exists() && !reused.exists());
    assert!(of_living.exists());
    killed.wait().unwrap();
    kill("INT", &living);
    assert!(living.wait().unwrap().success());
}

#[test]
fn what_cannot_be_recorded_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("mine.parquet");
    let trace = trace.to_str().unwrap();
    let absent = format!("record -o {trace} --ring 4M -- /no/such/program");
    let expected: &[&str] = match can_record() {
        true => &["cannot run /no/such/program"],
        false => &["cannot ", "/sys/kernel/"],
    };
    assert_fails(&quarry(&absent), 1, expected);
    assert_fails(
        &quarry(&format!("record -o {trace} --duration 5x")),
        2,
        &["500ms"],
    );
    assert_fails(&quarry("record"), 2, &["--output"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A path that is given to a system call is copied to an object of `names_cache`.
#[test]
#[ignore = "records this machine: cargo xtask root"]
fn a_recording_with_stacks_has_the_way_to_each_allocation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.parquet");
    let trace = path.to_str().unwrap();
    let load = "for n in 1 2 3 4 5 6 7 8; do ls -l / > /dev/null; done";
    let mut record = command(&format!(
        "record -o {trace} --ring 16M --stacks --json -- sh -c"
    ));
    let output = record.arg(load).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let meta = TraceFile::open(&path).unwrap().meta().clone();
    assert_eq!(report["with_stack"], meta.stack_rows);
    let kinds = &meta.events;
    let frees = kinds.kfree + kinds.kmem_cache_free + kinds.mm_page_free;
    let allocations = kinds.total() - frees - meta.failed_allocs;
    assert_eq!(meta.lost_events, 0, "{report}");
    // The kernel writes an event first and its stack behind it: what ends the recording may come between.
    let without = allocations.checked_sub(meta.stack_rows).unwrap();
    assert!(without * 1000 <= allocations, "{report}");
    let folded = stdout(&format!("callers {trace} --folded=all"));
    let of_names = folded.lines().filter(|line| {
        line.starts_with("ls;entry_SYSCALL_64_after_hwframe;do_syscall_64;")
            && line.contains(";getname_flags")
            && line.contains(";kmem_cache_alloc_noprof;names_cache ")
    });
    assert!(of_names.count() > 0, "{folded}");
    assert!(!folded.contains(";trace_event_raw_event_"), "{folded}");
    // A recording without the option has call sites.
    let mut record = command(&format!("record -o {trace} --force --ring 16M -- sh -c"));
    assert!(record.arg(load).output().unwrap().status.success());
    let folded = stdout(&format!("callers {trace} --folded=all"));
    assert!(
        folded.lines().all(|line| line.split(';').count() == 3),
        "{folded}"
    );
}

/// Names of the tasks in a trace, and what it says of itself.
fn tasks(trace: &Path) -> (Vec<String>, Vec<String>) {
    let trace = TraceFile::open(trace).unwrap();
    let meta = trace.meta();
    assert!(meta.reports.is_empty(), "reports are of the whole machine");
    let names = meta.comms.entries.iter().map(|(name, _)| name.clone());
    (names.collect(), meta.assumptions.clone())
}

#[test]
#[ignore = "records this machine: cargo xtask root"]
fn a_part_of_the_tasks_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("part.parquet");
    let record = |options: &str, load: &str| {
        let mut record = command(&format!(
            "record -o {} --force --ring 4M {options} -- sh -c",
            trace.display()
        ));
        let output = record.arg(load).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        tasks(&trace)
    };
    let (names, said) = record(
        "--comm ls --comm cat",
        "ls / > /dev/null; cat /proc/meminfo > /dev/null; true",
    );
    assert!(
        names.iter().all(|name| name == "ls" || name == "cat"),
        "{names:?}"
    );
    assert_eq!(names.len(), 2);
    let parts = [
        "of threads called ls, cat",
        "frees by other tasks are missing",
    ];
    assert!(
        parts
            .iter()
            .all(|part| said.iter().any(|said| said.contains(part))),
        "{said:?}"
    );

    // A process, and the children that it makes meanwhile.
    let mut shell = Command::new("bash");
    let mut process = shell
        .args(["-c", "while sleep 0.01; do ls / > /dev/null; done"])
        .spawn()
        .unwrap();
    let load = "sleep 0.5; head /dev/null";
    let (names, said) = record(&format!("--pid {}", process.id()), load);
    assert!(
        names.iter().any(|name| name == "ls") && names.iter().all(|name| name != "head"),
        "{names:?}"
    );
    assert!(
        said[0].contains(&format!("of process {} and its children", process.id())),
        "{said:?}"
    );

    // A control group of version 1 or 2.
    let mounts = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
    let mount = mounts
        .iter()
        .find(|mount| mount.join("cgroup.procs").exists())
        .unwrap();
    let group = mount.join(format!("quarry-test-{}", std::process::id()));
    fs::create_dir(&group).unwrap();
    fs::write(group.join("cgroup.procs"), process.id().to_string()).unwrap();
    let (names, said) = record(&format!("--cgroup {}", group.display()), load);
    process.kill().unwrap();
    process.wait().unwrap();
    while fs::remove_dir(&group).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(
        names.iter().any(|name| name == "ls") && names.iter().all(|name| name != "head"),
        "{names:?}"
    );
    assert!(said[0].contains("in control group"), "{said:?}");
}

#[test]
#[ignore = "unmounts tracefs in a namespace of its own: cargo xtask root"]
fn tracefs_is_mounted_only_if_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("mine.parquet");
    let record = |more: &str| {
        let quarry = env!("CARGO_BIN_EXE_quarry");
        let record = format!(
            "{quarry} record -o {} --ring 4M --duration 100ms",
            trace.display()
        );
        let script = format!(
            "umount -a -t tracefs; {record} {more}; code=$?; grep -c tracefs /proc/mounts; exit $code"
        );
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", &script]).output().unwrap()
    };
    let refused = record("--no-reports");
    assert_eq!(String::from_utf8_lossy(&refused.stdout).trim(), "0");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("mount tracefs with --mount"), "{errors}");
    assert_eq!(refused.status.code(), Some(1));
    let mounted = record("--no-reports --mount");
    assert!(mounted.status.success(), "{mounted:?}");
    assert!(trace.exists());
}

#[test]
fn tasks_that_cannot_be_recorded_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("mine.parquet");
    let record = |options: &str| {
        quarry(&format!(
            "record -o {} --ring 4M {options}",
            trace.display()
        ))
    };
    let (code, expected): (i32, [&str; 3]) = match can_record() {
        true => (
            2,
            [
                "no such process runs",
                "no such folder below /sys/fs/cgroup",
                "at most 15 bytes",
            ],
        ),
        false => (1, ["/sys/kernel/"; 3]),
    };
    for (options, part) in [
        "--pid 2147483647",
        "--cgroup no/such",
        "--comm systemd-resolved",
    ]
    .iter()
    .zip(expected)
    {
        assert_fails(&record(options), code, &[part]);
        assert!(!trace.exists());
    }
}
