//! `quarry diff`, and `-` for inputs and outputs.

use std::fs;

use serde_json::Value;

use crate::common::{
    assert_fails, assert_has, json, quarry, quarry_with, small_trace, stdout, text,
};

const REPLAY: &str = "--json --no-timing --design slub,sheaf --page-size 4k";

fn replay(trace: &str, options: &str) -> String {
    stdout(&format!("replay {trace} {REPLAY} {options}"))
}

#[test]
fn two_replays() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (a, b) = (path("a.json"), path("b.json"));
    fs::write(&a, replay(&trace, "")).unwrap();
    fs::write(&b, replay(&trace, "--debug FZPU")).unwrap();
    let told = stdout(&format!("diff {a} {b}"));
    assert_has(
        &told,
        &[
            "slub@6.17, 4 KiB pages, 2 CPUs: slab memory",
            "sheaf@7.0, 4 KiB pages, 2 CPUs: slab memory",
            "differs: settings.debug none > FZPU",
            "slab memory, end",
        ],
    );
    let changes = json(&format!("diff {a} {b} --json"));
    assert_eq!(changes["command"], "diff");
    assert_eq!(changes["schema"], 1);
    // The change is that of the two outputs, and reversing it reverses the sides.
    let end = |file: &str| -> Value {
        let json: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        json["runs"][0]["final_slab_bytes"].clone()
    };
    let row = |json: &Value| -> Value {
        let rows = json["runs"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "final_slab_bytes");
        row.unwrap().clone()
    };
    assert_eq!(row(&changes)["a"].as_f64(), end(&a).as_f64());
    assert_eq!(row(&changes)["b"].as_f64(), end(&b).as_f64());
    let back = json(&format!("diff {b} {a} --json"));
    assert_eq!(row(&back)["a"], row(&changes)["b"]);
    // The same from stdin.
    let piped = quarry_with(&format!("diff {a} - --json"), &fs::read(&b).unwrap());
    let piped: Value = serde_json::from_str(&text(&piped)).unwrap();
    assert_eq!(piped["runs"], changes["runs"]);
}

#[test]
fn what_cannot_be_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (good, other, no_json) = (path("good"), path("other"), path("text"));
    let document = |command: &str, design: &str| {
        format!(
            "{{\"schema\": 1, \"command\": \"{command}\", \"runs\": [{{\"design\": \"{design}\", \
             \"page_size\": 4096, \"cpus\": 2}}]}}"
        )
    };
    fs::write(&good, document("replay", "slub")).unwrap();
    fs::write(&other, document("what-if", "slub")).unwrap();
    fs::write(&no_json, "slub\n").unwrap();
    assert_fails(
        &quarry(&format!("diff {good} {no_json}")),
        1,
        &[&no_json, "no JSON"],
    );
    assert_fails(
        &quarry(&format!("diff {good} {other}")),
        1,
        &["one command"],
    );
    assert_fails(
        &quarry(&format!("diff {good} {}", path("absent"))),
        1,
        &["absent"],
    );
    assert_fails(&quarry("diff - -"), 2, &["stdin is one file"]);
    fs::write(
        &other,
        document("replay", "slub").replace("\"schema\": 1", "\"schema\": 7"),
    )
    .unwrap();
    assert_fails(
        &quarry(&format!("diff {good} {other}")),
        1,
        &["schema is 7", "reads 1"],
    );
}

#[test]
fn a_trace_goes_through_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let recorded = crate::common::recording();
    let options = "--kernel 6.18.44 --page-size 4096 --cpus 2";
    let imported = quarry_with(&format!("import - -o - {options}"), recorded.as_bytes());
    assert!(imported.status.success(), "{imported:?}");
    assert!(String::from_utf8_lossy(&imported.stderr).contains("kernel"));
    assert_eq!(imported.stdout, fs::read(&trace).unwrap());
    let args = format!("replay - {REPLAY}");
    let runs = |json: &str| serde_json::from_str::<Value>(json).unwrap()["runs"].take();
    let piped = text(&quarry_with(&args, &imported.stdout));
    assert_eq!(runs(&piped), runs(&replay(&trace, "")));
    // A part of it, through one pipe more.
    let part = quarry_with("filter - -o - --cache filp", &imported.stdout);
    assert!(part.status.success(), "{part:?}");
    let file = dir.path().join("part.parquet");
    let file = file.to_str().unwrap();
    stdout(&format!("filter {trace} -o {file} --cache filp"));
    assert_eq!(part.stdout, fs::read(file).unwrap());
    // What only looks like a trace.
    assert_fails(
        &quarry_with(&args, b"no trace"),
        1,
        &["stdin holds no trace"],
    );
    assert_fails(&quarry_with(&args, b""), 1, &["stdin holds no trace"]);
}

#[test]
fn one_stdin_and_one_stdout() {
    let two = "filter - -o never --before -";
    let parts = ["--before and TRACE", "stdin is one file"];
    assert_fails(&quarry(two), 2, &parts);
    let two = "replay --html - --json";
    assert_fails(&quarry(two), 2, &["two outputs"]);
    let two = "filter hackbench --cache filp -o - --json";
    assert_fails(&quarry(two), 2, &["both go to stdout"]);
}

#[test]
fn predictions_from_stdin_and_as_csv() {
    let dir = tempfile::tempdir().unwrap();
    let boot = crate::what_if::boot(dir.path());
    let snapshot = fs::read(&boot).unwrap();
    let args = "what-if - --page-size 4k,64k --csv";
    let csv = text(&quarry_with(args, &snapshot));
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(lines[0].starts_with("design,page_size,cpus,"), "{csv}");
    assert!(lines[1].starts_with("slub@6.1,4096,16,"), "{csv}");
    let caches = text(&quarry_with("what-if - --csv --caches", &snapshot));
    assert!(
        caches.starts_with("design,page_size,cpus,name,"),
        "{caches}"
    );
    let columns = caches.lines().next().unwrap().split(',').count();
    for line in caches.lines() {
        assert_eq!(line.split(',').count(), columns, "{line}");
    }
}
