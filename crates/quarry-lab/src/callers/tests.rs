//! Callers of traces that can be worked out by hand, against a second pass over the same events.

use std::path::Path;

use quarry_trace::{KernelReport, Kind, RawEvent, TraceBuilder, TraceFile};

use super::*;

const BASE: u64 = 0xffff_8880_0000_0000;

/// A kmalloc of object `n` by a call site.
fn alloc(n: u64, site: &'static str, bytes: u32, cpu: u16) -> RawEvent<'static> {
    RawEvent {
        cpu,
        pid: 7,
        comm: b"load",
        call_site: Some(site.as_bytes()),
        bytes_req: bytes,
        bytes_alloc: bytes.next_power_of_two(),
        ..RawEvent::new(Kind::Kmalloc, BASE + (n << 13))
    }
}

fn free(of: &RawEvent<'static>, cpu: u16) -> RawEvent<'static> {
    RawEvent {
        cpu,
        pid: 7,
        comm: b"load",
        ..RawEvent::new(of.kind.freed_by(), of.address)
    }
}

pub(super) fn trace(events: &[RawEvent<'_>], change: impl FnOnce(&mut TraceMeta)) -> TraceFile {
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    for (time_ns, event) in (1..).zip(events) {
        trace.push(&RawEvent { time_ns, ..*event }).unwrap();
    }
    trace.meta_mut().kernel = Some("6.18.0".to_string());
    trace.meta_mut().cpus = 4;
    trace.meta_mut().recorded = Kind::ALL.to_vec();
    change(trace.meta_mut());
    trace.finish().unwrap();
    TraceFile::from_bytes(bytes).unwrap()
}

fn callers(events: &[RawEvent<'_>]) -> Callers {
    Callers::of(&trace(events, |_| ()), false).unwrap()
}

/// The most is alive after the fourth event: 1024 bytes of `big`, 128 and 64 of `small`.
fn some() -> Vec<RawEvent<'static>> {
    let small = alloc(1, "small", 100, 0);
    let early = alloc(2, "early", 512, 0);
    let big = alloc(3, "big", 1000, 1);
    vec![
        early,
        free(&early, 0),
        small,
        big,
        alloc(4, "small", 64, 0),
        free(&big, 2),
        free(&small, 0),
    ]
}

#[test]
fn a_few_objects_by_hand() {
    let callers = callers(&some());
    let totals = callers.totals();
    assert_eq!(totals.allocs, 4);
    assert_eq!((totals.bytes_req, totals.bytes_alloc), (1676, 1728));
    assert_eq!(
        (totals.peak_live_bytes, totals.peak_time_ns),
        (Some(1216), Some(5))
    );
    assert_eq!((totals.end_live_bytes, totals.frees), (Some(64), 3));
    let sites = callers.by(By::Site);
    let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["big", "small", "early"]);
    let [big, small, early] = sites.try_into().unwrap();
    assert_eq!(
        (big.peak_live_bytes, big.end_live_bytes),
        (Some(1024), Some(0))
    );
    assert_eq!((big.frees, big.cross_cpu_frees), (1, 1));
    assert_eq!(big.waste_bytes, 24);
    assert_eq!(big.caches[0].name, "kmalloc-1k");
    assert_eq!(
        (small.peak_live_bytes, small.peak_live_objects),
        (Some(192), Some(2))
    );
    assert_eq!((small.end_live_bytes, small.cross_cpu_frees), (Some(64), 0));
    let caches: Vec<_> = small
        .caches
        .iter()
        .map(|cache| cache.name.as_str())
        .collect();
    assert_eq!(caches, ["kmalloc-128", "kmalloc-64"]);
    assert_eq!((early.peak_live_bytes, early.bytes_alloc), (Some(0), 512));
    let [process] = callers.by(By::Process).try_into().unwrap();
    assert_eq!(
        (process.name.as_str(), process.peak_live_bytes),
        ("load", Some(1216))
    );
    assert_eq!(process.sites[0].name, "big");
}

#[test]
fn without_frees_nothing_is_known_to_live() {
    let allocs = [alloc(1, "small", 100, 0), alloc(2, "big", 1000, 1)];
    let file = trace(&allocs, |meta| meta.recorded.clear());
    let callers = Callers::of(&file, false).unwrap();
    let totals = callers.totals();
    assert_eq!((totals.allocs, totals.bytes_req), (2, 1100));
    let live = [
        totals.peak_live_bytes,
        totals.peak_time_ns,
        totals.end_live_bytes,
    ];
    assert_eq!(live, [None; 3]);
    // Those with most bytes in all come first.
    let sites = callers.by(By::Site);
    let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["big", "small"]);
    let big = &sites[0];
    assert_eq!((big.peak_live_bytes, big.end_live_objects), (None, None));
    assert_eq!(big.caches[0].peak_live_bytes, None);
    assert_eq!(
        [Amount::Peak, Amount::End].map(|amount| callers.folded(amount)),
        [None, None]
    );
    assert_eq!(callers.folded(Amount::All).unwrap().len(), 2);
    // The same events, of a recorder that had frees switched on.
    let known = Callers::of(&trace(&allocs, |_| ()), false).unwrap();
    assert_eq!(known.totals().end_live_bytes, Some(1152));
}

#[test]
fn folded_lines_add_up() {
    let callers = callers(&some());
    let peak = callers.folded(Amount::Peak).unwrap();
    assert_eq!(
        peak,
        [
            "load;big;kmalloc-1k 1024",
            "load;small;kmalloc-128 128",
            "load;small;kmalloc-64 64"
        ]
    );
    assert_eq!(
        callers.folded(Amount::End).unwrap(),
        ["load;small;kmalloc-64 64"]
    );
    assert_eq!(callers.folded(Amount::All).unwrap().len(), 4);
}

/// Call sites of one stack are one line; an allocation whose stack was lost has its call site.
#[test]
fn folded_lines_have_the_stacks_of_a_recording() {
    let with = |n: u64, site: &'static str, stack: &'static str| RawEvent {
        stack: (!stack.is_empty()).then_some(stack.as_bytes()),
        ..alloc(n, site, 100, 0)
    };
    let events = [
        with(1, "open+0x1", "entry;do_syscall_64;open"),
        with(2, "open+0x2", "entry;do_syscall_64;open"),
        with(3, "open+0x1", "entry;io_uring;open"),
        with(4, "a;b+0x1", ""),
    ];
    let callers = callers(&events);
    let expected = [
        "load;a:b+0x1;kmalloc-128 128",
        "load;entry;do_syscall_64;open;kmalloc-128 256",
        "load;entry;io_uring;open;kmalloc-128 128",
    ];
    assert_eq!(callers.folded(Amount::Peak).unwrap(), expected);
    // Tables are of call sites, as without stacks.
    let sites = callers.by(By::Site);
    let allocs = sites.iter().map(|site| (site.name.as_str(), site.allocs));
    let expected = [("open+0x1", 2), ("a;b+0x1", 1), ("open+0x2", 1)];
    assert_eq!(allocs.collect::<Vec<_>>(), expected);
}

/// Amounts at the peak are those of a pass that stops there, for random lives.
#[test]
fn amounts_at_the_peak_are_those_of_a_pass_that_stops_there() {
    const SITES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let (mut events, mut alive) = (Vec::new(), Vec::new());
    for n in 0..2000 {
        if alive.len() > 40 || !alive.is_empty() && random(5) < 2 {
            let at = random(alive.len() as u64) as usize;
            events.push(free(&alive.swap_remove(at), random(2) as u16));
        } else {
            let site = SITES[random(5) as usize];
            let new = alloc(n, site, 1 + random(8000) as u32, random(2) as u16);
            alive.push(new);
            events.push(new);
        }
    }
    let whole = callers(&events);
    let (totals, peak) = (
        whole.totals(),
        whole.totals().peak_time_ns.unwrap() as usize,
    );
    let stopped = callers(&events[..peak]);
    assert_eq!(stopped.totals().end_live_bytes, totals.peak_live_bytes);
    let sites = whole.by(By::Site);
    assert_eq!(sites.len(), 5);
    for site in &sites {
        let then = stopped.by(By::Site);
        let then = then.iter().find(|other| other.name == site.name);
        let then = then.map_or((Some(0), Some(0)), |then| {
            (then.end_live_bytes, then.end_live_objects)
        });
        let now = (site.peak_live_bytes, site.peak_live_objects);
        assert_eq!(now, then, "{}", site.name);
    }
    let sum = sites.iter().map(|site| site.peak_live_bytes);
    assert_eq!(sum.sum::<Option<u64>>(), totals.peak_live_bytes);
}

#[test]
fn the_recorder_and_what_is_outside_of_the_load_are_left_out() {
    let (own, load, late) = (
        RawEvent {
            pid: 99,
            comm: b"quarry",
            ..alloc(1, "own", 4096, 0)
        },
        alloc(2, "load", 64, 0),
        alloc(3, "late", 8192, 0),
    );
    let before = alloc(4, "before", 8192, 0);
    let events = [before, own, load, free(&own, 0), free(&before, 0), late];
    let change = |meta: &mut TraceMeta| {
        meta.recorder_pids = vec![99];
        meta.reports = [2, 6]
            .map(|time_ns| KernelReport {
                name: "snapshot".to_string(),
                time_ns,
                text: String::new(),
            })
            .to_vec();
    };
    let trace = trace(&events, change);
    let callers = Callers::of(&trace, false).unwrap();
    let totals = callers.totals();
    assert_eq!((totals.allocs, totals.recorder_allocs), (1, 1));
    assert_eq!((totals.frees, totals.unknown_frees), (0, 1));
    let names: Vec<String> = callers.by(By::Site).into_iter().map(|of| of.name).collect();
    assert_eq!(names, ["load"]);
    let with = Callers::of(&trace, true).unwrap().totals();
    assert_eq!((with.allocs, with.recorder_allocs, with.frees), (2, 0, 1));
}

#[test]
fn kmallocs_have_the_recorded_kernels_classes() {
    let named = |kernel: &str, bytes: u32| {
        let events = [alloc(1, "a", bytes, 0)];
        let trace = trace(&events, |meta| meta.kernel = Some(kernel.to_string()));
        let callers = Callers::of(&trace, false).unwrap();
        callers.by(By::Cache).remove(0).name
    };
    for (kernel, bytes, name) in [
        ("6.18.44", 3000, "kmalloc-4k"),
        ("4.13.1", 3000, "kmalloc-4096"),
        ("6.18.44", 90, "kmalloc-96"),
        ("6.18.44", 9000, names::LARGE),
    ] {
        assert_eq!(named(kernel, bytes), name, "{kernel}, {bytes}");
    }
}
