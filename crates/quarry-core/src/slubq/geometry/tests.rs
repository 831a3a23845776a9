//! The table of the second posting, the bitmap's room and the slot without a free pointer.

use super::*;
use crate::geometry::CacheFlags;
use crate::geometry::kmalloc::tests::machine;

fn of(machine: &MachineParams, cache: CacheParams) -> Geometry {
    geometry(&RULES, machine, &BootParams::default(), &cache).unwrap()
}

#[test]
fn objects_and_queues_with_small_pages() {
    let table = [
        (8, 0, 504, true, 120, 60),
        (56, 0, 72, true, 120, 60),
        (64, 0, 64, false, 120, 60),
        (256, 1, 32, false, 120, 60),
        (512, 2, 32, false, 54, 27),
        (1024, 3, 32, false, 54, 27),
        (4096, 3, 8, false, 24, 12),
        (8192, 3, 4, false, 8, 4),
    ];
    for (size, order, objects, bitmap_in_slab, queue, batch) in table {
        let g = of(&machine(12, 16), CacheParams::new(size));
        assert_eq!(
            (g.order, g.objects, g.bitmap_in_slab),
            (order, objects, bitmap_in_slab)
        );
        assert_eq!((g.queue, g.batch), (queue, batch));
    }
}

/// A queue is sized by the slot: 1020 bytes with a red zone and tracks take more than 1024.
#[test]
fn queues_are_sized_by_the_slot() {
    let plain = CacheParams::new(1020);
    let tracked = plain.with_flags(CacheFlags::RED_ZONE | CacheFlags::STORE_USER);
    let queue = |cache| of(&machine(12, 16), cache).queue;
    assert_eq!([queue(plain), queue(tracked)], [54, 24]);
}

#[test]
fn bitmap_always_fits() {
    for page_shift in [12, 14, 16] {
        let machine = machine(page_shift, 1);
        for order in 0..=10 {
            for size in (8..=2048).step_by(8) {
                let objects = objects_in_slab(&machine, order, size);
                let used = u64::from(objects) * u64::from(size) + u64::from(bitmap_bytes(objects));
                assert!(
                    used <= machine.slab_bytes(order),
                    "size {size}, order {order}"
                );
            }
        }
    }
}

#[test]
fn freed_objects_are_left_alone() {
    for flags in [CacheFlags::RCU, CacheFlags::CTOR, CacheFlags::POISON] {
        let g = of(&machine(12, 2), CacheParams::new(64).with_flags(flags));
        assert_eq!((g.layout.size, g.layout.free_pointer), (64, None));
    }
    let all = CacheFlags::DEBUG | CacheFlags::CTOR;
    assert_eq!(
        of(&machine(12, 2), CacheParams::new(64).with_flags(all))
            .layout
            .size,
        128
    );
}

#[test]
fn demand_is_capped_at_a_word() {
    let demand = |nr_cpus| {
        RULES
            .order
            .effective_min_objects(&machine(12, nr_cpus), &BootParams::default())
    };
    assert_eq!([1, 16384, 32768, 65536].map(demand), [8, 64, 64, 64]);
    // No limit on objects either.
    let boot = BootParams {
        slub_min_order: 5,
        ..BootParams::default()
    };
    let g = geometry(&RULES, &machine(16, 1), &boot, &CacheParams::new(8)).unwrap();
    assert_eq!(g.objects, (1 << 21) / 8 * 64 / 65);
}
