//! SLUB before cpu partial lists: 2.6.22, 2.6.24 and 2.6.35.

use crate::model::slub_class::ends;
use crate::prelude::*;

const ERAS: [Era; 3] = [Era::V2_6_22, Era::V2_6_24, Era::V2_6_35];

/// Counters since `before`, in the order asked for.
fn since<const N: usize>(
    cache: VirtualCache<'_, Slub>,
    before: &quarry_core::stats::Stats,
    stats: [Stat; N],
) -> [u64; N] {
    stats.map(|which| stat(cache, which) - before.get(which))
}

/// Facts 2.14, the good order: each object is freed before the next allocation on its CPU, so the
/// CPU slab always has one free, although the slab of 2.6.22 holds but two.
#[test]
fn seed_003_the_good_order_is_fast() {
    let heap = small::<Slub>(Era::V2_6_22, 1);
    let first = heap.kmalloc(4096, None).expect("memory");
    let cache = heap.kmalloc_cache(4096).expect("a class");
    assert_eq!(cache.name(), "kmalloc-4096");
    let geometry = *cache.head().geometry();
    assert_eq!((geometry.order, geometry.objects), (1, 2));
    give(cache, &[first]);
    let before = cache.stats();
    for _ in 0..100 {
        let sent = take(cache, 1);
        give(cache, &sent);
        let reply = take(cache, 1);
        give(cache, &reply);
    }
    let fast = [Stat::AllocFastpath, Stat::FreeFastpath];
    assert_eq!(since(cache, &before, fast), [200, 200]);
    let slow = [Stat::AllocSlowpath, Stat::FreeSlowpath];
    assert_eq!(since(cache, &before, slow), [0, 0]);
}

/// Facts 2.14, the bad order: a second client allocates before the first one's peer frees. Every
/// allocation takes a partial slab with exactly one free object, which leaves nothing for the
/// next; every free finds a full slab that is no CPU's.
#[test]
fn seed_003_the_bad_order_is_slow() {
    let heap = small::<Slub>(Era::V2_6_22, 1);
    let cache = sized(&heap, "kmalloc-4096", 4096);
    let page = |object: Object| heap.pages().pfn_of(object).map(|pfn| pfn.0 & !1);
    // Of each slab one object stays, so that partial slabs have one free.
    let objects = take(cache, 12);
    let (held, spare): (Vec<_>, Vec<_>) = objects.chunks(2).map(|slab| (slab[0], slab[1])).unzip();
    give(cache, &spare[..5]);
    let mut waiting = take(cache, 3);
    let before = cache.stats();
    let slabs = cache.usage().slabs;
    const ROUNDS: u64 = 50;
    for _ in 0..ROUNDS {
        let next = take(cache, 1)[0];
        assert!(waiting.iter().all(|&other| page(other) != page(next)));
        waiting.push(next);
        give(cache, &[waiting.remove(0)]);
    }
    let calls = [
        Stat::AllocFastpath,
        Stat::AllocSlowpath,
        Stat::FreeFastpath,
        Stat::FreeSlowpath,
    ];
    assert_eq!(since(cache, &before, calls), [0, ROUNDS, 0, ROUNDS]);
    let why = [
        Stat::AllocFromPartial,
        Stat::DeactivateFull,
        Stat::FreeAddPartial,
        Stat::AllocSlab,
        Stat::FreeSlab,
    ];
    assert_eq!(since(cache, &before, why), [ROUNDS, ROUNDS, ROUNDS, 0, 0]);
    assert_eq!(cache.usage().slabs, slabs);
    give(cache, &waiting);
    give(cache, &held);
    give(cache, &spare[5..]);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// Facts 2.5: a full slab that gets a free object goes to the head of the list until 2.6.23 and to
/// the tail later, so the next allocation takes the newest or the oldest.
#[test]
fn a_full_slab_is_listed_at_the_end_of_its_era() {
    for (era, newest) in each([
        (Era::V2_6_22, true),
        (Era::V2_6_23, true),
        (Era::V2_6_24, false),
        (Era::V2_6_35, false),
    ]) {
        let heap = small::<Slub>(era, 1);
        let cache = sized(&heap, "scenario", 192);
        let objects = take(cache, 21 * 4);
        for slab in [0, 1, 2] {
            give(cache, &objects[slab * 21..=slab * 21]);
        }
        assert_eq!(stat(cache, Stat::FreeAddPartial), 3);
        let next = take(cache, 1)[0];
        let expected = if newest { objects[2 * 21] } else { objects[0] };
        assert_eq!(next, expected);
        let counters = [
            Stat::AllocFromPartial,
            Stat::DeactivateFull,
            Stat::AllocRefill,
        ];
        let [partial, full, looked] = stats(cache, counters);
        assert_eq!((partial, full), (1, 4), "four slabs used up");
        assert_eq!(looked, 4, "looks that found nothing count");
        assert_eq!(stat(cache, Stat::DeactivateBypass), 0);
    }
}

/// Facts 2.8: the slab whose last object is freed goes at once, whatever `min_partial` says; a CPU
/// slab that is given up empty stays while the node has fewer than `min_partial`.
#[test]
fn empty_slabs_go_on_the_last_free() {
    for era in each(ERAS) {
        let heap = small::<Slub>(era, 1);
        let cache = sized(&heap, "scenario", 192);
        let objects = take(cache, 22);
        let locks = locks_taken(&heap, LockClass::NodeList);
        give(cache, &objects[..20]);
        assert_eq!(
            locks_taken(&heap, LockClass::NodeList),
            locks + 1,
            "only the first free found the slab full"
        );
        assert_eq!(stat(cache, Stat::FreeSlab), 0);
        give(cache, &objects[20..21]);
        assert_eq!(locks_taken(&heap, LockClass::NodeList), locks + 2);
        assert_eq!(stat(cache, Stat::FreeRemovePartial), 1);
        assert_eq!(stat(cache, Stat::FreeSlab), 1);

        give(cache, &objects[21..]);
        assert_eq!(stat(cache, Stat::FreeFastpath), 1, "the CPU slab");
        cache.flush();
        assert_eq!(stat(cache, Stat::CpuslabFlush), 1);
        assert_eq!(stat(cache, Stat::DeactivateEmpty), 1);
        assert_eq!(stat(cache, Stat::FreeSlab), 1, "kept");
        assert_eq!(cache.usage().slabs, 1);
        cache.shrink();
        assert_eq!(cache.usage().slabs, 0);
        assert_eq!(stat(cache, Stat::FreeSlab), 2);
    }
}

/// Facts 2.6: where a partly used CPU slab goes. Until 2.6.24 always to the head; in 2.6.35 to the
/// tail unless the CPU's list still held objects.
#[test]
fn a_deactivated_slab_goes_to_the_end_of_its_era() {
    for era in each(ERAS) {
        let heap = small::<Slub>(era, 2);
        let cache = sized(&heap, "scenario", 192);
        let objects = take(cache, 2);
        cache.flush();
        assert_eq!(ends(cache), [1, 0, 0], "the CPU's list held objects");
        // The CPU's list runs dry and another CPU frees to the slab.
        let rest = take(cache, 19);
        on(&heap, 1);
        give(cache, &objects[..1]);
        assert_eq!(stat(cache, Stat::FreeFrozen), 1);
        cache.flush();
        let tail = if era == Era::V2_6_35 {
            [1, 1, 1]
        } else {
            [2, 0, 1]
        };
        assert_eq!(ends(cache), tail);
        // Full: on no list.
        on(&heap, 0);
        let last = take(cache, 1);
        cache.flush();
        assert_eq!(ends(cache), tail);
        assert_eq!(stat(cache, Stat::DeactivateFull), 1);
        give(cache, &objects[1..]);
        give(cache, &rest);
        give(cache, &last);
        assert_eq!(cache.usage().slabs, 0);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 2.11: until 2.6.35 an allocation that fails counts nowhere.
#[test]
fn only_successes_count() {
    for era in each(ERAS) {
        let setup = crate::model::setup::Setup {
            pages: 64,
            ..Default::default()
        };
        let heap = crate::model::scenario::boot::<Slub>(era, setup);
        let cache = sized(&heap, "scenario", 1024);
        let objects: Vec<Object> = std::iter::from_fn(|| cache.alloc()).collect();
        assert!(cache.alloc().is_none());
        let counted = stat(cache, Stat::AllocFastpath) + stat(cache, Stat::AllocSlowpath);
        assert_eq!(counted, objects.len() as u64);
        let sources = stat(cache, Stat::AllocSlab);
        assert_eq!(stat(cache, Stat::AllocSlowpath), sources);
        give(cache, &objects);
    }
}

/// Facts 1.7: what a kmalloc of two pages or less becomes.
#[test]
fn large_kmallocs_go_where_their_era_sends_them() {
    for (era, bytes, class) in each([
        (Era::V2_6_22, 2049, Some((1, 2))),
        (Era::V2_6_22, 8192, Some((1, 1))),
        (Era::V2_6_24, 2048, Some((1, 4))),
        (Era::V2_6_24, 2049, None),
        (Era::V2_6_24, 8192, None),
        (Era::V2_6_35, 4096, Some((3, 8))),
        (Era::V2_6_35, 8192, Some((3, 4))),
        (Era::V2_6_35, 8193, None),
    ]) {
        let heap = small::<Slub>(era, 1);
        let object = heap.kmalloc(bytes, None).expect("memory");
        let found = heap.kmalloc_cache(bytes).map(|cache| {
            let geometry = cache.head().geometry();
            (geometry.order, geometry.objects)
        });
        assert_eq!(found, class);
        let large = u64::from(class.is_none());
        assert_eq!(heap.large_counts(), (large, 0));
        kfree(&heap, object).expect("a live object");
        assert_eq!(heap.large_counts(), (large, large));
    }
}
