//! When per-CPU page lists are drained, which of them, and how much under one hold of the zone lock, by release.

use crate::page_eras::{GIB, boot, give, pageset, report, take, typed};
use crate::prelude::*;

/// Blocks of a type that an allocation has until it refills.
fn left(pages: &Pages, migratetype: MigrateType) -> u32 {
    let mut left = 0;
    let refills = report(pages).pcp.refills;
    while report(pages).pcp.refills == refills {
        typed(pages, migratetype, 0);
        left += 1;
    }
    left - 1
}

/// Lists take turns when they are drained, the second first; one that comes after empty ones gives more.
#[test]
fn drains_take_turns() {
    let pages = boot(Era::V4_13, GIB);
    let mut unmovable = take(&pages, 310);
    let movable: Vec<Pfn> = (0..310)
        .map(|_| typed(&pages, MigrateType::Movable, 0))
        .collect();
    give(&pages, &mut unmovable, 93);
    give_pages(&pages, &movable[..93], 0);
    assert_eq!(report(&pages).pcp.drained, 31);
    // The second list gives 1; then the third is met, which is empty, and the first gives 2: ten times, and
    // 1 more of the second.
    let types = [MigrateType::Unmovable, MigrateType::Movable];
    assert_eq!(types.map(|of| left(&pages, of)), [93 - 20, 93 - 11]);
}

/// From 5.18 on a drain begins with the list of the block just freed, and empties it before it goes on. In 5.14
/// it takes turns over 15 lists: 1 of the second, 14 of the first, four times, then 1 and 2.
#[test]
fn drains_begin_with_the_list_just_freed() {
    for (era, expected) in each([
        (Era::V5_14, [700 - 58, 586 - 5]),
        (Era::V5_18, [700, 586 - 63]),
        (Era::V6_1, [700, 586 - 63]),
    ]) {
        let pages = boot(era, GIB);
        let mut unmovable = take(&pages, 1260);
        let movable: Vec<Pfn> = (0..1260)
            .map(|_| typed(&pages, MigrateType::Movable, 0))
            .collect();
        give(&pages, &mut unmovable, 700);
        give_pages(&pages, &movable[..586], 0);
        assert_eq!(report(&pages).pcp.drained, 63);
        let types = [MigrateType::Unmovable, MigrateType::Movable];
        assert_eq!(types.map(|of| left(&pages, of)), expected);
    }
}

/// 5.18 to 6.6: when frees have been drained without an allocation between them, the free of a larger
/// block empties the lists.
#[test]
fn a_larger_block_empties_the_lists() {
    for (era, empties) in each([(Era::V5_17, false), (Era::V5_18, true), (Era::V6_6, true)]) {
        let pages = boot(era, GIB);
        let mut hand = take(&pages, 63 * 30);
        let block = pages.alloc(1, None).expect("memory");
        pages.free_number(block, 1).expect("allocated");
        assert_eq!(report(&pages).pcp.drains, 0, "no spree yet");
        let block = pages.alloc(1, None).expect("memory");
        // A refill brings 31 blocks of two pages.
        let rest = pageset(&pages).count as usize;
        assert_eq!(rest, 60);
        give(&pages, &mut hand, 1286 - rest);
        assert_eq!(report(&pages).pcp.drains, 1);
        pages.free_number(block, 1).expect("allocated");
        let (count, drains) = (pageset(&pages).count, report(&pages).pcp.drains);
        let kept = 1286 - 63 + 2;
        assert_eq!((count, drains), if empties { (0, 2) } else { (kept, 1) });
    }
}

/// From 6.7 on the second free of a larger block in a row drains the lists, once 63 pages are counted, from
/// 6.16 on 63 + 1286/2 = 706. It gives at most 2016.
#[test]
fn larger_blocks_end_a_spree() {
    for (era, counted) in each([
        (Era::V6_7, 63),
        (Era::V6_15, 63),
        (Era::V6_16, 706),
        (Era::V6_18, 706),
    ]) {
        let pages = boot(era, GIB);
        let blocks = take_pages(&pages, 1, 3);
        let mut hand = take(&pages, 1200);
        give(&pages, &mut hand, counted - 3);
        pages.free_number(blocks[0], 1).expect("allocated");
        pages.free_number(blocks[1], 1).expect("allocated");
        assert_eq!(report(&pages).pcp.drains, 0, "one less is counted");
        pages.free_number(hand.remove(0), 0).expect("allocated");
        pages.free_number(blocks[2], 1).expect("allocated");
        assert_eq!(
            report(&pages).pcp.drains,
            0,
            "the free before was of one page"
        );
    }
    for (era, counted) in each([(Era::V6_7, 63), (Era::V6_18, 706)]) {
        let pages = boot(era, GIB);
        let blocks = take_pages(&pages, 1, 2);
        let mut hand = take(&pages, 1200);
        give(&pages, &mut hand, counted - 2);
        let high = pageset(&pages).high;
        pages.free_number(blocks[0], 1).expect("allocated");
        pages.free_number(blocks[1], 1).expect("allocated");
        let lists = pageset(&pages);
        assert_eq!((report(&pages).pcp.drains, lists.count), (1, 0));
        // High falls by 32 batches, not below its least.
        assert_eq!((high, lists.high), (1286 + 63 + 1953, 1286));
    }
}

/// On a machine whose CPUs have more than three batches of the last-level cache each, a spree drains the
/// lists only when they hold a batch; else each larger block that is freed does.
#[test]
fn a_large_cache_keeps_a_batch() {
    for (cache_share_bytes, drains) in each([
        (3 * 63 * 4096, 39),
        (3 * 63 * 4096 + 4096, 2),
        (PageConfig::new(Era::V6_18).cache_share_bytes, 2),
    ]) {
        let config = PageConfig {
            cache_share_bytes,
            ..PageConfig::new(Era::V6_18)
        };
        let pages = configured_pages(Setup::of_pages(GIB), &config);
        let blocks = take_pages(&pages, 1, 40);
        let mut hand = take(&pages, 1200);
        give(&pages, &mut hand, 704);
        give_pages(&pages, blocks, 1);
        // The second block does in both cases; 32 more are 64 pages.
        assert_eq!(report(&pages).pcp.drains, drains);
    }
}

/// From 6.19 on a drain gives back a batch under each hold of the zone lock; refills and flushes bring and
/// take as much as before. From 6.10 on a flush takes 32 batches a hold, before all.
#[test]
fn drains_move_a_batch_a_hold() {
    for (era, holds, flushes) in each([
        (Era::V6_9, 1, 1),
        (Era::V6_10, 1, 2),
        (Era::V6_18, 1, 2),
        (Era::V6_19, 32, 2),
        (Era::V7_3, 32, 2),
    ]) {
        let pages = boot(era, GIB);
        let mut hand = take(&pages, 3969);
        let refills = report(&pages).pcp.refills;
        assert_eq!(refills, 6);
        for _ in 0..3 {
            assert_eq!(pages.vmstat_update(), 0);
        }
        let zone_locks = || pages.machine().counters().locks(LockClass::Zone);
        let before = zone_locks();
        give(&pages, &mut hand, 3522);
        assert_eq!(zone_locks() - before, holds);
        let pcp = report(&pages).pcp;
        assert_eq!((pcp.drains, pcp.drained), (holds, 2016));
        give(&pages, &mut hand, 447);
        let before = zone_locks();
        // 1953 pages, and under one hold 1000 more.
        let stock = PcpStock {
            pages: [1000, 0, 0],
            high: 3522,
            zone: None,
        };
        assert!(pages.stock_pcp(CpuId(0), &stock).is_some());
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(zone_locks() - before, flushes + 1);
    }
}

/// An allocation of a single page halves what frees count, a bulk allocation does not, by steps or with the
/// lists held.
#[test]
fn bulk_allocations_end_no_spree() {
    fn drained<M: Machine>(machine: M, bulk: bool) -> u64 {
        let config = PageConfig::new(Era::V6_1);
        let pages = PageAllocator::with_config(machine, &config).expect("a page allocator");
        let mut hand = take_pages(&pages, 0, 5040);
        let mut give = |count: usize| {
            give_pages(&pages, hand.drain(..count), 0);
            pages.stats().pcp.drained
        };
        assert_eq!(give(1286), 63);
        assert_eq!(give(63), 63 + 126);
        if bulk {
            assert_eq!(pages.alloc_bulk(None, &mut [None; 64]), 64);
        } else {
            assert!((0..64).all(|_| pages.alloc(0, None).is_some()));
        }
        give(126 + 64) - 63 - 126
    }
    let machine = || Setup::of_pages(GIB).machine();
    assert_eq!(
        [drained(machine(), true), drained(machine(), false)],
        [252, 63]
    );
    let stepped = |bulk| drained(Stepping(machine()), bulk);
    assert_eq!([stepped(true), stepped(false)], [252, 63]);
}

/// Blocks of up to eight pages end a spree, huge pages do not.
#[test]
fn huge_pages_end_no_spree() {
    for (order, drains) in each([(1, 1), (3, 1), (9, 0)]) {
        let pages = boot(Era::V6_7, GIB);
        let blocks = take_pages(&pages, order, 2);
        let mut hand = take(&pages, 200);
        give(&pages, &mut hand, 100);
        give_pages(&pages, blocks, order);
        assert_eq!(report(&pages).pcp.drains, drains, "order {order}");
    }
}

/// The lists are drained by a spree if they hold a batch exactly.
#[test]
fn a_batch_is_worth_a_drain() {
    for (left, drains) in each([(63, 1), (62, 0)]) {
        let config = PageConfig {
            cache_share_bytes: 3 * 63 * 4096 + 4096,
            ..PageConfig::new(Era::V6_18)
        };
        let pages = configured_pages(Setup::of_pages(GIB), &config);
        let blocks = take_pages(&pages, 1, 2);
        let mut hand = take(&pages, 1200);
        give(&pages, &mut hand, 1000);
        // What bulk calls take shortens no spree.
        let taken = pageset(&pages).count as usize - (left - 4);
        assert_eq!(pages.alloc_bulk(None, &mut vec![None; taken]), taken);
        give_pages(&pages, blocks, 1);
        assert_eq!(report(&pages).pcp.drains, drains, "{left} pages");
    }
}

/// Between two larger blocks a page that a step frees says that they are not in a row, one that a step takes does not.
#[test]
fn a_step_is_between_larger_blocks() {
    for (freed, drains) in each([(false, 1), (true, 0)]) {
        let machine = Stepping(Setup::of_pages(GIB).machine());
        let pages = PageAllocator::new(machine, Era::V6_7).expect("a page allocator");
        let blocks = take_pages(&pages, 1, 2);
        let mut hand = take_pages(&pages, 0, 1200);
        give_pages(&pages, hand.drain(..300), 0);
        pages.free_number(blocks[0], 1).expect("allocated");
        if freed {
            give_pages(&pages, hand.drain(..1), 0);
        } else {
            assert!(pages.alloc(0, None).is_some());
        }
        pages.free_number(blocks[1], 1).expect("allocated");
        assert_eq!(pages.stats().pcp.drains, drains, "{freed}");
    }
}

/// From 6.7 on, too, an allocation of a page halves what frees count, by a step or not; a bulk allocation does not, and what
/// a bulk call frees counts for each page.
#[test]
fn sprees_of_later_releases_count_the_same_by_steps() {
    fn drained<M: Machine>(machine: M, singles: usize, bulk: usize, bulk_frees: bool) -> u64 {
        let pages = PageAllocator::new(machine, Era::V6_18).expect("a page allocator");
        let mut hand = take_pages(&pages, 0, 5000);
        // Refills have raised `high`; it decays to its least.
        assert!((0..30).all(|_| pages.vmstat_update() == 0));
        assert_eq!(pages.drain_all(), 0);
        let before = pages.stats().pcp;
        give_pages(&pages, hand.drain(..800), 0);
        assert!((0..singles).all(|_| pages.alloc(0, None).is_some()));
        assert_eq!(pages.alloc_bulk(None, &mut vec![None; bulk]), bulk);
        if bulk_frees {
            let mut slots: Vec<_> = hand.drain(..16).map(Some).collect();
            assert_eq!(pages.free_numbers(&mut slots), Ok(()));
        }
        while !hand.is_empty() && pages.stats().pcp.drains == before.drains {
            give_pages(&pages, hand.drain(..1), 0);
        }
        pages.stats().pcp.drained - before.drained
    }
    // All that may go; or what is left of 800 after five allocations, and what it takes to 1286 pages. By steps, 25 frees
    // before these allocations count behind them, as their order is not known.
    for (singles, bulk, bulk_frees, expected) in each([
        (0, 0, false, [1286 - 63; 2]),
        (5, 0, false, [25 + 491, 50 + 491]),
        (0, 8, false, [1286 - 63; 2]),
        (5, 8, false, [25 + 499, 50 + 499]),
        (5, 0, true, [25 + 491, 50 + 491]),
    ]) {
        let machine = || Setup::of_pages(GIB).machine();
        let held = drained(machine(), singles, bulk, bulk_frees);
        let stepped = drained(Stepping(machine()), singles, bulk, bulk_frees);
        assert_eq!([held, stepped], expected);
    }
}

/// 5.14 to 6.6: a drain that gives all that may go does not double the next one.
#[test]
fn the_largest_drain_doubles_nothing() {
    let pages = boot(Era::V6_1, 72);
    let name = "percpu_pagelist_high_fraction";
    assert_eq!(pages.set_sysctl(name, 8), Ok(0));
    let lists = pageset(&pages);
    assert_eq!((lists.high, lists.batch), (9, 1));
    let mut hand = take(&pages, 40);
    let rest = lists.count as usize;
    let mut drained = |count: usize| {
        let before = report(&pages).pcp.drained;
        give(&pages, &mut hand, count);
        report(&pages).pcp.drained - before
    };
    let drains = [9 - rest, 1, 2, 4].map(&mut drained);
    assert_eq!(drains, [1, 2, 4, 8]);
    // Halved from 3, not from 4.
    take(&pages, 1);
    assert_eq!(drained(9), 2);
}
