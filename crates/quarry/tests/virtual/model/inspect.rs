//! Heaps whose slabinfo and sysfs attributes are looked at.

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::geometry::CacheFlags;

use super::scenario::{Object, VirtualCache, VirtualHeap, boot, cache_of, give, on, take};
use super::setup::Setup;

pub(crate) const CPUS: u32 = 4;
pub(crate) const NODES: u32 = 2;

pub(crate) fn heap<D: Design>(era: Era) -> VirtualHeap<D> {
    let setup = Setup::DEFAULT.on(CPUS, NODES);
    boot(era, setup)
}

pub(crate) fn cache<'h, D: Design>(
    heap: &'h VirtualHeap<D>,
    name: &str,
    object_size: u32,
) -> VirtualCache<'h, D> {
    cache_of(heap, name, object_size, CacheFlags::RECLAIM)
}

/// Allocates on all CPUs and frees half of the objects, most on another CPU; gives the others.
pub(crate) fn use_it<D: Design>(heap: &VirtualHeap<D>, cache: VirtualCache<'_, D>) -> Vec<Object> {
    let mut kept = Vec::new();
    for n in 0..3000 {
        on(heap, n % CPUS);
        kept.extend(take(cache, 1));
    }
    for n in 0..1500 {
        on(heap, (n / 3) % CPUS);
        // A stride that visits all slabs.
        let object = kept.swap_remove(n as usize * 7 % kept.len());
        give(cache, &[object]);
    }
    kept
}

pub(crate) fn read<D: Design>(cache: &VirtualCache<'_, D>, name: &str) -> String {
    let mut text = String::new();
    if let Err(error) = cache.sysfs_read(name, &mut text) {
        panic!("{name}: {error}");
    }
    text
}
