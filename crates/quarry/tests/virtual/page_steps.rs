//! The page allocator on a machine that takes fast operations in one step.

use crate::model::pages::{check_page_steps, check_pages};
use crate::prelude::*;

/// Scripts that a soak tries a release on.
const CASES: u32 = 30;

#[test]
fn pages_agree_in_steps() {
    for era in Era::REFERENCE {
        let config = PageConfig::new(era);
        check_property(
            "pages_agree_in_steps",
            CASES,
            (setups(), page_scripts(60)),
            |(setup, script)| {
                let with = check_page_steps(&setup, &config, &script)?;
                // From 6.7 on the order of steps in both directions is not known, see `pcp.rs`.
                let exact = era < Era::V6_7;
                if exact && setup.slot_per_mille == 0 && setup.remote_per_mille == 0 {
                    let (_, without) = check_pages(&setup, &config, &script)?;
                    crate::model::ensure_eq!(with, without, "counters with and without steps");
                }
                Ok(())
            },
        );
    }
}

/// Pages come back newest first however far they reach behind the array, steps never bring the
/// lists to `high`, and nothing is lost on the way between the array and the list.
#[test]
fn the_array_and_the_list_are_one() {
    for era in each([Era::V4_13, Era::V5_9, Era::V6_1, Era::V6_18]) {
        let pages = PageAllocator::new(Stepping(Setup::of_pages(1 << 16).machine()), era)
            .expect("a page allocator");
        let high = pages.pcp_params(NodeId(0)).expect("a zone").high as usize;
        let counts = [1, 31, 32, 33, 63, 64, 65, 96, 97, 128, 129, high - 1];
        for count in each(counts.into_iter().filter(|&count| count < high)) {
            assert_eq!(pages.drain_all(), 0);
            let taken = take_pages(&pages, 0, count);
            assert_eq!(pages.drain_all(), 0);
            let drains = pages.stats().pcp.drains;
            give_pages(&pages, &taken, 0);
            let lists = pages.pageset_report(0, CpuId(0)).expect("CPU 0's");
            assert_eq!(lists.count as usize, count);
            assert_eq!(pages.stats().pcp.drains, drains, "are below high");
            for &newest in taken.iter().rev() {
                assert_eq!(pages.alloc(0, None), Some(newest));
            }
            let census = pages.check_consistency().expect("consistent");
            assert_eq!((census.pcp, census.in_hand), (0, 0));
            give_pages(&pages, taken, 0);
        }
        // One more than below `high` is looked at.
        assert_eq!(pages.drain_all(), 0);
        let taken = take_pages(&pages, 0, 2 * high);
        // Refills of 6.18 raise `high` by what they bring; it decays to its least.
        for _ in 0..20 {
            assert_eq!(pages.vmstat_update(), 0);
        }
        let before = pages.stats().pcp.drains;
        give_pages(&pages, &taken, 0);
        assert!(pages.stats().pcp.drains > before);
        let census = pages.check_consistency().expect("consistent");
        assert_eq!((census.allocated, census.in_hand), (0, 0));
    }
}

/// A page that a step freed is refused like any other free page.
#[test]
fn a_page_freed_by_a_step_is_not_freed_again() {
    let machine = Stepping(Setup::default().machine());
    let pages = PageAllocator::new(machine, Era::V6_18).expect("a page allocator");
    let (first, second) = (pages.alloc(0, None), pages.alloc(0, None));
    let (first, second) = (first.expect("memory"), second.expect("memory"));
    // The first frees look at `high`; those after them are steps.
    for _ in 0..3 {
        for pfn in [first, second] {
            pages.free_number(pfn, 0).expect("an allocated page");
            let again = PageError::NotAllocated(pfn, PageKind::Pcp);
            assert_eq!(pages.free_number(pfn, 0), Err(again));
        }
        assert_eq!(pages.alloc(0, None), Some(second));
        assert_eq!(pages.alloc(0, None), Some(first));
    }
}

/// A CPU whose lists hold more than a sysctl now allows gives pages back, although its allocations
/// and frees are in balance.
#[test]
fn steps_do_not_hide_that_lists_are_too_long() {
    let machine = Stepping(Setup::of_pages(1 << 16).machine());
    let config = PageConfig {
        pagelist_fraction: 8,
        ..PageConfig::new(Era::V5_9)
    };
    let pages = PageAllocator::with_config(machine, &config).expect("a page allocator");
    let count = || {
        let lists = pages.pageset_report(0, CpuId(0));
        lists.expect("CPU 0's").count
    };
    let taken = take_pages(&pages, 0, 3000);
    give_pages(&pages, taken, 0);
    let before = count();
    assert_eq!(pages.set_sysctl("percpu_pagelist_fraction", 0), Ok(0));
    let high = pages.pcp_params(NodeId(0)).expect("a zone").high;
    assert!(before > 2 * high, "{before} pages, high {high}");
    for _ in 0..before {
        let pfn = pages.alloc(0, None).expect("memory");
        pages.free_number(pfn, 0).expect("an allocated page");
    }
    assert!(count() <= high, "{} pages, high {high}", count());
}
