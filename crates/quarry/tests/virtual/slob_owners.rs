//! Owners of SLOB's objects, which the kernel's SLOB does not record.

use crate::model::slob_heap::{
    NEW, OLD, behind, consistent, kfree, kmalloc, page, read, small, write,
};
use crate::prelude::*;

/// Objects of a page or more are pages of their own, which their cache counts.
#[test]
fn large_objects_are_runs_of_pages() {
    let heap = small(NEW);
    let cache = sized(&heap, "scenario", 5000);
    let objects = take(cache, 3);
    let usage = cache.usage();
    assert_eq!((usage.slabs, usage.pages, usage.num_objs), (3, 6, 3));
    assert_eq!(heap.pages().slab_pages(), 6);
    let inside = behind(objects[0], 4096);
    assert_eq!(free(cache, inside), Err(FreeError::NotAnObject));
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
        flags: CacheFlags::RCU,
        ..CacheSpec::new("rcu", 4090)
    };
    let rcu = heap.create_cache(&spec).expect("a cache");
    let object = take(rcu, 1);
    assert_eq!(rcu.usage().pages, 2);
    give(rcu, &object);
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

/// Each mistaken free of a block gets its own error.
#[test]
fn the_table_of_owners_knows_mistakes() {
    for era in each([OLD, NEW]) {
        let heap = small(era);
        let (cache, other) = (sized(&heap, "one", 100), sized(&heap, "two", 100));
        let objects = take(cache, 4);
        let stranger = take(other, 1)[0];
        let block = kmalloc(&heap, 100);
        assert_eq!(page(&heap, stranger), page(&heap, objects[0]));
        give(cache, &objects[1..2]);
        for (object, bytes, error) in each([
            (stranger, 0, FreeError::WrongCache),
            (block, 0, FreeError::WrongCache),
            (objects[0], 8, FreeError::NotAnObject),
            (objects[0], 3, FreeError::NotAnObject),
            (objects[0], 96, FreeError::NotAnObject),
            (objects[1], 0, FreeError::DoubleFree),
            (objects[1], 3, FreeError::NotAnObject),
        ]) {
            let freed = free(cache, behind(object, bytes));
            assert_eq!(freed, Err(error));
        }
        // SAFETY: a cache's object is none of kmalloc's, so this is refused.
        let freed = unsafe { heap.kfree(stranger) };
        assert_eq!(freed, Err(FreeError::WrongCache));
        let inside = behind(block, 50);
        // SAFETY: the handle is only asked for its name.
        let home = unsafe { heap.cache_of(inside) }.map(|cache| cache.name().to_owned());
        assert_eq!(home.as_deref(), Some("kmalloc"));
        consistent(&heap);
        kfree(&heap, block);
        // SAFETY: the block is free already, so this is refused.
        let again = unsafe { heap.kfree(block) };
        assert_eq!(again, Err(FreeError::DoubleFree));
        // SAFETY: the test uses no copy of the handle.
        let refused = unsafe { other.destroy() }.expect_err("an object is live");
        assert!(refused.to_string().contains(&format!("{stranger:p}")));
        give(other, &[stranger]);
        give(cache, &[objects[0], objects[2], objects[3]]);
        assert_eq!(heap.pages().slab_pages(), 0);
        destroy(cache);
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
        result.map_err(|error| error.found().expect("at rest").what)
    };
    let header = behind(objects[1], -8);
    for (value, what) in each([
        (0u32, "header overwritten at byte"),
        (9000, "header overwritten at byte"),
        (400, "start of a block"),
    ]) {
        write(header, value);
        assert_eq!(check(), Err(what));
    }
    write(header, 9000u32);
    // SAFETY: the block's header makes no sense, so the free is refused.
    let freed = unsafe { heap.kfree(objects[1]) };
    assert_eq!(freed, Err(FreeError::NotAnObject));
    // A size of more than is in use would give the page back with its other objects.
    write(header, 3000u32);
    // SAFETY: as above.
    let freed = unsafe { heap.kfree(objects[1]) };
    assert_eq!(freed, Err(FreeError::DoubleFree));
    assert_eq!(heap.pages().slab_pages(), 1);
    write(header, 500u32);
    assert_eq!(check(), Ok(()));
    kfree(&heap, objects[1]);
    // It was merged with the gaps of 4 bytes on both sides.
    let free_block = behind(header, -4);
    let good: [i16; 2] = read(free_block);
    assert_eq!(good[0], 254 + 4);
    for value in each([
        [0i16, 0],
        [1, 1],
        [258, 100],
        [258, 3000],
        [258, -3],
        [-1, 0],
    ]) {
        write(free_block, value);
        assert!(check().is_err());
        // Allocation passes the page by.
        let elsewhere = kmalloc(&heap, 480);
        assert_ne!(page(&heap, elsewhere), page(&heap, objects[0]));
        kfree(&heap, elsewhere);
    }
    write(free_block, good);
    assert_eq!(check(), Ok(()));
}

/// The table of owners has numbers for 16383 caches, and gives them out again.
#[test]
fn caches_have_numbers() {
    let heap = small(NEW);
    let spec = CacheSpec::new("one of many", 40);
    let caches: Vec<_> = (0..16383)
        .map(|_| heap.create_cache(&spec).expect("a number"))
        .collect();
    let refused = heap.create_cache(&spec).map(|_| ()).expect_err("no number");
    assert_eq!(refused, CreateError::NoRoom);
    let object = take(caches[16382], 1);
    // SAFETY: the handle is only asked for its name.
    let home = unsafe { heap.cache_of(object[0]) }.expect("an object");
    assert!(std::ptr::eq(home.head(), caches[16382].head()));
    destroy(caches[5000]);
    let again = heap.create_cache(&spec).expect("the number of the other");
    let more = take(again, 1);
    // SAFETY: as above.
    let home = unsafe { heap.cache_of(more[0]) }.expect("an object");
    assert!(std::ptr::eq(home.head(), again.head()));
    give(again, &more);
    give(caches[16382], &object);
    assert_eq!(heap.pages().slab_pages(), 0);
}
