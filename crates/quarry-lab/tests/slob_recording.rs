//! A real kernel with SLOB beside a replay of what it was recorded to allocate.
//!
//! `QUARRY_SHARED` names the folder that holds `groundtruth/`; `cargo xtask recordings` sets it.

use std::path::Path;

use quarry_designs::DesignSpec;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::{Plan, RunReport};
use quarry_trace::{ImportOptions, import_file};

/// Linux 6.1 with SLOB, 2 CPUs, 2 GiB: sockets are filled with messages and emptied again.
const RECORDING: &str = "E-6.1-slob-m2G-smp2.trfill.kmem.txt.gz";
/// `Slab` of the kernel's meminfo in KiB at the stages trfill-before and trfill-fill-full.
const OBSERVED_KIB: [u64; 2] = [5540, 10716];
/// Pages that the kernel took for blocks: `mm_page_alloc` right before an allocation of less than a
/// page in that very page, on the same CPU. The recording has addresses.
const HEAP_PAGES: u64 = 1353;
/// Allocations of a page or more, each with pages of its own.
const RUNS: u64 = 195;

fn replay(text: &Path) -> Vec<RunReport> {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("slob.parquet");
    import_file(text, &trace, &ImportOptions::default(), &mut |_| ()).unwrap();
    let input = Input::open(trace.to_str().unwrap()).unwrap();
    let designs = ["slob@6.1", "slob@2.6.24"].map(|name| DesignSpec::parse(name).unwrap());
    let axes = Axes {
        designs: designs.to_vec(),
        cpus: vec![2],
        memory_bytes: 1 << 30,
        ..Axes::default()
    };
    let plan = Plan::new(&axes).unwrap();
    plan.execute(&input, 1, &|_| ()).unwrap()
}

/// By how much a prediction differs, as a part of what was observed.
fn miss(predicted: u64, observed: u64) -> f64 {
    predicted.abs_diff(observed) as f64 / observed as f64
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn growth_and_pages_are_the_kernels() {
    let shared = std::env::var_os("QUARRY_SHARED").expect("the folder with groundtruth/");
    let text = Path::new(&shared).join("groundtruth").join(RECORDING);
    let growth = OBSERVED_KIB[1] - OBSERVED_KIB[0];
    let runs = replay(&text);
    let taken = |run: &RunReport| {
        let own = run.stats.get(quarry_core::stats::Stat::AllocSlab);
        (run.page_allocs - own, own)
    };
    for run in &runs {
        let peak = run.peak_slab_bytes / 1024;
        let (heap, own) = taken(run);
        println!(
            "slob@{}: grows by {peak} KiB, the kernel by {growth}; {heap} heap pages, the kernel \
             {HEAP_PAGES}; {own} runs of pages",
            run.era
        );
        assert_eq!(own, RUNS, "{}", run.era);
    }
    let [new, old] = &runs[..] else {
        panic!("two runs");
    };
    // A replay begins with an empty heap, the kernel with one full of holes.
    assert!(miss(new.peak_slab_bytes / 1024, growth) < 0.02);
    assert!(miss(taken(new).0, HEAP_PAGES) < 0.01);
    // The other era would not pass.
    assert!(miss(old.peak_slab_bytes / 1024, growth) > 0.1);
    assert!(miss(taken(old).0, HEAP_PAGES) > 0.1);
}
