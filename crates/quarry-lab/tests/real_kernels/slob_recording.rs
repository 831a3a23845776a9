//! A real kernel with SLOB beside a replay of what it was recorded to allocate.

use quarry_lab::RunReport;

use super::groundtruth;

/// Linux 6.1 with SLOB, 2 CPUs, 2 GiB: sockets are filled with messages and emptied again.
const RECORDING: &str = "E-6.1-slob-m2G-smp2.trfill.kmem.txt.gz";
/// `Slab` of the kernel's meminfo in KiB at the stages trfill-before and trfill-fill-full.
const OBSERVED_KIB: [u64; 2] = [5540, 10716];
/// Pages that the kernel took for blocks: `mm_page_alloc` right before an allocation of less than a
/// page in that very page, on the same CPU. The recording has addresses.
const HEAP_PAGES: u64 = 1353;
/// Allocations of a page or more, each with pages of its own.
const RUNS: u64 = 195;

/// Error of a prediction, as a part of the observed value.
fn miss(predicted: u64, observed: u64) -> f64 {
    predicted.abs_diff(observed) as f64 / observed as f64
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn growth_and_pages_are_the_kernels() {
    let growth = OBSERVED_KIB[1] - OBSERVED_KIB[0];
    let (_, runs) = groundtruth::replay(RECORDING, &["slob@6.1", "slob@2.6.24"], 4096, 2);
    let taken = |run: &RunReport| {
        let own = run.stats.get(quarry_core::stats::Stat::AllocSlab);
        (run.page_allocs - own, own)
    };
    for run in &runs {
        let peak = run.peak_slab_bytes.unwrap() / 1024;
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
    assert!(miss(new.peak_slab_bytes.unwrap() / 1024, growth) < 0.02);
    assert!(miss(taken(new).0, HEAP_PAGES) < 0.01);
    // The other era would not pass.
    assert!(miss(old.peak_slab_bytes.unwrap() / 1024, growth) > 0.1);
    assert!(miss(taken(old).0, HEAP_PAGES) > 0.1);
}
