//! Marks and ids, on a machine whose direct map starts at an unusual address.

use std::path::Path;

use super::map::DirectMap;
use super::*;
use crate::build::TraceBuilder;
use crate::event::FullRow;
use crate::event::{NO_CACHE, NO_PFN, Place, RawEvent, ReplayEvent};
use crate::intern::NO_TEXT;
use crate::read::TraceFile;

const BASE: u64 = 0xffff_9abc_de00_0000;
const PAGE: u64 = 4096;

fn page(kind: Kind, start: u64, order: u8) -> RawEvent<'static> {
    RawEvent {
        order,
        migratetype: if kind == Kind::MmPageAlloc { 2 } else { -1 },
        ..RawEvent::new(kind, start)
    }
}

/// An event of the object at this offset of a page.
fn object(kind: Kind, page: u64, offset: u64) -> RawEvent<'static> {
    RawEvent {
        bytes_req: 64,
        bytes_alloc: 64,
        ..RawEvent::new(kind, BASE + page * PAGE + offset)
    }
}

/// Slabs of one page with one object each, enough to find the direct map; they stay.
fn lessons() -> Vec<RawEvent<'static>> {
    (0..16)
        .flat_map(|n| {
            let start = 5000 + 7 * n;
            [
                page(Kind::MmPageAlloc, start, 0),
                object(Kind::Kmalloc, start, 128),
            ]
        })
        .collect()
}

fn build(events: &[RawEvent<'_>]) -> (TraceFile, Vec<FullRow>) {
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    for event in events {
        trace.push(event).unwrap();
    }
    trace.finish().unwrap();
    let file = TraceFile::from_bytes(bytes).unwrap();
    let (mut rows, mut reader, mut chunk) = (Vec::new(), file.rows(), Vec::new());
    while reader.next_chunk(&mut chunk).unwrap() {
        rows.append(&mut chunk);
    }
    (file, rows)
}

fn row(kind: Kind, order: u8) -> Row {
    Row {
        event: ReplayEvent {
            time_ns: 0,
            object: 0,
            bytes_req: 0,
            cache: NO_CACHE,
            cpu: 0,
            kind,
            flags: Flags::default(),
            order,
            place: -1,
        },
        pid: 0,
        comm: 0,
        cache_name: NO_TEXT,
        bytes_alloc: 0,
        gfp_flags: NO_TEXT,
        node: -1,
        migratetype: -1,
        call_site: NO_TEXT,
        page: NO_PAGE,
        stack: NO_TEXT,
        pfn: NO_PFN,
    }
}

/// Mark of a row, the page of its place, and true if that is fresh.
type Shape = (bool, Option<(u32, bool)>);

/// The rows behind the lessons but for implied frees of objects: whether each is marked, and its place.
/// Of pages from before the recording, ids are counted from the first multiple of eight behind those of the lessons.
fn after_lessons(events: &[RawEvent<'_>]) -> (SlabMemory, Vec<Shape>) {
    let all: Vec<_> = lessons()
        .into_iter()
        .chain(events.iter().copied())
        .collect();
    let (file, rows) = build(&all);
    let place = |place: Place| (place.page - 16, place.fresh);
    let shape = |row: &FullRow| (row.event.flags.has(Flags::SLAB), row.place.map(place));
    let found = file.meta().slab_memory.unwrap();
    assert_eq!(found.allocs, 16 + count(&rows[32..], Kind::MmPageAlloc));
    assert_eq!(found.frees, count(&rows, Kind::MmPageFree));
    let events = rows[32..].iter().filter(|row| !is_implied_object(row));
    (found, events.map(shape).collect())
}

fn is_implied_object(row: &FullRow) -> bool {
    row.event.flags.has(Flags::IMPLIED) && !row.event.kind.is_page()
}

fn count(rows: &[FullRow], kind: Kind) -> u64 {
    let marked = |row: &&FullRow| row.event.kind == kind && row.event.flags.has(Flags::SLAB);
    rows.iter().filter(marked).count() as u64
}

#[test]
fn a_block_with_an_object_is_a_slab() {
    let (_, rows) = after_lessons(&[
        page(Kind::MmPageAlloc, 64, 3),
        page(Kind::MmPageAlloc, 80, 1),
        page(Kind::MmPageAlloc, 96, 0),
        // The last byte of one block, and just behind the other.
        object(Kind::Kmalloc, 71, 4032),
        object(Kind::KmemCacheAlloc, 82, 0),
        page(Kind::MmPageFree, 64, 3),
        page(Kind::MmPageFree, 80, 1),
        page(Kind::MmPageFree, 96, 0),
        // The same page with another use.
        page(Kind::MmPageAlloc, 64, 0),
        page(Kind::MmPageFree, 64, 0),
    ]);
    let marked: Vec<bool> = rows.iter().map(|row| row.0).collect();
    let expect = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0].map(|bit| bit == 1);
    assert_eq!(marked, expect);
    // Nothing was allocated where the second object lies.
    let places: Vec<_> = rows.iter().map(|row| row.1).collect();
    let (first, second) = (Some((0, false)), Some((8 + 2, true)));
    assert_eq!(places[..4], [first, None, None, Some((7, true))]);
    assert_eq!(places[4..6], [second, first]);
    assert_eq!(places[6..], [None; 4]);
}

#[test]
fn what_came_before_the_map_was_found_is_marked_too() {
    let (file, rows) = build(&lessons());
    assert_eq!(count(&rows, Kind::MmPageAlloc), 16);
    let found = SlabMemory {
        allocs: 16,
        pages: 16,
        ..SlabMemory::default()
    };
    assert_eq!(file.meta().slab_memory, Some(found));
    let alloc = &rows[0].event;
    assert_eq!((alloc.order, alloc.migratetype()), (0, Some(2)));
}

#[test]
fn an_object_that_only_its_free_shows_is_one() {
    let (found, rows) = after_lessons(&[
        page(Kind::MmPageAlloc, 64, 0),
        object(Kind::KmemCacheFree, 64, 0),
        page(Kind::MmPageFree, 64, 0),
    ]);
    let place = Some((0, false));
    assert_eq!(rows, [(true, place), (false, place), (true, place)]);
    assert_eq!((found.pages, found.late_allocs), (17, 0));
}

#[test]
fn an_implied_free_of_a_slab_is_marked() {
    let (_, rows) = after_lessons(&[
        page(Kind::MmPageAlloc, 64, 1),
        object(Kind::Kmalloc, 65, 0),
        page(Kind::MmPageAlloc, 65, 0),
    ]);
    let marked: Vec<bool> = rows.iter().map(|row| row.0).collect();
    assert_eq!(marked, [true, false, true, false]);
}

#[test]
fn no_object_is_in_a_block_that_is_given_back_or_taken() {
    let at = |time_ns, event| RawEvent { time_ns, ..event };
    let slab = |start| {
        [
            page(Kind::MmPageAlloc, start, 1),
            object(Kind::Kmalloc, start, 0),
            object(Kind::Kmalloc, start + 1, 64),
        ]
    };
    // Whether each free of an object is implied, and its time.
    let frees = |events: &[RawEvent<'_>]| {
        let (file, rows) = build(&[&lessons()[..], events].concat());
        let frees = rows.iter().filter(|row| row.event.kind == Kind::Kfree);
        let frees: Vec<_> = frees
            .map(|row| (row.event.flags.has(Flags::IMPLIED), row.event.time_ns))
            .collect();
        let orphans = file.meta().orphans;
        assert_eq!(orphans.unknown_frees(), 0);
        (frees, orphans.never_freed_objects - 16)
    };
    for kind in [Kind::MmPageFree, Kind::MmPageAlloc] {
        let proof = at(3, page(kind, 64, 1));
        let later = at(5, page(Kind::MmPageAlloc, 80, 0));
        let events = [&slab(64)[..], &slab(68), &[proof, later]].concat();
        assert_eq!(frees(&events), (vec![(true, 3), (true, 3)], 2));
        // Nothing is concluded where the order of CPUs is a guess.
        let beside = RawEvent {
            cpu: 1,
            ..at(3, page(Kind::MmPageAlloc, 90, 0))
        };
        let events = [&slab(64)[..], &[proof, beside, later]].concat();
        assert_eq!(frees(&events), (vec![], 2));
        // The object's own event is believed.
        let own = at(3, object(Kind::Kfree, 64, 0));
        let events = [&slab(64)[..], &[proof, own, later]].concat();
        assert_eq!(frees(&events), (vec![(false, 3), (true, 3)], 0));
        // An object that came at that time is a new one, wherever the event stands.
        let new = at(3, object(Kind::Kmalloc, 64, 0));
        for both in [[proof, new], [new, proof]] {
            let events = [&slab(64)[..], &both, &[later]].concat();
            assert_eq!(frees(&events), (vec![(true, 3), (true, 3)], 1));
        }
    }
}

#[test]
fn pages_have_ids_until_they_are_freed() {
    let (found, rows) = after_lessons(&[
        object(Kind::KmemCacheFree, 19, 0),
        object(Kind::Kmalloc, 16, 64),
        object(Kind::Kfree, 16, 64),
        object(Kind::Kmalloc, 16, 64),
        object(Kind::Kmalloc, 24, 0),
        // A slab of four pages, and a block without objects.
        page(Kind::MmPageFree, 16, 2),
        page(Kind::MmPageFree, 40, 2),
        object(Kind::Kmalloc, 19, 8),
        object(Kind::Kmalloc, 20, 0),
    ]);
    // A free of an object that was seen allocated says nothing new.
    let expect = [
        (false, Some((3, false))),
        (false, Some((0, true))),
        (false, None),
        (false, Some((0, false))),
        (false, Some((8, true))),
        (true, Some((0, false))),
        (false, None),
        (false, None),
        (false, Some((4, true))),
    ];
    assert_eq!(rows, expect);
    assert_eq!(found.pages, 32);
}

#[test]
fn a_new_slab_on_old_pages_is_fresh_and_has_new_ids() {
    let slab = |start, order| {
        [
            page(Kind::MmPageAlloc, start, order),
            object(Kind::Kmalloc, start + 1, 64 * u64::from(order)),
            page(Kind::MmPageFree, start, order),
        ]
    };
    let twice = [slab(64, 1), slab(64, 4)].concat();
    let places: Vec<_> = after_lessons(&twice).1.iter().map(|row| row.1).collect();
    let at = |page, fresh| Some((page, fresh));
    // Two ids for the first slab; the second begins at the next multiple of eight.
    let expect = [at(0, false), at(1, true), at(0, false)];
    assert_eq!(places[..3], expect);
    // All pages of so large a block have one id.
    assert_eq!(places[3..], [at(8, false), at(8, true), at(8, false)]);
}

#[test]
fn old_blocks_are_of_the_type_of_their_surroundings() {
    let typed = |start, migratetype| RawEvent {
        migratetype,
        ..page(Kind::MmPageAlloc, start, 0)
    };
    // 512 pages of 4 KiB are a pageblock. The first allocation in the second one comes after its free.
    let (known, later, never) = (100, 700, 5 * 512);
    let events = [
        typed(3, 1),
        page(Kind::MmPageFree, known, 0),
        page(Kind::MmPageFree, later, 2),
        page(Kind::MmPageFree, never, 0),
        typed(1023, 0),
        page(Kind::MmPageFree, 3, 0),
    ];
    let (file, rows) = build(&events);
    let types: Vec<_> = rows.iter().map(|row| row.migratetype).collect();
    assert_eq!(types, [1, 1, 0, -1, 0, -1]);
    let (mut reader, mut chunk) = (file.events(), Vec::new());
    assert!(reader.next_chunk(&mut chunk).unwrap());
    let told: Vec<_> = chunk.iter().map(ReplayEvent::migratetype).collect();
    let (one, none) = (Some(1), Some(0));
    assert_eq!(told, [one, one, none, None, none, None]);
}

#[test]
fn evidence_that_comes_too_late_leaves_both_ends_unmarked() {
    let mut pages = Pages::new(40);
    let mut out = Vec::new();
    let mut push = |kind: Kind, order: u8, place: u64| {
        out.extend(pages.push(row(kind, order), place, 4096));
    };
    for event in lessons() {
        push(event.kind, event.order, event.address);
    }
    push(Kind::MmPageAlloc, 0, 64);
    for n in 0..40 {
        push(Kind::Kfree, 0, BASE + n);
    }
    push(Kind::Kmalloc, 0, BASE + 64 * PAGE);
    push(Kind::Kmalloc, 0, BASE + 64 * PAGE + 64);
    push(Kind::MmPageFree, 0, 64);
    let found = pages.found().unwrap();
    while let Some(row) = pages.pop() {
        out.push(row);
    }
    assert_eq!((found.late_allocs, found.allocs, found.frees), (1, 16, 0));
    assert_eq!(out.len(), 32 + 1 + 40 + 3);
    let marked = out.iter().filter(|row| row.event.flags.has(Flags::SLAB));
    assert_eq!(marked.count(), 16);
}

#[test]
fn chance_finds_no_direct_map() {
    let mut map = DirectMap::default();
    let mut state = 1_u64;
    for _ in 0..200_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        map.page_alloc(0, state >> 44, 0, 4096);
        map.object_alloc(0, BASE + (state >> 20 & 0xffff_ffff));
    }
    assert!(!map.is_found());
}

#[test]
fn nothing_is_found_without_page_events_or_with_a_wrong_page_size() {
    let objects = (0..64).map(|n| object(Kind::Kmalloc, n, 0));
    let (file, rows) = build(&objects.collect::<Vec<_>>());
    assert_eq!(file.meta().slab_memory, None);
    assert!(rows.iter().all(|row| row.place.is_none()));
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    trace.meta_mut().page_size = 65536;
    for event in lessons() {
        trace.push(&event).unwrap();
    }
    assert_eq!(trace.finish().unwrap().slab_memory, None);
}
