//! Debugging and what goes past plain allocations and frees: deferred frees, and sheaves in kmalloc classes with
//! debugging.

use crate::model::debugging::{letters, reporting, reports};
use crate::prelude::*;

fn deferred_frees_arrive<D: Design>(era: Era) {
    let heap = reporting::<D>(era);
    let cache = cache_of(&heap, "deferred", 100, letters("FZP"));
    give_later(cache, &take(cache, 20));
    for now in 0..4 {
        grace_period(&heap);
        reap_at(&heap, now);
        cache.shrink();
    }
    let live = live(cache).len();
    assert_eq!(live, 0, "{} {era}", D::NAME);
    assert_eq!(reports(), [], "{} {era}", D::NAME);
    destroy(cache);
}

#[test]
fn deferred_frees_pass_debugging() {
    for_all_designs!(D => {
        for &era in each(D::ERAS.iter().filter(|era| D::debug_rules(**era).is_some())) {
            deferred_frees_arrive::<D>(era);
        }
    });
}

#[test]
fn sheaves_are_objects_of_checked_classes() {
    for text in each(["P,kmalloc-*", "FZPU,kmalloc-*"]) {
        for era in each([Era::V6_18, Era::V7_0]) {
            let heap = reporting::<SheafCache>(era);
            let setting = SlubDebug::parse(text, era).expect("a setting");
            heap.set_slub_debug(Some(setting))
                .expect("a design with debugging");
            let spec = CacheSpec {
                sheaf_capacity: 28,
                ..CacheSpec::new("plain", 100)
            };
            let cache = heap.create_cache(&spec).expect("a cache");
            give(cache, &take(cache, 40));
            cache.shrink();
            for bytes in [192, 256, 512] {
                for _ in 0..30 {
                    heap.kmalloc(bytes, None).expect("memory");
                }
            }
            assert_eq!(reports(), []);
        }
    }
}
