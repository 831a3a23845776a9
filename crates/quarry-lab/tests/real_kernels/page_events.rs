//! Page events of real recordings, beside the memory that the kernel reported meanwhile.

use quarry_lab::replay::pages::PageEvents;

use super::groundtruth;

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

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn every_page_event_of_a_recording_is_accounted_for() {
    for (file, design, page_bytes, cpus) in RECORDINGS {
        let (input, mut runs) = groundtruth::replay(file, &[design], page_bytes, cpus);
        let run = runs.remove(0);
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
