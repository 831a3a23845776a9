//! Choices beyond the release's rules: policies, pageblocks of other sizes, reserves for requests that cannot wait.

use crate::page_eras::{GIB, requested};
use crate::prelude::*;
use quarry_core::page::BlockType;
use quarry_core::page::policy::{POLICIES, Policy};

/// Machines whose contents are accounted.
fn with(policy: Option<&str>) -> PageConfig {
    PageConfig {
        tracks_contents: true,
        policy: policy.map(|name| Policy::named(name).expect("a policy")),
        ..PageConfig::new(Era::V7_0)
    }
}

fn try_typed(pages: &Pages, migratetype: MigrateType, order: u32) -> Option<Pfn> {
    pages.alloc_with(&block_of(order, migratetype))
}

/// Whatever a policy chooses, the lists stay consistent, and all memory can be used and comes back.
#[test]
fn policies_keep_the_lists_consistent() {
    for policy in each(POLICIES) {
        let config = PageConfig {
            policy: Some(policy),
            ..with(None)
        };
        let pages = configured_pages(Setup::of_pages(3 * GIB / 64).on(2, 1), &config);
        let mut rng = Rng::new(11);
        let mut blocks = Vec::new();
        for round in 0..30_000 {
            let grows = rng.below(100) < if round / 4000 % 2 == 0 { 60 } else { 40 };
            pages.machine().run_on(CpuId(rng.below(2) as u32));
            if grows || blocks.is_empty() {
                let order = [0, 0, 0, 0, 1, 2, 3, 4, 9, 10][rng.below(10) as usize];
                let of = MigrateType::ALL[rng.below(3) as usize];
                blocks.extend(try_typed(&pages, of, order).map(|pfn| (pfn, order)));
            } else {
                let at = rng.below(blocks.len() as u64) as usize;
                let (pfn, order) = blocks.swap_remove(at);
                pages.free_number(pfn, order).expect("allocated");
            }
            if round % 3000 == 0 {
                pages.check_consistency().expect("consistent");
            }
        }
        // Until nothing is left.
        while let Some(pfn) = try_typed(&pages, MigrateType::Unmovable, 0) {
            blocks.push((pfn, 0));
        }
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(pages.stats().free_pages, 0);
        for (pfn, order) in blocks {
            pages.free_number(pfn, order).expect("allocated");
        }
        assert_eq!(pages.drain_all(), 0);
        let free = pages.check_consistency().expect("consistent");
        assert_eq!(free.buddy, u64::from(pages.pages()));
    }
}

/// Gigabytes in which something is not movable.
fn spoiled_gigabytes(policy: Option<&str>) -> usize {
    let pages = configured_pages(Setup::of_pages(8 * GIB), &with(policy));
    let mut rng = Rng::new(3);
    let (mut user, mut kernel) = (Vec::new(), BTreeSet::new());
    while user.len() < 6 * GIB as usize / 8 {
        user.push(try_typed(&pages, MigrateType::Movable, 3).expect("memory"));
    }
    // User memory goes everywhere, and kernel memory grows into what it leaves.
    for _ in 0..40_000 {
        let at = rng.below(user.len() as u64) as usize;
        let pfn = user.swap_remove(at);
        pages.free_number(pfn, 3).expect("allocated");
    }
    assert_eq!(pages.drain_all(), 0);
    let free = pages.stats().free_pages;
    for _ in 0..free * 3 / 4 {
        let pfn = try_typed(&pages, MigrateType::Unmovable, 0).expect("memory");
        kernel.insert(pfn.0 / GIB);
    }
    kernel.len()
}

#[test]
fn kernel_memory_is_steered_into_few_gigabytes() {
    let (by_rules, steered) = (spoiled_gigabytes(None), spoiled_gigabytes(Some("steer")));
    assert!(
        steered < by_rules,
        "{steered} gigabytes, {by_rules} by the rules"
    );
}

/// Pages of a block that one CPU took whole come back to it, also from other CPUs.
#[test]
fn pages_come_back_to_the_owner_of_their_block() {
    let pages = configured_pages(Setup::of_pages(GIB / 4).on(2, 1), &with(Some("owned")));
    let count = |cpu| {
        let set = pages.pageset_report(0, CpuId(cpu)).expect("lists");
        set.count
    };
    let machine = pages.machine();
    machine.run_on(CpuId(0));
    let first = try_typed(&pages, MigrateType::Movable, 0).expect("memory");
    assert_eq!((count(0), count(1)), (511, 0));
    for _ in 0..400 {
        assert!(try_typed(&pages, MigrateType::Movable, 0).is_some());
    }
    machine.run_on(CpuId(1));
    let other = try_typed(&pages, MigrateType::Movable, 0).expect("memory");
    assert_ne!(first.0 / 512, other.0 / 512);
    pages.free_number(first, 0).expect("allocated");
    assert_eq!((count(0), count(1)), (112, 511));
    pages.check_consistency().expect("consistent");
}

/// Neighbours that a CPU frees serve a larger request without the zone.
#[test]
fn neighbours_merge_on_the_lists() {
    for (policy, locks) in each([(None, 1), (Some("merging"), 0)]) {
        let pages = configured_pages(Setup::of_pages(GIB / 4), &with(policy));
        let singles: Vec<Pfn> = (0..64)
            .map(|_| try_typed(&pages, MigrateType::Movable, 0).expect("memory"))
            .collect();
        give_pages(&pages, singles, 0);
        let before = pages.machine().lock_count(LockClass::Zone);
        assert!(try_typed(&pages, MigrateType::Movable, 3).is_some());
        let taken = pages.machine().lock_count(LockClass::Zone) - before;
        assert_eq!(taken, locks, "{policy:?}");
        pages.check_consistency().expect("consistent");
    }
}

/// With `defrag_mode` a page that has no pageblock to itself is counted, and comes from where the rules say.
#[test]
fn mixing_before_reclaim_is_counted() {
    let config = with(Some("defrag"));
    let pages = configured_pages(Setup::of_pages(4 << 9), &config);
    let mut movable: Vec<Pfn> = (0..4 << 9)
        .map(|_| try_typed(&pages, MigrateType::Movable, 0).expect("memory"))
        .collect();
    movable.sort_unstable();
    for at in (0..movable.len()).step_by(2) {
        pages.free_number(movable[at], 0).expect("allocated");
    }
    assert_eq!(pages.drain_all(), 0);
    assert_eq!(pages.stats().forced, 0);
    assert!(try_typed(&pages, MigrateType::Unmovable, 0).is_some());
    assert!(pages.stats().forced > 0);
    pages.check_consistency().expect("consistent");
}

/// Pageblocks are as large as the option says.
#[test]
fn pageblocks_of_other_sizes() {
    for (order, retagged) in each([(7, 8), (9, 2), (10, 1)]) {
        let config = PageConfig {
            block_order: Some(order),
            ..with(None)
        };
        let pages = configured_pages(Setup::of_pages(4 << 10), &config);
        assert!(try_typed(&pages, MigrateType::Unmovable, 0).is_some());
        let report = pages.zone_report(0).expect("a zone");
        assert_eq!(report.pageblock_order, order);
        // The largest block is claimed, of order 10.
        assert_eq!(report.pageblocks[BlockType::UNMOVABLE.index()], retagged);
        pages.check_consistency().expect("consistent");
    }
}

/// A block for a request that cannot wait, below the low watermark, reserves its pageblock; others leave that alone
/// until they would fail.
#[test]
fn reserves_for_requests_that_cannot_wait() {
    for (era, reserved) in each([
        (Era::V4_3, 0),
        (Era::V4_4, 1),
        (Era::V6_7, 1),
        (Era::V6_8, 1),
        (Era::V7_0, 1),
    ]) {
        let config = PageConfig {
            era,
            min_free: MinFree::Computed,
            ..with(None)
        };
        // 1 % is somewhat more than a pageblock.
        let pages = configured_pages(Setup::of_pages(GIB / 4), &config);
        let atomic = AllocOptions {
            atomic: true,
            ..block_of(4, MigrateType::Unmovable)
        };
        let high_atomic = || {
            let zone = pages.zone_report(0).expect("a zone");
            zone.pageblocks[BlockType::HIGH_ATOMIC.index()]
        };
        assert!(pages.alloc_with(&atomic).is_some());
        assert_eq!(high_atomic(), 0, "above the low watermark");
        while try_typed(&pages, MigrateType::Movable, 3).is_some() {
            let zone = pages.zone_report(0).expect("a zone");
            if zone.free_pages < zone.watermarks.low {
                break;
            }
        }
        assert!(pages.alloc_with(&atomic).is_some());
        assert_eq!(high_atomic(), reserved);
        pages.check_consistency().expect("consistent");
        // The others get its free pages at last.
        while try_typed(&pages, MigrateType::Movable, 0).is_some() {}
        assert_eq!(high_atomic(), 0);
        pages.check_consistency().expect("consistent");
        let zone = pages.zone_report(0).expect("a zone");
        assert_eq!(requested(&zone.pageblocks).iter().sum::<u64>(), 128);
    }
}

/// A reserved pageblock that is free again stays apart from its free neighbour from 5.18 on.
#[test]
fn a_reserved_pageblock_merges_with_no_other() {
    for (era, apart) in each([(Era::V5_17, 0), (Era::V5_18, 1), (Era::V7_0, 1)]) {
        let config = PageConfig {
            era,
            // Blocks of the largest order are free below the low watermark.
            min_free: MinFree::Kbytes(64 << 10),
            ..with(None)
        };
        let pages = configured_pages(Setup::of_pages(GIB / 4), &config);
        let is_low = || {
            let zone = pages.zone_report(0).expect("a zone");
            zone.free_pages < zone.watermarks.low
        };
        while !is_low() && try_typed(&pages, MigrateType::Unmovable, 10).is_some() {}
        let largest = || pages.stats().free_blocks[10];
        let atomic = AllocOptions {
            atomic: true,
            ..block_of(4, MigrateType::Unmovable)
        };
        let block = pages.alloc_with(&atomic).expect("a block");
        let before = largest();
        // SAFETY: the block was just allocated, and nothing is in it.
        unsafe { pages.free(block, 4).expect("free") };
        // The largest block that it was a part of.
        assert_eq!(largest() - before, 1 - apart);
        pages.check_consistency().expect("consistent");
    }
}

/// Lists that split and merge count allocations and frees as the release's do.
#[test]
fn lists_that_merge_count_blocks() {
    for policy in each([None, Some("merging"), Some("owned")]) {
        let pages = configured_pages(Setup::of_pages(GIB / 4), &with(policy));
        let singles: Vec<Pfn> = (0..40)
            .map(|_| try_typed(&pages, MigrateType::Movable, 0).expect("memory"))
            .collect();
        give_pages(&pages, &singles[..30], 0);
        let pcp = pages.stats().pcp;
        assert_eq!((pcp.allocs, pcp.frees), (40, 30), "{policy:?}");
    }
}

/// A refill of lists that own blocks is a whole pageblock, in blocks of the lists' largest order.
#[test]
fn an_owners_refill_is_a_pageblock() {
    let pages = configured_pages(Setup::of_pages(GIB / 4), &with(Some("owned")));
    assert!(try_typed(&pages, MigrateType::Movable, 0).is_some());
    let pcp = pages.stats().pcp;
    assert_eq!((pcp.refills, pcp.refilled), (1, 512 >> 3));
}

/// An allocation halves what frees count, also by lists that split and merge, and also if it needs a refill. Every second
/// page is freed, so nothing merges.
#[test]
fn allocations_halve_a_spree_on_all_lists() {
    for policy in each([None, Some("merging")]) {
        let drained = |between: Option<MigrateType>| {
            let pages = configured_pages(Setup::of_pages(GIB), &with(policy));
            let mut taken: Vec<Pfn> = (0..5000)
                .map(|_| try_typed(&pages, MigrateType::Movable, 0).expect("memory"))
                .collect();
            taken.sort_unstable();
            // Refills have raised `high`; it decays to its least.
            assert!((0..30).all(|_| pages.vmstat_update() == 0));
            assert_eq!(pages.drain_all(), 0);
            let drains = pages.stats().pcp.drains;
            let mut freed = taken.into_iter().step_by(2);
            let mut give = |count: usize| give_pages(&pages, freed.by_ref().take(count), 0);
            let set = || pages.pageset_report(0, CpuId(0)).expect("lists");
            give(800);
            if let Some(of) = between {
                assert!((0..5).all(|_| try_typed(&pages, of, 0).is_some()));
            }
            for _ in 0..1700 {
                let before = set().count;
                give(1);
                if pages.stats().pcp.drains > drains {
                    return before + 1 - set().count;
                }
            }
            0
        };
        let answers = [
            None,
            Some(MigrateType::Movable),
            Some(MigrateType::Unmovable),
        ]
        .map(drained);
        // All that may go, or what is left of 800 after five allocations, and 491 pages more.
        assert_eq!(answers, [1286 - 63, 25 + 491, 25 + 491], "{policy:?}");
    }
}

/// Only the first page of what neighbours merged into is a block.
#[test]
fn merged_blocks_have_one_first_page() {
    let pages = configured_pages(Setup::of_pages(GIB / 4), &with(Some("merging")));
    let mut singles: Vec<Pfn> = (0..64)
        .map(|_| try_typed(&pages, MigrateType::Movable, 0).expect("memory"))
        .collect();
    singles.sort_unstable();
    let at = singles
        .iter()
        .position(|pfn| pfn.0 % 8 == 0)
        .expect("an eighth");
    let eight = &singles[at..at + 8];
    // The upper ones first: they wait for the lower ones.
    give_pages(&pages, eight.iter().rev().copied(), 0);
    for &pfn in &eight[1..] {
        let again = PageError::NotAllocated(pfn, PageKind::Tail);
        assert_eq!(pages.free_number(pfn, 0), Err(again));
    }
}
