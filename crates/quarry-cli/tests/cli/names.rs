//! Answers under their right names: merged caches, releases, moments, counts, and files that are not alike.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{
    assert_fails, assert_has, command, json, quarry, small_trace, stdout, with_reports,
};

/// A snapshot of a kernel 6.18 in which `filp`, `cred` and `demo_cache` are one cache with this number of slabs.
fn snapshot(dir: &Path, name: &str, slabs: u64, more: Value) -> String {
    let objects = slabs * 21;
    let text = format!(
        "slabinfo - version: 2.1\n\
         filp {objects} {objects} 192 21 1 : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n\
         dentry 42 42 192 21 1 : tunables 0 0 0 : slabdata 2 2 0\n"
    );
    let mut whole = json!({
        "page_size": 4096, "kernel_release": "6.18.44", "cpu_present": "0-1", "cpu_possible": "0-1",
        "slabinfo_text": text, "sysfs_slab": {":0000192": {"object_size": "192"}, "dentry": {"object_size": "192"}},
        "sysfs_aliases": {"filp": ":0000192", "cred": ":0000192", "demo_cache": ":0000192"},
    });
    for (name, value) in more.as_object().unwrap() {
        whole[name] = value.clone();
    }
    let path = dir.join(name);
    fs::write(&path, whole.to_string()).unwrap();
    path.to_str().unwrap().to_string()
}

/// A text without its line ends, which are where the width has them.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The member of the first object of a list that has this name.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {list}"))
}

#[test]
fn merged_caches_have_all_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = [("a.json", 10), ("b.json", 200)]
        .map(|(name, slabs)| snapshot(dir.path(), name, slabs, json!({})));
    let trace = small_trace(dir.path());
    let trace = with_reports(dir.path(), &trace, &format!("--before {a} --after {b}"));
    let label = "filp (also cred, demo_cache)";
    for line in [
        format!("look {a} {b}"),
        format!("info {a}"),
        format!("info {trace}"),
        format!("what-if {b} --page-size 64k --caches"),
        format!("callers {trace} --by cache"),
        format!("callers {trace} --folded=all"),
        format!("replay {trace} --caches --no-timing"),
        format!("replay {trace} --caches --no-timing --design slub@6.1,slub@6.12"),
        format!("replay {trace} --check --no-timing"),
    ] {
        assert_has(&in_a_line(&stdout(&line)), &[label]);
    }
    let names = json!(["cred", "demo_cache"]);
    let look = json(&format!("look {a} {b} --json"));
    for list in [&look["caches"], &look["growth"]["caches"]] {
        assert_eq!(named(list, "filp")["aliases"], names);
    }
    assert_eq!(named(&look["caches"], "dentry")["aliases"], json!([]));
    let run = &json(&format!("replay {trace} --json"))["runs"][0];
    assert_eq!(named(&run["caches"], "filp")["aliases"], names);
    // The call site is demo+0x1.
    let callers = json(&format!("callers {trace} --json"));
    let site = named(&callers["merged"], "filp");
    assert_eq!(site["likely"], json!(["demo_cache"]));
    assert_eq!(site["because"], "the function's name has demo");
    let page = dir.path().join("page.html");
    let page = page.to_str().unwrap();
    stdout(&format!("look {b} --html {page}"));
    assert!(fs::read_to_string(page).unwrap().contains(label));
}

/// 6.18 has sheaves in some caches, so it is `sheaf@6.18` at every door.
#[test]
fn a_release_has_one_name() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let designs = |options: &str| -> Vec<String> {
        let told = json(&format!("replay {trace} --page-size 4k --json {options}"));
        let runs = told["runs"].as_array().unwrap().iter();
        let name = |run: &Value| format!("{}@{}", run["design"], run["era"]).replace('"', "");
        runs.map(name).collect()
    };
    let all = [
        "sheaf@6.18",
        "slab@6.3",
        "slob@6.3",
        "slub@6.3",
        "sheaf@7.0",
    ];
    assert_eq!(designs(""), all);
    assert_eq!(
        designs("--time"),
        ["sheaf@6.18", "slab@6.3", "slub@6.3", "sheaf@7.0"]
    );
    let now = snapshot(dir.path(), "now.json", 10, json!({}));
    assert_eq!(json(&format!("look {now} --json"))["design"], all[0]);
    let told = json(&format!("what-if {now} --json"));
    assert_eq!(told["runs"][0]["design"], all[0]);
}

#[test]
fn what_follows_a_value_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let now = snapshot(dir.path(), "now.json", 10, json!({}));
    for (option, value) in [
        ("--release", "7.3 oops"),
        ("--design", "slub@6.12 x"),
        ("--page-size", "64k junk"),
        ("--cpus", "1..8x"),
        ("--kernel", "6.18 x"),
        ("--set", "cpu_partial=0,6x"),
        ("--config", "MEMCG=n x"),
    ] {
        let mut line = command(&format!("what-if {now} {option}"));
        assert_fails(&line.arg(value).output().unwrap(), 2, &[option]);
    }
    let told = json(&format!("what-if {now} --release 6.12,7.3 --json"));
    assert_eq!(told["runs"].as_array().unwrap().len(), 2);
    // A plan's text is one value.
    let plan = dir.path().join("plan.toml");
    for (value, part) in [
        ("\"6.12,7.3\"", "write a list, [\"6.12\", \"7.3\"]"),
        ("\"7.3 oops\"", "there is no era \"7.3 oops\""),
    ] {
        fs::write(
            &plan,
            format!("ask = \"what-if\"\ninput = [\"{now}\"]\nrelease = {value}\n"),
        )
        .unwrap();
        let out = dir.path().join("out");
        let line = format!("sweep {} -o {}", plan.display(), out.display());
        assert_fails(&quarry(&line), 2, &["release: ", part]);
    }
}

/// The rows are the sum of the events and of what makes rows of them.
#[test]
fn counts_of_a_recording_have_one_definition() {
    for name in ["hackbench", "kv", "tbench"] {
        let info = json(&format!("info {name} --json"));
        let trace = &info["trace"];
        let of = |value: &Value| value.as_i64().unwrap();
        let kinds = trace["events_by_kind"].as_object().unwrap();
        let events: i64 = kinds.values().map(of).sum();
        let orphans = &trace["orphans_by_kind"];
        let implied = of(&orphans["implied_object_frees"]) + of(&orphans["implied_page_frees"]);
        let without = of(&trace["null_frees"]) + of(&trace["failed_allocs"]);
        assert_eq!(of(&trace["events"]), events);
        assert_eq!(of(&trace["rows"]), events - without + implied);
        assert!(without > 0 && implied > 0);
        let processes = trace["processes"].as_array().unwrap().iter();
        let shares: f64 = processes.map(|one| one["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        let least = |alive: &str, peak: &str| of(&orphans[alive]) <= of(&trace[peak]);
        assert!(least("never_freed_objects", "peak_live_objects"));
        assert!(least("never_freed_pages", "peak_live_page_blocks"));
    }
    let told = in_a_line(&stdout("info hackbench"));
    assert_has(
        &told,
        &[
            "344 725 rows (355 520 events recorded)",
            "frees of nothing -10 828 implied frees +33 rows 344 725",
            "alive at the end: 2 511 objects; 402 page blocks",
        ],
    );
}

#[test]
fn a_recording_is_asked_of_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = [("a.json", 10), ("b.json", 200)]
        .map(|(name, slabs)| snapshot(dir.path(), name, slabs, json!({})));
    let trace = small_trace(dir.path());
    let trace = with_reports(dir.path(), &trace, &format!("--before {a} --after {b}"));
    let asked = |options: &str| json(&format!("what-if {trace} --json {options}"));
    let look = json(&format!("look {trace} --json"));
    assert_eq!(asked("")["snapshot"]["slab_bytes"], look["slab_bytes"]);
    assert_eq!(asked("")["snapshot"]["file"], format!("{trace}, end"));
    assert_eq!(
        look["files"],
        json!([format!("{trace}, begin"), format!("{trace}, end")])
    );
    let begin = asked("--at begin");
    assert_eq!(begin["snapshot"]["file"], format!("{trace}, begin"));
    assert_eq!(begin["snapshot"]["slab_bytes"], 12 * 4096);
}

#[test]
fn files_of_other_machines_and_in_another_order_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, slabs, time: u64| {
        snapshot(dir.path(), name, slabs, json!({"unix_time_s": time}))
    };
    let (monday, tuesday) = (
        at("monday.json", 10, 1_000_000),
        at("tuesday.json", 900, 1_086_400),
    );
    let right = json(&format!("look {monday} {tuesday} --json"));
    let wrong = json(&format!("look {tuesday} {monday} --json"));
    assert_eq!(right["growth"], wrong["growth"]);
    let turned = "The files were not given oldest first: they are compared by their times. ";
    let finding = |of: &Value| of["finding"].as_str().unwrap().to_string();
    assert_eq!(finding(&wrong), turned.to_string() + &finding(&right));
    assert!(finding(&right).contains("a leak, if it goes on"));
    // Another machine is no growth, whatever the order.
    let other = json!({"unix_time_s": 1_000_000, "kernel_release": "6.12.1", "cpu_present": "0-7", "cpu_possible": "0-7"});
    let other = snapshot(dir.path(), "other.json", 10, other);
    for files in [format!("{other} {tuesday}"), format!("{tuesday} {other}")] {
        let told = finding(&json(&format!("look {files} --json")));
        assert!(
            told.starts_with("The first and the last are of different machines or kernels (kernel"),
            "{told}"
        );
        assert!(!told.contains("leak") && !told.contains("oldest"), "{told}");
    }
}

/// A recording of some tasks lacks what others did, and the check says so first.
#[test]
fn a_check_of_some_tasks_names_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = [("a.json", 10), ("b.json", 200)]
        .map(|(name, slabs)| snapshot(dir.path(), name, slabs, json!({})));
    let trace = small_trace(dir.path());
    let finding = |options: &str| {
        let trace = with_reports(
            dir.path(),
            &trace,
            &format!("--before {a} --after {b} {options}"),
        );
        let told = json(&format!("replay {trace} --check --json"));
        told["finding"].as_str().unwrap().to_string()
    };
    assert!(finding("").starts_with("At its end"));
    let told = finding("--comm demo");
    let cause = "Only a part of a recording is here (of processes demo), and the reports are of the whole machine";
    assert!(told.starts_with(cause), "{told}");
}
