//! Worked sequences of caches with magazines: sizes that follow misses, the budget, and the way back.

use crate::prelude::*;
use quarry_core::magazine::Magazine;

const SECOND_NS: u64 = 1_000_000_000;

/// Counters of a CPU's trips to barns and slabs.
const TRIPS: [Stat; 4] = [
    Stat::BarnGet,
    Stat::BarnGetFail,
    Stat::BarnPut,
    Stat::BarnPutFail,
];

fn small(cpus: u32) -> VirtualHeap<Magazine> {
    crate::model::scenario::small(Magazine::DEFAULT_ERA, cpus)
}

fn capacity(cache: VirtualCache<'_, Magazine>) -> u64 {
    cache.attribute("sheaf_capacity").expect("an attribute")
}

/// Allocates and frees a number of objects, again and again.
fn churn(cache: VirtualCache<'_, Magazine>, objects: usize, rounds: usize) {
    for _ in 0..rounds {
        give(cache, &take(cache, objects));
    }
}

/// Objects in sheaves.
fn held(cache: VirtualCache<'_, Magazine>) -> u64 {
    cache.usage().active_objs
}

/// A burst that a CPU's two sheaves do not hold makes them grow until they do; then nothing leaves the CPU.
#[test]
fn sheaves_grow_until_bursts_fit() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    assert_eq!(capacity(cache), 60);
    churn(cache, 100, 50);
    assert_eq!(capacity(cache), 60, "two sheaves hold 120");
    churn(cache, 1000, 50);
    let grown = capacity(cache);
    assert!((500..=1020).contains(&grown), "{grown}");
    let before = stats(cache, TRIPS);
    churn(cache, 1000, 50);
    assert_eq!(stats(cache, TRIPS), before);
    assert_eq!(cache.check_consistency(), Ok(()));
    assert_eq!(live(cache), []);
}

/// However many caches grow, what their sheaves hold beyond new caches' is within 4 MiB for each CPU.
#[test]
fn growth_has_a_budget() {
    let heap = crate::model::scenario::boot::<Magazine>(
        Magazine::DEFAULT_ERA,
        crate::model::setup::Setup::of_pages(1 << 14),
    );
    let names: Vec<String> = (0..60).map(|number| format!("cache-{number}")).collect();
    let mut held_bytes = 0;
    let mut capacities = Vec::new();
    for name in &names {
        let cache = sized(&heap, name, 256);
        churn(cache, 2000, 40);
        held_bytes += held(cache) * 256;
        capacities.push(capacity(cache));
        assert_eq!(cache.check_consistency(), Ok(()));
    }
    // A new cache's two sheaves of 32 objects, and a barn.
    let firsts = names.len() as u64 * (2 * 32 * 256 + (128 << 10));
    assert!(held_bytes <= (4 << 20) + firsts, "{held_bytes}");
    assert_eq!(capacities.first(), Some(&256));
    assert!(
        capacities.last().is_some_and(|last| *last <= 64),
        "{capacities:?}"
    );
}

/// A cache without a miss for a second halves what new sheaves hold, down to a new cache's, and empties its barn; its CPUs
/// keep theirs until they miss.
#[test]
fn what_is_not_used_goes_back() {
    let heap = small(2);
    let cache = sized(&heap, "scenario", 64);
    on(&heap, 1);
    churn(cache, 10_000, 20);
    let grown = capacity(cache);
    let in_sheaves = held(cache);
    assert!(
        grown > 500 && in_sheaves > 3 * grown,
        "{grown} {in_sheaves}"
    );
    on(&heap, 0);
    reap_at(&heap, SECOND_NS);
    assert_eq!(capacity(cache), grown, "it missed since it was made");
    reap_at(&heap, SECOND_NS * 3 / 2);
    assert_eq!(capacity(cache), grown, "no second has passed");
    reap_at(&heap, SECOND_NS * 2);
    assert_eq!(capacity(cache), grown / 2);
    assert!(held(cache) <= 2 * grown, "the barn is empty");
    for second in 3..10 {
        reap_at(&heap, SECOND_NS * second);
    }
    assert_eq!(capacity(cache), 60);
    on(&heap, 1);
    churn(cache, 1000, 100);
    assert_eq!(capacity(cache), 60, "the CPU's sheaves are enough");
    churn(cache, 10_000, 20);
    assert!(capacity(cache) > 500, "it grows again");
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Settings of a user stay.
#[test]
fn what_is_set_stays() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 64);
    assert!(cache.set_attribute("sheaf_capacity", 30));
    churn(cache, 1000, 50);
    for second in 1..5 {
        reap_at(&heap, SECOND_NS * second);
    }
    assert_eq!(capacity(cache), 30);
    assert_eq!(cache.attribute("barn_full"), Some((128 << 10) / (30 * 64)));
    assert!(cache.set_attribute("barn_full", 3));
    assert!(cache.set_attribute("sheaf_capacity", 40));
    assert_eq!(cache.attribute("barn_full"), Some(3));
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// A refill from slabs with few free objects each has all of them, each once; a new slab is handed out by address.
#[test]
fn refills_take_from_many_slabs() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 512);
    assert!(cache.set_attribute("sheaf_capacity", 16));
    let objects = take(cache, 64);
    assert!(objects[..8].is_sorted(), "{:?}", &objects[..8]);
    let mut slots = [None; 8];
    assert!(sized(&heap, "bulk", 512).alloc_bulk(&mut slots));
    assert!(slots.is_sorted(), "{slots:?}");
    // Every third object is freed, and flushed to its slab.
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for (at, object) in objects.into_iter().enumerate() {
        if at % 3 == 0 {
            freed.push(object)
        } else {
            kept.push(object)
        }
    }
    give(cache, &freed);
    cache.flush();
    assert_eq!(live(cache).len(), kept.len());
    let slabs = cache.usage().slabs;
    let again = take(cache, 16);
    assert_eq!(
        cache.usage().slabs,
        slabs,
        "no new slab while others have objects"
    );
    assert!(again.iter().all(|object| freed.contains(object)));
    assert_eq!(live(cache).len(), kept.len() + again.len(), "each once");
    give(cache, &again);
    give(cache, &kept);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Objects that were freed twice make a ring of a slab's list: some are handed out twice then, but nothing breaks.
#[test]
fn a_ring_ends() {
    let heap = small(1);
    let cache = sized(&heap, "scenario", 256);
    let objects = take(cache, 200);
    for pair in objects.chunks(2).take(20) {
        // SAFETY: the test's mistake: it writes to no object afterwards.
        unsafe {
            for object in [pair[0], pair[1], pair[0]] {
                let _ = cache.free(object);
            }
        }
    }
    cache.flush();
    let _ = take(cache, 400);
    cache.flush();
}

/// Sheaves of large objects hold sixteen where CPUs miss, and a barn keeps three of them.
#[test]
fn a_few_large_objects_stay_in_sheaves() {
    let setup = crate::model::setup::Setup::of_pages(1 << 14);
    let heap = crate::model::scenario::boot::<Magazine>(Magazine::DEFAULT_ERA, setup);
    let cache = sized(&heap, "scenario", 50 << 10);
    assert_eq!(capacity(cache), 1);
    churn(cache, 32, 40);
    assert_eq!(capacity(cache), 16);
    churn(cache, 16, 1);
    let before = stats(cache, TRIPS);
    churn(cache, 16, 40);
    assert_eq!(stats(cache, TRIPS), before);
    assert_eq!(cache.attribute("barn_full"), Some(3));
    // More than the CPU has.
    churn(cache, 64, 40);
    let gets = |cache| stats(cache, [Stat::BarnGet, Stat::BarnGetFail]);
    let before = gets(cache);
    churn(cache, 64, 40);
    let after = gets(cache);
    assert!(after[0] > before[0]);
    assert_eq!(after[1], before[1], "no trip goes to slabs");
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// A capacity that a user has set is granted, whatever the budget says.
#[test]
fn what_is_set_needs_no_budget() {
    let heap = crate::model::scenario::boot::<Magazine>(
        Magazine::DEFAULT_ERA,
        crate::model::setup::Setup::of_pages(1 << 14),
    );
    let cache = sized(&heap, "scenario", 50 << 10);
    assert!(cache.set_attribute("sheaf_capacity", 200));
    let objects = take(cache, 1);
    assert_eq!(
        stat(cache, Stat::SheafRefill),
        200,
        "10 MB, of a budget of 6"
    );
    give(cache, &objects);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Capacities of eight caches of large objects, which grow on all CPUs one after the other, and then end.
fn grown_and_gone(heap: &VirtualHeap<Magazine>, cpus: u32) -> Vec<u64> {
    let caches = [(); 8].map(|()| sized(heap, "scenario", 50 << 10));
    let grow = |cache| {
        for cpu in (0..cpus).cycle().take(4 * cpus as usize) {
            on(heap, cpu);
            churn(cache, 40, 20);
        }
        assert_eq!(cache.check_consistency(), Ok(()));
        capacity(cache)
    };
    let capacities = caches.map(grow);
    caches.into_iter().for_each(destroy);
    capacities.into()
}

/// The budget grows with the CPUs. Later caches get half, and half of that; what caches had comes back with their end.
#[test]
fn the_budget_is_for_each_cpu_and_comes_back() {
    let setup = crate::model::setup::Setup::of_pages(1 << 15);
    for (cpus, third) in each([(1, 1), (2, 8), (4, 16)]) {
        let setup = setup.on(cpus, 1);
        let heap = crate::model::scenario::boot::<Magazine>(Magazine::DEFAULT_ERA, setup);
        for _ in 0..2 {
            let capacities = grown_and_gone(&heap, cpus);
            assert_eq!(capacities, [16, 16, third, 1, 1, 1, 1, 1]);
        }
    }
}

/// A small full sheaf of a CPU that missed nothing while others did is emptied; a barn gets large ones.
#[test]
fn small_sheaves_stay_out_of_the_barn() {
    let heap = small(2);
    let cache = sized(&heap, "scenario", 64);
    churn(cache, 10_000, 20);
    let objects = take(cache, 61);
    reap_at(&heap, SECOND_NS);
    reap_at(&heap, 2 * SECOND_NS);
    assert!(capacity(cache) >= 240, "{}", capacity(cache));
    on(&heap, 1);
    // A large sheaf is filled; the first one, of 60, is the spare.
    give(cache, &take(cache, 1));
    let puts = |cache| stats(cache, [Stat::BarnPut, Stat::BarnPutFail]);
    let before = puts(cache);
    give(cache, &objects[..60]);
    assert_eq!(puts(cache), before, "both have room");
    give(cache, &objects[60..]);
    assert_eq!(puts(cache), [before[0], before[1] + 1]);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// A barn keeps an empty sheaf only if new ones are not smaller.
#[test]
fn empty_sheaves_are_kept_while_new_ones_are_as_large() {
    for (set, freed) in each([(60, 0), (30, 1)]) {
        let heap = small(1);
        let cache = sized(&heap, "scenario", 64);
        let objects = take(cache, 60);
        assert!(cache.set_attribute("barn_full", 0));
        give_later(cache, &objects);
        assert!(cache.set_attribute("sheaf_capacity", set));
        let before = stat(cache, Stat::SheafFree);
        grace_period(&heap);
        heap.reap();
        assert_eq!(stat(cache, Stat::SheafFree) - before, freed);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}
