use crate::kernel::{CacheAttributes, Slabinfo};
use crate::setting::Setting;

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
            ] {
                sysfs.set(file, &n.to_string());
            }
            snapshot.sysfs.insert("b".to_string(), sysfs);
            for page_bytes in [4096, 65536] {
                let question = Question {
                    page_bytes: Some(page_bytes),
                    cpus: Some(64),
                    ..Question::default()
                };
                let told = predict(&snapshot, &question).unwrap();
                assert!(told.low_bytes <= told.high_bytes);
            }
        }
    }
}
