//! Formats and lists of files against what real kernels showed: `vectors/slabinfo_6_18.txt` is cut
//! from a running kernel's text, `vectors/sysfs_attributes.csv` has the names of attributes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::inspect::{ATTRIBUTES, SLABINFO_HEADER, SlabinfoRow, attributes_of};
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;
use quarry_core::tunables::{Scope, Table};

fn vector(file: &str) -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(manifest.join("vectors").join(file)).unwrap()
}

fn row(line: &str) -> SlabinfoRow<'_> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    assert_eq!((words[7], words[12]), ("tunables", "slabdata"), "{line}");
    SlabinfoRow {
        name: words[0],
        active_objs: number(1),
        num_objs: number(2),
        objsize: number(3) as u32,
        objperslab: number(4) as u32,
        pagesperslab: number(5) as u32,
        limit: number(8),
        batchcount: number(9),
        sharedfactor: number(10),
        active_slabs: number(13),
        num_slabs: number(14),
        sharedavail: number(15),
    }
}

/// Formats the numbers of a kernel's text again; every byte must be the same.
fn check(text: &str) -> usize {
    let lines = text.strip_prefix(SLABINFO_HEADER).expect("the header");
    for line in lines.lines() {
        assert_eq!(row(line).to_string(), line);
    }
    lines.lines().count()
}

#[test]
fn slabinfo_of_a_recorded_kernel() {
    assert_eq!(check(&vector("slabinfo_6_18.txt")), 41);
}

#[test]
#[ignore = "compares with the running kernel, as root: cargo xtask root"]
fn slabinfo_of_this_kernel() {
    let text = fs::read_to_string("/proc/slabinfo").unwrap();
    assert!(check(&text) > 20);
}

#[test]
fn attributes_are_the_kernels() {
    let mut kinds = BTreeSet::new();
    let table = vector("sysfs_attributes.csv");
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    for line in lines.skip(1) {
        let [kind, design, era, names]: [&str; 4] =
            line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let era = Era::parse(era).unwrap();
        let expected: BTreeSet<&str> = names.split_whitespace().collect();
        let ours: Vec<_> = ATTRIBUTES
            .iter()
            .filter(|known| known.applies(design, era))
            .map(|known| known.attribute)
            .collect();
        let found: BTreeSet<&str> = ours.iter().map(|attribute| attribute.name).collect();
        assert_eq!(found.len(), ours.len(), "{design}@{era}: a name twice");
        kinds.insert(kind);
        if kind == "source" {
            assert_eq!(found, expected, "{design}@{era}");
            continue;
        }
        let unknown: Vec<_> = expected.difference(&found).collect();
        assert!(unknown.is_empty(), "{design}@{era}: {unknown:?}");
        // A kernel has all attributes of an option, or none.
        let options: BTreeSet<_> = ours.iter().filter_map(|ours| ours.config).collect();
        for option in options {
            let has = |name: &&str| expected.contains(*name);
            let of_option = || ours.iter().filter(|ours| ours.config == Some(option));
            let present = of_option().filter(|ours| has(&ours.name)).count();
            assert!(
                present == 0 || present == of_option().count(),
                "{design}@{era}: {option}"
            );
        }
        for attribute in ours.iter().filter(|ours| ours.config.is_none()) {
            let not_read = kind == "booted" && ["shrink", "validate"].contains(&attribute.name);
            assert!(
                not_read || expected.contains(attribute.name),
                "{design}@{era}: {}",
                attribute.name
            );
        }
    }
    assert_eq!(kinds.len(), 3);
}

/// A tunable that the kernel has not is an attribute too; none is there twice.
#[test]
fn tunables_of_caches_are_attributes() {
    let mut tried = 0;
    for table in [Slub::TUNABLES, Slubq::TUNABLES, SheafCache::TUNABLES] {
        for era in Era::REFERENCE {
            let design = table.design;
            let names: Vec<_> = attributes_of(table, era).map(|own| own.name).collect();
            let unique: BTreeSet<_> = names.iter().collect();
            assert_eq!(unique.len(), names.len(), "{design}@{era}");
            for tunable in table.of(era).filter(|one| one.scope == Scope::Cache) {
                tried += 1;
                let found = attributes_of(table, era).find(|own| own.name == tunable.name);
                let writable = found.map(|found| found.writable(table, era));
                assert_eq!(writable, Some(true), "{design}@{era}: {}", tunable.name);
            }
        }
    }
    assert!(tried > 5);
    // No folder for SLAB's caches, whatever can be tuned.
    assert_eq!(attributes_of(SlabCache::TUNABLES, Era::V6_1).count(), 0);
}

#[test]
fn writable_are_tunables_counters_and_actions() {
    let writable = |table: &'static Table, era| -> BTreeSet<&str> {
        attributes_of(table, era)
            .filter(|attribute| attribute.writable(table, era))
            .map(|attribute| attribute.name)
            .collect()
    };
    let modern = writable(Slub::TUNABLES, Era::V6_18);
    for name in [
        "min_partial",
        "cpu_partial",
        "shrink",
        "validate",
        "alloc_slab",
    ] {
        assert!(modern.contains(name), "{name}");
    }
    for name in ["slab_size", "objects", "ctor", "store_user", "usersize"] {
        assert!(!modern.contains(name), "{name}");
    }
    assert!(writable(Slubq::TUNABLES, Era::V2_6_35).contains("cpu_queue_size"));
    assert!(!writable(Slub::TUNABLES, Era::V2_6_22).contains("alloc_slab"));
}
