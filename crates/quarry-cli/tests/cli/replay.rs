//! `quarry replay`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{self, assert_fails, assert_refuses, command, quarry, small_trace, stdout};

fn json(args: &str) -> Value {
    let args = format!("replay --json --no-timing {args}");
    common::json(&args)
}

#[test]
fn json_has_every_key_with_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let report = json(&format!(
        "{} --design slub,slubq@2.6.35",
        small_trace(dir.path())
    ));
    let trace = &report["trace"];
    assert_eq!(trace["events"], 5401);
    assert_eq!(trace["orphans"], 1);
    let runs = report["runs"].as_array().unwrap();
    let order: Vec<_> = runs
        .iter()
        .map(|run| {
            (
                run["design"].as_str().unwrap(),
                run["page_size"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        order,
        [
            ("slub", 4096),
            ("slub", 65536),
            ("slubq", 4096),
            ("slubq", 65536)
        ]
    );
    for run in runs {
        for key in [
            "page_size",
            "cpus",
            "peak_slab_bytes",
            "final_slab_bytes",
            "object_bytes",
            "alloc_fastpath",
            "alloc_slowpath",
            "free_fastpath",
            "free_slowpath",
            "cross_cpu_frees",
            "slabs",
            "partial_slabs",
            "one_object_slabs",
            "page_allocs",
            "events_per_second",
        ] {
            assert!(run[key].is_number(), "{key}: {run}");
        }
        assert_eq!(
            run["alloc_fastpath"].as_u64().unwrap() + run["alloc_slowpath"].as_u64().unwrap(),
            2999
        );
        assert_eq!(run["replayed"]["orphans"], 1);
        assert_eq!(run["replayed"]["page_events"], 1);
        assert_eq!(run["events_per_second"], 0.0);
        for cache in run["caches"].as_array().unwrap() {
            for key in ["object_size", "active_objs", "num_objs", "slabs", "order"] {
                assert!(cache[key].is_number(), "{key}: {cache}");
            }
        }
    }
    let names: Vec<_> = runs[0]["caches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cache| &cache["name"])
        .collect();
    assert_eq!(names, ["dentry", "filp", "kmalloc-128"]);
}

#[test]
fn the_same_bytes_at_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    for trace in [trace.as_str(), "kv"] {
        let run = |jobs| {
            stdout(&format!(
                "replay {trace} --json --no-timing -j {jobs} --cpus 1,2,64 --design slub@5.9,slub@6.1,slub@6.18,slubq"
            ))
        };
        let one = run("1");
        assert_eq!(one, run("4"), "{trace}");
    }
}

#[test]
fn timing_is_all_that_differs() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let mut timed: Value = common::json(&format!("replay {trace} --json"));
    for run in timed["runs"].as_array_mut().unwrap() {
        assert!(run["events_per_second"].as_f64().unwrap() > 0.0);
        run["events_per_second"] = 0.0.into();
    }
    assert_eq!(timed, json(&trace));
}

#[test]
fn the_table_fits_and_says_what_was_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    for columns in [80, 120] {
        let output = command(&format!("replay {trace}"))
            .env("COLUMNS", columns.to_string())
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let wide = text
            .lines()
            .skip(2)
            .find(|line| line.chars().count() > columns);
        assert_eq!(wide, None, "{text}");
        for part in [
            "slab memory, peak",
            "asked for, end",
            "cross-CPU frees",
            "64 KiB pages",
            "not replayed: 1",
            "MiB",
        ] {
            assert!(text.contains(part) || part == "MiB", "{part}: {text}");
        }
    }
    let caches = stdout(&format!(
        "replay {trace} --caches --design slub --page-size 4k"
    ));
    assert!(
        caches.contains("filp") && caches.contains("kmalloc-128"),
        "{caches}"
    );
}

#[test]
fn settings_change_what_they_name() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let report = json(&format!(
        "{trace} --page-size 4k --set slub_max_order=0 --set slub.min_partial=99"
    ));
    for run in report["runs"].as_array().unwrap() {
        let orders = run["slabs_by_order"].as_array().unwrap();
        assert!(orders[1..].iter().all(|slabs| *slabs == 0), "{run}");
        for cache in run["caches"].as_array().unwrap() {
            assert_eq!(cache["min_partial"] == 99, run["design"] == "slub");
        }
    }
}

#[test]
fn wrong_questions() {
    assert_refuses(
        "replay",
        2,
        r#"
            --design slib => unknown design "slib"; designs are slab, slub, slubq, slob, sheaf, magazine
            --design slub@7.0 => Linux 7.0 has no slub; there is slub@2.6.22 to slub@6.19; take sheaf@7.0
            --page-size 8k => valid page sizes are 4k, 16k and 64k
            --cpus 0 => 0 CPUs: a machine has 1 to 4096
            --cpus 1000000 => 1000000 CPUs: a machine has 1 to 4096
            --set bogus=1 => slub@6.3 has | sheaf@7.0 has | sheaf_capacity
            --design slubq --set cpu_queue_size=1 => it takes 4..=10000 (objects)
            --set cpu_partial => there is no "="
            --memory x => is not a size
            --memory 0 => 0 bytes of memory
            --cache-line 7 => cache line of 7 bytes
            -j 0 => --jobs
        "#,
    );
}

#[test]
fn what_is_no_trace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(small_trace(dir.path())).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 6] ^= 1;
    let with = |bytes: &[u8]| {
        let path = dir.path().join("t.parquet");
        fs::write(&path, bytes).unwrap();
        quarry(&format!("replay {}", path.display()))
    };
    assert_fails(&with(b""), 1, &["the file is empty"]);
    assert_fails(
        &with(b"some text\n"),
        1,
        &["not a Parquet file", "quarry import"],
    );
    assert_fails(&with(&good[..good.len() / 2]), 1, &["truncated"]);
    assert_fails(&with(&damaged), 1, &["damaged"]);
    let absent = quarry("replay absent");
    assert_fails(
        &absent,
        1,
        &[
            "cannot read absent",
            "bundled recordings are hackbench, kv, tbench",
        ],
    );
    assert_fails(
        &quarry(&format!("replay {}", dir.path().display())),
        1,
        &["cannot read"],
    );
}

#[test]
fn exhausted_memory_names_the_event() {
    let output = quarry("replay hackbench --memory 4M --design slub");
    assert_fails(
        &output,
        3,
        &[
            "slub@6.17, 4k pages, 2 CPUs: memory is exhausted at event ",
            "--memory",
        ],
    );
}

#[test]
fn a_file_wins_over_a_bundled_name() {
    let dir = tempfile::tempdir().unwrap();
    let bundled = json("tbench --design slub --page-size 4k");
    assert_eq!(bundled["trace"]["events"], 243_069);
    fs::rename(small_trace(dir.path()), dir.path().join("tbench")).unwrap();
    let output = command("replay tbench --json")
        .current_dir(dir.path())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["trace"]["events"], 5401);
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let mut child = command(&format!("replay {trace} --json"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), stderr.as_str()),
        (Some(0), "")
    );
    if !Path::new("/dev/full").exists() {
        return;
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command(&format!("replay {trace}"))
        .stdout(full)
        .output()
        .unwrap();
    assert_fails(&output, 1, &["cannot write to stdout"]);
}

#[test]
fn debugging_costs_memory() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let peak = |more: &str| {
        let args = format!("{trace} --page-size 4k {more}");
        let report = json(&args);
        let runs = report["runs"].as_array().unwrap().clone();
        runs.iter()
            .map(|run| {
                assert_eq!(run.get("slub_debug").is_some(), more.contains("--debug"));
                run["peak_slab_bytes"].as_u64().unwrap()
            })
            .collect::<Vec<_>>()
    };
    let designs = "slub,slubq,sheaf,slab@2.6.24,slab@6.1";
    let plain = peak(&format!("--design {designs}"));
    let letters = peak(&format!("--design {designs} --debug FZPU"));
    assert_eq!((plain.len(), letters.len()), (5, 5));
    for (at, (plain, debug)) in plain.iter().zip(&letters).enumerate() {
        // SLAB's arrays hold so much of a small trace that slots which grow may still need fewer pages.
        assert!(
            if at < 3 {
                debug > plain
            } else {
                debug != plain
            },
            "{debug} bytes with debugging, {plain} without"
        );
    }
    // Only the caches that are named.
    let none = peak("--design slub --debug FZPU,kmalloc-8");
    assert_eq!(none, plain[..1]);
    let text = stdout(&format!("replay {trace} --design slub --debug F"));
    assert!(text.contains("debugging: slub_debug=F\n"), "{text}");
    let output = quarry(&format!("replay {trace} --design slub --debug FX"));
    let message = "slub@6.17: slub_debug has no letter 'X'; letters are F, Z, P, U, T, A, O and -";
    assert_fails(&output, 2, &[message]);
}
