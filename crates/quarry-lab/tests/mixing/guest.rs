//! A recorded guest: its events and what it reported at each stage.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;
use quarry_core::era::Era;
use quarry_core::page::MigrateType;
use quarry_snapshot::blocks::BLOCK_BYTES;
use quarry_snapshot::zoneinfo::Zone;
use quarry_snapshot::{Pagetypeinfo, Zoneinfo};

use crate::bulk;

/// Bits of `/proc/kpageflags` (`Documentation/admin-guide/mm/pagemap.rst`).
const BUDDY: u64 = 1 << 10;
const NOPAGE: u64 = 1 << 20;

/// A line of the trace.
#[derive(Debug)]
pub(crate) enum Event {
    Alloc {
        on: Moment,
        block: Block,
        of: MigrateType,
        atomic: bool,
        dma: bool,
    },
    Free {
        on: Moment,
        block: Block,
        /// By threads that give the rest of memory to the page allocator (`CONFIG_DEFERRED_STRUCT_PAGE_INIT`), if it
        /// was not allocated before.
        deferred: bool,
    },
    /// `mm_page_alloc_extfrag`, with the block that was found and the type of its list.
    Fallback { block: Block, from: MigrateType },
    /// `mm_page_pcpu_drain`.
    Drain(Block),
    /// `mm_page_alloc_zone_locked` of a CPU's list.
    Refill {
        on: Moment,
        block: Block,
        of: MigrateType,
    },
    /// The reports of a stage are about to be read.
    Stage(String),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) cpu: u32,
    pub(crate) seconds: f64,
}

/// Pages of the recorded guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) pfn: u32,
    pub(crate) order: u32,
}

impl Block {
    pub(crate) fn pages(self) -> std::ops::Range<u32> {
        self.pfn..self.pfn + (1 << self.order)
    }
}

pub(crate) struct Guest {
    pub(crate) name: String,
    /// The release whose rules it has.
    pub(crate) era: Era,
    pub(crate) cpus: u32,
    pub(crate) page_bytes: u64,
    /// log2 of the pages of the largest block.
    pub(crate) max_order: u32,
    /// Sums of all zones.
    pub(crate) min_pages: u64,
    /// Zones with memory, lowest first: one, or DMA and DMA32 of x86-64.
    pub(crate) managed: Vec<u32>,
    /// Pages that are free in a stage by `kpageflags`. Memory begins with page 0 here, whatever its number was.
    pub(crate) seen_free: Vec<bool>,
    pub(crate) events: Vec<Event>,
    /// By stage.
    pub(crate) reserves: Vec<Reserve>,
}

/// Pageblocks that are kept for requests of several pages that cannot wait, in all zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub(crate) blocks: u64,
    pub(crate) free_pages: u64,
}

impl Reserve {
    /// From `/proc/pagetypeinfo`.
    pub(crate) fn of(text: &str) -> Self {
        let types = Pagetypeinfo::parse("pagetypeinfo", text).unwrap();
        let is_reserve = |name: &String| name == "HighAtomic";
        let at = types.migratetypes.iter().position(is_reserve).unwrap();
        let free = types
            .free
            .iter()
            .filter(|row| row.migratetype == "HighAtomic");
        let pages = free.flat_map(|row| {
            (0_u32..)
                .zip(&row.row.counts)
                .map(|(order, blocks)| blocks << order)
        });
        Self {
            blocks: types.blocks.iter().map(|row| row.counts[at]).sum(),
            free_pages: pages.sum(),
        }
    }
}

impl Guest {
    /// A guest of the bundled files.
    pub(crate) fn bundled(name: &str) -> Self {
        let file = |kind: &str| {
            let path = data().join(format!("{name}.{kind}.xz"));
            XzReader::new(File::open(path).unwrap(), false)
        };
        let dir = tempfile::tempdir().unwrap();
        tar::Archive::new(file("reports.tar"))
            .unpack(dir.path())
            .unwrap();
        let mut text = String::new();
        file("trace.txt").read_to_string(&mut text).unwrap();
        Self::new(name, dir.path(), &text)
    }

    /// A guest as `boot.py` leaves it.
    pub(crate) fn folder(path: &Path) -> Self {
        let text = fs::read_to_string(path.join("trace.txt")).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        Self::new(name, path, &text)
    }

    fn new(name: &str, reports: &Path, text: &str) -> Self {
        let zones = fs::read_to_string(reports.join("boot/zoneinfo")).unwrap();
        let zones = Zoneinfo::parse("zoneinfo", &zones).unwrap();
        let count = |zone: &Zone, key| zone.pages.get(key).unwrap();
        let types = fs::read_to_string(reports.join("boot/pagetypeinfo")).unwrap();
        let types = Pagetypeinfo::parse("pagetypeinfo", &types).unwrap();
        // Older recordings do not say the size, which is 4 KiB.
        let page_bytes = fs::read_to_string(reports.join("guest/page_size"));
        let page_bytes = page_bytes.map_or(4096, |it| it.trim().parse().unwrap());
        let first = zones.populated().next().unwrap().rest.get("start_pfn");
        let base = match zones.populated().count() {
            1 => u32::try_from(first.unwrap()).unwrap(),
            _ => 0,
        };
        let version = fs::read_to_string(reports.join("guest/version")).unwrap();
        let release = version.split(' ').nth(2).unwrap();
        let events: Vec<Event> = text.lines().filter_map(|line| event(line, base)).collect();
        let stages = events.iter().filter_map(|event| match event {
            Event::Stage(name) => Some(name.as_str()),
            _ => None,
        });
        let mut seen_free: Vec<bool> = Vec::new();
        let (mut pages, mut reserves) = (0, Vec::new());
        for stage in stages {
            let types = reports.join(stage).join("pagetypeinfo");
            reserves.push(Reserve::of(&fs::read_to_string(types).unwrap()));
            let flags = fs::read(reports.join(stage).join("kpageflags")).unwrap();
            let flags = flags.as_chunks::<8>().0[base as usize..]
                .iter()
                .map(|&it| u64::from_le_bytes(it));
            seen_free.resize(flags.len(), false);
            for (at, flags) in flags.enumerate() {
                seen_free[at] |= flags & BUDDY != 0;
                if flags & NOPAGE == 0 {
                    pages = pages.max(at + 1);
                }
            }
        }
        seen_free.truncate(pages);
        let lists = zones.populated().flat_map(|zone| &zone.pagesets);
        Self {
            name: name.to_string(),
            era: rules_of(release),
            cpus: lists.map(|list| list.cpu).max().unwrap() + 1,
            page_bytes,
            max_order: u32::try_from(types.free[0].row.counts.len()).unwrap() - 1,
            // Zones without memory have a min of their own in late releases.
            min_pages: zones.populated().map(|zone| count(zone, "min")).sum(),
            managed: zones
                .populated()
                .map(|zone| u32::try_from(zone.managed()).unwrap())
                .collect(),
            events: bulk::insert(events, &seen_free),
            seen_free,
            reserves,
        }
    }

    pub(crate) fn pages(&self) -> u32 {
        u32::try_from(self.seen_free.len()).unwrap()
    }

    /// log2 of the pages of 2 MiB, which are a pageblock.
    pub(crate) fn block_order(&self) -> u32 {
        (BLOCK_BYTES / self.page_bytes).ilog2()
    }

    /// Pageblocks, or larger blocks, of memory that comes late in the boot; 0 if there is enough before for CPUs' lists to
    /// hold pages. Their batch is a 4096th of the zone.
    pub(crate) fn late_blocks(&self) -> usize {
        let late = self.events[..self.until("boot")]
            .iter()
            .filter_map(|event| match event {
                Event::Free {
                    block,
                    deferred: true,
                    ..
                } => Some(block),
                _ => None,
            });
        let late = late.filter(|block| block.order >= self.block_order());
        let first = late.clone().map(|block| block.pfn).min();
        match first {
            Some(0..4096) => late.count(),
            _ => 0,
        }
    }

    /// Number of events up to a stage's mark.
    pub(crate) fn until(&self, stage: &str) -> usize {
        let is_mark = |event: &Event| matches!(event, Event::Stage(name) if name == stage);
        self.events.iter().position(is_mark).unwrap()
    }
}

/// The folder of the bundled recordings.
pub(crate) fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mixing")
}

/// The release whose rules a kernel has: stable updates of 6.12 take blocks as 6.15 does (`docs/fidelity.md`).
pub(crate) fn rules_of(release: &str) -> Era {
    match Era::parse(release).unwrap() {
        Era::V6_12 => Era::V6_15,
        era => era,
    }
}

fn event(line: &str, base: u32) -> Option<Event> {
    let (context, rest) = line.split_once("] ")?;
    let (head, fields) = rest.split_once(": ")?;
    let (name, fields) = fields.split_once(": ")?;
    let on = || Moment {
        cpu: context.rsplit_once('[').unwrap().1.parse().unwrap(),
        seconds: head.rsplit_once(' ').unwrap().1.parse().unwrap(),
    };
    let value = |key: &str| {
        let fields = fields
            .split(' ')
            .find_map(|it| it.strip_prefix(key)?.strip_prefix('='));
        fields.unwrap()
    };
    let number = |key: &str| match value(key).strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => value(key).parse().unwrap(),
    };
    let block = |order: &str| Block {
        pfn: number("pfn") - base,
        order: number(order),
    };
    let of_key = |key| MigrateType::ALL[number(key) as usize];
    let migratetype = || of_key("migratetype");
    Some(match name {
        "mm_page_alloc" if value("pfn") == "0xffffffffffffffff" => return None,
        "mm_page_alloc" => {
            let flags = value("gfp_flags");
            let has = |flag: &str| flags.split('|').any(|it| it == flag);
            Event::Alloc {
                on: on(),
                block: block("order"),
                of: migratetype(),
                // The flag takes precedence over all that lets a request have what is kept back.
                atomic: has("GFP_ATOMIC") && !has("__GFP_NOMEMALLOC"),
                dma: has("GFP_DMA"),
            }
        }
        "mm_page_free" => Event::Free {
            on: on(),
            block: block("order"),
            deferred: ["pgdatinit", "kworker/u"]
                .iter()
                .any(|it| context.trim_start().starts_with(it)),
        },
        "mm_page_alloc_extfrag" => Event::Fallback {
            block: block("fallback_order"),
            from: of_key("fallback_migratetype"),
        },
        "mm_page_pcpu_drain" => Event::Drain(block("order")),
        "mm_page_alloc_zone_locked" if value("percpu_refill") == "1" => Event::Refill {
            on: on(),
            block: block("order"),
            of: migratetype(),
        },
        "tracing_mark_write" => Event::Stage(fields.strip_prefix("stage ")?.to_string()),
        _ => return None,
    })
}
