//! Small traces whose replay can be worked out by hand, and rows that cannot be true.

use std::path::Path;

use quarry_core::slub::Slub;
use quarry_core::stats::Stat;
use quarry_designs::{DesignSpec, Setting};
use quarry_sim::{Config, driver};
use quarry_trace::{Flags, Kind, RawEvent, ReplayEvent, TraceBuilder, TraceFile};

use super::engine::Engine;
use super::input::Input;
use super::report::Tally;
use crate::RunReport;
use crate::error::LabError;
use crate::plan::{Axes, Plan};

const BASE: u64 = 0xffff_8880_0000_0000;

/// An allocation of object `n` from a named cache.
pub(super) fn alloc(n: u64, cpu: u16, cache: &'static str, bytes: u32) -> RawEvent<'static> {
    RawEvent {
        cpu,
        cache: Some(cache.as_bytes()),
        bytes_req: bytes,
        bytes_alloc: bytes.next_multiple_of(8),
        ..RawEvent::new(Kind::KmemCacheAlloc, BASE + (n << 12))
    }
}

pub(super) fn kmalloc(n: u64, cpu: u16, bytes: u32) -> RawEvent<'static> {
    RawEvent {
        cpu,
        bytes_req: bytes,
        bytes_alloc: bytes,
        ..RawEvent::new(Kind::Kmalloc, BASE + (n << 32))
    }
}

pub(super) fn free(of: &RawEvent<'static>, cpu: u16) -> RawEvent<'static> {
    RawEvent {
        cpu,
        cache: of.cache,
        ..RawEvent::new(of.kind.freed_by(), of.address)
    }
}

/// The events' times are 1, 2, 3 and so on, unless they have one.
pub(super) fn input(events: &[RawEvent<'_>]) -> Input {
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    for (time_ns, event) in (1..).zip(events) {
        let time_ns = event.time_ns.max(time_ns);
        trace.push(&RawEvent { time_ns, ..*event }).unwrap();
    }
    trace.meta_mut().kernel = Some("6.18.0".to_string());
    trace.meta_mut().cpus = 4;
    trace.finish().unwrap();
    Input::new(TraceFile::from_bytes(bytes).unwrap(), "t")
}

pub(super) fn axes(design: &str) -> Axes {
    Axes {
        designs: vec![DesignSpec::parse(design).unwrap()],
        cpus: vec![4],
        memory_bytes: 64 << 20,
        ..Axes::default()
    }
}

pub(super) fn replay(axes: &Axes, input: &Input) -> Result<RunReport, LabError> {
    let mut runs = Plan::new(axes)?.execute(input, 1, &|_| ())?;
    Ok(runs.remove(0))
}

#[test]
fn a_few_objects_by_hand() {
    let (a, b, c) = (
        alloc(1, 0, "box", 500),
        alloc(2, 1, "box", 500),
        kmalloc(1, 2, 100),
    );
    let orphan = alloc(9, 0, "box", 500);
    let page = RawEvent::new(Kind::MmPageAlloc, 77);
    let input = input(&[a, b, c, free(&orphan, 0), page, free(&a, 1), free(&c, 2)]);
    for design in ["slub", "slub@5.9", "slubq"] {
        let run = replay(&axes(design), &input).unwrap();
        let expected = Tally {
            allocs: 3,
            frees: 2,
            orphans: 1,
            page_events: 1,
            ..Tally::default()
        };
        assert_eq!(run.replayed, expected, "{design}");
        assert_eq!(run.cross_cpu_frees, 1);
        assert_eq!((run.object_bytes, run.final_object_bytes), (1100, 500));
        assert_eq!(run.alloc_fastpath + run.alloc_slowpath, 3);
        assert_eq!(run.free_fastpath + run.free_slowpath, 2);
        let names: Vec<&str> = run.caches.iter().map(|cache| cache.name.as_str()).collect();
        assert_eq!(names, ["box", "kmalloc-128"], "{design}");
        assert_eq!(run.caches[0].slab_size, 504);
        assert_eq!(
            run.slabs,
            run.caches.iter().map(|cache| cache.slabs).sum::<u64>()
        );
    }
}

/// Each release keeps a CPU's state to one user in its own way, and zeroes what a trace asks zeroed.
#[test]
fn work_is_that_of_the_release() {
    let objects: Vec<_> = (0..200).map(|n| alloc(n, 0, "box", 500)).collect();
    let mut events = objects.clone();
    events.extend(objects.iter().map(|object| free(object, 1)));
    events[7].gfp_flags = Some(b"GFP_KERNEL|__GFP_ZERO");
    let input = input(&events);
    let of = |design| {
        let run = replay(&axes(design), &input).unwrap();
        let work = |name| run.work.iter().find(|(it, _)| *it == name).unwrap().1;
        assert_eq!(run.zeroed_bytes, 500, "{design}");
        let fast = run.alloc_fastpath + run.free_fastpath;
        let all = fast + run.alloc_slowpath + run.free_slowpath;
        let kinds = ["call", "local_cmpxchg", "irq_save", "preempt"];
        (fast, all, kinds.map(work))
    };
    let (fast, _, [calls, cmpxchg, irq_save, preempt]) = of("slub@6.1");
    assert_eq!((calls, cmpxchg, preempt), (400, fast, 0));
    assert!(irq_save < 400, "only lists and pages: {irq_save}");
    for design in ["slub@2.6.24", "slab@6.1"] {
        let (_, all, [calls, cmpxchg, irq_save, preempt]) = of(design);
        assert_eq!((cmpxchg, irq_save, preempt), (0, all, 0), "{design}");
        // SLAB's own structures are kmallocs, which look their caches up: those of `box` and of its CPUs.
        assert!(calls >= all && calls < all + 10, "{design}: {calls}");
    }
    let (_, _, [_, cmpxchg, _, preempt]) = of("sheaf@7.0");
    assert_eq!(cmpxchg, 0);
    assert!(preempt >= 400, "{preempt}");
}

#[test]
fn cpus_fold() {
    let a = alloc(1, 1, "box", 64);
    let b = alloc(2, 3, "box", 64);
    let input = input(&[a, b, free(&a, 3), free(&b, 2)]);
    let crossed = |cpus| {
        let axes = Axes {
            cpus: vec![cpus],
            ..axes("slub")
        };
        replay(&axes, &input).unwrap().cross_cpu_frees
    };
    assert_eq!(
        [crossed(1), crossed(2), crossed(4), crossed(64)],
        [0, 1, 2, 2]
    );
}

#[test]
fn large_kmallocs_are_kept_apart() {
    let (large, huge, small) = (
        kmalloc(1, 0, 20_000),
        kmalloc(2, 0, 8 << 20),
        kmalloc(3, 0, 64),
    );
    let input = input(&[large, huge, small, free(&huge, 0), free(&large, 0)]);
    let at = |page_bytes| {
        let axes = Axes {
            page_bytes: vec![page_bytes],
            ..axes("slub")
        };
        replay(&axes, &input).unwrap()
    };
    // 20 000 bytes are above the largest class of 8 KiB; 8 MiB are above the largest block.
    let small_pages = at(4096);
    assert_eq!(
        (small_pages.replayed.large, small_pages.replayed.unserved),
        (1, 1)
    );
    assert_eq!(
        (small_pages.large_bytes_peak, small_pages.object_bytes),
        (32768, 64)
    );
    assert_eq!(small_pages.replayed.frees, 1);
    let large_pages = at(65536);
    assert_eq!(
        (large_pages.replayed.large, large_pages.replayed.unserved),
        (1, 0)
    );
    assert_eq!(
        (large_pages.large_bytes_peak, large_pages.object_bytes),
        (8 << 20, 20_064)
    );
}

#[test]
fn tunables_reach_named_and_kmalloc_caches() {
    let mut events = Vec::new();
    for n in 0..2000 {
        events.push(alloc(n, 0, "box", 64));
        events.push(kmalloc(n, 0, 64));
    }
    let frees: Vec<_> = events.iter().rev().map(|event| free(event, 1)).collect();
    let input = input(&[events, frees].concat());
    let drained = |settings: &[&str]| {
        let axes = Axes {
            settings: settings
                .iter()
                .map(|text| Setting::parse(text).unwrap())
                .collect(),
            ..axes("slub")
        };
        replay(&axes, &input).unwrap()
    };
    let (with, without) = (drained(&[]), drained(&["cpu_partial=0", "min_partial=3"]));
    // With a limit of 0 every slab that is put on a CPU's list drains the one before it.
    let drains = |run: &RunReport| run.stats.get(Stat::CpuPartialDrain);
    assert!(drains(&without) > drains(&with));
    assert!(without.caches.iter().all(|cache| cache.min_partial == 3));
    let order = drained(&["slub_min_order=2"]);
    assert!(order.caches.iter().all(|cache| cache.order == 2));
}

/// Linux 2.6.22 does not boot with slabs of more than 65535 objects; memory has nothing to do with it.
#[test]
fn kmalloc_caches_that_cannot_exist_are_named() {
    let input = input(&[kmalloc(1, 0, 8)]);
    let axes = Axes {
        settings: vec![Setting::parse("slub_min_order=8").unwrap()],
        ..axes("slub@2.6.22")
    };
    let message = replay(&axes, &input).unwrap_err().to_string();
    assert!(
        message.contains("slub@2.6.22, 4k pages, 4 CPUs: a slab would hold")
            && message.ends_with("lower slub_min_order or slub_min_objects"),
        "{message}"
    );
}

#[test]
fn exhausted_memory_names_the_event() {
    let events: Vec<_> = (0..5000).map(|n| alloc(n, 0, "box", 1024)).collect();
    let input = input(&events);
    let axes = Axes {
        memory_bytes: 1 << 20,
        ..axes("slub")
    };
    let message = replay(&axes, &input).unwrap_err().to_string();
    assert!(
        message.contains("slub@6.17, 4k pages, 4 CPUs: memory is exhausted at event 1025 of 5000"),
        "{message}"
    );
    assert!(
        message.contains("1024 bytes for box") && message.contains("--memory"),
        "{message}"
    );
}

/// Feeds rows that the importer would not write.
fn feed(rows: &[(Kind, u32, u16)]) -> Result<(), LabError> {
    let input = input(&[
        alloc(1, 0, "box", 64),
        alloc(2, 0, "box", 64),
        kmalloc(1, 0, 8),
    ]);
    let plan = Plan::new(&axes("slub")).unwrap();
    let spec = &plan.runs[0];
    let chunk: Vec<ReplayEvent> = rows
        .iter()
        .map(|(kind, object, cache)| ReplayEvent {
            time_ns: 0,
            object: *object,
            bytes_req: 64,
            cache: *cache,
            cpu: 0,
            kind: *kind,
            flags: Flags::default(),
            order: 0,
            place: -1,
        })
        .collect();
    let config = Config {
        cpus: 4,
        ..Config::default()
    };
    let fed = driver::drive::<Slub, _>(config, spec.design.era, spec.settings.boot, |driver| {
        Engine::new(driver, spec, &input)?
            .run_chunk(&chunk)
            .map(drop)
    });
    fed.unwrap()
}

#[test]
fn impossible_rows_are_named() {
    use Kind::{Kfree, Kmalloc, KmemCacheAlloc, KmemCacheFree};
    let check = |rows: &[(Kind, u32, u16)], expected: &str| {
        let message = feed(rows).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    };
    assert!(feed(&[(Kmalloc, 0, 0), (Kfree, 0, 0), (KmemCacheAlloc, 0, 1)]).is_ok());
    // A kfree of a named cache's object is what kernels do.
    assert!(feed(&[(KmemCacheAlloc, 0, 1), (Kfree, 0, 1)]).is_ok());
    check(
        &[(Kmalloc, 0, 0), (Kmalloc, 0, 0)],
        "t: row 2: object 0 is allocated twice",
    );
    check(
        &[(Kmalloc, 1, 0), (Kfree, 1, 0), (KmemCacheFree, 1, 0)],
        "t: row 3: object 1 is freed, but it is not allocated",
    );
    check(&[(Kfree, 2, 0)], "t: row 1: object 2 is freed");
    check(
        &[(KmemCacheAlloc, 0, 0)],
        "t: row 1: an object of cache kmalloc is allocated, which has no size",
    );
}

#[test]
fn plans_refuse_what_machines_cannot_be() {
    let refused = |change: fn(&mut Axes)| {
        let mut axes = axes("slub");
        change(&mut axes);
        Plan::new(&axes).unwrap_err().to_string()
    };
    assert!(refused(|axes| axes.cpus = vec![0]).contains("0 CPUs: a machine has 1 to 4096"));
    assert!(refused(|axes| axes.cpus = vec![1_000_000]).contains("1000000 CPUs"));
    assert!(refused(|axes| axes.page_bytes = vec![8192]).contains("page size 8192"));
    assert!(refused(|axes| axes.cache_line = 3).contains("cache line of 3 bytes"));
    assert!(refused(|axes| axes.memory_bytes = 100).contains("100 bytes of memory"));
}

#[test]
fn copies_are_loads_of_their_own() {
    let (a, b) = (alloc(1, 0, "box", 500), alloc(2, 3, "box", 500));
    let orphan = alloc(9, 0, "box", 500);
    let events = [a, b, free(&a, 1), free(&orphan, 0)];
    let once = replay(&axes("slub"), &input(&events)).unwrap();
    assert_eq!(once.cpus_with_events, 3);
    let wide = Axes {
        cpus: vec![8],
        ..axes("slub")
    };
    let mut twice = input(&events);
    twice.copies = 2;
    let run = replay(&wide, &twice).unwrap();
    // Of four recorded CPUs three have events; the second copy runs on CPUs 4, 5 and 7.
    assert_eq!((run.cpus, run.cpus_with_events), (8, 6));
    assert_eq!((run.replayed.allocs, run.replayed.frees), (4, 2));
    assert_eq!(run.replayed.orphans, 2);
    assert_eq!(run.final_object_bytes, 2 * once.final_object_bytes);
    assert_eq!(run.cross_cpu_frees, 2 * once.cross_cpu_frees);
    let alone = replay(&wide, &input(&events)).unwrap();
    assert_eq!(run.final_slab_bytes, 2 * alone.final_slab_bytes);

    twice.copies = 0;
    let refused = replay(&wide, &twice).unwrap_err().to_string();
    assert!(refused.contains("0 copies of t: 1 to"), "{refused}");
    twice.copies = 1 << 15;
    assert!(replay(&wide, &twice).is_err());
    twice.copies = 2;
    // Two copies of four CPUs do not share the four of this machine.
    let refused = replay(&axes("slub"), &twice).unwrap_err().to_string();
    assert!(refused.contains("4 CPUs has 4: give --cpus 8"), "{refused}");
    twice.check = Some(quarry_snapshot::Slabinfo::default());
    let refused = replay(&wide, &twice).unwrap_err().to_string();
    assert!(refused.contains("which is of one machine"), "{refused}");
}

#[test]
fn a_part_without_events_names_the_recording() {
    use super::part::Part;
    let mut input = input(&[alloc(1, 0, "box", 500)]);
    input.part = Part {
        from_ns: Some(5),
        until_ns: None,
    };
    assert_eq!(
        replay(&axes("slub"), &input).unwrap_err().to_string(),
        "t: no event lies at or after 0.000000005 s; the recording goes from 0.000000001 to \
         0.000000001 s"
    );
}
