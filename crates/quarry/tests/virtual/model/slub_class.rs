//! The class of SLUB's worked sequences: 21 objects of 192 bytes in a slab of one page.

use quarry_core::era::Era;
use quarry_core::slub::Slub;
use quarry_core::stats::Stat;

use super::scenario::{Object, VirtualCache, VirtualHeap, give, sized, stats, take};

/// Eras of SLUB with cpu partial lists.
pub(crate) const ERAS: [Era; 4] = [Era::V4_13, Era::V5_9, Era::V6_1, Era::V6_18];
/// Objects in a slab.
pub(crate) const PER_SLAB: usize = 21;
/// The default `min_partial`.
pub(crate) const MIN_PARTIAL: usize = 5;

/// A cache of that class.
pub(crate) fn class_192(heap: &VirtualHeap<Slub>) -> VirtualCache<'_, Slub> {
    let cache = sized(heap, "scenario", 192);
    let geometry = cache.head().geometry();
    assert_eq!((geometry.order, geometry.objects), (0, PER_SLAB as u32));
    assert_eq!(geometry.min_partial, MIN_PARTIAL as u32);
    cache
}

/// Makes `slabs` full slabs, each with its objects, and one more object so that none is the CPU slab.
pub(crate) fn full_slabs(cache: VirtualCache<'_, Slub>, slabs: usize) -> Vec<Vec<Object>> {
    let objects = take(cache, slabs * PER_SLAB);
    take(cache, 1);
    objects.chunks(PER_SLAB).map(<[Object]>::to_vec).collect()
}

/// Frees the first object of each slab.
pub(crate) fn give_one_each(cache: VirtualCache<'_, Slub>, slabs: &[Vec<Object>]) {
    for slab in slabs {
        give(cache, &slab[..1]);
    }
}

/// CPU slabs that went to the head of the node's list, to its tail, and those to which others had freed.
pub(crate) fn ends(cache: VirtualCache<'_, Slub>) -> [u64; 3] {
    let ends = [
        Stat::DeactivateToHead,
        Stat::DeactivateToTail,
        Stat::DeactivateRemoteFrees,
    ];
    stats(cache, ends)
}
