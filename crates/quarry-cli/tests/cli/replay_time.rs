//! `quarry replay --time`.

use std::path::Path;

use crate::golden;
use serde_json::Value;

use crate::common::{assert_fails, assert_refuses, json, quarry, small_trace, stdout};

#[test]
fn a_small_trace_in_simulated_time() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let mut text = String::new();
    for pace in ["recorded", "full"] {
        let args = format!(
            "replay {trace} --time --pace {pace} --design slab@6.3,slob@6.3,slub@6.18,sheaf@7.0 --all --no-timing"
        );
        let told = stdout(&args);
        // The trace's name is that of a temporary folder.
        let from = told.find("time of ").unwrap();
        text.push_str(&told[from..]);
    }
    golden::check_layout("time.txt", &text);
}

/// A window of tbench as a trace.
fn part(dir: &Path, window: &str) -> String {
    let trace = dir.join("part.parquet");
    let trace = trace.to_str().unwrap();
    stdout(&format!("filter tbench -o {trace} {window}"));
    trace.to_string()
}

#[test]
fn a_bundled_recording_in_simulated_time() {
    let dir = tempfile::tempdir().unwrap();
    let trace = part(dir.path(), "--from +0.4 --until +0.5");
    let args = format!("replay {trace} --time --json");
    let json = json(&args);
    let run = |design: &str, era: &str| {
        let mut runs = json["runs"].as_array().unwrap().iter();
        runs.find(|run| run["design"] == design && run["era"] == era)
            .unwrap()
            .clone()
    };
    let ns = |run: &Value| run["operation_ns"].as_f64().unwrap();
    let share = |run: &Value, path: &str| run["paths"][path]["share"].as_f64().unwrap();
    let [slab, slub, sheaf] =
        [("slab", "6.3"), ("slub", "6.3"), ("sheaf", "7.0")].map(|(design, era)| run(design, era));
    // Objects that another CPU frees miss SLUB's CPU slab; queues and sheaves keep them.
    assert!(ns(&sheaf) < ns(&slab) && ns(&slab) < ns(&slub), "{json}");
    assert!(share(&slub, "miss") > 4.0 * share(&sheaf, "miss"), "{json}");
    // Two CPUs at the recorded pace hardly meet at a lock.
    for run in [slab, slub, sheaf] {
        assert!(share(&run, "lock_wait") < 0.01, "{run}");
    }
}

#[test]
fn same_seed_same_bytes_at_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let trace = part(dir.path(), "--until +0.05");
    let run = |more: &str| {
        let args = "--time --pace full --copies 6 --design slub,sheaf --json --no-timing";
        stdout(&format!("replay {trace} {args} {more}"))
    };
    let one = run("-j 1");
    assert!(one.contains("\"command\": \"replay --time\""));
    assert_eq!(run("-j 2 --seed 1"), one);
    assert_ne!(run("--seed 2"), one);
}

#[test]
fn sensitivity_says_which_designs_stay_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let trace = part(dir.path(), "--until +0.002");
    let run = |more: &str| {
        let args =
            "--time --sensitivity --page-size 4k,64k --no-timing --design slub@6.18,sheaf@7.0";
        stdout(&format!("replay {trace} {args} {more}"))
    };
    let text = run("-j 1");
    let json: Value = serde_json::from_str(&run("-j 3 --json")).unwrap();
    let study = &json["sensitivity"];
    // A claim for the two designs of each page size.
    let claims = study["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2);
    for (claim, pages) in claims.iter().zip([0, 1]) {
        let run = |design: usize| &json["runs"][2 * design + pages];
        let ns = |design: usize| run(design)["operation_ns"].as_f64().unwrap();
        let [first, second] = match ns(0) < ns(1) {
            true => ["slub@6.18", "sheaf@7.0"],
            false => ["sheaf@7.0", "slub@6.18"],
        };
        assert_eq!(claim["claim"], format!("{first} before {second}"));
        let verdict = claim["verdict"].as_str().unwrap();
        assert!(
            text.contains(&format!("{first} before {second}   {verdict}")),
            "{text}"
        );
    }
    let figures = study["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 4 * 4);
    assert_eq!(figures[0]["value"], json["runs"][0]["operation_ns"]);
}

#[test]
fn wrong_usage_is_refused() {
    assert_refuses(
        "replay tbench",
        2,
        r#"
            --time --copies 50 => 100 CPUs on haswell-ep-2x12: take 1 to 96; as many can be had of skylake-sp-8x28
            --time --machine nine => there is no machine "nine"
            --time --debug=FZ => '--time' | --debug
            --time --cache-line=128 => '--time' | --cache-line
            --pace=full --all => --time | required
            --machine=milan-2x64 --all => --time | required
            --seed=2 --all => --time | required
            --sensitivity --all => --time | required
        "#,
    );
}

#[test]
fn a_trace_without_times_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for n in 0..9 {
        let at = 0xffff_8881_0000_0000_u64 + n * 4096;
        text.push_str(&format!(
            "demo  77/77  [000]  0.000000000: kmem:kmalloc: call_site=demo+0x1 ptr={at:#x} bytes_req=100 \
             bytes_alloc=128 gfp_flags=GFP_KERNEL node=-1 accounted=false\n"
        ));
    }
    let (recording, trace) = (dir.path().join("r.txt"), dir.path().join("t.parquet"));
    std::fs::write(&recording, text).unwrap();
    let [recording, trace] = [&recording, &trace].map(|path| path.to_str().unwrap());
    stdout(&format!("import {recording} -o {trace} --page-size 4k"));
    let output = quarry(&format!("replay {trace} --time"));
    assert_fails(
        &output,
        2,
        &[
            "has no times: all of its 9 events",
            "or replay without --time",
        ],
    );
}
