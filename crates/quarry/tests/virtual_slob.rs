//! SLOB's worked sequences: units, first fit, rotation, merging, headers.

#[allow(dead_code, reason = "each test file uses its part of the model")]
mod model;

use model::scenario::{Object, VirtualHeap, give, locks_taken, on, sized, stat, take};
use model::setup::Setup;
use quarry_core::design::{CacheSpec, FreeError};
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;
use quarry_core::heap::CreateError;
use quarry_core::machine::{Access, Line, LockClass, NodeId};
use quarry_core::page::Pfn;
use quarry_core::slob::Slob;
use quarry_core::stats::Stat;

const OLD: Era = Era::V2_6_24;
const NEW: Era = Era::V6_1;

fn small(era: Era) -> VirtualHeap<Slob> {
    model::scenario::small(era, 1)
}

fn kmalloc(heap: &VirtualHeap<Slob>, bytes: usize) -> Object {
    heap.kmalloc(bytes, None).expect("memory")
}

fn kfree(heap: &VirtualHeap<Slob>, object: Object) {
    // SAFETY: the tests free what they allocated, once, and do not use it any more.
    unsafe { heap.kfree(object) }.expect("a live kmalloc");
}

fn page(heap: &VirtualHeap<Slob>, object: Object) -> Pfn {
    heap.pages().pfn_of(object).expect("a page")
}

/// Bytes from the start of the object's page.
fn offset(object: Object) -> usize {
    object.addr().get() % 4096
}

/// A free block's first two units.
fn units(heap: &VirtualHeap<Slob>, page: Pfn, at: usize) -> [i16; 2] {
    let first = heap.pages().address(page).expect("an address");
    // SAFETY: two units inside the page, which nobody writes meanwhile.
    unsafe { first.cast::<i16>().add(at).cast::<[i16; 2]>().read() }
}

fn consistent(heap: &VirtualHeap<Slob>) {
    heap.for_each_cache(|cache| assert_eq!(cache.check_consistency(), Ok(()), "{}", cache.name()));
}

/// Facts 4: kmalloc(100) on an empty allocator takes 54 units; the rest is one free block.
#[test]
fn the_first_kmalloc_takes_54_units() {
    for era in [OLD, NEW] {
        let heap = small(era);
        let object = kmalloc(&heap, 100);
        assert_eq!(offset(object), 8, "behind the header");
        // SAFETY: the header's first four bytes.
        let header = unsafe { object.byte_sub(8).cast::<u32>().read() };
        assert_eq!(header, 100);
        // Sizes and offsets in units: 2048 - 54 are free, and the next block is the page's end.
        assert_eq!(units(&heap, page(&heap, object), 54), [1994, 2048]);
        assert_eq!(heap.pages().slab_pages(), 1);
        consistent(&heap);
        kfree(&heap, object);
        assert_eq!(heap.pages().slab_pages(), 0, "given back at once");
    }
}

/// Facts 2.4 [6.1]: kmalloc(100) is a block every 112 bytes, 36 in a page.
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

/// Facts 2.4: objects of a power of two per page, alone in the allocator.
#[test]
fn powers_of_two_in_a_page_by_era() {
    for (bytes, old, new) in [(64, 56, 32), (256, 15, 8), (1024, 3, 2), (2048, 1, 1)] {
        for (era, per_page) in [(OLD, old), (NEW, new)] {
            let heap = small(era);
            let first = kmalloc(&heap, bytes);
            let mut count = 1;
            while page(&heap, kmalloc(&heap, bytes)) == page(&heap, first) {
                count += 1;
            }
            assert_eq!(count, per_page, "{bytes} bytes in {era}");
            let aligned = if era == OLD { 8 } else { bytes };
            assert!(first.addr().get().is_multiple_of(aligned));
            consistent(&heap);
        }
    }
}

/// Facts 4 and 2.4: kmalloc(4087) is a block of a whole page, kmalloc(4088) a page.
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
        // The first takes no room from anyone: its page is full.
        let other = kmalloc(&heap, 8);
        assert_ne!(page(&heap, other), page(&heap, block));
        for object in [block, run, large, other] {
            kfree(&heap, object);
        }
        assert_eq!(heap.pages().slab_pages(), 0);
    }
}

/// Facts 2.1: three lists by block size, header included; one in 2.6.24.
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

/// Facts 2.2: the list is rotated to the page that served, unless it became full.
#[test]
fn the_next_search_begins_at_the_last_page() {
    for era in [OLD, NEW] {
        let heap = small(era);
        let cache = sized(&heap, "scenario", 512);
        // Three full pages; the free of one object each puts them on the list, the last in front.
        let objects = take(cache, 24);
        for number in [0, 1, 8, 9, 16, 17] {
            give(cache, &objects[number..=number]);
        }
        let on_page = |number: usize| page(&heap, objects[number]);
        let third = take(cache, 1)[0];
        assert_eq!(third, objects[16], "{era}: first fit in the front page");
        let fourth = take(cache, 1)[0];
        assert_eq!(fourth, objects[17]);
        // Now that page has left; the front is the second.
        let fifth = take(cache, 1)[0];
        assert_eq!(fifth, objects[8], "{era}");
        // One that fits only on the page behind: the front page has but 512 bytes left.
        let large = sized(&heap, "large", 1000);
        if era == OLD {
            let found = take(large, 1)[0];
            assert_eq!((page(&heap, found), offset(found)), (on_page(0), 0));
            // The list begins there now: 24 bytes are left, so the search passes to the next.
            let next = sized(&heap, "small", 24);
            assert_eq!(page(&heap, take(next, 1)[0]), on_page(0));
            assert_eq!(take(cache, 1)[0], objects[9]);
        }
        consistent(&heap);
    }
}

/// Facts 4 and 2.3: a block in front of the first free block is merged with it in 6.1 only.
#[test]
fn merging_in_front_of_the_first_free_block_by_era() {
    // Objects of 16 units.
    for (era, first) in [(OLD, [16, 16]), (NEW, [32, 2048])] {
        let heap = small(era);
        let cache = sized(&heap, "scenario", 32);
        let objects = take(cache, 128);
        let at = page(&heap, objects[0]);
        give(cache, &objects[1..2]);
        assert_eq!(units(&heap, at, 16), [16, 2048]);
        give(cache, &objects[0..1]);
        assert_eq!(units(&heap, at, 0), first, "{era}");
        // Behind the first free block both eras merge on both sides.
        give(cache, &objects[4..5]);
        give(cache, &objects[6..7]);
        give(cache, &objects[5..6]);
        assert_eq!(units(&heap, at, 4 * 16), [3 * 16, 2048], "{era}");
        give(cache, &objects[3..4]);
        assert_eq!(units(&heap, at, 3 * 16), [4 * 16, 2048], "{era}");
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
        assert_eq!(page(&heap, found) == at, era == NEW, "{era}");
    }
}

/// Facts 2.3: a page that was full joins the front of the list of the block that is freed.
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
    let heap: VirtualHeap<Slob> = model::scenario::boot(
        NEW,
        Setup {
            page_shift: 16,
            ..Setup::default()
        },
    );
    let object = kmalloc(&heap, 100);
    let first = heap.pages().address(page(&heap, object)).expect("a page");
    // SAFETY: inside the page, which nobody writes meanwhile.
    let block = unsafe { first.cast::<i32>().add(27).cast::<[i32; 2]>().read() };
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

/// Objects of a page or more are pages of their own, which their cache counts.
#[test]
fn large_objects_are_runs_of_pages() {
    let heap = small(NEW);
    let cache = sized(&heap, "scenario", 5000);
    let objects = take(cache, 3);
    let usage = cache.usage();
    assert_eq!((usage.slabs, usage.pages, usage.num_objs), (3, 6, 3));
    assert_eq!(heap.pages().slab_pages(), 6);
    // SAFETY: only the address is used; the run has so many bytes.
    let inside = unsafe { objects[0].byte_add(4096) };
    // SAFETY: it is no object, so the free is refused.
    let freed = unsafe { cache.free(inside) };
    assert_eq!(freed, Err(FreeError::NotAnObject));
    // SAFETY: the object is another cache's business to kmalloc, so this is refused.
    let freed = unsafe { heap.kfree(objects[0]) };
    assert_eq!(freed, Err(FreeError::WrongCache));
    give(cache, &objects);
    assert_eq!(
        (stat(cache, Stat::AllocSlab), stat(cache, Stat::FreeSlab)),
        (3, 3)
    );
    assert_eq!(heap.pages().slab_pages(), 0);
    // A footer for RCU lifts this one over the edge.
    let spec = CacheSpec {
        name: "rcu",
        object_size: 4090,
        align: 0,
        flags: CacheFlags::RCU,
    };
    let rcu = heap.create_cache(&spec).expect("a cache");
    let object = take(rcu, 1);
    assert_eq!(rcu.usage().pages, 2);
    give(rcu, &object);
}

/// The search skips pages of other nodes only if a node is asked for.
#[test]
fn a_wanted_node_is_searched_for() {
    let heap: VirtualHeap<Slob> = model::scenario::boot(
        NEW,
        Setup {
            cpus: 2,
            nodes: 2,
            ..Setup::default()
        },
    );
    let cache = sized(&heap, "scenario", 64);
    let first = take(cache, 1)[0];
    on(&heap, 1);
    assert_eq!(
        page(&heap, take(cache, 1)[0]),
        page(&heap, first),
        "any node"
    );
    let remote = cache.alloc_node(NodeId(1)).expect("memory");
    assert_eq!(heap.pages().node_of(page(&heap, remote)), NodeId(1));
    let again = cache.alloc_node(NodeId(1)).expect("memory");
    assert_eq!(page(&heap, again), page(&heap, remote));
    let local = cache.alloc_node(NodeId(0)).expect("memory");
    assert_eq!(page(&heap, local), page(&heap, first));
    consistent(&heap);
}

/// One lock for every call, two when a page is needed, none for runs of pages.
#[test]
fn there_is_one_lock() {
    let heap = small(NEW);
    let cache = sized(&heap, "scenario", 1000);
    let run = sized(&heap, "run", 4096);
    let before = locks_taken(&heap, LockClass::Slob);
    let objects = take(cache, 4);
    assert_eq!(locks_taken(&heap, LockClass::Slob) - before, 5);
    give(cache, &objects);
    assert_eq!(locks_taken(&heap, LockClass::Slob) - before, 9);
    let object = take(run, 1);
    give(run, &object);
    assert_eq!(locks_taken(&heap, LockClass::Slob) - before, 9);
    let counters = heap.machine().counters();
    assert!(
        counters.touches(Line::Object, Access::Write) > 0,
        "links lie in free blocks"
    );
    assert_eq!(counters.locks(LockClass::NodeList), 0);
}

/// Every mistaken free of a block is told apart.
#[test]
fn the_table_of_owners_knows_mistakes() {
    for era in [OLD, NEW] {
        let heap = small(era);
        let (cache, other) = (sized(&heap, "one", 100), sized(&heap, "two", 100));
        let objects = take(cache, 4);
        let stranger = take(other, 1)[0];
        let block = kmalloc(&heap, 100);
        let free = |object: Object, bytes: usize| {
            // SAFETY: only the address is used; it stays inside the page.
            let object = unsafe { object.byte_add(bytes) };
            // SAFETY: no object of this cache, so the free is refused.
            unsafe { cache.free(object) }
        };
        assert_eq!(page(&heap, stranger), page(&heap, objects[0]));
        give(cache, &objects[1..2]);
        for (object, bytes, error) in [
            (stranger, 0, FreeError::WrongCache),
            (block, 0, FreeError::WrongCache),
            (objects[0], 8, FreeError::NotAnObject),
            (objects[0], 3, FreeError::NotAnObject),
            (objects[0], 96, FreeError::NotAnObject),
            (objects[1], 0, FreeError::DoubleFree),
            (objects[1], 3, FreeError::NotAnObject),
        ] {
            assert_eq!(free(object, bytes), Err(error), "{era}, {bytes}");
        }
        // SAFETY: a cache's object is none of kmalloc's, so this is refused.
        let freed = unsafe { heap.kfree(stranger) };
        assert_eq!(freed, Err(FreeError::WrongCache), "{era}");
        // SAFETY: the address inside is only looked at.
        let inside = unsafe { block.byte_add(50) };
        // SAFETY: the handle is only asked for its name.
        let home = unsafe { heap.cache_of(inside) }.map(|cache| cache.name().to_owned());
        assert_eq!(home.as_deref(), Some("kmalloc"));
        consistent(&heap);
        kfree(&heap, block);
        // SAFETY: the block is free already, so this is refused.
        let again = unsafe { heap.kfree(block) };
        assert_eq!(again, Err(FreeError::DoubleFree), "{era}");
        // SAFETY: the test uses no copy of the handle.
        let refused = unsafe { other.destroy() }.expect_err("an object is live");
        assert!(refused.to_string().contains(&format!("{stranger:p}")));
        give(other, &[stranger]);
        give(cache, &[objects[0], objects[2], objects[3]]);
        assert_eq!(heap.pages().slab_pages(), 0);
        // SAFETY: the test uses no copy of the handle afterwards.
        unsafe { cache.destroy() }.expect("nothing is live");
    }
}

/// An overwritten header, and an overwritten free block, are found; no walk leaves its page.
#[test]
fn damage_is_found() {
    let heap = small(NEW);
    let objects: Vec<Object> = (0..4).map(|_| kmalloc(&heap, 500)).collect();
    let check = || {
        let mut result = Ok(());
        heap.for_each_cache(|cache| result = cache.check_consistency());
        result.map_err(|error| error.what)
    };
    // SAFETY: the header in front of a kmalloc; the allocator does not run meanwhile.
    let header = unsafe { objects[1].byte_sub(8) }.cast::<u32>();
    for (value, what) in [
        (0, "header overwritten at byte"),
        (9000, "header overwritten at byte"),
        (400, "start of a block"),
    ] {
        // SAFETY: as above.
        unsafe { header.write(value) };
        assert_eq!(check(), Err(what), "{value}");
    }
    // SAFETY: as above.
    unsafe { header.write(9000) };
    // SAFETY: the block's header makes no sense, so the free is refused.
    let freed = unsafe { heap.kfree(objects[1]) };
    assert_eq!(freed, Err(FreeError::NotAnObject));
    // SAFETY: as above.
    unsafe { header.write(500) };
    assert_eq!(check(), Ok(()));
    kfree(&heap, objects[1]);
    // It was merged with the gaps of 4 bytes on both sides.
    // SAFETY: as above; it is the free block's now.
    let free_block = unsafe { header.byte_sub(4) }.cast::<[i16; 2]>();
    // SAFETY: as above.
    let good = unsafe { free_block.read() };
    assert_eq!(good[0], 254 + 4);
    for value in [[0, 0], [1, 1], [258, 100], [258, 3000], [258, -3], [-1, 0]] {
        // SAFETY: as above.
        unsafe { free_block.write(value) };
        assert!(check().is_err(), "{value:?}");
        // Allocation passes the page by.
        let elsewhere = kmalloc(&heap, 480);
        assert_ne!(page(&heap, elsewhere), page(&heap, objects[0]), "{value:?}");
        kfree(&heap, elsewhere);
    }
    // SAFETY: as above.
    unsafe { free_block.write(good) };
    assert_eq!(check(), Ok(()));
}

/// The table of owners has numbers for 16383 caches, and gives them out again.
#[test]
fn caches_have_numbers() {
    let heap = small(NEW);
    let spec = CacheSpec {
        name: "one of many",
        object_size: 40,
        align: 0,
        flags: CacheFlags::NONE,
    };
    let caches: Vec<_> = (0..16383)
        .map(|_| heap.create_cache(&spec).expect("a number"))
        .collect();
    let refused = heap.create_cache(&spec).map(|_| ()).expect_err("no number");
    assert_eq!(refused, CreateError::NoRoom);
    let object = take(caches[16382], 1);
    // SAFETY: the handle is only asked for its name.
    let home = unsafe { heap.cache_of(object[0]) }.expect("an object");
    assert!(std::ptr::eq(home.head(), caches[16382].head()));
    // SAFETY: the test uses no copy of the handle afterwards.
    unsafe { caches[5000].destroy() }.expect("nothing is live");
    let again = heap.create_cache(&spec).expect("the number of the other");
    let more = take(again, 1);
    // SAFETY: as above.
    let home = unsafe { heap.cache_of(more[0]) }.expect("an object");
    assert!(std::ptr::eq(home.head(), again.head()));
    give(again, &more);
    give(caches[16382], &object);
    assert_eq!(heap.pages().slab_pages(), 0);
}
