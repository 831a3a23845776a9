//! Machines that follow from a zoneinfo, by hand.

use std::path::Path;

use quarry_designs::DesignSpec;
use quarry_trace::{Existing, Kind, RawEvent, TraceBuilder, TraceFile};

use super::*;
use crate::plan::Axes;
use crate::replay::pages::PageMode;
use crate::{Plan, RunReport};

const MOVABLE: usize = MigrateType::Movable as usize;

/// A zone of a machine with two CPUs. `stats` are lines of its counters.
fn zone(name: &str, [free, boost, min, managed]: [u64; 4], listed: u64, stats: &str) -> String {
    let lists = [0, 1].map(|cpu| {
        format!(
            "    cpu: {cpu}\n              count:    {listed}\n              high:     500\n\
             \x20             batch:    7\n              high_min: 40\n\
             \x20             high_max: 5000\n  vm stats threshold: 10\n"
        )
    });
    format!(
        "Node 0, zone   {name}\n  pages free     {free}\n        boost    {boost}\n\
         \x20       min      {min}\n        low      {min}\n        high     {min}\n\
         \x20       spanned  {managed}\n        present  {managed}\n        managed  {managed}\n\
         \x20       protection: (0, 0, 0)\n{stats}  pagesets\n{}\
         \x20 node_unreclaimable:  0\n  start_pfn:           0\n",
        lists.concat()
    )
}

/// DMA32 with six whole pageblocks, and Normal with none.
fn two_zones() -> Zoneinfo {
    let stats = |whole: u64| format!("      nr_free_pages 0\n      nr_free_pages_blocks {whole}\n");
    let text = zone("DMA32", [9000, 0, 150, 40_000], 11, &stats(3072))
        + &zone("Normal", [20_100, 512, 450 + 512, 120_000], 22, &stats(0));
    Zoneinfo::parse("zoneinfo", &text).unwrap()
}

fn input(kinds: &[(Kind, u8, i8)]) -> Input {
    let mut bytes = Vec::new();
    let mut trace = TraceBuilder::new(&mut bytes, Path::new("t"), 1).unwrap();
    for (n, (kind, order, migratetype)) in (0..).zip(kinds) {
        let event = RawEvent {
            time_ns: n + 1,
            cpu: (n % 2) as u16,
            order: *order,
            migratetype: *migratetype,
            ..RawEvent::new(*kind, 0x1000 + (n << 4))
        };
        trace.push(&event).unwrap();
    }
    trace.meta_mut().kernel = Some("6.18.0".to_string());
    trace.meta_mut().cpus = 2;
    trace.finish().unwrap();
    let mut input = Input::new(TraceFile::from_bytes(bytes).unwrap(), "t");
    input.pages = PageMode::All;
    input.zoneinfo = Some(two_zones());
    input
}

fn axes(input: &Input) -> Axes {
    Axes {
        designs: vec![DesignSpec::parse("slub@6.18").unwrap()],
        cpus: vec![2],
        memory_bytes: input
            .zoneinfo
            .as_ref()
            .map_or(64 << 20, |zoneinfo| memory_bytes(zoneinfo, 4096).unwrap()),
        ..Axes::default()
    }
}

fn run(axes: &Axes, input: &Input) -> Result<RunReport, LabError> {
    let mut runs = Plan::new(axes)?.execute(input, 1, &|_| ())?;
    Ok(runs.remove(0))
}

fn start<T>(input: &Input, axes: &Axes, f: impl FnOnce(&Start<'_>) -> T) -> Option<T> {
    let plan = Plan::new(axes).unwrap();
    let start = Start::of(&plan.runs[0], input).unwrap();
    start.map(|start| f(&start))
}

#[test]
fn free_pages_lie_in_halves_of_movable_pageblocks() {
    let input = input(&[(Kind::MmPageAlloc, 0, 1)]);
    let axes = axes(&input);
    let zones = start(&input, &axes, |start| {
        start.zones(|pages| [0, pages, 0]).unwrap()
    })
    .unwrap();
    let movable = |zone: &ZoneStart| zone.free.map(|by_type| by_type[MOVABLE]);
    // 9000 - 3072 = 23 * 256 + 40 and 20100 = 78 * 256 + 132.
    assert_eq!(movable(&zones[0]), [0, 0, 0, 1, 0, 1, 0, 0, 23, 0, 3]);
    assert_eq!(movable(&zones[1]), [0, 0, 1, 0, 0, 0, 0, 1, 78, 0, 0]);
    let others = |zone: &ZoneStart| zone.free.iter().all(|row| row[0] + row[2] == 0);
    assert!(zones.iter().all(others));
    assert_eq!([zones[0].boost, zones[1].boost], [0, 512]);
    let (cpu, stock) = zones[1].lists[1];
    assert_eq!((cpu, stock.zone), (CpuId(1), Some(ZoneType::Normal)));
    assert_eq!((stock.pages, stock.high), ([0, 22, 0], 500));

    // An older kernel does not tell what lies in whole pageblocks: all but the rest.
    let mut older = input.clone();
    for zone in &mut older.zoneinfo.as_mut().unwrap().zones {
        zone.stats = quarry_snapshot::Counters::default();
    }
    let zones = start(&older, &axes, |start| {
        start.zones(|pages| [0, pages, 0]).unwrap()
    })
    .unwrap();
    assert_eq!(movable(&zones[0]), [0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 8]);
}

#[test]
fn more_memory_is_the_highest_zones() {
    let input = input(&[(Kind::MmPageAlloc, 0, 1)]);
    let mut axes = axes(&input);
    assert_eq!(axes.memory_bytes, ((40 << 10) + 120_000) << 12);
    let free = |axes: &Axes| {
        let report = run(axes, &input).unwrap();
        let zones = report.zones.iter();
        zones
            .map(|zone| (zone.zone, zone.pages, zone.initial_free_pages))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        free(&axes),
        [("DMA32", 40_000, 9000), ("Normal", 120_000, 20_100)]
    );
    axes.memory_bytes += 10_000 << 12;
    assert_eq!(
        free(&axes),
        [("DMA32", 40_000, 9000), ("Normal", 130_000, 30_100)]
    );
    axes.memory_bytes -= 30_000 << 12;
    assert_eq!(
        free(&axes),
        [("DMA32", 40_000, 9000), ("Normal", 100_000, 100)]
    );
    axes.memory_bytes -= 100 << 12;
    let error = run(&axes, &input).unwrap_err().to_string();
    assert!(error.contains("more than 550 MiB"), "{error}");
}

/// The zones that the machine shows are those of the kernel.
#[test]
fn the_replayed_machine_shows_the_zones() {
    let input = input(&[(Kind::MmPageAlloc, 0, 1), (Kind::MmPageAlloc, 0, 1)]);
    let folder = tempfile::tempdir().unwrap();
    let mut plan = Plan::new(&axes(&input)).unwrap();
    plan.inspect_into(folder.path(), Existing::Keep).unwrap();
    plan.execute(&input, 1, &|_| ()).unwrap();
    let file = folder.path().join("slub@6.18-4k-2").join("zoneinfo");
    let shown = Zoneinfo::read(&file).unwrap();
    let told = two_zones();
    let zones: Vec<_> = shown.populated().collect();
    assert_eq!(zones.len(), 2);
    for (shown, told) in zones.into_iter().zip(told.populated()) {
        for name in ["free", "boost", "min", "managed"] {
            assert_eq!(
                shown.pages.get(name),
                told.pages.get(name),
                "{} {name}",
                told.name
            );
        }
        let blocks = "nr_free_pages_blocks";
        assert_eq!(shown.stats.get(blocks), told.stats.get(blocks));
        let listed = |zone: &Zone| {
            zone.pagesets
                .iter()
                .map(|set| set.count)
                .collect::<Vec<_>>()
        };
        // The two pages came from Normal's lists.
        let taken = u64::from(told.name == "Normal");
        assert_eq!(
            listed(shown),
            [listed(told)[0] - taken, listed(told)[1] - taken]
        );
    }
}

/// As RHEL 8 reports them: the highest zone's lists are shorter than all of its pages make them.
#[test]
fn lists_sized_before_late_initialisation_stay_short() {
    let mut input = input(&[(Kind::MmPageAlloc, 0, 1)]);
    let report = |batch: u64, high: u64| {
        let lists =
            |batch: u64, high: u64| format!("high:     {high}\n              batch:    {batch}\n");
        let text = zone("DMA32", [9000, 0, 150, 40_000], 11, "")
            + &zone("Normal", [20_100, 0, 450, 120_000], 22, "");
        let old = "high:     500\n              batch:    7\n              high_min: 40\n              high_max: 5000\n";
        let (low, highest) = text.split_at(text.find("Node 0, zone   Normal").unwrap());
        assert!(low.contains(old) && highest.contains(old));
        let text = low.replace(old, &lists(7, 42)) + &highest.replace(old, &lists(batch, high));
        Zoneinfo::parse("zoneinfo", &text).unwrap()
    };
    for (batch, high, era, expect) in [
        (3, 18, Era::V4_18, 12_288),
        (3, 18, Era::V5_4, u32::MAX),
        (31, 186, Era::V4_18, u32::MAX),
        (3, 400, Era::V4_18, u32::MAX),
    ] {
        input.zoneinfo = Some(report(batch, high));
        let config = start(&input, &axes(&input), |start| {
            start.config(PageConfig::new(era))
        });
        assert_eq!(
            config.unwrap().initialised_pages,
            expect,
            "{batch} {high} {era}"
        );
    }
}

/// The largest block is the largest of the report, else that of the architecture.
#[test]
fn the_largest_block_is_the_recorded_kernels() {
    let mut input = input(&[(Kind::MmPageAlloc, 0, 1)]);
    let of_config = |input: &Input| {
        let config = start(input, &axes(input), |start| {
            start.config(PageConfig::new(Era::V6_18))
        });
        config.unwrap().max_order
    };
    assert_eq!((of_config(&input), too_large_blocks(&input)), (10, None));
    for (orders, here, beyond) in [(9, 8, None), (11, 10, None), (14, 10, Some(13))] {
        let numbers: String = (0..orders).map(|order| format!(" {order}")).collect();
        let zeros = " 0".repeat(orders);
        let row = |zone| format!("Node    0, zone {zone}, type Movable{zeros} \n");
        let text = format!(
            "Page block order: 5\nPages per block:  32\n\nFree pages count per migrate type at order{numbers} \n{}{}\n\
             Number of blocks type Movable \nNode 0, zone DMA32 1\nNode 0, zone Normal 1\n",
            row("DMA32"),
            row("Normal")
        );
        input.free = Some(Pagetypeinfo::parse("pagetypeinfo", &text).unwrap());
        assert_eq!(
            (of_config(&input), too_large_blocks(&input)),
            (here, beyond)
        );
    }
    input.free = None;
    for (architecture, kib, order) in [
        ("ppc64le", 64, 8),
        ("ppc64le", 4, 10),
        ("aarch64", 64, 13),
        ("aarch64", 16, 11),
        ("x86_64", 4, 10),
    ] {
        assert_eq!(order_of_architecture(Some(architecture), kib << 10), order);
    }
}

/// Unmovable blocks come from DMA32, which has whole pageblocks; with a pagetypeinfo that tells of
/// unmovable ones in Normal, from there.
#[test]
fn free_blocks_that_are_told_serve_their_types() {
    let mut input = input(&[(Kind::MmPageAlloc, 3, 0), (Kind::MmPageAlloc, 0, 1)]);
    let axes = axes(&input);
    let allocs = |input: &Input| {
        let report = run(&axes, input).unwrap();
        let zones = report.zones.iter();
        zones
            .map(|zone| (zone.allocs, zone.initial_free_pages))
            .collect::<Vec<_>>()
    };
    assert_eq!(allocs(&input), [(1, 9000), (1, 20_100)]);
    let row = |zone: &str, migratetype: &str, third: u64, last: u64| {
        format!("Node    0, zone {zone}, type {migratetype} 0 0 0 {third} 0 0 0 0 0 0 {last} \n")
    };
    let mut text = String::from(
        "Page block order: 9\nPages per block:  512\n\nFree pages count per migrate type at order \
         0 1 2 3 4 5 6 7 8 9 10 \n",
    );
    for zone in ["DMA32", "Normal"] {
        let unmovable = u64::from(zone == "Normal") * 30;
        text += &row(zone, "Unmovable", unmovable, 0);
        text += &row(zone, "Movable", 2, 8);
        text += &row(zone, "Reclaimable", 0, 0);
        text += &row(zone, "HighAtomic", 4, 0);
    }
    text += "\nNumber of blocks type Unmovable Movable Reclaimable HighAtomic \n\
             Node 0, zone DMA32 1 2 3 4\nNode 0, zone Normal 1 2 3 4\n";
    input.free = Some(Pagetypeinfo::parse("pagetypeinfo", &text).unwrap());
    assert_eq!(allocs(&input), [(0, 8 * 1024 + 16), (2, 8 * 1024 + 256)]);
    let other = text.replace("zone Normal", "zone Movable");
    input.free = Some(Pagetypeinfo::parse("pagetypeinfo", &other).unwrap());
    let error = run(&axes, &input).unwrap_err().to_string();
    assert!(
        error.contains("for node 0, zone Normal it has nothing"),
        "{error}"
    );
}

#[test]
fn told_blocks_are_taken_away_and_cut_as_memory_is() {
    let pages_of = |blocks: &FreeBlockCounts| -> u64 {
        let rows = blocks.iter().enumerate();
        rows.map(|(order, row)| row.iter().sum::<u64>() << order)
            .sum()
    };
    let row = "Node    0, zone   Normal, type      Movable 3 1 0 0 0 0 0 0 0 0 2 0 5 \n";
    let text = format!(
        "Page block order: 9\nPages per block:  512\n\nFree pages count per migrate type at order \
         0 1 2 3 4 5 6 7 8 9 10 11 12 \n{row}\nNumber of blocks type Movable \n\
         Node 0, zone Normal 9\n"
    );
    let zoneinfo = two_zones();
    let of_normal = |text: &str| {
        let types = Pagetypeinfo::parse("pagetypeinfo", text).unwrap();
        let mut blocks = FreeBlockCounts::default();
        told(&types, &zoneinfo.zones[1], &mut blocks).map(|()| blocks)
    };
    let blocks = of_normal(&text).unwrap();
    let told = 5 + (2 + 4 * 5) * 1024;
    assert_eq!((blocks[10][MOVABLE], pages_of(&blocks)), (22, told));
    // Of 20,100 free pages; what was not counted are the others.
    let uncounted =
        of_normal(&text.replace(" 3 1 0 0 0 0 0 0 0 0 2 0 5", " 3 >9 0 0 0 0 0 0 0 0 2 0 >0"));
    let mut expected = FreeBlockCounts::default();
    expected[0][MOVABLE] = 3;
    expected[1][MOVABLE] = 9 + (20_100 - 2 * 1024 - 21) / 2;
    expected[10][MOVABLE] = 2;
    assert_eq!(uncounted.unwrap(), expected);
    let error = of_normal(&text.replace(" 2 0 5", " 2 0 50"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("zone Normal it has 206853 free pages, more than the zone has"),
        "{error}"
    );
    // As many more as CPUs may count late, 2 times 10, and not one more; the zone has 120,000.
    let singles = |count: u64| of_normal(&text.replace(" 3 1 0", &format!(" {count} 1 0")));
    let late = singles(120_020 - (told - 3)).unwrap();
    assert_eq!(pages_of(&late), 120_000);
    assert_eq!((late[10][MOVABLE], late[0][MOVABLE]), (21, 97_490));
    let error = singles(120_021 - (told - 3)).unwrap_err().to_string();
    assert!(error.contains("120021 free pages"), "{error}");
    for less in [1, 1024, 5000, told - 1, told, told + 7] {
        let mut left = blocks;
        take_away(&mut left, less);
        assert_eq!(pages_of(&left), told.saturating_sub(less));
    }
}

/// 2048 of 20,100 free pages are counted; the uncounted part of the smallest order has the others.
#[test]
fn uncounted_blocks_are_the_smallest_and_movable() {
    use MigrateType::{Movable, Reclaimable, Unmovable};
    let zoneinfo = two_zones();
    let of_normal = |counts: [(MigrateType, &str); 3]| {
        let rows = counts.map(|(migratetype, counts)| {
            let name = migratetype.name();
            format!("Node    0, zone   Normal, type {name} {counts} 0 0 0 0 0 0 0 0 \n")
        });
        let text = format!(
            "Page block order: 9\nPages per block:  512\n\nFree pages count per migrate type at \
             order 0 1 2 3 4 5 6 7 8 9 10 \n{}\nNumber of blocks type Unmovable Movable \
             Reclaimable \nNode 0, zone Normal 9 9 9\n",
            rows.concat()
        );
        let types = Pagetypeinfo::parse("pagetypeinfo", &text).unwrap();
        let mut blocks = FreeBlockCounts::default();
        told(&types, &zoneinfo.zones[1], &mut blocks).unwrap();
        blocks
    };
    let more = 20_100 - 2048;
    for (unmovable, movable, reclaimable, order, migratetype) in [
        (">512 0 0", ">512 0 0", "1024 0 0", 0, Movable),
        (">512 0 0", "0 >256 0", "1024 0 0", 0, Unmovable),
        ("0 >256 0", "512 0 >256", "0 0 0", 1, Unmovable),
        ("0 >256 0", "512 0 0", "0 >512 0", 1, Unmovable),
        ("0 0 0", ">512 0 0", ">1536 0 0", 0, Movable),
        ("0 0 0", "0 0 >256", "0 >512 0", 1, Reclaimable),
    ] {
        let rows = [
            (Unmovable, unmovable),
            (Movable, movable),
            (Reclaimable, reclaimable),
        ];
        let blocks = of_normal(rows);
        let plain = rows.map(|(of, counts)| (of, counts.replace('>', "")));
        let counted = of_normal(plain.each_ref().map(|(of, counts)| (*of, counts.as_str())));
        let mut expected = counted;
        expected[order][migratetype as usize] += more >> order;
        assert_eq!(blocks, expected, "{rows:?}");
    }
}

#[test]
fn a_report_of_another_machine_is_refused_or_tells_nothing() {
    let input = input(&[(Kind::MmPageAlloc, 0, 1)]);
    let plain = axes(&input);
    let told = |axes: &Axes, input: &Input| !run(axes, input).unwrap().zones.is_empty();
    assert!(told(&plain, &input));
    let larger = Axes {
        page_bytes: vec![65536],
        ..plain.clone()
    };
    let wider = Axes {
        cpus: vec![4],
        ..plain.clone()
    };
    assert!(!told(&larger, &input) && !told(&wider, &input));
    let off = Input {
        pages: PageMode::Off,
        ..input.clone()
    };
    assert!(!told(&plain, &off));
    let mut four = input.clone();
    for zone in &mut four.zoneinfo.as_mut().unwrap().zones {
        let more = zone.pagesets.clone().into_iter();
        zone.pagesets.extend(more.map(|set| Pageset {
            cpu: set.cpu + 2,
            ..set
        }));
    }
    let error = run(&plain, &four).unwrap_err().to_string();
    assert!(error.contains("4 CPUs, the trace of one with 2"), "{error}");
    assert!(told(&wider, &four));
}

/// 9000 of 40,000 pages are free and 11 on each list; 2 times 10 may be counted late, 2 times 7 << 5 move
/// while the report is read.
#[test]
fn more_pages_than_the_zone_has_are_refused() {
    let text = zone("DMA32", [9000, 0, 150, 40_000], 11, "");
    let refused = |what: &str, number: u64, to: u64| {
        let text = text.replace(&format!("{what}{number}\n"), &format!("{what}{to}\n"));
        let error = memory_bytes(&Zoneinfo::parse("zoneinfo", &text).unwrap(), 4096).err();
        error.map(|error| error.to_string())
    };
    let (free, count) = ("pages free     ", "count:    ");
    for (what, number, most) in [(free, 9000, 40_020), (count, 11, 15_500 + 234)] {
        assert_eq!(refused(what, number, most), None);
        let error = refused(what, number, most + 1).unwrap();
        assert!(error.contains("zone DMA32 has 40000 pages"), "{error}");
    }
    assert_eq!(
        refused(free, 9000, u64::MAX).unwrap(),
        "the zoneinfo does not fit: zone DMA32 has 40000 pages, but 18446744073709551615 free ones \
         and 22 on the CPUs' lists"
    );
    // One list cannot have more than all, whatever a batch would allow.
    let odd = text.replace("batch:    7", "batch:    70000");
    let odd = odd.replace("count:    11", "count:    40001");
    assert!(memory_bytes(&Zoneinfo::parse("zoneinfo", &odd).unwrap(), 4096).is_err());
}

/// Whatever a report claims, there is an answer.
#[test]
fn no_number_in_a_report_panics() {
    let input = input(&[(Kind::MmPageAlloc, 0, 0), (Kind::MmPageFree, 0, 1)]);
    // The last two are the boost and a CPU.
    let numbers = [
        "9000", "150", "40000", "500", "11", "3072", "5000", "7", "60", "1",
    ];
    let mut refused = 0;
    for number in numbers {
        for odd in ["0", "1", "18446744073709551615", "4294967295", "2147483647"] {
            let stats = "      nr_free_pages 0\n      nr_free_pages_blocks 3072\n";
            let text = zone("DMA32", [9000, 60, 150, 40_000], 11, stats);
            let text = text.replace(&format!(" {number}\n"), &format!(" {odd}\n"));
            let Ok(zoneinfo) = Zoneinfo::parse("zoneinfo", &text) else {
                refused += 1;
                continue;
            };
            let input = Input {
                zoneinfo: Some(zoneinfo),
                ..input.clone()
            };
            let zoneinfo = input.zoneinfo.as_ref().unwrap();
            let done = memory_bytes(zoneinfo, 4096).and_then(|memory_bytes| {
                let axes = Axes {
                    memory_bytes,
                    ..axes(&input_without(&input))
                };
                run(&axes, &input)
            });
            refused += u32::from(done.is_err());
        }
    }
    assert!((3..20).contains(&refused), "{refused}");
}

fn input_without(input: &Input) -> Input {
    Input {
        zoneinfo: None,
        ..input.clone()
    }
}
