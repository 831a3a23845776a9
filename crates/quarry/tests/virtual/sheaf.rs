//! Worked sequences of caches with sheaves: refill, spare, barn, remote frees, bulk, readers.

use crate::prelude::*;

fn small(cpus: u32) -> VirtualHeap<SheafCache> {
    crate::model::scenario::small(Era::V7_0, cpus)
}

/// Objects that are allocated, without a walk.
fn active(cache: VirtualCache<'_, SheafCache>) -> u64 {
    cache.usage().active_objs
}

/// Facts 6.3: an empty main sheaf is replaced by one filled from the node's list and new slabs.
#[test]
fn a_refill_fills_a_sheaf() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 256);
    let geometry = cache.head().geometry();
    assert_eq!((geometry.sheaf_capacity, geometry.objects), (28, 16));
    let counters = [
        Stat::AllocFastpath,
        Stat::AllocSlowpath,
        Stat::BarnGetFail,
        Stat::SheafRefill,
        Stat::SheafAlloc,
        Stat::AllocSlab,
    ];
    let mut objects = take(cache, 1);
    // The main sheaf that the CPU had from the start becomes the spare.
    assert_eq!(stats(cache, counters), [1, 0, 1, 28, 2, 2]);
    assert_eq!(active(cache), 28, "what sheaves hold counts as active");
    objects.extend(take(cache, 27));
    assert_eq!(stats(cache, counters), [28, 0, 1, 28, 2, 2]);
    // Four are left of the second slab.
    objects.extend(take(cache, 1));
    assert_eq!(stats(cache, counters), [29, 0, 2, 56, 2, 4]);
    objects.extend(take(cache, 28));
    assert_eq!(
        stats(cache, counters),
        [57, 0, 3, 84, 2, 6],
        "the spare is the empty one"
    );
    assert_eq!(cache.check_consistency(), Ok(()));
    give(cache, &objects);
    assert_eq!(stat(cache, Stat::FreeFastpath), 57);
}

/// Facts 6.4 and 6.2: a node keeps ten full sheaves, 600 objects of a small class; what comes then
/// flushes the spare.
#[test]
fn a_full_barn_flushes_the_spare() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    assert_eq!(cache.attribute("sheaf_capacity"), Some(60));
    let counters = [
        Stat::FreeFastpath,
        Stat::BarnPut,
        Stat::BarnPutFail,
        Stat::SheafFlush,
        Stat::SheafAlloc,
    ];
    let objects = take(cache, 13 * 60);
    assert_eq!(stats(cache, counters), [0, 0, 0, 0, 2]);
    give(cache, &objects[..120]);
    assert_eq!(
        stats(cache, counters),
        [120, 0, 0, 0, 2],
        "main and spare are swapped"
    );
    give(cache, &objects[120..121]);
    assert_eq!(
        stats(cache, counters),
        [121, 1, 0, 0, 3],
        "an empty one is made for it"
    );
    give(cache, &objects[121..720]);
    assert_eq!(stats(cache, counters), [720, 10, 0, 0, 12]);
    give(cache, &objects[720..721]);
    assert_eq!(stats(cache, counters), [721, 10, 1, 60, 12]);
    give(cache, &objects[721..]);
    assert_eq!(cache.check_consistency(), Ok(()));
    assert_eq!(active(cache), 720);

    let gets = [Stat::BarnGet, Stat::BarnGetFail, Stat::SheafRefill];
    let [get, fail, refill] = stats(cache, gets);
    assert_eq!((get, fail, refill), (0, 13, 13 * 60));
    let again = take(cache, 13 * 60);
    assert_eq!(stats(cache, gets), [10, 14, 14 * 60]);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 0);
    // Everything goes back but the CPU's main sheaf, which stays empty.
    give(cache, &again);
    assert_eq!(cache.shrink(), 0);
    assert_eq!(cache.usage().slabs, 0);
    let [made, freed] = stats(cache, [Stat::SheafAlloc, Stat::SheafFree]);
    assert_eq!(made, freed + 1);
}

/// Facts 6.5: of a slab with more objects than room the rest goes back as one list, to the tail.
#[test]
fn what_is_too_much_goes_back() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 256);
    assert!(cache.set_attribute("sheaf_capacity", 4));
    let counters = [Stat::SheafRefill, Stat::AllocSlab, Stat::FreeAddPartial];
    let mut objects = take(cache, 1);
    assert_eq!(stats(cache, counters), [4, 1, 0], "12 are left on the slab");
    objects.extend(take(cache, 4));
    assert_eq!(stats(cache, counters), [8, 1, 1], "8 of 12 went back");
    objects.extend(take(cache, 8));
    assert_eq!(stats(cache, counters), [16, 1, 2], "the last four fit");
    assert_eq!(active(cache), 16);
    objects.extend(take(cache, 4));
    assert_eq!(stats(cache, counters), [20, 2, 2]);
    assert_eq!(cache.check_consistency(), Ok(()));
    give(cache, &objects);
}

/// Facts 6.7: an empty slab stays while its node lists fewer than `min_partial`.
#[test]
fn empty_slabs_stay_up_to_min_partial() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 256);
    assert_eq!(cache.attribute("min_partial"), Some(5));
    assert!(cache.set_attribute("sheaf_capacity", 0));
    let objects = take(cache, 10 * 16);
    let slow = [Stat::AllocSlowpath, Stat::AllocSlab];
    assert_eq!(stats(cache, slow), [160, 10]);
    give(cache, &objects);
    // The fifth finds five on the list, itself among them.
    assert_eq!((cache.usage().slabs, active(cache)), (4, 0));
    let counters = [
        Stat::FreeSlowpath,
        Stat::FreeAddPartial,
        Stat::FreeRemovePartial,
        Stat::FreeSlab,
    ];
    assert_eq!(stats(cache, counters), [160, 10, 6, 6]);
    assert_eq!(cache.shrink(), 0);
    assert_eq!(cache.usage().slabs, 0);
}

/// Facts 6.4 and 6.3: objects of other nodes go past the sheaves.
#[test]
fn other_nodes_bypass_the_sheaves() {
    let heap = two_nodes::<SheafCache>(Era::V7_0);
    let cache = sized(&heap, "scenario", 64);
    let objects = take(cache, 10);
    on(&heap, 1);
    give(cache, &objects);
    let frees = [Stat::FreeFastpath, Stat::FreeSlowpath];
    assert_eq!(stats(cache, frees), [0, 10]);
    assert_eq!(
        stat(cache, Stat::SheafAlloc),
        3,
        "each CPU's main one, and one that was filled"
    );
    let allocs = [Stat::AllocNodeMismatch, Stat::AllocSlowpath];
    assert_eq!(stats(cache, allocs), [0, 0]);
    let remote = cache.alloc_node(NodeId(0)).expect("memory");
    assert_eq!(stats(cache, allocs), [1, 1]);
    let local = cache.alloc_node(NodeId(1)).expect("memory");
    assert_eq!(stats(cache, allocs), [1, 1], "a sheaf serves its own node");
    let node = |object| node_of(&heap, object);
    assert_eq!(
        (node(remote), node(local)),
        (Some(NodeId(0)), Some(NodeId(1)))
    );

    // A bulk free sets the remote ones aside.
    let mut slots = [Some(remote), Some(local)];
    give_bulk(cache, &mut slots);
    assert_eq!(stats(cache, frees), [1, 11]);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Facts 6.6: bulk calls take from sheaves, and past them what these lack.
#[test]
fn bulk_calls_use_what_sheaves_hold() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 256);
    let counters = [Stat::AllocFastpath, Stat::AllocSlowpath, Stat::SheafRefill];
    let mut slots = [None; 16];
    assert!(cache.alloc_bulk(&mut slots));
    assert_eq!(stats(cache, counters), [0, 16, 0], "no sheaf is filled");
    give_bulk(cache, &mut slots);
    assert_eq!(stat(cache, Stat::FreeFastpath), 16);
    assert!(cache.alloc_bulk(&mut slots));
    assert_eq!(stats(cache, counters), [16, 16, 0]);
    give_bulk(cache, &mut slots);
    let mut more = [None; 40];
    assert!(cache.alloc_bulk(&mut more));
    assert_eq!(stats(cache, counters), [32, 40, 0]);
    give_bulk(cache, &mut more);
    // The barn has no empty sheaf for the full main one: the rest goes to the slabs, each object a slow
    // free. No sheaf is made.
    assert_eq!(
        stats(cache, [Stat::FreeFastpath, Stat::FreeSlowpath]),
        [60, 12]
    );
    assert_eq!(stat(cache, Stat::SheafAlloc), 1);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Facts 6.1: sheaves are kmalloc objects, of the class that their capacity rounds up to.
#[test]
fn sheaves_are_kmalloc_objects() {
    let heap = small(1);
    for (size, class) in each([(64, 512), (256, 256), (1024, 128), (4096, 64)]) {
        let cache = sized(&heap, "scenario", size);
        let sheaves = heap.kmalloc_cache(class).expect("a class");
        let count = || live(sheaves).len();
        assert_eq!(count(), 1, "the CPU's main one");
        let objects = take(cache, 1);
        assert_eq!((count(), stat(cache, Stat::SheafAlloc)), (2, 2));
        give(cache, &objects);
        cache.shrink();
        assert_eq!((count(), stat(cache, Stat::SheafFree)), (1, 1));
    }
    // A class whose sheaves come from itself.
    let class = heap.kmalloc_cache(512).expect("a class");
    let objects = take(class, 1000);
    give(class, &objects);
    assert!(stat(class, Stat::SheafAlloc) > 10);
    assert_eq!(class.check_consistency(), Ok(()));
    assert_eq!(
        (class.shrink(), class.usage().slabs),
        (0, 1),
        "main sheaves"
    );
    // Without a capacity no sheaf stays.
    heap.for_each_cache(|cache| {
        assert!(cache.set_attribute("sheaf_capacity", 0));
    });
    assert_eq!((class.shrink(), class.usage().slabs), (0, 0));
}

/// The capacity and the barn's limits are tunables; sheaves of the old size are freed.
#[test]
fn tunables_work_while_in_use() {
    let heap = small(2);
    let cache = sized(&heap, "scenario", 64);
    let objects = take(cache, 600);
    on(&heap, 1);
    give(cache, &objects[..300]);
    assert!(cache.set_attribute("sheaf_capacity", 8));
    let [made, freed] = stats(cache, [Stat::SheafAlloc, Stat::SheafFree]);
    assert_eq!(made, freed, "all old sheaves are gone");
    assert_eq!(active(cache), 300);
    assert!(cache.set_attribute("barn_full", 2));
    let before = stat(cache, Stat::SheafFlush);
    // Main and spare, two in the barn, and the fifth flushes a sheaf of eight.
    give(cache, &objects[300..332]);
    assert_eq!(stat(cache, Stat::SheafFlush), before);
    give(cache, &objects[332..333]);
    assert_eq!(stat(cache, Stat::SheafFlush), before + 8);
    assert!(cache.set_attribute("sheaf_capacity", 0));
    let before = stat(cache, Stat::FreeSlowpath);
    give(cache, &objects[333..]);
    assert_eq!(stat(cache, Stat::FreeSlowpath), before + 267, "no sheaves");
    assert_eq!(cache.check_consistency(), Ok(()));
    assert_eq!(active(cache), 0);
}

fn with_capacity<'h>(
    heap: &'h VirtualHeap<SheafCache>,
    sheaf_capacity: u32,
) -> VirtualCache<'h, SheafCache> {
    let spec = CacheSpec {
        sheaf_capacity,
        ..CacheSpec::new("scenario", 256)
    };
    heap.create_cache(&spec).expect("a cache")
}

/// Facts 6.2 and 6.3 for 6.18: only where asked for, over CPU slabs; the old main goes to the barn.
#[test]
fn in_6_18_sheaves_are_asked_for() {
    let heap = crate::model::scenario::small::<SheafCache>(Era::V6_18, 1);
    let plain = with_capacity(&heap, 0);
    let objects = take(plain, 100);
    give(plain, &objects);
    assert_eq!(
        stats(plain, [Stat::SheafAlloc, Stat::AllocCpuSheaf]),
        [0, 0]
    );
    assert!(stat(plain, Stat::AllocFastpath) > 0);

    let cache = with_capacity(&heap, 32);
    let counters = [
        Stat::AllocCpuSheaf,
        Stat::BarnGetFail,
        Stat::SheafRefill,
        Stat::SheafAlloc,
    ];
    let objects = take(cache, 32);
    assert_eq!(stats(cache, counters), [32, 1, 32, 2]);
    let below = [Stat::AllocFastpath, Stat::AllocSlowpath];
    assert_eq!(stats(cache, below).iter().sum::<u64>(), 32, "the refill's");
    let more = take(cache, 32);
    assert_eq!(stats(cache, counters), [64, 2, 64, 2]);
    let third = take(cache, 1);
    assert_eq!(stats(cache, counters), [65, 3, 96, 2], "the barn had one");
    give(cache, &objects);
    give(cache, &more);
    give(cache, &third);
    assert_eq!(stat(cache, Stat::FreeCpuSheaf), 65);
    assert_eq!(cache.check_consistency(), Ok(()));
    assert_eq!((cache.shrink(), cache.usage().slabs), (0, 0));
}

/// Facts 6.8: a full rcu sheaf waits for readers and is then the barn's.
#[test]
fn deferred_frees_become_full_sheaves() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    let objects = take(cache, 120);
    let counters = [Stat::FreeRcuSheaf, Stat::BarnPut, Stat::BarnGet];
    give_later(cache, &objects[..60]);
    assert_eq!(stats(cache, counters), [60, 0, 0]);
    heap.reap();
    assert_eq!(stats(cache, counters), [60, 0, 0], "readers may still look");
    grace_period(&heap);
    heap.reap();
    assert_eq!(stats(cache, counters), [60, 1, 0]);
    assert_eq!(cache.check_consistency(), Ok(()));
    let mut again = take(cache, 60);
    assert_eq!(stats(cache, counters), [60, 1, 1]);
    again.sort();
    let mut deferred = objects[..60].to_vec();
    deferred.sort();
    assert_eq!(again, deferred, "the same objects, past all slabs");

    // With the barn full the sheaf is flushed, and kept as an empty one.
    assert!(cache.set_attribute("barn_full", 0));
    let before = stats(cache, [Stat::SheafFlush, Stat::BarnPutFail]);
    give_later(cache, &objects[60..]);
    grace_period(&heap);
    heap.reap();
    let after = stats(cache, [Stat::SheafFlush, Stat::BarnPutFail]);
    assert_eq!(after, [before[0] + 60, before[1] + 1]);
    give(cache, &again);
    assert_eq!((cache.shrink(), cache.usage().slabs), (0, 0));
}

/// A flush hands a part-filled rcu sheaf over; until its time has come its objects are live.
#[test]
fn a_flush_hands_the_rcu_sheaf_over() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    let objects = take(cache, 3);
    give_later(cache, &[objects[0]]);
    give(cache, &objects[1..]);
    cache.shrink();
    assert_eq!(active(cache), 1);
    // SAFETY: the test uses the handle only if it was not destroyed.
    let refused = unsafe { cache.destroy() }.expect_err("a reader may still look");
    assert_eq!(refused.live, 1);
    grace_period(&heap);
    destroy(cache);
}

/// A flushed rcu sheaf goes to the slabs when its readers have finished, not to the barn.
#[test]
fn a_flushed_rcu_sheaf_is_dissolved() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    let objects = take(cache, 3);
    give_later(cache, &objects);
    cache.shrink();
    assert_eq!(active(cache), 3, "readers may still look");
    let before = stats(cache, [Stat::SheafFree, Stat::BarnPut]);
    grace_period(&heap);
    heap.reap();
    assert_eq!(active(cache), 0);
    let after = stats(cache, [Stat::SheafFree, Stat::BarnPut]);
    assert_eq!(after, [before[0] + 1, before[1]]);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Caches of the allocator's own have no sheaves.
#[test]
fn caches_can_be_without_sheaves() {
    let heap = small(1);
    let spec = CacheSpec {
        flags: CacheFlags::NO_SHEAVES,
        ..CacheSpec::new("kmem_cache_node", 64)
    };
    let cache = heap.create_cache(&spec).expect("a cache");
    assert_eq!(cache.attribute("sheaf_capacity"), Some(0));
    assert!(!cache.set_attribute("sheaf_capacity", 60));
    let objects = take(cache, 3);
    assert_eq!(stat(cache, Stat::AllocSlowpath), 3);
    give(cache, &objects);
}

/// Objects that a refill of four takes of two slabs with three free objects each, and the slabs that went to a
/// list, counted.
fn refill_of_two_slabs(era: Era) -> ([usize; 2], u64) {
    let heap = crate::model::scenario::small::<SheafCache>(era, 1);
    let cache = sized(&heap, "scenario", 256);
    assert!(cache.set_attribute("sheaf_capacity", 0));
    let objects = take(cache, 48);
    let slab = |object: Object| heap.pages().pfn_of(object).map(|pfn| pfn.0);
    let first = slab(objects[0]);
    let second = slab(objects[16]);
    assert_ne!(first, second);
    give(cache, &objects[..3]);
    give(cache, &objects[16..19]);
    let before = stat(cache, Stat::FreeAddPartial);
    assert!(cache.set_attribute("sheaf_capacity", 4));
    let again = take(cache, 4);
    assert_eq!(stat(cache, Stat::SheafRefill), 4);
    let of = |wanted| {
        again
            .iter()
            .filter(|object| slab(**object) == wanted)
            .count()
    };
    let taken = [of(first), of(second)];
    let added = stat(cache, Stat::FreeAddPartial) - before;
    assert_eq!(cache.check_consistency(), Ok(()));
    give(cache, &again);
    give(cache, &objects[3..16]);
    give(cache, &objects[19..]);
    (taken, added)
}

/// 7.0 empties the slab that it took last first and frees the rest of the first one to it.
#[test]
fn a_refill_empties_the_slab_taken_last() {
    assert_eq!(refill_of_two_slabs(Era::V7_0), ([1, 3], 1));
    assert_eq!(refill_of_two_slabs(Era::V7_1), ([1, 3], 1));
}

/// 7.2 empties the slab that it took first first and hands the rest of the last one back, uncounted.
#[test]
fn from_7_2_on_a_refill_empties_the_slab_taken_first() {
    assert_eq!(refill_of_two_slabs(Era::V7_2), ([3, 1], 0));
    assert_eq!(refill_of_two_slabs(Era::V7_3), ([3, 1], 0));
}
