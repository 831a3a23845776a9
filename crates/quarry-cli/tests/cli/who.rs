//! `quarry info`, `quarry callers`, lists of values, and the memory of caches in several runs.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::{
    assert_fails, assert_has, json, quarry, quarry_with, small_trace, stdout, text, with_reports,
};

/// A kernel that holds one slab of filp more at the end than at the begin.
const BEFORE: &str = "slabinfo - version: 2.1\n# name <active_objs>\n\
    filp 10 16 256 16 1 : tunables 0 0 0 : slabdata 1 1 0\n";
const AFTER: &str = "slabinfo - version: 2.1\n# name <active_objs>\n\
    filp 20 32 256 16 1 : tunables 0 0 0 : slabdata 2 2 0\n";

/// The small trace with a snapshot of both ends.
fn recorded(dir: &std::path::Path) -> String {
    let trace = small_trace(dir);
    let [before, after] = [("before", BEFORE), ("after", AFTER)].map(|(name, report)| {
        let path = dir.join(name);
        fs::write(&path, report).unwrap();
        path.to_str().unwrap().to_string()
    });
    with_reports(dir, &trace, &format!("--before {before} --after {after}"))
}

#[test]
fn info_of_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let told = stdout(&format!("info {trace}"));
    assert_has(
        &told,
        &[
            "is a recording of 6.18.44",
            "a replay of it starts from an empty machine",
            "kmem_cache_alloc",
            "demo",
            "demo+0x1",
            "reports of the kernel",
        ],
    );
    let info = json(&format!("info {trace} --json"));
    assert_eq!((&info["kind"], &info["cpus"]), (&"trace".into(), &2.into()));
    assert_eq!(info["page_size"], 4096);
    let kinds = info["trace"]["events_by_kind"].as_object().unwrap();
    let events: u64 = kinds.values().filter_map(Value::as_u64).sum();
    assert_eq!(info["trace"]["events"], events);
    let process = &info["trace"]["processes"][0];
    assert_eq!(
        (process["name"].as_str(), process["share"].as_f64()),
        (Some("demo"), Some(1.0))
    );
    // The same from stdin.
    let piped = quarry_with("info - --json", &fs::read(&trace).unwrap());
    let piped: Value = serde_json::from_str(&text(&piped)).unwrap();
    assert_eq!(piped["name"], "<stdin>");
    assert_eq!(piped["trace"]["digest"], info["trace"]["digest"]);
}

#[test]
fn info_tells_reports_and_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let trace = recorded(dir.path());
    let told = stdout(&format!("info {trace}"));
    assert!(told.contains("and be checked"), "{told}");
    let info = json(&format!("info {trace} --json"));
    assert_eq!(info["trace"]["reports"].as_array().unwrap().len(), 2);
    assert_eq!(info["slabs"]["slab_bytes"], 4096);
    let boot = crate::what_if::boot(dir.path());
    let told = stdout(&format!("info {boot} --stage boot"));
    assert_has(
        &told,
        &[
            "is a snapshot of 6.1.0-50-powerpc64le",
            "64 KiB pages",
            "16 CPUs",
            "kmalloc-64k",
            "meminfo",
        ],
    );
    let info = json(&format!("info {boot} --json"));
    assert_eq!(
        (&info["kind"], &info["trace"]),
        (&"snapshot".into(), &Value::Null)
    );
    let tunables = info["tunables"].as_array().unwrap();
    let min_partial = tunables
        .iter()
        .find(|tunable| tunable["name"] == "min_partial");
    assert_eq!(min_partial.unwrap()["usual"], 5);
    assert_fails(
        &quarry(&format!("info {trace} --stage boot")),
        2,
        &["is no snapshot"],
    );
    assert_fails(
        &quarry("info absent.parquet"),
        1,
        &["absent.parquet", "bundled recordings are"],
    );
}

#[test]
fn callers_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let told = stdout(&format!("callers {trace}"));
    assert!(
        told.contains("demo+0x1 holds the most memory at the peak"),
        "{told}"
    );
    for by in ["site", "process", "cache"] {
        let callers = json(&format!("callers {trace} --by {by} --json"));
        let rows = callers["callers"].as_array().unwrap();
        assert_eq!(rows.len(), if by == "cache" { 3 } else { 1 });
        for field in [
            "allocs",
            "bytes_req",
            "bytes_alloc",
            "peak_live_bytes",
            "end_live_bytes",
            "frees",
        ] {
            let sum: u64 = rows.iter().map(|row| row[field].as_u64().unwrap()).sum();
            assert_eq!(callers["totals"][field], sum, "{field} by {by}");
        }
    }
    let callers = json(&format!("callers {trace} --by cache --json"));
    let names: BTreeSet<&str> = callers["callers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["name"].as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["dentry", "filp", "kmalloc-128"]));
    // Frees happen on CPU n / 7 % 2, allocations on n % 2.
    let crossed = callers["callers"][0]["cross_cpu_frees"].as_u64().unwrap();
    assert!(crossed > 0);
    let csv = stdout(&format!("callers {trace} --by cache --csv"));
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(csv.starts_with("name,aliases,allocs,"), "{csv}");
}

#[test]
fn folded_stacks_are_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let totals = json(&format!("callers {trace} --json"))["totals"].clone();
    for (option, total) in [
        ("--folded", "peak_live_bytes"),
        ("--folded=end", "end_live_bytes"),
        ("--folded=all", "bytes_alloc"),
    ] {
        let folded = stdout(&format!("callers {trace} {option}"));
        let mut sum = 0;
        for line in folded.lines() {
            let (frames, bytes) = line.rsplit_once(' ').unwrap();
            assert_eq!(frames.split(';').count(), 3, "{line}");
            assert!(frames.starts_with("demo;demo+0x1;"), "{line}");
            sum += bytes.parse::<u64>().unwrap();
        }
        assert_eq!(totals[total], sum, "{option}");
    }
    assert_fails(
        &quarry(&format!("callers {trace} --folded --json")),
        2,
        &["--json"],
    );
}

/// A huge page comes and goes; then a fallback lets a page of tables into its block.
const SPOILED: &str = "\
    a 1 [000] 1.000001: kmem:mm_page_alloc: page=0x1 pfn=0x200 order=9 migratetype=1 gfp_flags=GFP_TRANSHUGE\n\
    a 1 [000] 1.000002: kmem:mm_page_free: page=0x1 pfn=0x200 order=9\n\
    a 1 [000] 1.000003: kmem:mm_page_alloc_extfrag: page=0x1 pfn=0x200 alloc_order=0 fallback_order=9 pageblock_order=9 \
    alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1\n\
    a 1 [000] 1.000003: kmem:mm_page_alloc: page=0x1 pfn=0x201 order=0 migratetype=0 gfp_flags=GFP_KERNEL\n\
    a 1 [000] 1.000503: kmem:mm_page_free: page=0x1 pfn=0x201 order=0\n";

#[test]
fn taints_in_all_forms() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let [text, trace, html, perfetto] = ["t.txt", "t.parquet", "t.html", "t.pftrace"].map(path);
    fs::write(&text, SPOILED).unwrap();
    let machine = "--kernel 6.18.44 --page-size 4096 --cpus 2";
    stdout(&format!("import {text} -o {trace} {machine}"));
    let files = format!("--html {html} --perfetto {perfetto}");
    let told = stdout(&format!("callers {trace} --taints {files}"));
    assert_has(
        &told,
        &[
            "1 clean block of 2.0 MiB was spoiled; 1 time one became clean again",
            "pages (GFP_KERNEL) did most",
            "there is no map of memory",
            "1 of 1 took a free block",
        ],
    );
    assert!(fs::read_to_string(html).unwrap().contains("Who spoils"));
    let file = fs::read(perfetto).unwrap();
    assert!(file.windows(18).any(|part| part == b"pages (GFP_KERNEL)"));
    let taints = json(&format!("callers {trace} --taints --json"));
    let taint = &taints["taints"][0];
    assert_eq!(
        (&taint["pfn"], &taint["address"]),
        (&0x201.into(), &(2 << 20).into())
    );
    assert_eq!(
        (&taint["stayed_ns"], &taint["fallback"]),
        (&500_000.into(), &true.into())
    );
    assert_eq!(taints["blocks"][1]["unknown"], 1, "the gigabyte");
    let csv = stdout(&format!("callers {trace} --taints --csv"));
    assert!(csv.starts_with("time_ns,block_bytes,address,"), "{csv}");
    assert_eq!(csv.lines().count(), 3);
    let told = stdout(&format!("info {trace}"));
    assert_has(&told, &["1 fallbacks to another migrate type"]);

    let kept = quarry(&format!("callers {trace} --taints {files}"));
    assert_fails(&kept, 2, &["t.html", "--force"]);
    let alone = quarry(&format!("callers {trace} --perfetto {text}"));
    assert_fails(&alone, 2, &["--taints"]);
    let twice = quarry(&format!("callers {trace} --taints --json --perfetto -"));
    assert_fails(&twice, 2, &["stdout"]);
    // Traces from before frames were kept.
    let old = quarry("callers kv --taints");
    assert_fails(
        &old,
        2,
        &["the recording has no frame numbers of pages; `quarry record`"],
    );
}

#[test]
fn a_replay_shows_callers_next_to_its_tables() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let told = stdout(&format!("replay {trace} --design slub --callers"));
    assert!(
        told.contains("call site") && told.contains("demo+0x1"),
        "{told}"
    );
    let replayed = json(&format!("replay {trace} --design slub --callers --json"));
    assert_eq!(replayed["callers"][0]["name"], "demo+0x1");
}

#[test]
fn caches_of_several_runs_are_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let args = format!("replay {trace} --design slub,slab@6.1,slob@6.1 --page-size 4k");
    let told = stdout(&format!("{args} --caches"));
    let (_, table) = told.split_once("Caches at the end").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.contains("filp")).collect();
    assert_eq!(rows.len(), 1, "{told}");
    // The caches come by the spread of their memory; SLOB's slabs are no cache's.
    let report = json(&format!("{args} --json --no-timing"));
    let memory = |name: &str| -> Vec<u64> {
        let runs = report["runs"].as_array().unwrap();
        let caches = runs
            .iter()
            .flat_map(|run| run["caches"].as_array().unwrap());
        let named = caches.filter(|cache| cache["name"] == name);
        named
            .map(|cache| cache["slab_bytes"].as_u64().unwrap())
            .collect()
    };
    let order: Vec<&str> = table
        .lines()
        .filter_map(|line| {
            ["filp", "dentry", "kmalloc-128"]
                .into_iter()
                .find(|name| line.trim_start().starts_with(name))
        })
        .collect();
    let spread = |name: &str| {
        let all = memory(name);
        all[0].abs_diff(all[1])
    };
    assert!(
        order
            .windows(2)
            .all(|pair| spread(pair[0]) >= spread(pair[1])),
        "{order:?} in {told}"
    );
}

#[test]
fn a_list_of_values_is_a_column_each() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let args = format!(
        "replay {trace} --design slub,slab@6.1 --page-size 4k --set slub.cpu_partial=0,6,13"
    );
    let runs = json(&format!("{args} --json --no-timing"))["runs"]
        .as_array()
        .unwrap()
        .clone();
    let sets: Vec<Option<&str>> = runs.iter().map(|run| run["set"].as_str()).collect();
    let expected = [
        Some("default"),
        Some("cpu_partial=0"),
        Some("cpu_partial=6"),
        Some("cpu_partial=13"),
        None,
    ];
    assert_eq!(sets, expected);
    // Each column is the run with that value alone.
    for (run, value) in runs[1..4].iter().zip([0, 6, 13]) {
        let alone = format!(
            "replay {trace} --design slub --page-size 4k --set slub.cpu_partial={value} --json --no-timing"
        );
        let mut alone = json(&alone)["runs"][0].clone();
        alone["set"] = run["set"].clone();
        assert_eq!(*run, alone);
    }
    let told = stdout(&args);
    assert_has(&told, &["default", "cpu_partial=0", "cpu_partial=13"]);
    let boot = crate::what_if::boot(dir.path());
    let told = json(&format!("what-if {boot} --set slub_max_order=0,1 --json"));
    let told = told["runs"].as_array().unwrap();
    let sets: Vec<&str> = told
        .iter()
        .map(|run| run["set"].as_str().unwrap())
        .collect();
    assert_eq!(sets, ["default", "slub_max_order=0", "slub_max_order=1"]);
    let table = stdout(&format!("what-if {boot} --set slub_max_order=0,1"));
    assert!(table.contains("slub_max_order=1"), "{table}");
}

#[test]
fn names_that_match_nothing_name_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let refused = quarry(&format!("replay {trace} --design slub --debug FZPU,dentyr"));
    assert_fails(
        &refused,
        2,
        &[
            "--debug: no cache of",
            "\"dentyr\"",
            "the nearest is dentry",
        ],
    );
    let refused = quarry(&format!(
        "replay {trace} --design slub --debug FZPU,kmaloc-*"
    ));
    assert_fails(&refused, 2, &["kmaloc-*", "the nearest is kmalloc-"]);
    let refused = quarry(&format!(
        "replay {trace} --design slub --set slub.cpu_partail=0"
    ));
    assert_fails(&refused, 2, &["(the nearest is cpu_partial)"]);
}

#[test]
fn a_prediction_takes_the_snapshots_of_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let trace = recorded(dir.path());
    let slabs = |options: &str| {
        let told = json(&format!("what-if {trace} {options} --json"));
        told["snapshot"]["slab_bytes"].as_u64().unwrap()
    };
    assert_eq!(
        (slabs(""), slabs("--at begin"), slabs("--at end")),
        (8192, 4096, 8192)
    );
    let plain = small_trace(dir.path());
    let refused = quarry(&format!("what-if {plain} --page-size 64k"));
    assert_fails(
        &refused,
        1,
        &["has no snapshot: record it", "quarry record"],
    );
    let boot = crate::what_if::boot(dir.path());
    assert_fails(
        &quarry(&format!("what-if {boot} --at end")),
        2,
        &["--at is for traces"],
    );
}

#[test]
fn a_replay_in_simulated_time_has_a_page_and_lines() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let args = format!("replay {trace} --time --design slub,sheaf");
    let page = stdout(&format!("{args} --html -"));
    assert_has(
        &page,
        &[
            "percentile of the operations",
            "<figcaption>allocations</figcaption>",
            "value=\"sheaf@7.0\" checked",
            "takes the least time",
        ],
    );
    let csv = stdout(&format!("{args} --csv"));
    assert_eq!(csv.lines().count(), 3, "{csv}");
}

#[test]
fn a_difference_can_fail_a_build() {
    let dir = tempfile::tempdir().unwrap();
    let trace = small_trace(dir.path());
    let file = |name: &str, args: &str| {
        let path = dir.path().join(name);
        fs::write(&path, stdout(args)).unwrap();
        path.to_str().unwrap().to_string()
    };
    let replay = format!("replay {trace} --design slub --page-size 4k --json --no-timing");
    let a = file("a.json", &replay);
    let b = file("b.json", &format!("{replay} --debug FZPU"));
    stdout(&format!("diff {a} {a} --fail-above 0"));
    stdout(&format!("diff {a} {b} --fail-above 100000% --top 0"));
    let worse = quarry(&format!("diff {a} {b} --fail-above 5%"));
    assert_eq!(worse.status.code(), Some(3), "{worse:?}");
    assert!(!worse.stdout.is_empty());
    let message = String::from_utf8_lossy(&worse.stderr).to_string();
    assert!(
        message.contains("worse by more than 5 %: slub@6.17"),
        "{message}"
    );
    let told = quarry(&format!("diff {a} {b} --fail-above 5% --json"));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert!(!told["worse"].as_array().unwrap().is_empty());
    assert_fails(
        &quarry(&format!("diff {a} {b} --fail-above much")),
        2,
        &["is no percentage"],
    );
    // Outputs of other commands.
    for args in [
        "machines --json".to_string(),
        "tunables --json".to_string(),
        format!("callers {trace} --json"),
        format!("info {trace} --json"),
        "geometry --object-size 192 --json".to_string(),
        "run micro --pattern pair --count 20 --design slub --json".to_string(),
    ] {
        let same = file("same.json", &args);
        let told = stdout(&format!("diff {same} {same}"));
        assert!(told.contains("nothing changed"), "{args}: {told}");
    }
}
