//! SLUB+Queuing's worked sequences: queues, batches, bitmaps.

use crate::prelude::*;

fn small(cpus: u32) -> VirtualHeap<Slubq> {
    crate::model::scenario::small(Era::V2_6_35, cpus)
}

/// Facts 5.4: with a queue of 120 and a batch of 60, the 121st free drains the 60 oldest.
#[test]
fn the_full_queue_drains_its_oldest_batch() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    let geometry = cache.head().geometry();
    assert_eq!(
        (geometry.queue, geometry.batch, geometry.objects),
        (120, 60, 64)
    );
    // Four slabs are used up, so that the queue is empty and all slabs are full.
    let objects = take(cache, 240);
    let slow = stat(cache, Stat::AllocSlowpath);
    assert_eq!(slow, 4, "a refill brings 60");
    give(cache, &objects[..120]);
    assert_eq!(stat(cache, Stat::FreeFastpath), 120);
    assert_eq!(stat(cache, Stat::FreeAddPartial), 0);

    let slab_locks = locks_taken(&heap, LockClass::Slab);
    give(cache, &objects[120..121]);
    assert_eq!(stat(cache, Stat::FreeSlowpath), 1);
    // The 60 oldest are all of the first slab: one lock for the run of them.
    assert_eq!(locks_taken(&heap, LockClass::Slab), slab_locks + 1);
    let in_slabs = cache.usage().num_objs - cache.usage().active_objs;
    assert_eq!(
        in_slabs,
        60 + 16,
        "the drained ones and what no refill took"
    );
    give(cache, &objects[121..180]);
    assert_eq!(stat(cache, Stat::FreeSlowpath), 1, "room for a batch");
    give(cache, &objects[180..181]);
    assert_eq!(stat(cache, Stat::FreeSlowpath), 2);
    // The queue is a stack: the newest comes first.
    assert_eq!(take(cache, 2), [objects[180], objects[179]]);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Facts 5.4: a refill brings a batch from as many slabs as it takes. Each slab's portion is on
/// top of the one before, so the slab found last is popped first, lowest address first.
#[test]
fn a_refill_pops_the_lowest_address_first() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 192);
    let geometry = cache.head().geometry();
    assert_eq!((geometry.objects, geometry.batch), (21, 60));
    let objects = take(cache, 60);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 1);
    assert_eq!(stat(cache, Stat::AllocFastpath), 59);
    assert_eq!(stat(cache, Stat::AllocSlab), 3);
    // 18 of the third slab, then all of the second and of the first.
    let slabs = [&objects[..18], &objects[18..39], &objects[39..]];
    for slab in slabs {
        assert!(slab.is_sorted(), "ascending in each slab");
        let distances = slab
            .windows(2)
            .map(|two| two[1].addr().get() - two[0].addr().get());
        assert!(distances.eq(std::iter::repeat_n(192, slab.len() - 1)));
    }
    // The third slab has three left, comes from the list now and is below three new ones.
    let more = take(cache, 60);
    assert_eq!(stat(cache, Stat::AllocFromPartial), 1);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 2);
    let page = |object: Object| heap.pages().pfn_of(object);
    assert_eq!(page(more[57]), page(objects[0]));
    assert!(more[57..].is_sorted() && page(more[56]) != page(more[57]));
}

/// Setting the size of the queues sets the batch to half of it.
#[test]
fn a_new_queue_size_brings_a_new_batch() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    assert_eq!(cache.attribute("cpu_batch_size"), Some(60));
    assert!(cache.set_attribute("cpu_queue_size", 10));
    assert_eq!(cache.attribute("cpu_batch_size"), Some(5));
    take(cache, 11);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 3);
}

/// As SLUB's search of 2.6.35: a node without partial slabs borrows from one that has more than
/// `min_partial` of them, wished for or not, as often as `remote_node_defrag_ratio` says.
#[test]
fn other_nodes_lend_partial_slabs() {
    let lent = |ratio: u64, slabs: usize| {
        let heap = two_nodes::<Slubq>(Era::V2_6_35);
        let cache = sized(&heap, "scenario", 4096);
        assert_eq!(cache.attribute("remote_node_defrag_ratio"), Some(100));
        assert!(cache.set_attribute("remote_node_defrag_ratio", ratio));
        let full = take(cache, 8 * slabs);
        for slab in full.chunks(8) {
            give(cache, &slab[..1]);
        }
        cache.flush();
        on(&heap, 1);
        let pages = heap.pages();
        let there = |object: Object| pages.node_of(pages.pfn_of(object).unwrap()).unwrap();
        take(cache, 12)
            .into_iter()
            .filter(|&object| there(object) == NodeId(0))
            .count()
    };
    assert_eq!(lent(100, 30), 12, "all of a batch");
    assert_eq!(lent(0, 30), 0);
    // log2 of 4096 is 12, cut to 10: ten slabs stay at home.
    assert_eq!(lent(100, 9), 0);
    assert_eq!(lent(100, 12), 2);
}

/// Facts 5.4: `min_partial` is not asked when a slab becomes empty.
#[test]
fn an_empty_slab_goes_at_once() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 192);
    assert_eq!(cache.attribute("min_partial"), Some(7));
    let batch = take(cache, 60);
    let slabs = cache.usage().slabs;
    assert_eq!(slabs, 3, "a batch of 60");
    // All of the first slab stays.
    let (others, objects) = batch.split_at(39);
    give(cache, others);
    assert_eq!(cache.flush(), 0);
    assert_eq!(stat(cache, Stat::QueueFlush), 1);
    assert_eq!(cache.usage().slabs, 1, "two came back untouched");
    assert_eq!(stat(cache, Stat::FreeSlab), 2);
    give(cache, &objects[1..]);
    cache.flush();
    assert_eq!(stat(cache, Stat::FreeAddPartial), 1, "it was full");
    assert_eq!(cache.usage().slabs, 1);
    give(cache, &objects[..1]);
    cache.flush();
    assert_eq!(cache.usage().slabs, 0);
    assert_eq!(
        stat(cache, Stat::FreeRemovePartial),
        2,
        "with the third of the refill"
    );
}

/// Facts 5.2: above 64 objects the bitmap is behind the last object.
#[test]
fn many_objects_have_their_bitmap_in_the_slab() {
    for (size, objects, in_slab) in each([
        (64, 64, false),
        (56, 72, true),
        (32, 127, true),
        (8, 504, true),
    ]) {
        let heap = small(2);
        let cache = sized(&heap, "scenario", size);
        let geometry = cache.head().geometry();
        assert_eq!(geometry.objects, objects);
        assert_eq!(geometry.bitmap_in_slab, in_slab);
        let taken = take(cache, 3 * objects as usize);
        // Written full, so that a bitmap in the way would be overwritten.
        for object in &taken {
            // SAFETY: the object is live and has this many bytes.
            unsafe { object.write_bytes(0xff, size as usize) };
        }
        let touched = heap.machine().counters();
        let bitmap = touched.touches(Line::Bitmap, Access::Write);
        assert_eq!(bitmap > 0, in_slab);
        assert_eq!(cache.check_consistency(), Ok(()));
        give(cache, &taken);
        assert_eq!(cache.shrink(), 0);
        assert_eq!(cache.usage().slabs, 0);
    }
}

/// Facts 5.4: objects are not touched while cold. A new one is as the machine made it, a freed one
/// keeps what its user left.
#[test]
fn objects_are_never_touched() {
    let heap = small(2);
    let cache = sized(&heap, "scenario", 100);
    let bytes = cache.head().geometry().layout.size as usize;
    let read = |object: Object| -> Vec<u8> {
        // SAFETY: the bytes of the object's slot, which no code writes while this runs.
        unsafe { std::slice::from_raw_parts(object.as_ptr(), bytes) }.to_vec()
    };
    let objects = take(cache, 300);
    for &object in &objects {
        assert_eq!(read(object), vec![0; bytes], "as the machine made it");
        // SAFETY: the object is live and has `bytes` bytes.
        unsafe { object.write_bytes(0xa5, bytes) };
    }
    on(&heap, 1);
    give(cache, &objects[1..]);
    cache.flush();
    for &object in &objects {
        assert_eq!(read(object), vec![0xa5; bytes], "as its user left it");
    }
    let counters = heap.machine().counters();
    for access in [Access::Read, Access::Write] {
        assert_eq!(counters.touches(Line::Object, access), 0);
        assert!(counters.touches(Line::CpuQueue, access) > 0);
    }
    give(cache, &objects[..1]);
}

/// Facts 5.4: another node than the queue's newest object's empties the queue.
#[test]
fn a_wanted_node_flushes_the_queue() {
    let heap = two_nodes::<Slubq>(Era::V2_6_35);
    let cache = sized(&heap, "scenario", 64);
    let node = |object| node_of(&heap, object);
    let local = take(cache, 1);
    assert_eq!(stat(cache, Stat::QueueFlush), 0);
    let remote = cache.alloc_node(NodeId(1)).expect("memory");
    assert_eq!(
        (node(local[0]), node(remote)),
        (Some(NodeId(0)), Some(NodeId(1)))
    );
    assert_eq!(stat(cache, Stat::QueueFlush), 1);
    let again = cache.alloc_node(NodeId(1)).expect("memory");
    assert_eq!(
        (node(again), stat(cache, Stat::QueueFlush)),
        (Some(NodeId(1)), 1)
    );
    give(cache, &[local[0], remote, again]);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// A new size takes effect on every CPU, and what the old queues held is not lost.
#[test]
fn queues_are_resized_while_in_use() {
    let heap = small(2);
    let cache = sized(&heap, "scenario", 64);
    assert_eq!(cache.attribute("cpu_queue_size"), Some(120));
    let objects = take(cache, 100);
    on(&heap, 1);
    give(cache, &objects[..50]);
    assert!(cache.set_attribute("cpu_queue_size", 8));
    assert!(cache.set_attribute("cpu_batch_size", 4));
    assert_eq!(cache.attribute("cpu_queue_size"), Some(8));
    assert_eq!(cache.attribute("cpu_batch_size"), Some(4));
    let live = live(cache);
    assert_eq!(live, objects[50..]);
    let before = stat(cache, Stat::FreeSlowpath);
    give(cache, &objects[50..58]);
    assert_eq!(stat(cache, Stat::FreeSlowpath), before, "eight fit");
    give(cache, &objects[58..59]);
    assert_eq!(stat(cache, Stat::FreeSlowpath), before + 1);
    give(cache, &objects[59..62]);
    assert_eq!(
        stat(cache, Stat::FreeSlowpath),
        before + 1,
        "four made room"
    );
    give(cache, &objects[62..]);
    assert_eq!(cache.check_consistency(), Ok(()));
    destroy(cache);
}

/// Bulk calls move runs of the queue and count them as single calls would.
#[test]
fn bulk_calls_move_runs() {
    let heap = small(1);
    let (one, many) = (sized(&heap, "one", 64), sized(&heap, "many", 64));
    let singles = take(one, 150);
    let mut slots = vec![None; 150];
    assert!(many.alloc_bulk(&mut slots));
    let bulk: Vec<Object> = slots.iter().flatten().copied().collect();
    let steps = |objects: &[Object]| -> Vec<usize> {
        let pairs = objects.windows(2);
        pairs
            .map(|two| two[1].addr().get().wrapping_sub(two[0].addr().get()))
            .filter(|step| *step == 64)
            .collect()
    };
    assert_eq!(steps(&bulk), steps(&singles));
    give(one, &singles);
    slots.insert(70, None);
    give_bulk(many, &mut slots);
    for (single, bulk) in one.stats().iter().zip(many.stats().iter()) {
        assert_eq!(single, bulk);
    }
    assert_eq!(take(many, 2), [bulk[149], bulk[148]]);
    assert_eq!(many.check_consistency(), Ok(()));
}
