//! Taints of small recordings that can be worked out by hand.

use quarry_snapshot::Snapshot;
use quarry_snapshot::blocks::BlockMap;
use quarry_trace::{Extfrag, KernelReport, Kind, RawEvent, TraceFile, TraceMeta};
use quarry_view::Doc;
use serde_json::json;

use super::super::tests::trace;
use super::*;
use crate::callers::By;

/// Address of frame 0 in the kernel's map of all memory.
const BASE: u64 = 0xffff_8880_0000_0000;
const UNMOVABLE: i8 = 0;
const RECLAIMABLE: i8 = 2;
/// Blocks 1 and 2 are clean, 3 has slabs and other pages, of 4 a page without a flag leaves it open, 100 has slabs.
const MAP: &str = "quarry blocks - version: 1\npage_bytes 4096\nblock_bytes 2097152\n\
    # first blocks free movable slab page_tables kernel untold cached\n1 1 512 0 0 0 0 0 0\n2 1 400 112 0 0 0 0 0\n\
    3 1 500 2 10 0 0 0 0\n4 1 511 0 0 0 0 1 0\n100 1 511 0 1 0 0 0 0\n";

fn page(pfn: u64, migratetype: i8) -> RawEvent<'static> {
    RawEvent {
        pid: 7,
        comm: b"load",
        migratetype,
        gfp_flags: Some(b"GFP_KERNEL"),
        ..RawEvent::new(Kind::MmPageAlloc, pfn)
    }
}

fn free_page(pfn: u64) -> RawEvent<'static> {
    RawEvent::new(Kind::MmPageFree, pfn)
}

/// An object at the beginning of a page.
fn object(pfn: u64, cache: &'static str, pid: i32) -> RawEvent<'static> {
    RawEvent {
        pid,
        comm: b"load",
        cache: Some(cache.as_bytes()),
        bytes_req: 192,
        bytes_alloc: 192,
        call_site: Some(b"d_alloc+0x1"),
        gfp_flags: Some(b"GFP_KERNEL"),
        ..RawEvent::new(Kind::KmemCacheAlloc, BASE + (pfn << 12))
    }
}

/// Slabs in block 100: the importer finds out by them where objects lie.
fn slabs() -> Vec<RawEvent<'static>> {
    let frames = 51_200..51_220;
    let pairs = frames.flat_map(|pfn| [page(pfn, UNMOVABLE), object(pfn, "filp", 7)]);
    pairs.collect()
}

fn snapshots(map: &str) -> Vec<Snapshot> {
    let snapshot = |free_slabs: &str| Snapshot {
        blocks: Some(BlockMap::parse("blocks", &map.replace("512 0 0", free_slabs)).unwrap()),
        ..Snapshot::default()
    };
    vec![snapshot("512 0 0"), snapshot("511 0 1")]
}

fn some() -> Vec<RawEvent<'static>> {
    let stack = b"entry;__pte_alloc;pte_alloc_one;alloc_pages_noprof;__alloc_frozen_pages_noprof";
    let mut events = slabs();
    events.extend([
        // Block 1: a slab of dentries and a page, which leaves last; then a reclaimable page that stays.
        page(512, UNMOVABLE),
        object(512, "dentry", 7),
        page(513, UNMOVABLE),
        RawEvent::new(Kind::KmemCacheFree, BASE + (512 << 12)),
        free_page(512),
        free_page(513),
        page(600, RECLAIMABLE),
        // Block 2: a page of tables beside movable pages.
        page(1024, MOVABLE as i8),
        RawEvent {
            comm: b"fork",
            stack: Some(stack),
            ..page(1025, UNMOVABLE)
        },
        free_page(1025),
        free_page(1024),
    ]);
    // Block 3: the twelve pages from before leave.
    events.extend((1536..1548).map(free_page));
    events.extend([
        page(1536, UNMOVABLE),
        // An object of another task says the cache, and not the call site.
        object(1536, "dentry", 8),
        // Block 4: its state is unknown.
        page(2048, UNMOVABLE),
        free_page(2048),
        page(2049, UNMOVABLE),
        // Block 5: no memory was there, then one allocation takes all of it.
        RawEvent {
            order: 9,
            ..page(2560, MOVABLE as i8)
        },
        RawEvent {
            order: 9,
            ..free_page(2560)
        },
        page(2560, UNMOVABLE),
    ]);
    events
}

fn with_pages(meta: &mut TraceMeta) {
    meta.page_size = 4096;
    meta.moves.extfrag_on = true;
    // The event of frame 600, which is row 47, after 40 rows of slabs.
    let fallback = |pfn: u64, alloc_type: i8| Extfrag {
        time_ns: 47,
        pfn,
        fallback_order: 3,
        alloc_type,
        fallback_type: 1,
        ..Extfrag::default()
    };
    meta.moves.extfrag_events = 2;
    meta.moves.extfrags = vec![fallback(600, 2), fallback(1024, 1)];
}

fn recorded() -> TraceFile {
    trace(&some(), with_pages)
}

#[test]
fn a_few_blocks_by_hand() {
    let taints = Taints::of(&recorded(), &snapshots(MAP)).unwrap();
    let [small, large] = &taints.blocks[..] else {
        panic!("{taints:?}");
    };
    assert_eq!((small.block_bytes, small.spoiled), (2 << 20, 5));
    assert_eq!((small.spoiled_blocks, small.cleaned), (4, 2));
    assert_eq!((small.at_end, small.unknown), (3, 1));
    assert_eq!((small.fallbacks, small.cleaned_before), (Some(1), 1));
    assert_eq!((small.maps_tainted, small.maps_open), (Some(1), Some(1)));
    // The gigabyte had slabs before.
    assert_eq!((large.block_bytes, large.spoiled), (1 << 30, 0));

    let told = taints.taints.iter().map(|taint| {
        let block = taint.address >> 21;
        (
            block,
            taint.was_clean,
            taint.cache.as_str(),
            taint.stayed_ns,
        )
    });
    let pages = "pages (GFP_KERNEL)";
    let expected = [
        (1, true, "dentry", Some(5)),
        (1, true, pages, None),
        (2, true, pages, Some(1)),
        (3, true, "dentry", None),
        (4, false, pages, None),
        (5, true, pages, None),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let [first, second, third, fourth, ..] = &taints.taints[..] else {
        panic!("{taints:?}");
    };
    assert_eq!((first.time_ns, first.pfn, first.order), (41, 512, 0));
    assert_eq!(first.site.as_deref(), Some("d_alloc+0x1"));
    assert_eq!(first.last.as_deref(), Some(pages));
    assert_eq!((second.migratetype, second.fallback), (2, Some(true)));
    assert_eq!(third.site.as_deref(), Some("pte_alloc_one"));
    assert_eq!(
        (third.process.as_str(), third.fallback),
        ("fork", Some(false))
    );
    assert_eq!(fourth.site, None);

    let causes = taints.causes(By::Cache);
    let told = causes.iter().map(|cause| {
        (
            cause.name.as_str(),
            cause.spoiled,
            cause.at_end,
            cause.unknown,
        )
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(pages, 3, 2, 1), ("dentry", 2, 1, 0)]
    );
    let dentry = &causes[1];
    assert_eq!(dentry.stayed_mean_ns, Some(5));
    let sites: Vec<_> = dentry.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(sites, ["d_alloc+0x1", "unknown"]);
    assert_eq!(taints.causes(By::Process)[0].name, "load");
}

#[test]
fn without_a_map_a_block_is_clean_once_one_allocation_took_it() {
    let taints = Taints::of(&recorded(), &[]).unwrap();
    let small = &taints.blocks[0];
    assert!(!taints.has_map && small.maps_tainted.is_none());
    assert_eq!((small.spoiled, small.unknown), (1, 5));
    let clean: Vec<u64> = (taints.taints.iter())
        .filter(|taint| taint.was_clean)
        .map(|taint| taint.address >> 21)
        .collect();
    assert_eq!(clean, [5]);
    let doc = Doc {
        file: String::new(),
        content: json!({
            "trace": {"name": "t"}, "by": "cache", "has_map": taints.has_map,
            "blocks": taints.blocks, "causes": taints.causes(By::Cache),
        }),
    };
    let expected = "1 clean block of 2.0 MiB was spoiled; 0 times one became clean again, and 1 is spoiled at the end; of 5 more it is unknown whether they were clean; pages (GFP_KERNEL) did most, 1 (100.0 %).";
    assert_eq!(view(&[doc]).findings, [expected]);
}

/// Pages that came between the map and the begin keep their block from counting until they are gone.
#[test]
fn taints_count_between_the_maps() {
    let events = [
        page(512, UNMOVABLE),
        page(513, UNMOVABLE),
        free_page(513),
        free_page(512),
        page(514, UNMOVABLE),
        page(1024, UNMOVABLE),
        free_page(514),
        page(1030, UNMOVABLE),
    ];
    let file = trace(&events, |meta| {
        with_pages(meta);
        for time_ns in [2, 6] {
            meta.reports.push(KernelReport {
                name: "vmstat".to_string(),
                time_ns,
                text: format!("nr_free_pages 1\npgscan_direct 3\npgmigrate_success {time_ns}\n"),
            });
        }
    });
    let taints = Taints::of(&file, &snapshots(MAP)).unwrap();
    let told: Vec<_> = taints
        .taints
        .iter()
        .map(|taint| (taint.time_ns, taint.stayed_ns))
        .collect();
    assert_eq!(told, [(5, None)]);
    let [grew] = &taints.reclaim.as_ref().unwrap()[..] else {
        panic!("{taints:?}");
    };
    assert_eq!((grew.name.as_str(), grew.by), ("pgmigrate_success", 4));
}

#[test]
fn recordings_without_frames_are_refused() {
    let objects = trace(&[object(1, "filp", 7)], |_| ());
    let error = Taints::of(&objects, &[]).unwrap_err().to_string();
    assert!(error.starts_with("--taints: "), "{error}");
    assert!(error.contains("no events of pages"), "{error}");
}

#[test]
fn slices_of_one_track_do_not_overlap() {
    let taints = Taints::of(&recorded(), &snapshots(MAP)).unwrap();
    let file = perfetto(&taints, By::Cache, 100);
    let names = |text: &str| {
        let windows = file.windows(text.len());
        windows.filter(|part| *part == text.as_bytes()).count()
    };
    // As the name of a track, of two slices, and as their argument. Tracks of pages are two, as two last to the end,
    // and pages left last twice.
    assert_eq!(names("dentry"), 1 + 2 + 2);
    assert_eq!(names("pages (GFP_KERNEL)"), 2 + 3 + 3 + 2);
    assert_eq!(names("spoiled blocks of 2.0 MiB"), 1);
}
