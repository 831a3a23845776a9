//! `quarry run` and `quarry run rx`.

use crate::common::{assert_fails, quarry, stdout};
use crate::golden;
use serde_json::Value;

#[test]
fn workloads_are_listed() {
    let text = stdout(&["run"]);
    for name in ["hackbench", "tbench", "tcp_rr", "rx", "micro", "pages"] {
        assert!(text.contains(&format!("\n  {name} ")), "{text}");
    }
    for args in [&["run", "rx", "--help"][..], &["run", "--help"]] {
        assert!(stdout(args).contains("rx"));
    }
    let help = stdout(&["run", "rx", "--help"]);
    for part in [
        "small    #1",
        "none     #2",
        "huge     #3",
        "pool ",
        "shipped",
        "with its warm-up at most",
        "1000000000000",
        "docs/rx.md",
        "Examples:",
    ] {
        assert!(help.contains(part), "no {part:?} in: {help}");
    }
}

/// A small run of every driver, as it is printed; the same in every run, on any number of threads.
#[test]
fn a_small_run() {
    let run = |jobs: &str| {
        stdout(&[
            "run",
            "rx",
            "--counts",
            "--driver",
            "small,none,huge,pool,shipped",
            "--rings",
            "1,4",
            "--cpus",
            "8",
            "--packets",
            "40000",
            "-j",
            jobs,
        ])
    };
    let text = run("1");
    golden::check("rx.txt", &text);
    assert_eq!(text, run("3"));
    let wide = text.lines().find(|line| line.chars().count() > 100);
    assert_eq!(wide, None);
}

/// Names and types of everything in the JSON, so that a script can rely on them.
#[test]
fn the_json_has_these_fields() {
    let text = stdout(&[
        "run",
        "rx",
        "--counts",
        "--driver",
        "none,huge",
        "--rings",
        "2",
        "--packets",
        "1000",
        "--json",
    ]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["workload"], "rx");
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let mut fields = String::new();
    describe("", &runs[0], &mut fields);
    golden::check("rx_json.txt", &fields);
    assert_eq!(
        (&runs[0]["driver"], &runs[0]["thread_driver"]),
        (&"none".into(), &"#2".into())
    );
    for run in runs {
        let pages = &run["pages"];
        let number = |value: &Value| value.as_u64().unwrap();
        assert_eq!(
            number(&pages["zone_locks"]),
            number(&pages["pcp_refills"]) + number(&pages["pcp_drains"])
        );
        assert!(number(&run["packets"]) >= 1000);
    }
}

/// A line for each field: its path and its type.
fn describe(path: &str, value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                describe(&format!("{path}.{name}"), value, out);
            }
        }
        Value::Number(number) if number.is_f64() => out.push_str(&format!("{path}: float\n")),
        Value::Number(_) => out.push_str(&format!("{path}: integer\n")),
        Value::String(_) => out.push_str(&format!("{path}: string\n")),
        other => out.push_str(&format!("{path}: {other}\n")),
    }
}

#[test]
fn impossible_input_is_refused() {
    let refused: [(&[&str], &[&str]); 15] = [
        (&["--rings", "0"], &["0 rings", "at least one"]),
        (&["--rings", "4,32"], &["32 rings on 24 CPUs"]),
        (&["--rings", "24"], &["24 rings on 24 CPUs leave none"]),
        (
            &["--driver", "none,fast"],
            &["\"fast\"", "small, none, huge, pool, shipped"],
        ),
        (&["--era", "2.6.18"], &["\"2.6.18\"", "2.6.22", "7.3"]),
        (
            &["--consumer", "nowhere"],
            &["\"nowhere\"", "same, other, spread"],
        ),
        (
            &["--consumer", "other", "--rings", "8", "--cpus", "8"],
            &["none without a ring"],
        ),
        (&["--mtu", "20"], &["MTU 20", "68 to 65535"]),
        (
            &["--streams", "2", "--rings", "4"],
            &["2 streams for 4 rings"],
        ),
        (&["--packets", "0"], &["0 packets", "1 to 1000000000000"]),
        (
            &["--packets", "18446744073709551615"],
            &["18446744073709551615 packets", "1 to 1000000000000"],
        ),
        (
            &["--packets", "9223372036854775807", "--driver", "none,pool"],
            &["1 to 1000000000000"],
        ),
        (
            &[
                "--streams",
                "1048576",
                "--backlog",
                "1048576",
                "--packets",
                "1",
            ],
            &["1 packets after 439", "fewer streams or a smaller backlog"],
        ),
        (
            &["--memory", "0"],
            &["0 bytes of memory", "give it 4k to 8T"],
        ),
        (&["--memory", "9T"], &["give it 4k to 8T"]),
    ];
    for (args, parts) in refused {
        for counts in [&["run", "rx", "--counts"][..], &["run", "rx"]] {
            let output = quarry(&[counts, args].concat());
            assert_fails(&output, 2, parts);
        }
    }
    let output = quarry(&["run", "tx"]);
    assert_fails(&output, 2, &["tx"]);
    let output = quarry(&["run", "rx", "--driver", "huge", "--cache-entries", "1000"]);
    assert_fails(&output, 2, &["1000 cache entries", "power of two"]);
}

/// In time: bandwidths beside the thread's, and what limits them; the same on any number of threads.
#[test]
fn a_small_run_in_time() {
    let run = |jobs: &str| {
        let args = "run rx --driver none,pool --rings 1,4 --packets 20000 --streams 16 -j";
        let args: Vec<&str> = args.split(' ').chain([jobs]).collect();
        stdout(&args)
    };
    let text = run("1");
    golden::check("rx_time.txt", &text);
    assert_eq!(text, run("3"));
}

#[test]
fn the_json_of_a_run_in_time_has_these_fields() {
    let args = "run rx --driver none --rings 3 --packets 5000 --streams 16 --json";
    let text = stdout(&args.split(' ').collect::<Vec<_>>());
    let json: Value = serde_json::from_str(&text).unwrap();
    let run = &json["runs"][0];
    let mut fields = String::new();
    describe("", run, &mut fields);
    golden::check("rx_time_json.txt", &fields);
    assert_eq!(run["published_mbit_per_second"], 50_521.0);
    // User data of 1448 bytes in packets of 1538 on the wire.
    let most = 100e3 * 1448.0 / 1538.0;
    let mbit = run["mbit_per_second"].as_f64().unwrap();
    assert!(mbit > 10_000.0 && mbit < most * 1.01, "{mbit}");
}

#[test]
fn sensitivity_judges_what_the_thread_says() {
    let run = |more: &str| {
        let args = "run rx --sensitivity --streams 1 --descriptors 64 --backlog 4 --packets 400";
        let args = args.split(' ').chain(more.split(' '));
        stdout(&args.collect::<Vec<_>>())
    };
    let text = run("--driver none --rings 1 -j 1");
    golden::check("rx_sensitivity.txt", &text);
    let json = run("--driver none --rings 1 -j 3 --json");
    let json: Value = serde_json::from_str(&json).unwrap();
    let study = &json["sensitivity"];
    let figures = study["figures"].as_array().unwrap();
    let [mbit, lock] = figures.as_slice() else {
        panic!("{figures:?}")
    };
    let values = [mbit, lock].map(|figure| &figure["value"]);
    let run = &json["runs"][0];
    assert_eq!(values, [&run["mbit_per_second"], &run["zone_lock_share"]]);
    let [claim] = study["claims"].as_array().unwrap().as_slice() else {
        panic!("{study:?}")
    };
    let about = claim["claim"].as_str().unwrap();
    assert_eq!(
        about,
        "none within 15 % of the thread's 18835 Mbit/s with 1 ring"
    );
}

#[test]
fn sensitivity_is_of_runs_in_time() {
    let output = quarry(&["run", "rx", "--counts", "--sensitivity"]);
    assert_fails(&output, 2, &["'--counts'", "'--sensitivity'"]);
}

#[test]
fn machines_that_cannot_be_are_refused() {
    let refused = |args: &[&str], parts: &[&str]| {
        let output = quarry(&[&["run", "rx", "--packets", "1000"], args].concat());
        assert_fails(&output, 2, parts);
    };
    refused(&["--machine", "pentium"], &["pentium", "haswell-ep-2x12"]);
    refused(
        &["--cpus", "20", "--rings", "4"],
        &["20 CPUs on haswell-ep-2x12", "take 1 to 12, or 24"],
    );
}

/// 4 MiB hold one ring's 1024 pages and nothing more.
#[test]
fn too_little_memory_drops_packets() {
    let args = [
        "run",
        "rx",
        "--counts",
        "--driver",
        "none",
        "--rings",
        "2",
        "--packets",
        "20000",
        "--json",
    ];
    let dropped = |memory: &str| {
        let text = stdout(&[&args[..], &["--memory", memory]].concat());
        let json: Value = serde_json::from_str(&text).unwrap();
        json["runs"][0]["dropped"].as_u64().unwrap()
    };
    assert!(dropped("4M") > 1000);
    assert_eq!(dropped("1G"), 0);
}
