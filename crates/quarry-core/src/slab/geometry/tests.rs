//! Tests of the place of indices by size, the effect of constructors, and that everything fits.

use super::*;
use crate::era::Era;
use crate::geometry::kmalloc::tests::{machine, steps};

fn of(era: Era, machine: &MachineParams, cache: CacheParams) -> Geometry {
    let era = slab_era(era).unwrap();
    geometry(era, machine, &BootParams::default(), &cache).unwrap()
}

/// Facts 8.3: the requested size decides whether the array fits in an object.
#[test]
fn the_requested_size_decides() {
    let machine = machine(12, 2);
    let aligned = |size| CacheParams::new(size).with_flags(CacheFlags::HWCACHE_ALIGN);
    let g = of(Era::V6_1, &machine, aligned(56));
    assert_eq!((g.layout.size, g.objects), (64, 63));
    assert_eq!(g.slab.freelist, FreelistPlace::SlabEnd);
    let g = of(Era::V6_1, &machine, aligned(64));
    assert_eq!((g.objects, g.slab.freelist), (64, FreelistPlace::InObject));
}

/// Facts 3.8 and 8.17: a word in front, one behind, one for the users.
#[test]
fn debugging_adds_words() {
    let machine = machine(12, 2);
    let slot = |era, size, align, flags| {
        let cache = CacheParams::new(size).with_align(align).with_flags(flags);
        let layout = of(era, &machine, cache).layout;
        (layout.red_left_pad, layout.inuse, layout.size, layout.align)
    };
    let (zone, user) = (CacheFlags::RED_ZONE, CacheFlags::STORE_USER);
    for era in [Era::V2_6_24, Era::V6_1] {
        assert_eq!(slot(era, 60, 0, zone | user), (8, 72, 88, 8));
        assert_eq!(slot(era, 64, 0, zone | user), (8, 72, 88, 8));
        assert_eq!(slot(era, 64, 0, zone), (8, 72, 80, 8));
        assert_eq!(slot(era, 64, 0, user), (0, 64, 72, 8));
        for flags in [CacheFlags::POISON, CacheFlags::CONSISTENCY] {
            assert_eq!(slot(era, 64, 0, flags), (0, 64, 64, 8));
        }
        // The object keeps the alignment that its cache asked for.
        assert_eq!(slot(era, 64, 32, zone), (32, 72, 128, 32));
    }
    let aligned = CacheFlags::HWCACHE_ALIGN | zone;
    assert_eq!(slot(Era::V2_6_24, 64, 0, aligned), (8, 72, 80, 8));
    assert_eq!(slot(Era::V6_1, 64, 0, aligned), (64, 72, 192, 64));
}

/// Facts 8.6 and 3.8: no more than 32 in an array.
#[test]
fn debugging_caps_the_arrays() {
    for (size, limits) in [(100, (32, 16, 8)), (300, (32, 16, 8)), (2000, (24, 12, 8))] {
        for era in [Era::V2_6_24, Era::V6_1] {
            let cache = CacheParams::new(size).with_flags(CacheFlags::CONSISTENCY);
            let g = of(era, &machine(12, 2), cache);
            assert_eq!((g.queue, g.batch, g.slab.shared_factor), limits, "{size}");
        }
    }
}

/// Facts 8.3: caches whose objects must stay intact have the array off the slab exactly where the
/// objects nearly fill it.
#[test]
fn constructors_drive_the_array_out() {
    let machine = machine(12, 2);
    for flags in [CacheFlags::CTOR, CacheFlags::RCU] {
        let place = |size| {
            let cache = CacheParams::new(size).with_flags(flags);
            of(Era::V6_1, &machine, cache).slab.freelist
        };
        for size in [128, 136, 240, 256, 512, 1024, 2048, 4096, 8192] {
            assert_eq!(place(size), FreelistPlace::OffSlab, "{size}");
        }
        for size in [64, 120, 144, 232, 248, 264, 504, 520] {
            assert_eq!(place(size), FreelistPlace::SlabEnd, "{size}");
        }
    }
}

/// Facts 3.2: an eighth of a page moves the descriptor off the slab, unless there is room anyway.
#[test]
fn large_objects_have_their_descriptor_elsewhere() {
    let machine = machine(12, 2);
    let place = |size| {
        let g = of(Era::V2_6_24, &machine, CacheParams::new(size));
        (g.objects, g.slab.freelist, g.slab.freelist_bytes)
    };
    assert_eq!(place(504), (7, FreelistPlace::SlabStart, 80));
    assert_eq!(place(512), (8, FreelistPlace::OffSlab, 80));
    assert_eq!(place(568), (7, FreelistPlace::SlabStart, 80));
}

#[test]
fn slabs_hold_what_is_put_in_them() {
    for era in [Era::V2_6_24, Era::V3_13, Era::V4_4, Era::V6_1] {
        for page_shift in [12, 14, 16] {
            for flags in [CacheFlags::NONE, CacheFlags::CTOR, CacheFlags::RECLAIM] {
                for size in (1..3000).chain([4096, 10_000, 65_536, 200_000]) {
                    let machine = machine(page_shift, 4);
                    let g = of(era, &machine, CacheParams::new(size).with_flags(flags));
                    let inside = match g.slab.freelist {
                        FreelistPlace::SlabStart | FreelistPlace::SlabEnd => g.slab.freelist_bytes,
                        _ => 0,
                    };
                    let used = g.objects * g.layout.size + inside;
                    let slab = machine.slab_bytes(g.order);
                    assert_eq!(u64::from(used + g.slack_bytes), slab, "{era} {size}");
                    let indices = g.slab.freelist_bytes - g.slab.descriptor_bytes;
                    assert!(indices >= g.objects * g.slab.index_bytes, "{era} {size}");
                    let last = g.slab.colours.saturating_sub(1) * g.slab.colour_off;
                    assert!(last <= g.slack_bytes, "{era} {size}: colours");
                    assert_eq!(g.layout.size % 8, 0);
                }
            }
        }
    }
}

/// Facts 8.6: the limits by size, and that one CPU shares nothing.
#[test]
fn limits_by_size() {
    let rules = &slab_era(Era::V6_1).unwrap().limits;
    let table = [
        (256, 120, 60, 8),
        (264, 54, 27, 8),
        (1024, 54, 27, 8),
        (1032, 24, 12, 8),
        (4096, 24, 12, 8),
        (4104, 8, 4, 0),
        (131_072, 8, 4, 0),
        (131_080, 1, 1, 0),
    ];
    for (size, limit, batch, shared) in table {
        assert_eq!(limits(rules, &machine(12, 2), size), (limit, batch, shared));
        assert_eq!(limits(rules, &machine(12, 1), size), (limit, batch, 0));
    }
    assert_eq!(limits(rules, &machine(16, 2), 65_536), (24, 12, 8));
}

/// The order may be limited from 6.1 on only.
#[test]
fn slab_max_order_belongs_to_6_1() {
    let boot = BootParams {
        slab_max_order: Some(0),
        ..BootParams::default()
    };
    let cache = CacheParams::new(1680);
    let order = |era| {
        let era = slab_era(era).unwrap();
        geometry(era, &machine(12, 2), &boot, &cache).unwrap().order
    };
    assert_eq!((order(Era::V2_6_24), order(Era::V6_1)), (1, 0));
}

/// The place and size of the indices of 256-byte objects, by release.
#[test]
fn indices_change_at_their_release() {
    let of = |era| {
        let g = of(era, &machine(12, 2), CacheParams::new(256));
        (g.slab.freelist, g.slab.index_bytes, g.objects)
    };
    let at = [
        (Era::V2_6_22, (FreelistPlace::SlabStart, 4, 15)),
        (Era::V3_15, (FreelistPlace::OffSlab, 1, 16)),
        (Era::V4_6, (FreelistPlace::InObject, 1, 16)),
    ];
    steps(ERAS.iter().map(|known| known.era), of, &at);
}

/// Rows of a Debian 3.16 with SLAB, x86-64: the size that is asked for, alignment, objects and pages of a slab.
#[test]
fn slabs_of_debian_3_16() {
    let rows = [
        (80, 8, 50, 1),
        (112, 64, 31, 1),
        (48, 8, 83, 1),
        (24, 8, 163, 1),
        (576, 8, 7, 1),
        (2096, 8, 3, 2),
        (512, 8, 8, 1),
        (256, 8, 16, 1),
        (64, 8, 63, 1),
        (384, 8, 10, 1),
        (128, 8, 32, 1),
        (1088, 8, 7, 2),
        (192, 8, 21, 1),
        (1 << 17, 8, 1, 32),
        (1 << 22, 8, 1, 1024),
    ];
    for (size, align, objects, pages) in rows {
        let cache = CacheParams::new(size).with_align(align);
        for era in [Era::V3_15, Era::V3_16, Era::V4_4, Era::V4_5] {
            let g = of(era, &machine(12, 16), cache);
            assert_eq!((g.objects, 1 << g.order), (objects, pages), "{size}, {era}");
        }
    }
}
