//! SLUB's knobs while a cache is in use: order of slabs, slabs per CPU, boot parameters of the cpu
//! partial list.

use crate::model::slub_class::{ERAS, PER_SLAB, class_192, full_slabs, give_one_each};
use crate::prelude::*;

fn by_order(cache: VirtualCache<'_, Slub>) -> [u64; 4] {
    let slabs = cache.usage().slabs_by_order;
    [slabs[0], slabs[1], slabs[2], slabs[3]]
}

/// Facts 1.3: 2.6.35 takes another order while slabs of the old one live on; it has to be between
/// the boot parameters.
#[test]
fn the_order_of_2_6_35_is_written_while_running() {
    let setup = Setup {
        min_order: 1,
        ..Setup::default()
    };
    let heap = boot::<Slub>(Era::V2_6_35, setup);
    let cache = sized(&heap, "scenario", 1024);
    let objects = cache.attribute("objs_per_slab").expect("known") as usize;
    let old = cache.attribute("order");
    let first = take(cache, objects);
    for order in each([0, 4, 10]) {
        assert!(!cache.set_attribute("order", order));
        assert_eq!(cache.attribute("order"), old);
    }
    assert!(cache.set_attribute("order", 3));
    assert_eq!(cache.attribute("order"), Some(3));
    assert_eq!(cache.attribute("objs_per_slab"), Some(32));
    let second = take(cache, 32);
    assert!(cache.set_attribute("order", 1));
    let third = take(cache, 8);
    assert_eq!(by_order(cache)[1], if old == Some(1) { 2 } else { 1 });
    assert_eq!(by_order(cache)[3], 1);
    assert_eq!(cache.usage().num_objs, objects as u64 + 40);
    for taken in [second, first, third] {
        give(cache, &taken);
    }
    assert_eq!(cache.check_consistency(), Ok(()));
    cache.shrink();
    assert_eq!(cache.usage().slabs, 0);
}

/// The order is chosen before the first slab in every era; the kernel's file takes writes until 5.8.
#[test]
fn the_order_is_chosen_at_creation() {
    for &era in each(Slub::ERAS) {
        let heap = small::<Slub>(era, 1);
        let cache = sized(&heap, "scenario", 1024);
        let by_file = cache.set_attribute("order", 3);
        assert_eq!(by_file, (Era::V2_6_25..Era::V5_9).contains(&era));
        assert!(cache.set_attribute("slab_order", 3));
        take(cache, 32);
        assert_eq!(by_order(cache), [0, 0, 0, 1]);
        assert!(!cache.set_attribute("slab_order", 0), "it has slabs");
        assert_eq!(cache.attribute("order"), Some(3));
        // As near as one object allows.
        let large = sized(&heap, "large", 9000);
        assert!(large.set_attribute("slab_order", 0));
        assert_eq!(large.attribute("order"), Some(2));
        take(large, 1);
        assert_eq!(by_order(large), [0, 0, 1, 0]);
    }
}

/// The request of the thread of 2007: with several slabs per CPU the bad order of its kmalloc-4096
/// finds its objects on the CPU's own list, and no node's list is locked.
#[test]
fn seed_003_with_more_slabs_per_cpu() {
    let heap = small::<Slub>(Era::V2_6_22, 1);
    let cache = sized(&heap, "kmalloc-4096", 4096);
    assert_eq!(cache.attribute("cpu_slabs_max"), Some(1));
    assert!(cache.set_attribute("cpu_slabs_max", 8));
    assert_eq!(cache.attribute("cpu_slabs_max"), Some(8));
    let objects = take(cache, 12);
    let spare: Vec<_> = objects.chunks(2).map(|slab| slab[1]).collect();
    give(cache, &spare[..5]);
    assert_eq!(cache.usage().cpu_partial_slabs, 5);
    let mut waiting = take(cache, 3);
    let locks = locks_taken(&heap, LockClass::NodeList);
    let before = cache.stats();
    const ROUNDS: u64 = 50;
    for _ in 0..ROUNDS {
        waiting.extend(take(cache, 1));
        give(cache, &[waiting.remove(0)]);
    }
    assert_eq!(locks_taken(&heap, LockClass::NodeList), locks);
    let counted = [
        Stat::CpuPartialAlloc,
        Stat::CpuPartialFree,
        Stat::AllocFromPartial,
        Stat::FreeAddPartial,
    ]
    .map(|which| stat(cache, which) - before.get(which));
    assert_eq!(counted, [ROUNDS, ROUNDS, 0, 0]);
    // Back to one: nothing stays on the CPU's list.
    assert!(cache.set_attribute("cpu_slabs_max", 1));
    let usage = cache.usage();
    assert_eq!((usage.cpu_slabs, usage.cpu_partial_slabs), (0, 0));
    give(cache, &waiting[..1]);
    assert_eq!(cache.usage().cpu_partial_slabs, 0);
    assert_eq!(cache.check_consistency(), Ok(()));
}

/// In every era the knob counts slabs, whatever the era's own limit counts; 1 means no list.
#[test]
fn the_knob_counts_slabs_of_a_cpu() {
    for &era in each(Slub::ERAS) {
        for slabs in each([1u64, 2, 4]) {
            let heap = small::<Slub>(era, 2);
            let cache = sized(&heap, "scenario", 192);
            assert!(cache.set_attribute("cpu_slabs_max", slabs));
            let full = full_slabs(cache, 6);
            give_one_each(cache, &full[..slabs as usize - 1]);
            assert_eq!(stat(cache, Stat::FreeAddPartial), 0);
            assert_eq!(cache.usage().cpu_partial_slabs, slabs - 1);
            // One more: the list goes to the node, or, without a list, the slab itself.
            give(cache, &full[5][..1]);
            let listed = (slabs - 1).max(1);
            assert_eq!(stat(cache, Stat::FreeAddPartial), listed);
            let left = u64::from(slabs > 1);
            assert_eq!(cache.usage().cpu_partial_slabs, left);
            // A visit to the node's list brings no more than fit.
            cache.flush();
            on(&heap, 1);
            take(cache, 1);
            let held = cache.usage().cpu_partial_slabs;
            assert!(held < slabs, "{held}");
            assert_eq!(cache.check_consistency(), Ok(()));
        }
    }
}

/// Without the knob it shows the era's own limit in slabs, and `cpu_partial` undoes it.
#[test]
fn slabs_per_cpu_follow_the_era() {
    let defaults = [
        (Era::V4_13, 32),
        (Era::V5_9, 32),
        (Era::V6_1, 13),
        (Era::V6_18, 13),
    ];
    for (era, slabs) in each(defaults) {
        let heap = small::<Slub>(era, 1);
        let cache = class_192(&heap);
        assert_eq!(cache.attribute("cpu_slabs_max"), Some(slabs));
        assert!(cache.set_attribute("cpu_slabs_max", 2));
        let own = cache.attribute("cpu_partial").expect("known");
        assert!(cache.set_attribute("cpu_partial", own));
        assert_eq!(cache.attribute("cpu_slabs_max"), Some(slabs));
        let full = full_slabs(cache, slabs as usize);
        give_one_each(cache, &full[..slabs as usize - 1]);
        assert_eq!(stat(cache, Stat::CpuPartialDrain), 0);
        let usage = cache.usage();
        assert_eq!(usage.cpu_slabs + usage.cpu_partial_slabs, slabs);
        give(cache, &full[slabs as usize - 1][..1]);
        assert_eq!(stat(cache, Stat::CpuPartialDrain), 1);
    }
}

/// Seed 002 forced one `cpu_partial` on every cache.
#[test]
fn one_cpu_partial_for_all_caches() {
    for era in each(ERAS) {
        let params = BootParams {
            slub_cpu_partial: Some(4),
            ..BootParams::default()
        };
        let machine = Setup::default().machine();
        let heap = Heap::<_, Slub>::new(machine, era, params).expect("a heap");
        for size in [64, 192, 4096] {
            let cache = sized(&heap, "scenario", size);
            assert_eq!(cache.attribute("cpu_partial"), Some(4));
        }
        let cache = class_192(&heap);
        let slabs = match era {
            Era::V4_13 | Era::V5_9 => 5,
            _ => 1,
        };
        let full = full_slabs(cache, slabs + 1);
        give_one_each(cache, &full);
        assert_eq!(stat(cache, Stat::FreeAddPartial), slabs as u64);
        assert_eq!(full[0].len(), PER_SLAB);
    }
}
