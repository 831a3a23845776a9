//! Prices of options, and sums of guests.

use super::*;

pub(super) const OPTIONS: [&str; 9] = [
    "SLAB_MERGE_DEFAULT=y",
    "RANDOM_KMALLOC_CACHES=y",
    "PARTITION_KMALLOC_CACHES=y",
    "MEMCG=y",
    "MEM_ALLOC_PROFILING=y",
    "MEM_ALLOC_PROFILING_ENABLED_BY_DEFAULT=y",
    "SLUB_TINY=y",
    "SLAB_FREELIST_RANDOM=y",
    "SLAB_FREELIST_HARDENED=y",
];

pub(super) fn config(text: &str) -> question::Config {
    quarry_ask::Value::parse(text, std::path::Path::new("")).unwrap()
}

/// Bytes of an option: least, expected, most.
fn price(snapshot: &Snapshot, option: &str) -> Result<[i64; 3], StateError> {
    let question = Question {
        configs: vec![config(option)],
        ..Question::default()
    };
    let told = predict(snapshot, &question)?;
    let [cost] = told.configuration.as_slice() else {
        panic!("{told:?}");
    };
    Ok([cost.low_bytes, cost.bytes, cost.high_bytes])
}

/// Ten slabs of accounted objects that fill them, and five with 256 bytes to spare.
fn of_groups(release: &str) -> Snapshot {
    let rows = vec![row("kmalloc-cg-512", 512, 8, 10), row("roomy", 320, 12, 5)];
    Snapshot {
        release: Some(release.to_string()),
        ..snapshot(rows)
    }
}

#[test]
fn vectors_are_objects_of_kmalloc_or_lie_in_slabs() {
    let price = |release: &str, option| price(&of_groups(release), option).unwrap();
    // Eight words are an object of kmalloc-64, twelve one of kmalloc-96; roomy may be accounted.
    assert_eq!(price("6.12.0", "MEMCG=n"), [-640 - 480, -640 - 240, -640]);
    assert_eq!(price("7.0.0", "MEMCG=n"), [-640; 3]);
    assert_eq!(price("6.12.0", "MEMCG=y"), [0; 3]);
    // Twice the words: kmalloc-128 and kmalloc-192.
    let option = "MEM_ALLOC_PROFILING=y";
    assert_eq!(price("6.12.0", option), [640, 640 + 240, 640 + 480]);
    assert_eq!(price("7.2.0", option), [640; 3]);
    assert_eq!(price("7.3.0", option), [0; 3]);
    // A record for each object of all caches.
    let option = "MEM_ALLOC_PROFILING_ENABLED_BY_DEFAULT=y";
    assert_eq!(price("6.12.0", option), [640 + 480, 640 + 720, 640 + 960]);
    assert_eq!(price("7.3.0", option), [640; 3]);
    // There are no vectors to be wider without groups.
    let mut without = of_groups("6.12.0");
    without.config.insert("MEMCG".to_string(), "n".to_string());
    let price = |option| super::prices::price(&without, option).unwrap();
    assert_eq!(price("MEM_ALLOC_PROFILING=y"), [0; 3]);
    assert_eq!(price("MEMCG=y"), [640, 640 + 240, 640 + 480]);
    // sysfs says that a cache is accounted.
    let mut told = of_groups("6.12.0");
    told.aliases = [("roomy".to_string(), ":A-0000320".to_string())].into();
    assert_eq!(super::prices::price(&told, "MEMCG=n").unwrap(), [-1120; 3]);
}

#[test]
fn a_tiny_kernel_is_another_one() {
    let snapshot = upgraded_from();
    for (release, cpus) in [("6.17", 2), ("7.0", 8)] {
        let question = Question {
            configs: vec![config("SLUB_TINY=y")],
            cpus: Some(cpus),
            ..with_release(release)
        };
        let told = predict(&snapshot, &question).unwrap();
        for cache in told.caches.iter().filter(|cache| cache.slab_size < 8192) {
            assert!(cache.pages_per_slab <= 2, "{cache:?}");
            assert_eq!((cache.sheaf_capacity, cache.kept_objects), (0, 0));
        }
        let plain = Question {
            configs: Vec::new(),
            ..question
        };
        let without = predict(&snapshot, &plain).unwrap();
        let cost = &told.configuration[0];
        let sum = without
            .bytes
            .predicted_bytes
            .saturating_add_signed(cost.bytes);
        assert_eq!(told.bytes.predicted_bytes, sum, "{release}");
        assert!(cost.low_bytes <= cost.bytes && cost.bytes <= cost.high_bytes);
        assert!(cost.bytes < 0, "{release}: {cost:?}");
    }
    // Of a class for reclaimable objects a half-empty slab is saved at most.
    let mut with_class = snapshot.clone();
    let mut class = row("kmalloc-rcl-64", 64, 64, 4);
    class.active_objs = 64;
    with_class.slabinfo.rows.push(class);
    let cost = |snapshot: &Snapshot| price(snapshot, "SLUB_TINY=y").unwrap();
    assert!(cost(&with_class)[1] < cost(&snapshot)[1]);
    // It is one already.
    let mut tiny = snapshot.clone();
    tiny.config.insert("SLUB_TINY".to_string(), "y".to_string());
    assert_eq!(cost(&tiny), [0; 3]);
    let mut of_slab = snapshot;
    of_slab.release = Some("6.6.0".to_string());
    for row in &mut of_slab.slabinfo.rows {
        (row.limit, row.batchcount) = (120, 60);
    }
    let refused = price(&of_slab, "SLUB_TINY=y").unwrap_err().to_string();
    assert!(
        refused.starts_with("--config SLUB_TINY=y: slab@6.6"),
        "{refused}"
    );
}

/// Four CPUs; `first` has 40 slabs of 64 objects, and `second` shares them.
#[test]
fn an_option_and_a_parameter_keep_caches_apart() {
    let mut merged = snapshot(vec![row("first", 64, 64, 40)]);
    let alias = |name: &str| (name.to_string(), ":0000064".to_string());
    merged.aliases = [alias("first"), alias("second")].into();
    let apart = "SLAB_MERGE_DEFAULT=n";
    // Two CPUs as expected, all four at worst; a slab has one object at worst.
    let cost = [0, 2 * 2048, 4 * 4032];
    assert_eq!(price(&merged, apart).unwrap(), cost);
    assert_eq!(price(&merged, "SLAB_MERGE_DEFAULT=y").unwrap(), [0; 3]);
    let told = predict(&merged, &with_set("slub_nomerge=1")).unwrap();
    let [set] = told.configuration.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!([set.low_bytes, set.bytes, set.high_bytes], cost);
    assert_eq!(set.config, apart);
    // Designs that do not merge here are kernels that do.
    let later = Question {
        release: Era::parse("7.0"),
        ..with_set("slab_nomerge=1")
    };
    assert!(predict(&merged, &later).unwrap().configuration[0].bytes > 0);
    // The other way: two caches with equal slots, and what is free in them.
    let mut rows = vec![row("first", 64, 64, 40), row("second", 64, 64, 40)];
    rows.iter_mut().for_each(|row| row.active_objs = 2400);
    let mut apart = snapshot(rows);
    apart.cmdline = Some("slab_nomerge".to_string());
    let merging = "SLAB_MERGE_DEFAULT=y";
    // Nothing tells of constructors.
    assert_eq!(price(&apart, merging).unwrap(), [-4 * 4032, 0, 0]);
    for name in ["first", "second"] {
        let mut sysfs = CacheAttributes::default();
        sysfs.set("reclaim_account", "0");
        apart.sysfs.insert(name.to_string(), sysfs);
    }
    assert_eq!(price(&apart, merging).unwrap(), [-4 * 4032, -2 * 2048, 0]);
    let told = predict(&apart, &with_set("slub_nomerge=0")).unwrap();
    assert_eq!(told.configuration[0].bytes, -2 * 2048);
    apart
        .sysfs
        .get_mut("second")
        .unwrap()
        .set("ctor", "init_once");
    assert_eq!(price(&apart, merging).unwrap(), [0; 3]);
}

/// SLAB merges from 3.18 on and has no files that tell what it merged.
#[test]
fn merging_of_slab() {
    let mut of_slab = snapshot(vec![row("first", 64, 59, 40), row("second", 64, 59, 40)]);
    for row in &mut of_slab.slabinfo.rows {
        (row.limit, row.batchcount, row.sharedfactor) = (120, 60, 8);
        row.active_objs = 2000;
    }
    let price = |release: &str, option| {
        let mut of_slab = of_slab.clone();
        of_slab.release = Some(release.to_string());
        super::prices::price(&of_slab, option)
    };
    assert_eq!(price("3.16.0", "SLAB_MERGE_DEFAULT=n").unwrap(), [0; 3]);
    let refused = |release, option| price(release, option).unwrap_err().to_string();
    assert!(refused("3.16.0", "SLAB_MERGE_DEFAULT=y").contains("from 3.18 on"));
    assert!(refused("6.1.0", "SLAB_MERGE_DEFAULT=n").contains("/sys/kernel/slab alone"));
    // By default it has done so.
    let [low, expected, high] = price("6.1.0", "SLAB_MERGE_DEFAULT=y").unwrap();
    assert!(low < 0, "{low}");
    assert_eq!((expected, high), (0, 0));
}

/// A hundred guests: everything a hundred times, but for chance, which is half the snapshot's own.
#[test]
fn guests_share_no_slab() {
    let rows = [64, 192, 256, 1024].map(|size| row("a", size, 4096 / size, 1000));
    let snapshot = snapshot(rows.to_vec());
    let ask = |guests, release: Option<&str>| {
        let question = Question {
            guests,
            release: release.and_then(Era::parse),
            ..Question::default()
        };
        predict(&snapshot, &question).unwrap()
    };
    for release in [None, Some("6.6")] {
        let one = ask(Some(1), release);
        let told = ask(Some(100), release);
        let sums = told.guests.unwrap();
        assert_eq!(sums.count, 100);
        assert_eq!(sums.observed_bytes, 100 * snapshot.slab_bytes());
        assert_eq!(sums.bytes.predicted_bytes, 100 * told.bytes.predicted_bytes);
        assert_eq!(
            [sums.bytes.low_bytes, sums.bytes.high_bytes],
            [100 * told.bytes.low_bytes, 100 * told.bytes.high_bytes]
        );
        let first = one.guests.unwrap();
        assert_eq!(
            [first.bytes.likely_low_bytes, first.bytes.likely_high_bytes],
            [one.bytes.likely_low_bytes, one.bytes.likely_high_bytes]
        );
        assert!(told.bytes.likely_low_bytes * 100 < sums.bytes.likely_low_bytes);
        assert!(told.bytes.likely_high_bytes * 100 > sums.bytes.likely_high_bytes);
    }
    // Of one kernel nothing but chance is unknown: the root of (N^2 + N) / 2.
    let told = ask(Some(100), None);
    let sums = told.guests.unwrap();
    let one = (told.bytes.likely_high_bytes - told.bytes.predicted_bytes) as f64;
    let all = (sums.bytes.likely_high_bytes - sums.bytes.predicted_bytes) as f64;
    assert!((all / one - 5050.0_f64.sqrt()).abs() < 0.01, "{all} {one}");
    assert!(ask(None, None).guests.is_none());
    assert_eq!(ask(None, None).bytes.low_bytes, snapshot.slab_bytes());
}
