//! Files that people have, and what a command says that it does not know of them.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::common::{assert_fails, json, quarry, quarry_with, stdout, text};

fn data(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quarry-snapshot/tests/data");
    folder.join(name).to_str().unwrap().to_string()
}

/// The output without the breaks of its lines.
fn told(args: &str) -> String {
    stdout(args).replace('\n', " ")
}

fn assert_says(told: &str, parts: &[&str]) {
    for part in parts {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// One slabinfo, from a path, stdin, and packed: dated by its names; every guess is printed as one.
#[test]
fn a_plain_slabinfo() {
    let file = data("field/memcg-4.18/slabinfo");
    let parts = [
        "kernel unknown, 4.19 or earlier (guess: kmalloc-8192 is 4.19 or earlier)",
        "4 KiB pages (guess: ",
        "CPUs unknown (--had-cpus)",
        "no sysfs: ",
    ];
    let of_path = told(&format!("what-if {file}"));
    assert_says(&of_path, &parts);
    assert!(!of_path.contains("slub@6.17"), "{of_path}");
    let bytes = fs::read(&file).unwrap();
    let of_stdin = text(&quarry_with("what-if -", &bytes)).replace('\n', " ");
    assert_says(&of_stdin, &parts);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&bytes).unwrap();
    let packed = packed.finish().unwrap();
    assert_says(
        &text(&quarry_with("what-if -", &packed)).replace('\n', " "),
        &parts,
    );

    let json = json(&format!("what-if {file} --json"));
    let snapshot = &json["snapshot"];
    assert_eq!(snapshot["form"], "slabinfo");
    assert!(snapshot["kernel"].is_null() && snapshot["cpus"].is_null());
    assert_eq!(snapshot["kernel_range"], "4.19 or earlier");
    assert_eq!(
        snapshot["guesses"]["kernel_range"],
        "kmalloc-8192 is 4.19 or earlier"
    );

    let known = told(&format!(
        "what-if {file} --kernel 4.18.0-80 --had-cpus 2 --had-page-size 4k"
    ));
    assert_says(
        &known,
        &[
            "kernel 4.18.0-80, 4 KiB pages, 2 CPUs, ",
            "taken as slub@4.18",
        ],
    );
}

/// SLAB's sharedfactor shows that there are several CPUs, and not how many.
#[test]
fn slab_with_unknown_cpus() {
    let folder = data("field/slab-unknown-cpus");
    let unknown = told(&format!("what-if {folder}"));
    assert_says(
        &unknown,
        &[
            "4.20 to 6.7 (guess: ",
            "CPUs unknown, at least 2 (--had-cpus)",
        ],
    );
    assert!(!unknown.contains(" 1 CPUs"), "{unknown}");

    let dir = tempfile::tempdir().unwrap();
    for name in ["slabinfo", "meminfo"] {
        fs::copy(Path::new(&folder).join(name), dir.path().join(name)).unwrap();
    }
    let copy = dir.path().to_str().unwrap();
    for count in ["16", "0-15"] {
        fs::write(dir.path().join("cpu_present"), count).unwrap();
        let known = told(&format!("what-if {copy} --kernel 5.4"));
        assert_says(
            &known,
            &["kernel 5.4, 4 KiB pages (guess: ", "), 16 CPUs, "],
        );
    }
    assert_fails(
        &quarry(&format!("what-if {copy} --had-cpus 8")),
        1,
        &["its machine has 16 CPUs (cpu_present), not 8"],
    );
    fs::write(dir.path().join("cpu_present"), "sixteen").unwrap();
    assert_fails(
        &quarry(&format!("what-if {copy}")),
        1,
        &["cpu_present: \"sixteen\" is neither a list of CPUs such as 0-3 nor their number"],
    );
}

#[test]
fn other_forms() {
    let report = told(&format!(
        "what-if {} --release 6.12",
        data("forms/sosreport.tar.xz")
    ));
    assert_says(&report, &["kernel 6.18.44, 4 KiB pages, 2 CPUs (guess: "]);
    let thin = told(&format!("what-if {}", data("forms/slabtop.txt")));
    assert_says(
        &thin,
        &[
            "read as slabtop: object sizes are rounded",
            "5.14 or later (guess: ",
        ],
    );
    let series = told(&format!("what-if {}", data("forms/pmrep.csv")));
    assert_says(&series, &["the last of 2 moments in the file"]);
    assert_fails(
        &quarry(&format!("what-if {}", data("forms/oom.txt"))),
        1,
        &["only bytes of unreclaimable caches", "docs/inputs.md"],
    );
}

#[test]
fn geometry_of_the_caches_of_a_snapshot() {
    let file = data("forms/slabinfo");
    let output = stdout(&format!(
        "geometry --from {file} --kernel 6.18 --had-cpus 2"
    ));
    let answers: Vec<serde_json::Value> = serde_json::from_str(&output).unwrap();
    assert_eq!(answers.len(), 26);
    for answer in &answers {
        assert_eq!(
            answer["reported_objects"], answer["objects_per_slab"],
            "{answer}"
        );
    }
}

/// stdin has all its readings, as a file has.
#[test]
fn readings_of_stdin_are_a_series() {
    let file = data("field/several-in-one-paste/blog-source.md");
    let output = quarry_with("look - --json", &fs::read(&file).unwrap());
    let of_stdin: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(of_stdin["growth"]["moments"].as_array().unwrap().len(), 5);
    let of_file = json(&format!("look {file} --json"));
    let grew = |look: &serde_json::Value| look["growth"]["slab_bytes"].clone();
    assert_eq!(grew(&of_stdin), grew(&of_file));
}

/// Owners of pages have whole names, bytes by a page size that is given, and no slabs.
#[test]
fn owners_of_pages() {
    let file = data("forms/page_owner.txt");
    let look = told(&format!("look {file} --had-page-size 4k"));
    let parts = [
        "14 pages, 56 KiB in 4 allocations at 4 call sites",
        "Slabs and large kmallocs are 9 pages, 36 KiB (64.3 %)",
        "read as page_owner: only owners of pages",
    ];
    assert_says(&look, &parts);
    let place = "sk_alloc < inet_create";
    let table = look.split("Call sites").nth(1).unwrap();
    assert!(table.contains(place) && !table.contains("..."), "{table}");
    assert_fails(
        &quarry(&format!("what-if {file}")),
        1,
        &["only owners of pages", "docs/inputs.md"],
    );
}
