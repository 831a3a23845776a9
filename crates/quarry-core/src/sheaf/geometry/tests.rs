use super::*;
use crate::era::Era;
use crate::geometry::CacheFlags;
use crate::geometry::kmalloc::tests::machine;

fn of(era: Era, page_shift: u32, cache: CacheParams) -> Geometry {
    let machine = machine(page_shift, 8);
    let era = sheaf_era(era).unwrap();
    geometry(era, &machine, &BootParams::default(), &cache).unwrap()
}

/// Facts 6.2.
#[test]
fn capacities_of_7_0() {
    let capacity = |page_shift, size| {
        let cache = CacheParams::new(size);
        of(Era::V7_0, page_shift, cache).sheaf_capacity
    };
    for (size, expected) in [(8, 60), (248, 60), (256, 28), (1016, 28), (1024, 12)] {
        assert_eq!(capacity(12, size), expected, "{size} bytes");
        assert_eq!(capacity(16, size), expected, "{size} bytes, large pages");
    }
    // The page decides where the smallest sheaves begin.
    assert_eq!((capacity(12, 4088), capacity(12, 4096)), (12, 4));
    assert_eq!((capacity(16, 4096), capacity(16, 65536)), (12, 4));
}

#[test]
fn the_larger_of_computed_and_asked() {
    let asked = |era, size, asked| {
        let cache = CacheParams::new(size).with_sheaf_capacity(asked);
        of(era, 12, cache).sheaf_capacity
    };
    assert_eq!(asked(Era::V7_0, 256, 32), 32);
    assert_eq!(asked(Era::V7_0, 192, 32), 60);
    assert_eq!(asked(Era::V6_18, 256, 32), 32);
    assert_eq!(asked(Era::V6_18, 256, 0), 0);
}

#[test]
fn debugging_has_no_sheaves() {
    for flags in [
        CacheFlags::RED_ZONE,
        CacheFlags::POISON,
        CacheFlags::STORE_USER,
        CacheFlags::CONSISTENCY,
    ] {
        let cache = CacheParams::new(64)
            .with_flags(flags)
            .with_sheaf_capacity(32);
        for era in [Era::V6_18, Era::V7_0] {
            assert_eq!(of(era, 12, cache).sheaf_capacity, 0, "{flags:?}");
        }
    }
}

/// Facts 1.2 and 1.4: free pointers of step 3, and no partial list of a CPU.
#[test]
fn what_7_0_changes_in_the_slab() {
    let ctor = CacheParams::new(64).with_flags(CacheFlags::CTOR | CacheFlags::FREEPTR_OFFSET);
    let size = |era| of(era, 12, ctor).layout.size;
    assert_eq!((size(Era::V6_18), size(Era::V7_0)), (72, 64));
    let plain = CacheParams::new(64);
    assert_eq!(of(Era::V6_18, 12, plain).cpu_partial, 120);
    let new = of(Era::V7_0, 12, plain);
    assert_eq!((new.cpu_partial, new.cpu_partial_slabs), (0, 0));
}

/// But for that and the sheaves, both eras have 6.18's slabs.
#[test]
fn slabs_are_those_of_slub_6_18() {
    for size in (8..20_000).step_by(56) {
        for page_shift in [12, 14, 16] {
            let machine = machine(page_shift, 64);
            let cache = CacheParams::new(size);
            let slub = slub::geometry::slub_era(Era::V6_18).unwrap();
            let boot = BootParams::default();
            let expected = slub::geometry::geometry(slub, &machine, &boot, &cache).unwrap();
            let old = geometry(&ERAS[0], &machine, &boot, &cache).unwrap();
            assert_eq!(old, expected);
            let new = geometry(&ERAS[1], &machine, &boot, &cache).unwrap();
            let without = Geometry {
                cpu_partial: expected.cpu_partial,
                cpu_partial_slabs: expected.cpu_partial_slabs,
                sheaf_capacity: 0,
                ..new
            };
            assert_eq!(without, expected);
        }
    }
}
