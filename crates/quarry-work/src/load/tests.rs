use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slob::Slob;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;
use quarry_machines::{Key, Machine, Unit};
use quarry_sim::sched::WakeOrder;

use super::*;
use crate::Setup;
use crate::net::SendSizes;
use crate::world::Transport;

const LOADS: [Load; 8] = [
    Load::Hackbench(Hackbench {
        groups: 2,
        descriptors: 3,
        loops: 40,
        bytes: 100,
        transport: Transport::Unix,
    }),
    Load::Hackbench(Hackbench {
        groups: 2,
        descriptors: 3,
        loops: 40,
        bytes: 100,
        transport: Transport::Datagram,
    }),
    Load::Hackbench(Hackbench {
        groups: 1,
        descriptors: 3,
        loops: 40,
        bytes: 1500,
        transport: Transport::Pipe,
    }),
    Load::Tbench(Tbench { clients: 3 }),
    Load::TcpRr(TcpRr {
        pairs: 5,
        request: 1,
        response: 1,
        remote: false,
    }),
    Load::TcpRr(TcpRr {
        pairs: 5,
        request: 100,
        response: 50,
        remote: true,
    }),
    Load::WillItScale(WillItScale {
        test: Test::PageFault1,
        tasks: 3,
        pages: 50,
    }),
    Load::WillItScale(WillItScale {
        test: Test::Brk1,
        tasks: 3,
        pages: 1,
    }),
];

fn spec(load: Load, era: Era, cpus: u32) -> LoadSpec {
    let setup = Setup {
        memory_bytes: 1 << 30,
        ..Setup::new(era, Machine::bundled("milan-2x64").unwrap())
    };
    LoadSpec {
        cpus,
        time_ns: 2_000_000,
        ..LoadSpec::new(load, setup)
    }
}

/// Every load on every generation of a design, in some orders that a seed chooses.
fn explored<D: Design>() {
    for (n, &era) in D::ERAS.iter().enumerate() {
        for (m, load) in LOADS.into_iter().enumerate() {
            let cpus = [1, 2, 7, 64][(n + m) % 4];
            for seed in 1..3 {
                let mut spec = spec(load, era, cpus);
                spec.setup.seed = seed;
                let per_mille = [1000, 100][seed as usize % 2];
                let report = explore::<D>(&spec, per_mille, 200).unwrap();
                assert!(report.operations >= 200, "{era} {load:?}");
            }
        }
    }
}

#[test]
fn no_order_loses_an_object_of_slab() {
    explored::<SlabCache>();
}

#[test]
fn no_order_loses_an_object_of_slub() {
    explored::<Slub>();
}

#[test]
fn no_order_loses_an_object_of_slubq() {
    explored::<Slubq>();
}

#[test]
fn no_order_loses_an_object_of_slob() {
    explored::<Slob>();
}

#[test]
fn no_order_loses_an_object_of_sheaves() {
    explored::<SheafCache>();
}

#[test]
fn processes_objects_come_from_their_caches() {
    for (test, name) in Test::ALL {
        let load = Load::WillItScale(WillItScale {
            test,
            tasks: 4,
            pages: 200,
        });
        for era in [Era::V6_17, Era::V7_0] {
            let spec = spec(load, era, 4);
            let report = match era {
                Era::V7_0 => run::<SheafCache>(&spec, &|_| ()),
                _ => run::<Slub>(&spec, &|_| ()),
            };
            let report = report.unwrap();
            let per_operation = |cache: &str| {
                let allocs = report.cache(cache).map_or(0, |cache| cache.allocs);
                allocs as f64 / report.operations as f64
            };
            let (cache, count) = match test {
                Test::PageFault1 | Test::PageFault2 => ("anon_vma", 1.0 / 200.0),
                Test::Mmap1 | Test::Brk1 => ("maple_node", 2.0),
                Test::Open1 => ("names_cache", 1.0),
            };
            let own = per_operation(cache);
            // Rounds of pages are long beside the time that is counted, which ends within them.
            let tolerance = if count < 1.0 { 0.3 } else { 0.02 };
            assert!((own / count - 1.0).abs() < tolerance, "{name} {era}: {own}");
            assert!(report.idle_percent < 1.0, "{name} {era}");
        }
    }
}

/// A run of pairs that talk to another machine.
fn remote(pairs: u32, cpus: u32) -> LoadReport {
    let load = Load::TcpRr(TcpRr {
        pairs,
        remote: true,
        ..TcpRr::default()
    });
    run::<SlabCache>(&spec(load, Era::V2_6_35, cpus), &|_| ()).unwrap()
}

#[test]
fn answers_wait_for_the_interrupts_of_their_queue() {
    // An answer takes 40 us to come, and a queue of both machines interrupts at most once in 50 us.
    let one = remote(1, 8);
    let each_ns = 1e9 / one.per_second;
    assert!((50_000.0..65_000.0).contains(&each_ns), "{each_ns}");
    // Eight pairs on two queues: each waits for one interrupt more on each side, at most.
    let some = remote(8, 2);
    let each_ns = 8e9 / some.per_second;
    assert!((50_000.0..165_000.0).contains(&each_ns), "{each_ns}");
}

#[test]
fn the_card_is_the_machines() {
    let load = Load::TcpRr(TcpRr {
        pairs: 4,
        remote: true,
        ..TcpRr::default()
    });
    let rate = |key: Key, unit: Unit, value: f64| {
        let mut spec = spec(load, Era::V2_6_35, 8);
        spec.setup.machine = spec.setup.machine.given(key, unit, value);
        run::<SlabCache>(&spec, &|_| ()).unwrap().per_second
    };
    let usual = remote(4, 8).per_second;
    assert!(rate(Key::RoundTrip, Unit::Ns, 200_000.0) < usual / 2.0);
    assert!(rate(Key::InterruptEvery, Unit::Ns, 500_000.0) < usual / 2.0);
    assert!(rate(Key::Packet, Unit::Ns, 30_000.0) < usual * 0.8);
    // Four pairs on one queue come in one interrupt, or wait for another one.
    assert_ne!(rate(Key::Queues, Unit::Queues, 1.0), usual);
}

#[test]
fn a_queue_posts_as_many_buffers_as_it_uses() {
    let report = remote(8, 8);
    let heads = report
        .caches
        .iter()
        .find(|cache| cache.name == "skbuff_head_cache");
    let data = report
        .caches
        .iter()
        .find(|cache| cache.name == "kmalloc-2048" || cache.name == "size-2048");
    let [heads, data] = [heads, data].map(|cache| cache.unwrap().allocs);
    assert!(
        heads.abs_diff(data) < 8,
        "a buffer has a head and an area: {heads} {data}"
    );
    // What the queues begin with was posted before counting. Few of what is counted crosses its ends.
    let few = report.operations * 9 / 10..2 * report.operations;
    assert!(few.contains(&heads), "{heads} {}", report.operations);
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for load in LOADS {
        let run = |seed| {
            let mut spec = spec(load, Era::V6_18, 6);
            spec.setup.seed = seed;
            run::<Slub>(&spec, &|_| ()).unwrap()
        };
        let first = run(1);
        assert_eq!(run(1), first, "{load:?}");
        assert_ne!(run(2).spent, first.spent, "{load:?}");
        assert!(first.operations > 50, "{load:?} {}", first.operations);
    }
}

#[test]
fn cpus_are_busy_or_idle() {
    for load in LOADS {
        // Without a warm-up, what is counted is all that was spent.
        let spec = LoadSpec {
            count_start: true,
            ..spec(load, Era::V2_6_35, 4)
        };
        let report = run::<SlabCache>(&spec, &|_| ()).unwrap();
        let busy_s = report.cpu_us * 1e-6 * report.operations as f64;
        let all_s = report.seconds * f64::from(spec.cpus);
        // CPUs' clocks are a little apart where counting begins and ends.
        assert!(busy_s < all_s * 1.02, "{load:?} {busy_s} of {all_s}");
        assert!(busy_s > all_s * 0.05, "{load:?} {busy_s} of {all_s}");
        let percent: f64 = report.profile.rows.iter().map(|row| row.percent).sum();
        assert!((99.9..100.1).contains(&percent), "{load:?} {percent}");
    }
}

#[test]
fn queued_wake_ups_leave_slabs_of_two_objects_full() {
    let tbench = Load::Tbench(Tbench { clients: 16 });
    let hits = |order| {
        let mut spec = LoadSpec {
            time_ns: 10_000_000,
            ..LoadSpec::new(
                tbench,
                Setup::new(Era::V2_6_23, Machine::bundled("clovertown-2x4").unwrap()),
            )
        };
        spec.sched.order = order;
        let report = run::<Slub>(&spec, &|_| ()).unwrap();
        report.cache("kmalloc-4096").unwrap().alloc_hits
    };
    let (queued, immediate) = (hits(WakeOrder::Queued), hits(WakeOrder::Immediate));
    assert!(queued < 25.0 && immediate > 40.0, "{queued} {immediate}");
}

#[test]
fn a_buffer_beyond_a_page_goes_to_the_zones_in_slub_alone() {
    let tbench = Load::Tbench(Tbench { clients: 8 });
    fn zone_locks<D: Design>(load: Load, sizes: SendSizes) -> f64 {
        let spec = LoadSpec {
            sizes,
            ..spec(load, Era::V2_6_24, 8)
        };
        let report = run::<D>(&spec, &|_| ()).unwrap();
        let zone = report.causes.locks.iter().find(|lock| lock.class == "zone");
        zone.map_or(0.0, |lock| lock.taken)
    }
    let slub = |sizes| zone_locks::<Slub>(tbench, sizes);
    let slab = |sizes| zone_locks::<SlabCache>(tbench, sizes);
    // Two heads and a quarter an exchange, each taken and given back.
    assert!(slub(SendSizes::Bug) > 4.0, "{}", slub(SendSizes::Bug));
    for locks in [
        slub(SendSizes::Fixed),
        slub(SendSizes::SelectSize),
        slab(SendSizes::Bug),
        slab(SendSizes::Fixed),
    ] {
        assert!(locks < 0.5, "{locks}");
    }
}

#[test]
fn a_tunable_changes_while_the_load_runs() {
    let tbench = Load::Tbench(Tbench { clients: 16 });
    let machine = Machine::bundled("clovertown-2x4").unwrap();
    let hits = |at_ns: Option<u64>| {
        let changes = at_ns.map(|at_ns| Change {
            at_ns,
            cache: "kmalloc-4096".to_string(),
            name: "cpu_slabs_max",
            value: 4,
        });
        let spec = LoadSpec {
            count_start: true,
            time_ns: 10_000_000,
            changes: changes.into_iter().collect(),
            ..LoadSpec::new(tbench, Setup::new(Era::V2_6_23, machine.clone()))
        };
        let report = run::<Slub>(&spec, &|_| ()).unwrap();
        let late = at_ns.is_some_and(|ns| ns > spec.time_ns);
        assert_eq!(report.late_changes, u32::from(late));
        report.cache("kmalloc-4096").unwrap().alloc_hits
    };
    // Each CPU keeps more slabs from the start, from the middle, or never.
    let (start, middle, never) = (hits(Some(0)), hits(Some(5_000_000)), hits(None));
    assert!(start > never + 20.0, "{start} {never}");
    let between = (start + never) / 2.0;
    assert!((middle - between).abs() < 8.0, "{middle} {between}");
    let late = hits(Some(1_000_000_000_000));
    assert!((late - never).abs() < f64::EPSILON, "{late} {never}");
}

#[test]
fn a_change_after_the_end_does_nothing_and_one_of_no_cache_is_refused() {
    let with = |at_ns, cache: &str| {
        let change = Change {
            at_ns,
            cache: cache.to_string(),
            name: "cpu_partial",
            value: 0,
        };
        let spec = LoadSpec {
            changes: vec![change],
            ..spec(LOADS[0], Era::V5_9, 4)
        };
        run::<Slub>(&spec, &|_| ())
    };
    let plain = run::<Slub>(&spec(LOADS[0], Era::V5_9, 4), &|_| ()).unwrap();
    let late = with(1_000_000_000, "kmalloc-512").unwrap();
    assert_eq!(late.late_changes, 1);
    let same = LoadReport {
        late_changes: 0,
        ..late
    };
    assert_eq!(same, plain);
    let refused = with(100_000, "kmalloc-513").unwrap_err().to_string();
    assert!(
        refused.contains("no cache kmalloc-513; there are"),
        "{refused}"
    );
    assert!(refused.contains("kmalloc-512,"), "{refused}");
}

/// Stops runs from the first time on that they ask.
struct Stop;

impl crate::Progress for Stop {
    fn advance(&self, _: u64) {}

    fn is_stopped(&self) -> bool {
        true
    }
}

#[test]
fn a_stopped_load_is_an_error() {
    for load in LOADS {
        let error = run::<Slub>(&spec(load, Era::V6_18, 4), &Stop).unwrap_err();
        let problem = error.problem();
        assert!(matches!(problem, WorkError::Stopped), "{load:?}: {error}");
        assert!(error.to_string().ends_with(": stopped before its end"));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |load, change: fn(&mut LoadSpec)| {
        let mut spec = spec(load, Era::V6_18, 2);
        change(&mut spec);
        run::<Slub>(&spec, &|_| ()).unwrap_err().to_string()
    };
    let groups = |groups| {
        Load::Hackbench(Hackbench {
            groups,
            ..Hackbench::default()
        })
    };
    let none = refused(groups(0), |_| ());
    assert!(none.starts_with("groups must be at least 1"), "{none}");
    let many = refused(groups(5000), |_| ());
    assert!(many.contains("not 200000, which need 50000 MiB"), "{many}");
    let time = refused(LOADS[2], |spec| spec.time_ns = 0);
    assert!(time.starts_with("time must be greater than 0"), "{time}");
    let memory = refused(groups(10), |spec| spec.setup.memory_bytes = 4 << 20);
    assert!(memory.contains("which alone may need 44 MiB"), "{memory}");
    let frame = refused(LOADS[5], |spec| {
        spec.load = Load::TcpRr(TcpRr {
            pairs: 1,
            request: 1,
            response: 1449,
            remote: true,
        });
    });
    assert!(
        frame.starts_with("1449 bytes between two machines"),
        "{frame}"
    );
    let long = refused(LOADS[3], |spec| spec.time_ns = u64::MAX);
    assert!(long.contains("1000 s"), "{long}");
    let wraps = Load::Hackbench(Hackbench {
        groups: u32::MAX,
        descriptors: u32::MAX,
        ..Hackbench::default()
    });
    let wraps = refused(wraps, |_| ());
    assert!(wraps.contains("at most 30000 tasks"), "{wraps}");
}

#[test]
fn counting_begins_when_receivers_have_read_full_sockets() {
    let hackbench = Hackbench {
        groups: 2,
        descriptors: 4,
        loops: 100,
        ..Hackbench::default()
    };
    let run = |transport, count_start| {
        let load = Load::Hackbench(Hackbench {
            transport,
            ..hackbench
        });
        let spec = LoadSpec {
            count_start,
            ..spec(load, Era::V6_18, 4)
        };
        run::<Slub>(&spec, &|_| ()).unwrap()
    };
    // Messages in a full socket, and loops of four that are that many.
    for (transport, full, loops) in [
        (Transport::Unix, 278, 70),
        (Transport::Datagram, 11, 3),
        (Transport::Pipe, 640, 160),
    ] {
        let all = run(transport, true);
        assert_eq!((all.operations, all.warm_up_operations), (3200, 0));
        let warm = run(transport, false);
        let (before, counted) = (warm.warm_up_operations, warm.operations);
        assert_eq!(before + counted, 8 * 4 * (100 + loops), "{transport:?}");
        assert!(
            before >= 8 * full && counted > 1000,
            "{transport:?} {before}"
        );
        assert!(warm.warm_up_seconds > 0.0);
        // Heads are counted from then on.
        let heads =
            |report: &LoadReport| report.cache("skbuff_head_cache").map_or(0, |it| it.allocs);
        assert!(heads(&warm) <= counted + 8 * full, "{transport:?}");
    }
}

#[test]
fn timed_loads_warm_up_as_their_programs_do() {
    for (load, part) in [(LOADS[3], 5), (LOADS[4], 10)] {
        let spec = spec(load, Era::V6_18, 4);
        assert_eq!(spec.warm_up_ns(), spec.time_ns / part);
        let report = run::<Slub>(&spec, &|_| ()).unwrap();
        assert!(report.warm_up_seconds >= spec.warm_up_ns() as f64 / 1e9);
        let all = LoadSpec {
            count_start: true,
            ..spec
        };
        assert_eq!(all.warm_up_ns(), 0);
    }
}
