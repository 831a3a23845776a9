//! The texts of `/proc` about pages: what core writes is what kernels write, byte by byte, and what
//! the parsers here read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use quarry_core::era::Era;
use quarry_core::inspect::{
    BlockCounts, FreeBlocks, FreeBlocksOfType, PageFile, PageFileError, PagesetRow,
    PagetypeinfoHeader, ZoneinfoZone,
};
use quarry_core::machine::CpuId;
use quarry_core::page::{MinFree, OwnedBlock, PageAllocator, PageConfig, ZoneLayout};
use quarry_sim::{Config, VirtualMachine};
use quarry_snapshot::{Buddyinfo, Pagetypeinfo, Vmstat, Zoneinfo};

const KERNELS: [&str; 3] = ["6.18-x86_64-4k", "6.1-x86_64-4k", "6.1-ppc64el-64k"];

fn sample(kernel: &str, file: &str) -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path: PathBuf = [
        manifest,
        Path::new("../quarry-snapshot/tests/data"),
        Path::new(kernel),
    ]
    .iter()
    .collect();
    std::fs::read_to_string(path.join(file)).unwrap()
}

fn assert_same(found: &str, expected: &str) {
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

/// The text again, from its numbers, as core formats them.
fn format_buddyinfo(info: &Buddyinfo) -> String {
    let mut text = String::new();
    for row in &info.zones {
        let (node, zone, free) = (row.node, row.zone.as_str(), row.counts.as_slice());
        writeln!(text, "{}", FreeBlocks { node, zone, free }).unwrap();
    }
    text
}

fn format_pagetypeinfo(info: &Pagetypeinfo) -> String {
    let header = PagetypeinfoHeader {
        pageblock_order: info.pageblock_order,
        orders: info.free[0].row.counts.len(),
    };
    let mut text = header.to_string();
    for row in &info.free {
        let row = FreeBlocksOfType {
            node: row.row.node,
            zone: &row.row.zone,
            migratetype: &row.migratetype,
            free: &row.row.counts,
        };
        writeln!(text, "{row}").unwrap();
    }
    write!(text, "\n{:<23}", "Number of blocks type").unwrap();
    for migratetype in &info.migratetypes {
        write!(text, "{migratetype:>12} ").unwrap();
    }
    text.push('\n');
    for row in &info.blocks {
        let (node, zone, blocks) = (row.node, row.zone.as_str(), row.counts.as_slice());
        writeln!(text, "{}", BlockCounts { node, zone, blocks }).unwrap();
    }
    text
}

fn format_zoneinfo(info: &Zoneinfo) -> String {
    let mut text = String::new();
    for zone in &info.zones {
        let pages: Vec<_> = zone.pages.iter().collect();
        let stats: Vec<_> = zone.stats.iter().collect();
        let shown = ZoneinfoZone {
            node: zone.node,
            zone: &zone.name,
            pages: &pages,
            protection: &zone.protection,
            stats: &stats,
        };
        write!(text, "{shown}").unwrap();
        if zone.pagesets.is_empty() {
            continue;
        }
        text.push_str("  pagesets\n");
        for set in &zone.pagesets {
            let narrow = |n: u64| u32::try_from(n).unwrap();
            let row = PagesetRow {
                cpu: set.cpu,
                pcp: set.pcp,
                count: narrow(set.count),
                high: narrow(set.high),
                batch: narrow(set.batch),
                tuned: set
                    .high_min
                    .zip(set.high_max)
                    .map(|(min, max)| [min, max].map(narrow)),
                stat_threshold: set.stat_threshold.map(narrow),
            };
            write!(text, "{row}").unwrap();
        }
        let rest = |name| zone.rest.get(name).unwrap();
        writeln!(
            text,
            "  node_unreclaimable:  {}",
            rest("node_unreclaimable")
        )
        .unwrap();
        writeln!(text, "  start_pfn:           {}", rest("start_pfn")).unwrap();
    }
    text
}

/// The text without the nodes' own counters.
fn without_node_stats(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        inside = line == &"  per-node stats" || inside && !line.starts_with("  pages free");
        !inside
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn texts_of_kernels_byte_by_byte() {
    for kernel in KERNELS {
        let text = sample(kernel, "buddyinfo");
        // Two of the recordings lost the blank at the end.
        let text: String = text
            .lines()
            .map(|line| format!("{} \n", line.trim_end()))
            .collect();
        assert_same(
            &format_buddyinfo(&Buddyinfo::parse(kernel, &text).unwrap()),
            &text,
        );
        let text = sample(kernel, "pagetypeinfo");
        let text = format!("{} \n", text.trim_end());
        assert_same(
            &format_pagetypeinfo(&Pagetypeinfo::parse(kernel, &text).unwrap()),
            &text,
        );
        let text = sample(kernel, "zoneinfo");
        let info = Zoneinfo::parse(kernel, &text).unwrap();
        assert_same(&format_zoneinfo(&info), &without_node_stats(&text));
    }
}

/// The texts of the kernel that runs this are read.
#[test]
#[ignore = "compares with the running kernel, as root: cargo xtask root"]
fn texts_of_this_kernel() {
    for file in PageFile::ALL {
        let name = file.name();
        let text = std::fs::read_to_string(Path::new("/proc").join(name)).unwrap();
        let parsed = match file {
            PageFile::Buddyinfo => Buddyinfo::parse(name, &text).map(|_| ()),
            PageFile::Zoneinfo => Zoneinfo::parse(name, &text).map(|_| ()),
            PageFile::Vmstat => Vmstat::parse(name, &text).map(|_| ()),
            // Large counts may be cut off in it.
            PageFile::Pagetypeinfo if text.contains('>') => Ok(()),
            PageFile::Pagetypeinfo => Pagetypeinfo::parse(name, &text).map(|_| ()),
        };
        parsed.unwrap();
    }
}

fn boot(era: Era, config: Config, page: PageConfig) -> PageAllocator<VirtualMachine> {
    let machine = VirtualMachine::new(config).unwrap();
    PageAllocator::with_config(machine, &PageConfig { era, ..page }).unwrap()
}

/// A machine with 64 MiB: two nodes of two CPUs each, or DMA and DMA32 zones.
fn machines() -> Vec<(Config, PageConfig)> {
    let config = Config {
        cpus: 4,
        memory_bytes: 64 << 20,
        ..Config::default()
    };
    let plain = PageConfig::new(Era::V6_18);
    let like_a_kernel = PageConfig {
        zones: ZoneLayout::Kernel,
        min_free: MinFree::Computed,
        ..plain
    };
    vec![
        (Config { nodes: 2, ..config }, plain),
        (config, like_a_kernel),
        (
            Config {
                page_bytes: 65536,
                ..config
            },
            plain,
        ),
    ]
}

/// Allocates on all CPUs, and frees two thirds of it on another. Returns the pages allocated, and the blocks that
/// are left.
fn use_pages(pages: &PageAllocator<VirtualMachine>) -> (u64, Vec<OwnedBlock<'_, VirtualMachine>>) {
    let mut kept = Vec::new();
    let mut allocated = 0;
    for step in 0..300_u32 {
        pages.machine().run_on(CpuId(step % 4));
        let order = [0, 0, 0, 1, 2, 4][step as usize % 6];
        let Some(block) = pages.alloc_owned(order) else {
            continue;
        };
        allocated += 1 << order;
        kept.push(block);
        if step % 3 != 0 {
            pages.machine().run_on(CpuId((step + 1) % 4));
            drop(kept.swap_remove(kept.len() / 2));
        }
    }
    (allocated, kept)
}

fn write_file(
    pages: &PageAllocator<VirtualMachine>,
    file: PageFile,
) -> Result<String, PageFileError> {
    let mut text = String::new();
    pages.write_page_file(file, &mut text)?;
    Ok(text)
}

/// Compares the parsed texts with the reports.
fn compare(pages: &PageAllocator<VirtualMachine>, era: Era, allocated: u64) {
    let name = era.name();
    let read = |file| write_file(pages, file).unwrap();
    let buddy = Buddyinfo::parse(name, &read(PageFile::Buddyinfo)).unwrap();
    let zones = Zoneinfo::parse(name, &read(PageFile::Zoneinfo)).unwrap();
    assert_same(&format_zoneinfo(&zones), &read(PageFile::Zoneinfo));
    let counters = Vmstat::parse(name, &read(PageFile::Vmstat))
        .unwrap()
        .counters;
    let (mut free, mut on_lists) = (0, 0);
    let reports: Vec<_> = pages.zone_reports().collect();
    assert_eq!(
        [reports.len(), reports.len()],
        [buddy.zones.len(), zones.zones.len()]
    );
    for (index, report) in reports.iter().enumerate() {
        let (row, zone) = (&buddy.zones[index], &zones.zones[index]);
        assert_eq!(
            (row.node, row.zone.as_str()),
            (report.id.node.0, report.id.zone.name())
        );
        let blocks: Vec<u64> = report
            .free_blocks
            .iter()
            .map(|types| types.iter().sum())
            .collect();
        assert_eq!((&row.counts, row.pages()), (&blocks, report.free_pages));
        assert_eq!(
            (zone.node, zone.name.as_str()),
            (row.node, row.zone.as_str())
        );
        let page = |name| zone.pages.get(name);
        let marks = report.watermarks;
        assert_eq!(
            [page("min"), page("low")],
            [Some(marks.min), Some(marks.low)]
        );
        assert_eq!(page("high"), Some(marks.high));
        assert_eq!(page("promo"), marks.promo.filter(|_| era >= Era::V6_18));
        assert_eq!(
            (page("free"), zone.managed()),
            (Some(report.free_pages), report.pages)
        );
        let mut protection = report.lowmem_reserve.to_vec();
        if era >= Era::V6_1 {
            // Of Movable and Device, as of Normal.
            protection.extend([protection[2]; 2]);
        }
        assert_eq!(zone.protection, protection);
        let numa = [report.numa.hit, report.numa.miss, report.numa.local].map(Some);
        assert_eq!(
            ["numa_hit", "numa_miss", "numa_local"].map(|name| zone.stats.get(name)),
            numa
        );
        let has_cold = era <= Era::V2_6_24;
        assert_eq!(zone.pagesets.len(), if has_cold { 8 } else { 4 });
        for set in &zone.pagesets {
            let of = pages.pageset_report(index, CpuId(set.cpu)).unwrap();
            let limits = match of.cold.filter(|_| set.pcp == Some(1)) {
                Some(cold) => [0, cold.high, cold.batch],
                None => [of.count, of.high, of.batch],
            };
            let limits = limits.map(u64::from);
            assert_eq!([set.count, set.high, set.batch], limits);
            let range = (era >= Era::V6_18).then_some([of.high_min, of.high_max].map(u64::from));
            assert_eq!(
                set.high_min.zip(set.high_max).map(|(min, max)| [min, max]),
                range
            );
            on_lists += set.count;
        }
        free += report.free_pages;
    }
    assert_eq!(counters.get("nr_free_pages"), Some(free));
    let sums = counters
        .iter()
        .filter(|(name, _)| name.starts_with("pgalloc_"));
    let freed = counters.get("pgfree").unwrap();
    assert_eq!(sums.map(|(_, pages)| pages).sum::<u64>(), allocated);
    assert_eq!(
        free + on_lists + allocated - freed,
        u64::from(pages.pages())
    );
}

#[test]
fn texts_of_virtual_allocators() {
    for (config, page) in machines() {
        for era in Era::REFERENCE {
            let pages = boot(era, config, page);
            compare(&pages, era, 0);
            let (allocated, _kept) = use_pages(&pages);
            compare(&pages, era, allocated);
            let types = write_file(&pages, PageFile::Pagetypeinfo);
            if era == Era::V2_6_22 {
                let file = PageFile::Pagetypeinfo;
                assert_eq!(types, Err(PageFileError::NoFile { file, era }));
                continue;
            }
            let text = types.unwrap();
            let info = Pagetypeinfo::parse(era.name(), &text).unwrap();
            assert_same(&format_pagetypeinfo(&info), &text);
            let counted = info.blocks.iter().map(|row| row.counts.iter().sum::<u64>());
            for (report, blocks) in pages.zone_reports().zip(counted) {
                assert_eq!(blocks, report.pageblocks.iter().sum::<u64>());
            }
            let free: u64 = info.free.iter().map(|row| row.row.pages()).sum();
            let reported: u64 = pages.zone_reports().map(|report| report.free_pages).sum();
            assert_eq!(free, reported);
        }
    }
}

/// The shape of a text: its lines with every number as `0`, blanks as one, and each shape once.
fn shape(text: &str) -> Vec<String> {
    let mut shapes: Vec<String> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bare = |word: &str| word.trim_matches(['(', ',', ')']).to_string();
        let is_number = |word: &&str| bare(word).bytes().all(|b| b.is_ascii_digit());
        let words: Vec<&str> = words
            .iter()
            .map(|word| if is_number(word) { "0" } else { *word })
            .collect();
        let shape = words.join(" ");
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}

/// Lists that were never used: a kernel that tunes `high` shows 0 of them, as of DMA here, one that
/// does not shows its `high`. Used lists that are empty show the least.
#[test]
fn lists_that_were_never_used() {
    for (era, kernel) in [(Era::V6_1, KERNELS[1]), (Era::V6_18, KERNELS[0])] {
        let recorded = Zoneinfo::parse(kernel, &sample(kernel, "zoneinfo")).unwrap();
        let dma = &recorded.zones[0];
        assert_eq!(dma.name, "DMA");
        let (config, page) = machines().swap_remove(1);
        let pages = boot(era, config, page);
        let highs = || {
            pages.vmstat_update();
            let shown = write_file(&pages, PageFile::Zoneinfo).unwrap();
            let shown = Zoneinfo::parse(era.name(), &shown).unwrap();
            let sets = shown.zones.into_iter().flat_map(|zone| zone.pagesets);
            sets.map(|set| (set.count, set.high)).collect::<Vec<_>>()
        };
        let is_zero = |(count, high): &(u64, u64)| (*count, *high) == (0, 0);
        for set in &dma.pagesets {
            assert_eq!(
                is_zero(&(set.count, set.high)),
                era == Era::V6_18,
                "{kernel}"
            );
        }
        assert!(
            highs()
                .iter()
                .all(|set| is_zero(set) == (era == Era::V6_18))
        );
        let _kept = use_pages(&pages);
        assert_eq!(pages.drain_all(), 0);
        // DMA is not used here either, nor is it in a kernel, but where DMA32 has nothing left.
        let used = highs();
        let dma32 = pages.zone_reports().count() - 1;
        for (at, set) in used.iter().enumerate() {
            let is_used = at >= 4 * dma32;
            assert_eq!(
                is_zero(set),
                era == Era::V6_18 && !is_used,
                "{era}: {used:?}"
            );
        }
    }
}

/// Every kind of line that core writes for an era is one that its kernel was recorded with, in the
/// same order.
#[test]
fn kinds_of_lines_are_those_of_kernels() {
    for (era, kernel) in [(Era::V6_1, KERNELS[1]), (Era::V6_18, KERNELS[0])] {
        let (config, page) = machines().swap_remove(1);
        let pages = boot(era, config, page);
        for file in PageFile::ALL {
            let ours = shape(&write_file(&pages, file).unwrap());
            let theirs = shape(&sample(kernel, file.name()));
            let mut rest = theirs.iter();
            for line in &ours {
                assert!(
                    rest.any(|known| known == line),
                    "{line:?} of {} {era}: {theirs:#?}",
                    file.name()
                );
            }
        }
    }
}
