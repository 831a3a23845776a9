//! SLAB's queues: reaping, objects of other nodes, tuning.

use crate::model::slab_class::{ERAS, free_objects};
use crate::prelude::*;

/// Facts 8.11, 3.7: an array that was not touched since the last round gives a fifth of its limit.
#[test]
fn idle_arrays_are_reaped_by_fifths() {
    let table = [
        (256, 120, 24),
        (512, 54, 11),
        (2048, 24, 5),
        (8192, 8, 2),
        (200_000, 1, 1),
    ];
    for era in each(ERAS) {
        for (size, limit, part) in each(table) {
            let heap = small::<SlabCache>(era, 1);
            let cache = sized(&heap, "scenario", size);
            assert_eq!(cache.attribute("limit"), Some(limit as u64));
            let objects = take(cache, limit);
            cache.flush();
            give(cache, &objects);
            let before = free_objects(cache);
            reap_at(&heap, 1);
            assert_eq!(free_objects(cache), before, "it was touched");
            reap_at(&heap, 2);
            assert_eq!(free_objects(cache) - before, part);
            give(cache, &take(cache, 1));
            let before = free_objects(cache);
            reap_at(&heap, 3);
            assert_eq!(free_objects(cache), before, "touched again");
        }
        let heap = small::<SlabCache>(era, 1);
        let cache = sized(&heap, "scenario", 256);
        let objects = take(cache, 9);
        cache.flush();
        give(cache, &objects);
        let before = free_objects(cache);
        reap_at(&heap, 1);
        for (now, gone) in [(2, 5), (3, 7), (4, 8), (5, 9), (6, 9)] {
            reap_at(&heap, now);
            assert_eq!(free_objects(cache) - before, gone, "half of few");
        }
    }
}

/// Facts 8.11, 3.7: every 4 s a node's shared array, and then its free slabs.
#[test]
fn idle_nodes_are_reaped_every_four_seconds() {
    const SECOND: u64 = 1_000_000_000;
    for (era, per_slab) in each([(Era::V2_6_24, 15u64), (Era::V6_1, 16)]) {
        let heap = small::<SlabCache>(era, 2);
        let cache = sized(&heap, "scenario", 256);
        let objects = take(cache, 400);
        give(cache, &objects);
        let shared = cache.usage().shared_avail;
        assert!(shared > 96, "{shared}");
        let free_limit = 3 * 60 + per_slab;
        let part = free_limit.div_ceil(5 * per_slab);
        reap_at(&heap, 10 * SECOND);
        assert_eq!(
            cache.usage().shared_avail,
            shared,
            "the first round is the start"
        );
        reap_at(&heap, 13 * SECOND);
        assert_eq!(cache.usage().shared_avail, shared);
        // Nothing was allocated from it since. In 2.6.24 new slabs come through the free list,
        // which counts as a use of it; in 6.1 they do not.
        reap_at(&heap, 14 * SECOND);
        assert_eq!(cache.usage().shared_avail, shared - 96);
        let first = if era == Era::V2_6_24 { 0 } else { part };
        assert_eq!(stat(cache, Stat::Reaped), first);
        cache.flush();
        let free_slabs = || cache.usage().slabs - cache.usage().active_slabs;
        let before = free_slabs();
        assert!(before >= part, "{before}");
        reap_at(&heap, 18 * SECOND);
        assert_eq!(stat(cache, Stat::Reaped), first + part);
        assert_eq!(free_slabs(), before - part);
        reap_at(&heap, 19 * SECOND);
        assert_eq!(stat(cache, Stat::Reaped), first + part, "not yet");
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// A use of the shared array saves it from the next reap: in 2.6.24 an overflow of an alien array into it,
/// in 6.1 a refill from it.
#[test]
fn uses_of_the_shared_array_by_era() {
    const SECOND: u64 = 1_000_000_000;
    for era in each(ERAS) {
        let old = era == Era::V2_6_24;
        let heap = small::<SlabCache>(era, 2);
        let cache = sized(&heap, "scenario", 256);
        give(cache, &take(cache, 600));
        reap_at(&heap, 10 * SECOND);
        take(cache, 130);
        let shared = cache.usage().shared_avail;
        assert!(shared > 96, "{shared}");
        reap_at(&heap, 14 * SECOND);
        let idle = if old { 96 } else { 0 };
        assert_eq!(cache.usage().shared_avail, shared - idle, "refilled");

        let heap = two_nodes::<SlabCache>(era);
        let cache = sized(&heap, "scenario", 256);
        let objects = take(cache, 13);
        cache.flush();
        reap_at(&heap, 10 * SECOND);
        on(&heap, 1);
        give(cache, &objects);
        assert_eq!(cache.usage().shared_avail, 12);
        on(&heap, 0);
        reap_at(&heap, 14 * SECOND);
        let idle = if old { 0 } else { 6 };
        assert_eq!(cache.usage().shared_avail, 12 - idle, "overflowed");
    }
}

/// A cache whose arrays hold one object has alien arrays of one, too.
#[test]
fn alien_arrays_of_large_objects_hold_one() {
    for era in each(ERAS) {
        let heap = two_nodes::<SlabCache>(era);
        let cache = sized(&heap, "scenario", 200_000);
        assert_eq!(cache.attribute("limit"), Some(1));
        let objects = take(cache, 2);
        on(&heap, 1);
        let counts = [Stat::NodeFrees, Stat::AlienOverflow];
        for (object, expected) in objects.iter().zip([[1, 0], [2, 1]]) {
            give(cache, &[*object]);
            assert_eq!(stats(cache, counts), expected);
        }
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 8.10, 3.5: twelve objects of another node wait; the next sends all home.
#[test]
fn alien_objects_go_home_by_twelves() {
    for era in each(ERAS) {
        let heap = two_nodes::<SlabCache>(era);
        let cache = sized(&heap, "scenario", 256);
        let objects = take(cache, 40);
        cache.flush();
        on(&heap, 1);
        give(cache, &objects[..12]);
        assert_eq!(stat(cache, Stat::NodeFrees), 12);
        assert_eq!(
            (stat(cache, Stat::AlienOverflow), cache.usage().shared_avail),
            (0, 0)
        );
        assert_eq!(free(cache, objects[11]), Err(FreeError::DoubleFree));
        give(cache, &objects[12..13]);
        assert_eq!(stat(cache, Stat::AlienOverflow), 1);
        assert_eq!(
            cache.usage().shared_avail,
            12,
            "in the other node's shared array"
        );
        // Which is where that node's CPU finds them.
        on(&heap, 0);
        assert_eq!(take(cache, 1), [objects[11]]);
        give(cache, &objects[11..12]);
        // The rest waits in node 1's array, which a reap of its CPU empties.
        on(&heap, 1);
        let shared = cache.usage().shared_avail;
        reap_at(&heap, 1);
        reap_at(&heap, 2);
        assert_eq!(cache.usage().shared_avail, shared + 1);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 8.10: objects of a wanted node come one by one from its slabs.
#[test]
fn another_nodes_objects_pass_the_arrays_by() {
    for era in each(ERAS) {
        let heap = two_nodes::<SlabCache>(era);
        let cache = sized(&heap, "scenario", 256);
        let node = |object| node_of(&heap, object).expect("a page");
        let remote: Vec<Object> = (0..3)
            .map(|_| cache.alloc_node(NodeId(1)).expect("memory"))
            .collect();
        assert!(remote.is_sorted(), "in the order of the indices");
        assert!(remote.iter().all(|&object| node(object) == NodeId(1)));
        assert_eq!(stat(cache, Stat::NodeAllocs), 3);
        assert_eq!(stat(cache, Stat::AllocFastpath), 0);
        let local = cache.alloc_node(NodeId(0)).expect("memory");
        assert_eq!((node(local), stat(cache, Stat::NodeAllocs)), (NodeId(0), 3));
        give(cache, &remote);
        give(cache, &[local]);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// A new limit takes effect on every CPU, and what the old arrays held is not lost.
#[test]
fn arrays_are_tuned_while_in_use() {
    for era in each(ERAS) {
        let heap = small::<SlabCache>(era, 2);
        let cache = sized(&heap, "scenario", 64);
        let tunable = |name| cache.attribute(name);
        assert_eq!(
            (
                tunable("limit"),
                tunable("batchcount"),
                tunable("sharedfactor")
            ),
            (Some(120), Some(60), Some(8))
        );
        let mut objects = take(cache, 300);
        objects.sort_unstable();
        on(&heap, 1);
        give(cache, &objects[..150]);
        assert_eq!(cache.usage().shared_avail, 60);
        assert!(cache.set_attribute("limit", 8) && cache.set_attribute("batchcount", 4));
        assert_eq!(cache.usage().shared_avail, 0, "a new shared array");
        let live = live(cache);
        assert_eq!(live, objects[150..]);
        let before = stat(cache, Stat::FreeSlowpath);
        give(cache, &objects[150..158]);
        assert_eq!(stat(cache, Stat::FreeSlowpath), before, "eight fit");
        give(cache, &objects[158..162]);
        assert_eq!(
            stat(cache, Stat::FreeSlowpath),
            before + 1,
            "four made room"
        );
        assert_eq!(cache.usage().shared_avail, 4);
        assert!(cache.set_attribute("sharedfactor", 0));
        give(cache, &objects[162..]);
        assert_eq!(cache.usage().shared_avail, 0);
        assert_eq!(cache.check_consistency(), Ok(()));
        destroy(cache);
    }
}
