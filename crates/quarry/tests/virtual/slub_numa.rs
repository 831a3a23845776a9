//! SLUB on several nodes: where an allocation looks, era by era.

use crate::model::slub_class::{ERAS, PER_SLAB, class_192, full_slabs, give_one_each};
use crate::prelude::*;

fn node(heap: &VirtualHeap<Slub>, object: Object) -> u32 {
    node_of(heap, object).expect("a page").0
}

fn from(cache: VirtualCache<'_, Slub>, wanted: u32) -> Object {
    cache.alloc_node(NodeId(wanted)).expect("memory")
}

/// Puts `slabs` slabs with one free object each on node 0's list; the rest is full.
fn listed(heap: &VirtualHeap<Slub>, cache: VirtualCache<'_, Slub>, slabs: usize) {
    on(heap, 0);
    let full = full_slabs(cache, slabs);
    take(cache, PER_SLAB - 1);
    give_one_each(cache, &full);
    cache.flush();
}

/// Facts 2.3 step 4: slabs of a cpu partial list that are not of the wanted node become CPU slabs
/// and are deactivated as such until 6.1; 6.18 puts them back to their node.
#[test]
fn the_cpu_partial_list_has_the_wrong_node() {
    for era in each(ERAS) {
        let heap = two_nodes::<Slub>(era);
        let cache = class_192(&heap);
        let slabs = full_slabs(cache, 2);
        give(cache, &[slabs[0][0], slabs[1][0]]);
        let object = from(cache, 1);
        assert_eq!(node(&heap, object), 1);
        let counters = [
            Stat::CpuPartialAlloc,
            Stat::AllocNodeMismatch,
            Stat::DeactivateToHead,
            Stat::DeactivateToTail,
            Stat::DeactivateRemoteFrees,
            Stat::FreeAddPartial,
        ];
        let counted = stats(cache, counters);
        // The CPU slab, which still had objects on the CPU's list, comes first.
        let expected = if era == Era::V6_18 {
            [0, 1, 1, 0, 0, 2]
        } else {
            [2, 3, 1, 2, 2, 0]
        };
        assert_eq!(counted, expected);
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 2.3 steps 4 and 6: with nothing on the wanted node's list, 2.6 looks at other nodes'
/// lists; later eras get new pages of that node.
#[test]
fn a_wish_for_a_node_and_other_nodes_lists() {
    for &era in each(Slub::ERAS) {
        let heap = two_nodes::<Slub>(era);
        let cache = sized(&heap, "scenario", 192);
        listed(&heap, cache, 20);
        on(&heap, 1);
        // One attempt in ten until 2.6.24.
        let lent = (0..40).filter(|_| node(&heap, from(cache, 1)) == 0).count();
        match era {
            Era::V2_6_22 | Era::V2_6_24 => assert!(lent <= 2, "{lent}"),
            Era::V2_6_35 => assert!(lent >= 1, "{lent}"),
            _ => assert_eq!(lent, 0),
        }
        assert_eq!(cache.check_consistency(), Ok(()));
    }
}

/// Facts 2.3 step 6: when the wanted node has no pages left, 6.18 takes partial slabs of other
/// nodes before new ones; 4.13 to 6.1 take new ones.
#[test]
fn the_wanted_node_is_full() {
    for era in each(ERAS) {
        let heap = boot::<Slub>(era, Setup::of_pages(4096).on(2, 2));
        let cache = class_192(&heap);
        listed(&heap, cache, 10);
        on(&heap, 1);
        let mut taken = Vec::new();
        while let Some(pfn) = heap.pages().alloc(0, Some(NodeId(1))) {
            taken.push(pfn);
            if heap.pages().node_of(pfn) == Some(NodeId(0)) {
                break;
            }
        }
        let before = cache.stats();
        assert_eq!(node(&heap, from(cache, 1)), 0);
        let counted = [Stat::AllocFromPartial, Stat::AllocSlab]
            .map(|which| stat(cache, which) - before.get(which));
        let expected = if era == Era::V6_18 { [1, 0] } else { [0, 1] };
        assert_eq!(counted, expected);
    }
}

/// Facts 2.7: the ratio decides when other nodes are asked; sysfs shows a tenth of its value.
#[test]
fn the_defrag_ratio_is_set_while_running() {
    for &era in each(Slub::ERAS) {
        let old = era <= Era::V2_6_24;
        let (name, default) = if old {
            ("defrag_ratio", 10)
        } else {
            ("remote_node_defrag_ratio", 100)
        };
        let other = if old {
            "remote_node_defrag_ratio"
        } else {
            "defrag_ratio"
        };
        let heap = two_nodes::<Slub>(era);
        let cache = sized(&heap, "scenario", 192);
        assert_eq!(cache.attribute(name), Some(default));
        assert_eq!(cache.attribute(other), None);
        assert!(!cache.set_attribute(other, 1));
        for (ratio, lends) in each([(0, false), (99, true)]) {
            assert!(cache.set_attribute(name, ratio));
            assert_eq!(cache.attribute(name), Some(ratio));
            listed(&heap, cache, 20);
            on(&heap, 1);
            let before = stat(cache, Stat::AllocFromPartial);
            take(cache, 1);
            let lent = stat(cache, Stat::AllocFromPartial) - before;
            assert_eq!(lent, u64::from(lends));
            cache.flush();
        }
    }
}
