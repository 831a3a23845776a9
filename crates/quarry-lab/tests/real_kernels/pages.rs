//! The per-CPU page lists and the watermarks of every zone of every recorded kernel, by the formulas
//! of its era.
//!
//! The kernel sets watermarks when it boots and frees memory of its own afterwards: the initial RAM
//! disk, and parts of its image. That memory counts in zoneinfo's `managed`, not in the watermarks.
//! The boot log tells how much it was, not in which zones; the image lies in one, the disk in one.
//!
//! The recordings are not part of the repository; a sample of them is, in `tests/data` of `quarry-snapshot`.

use std::path::{Path, PathBuf};

use quarry_core::era::Era;
use quarry_core::page::geometry::{
    PageSysctls, ZoneParams, node_cpus, page_era, pageblock_order, stat_threshold,
};
use quarry_snapshot::{Buddyinfo, Pagetypeinfo, Vmstat, Zoneinfo, read_report};
use serde_json::Value;

use crate::groundtruth::kernels;

/// Pages of the image and the initial RAM disk, by the zone that they were freed to.
type Freed = Vec<u64>;

/// A kernel's reports of its pages.
struct Boot {
    name: String,
    era: Era,
    page_shift: u32,
    zones: Zoneinfo,
    pageblock_order: u32,
    /// Largest order.
    max_order: u32,
    min_free_kbytes: Option<u64>,
    /// KiB that were freed after the watermarks had been set: the RAM disk, and the image.
    freed: [u64; 2],
}

/// The newest era that is not newer than the kernel, but for what 6.7 or so brought.
fn era(release: &str) -> Era {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok()).unwrap();
    if (number(), number()) >= (6, 7) {
        Era::V6_18
    } else {
        Era::V6_1
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => {
            let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
            Some(lines?.join("\n"))
        }
        _ => None,
    }
}

/// KiB that `Freeing unused kernel image (initmem) memory: 4992K` and the like tell.
fn freed(dmesg: &str) -> [u64; 2] {
    let mut freed = [0, 0];
    for line in dmesg.lines() {
        let told = line.split_once("Freeing ").map(|(_, what)| what);
        let Some((what, kib)) = told.and_then(|told| told.split_once(" memory: ")) else {
            continue;
        };
        let kib: u64 = kib.trim().trim_end_matches('K').parse().unwrap();
        match what {
            // Before the watermarks.
            "SMP alternatives" => {}
            "initrd" => freed[0] += kib,
            _ => freed[1] += kib,
        }
    }
    freed
}

impl Boot {
    /// `None` if the recording has no zoneinfo.
    fn read(name: &str, path: &Path) -> Option<Self> {
        let value: Value = serde_json::from_str(&read_report(path).unwrap()).unwrap();
        let boot = match value["stages"].as_object() {
            Some(stages) => {
                for stage in stages.values() {
                    let blocks = text(&stage["buddyinfo"]).unwrap();
                    Buddyinfo::parse(name, &blocks).unwrap();
                }
                &value["stages"]["boot"]
            }
            None => &value,
        };
        let zones = Zoneinfo::parse(name, &text(&boot["zoneinfo"])?).unwrap();
        let types = Pagetypeinfo::parse(name, &text(&boot["pagetypeinfo"])?).unwrap();
        Vmstat::parse(name, &text(&boot["vmstat"])?).unwrap();
        let page_bytes = value["page_size"].as_u64();
        let page_bytes = page_bytes.or(value["page_kB"].as_u64().map(|kib| kib << 10));
        let release = boot["kernel_release"].as_str().or_else(|| {
            let version = boot["version"].as_str()?;
            version.strip_prefix("Linux version ")
        });
        let sysctl = text(&boot["sys_vm_min_free_kbytes"]);
        Some(Self {
            name: name.to_string(),
            era: era(release.unwrap()),
            page_shift: page_bytes.unwrap().ilog2(),
            zones,
            pageblock_order: types.pageblock_order,
            max_order: types.free[0].row.counts.len() as u32 - 1,
            min_free_kbytes: sysctl.map(|kib| kib.trim().parse().unwrap()),
            freed: text(&boot["dmesg"]).map_or([0, 0], |dmesg| freed(&dmesg)),
        })
    }

    /// Managed pages of the zones that have any.
    fn pages(&self) -> Vec<u64> {
        self.zones.populated().map(|zone| zone.managed()).collect()
    }

    /// `min_free_kbytes` of a machine with these zones: the sysctl if it was recorded. Kernels with
    /// huge pages raise it: the recorded ones to 11 pageblocks for each zone.
    fn min_free(&self, pages: &[u64]) -> u64 {
        let all_pages = pages.iter().sum();
        let own = page_era(self.era).min_free_kbytes(all_pages, self.page_shift);
        let has_huge_pages = self.pageblock_order < self.max_order;
        let huge = (11 * pages.len() as u64) << (self.pageblock_order + self.page_shift - 10);
        let raised = if has_huge_pages { own.max(huge) } else { own };
        self.min_free_kbytes.unwrap_or(raised)
    }

    /// Differences from the formulas if this memory was freed later.
    fn differences(&self, freed: &[u64]) -> Vec<String> {
        let pages: Vec<u64> = self
            .pages()
            .iter()
            .zip(freed)
            .map(|(all, freed)| all - freed)
            .collect();
        let sysctls = PageSysctls {
            min_free_kbytes: Some(self.min_free(&pages)),
            ..PageSysctls::default()
        };
        let mut nodes: Vec<u32> = self.zones.populated().map(|zone| zone.node).collect();
        nodes.dedup();
        let mut differences = Vec::new();
        for (zone, &managed) in self.zones.populated().zip(&pages) {
            let online = zone.pagesets.len() as u32;
            let params = ZoneParams {
                page_shift: self.page_shift,
                pages: managed,
                initialised_pages: managed,
                all_pages: pages.iter().sum(),
                // The recorded machines have their CPUs in equal parts.
                cpus: node_cpus(online / nodes.len() as u32, online),
            };
            let sizes = page_era(self.era).zone(&params, &sysctls).unwrap();
            let mut compare = |name: &str, told: Option<u64>, computed: Option<u64>| {
                if told != computed {
                    let at = &zone.name;
                    differences.push(format!("{at} {name}: {told:?}, computed {computed:?}"));
                }
            };
            let marks = sizes.watermarks;
            for (name, computed) in [("min", marks.min), ("low", marks.low), ("high", marks.high)] {
                compare(name, zone.pages.get(name), Some(computed));
            }
            let promo = zone.pages.get("promo");
            compare("promo", promo, promo.and(marks.promo));
            for set in &zone.pagesets {
                compare("batch", Some(set.batch), Some(sizes.pcp.batch.into()));
                // Kernels from 6.7 on tune `high` in a range, which later ones report beside it; none is in force before its
                // first use.
                let lists = (u64::from(sizes.pcp.high), u64::from(sizes.pcp.high_max));
                if set.high_min.is_some() {
                    compare("high_min", set.high_min, Some(lists.0));
                    compare("high_max", set.high_max, Some(lists.1));
                }
                if lists.1 > lists.0 {
                    // The high of lists that were neither refilled nor full since all of the memory
                    // is there is what it was before.
                    let before = set.high < lists.0 && set.count <= set.high;
                    let within = before || (lists.0..=lists.1).contains(&set.high);
                    assert!(within, "{}: {set:?}", self.name);
                } else {
                    compare("high", Some(set.high), Some(lists.0));
                }
                let threshold = stat_threshold(managed, self.page_shift, online);
                compare("threshold", set.stat_threshold, Some(threshold.into()));
            }
        }
        differences
    }

    /// All ways in which the RAM disk and the image can lie in the zones.
    fn placements(&self) -> Vec<Freed> {
        let zones = self.pages().len();
        let [disk, image] = self.freed.map(|kib| kib >> (self.page_shift - 10));
        let pairs =
            (0..zones).flat_map(|disk_at| (0..zones).map(move |image_at| (disk_at, image_at)));
        let freed = pairs.map(|(disk_at, image_at)| {
            let mut freed = vec![0; zones];
            freed[disk_at] += disk;
            freed[image_at] += image;
            freed
        });
        let pages = self.pages();
        freed
            .filter(|freed| freed.iter().zip(&pages).all(|(freed, all)| freed < all))
            .collect()
    }
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn zones_of_recorded_kernels() {
    let boots: Vec<Boot> = kernels()
        .iter()
        .filter_map(|(name, path)| Boot::read(name, path))
        .collect();
    assert!(!boots.is_empty());
    let (mut zones, mut failures) = (0, Vec::new());
    for boot in &boots {
        zones += boot.pages().len();
        let as_told = boot.differences(&vec![0; boot.pages().len()]);
        let placements = boot.placements();
        let exact = placements
            .iter()
            .find(|freed| boot.differences(freed).is_empty());
        match exact {
            None => failures.push(format!("{}: {as_told:#?}", boot.name)),
            Some(_) if as_told.is_empty() => {}
            Some(freed) => println!(
                "{}: exact with {freed:?} pages freed after the watermarks were set; else {}",
                boot.name,
                as_told.join("; ")
            ),
        }
    }
    println!("{zones} zones of {} kernels", boots.len());
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The sample that is part of the repository: kernel, managed pages of its zones when the watermarks
/// were set (what was freed later is in the recordings' logs), and `min_free_kbytes`.
const SAMPLES: [(&str, Era, u32, &[u64], u64); 3] = [
    (
        "6.18-x86_64-4k",
        Era::V6_18,
        12,
        &[3840, 772_918, 393_216],
        67584,
    ),
    (
        "6.1-x86_64-4k",
        Era::V6_1,
        12,
        &[3840, 492_458 - 2337, 505_990],
        67584,
    ),
    ("6.1-ppc64el-64k", Era::V6_1, 16, &[64477 - 103], 22528),
];

#[test]
fn zones_of_the_samples() {
    for (name, era, page_shift, pages, min_free_kbytes) in SAMPLES {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../quarry-snapshot/tests/data")
            .join(name);
        let zones = Zoneinfo::read(&folder.join("zoneinfo")).unwrap();
        let types = Pagetypeinfo::read(&folder.join("pagetypeinfo")).unwrap();
        assert_eq!(types.pageblock_order, pageblock_order(page_shift), "{name}");
        Buddyinfo::read(&folder.join("buddyinfo")).unwrap();
        Vmstat::read(&folder.join("vmstat")).unwrap();
        let freed: Vec<u64> = zones
            .populated()
            .zip(pages)
            .map(|(zone, then)| zone.managed() - then)
            .collect();
        let boot = Boot {
            name: name.to_string(),
            era,
            page_shift,
            zones,
            pageblock_order: types.pageblock_order,
            max_order: types.free[0].row.counts.len() as u32 - 1,
            min_free_kbytes: Some(min_free_kbytes),
            freed: [0, 0],
        };
        assert_eq!(boot.differences(&freed), Vec::<String>::new(), "{name}");
    }
}
