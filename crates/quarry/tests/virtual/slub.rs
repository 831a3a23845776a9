//! SLUB's paths: in which order objects come, what each operation counts, and where slabs are made.

use crate::model::slub_class::{ERAS, PER_SLAB, class_192, full_slabs};
use crate::prelude::*;

/// Facts 2.3 and 2.4: a new slab hands out ascending addresses, freed objects come back last in,
/// first out.
#[test]
fn objects_come_in_order() {
    for era in each(ERAS) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        let objects = take(cache, PER_SLAB);
        let distances = objects
            .windows(2)
            .map(|pair| pair[1].addr().get() - pair[0].addr().get());
        assert!(distances.eq([192; PER_SLAB - 1]));
        assert_eq!(stat(cache, Stat::AllocFastpath), PER_SLAB as u64 - 1);
        give(cache, &[objects[3], objects[17], objects[5]]);
        assert_eq!(take(cache, 3), [objects[5], objects[17], objects[3]]);
        let fast = PER_SLAB as u64 + 2;
        assert_eq!(stat(cache, Stat::AllocFastpath), fast);
        assert_eq!(stat(cache, Stat::FreeFastpath), 3);
    }
}

/// Facts 2.3: what others freed to the CPU slab is taken whole, newest first, without a list lock.
#[test]
fn remote_frees_refill_the_cpu_list() {
    for era in each(ERAS) {
        let heap = small(era, 2);
        let cache = class_192(&heap);
        let objects = take(cache, PER_SLAB);
        on(&heap, 1);
        let locks = locks_taken(&heap, LockClass::NodeList);
        give(cache, &[objects[4], objects[9], objects[2]]);
        assert_eq!(stat(cache, Stat::FreeFrozen), 3);
        on(&heap, 0);
        assert_eq!(take(cache, 3), [objects[2], objects[9], objects[4]]);
        assert_eq!(stat(cache, Stat::AllocRefill), 1);
        assert_eq!(stat(cache, Stat::AllocSlowpath), 2, "new slab, refill");
        assert_eq!(locks_taken(&heap, LockClass::NodeList), locks);
        take(cache, 1);
        assert_eq!(stat(cache, Stat::DeactivateBypass), 1);
    }
}

/// Facts 2.11: where a slow allocation ends.
#[test]
fn slow_allocations_have_one_source_each() {
    for era in each(ERAS) {
        let heap = small(era, 2);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, 6);
        give(cache, &[slabs[0][0], slabs[1][0], slabs[2][0]]);
        take(cache, PER_SLAB - 1);
        // From the cpu partial list, three times.
        take(cache, 3);
        on(&heap, 1);
        give(cache, &[slabs[3][0], slabs[4][0]]);
        cache.flush();
        // From the node's list, which brings the other slab too.
        take(cache, 2);
        let get = |which| stat(cache, which);
        let partial = get(Stat::CpuPartialAlloc);
        let others = get(Stat::AllocRefill) + get(Stat::AllocFromPartial) + get(Stat::AllocSlab);
        assert_eq!(partial, 4);
        if era == Era::V6_18 {
            assert_eq!(get(Stat::AllocSlowpath), others + partial);
            assert_eq!(get(Stat::AllocRefill), 0);
        } else {
            assert_eq!(get(Stat::AllocSlowpath), others);
            assert_eq!(get(Stat::AllocRefill), partial);
        }
        assert_eq!(get(Stat::AllocFromPartial), 1);
    }
}

/// When only single pages are left, slabs of the smallest order that holds an object are made.
#[test]
fn fragmented_memory_gives_slabs_of_the_fallback_order() {
    for era in each(ERAS) {
        let heap = boot::<Slub>(era, Setup::of_pages(512));
        let cache = sized(&heap, "scenario", 1000);
        let geometry = *cache.head().geometry();
        assert!(
            geometry.order > 0 && geometry.min_order == 0,
            "{geometry:?}"
        );
        let pages: Vec<_> = std::iter::from_fn(|| heap.pages().alloc(0, None)).collect();
        for pfn in pages.iter().filter(|pfn| pfn.0 % 2 == 0) {
            heap.pages().free_number(*pfn, 0).expect("allocated");
        }
        let objects: Vec<Object> = std::iter::from_fn(|| cache.alloc()).collect();
        assert_eq!(objects.len(), 256 * geometry.min_objects as usize);
        assert_eq!(stat(cache, Stat::OrderFallback), 256);
        assert_eq!(cache.usage().slabs_by_order[0], 256);
        assert_eq!(cache.usage().num_objs, objects.len() as u64);
        give(cache, &objects);
        assert_eq!(cache.shrink(), 0);
        assert_eq!(cache.usage().slabs, 0);
    }
}

/// Seed 002's `task_struct` at 64 KiB pages: the boot limit decides what really happens.
#[test]
fn task_struct_slabs_follow_slub_max_order() {
    for (max_order, objects, bytes) in [(3, 53, 512 << 10), (2, 26, 256 << 10), (1, 13, 128 << 10)]
    {
        let setup = Setup {
            cpus: 64,
            page_shift: 16,
            max_order: Some(max_order),
            ..Setup::default()
        };
        let heap = boot::<Slub>(Era::V5_9, setup);
        let cache = sized(&heap, "scenario", 9856);
        take(cache, objects);
        let usage = cache.usage();
        assert_eq!((usage.slabs, usage.pages), (1, 1 << max_order));
        assert_eq!(usage.pages * 65536, bytes);
        assert_eq!(usage.num_objs, objects as u64);
        take(cache, 1);
        assert_eq!(cache.usage().slabs, 2);
    }
}

/// Facts 2.13: a bulk free counts once for each list of one slab's objects, and looks three
/// objects ahead.
#[test]
fn a_bulk_free_detaches_lists() {
    for era in each(ERAS) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, 4);
        let mixed: Vec<Object> = (0..4).flat_map(|i| [slabs[0][i], slabs[1][i]]).collect();
        let mut slots: Vec<_> = mixed.into_iter().map(Some).collect();
        give_bulk(cache, &mut slots);
        // Three others are looked past, then the list ends: each slab's four objects make two.
        assert_eq!(stat(cache, Stat::FreeSlowpath), 3);
        assert_eq!(stat(cache, Stat::CpuPartialFree), 2);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// A bulk allocation takes runs off the CPU's list, and one slow allocation between two runs; objects
/// come as single allocations bring them. Runs count as many fast calls from 6.8 on; before, those of
/// allocations count none and those of frees one.
#[test]
fn a_bulk_allocation_takes_runs() {
    let edge = [Era::V6_7, Era::V6_8];
    for &era in each(Slub::ERAS.iter().chain(&edge)) {
        let heap = small::<Slub>(era, 1);
        let (one, many) = (sized(&heap, "one", 192), sized(&heap, "many", 192));
        let singles = take(one, 2 * PER_SLAB + 3);
        let mut slots = vec![None; 2 * PER_SLAB + 3];
        assert!(many.alloc_bulk(&mut slots));
        for which in [Stat::AllocSlowpath, Stat::AllocSlab] {
            assert_eq!(stat(many, which), stat(one, which));
        }
        let per_object = u64::from(era >= Era::V6_8);
        let fast = stat(one, Stat::AllocFastpath) * per_object;
        assert_eq!(stat(many, Stat::AllocFastpath), fast);
        let bulk: Vec<Object> = slots.iter().flatten().copied().collect();
        let steps = |objects: &[Object]| -> Vec<bool> {
            let pairs = objects.windows(2);
            pairs
                .map(|two| two[1].addr().get() - two[0].addr().get() == 192)
                .collect()
        };
        assert_eq!(steps(&bulk), steps(&singles));
        // The CPU slab's three are one list; each of the other slabs makes one, too.
        give_bulk(many, &mut slots);
        let frees = [Stat::FreeFastpath, Stat::FreeSlowpath].map(|which| stat(many, which));
        assert_eq!(frees, [1 + 2 * per_object, 2]);
        // Last in, first out: the list was pushed whole and begins with its first object.
        assert_eq!(take(many, 3), bulk[2 * PER_SLAB..]);
        assert_eq!(many.check_consistency(), Ok(()));
    }
}

/// With the slot never available, objects come one by one from the node's list, and go back to
/// their slabs.
#[test]
fn a_busy_slot_leads_to_the_node() {
    for era in each(ERAS) {
        let heap = boot::<Slub>(era, Setup::DEFAULT.busy(1000));
        let cache = class_192(&heap);
        let objects = take(cache, PER_SLAB + 1);
        assert!(objects[..PER_SLAB].is_sorted());
        assert_eq!(stat(cache, Stat::CpuSlotBusy), PER_SLAB as u64 + 1);
        assert_eq!(stat(cache, Stat::AllocFastpath), 0);
        assert_eq!(stat(cache, Stat::AllocSlab), 2);
        give(cache, &objects[..1]);
        assert_eq!(stat(cache, Stat::FreeAddPartial), 1, "full before");
        assert_eq!(stat(cache, Stat::CpuPartialFree), 0);
        give(cache, &objects[1..]);
        assert_eq!(cache.usage().slabs, 2, "below min_partial");
        assert_eq!(cache.check_consistency(), Ok(()));
        destroy(cache);
    }
}

/// A cache with live objects is not destroyed; the refusal names them.
#[test]
fn a_cache_in_use_is_not_destroyed() {
    let heap = small::<Slub>(Era::V6_18, 1);
    let cache = class_192(&heap);
    let objects = take(cache, 10);
    // SAFETY: the test uses no copy of the handle afterwards.
    let error = unsafe { cache.destroy() }.expect_err("objects are live");
    assert_eq!((error.live, error.busy_cpus), (10, 0));
    let message = error.to_string();
    for object in &objects[..8] {
        assert!(message.contains(&format!("{:p}", *object)), "{message}");
    }
    assert!(
        message.contains("scenario still has 10 objects"),
        "{message}"
    );
    assert!(message.ends_with("and 2 more"), "{message}");
    give(cache, &objects);
    destroy(cache);
    assert_eq!(heap.pages().drain_all(), 0);
    let census = heap.pages().check_consistency().expect("consistent");
    assert_eq!((census.slab, census.pcp), (0, 0));
}

/// The cache of a kmalloc class can be destroyed like any other; the next kmalloc makes it anew.
#[test]
fn a_destroyed_kmalloc_class_comes_back() {
    let heap = small::<Slub>(Era::V6_18, 1);
    for _ in 0..3 {
        let object = heap.kmalloc(64, None).expect("memory");
        let class = heap.kmalloc_cache(64).expect("a class");
        // SAFETY: the test uses no copy of the handle afterwards.
        unsafe { class.destroy() }.expect_err("an object is live");
        kfree(&heap, object).expect("a live object");
        destroy(class);
        let mut caches = 0;
        heap.for_each_cache(|_| caches += 1);
        assert_eq!(caches, 0);
    }
}
