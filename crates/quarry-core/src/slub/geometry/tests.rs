//! Layouts, order rules at their edges, and limits.

use std::string::ToString;

use super::*;
use crate::geometry::kmalloc::tests::machine;

/// The report of 2020 proposed classes of large objects by their size, whatever the page size.
#[test]
fn cpu_partial_by_size() {
    let boot = BootParams {
        slub_cpu_partial_by_size: true,
        ..BootParams::default()
    };
    let of = |era, page_shift, size| {
        let era = slub_era(era).unwrap();
        cpu_partial(era, &machine(page_shift, 16), &boot, size, CacheFlags::NONE)
    };
    for page_shift in [12, 16] {
        for (size, objects) in [
            (9856, 1),
            (8192, 1),
            (8191, 2),
            (4096, 2),
            (4095, 6),
            (1024, 6),
            (256, 13),
            (64, 30),
        ] {
            assert_eq!(of(Era::V5_9, page_shift, size), objects, "{size}");
        }
    }
    // Without it, 64 KiB pages make them 6.
    let plain = BootParams::default();
    let era = slub_era(Era::V5_9).unwrap();
    let default = cpu_partial(era, &machine(16, 16), &plain, 9856, CacheFlags::NONE);
    assert_eq!(default, 6);
    assert_eq!(of(Era::V6_1, 16, 9856), 24, "6.1 counts otherwise");
}
use crate::era::Era;
use crate::geometry::NR_CPUS_MAX;

fn era(era: Era) -> &'static SlubEra {
    slub_era(era).unwrap()
}

fn plain(version: Era, page_shift: u32, nr_cpus: u32, size: u32) -> Geometry {
    let boot = BootParams::default();
    geometry(
        era(version),
        &machine(page_shift, nr_cpus),
        &boot,
        &CacheParams::new(size),
    )
    .unwrap()
}

fn slot(version: Era, cache: CacheParams) -> Layout {
    let known = era(version);
    layout(known.align, &known.layout, &machine(12, 2), &cache)
}

fn debug() -> CacheFlags {
    CacheFlags::parse_debug_letters("FZPU").unwrap()
}

#[test]
fn eras_are_ordered_and_found() {
    assert!(ERAS.is_sorted_by(|a, b| a.era < b.era));
    assert!(slub_era(Era::V7_0).is_none());
    for known in Era::REFERENCE {
        assert_eq!(Era::parse(&known.to_string()), Some(known));
    }
    assert_eq!(era(Era::V5_9).formula_cpus(512, 2), 512);
    assert_eq!(era(Era::V6_18).formula_cpus(512, 2), 2);
    assert_eq!(era(Era::V6_18).formula_cpus(512, 1), 512);
}

#[test]
fn fully_debugged_slots() {
    let cache = CacheParams::new(64).with_flags(debug());
    let old = slot(Era::V2_6_35, cache);
    assert_eq!(
        (old.size, old.inuse, old.free_pointer, old.tracks),
        (136, 72, Some(72), Some(80))
    );
    let new = slot(Era::V6_18, cache);
    assert_eq!(
        (new.size, new.red_left_pad, new.requested_size),
        (160, 8, None)
    );
    let kmalloc = cache
        .with_align(64)
        .with_flags(debug() | CacheFlags::KMALLOC);
    let new = slot(Era::V6_18, kmalloc);
    assert_eq!(
        (new.size, new.red_left_pad, new.requested_size),
        (256, 64, Some(144))
    );
}

#[test]
fn free_pointer_by_era() {
    let offset = |version, size, flags| {
        slot(version, CacheParams::new(size).with_flags(flags))
            .free_pointer
            .unwrap()
    };
    let none = CacheFlags::NONE;
    assert_eq!(offset(Era::V2_6_35, 64, none), 0);
    assert_eq!(offset(Era::V5_9, 24, none), 16);
    assert_eq!(offset(Era::V5_9, 8, none), 0);
    assert_eq!(offset(Era::V6_18, 24, none), 8);
    for version in ERAS.iter().map(|known| known.era) {
        for flags in [CacheFlags::RCU, CacheFlags::CTOR, CacheFlags::POISON] {
            let outside = slot(version, CacheParams::new(64).with_flags(flags));
            assert_eq!((outside.free_pointer, outside.size), (Some(64), 72));
            assert!(outside.free_pointer_outside());
        }
    }
    let hint = CacheFlags::RCU | CacheFlags::FREEPTR_OFFSET;
    assert_eq!(offset(Era::V6_1, 192, hint), 192);
    assert_eq!(offset(Era::V6_18, 192, hint), 96);
    assert_eq!(offset(Era::V6_18, 192, hint | CacheFlags::POISON), 192);
    let red = CacheFlags::RED_ZONE;
    assert_eq!(
        (offset(Era::V5_9, 4, red), offset(Era::V6_1, 4, red)),
        (0, 8)
    );
}

/// Slots of every kind: parts in order, inside the slot, and enough room for the free pointer.
#[test]
fn slots_hold_their_parts() {
    for known in &ERAS {
        for bits in 0..64u32 {
            let on = |bit: u32, flag| {
                if bits >> bit & 1 == 1 {
                    flag
                } else {
                    CacheFlags::NONE
                }
            };
            let flags = on(0, CacheFlags::RED_ZONE)
                | on(1, CacheFlags::POISON)
                | on(2, CacheFlags::STORE_USER)
                | on(3, CacheFlags::RCU)
                | on(4, CacheFlags::HWCACHE_ALIGN)
                | on(5, CacheFlags::KMALLOC);
            for size in 1..300 {
                let l = slot(known.era, CacheParams::new(size).with_flags(flags));
                let pointer = l.free_pointer.unwrap();
                assert!(
                    pointer.is_multiple_of(8) && l.size.is_multiple_of(l.align) && l.inuse >= size
                );
                assert!(l.free_pointer_outside() || pointer + 8 <= size.next_multiple_of(8));
                let mut end = if l.free_pointer_outside() {
                    pointer + 8
                } else {
                    l.inuse
                };
                if let Some(tracks) = l.tracks {
                    assert_eq!(tracks, end);
                    end += 2 * known.layout.track_bytes;
                }
                if let Some(requested) = l.requested_size {
                    assert_eq!(requested, end);
                    end += known.layout.requested_size_bytes;
                }
                assert!(l.red_left_pad.is_multiple_of(l.align) && l.red_left_pad + end <= l.size);
                assert!(!flags.contains(CacheFlags::RED_ZONE) || l.inuse > size);
            }
        }
    }
}

#[test]
fn hardware_cache_alignment() {
    let align = |version: Era, size| {
        let cache = CacheParams::new(size).with_flags(CacheFlags::HWCACHE_ALIGN);
        slot(version, cache).align
    };
    assert_eq!(
        [8, 32, 33, 64].map(|size| align(Era::V2_6_24, size)),
        [8, 8, 64, 64]
    );
    assert_eq!(
        [8, 16, 17, 32, 33].map(|size| align(Era::V2_6_35, size)),
        [8, 16, 32, 32, 64]
    );
    assert_eq!(
        slot(Era::V6_18, CacheParams::new(20).with_align(4)).align,
        8
    );
}

#[test]
fn objects_wanted_by_cpus() {
    let table = [
        (1, 8),
        (2, 12),
        (3, 12),
        (4, 16),
        (8, 20),
        (16, 24),
        (32, 28),
        (63, 28),
        (64, 32),
        (128, 36),
        (256, 40),
        (511, 40),
        (512, 44),
    ];
    for (nr_cpus, objects) in table {
        let rules = &era(Era::V5_9).order;
        let demand = rules.effective_min_objects(&machine(16, nr_cpus), &BootParams::default());
        assert_eq!(demand, objects, "{nr_cpus} CPUs");
    }
}

/// task_struct of 9856 bytes with 64 KiB pages, as published on linux-mm in October 2020.
#[test]
fn task_struct_by_cpus_and_max_order() {
    let by_cpus = [(1, 1), (2, 1), (4, 2), (16, 2), (32, 3), (64, 3), (512, 3)];
    for version in [Era::V5_9, Era::V6_1, Era::V6_18] {
        for ((nr_cpus, default_order), max_order) in by_cpus
            .into_iter()
            .flat_map(|row| (0..=3).map(move |max| (row, max)))
        {
            let boot = BootParams {
                slub_max_order: Some(max_order),
                ..BootParams::default()
            };
            let cache = CacheParams::new(9856);
            let g = geometry(era(version), &machine(16, nr_cpus), &boot, &cache).unwrap();
            let order = max_order.min(default_order);
            assert_eq!(g.order, order, "{version}, {nr_cpus} CPUs, max {max_order}");
            assert_eq!(g.objects, [6, 13, 26, 53][g.order as usize]);
        }
    }
}

/// 5.9 and 6.18 agree but for some sizes: 5.9 takes one object in order 2 and 6.18 two in order 3.
#[test]
fn searches_agree() {
    for page_shift in [12, 14, 16] {
        for nr_cpus in [1, 2, 8, 16, 64, 256, 512] {
            for size in (8..=40000).step_by(8) {
                let old = plain(Era::V5_9, page_shift, nr_cpus, size);
                let new = plain(Era::V6_18, page_shift, nr_cpus, size);
                if page_shift == 12 && (10928..=12280).contains(&size) {
                    assert_eq!(
                        (old.order, old.objects, new.order, new.objects),
                        (2, 1, 3, 2)
                    );
                    continue;
                }
                assert_eq!(
                    (old.order, old.objects),
                    (new.order, new.objects),
                    "size {size}"
                );
                if size <= 10000 {
                    let older = plain(Era::V2_6_35, page_shift, nr_cpus, size);
                    assert_eq!(old.order, older.order, "size {size}");
                }
            }
        }
    }
}

#[test]
fn fallback_order_holds_one_object() {
    let g = plain(Era::V5_9, 12, 64, 4096);
    assert_eq!(
        (g.order, g.objects, g.min_order, g.min_objects),
        (3, 8, 0, 1)
    );
    let g = plain(Era::V2_6_24, 12, 64, 4096);
    assert_eq!((g.order, g.min_order, g.min_objects), (1, 1, 2));
}

#[test]
fn object_limits() {
    let boot = BootParams {
        slub_min_order: 5,
        ..BootParams::default()
    };
    let order = |version: Era| {
        let g = geometry(era(version), &machine(16, 2), &boot, &CacheParams::new(8));
        g.map(|g| (g.order, g.objects))
    };
    // 2^21 bytes would hold 262144.
    let refused = GeometryError::TooManyObjects {
        objects: 262_144,
        limit: 65535,
    };
    assert_eq!(order(Era::V2_6_22), Err(refused));
    assert_eq!(order(Era::V2_6_24), Ok((2, 32768)));
    assert_eq!(order(Era::V2_6_35), Ok((2, 32768)));
    assert_eq!(order(Era::V5_9), Ok((1, 16384)));
    assert_eq!(order(Era::V6_18), Ok((1, 16384)));
}

#[test]
fn contradicting_orders() {
    let orders = |version: Era, min, max| {
        let boot = BootParams {
            slub_min_order: min,
            slub_max_order: max,
            ..BootParams::default()
        };
        era(version).order.effective_orders(&machine(12, 2), &boot)
    };
    assert_eq!(orders(Era::V6_18, 5, None), (5, 5));
    assert_eq!(orders(Era::V6_18, 2, Some(1)), (1, 1));
    assert_eq!(orders(Era::V5_9, 5, None), (5, 3));
    assert_eq!(orders(Era::V5_9, 0, Some(99)), (0, 10));
    assert_eq!(orders(Era::V2_6_22, 0, None), (0, 1));
}

#[test]
fn every_size_up_to_the_largest_slab_has_an_order() {
    for known in &ERAS {
        for page_shift in 12..=16 {
            let machine = machine(page_shift, 64);
            let max = machine.slab_bytes_max() as u32;
            let boot = BootParams::default();
            for size in [1, 7, max / 3, max - 1, max] {
                let g = geometry(known, &machine, &boot, &CacheParams::new(size)).unwrap();
                assert!(g.objects >= 1 && g.min_objects >= 1);
            }
            let above = geometry(known, &machine, &boot, &CacheParams::new(max + 1));
            assert!(matches!(above, Err(GeometryError::SizeTooLarge { .. })));
        }
    }
}

#[test]
fn partial_limits() {
    let limits = |version, page_shift, size| {
        let g = plain(version, page_shift, 64, size);
        (g.cpu_partial, g.cpu_partial_slabs, g.min_partial)
    };
    assert_eq!(limits(Era::V2_6_24, 12, 192), (0, 0, 5));
    assert_eq!(limits(Era::V2_6_35, 12, 192), (0, 0, 7));
    assert_eq!(limits(Era::V5_9, 12, 192), (30, 0, 5));
    assert_eq!(limits(Era::V6_18, 12, 192), (120, 6, 5));
    assert_eq!(limits(Era::V6_18, 12, 9856), (6, 4, 6));
    assert_eq!(limits(Era::V6_18, 16, 9856), (24, 1, 6));
    assert_eq!(cpu_partial_slabs(u32::MAX / 2, 1), u32::MAX - 1);
    let flags = CacheFlags::CONSISTENCY;
    let known = era(Era::V5_9);
    assert_eq!(
        cpu_partial(known, &machine(12, 2), &BootParams::default(), 64, flags),
        0
    );
}

#[test]
fn errors_say_what_is_valid() {
    let known = era(Era::V6_18);
    let boot = BootParams::default();
    let good = machine(12, 2);
    let check = |machine: MachineParams, boot: BootParams, cache: CacheParams, part: &str| {
        let message = geometry(known, &machine, &boot, &cache)
            .unwrap_err()
            .to_string();
        assert!(message.contains(part), "{message}");
    };
    let cache = CacheParams::new(64);
    check(good, boot, CacheParams::new(0), "at least 1 byte");
    check(good, boot, CacheParams::new(5 << 20), "4194304");
    check(good, boot, cache.with_align(24), "24 is not a power of two");
    check(
        good,
        boot,
        cache.with_align(8 << 20),
        "above the largest slab",
    );
    check(machine(9, 2), boot, cache, "12..=16");
    check(machine(12, 0), boot, cache, "1..=65536");
    check(machine(12, NR_CPUS_MAX + 1), boot, cache, "65537 CPUs");
    check(
        MachineParams {
            cache_line: 48,
            ..good
        },
        boot,
        cache,
        "48 bytes",
    );
    check(
        good,
        BootParams {
            slub_min_order: 11,
            ..boot
        },
        cache,
        "slub_min_order is 11",
    );
    let error = CacheFlags::parse_list("rcu,hw").unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown cache flag \"hw\"; valid are hwcache, rcu, ctor, reclaim, freeptr"
    );
    assert_eq!(
        CacheFlags::parse_list(" rcu, ctor"),
        Ok(CacheFlags::RCU | CacheFlags::CTOR)
    );
}

/// Facts of each release by a figure that its rule moves: a value, and the release it begins at.
#[track_caller]
fn steps<T: PartialEq + core::fmt::Debug>(of: impl Fn(&SlubEra) -> T, steps: &[(Era, T)]) {
    for known in &ERAS {
        let step = steps.iter().rfind(|(from, _)| known.era >= *from);
        assert_eq!(of(known), step.unwrap().1, "{}", known.era);
    }
}

#[test]
fn limits_change_at_their_release() {
    let of = |known: &SlubEra, cache: CacheParams| {
        geometry(known, &machine(12, 2), &BootParams::default(), &cache).unwrap()
    };
    let min_partial = |known: &SlubEra| of(known, CacheParams::new(1024)).min_partial;
    let partial = [
        (Era::V2_6_22, 2),
        (Era::V2_6_24, 5),
        (Era::V2_6_27, 10),
        (Era::V3_2, 5),
    ];
    steps(min_partial, &partial);
    let listed = |known: &SlubEra| {
        let g = of(known, CacheParams::new(1024));
        (g.cpu_partial, g.cpu_partial_slabs)
    };
    let lists = [
        (Era::V2_6_22, (0, 0)),
        (Era::V3_2, (6, 0)),
        (Era::V5_16, (24, 3)),
    ];
    steps(listed, &lists);
    let cpus = |known: &SlubEra| known.formula_cpus(64, 4);
    steps(
        cpus,
        &[(Era::V2_6_22, 1), (Era::V2_6_26, 64), (Era::V5_11, 4)],
    );
    let ratio = |known: &SlubEra| known.run.remote_node_defrag_ratio;
    steps(ratio, &[(Era::V2_6_22, 100), (Era::V2_6_27, 1000)]);
}

/// 2 CPUs ask for 12 objects; 13000 bytes fit twice in the largest order. Halving 12 misses 2; one
/// at a time does not.
#[test]
fn orders_change_at_their_release() {
    let order = |size| {
        move |known: &SlubEra| {
            let cache = CacheParams::new(size);
            let g = geometry(known, &machine(12, 2), &BootParams::default(), &cache).unwrap();
            (g.order, g.min_order)
        }
    };
    let large = [(Era::V2_6_22, (2, 2)), (Era::V2_6_30, (3, 2))];
    steps(order(13000), &large);
    let small = [(Era::V2_6_22, (0, 0)), (Era::V2_6_26, (1, 0))];
    steps(order(512), &small);
    // At most 1/4 may be left over until 6.6, half of the slab from 6.7 on.
    let slack = [
        (Era::V2_6_22, (2, 2)),
        (Era::V2_6_30, (2, 2)),
        (Era::V6_7, (3, 2)),
    ];
    steps(order(11000), &slack);
    let limit = |known: &SlubEra| known.order.object_limit;
    let limits = [
        (Era::V2_6_22, ObjectLimit::Refuse(65535)),
        (Era::V2_6_23, ObjectLimit::StopGrowing(65535)),
        (Era::V2_6_26, ObjectLimit::BelowLimit(65535)),
        (Era::V3_1, ObjectLimit::BelowLimit(32767)),
    ];
    steps(limit, &limits);
}

#[test]
fn slots_change_at_their_release() {
    let of = |cache: CacheParams| {
        move |known: &SlubEra| layout(known.align, &known.layout, &machine(12, 2), &cache)
    };
    let plain = CacheParams::new(24);
    let pointer = |known: &SlubEra| of(plain)(known).free_pointer.unwrap();
    steps(
        pointer,
        &[(Era::V2_6_22, 0), (Era::V5_7, 16), (Era::V5_13, 8)],
    );
    let zoned = of(plain.with_flags(CacheFlags::RED_ZONE));
    steps(
        |known| zoned(known).red_left_pad,
        &[(Era::V2_6_22, 0), (Era::V4_6, 8)],
    );
    let tracked = of(plain.with_flags(CacheFlags::STORE_USER));
    let tracks = [(Era::V2_6_22, 72), (Era::V3_1, 328), (Era::V5_19, 88)];
    steps(|known| tracked(known).size, &tracks);
    let kmalloc = of(plain.with_flags(CacheFlags::STORE_USER | CacheFlags::KMALLOC));
    let outside = [
        (Era::V2_6_22, false),
        (Era::V6_2, true),
        (Era::V6_11, false),
    ];
    steps(|known| kmalloc(known).free_pointer_outside(), &outside);
    let aligned = of(CacheParams::new(20).with_flags(CacheFlags::HWCACHE_ALIGN));
    steps(
        |known| aligned(known).align,
        &[(Era::V2_6_22, 8), (Era::V2_6_26, 32)],
    );
    let named = of(plain.with_flags(CacheFlags::RCU | CacheFlags::FREEPTR_OFFSET));
    let inside = [(Era::V2_6_22, true), (Era::V6_12, false)];
    steps(|known| named(known).free_pointer_outside(), &inside);
}
