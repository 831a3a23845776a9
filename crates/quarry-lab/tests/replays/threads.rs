//! Findings of mailing-list threads without a clock, out of the same machinery that replays.

use quarry_core::era::Era;
use quarry_core::geometry::{BootParams, CacheParams, MachineParams};
use quarry_designs::DesignSpec;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::{Plan, RunReport};

fn objects(era: &str, machine: &MachineParams, boot: &BootParams, bytes: u32) -> (u32, u32) {
    let spec = DesignSpec::parse(era).unwrap();
    let geometry = spec.design.geometry;
    let found = geometry(spec.era, machine, boot, &CacheParams::new(bytes)).unwrap();
    (found.order, found.objects)
}

/// The 2020 thread: task_struct of 9856 bytes on 64 KiB pages, by `slub_max_order`.
#[test]
fn task_struct_on_large_pages() {
    let machine = MachineParams {
        page_shift: 16,
        nr_cpus: 64,
        cache_line: 128,
    };
    for (order, expected) in [(3, 53), (2, 26), (1, 13)] {
        let boot = BootParams {
            slub_max_order: Some(order),
            ..BootParams::default()
        };
        let found = objects("slub@5.9", &machine, &boot, 9856);
        assert_eq!(found, (order, expected));
    }
}

/// The 2007 thread: two objects of 4096 bytes in a slab, whatever the CPUs; and the minimum of
/// objects that grows with them from 2.6.35 on.
#[test]
fn objects_by_era_and_cpus() {
    let machine = |nr_cpus| MachineParams {
        page_shift: 12,
        nr_cpus,
        cache_line: 64,
    };
    let boot = BootParams::default();
    for cpus in [1, 8, 512] {
        assert_eq!(objects("slub@2.6.22", &machine(cpus), &boot, 4096), (1, 2));
    }
    for (cpus, least) in [(1, 8), (2, 12), (4, 16), (8, 20), (16, 24), (64, 32)] {
        for bytes in [32, 64, 192, 256] {
            let (_, found) = objects("slub@2.6.35", &machine(cpus), &boot, bytes);
            assert!(found >= least, "{cpus} CPUs, {bytes} bytes: {found}");
        }
    }
    let (order, found) = objects("slub@2.6.35", &machine(2), &boot, 256);
    assert_eq!((order, found), (0, 16), "12 objects fit the lowest order");
    let (order, found) = objects("slub@2.6.35", &machine(8), &boot, 256);
    assert_eq!((order, found), (1, 32), "20 objects do not");
}

fn hackbench(designs: &[&str], page_bytes: u64, cpus: u32) -> Vec<RunReport> {
    let axes = Axes {
        designs: designs
            .iter()
            .map(|name| DesignSpec::parse(name).unwrap())
            .collect(),
        page_bytes: vec![page_bytes],
        cpus: vec![cpus],
        memory_bytes: 4 << 30,
        ..Axes::default()
    };
    let plan = Plan::new(&axes).unwrap();
    let input = Input::open("hackbench").unwrap();
    plan.execute(&input, 2, &|_| ()).unwrap()
}

/// The 2017 and 2020 threads: after hackbench, slabs stay for the sake of one object each, and
/// large pages make more of it.
#[test]
fn one_object_keeps_a_slab() {
    let eras = ["slub@2.6.24", "slub@5.9", "slub@6.18"];
    let small = hackbench(&eras, 4096, 4);
    let large = hackbench(&eras, 65536, 4);
    for (small, large) in small.iter().zip(&large) {
        let era = small.era;
        assert!(
            small.partial_slabs > 0 && small.one_object_slabs > 0,
            "{era}"
        );
        assert!(large.final_slab_bytes > small.final_slab_bytes, "{era}");
    }
}

/// Every design replays the recording at other page sizes and CPU counts, and holds all its
/// objects: the same bytes of objects at the end, in at least as many bytes of slabs.
#[test]
fn every_design_replays_it_anywhere() {
    let designs = [
        "slab@2.6.24",
        "slab@6.1",
        "slub@2.6.24",
        "slub@6.18",
        "slubq",
        "sheaf@6.18",
        "sheaf@7.0",
    ];
    for (page_bytes, cpus) in [(4096, 1), (16384, 8), (65536, 64)] {
        let reports = hackbench(&designs, page_bytes, cpus);
        let end = reports[0].final_object_bytes;
        for report in &reports {
            let run = format!("{}@{} {page_bytes} {cpus}", report.design, report.era);
            assert_eq!(report.replayed.unserved, 0, "{run}");
            assert!(
                report.final_slab_bytes >= report.final_object_bytes,
                "{run}"
            );
            // What is large enough for the page allocator differs by era.
            assert!(report.final_object_bytes.abs_diff(end) < 1 << 20, "{run}");
        }
    }
    assert_eq!(
        Era::parse(hackbench(&["slob"], 65536, 2)[0].era),
        Some(Era::V6_1)
    );
}
