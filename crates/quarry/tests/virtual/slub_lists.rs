//! SLUB's partial lists: the worked sequences of what goes on which list, and when it comes off.

use crate::model::slub_class::{
    ERAS, MIN_PARTIAL, PER_SLAB, class_192, ends, full_slabs, give_one_each,
};
use crate::prelude::*;

/// Facts 2.5: 31 slabs fit on the list of 5.9 (30 objects, one per slab, and one more), 12 on
/// that of 6.1 and 6.18; the next free moves all of them under one hold of the list lock.
#[test]
fn the_cpu_partial_list_is_drained_at_its_limit() {
    for (era, limit) in each([(Era::V5_9, 31), (Era::V6_1, 12), (Era::V6_18, 12)]) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, 2 * limit + 2);
        let before = locks_taken(&heap, LockClass::NodeList);
        for (at, slab) in slabs[..limit].iter().enumerate() {
            give(cache, &slab[..1]);
            assert_eq!(stat(cache, Stat::CpuPartialFree), at as u64 + 1);
        }
        assert_eq!(stat(cache, Stat::CpuPartialDrain), 0);
        assert_eq!(
            locks_taken(&heap, LockClass::NodeList),
            before,
            "no list lock so far"
        );

        give(cache, &slabs[limit][..1]);
        assert_eq!(stat(cache, Stat::CpuPartialDrain), 1);
        assert_eq!(stat(cache, Stat::FreeAddPartial), limit as u64);
        assert_eq!(
            locks_taken(&heap, LockClass::NodeList),
            before + 1,
            "one hold for all"
        );

        // A list of one is left, so as many again fit but one.
        give_one_each(cache, &slabs[limit + 1..2 * limit]);
        assert_eq!(stat(cache, Stat::CpuPartialDrain), 1);
        give(cache, &slabs[2 * limit][..1]);
        assert_eq!(stat(cache, Stat::CpuPartialDrain), 2);
        assert_eq!(stat(cache, Stat::FreeAddPartial), 2 * limit as u64);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// An empty slab on the cpu partial list stays there until the drain, which gives it back only if
/// the node has `min_partial` slabs.
#[test]
fn an_empty_slab_on_the_cpu_partial_list_waits_for_the_drain() {
    for era in each(ERAS) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        assert!(cache.set_attribute("min_partial", 2));
        let slabs = full_slabs(cache, 3);
        let locks = locks_taken(&heap, LockClass::NodeList);
        slabs.iter().for_each(|slab| give(cache, slab));
        assert_eq!(cache.usage().slabs, 4);
        if era == Era::V6_18 {
            // Its slabs are not frozen, so the last free looks whether the node lists them.
            assert_eq!(locks_taken(&heap, LockClass::NodeList), locks + 3);
        } else {
            assert_eq!(locks_taken(&heap, LockClass::NodeList), locks);
        }
        // The CPU slab comes first and one empty slab fills the node's list up.
        assert_eq!(cache.flush(), 0);
        assert_eq!(cache.usage().slabs, 2);
        assert_eq!(stat(cache, Stat::DeactivateEmpty), 2);
        assert_eq!(stat(cache, Stat::FreeSlab), 2);
        assert_eq!(stat(cache, Stat::FreeAddPartial), 1);
    }
}

/// Facts 2.8: a slab that becomes empty on the node's list stays while the list is shorter than
/// `min_partial`, and goes when it is not.
#[test]
fn an_empty_slab_stays_below_min_partial() {
    for era in each(ERAS) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, MIN_PARTIAL);
        give_one_each(cache, &slabs[..MIN_PARTIAL - 1]);
        // The CPU slab has free objects too: it is full before the flush.
        let rest = take(cache, PER_SLAB - 1);
        cache.flush();
        let before = cache.usage();
        give(cache, &slabs[0][1..]);
        let kept = cache.usage();
        assert_eq!(kept.slabs, before.slabs, "four on the list");
        assert_eq!(stat(cache, Stat::FreeSlab), 0);

        give(cache, &slabs[MIN_PARTIAL - 1][..1]);
        cache.flush();
        let locks = locks_taken(&heap, LockClass::NodeList);
        give(cache, &slabs[1][1..]);
        assert_eq!(cache.usage().slabs, before.slabs - 1, "five on the list");
        assert_eq!(stat(cache, Stat::FreeRemovePartial), 1);
        assert_eq!(stat(cache, Stat::FreeSlab), 1);
        assert_eq!(
            locks_taken(&heap, LockClass::NodeList),
            locks + 1,
            "only the last free locked"
        );
        give(cache, &rest);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 2.6: a CPU slab goes to the head of the list, to the tail if others freed to it, and
/// nowhere if it is full.
#[test]
fn a_deactivated_slab_goes_to_its_end_of_the_list() {
    for era in each(ERAS) {
        let heap = small(era, 2);
        let cache = class_192(&heap);
        let page = |object: Object| heap.pages().pfn_of(object);
        on(&heap, 0);
        let first = take(cache, 2);
        cache.flush();
        assert_eq!(ends(cache), [1, 0, 0]);

        // A second slab, to which CPU 1 frees: to the tail, behind the first.
        let again = take(cache, PER_SLAB - 2);
        let second = take(cache, 3);
        on(&heap, 1);
        give(cache, &second[..1]);
        cache.flush();
        assert_eq!(ends(cache), [1, 1, 1]);

        // A third without, at the head.
        let fill = take(cache, PER_SLAB - 2);
        assert!(fill.iter().all(|&object| page(object) == page(second[0])));
        let third = take(cache, 1);
        give(cache, &second[1..2]);
        cache.flush();
        assert_eq!(ends(cache), [2, 1, 1]);
        assert_eq!(page(take(cache, 1)[0]), page(third[0]), "from the head");

        let full = stat(cache, Stat::DeactivateFull);
        take(cache, PER_SLAB - 2);
        cache.flush();
        assert_eq!(stat(cache, Stat::DeactivateFull), full + 1);
        give(cache, &first);
        give(cache, &again);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 2.3 step 5: the number of slabs that one visit to the node's list brings. Each has one free object.
#[test]
fn a_visit_to_the_node_list_brings_further_slabs() {
    // 5.9: until more than 15 objects are gathered, so 15 and the first. 6.1 and 6.18: until
    // more than 12 / 2 slabs came, so 7.
    for (era, further) in each([(Era::V5_9, 15), (Era::V6_1, 7), (Era::V6_18, 7)]) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, 40);
        let rest = take(cache, PER_SLAB - 1);
        give_one_each(cache, &slabs);
        cache.flush();
        let locks = locks_taken(&heap, LockClass::NodeList);
        let before = cache.stats();
        take(cache, 1 + further);
        let counted = |which| stat(cache, which) - before.get(which);
        assert_eq!(counted(Stat::AllocFromPartial), 1);
        assert_eq!(counted(Stat::CpuPartialNode), further as u64);
        assert_eq!(counted(Stat::CpuPartialAlloc), further as u64);
        assert_eq!(
            locks_taken(&heap, LockClass::NodeList),
            locks + 1,
            "one hold"
        );
        take(cache, 1);
        assert_eq!(counted(Stat::AllocFromPartial), 2);
        give(cache, &rest);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// With `cpu_partial` 0, releases from 5.16 to 6.9 still take one further slab; others none.
#[test]
fn a_visit_with_cpu_partial_zero() {
    for (era, further) in each([
        (Era::V5_9, 0),
        (Era::V5_15, 0),
        (Era::V5_16, 1),
        (Era::V6_1, 1),
        (Era::V6_9, 1),
        (Era::V6_10, 0),
        (Era::V6_18, 0),
    ]) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, 4);
        take(cache, PER_SLAB - 1);
        give_one_each(cache, &slabs);
        assert!(cache.set_attribute("cpu_partial", 0));
        take(cache, 1);
        assert_eq!(stat(cache, Stat::AllocFromPartial), 1);
        assert_eq!(stat(cache, Stat::CpuPartialNode), further);
    }
}

/// Facts 2.7: other nodes are only asked while they have more than `min_partial` slabs.
#[test]
fn other_nodes_lend_what_they_have_above_min_partial() {
    for era in each(ERAS) {
        let heap = two_nodes::<Slub>(era);
        let cache = class_192(&heap);
        let node = |object| node_of(&heap, object);
        for (listed, lender) in each([(MIN_PARTIAL, 1), (MIN_PARTIAL + 1, 0)]) {
            on(&heap, 0);
            let slabs = full_slabs(cache, listed);
            let rest = take(cache, PER_SLAB - 1);
            give_one_each(cache, &slabs);
            cache.flush();
            on(&heap, 1);
            let object = take(cache, 1)[0];
            assert_eq!(node(object), Some(NodeId(lender)));
            give(cache, &[object]);
            give(cache, &rest);
            slabs.iter().for_each(|slab| give(cache, &slab[1..]));
            cache.shrink();
        }
    }
}

/// Facts 2.9: a shrink gives empty slabs back whatever `min_partial` says, and puts the fullest
/// slabs first, so that these are allocated from next.
#[test]
fn shrink_discards_and_sorts() {
    for era in each(ERAS) {
        let heap = small(era, 1);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, 4);
        let rest = take(cache, PER_SLAB - 1);
        for (slab, freed) in slabs.iter().zip([9, PER_SLAB, 2, 5]) {
            give(cache, &slab[..freed]);
        }
        assert_eq!(cache.shrink(), 0);
        assert_eq!(cache.usage().slabs, 4, "the empty one is gone");
        assert_eq!(stat(cache, Stat::FreeSlab), 1);
        assert!(cache.set_attribute("cpu_partial", 0));
        let page = |object: Object| heap.pages().pfn_of(object);
        let next: Vec<_> = take(cache, 2 + 5 + 9).into_iter().map(page).collect();
        let wanted = [(2, 2), (3, 5), (0, 9)];
        let fullest = wanted.map(|(slab, free)| vec![page(slabs[slab][20]); free]);
        assert_eq!(next, fullest.concat());
        give(cache, &rest);
    }
}
