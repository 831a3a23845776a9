//! `quarry what-if` and `quarry snapshot`.

use std::fs;
use std::path::Path;

use crate::golden::check;
use serde_json::{Value, json};

use crate::common::{assert_fails, assert_refuses, json, quarry, stdout};

/// Per cache: name, object size, objects a slab, pages a slab, slabs, CPUs that hold one.
const CACHES: [(&str, u64, u64, u64, u64, u64); 7] = [
    ("dentry", 192, 341, 1, 51, 12),
    ("kmalloc-8", 8, 8192, 1, 16, 16),
    ("kmalloc-64", 64, 1024, 1, 16, 16),
    ("kmalloc-4k", 4096, 32, 2, 10, 10),
    ("kmalloc-64k", 65536, 8, 8, 16, 16),
    ("task_struct", 4992, 26, 2, 11, 6),
    ("unused", 256, 256, 1, 0, 0),
];

fn rows() -> Value {
    let row = |(name, size, objects, pages, slabs, _): &(&str, u64, u64, u64, u64, u64)| {
        json!({"name": name, "active_objs": slabs * objects, "num_objs": slabs * objects,
            "objsize": size, "objperslab": objects, "pagesperslab": pages,
            "active_slabs": slabs, "num_slabs": slabs})
    };
    CACHES.iter().map(row).collect()
}

/// A kernel with 64 KiB pages and 16 CPUs, as one stage of a boot; another has no sysfs.
pub(crate) fn boot(dir: &Path) -> String {
    let sysfs: serde_json::Map<String, Value> = CACHES
        .iter()
        .map(|(name, size, objects, pages, slabs, held)| {
            let files = json!({"object_size": size, "slab_size": size, "align": 8,
                "objs_per_slab": objects, "order": pages.ilog2(), "slabs": slabs,
                "cpu_slabs": held, "partial": 0, "objects_partial": 0,
                "slabs_cpu_partial": "0(0)", "min_partial": 5});
            (name.to_string(), files)
        })
        .collect();
    let boot = json!({
        "page_kB": 64,
        "stage_order": ["boot", "later"],
        "stages": {
            "boot": {"slabinfo": rows(), "sysfs_slab": sysfs, "cmdline": "quiet",
                "meminfo_kB": {"Slab": 20000, "KernelStack": 2400},
                "cpus": "possible 0-15\npresent 0-15",
                "version": "Linux version 6.1.0-50-powerpc64le (gcc) #1"},
            "later": {"slabinfo": rows()},
        },
    });
    let path = dir.join("boot.json");
    fs::write(&path, boot.to_string()).unwrap();
    path.to_str().unwrap().to_string()
}

fn predicted(args: &str) -> Value {
    let args = format!("what-if {args} --json");
    let mut json = json(&args);
    // One prediction is easier to look into without its list.
    match json["runs"].as_array_mut().unwrap().as_mut_slice() {
        [one] => one.take(),
        _ => json["runs"].take(),
    }
}

fn bytes(told: &Value, key: &str) -> u64 {
    told[key].as_u64().unwrap()
}

#[test]
fn nothing_asked_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let told = predicted(&boot(dir.path()));
    let observed = (51 + 16 + 16 + 10 * 2 + 16 * 8 + 11 * 2) * 65536;
    for key in [
        "predicted_bytes",
        "low_bytes",
        "high_bytes",
        "observed_bytes",
    ] {
        assert_eq!(bytes(&told, key), observed, "{key}");
    }
    assert_eq!(told["design"], "slub@6.1");
    assert_eq!(told["cpus"], 16);
    let caches = told["caches"].as_array().unwrap();
    assert_eq!(caches.len(), CACHES.len());
    assert_eq!(caches[0]["name"], "dentry");
    assert_eq!(caches[0]["observed_bytes"], 51 * 65536);
}

#[test]
fn other_settings_change_what_they_must() {
    let dir = tempfile::tempdir().unwrap();
    let path = boot(dir.path());
    let cache = |told: &Value, name: &str| -> Value {
        let caches = told["caches"].as_array().unwrap();
        caches
            .iter()
            .find(|cache| cache["name"] == name)
            .unwrap()
            .clone()
    };
    let small = predicted(&format!("{path} --set slub_max_order=0"));
    let largest = cache(&small, "kmalloc-64k");
    assert_eq!(largest["objs_per_slab"], 1);
    assert_eq!(largest["pages_per_slab"], 1);
    // One object a CPU at least, all of every slab at most.
    assert_eq!(bytes(&largest, "low_bytes"), 16 * 65536);
    assert_eq!(bytes(&largest, "high_bytes"), 16 * 8 * 65536);
    let between = bytes(&largest, "low_bytes")..bytes(&largest, "high_bytes");
    assert!(
        between.contains(&bytes(&largest, "predicted_bytes")),
        "{largest}"
    );
    let dentry = cache(&small, "dentry");
    assert_eq!(dentry["predicted_bytes"], dentry["observed_bytes"]);

    let pages = predicted(&format!("{path} --page-size 4k"));
    assert_eq!(bytes(&cache(&pages, "kmalloc-64k"), "predicted_bytes"), 0);
    assert!(bytes(&pages, "to_pages_bytes") >= 16 * 65536);
    assert!(bytes(&pages, "predicted_bytes") < bytes(&pages, "observed_bytes") / 2);

    let several = predicted(&format!("{path} --cpus 1,4,16"));
    let several = several.as_array().unwrap();
    let totals: Vec<u64> = several
        .iter()
        .map(|told| bytes(told, "predicted_bytes"))
        .collect();
    assert!(totals.is_sorted() && totals[0] < totals[2], "{totals:?}");
    let eras = predicted(&format!("{path} --design slub@5.9,slubq"));
    assert_eq!(eras[1]["design"], "slubq@2.6.35");
    // A stage whose counts are not known is predicted from slabinfo alone.
    let later = predicted(&format!("{path} --stage later --set slub_max_order=0"));
    assert!(bytes(&later, "predicted_bytes") < bytes(&later, "observed_bytes"));
}

#[test]
fn a_release() {
    let dir = tempfile::tempdir().unwrap();
    let path = boot(dir.path());
    let told = predicted(&format!("{path} --release v7.3.4"));
    assert_eq!(told["design"], "sheaf@7.3");
    assert!(bytes(&told, "low_bytes") < bytes(&told, "high_bytes"));
    let class = &told["caches"][1];
    assert_eq!(class["name"], "kmalloc-8");
    assert_eq!(class["sheaf_capacity"], 60);
    assert_eq!(class["cause"], "sheaves_keep");
    // The answer comes first.
    let text = stdout(&format!("what-if {path} --release 7.3"));
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("Slab memory 15.8 MiB now, ") && first.contains("with sheaf@7.3"),
        "{first}"
    );
    assert!(text.contains("sheaves keep "), "{text}");
    assert_refuses(
        &format!("what-if {path}"),
        2,
        r#"
            --release 99.0 => no era "99.0" | 2.6.22 to
            --release 7.3 --design slub => cannot be used with
        "#,
    );
}

#[test]
fn tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = boot(dir.path());
    let args = format!("what-if {path} --page-size 4k,64k --cpus 4");
    let text = stdout(&args).replace(&path, "boot.json");
    check("what_if.txt", &text);
    let all = stdout(&format!("what-if {path} --caches --set min_partial=0"));
    assert!(
        all.contains("task_struct") && !all.contains("unused"),
        "{all}"
    );
}

#[test]
fn a_folder_without_words_about_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = "slabinfo - version: 2.1\n".to_string();
    for (name, size, objects, pages, slabs, held) in CACHES {
        let num = slabs * objects;
        text.push_str(&format!(
            "{name} {num} {num} {size} {objects} {pages} : tunables 0 0 0 : slabdata {slabs} \
             {slabs} 0\n"
        ));
        let cache = dir.path().join("slab").join(name);
        fs::create_dir_all(&cache).unwrap();
        for (file, value) in [("slabs", slabs), ("cpu_slabs", held), ("partial", 0)] {
            fs::write(cache.join(file), format!("{value} N0={value}\n")).unwrap();
        }
    }
    fs::write(dir.path().join("slabinfo"), text).unwrap();
    let folder = dir.path().to_str().unwrap();
    // The slabs tell the page size, the busiest caches the CPUs.
    let told = predicted(folder);
    assert_eq!(told["page_size"], 65536);
    assert_eq!(told["cpus"], 16);
    assert_eq!(told["predicted_bytes"], told["observed_bytes"]);
    let text = stdout(&format!("what-if {folder} --cpus 4")).replace('\n', " ");
    let guesses = "kernel unknown, 4.20 or later (guess: kmalloc-4k is 4.20 or later), 64 KiB pages (guess: the smallest that the slabs fit in), CPUs unknown \
                   (--had-cpus)";
    assert!(text.contains(guesses), "{text}");
}

#[test]
fn wrong_questions_and_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let path = boot(dir.path());
    let ask = |args: &str| quarry(&format!("what-if {path} {args}"));
    let no_stage = ["no stage \"x\"; stages are boot, later"];
    assert_fails(&ask("--stage x"), 1, &no_stage);
    assert_refuses(
        &format!("what-if {path}"),
        2,
        r#"
            --set bogus=1 => no such tunable | slub_max_order
            --set slub_max_order=11 => it takes 0..=10
            --design x => unknown design "x"
            --page-size 8k => valid page sizes
            --cpus 0 => 0 CPUs is not in 1..=
            --possible-cpus 4 => fewer than the 16 at work
        "#,
    );
    assert_fails(&quarry("what-if"), 2, &["SNAPSHOT"]);
    assert_fails(
        &quarry("what-if absent.json"),
        1,
        &["cannot read absent.json"],
    );
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path().to_str().unwrap();
    assert_fails(
        &quarry(&format!("what-if {folder}")),
        1,
        &["a copy of /proc/slabinfo"],
    );
    let text = dir.path().join("text");
    fs::write(&text, "hello").unwrap();
    let not_json = quarry(&format!("what-if {}", text.display()));
    assert_fails(
        &not_json,
        1,
        &[
            "\"hello\": none of the forms that are read",
            "docs/inputs.md",
        ],
    );
}

/// On any machine: a snapshot that `what-if` reads, or an error that names the missing file.
#[test]
fn this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("now.json");
    let path = path.to_str().unwrap();
    let output = quarry(&format!("snapshot -o {path}"));
    if !output.status.success() {
        return assert_fails(&output, 1, &["/slabinfo"]);
    }
    let told = predicted(path);
    assert_eq!(told["predicted_bytes"], told["observed_bytes"]);
    let lost = quarry("snapshot -o /absent/now.json");
    assert_fails(&lost, 1, &["cannot write /absent/now.json"]);
    assert_fails(&quarry("snapshot"), 2, &["--output"]);
}
