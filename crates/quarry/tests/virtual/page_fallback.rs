//! Fallbacks between migrate types, and the ends of lists that freed blocks go to, by release.

use crate::page_eras::{GIB, boot, report, requested, typed};
use crate::prelude::*;

/// With types, movable and unmovable pages do not share pageblocks while there is memory; 2.6.22
/// mixes them.
#[test]
fn types_keep_to_their_pageblocks() {
    // Each takes the largest block there is, two pageblocks, three times.
    let tagged = Some([6, 500, 6]);
    for (era, grouped, tags) in each([
        (Era::V2_6_22, false, Some([512, 0, 0])),
        (Era::V2_6_24, true, tagged),
        (Era::V4_13, true, tagged),
        (Era::V6_18, true, None),
    ]) {
        let pages = boot(era, GIB);
        let mut blocks = [const { Vec::new() }; 3];
        for _ in 0..3000 {
            for (blocks, migratetype) in blocks.iter_mut().zip(MigrateType::ALL) {
                blocks.push(typed(&pages, migratetype, 0).0 / 512);
            }
        }
        for of_type in &mut blocks {
            of_type.sort_unstable();
            of_type.dedup();
        }
        let [unmovable, movable, reclaimable] = &blocks;
        let shared = |a: &[u32], b: &[u32]| a.iter().filter(|at| b.contains(at)).count();
        let all = shared(unmovable, movable) + shared(unmovable, reclaimable);
        let apart = all + shared(movable, reclaimable) == 0;
        assert_eq!(apart, grouped);
        let report = report(&pages);
        let shown = requested(&report.pageblocks);
        assert_eq!(shown, tags.unwrap_or(shown));
        assert_eq!(report.extfrag > 0, grouped);
        pages.check_consistency().expect("consistent");
    }
}

/// The rule by which a type takes over pageblocks, step by step on 4 MiB.
#[test]
fn a_type_takes_the_largest_block_of_another() {
    let pages = boot(Era::V2_6_24, 1024);
    let counts = || {
        let report = report(&pages);
        (
            report.extfrag,
            report.retagged,
            requested(&report.pageblocks),
        )
    };
    assert_eq!(counts(), (0, 0, [0, 2, 0]));
    // The whole block of order 10, with both pageblocks.
    assert_eq!(typed(&pages, MigrateType::Unmovable, 5), Pfn(0));
    assert_eq!(counts(), (1, 2, [2, 0, 0]));
    // The largest free block is the second pageblock.
    assert_eq!(typed(&pages, MigrateType::Movable, 5), Pfn(512));
    assert_eq!(counts(), (2, 3, [1, 1, 0]));
    // Blocks of order 8 are free in both; unmovable is asked first. 480 of its pageblock's 512
    // pages are free, so it changes hands.
    assert_eq!(typed(&pages, MigrateType::Reclaimable, 5), Pfn(256));
    assert_eq!(counts(), (3, 4, [0, 1, 1]));
    // Its other blocks serve no unmovable request any more.
    assert_eq!(typed(&pages, MigrateType::Reclaimable, 5), Pfn(288));
    assert_eq!(counts().0, 3);
    // Reclaimable would be asked first, but the largest block, of order 8, is movable.
    assert_eq!(typed(&pages, MigrateType::Unmovable, 5), Pfn(768));
    pages.check_consistency().expect("consistent");
}

/// From 4.13 on what is claimed goes on the request's lists first, and its smallest block is taken.
#[test]
fn the_smallest_claimed_block_is_taken() {
    for era in each([Era::V4_13, Era::V5_9, Era::V6_10, Era::V7_0]) {
        let pages = boot(era, 1024);
        assert_eq!(typed(&pages, MigrateType::Unmovable, 5), Pfn(0));
        assert_eq!(typed(&pages, MigrateType::Movable, 5), Pfn(512));
        assert_eq!(requested(&report(&pages).pageblocks), [1, 1, 0]);
        // Free with the block of order 8 in the first pageblock are those of orders 5 to 7.
        assert_eq!(typed(&pages, MigrateType::Reclaimable, 5), Pfn(32));
        assert_eq!(requested(&report(&pages).pageblocks), [0, 1, 1]);
        assert_eq!(typed(&pages, MigrateType::Unmovable, 5), Pfn(64));
        assert_eq!(requested(&report(&pages).pageblocks), [1, 1, 0]);
        pages.check_consistency().expect("consistent");
    }
}

/// Two blocks of another type, of orders 3 and 2, in pageblocks with nothing else free: which one a request
/// takes, and which type the rest gets.
#[test]
fn small_blocks_by_release() {
    use MigrateType::{Movable, Reclaimable, Unmovable};
    for (era, of, wanted, order, rest) in each([
        (Era::V2_6_24, Unmovable, Movable, 3, Unmovable),
        (Era::V4_0, Unmovable, Movable, 3, Unmovable),
        (Era::V4_1, Unmovable, Movable, 3, Movable),
        (Era::V4_12, Unmovable, Movable, 3, Movable),
        // The smallest.
        (Era::V4_13, Unmovable, Movable, 2, Movable),
        (Era::V6_9, Unmovable, Movable, 2, Movable),
        (Era::V6_10, Unmovable, Movable, 2, Unmovable),
        (Era::V7_3, Unmovable, Movable, 2, Unmovable),
        // May claim from 4.1 on; from 6.10 on nothing where the pageblock keeps its type.
        (Era::V4_0, Movable, Unmovable, 3, Movable),
        (Era::V4_1, Movable, Unmovable, 3, Unmovable),
        (Era::V6_9, Movable, Unmovable, 3, Unmovable),
        (Era::V6_10, Movable, Unmovable, 3, Movable),
        (Era::V6_14, Movable, Unmovable, 3, Movable),
        (Era::V6_15, Movable, Unmovable, 2, Movable),
        // Always could, but for these releases what is left keeps its type.
        (Era::V3_12, Movable, Reclaimable, 3, Reclaimable),
        (Era::V3_13, Movable, Reclaimable, 3, Movable),
        (Era::V3_16, Movable, Reclaimable, 3, Movable),
        (Era::V3_18, Movable, Reclaimable, 3, Reclaimable),
    ]) {
        let pages = boot(era, 1024);
        let all: Vec<Pfn> = (0..128).map(|_| typed(&pages, of, 3)).collect();
        pages.free_number(all[3], 3).expect("allocated");
        assert_eq!(typed(&pages, of, 2), all[3]);
        pages.free_number(all[77], 3).expect("allocated");
        assert_eq!(pages.drain_all(), 0);
        let free = |order: usize| report(&pages).free_blocks[order];
        assert_eq!((free(3)[of as usize], free(2)[of as usize]), (1, 1));
        let block = if order == 3 {
            all[77]
        } else {
            Pfn(all[3].0 + 4)
        };
        assert_eq!(typed(&pages, wanted, 1), block);
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(free(1)[rest as usize], 1);
        assert_eq!(report(&pages).extfrag, 1 + u64::from(of == Unmovable));
        pages.check_consistency().expect("consistent");
    }
}

/// From 4.12 on blocks in use that suit the request count as free ones when a pageblock may change its type:
/// of a movable one, those that are not movable.
#[test]
fn blocks_in_use_count_for_a_claim() {
    for (era, changes) in each([
        (Era::V4_11, false),
        (Era::V4_12, true),
        (Era::V6_9, true),
        (Era::V6_18, true),
    ]) {
        let pages = boot(era, 1024);
        typed(&pages, MigrateType::Movable, 9);
        let options = block_of(7, MigrateType::Movable);
        let held: Vec<_> = (0..3).map(|_| pages.alloc_owned_with(&options)).collect();
        assert!(held.iter().all(Option::is_some));
        typed(&pages, MigrateType::Unmovable, 5);
        assert_eq!(report(&pages).pageblocks[0] == 1, changes);
    }
}

/// From 2.6.35 on a freed block goes to the end of its list if its pair with its buddy, which is in use, would
/// merge with a free one; but never one of the two largest orders.
#[test]
fn blocks_that_merge_soon_come_last() {
    for (era, order, first) in each([
        (Era::V2_6_34, 4, 0),
        (Era::V2_6_35, 4, 10),
        (Era::V7_3, 4, 10),
        (Era::V2_6_35, 8, 10),
        (Era::V2_6_35, 9, 0),
        (Era::V7_3, 9, 0),
    ]) {
        let pages = boot(era, 16 << order);
        let blocks: Vec<Pfn> = (0..16)
            .map(|_| typed(&pages, MigrateType::Movable, order))
            .collect();
        assert_eq!(blocks[15], Pfn(15 << order));
        // 2 and 3 merge; of the others the buddies are in use.
        for at in [2, 3, 10, 0] {
            pages.free_number(blocks[at], order).expect("allocated");
        }
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(typed(&pages, MigrateType::Movable, order), blocks[first]);
        pages.check_consistency().expect("consistent");
    }
}

/// A request that can be freed takes whatever block there is with the free part of its pageblock.
#[test]
fn reclaimable_requests_claim_any_block() {
    for (era, moved) in each([
        (Era::V2_6_24, true),
        (Era::V4_13, true),
        (Era::V6_10, false),
    ]) {
        let pages = boot(era, 1024);
        let all: Vec<Pfn> = (0..128)
            .map(|_| typed(&pages, MigrateType::Unmovable, 3))
            .collect();
        for at in [3, 70, 72] {
            pages.free_number(all[at], 3).expect("allocated");
        }
        assert_eq!(pages.drain_all(), 0);
        // The other block of its pageblock changes lists with the one that is found, the third does not; from
        // 6.10 on no block does, as 16 of 512 pages are not half.
        assert_eq!(typed(&pages, MigrateType::Reclaimable, 3), all[72]);
        let free = report(&pages).free_blocks[3];
        let of_type =
            [MigrateType::Reclaimable, MigrateType::Unmovable].map(|of| free[of as usize]);
        assert_eq!(of_type, if moved { [1, 1] } else { [0, 2] });
        assert_eq!(requested(&report(&pages).pageblocks), [2, 0, 0]);
        pages.check_consistency().expect("consistent");
    }
}

/// Movable pages that are free one by one: the first on the list in a pageblock that is full but for it, the
/// others in one that is half free, which an unmovable request may claim. A refill from 6.15 on that has got
/// the first without a claim takes the second as it is; before, it looks for a claim each time.
#[test]
fn a_refill_goes_on_with_steals() {
    use MigrateType::{Movable, Unmovable};
    for (era, claims) in each([
        (Era::V6_9, true),
        (Era::V6_14, true),
        (Era::V6_15, false),
        (Era::V7_3, false),
    ]) {
        let pages = boot(era, 32 << 9);
        for _ in 0..30 {
            typed(&pages, Movable, 9);
        }
        let mut singles: Vec<Pfn> = (0..1024).map(|_| typed(&pages, Movable, 0)).collect();
        singles.sort_unstable();
        assert_eq!(report(&pages).free_pages, 0);
        for at in (512..1024).step_by(2) {
            pages.free_number(singles[at], 0).expect("allocated");
        }
        assert_eq!(pages.drain_all(), 0);
        pages.free_number(singles[0], 0).expect("allocated");
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(requested(&report(&pages).pageblocks), [0, 32, 0]);

        let unmovable = || report(&pages).pageblocks[Unmovable as usize];
        let before = report(&pages).pcp.refilled;
        assert_eq!(typed(&pages, Unmovable, 0), singles[0]);
        assert!(report(&pages).pcp.refilled - before > 1);
        assert_eq!(unmovable(), u64::from(claims));
        // The next refill looks for a claim again.
        assert_eq!(pages.drain_all(), 0);
        typed(&pages, Unmovable, 0);
        assert_eq!(unmovable(), 1);
        pages.check_consistency().expect("consistent");
    }
}
