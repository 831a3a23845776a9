use quarry_core::geometry::CacheFlags;
use quarry_core::machine::Cpus as _;
use quarry_core::slub::Slub;
use quarry_core::slubq::Slubq;

use super::*;
use crate::{Builder, Cache};

#[test]
fn links_and_numbers_are_the_entries() {
    for number in [0, 1, 7, ENTRIES - 1] {
        let entry = Entry::of_number(number);
        assert_eq!(entry.number(), number);
        assert_eq!(entry.tag() >> ADDRESS_BITS, number);
        assert_eq!(entry.tag() << (usize::BITS - ADDRESS_BITS), 0);
        assert!(std::ptr::eq(link_of(number), &entry.link));
    }
}

/// A free goes by the stacks where any object may; calls of caches that check objects never do.
#[test]
fn entries_have_the_stacks_of_caches_that_check_nothing() {
    let heap = HostHeap::new().expect("a heap");
    let has_stacks = |cache: &Cache<u64>| {
        // SAFETY: `claim` wrote the cell, and nothing writes it while the cache lives.
        unsafe { *cache.entry.stacks.get() }.is_some()
    };
    let plain = Cache::new(&heap, "plain").expect("a cache");
    let nodes = heap.machine().topology().nodes;
    assert_eq!(has_stacks(&plain), nodes == 1);
    let flags = CacheFlags::DEBUG_DEFAULT;
    let debugged = Cache::with_flags(&heap, "debugged", flags).expect("a cache");
    assert!(!has_stacks(&debugged));
    // A tunable says whose objects its queues take.
    let queued = Builder::<Slubq>::new().memory_bytes(64 << 20).build();
    let queued = Cache::<u64, Slubq>::new(&queued.expect("a heap"), "queued");
    assert!(queued.expect("a cache").raw.cpu_stacks().is_none());
    // The second object comes from the stack that the first one's free put it on.
    let address = |object: &crate::Owned<u64>| std::ptr::from_ref(&**object).addr();
    let first = plain.alloc(1).expect("memory");
    let place = address(&first);
    drop(first);
    assert_eq!(address(&plain.alloc(2).expect("memory")), place);
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
