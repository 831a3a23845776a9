//! `quarry replay --initial` and `--check`, with reports that `quarry import` or `quarry filter` put into the trace.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{assert_fails, json, quarry, small_trace, stdout, with_reports};
use crate::golden;

const HEADER: &str = "slabinfo - version: 2.1\n\
    # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables \
    <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n";

/// Name, active and all objects, bytes of one, objects and pages of a slab.
type Row = (&'static str, u64, u64, u64, u64, u64);

const BEFORE: [Row; 4] = [
    ("filp", 200, 231, 192, 21, 1),
    ("dentry", 420, 420, 192, 21, 1),
    ("inode_cache", 700, 702, 600, 13, 2),
    ("kmalloc-128", 64, 64, 128, 32, 1),
];
const AFTER: [Row; 4] = [
    ("filp", 400, 420, 192, 21, 1),
    ("dentry", 630, 630, 192, 21, 1),
    ("inode_cache", 700, 702, 600, 13, 2),
    ("kmalloc-128", 256, 256, 128, 32, 1),
];

/// Writes `/proc/slabinfo` as these caches make it.
fn slabinfo(path: &Path, rows: &[Row]) -> String {
    let mut text = HEADER.to_string();
    for (name, active, objects, size, per_slab, pages) in rows {
        let slabs = objects / per_slab;
        text.push_str(&format!(
            "{name:<17} {active:>6} {objects:>6} {size:>6} {per_slab:>4} {pages:>4} : tunables    \
             0    0    0 : slabdata {slabs:>6} {slabs:>6}      0\n"
        ));
    }
    fs::write(path, text).unwrap();
    path.to_str().unwrap().to_string()
}

/// A trace, a report from before it and one from after it.
fn files(dir: &Path) -> [String; 3] {
    [
        small_trace(dir),
        slabinfo(&dir.join("before.slabinfo"), &BEFORE),
        slabinfo(&dir.join("after.slabinfo"), &AFTER),
    ]
}

fn run(args: &str) -> Value {
    let args = format!("replay --json --no-timing {args}");
    let mut report = json(&args);
    let runs = report["runs"].as_array_mut().unwrap();
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

/// A trace of objects each on a page of its own, which no SLUB does, and of the lines that follow.
fn import_pages(dir: &Path, more: &str) -> String {
    let (text, trace) = (dir.join("pages.txt"), dir.join("pages.parquet"));
    let mut lines = String::new();
    for n in 0..16_u64 {
        let page = 5000 + 7 * n;
        let address = 0xffff_8880_0000_0000 + (page << 12);
        lines.push_str(&format!(
            "p 1/1 [000] 1.{n:06}100: kmem:mm_page_alloc: page={page:#x} pfn={page:#x} order=0 \
             migratetype=0 gfp_flags=GFP_KERNEL\n\
             p 1/1 [000] 1.{n:06}200: kmem:kmalloc: call_site=f ptr={address:#x} bytes_req=64 \
             bytes_alloc=64 gfp_flags=GFP_KERNEL node=-1 accounted=false\n"
        ));
    }
    fs::write(&text, lines + more).unwrap();
    let [text, trace] = [&text, &trace].map(|path| path.to_str().unwrap());
    stdout(&format!("import {text} -o {trace} --kernel 6.18 --cpus 2"));
    trace.to_string()
}

#[test]
fn predicted_beside_observed() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, before, after] = files(dir.path());
    let trace = with_reports(
        dir.path(),
        &trace,
        &format!("--before {before} --after {after}"),
    );
    let text = stdout(&format!("replay {trace} --check --no-timing"));
    let text = text.replace(&trace, "small.parquet");
    golden::check("check.txt", &text);
}

#[test]
fn allocations_from_the_recorded_slab_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let [_, before, after] = files(dir.path());
    let trace = import_pages(dir.path(), "");
    let trace = with_reports(
        dir.path(),
        &trace,
        &format!("--before {before} --after {after}"),
    );
    let shown = stdout(&format!("replay {trace} --check"));
    let expected = "1 of 16 allocations came from the slab that the kernel took them from; \
                    caches with others: 1";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn sysfs_beside_slabinfo_tells_of_lists() {
    let dir = tempfile::tempdir().unwrap();
    let free = "p 1/1 [001] 2.0: kmem:kmem_cache_free: call_site=f ptr=ffff888000077000 name=box\n";
    let trace = import_pages(dir.path(), free);
    let folder = dir.path().join("folder");
    fs::create_dir_all(folder.join("slab/box")).unwrap();
    let before = slabinfo(&folder.join("slabinfo"), &[("box", 420, 420, 192, 21, 1)]);
    for (file, text) in [
        ("slabs", "20 N0=20\n"),
        ("objects", "420 N0=420\n"),
        ("slabs_cpu_partial", "126(12) C1=126(12)\n"),
    ] {
        fs::write(folder.join("slab/box").join(file), text).unwrap();
    }
    let pages = |initial: &str| {
        let trace = with_reports(
            dir.path(),
            &trace,
            &format!("--before {initial} --after {before}"),
        );
        let replayed = run(&format!("{trace} --check"));
        let caches = replayed["check"]["caches"].as_array().unwrap();
        let cache = caches.iter().find(|cache| cache["name"] == "box").unwrap();
        cache["predicted_bytes"].as_u64().unwrap() / 4096
    };
    // The free finds the list of CPU 1 full: the node keeps five of its slabs.
    assert_eq!((pages(&before), pages(folder.to_str().unwrap())), (20, 13));
    let boot = dir.path().join("boot.json");
    let stages = r#"{"stages": {"boot": {"slabinfo": [{"name": "box", "active_objs": 1, "num_objs": 21,
        "objsize": 192, "objperslab": 21, "pagesperslab": 1, "active_slabs": 1, "num_slabs": 1}]}}}"#;
    fs::write(&boot, stages).unwrap();
    let boot = boot.to_str().unwrap();
    let refused = quarry(&format!("filter {trace} -o never --before {boot}"));
    assert_fails(&refused, 1, &["boot.json", "one moment"]);
}

#[test]
fn json_has_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, before, after] = files(dir.path());
    let trace = with_reports(
        dir.path(),
        &trace,
        &format!("--before {before} --after {after}"),
    );
    let replayed = run(&format!("{trace} --check"));
    // The recorded design, page size and CPUs, without being asked for.
    assert_eq!(
        [&replayed["design"], &replayed["era"]],
        ["sheaf", "6.18"],
        "{replayed}"
    );
    assert_eq!(replayed["page_size"], 4096);
    assert_eq!(replayed["cpus"], 2);
    let check = &replayed["check"];
    // 11 + 20 + 54 * 2 + 2 and 20 + 30 + 54 * 2 + 8 pages.
    assert_eq!(check["initial_bytes"], 141 * 4096);
    assert_eq!(check["observed_bytes"], 166 * 4096);
    assert_eq!(check["predicted_bytes"], replayed["final_slab_bytes"]);
    let caches = check["caches"].as_array().unwrap();
    let sum: u64 = caches
        .iter()
        .map(|cache| cache["predicted_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(check["predicted_bytes"], sum);
    let inode_cache = caches
        .iter()
        .find(|cache| cache["name"] == "inode_cache")
        .unwrap();
    // Nothing in the recording touches it.
    assert_eq!(inode_cache["predicted_bytes"], 108 * 4096);
    assert_eq!(inode_cache["predicted_active_objs"], 700);
    // The recording's one orphan is a kfree, which does not tell its cache.
    assert_eq!(replayed["replayed"]["orphans"], 1);
    // Making the initial state counts nowhere.
    assert_eq!(
        replayed["alloc_fastpath"].as_u64().unwrap() + replayed["alloc_slowpath"].as_u64().unwrap(),
        2999
    );
}

#[test]
fn a_part_without_events_ends_with_what_it_begins_with() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, before, _] = files(dir.path());
    let at = "--before-at 12.001 --after-at 12.001";
    let reports = format!("--before {before} --after {before} {at}");
    let trace = with_reports(dir.path(), &trace, &reports);
    let run = &run(&format!("{trace} --check"));
    assert_eq!(run["replayed"]["allocs"], 0);
    assert_eq!(run["initial_slab_bytes"], run["final_slab_bytes"]);
    assert_eq!(
        run["check"]["predicted_bytes"],
        run["check"]["observed_bytes"]
    );
}

#[test]
fn parts_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, before, _] = files(dir.path());
    let replayed = |part: &str| {
        let reports = format!("--before {before} {part}");
        let trace = with_reports(dir.path(), &trace, &reports);
        let args = format!("{trace} --initial --design slub");
        let replayed = run(&args)["replayed"].clone();
        let count = |key: &str| replayed[key].as_u64().unwrap();
        let frees = count("frees") + count("initial_frees") + count("orphans");
        (count("allocs"), frees, count("initial_frees"))
    };
    let whole = replayed("");
    let first = replayed(&format!("--after {before} --after-at 12.003003"));
    let second = replayed("--before-at +0.003003");
    assert_eq!((first.0 + second.0, first.1 + second.1), (whole.0, whole.1));
    // The first part allocates a filp which the second frees: one of its initial objects.
    assert_eq!((first.2, second.2), (0, 1));
}

#[test]
fn what_is_wrong_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, before, _] = files(dir.path());
    let filter = format!("filter {trace} -o never");
    let ask = |args: &str| quarry(&format!("{filter} {args}"));
    assert_fails(&ask("--before absent"), 1, &["cannot read absent"]);
    assert_fails(&ask(&format!("--after {before}")), 2, &["--before"]);
    let both = "--before - --after -";
    let parts = ["--before and --after", "stdin is one file"];
    assert_fails(&ask(both), 2, &parts);
    let bad = dir.path().join("bad");
    fs::write(&bad, format!("{HEADER}filp 1 2 : what\n")).unwrap();
    assert_fails(
        &ask(&format!("--before {}", bad.display())),
        1,
        &["bad: line 3"],
    );
    for time in ["soon", "-1", "1.0000000001"] {
        let output = ask(&format!("--from={time}"));
        assert_fails(&output, 2, &["is not a time", "+0.25"]);
    }
    let begin = |before: &str, args: &str| {
        let trace = with_reports(dir.path(), &trace, &format!("--before {before}"));
        quarry(&format!("replay {trace} --initial {args}"))
    };
    let small = begin(&before, "--memory 256k");
    assert_fails(&small, 3, &["initial state: no memory for", "--memory"]);
    let asked = quarry(&format!("replay {trace} --initial"));
    assert_fails(&asked, 2, &["no report of its kernel", "import --before"]);
    let huge = dir.path().join("huge");
    let rows = [("filp", 0, 21 << 50, 192, 21, 1)];
    let huge = slabinfo(&huge, &rows);
    let parts = ["of cache filp", "--memory"];
    assert_fails(&begin(&huge, ""), 3, &parts);
}

#[test]
fn a_trace_of_an_unknown_kernel_is_checked_against_slab() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, _, after] = files(dir.path());
    let text = dir.path().join("small.txt");
    let import = format!("import {} -o {trace} --force", text.display());
    // SLAB's caches have a limit, and no kernel of today has SLAB.
    let text = fs::read_to_string(&after).unwrap();
    fs::write(
        &after,
        text.replace("    0    0    0 :", "  120   60    8 :"),
    )
    .unwrap();
    stdout(&format!("{import} --before {after} --after {after}"));
    let run = run(&format!("{trace} --check"));
    assert_eq!(run["design"], "slab");
}

#[test]
fn caches_with_unseen_frees_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let (text, trace) = (dir.path().join("t.txt"), dir.path().join("t.parquet"));
    // One address of maple_node is allocated twice without a free: bulk frees have no event.
    let alloc = |n: u64, address: u64, name: &str| {
        format!(
            "p 1/1 [000] 1.{n:06}: kmem:kmem_cache_alloc: call_site=f ptr={:#x} name={name} \
             bytes_req=256 bytes_alloc=256 gfp_flags=GFP_KERNEL node=-1 accounted=false\n",
            0xffff_8880_0000_0000_u64 + address
        )
    };
    let lines = [
        alloc(1, 0x1000, "maple_node"),
        alloc(2, 0x1000, "maple_node"),
        alloc(3, 0x9000, "filp"),
    ];
    fs::write(&text, lines.concat()).unwrap();
    let [text, trace] = [&text, &trace].map(|path| path.to_str().unwrap());
    let told = "--kernel 6.18 --page-size 4k --cpus 1";
    stdout(&format!("import {text} -o {trace} {told}"));
    let before = slabinfo(
        &dir.path().join("before"),
        &[("filp", 16, 16, 256, 16, 1), ("pid", 16, 16, 256, 16, 1)],
    );
    let after = slabinfo(
        &dir.path().join("after"),
        &[
            ("filp", 17, 32, 256, 16, 1),
            // Two slabs for which there was no allocation.
            ("pid", 33, 48, 256, 16, 1),
            ("maple_node", 1, 16, 256, 16, 1),
        ],
    );
    let trace = with_reports(
        dir.path(),
        trace,
        &format!("--before {before} --after {after}"),
    );
    let args = format!("{trace} --check");
    let check = &run(&args)["check"];
    let marked: Vec<_> = check["caches"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|cache| cache["implied_frees"] == 1)
        .collect();
    assert_eq!(marked.len(), 1);
    assert_eq!(marked[0]["name"], "maple_node");
    let caches = check["caches"].as_array().unwrap().iter();
    let unseen: Vec<_> = caches
        .filter(|cache| cache["unseen_allocs"] != 0)
        .map(|cache| (&cache["name"], &cache["unseen_allocs"]))
        .collect();
    assert_eq!(unseen, [(&"pid".into(), &2.into())]);
    assert_eq!(check["seen"]["left_out"], 2);
    assert_eq!(check["seen"]["observed_bytes"], 8192);
    let text = stdout(&format!("replay {args}"));
    for part in [
        "maple_node *",
        "growth without *",
        "* 1 frees of 1 caches had no event",
        "pid *",
        "* 2 slabs of 1 caches were made for allocations without an event",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_replay_begins_on_the_heap_of_another_machine() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../quarry-lab/data/booted/slub-6.1.json.gz"
    );
    let of = format!("replay kv --design slub@6.1,slub@6.17 --page-size 4k --initial={file}");
    for more in ["--copies 2", "--time", "--time --copies 2 --pace full"] {
        let told = json(&format!("{of} {more} --json"));
        assert_eq!(told["settings"]["heap"], file, "{more}");
        let [own, newer] =
            [0, 1].map(|run| told["runs"][run]["initial"].as_str().unwrap().to_string());
        let stage = format!("{file}, stage fill-thinned");
        let copied = format!("predicted of {stage} (2 CPUs)");
        let expected = if more == "--time" { &stage } else { &copied };
        assert_eq!(&own, expected, "{more}");
        let predicted = format!("predicted of {stage} (slub@6.1");
        assert!(newer.starts_with(&predicted), "{newer}");
    }
    // One report for both, which is nearer to two of three.
    let bundled = "replay kv --design slab@6.1,slub@6.1,sheaf@7.3 --page-size 4k --booted --json";
    let bundled = json(bundled);
    assert_eq!(bundled["settings"]["heap"], "bundled");
    assert!(bundled["runs"][0]["initial_slab_bytes"].as_u64().unwrap() > 10 << 20);
    for run in bundled["runs"].as_array().unwrap() {
        let initial = run["initial"].as_str().unwrap();
        assert!(
            initial.contains("Debian 6.1 with unread messages"),
            "{initial}"
        );
    }
    assert_fails(
        &quarry("replay kv --partial-slabs few"),
        2,
        &["partial-slabs: an empty heap has none"],
    );
    assert_fails(
        &quarry("replay kv --time --initial"),
        2,
        &["--initial=FILE"],
    );
    assert_fails(
        &quarry("replay kv --booted --empty"),
        2,
        &["--booted", "--empty"],
    );
    assert_fails(
        &quarry(&format!("replay kv --check --initial={file}")),
        2,
        &["leave out any other"],
    );
}
