//! Sizes, lists and refusals.

use super::*;
use crate::geometry::kmalloc::tests::machine;

fn of(era: Era, cache: CacheParams) -> Result<Geometry, GeometryError> {
    let era = slob_era(era).expect("an era of SLOB");
    geometry(era, &machine(12, 4), &BootParams::default(), &cache)
}

#[test]
fn lists_by_block_size() {
    let [old, new] = [Era::V2_6_24, Era::V6_1].map(|era| slob_era(era).unwrap());
    for bytes in [1, 255, 256, 1024, 4096] {
        assert_eq!(old.list_of(bytes), 0);
    }
    let lists = [1, 255, 256, 1023, 1024, 4095].map(|bytes| new.list_of(bytes));
    assert_eq!(lists, [0, 0, 1, 1, 2, 2]);
    assert!(ERAS.iter().all(|era| era.list_limits.len() < LISTS_MAX));
}

#[test]
fn only_powers_of_two_are_aligned_to_themselves() {
    let [old, new] = [Era::V2_6_24, Era::V6_1].map(|era| slob_era(era).unwrap());
    let sizes = [1, 8, 24, 64, 96, 1024, 1025, 2048];
    assert_eq!(sizes.map(|bytes| old.kmalloc_align(bytes)), [8; 8]);
    assert_eq!(
        sizes.map(|bytes| new.kmalloc_align(bytes)),
        [8, 8, 8, 64, 8, 1024, 8, 2048]
    );
}

#[test]
fn kmallocs_of_a_page_less_the_header_are_pages() {
    assert!(kmalloc_is_block(12, 4087) && !kmalloc_is_block(12, 4088));
    assert!(kmalloc_is_block(16, 65527) && !kmalloc_is_block(16, 65528));
}

#[test]
fn cache_line_alignment_by_era() {
    let asked = |size, flags| CacheParams::new(size).with_flags(flags);
    let align = |era, size| {
        of(era, asked(size, CacheFlags::HWCACHE_ALIGN))
            .expect("a geometry")
            .layout
            .align
    };
    assert_eq!(
        [1, 20, 32, 33].map(|size| align(Era::V2_6_24, size)),
        [64; 4]
    );
    assert_eq!(
        [1, 20, 32, 33].map(|size| align(Era::V6_1, size)),
        [8, 32, 32, 64]
    );
}

#[test]
fn rcu_makes_objects_longer() {
    for era in [Era::V2_6_24, Era::V6_1] {
        let plain = of(era, CacheParams::new(101)).expect("a geometry");
        let rcu = CacheParams::new(101).with_flags(CacheFlags::RCU);
        let rcu = of(era, rcu).expect("a geometry");
        assert_eq!((plain.layout.size, rcu.layout.size), (102, 126));
        // Over the edge of a page.
        let rcu = CacheParams::new(4080).with_flags(CacheFlags::RCU);
        let rcu = of(era, rcu).expect("a geometry");
        assert_eq!((rcu.layout.size, rcu.order, rcu.objects), (4104, 1, 1));
    }
}

#[test]
fn alignment_above_the_block_is_refused() {
    for (size, align, fits) in [
        (100, 4096, true),
        (100, 8192, false),
        (4096, 8192, false),
        (5000, 8192, true),
        (5000, 16384, false),
    ] {
        let asked = CacheParams::new(size).with_align(align);
        let geometry = of(Era::V6_1, asked);
        assert_eq!(geometry.is_ok(), fits, "{size} {align}: {geometry:?}");
    }
}
