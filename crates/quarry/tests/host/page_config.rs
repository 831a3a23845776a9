//! A heap's pages as they were asked for, or an error that says why not.

use quarry::kernel::heap::CreateError;
use quarry::kernel::machine::NodeId;
use quarry::kernel::page::{AllocOptions, BootError, ZoneType};
use quarry::{Builder, Era, Error, HostHeap, MinFree, PageConfig, SlabCache, Slub, ZoneLayout};

const PAGES: u32 = 16 << 10;

fn build(config: PageConfig) -> Result<&'static HostHeap<Slub>, Error> {
    let builder = Builder::<Slub>::new().memory_bytes(PAGES as usize * 4096);
    builder.page_config(config).build().map(HostHeap::leak)
}

/// Number of pages that can be allocated one by one.
fn usable(heap: &HostHeap<Slub>, options: &AllocOptions) -> usize {
    let pages = heap.pages();
    let all: Vec<_> = core::iter::from_fn(|| pages.alloc_owned_with(options)).collect();
    all.len()
}

#[test]
fn watermarks_keep_pages_back() {
    let kbytes = |kib| PageConfig {
        min_free: MinFree::Kbytes(kib),
        ..PageConfig::in_process(Era::V6_18)
    };
    let anybody = AllocOptions::default();
    let urgent = AllocOptions {
        no_watermarks: true,
        ..anybody
    };
    let all = build(PageConfig::in_process(Era::V6_18)).expect("a heap");
    assert_eq!(
        all.pages()
            .zone_reports()
            .next()
            .map(|zone| zone.watermarks.min),
        Some(0)
    );
    assert_eq!(usable(all, &anybody), PAGES as usize);
    let heap = build(kbytes(8192)).expect("a heap");
    let zone = heap.pages().zone_reports().next().expect("a zone");
    assert_eq!(zone.watermarks.min, 2048);
    // What is on the lists of CPUs is not free for the watermarks, but can be allocated.
    assert!(usable(heap, &anybody) <= PAGES as usize - 2048 + 2048 / 2);
    assert_eq!(usable(heap, &urgent), PAGES as usize);
    assert_eq!(heap.pages().sysctl("min_free_kbytes"), Some(8192));
}

#[test]
fn zones_are_those_of_the_layout() {
    let sizes = [4096, 2048, 8192];
    let config = PageConfig {
        zones: ZoneLayout::Sized(sizes),
        ..PageConfig::in_process(Era::V6_18)
    };
    let heap = build(config).expect("a heap");
    let zones: Vec<_> = heap
        .pages()
        .zone_reports()
        .map(|zone| (zone.id.zone, zone.pages))
        .collect();
    let expected: Vec<_> = ZoneType::ALL
        .into_iter()
        .zip(sizes.map(u64::from))
        .collect();
    assert_eq!(zones, expected);
    let object = heap.kmalloc(100).expect("memory");
    let page = heap.pages().pfn_of(object).expect("a page of the heap");
    let zone = heap.pages().zone_id_of(page).expect("a zone");
    assert_eq!(zone.zone, ZoneType::Normal, "the highest is tried first");
    // SAFETY: the object has no user left.
    unsafe { heap.kfree(object) }.expect("allocated");
}

/// The most pages that left the zone at once while single pages were allocated in a row, for which
/// refills become as large as they may.
fn refill_max(batch_scale_max: u32) -> u64 {
    let heap = build(PageConfig {
        batch_scale_max,
        ..PageConfig::in_process(Era::V6_18)
    });
    let pages = heap.expect("a heap").pages();
    let free = || pages.zone_report(0).expect("a zone").free_pages;
    let (mut largest, mut before) = (0, free());
    for _ in 0..8192 {
        pages.alloc(0, None).expect("memory");
        let now = free();
        largest = largest.max(before - now);
        before = now;
    }
    largest
}

#[test]
fn refills_are_as_large_as_the_scale_allows() {
    let heap = build(PageConfig::in_process(Era::V6_18)).expect("a heap");
    let sizes = heap.pages().pcp_params(NodeId(0)).expect("a node");
    let batch = u64::from(sizes.batch);
    assert_eq!([0, 1, 3].map(refill_max), [batch, batch << 1, batch << 3]);
}

#[test]
fn the_era_is_the_last_that_was_named() {
    let config = PageConfig::in_process(Era::V6_1);
    let builder = || Builder::<Slub>::new().memory_bytes(64 << 20);
    let heap = builder()
        .era(Era::V6_18)
        .page_config(config)
        .build()
        .expect("a heap");
    assert_eq!(
        (heap.era(), heap.pages().era()),
        (Era::V6_1, Some(Era::V6_1))
    );
    let heap = builder()
        .page_config(config)
        .era(Era::V4_13)
        .build()
        .expect("a heap");
    assert_eq!(
        (heap.era(), heap.pages().era()),
        (Era::V4_13, Some(Era::V4_13))
    );
    let unknown = Builder::<SlabCache>::new().page_config(PageConfig::in_process(Era::V6_18));
    assert!(matches!(unknown.build(), Err(Error::Heap(_))));
}

#[test]
fn what_cannot_be_is_an_error() {
    let new = PageConfig::in_process(Era::V6_18);
    let zones = |sizes| PageConfig {
        zones: ZoneLayout::Sized(sizes),
        ..new
    };
    for (config, words) in [
        (
            zones([0, 0, PAGES + 1]),
            "the zones need 16385 pages, and the machine has 16384",
        ),
        (zones([u32::MAX; 3]), "the machine has 16384"),
        (zones([0; 3]), "no zone of the configuration has pages"),
        (
            PageConfig {
                min_free: MinFree::Kbytes(u64::MAX),
                ..new
            },
            "min_free_kbytes",
        ),
        (
            PageConfig {
                min_free: MinFree::Kbytes(64 << 10 | 1),
                ..new
            },
            "65536 KiB",
        ),
        (
            PageConfig {
                pagelist_fraction: 1,
                ..new
            },
            "percpu_pagelist_high_fraction is 1",
        ),
    ] {
        match build(config) {
            Err(error) => {
                assert!(error.to_string().contains(words), "{error}");
            }
            Ok(_) => panic!("{config:?} made a heap"),
        }
    }
    // What is more than its field's most is that most.
    for config in [
        PageConfig {
            batch_scale_max: u32::MAX,
            ..new
        },
        PageConfig {
            bulk_free_hold: 0,
            ..new
        },
        PageConfig {
            bulk_free_hold: usize::MAX,
            ..new
        },
        PageConfig {
            pagelist_fraction: u32::MAX,
            ..new
        },
        zones([1, 1, 1]),
    ] {
        let heap = build(config).unwrap_or_else(|error| panic!("{config:?}: {error}"));
        let mut slots = [None; 200];
        let count = heap.pages().alloc_bulk(None, &mut slots);
        // SAFETY: the pages were allocated above, and nothing uses them.
        let freed = unsafe { heap.pages().free_bulk(&mut slots[..count]) };
        freed.expect("allocated");
        heap.pages().check_consistency().expect("consistency");
    }
    assert!(matches!(
        build(zones([u32::MAX; 3])),
        Err(Error::Heap(CreateError::Boot(BootError::Zones { .. })))
    ));
    assert!(matches!(
        build(zones([0; 3])),
        Err(Error::Heap(CreateError::Boot(BootError::NoZones)))
    ));
}
