//! Small traces in simulated time: who waits for whom, and what time it is then.

use std::fmt::Write as _;

use quarry_designs::PagePolicy;
use quarry_machines::{Draw, Machine};
use quarry_trace::{Kind, RawEvent};

use super::super::input::Input;
use super::super::placement::Placement;
use super::super::tests::{alloc, axes, free, input, kmalloc};
use super::feed::{AHEAD_ROWS, Feed};
use super::report::{TimedCache, TimedReport};
use super::{Pace, Timing};
use crate::error::LabError;
use crate::plan::{Axes, Plan};

fn timing(pace: Pace) -> Timing {
    Timing {
        machine: Machine::bundled("haswell-ep-2x12").unwrap(),
        draw: Draw::VALUES,
        pace,
        seed: 1,
    }
}

fn run(design: &str, pace: Pace, input: &Input) -> Result<TimedReport, LabError> {
    run_on(&axes(design), &timing(pace), input)
}

fn run_on(axes: &Axes, timing: &Timing, input: &Input) -> Result<TimedReport, LabError> {
    let mut runs = Plan::new(axes)?.execute_timed(input, timing, 1, &|_| ())?;
    Ok(runs.remove(0))
}

/// The parts that depend on the trace, the machine and the seed.
fn bytes(reports: &[TimedReport]) -> String {
    let mut text = String::new();
    for report in reports {
        let report = TimedReport {
            events_per_second: 0.0,
            ..report.clone()
        };
        write!(text, "{report:?}").unwrap();
    }
    text
}

fn at<'a>(event: RawEvent<'a>, time_ns: u64) -> RawEvent<'a> {
    RawEvent { time_ns, ..event }
}

fn of_task<'a>(event: RawEvent<'a>, pid: i32) -> RawEvent<'a> {
    RawEvent { pid, ..event }
}

/// Each of `cpus` CPUs allocates `n` objects in bursts of 100, which the next one frees.
fn ring(cpus: u16, n: u64) -> Vec<RawEvent<'static>> {
    let mut events = Vec::new();
    for _ in 0..n / 100 {
        let objects: Vec<_> = (0..100 * u64::from(cpus))
            .map(|at| alloc(at, (at % u64::from(cpus)) as u16, "box", 200))
            .collect();
        let frees: Vec<_> = objects
            .iter()
            .map(|object| free(object, (object.cpu + 1) % cpus))
            .collect();
        events.extend(objects);
        events.extend(frees);
    }
    events
}

#[test]
fn caches_of_one_name_and_two_sizes_stay_apart() {
    let small = alloc(0, 0, "box", 200);
    let large = (1..=200).map(|object| alloc(object, 0, "box", 2000));
    let events: Vec<_> = std::iter::once(small).chain(large).collect();
    let events: Vec<_> = (0..)
        .zip(events)
        .map(|(now, event)| at(event, now))
        .collect();
    let input = input(&events);
    let boxes = input.caches.iter().filter(|cache| cache.name == "box");
    assert_eq!(boxes.count(), 2);
    let report = run("slub@6.1", Pace::Full, &input).unwrap();
    assert!(
        report.peak_slab_bytes >= 200 * 2000,
        "{}",
        report.peak_slab_bytes
    );
}

/// Stops replays from the first time on that they ask.
struct Stop;

impl quarry_work::Progress for Stop {
    fn advance(&self, _: u64) {}

    fn is_stopped(&self) -> bool {
        true
    }
}

#[test]
fn a_stopped_replay_is_an_error() {
    let input = input(&ring(4, 2000));
    let plan = Plan::new(&axes("slub")).unwrap();
    let counted = plan.execute(&input, 1, &Stop);
    assert!(matches!(counted, Err(LabError::Stopped)));
    for pace in [Pace::Full, Pace::Recorded] {
        let timed = plan.execute_timed(&input, &timing(pace), 1, &Stop);
        assert!(matches!(timed, Err(LabError::Stopped)), "{pace:?}");
    }
}

#[test]
fn every_operation_is_timed_and_the_same_way_each_time() {
    let input = input(&ring(4, 400));
    for pace in [Pace::Full, Pace::Recorded] {
        let axes = Axes {
            designs: ["slab@6.3", "slob@6.3", "slub@6.18", "slubq", "sheaf@7.0"]
                .map(|design| quarry_designs::DesignSpec::parse(design).unwrap())
                .into(),
            ..axes("slub")
        };
        let plan = Plan::new(&axes).unwrap();
        let all = |jobs| plan.execute_timed(&input, &timing(pace), jobs, &|_| ());
        let reports = all(1).unwrap();
        assert_eq!(bytes(&reports), bytes(&all(3).unwrap()));
        // A machine of the same file.
        let text =
            std::fs::read_to_string("../quarry-machines/machines/haswell-ep-2x12.toml").unwrap();
        let same = Timing {
            machine: Machine::parse("haswell-ep-2x12", &text).unwrap(),
            ..timing(pace)
        };
        let again = plan.execute_timed(&input, &same, 2, &|_| ()).unwrap();
        assert_eq!(bytes(&reports), bytes(&again));
        for run in &reports {
            let design = run.design;
            assert_eq!((run.alloc.count, run.free.count), (1600, 1600), "{design}");
            assert_eq!((run.replayed.allocs, run.replayed.frees), (1600, 1600));
            assert_eq!(run.cross_cpu_frees, 1600);
            let (alloc, paths) = (run.alloc, run.paths);
            assert!(
                alloc.p50_ns > 0.0 && alloc.p50_ns <= alloc.p99_ns,
                "{design}"
            );
            assert!(alloc.p99_ns <= alloc.p999_ns && alloc.p999_ns <= alloc.max_ns);
            assert!(alloc.mean_ns < alloc.max_ns, "{design}: {alloc:?}");
            let counts = paths.hit.count + paths.miss.count + paths.pages.count;
            assert_eq!(counts, 3200, "{design}");
            let shares = [paths.hit, paths.miss, paths.pages, paths.lock_wait].map(|of| of.share);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert_eq!(design == "slob", paths.hit.count == 0, "{paths:?}");
            assert!(run.causes.lines.between_cpus() > 0.01, "{design}");
        }
    }
}

#[test]
fn the_times_of_caches_add_up() {
    let mut events = ring(2, 400);
    let sized = |at: u32| kmalloc(1000 + u64::from(at), (at % 2) as u16, 100 * (1 + at % 2));
    events.extend((0..200).map(sized));
    for design in ["slub@6.18", "sheaf@7.0"] {
        let report = run(design, Pace::Full, &input(&events)).unwrap();
        let used = report.caches.iter().filter(|cache| cache.operations > 0);
        let mut used: Vec<_> = used.collect();
        used.sort_by(|a, b| a.name.cmp(&b.name));
        let operations = |name: &str| {
            let found = used.iter().find(|cache| cache.name == name);
            found
                .unwrap_or_else(|| panic!("{name}: {used:?}"))
                .operations
        };
        assert_eq!(operations("box"), 1600, "{design}");
        assert_eq!(operations("kmalloc-128"), 100, "{design}");
        assert_eq!(operations("kmalloc-256"), 100, "{design}");
        let all = report.alloc.count + report.free.count;
        assert_eq!(used.iter().map(|cache| cache.operations).sum::<u64>(), all);
        let ns = |of: &dyn Fn(&TimedCache) -> f64| -> f64 {
            let parts = used.iter().map(|cache| of(cache) * cache.operations as f64);
            parts.sum::<f64>() / all as f64
        };
        let mean = ns(&|cache| cache.operation_ns);
        assert!((mean / report.operation_ns - 1.0).abs() < 1e-9, "{mean}");
        let paths = report.paths;
        let missed = (paths.miss.count + paths.pages.count) as f64 / all as f64;
        let misses = ns(&|cache| cache.misses);
        assert!((misses - missed).abs() < 1e-9, "{misses} {missed}");
        let slabs: u64 = report.caches.iter().map(|cache| cache.slab_bytes).sum();
        assert_eq!(slabs, report.final_slab_bytes, "{design}");
    }
}

#[test]
fn other_seeds_are_other_runs_where_chance_has_a_part() {
    let mut load = input(&ring(4, 200));
    load.copies = 3;
    let axes = Axes {
        cpus: vec![12],
        ..axes("slub@6.18")
    };
    let with = |seed| {
        let timing = Timing {
            seed,
            ..timing(Pace::Full)
        };
        bytes(&[run_on(&axes, &timing, &load).unwrap()])
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}

/// CPU 1 has nothing to do but frees: at full pace it is there first, each time. A free of what is not allocated
/// would end the run.
#[test]
fn a_free_waits_for_its_allocation_on_another_cpu() {
    let mut events = Vec::new();
    for n in 0..500 {
        let object = alloc(n, 0, "box", 100);
        let page = RawEvent {
            cpu: 0,
            ..RawEvent::new(Kind::MmPageAlloc, 1000 + n)
        };
        events.extend([page, object, free(&object, 1), free(&page, 1)]);
    }
    let mut input = input(&events);
    input.pages = super::super::pages::PageMode::All;
    for design in ["slub@6.18", "sheaf@7.0", "slob@6.3"] {
        let run = run(design, Pace::Full, &input).unwrap();
        assert_eq!((run.alloc.count, run.free.count), (500, 500), "{design}");
        assert_eq!((run.page_alloc.count, run.page_free.count), (500, 500));
        assert_eq!(run.cross_cpu_frees, 500, "{design}");
    }
}

/// A task allocates a lot on CPU 0 and moves to CPU 1, where nothing else happens: CPU 1 begins when CPU 0 has ended.
#[test]
fn a_task_keeps_its_order_on_another_cpu() {
    let burst = |cpu: u16, task: i32| {
        let object = move |n| of_task(alloc(u64::from(cpu) * 1000 + n, cpu, "box", 100), task);
        (0..500).map(object)
    };
    let simulated_ns = |second: i32| {
        let events: Vec<_> = burst(0, 7).chain(burst(1, second)).collect();
        let run = run("slub@6.18", Pace::Full, &input(&events)).unwrap();
        assert_eq!(run.alloc.count, 1000);
        run.simulated_ns
    };
    let (apart, moved) = (simulated_ns(8), simulated_ns(7));
    assert!(moved > apart * 1.6, "{moved} ns, {apart} ns side by side");
    // The idle task is one of each CPU.
    let events: Vec<_> = burst(0, 0).chain(burst(1, 0)).collect();
    let idle = run("slub@6.18", Pace::Full, &input(&events)).unwrap();
    assert!(idle.simulated_ns < apart * 1.1);
}

#[test]
fn the_recorded_pace_keeps_times() {
    let (a, b) = (kmalloc(1, 0, 100), kmalloc(2, 1, 100));
    let events = [
        at(a, 1_000),
        at(b, 5_000_000),
        at(free(&a, 1), 9_000_000),
        at(free(&b, 0), 9_001_000),
    ];
    let input = input(&events);
    let recorded = run("slub@6.18", Pace::Recorded, &input).unwrap();
    // The last free begins 9 ms after the first event, and takes less than a microsecond.
    let ns = recorded.simulated_ns;
    assert!((9_000_000.0..9_002_000.0).contains(&ns), "{ns}");
    assert_eq!((recorded.late_events, recorded.late_ns_max), (0, 0.0));
    let full = run("slub@6.18", Pace::Full, &input).unwrap();
    assert!(full.simulated_ns < 20_000.0, "{}", full.simulated_ns);
    // All at once: CPUs are late, and no event is lost.
    let burst: Vec<_> = (0..100)
        .map(|n| at(kmalloc(n, 0, 100), 1_000 + n / 50))
        .collect();
    let late = run(
        "slub@6.18",
        Pace::Recorded,
        &super::super::tests::input(&burst),
    )
    .unwrap();
    assert_eq!(late.alloc.count, 100);
    assert!(late.late_events > 90, "{}", late.late_events);
}

/// In each pair of CPUs one allocates and the other frees, so that objects go through what copies share.
#[test]
fn copies_contend() {
    let mut events = Vec::new();
    for _ in 0..12 {
        let objects: Vec<_> = (0..400)
            .map(|at| alloc(at, (at % 2 * 2) as u16, "box", 200))
            .collect();
        let frees: Vec<_> = objects.iter().map(|of| free(of, of.cpu + 1)).collect();
        events.extend(objects);
        events.extend(frees);
    }
    let mut load = input(&events);
    let wait_ns = |load: &Input, cpus| {
        let axes = Axes {
            cpus: vec![cpus],
            ..axes("sheaf@7.0")
        };
        let run = run_on(&axes, &timing(Pace::Full), load).unwrap();
        assert_eq!(run.cpus_with_events, 4 * load.copies);
        assert_eq!(run.alloc.count, 4800 * u64::from(load.copies));
        run.causes.lock_wait_ns()
    };
    let alone = wait_ns(&load, 4);
    load.copies = 6;
    let six = wait_ns(&load, 24);
    assert!(six > 2.0 * alone, "{six} ns beside {alone} ns");
}

#[test]
fn objects_that_live_long_and_cpus_that_sleep_long_need_little_ahead() {
    // CPU 3 has an event at the beginning and one at the end, far more than what is read ahead lies between.
    let kept = alloc(1_000_000, 3, "kept", 64);
    let mut events = vec![kept];
    for n in 0..2 * AHEAD_ROWS {
        let object = alloc(n % 100, 0, "box", 64);
        events.extend([object, free(&object, 0)]);
    }
    events.push(free(&kept, 3));
    let input = input(&events);
    for pace in [Pace::Full, Pace::Recorded] {
        let run = run("slub@6.18", pace, &input).unwrap();
        assert_eq!(run.free.count, 2 * AHEAD_ROWS + 1);
        assert_eq!(run.cpus_with_events, 2);
    }
    let mut feed = Feed::new(&input, 4);
    while feed.may_read(feed.row()) {
        feed.read().unwrap();
        // All CPUs are past everything.
        let row = feed.row();
        for lane in [0, 3] {
            feed.forget(lane, row);
        }
    }
    // One number more than live at once for each free within what may be ahead, and not for each object.
    let (numbers, _) = feed.numbers();
    assert!(u64::from(numbers) <= AHEAD_ROWS / 2 + 110, "{numbers}");
}

#[test]
fn what_cannot_be_is_refused() {
    let events: Vec<_> = (0..3).map(|n| kmalloc(n, 0, 100)).collect();
    let good = input(&events);
    let refused = |axes: &Axes, input: &Input| {
        let ran = run_on(axes, &timing(Pace::Full), input);
        let error = ran.expect_err("a refusal");
        assert!(matches!(error, LabError::Usage(_)), "{error}");
        error.to_string()
    };
    let same_time: Vec<_> = events.iter().map(|event| at(*event, 3)).collect();
    let mut timeless = input(&same_time);
    timeless.name = "t.parquet".to_string();
    let text = refused(&axes("slub"), &timeless);
    assert!(
        text.starts_with("t.parquet has no times: all of its 3 events are at 3 ns"),
        "{text}"
    );
    let wide = Axes {
        cpus: vec![97],
        ..axes("slub")
    };
    let text = refused(&wide, &good);
    assert!(
        text.starts_with("97 CPUs on haswell-ep-2x12: take 1 to 96; "),
        "{text}"
    );
    let debug = Axes {
        debug: Some("FZ".to_string()),
        ..axes("slub")
    };
    assert!(refused(&debug, &good).contains("debugging has no costs"));
    // What the run's memory does not hold ends it, on all CPUs.
    let large: Vec<_> = (0..40)
        .map(|n| kmalloc(n, (n % 4) as u16, 4 << 20))
        .collect();
    let error = run("slub@6.18", Pace::Full, &input(&large)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("memory is exhausted at event"), "{text}");
}

/// A replay that counts and one in simulated time count paths alike, and every hit is a fast path. Sheaves are objects
/// themselves: those of caches that a timed replay makes before its first event are not counted.
#[test]
fn a_slow_path_is_one_thing_in_both_replays() {
    let input = input(&ring(1, 800));
    for design in [
        "slab@6.3",
        "slob@6.3",
        "slub@6.18",
        "slubq",
        "sheaf@6.18",
        "sheaf@7.0",
    ] {
        let timed = run(design, Pace::Recorded, &input).unwrap();
        let counted = super::super::tests::replay(&axes(design), &input).unwrap();
        assert_eq!(
            (timed.alloc_fastpath, timed.free_fastpath),
            (counted.alloc_fastpath, counted.free_fastpath),
            "{design}"
        );
        if !design.starts_with("sheaf") {
            let slow = (timed.alloc_slowpath, timed.free_slowpath);
            assert_eq!(
                slow,
                (counted.alloc_slowpath, counted.free_slowpath),
                "{design}"
            );
        }
        let fast = timed.alloc_fastpath + timed.free_fastpath;
        assert!(timed.paths.hit.count <= fast, "{design}");
        if design == "sheaf@7.0" {
            // Sheaves are swapped and refilled: misses that the kernel counts as fast.
            assert!(timed.paths.hit.count < fast && timed.paths.miss.count > 0);
        }
    }
}

/// With one CPU both replays make the same requests, so pages lie in the same places and the zone lock is taken as often.
#[test]
fn places_and_zone_locks_are_those_of_a_replay_without_clocks() {
    let block = |n: u64, migratetype| RawEvent {
        order: (n % 3) as u8,
        migratetype,
        ..RawEvent::new(Kind::MmPageAlloc, 8 * n)
    };
    let blocks: Vec<_> = (0..2000).map(|n| block(n, (n / 5 % 3) as i8)).collect();
    let frees = blocks.iter().step_by(3).map(|of| RawEvent {
        order: of.order,
        ..RawEvent::new(Kind::MmPageFree, of.address)
    });
    let events: Vec<_> = blocks.iter().copied().chain(frees).collect();
    let events: Vec<_> = (0..).zip(events).map(|(now, of)| at(of, now)).collect();
    let input = Input {
        pages: super::super::pages::PageMode::All,
        ..input(&events)
    };
    for policy in ["release", "steer"] {
        let axes = Axes {
            policies: vec![PagePolicy::parse(policy).unwrap()],
            cpus: vec![1],
            ..axes("slub@6.18")
        };
        let counted = super::super::tests::replay(&axes, &input).unwrap();
        let timed = run_on(&axes, &timing(Pace::Full), &input).unwrap();
        let locks = |of: &[(&'static str, u64)]| {
            let zone = of.iter().find(|(class, _)| *class == "zone");
            zone.unwrap().1
        };
        assert_eq!(locks(&timed.locks), locks(&counted.locks), "{policy}");
        let expected = counted.pages.unwrap().placement.unwrap();
        let found = timed.pages.unwrap().placement;
        assert!(expected.tainted_blocks > 0 && expected.lists_most > 0);
        assert_eq!(found.blocks, expected.blocks, "{policy}");
        let figures = |of: &Placement| (of.fallbacks, of.claims, of.lists_most, of.lists_99);
        assert_eq!(figures(&found), figures(&expected), "{policy}");
        assert_eq!(found.samples.len(), 2, "{policy}");
    }
}

/// CPUs of six copies that need the zone at once wait for it. Without a policy the report has no places.
#[test]
fn waits_for_the_zone_are_counted() {
    let blocks: Vec<_> = (0..4000)
        .map(|n| RawEvent {
            cpu: (n % 4) as u16,
            order: 4,
            ..RawEvent::new(Kind::MmPageAlloc, n % 4 * 1000 + 16 * n)
        })
        .collect();
    let events: Vec<_> = blocks
        .iter()
        .flat_map(|of| {
            let free = RawEvent {
                kind: Kind::MmPageFree,
                ..*of
            };
            [*of, free]
        })
        .collect();
    let events: Vec<_> = (0..).zip(events).map(|(now, of)| at(of, now)).collect();
    let mut load = Input {
        pages: super::super::pages::PageMode::All,
        ..input(&events)
    };
    let waits = |load: &Input, cpus| {
        let axes = Axes {
            cpus: vec![cpus],
            ..axes("slub@6.18")
        };
        let run = run_on(&axes, &timing(Pace::Full), load).unwrap();
        assert!(run.pages.is_none());
        let at = |class: &&str| *class == "zone";
        let (_, waits) = run.lock_waits.iter().find(|(class, _)| at(class)).unwrap();
        let (_, ns) = run
            .lock_waits_ns
            .iter()
            .find(|(class, _)| at(class))
            .unwrap();
        let (_, taken) = run.locks.iter().find(|(class, _)| at(class)).unwrap();
        assert!(*taken >= 8000 * u64::from(load.copies), "{taken}");
        let zone = run.causes.locks.iter().find(|of| at(&of.class)).unwrap();
        let operations = (run.page_alloc.count + run.page_free.count) as f64;
        assert!((zone.wait_ns * operations - ns).abs() < 1.0);
        (*waits, *ns)
    };
    let alone = waits(&load, 4);
    load.copies = 6;
    let six = waits(&load, 24);
    assert!(
        six.0 > alone.0 && six.1 > 4.0 * alone.1,
        "{six:?} {alone:?}"
    );
}
