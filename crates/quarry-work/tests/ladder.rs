//! Rung 2 of the ladder in `docs/time.md`: one CPU against what was published of kernels.
//!
//! The published figures are a test and not an input: no cost of a machine was derived from them.

use quarry_core::era::Era;
use quarry_core::slub::Slub;
use quarry_machines::{Draw, Machine};
use quarry_work::Setup;
use quarry_work::micro::{self, MicroReport, MicroSpec, Pattern};
use quarry_work::rx::{self, OutsideWork, RxDriver, RxRun, RxSpec};

/// Cycles on an E5-2695 with Linux 3.18 without preemption: bytes, `kmalloc()`, `kfree()`, 10,000 of each (J. D. Brouer,
/// linux-mm, December 2014).
const KMALLOC: [(u32, f64, f64); 4] = [
    (8, 49.0, 62.0),
    (256, 84.0, 114.0),
    (1024, 81.0, 120.0),
    (4096, 142.0, 165.0),
];
/// Cycles of a `kmalloc()` and `kfree()` pair in the same message.
const KMALLOC_PAIR: f64 = 68.0;

fn slub(pattern: Pattern, object_bytes: u32) -> MicroReport {
    let spec = MicroSpec {
        pattern,
        object_bytes,
        kmalloc: true,
        rounds: 2,
        ..MicroSpec::new(Setup {
            memory_bytes: 4 << 30,
            ..Setup::new(Era::V3_18, Machine::bundled("haswell-ep-2x12").unwrap())
        })
    };
    micro::run::<Slub>(&spec).unwrap()
}

/// Relative error of a figure, from -1.
fn off(cycles: f64, published: f64) -> f64 {
    cycles / published - 1.0
}

#[test]
fn an_allocation_and_a_free_take_what_was_published() {
    for (bytes, alloc, free) in KMALLOC {
        let report = slub(Pattern::Batch, bytes);
        let (own_alloc, own_free) = (report.alloc.cycles, report.free.unwrap().cycles);
        let both = [off(own_alloc, alloc), off(own_free, free)];
        println!(
            "{bytes} bytes: {own_alloc:.0} ({:+.2}) and {own_free:.0} ({:+.2})",
            both[0], both[1]
        );
        for off in both {
            assert!(off.abs() < 0.25, "{bytes} bytes: {off:+.2}");
        }
    }
}

#[test]
fn a_hot_pair_takes_what_was_published() {
    let pair = slub(Pattern::Pair, 256).alloc.cycles;
    let off = off(pair, KMALLOC_PAIR);
    println!("a pair: {pair:.0} ({off:+.2})");
    assert!(off.abs() < 0.25, "{off:+.2}");
}

/// 32 to 56 ns a page under the zone's lock, allocated or freed in batches of 63, on Cascade Lake to Sapphire Rapids with
/// almost no contention (Huang Ying, commit 52166607ecc9, 2023). Which CPU's caches had the pages' descriptors is not told.
/// Here they are another CPU's: one ring allocates, readers free. `docs/time.md` has the figure of pages that stay at home.
#[test]
fn a_page_is_under_the_zone_lock_for_as_long_as_was_published() {
    let spec = RxRun {
        rx: RxSpec {
            packets: 50_000,
            ..RxSpec::new(RxDriver::named("none").unwrap(), 1)
        },
        machine: Machine::bundled("ice-lake-sp-2x32").unwrap(),
        draw: Draw::VALUES,
        outside: OutsideWork::THREAD,
    };
    let report = rx::run(&spec, &|_| ()).unwrap();
    let mut locks = report.causes.locks.iter();
    let zone = locks.find(|lock| lock.class == "zone").unwrap();
    // Each packet's page is allocated and freed.
    let page_ns = zone.hold_ns / 2.0;
    println!("{page_ns:.1} ns");
    assert!((32.0 * 0.75..56.0 * 1.25).contains(&page_ns), "{page_ns}");
}
