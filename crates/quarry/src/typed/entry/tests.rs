use quarry_core::geometry::CacheFlags;
use quarry_core::slub::Slub;

use super::*;
use crate::{Builder, Cache};

#[test]
fn links_and_numbers_are_the_entries() {
    for number in [0, 1, 7, ENTRIES - 1] {
        let entry = Entry::of_number(number);
        assert_eq!(entry.number(), number);
        assert!(std::ptr::eq(link_of(number), &entry.link));
    }
}

/// The token's offset is more than the objects that a heap can have, and less than what a counter can.
#[test]
fn the_offset_is_out_of_the_way() {
    let double = IDLE.checked_mul(2);
    assert!(double.is_some_and(|double| double > i64::from(u32::MAX)));
}

/// Frees count down only behind the end of their cache's handle.
#[test]
fn frees_of_live_caches_count_nothing() {
    let heap = Builder::<Slub>::new().memory_bytes(64 << 20).build();
    let heap = heap.expect("a heap");
    let cache = Cache::<u64, Slub>::with_flags(&heap, "counted", CacheFlags::DEBUG_DEFAULT);
    let cache = cache.expect("a cache");
    let entry = cache.entry;
    assert_eq!(entry.watch.load(Ordering::Relaxed), COUNTED);
    let before = entry.left.load(Ordering::Relaxed);
    (0..10).for_each(|number| drop(cache.alloc(number).expect("memory")));
    assert_eq!(entry.left.load(Ordering::Relaxed), before);
    assert_eq!(entry.in_flight.load(Ordering::Relaxed), 0);
}
