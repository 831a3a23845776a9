//! A window that `quarry filter` cuts out of a recording replays as the window within the whole recording.

use std::path::Path;

use quarry_designs::DesignSpec;
use quarry_lab::Plan;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::part::Part;
use quarry_lab::replay::timed::{Pace, Timing};
use quarry_machines::{Draw, Machine};
use quarry_trace::{Filter, TraceFile, filter_to};

/// A tenth of a second of a bundled recording: from the whole trace, and as a trace of its own.
fn both(name: &str) -> [Input; 2] {
    let mut whole = Input::open(name).unwrap();
    let from_ns = whole.file.meta().first_time_ns + 300_000_000;
    let until_ns = from_ns + 100_000_000;
    whole.part = Part {
        from_ns: Some(from_ns),
        until_ns: Some(until_ns),
    };
    let filter = Filter {
        from_ns: Some(from_ns),
        until_ns: Some(until_ns),
        ..Filter::default()
    };
    let mut cut = Vec::new();
    filter_to(&whole.file, &filter, &mut cut, Path::new("cut")).unwrap();
    let cut = Input::new(TraceFile::from_bytes(cut).unwrap(), name);
    [whole, cut]
}

fn plan(page_bytes: &[u64]) -> Plan {
    let designs = ["slab@6.3", "slub@6.18", "sheaf@7.0"];
    let designs = designs.map(|text| DesignSpec::parse(text).unwrap());
    Plan::new(&Axes {
        designs: designs.to_vec(),
        page_bytes: page_bytes.to_vec(),
        cpus: vec![2],
        memory_bytes: 4 << 30,
        ..Axes::default()
    })
    .unwrap()
}

#[test]
fn a_window_replays_as_the_trace_that_a_filter_makes_of_it() {
    for name in ["hackbench", "tbench"] {
        let plan = plan(&[4096, 65536]);
        let [whole, cut] = both(name).map(|input| plan.execute(&input, 2, &|_| ()).unwrap());
        for (whole, cut) in whole.iter().zip(&cut) {
            let label = format!(
                "{name}: {}@{}, {}",
                whole.design, whole.era, whole.page_size
            );
            let memory = |run: &quarry_lab::RunReport| {
                (
                    [
                        run.peak_slab_bytes.unwrap(),
                        run.final_slab_bytes,
                        run.object_bytes,
                    ],
                    [
                        run.slabs,
                        run.partial_slabs,
                        run.page_allocs,
                        run.page_frees,
                    ],
                    [run.cross_cpu_frees, run.replayed.allocs, run.replayed.frees],
                )
            };
            assert_eq!(memory(whole), memory(cut), "{label}");
            assert!(whole.stats == cut.stats, "{label}: counters");
            assert_eq!(whole.pcp.refilled, cut.pcp.refilled, "{label}");
            assert_eq!(whole.pcp.drained, cut.pcp.drained, "{label}");
            let [whole_pages, cut_pages] = [whole, cut].map(|run| run.pages.as_ref().unwrap());
            assert!(whole_pages.initial_frees > 0, "{label}");
            assert_eq!(
                whole_pages.initial_frees, cut_pages.initial_frees,
                "{label}"
            );
            assert_eq!(whole_pages.peak_bytes, cut_pages.peak_bytes, "{label}");
            // A free that only the reuse of its memory shows, of an object from before the window, is left out of the
            // new trace: nothing says that the object was there when the window begins.
            let lost = whole.replayed.orphans - cut.replayed.orphans;
            assert!(lost * 100 <= whole.replayed.orphans, "{label}: {lost}");
        }
    }
}

#[test]
fn it_does_so_in_simulated_time() {
    let timing = Timing {
        machine: Machine::open("haswell-ep-2x12").unwrap(),
        draw: Draw::VALUES,
        pace: Pace::Full,
        seed: 1,
    };
    let plan = plan(&[4096]);
    let [whole, cut] = both("tbench").map(|input| {
        let runs = plan.execute_timed(&input, &timing, 2, &|_| ()).unwrap();
        let times = runs
            .iter()
            .map(|run| (run.alloc, run.free, run.simulated_ns));
        times.collect::<Vec<_>>()
    });
    assert_eq!(whole, cut);
}
