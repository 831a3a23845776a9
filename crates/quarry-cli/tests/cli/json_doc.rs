//! docs/json.md names every field that the commands print.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::common::stdout;

/// The names in the first column of the tables below a heading, up to the next heading of its level.
fn documented(heading: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once(&format!("\n### {heading}\n")).unwrap();
    let rows = rest.split("\n#").next().unwrap().lines();
    rows.filter_map(|row| row.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name.rsplit('.').next().unwrap().to_string())
        .collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn every_field_of_a_replay_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("slabinfo");
    let text = "slabinfo - version: 2.1\n# name <active_objs>\n\
        filp 10 10 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n";
    std::fs::write(&report, text).unwrap();
    let report = report.to_str().unwrap();
    let reports = ["--before", report, "--after", report];
    let trace = crate::common::with_reports(dir.path(), "hackbench", &reports);
    let args = ["replay", &trace, "--check", "--debug", "U,absent", "--json"];
    let json: Value = serde_json::from_str(&stdout(&args)).unwrap();
    assert_eq!(
        (&json["schema"], &json["command"]),
        (&1.into(), &"replay".into())
    );
    assert_eq!(json["quarry"]["version"], env!("CARGO_PKG_VERSION"));
    let run = &json["runs"][0];
    for (heading, part) in [
        ("`trace`", &json["trace"]),
        ("`settings`", &json["settings"]),
        ("Each of `runs`", run),
        ("`replayed`", &run["replayed"]),
        ("Each of `caches`", &run["caches"][0]),
        ("`pages`", &run["pages"]),
        ("`check`", &run["check"]),
        ("Each of `check.caches`", &run["check"]["caches"][0]),
    ] {
        assert_eq!(documented(heading), keys(part), "{heading}");
    }
}

#[test]
fn every_field_of_a_replay_in_simulated_time_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let trace = crate::common::small_trace(dir.path());
    let args = ["replay", &trace, "--time", "--design", "slub", "--json"];
    let json: Value = serde_json::from_str(&stdout(&args)).unwrap();
    assert_eq!(json["command"], "replay --time");
    let time = keys(&json["settings"]["time"]);
    assert_eq!(time, ["machine", "pace", "seed"].map(String::from).into());
    let run = &json["runs"][0];
    for (heading, part) in [
        ("Each of `runs` of replay --time", run),
        ("`alloc`, `free`, `page_alloc`, `page_free`", &run["alloc"]),
        ("`paths`", &run["paths"]),
        ("Each of `paths`", &run["paths"]["lock_wait"]),
        ("`causes`", &run["causes"]),
        ("`replayed`", &run["replayed"]),
    ] {
        assert_eq!(documented(heading), keys(part), "{heading}");
    }
}

#[test]
fn every_field_of_a_prediction_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let boot = crate::what_if::boot(dir.path());
    let json: Value = serde_json::from_str(&stdout(&["what-if", &boot, "--json"])).unwrap();
    assert_eq!(
        keys(&json["snapshot"]),
        ["cpus", "file", "kernel", "page_size", "slab_bytes", "stage"]
            .map(String::from)
            .into()
    );
    let run = &json["runs"][0];
    assert_eq!(documented("Each of `runs` of what-if"), keys(run));
    assert_eq!(documented("Each of its `caches`"), keys(&run["caches"][0]));
}

#[test]
fn every_field_of_simulated_time_is_documented() {
    let json = |args: &str| -> Value {
        let args: Vec<&str> = args.split(' ').collect();
        serde_json::from_str(&stdout(&args)).unwrap()
    };
    let micro = json(
        "run micro --pattern cross --cpus 2 --count 200 --design sheaf,slub --sensitivity --json",
    );
    let run = &micro["runs"][0];
    let study = &micro["sensitivity"];
    let pages = json("run pages --processes 2 --pages 200 --era 4.13 --json");
    let page_run = &pages["runs"][0];
    assert_eq!(pages.get("sensitivity"), None);
    for (heading, part) in [
        ("Each of `runs` of micro", run),
        ("Each of `alloc`, `free` and `fault`", &run["alloc"]),
        ("Each of `alloc`, `free` and `fault`", &page_run["fault"]),
        ("`causes`", &run["causes"]),
        ("Each of `causes.locks`", &run["causes"]["locks"][0]),
        ("`causes.lines`", &run["causes"]["lines"]),
        ("`sensitivity`", study),
        ("Each of `figures`", &study["figures"][0]),
        (
            "Each of `figures.constants`",
            &study["figures"][0]["constants"][0],
        ),
        ("Each of `claims`", &study["claims"][0]),
        ("Each of `runs` of pages", page_run),
        ("`fault_lock` and `free_lock`", &page_run["free_lock"]),
    ] {
        assert_eq!(documented(heading), keys(part), "{heading}");
    }
}

#[test]
fn every_field_of_a_difference_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let trace = crate::common::small_trace(dir.path());
    let write = |name: &str, debug: &str| -> String {
        let args = [
            "replay", &trace, "--design", "slub", "--json", "--debug", debug,
        ];
        let path = dir.path().join(name);
        std::fs::write(&path, stdout(&args)).unwrap();
        path.to_str().unwrap().to_string()
    };
    let a = write("a.json", "U,absent");
    let b = write("b.json", "FZPU");
    let json: Value = serde_json::from_str(&stdout(&["diff", &a, &b, "--json"])).unwrap();
    let run = &json["runs"][0];
    for (heading, part) in [
        ("Each of `runs` of diff", run),
        ("Each of `rows`", &run["rows"][0]),
        ("Each of `caches` of diff", &run["caches"][0]),
    ] {
        assert_eq!(documented(heading), keys(part), "{heading}");
    }
}

#[test]
fn every_field_of_loads_and_threads_is_documented() {
    let json = |args: &str| -> Value {
        let args: Vec<&str> = args.split(' ').collect();
        serde_json::from_str(&stdout(&args)).unwrap()
    };
    let load = json("run hackbench -g 1 -f 2 -l 5 --cpus 2 --design slub --json");
    let run = &load["runs"][0];
    let host = json("run hackbench -g 1 -f 2 -l 5 --host --rounds 1 --design slub --json");
    let threads = json("reproduce wakeup-2007 --quick --json");
    let thread = &threads["threads"][0];
    for (heading, part) in [
        ("Each of `runs` of a load", run),
        ("Each of `caches` of a load", &run["caches"][0]),
        ("`profile` of a load", &run["profile"]),
        ("Each of `runs` with `--host`", &host["runs"][0]),
        ("Each of `threads`", thread),
        ("Each of `claims` of a thread", &thread["claims"][0]),
        (
            "`origin` of a table or a plot",
            &thread["tables"][0]["origin"],
        ),
        ("Each of `lines` of a plot", &thread["plots"][0]["lines"][0]),
        (
            "Each of `rows` of a thread",
            &thread["tables"][0]["rows"][0],
        ),
    ] {
        assert_eq!(documented(heading), keys(part), "{heading}");
    }
}
