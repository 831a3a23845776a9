//! The assumptions, each on a cache or two.

use std::collections::BTreeMap;
use std::path::Path;

use quarry_designs::DesignSpec;
use quarry_trace::{Kind, RawEvent, TraceBuilder, TraceFile};

use crate::plan::Axes;
use crate::replay::check::{CacheCheck, Check};
use crate::replay::input::Input;
use crate::replay::part::Part;
use crate::{Plan, RunReport};
use quarry_snapshot::{CacheAttributes, HiddenCache, HiddenState, Slabinfo, SlabinfoRow, Snapshot};

/// A row of slabs that are full of `per_slab` objects of `size` bytes but for `free` objects.
fn row(name: &str, size: u64, per_slab: u64, pages: u64, slabs: u64, free: u64) -> SlabinfoRow {
    SlabinfoRow {
        name: name.to_string(),
        active_objs: slabs * per_slab - free,
        num_objs: slabs * per_slab,
        objsize: size,
        objperslab: per_slab,
        pagesperslab: pages,
        active_slabs: slabs,
        num_slabs: slabs,
        ..SlabinfoRow::default()
    }
}

const BOX: &str = "box";

fn event(kind: Kind, n: u64, cpu: u16) -> RawEvent<'static> {
    RawEvent {
        time_ns: n,
        cpu,
        bytes_req: 192,
        bytes_alloc: 192,
        cache: (!matches!(kind, Kind::Kmalloc | Kind::Kfree)).then_some(BOX.as_bytes()),
        ..RawEvent::new(kind, 0xffff_8880_0000_0000 + n * 4096)
    }
}

fn replay(
    events: &[RawEvent<'_>],
    initial: &[SlabinfoRow],
    change: impl FnOnce(&mut Axes, &mut Input),
) -> RunReport {
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    for event in events {
        trace.push(event).unwrap();
    }
    trace.meta_mut().kernel = Some("6.1.0".to_string());
    trace.meta_mut().cpus = 2;
    trace.finish().unwrap();
    let mut input = Input::new(TraceFile::from_bytes(bytes).unwrap(), "t");
    let report = Slabinfo {
        rows: initial.to_vec(),
    };
    input.initial = Some(Snapshot {
        release: Some("6.1.0".to_string()),
        page_bytes: 4096,
        present_cpus: Some(2),
        nr_cpu_ids: Some(2),
        slabinfo: report.clone(),
        ..Snapshot::default()
    });
    input.check = Some(report);
    let mut axes = Axes {
        designs: vec![DesignSpec::parse("slub@6.1").unwrap()],
        cpus: vec![2],
        memory_bytes: 64 << 20,
        ..Axes::default()
    };
    change(&mut axes, &mut input);
    let mut runs = Plan::new(&axes)
        .unwrap()
        .execute(&input, 1, &|_| ())
        .unwrap();
    runs.remove(0)
}

fn cache<'a>(check: &'a Option<Check>, name: &str) -> &'a CacheCheck {
    let caches = &check.as_ref().unwrap().caches;
    caches.iter().find(|cache| cache.name == name).unwrap()
}

#[test]
fn an_orphan_frees_an_initial_object() {
    let frees: Vec<_> = (1..=4).map(|n| event(Kind::KmemCacheFree, n, 0)).collect();
    let initial = [row(BOX, 192, 21, 1, 3, 0)];
    let run = replay(&frees, &initial, |_, _| ());
    assert_eq!((run.replayed.initial_frees, run.replayed.orphans), (4, 0));
    assert_eq!(cache(&run.check, BOX).frees, 4);
    assert_eq!(run.object_bytes - run.final_object_bytes, 4 * 192);
    // There are only as many as the kernel held: a CPU that has not used up its slab is likely to use a few of it.
    let many: Vec<_> = (1..=30).map(|n| event(Kind::KmemCacheFree, n, 0)).collect();
    let run = replay(&many, &[row(BOX, 192, 21, 1, 1, 0)], |_, _| ());
    assert_eq!((run.replayed.initial_frees, run.replayed.orphans), (5, 25));
}

#[test]
fn the_first_user_has_the_only_slab() {
    // 16 objects are free in the one slab, on the CPU that allocates.
    let allocs = |count, cpu| -> Vec<_> {
        (1..=count)
            .map(|n| event(Kind::KmemCacheAlloc, n, cpu))
            .collect()
    };
    let initial = [row(BOX, 192, 21, 1, 1, 0)];
    for (count, slabs) in [(16, 1), (17, 2)] {
        for cpu in [0, 1] {
            let run = replay(&allocs(count, cpu), &initial, |_, _| ());
            let pages = cache(&run.check, BOX).predicted_bytes / 4096;
            assert_eq!(pages, slabs, "{count} on CPU {cpu}");
        }
    }
}

#[test]
fn cpus_hold_what_a_debugger_read() {
    // Three free places in CPU 0's slab, five on CPU 1's list, one on the node's.
    let hidden: HiddenCache = serde_json::from_value(serde_json::json!({
        "cpus": {"0": {"slab_free": 3}, "1": {"slab_free": 0, "partial": {"5": 1}}},
        "nodes": {"0": {"partial": {"1": 1}}}
    }))
    .unwrap();
    let caches = BTreeMap::from([(BOX.to_string(), hidden)]);
    let initial = [row(BOX, 192, 21, 1, 4, 1)];
    // A CPU takes from its slab, then from its list, then from the node's.
    for (cpu, free) in [(0, 3 + 1), (1, 5 + 1)] {
        for more in [0, 1] {
            let allocs: Vec<_> = (1..=free + more)
                .map(|n| event(Kind::KmemCacheAlloc, n, cpu))
                .collect();
            let run = replay(&allocs, &initial, |_, input| {
                let initial = input.initial.as_mut().unwrap();
                initial.hidden = Some(HiddenState {
                    read_by: "drgn".to_string(),
                    caches: caches.clone(),
                });
            });
            let pages = cache(&run.check, BOX).predicted_bytes / 4096;
            assert_eq!(pages, 4 + more, "{free} on CPU {cpu}");
        }
    }
}

#[test]
fn accounted_memory_has_its_own_kmalloc_caches() {
    let accounted = RawEvent {
        accounted: true,
        ..event(Kind::Kmalloc, 1, 0)
    };
    let events = [
        accounted,
        event(Kind::Kmalloc, 2, 0),
        event(Kind::Kfree, 1, 0),
    ];
    let (normal, cg) = ("kmalloc-192", "kmalloc-cg-192");
    let both = [row(normal, 192, 21, 1, 2, 0), row(cg, 192, 21, 1, 2, 0)];
    let run = replay(&events, &both, |_, _| ());
    let counts = |name| {
        let cache = cache(&run.check, name);
        (cache.allocs, cache.frees)
    };
    assert_eq!((counts(normal), counts(cg)), ((1, 0), (1, 1)));
    // A kernel without such caches has all in the normal ones.
    let run = replay(&events, &both[..1], |_, _| ());
    assert_eq!(cache(&run.check, normal).allocs, 2);
}

#[test]
fn objects_from_before_the_part_are_orphans_of_a_known_cache() {
    let events = [
        event(Kind::Kmalloc, 1, 0),
        event(Kind::KmemCacheAlloc, 2, 0),
        RawEvent {
            time_ns: 7,
            ..event(Kind::Kfree, 1, 0)
        },
        RawEvent {
            time_ns: 8,
            ..event(Kind::KmemCacheFree, 2, 0)
        },
    ];
    let initial = [
        row("kmalloc-192", 192, 21, 1, 2, 0),
        row(BOX, 192, 21, 1, 2, 0),
    ];
    let from = |_: &mut Axes, input: &mut Input| {
        input.part = Part {
            from_ns: Some(5),
            until_ns: None,
        };
    };
    let run = replay(&events, &initial, from);
    assert_eq!((run.replayed.allocs, run.replayed.initial_frees), (0, 2));
    for name in ["kmalloc-192", BOX] {
        assert_eq!(cache(&run.check, name).frees, 1, "{name}");
    }
}

#[test]
fn other_slabs_hold_the_active_objects() {
    let events = [event(Kind::KmemCacheAlloc, 1, 0)];
    let initial = [row(BOX, 192, 21, 1, 100, 0)];
    let run = replay(&events, &initial, |axes, _| axes.page_bytes = vec![65536]);
    // 2100 active objects and one more, 341 in a slab of 64 KiB; each of two CPUs may hold a slab that it has not
    // filled.
    let slabs = cache(&run.check, BOX).predicted_bytes / 65536;
    assert!((7..=9).contains(&slabs), "{slabs}");
}

#[test]
fn no_number_in_a_report_panics() {
    let sane = row(BOX, 192, 21, 1, 3, 4);
    let odd: [fn(&mut SlabinfoRow); 5] = [
        |row| row.num_objs = u64::MAX,
        |row| row.active_objs = u64::MAX,
        |row| row.active_slabs = u64::MAX,
        |row| (row.limit, row.sharedavail) = (u64::MAX, u64::MAX),
        |row| row.limit = 1,
    ];
    for change in odd {
        let mut row = sane.clone();
        change(&mut row);
        let run = replay(&[event(Kind::KmemCacheAlloc, 1, 0)], &[row], |_, _| ());
        assert!(cache(&run.check, BOX).predicted_bytes > 0);
    }
}

/// Page events and objects from which the importer learns which addresses are which pages.
fn lessons() -> Vec<RawEvent<'static>> {
    let lesson = |n: u64| {
        let object = RawEvent {
            bytes_req: 64,
            bytes_alloc: 64,
            ..event(Kind::Kmalloc, 5000 + 7 * n, 0)
        };
        [
            RawEvent::new(Kind::MmPageAlloc, 5000 + 7 * n),
            RawEvent {
                time_ns: 0,
                ..object
            },
        ]
    };
    (0..16).flat_map(lesson).collect()
}

/// An event of one of the 21 places of a page.
fn at(kind: Kind, page: u64, place: u64, cpu: u16) -> RawEvent<'static> {
    let event = event(kind, page, cpu);
    RawEvent {
        address: event.address + place * 192,
        ..event
    }
}

#[test]
fn places_that_are_taken_were_free() {
    let box_alloc = |n: u64| at(Kind::KmemCacheAlloc, 77 + n / 21, n % 21, 1);
    let pages = |events: Vec<RawEvent<'_>>, slabs| {
        let all = [lessons(), events].concat();
        let run = replay(&all, &[row(BOX, 192, 21, 1, slabs, 0)], |_, _| ());
        cache(&run.check, BOX).predicted_bytes / 4096
    };
    // Two slabs of the three that the report calls full were free as a whole, on CPU 1.
    assert_eq!(pages((0..42).map(box_alloc).collect(), 3), 3);
    assert_eq!(pages((0..43).map(box_alloc).collect(), 3), 3);
    // The first allocation is in a new slab: nothing was free.
    let mut made = vec![RawEvent::new(Kind::MmPageAlloc, 77)];
    made.push(box_alloc(0));
    assert_eq!(pages(made, 3), 4);
    // A place that is freed and taken again was not free.
    let again = [
        at(Kind::KmemCacheFree, 77, 3, 1),
        at(Kind::KmemCacheAlloc, 77, 3, 1),
    ];
    assert_eq!(pages(again.to_vec(), 3), 3);
}

#[test]
fn slabs_are_compared_with_the_recorded() {
    let same = |places: &[(u64, u64)]| {
        let allocs = places.iter();
        let allocs = allocs.map(|(page, place)| at(Kind::KmemCacheAlloc, *page, *place, 1));
        let events = [lessons(), allocs.collect()].concat();
        let run = replay(&events, &[row(BOX, 192, 21, 1, 3, 0)], |_, _| ());
        let same = cache(&run.check, BOX).same_slabs;
        (same.told, same.same, same.first_departure)
    };
    assert_eq!(same(&[(77, 0), (77, 1), (78, 0), (78, 1)]), (4, 4, None));
    // No SLUB goes to and fro between two slabs. Events 1 to 32 tell where pages are.
    let (told, same, first_departure) = same(&[(77, 0), (78, 0), (77, 1), (78, 1)]);
    assert_eq!((told, first_departure), (4, Some(34)));
    assert!(same < 4);
}

#[test]
fn an_orphan_lay_beside_its_neighbours() {
    // A kfree names no cache, but a kmalloc on the same page has one.
    let events = [
        lessons(),
        vec![
            at(Kind::Kfree, 77, 1, 0),
            at(Kind::Kmalloc, 77, 2, 0),
            at(Kind::Kfree, 77, 4, 0),
            at(Kind::Kfree, 90, 4, 0),
        ],
    ];
    let initial = [row("kmalloc-192", 192, 21, 1, 3, 0)];
    let run = replay(&events.concat(), &initial, |_, _| ());
    assert_eq!((run.replayed.initial_frees, run.replayed.orphans), (2, 1));
}

#[test]
fn lists_that_are_told_are_full_or_not() {
    // An object of a full slab is freed on CPU 1, whose list holds 12 slabs at most.
    let events = [lessons(), vec![at(Kind::KmemCacheFree, 77, 1, 1)]].concat();
    let pages = |cpu: u32, slabs: u64| {
        let initial = [row(BOX, 192, 21, 1, 20, 0)];
        let run = replay(&events, &initial, |_, input| {
            let mut counts = CacheAttributes::default();
            for (file, text) in [
                ("slabs", "20"),
                ("objects", "420"),
                (
                    "slabs_cpu_partial",
                    &format!("0({slabs}) C{cpu}=0({slabs})"),
                ),
            ] {
                counts.set(file, text);
            }
            let snapshot = input.initial.as_mut().unwrap();
            snapshot.sysfs = BTreeMap::from([(BOX.to_string(), counts)]);
        });
        cache(&run.check, BOX).predicted_bytes / 4096
    };
    // A list that is full goes to the node, which keeps five slabs that are free as a whole.
    assert_eq!(pages(1, 12), 13);
    // It holds no more, whatever the input says.
    assert_eq!(pages(1, 19), 13);
    // There is room for one, or it is another CPU's.
    assert_eq!(pages(1, 11), 20);
    assert_eq!(pages(0, 12), 20);
}

/// A replay of a cache with 20 full slabs, whose end has this many full ones; a CPU holds one slab at most, if sysfs says so.
fn ends_with(events: &[RawEvent<'_>], slabs: u64, sysfs: bool) -> CacheCheck {
    let run = replay(events, &[row(BOX, 192, 21, 1, 20, 0)], |_, input| {
        input.check = Some(Slabinfo {
            rows: vec![row(BOX, 192, 21, 1, slabs, 0)],
        });
        let mut limits = CacheAttributes::default();
        limits.set("cpu_partial", "0");
        if sysfs {
            let snapshot = input.initial.as_mut().unwrap();
            snapshot.sysfs = BTreeMap::from([(BOX.to_string(), limits)]);
        }
    });
    cache(&run.check, BOX).clone()
}

#[test]
fn the_last_report_tells_of_calls_without_an_event() {
    let allocs: Vec<_> = (1..=210)
        .map(|n| event(Kind::KmemCacheAlloc, n, 0))
        .collect();
    let grown = ends_with(&allocs, 20, false);
    assert_eq!(grown.missing, 0, "nothing tells what CPUs hold");
    let grown_by = grown.predicted_active_objs - 420;
    assert!((189..=210).contains(&grown_by), "{grown:?}");
    // That many were freed: the kernel has as many as before.
    let freed = ends_with(&allocs, 20, true);
    assert_eq!(freed.missing as u64, grown.predicted_active_objs - 420);
    assert_eq!((freed.implied_frees, freed.frees), (0, grown_by));
    assert!(freed.predicted_active_objs < grown.predicted_active_objs);
    assert!(freed.predicted_bytes <= grown.predicted_bytes);
    // Two CPUs hold 42 free objects at most: a difference of less tells nothing.
    assert_eq!(ends_with(&allocs, 29, true).missing, 0);
    // The kernel made ten slabs, and one allocation has an event.
    let unseen = ends_with(&allocs[..1], 30, true);
    assert!(unseen.missing < -42, "{unseen:?}");
    assert_eq!(unseen.allocs, 1 + unseen.missing.unsigned_abs());
    assert_eq!(unseen.predicted_bytes / 4096, 30);
}
