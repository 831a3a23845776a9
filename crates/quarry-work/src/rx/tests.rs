//! Receivers in simulated time, and counts of calls that follow by hand from their parameters.

use quarry_core::era::Era;

use super::outside::refine;
use super::*;

fn driver(name: &str) -> &'static RxDriver {
    RxDriver::named(name).unwrap()
}

/// A small receiver, which is at its limit with one ring.
fn spec(name: &str, rings: u32) -> RxRun {
    RxRun {
        rx: RxSpec {
            packets: 20_000,
            streams: 16,
            ..RxSpec::new(driver(name), rings)
        },
        machine: Machine::bundled("haswell-ep-2x12").unwrap(),
        draw: Draw::VALUES,
        outside: OutsideWork { ps: 350_000 },
    }
}

/// Such a receiver with other parameters, too.
fn changed(name: &str, rings: u32, change: impl FnOnce(&mut RxSpec)) -> RxReport {
    let mut spec = spec(name, rings);
    change(&mut spec.rx);
    report(&spec)
}

fn report(spec: &RxRun) -> RxReport {
    run(spec, &|_| ()).unwrap()
}

/// Per packet.
fn per(report: &RxReport, count: u64) -> f64 {
    count as f64 / report.counts.polled as f64
}

#[track_caller]
fn assert_near(found: f64, expected: f64, part: f64) {
    let off = (found / expected - 1.0).abs();
    assert!(off <= part, "{found} is not {expected} within {part}");
}

/// A page that is missing, or a list that is wrong, is an error of the run.
#[test]
fn every_driver_gives_all_pages_back_in_every_era() {
    for driver in &DRIVERS {
        for (era, consumer) in Era::REFERENCE.into_iter().zip(Consumer::ALL.iter().cycle()) {
            let report = changed(driver.name, 2, |rx| {
                rx.era = era;
                rx.consumer = consumer.0;
                rx.page_bytes = [4096, 65536][usize::from(era > Era::V4_13)];
                rx.streams = 4;
                rx.descriptors = 128;
                rx.packets = 1000;
            });
            assert!(report.packets >= 800, "{}: {report:?}", driver.name);
            assert_eq!(report.counts.alloc_failures, 0);
        }
    }
}

#[test]
fn one_ring_is_at_its_limit_and_many_reach_the_line_rate() {
    let [one, many] = [1, 8].map(|rings| report(&spec("pool", rings)));
    assert!(one.lost > 0.5 && one.cpu_use.rings > 0.99, "{one:?}");
    // A packet cannot take less than the work that is given.
    assert!(one.packet_ns > 350.0, "{one:?}");
    assert_eq!(many.lost, 0.0, "{many:?}");
    assert!(many.cpu_use.rings < 0.9, "{many:?}");
    assert_near(many.packet_ns, 1538.0 * 8.0 / 100.0, 0.01);
}

#[test]
fn the_zone_lock_is_what_one_page_a_packet_waits_for() {
    let share = |driver, rings| changed(driver, rings, |rx| rx.packets = 4_000).zone_lock_share;
    let none = [1, 4, 8].map(|rings| share("none", rings));
    assert!(none.is_sorted() && none[2] > 0.2, "{none:?}");
    assert!(share("pool", 8) < 0.02);
    assert!(share("small", 4) < none[1]);
}

#[test]
fn what_the_time_went_into_adds_up_to_it() {
    let report = report(&spec("none", 4));
    let causes = &report.causes;
    let named = causes.access_ns.iter().chain(&causes.work_ns);
    let named: f64 = named.map(|(_, ns)| ns).sum();
    let locks = causes.locks.iter().map(|lock| lock.wait_ns + lock.own_ns);
    let parts = named + causes.fill_ns + causes.outside_ns + locks.sum::<f64>();
    let busy_ns = report.cpu_use.busy * report.packet_ns;
    // Waits of CPUs that still wait when counting ends are in neither.
    assert_near(parts, busy_ns, 0.05);
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let mut spec = spec("none", 3);
    spec.rx.packets = 5_000;
    let once = report(&spec);
    assert_eq!(report(&spec), once);
    spec.rx.seed = 2;
    assert_ne!(report(&spec), once);
}

#[test]
fn the_threads_figure_comes_out_of_the_work_that_it_gives() {
    let spec = RxRun {
        rx: RxSpec {
            packets: 30_000,
            ..RxSpec::new(driver("small"), 1)
        },
        outside: OutsideWork::THREAD,
        ..spec("small", 1)
    };
    assert_near(report(&spec).mbit_per_second, 23_813.0, 0.01);
}

#[test]
fn the_search_finds_the_threads_figure() {
    let rx = RxSpec {
        packets: 15_000,
        ..RxSpec::new(driver("small"), 1)
    };
    let step = |from, _| refine(&rx, &Draw::VALUES, from).unwrap();
    let found = (0..3).fold(OutsideWork { ps: 0 }, step);
    assert_near(found.ns(), OutsideWork::THREAD.ns(), 0.01);
}

/// Allocated here and freed there: a refill for every 31 pages and a drain for every 31. Two packets in a page halve
/// that.
#[test]
fn a_page_for_another_cpu_passes_the_zone_lock_twice() {
    for (name, part) in [("none", 1.0), ("small", 0.5)] {
        let report = report(&spec(name, 2));
        assert_eq!((report.pcp_batch, report.pcp_high), (31, 186));
        let pages = report.counts.pages;
        assert_eq!(pages.pcp_refilled, 31 * pages.pcp_refills);
        assert_eq!(pages.pcp_drained, 31 * pages.pcp_drains);
        assert_near(per(&report, pages.allocs), part, 0.04);
        assert_near(per(&report, pages.pcp_refills), part / 31.0, 0.06);
        assert_near(per(&report, pages.pcp_drains), part / 31.0, 0.06);
        assert_near(per(&report, pages.zone_locks), part * 2.0 / 31.0, 0.06);
        let reused = per(&report, report.counts.recycling.page_reuse);
        assert!((reused - (1.0 - part)).abs() < 0.02, "{report:?}");
    }
}

/// Pages come home before their turn in a cache or pool that is large enough.
#[test]
fn a_huge_cache_and_a_pool_hardly_need_the_page_allocator() {
    for name in ["huge", "pool"] {
        for consumer in [Consumer::Same, Consumer::Other] {
            let report = changed(name, 2, |rx| rx.consumer = consumer);
            let counts = report.counts;
            assert!(
                per(&report, counts.pages.allocs) < 0.02,
                "{name}: {report:?}"
            );
            let got = counts.recycling;
            let kept =
                [got.cache_reuse, got.pool_fast + got.pool_refill][usize::from(name == "pool")];
            assert!(
                kept as f64 > 0.98 * got.buffers as f64,
                "{name}: {report:?}"
            );
        }
    }
}

/// One CPU reads for four rings and is too slow: sockets hold more packets than a ring of 255 pages covers, so that most
/// oldest pages are in use.
#[test]
fn a_small_cache_is_blocked_by_its_head() {
    let report = changed("shipped", 4, |rx| {
        rx.cpus = 5;
        rx.streams = 64;
        rx.descriptors = 256;
        rx.packets = 10_000;
    });
    let counts = report.counts;
    let got = counts.recycling;
    assert!(got.cache_busy > got.cache_reuse, "{got:?}");
    let gets = got.cache_reuse + got.cache_busy + got.cache_empty;
    assert_eq!(gets, got.buffers - got.page_reuse);
    assert!(counts.pages.allocs >= got.cache_busy + got.cache_empty);
    assert_eq!(got.cache_waive, 0);
}

/// Blocks of order 2 pass 4.13's per-CPU lists: two acquisitions for each packet. 6.1's lists hold
/// them, so that 15 come at a time; but a reader's CPU only frees, and once its lists have overflowed,
/// each larger block that it frees empties them.
#[test]
fn jumbo_frames_take_the_lock_for_every_block() {
    let [old, new] = [Era::V4_13, Era::V6_1].map(|era| {
        changed("none", 2, |rx| {
            rx.era = era;
            rx.mtu = 9000;
            rx.packets = 4_000;
        })
    });
    assert_eq!(old.page_order, 2);
    let pages = old.counts.pages;
    assert_near(per(&old, pages.direct_allocs), 1.0, 0.05);
    assert_near(per(&old, pages.zone_blocks()), 2.0, 0.05);
    assert_near(per(&old, pages.zone_locks), 2.0, 0.05);
    let pages = new.counts.pages;
    assert_eq!(pages.direct_allocs, 0);
    assert_near(per(&new, pages.pcp_refills), 1.0 / 15.0, 0.05);
    assert_near(per(&new, pages.pcp_drains), 1.0, 0.05);
    assert_near(pages.pcp_drained as f64, pages.pcp_drains as f64, 0.05);
}

#[test]
fn larger_pages_hold_more_packets() {
    let report = changed("small", 2, |rx| {
        rx.page_bytes = 65536;
        rx.descriptors = 64;
    });
    assert_eq!(report.packets_per_page, 34);
    assert_near(per(&report, report.counts.pages.allocs), 1.0 / 34.0, 0.1);
}

/// Receivers of any shape, some with too little memory: every page comes back (or the run would fail),
/// and every buffer that was posted is accounted for.
#[test]
fn random_receivers_account_for_every_page() {
    let mut rng = quarry_sim::Rng::new(7);
    let mut failed = 0;
    for case in 0..24 {
        let mut pick = |bound: u64| rng.below(bound) as u32;
        let rings = 1 + pick(4);
        let driver = &DRIVERS[pick(DRIVERS.len() as u64) as usize];
        let report = changed(driver.name, rings, |rx| {
            rx.era = Era::REFERENCE[pick(8) as usize];
            rx.cpus = rings + 1 + pick(4);
            rx.page_bytes = [4096, 16384, 65536][pick(3) as usize];
            rx.memory_bytes = (64 + u64::from(pick(4000))) << 16;
            rx.mtu = [576, 1500, 4000, 9000][pick(4) as usize];
            rx.streams = rings + pick(20);
            rx.consumer = Consumer::ALL[pick(3) as usize].0;
            rx.backlog = 1 + pick(60);
            rx.descriptors = 1 + pick(200);
            rx.cache_entries = 2 << pick(10);
            rx.packets = 1000;
            rx.seed = u64::from(pick(1000));
        });
        let (pages, got) = (report.counts.pages, report.counts.recycling);
        let context = || format!("case {case}: {report:?}");
        if driver.source == Source::Pool {
            let given = got.pool_fast + got.pool_refill + got.pool_slow;
            assert_eq!(got.buffers, given, "{}", context());
        } else {
            // The page allocator also gives the slabs of socket buffers.
            let kept = got.page_reuse + got.cache_reuse;
            assert!(got.buffers <= kept + pages.allocs, "{}", context());
        }
        failed += report.counts.alloc_failures;
        assert!(report.lost > 0.0 || report.counts.alloc_failures == 0);
    }
    assert!(failed > 0, "some machines were too small");
}

#[test]
fn too_little_memory_loses_packets_and_no_page() {
    let report = changed("none", 2, |rx| rx.memory_bytes = 8 << 20);
    assert!(report.lost > 0.1, "{report:?}");
    assert!(report.counts.alloc_failures > 0, "{report:?}");
}

#[test]
fn invalid_parameters_are_refused() {
    let base = RxSpec::new(driver("huge"), 4);
    let warm_up = base.warm_up_packets();
    type Change = Box<dyn Fn(&mut RxSpec)>;
    let cases: [(Change, &str); 17] = [
        (Box::new(|rx| rx.rings = 0), "rings must be at least 1"),
        (
            Box::new(|rx| rx.rings = 25),
            "rings must be at most the CPUs, 24",
        ),
        (Box::new(|rx| rx.cpus = 0), "0 CPUs"),
        (Box::new(|rx| rx.cpus = 4), "fewer than the CPUs, 4"),
        (
            Box::new(|rx| rx.streams = 3),
            "at least the rings, 4, not 3",
        ),
        (Box::new(|rx| rx.page_bytes = 8192), "page size 8192"),
        (Box::new(|rx| rx.mtu = 67), "not 67"),
        (Box::new(|rx| rx.mtu = 65536), "not 65536"),
        (Box::new(|rx| rx.backlog = 0), "backlog must be 1"),
        (Box::new(|rx| rx.descriptors = 0), "descriptors must be 1"),
        (
            Box::new(|rx| rx.cache_entries = 100),
            "cache_entries must be a power",
        ),
        (
            Box::new(|rx| rx.packets = 0),
            "packets must be 1 to 1000000000000, not 0",
        ),
        (
            Box::new(|rx| rx.packets = PACKETS_MAX + 1),
            "packets must be 1 to 1000000000000, not 1000000000001",
        ),
        (
            Box::new(move |rx| rx.packets = PACKETS_MAX - warm_up + 1),
            "packets must be at most 1000000000000 with the 70144 that fill sockets and rings, not 999999929857; \
             ask for 1 to 999999929856",
        ),
        (
            Box::new(|rx| {
                rx.packets = 1;
                (rx.streams, rx.backlog) = (1 << 20, 1 << 20);
            }),
            "packets must be at most 1000000000000 with the 4398235271168 that fill sockets and rings, not 1; \
             ask for fewer streams or a smaller backlog",
        ),
        (
            Box::new(|rx| rx.memory_bytes = 4095),
            "1 to 2^31 pages; give it 4k to 8T",
        ),
        (
            Box::new(|rx| {
                rx.page_bytes = 65536;
                rx.memory_bytes = (65536 << 31) + 65536;
            }),
            "1 to 2^31 pages; give it 64k to 128T",
        ),
    ];
    for (change, part) in cases {
        let mut run = spec("huge", 4);
        run.rx = base.clone();
        change(&mut run.rx);
        let error = super::run(&run, &|_| ()).unwrap_err();
        assert!(matches!(error, WorkError::Usage(_)));
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
    let allowed: [Change; 2] = [
        Box::new(|rx| (rx.cpus, rx.consumer) = (4, Consumer::Same)),
        Box::new(move |rx| rx.packets = PACKETS_MAX - warm_up),
    ];
    for change in allowed {
        let mut rx = base.clone();
        change(&mut rx);
        assert!(rx.check().is_ok());
    }
}

#[test]
fn axes_make_all_combinations() {
    let mut axes = RxAxes {
        drivers: vec!["none".to_string(), "pool".to_string()],
        eras: vec![Era::V4_13, Era::V6_18],
        page_bytes: vec![4096],
        rings: vec![1, 2, 3],
    };
    let base = RxSpec::new(driver("none"), 1);
    assert_eq!(axes.runs(&base).unwrap().len(), 12);
    axes.drivers.push("fast".to_string());
    let error = axes.runs(&base).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no driver \"fast\"; drivers are small, none, huge, pool, shipped"
    );
}

#[test]
fn the_thread_s_arithmetic() {
    let spec = RxSpec::new(driver("none"), 8);
    assert_eq!((spec.payload_bytes(), spec.frame_bytes()), (1448, 1514));
    assert_eq!(spec.gro_packets(), 45);
}
