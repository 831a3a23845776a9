//! SLAB's worked sequences: arrays, lists, release of slabs, colours, indices.

use crate::model::slab_class::{ERAS, free_objects};
use crate::prelude::*;

/// Number of an object in its slab of order 0, and bytes in front of the slab's first object.
fn place(
    heap: &VirtualHeap<SlabCache>,
    cache: VirtualCache<'_, SlabCache>,
    object: Object,
) -> (usize, usize) {
    let slab = heap
        .pages()
        .pfn_of(object)
        .and_then(|pfn| heap.pages().address(pfn));
    let offset = object.addr().get() - slab.expect("a page").addr().get();
    let size = cache.head().geometry().layout.size as usize;
    (offset / size, offset % size)
}

/// Facts 8.8, 3.4: a refill pushes in ascending order, so a fresh slab is handed out descending
/// within a batch, which is 16 for an array that was not touched.
#[test]
fn a_fresh_slab_is_handed_out_in_descending_order() {
    for era in each(ERAS) {
        let heap = small::<SlabCache>(era, 1);
        let cache = sized(&heap, "scenario", 64);
        let numbers = |objects: Vec<Object>| -> Vec<usize> {
            objects
                .iter()
                .map(|&object| {
                    let first = era == Era::V2_6_24;
                    let (number, _) = place(&heap, cache, object);
                    // The descriptor and 59 indices of four bytes take 288 bytes.
                    if first { number - 4 } else { number }
                })
                .collect()
        };
        let per_slab = cache.head().geometry().objects as usize;
        assert_eq!(per_slab, if era == Era::V6_1 { 64 } else { 59 });
        assert_eq!(numbers(take(cache, 16)), (0..16).rev().collect::<Vec<_>>());
        assert_eq!(stat(cache, Stat::AllocSlowpath), 1);
        // Touched now: a whole batch, but no more than the partial slab has left.
        let rest = numbers(take(cache, per_slab - 16));
        let expected = (16..per_slab).rev();
        assert!(rest.iter().copied().eq(expected), "{rest:?}");
        assert_eq!(stat(cache, Stat::AllocSlowpath), 2);
        assert_eq!(stat(cache, Stat::AllocFromPartial), 1);
        // The next slab brings a batch of 60, or all it has.
        let next = numbers(take(cache, 1));
        assert_eq!(next, [60.min(per_slab) - 1]);
        assert_eq!(stat(cache, Stat::AllocSlab), 2);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 8.9, 3.5: a full array moves its oldest batch to the shared array, from which another
/// CPU takes the newest.
#[test]
fn the_oldest_batch_goes_to_the_shared_array() {
    for era in each(ERAS) {
        let heap = small::<SlabCache>(era, 2);
        let cache = sized(&heap, "scenario", 256);
        let objects = take(cache, 240);
        cache.flush();
        let in_slabs = free_objects(cache);
        give(cache, &objects[..120]);
        assert_eq!(
            (stat(cache, Stat::FreeSlowpath), cache.usage().shared_avail),
            (0, 0)
        );
        give(cache, &objects[120..121]);
        assert_eq!(stat(cache, Stat::FreeSlowpath), 1);
        assert_eq!(cache.usage().shared_avail, 60);
        assert_eq!(free_objects(cache), in_slabs, "what is in arrays is active");
        // Newest first from the own array.
        assert_eq!(take(cache, 2), [objects[120], objects[119]]);
        on(&heap, 1);
        let partial = stat(cache, Stat::AllocFromPartial);
        let other: Vec<Object> = objects[44..60].iter().rev().copied().collect();
        assert_eq!(
            take(cache, 16),
            other,
            "16 for an untouched array, the newest"
        );
        assert_eq!(cache.usage().shared_avail, 44);
        assert_eq!(
            take(cache, 1),
            [objects[43]],
            "touched, but there are only 44"
        );
        assert_eq!(cache.usage().shared_avail, 0);
        assert_eq!(
            stat(cache, Stat::AllocFromPartial),
            partial,
            "no slab was looked at"
        );
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 8.9: a shared array with little room takes little, a full one nothing.
#[test]
fn a_shared_array_with_little_room_takes_little() {
    for era in each(ERAS) {
        let heap = small::<SlabCache>(era, 2);
        let cache = sized(&heap, "scenario", 256);
        assert!(cache.set_attribute("batchcount", 50));
        assert!(cache.set_attribute("sharedfactor", 1));
        let objects = take(cache, 400);
        cache.flush();
        let in_slabs = free_objects(cache);
        give(cache, &objects[..121]);
        assert_eq!(cache.usage().shared_avail, 50, "full at once");
        give(cache, &objects[121..171]);
        assert_eq!(free_objects(cache) - in_slabs, 50, "a batch to the slabs");
        on(&heap, 1);
        take(cache, 1);
        assert_eq!(cache.usage().shared_avail, 34);
        on(&heap, 0);
        give(cache, &objects[171..220]);
        let slow = stat(cache, Stat::FreeSlowpath);
        give(cache, &objects[220..221]);
        assert_eq!(cache.usage().shared_avail, 50);
        give(cache, &objects[221..236]);
        assert_eq!(stat(cache, Stat::FreeSlowpath), slow + 1, "16 fit");
        give(cache, &objects[236..237]);
        assert_eq!(stat(cache, Stat::FreeSlowpath), slow + 2);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// True for each of the slabs that the cache still has, by the first of their objects.
fn kept(heap: &VirtualHeap<SlabCache>, slabs: &[&[Object]]) -> Vec<bool> {
    slabs
        .iter()
        // SAFETY: the handle is not used.
        .map(|slab| unsafe { heap.cache_of(slab[0]) }.is_some())
        .collect()
}

/// Facts 8.9, 3.5: which slabs go when more than `free_limit` objects are free. 2.6.24 lets go of
/// the one just emptied, 6.1 of those that have been empty for longest.
#[test]
fn a_node_keeps_free_limit_objects() {
    for (era, per_slab) in each([(Era::V2_6_24, 15), (Era::V6_1, 16)]) {
        let heap = small::<SlabCache>(era, 1);
        let cache = sized(&heap, "scenario", 256);
        let free_limit = 2 * 60 + per_slab as u64;
        let mut objects = take(cache, 20 * per_slab);
        assert_eq!(cache.usage().slabs, 20);
        objects.sort_unstable();
        let slabs: Vec<&[Object]> = objects.chunks(per_slab).collect();
        // Slab by slab, so that the slabs become empty in the order of their addresses.
        give(cache, &objects[..180]);
        assert_eq!((free_objects(cache), cache.usage().slabs), (60, 20));
        give(cache, &objects[180..240]);
        assert_eq!((free_objects(cache), cache.usage().slabs), (120, 20));
        give(cache, &objects[240..300]);
        assert!(free_objects(cache) <= free_limit);
        let gone: Vec<usize> = kept(&heap, &slabs)
            .iter()
            .enumerate()
            .filter_map(|(at, kept)| (!kept).then_some(at))
            .collect();
        match era {
            // Objects 120 to 179 go home: slabs 8, 9, 10, 11 become empty. With 8 slabs of 15 free
            // already, the ninth makes it 135 and stays, the later ones go.
            Era::V2_6_24 => assert_eq!((gone, free_objects(cache)), (vec![9, 10, 11], 135)),
            // 180 objects are free, in slabs 0 to 10 and a part of 11: three go, the first.
            _ => assert_eq!((gone, free_objects(cache)), (vec![0, 1, 2], 132)),
        }
        give(cache, &objects[300..]);
        assert!(free_objects(cache) <= free_limit);
        assert_eq!(cache.check_consistency(), Ok(()));
        cache.shrink();
        assert_eq!(cache.usage().slabs, 0);
    }
}

/// Facts 8.7: a cache from before the secondary CPUs ran does not know of one CPU, until it is
/// tuned. Those of kmalloc are, and any that says so.
#[test]
fn early_caches_have_a_lower_limit() {
    for (era, per_slab) in each([(Era::V2_6_24, 15), (Era::V6_1, 16)]) {
        let heap = small::<SlabCache>(era, 4);
        let caches = [
            (heap.kmalloc_cache(256).expect("a class"), 4),
            (cache_of(&heap, "dentry", 256, CacheFlags::EARLY), 4),
            (sized(&heap, "late", 256), 5),
        ];
        for (cache, batches) in caches {
            for (tuned, batches) in [(false, batches), (true, 5)] {
                if tuned {
                    assert!(cache.set_attribute("sharedfactor", 0));
                }
                give(cache, &take(cache, 2000));
                cache.flush();
                let limit = batches * 60 + per_slab;
                assert_eq!(
                    free_objects(cache),
                    limit - limit % per_slab,
                    "{}, {tuned}",
                    cache.head().name()
                );
            }
        }
    }
}

/// Facts 8.5: a node's first slab has colour 1 in 6.1, and the last colour is followed by 0.
#[test]
fn slabs_take_turns_with_colours() {
    let aligned = CacheFlags::HWCACHE_ALIGN;
    let kept = CacheFlags::RECLAIM | CacheFlags::CTOR;
    for (era, size, flags, in_front, colours) in each([
        (Era::V2_6_24, 232, aligned, 128, [0, 1, 0, 1]),
        (Era::V6_1, 648, kept, 0, [1, 2, 0, 1]),
    ]) {
        let heap = small::<SlabCache>(era, 1);
        let cache = cache_of(&heap, "scenario", size, flags);
        let geometry = *cache.head().geometry();
        assert_eq!(geometry.order, 0);
        let wanted = if era == Era::V6_1 { 3 } else { 2 };
        assert_eq!(
            (geometry.slab.colours, geometry.slab.colour_off),
            (wanted, 64)
        );
        let objects = take(cache, 4 * geometry.objects as usize);
        let pages: Vec<_> = objects.iter().map(|&o| heap.pages().pfn_of(o)).collect();
        let mut seen = Vec::new();
        for (object, page) in objects.iter().zip(&pages) {
            let new = seen.iter().all(|(other, _)| other != page);
            if new {
                seen.push((*page, place(&heap, cache, *object).1));
            }
        }
        let found: Vec<usize> = seen.iter().map(|(_, offset)| *offset).collect();
        let expected = colours.map(|colour| in_front + colour * 64);
        assert_eq!(found, expected);
    }
}

/// Facts 8.3: the indices really are where the kernel has them.
#[test]
fn indices_are_in_the_slab() {
    let heap = small::<SlabCache>(Era::V6_1, 1);
    let cache = sized(&heap, "scenario", 64);
    assert_eq!(
        cache.head().geometry().slab.freelist,
        FreelistPlace::InObject
    );
    let objects = take(cache, 64);
    let bytes = |object: Object| -> [u8; 64] {
        // SAFETY: the object has 64 bytes that no code writes meanwhile.
        unsafe { object.cast::<[u8; 64]>().read() }
    };
    // Handed out were 15 to 0 and 63 to 16; the last object held the indices until it left.
    let last = objects[16];
    assert_eq!(place(&heap, cache, last).0, 63);
    let identity: Vec<u8> = (0..64).collect();
    assert_eq!(bytes(last)[..], identity[..]);
    // The first to come back holds them now, its own number last.
    give(cache, &objects[10..12]);
    cache.flush();
    let (home, next) = (
        place(&heap, cache, objects[10]).0,
        place(&heap, cache, objects[11]).0,
    );
    assert_eq!(bytes(objects[10])[62..], [next as u8, home as u8]);

    let behind = sized(&heap, "on-slab", 32);
    let first = take(behind, 16)[15];
    // SAFETY: inside the slab: 124 objects of 32 bytes, then the indices.
    let at = unsafe { first.byte_add(4096 - 124) };
    // SAFETY: as above.
    let indices = unsafe { at.cast::<[u8; 124]>().read() };
    assert!(indices.iter().copied().eq(0..124));
}

/// Facts 8.3, 3.2: indices off the slab, and shared arrays, are objects of general caches.
#[test]
fn general_caches_hold_what_the_cache_needs() {
    for (era, size, flags, off_slab) in each([
        (Era::V2_6_24, 512, CacheFlags::NONE, 80),
        (Era::V6_1, 256, CacheFlags::RCU, 16),
    ]) {
        let heap = small::<SlabCache>(era, 2);
        let cache = cache_of(&heap, "scenario", size, flags);
        let geometry = *cache.head().geometry();
        assert_eq!(geometry.slab.freelist, FreelistPlace::OffSlab);
        assert_eq!(geometry.slab.freelist_bytes, off_slab);
        let live = |bytes| live(heap.kmalloc_cache(bytes).expect("a class")).len();
        let objects = take(cache, 10 * geometry.objects as usize);
        assert_eq!(cache.usage().slabs, 10);
        // What the large classes themselves keep comes on top.
        let own = live(off_slab as usize);
        let shared = 16 + 8 * geometry.slab.shared_factor * geometry.batch;
        assert!(own >= 10 && live(shared as usize) >= 1, "{own}");
        give(cache, &objects);
        cache.shrink();
        assert_eq!(cache.usage().slabs, 0);
        assert_eq!(live(off_slab as usize), own - 10);
    }
}

/// Objects are not touched while free, but for the one that holds a slab's indices.
#[test]
fn freed_objects_keep_their_contents() {
    for (era, flags) in each([
        (Era::V2_6_24, CacheFlags::NONE),
        (Era::V6_1, CacheFlags::CTOR),
    ]) {
        let heap = small::<SlabCache>(era, 2);
        let cache = cache_of(&heap, "scenario", 100, flags);
        let bytes = cache.head().geometry().layout.size as usize;
        let objects = take(cache, 300);
        for object in &objects {
            // SAFETY: the object is live and has `bytes` bytes.
            unsafe { object.write_bytes(0xa5, bytes) };
        }
        give(cache, &objects[1..]);
        cache.flush();
        for object in objects.iter().filter(|&&object| {
            // SAFETY: the handle is not used.
            unsafe { heap.cache_of(object) }.is_some()
        }) {
            // SAFETY: the bytes of the object's slot, which no code writes while this runs.
            let found = unsafe { std::slice::from_raw_parts(object.as_ptr(), bytes) };
            assert!(
                found.iter().all(|byte| *byte == 0xa5),
                "as its user left it"
            );
        }
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}
