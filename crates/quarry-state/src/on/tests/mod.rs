use quarry_core::era::Era;

use quarry_designs::Setting;
use quarry_snapshot::{CacheAttributes, Slabinfo, SlabinfoRow};

use super::*;
use prices::{OPTIONS, config};

mod prices;

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
        row.num_slabs = cache
            .bytes
            .predicted_bytes
            .div_ceil(row.pagesperslab * 4096);
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
    assert_eq!(slabs(told.caches[0].bytes.low_bytes), 30);
    assert_eq!(slabs(told.bytes.predicted_bytes), 35);
    assert_eq!(slabs(told.caches[0].bytes.high_bytes), 40);
    // The limit that was written counts, not the formula's.
    let told = predict(&partial("0"), &with_set("cpu_partial=0")).unwrap();
    assert_eq!(told.bytes.predicted_bytes, told.observed_bytes);
    let longer = predict(&partial("120"), &with_set("cpu_partial=1200")).unwrap();
    assert_eq!(longer.bytes.predicted_bytes, longer.observed_bytes);
    assert!(longer.bytes.high_bytes > longer.observed_bytes);
}

#[test]
fn more_empty_slabs_may_be_kept() {
    let told = predict(&partial("120"), &with_set("min_partial=20")).unwrap();
    assert_eq!(told.bytes.predicted_bytes, told.observed_bytes);
    // 20 may be kept, 6 are on the list.
    assert_eq!(
        told.caches[0].bytes.high_bytes - told.observed_bytes,
        14 * 4096
    );
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
    assert!(stacks.bytes.low_bytes >= 64 * 16384, "{stacks:?}");
    snapshot.release = Some("6.1.0-arm64".to_string());
    let told = predict(&snapshot, &question).unwrap();
    assert!(told.caches.iter().all(|cache| cache.name != "thread_stack"));
}

/// The rest of `Slab` may be of caches that are not listed: it is no kmalloc.
#[test]
fn what_a_part_of_the_caches_lacks_is_in_no_sum() {
    let mut snapshot = snapshot(vec![row("kmalloc-4k", 4096, 1, 8)]);
    let question = Question {
        page_bytes: Some(65536),
        ..Question::default()
    };
    let alone = predict(&snapshot, &question).unwrap();
    assert_eq!(alone.unlisted_bytes, 0);
    let rest = 600 << 20;
    snapshot.meminfo_slab_bytes = Some(snapshot.slab_bytes() + rest);
    let told = predict(&snapshot, &question).unwrap();
    assert_eq!((told.from_pages_bytes, told.unlisted_bytes), (0, rest));
    assert_eq!(told.bytes, alone.bytes);
    // With the same pages none of it would move.
    let same = predict(&snapshot, &Question::default()).unwrap();
    assert_eq!(same.unlisted_bytes, 0);
    // A whole list lacks kmallocs alone.
    let rest = snapshot.slab_bytes() / 4;
    snapshot.meminfo_slab_bytes = Some(snapshot.slab_bytes() + rest);
    let whole = predict(&snapshot, &question).unwrap();
    assert_eq!((whole.from_pages_bytes, whole.unlisted_bytes), (rest, 0));
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
    let slabs = burst.bytes.predicted_bytes / 32768;
    assert!((10 + 156 / 16..10 + 156).contains(&slabs), "{burst:?}");
    assert!(burst.bytes.low_bytes < burst.observed_bytes);
    assert!(burst.bytes.high_bytes <= (10 + 168) * 32768);
    // Two CPUs have taken a sheaf of 60 each: 120 objects in slabs of 21.
    assert_eq!(
        (grown.sheaf_capacity, grown.bytes.predicted_bytes),
        (60, 6 * 4096)
    );
    assert_eq!((empty.sheaf_capacity, empty.bytes.predicted_bytes), (12, 0));
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
    assert!(told.bytes.predicted_bytes > snapshot.slab_bytes());
    let after = came_out(&snapshot, &told, "7.0.13");
    let back = predict(&after, &with_release("6.19")).unwrap();
    assert_eq!(back.caches[0].sheaf_capacity, 0);
    assert!(back.caches[0].bytes.predicted_bytes < after.slabinfo.rows[0].slab_bytes(4096));
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
        told.caches.last().unwrap().bytes.predicted_bytes as f64 / 4096.0 * 30.0
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
        predict(&snapshot, &question).unwrap().bytes.predicted_bytes
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
    assert_eq!(same.bytes.predicted_bytes, after.slab_bytes());
    // What the two releases put into their objects is not known.
    assert!(
        same.bytes.low_bytes < after.slab_bytes() && same.bytes.high_bytes > after.slab_bytes()
    );
    assert_eq!(same.unmodelled.len(), 2);
    // Without sheaves, and with smaller ones, what they keep is free.
    let back = predict(&after, &with_release("6.17")).unwrap();
    assert_eq!(back.design, "slub@6.17");
    assert!(back.caches[0].bytes.predicted_bytes < after.slabinfo.rows[0].slab_bytes(4096));
    assert!(back.sheaves_bytes < 0);
    let less = predict(&after, &with_set("sheaf_capacity=2")).unwrap();
    let more = predict(&after, &with_set("sheaf_capacity=60")).unwrap();
    assert!(less.bytes.predicted_bytes < after.slab_bytes(), "{less:?}");
    assert!(more.bytes.predicted_bytes > after.slab_bytes(), "{more:?}");
}

#[test]
fn every_release_can_be_asked_for() {
    let mut snapshot = upgraded_from();
    for era in Era::ALL {
        let told = predict(&snapshot, &with_release(era.name())).unwrap();
        assert!(told.bytes.low_bytes <= told.bytes.predicted_bytes, "{era}");
        assert!(told.bytes.predicted_bytes <= told.bytes.high_bytes, "{era}");
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
                    assert!(told.bytes.low_bytes <= told.bytes.high_bytes);
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
    assert_eq!(told.bytes.predicted_bytes, snapshot.slab_bytes());
    let told = predict(&snapshot, &with_set("slub_max_order=3")).unwrap();
    assert!(told.caches.iter().all(|cache| cache.pages_per_slab > 2));
    assert!(told.bytes.low_bytes < told.bytes.high_bytes);
    // The command line says that there is none.
    let mut without = snapshot;
    without.cmdline = Some("quiet".to_string());
    let told = predict(&without, &Question::default()).unwrap();
    assert!(told.guessed.is_empty() && told.explained_caches < 4);
}

/// Another number of possible CPUs always leaves something open, and a userland's groups of tasks bring more.
#[test]
fn possible_cpus_bring_objects() {
    let question = Question {
        possible_cpus: Some(64),
        ..Question::default()
    };
    let mut all = snapshot(vec![
        row("inode_cache", 640, 6, 500),
        row("kmalloc-512", 512, 8, 50),
        row("task_group", 640, 6, 0),
    ]);
    let bare = predict(&all, &question).unwrap();
    let more = bare.bytes.predicted_bytes - bare.observed_bytes;
    // 60 CPUs: 45.5 inodes each, six in a page, and 1.5 objects of 512 bytes.
    let expected = 60.0 * 4096.0 * (45.5 / 6.0 + 1.5 / 8.0);
    assert!((more as f64 - expected).abs() < 2.0 * 4096.0, "{more}");
    assert!(bare.bytes.likely_low_bytes < bare.bytes.predicted_bytes);
    assert!(bare.bytes.predicted_bytes < bare.bytes.likely_high_bytes);
    assert!(
        bare.guessed
            .iter()
            .any(|guess| guess.contains("60 more CPUs")),
        "{:?}",
        bare.guessed
    );
    all.slabinfo.rows[2] = row("task_group", 640, 6, 4);
    let with_groups = predict(&all, &question).unwrap();
    let more_of = |told: &Prediction, cache: usize| {
        let told = &told.caches[cache];
        told.bytes.predicted_bytes - told.observed_bytes
    };
    // 20 groups with two objects each, and 13 inodes.
    assert!(more_of(&with_groups, 1) > more_of(&bare, 1) + 55 * 40 * 512);
    assert!(more_of(&with_groups, 0) > more_of(&bare, 0));
    let same = predict(&all, &Question::default()).unwrap();
    assert_eq!(same.bytes.ends(), [same.observed_bytes; 3]);
}
