//! The per-CPU page lists by release, with numbers worked out by hand from the kernels' rules; what is drained
//! when is in `page_drains.rs`.

use crate::prelude::*;
use Step::{Alloc, Free, Interval};
use quarry_core::page::{BLOCK_TYPES, MIGRATE_TYPES, PagesetReport, PcpStats, ZoneReport};

/// 1 GiB in pages of 4 KiB.
pub(crate) const GIB: u32 = 1 << 18;

pub(crate) fn boot(era: Era, pages: u32) -> Pages {
    boot_pages(era, Setup::of_pages(pages))
}

pub(crate) fn pageset(pages: &Pages) -> PagesetReport {
    let found = pages.pageset_report(0, CpuId(0));
    found.expect("lists of CPU 0")
}

pub(crate) fn report(pages: &Pages) -> ZoneReport {
    pages.zone_report(0).expect("a zone")
}

/// The part of a zone's counts that belongs to types which requests name.
pub(crate) fn requested<T: Copy>(by_type: &[T; BLOCK_TYPES]) -> [T; MIGRATE_TYPES] {
    MigrateType::ALL.map(|of| by_type[of as usize])
}

pub(crate) fn take(pages: &Pages, count: usize) -> Vec<Pfn> {
    (0..count)
        .map(|_| pages.alloc(0, None).expect("memory"))
        .collect()
}

pub(crate) fn give(pages: &Pages, from: &mut Vec<Pfn>, count: usize) {
    give_pages(pages, from.drain(..count), 0);
}

/// A step's effect on the pages in hand.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(usize),
    Free(usize),
    Interval,
}

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
        let (lists, pcp) = (pageset(&pages), report(&pages).pcp);
        assert_eq!(
            (lists.count, lists.high, pcp.refilled, pcp.drained),
            (count, high, refilled, given),
            "{era}, step {at}: {step:?}"
        );
        let census = pages.check_consistency().expect("consistent");
        assert_eq!(census.pcp, u64::from(count));
    }
}

/// Up to 4.18: refills of 31, drained by 31 at 186; from 4.19 on 63 and 378.
#[test]
fn a_batch_at_a_time() {
    for era in [
        Era::V2_6_22,
        Era::V2_6_24,
        Era::V2_6_26,
        Era::V2_6_35,
        Era::V4_18,
    ] {
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
    for era in [Era::V4_19, Era::V5_9, Era::V5_13] {
        follows(
            era,
            &[
                (Alloc(1), 62, 378, 63, 0),
                (Alloc(377), 0, 378, 378, 0),
                (Free(377), 377, 378, 378, 0),
                (Free(1), 315, 378, 378, 63),
                (Interval, 315, 378, 378, 63),
            ],
        );
    }
}

/// 5.14 to 6.6: batch 63, high 1286 (the low watermark). Frees that nothing interrupts drain 63, 126, 252,
/// 504, 1008 and then high - batch = 1223; an allocation halves the factor (5 to 2).
#[test]
fn the_free_factor_grows_and_halves() {
    for era in [Era::V5_14, Era::V6_1, Era::V6_6] {
        follows(
            era,
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
}

/// 6.7 and later: batch 63, high within 1286..=32768. Refills double, and raise high by as much; the periodic
/// work lowers high by an eighth; drains follow the count of frees, which ends at 63 * 32 = 2016.
#[test]
fn high_follows_the_load() {
    for era in [Era::V6_7, Era::V6_18, Era::V7_3] {
        follows(
            era,
            &[
                (Alloc(1), 62, 1349, 63, 0),
                (Alloc(62), 0, 1349, 63, 0),
                (Alloc(1), 125, 1475, 189, 0),
                (Alloc(125), 0, 1475, 189, 0),
                (Alloc(252), 0, 1727, 441, 0),
                (Alloc(504), 0, 2231, 945, 0),
                (Alloc(1008), 0, 3239, 1953, 0),
                (Alloc(1), 2015, 5255, 3969, 0),
                (Alloc(2015), 0, 5255, 3969, 0),
                (Interval, 0, 5255 - 656, 3969, 0),
                (Interval, 0, 4599 - 574, 3969, 0),
                (Interval, 0, 4025 - 503, 3969, 0),
                (Free(3521), 3521, 3522, 3969, 0),
                (Free(1), 3522 - 2016, 3522, 3969, 2016),
                // An allocation halves the count: 1008, and 302 frees more are 1310.
                (Alloc(1), 1505, 3522, 3969, 2016),
                (Interval, 1505, 3522 - 440, 3969, 2016),
                (Interval, 1505, 3082 - 385, 3969, 2016),
                (Interval, 1505, 2697 - 337, 3969, 2016),
                (Interval, 1505, 2360 - 295, 3969, 2016),
                (Interval, 1505, 2065 - 258, 3969, 2016),
                (Free(301), 1806, 1807, 3969, 2016),
                (Free(1), 1807 - 1310, 1807, 3969, 2016 + 1310),
            ],
        );
    }
}

/// Frees raise high, too, to what they count and a batch: 1807 + 63. High less a batch goes at once. High
/// decays to its least.
#[test]
fn frees_raise_high() {
    let mut rows = vec![(Alloc(3969), 0, 5255, 3969, 0)];
    let highs = [4599, 4025, 3522, 3082, 2697, 2360, 2065, 1807];
    rows.extend(highs.map(|high| (Interval, 0, high, 3969, 0)));
    rows.push((Free(1806), 1806, 1807, 3969, 0));
    rows.push((Free(1), 63, 1870, 3969, 1744));
    let highs = [1870 - 233, 1637 - 204, 1286, 1286];
    rows.extend(highs.map(|high| (Interval, 63, high, 3969, 1744)));
    follows(Era::V6_18, &rows);
}

/// The periodic work gives back what is above the lowered high, from 6.19 on a batch under each hold.
#[test]
fn what_decays_is_given_back() {
    for (era, holds) in [(Era::V6_18, 1), (Era::V6_19, 7)] {
        let pages = boot(era, GIB);
        let mut hand = take(&pages, 3969);
        for _ in 0..3 {
            assert_eq!(pages.vmstat_update(), 0);
        }
        give(&pages, &mut hand, 3500);
        assert_eq!(pageset(&pages).high, 3522);
        assert_eq!(pages.vmstat_update(), 0);
        let lists = pageset(&pages);
        assert_eq!((lists.count, lists.high), (3082, 3082));
        let pcp = report(&pages).pcp;
        assert_eq!((pcp.decays, pcp.decayed), (holds, 418));
        assert_eq!((pcp.drains, pcp.drained), (holds, 418));
    }
}

/// A high that is at its least stays there, however long the lists are: what is above it goes.
#[test]
fn the_least_high_does_not_decay() {
    let pages = boot(Era::V6_18, GIB);
    let stock = PcpStock {
        pages: [5000, 0, 0],
        high: 1286,
        zone: None,
    };
    assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(5000));
    assert_eq!(pages.vmstat_update(), 0);
    let lists = pageset(&pages);
    assert_eq!((lists.count, lists.high), (1286, 1286));
}

/// With `batch_scale_max` 1, 6.18 moves at most 126 pages under one hold of the zone lock: refills
/// of 63, 126, 126; as many frees count; and a drain takes as many holds as that needs.
#[test]
fn a_smaller_scale_shortens_the_holds() {
    let config = PageConfig {
        batch_scale_max: 1,
        ..PageConfig::new(Era::V6_18)
    };
    let pages = configured_pages(Setup::of_pages(GIB), &config);
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
    assert_eq!(pageset(&pages).count, 0);
}

/// Lists can be filled as a kernel reports them, without counting as traffic; if their length is fixed, up to
/// one page less.
#[test]
fn lists_can_be_stocked() {
    let stock = PcpStock {
        pages: [5, 1500, 7],
        high: 1600,
        zone: None,
    };
    for (era, high, stocked) in each([
        (Era::V6_18, 1600, 1512),
        (Era::V6_1, 1286, 1285),
        (Era::V2_6_24, 186, 185),
    ]) {
        let pages = boot(era, GIB);
        assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(stocked));
        let lists = pageset(&pages);
        assert_eq!((lists.count, lists.high), (stocked, high));
        assert_eq!(report(&pages).pcp, PcpStats::default());
        let listed = pages.check_consistency().map(|census| census.pcp);
        assert_eq!(listed, Ok(stocked.into()));
        // A block of long ago leaves the lists alone, whichever order they hold.
        let old = pages.alloc_past_lists(0, MigrateType::Movable);
        assert_eq!(pageset(&pages).count, stocked);
        let movable = block_of(0, MigrateType::Movable);
        let allocs = stocked.min(1505) - 5;
        for _ in 0..allocs {
            assert!(pages.alloc_with(&movable).is_some());
        }
        let pcp = report(&pages).pcp;
        assert_eq!((pcp.refills, pcp.allocs), (0, allocs.into()));
        assert_eq!(pageset(&pages).count, stocked - allocs);
        pages.free_number(old.unwrap(), 0).unwrap();
        assert_eq!(pageset(&pages).count, stocked - allocs + 1);
        assert_eq!(pages.alloc_past_lists(11, MigrateType::Movable), None);
    }
    let pages = boot(Era::V6_18, GIB);
    // More than the era would tune to.
    let stock = PcpStock {
        high: 1 << 20,
        ..PcpStock::default()
    };
    assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(0));
    assert_eq!(pageset(&pages).high, GIB / 8);
}

/// A list of another node's zone that is idle for three intervals gives a batch back, and so on.
#[test]
fn idle_lists_of_remote_zones_are_drained() {
    for era in each([Era::V2_6_24, Era::V4_13, Era::V6_18]) {
        let pages = boot_pages(era, Setup::of_pages(GIB * 2).on(2, 2));
        let count = |zone| {
            let lists = pages.pageset_report(zone, CpuId(0));
            lists.expect("lists").count
        };
        let there = |_| pages.alloc(0, Some(NodeId(1))).expect("memory");
        let got: Vec<Pfn> = (0..100).map(there).collect();
        give_pages(&pages, &got, 0);
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
        assert_eq!(counts, expected);
        let report = pages.zone_report(1).expect("a zone");
        assert_eq!((report.pcp.decays, report.pcp.drains), (2, 2));
    }
}

pub(crate) fn typed(pages: &Pages, migratetype: MigrateType, order: u32) -> Pfn {
    let options = block_of(order, migratetype);
    pages.alloc_with(&options).expect("memory")
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
    pages.free_number(unmovable, 0).expect("allocated");
    pages.free_number(movable, 0).expect("allocated");
    assert_eq!(typed(&pages, MigrateType::Unmovable, 0), unmovable);
    assert_eq!(typed(&pages, MigrateType::Movable, 0), movable);
    assert_eq!(report(&pages).pcp.refills, 2);
    let pages = boot(Era::V2_6_22, GIB);
    let first = typed(&pages, MigrateType::Movable, 0);
    pages.free_number(first, 0).expect("allocated");
    assert_eq!(typed(&pages, MigrateType::Unmovable, 0), first);
}

/// The fractions of the sysctls set the limits at once, and what they do not take is refused.
#[test]
fn limits_change_while_in_use() {
    let pages = boot(Era::V4_13, GIB);
    let mut hand = take(&pages, 600);
    give(&pages, &mut hand, 100);
    assert_eq!(pages.sysctl("percpu_pagelist_fraction"), Some(0));
    assert_eq!(pages.set_sysctl("percpu_pagelist_fraction", 1 << 16), Ok(0));
    let lists = pageset(&pages);
    assert_eq!((lists.high, lists.batch), (4, 1));
    give(&pages, &mut hand, 1);
    assert_eq!(pageset(&pages).count, lists.count, "one in, one out");
    assert_eq!(pages.set_sysctl("percpu_pagelist_fraction", 8), Ok(0));
    let lists = pageset(&pages);
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
    assert_eq!(pageset(&pages), lists, "nothing changed");
    assert_eq!(pages.sysctl("percpu_pagelist_high_fraction"), None);

    let pages = boot(Era::V6_18, GIB);
    assert_eq!(pages.set_sysctl("percpu_pagelist_high_fraction", 64), Ok(0));
    let lists = pageset(&pages);
    assert_eq!(
        (lists.high_min, lists.high_max, lists.batch),
        (4096, 4096, 63)
    );
    // Fixed: neither refills nor frees move it.
    let mut hand = take(&pages, 10_000);
    assert_eq!(pageset(&pages).high, 4096);
    give(&pages, &mut hand, 9000);
    assert_eq!(pageset(&pages).high, 4096);
    assert_eq!(pages.set_sysctl("percpu_pagelist_high_fraction", 0), Ok(0));
    assert_eq!(pageset(&pages).high_max, 32768);
}
