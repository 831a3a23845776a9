//! SLUB+Queuing's later queues: shared, alien, and their expiry.

use crate::prelude::*;

const ERA: Era = Era::V2_6_35;

/// A cache with CPU queues of 8, batches of 4, and other queues of these sizes.
fn queued(heap: &VirtualHeap<Slubq>, shared: u64, alien: u64) -> VirtualCache<'_, Slubq> {
    let cache = sized(heap, "scenario", 64);
    for (name, value) in each([
        ("cpu_queue_size", 8),
        ("cpu_batch_size", 4),
        ("shared_queue_size", shared),
        ("alien_queue_size", alien),
    ]) {
        assert!(cache.set_attribute(name, value));
        assert_eq!(cache.attribute(name), Some(value));
    }
    cache
}

/// Facts 5.5: a full CPU queue pushes a batch to the shared queue, an empty one pulls a batch from
/// it, and no slab is locked. What the shared queue has no room for goes to the slabs.
#[test]
fn cpus_of_a_node_share_a_queue() {
    let heap = small::<Slubq>(ERA, 2);
    let cache = queued(&heap, 6, 0);
    let objects = take(cache, 40);
    let shared = [Stat::AllocShared, Stat::FreeShared];
    assert_eq!(stats(cache, shared), [0, 0]);
    let slow = stat(cache, Stat::FreeSlowpath);
    give(cache, &objects[..8]);
    assert_eq!(stat(cache, Stat::FreeSlowpath), slow);
    let locks = locks_taken(&heap, LockClass::Slab);
    give(cache, &objects[8..9]);
    assert_eq!(stats(cache, shared), [0, 4]);
    assert_eq!(locks_taken(&heap, LockClass::Slab), locks);
    assert_eq!(cache.usage().shared_avail, 4);

    // The other CPU's first allocation gets them, the newest first.
    on(&heap, 1);
    let locks = locks_taken(&heap, LockClass::Slab);
    assert_eq!(take(cache, 2), [objects[3], objects[2]]);
    assert_eq!(stats(cache, shared), [4, 4]);
    assert_eq!(locks_taken(&heap, LockClass::Slab), locks);
    assert_eq!(cache.usage().shared_avail, 0);

    // Two more batches: the second finds room for two.
    on(&heap, 0);
    let added = stats(cache, [Stat::FreeAddPartial]);
    give(cache, &objects[9..12]);
    give(cache, &objects[12..13]);
    give(cache, &objects[13..17]);
    assert_eq!(stats(cache, shared), [4, 4 + 6]);
    assert_eq!(cache.usage().shared_avail, 6);
    assert_eq!(
        stats(cache, [Stat::FreeAddPartial]),
        added,
        "on the list already"
    );
    assert_eq!(cache.check_consistency(), Ok(()));

    assert_eq!(cache.flush(), 0);
    assert_eq!(cache.usage().shared_avail, 0);
    let live = live(cache);
    let mut expected = [&objects[2..4], &objects[17..]].concat();
    expected.sort_unstable();
    assert_eq!(live, expected);
    give(cache, &expected);
    destroy(cache);
}

/// Facts 5.5: objects of another node pass the CPU's queue by; wishes for that node are served from
/// where they went, or straight from a slab.
#[test]
fn objects_of_another_node_have_their_queue() {
    let heap = two_nodes::<Slubq>(ERA);
    let cache = queued(&heap, 0, 6);
    let node = |object: Object| {
        let pfn = heap.pages().pfn_of(object).expect("a page");
        heap.pages().node_of(pfn).expect("a page")
    };
    let objects = take(cache, 16);
    on(&heap, 1);
    let own = take(cache, 1);
    let alien = [
        Stat::AllocAlien,
        Stat::FreeAlien,
        Stat::AllocDirect,
        Stat::FreeDirect,
    ];
    give(cache, &objects[..6]);
    assert_eq!(stats(cache, alien), [0, 6, 0, 0]);
    assert_eq!(cache.usage().shared_avail, 6);
    assert_eq!(free(cache, objects[5]), Err(FreeError::DoubleFree));

    // Full: a batch of the oldest goes to its slab.
    give(cache, &objects[6..7]);
    assert_eq!(stats(cache, alien), [0, 7, 0, 0]);
    assert_eq!(cache.usage().shared_avail, 3);

    let flushes = stat(cache, Stat::QueueFlush);
    for expected in [objects[6], objects[5], objects[4]] {
        assert_eq!(cache.alloc_node(NodeId(0)), Some(expected));
    }
    let direct = cache.alloc_node(NodeId(0)).expect("memory");
    assert_eq!(node(direct), NodeId(0));
    assert_eq!(stats(cache, alien), [3, 7, 1, 0]);
    assert_eq!(
        stat(cache, Stat::QueueFlush),
        flushes,
        "the queue is left alone"
    );
    assert_eq!(node(own[0]), NodeId(1));

    // In bulk, too.
    let mut slots: Vec<_> = objects[7..10]
        .iter()
        .chain(&own)
        .copied()
        .map(Some)
        .collect();
    give_bulk(cache, &mut slots);
    assert_eq!(stats(cache, alien), [3, 10, 1, 0]);
    assert_eq!(take(cache, 1), own);
    give(cache, &own);
    give(cache, &[direct]);
    give(cache, &objects[4..7]);
    give(cache, &objects[10..]);
    assert_eq!(cache.check_consistency(), Ok(()));
    assert_eq!(cache.shrink(), 0);
    assert_eq!(cache.usage().slabs, 0);
}

/// The second posting has no expiry: an idle object stays in its queue, and every refill brings
/// a batch.
#[test]
fn queues_keep_idle_objects_by_default() {
    let heap = small::<Slubq>(ERA, 1);
    let cache = sized(&heap, "scenario", 64);
    assert_eq!(cache.attribute("idle_expiry"), Some(0));
    let objects = take(cache, 60);
    give(cache, &objects);
    let before = cache.usage();
    for now in 0..3 {
        reap_at(&heap, now);
    }
    assert_eq!(cache.usage(), before);
    assert_eq!(stat(cache, Stat::QueueFlush), 0);
    take(cache, 120);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 2, "a refill brings 60");
}

/// Facts 5.5: a queue not used since the last expiry refills at most 16 objects; an idle one is
/// drained.
#[test]
fn idle_queues_expire() {
    let heap = small::<Slubq>(ERA, 2);
    let cache = sized(&heap, "scenario", 64);
    assert!(cache.set_attribute("shared_queue_size", 200));
    assert!(cache.set_attribute("idle_expiry", 1));
    let objects = take(cache, 60);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 1, "a refill brings 60");
    heap.reap();
    take(cache, 16);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 2);
    take(cache, 1);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 3, "the refill brought 16");
    take(cache, 59);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 3, "this one brought 60");

    give(cache, &objects[..30]);
    let in_queues = |cache: VirtualCache<'_, Slubq>| {
        let mut live = 0;
        let active = cache.usage().active_objs;
        cache.for_each_live(|_| live += 1).expect("at rest");
        active - live
    };
    heap.reap();
    let usage = cache.usage();
    heap.reap();
    let expired = cache.usage();
    assert_eq!(
        usage.active_objs - expired.active_objs,
        30,
        "the queue was unused since the last reap"
    );
    assert_eq!(stat(cache, Stat::QueueFlush), 1);
    assert_eq!(in_queues(cache), 0);

    // The shared queue, too.
    give(cache, &objects[30..]);
    assert!(cache.set_attribute("cpu_queue_size", 8));
    assert!(cache.set_attribute("cpu_batch_size", 4));
    let more = take(cache, 20);
    give(cache, &more);
    assert!(cache.usage().shared_avail > 0);
    heap.reap();
    assert!(cache.usage().shared_avail > 0, "it was used");
    heap.reap();
    assert_eq!(cache.usage().shared_avail, 0);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Sizes change while the queues hold objects, and back to none.
#[test]
fn queues_are_resized_while_they_hold_objects() {
    let heap = boot::<Slubq>(ERA, Setup::DEFAULT.on(4, 4));
    let cache = queued(&heap, 10, 10);
    let objects = take(cache, 100);
    for (cpu, freed) in objects.chunks(25).enumerate() {
        on(&heap, cpu as u32);
        give(cache, freed);
    }
    assert!(cache.usage().shared_avail > 10);
    for (name, size) in [("shared_queue_size", 3), ("alien_queue_size", 0)] {
        assert!(cache.set_attribute(name, size));
        assert_eq!(cache.attribute(name), Some(size));
    }
    assert_eq!(cache.usage().shared_avail, 0);
    assert!(cache.set_attribute("shared_queue_size", 0));
    let live = live(cache).len();
    assert_eq!(live, 0);
    destroy(cache);
}
