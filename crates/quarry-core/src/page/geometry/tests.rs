use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::geometry::kmalloc::tests::steps;

/// Shared facts `vectors/pcp_sizes.csv`, all rows and columns: page bytes, zone MiB, zone pages;
/// batchsize, batch and high of 2.6.24 and 4.13, cold high and batch of 2.6.24; batchsize, batch
/// and high of 5.9; min and low watermark of 6.x; high_min and high_max for 1, 4, 8 and 16 CPUs.
const ROWS: [[u64; 21]; 12] = [
    [
        4096, 16, 4096, 0, 1, 0, 0, 1, 0, 1, 0, 128, 160, 160, 512, 40, 128, 20, 64, 10, 32,
    ],
    [
        4096, 64, 16384, 3, 3, 18, 6, 1, 3, 3, 18, 256, 320, 320, 2048, 80, 512, 40, 256, 20, 128,
    ],
    [
        4096, 256, 65536, 15, 15, 90, 30, 7, 15, 15, 90, 512, 640, 640, 8192, 160, 2048, 80, 1024,
        60, 512,
    ],
    [
        4096, 1024, 262_144, 31, 31, 186, 62, 15, 63, 63, 378, 1024, 1286, 1286, 32768, 321, 8192,
        252, 4096, 252, 2048,
    ],
    [
        4096, 4096, 1_048_576, 31, 31, 186, 62, 15, 63, 63, 378, 2048, 3096, 3096, 131_072, 774,
        32768, 387, 16384, 252, 8192,
    ],
    [
        4096, 16384, 4_194_304, 31, 31, 186, 62, 15, 63, 63, 378, 4096, 8290, 8290, 524_288, 2072,
        131_072, 1036, 65536, 518, 32768,
    ],
    [
        65536, 16, 256, 0, 1, 0, 0, 1, 0, 1, 0, 8, 10, 10, 32, 4, 8, 4, 4, 4, 4,
    ],
    [
        65536, 64, 1024, 0, 1, 0, 0, 1, 0, 1, 0, 16, 20, 20, 128, 5, 32, 4, 16, 4, 8,
    ],
    [
        65536, 256, 4096, 0, 1, 0, 0, 1, 0, 1, 0, 32, 40, 40, 512, 10, 128, 5, 64, 4, 32,
    ],
    [
        65536, 1024, 16384, 1, 1, 6, 2, 1, 3, 3, 18, 64, 80, 80, 2048, 20, 512, 12, 256, 12, 128,
    ],
    [
        65536, 4096, 65536, 1, 1, 6, 2, 1, 3, 3, 18, 128, 193, 193, 8192, 48, 2048, 24, 1024, 12,
        512,
    ],
    [
        65536, 16384, 262_144, 1, 1, 6, 2, 1, 3, 3, 18, 256, 518, 518, 32768, 129, 8192, 64, 4096,
        32, 2048,
    ],
];

fn only_zone(pages: u64, page_shift: u32, cpus: u32) -> ZoneParams {
    ZoneParams {
        page_shift,
        pages,
        initialised_pages: pages,
        all_pages: pages,
        cpus,
    }
}

fn sizes(era: Era, zone: ZoneParams) -> ZoneSizes {
    page_era(era)
        .zone(&zone, &PageSysctls::default())
        .expect("such a machine")
}

/// The row that the formulas make for a zone.
fn computed(page_bytes: u64, mib: u64) -> Vec<u64> {
    let (shift, pages) = (page_bytes.ilog2(), (mib << 20) / page_bytes);
    let pcp = |era| sizes(era, only_zone(pages, shift, 4)).pcp;
    let (old, mid) = (pcp(Era::V2_6_24), pcp(Era::V5_9));
    let cold = old.cold.expect("2.6.24 has a cold list");
    let same = pcp(Era::V4_13);
    assert_eq!((same.batch, same.high), (old.batch, old.high));
    assert_eq!(same.cold, None);
    let size = |era| page_era(era).batch_size(&only_zone(pages, shift, 1));
    let marks = sizes(Era::V6_18, only_zone(pages, shift, 1)).watermarks;
    let mut row = Vec::from([page_bytes, mib, pages, size(Era::V4_13)]);
    row.extend([old.batch, old.high, cold.high, cold.batch].map(u64::from));
    row.push(size(Era::V5_9));
    row.extend([mid.batch, mid.high].map(u64::from));
    row.extend([marks.min, marks.low]);
    for cpus in [1, 4, 8, 16] {
        let new = sizes(Era::V6_18, only_zone(pages, shift, cpus)).pcp;
        let fixed = sizes(Era::V6_1, only_zone(pages, shift, cpus)).pcp;
        assert_eq!((fixed.high, fixed.high_max), (new.high, new.high));
        for same in [Era::V6_7, Era::V6_19, Era::V7_0, Era::V7_3] {
            assert_eq!(sizes(same, only_zone(pages, shift, cpus)).pcp, new);
        }
        assert_eq!(sizes(Era::V5_14, only_zone(pages, shift, cpus)).pcp, fixed);
        row.extend([new.high, new.high_max].map(u64::from));
    }
    row
}

#[test]
fn every_number_of_the_facts() {
    for row in ROWS {
        assert_eq!(computed(row[0], row[1]), row);
    }
}

/// Facts 7.2: the fraction 8, with 4 KiB pages; and what it is where batch * 8 log2 P bounds it.
#[test]
fn fractions() {
    let with = |era, mib: u64, shift: u32, cpus, fraction| {
        let sysctls = PageSysctls {
            pagelist_fraction: fraction,
            ..PageSysctls::default()
        };
        let zone = only_zone((mib << 20) >> shift, shift, cpus);
        let pcp = page_era(era).zone(&zone, &sysctls).expect("valid").pcp;
        (pcp.batch, pcp.high, pcp.high_max)
    };
    assert_eq!(with(Era::V4_13, 1024, 12, 8, 8), (96, 32768, 32768));
    assert_eq!(with(Era::V2_6_24, 16384, 12, 1, 8), (96, 524_288, 524_288));
    assert_eq!(with(Era::V5_9, 16384, 16, 1, 8), (128, 32768, 32768));
    assert_eq!(with(Era::V4_13, 16, 12, 8, 4096), (1, 1, 1));
    // Of all CPUs, not tuned, with the batch as it was.
    assert_eq!(with(Era::V6_1, 16384, 12, 8, 8), (63, 65536, 65536));
    assert_eq!(with(Era::V6_18, 16384, 12, 8, 64), (63, 8192, 8192));
    assert_eq!(with(Era::V6_18, 16384, 12, 8, 1 << 20), (63, 252, 252));
    let cold = |fraction| {
        let zone = only_zone(1 << 18, 12, 1);
        page_era(Era::V2_6_24).pcp(&zone, 0, fraction).cold
    };
    assert_eq!(cold(8), cold(0), "only the hot list");
}

/// Facts 7.2: kernels up to 5.3 size lists by what was initialised at boot. 128 MiB make the 7 and 42 of RHEL 8.
#[test]
fn lists_sized_before_late_initialisation() {
    let early = ZoneParams {
        initialised_pages: 32768,
        ..only_zone(16 << 20, 12, 8)
    };
    let lists = |era, zone: &ZoneParams| {
        let pcp = page_era(era)
            .zone(zone, &PageSysctls::default())
            .expect("valid")
            .pcp;
        (u64::from(pcp.batch), u64::from(pcp.high))
    };
    for (era, expect) in [
        (Era::V4_18, (7, 42)),
        (Era::V5_3, (7, 42)),
        (Era::V5_4, (63, 378)),
    ] {
        assert_eq!(lists(era, &early), expect, "{era}");
    }
    // The least number of pages with a batch makes that batch, and a list sized by all pages tells nothing.
    for era in [Era::V4_18, Era::V5_3] {
        let all = only_zone(16 << 20, 12, 8);
        let (most, _) = lists(era, &all);
        for batch in [1, 3, 7, 15, 31, 63]
            .into_iter()
            .filter(|batch| *batch < most)
        {
            let found = page_era(era)
                .initialised_pages(&all, batch, 6 * batch)
                .expect("fewer");
            let zone = |initialised_pages| ZoneParams {
                initialised_pages,
                ..all
            };
            assert_eq!(lists(era, &zone(found)), (batch, 6 * batch));
            let fewer = lists(era, &zone(found - 4096));
            assert!(fewer.1 < 6 * batch, "{fewer:?}");
            assert_eq!(
                page_era(era).initialised_pages(&all, batch, 5 * batch),
                None
            );
        }
        assert_eq!(page_era(era).initialised_pages(&all, most, 6 * most), None);
    }
    assert_eq!(page_era(Era::V5_4).initialised_pages(&early, 7, 42), None);
}

/// Facts 7.2: three zones of a running 6.18 kernel, two CPUs, min_free_kbytes raised to 67584.
#[test]
fn zones_of_a_running_kernel() {
    let zones = [3840, 772_918, 2_785_280];
    let sysctls = PageSysctls {
        min_free_kbytes: Some(67584),
        ..PageSysctls::default()
    };
    let [dma, dma32, normal] = zones.map(|pages| {
        let zone = ZoneParams {
            page_shift: 12,
            pages,
            initialised_pages: pages,
            all_pages: zones.iter().sum(),
            cpus: 2,
        };
        page_era(Era::V6_18).zone(&zone, &sysctls).expect("valid")
    });
    assert_eq!((dma.pcp.batch, dma.pcp.high_max), (1, 240));
    assert_eq!((dma32.pcp.batch, dma32.pcp.high_max), (63, 48307));
    assert_eq!(
        (normal.pcp.batch, normal.pcp.high, normal.pcp.high_max),
        (63, 8256, 174_080)
    );
    assert_eq!(
        normal.watermarks,
        Watermarks {
            min: 13211,
            low: 16513,
            high: 19815,
            promo: Some(23117)
        }
    );
}

#[test]
fn watermarks_by_era() {
    let of = |era, sysctls| {
        page_era(era)
            .zone(&only_zone(1 << 31, 12, 1), &sysctls)
            .expect("valid")
            .watermarks
    };
    let marks = |min, low, high, promo| Watermarks {
        min,
        low,
        high,
        promo,
    };
    let default = PageSysctls::default();
    // 8 TiB: clamped to 64 MiB, then to 256 MiB.
    assert_eq!(of(Era::V2_6_24, default), marks(16384, 20480, 24576, None));
    let step = (1 << 31) / 1000;
    let low = 16384 + step;
    assert_eq!(of(Era::V4_13, default), marks(16384, low, low + step, None));
    let low = 65536 + step;
    assert_eq!(of(Era::V5_9, default), marks(65536, low, low + step, None));
    assert_eq!(
        of(Era::V6_1, default),
        marks(65536, low, low + step, Some(low + 2 * step))
    );
    let tuned = PageSysctls {
        min_free_kbytes: Some(42),
        watermark_scale_factor: 100,
        ..default
    };
    let step = (1 << 31) / 100;
    assert_eq!(
        of(Era::V6_18, tuned),
        marks(10, 10 + step, 10 + 2 * step, Some(10 + 3 * step))
    );
    // 7 is halved and quartered by itself.
    assert_eq!(
        page_era(Era::V2_6_24).watermarks(7, 1 << 20, 10),
        marks(7, 8, 10, None)
    );
    assert_eq!(page_era(Era::V6_1).min_free_kbytes(1, 12), 128);
}

/// The first release of each rule (facts on versions, 6), and the release before it.
#[test]
fn every_rule_begins_with_a_release() {
    fn begins<T: PartialEq + core::fmt::Debug>(rule: impl Fn(PageEra) -> T, at: &[(Era, T)]) {
        steps(Era::ALL, |era| rule(page_era(era)), at);
    }
    let first = Era::FIRST;
    begins(
        |era| era.batch_cap_bytes,
        &[(first, 128 << 10), (Era::V4_19, 256 << 10)],
    );
    begins(
        |era| era.min_free_kbytes_max,
        &[(first, 65536), (Era::V5_7, 262_144)],
    );
    begins(|era| era.has_promo, &[(first, false), (Era::V5_18, true)]);
    let marks = [
        (first, WatermarkStep::QuarterOfMin),
        (Era::V4_6, WatermarkStep::ScaleFactor),
    ];
    begins(|era| era.step, &marks);
    let highs = [
        (first, HighRule::Batches),
        (Era::V5_14, HighRule::LowWatermark),
        (Era::V6_7, HighRule::Tuned),
    ];
    begins(|era| era.high, &highs);
    let fractions = [
        (first, FractionRule::EachCpu),
        (Era::V5_14, FractionRule::AllCpus),
    ];
    begins(|era| era.fraction, &fractions);
    // Lists, cold lists among them, and the largest order.
    let lists = [
        (first, (2, true, 0)),
        (Era::V2_6_25, (1, false, 0)),
        (Era::V2_6_32, (3, false, 0)),
        (Era::V5_14, (15, false, 3)),
        (Era::V6_0, (13, false, 3)),
        (Era::V6_10, (14, false, 3)),
    ];
    begins(
        |era| (era.lists.count(), era.lists.cold_list, era.lists.max_order),
        &lists,
    );
    for era in Era::ALL {
        assert_eq!(page_era(era).era, era);
    }
}

/// pagetypeinfo and zoneinfo of the recorded kernels.
#[test]
fn pageblocks_and_thresholds() {
    assert_eq!([12, 14, 16].map(pageblock_order), [9, 10, 5]);
    assert_eq!([12, 14, 16].map(huge_order), [Some(9), None, Some(5)]);
    let lists = |era| page_era(era).lists.huge_order(12);
    assert_eq!([Era::V5_9, Era::V6_1].map(lists), [None, Some(9)]);
    for (pages, page_shift, cpus, threshold) in [
        (3840, 12, 2, 4),
        (492_458, 12, 2, 20),
        (772_918, 12, 2, 24),
        (260_455, 16, 16, 80),
        (64_477, 16, 4, 36),
        (1 << 30, 12, 512, 125),
    ] {
        assert_eq!(stat_threshold(pages, page_shift, cpus), threshold);
    }
    assert_eq!([node_cpus(4, 16), node_cpus(0, 16)], [4, 16]);
}

#[test]
fn impossible_input_is_refused() {
    let zone = only_zone(1 << 18, 12, 4);
    let refused = |era, zone: ZoneParams, sysctls: PageSysctls, part: &str| {
        let error = page_era(era).zone(&zone, &sysctls).expect_err(part);
        let text = error.to_string();
        assert!(text.contains(part), "{text}");
    };
    let default = PageSysctls::default();
    let new = Era::V6_18;
    for (bad, part) in [
        (
            ZoneParams {
                page_shift: 11,
                ..zone
            },
            "page shift 11",
        ),
        (ZoneParams { cpus: 0, ..zone }, "0 CPUs is not in 1.."),
        (ZoneParams { pages: 0, ..zone }, "at least one page"),
        (
            ZoneParams {
                all_pages: 1,
                ..zone
            },
            "larger than all zones",
        ),
        (
            ZoneParams {
                all_pages: u64::MAX,
                ..zone
            },
            "the most covered",
        ),
    ] {
        refused(new, bad, default, part);
    }
    let fraction = |pagelist_fraction| PageSysctls {
        pagelist_fraction,
        ..default
    };
    refused(new, zone, fraction(7), "percpu_pagelist_high_fraction is 7");
    refused(
        Era::V4_13,
        zone,
        fraction(1),
        "percpu_pagelist_fraction is 1",
    );
    refused(
        Era::V2_6_22,
        zone,
        fraction(1),
        "percpu_pagelist_fraction is 1",
    );
    let factor = |watermark_scale_factor| PageSysctls {
        watermark_scale_factor,
        ..default
    };
    refused(new, zone, factor(0), "1..=3000");
    refused(new, zone, factor(3001), "1..=3000");
    refused(Era::V2_6_35, zone, factor(20), "era 2.6.35 has no");
    let min_free = PageSysctls {
        min_free_kbytes: Some((1 << 20) + 1),
        ..default
    };
    refused(new, zone, min_free, "min_free_kbytes is 1048577 KiB");
}
