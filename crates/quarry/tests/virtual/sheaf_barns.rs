//! Sheaves between CPUs, barns and slabs: which of them a bulk free fills, and which one stays.

use crate::prelude::*;

/// Objects of a sheaf of the cache below.
const SHEAF: usize = 28;

const COUNTERS: [Stat; 4] = [
    Stat::FreeFastpath,
    Stat::FreeSlowpath,
    Stat::BarnPut,
    Stat::SheafAlloc,
];

fn small(cpus: u32) -> VirtualHeap<SheafCache> {
    crate::model::scenario::small(Era::V7_0, cpus)
}

fn cache(heap: &VirtualHeap<SheafCache>) -> VirtualCache<'_, SheafCache> {
    let cache = sized(heap, "scenario", 256);
    assert_eq!(cache.attribute("sheaf_capacity"), Some(SHEAF as u64));
    cache
}

/// Counters that the bulk free of these objects adds.
fn added(cache: VirtualCache<'_, SheafCache>, objects: Vec<Object>) -> [u64; 4] {
    let before = stats(cache, COUNTERS);
    let mut slots: Vec<_> = objects.into_iter().map(Some).collect();
    give_bulk(cache, &mut slots);
    let mut after = stats(cache, COUNTERS);
    for (after, before) in after.iter_mut().zip(before) {
        *after -= before;
    }
    assert_eq!(cache.check_consistency(), Ok(()));
    after
}

/// Facts 6.6: a bulk free fills the main sheaf and the spare. Then it exchanges full ones for the barn's empty ones; it makes
/// no sheaf.
#[test]
fn a_bulk_free_fills_spare_and_barn() {
    let heap = small(1);
    let cache = cache(&heap);
    let objects = take(cache, 2 * SHEAF);
    assert_eq!(added(cache, objects), [2 * SHEAF as u64, 0, 0, 0]);

    // Both are full, and the barn has nothing.
    let mut objects = take(cache, 4 * SHEAF);
    give(cache, &objects.split_off(2 * SHEAF));
    assert_eq!(added(cache, objects), [0, 2 * SHEAF as u64, 0, 0]);

    // Two sheaves that the barn had full come back to it empty.
    let objects = take(cache, 4 * SHEAF);
    give(cache, &objects);
    let objects = take(cache, 4 * SHEAF);
    assert_eq!(added(cache, objects), [4 * SHEAF as u64, 0, 2, 0]);
}

/// Facts 6.8: a barn that has enough full sheaves flushes what readers are done with. It keeps `barn_empty` empty ones.
#[test]
fn a_barn_keeps_as_many_empty_sheaves_as_allowed() {
    for (limit, freed) in each([(0, 3), (1, 2), (2, 1), (3, 0)]) {
        let heap = small(1);
        let cache = cache(&heap);
        let objects = take(cache, 3 * SHEAF);
        assert!(cache.set_attribute("barn_full", 0));
        assert!(cache.set_attribute("barn_empty", limit));
        give_later(cache, &objects);
        let before = stat(cache, Stat::SheafFree);
        grace_period(&heap);
        heap.reap();
        assert_eq!(stat(cache, Stat::SheafFree) - before, freed);
        assert_eq!(cache.usage().active_objs, 0);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Each sheaf waits for the readers of its own time.
#[test]
fn a_sheaf_waits_for_its_own_readers() {
    let heap = small(1);
    let cache = cache(&heap);
    let objects = take(cache, 2 * SHEAF);
    for (round, half) in objects.chunks(SHEAF).enumerate() {
        give_later(cache, half);
        heap.reap();
        assert_eq!(stat(cache, Stat::BarnPut), round as u64, "readers may look");
        grace_period(&heap);
        heap.reap();
        assert_eq!(stat(cache, Stat::BarnPut), round as u64 + 1);
    }
}

/// Facts 2.7: a node without objects asks others only while they list more than `min_partial` slabs.
#[test]
fn other_nodes_lend_what_they_can_spare() {
    for (listed, lender) in each([(1, 1), (2, 1), (3, 0), (4, 0)]) {
        let heap = two_nodes::<SheafCache>(Era::V7_0);
        let cache = cache(&heap);
        for (name, value) in [
            ("sheaf_capacity", 0),
            ("min_partial", 2),
            ("remote_node_defrag_ratio", 100),
        ] {
            assert!(cache.set_attribute(name, value), "{name}");
        }
        let objects = take(cache, listed * 16);
        objects.chunks(16).for_each(|slab| give(cache, &slab[..1]));
        on(&heap, 1);
        let object = take(cache, 1)[0];
        assert_eq!(node_of(&heap, object), Some(NodeId(lender)));
    }
}

/// A flush wakes a worker on the CPUs that have objects, and on no other.
#[test]
fn a_flush_wakes_the_cpus_with_objects() {
    let wakes = |prepare: &dyn Fn(VirtualCache<'_, SheafCache>)| {
        let heap = small(2);
        let cache = cache(&heap);
        on(&heap, 1);
        prepare(cache);
        on(&heap, 0);
        let before = heap.machine().counters().work(Work::RemoteWake);
        assert_eq!(cache.flush(), 0);
        heap.machine().counters().work(Work::RemoteWake) - before
    };
    assert_eq!(wakes(&|_| ()), 0, "empty sheaves");
    assert_eq!(wakes(&|cache| give(cache, &take(cache, 1))), 1, "objects");
    let spare = |cache: VirtualCache<'_, SheafCache>| {
        give(cache, &take(cache, 2 * SHEAF));
        take(cache, SHEAF);
    };
    assert_eq!(wakes(&spare), 1, "a spare behind an empty sheaf");
    let readers = |cache: VirtualCache<'_, SheafCache>| {
        let objects = take(cache, SHEAF);
        give_later(cache, &objects[..1]);
        assert_eq!(cache.flush(), 0);
    };
    assert_eq!(wakes(&readers), 0, "handed over");
    let deferred = |cache: VirtualCache<'_, SheafCache>| {
        let objects = take(cache, SHEAF);
        cache.set_attribute("barn_full", 0);
        give_later(cache, &objects[..1]);
    };
    assert_eq!(wakes(&deferred), 1, "an rcu sheaf");
}

/// A flush says how many CPUs did not let go of their slots.
#[test]
fn a_flush_counts_busy_cpus() {
    let setup = Setup {
        remote_per_mille: 1000,
        ..Setup::DEFAULT.on(3, 1)
    };
    let heap = boot::<SheafCache>(Era::V7_0, setup);
    assert_eq!(sized(&heap, "scenario", 256).flush(), 3);
}

/// Each call works on the line of the CPU's slot, and each trip to the barn on the head of a sheaf.
#[test]
fn slots_and_sheaves_are_accounted() {
    let heap = small(1);
    let cache = cache(&heap);
    give(cache, &take(cache, 2 * SHEAF));
    let touches = |line| heap.machine().counters().touches(line, Access::Write);
    let before = [Line::CpuState, Line::CpuQueue].map(touches);
    take(cache, SHEAF);
    let calls = [Line::CpuState, Line::CpuQueue].map(touches);
    assert_eq!(calls[0] - before[0], SHEAF as u64);
    assert_eq!(calls[1], before[1], "one sheaf");
    take(cache, 1);
    assert!(touches(Line::CpuQueue) > calls[1], "the spare");
}

/// Single steps count in the counters of calls.
#[test]
fn steps_count_as_calls() {
    let machine = Stepping(Setup::DEFAULT.machine());
    let heap = Heap::<_, SheafCache>::new(machine, Era::V7_0, Setup::DEFAULT.boot());
    let heap = heap.expect("a heap");
    let spec = CacheSpec::new("scenario", 256);
    let cache = heap.create_cache(&spec).expect("a cache");
    let objects: Vec<_> = (0..SHEAF).map(|_| cache.alloc().expect("memory")).collect();
    let stat = |stat| cache.stats().get(stat);
    assert_eq!(stat(Stat::AllocFastpath), SHEAF as u64);
    assert_eq!(stat(Stat::FreeFastpath), 0);
    for object in objects {
        assert_eq!(free(cache, object), Ok(()));
    }
    assert_eq!(stat(Stat::AllocFastpath), SHEAF as u64);
    assert_eq!(stat(Stat::FreeFastpath), SHEAF as u64);
}
