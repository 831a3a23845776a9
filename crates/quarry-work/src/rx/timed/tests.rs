use quarry_core::era::Era;
use quarry_machines::{Draw, Machine};

use super::super::driver::{DRIVERS, RxDriver};
use super::super::spec::Consumer;
use super::outside::refine;
use super::*;

/// A small receiver, which is at its limit with one ring.
fn spec(driver: &str, rings: u32) -> RxTimeSpec {
    RxTimeSpec {
        rx: RxSpec {
            packets: 20_000,
            streams: 16,
            ..RxSpec::new(RxDriver::named(driver).unwrap(), rings)
        },
        machine: Machine::bundled("haswell-ep-2x12").unwrap(),
        draw: Draw::VALUES,
        outside: OutsideWork { ps: 350_000 },
    }
}

fn report(spec: &RxTimeSpec) -> RxTimeReport {
    run(spec, &|_| ()).unwrap()
}

#[test]
fn every_driver_gives_all_pages_back() {
    for driver in &DRIVERS {
        for (era, consumer) in [(Era::V4_13, Consumer::Other), (Era::V7_0, Consumer::Spread)] {
            let mut spec = spec(driver.name, 2);
            spec.rx.era = era;
            spec.rx.consumer = consumer;
            // A page that is missing, or a list that is wrong, is an error.
            let report = report(&spec);
            assert!(report.packets >= 19_000, "{}: {report:?}", driver.name);
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
    let line_ns = 1538.0 * 8.0 / 100.0;
    assert!((many.packet_ns / line_ns - 1.0).abs() < 0.01, "{many:?}");
}

#[test]
fn the_zone_lock_is_what_one_page_a_packet_waits_for() {
    let share = |driver, rings| report(&spec(driver, rings)).zone_lock_share;
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
    assert!((parts / busy_ns - 1.0).abs() < 0.05, "{parts} of {busy_ns}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let spec = spec("none", 3);
    let once = report(&spec);
    assert_eq!(report(&spec), once);
    let other = RxTimeSpec {
        rx: RxSpec {
            seed: 2,
            ..spec.rx.clone()
        },
        ..spec
    };
    assert_ne!(report(&other), once);
}

#[test]
fn the_threads_figure_comes_out_of_the_work_that_it_gives() {
    let spec = RxTimeSpec {
        rx: RxSpec {
            packets: 30_000,
            ..RxSpec::new(RxDriver::named("small").unwrap(), 1)
        },
        outside: OutsideWork::THREAD,
        ..spec("small", 1)
    };
    let mbit = report(&spec).mbit_per_second;
    assert!((mbit / 23_813.0 - 1.0).abs() < 0.01, "{mbit}");
}

#[test]
fn the_search_finds_the_threads_figure() {
    let rx = RxSpec {
        packets: 30_000,
        ..RxSpec::new(RxDriver::named("small").unwrap(), 1)
    };
    let step = |from, _| refine(&rx, &Draw::VALUES, from).unwrap();
    let found = (0..3).fold(OutsideWork { ps: 0 }, step);
    let off = found.ns() / OutsideWork::THREAD.ns() - 1.0;
    assert!(off.abs() < 0.01, "{found:?}");
}

#[test]
fn too_little_memory_loses_packets_and_no_page() {
    let mut spec = spec("none", 2);
    spec.rx.memory_bytes = 8 << 20;
    let report = report(&spec);
    assert!(report.lost > 0.1, "{report:?}");
}
