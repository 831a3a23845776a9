//! SLOB's worked sequences: units, first fit, rotation, merging, headers.

use crate::model::slob_heap::{
    NEW, OLD, behind, boot, consistent, kfree, kmalloc, offset, page, read, small, units,
};
use crate::prelude::*;
use quarry_core::geometry::GeometryError;

/// Facts 4.1: kmalloc(100) on an empty allocator takes 54 units; the rest is one free block.
#[test]
fn the_first_kmalloc_takes_54_units() {
    for era in [OLD, NEW] {
        let heap = small(era);
        let object = kmalloc(&heap, 100);
        assert_eq!(offset(object), 8, "behind the header");
        assert_eq!(read::<u32>(behind(object, -8)), 100, "the header");
        // Sizes and offsets in units: 2048 - 54 are free, and the next block is the page's end.
        assert_eq!(units(&heap, page(&heap, object), 54), [1994, 2048]);
        assert_eq!(heap.pages().slab_pages(), 1);
        consistent(&heap);
        kfree(&heap, object);
        assert_eq!(heap.pages().slab_pages(), 0, "given back at once");
    }
}

/// Facts 9.4: kmalloc(100) is a block every 112 bytes, 36 in a page.
#[test]
fn alignment_gaps_stay_free_blocks() {
    let heap = small(NEW);
    let objects: Vec<Object> = (0..36).map(|_| kmalloc(&heap, 100)).collect();
    for (number, &object) in objects.iter().enumerate() {
        assert_eq!(offset(object), 8 + 112 * number);
    }
    assert_eq!(heap.pages().slab_pages(), 1);
    // The 4 bytes between two blocks are two units that lead to the next gap.
    assert_eq!(units(&heap, page(&heap, objects[0]), 54), [2, 110]);
    consistent(&heap);
    let next = kmalloc(&heap, 100);
    assert_ne!(page(&heap, next), page(&heap, objects[0]));
    // The gaps begin 4 bytes behind a word, so no cache's object fits in them: what is free in a
    // full page is lost until a neighbour is freed.
    let tiny = sized(&heap, "tiny", 2);
    let found = take(tiny, 1)[0];
    assert_eq!(page(&heap, found), page(&heap, next));
    consistent(&heap);
}

/// Facts 9.4: objects of a power of two per page, alone in the allocator.
#[test]
fn powers_of_two_in_a_page_by_era() {
    for (bytes, old, new) in each([(64, 56, 32), (256, 15, 8), (1024, 3, 2), (2048, 1, 1)]) {
        for (era, per_page) in [(OLD, old), (NEW, new)] {
            let heap = small(era);
            let first = kmalloc(&heap, bytes);
            let mut count = 1;
            while page(&heap, kmalloc(&heap, bytes)) == page(&heap, first) {
                count += 1;
            }
            assert_eq!(count, per_page, "bytes in {era}");
            let aligned = if era == OLD { 8 } else { bytes };
            assert!(first.addr().get().is_multiple_of(aligned));
            consistent(&heap);
        }
    }
}

/// Facts 4.1 and 9.4: kmalloc(4087) is a block of a whole page, kmalloc(4088) a page.
#[test]
fn a_kmalloc_of_a_page_less_the_header_is_a_page() {
    for era in [OLD, NEW] {
        let heap = small(era);
        let block = kmalloc(&heap, 4087);
        let run = kmalloc(&heap, 4088);
        assert_eq!((offset(block), offset(run)), (8, 0));
        assert_eq!(heap.pages().slab_pages(), 2);
        let large = kmalloc(&heap, 4097);
        assert_eq!((offset(large), heap.pages().slab_pages()), (0, 4));
        consistent(&heap);
        // The first takes no room from other objects: its page is full.
        let other = kmalloc(&heap, 8);
        assert_ne!(page(&heap, other), page(&heap, block));
        for object in [block, run, large, other] {
            kfree(&heap, object);
        }
        assert_eq!(heap.pages().slab_pages(), 0);
    }
}

/// Facts 9.1: three lists by block size, header included; one in 2.6.24.
#[test]
fn lists_by_block_size() {
    let pages = |era, sizes: &[usize]| {
        let heap = small(era);
        let objects = sizes
            .iter()
            .map(|&bytes| page(&heap, kmalloc(&heap, bytes)));
        objects.map(|pfn| pfn.0).collect::<Vec<_>>()
    };
    let sizes = [240, 247, 250, 1000, 1018, 1020];
    let new = pages(NEW, &sizes);
    assert_eq!(new[0], new[1], "blocks of 248 and 255 bytes");
    assert_eq!(new[2], new[3], "258 and 1008");
    assert_eq!(new[4], new[5], "1026 and 1028");
    assert!(new[1] != new[2] && new[3] != new[4] && new[0] != new[4]);
    let old = pages(OLD, &sizes);
    assert!(old.iter().all(|&page| page == old[0]), "{old:?}");
    // kmalloc(248) is a block of 256 bytes, kmalloc(1016) one of 1024.
    let edge = pages(NEW, &[247, 248, 1015, 1016]);
    assert_eq!(edge[1], edge[2]);
    assert!(edge[0] != edge[1] && edge[2] != edge[3]);
}

/// Facts 9.2: the list is rotated to the page that served, unless it became full.
#[test]
fn the_next_search_begins_at_the_last_page() {
    for era in each([OLD, NEW]) {
        let heap = small(era);
        let cache = sized(&heap, "scenario", 512);
        // Three full pages; the free of one object each puts them on the list, the last in front.
        let objects = take(cache, 24);
        for number in [0, 1, 8, 9, 16, 17] {
            give(cache, &objects[number..=number]);
        }
        let on_page = |number: usize| page(&heap, objects[number]);
        let third = take(cache, 1)[0];
        assert_eq!(third, objects[16], "first fit in the front page");
        let fourth = take(cache, 1)[0];
        assert_eq!(fourth, objects[17]);
        // Now that page has left; the front is the second.
        let fifth = take(cache, 1)[0];
        assert_eq!(fifth, objects[8]);
        // One that fits only on the page behind: the front page has but 512 bytes left.
        let found = take(sized(&heap, "large", 700), 1)[0];
        assert_eq!((page(&heap, found), offset(found)), (on_page(0), 0));
        // The list begins there now, where 324 bytes are left.
        let found = take(sized(&heap, "small", 300), 1)[0];
        assert_eq!(page(&heap, found), on_page(0), "rotated");
        assert_eq!(take(cache, 1)[0], objects[9]);
        consistent(&heap);
    }
}

/// A page that serves and becomes full leaves the list. In 2.6.24 the head moves to its successor
/// all the same; in 6.1 it stays.
#[test]
fn the_next_search_after_a_page_became_full() {
    for (era, next) in each([(OLD, 0), (NEW, 32)]) {
        let heap = small(era);
        let cache = sized(&heap, "scenario", 256);
        // Three full pages. The third, in front, gets 256 free bytes; the others 512.
        let objects = take(cache, 48);
        for number in [0, 1, 16, 17, 32] {
            give(cache, &objects[number..=number]);
        }
        let found = take(sized(&heap, "large", 512), 1)[0];
        assert_eq!(found, objects[16], "the second page, full now");
        assert_eq!(take(cache, 1)[0], objects[next]);
        consistent(&heap);
    }
}

/// Facts 4.1 and 9.3: a block in front of the first free block is merged with it in 6.1 only.
#[test]
fn merging_in_front_of_the_first_free_block_by_era() {
    // Objects of 16 units.
    for (era, first) in each([(OLD, [16, 16]), (NEW, [32, 2048])]) {
        let heap = small(era);
        let cache = sized(&heap, "scenario", 32);
        let objects = take(cache, 128);
        let at = page(&heap, objects[0]);
        give(cache, &objects[1..2]);
        assert_eq!(units(&heap, at, 16), [16, 2048]);
        give(cache, &objects[0..1]);
        assert_eq!(units(&heap, at, 0), first);
        // Behind the first free block both eras merge on both sides.
        give(cache, &objects[4..5]);
        give(cache, &objects[6..7]);
        give(cache, &objects[5..6]);
        assert_eq!(units(&heap, at, 4 * 16), [3 * 16, 2048]);
        give(cache, &objects[3..4]);
        assert_eq!(units(&heap, at, 3 * 16), [4 * 16, 2048]);
        // Between two: into both, but in 2.6.24 the first two were never one.
        give(cache, &objects[2..3]);
        if era == OLD {
            assert_eq!(units(&heap, at, 0), [16, 16]);
            assert_eq!(units(&heap, at, 16), [6 * 16, 2048]);
        } else {
            assert_eq!(units(&heap, at, 0), [7 * 16, 2048]);
        }
        consistent(&heap);
        // So they do not serve a block of seven.
        let seven = sized(&heap, "seven", 7 * 32);
        let found = take(seven, 1)[0];
        assert_eq!(page(&heap, found) == at, era == NEW);
    }
}

/// Facts 9.3: a page that was full joins the front of the list of the block that is freed.
#[test]
fn a_full_page_comes_back_to_the_front() {
    let heap = small(NEW);
    let cache = sized(&heap, "scenario", 128);
    let objects = take(cache, 64);
    give(cache, &objects[40..41]);
    assert_eq!(take(cache, 1)[0], objects[40]);
    give(cache, &objects[40..41]);
    give(cache, &objects[3..4]);
    assert_eq!(take(cache, 1)[0], objects[3], "it is in front now");
    assert_eq!(take(cache, 1)[0], objects[40]);
    consistent(&heap);
}

/// A unit alone holds the negated offset of the next free block.
#[test]
fn a_single_unit_is_a_free_block() {
    let heap = small(NEW);
    let cache = sized(&heap, "scenario", 6);
    let objects = take(cache, 3);
    assert_eq!(
        objects.iter().map(|&o| offset(o)).collect::<Vec<_>>(),
        [0, 8, 16]
    );
    let at = page(&heap, objects[0]);
    assert_eq!(units(&heap, at, 3)[0], -7);
    assert_eq!(units(&heap, at, 7)[0], -11);
    give(cache, &objects[1..2]);
    assert_eq!(units(&heap, at, 3), [5, 11], "merged on both sides");
    consistent(&heap);
}

/// 64 KiB pages have units of 4 bytes.
#[test]
fn units_of_large_pages() {
    let heap = boot(Setup {
        page_shift: 16,
        ..Setup::default()
    });
    let object = kmalloc(&heap, 100);
    let first = heap.pages().address(page(&heap, object)).expect("a page");
    let block: [i32; 2] = read(behind(first, 4 * 27));
    assert_eq!(block, [16384 - 27, 16384]);
    let run = kmalloc(&heap, 65528);
    assert_eq!(heap.pages().slab_pages(), 2);
    let block = kmalloc(&heap, 65527);
    assert_eq!(heap.pages().slab_pages(), 3);
    consistent(&heap);
    for object in [object, run, block] {
        kfree(&heap, object);
    }
    assert_eq!(heap.pages().slab_pages(), 0);
}

/// The search skips pages of other nodes only if a node is asked for.
#[test]
fn a_wanted_node_is_searched_for() {
    let heap = boot(Setup::DEFAULT.on(2, 2));
    let cache = sized(&heap, "scenario", 64);
    let first = take(cache, 1)[0];
    on(&heap, 1);
    assert_eq!(
        page(&heap, take(cache, 1)[0]),
        page(&heap, first),
        "any node"
    );
    let remote = cache.alloc_node(NodeId(1)).expect("memory");
    assert_eq!(heap.pages().node_of(page(&heap, remote)), Some(NodeId(1)));
    let again = cache.alloc_node(NodeId(1)).expect("memory");
    assert_eq!(page(&heap, again), page(&heap, remote));
    let local = cache.alloc_node(NodeId(0)).expect("memory");
    assert_eq!(page(&heap, local), page(&heap, first));
    consistent(&heap);
}

/// No SLOB kernel had debugging: a request for it is an error, and the heap works without.
#[test]
fn debugging_is_refused() {
    for era in [OLD, NEW] {
        let heap = small(era);
        let none = GeometryError::NoDebugging { design: "slob" };
        let setting = SlubDebug::parse("F", era).expect("a letter");
        assert_eq!(heap.set_slub_debug(Some(setting)), Err(none));
        assert_eq!(heap.set_slub_debug(None), Ok(()));
        let spec = CacheSpec {
            flags: CacheFlags::RED_ZONE,
            ..CacheSpec::new("watched", 100)
        };
        let refused = heap.create_cache(&spec).map(|_| ());
        assert_eq!(refused, Err(CreateError::Geometry(none)));
        let cache = sized(&heap, "plain", 100);
        give(cache, &take(cache, 2));
        consistent(&heap);
    }
}
