//! Page events of real recordings, beside the memory that the kernel reported meanwhile.
//!
//! `QUARRY_SHARED` names the folder that holds `groundtruth/`; `cargo xtask recordings` sets it.

use std::path::Path;

use quarry_designs::DesignSpec;
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::pages::PageEvents;
use quarry_lab::{Plan, RunReport};
use quarry_trace::{ImportOptions, import_file};

/// Recording, design of its kernel, its page size and CPUs.
const RECORDINGS: [(&str, &str, u64, u32); 3] = [
    ("hackbench.kmem.txt.gz", "slub@6.18", 4096, 2),
    (
        "E-6.1-slab-m2G-smp2.trfill.kmem.txt.gz",
        "slab@6.1",
        4096,
        2,
    ),
    (
        "B-ppc64el-m4G-smp4-trace.trfill.kmem.txt.gz",
        "slub@6.1",
        65536,
        4,
    ),
];

fn replay(text: &Path, design: &str, page_bytes: u64, cpus: u32) -> (Input, RunReport) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("pages.parquet");
    let options = ImportOptions {
        page_size: Some(page_bytes as u32),
        ..ImportOptions::default()
    };
    import_file(text, &trace, &options, &mut |_| ()).unwrap();
    let input = Input::open(trace.to_str().unwrap()).unwrap();
    let axes = Axes {
        designs: vec![DesignSpec::parse(design).unwrap()],
        page_bytes: vec![page_bytes],
        cpus: vec![cpus],
        memory_bytes: 2 << 30,
        ..Axes::default()
    };
    let runs = Plan::new(&axes).unwrap().execute(&input, 1, &|_| ());
    (input, runs.unwrap().remove(0))
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn every_page_event_of_a_recording_is_accounted_for() {
    let shared = std::env::var_os("QUARRY_SHARED").expect("the folder with groundtruth/");
    for (file, design, page_bytes, cpus) in RECORDINGS {
        let text = Path::new(&shared).join("groundtruth").join(file);
        let (input, run) = replay(&text, design, page_bytes, cpus);
        assert_eq!(run.page_events, PageEvents::OutsideSlabs, "{file}");
        let (meta, pages) = (input.file.meta(), run.pages.unwrap());
        let slabs = meta.slab_memory.unwrap();
        assert_eq!(
            (pages.slab_allocs, pages.slab_frees),
            (slabs.allocs, slabs.frees)
        );
        assert_eq!((pages.too_large, pages.no_memory), (0, 0));
        // Of the blocks from before, those with objects on them are known to be slabs.
        assert!(
            pages.initial_frees <= meta.orphans.unknown_page_free,
            "{file}"
        );
        assert_eq!(pages.unknown_frees, 0, "{file}");
        let events = meta.events;
        assert_eq!(
            pages.allocs + pages.slab_allocs,
            events.mm_page_alloc,
            "{file}"
        );
        assert_eq!(
            pages.frees + pages.slab_frees,
            events.mm_page_free + meta.orphans.implied_page_frees,
            "{file}"
        );
        let own_frees = pages.frees - pages.initial_frees;
        assert_eq!(pages.live_blocks, pages.allocs - own_frees, "{file}");
        // The slabs that the replayed kernel made and those that the recorded one made.
        println!(
            "{file}: {} blocks of page events, {} of slabs, {} predicted",
            pages.allocs, pages.slab_allocs, run.page_allocs
        );
    }
}
