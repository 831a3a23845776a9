//! Machines that have run for a while: zones of any size, free memory between pages in use, raised
//! watermarks, and which zone then serves which type.

use crate::page_eras::requested;
use crate::prelude::*;
use MigrateType::{Movable, Reclaimable, Unmovable};
use quarry_core::page::{BlockType, FreeBlockCounts, MIGRATE_TYPES, ZoneReport, ZoneType};

const SIZES: [u32; 3] = [3840, 50_000, 70_001];

fn boot(era: Era, sizes: [u32; 3]) -> Pages {
    let config = PageConfig {
        zones: ZoneLayout::Sized(sizes),
        min_free: MinFree::Computed,
        ..PageConfig::new(era)
    };
    let pages = ZoneLayout::pages_of(&sizes) as u32;
    configured_pages(Setup::of_pages(pages).on(2, 1), &config)
}

fn zone(pages: &Pages, zone: ZoneType) -> ZoneReport {
    let found = pages.zone_reports().find(|report| report.id.zone == zone);
    found.expect("such a zone")
}

/// Blocks of one type.
fn of_type(migratetype: MigrateType, orders: &[(u32, u64)]) -> FreeBlockCounts {
    let mut blocks = FreeBlockCounts::default();
    for (order, count) in orders {
        blocks[*order as usize][migratetype as usize] = *count;
    }
    blocks
}

/// Asks for a block and says which zone it came from.
fn served_by(pages: &Pages, order: u32, migratetype: MigrateType) -> Option<ZoneType> {
    let pfn = pages.alloc_with(&block_of(order, migratetype))?;
    Some(pages.zone_id_of(pfn)?.zone)
}

#[test]
fn zones_have_the_sizes_of_the_layout() {
    let of = |sizes| {
        let pages = boot(Era::V6_18, sizes);
        let zones = pages.zone_reports();
        let zones = zones.map(|zone| (zone.id.zone.name(), zone.start.0, zone.pages));
        zones.collect::<Vec<_>>()
    };
    assert_eq!(
        of(SIZES),
        [
            ("DMA", 0, 3840),
            ("DMA32", 4096, 50_000),
            ("Normal", 54_272, 70_001)
        ]
    );
    assert_eq!(of([0, 50_000, 0]), [("DMA32", 0, 50_000)]);
    assert_eq!(of([1, 0, 1]), [("DMA", 0, 1), ("Normal", 1024, 1)]);
}

/// All pages of the zones can be allocated and come back, and none from between them.
#[test]
fn pages_between_zones_belong_to_none() {
    let pages = boot(Era::V6_18, SIZES);
    let all = |pages: &Pages| {
        pages
            .zone_reports()
            .map(|zone| zone.free_pages)
            .sum::<u64>()
    };
    let managed = SIZES.iter().map(|&pages| u64::from(pages)).sum::<u64>();
    assert_eq!(all(&pages), managed);
    let emergency = AllocOptions {
        no_watermarks: true,
        ..AllocOptions::default()
    };
    let got: Vec<_> = std::iter::from_fn(|| pages.alloc_with(&emergency)).collect();
    // DMA keeps itself back from whom Normal would do, but not in an emergency.
    assert_eq!(got.len() as u64, managed);
    let mut starts = 0;
    for pfn in &got {
        assert!(!(3840..4096).contains(&pfn.0) && !(54_096..54_272).contains(&pfn.0));
        starts += u64::from(pfn.0 == 0) + u64::from(pfn.0 == 4096) + u64::from(pfn.0 == 54_272);
        pages.free_number(*pfn, 0).expect("an allocated page");
    }
    assert_eq!(starts, 3);
    for outside in [3840, 4095, 54_096, 54_271] {
        assert_eq!(pages.zone_id_of(Pfn(outside)), None);
        assert!(pages.free_number(Pfn(outside), 0).is_err());
    }
    assert_eq!(pages.drain_all(), 0);
    assert_eq!(all(&pages), managed);
    pages.check_consistency().expect("consistent");
}

/// The sizes of a 6.18 kernel with 24 GiB; `protection`, `min`, `low` and `high` as it reported them
/// in the recording of tbench, `boost` included.
#[test]
fn watermarks_of_a_recorded_kernel() {
    let pages = boot(Era::V6_18, [3840, 772_915, 5_394_266]);
    pages.set_sysctl("min_free_kbytes", 67_584).expect("valid");
    assert!(pages.set_boost(ZoneType::Normal, 38_335));
    let all: Vec<_> = pages
        .zone_reports()
        .map(|zone| {
            let marks = zone.watermarks;
            (
                [zone.boost, marks.min, marks.low, marks.high],
                marks.promo,
                zone.lowmem_reserve,
            )
        })
        .collect();
    let expected = [
        ([0, 10, 13, 16], Some(19), [0, 3019, 24_090]),
        ([0, 2116, 2888, 3660], Some(4432), [0, 0, 21_071]),
        ([38_335, 53_104, 58_498, 63_892], Some(69_286), [0, 0, 0]),
    ];
    assert_eq!(all, expected);
    assert!(!boot(Era::V6_18, [0, 0, 5000]).set_boost(ZoneType::Dma, 1));
}

/// 39936 of 70000 pages are free: above the high watermark, and below it when that is raised. Then a free gives
/// pages of lists that are not too long to the zone.
#[test]
fn lists_shrink_in_a_zone_below_its_raised_watermark() {
    let count_after_a_free = |boost| {
        let pages = boot(Era::V6_18, [0, 0, 70_000]);
        pages.machine().run_on(CpuId(0));
        let old = pages.alloc_past_lists(0, Movable).expect("a page");
        let stock = PcpStock {
            pages: [0, 3000, 0],
            zone: Some(ZoneType::Normal),
            high: 4000,
        };
        assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(3000));
        let free = of_type(Movable, &[(8, 156)]);
        assert_eq!(pages.leave_free(ZoneType::Normal, &free), Some(156 << 8));
        assert!(pages.set_boost(ZoneType::Normal, boost));
        pages.free_number(old, 0).expect("a free");
        let set = pages.pageset_report(0, CpuId(0)).expect("lists");
        set.count
    };
    assert_eq!(count_after_a_free(0), 3001);
    // A batch.
    assert_eq!(count_after_a_free(40_000), 3001 - 15);
}

/// The blocks laid are there, and no other page is free.
#[test]
fn free_blocks_are_laid_as_asked() {
    let mut rng = Rng::new(7);
    for round in each(0..200) {
        let era = [Era::V6_18, Era::V5_9, Era::V2_6_24][round % 3];
        let pages = boot(era, [0, 0, 60_000 + round as u32 * 7]);
        let old: Vec<_> = (0..rng.below(200))
            .filter_map(|_| pages.alloc_past_lists(rng.below(4) as u32, Unmovable))
            .collect();
        let mut blocks = FreeBlockCounts::default();
        for _ in 0..rng.below(12) {
            let order = rng.below(MAX_ORDER as u64 + 1) as usize;
            blocks[order][rng.below(MIGRATE_TYPES as u64) as usize] += rng.below(2000 >> order) + 1;
        }
        let wanted: u64 = (0..)
            .zip(&blocks)
            .map(|(order, by_type)| by_type.iter().sum::<u64>() << order)
            .sum();
        let left = pages.leave_free(ZoneType::Normal, &blocks).expect("a zone");
        let report = zone(&pages, ZoneType::Normal);
        assert_eq!(left, report.free_pages);
        let census = pages.check_consistency().expect("consistent");
        assert_eq!(census.buddy + census.untouched, left);
        // Each free block is parted from its buddy by a block in use.
        let plenty = 2 * wanted + 40_960 < report.pages;
        if plenty {
            assert_eq!((left, report.free_blocks), (wanted, blocks));
        } else {
            assert!(left <= wanted);
        }
        for pfn in old {
            let order = (0..4).find(|order| pages.free_number(pfn, *order).is_ok());
            assert!(order.is_some());
        }
        pages.check_consistency().expect("consistent");
    }
}

/// If all pages are free, the blocks to leave have no buddies in use to part them, and are one piece.
#[test]
fn blocks_that_cannot_be_parted_keep_their_pages() {
    for (size, free) in each([
        (3840, 3840),
        (3840, 3600),
        (1024, 1023),
        (2048, 1024),
        (5000, 4999),
    ]) {
        for order in each([0, 8, 9, 10]) {
            let pages = boot(Era::V6_18, [0, 0, size]);
            let mut blocks = of_type(Movable, &[(order, free >> order)]);
            blocks[0][Movable as usize] += free & ((1 << order) - 1);
            assert_eq!(pages.leave_free(ZoneType::Normal, &blocks), Some(free));
            pages.check_consistency().expect("consistent");
            let all = AllocOptions {
                no_watermarks: true,
                ..block_of(0, Reclaimable)
            };
            let got: Vec<_> = std::iter::from_fn(|| pages.alloc_with(&all)).collect();
            assert_eq!(got.len() as u64, free);
            give_pages(&pages, got, 0);
            pages.drain_all();
            pages.check_consistency().expect("consistent");
        }
    }
    assert_eq!(
        boot(Era::V6_18, [0, 0, 5]).leave_free(ZoneType::Dma, &FreeBlockCounts::default()),
        None
    );
}

/// A request prefers DMA32 to the pageblocks of another type, since 5.9 in this library; it takes
/// them when DMA32 has nothing above its mark.
#[test]
fn a_lower_zone_comes_before_mixed_types() {
    use ZoneType::{Dma32, Normal};
    let halves = of_type(Movable, &[(8, 100)]);
    let machine = |era, of_dma32: &FreeBlockCounts| {
        let pages = boot(era, [0, SIZES[1], SIZES[2]]);
        assert_eq!(pages.leave_free(Normal, &halves), Some(25_600));
        pages.leave_free(Dma32, of_dma32).expect("a zone");
        pages
    };
    for era in each([Era::V5_9, Era::V6_1, Era::V6_18, Era::V7_0]) {
        // A whole pageblock of another type may be taken.
        for free in [
            of_type(Movable, &[(9, 20)]),
            of_type(Unmovable, &[(5, 300)]),
        ] {
            let pages = machine(era, &free);
            for order in 0..4 {
                assert_eq!(served_by(&pages, order, Unmovable), Some(Dma32));
                assert_eq!(served_by(&pages, order, Movable), Some(Normal));
            }
            let extfrag = |at| zone(&pages, at).extfrag;
            assert_eq!(extfrag(Normal), 0);
            // DMA32 has no unmixed block of 64 KiB or more.
            let unmixed = free[9][Movable as usize] > 0;
            let from = if unmixed { Dma32 } else { Normal };
            assert_eq!(served_by(&pages, 6, Unmovable), Some(from));
            assert_eq!(extfrag(Normal), u64::from(!unmixed));
        }
        // Halves there, too: the first zone is as good.
        let pages = machine(era, &of_type(Movable, &[(8, 50)]));
        assert_eq!(served_by(&pages, 0, Unmovable), Some(Normal));
        // Nothing above the mark.
        let pages = machine(era, &of_type(Movable, &[(9, 1)]));
        assert_eq!(served_by(&pages, 0, Unmovable), Some(Normal));
    }
    for era in each([Era::V2_6_24, Era::V4_13]) {
        let pages = machine(era, &of_type(Movable, &[(9, 20)]));
        assert_eq!(served_by(&pages, 0, Unmovable), Some(Normal));
        assert_eq!(zone(&pages, Normal).extfrag, 1);
    }
}

/// Zone Normal of the 6.1 kernel `D-x86_64-6.1-m4G-smp2-trace` after boot, from its pagetypeinfo (shared
/// ground truth): blocks of the largest order need no pages in use to part them.
#[test]
fn free_blocks_of_a_recorded_kernel_are_laid() {
    let by_type = [
        [1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0],
        [1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 471],
        [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
    ];
    let told: FreeBlockCounts = std::array::from_fn(|order| {
        std::array::from_fn(|of| by_type.get(of).map_or(0, |counts| counts[order]))
    });
    let pages = boot(Era::V6_1, [3840, 503_776, 494_673]);
    assert_eq!(pages.leave_free(ZoneType::Normal, &told), Some(483_802));
    let report = zone(&pages, ZoneType::Normal);
    assert_eq!(report.free_blocks, told);
    let [unmovable, movable, reclaimable] = requested(&report.pageblocks);
    assert_eq!((unmovable, reclaimable), (1, 2), "{movable} movable");
    pages.check_consistency().unwrap();
    // What others use is not freed, and it needs no memory.
    for pfn in each((0..pages.pages()).step_by(7).map(Pfn)) {
        for order in each(0..=MAX_ORDER) {
            assert!(pages.free_number(pfn, order).is_err());
        }
    }
    let residency = pages.residency();
    assert!(residency.resident() < 20_000, "{residency:?}");
}

#[test]
fn numbers_from_outside_are_refused_or_clamped() {
    let pages = boot(Era::V6_18, SIZES);
    let stock = PcpStock {
        pages: [5; MIGRATE_TYPES],
        zone: None,
        high: 40,
    };
    for cpu in [2, 70, 100_000, u32::MAX] {
        assert_eq!(pages.stock_pcp(CpuId(cpu), &stock), None, "CPU {cpu}");
    }
    assert_eq!(pages.stock_pcp(CpuId(1), &stock), Some(15));
    assert!(pages.set_boost(ZoneType::Normal, u64::MAX));
    assert_eq!(zone(&pages, ZoneType::Normal).boost, u64::from(SIZES[2]));
    assert_eq!(served_by(&pages, 0, Unmovable), Some(ZoneType::Dma32));
    pages.check_consistency().unwrap();
}

/// In eras that do not tune the lists, these are never as long as a report of a later kernel says.
#[test]
fn stock_stays_below_what_the_era_drains_at() {
    for era in each([Era::V2_6_24, Era::V5_9, Era::V6_1]) {
        let pages = boot(era, SIZES);
        let stock = PcpStock {
            pages: [100_000, 0, 0],
            zone: Some(ZoneType::Normal),
            high: 100_000,
        };
        let high = pages.pageset_report(2, CpuId(0)).expect("Normal").high;
        assert_eq!(pages.stock_pcp(CpuId(0), &stock), Some(high - 1));
    }
}

/// The largest block of a configuration is the largest that is split, merged, laid and handed out.
#[test]
fn the_largest_block_is_the_configurations() {
    for era in each([Era::V2_6_22, Era::V4_13, Era::V6_1, Era::V6_18]) {
        for max_order in each([0, 2, 5, 8, MAX_ORDER]) {
            let config = PageConfig {
                max_order,
                tracks_contents: true,
                ..PageConfig::new(era)
            };
            let pages = configured_pages(Setup::of_pages(5000), &config);
            let largest = 1 << max_order;
            let whole = |pages: &Pages| {
                let report = zone(pages, ZoneType::Normal);
                let above = &report.free_blocks[max_order as usize + 1..];
                assert!(above.iter().flatten().all(|count| *count == 0));
                report.free_blocks[max_order as usize].iter().sum::<u64>()
            };
            assert_eq!(whole(&pages), 5000 / largest);
            assert_eq!(pages.alloc(max_order + 1, None), None, "above {max_order}");
            assert_eq!(pages.alloc_past_lists(max_order + 1, Movable), None);
            let taken: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(0, None)).collect();
            assert_eq!(taken.len(), 5000);
            for pfn in taken {
                pages.free_number(pfn, 0).unwrap();
            }
            pages.drain_all();
            assert_eq!(whole(&pages), 5000 / largest);
            let blocks = std::iter::from_fn(|| pages.alloc(max_order, None));
            let blocks: Vec<Pfn> = blocks.collect();
            assert_eq!(blocks.len() as u64, 5000 / largest);
            for pfn in blocks {
                assert!(u64::from(pfn.0).is_multiple_of(largest));
                pages.free_number(pfn, max_order).unwrap();
            }
            pages.drain_all();
            pages.check_consistency().unwrap();
            // A larger block of a report is several.
            let pages = configured_pages(Setup::of_pages(5000), &config);
            let told = of_type(Movable, &[(MAX_ORDER, 2)]);
            assert_eq!(pages.leave_free(ZoneType::Normal, &told), Some(2048));
            assert_eq!(whole(&pages), 2048 / largest);
            assert!(pages.use_all());
            assert!(!pages.lay_free(Pfn(0), max_order + 1, BlockType::MOVABLE));
            assert!(pages.lay_free(Pfn(0), max_order, BlockType::MOVABLE));
            assert_eq!(whole(&pages), 1);
            pages.check_consistency().unwrap();
        }
    }
}
