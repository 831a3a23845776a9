//! `quarry run hackbench`, `tbench`, `tcp_rr`.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::{
    assert_fails, assert_has, assert_refuses, command, json, quarry, quarry_with, stdout, text,
};
use crate::golden;

/// Small runs of each load.
const SMALL: [(&str, &str); 4] = [
    (
        "load_hackbench.txt",
        "run hackbench -g 1,2 -f 4 -l 100 --machine harpertown-2x4 --cpus 2,8 --profile",
    ),
    (
        "load_tbench.txt",
        "run tbench 1,4 -t 2ms --machine barcelona-2x4 --design slab,slub --era 2.6.24 --skb-sizes bug",
    ),
    (
        "load_tcp_rr.txt",
        "run tcp_rr -n 3 -l 2ms -r 1,4000 --machine milan-2x64 --cpus 4 --design slub@6.17,sheaf@7.0",
    ),
    (
        "load_will_it_scale.txt",
        "run will-it-scale page_fault1,mmap1 -t 2,4 -s 1ms --pages 400 --machine milan-2x64 --cpus 4",
    ),
];

#[test]
fn small_runs_are_the_same_with_any_number_of_jobs() {
    for (file, args) in SMALL {
        let text = stdout(&format!("{args} -j 1"));
        // A profile's rows are in the order of their times.
        let profile = text.find("\nProfile: ").unwrap_or(text.len());
        golden::check_layout(file, &text[..profile]);
        assert_eq!(text, stdout(&format!("{args} -j 3")));
        assert_ne!(text, stdout(&format!("{args} --seed 2")));
    }
}

#[test]
fn a_tunable_is_set_before_or_while_a_load_runs() {
    let run = |more: &str| {
        let args = "run tbench 16 -t 3ms --machine clovertown-2x4 --design slub@2.6.23";
        let json = json(&format!("{args}{more} --json"));
        let caches = json["runs"][0]["caches"].as_array().unwrap();
        let cache = caches.iter().find(|cache| cache["name"] == "kmalloc-4096");
        cache.unwrap()["alloc_hits"].as_f64().unwrap()
    };
    let one = run("");
    let four = run(" --at 0s:kmalloc-4096.cpu_slabs_max=4");
    let later = run(" --at 2ms:kmalloc-4096.cpu_slabs_max=4");
    assert!(four > one + 20.0, "{one} {four}");
    assert!(later > one && later < four, "{one} {later} {four}");
}

#[test]
fn a_list_of_any_option_has_an_answer_for_each_value() {
    let told = json("run tbench 1 --cpus 1 --design slub -t 1ms,2ms --seed 1,2 --json");
    let asked: Vec<Value> = told["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["asked"].clone())
        .collect();
    let of = |time, seed| serde_json::json!({"time": time, "seed": seed});
    assert_eq!(
        asked,
        [of("1ms", 1), of("1ms", 2), of("2ms", 1), of("2ms", 2)]
    );
    let alone = json("run tbench 1 --cpus 1 --design slub -t 2ms --seed 2 --json");
    assert_eq!(
        told["runs"][3]["per_second"],
        alone["runs"][0]["per_second"]
    );
    let shown = stdout("replay kv --copies 1,2 --design slub --page-size 4k");
    assert!(shown.contains("--copies 1   --copies 2"), "{shown}");
    let peaks = json("replay kv --copies 1,2 --design slub --page-size 4k --json --no-timing");
    assert_eq!(peaks["settings"]["copies"], Value::Null);
    assert_eq!(peaks["settings"]["cache_line"], 64);
    assert_eq!(peaks["runs"][1]["asked"]["copies"], 2);
    // stdin is read once.
    let trace = fs::read("../quarry-lab/data/recordings/kv.parquet").unwrap();
    let piped = quarry_with(
        "replay - --copies 1,2 --design slub --page-size 4k --json --no-timing",
        &trace,
    );
    let piped: Value = serde_json::from_str(&text(&piped)).unwrap();
    assert_eq!(piped["runs"], peaks["runs"]);
    let twice = quarry_with("what-if - --at begin,end", &trace);
    assert_fails(&twice, 2, &["- needs one value of --at"]);
    let refused = quarry("replay kv --copies 1,2 --csv");
    assert_fails(&refused, 2, &["--csv needs one value of --copies"]);
    assert_fails(
        &quarry("look --at begin,end kv"),
        2,
        &[
            "'begin,end' for '--at <WHEN>'",
            "[possible values: begin, end]",
        ],
    );
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    assert_refuses(
        "run",
        2,
        r#"
            hackbench -g 0 => groups must be at least 1
            hackbench -g 9999 => groups must make at most 30000 tasks
            hackbench -g 1 -s 3M => 1 to 1048576
            tbench 0 => clients must be at least 1
            tbench 1 -t 0s => time must be greater than 0
            tbench 1 --wake-order never => immediate, queued, fair, deadline
            tbench 1 --wake-place here => previous, affine, idle
            tbench 1 --skb-sizes new => old, bug, fixed, select-size
            tcp_rr -r 1 => write the bytes of a request
            tcp_rr --design slub@2.6.24 --at x:a.b=1 => is not a time
            tcp_rr --design slub@5.9 --at 1s:kmalloc-64 => TIME:CACHE.NAME=VALUE
            tcp_rr --design slub@5.9 --at 1s:kmalloc-64.limit=1 => limit
            tcp_rr -n 1 -l 1ms --design slub@5.9 --at 0s:nix.cpu_partial=1 => nix
            tcp_rr -r 1,2000 --remote => frames are not split
            tcp_rr --queues 2 => --remote
            tcp_rr --remote --queues 0 => queues must be at least 1
            hackbench --partial-slabs few => partial-slabs: an empty heap has none
            tbench 1 -t 20000s => 1000 s
            hackbench --host --machine milan-2x64 => cannot be used with
            hackbench --host -g 700 -s 1M => MiB are available
            netbench 4 => "netbench"; there are hackbench, tbench, tcp_rr, will-it-scale, rx, micro, pages
        "#,
    );
    assert_refuses(
        "run",
        3,
        r#"
            hackbench -g 4 -l 50 --memory 8M => which alone may need 11 MiB
        "#,
    );
}

#[test]
fn loads_run_on_real_threads() {
    let args = "run hackbench -g 1 -f 2 -l 20 --host --rounds 2 --design slab@6.1,sheaf --json";
    let json = json(args);
    let runs = json["runs"].as_array().unwrap();
    let designs: Vec<&str> = runs
        .iter()
        .map(|run| run["design"].as_str().unwrap())
        .collect();
    assert_eq!(designs, ["slab@6.1", "sheaf@7.0", "slab@6.1"]);
    let null = |run: &Value| run["null"].as_bool().unwrap();
    assert_eq!(
        runs.iter().map(null).collect::<Vec<_>>(),
        [false, false, true]
    );
    for run in runs {
        assert_eq!(run["last"]["operations"], 80);
        assert!(run["per_second"].as_f64().unwrap() > 0.0);
    }
    let both = stdout("run hackbench -g 1,2 -f 2 -l 20 --host --rounds 1 --design slub");
    assert_has(
        &both,
        &[
            "hackbench with 1 group, 4 threads",
            "hackbench with 2 groups, 8 threads",
        ],
    );
    let text = stdout("run tcp_rr -n 1 -l 20ms --host --rounds 1 --design slub");
    assert!(text.contains("slub@6.17, again"), "{text}");
    let both = quarry("run tbench 1 --host --cpus 2");
    assert_fails(&both, 2, &["cannot be used with"]);
}

#[test]
fn changes_that_come_too_late_are_told() {
    let at = "--at 1h:kmalloc-512.cpu_partial=0 --design slub@5.9";
    for load in [
        "run hackbench -g 1 -f 2 -l 5 --cpus 2",
        "run hackbench -g 1 -f 2 -l 5 --host --rounds 1",
    ] {
        let output = quarry(&format!("{load} {at}"));
        let note = String::from_utf8_lossy(&output.stderr);
        assert!(note.contains("it ended before 1 of --at"), "{note}");
    }
}

#[test]
fn an_interrupt_leaves_the_rounds_that_ended() {
    let args = "run hackbench -g 1 -f 2 -l 20 --host --rounds 1000000 --design slub --json";
    let child = crate::common::command(args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Some rounds need milliseconds; it runs for hours.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(sent.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for run in json["runs"].as_array().unwrap() {
        let rounds = run["rounds"].as_u64().unwrap();
        assert!((1..1_000_000).contains(&rounds), "{run}");
    }
}

/// Waits until a process heeds SIGTERM; false if it ended.
fn heeds_term(pid: u32) -> bool {
    const SIGTERM: u32 = 15;
    loop {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            return false;
        };
        let mut lines = status.lines();
        let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if caught.is_some_and(|mask| mask >> (SIGTERM - 1) & 1 == 1) {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Nothing has a median then.
#[test]
fn an_interrupt_before_the_first_round_ends() {
    for load in [
        "hackbench -g 1 -f 2 -l 40000",
        "tbench 1 -t 500ms",
        "tcp_rr -n 1 -l 500ms",
    ] {
        let run = command(&format!(
            "run {load} --host --design slub@6.18,slub@6.12,slub@6.6"
        ))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
        assert!(heeds_term(run.id()), "{load}");
        let mut kill = Command::new("kill");
        kill.args(["-s", "TERM", &run.id().to_string()]);
        assert!(kill.status().unwrap().success());
        let output = run.wait_with_output().unwrap();
        let parts = [
            "runs under way go on to their end",
            "interrupted before the first round",
        ];
        assert_fails(&output, 130, &parts);
    }
}
