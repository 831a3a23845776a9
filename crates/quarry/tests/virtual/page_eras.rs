//! The per-CPU page lists of each era, with numbers worked out by hand from the kernels' rules, and
//! the migrate types.

use crate::model::setup::Setup;
use quarry_core::era::Era;
use quarry_core::machine::{CpuId, LockClass, NodeId};
use quarry_core::page::{
    AllocOptions, MigrateType, PageAllocator, PageConfig, PagesetReport, PcpStats, PcpStock, Pfn,
    ZoneReport,
};
use quarry_sim::VirtualMachine;

/// 1 GiB in pages of 4 KiB.
const GIB: u32 = 1 << 18;

fn boot(era: Era, pages: u32) -> PageAllocator<VirtualMachine> {
    let setup = Setup {
        pages,
        ..Setup::default()
    };
    PageAllocator::new(setup.machine(), era).expect("a page allocator")
}

type Pages = PageAllocator<VirtualMachine>;

fn pageset(pages: &Pages, cold: bool) -> PagesetReport {
    let found = pages.pageset_report(0, CpuId(0), cold);
    found.expect("lists of CPU 0")
}

fn report(pages: &Pages) -> ZoneReport {
    pages.zone_report(0).expect("a zone")
}

fn take(pages: &Pages, count: usize) -> Vec<Pfn> {
    (0..count)
        .map(|_| pages.alloc(0, None).expect("memory"))
        .collect()
}

fn give(pages: &Pages, from: &mut Vec<Pfn>, count: usize) {
    for pfn in from.drain(..count) {
        pages.free(pfn, 0).expect("an allocated page");
    }
}

/// What a step does to the pages in hand.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(usize),
    Free(usize),
    Interval,
}
use Step::{Alloc, Free, Interval};

/// After each step: pages on the lists, `high`, blocks that refills have brought, blocks that
/// drains and the periodic work have given back.
type Row = (Step, u32, u32, u64, u64);

fn follows(era: Era, rows: &[Row]) {
    let pages = boot(era, GIB);
    let mut hand = Vec::new();
    for (at, &(step, count, high, refilled, given)) in rows.iter().enumerate() {
        match step {
            Alloc(n) => hand.extend(take(&pages, n)),
            Free(n) => give(&pages, &mut hand, n),
            Interval => assert_eq!(pages.vmstat_update(), 0),
        }
        let (lists, pcp) = (pageset(&pages, false), report(&pages).pcp);
        assert_eq!(
            (lists.count, lists.high, pcp.refilled, pcp.drained),
            (count, high, refilled, given),
            "{era}, step {at}: {step:?}"
        );
        let census = pages.check_consistency().expect("consistent");
        assert_eq!(census.pcp, u64::from(count));
    }
}

/// 2.6 and 4.13 to 4 KiB: refills of 31, drained by 31 at 186; 5.9: 63 and 378.
#[test]
fn a_batch_at_a_time() {
    for era in [Era::V2_6_22, Era::V2_6_24, Era::V2_6_35, Era::V4_13] {
        follows(
            era,
            &[
                (Alloc(1), 30, 186, 31, 0),
                (Alloc(30), 0, 186, 31, 0),
                (Alloc(279), 0, 186, 310, 0),
                (Free(185), 185, 186, 310, 0),
                (Free(1), 155, 186, 310, 31),
                (Free(30), 185, 186, 310, 31),
                (Free(1), 155, 186, 310, 62),
                (Interval, 155, 186, 310, 62),
                (Alloc(155), 0, 186, 310, 62),
                (Alloc(1), 30, 186, 341, 62),
            ],
        );
    }
    follows(
        Era::V5_9,
        &[
            (Alloc(1), 62, 378, 63, 0),
            (Alloc(377), 0, 378, 378, 0),
            (Free(377), 377, 378, 378, 0),
            (Free(1), 315, 378, 378, 63),
            (Interval, 315, 378, 378, 63),
        ],
    );
}

/// 6.1: batch 63, high 1286 (the low watermark). Frees that nothing interrupts drain 63, 126, 252,
/// 504, 1008 and then high - batch = 1223; an allocation halves the factor (5 to 2).
#[test]
fn the_free_factor_grows_and_halves() {
    follows(
        Era::V6_1,
        &[
            (Alloc(63 * 80), 0, 1286, 5040, 0),
            (Free(1285), 1285, 1286, 5040, 0),
            (Free(1), 1223, 1286, 5040, 63),
            (Free(63), 1160, 1286, 5040, 189),
            (Free(126), 1034, 1286, 5040, 441),
            (Free(252), 782, 1286, 5040, 945),
            (Free(504), 278, 1286, 5040, 1953),
            (Free(1008), 63, 1286, 5040, 3176),
            (Alloc(1), 62, 1286, 5040, 3176),
            (Free(1223), 1285, 1286, 5040, 3176),
            (Free(1), 1286 - 252, 1286, 5040, 3428),
            (Interval, 1286 - 252, 1286, 5040, 3428),
        ],
    );
}

/// 6.18: batch 63, high within 1286..=32768. Refills double and raise high by a batch each, until
/// high bounds them; drains follow the count of frees; the periodic work lowers high by an eighth.
#[test]
fn high_follows_the_load() {
    follows(
        Era::V6_18,
        &[
            (Alloc(1), 62, 1349, 63, 0),
            (Alloc(62), 0, 1349, 63, 0),
            (Alloc(1), 125, 1412, 189, 0),
            (Alloc(125), 0, 1412, 189, 0),
            (Alloc(252), 0, 1475, 441, 0),
            (Alloc(504), 0, 1538, 945, 0),
            (Alloc(1008), 0, 1601, 1953, 0),
            // 2016 are wanted; 1664 - 0 - 63 are allowed.
            (Alloc(1), 1600, 1664, 3554, 0),
            (Alloc(1600), 0, 1664, 3554, 0),
            (Alloc(1664), 0, 1727, 5218, 0),
            // All 1727 were frees: 1727 are counted, 1727 - 63 go, high becomes 1727 + 63.
            (Free(1726), 1726, 1727, 5218, 0),
            (Free(1), 63, 1790, 5218, 1664),
            // The count ends at 63 * 32 = 2016, so high becomes 2079.
            (Free(1726), 1789, 1790, 5218, 1664),
            (Free(1), 63, 2079, 5218, 3391),
            (Interval, 63, 2079 - 259, 5218, 3391),
            (Interval, 63, 1820 - 227, 5218, 3391),
            (Interval, 63, 1593 - 199, 5218, 3391),
            (Interval, 63, 1286, 5218, 3391),
            (Free(1222), 1285, 1286, 5218, 3391),
            (Interval, 1285, 1286, 5218, 3391),
            // An allocation halves the count: 2016 becomes 1008, and high 1008 + 1 + 63 would be
            // less than it is.
            (Alloc(1), 1284, 1286, 5218, 3391),
            (Free(2), 1286 - 1010, 1286, 5218, 3391 + 1010),
        ],
    );
}

/// The periodic work gives back what is above the lowered high.
#[test]
fn what_decays_is_given_back() {
    let pages = boot(Era::V6_18, GIB);
    // Six refills: high is 1664.
    let mut hand = take(&pages, 3554);
    give(&pages, &mut hand, 1600);
    assert_eq!(pageset(&pages, false).high, 1664);
    assert_eq!(pages.vmstat_update(), 0);
    let lists = pageset(&pages, false);
    assert_eq!((lists.count, lists.high), (1456, 1456));
    let pcp = report(&pages).pcp;
    assert_eq!((pcp.decays, pcp.decayed), (1, 144));
    assert_eq!((pcp.drains, pcp.drained), (1, 144));
}

/// With `batch_scale_max` 1, 6.18 moves at most 126 pages under one hold of the zone lock: refills
/// of 63, 126, 126; as many frees count; and a drain takes as many holds as that needs.
#[test]
fn a_smaller_scale_shortens_the_holds() {
    let setup = Setup {
        pages: GIB,
        ..Setup::default()
    };
    let config = PageConfig {
        batch_scale_max: 1,
        ..PageConfig::new(Era::V6_18)
    };
    let pages = PageAllocator::with_config(setup.machine(), &config).expect("a page allocator");
    let mut hand = Vec::new();
    for (more, refilled) in [(63, 63), (126, 189), (126, 315), (126, 441), (126, 567)] {
        hand.extend(take(&pages, more));
        assert_eq!(report(&pages).pcp.refilled, refilled);
    }
    give(&pages, &mut hand, 567);
    let zone_locks = |pages: &Pages| pages.machine().counters().locks(LockClass::Zone);
    let before = zone_locks(&pages);
    assert_eq!(pages.drain_all(), 0);
    // 126, 126, 126, 126, 63.
    assert_eq!(zone_locks(&pages) - before, 5);
    assert_eq!(pageset(&pages, false).count, 0);
}

/// What a kernel reports of its lists can be put there, and counts as no traffic; where the length
/// is fixed, up to one less than that.
#[test]
fn lists_can_be_stocked() {
    let stock = PcpStock {
        pages: [5, 1500, 7],
        high: 1600,
        zone: None,
    };
    for (era, high, stocked) in [
        (Era::V6_18, 1600, 1512),
        (Era::V6_1, 1286, 1285),
        (Era::V2_6_24, 186, 185),
    ] {
        let pages = boot(era, GIB);
        assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(stocked), "{era:?}");
        let lists = pageset(&pages, false);
        assert_eq!((lists.count, lists.high), (stocked, high), "{era:?}");
        assert_eq!(report(&pages).pcp, PcpStats::default());
        let listed = pages.check_consistency().map(|census| census.pcp);
        assert_eq!(listed, Ok(stocked.into()));
        // A block of long ago leaves the lists alone, whichever order they hold.
        let old = pages.alloc_past_lists(0, MigrateType::Movable);
        assert_eq!(pageset(&pages, false).count, stocked);
        let movable = AllocOptions {
            migratetype: MigrateType::Movable,
            ..AllocOptions::default()
        };
        let allocs = stocked.min(1505) - 5;
        for _ in 0..allocs {
            assert!(pages.alloc_with(&movable).is_some());
        }
        let pcp = report(&pages).pcp;
        assert_eq!((pcp.refills, pcp.allocs), (0, allocs.into()));
        assert_eq!(pageset(&pages, false).count, stocked - allocs);
        pages.free(old.unwrap(), 0).unwrap();
        assert_eq!(pageset(&pages, false).count, stocked - allocs + 1);
        assert_eq!(pages.alloc_past_lists(11, MigrateType::Movable), None);
    }
    let pages = boot(Era::V6_18, GIB);
    // More than the era would tune to.
    let stock = PcpStock {
        high: 1 << 20,
        ..PcpStock::default()
    };
    assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(0));
    assert_eq!(pageset(&pages, false).high, GIB / 8);
}

/// The lists of 2.6.22 and 2.6.24 for pages in no cache: batch 15, drained at 62.
#[test]
fn cold_pages_have_a_list_in_2_6() {
    for era in [Era::V2_6_22, Era::V2_6_24] {
        let pages = boot(era, GIB);
        let got = take(&pages, 93);
        for &pfn in &got[..61] {
            pages.free_cold(pfn, 0).expect("allocated");
        }
        assert_eq!(pageset(&pages, true).count, 61);
        pages.free_cold(got[61], 0).expect("allocated");
        let cold = pageset(&pages, true);
        assert_eq!((cold.count, cold.high, cold.batch), (47, 62, 15));
        assert_eq!(pageset(&pages, false).count, 0);
        let options = AllocOptions {
            cold: true,
            ..AllocOptions::default()
        };
        assert_eq!(pages.alloc_with(&options), Some(got[61]));
        assert_eq!(pageset(&pages, true).count, 46);
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(pages.check_consistency().map(|census| census.pcp), Ok(0));
    }
}

/// In 4.13 they go to the end of the list and are taken from there; from 5.9 on all are alike.
#[test]
fn cold_pages_are_last_in_4_13() {
    for (era, tail) in [
        (Era::V2_6_35, true),
        (Era::V4_13, true),
        (Era::V5_9, false),
        (Era::V6_18, false),
    ] {
        let pages = boot(era, GIB);
        // All that a refill brings, so that the lists are empty.
        let batch = pageset(&pages, false).batch as usize;
        let got = take(&pages, batch);
        pages.free(got[0], 0).expect("allocated");
        pages.free_cold(got[1], 0).expect("allocated");
        let options = AllocOptions {
            cold: true,
            ..AllocOptions::default()
        };
        let hot = if tail { got[0] } else { got[1] };
        assert_eq!(pages.alloc(0, None), Some(hot), "{era}");
        pages.free(hot, 0).expect("allocated");
        assert_eq!(pages.alloc_with(&options), Some(got[1]), "{era}");
        assert_eq!(pages.pageset_report(0, CpuId(0), true), None);
    }
}

/// 6.1: when frees have been drained without an allocation between them, the free of a larger
/// block empties the lists. 6.18: the second of two such frees does, once 63 + 1286/2 = 706 pages
/// are counted, and gives at most 2016.
#[test]
fn larger_blocks_end_a_spree() {
    let pages = boot(Era::V6_1, GIB);
    let mut hand = take(&pages, 63 * 30);
    let block = pages.alloc(1, None).expect("memory");
    pages.free(block, 1).expect("allocated");
    assert_eq!(report(&pages).pcp.drains, 0, "no spree yet");
    let block = pages.alloc(1, None).expect("memory");
    // A refill brings 31 blocks of two pages.
    let rest = pageset(&pages, false).count as usize;
    assert_eq!(rest, 60);
    give(&pages, &mut hand, 1286 - rest);
    assert_eq!(report(&pages).pcp.drains, 1);
    pages.free(block, 1).expect("allocated");
    assert_eq!(
        (pageset(&pages, false).count, report(&pages).pcp.drains),
        (0, 2)
    );

    let pages = boot(Era::V6_18, GIB);
    let blocks: Vec<Pfn> = (0..3).filter_map(|_| pages.alloc(1, None)).collect();
    let mut hand = take(&pages, 1200);
    give(&pages, &mut hand, 704);
    pages.free(blocks[0], 1).expect("allocated");
    pages.free(blocks[1], 1).expect("allocated");
    assert_eq!(report(&pages).pcp.drains, 1, "704 + 2 are counted");
    assert_eq!(pageset(&pages, false).count, 0);
    pages.free(hand.remove(0), 0).expect("allocated");
    pages.free(blocks[2], 1).expect("allocated");
    assert_eq!(
        report(&pages).pcp.drains,
        1,
        "the free before was of one page"
    );
}

/// A list of another node's zone that is idle for three intervals gives a batch back, and so on.
#[test]
fn idle_lists_of_remote_zones_are_drained() {
    for era in [Era::V2_6_24, Era::V4_13, Era::V6_18] {
        let setup = Setup {
            cpus: 2,
            nodes: 2,
            pages: GIB * 2,
            ..Setup::default()
        };
        let pages = PageAllocator::new(setup.machine(), era).expect("a page allocator");
        let count = |zone| {
            let lists = pages.pageset_report(zone, CpuId(0), false);
            lists.expect("lists").count
        };
        let there = |_| pages.alloc(0, Some(NodeId(1))).expect("memory");
        let got: Vec<Pfn> = (0..100).map(there).collect();
        got.iter()
            .for_each(|&pfn| pages.free(pfn, 0).expect("allocated"));
        let batch = pages.pcp_params(NodeId(1)).expect("a zone").batch;
        let full = count(1);
        assert!(full > 2 * batch);
        let mut counts = Vec::new();
        for _ in 0..7 {
            assert_eq!(pages.vmstat_update(), 0);
            counts.push(full - count(1));
        }
        // The first interval sees the use.
        let expected = [0, 0, 0, 1, 1, 1, 2].map(|batches| batches * batch);
        assert_eq!(counts, expected, "{era}");
        let report = pages.zone_report(1).expect("a zone");
        assert_eq!((report.pcp.decays, report.pcp.drains), (2, 2));
    }
}

fn typed(pages: &Pages, migratetype: MigrateType, order: u32) -> Pfn {
    let options = AllocOptions {
        order,
        migratetype,
        ..AllocOptions::default()
    };
    pages.alloc_with(&options).expect("memory")
}

/// With types, movable and unmovable pages do not share pageblocks while there is memory; 2.6.22
/// mixes them.
#[test]
fn types_keep_to_their_pageblocks() {
    // Each takes the largest block there is, two pageblocks, three times.
    let tagged = Some([6, 500, 6]);
    for (era, grouped, tags) in [
        (Era::V2_6_22, false, Some([512, 0, 0])),
        (Era::V2_6_24, true, tagged),
        (Era::V4_13, true, tagged),
        (Era::V6_18, true, None),
    ] {
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
        assert_eq!(apart, grouped, "{era}");
        let report = report(&pages);
        assert_eq!(
            report.pageblocks,
            tags.unwrap_or(report.pageblocks),
            "{era}"
        );
        assert_eq!(report.extfrag > 0, grouped);
        pages.check_consistency().expect("consistent");
    }
}

/// The rule by which a type takes over pageblocks, step by step on 4 MiB.
#[test]
fn a_type_takes_the_largest_block_of_another() {
    let pages = boot(Era::V4_13, 1024);
    let counts = || {
        let report = report(&pages);
        (report.extfrag, report.retagged, report.pageblocks)
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
    // What is left of it serves no unmovable request any more.
    assert_eq!(typed(&pages, MigrateType::Reclaimable, 5), Pfn(288));
    assert_eq!(counts().0, 3);
    // Reclaimable would be asked first, but the largest block, of order 8, is movable.
    assert_eq!(typed(&pages, MigrateType::Unmovable, 5), Pfn(768));
    pages.check_consistency().expect("consistent");
}

/// A small block is taken without its pageblock, and what is left of it stays with its type.
#[test]
fn small_blocks_do_not_change_hands() {
    let pages = boot(Era::V4_13, 1024);
    // Everything but one block of order 3 is unmovable.
    let all: Vec<Pfn> = (0..128)
        .map(|_| typed(&pages, MigrateType::Unmovable, 3))
        .collect();
    pages.free(all[77], 3).expect("allocated");
    let before = report(&pages);
    assert_eq!(typed(&pages, MigrateType::Movable, 1), all[77]);
    let after = report(&pages);
    assert_eq!(after.extfrag, before.extfrag + 1);
    assert_eq!(after.retagged, before.retagged);
    let unmovable = MigrateType::Unmovable as usize;
    assert_eq!(
        [1, 2].map(|order: usize| after.free_blocks[order][unmovable]),
        [1, 1]
    );
}

/// A request that can be freed takes whatever block there is with the free part of its pageblock.
#[test]
fn reclaimable_requests_claim_any_block() {
    let pages = boot(Era::V4_13, 1024);
    let all: Vec<Pfn> = (0..128)
        .map(|_| typed(&pages, MigrateType::Unmovable, 3))
        .collect();
    for at in [3, 70, 72] {
        pages.free(all[at], 3).expect("allocated");
    }
    // The block freed last; the other of its pageblock changes lists with it, the third does not.
    assert_eq!(typed(&pages, MigrateType::Reclaimable, 3), all[72]);
    let free = report(&pages).free_blocks[3];
    assert_eq!(free[MigrateType::Reclaimable as usize], 1);
    assert_eq!(free[MigrateType::Unmovable as usize], 1);
    // 16 of 512 pages are not half.
    assert_eq!(report(&pages).pageblocks, [2, 0, 0]);
    pages.check_consistency().expect("consistent");
}

/// A list of all types is searched for the one that is asked for.
#[test]
fn the_list_of_2_6_24_is_searched() {
    let pages = boot(Era::V2_6_24, GIB);
    let movable = typed(&pages, MigrateType::Movable, 0);
    let unmovable = typed(&pages, MigrateType::Unmovable, 0);
    assert_eq!(
        report(&pages).pcp.refills,
        2,
        "no movable page is unmovable"
    );
    pages.free(unmovable, 0).expect("allocated");
    pages.free(movable, 0).expect("allocated");
    assert_eq!(typed(&pages, MigrateType::Unmovable, 0), unmovable);
    assert_eq!(typed(&pages, MigrateType::Movable, 0), movable);
    assert_eq!(report(&pages).pcp.refills, 2);
    let pages = boot(Era::V2_6_22, GIB);
    let first = typed(&pages, MigrateType::Movable, 0);
    pages.free(first, 0).expect("allocated");
    assert_eq!(typed(&pages, MigrateType::Unmovable, 0), first);
}

/// Lists take turns when they are drained; one that comes after empty ones gives more.
#[test]
fn drains_take_turns() {
    let pages = boot(Era::V4_13, GIB);
    let mut unmovable = take(&pages, 310);
    let movable: Vec<Pfn> = (0..310)
        .map(|_| typed(&pages, MigrateType::Movable, 0))
        .collect();
    // 93 of each: the lists of the two types give 1 and 1; then the third is met, which is empty,
    // and the first gives 2.
    give(&pages, &mut unmovable, 93);
    for pfn in &movable[..93] {
        pages.free(*pfn, 0).expect("allocated");
    }
    assert_eq!(report(&pages).pcp.drained, 31);
    let left = |migratetype| {
        let mut left = 0;
        let refills = report(&pages).pcp.refills;
        while report(&pages).pcp.refills == refills {
            typed(&pages, migratetype, 0);
            left += 1;
        }
        left - 1
    };
    // 1 + 1, nine times 2 + 1, and 2.
    let both = (left(MigrateType::Unmovable), left(MigrateType::Movable));
    assert_eq!(both, (93 - 21, 93 - 10));
}

/// The fractions of the sysctls set the limits at once, and what they do not take is refused.
#[test]
fn limits_change_while_in_use() {
    let pages = boot(Era::V4_13, GIB);
    let mut hand = take(&pages, 600);
    give(&pages, &mut hand, 100);
    assert_eq!(pages.sysctl("percpu_pagelist_fraction"), Some(0));
    assert_eq!(pages.set_sysctl("percpu_pagelist_fraction", 1 << 16), Ok(0));
    let lists = pageset(&pages, false);
    assert_eq!((lists.high, lists.batch), (4, 1));
    give(&pages, &mut hand, 1);
    assert_eq!(pageset(&pages, false).count, lists.count, "one in, one out");
    assert_eq!(pages.set_sysctl("percpu_pagelist_fraction", 8), Ok(0));
    let lists = pageset(&pages, false);
    assert_eq!((lists.high, lists.batch), (32768, 96));
    assert_eq!(pages.sysctl("percpu_pagelist_fraction"), Some(8));
    for (name, value, part) in [
        (
            "percpu_pagelist_fraction",
            7,
            "it must be 0 (off) or at least 8",
        ),
        (
            "percpu_pagelist_high_fraction",
            8,
            "it has min_free_kbytes, percpu_pagelist_fraction",
        ),
        (
            "min_free_kbytes",
            1 << 21,
            "all zones together have 1048576 KiB",
        ),
        ("min_free_kbytes", 1 << 40, "it takes 0..=2147483647 (KiB)"),
    ] {
        let error = pages.set_sysctl(name, value).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(pageset(&pages, false), lists, "nothing changed");
    assert_eq!(pages.sysctl("percpu_pagelist_high_fraction"), None);

    let pages = boot(Era::V6_18, GIB);
    assert_eq!(pages.set_sysctl("percpu_pagelist_high_fraction", 64), Ok(0));
    let lists = pageset(&pages, false);
    assert_eq!(
        (lists.high_min, lists.high_max, lists.batch),
        (4096, 4096, 63)
    );
    // Fixed: neither refills nor frees move it.
    let mut hand = take(&pages, 10_000);
    assert_eq!(pageset(&pages, false).high, 4096);
    give(&pages, &mut hand, 9000);
    assert_eq!(pageset(&pages, false).high, 4096);
    assert_eq!(pages.set_sysctl("percpu_pagelist_high_fraction", 0), Ok(0));
    assert_eq!(pageset(&pages, false).high_max, 32768);
}
