//! Merging of caches: which become aliases, of what, and what a reference is.

use crate::prelude::*;
use quarry_sim::Explore;

fn merging<D: Design>(era: Era) -> VirtualHeap<D> {
    let boot = BootParams {
        merge: true,
        ..BootParams::default()
    };
    Heap::new(Setup::default().machine(), era, boot).expect("a heap")
}

/// Facts 1.6, the conditions. In eras where kmalloc caches take others in these sizes have no class.
#[test]
fn what_merges() {
    for &era in each(Slub::ERAS) {
        let heap = merging::<Slub>(era);
        let base = cache_of(&heap, "base", 400, CacheFlags::NONE);
        assert_eq!(base.name(), "base");
        let named = |size, flags| cache_of(&heap, "other", size, flags).name();
        // Less than a word of slack.
        assert_eq!(named(400, CacheFlags::NONE), "base");
        assert_eq!(named(393, CacheFlags::NONE), "base");
        assert_eq!(named(392, CacheFlags::NONE), "other");
        assert_eq!(named(401, CacheFlags::NONE), "other");
        for never in each([CacheFlags::CTOR, CacheFlags::RCU]) {
            assert_eq!(named(400, never), "other");
        }
        assert_eq!(named(400, CacheFlags::RECLAIM), "other");
        // 400 is no multiple of a cache line.
        assert_eq!(named(400, CacheFlags::HWCACHE_ALIGN), "other");
        assert_eq!(base.aliases(), 2);
        let mut text = String::new();
        base.sysfs_read("aliases", &mut text).expect("an attribute");
        assert_eq!(text, "2\n");
        // Nothing merges into a cache that is never merged.
        let ctor = cache_of(&heap, "ctor", 600, CacheFlags::CTOR);
        let plain = cache_of(&heap, "plain", 608, CacheFlags::NONE);
        assert_eq!((ctor.name(), plain.name()), ("ctor", "plain"));
        assert_eq!((ctor.aliases(), plain.aliases()), (0, 0));
    }
}

/// The size that counts is the one after alignment, and the existing size must be a multiple of it.
#[test]
fn alignment_counts() {
    for &era in each(Slub::ERAS) {
        let heap = merging::<Slub>(era);
        let lines = cache_of(&heap, "lines", 400, CacheFlags::HWCACHE_ALIGN);
        assert_eq!(lines.head().geometry().layout.size, 448);
        let named = |size, flags| cache_of(&heap, "other", size, flags).name();
        assert_eq!(named(448, CacheFlags::NONE), "lines");
        assert_eq!(named(385, CacheFlags::HWCACHE_ALIGN), "lines");
        assert_eq!(named(384, CacheFlags::HWCACHE_ALIGN), "other");
    }
}

/// kmalloc caches take others in until 4.13; they exist from boot then.
#[test]
fn kmalloc_caches_take_others_in() {
    for &era in each(Slub::ERAS) {
        let heap = merging::<Slub>(era);
        let takes = era <= Era::V4_13;
        let cache = cache_of(&heap, "skbuff_head_cache", 192, CacheFlags::HWCACHE_ALIGN);
        let name = if takes {
            "kmalloc-192"
        } else {
            "skbuff_head_cache"
        };
        assert_eq!(cache.name(), name);
        let unique = cache.unique_id().expect("mergeable").to_string();
        assert_eq!(unique, ":0000192");
        let class = heap.kmalloc_cache(192).expect("a class");
        assert_eq!(class.unique_id().is_some(), takes);
        let object = heap.kmalloc(192, None).expect("memory");
        give(class, &[object]);
    }
}

/// Facts 1.6: the names in sysfs.
#[test]
fn unique_ids() {
    let heap = merging::<Slub>(Era::V6_18);
    let id = |size, flags| {
        let id = cache_of(&heap, "cache", size, flags).unique_id();
        id.map(|id| id.to_string())
    };
    assert_eq!(id(192, CacheFlags::NONE).as_deref(), Some(":0000192"));
    assert_eq!(id(104, CacheFlags::RECLAIM).as_deref(), Some(":a-0000104"));
    assert_eq!(id(192, CacheFlags::CTOR), None);
    assert_eq!(id(192, CacheFlags::RCU), None);
}

/// Aliases share slabs and counters, keep their names, and each holds a reference.
#[test]
fn the_last_reference_destroys() {
    fn check<D: Design>(era: Era) {
        let heap = merging::<D>(era);
        let first = cache_of(&heap, "first", 396, CacheFlags::NONE);
        let second = cache_of(&heap, "second", 400, CacheFlags::NONE);
        let third = cache_of(&heap, "third", 394, CacheFlags::NONE);
        assert_eq!(first.attribute("object_size"), Some(400));
        assert_eq!(first.head().object_size(), 400);
        let mut names = Vec::new();
        third.for_each_alias(|name| names.push(name.to_owned()));
        assert_eq!(names, ["third", "second"]);
        let objects = take(second, 3);
        give(third, &objects[..1]);
        let slabs = stat(first, Stat::AllocSlab);
        assert!(slabs > 0);
        for (cache, left) in [(second, 1), (first, 0)] {
            // SAFETY: this handle is not used again; others stand for other references.
            unsafe { cache.destroy() }.expect("others use it");
            assert_eq!(third.aliases(), left);
        }
        // SAFETY: as above.
        let error = unsafe { third.destroy() }.expect_err("objects are live");
        assert_eq!(error.live, 2);
        let cache = third;
        give(cache, &objects[1..]);
        let mut listed = 0;
        heap.for_each_cache(|cache| listed += u32::from(!cache.name().starts_with("kmalloc")));
        assert_eq!(listed, 1);
        // SAFETY: as above.
        unsafe { cache.destroy() }.expect("the last one");
        heap.for_each_cache(|cache| assert!(cache.name().starts_with("kmalloc")));
    }
    for &era in Slub::ERAS {
        check::<Slub>(era);
    }
    check::<Slubq>(Era::V2_6_35);
}

/// An alias may come, allocate and go while the last reference is destroyed: its objects keep their cache.
#[test]
fn a_cache_keeps_the_objects_of_an_alias_that_came_and_went() {
    for seed in each(0..u64::from(case_count(1000))) {
        let heap = merging::<Slub>(Era::V6_18);
        let first = cache_of(&heap, "first", 400, CacheFlags::NONE);
        let object = Cell::new(None);
        let how = Explore {
            seed,
            tasks: 2,
            switch_per_mille: [500, 200, 50][seed as usize % 3],
            move_per_mille: 0,
        };
        let explored = heap.machine().explore(&how, |task| {
            let mut mine = first;
            if task == 1 {
                mine = cache_of(&heap, "second", 400, CacheFlags::NONE);
                object.set(mine.alloc());
            }
            // SAFETY: each task gives up its own reference, and uses its handle no more.
            let _ = unsafe { mine.destroy() };
        });
        assert!(explored.is_ok() && object.get().is_some());
        let mut listed = 0;
        heap.for_each_cache(|cache| {
            let walked =
                cache.for_each_live(|live| listed += u32::from(Some(live) == object.get()));
            assert_eq!(walked, Ok(()));
        });
        assert_eq!(listed, 1, "the object is in no cache");
    }
}

/// Without the request, every cache is its own.
#[test]
fn nothing_merges_by_default() {
    for &era in each(Slub::ERAS) {
        let heap = crate::model::scenario::small::<Slub>(era, 1);
        cache_of(&heap, "one", 400, CacheFlags::NONE);
        let two = cache_of(&heap, "two", 400, CacheFlags::NONE);
        assert_eq!((two.name(), two.aliases()), ("two", 0));
    }
}
