//! Several zones and nodes: which one serves a request, what watermarks keep back, what is counted.

use crate::prelude::*;
use quarry_core::page::{BootError, NumaStats, ZoneType};

fn like_a_kernel(era: Era) -> PageConfig {
    PageConfig {
        zones: ZoneLayout::Kernel,
        min_free: MinFree::Computed,
        ..PageConfig::new(era)
    }
}

/// 8 GiB in pages of 4 KiB.
const EIGHT_GIB: Setup = Setup::of_pages(1 << 21);

/// Zones by page size and number of nodes.
#[test]
fn zones_end_at_their_limits() {
    let zones = |page_shift, pages, nodes| {
        let setup = Setup {
            page_shift,
            pages,
            nodes,
            cpus: nodes,
            ..EIGHT_GIB
        };
        let pages = configured_pages(setup, &like_a_kernel(Era::V6_18));
        let reports = pages.zone_reports();
        let names = reports.map(|zone| (zone.id.node.0, zone.id.zone.name(), zone.start.0));
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        zones(12, 1 << 21, 1),
        [(0, "DMA", 0), (0, "DMA32", 4096), (0, "Normal", 1 << 20)]
    );
    assert_eq!(
        zones(12, 1 << 21, 3),
        [
            (0, "DMA", 0),
            (0, "DMA32", 4096),
            (1, "DMA32", 682 << 10),
            (1, "Normal", 1 << 20),
            (2, "Normal", 1365 << 10),
        ]
    );
    // 16 MiB are a quarter of the largest block.
    assert_eq!(
        zones(16, 1 << 17, 1),
        [(0, "DMA32", 0), (0, "Normal", 1 << 16)]
    );
    assert_eq!(zones(12, 1000, 1), [(0, "DMA", 0)]);
}

#[test]
fn numbers_of_no_page_are_nowhere() {
    let pages = configured_pages(
        Setup::of_pages(1 << 14).on(2, 2),
        &PageConfig::new(Era::V6_18),
    );
    assert_eq!(pages.node_of(Pfn(0)), Some(NodeId(0)));
    assert_eq!(pages.node_of(Pfn((1 << 14) - 1)), Some(NodeId(1)));
    for foreign in [1 << 14, (1 << 14) + 512, 1 << 20, u32::MAX].map(Pfn) {
        assert_eq!(pages.node_of(foreign), None);
        assert_eq!(pages.zone_id_of(foreign), None);
        assert_eq!(pages.block_type_of(foreign), None);
    }
}

/// The formulas of a running 6.18 kernel (protection: a zone keeps 1/256 of what is above it), by
/// hand: min_free_kbytes = sqrt(8388608 * 16) = 11585.
#[test]
fn watermarks_and_reserves_of_three_zones() {
    let pages = configured_pages(EIGHT_GIB, &like_a_kernel(Era::V6_18));
    assert_eq!(pages.sysctl("min_free_kbytes"), Some(11585));
    let all: Vec<_> = pages
        .zone_reports()
        .map(|zone| {
            let marks = zone.watermarks;
            (
                [marks.min, marks.low, marks.high],
                marks.promo,
                zone.lowmem_reserve,
            )
        })
        .collect();
    let expected = [
        ([5, 9, 13], Some(17), [0, 4080, 8176]),
        ([1442, 2486, 3530], Some(4574), [0, 0, 4096]),
        ([1448, 2496, 3544], Some(4592), [0, 0, 0]),
    ];
    assert_eq!(all, expected);
}

fn blocks(pages: &Pages, options: AllocOptions) -> Vec<Pfn> {
    std::iter::from_fn(|| pages.alloc_with(&options)).collect()
}

/// The largest blocks, in the order of the zones and marks: Normal to its low watermark, DMA32 to
/// its own and what it keeps back, both to the lowest, then nothing. DMA keeps more back than it
/// has. An emergency gets everything.
#[test]
fn requests_go_down_the_zones_and_marks() {
    let pages = configured_pages(EIGHT_GIB, &like_a_kernel(Era::V6_18));
    let largest = block_of(10, MigrateType::Unmovable);
    let got = blocks(&pages, largest);
    let zone = |pfn: &Pfn| pages.zone_id_of(*pfn).expect("a page").zone;
    let mut runs: Vec<(ZoneType, u32)> = Vec::new();
    for pfn in &got {
        match runs.last_mut() {
            Some((last, count)) if *last == zone(pfn) => *count += 1,
            _ => runs.push((zone(pfn), 1)),
        }
    }
    use ZoneType::{Dma, Dma32, Normal};
    assert_eq!(
        runs,
        [(Normal, 1021), (Dma32, 1013), (Normal, 1), (Dma32, 1)]
    );
    let dma = blocks(
        &pages,
        AllocOptions {
            highest_zone: Dma,
            ..largest
        },
    );
    assert_eq!(dma.len(), 3);
    let rest = blocks(
        &pages,
        AllocOptions {
            no_watermarks: true,
            ..largest
        },
    );
    assert_eq!(rest.len(), 2 + 6 + 1);
    give_pages(&pages, [got, dma, rest].concat(), 10);
    assert_eq!(pages.drain_all(), 0);
    assert_eq!(pages.stats().free_blocks[10], 2048);
    check_empty(&pages);
}

/// Single pages of a kernel's zones are used to the last one in an emergency, and come back.
#[test]
fn an_emergency_takes_the_last_page() {
    for era in each(Era::REFERENCE) {
        let pages = configured_pages(Setup::of_pages(6000).on(3, 1), &like_a_kernel(era));
        let at_boot = pages.stats().free_blocks;
        let normal = blocks(&pages, AllocOptions::default());
        assert!(normal.len() < 6000);
        let kept: u64 = pages.zone_reports().map(|zone| zone.free_pages).sum();
        assert_eq!(normal.len() as u64 + kept, 6000, "no CPU hides any");
        pages.machine().run_on(CpuId(2));
        let last = blocks(
            &pages,
            AllocOptions {
                no_watermarks: true,
                ..AllocOptions::default()
            },
        );
        assert_eq!(last.len() as u64, kept);
        for (at, pfn) in normal.into_iter().chain(last).enumerate() {
            pages.machine().run_on(CpuId(at as u32 % 3));
            pages.free_number(pfn, 0).expect("allocated");
        }
        assert_eq!(pages.drain_all(), 0);
        assert_eq!(pages.stats().free_blocks, at_boot);
    }
}

/// Writing `min_free_kbytes` moves the watermarks while pages are allocated.
#[test]
fn min_free_kbytes_can_be_raised() {
    let pages = configured_pages(Setup::of_pages(1 << 18), &PageConfig::new(Era::V6_18));
    assert_eq!(pages.sysctl("min_free_kbytes"), Some(0));
    let first = pages.alloc(10, None).expect("memory");
    assert_eq!(pages.set_sysctl("min_free_kbytes", 512 << 10), Ok(0));
    let marks = pages.zone_report(0).expect("a zone").watermarks;
    assert_eq!((marks.min, marks.low), (131_072, 131_072 + 32768));
    let largest = block_of(10, MigrateType::Unmovable);
    assert_eq!(1 + blocks(&pages, largest).len(), 128);
    assert_eq!(pages.set_sysctl("min_free_kbytes", 0), Ok(0));
    // The distance to the low watermark is still a thousandth of the zone.
    assert_eq!(blocks(&pages, largest).len(), 128);
    pages.free_number(first, 10).expect("allocated");
}

/// A high that is tuned falls as long as its zone is below the high watermark.
#[test]
fn lists_shrink_when_memory_is_low() {
    let config = PageConfig {
        min_free: MinFree::Computed,
        ..PageConfig::new(Era::V6_18)
    };
    let pages = configured_pages(Setup::of_pages(1 << 18), &config);
    let lists = || pages.pageset_report(0, CpuId(0)).expect("lists");
    let mut hand = take_pages(&pages, 0, 5218);
    assert_eq!(lists().high, 1286 + 5985);
    let largest = block_of(10, MigrateType::Unmovable);
    let small = block_of(6, MigrateType::Unmovable);
    let held = [blocks(&pages, largest), blocks(&pages, small)];
    let report = pages.zone_report(0).expect("a zone");
    assert!(report.free_pages < report.watermarks.high);
    // 1286 pages are kept; then all of them that may go do: 1286 - 63.
    give_pages(&pages, hand.drain(..1286), 0);
    assert_eq!((lists().count, lists().high), (63, 1286));
    assert_eq!(report.pcp.drains + 1, pages.stats().pcp.drains);
    assert!(held.iter().all(|blocks| !blocks.is_empty()));
}

/// If watermarks count, a bulk allocation takes from the lists if the zone has as many pages above its low one
/// as the array has slots; from 7.1 on, as many as are missing. Else it gets one page.
#[test]
fn what_a_bulk_allocation_asks_of_the_watermark() {
    for (era, got) in each([
        (Era::V6_1, 1),
        (Era::V7_0, 1),
        (Era::V7_1, 4),
        (Era::V7_3, 4),
    ]) {
        let config = PageConfig {
            min_free: MinFree::Computed,
            ..PageConfig::new(era)
        };
        let pages = configured_pages(Setup::of_pages(1 << 18), &config);
        let above = || {
            let report = pages.zone_report(0).expect("a zone");
            report.free_pages - report.watermarks.low
        };
        for order in [10, 5] {
            while above() > 32 + (1 << order) {
                assert!(pages.alloc(order, None).is_some());
            }
        }
        assert!((8..64).contains(&above()), "{}", above());
        let page = pages.alloc(5, None);
        let mut slots = [page; 64];
        slots[60..].fill(None);
        pages
            .free_number(page.expect("memory"), 5)
            .expect("allocated");
        let filled = pages.alloc_bulk(None, &mut slots);
        assert_eq!(filled, 60 + got);
    }
}

/// From 5.0 on a machine with one node tries its lower zones before it mixes types in Normal, whichever they
/// are.
#[test]
fn types_are_kept_apart_across_zones() {
    for (era, spreads) in each([(Era::V4_20, false), (Era::V5_0, true), (Era::V7_0, true)]) {
        let config = PageConfig {
            zones: ZoneLayout::Sized([4096, 0, 65536]),
            min_free: MinFree::Kbytes(64),
            ..PageConfig::new(era)
        };
        let pages = configured_pages(Setup::of_pages(4096 + 65536), &config);
        let movable = block_of(8, MigrateType::Movable);
        // Of each pageblock in Normal one half is free.
        let in_normal =
            |pfn: &Pfn| pages.zone_id_of(*pfn).map(|id| id.zone) == Some(ZoneType::Normal);
        let all: Vec<Pfn> =
            core::iter::from_fn(|| pages.alloc_with(&movable).filter(in_normal)).collect();
        give_pages(&pages, all.iter().filter(|pfn| pfn.0 % 512 == 256), 8);
        let unmovable = pages.alloc(5, None).expect("memory");
        assert_eq!(!in_normal(&unmovable), spreads);
    }
}

/// Each allocation counts as hit or miss and as local or other.
#[test]
fn numa_counters() {
    for era in each(Era::REFERENCE) {
        let pages = configured_pages(Setup::of_pages(2048).on(2, 2), &PageConfig::new(era));
        for _ in 0..1500 {
            pages.alloc(0, None).expect("memory");
        }
        for _ in 0..10 {
            pages.alloc(0, Some(NodeId(1))).expect("memory");
        }
        pages.alloc(4, Some(NodeId(1))).expect("memory");
        let mut slots = [None; 7];
        assert_eq!(pages.alloc_bulk(Some(NodeId(1)), &mut slots), 7);
        let numa: Vec<_> = pages.zone_reports().map(|zone| zone.numa).collect();
        let here = NumaStats {
            hit: 1024,
            miss: 0,
            foreign: 476,
            local: 1024,
            other: 0,
        };
        let there = NumaStats {
            hit: 18,
            miss: 476,
            foreign: 0,
            local: 0,
            other: 494,
        };
        assert_eq!(numa, [here, there]);
        let counted = pages.zone_reports().map(|zone| zone.pages_allocated);
        assert_eq!(counted.collect::<Vec<_>>(), [1024, 476 + 10 + 16 + 7]);
    }
}

#[test]
fn impossible_configurations_are_refused() {
    let refused = |config: PageConfig, part: &str| {
        let error = PageAllocator::with_config(EIGHT_GIB.machine(), &config);
        let error: BootError = error.err().expect(part);
        assert!(error.to_string().contains(part), "{error}");
    };
    let config = PageConfig::new(Era::V2_6_22);
    let small = PageConfig {
        era: Era::V6_18,
        pagelist_fraction: 7,
        ..config
    };
    refused(small, "percpu_pagelist_high_fraction is 7");
    let all = PageConfig {
        min_free: MinFree::Kbytes(1 << 30),
        ..config
    };
    refused(all, "min_free_kbytes is 1073741824 KiB");
    let none = PageConfig {
        zones: ZoneLayout::Sized([0; 3]),
        ..config
    };
    refused(none, "no zone of the configuration has pages");
    let large = PageConfig {
        max_order: MAX_ORDER + 1,
        ..config
    };
    refused(
        large,
        "max_order is 11: the largest block has order 10 at most",
    );
}
