//! SLUB's paths at the releases where they changed.

use crate::model::slub_class::{PER_SLAB, full_slabs, give_one_each};
use crate::prelude::*;

/// Objects of 192 bytes. A node keeps 5 slabs of them, whatever the release's default.
fn class(heap: &VirtualHeap<Slub>) -> VirtualCache<'_, Slub> {
    let cache = sized(heap, "scenario", 192);
    assert!(cache.set_attribute("min_partial", 5));
    cache
}

/// True if a slab on the node's list, one of `listed`, stays when its last object is freed.
fn is_kept(era: Era, listed: usize) -> bool {
    let heap = small::<Slub>(era, 1);
    let cache = class(&heap);
    let slabs = full_slabs(cache, listed);
    // The CPU slab is full, so that the flush does not list it.
    take(cache, PER_SLAB - 1);
    give_one_each(cache, &slabs);
    cache.flush();
    let before = cache.usage().slabs;
    give(cache, &slabs[0][1..]);
    assert_eq!(cache.check_consistency(), Ok(()));
    cache.usage().slabs == before
}

/// Until 3.0 an empty slab goes; then it stays while the list has at most `min_partial`, from 3.16 on
/// while it has fewer.
#[test]
fn empty_slabs_on_the_list() {
    let kept = |era| [4, 5, 6].map(|listed| is_kept(era, listed));
    assert_eq!(kept(Era::V3_0), [false, false, false]);
    for era in each([Era::V3_1, Era::V3_2, Era::V3_15]) {
        assert_eq!(kept(era), [true, true, false]);
    }
    for era in each([Era::V3_16, Era::V6_8]) {
        assert_eq!(kept(era), [true, false, false]);
    }
}

/// A slab that was full joins the head of its node's list up to 2.6.23, and the tail from 2.6.24 to 3.1. In 3.2 it joins the CPU's
/// list, whose last slab is the first to serve (facts 2.5).
#[test]
fn where_a_slab_that_was_full_goes() {
    for (era, first) in each([
        (Era::V2_6_23, 1),
        (Era::V2_6_24, 0),
        (Era::V3_0, 0),
        (Era::V3_1, 0),
        (Era::V3_2, 1),
    ]) {
        let heap = small::<Slub>(era, 1);
        let cache = sized(&heap, "scenario", 192);
        let slabs = full_slabs(cache, 2);
        take(cache, PER_SLAB - 1);
        give_one_each(cache, &slabs);
        assert_eq!(take(cache, 1), slabs[first][..1]);
    }
}

/// From 3.2 to 3.5 a drain gives empty slabs back whatever `min_partial` says, until it takes a lock.
/// A flush is no drain that counts.
#[test]
fn empty_slabs_in_a_drain() {
    for (era, gone) in each([
        (Era::V3_2, 3),
        (Era::V3_5, 3),
        (Era::V3_6, 0),
        (Era::V6_8, 0),
    ]) {
        let heap = small::<Slub>(era, 1);
        let cache = class(&heap);
        let slabs = full_slabs(cache, 3);
        slabs.iter().for_each(|slab| give(cache, slab));
        let before = cache.usage().slabs;
        cache.flush();
        assert_eq!(before - cache.usage().slabs, gone);
        assert_eq!(stat(cache, Stat::CpuPartialDrain), 0);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Slabs with 20 free objects each, more than half of `cpu_partial`: one is enough from 3.10 on; before,
/// what the CPU slab brings does not count.
#[test]
fn the_first_slab_of_a_visit() {
    for (era, further) in each([(Era::V3_2, 1), (Era::V3_9, 1), (Era::V3_10, 0)]) {
        let heap = small::<Slub>(era, 1);
        let cache = class(&heap);
        assert_eq!(cache.attribute("cpu_partial"), Some(30));
        let slabs = full_slabs(cache, 4);
        for slab in &slabs {
            give(cache, &slab[1..]);
        }
        cache.flush();
        let listed = [Stat::AllocFromPartial, Stat::CpuPartialNode];
        let before = stats(cache, listed);
        take(cache, 1);
        let after = stats(cache, listed);
        let taken = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(taken, [1, further]);
    }
}

/// With `cpu_partial` 0 a slab that a free finds full goes to the node at once from 4.0 to 5.14; else the CPU keeps
/// one slab.
#[test]
fn no_cpu_partial_objects() {
    for (era, listed) in each([
        (Era::V3_19, 0),
        (Era::V4_0, 1),
        (Era::V5_9, 1),
        (Era::V5_14, 1),
        (Era::V5_15, 0),
        (Era::V6_1, 0),
        (Era::V6_18, 0),
    ]) {
        let heap = small::<Slub>(era, 1);
        let cache = class(&heap);
        assert!(cache.set_attribute("cpu_partial", 0));
        assert_eq!(cache.attribute("cpu_partial"), Some(0));
        let slabs = full_slabs(cache, 2);
        give(cache, &slabs[0][..1]);
        assert_eq!(stat(cache, Stat::CpuPartialFree), 1);
        assert_eq!(stat(cache, Stat::FreeAddPartial), listed);
        give(cache, &slabs[1][..1]);
        assert_eq!(stat(cache, Stat::FreeAddPartial), listed + 1);
    }
}

/// Slabs on the CPU's partial list take frees without a list lock. From 6.8 on they are not frozen, and one of the
/// wrong node goes back to its node; 6.8 itself still counts it as taken.
#[test]
fn slabs_of_the_cpu_partial_list() {
    for (era, frozen, mismatch) in each([
        (Era::V5_9, 1, [2, 2, 0]),
        (Era::V6_7, 1, [2, 2, 0]),
        (Era::V6_8, 0, [2, 0, 2]),
        (Era::V6_9, 0, [0, 0, 2]),
        (Era::V6_18, 0, [0, 0, 2]),
    ]) {
        let heap = two_nodes::<Slub>(era);
        let cache = class(&heap);
        let slabs = full_slabs(cache, 2);
        let before = locks_taken(&heap, LockClass::NodeList);
        give(cache, &slabs[0][..1]);
        give(cache, &slabs[1][..2]);
        assert_eq!(stat(cache, Stat::FreeFrozen), frozen);
        assert_eq!(locks_taken(&heap, LockClass::NodeList), before);
        cache.alloc_node(NodeId(1)).expect("memory");
        let counted = [
            Stat::CpuPartialAlloc,
            Stat::DeactivateRemoteFrees,
            Stat::FreeAddPartial,
        ];
        assert_eq!(stats(cache, counted), mismatch);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// A wish for a node whose list is empty: until 2.6.35 other nodes' lists are searched, the running
/// CPU's first; from 2.6.36 on never before new pages.
#[test]
fn a_wish_and_other_nodes_lists() {
    for (era, from) in each([
        (Era::V2_6_35, 1),
        (Era::V2_6_36, 2),
        (Era::V6_9, 2),
        (Era::V6_10, 2),
    ]) {
        let heap = boot::<Slub>(era, Setup::DEFAULT.on(3, 3));
        let cache = class(&heap);
        for cpu in [0, 1] {
            on(&heap, cpu);
            let slabs = full_slabs(cache, 10);
            give_one_each(cache, &slabs);
        }
        cache.flush();
        let object = cache.alloc_node(NodeId(2)).expect("memory");
        let pfn = heap.pages().pfn_of(object).expect("a page");
        assert_eq!(heap.pages().node_of(pfn), Some(NodeId(from)));
    }
}

/// The order after a shrink: 2.6.22 leaves a list of 10 slabs as it is, later releases sort it, the
/// fullest first.
#[test]
fn short_lists_in_a_shrink() {
    for (era, fullest) in each([
        (Era::V2_6_22, false),
        (Era::V2_6_23, true),
        (Era::V3_19, true),
    ]) {
        let heap = small::<Slub>(era, 1);
        let cache = sized(&heap, "scenario", 192);
        let slabs = full_slabs(cache, 2);
        take(cache, PER_SLAB - 1);
        // Added at the head in 2.6.22 and at the tail later: the fuller one is behind in all.
        let (first, second) = match era {
            Era::V2_6_22 => (1, 5),
            _ => (5, 1),
        };
        give(cache, &slabs[0][..first]);
        give(cache, &slabs[1][..second]);
        cache.shrink();
        let object = take(cache, 1)[0];
        let fuller = usize::from(first > second);
        assert_eq!(slabs[fuller].contains(&object), fullest);
    }
}
