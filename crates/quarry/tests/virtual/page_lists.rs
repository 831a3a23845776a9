//! Reports of per-CPU page lists: the `high` of lists without use, counts of blocks of any order, lists that are used in
//! one direction.

use crate::page_eras::{GIB, boot, pageset, report};
use crate::prelude::*;

/// A recorded 6.18 shows 0 for lists that were never used, until a sysctl sets `high`. Earlier releases do not tune it.
#[test]
fn lists_without_use_show_no_high() {
    for (era, tuned) in each([(Era::V5_14, false), (Era::V6_6, false), (Era::V6_18, true)]) {
        let pages = boot(era, GIB);
        let before = pageset(&pages);
        assert_eq!(before.high == 0, tuned, "{}", before.high);
        let name = "percpu_pagelist_high_fraction";
        assert_eq!(pages.set_sysctl(name, 8), Ok(0));
        assert_eq!(pageset(&pages).high, GIB / 8);
        assert_eq!(pages.set_sysctl(name, 0), Ok(0));
        assert_eq!(pageset(&pages).high, before.high);
        let block = pages.alloc(1, None).expect("memory");
        assert!(pageset(&pages).high > 0);
        pages.free_number(block, 1).expect("allocated");
        assert_eq!(pages.drain_all(), 0);
        assert!(pageset(&pages).high > 0, "they were used");
    }
}

#[test]
fn blocks_count_by_their_pages() {
    let pages = boot(Era::V6_18, GIB);
    for (order, allocated, freed) in each([(0, 1, 1), (1, 3, 3), (2, 7, 7), (3, 15, 15)]) {
        let block = pages.alloc(order, None).expect("memory");
        assert_eq!(report(&pages).pages_allocated, allocated);
        pages.free_number(block, order).expect("allocated");
        assert_eq!(report(&pages).pages_freed, freed);
    }
}

/// Lists of another node's zone are no idle ones if they only give pages, or only take them.
#[test]
fn lists_used_in_one_direction_are_not_idle() {
    for era in each([Era::V4_13, Era::V6_18]) {
        let pages = boot_pages(era, Setup::of_pages(GIB * 2).on(2, 2));
        let there = || pages.alloc(0, Some(NodeId(1))).expect("memory");
        let mut blocks: Vec<Pfn> = Vec::new();
        let decays = || pages.zone_report(1).expect("a zone").pcp.decays;
        for _ in 0..8 {
            blocks.push(there());
            assert_eq!(pages.vmstat_update(), 0);
        }
        assert_eq!(decays(), 0, "allocations");
        for block in blocks {
            pages.free_number(block, 0).expect("allocated");
            assert_eq!(pages.vmstat_update(), 0);
        }
        assert_eq!(decays(), 0, "frees");
    }
}

/// Lists that a caller stocks with nothing stay those of a CPU that was never used, and others have a `high`.
#[test]
fn stock_of_nothing_is_no_use() {
    for (pages_of_type, high, expected) in each([(0, 0, 0), (5, 0, 1286), (0, 2000, 2000)]) {
        let pages = boot(Era::V6_18, GIB);
        let stock = PcpStock {
            pages: [pages_of_type; 3],
            zone: None,
            high,
        };
        let all = 3 * pages_of_type;
        assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(all));
        assert_eq!(pageset(&pages).high, expected);
    }
    // Releases that do not tune it ignore it.
    let pages = boot(Era::V6_1, GIB);
    let high = pageset(&pages).high;
    let stock = PcpStock {
        pages: [5; 3],
        zone: None,
        high: 2000,
    };
    assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(15));
    assert_eq!(pageset(&pages).high, high);
}

/// The periodic work is no use of lists, and takes no lock for what is not too long.
#[test]
fn the_periodic_work_leaves_lists_that_are_short() {
    for era in each([Era::V5_14, Era::V6_6, Era::V6_18]) {
        let pages = boot(era, GIB);
        let before = pageset(&pages).high;
        assert_eq!(pages.vmstat_update(), 0);
        assert_eq!(pageset(&pages).high, before);
        let block = pages.alloc(0, None).expect("memory");
        let locks = pages.machine().lock_count(LockClass::Zone);
        assert_eq!(pages.vmstat_update(), 0);
        assert_eq!(pages.machine().lock_count(LockClass::Zone), locks);
        pages.free_number(block, 0).expect("allocated");
    }
}
