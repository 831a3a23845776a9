//! Bulk frees of objects of other nodes, by release.

use crate::prelude::*;

/// Frees a whole slab of 64 objects on the other node's CPU, between as many of its own that fit in its
/// sheaf. Returns what that adds to the counters.
fn bulk_free_of_a_remote_slab(era: Era) -> [u64; 5] {
    let heap = two_nodes::<SheafCache>(era);
    let cache = sized(&heap, "scenario", 64);
    assert!(cache.set_attribute("min_partial", 0));
    let objects = take(cache, 128);
    let slab_of = |object: Object| object.addr().get() >> 12;
    let of_first_slab = |object: &Object| slab_of(*object) == slab_of(objects[0]);
    let remote: Vec<Object> = objects.iter().copied().filter(of_first_slab).collect();
    assert_eq!(remote.len(), 64);

    on(&heap, 1);
    let mut local = take(cache, 8).into_iter();
    let mut slots = Vec::new();
    for eight in remote.chunks(8) {
        slots.extend(eight.iter().copied().map(Some));
        slots.push(local.next());
    }
    let counters = [
        Stat::FreeFastpath,
        Stat::FreeSlowpath,
        Stat::FreeAddPartial,
        Stat::FreeRemovePartial,
        Stat::FreeSlab,
    ];
    let before = stats(cache, counters);
    give_bulk(cache, &mut slots);
    assert_eq!(cache.check_consistency(), Ok(()));
    let mut after = stats(cache, counters);
    for (after, before) in after.iter_mut().zip(before) {
        *after -= before;
    }
    after
}

/// Facts 6.6: up to 7.2 the 32nd remote object that is met takes its portion to the slabs, so the slab is
/// partial before it is empty. From 7.3 on the local ones go first and the remote ones follow in one bulk
/// free: the slab becomes empty at once and is on no list in between.
#[test]
fn remote_objects_go_in_portions_or_at_once() {
    for (era, listed) in each([(Era::V7_0, 1), (Era::V7_2, 1), (Era::V7_3, 0)]) {
        let added = bulk_free_of_a_remote_slab(era);
        assert_eq!(added, [8, 64, listed, listed, 1]);
    }
}
