//! `quarry run` and `quarry run rx`.

use std::collections::BTreeSet;

use crate::golden;
use serde_json::Value;

use crate::common::{assert_fails, assert_has, assert_refuses, json, quarry, stdout};

#[test]
fn workloads_are_listed() {
    let text = stdout("run");
    for name in [
        "hackbench",
        "tbench",
        "tcp_rr",
        "will-it-scale",
        "rx",
        "micro",
        "pages",
    ] {
        assert!(text.contains(&format!("\n  {name} ")), "{text}");
    }
    for args in ["run rx --help", "run --help"] {
        assert!(stdout(args).contains("rx"));
    }
    let help = stdout("run rx --help");
    assert_has(
        &help,
        &[
            "small    #1",
            "none     #2",
            "huge     #3",
            "pool ",
            "shipped",
            "with its warm-up at most",
            "1000000000000",
            "docs/rx.md",
            "Examples:",
        ],
    );
}

/// Bandwidths next to the thread's, what limits them, and calls; the same on any number of threads. docs/rx.md shows
/// it (`UPDATE_EXPECT=1` writes it there).
#[test]
fn a_small_run_is_printed_as_documented() {
    let args = "run rx --driver none,shipped --rings 1,4 --packets 20000 --streams 16";
    let text = stdout(&format!("{args} -j 1"));
    assert_eq!(text, stdout(&format!("{args} -j 3")));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rx.md");
    let doc = std::fs::read_to_string(path).unwrap();
    let head = format!("```text\n$ quarry {args}\n");
    let (before, rest) = doc.split_once(&head).expect("docs/rx.md shows the run");
    let (_, after) = rest.split_once("```\n").unwrap();
    expect_test::expect_file![path].assert_eq(&format!("{before}{head}{text}```\n{after}"));
}

#[test]
fn impossible_input_is_refused() {
    assert_refuses(
        "run rx",
        2,
        r#"
            --rings 0 => rings must be at least 1
            --rings 4,32 => rings must be at most the CPUs, 24, not 32
            --rings 24 => rings must be fewer than the CPUs, 24
            --driver none,fast => "fast" | small, none, huge, pool, shipped
            --era 2.6.18 => "2.6.18" | 2.6.22
            --consumer nowhere => 'nowhere' | same, other, spread
            --consumer other --rings 8 --cpus 8 => consumer other reads on one without a ring
            --mtu 20 => mtu must be 68 to 65535
            --streams 2 --rings 4 => streams must be at least the rings, 4
            --packets 0 => packets must be 1 to 1000000000000
            --packets 18446744073709551615 => packets must be 1 to 1000000000000 | not 18446744073709551615
            --packets 9223372036854775807 --driver none,pool => 1 to 1000000000000
            --streams 1048576 --backlog 1048576 --packets 1 => packets must be at most | fewer streams or a smaller backlog
            --memory 0 => 0 bytes of memory | give it 4k to 8T
            --memory 9T => give it 4k to 8T
        "#,
    );
    let output = quarry("run tx");
    assert_fails(&output, 2, &["tx"]);
    let output = quarry("run rx --driver huge --cache-entries 1000");
    assert_fails(&output, 2, &["cache_entries must be a power of two"]);
}

/// Names of everything in an object; those of `causes` are quarry explain --all's.
fn names(path: &str, value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if path != "causes" => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                names(&format!("{path}{dot}{name}"), value, out);
            }
        }
        _ => {
            out.insert(path.to_string());
        }
    }
}

#[test]
fn the_json_has_the_fields_of_its_table() {
    let args = "run rx --driver none --rings 3 --packets 5000 --streams 16 --json";
    let json = json(args);
    let run = &json["runs"][0];
    assert_eq!(json["workload"], "rx");
    let mut fields = BTreeSet::new();
    names("", run, &mut fields);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rx.md");
    let doc = std::fs::read_to_string(path).unwrap();
    let (_, rest) = doc.split_once("\n## Columns and fields\n").unwrap();
    let rows = rest.split("\n## ").next().unwrap().lines();
    let explained = rows.filter_map(|row| row.strip_prefix("| `")?.split_once("` |"));
    let explained: BTreeSet<_> = explained.map(|(name, _)| name.to_string()).collect();
    assert_eq!(explained, fields);
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
        stdout(&format!("{args} {more}"))
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
fn machines_that_cannot_be_are_refused() {
    let refused = |args: &str, parts: &[&str]| {
        let output = quarry(&format!("run rx --packets 1000 {args}"));
        assert_fails(&output, 2, parts);
    };
    refused("--machine pentium", &["pentium", "haswell-ep-2x12"]);
    refused(
        "--cpus 100 --rings 4",
        &["100 CPUs on haswell-ep-2x12", "take 1 to 96"],
    );
}
