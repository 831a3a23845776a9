use quarry_core::era::Era;

use quarry_designs::Setting;
use quarry_snapshot::{CacheAttributes, Slabinfo, SlabinfoRow};

use super::*;

fn snapshot(rows: Vec<SlabinfoRow>) -> Snapshot {
    Snapshot {
        release: Some("6.1.0".to_string()),
        page_bytes: 4096,
        nr_cpu_ids: Some(4),
        present_cpus: Some(4),
        slabinfo: Slabinfo { rows },
        ..Snapshot::default()
    }
}

fn row(name: &str, objsize: u64, objperslab: u64, num_slabs: u64) -> SlabinfoRow {
    SlabinfoRow {
        name: name.to_string(),
        active_objs: num_slabs * objperslab,
        num_objs: num_slabs * objperslab,
        objsize,
        objperslab,
        pagesperslab: 1,
        active_slabs: num_slabs,
        num_slabs,
        ..SlabinfoRow::default()
    }
}

/// Two CPUs, kernel 6.17, slabinfo alone: a cache whose load has come and gone, one that only grew,
/// and the classes that sheaves come from.
fn upgraded_from() -> Snapshot {
    let mut rows = vec![
        row("kmalloc-2k", 2048, 16, 10),
        row("pid", 192, 21, 2),
        row("empty", 1024, 16, 0),
    ];
    rows[0].pagesperslab = 8;
    rows[0].active_objs = 112;
    let classes = [(64, 64), (128, 32), (256, 16), (512, 8), (8192, 4)];
    rows.extend(classes.map(|(size, objects)| {
        let name = if size < 1024 {
            size.to_string()
        } else {
            "8k".to_string()
        };
        let mut row = row(&format!("kmalloc-{name}"), size, objects, 4);
        row.pagesperslab = size * objects / 4096;
        row
    }));
    let mut snapshot = snapshot(rows);
    snapshot.release = Some("6.17.13".to_string());
    snapshot.nr_cpu_ids = Some(2);
    snapshot.present_cpus = Some(2);
    snapshot
}

fn with_release(release: &str) -> Question {
    Question {
        release: Some(Era::parse(release).unwrap()),
        ..Question::default()
    }
}

/// The report of `snapshot` when everything has come out as predicted, with active objects counted
/// as sheaves count them.
fn came_out(snapshot: &Snapshot, told: &Prediction, release: &str) -> Snapshot {
    let mut after = snapshot.clone();
    after.release = Some(release.to_string());
    for (row, cache) in after.slabinfo.rows.iter_mut().zip(&told.caches) {
        row.num_slabs = cache.predicted_bytes.div_ceil(row.pagesperslab * 4096);
        row.num_objs = row.num_slabs * row.objperslab;
        row.active_objs = row.num_objs.min(cache.objects + cache.kept_objects);
    }
    after
}

fn with_set(setting: &str) -> Question {
    Question {
        settings: vec![Setting::parse(setting).unwrap()],
        ..Question::default()
    }
}

/// Partial slabs of a cache of 64 bytes, and what sysfs says of it.
fn partial(cpu_partial: &str) -> Snapshot {
    let mut snapshot = snapshot(vec![row("a", 64, 64, 40)]);
    let mut sysfs = CacheAttributes::default();
    for (file, text) in [
        ("slabs", "40"),
        ("cpu_slabs", "14"),
        ("slabs_cpu_partial", "320(10) C0=320(10)"),
        ("partial", "6"),
        ("objects_partial", "60"),
        ("min_partial", "5"),
        ("cpu_partial", cpu_partial),
    ] {
        sysfs.set(file, text);
    }
    snapshot.sysfs.insert("a".to_string(), sysfs);
    snapshot
}

#[test]
fn shorter_lists_share_slabs() {
    let told = predict(&partial("120"), &with_set("cpu_partial=0")).unwrap();
    // Ten slabs are shared: half of them at the expected, none or all at the ends.
    let slabs = |bytes: u64| bytes / 4096;
    assert_eq!(slabs(told.caches[0].low_bytes), 30);
    assert_eq!(slabs(told.predicted_bytes), 35);
    assert_eq!(slabs(told.caches[0].high_bytes), 40);
    // The limit that was written counts, not the formula's.
    let told = predict(&partial("0"), &with_set("cpu_partial=0")).unwrap();
    assert_eq!(told.predicted_bytes, told.observed_bytes);
    let longer = predict(&partial("120"), &with_set("cpu_partial=1200")).unwrap();
    assert_eq!(longer.predicted_bytes, longer.observed_bytes);
    assert!(longer.high_bytes > longer.observed_bytes);
}

#[test]
fn more_empty_slabs_may_be_kept() {
    let told = predict(&partial("120"), &with_set("min_partial=20")).unwrap();
    assert_eq!(told.predicted_bytes, told.observed_bytes);
    // 20 may be kept, 6 are on the list.
    assert_eq!(told.caches[0].high_bytes - told.observed_bytes, 14 * 4096);
}

#[test]
fn larger_pages_add_caches() {
    let mut snapshot = snapshot(vec![
        row("kmalloc-4k", 4096, 1, 8),
        row("task_struct", 3000, 1, 64),
    ]);
    snapshot.meminfo_slab_bytes = Some(snapshot.slab_bytes() + (1 << 20));
    snapshot.kernel_stack_bytes = Some(64 * 16384);
    let question = Question {
        page_bytes: Some(65536),
        ..Question::default()
    };
    let told = predict(&snapshot, &question).unwrap();
    let names: Vec<&str> = told
        .caches
        .iter()
        .map(|cache| cache.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "kmalloc-4k",
            "task_struct",
            "kmalloc-64k",
            "thread_stack",
            "kmalloc-16k (was pages)",
            "kmalloc-32k (was pages)",
            "kmalloc-64k (was pages)",
            "kmalloc-128k (was pages)",
        ]
    );
    assert_eq!(told.from_pages_bytes, 1 << 20);
    let stacks = &told.caches[3];
    assert_eq!((stacks.slab_size, stacks.objects), (16384, 64));
    assert!(stacks.low_bytes >= 64 * 16384, "{stacks:?}");
    snapshot.release = Some("6.1.0-arm64".to_string());
    let told = predict(&snapshot, &question).unwrap();
    assert!(told.caches.iter().all(|cache| cache.name != "thread_stack"));
}

#[test]
fn sheaves_keep_what_a_load_has_left() {
    let snapshot = upgraded_from();
    let told = predict(&snapshot, &with_release("7.3")).unwrap();
    assert_eq!(told.design, "sheaf@7.3");
    let [burst, grown, empty] = &told.caches[..3] else {
        panic!("{told:?}");
    };
    // Ten sheaves in the barn and the spare ones of two CPUs are full of 12 objects, their main ones
    // half full. They pin more slabs than they fill, and fewer than one each.
    assert_eq!((burst.sheaf_capacity, burst.kept_objects), (12, 156));
    assert_eq!(burst.cause, Cause::SheavesKeep);
    let slabs = burst.predicted_bytes / 32768;
    assert!((10 + 156 / 16..10 + 156).contains(&slabs), "{burst:?}");
    assert!(burst.low_bytes < burst.observed_bytes);
    assert!(burst.high_bytes <= (10 + 168) * 32768);
    // Two CPUs have taken a sheaf of 60 each: 120 objects in slabs of 21.
    assert_eq!(
        (grown.sheaf_capacity, grown.predicted_bytes),
        (60, 6 * 4096)
    );
    assert_eq!((empty.sheaf_capacity, empty.predicted_bytes), (12, 0));
}

/// In 6.18 and 6.19 two caches have sheaves. The design of both kernels is the same, and what a cache has is not.
#[test]
fn all_caches_have_sheaves_from_7_0_on() {
    let mut snapshot = upgraded_from();
    let of_slub = predict(&snapshot, &with_release("7.0")).unwrap();
    snapshot.release = Some("6.19.14".to_string());
    let told = predict(&snapshot, &with_release("7.0")).unwrap();
    assert_eq!(told.snapshot_design, "sheaf@6.19");
    let capacities = |of: &Prediction| -> Vec<u64> {
        of.caches.iter().map(|cache| cache.sheaf_capacity).collect()
    };
    assert_eq!(capacities(&told), capacities(&of_slub));
    assert!(told.predicted_bytes > snapshot.slab_bytes());
    let after = came_out(&snapshot, &told, "7.0.13");
    let back = predict(&after, &with_release("6.19")).unwrap();
    assert_eq!(back.caches[0].sheaf_capacity, 0);
    assert!(back.caches[0].predicted_bytes < after.slabinfo.rows[0].slab_bytes(4096));
}

#[test]
fn sheaves_are_objects_of_kmalloc() {
    let told = predict(&upgraded_from(), &with_release("7.0")).unwrap();
    let of = |name: &str| {
        let cache = told.caches.iter().find(|cache| cache.name == name).unwrap();
        cache.sheaves_bytes
    };
    // Each of two CPUs has a main sheaf: 60 objects (512 bytes) of pid and the classes of 64 and
    // 128; 28 (256 bytes) of those of 256 and 512; 12 (128 bytes) of those of 2048 and of the empty
    // cache; 4 (64 bytes) of that of 8192.
    assert_eq!(of("kmalloc-512"), 3 * 2 * 512);
    assert_eq!(of("kmalloc-256"), 2 * 2 * 256);
    // Two spare ones, and ten in the barn of the cache with the burst.
    assert_eq!(of("kmalloc-128"), (2 * 2 + 12) * 128);
    // A barn for each of 8 caches.
    assert_eq!(of("kmalloc-64"), (2 + 8) * 64);
    assert_eq!(told.sheaves_bytes, 3072 + 1024 + 2048 + 640);
}

/// From 6.18 on each cache has one more file, and each file is an object.
#[test]
fn files_in_sysfs_are_objects() {
    let mut snapshot = upgraded_from();
    snapshot
        .slabinfo
        .rows
        .push(row("kernfs_node_cache", 136, 30, 400));
    let objects = |release: &str| {
        let told = predict(&snapshot, &with_release(release)).unwrap();
        told.caches.last().unwrap().predicted_bytes as f64 / 4096.0 * 30.0
    };
    let caches = snapshot.slabinfo.rows.len() as f64;
    assert!((objects("6.18") - objects("6.16") - caches).abs() < 0.5);
}

/// The larger the sheaves, the more they keep and take.
#[test]
fn sheaf_capacity_counts() {
    let snapshot = upgraded_from();
    let bytes = |capacity: u32| {
        let question = Question {
            settings: vec![Setting::of("sheaf_capacity", capacity.into())],
            ..with_release("7.0")
        };
        predict(&snapshot, &question).unwrap().predicted_bytes
    };
    let all = [0, 1, 4, 60, 1020].map(bytes);
    assert!(all.is_sorted_by(|less, more| less < more), "{all:?}");
}

#[test]
fn there_and_back() {
    let snapshot = upgraded_from();
    let told = predict(&snapshot, &with_release("7.0")).unwrap();
    let after = came_out(&snapshot, &told, "7.0.13");
    // The rules that memory depends on are the same in 7.0 and 7.3.
    let same = predict(&after, &with_release("7.3")).unwrap();
    assert_eq!(same.snapshot_design, "sheaf@7.0");
    assert_eq!(same.predicted_bytes, after.slab_bytes());
    // What the two releases put into their objects is not known.
    assert!(same.low_bytes < after.slab_bytes() && same.high_bytes > after.slab_bytes());
    assert_eq!(same.unmodelled.len(), 2);
    // Without sheaves, and with smaller ones, what they keep is free.
    let back = predict(&after, &with_release("6.17")).unwrap();
    assert_eq!(back.design, "slub@6.17");
    assert!(back.caches[0].predicted_bytes < after.slabinfo.rows[0].slab_bytes(4096));
    assert!(back.sheaves_bytes < 0);
    let less = predict(&after, &with_set("sheaf_capacity=2")).unwrap();
    let more = predict(&after, &with_set("sheaf_capacity=60")).unwrap();
    assert!(less.predicted_bytes < after.slab_bytes(), "{less:?}");
    assert!(more.predicted_bytes > after.slab_bytes(), "{more:?}");
}

#[test]
fn every_release_can_be_asked_for() {
    let mut snapshot = upgraded_from();
    for era in Era::ALL {
        let told = predict(&snapshot, &with_release(era.name())).unwrap();
        assert!(told.low_bytes <= told.predicted_bytes, "{era}");
        assert!(told.predicted_bytes <= told.high_bytes, "{era}");
    }
    // SLAB stays as long as there was one.
    for row in &mut snapshot.slabinfo.rows {
        (row.limit, row.batchcount, row.sharedfactor) = (120, 60, 8);
    }
    snapshot.release = Some("6.1.0".to_string());
    for (release, design) in [
        ("6.7", "slab@6.7"),
        ("6.8", "slub@6.8"),
        ("7.1", "sheaf@7.1"),
    ] {
        let told = predict(&snapshot, &with_release(release)).unwrap();
        assert_eq!(told.design, design);
    }
}

/// Nothing that a file can say makes a prediction panic.
#[test]
fn absurd_numbers() {
    let all = |n: u64| SlabinfoRow {
        name: "kmalloc-4k".to_string(),
        active_objs: n,
        num_objs: n / 2,
        objsize: n,
        objperslab: n,
        pagesperslab: n,
        limit: n,
        batchcount: n,
        sharedfactor: n,
        active_slabs: n,
        num_slabs: n,
        sharedavail: n / 3,
    };
    for n in [0, 1, 1 << 20, 1 << 40, u64::MAX] {
        for limit in [0, n] {
            let mut absurd = all(n);
            absurd.limit = limit;
            let mut snapshot = snapshot(vec![absurd, all(u64::MAX), row("b", 8, 512, 1)]);
            snapshot.meminfo_slab_bytes = Some(n);
            snapshot.kernel_stack_bytes = Some(n);
            let mut sysfs = CacheAttributes::default();
            for file in [
                "slabs",
                "cpu_slabs",
                "partial",
                "objects_partial",
                "min_partial",
                "sheaf_capacity",
            ] {
                sysfs.set(file, &n.to_string());
            }
            snapshot.sysfs.insert("b".to_string(), sysfs);
            let newest = Some(Era::LAST);
            for (release, kernel) in [(None, "6.1.0"), (newest, "6.1.0"), (None, "7.2.0")] {
                snapshot.release = Some(kernel.to_string());
                for page_bytes in [4096, 65536] {
                    let question = Question {
                        page_bytes: Some(page_bytes),
                        cpus: Some(64),
                        release,
                        ..Question::default()
                    };
                    let told = predict(&snapshot, &question).unwrap();
                    assert!(told.low_bytes <= told.high_bytes);
                    // Options may be refused there.
                    for option in OPTIONS {
                        let configs = vec![config(option)];
                        let _ = predict(
                            &snapshot,
                            &Question {
                                configs,
                                ..question.clone()
                            },
                        );
                    }
                }
            }
        }
    }
}

/// Slabs of order 1 where the default gives order 3: without a command line the limit is inferred, and its default is
/// another kernel.
#[test]
fn a_limit_of_orders_is_inferred_from_slabs() {
    let mut rows = [1024, 2048, 4096, 1536].map(|size| row("a", size, 8192 / size, 50));
    for row in &mut rows {
        row.name = format!("cache-{}", row.objsize);
        row.pagesperslab = 2;
    }
    let snapshot = snapshot(rows.to_vec());
    let told = predict(&snapshot, &Question::default()).unwrap();
    assert_eq!(told.explained_caches, 4);
    assert!(told.guessed[0].contains("slub_max_order=1"), "{told:?}");
    assert_eq!(told.predicted_bytes, snapshot.slab_bytes());
    let told = predict(&snapshot, &with_set("slub_max_order=3")).unwrap();
    assert!(told.caches.iter().all(|cache| cache.pages_per_slab > 2));
    assert!(told.low_bytes < told.high_bytes);
    // The command line says that there is none.
    let mut without = snapshot;
    without.cmdline = Some("quiet".to_string());
    let told = predict(&without, &Question::default()).unwrap();
    assert!(told.guessed.is_empty() && told.explained_caches < 4);
}

const OPTIONS: [&str; 9] = [
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

fn config(text: &str) -> question::Config {
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
    let price = |option| super::tests::price(&without, option).unwrap();
    assert_eq!(price("MEM_ALLOC_PROFILING=y"), [0; 3]);
    assert_eq!(price("MEMCG=y"), [640, 640 + 240, 640 + 480]);
    // sysfs says that a cache is accounted.
    let mut told = of_groups("6.12.0");
    told.aliases = [("roomy".to_string(), ":A-0000320".to_string())].into();
    assert_eq!(super::tests::price(&told, "MEMCG=n").unwrap(), [-1120; 3]);
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
        let sum = without.predicted_bytes.saturating_add_signed(cost.bytes);
        assert_eq!(told.predicted_bytes, sum, "{release}");
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
        super::tests::price(&of_slab, option)
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
        assert_eq!(sums.predicted_bytes, 100 * told.predicted_bytes);
        assert_eq!(
            [sums.low_bytes, sums.high_bytes],
            [100 * told.low_bytes, 100 * told.high_bytes]
        );
        let first = one.guests.unwrap();
        assert_eq!(
            [first.likely_low_bytes, first.likely_high_bytes],
            [one.likely_low_bytes, one.likely_high_bytes]
        );
        assert!(told.likely_low_bytes * 100 < sums.likely_low_bytes);
        assert!(told.likely_high_bytes * 100 > sums.likely_high_bytes);
    }
    // Of one kernel nothing but chance is unknown: the root of (N^2 + N) / 2.
    let told = ask(Some(100), None);
    let sums = told.guests.unwrap();
    let one = (told.likely_high_bytes - told.predicted_bytes) as f64;
    let all = (sums.likely_high_bytes - sums.predicted_bytes) as f64;
    assert!((all / one - 5050.0_f64.sqrt()).abs() < 0.01, "{all} {one}");
    assert!(ask(None, None).guests.is_none());
    assert_eq!(ask(None, None).low_bytes, snapshot.slab_bytes());
}
