//! `quarry geometry --pages`: what the page allocator's lists and watermarks would be.

use quarry_core::era::Era;
use quarry_core::page::geometry::{
    PageSysctls, WATERMARK_SCALE_FACTOR, WatermarkStep, ZoneParams, ZoneSizes, page_era,
    pageblock_order, stat_threshold,
};
use quarry_view::Form::{Bytes, Count, Text};
use quarry_view::value::{list, number};
use quarry_view::{Section, Spec, View, column};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::usage;
use crate::terminal::{self, Show};
use crate::{output, units};

/// The arguments that are for pages.
#[derive(clap::Args)]
pub(crate) struct PageArgs {
    /// Compute the sizes of per-CPU page lists and the watermarks.
    #[arg(
        long,
        requires = "zones",
        conflicts_with_all = ["design", "object_size", "align", "flags", "set", "cache_line"]
    )]
    pages: bool,
    /// Memory of the machine's zone, or of its zones by name: dma, dma32, normal. A name may be
    /// there for each node.
    #[arg(
        long = "zone",
        value_name = "[NAME=]BYTES,...",
        value_delimiter = ',',
        value_parser = Zone::parse
    )]
    zones: Vec<Zone>,
    /// Kernels, separated by commas; by default all that have the sysctls asked for.
    #[arg(
        long = "era",
        value_name = "ERA,...",
        value_delimiter = ',',
        value_parser = parse_era
    )]
    eras: Vec<Era>,
    /// percpu_pagelist_fraction, or percpu_pagelist_high_fraction from 5.14 on; 0 is off.
    #[arg(long, value_name = "N")]
    fraction: Option<u32>,
    /// min_free_kbytes; by default what the kernel sets by itself.
    #[arg(long, value_name = "N")]
    min_free_kbytes: Option<u64>,
    /// watermark_scale_factor in 1/10 000 of a zone, from 4.13 on.
    #[arg(long, value_name = "N")]
    watermark_scale_factor: Option<u32>,
}

fn parse_era(text: &str) -> Result<Era, String> {
    quarry_designs::parse_era(text).map_err(|error| error.to_string())
}

/// Names of zones, as the kernel writes them.
const ZONES: [&str; 3] = ["DMA", "DMA32", "Normal"];

/// A zone as it was asked for.
#[derive(Clone, Copy, Debug)]
struct Zone {
    name: &'static str,
    bytes: u64,
}

impl Zone {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, bytes) = text.split_once('=').unwrap_or(("Normal", text));
        let known = ZONES
            .into_iter()
            .find(|zone| zone.eq_ignore_ascii_case(name));
        Ok(Self {
            name: known.ok_or_else(|| "zones are dma, dma32 and normal".to_string())?,
            bytes: units::parse_bytes(bytes)?,
        })
    }
}

/// Limits of a CPU's page lists.
#[derive(JsonSchema, Serialize)]
struct Limits {
    /// Pages above which the lists are drained.
    high: u32,
    /// Pages that move at a time.
    batch: u32,
}

/// Watermarks in pages.
#[derive(JsonSchema, Serialize)]
struct Marks {
    /// Free pages below which only urgent requests are served.
    min: u64,
    /// Free pages below which kswapd wakes.
    low: u64,
    /// Free pages at which kswapd stops.
    high: u64,
    /// Free pages at which promotion of NUMA pages stops; null before 5.18.
    promo: Option<u64>,
}

/// Lists and watermarks of one zone. Counts are in pages unless the name has another unit.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Answer {
    /// Kernel release whose rules apply.
    era: &'static str,
    /// Bytes of a page.
    page_size: u64,
    /// CPUs.
    cpus: u32,
    /// Zone.
    zone: &'static str,
    /// Bytes of the zone.
    zone_bytes: u64,
    /// Pages of the zone.
    zone_pages: u64,
    /// Pages that move between a CPU's lists and the zone at a time.
    batch: u32,
    /// Least pages above which a CPU's lists are drained.
    high_min: u32,
    /// Most pages above which a CPU's lists are drained.
    high_max: u32,
    /// Limits of the lists of cold pages; null if the release has none.
    cold: Option<Limits>,
    /// Watermarks.
    watermarks: Marks,
    /// Orders that the lists hold.
    orders: Vec<u32>,
    /// Lists of a CPU.
    lists: u32,
    /// min_free_kbytes in force.
    min_free_kbytes: u64,
    /// watermark_scale_factor in force; null if the release has none.
    watermark_scale_factor: Option<u32>,
    /// Name of the sysctl that sizes lists by a fraction of the zone; null if the release has none.
    fraction: Option<&'static str>,
    /// Value of that sysctl; 0 is off.
    fraction_value: u32,
    /// Order of a pageblock.
    pageblock_order: u32,
    /// Pages by which a CPU's own count of free pages may be off.
    stat_threshold: u32,
}

impl PageArgs {
    /// True if `--pages` was given; an error if only its options were.
    pub(crate) fn is_asked(&self) -> anyhow::Result<bool> {
        let given = [
            ("--zone", !self.zones.is_empty()),
            ("--era", !self.eras.is_empty()),
            ("--fraction", self.fraction.is_some()),
            ("--min-free-kbytes", self.min_free_kbytes.is_some()),
            (
                "--watermark-scale-factor",
                self.watermark_scale_factor.is_some(),
            ),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) if !self.pages => {
                Err(usage(format!("{name} is for --pages, which is missing")))
            }
            _ => Ok(self.pages),
        }
    }

    fn fraction(&self) -> u32 {
        self.fraction.unwrap_or(0)
    }

    fn scale_factor(&self) -> u32 {
        self.watermark_scale_factor
            .unwrap_or(WATERMARK_SCALE_FACTOR)
    }

    fn sysctls(&self) -> PageSysctls {
        PageSysctls {
            min_free_kbytes: self.min_free_kbytes,
            watermark_scale_factor: self.scale_factor(),
            pagelist_fraction: self.fraction(),
        }
    }

    fn eras(&self) -> Vec<Era> {
        if !self.eras.is_empty() {
            return self.eras.clone();
        }
        let takes = |era: &Era| {
            let scales = page_era(*era).step == WatermarkStep::ScaleFactor;
            self.scale_factor() == WATERMARK_SCALE_FACTOR || scales
        };
        Era::REFERENCE.into_iter().filter(takes).collect()
    }

    /// The zones of one machine, in one era.
    fn machine(&self, release: Era, page_size: u64, cpus: u32) -> anyhow::Result<Vec<Answer>> {
        let era = page_era(release);
        let page_shift = page_size.ilog2();
        let pages = self.zones.iter().map(|zone| zone.bytes >> page_shift);
        let all_pages = pages.fold(0, u64::saturating_add);
        let zones = self.zones.iter().map(|zone| {
            let params = ZoneParams {
                page_shift,
                pages: zone.bytes >> page_shift,
                initialised_pages: zone.bytes >> page_shift,
                all_pages,
                cpus,
            };
            let sizes = era.zone(&params, &self.sysctls()).map_err(|error| {
                let page_size = units::bytes(page_size);
                usage(format!(
                    "era {}, {page_size} pages, zone {} of {}: {error}",
                    release,
                    zone.name,
                    units::bytes(zone.bytes)
                ))
            })?;
            Ok(self.answer(release, zone, &params, &sizes))
        });
        zones.collect()
    }

    fn answer(&self, release: Era, zone: &Zone, params: &ZoneParams, sizes: &ZoneSizes) -> Answer {
        let era = page_era(release);
        let (pcp, marks) = (sizes.pcp, sizes.watermarks);
        let page_shift = params.page_shift;
        let own = era.min_free_kbytes(params.all_pages, page_shift);
        let scales = era.step == WatermarkStep::ScaleFactor;
        Answer {
            era: release.name(),
            page_size: 1 << page_shift,
            cpus: params.cpus,
            zone: zone.name,
            zone_bytes: zone.bytes,
            zone_pages: params.pages,
            batch: pcp.batch,
            high_min: pcp.high,
            high_max: pcp.high_max,
            cold: pcp.cold.map(|cold| Limits {
                high: cold.high,
                batch: cold.batch,
            }),
            watermarks: Marks {
                min: marks.min,
                low: marks.low,
                high: marks.high,
                promo: marks.promo,
            },
            orders: (0..=era.lists.max_order)
                .chain(era.lists.huge_order(page_shift))
                .collect(),
            lists: era.lists.count(),
            min_free_kbytes: self.min_free_kbytes.unwrap_or(own),
            watermark_scale_factor: scales.then_some(self.scale_factor()),
            fraction: Some(era.fraction.name()),
            fraction_value: self.fraction(),
            pageblock_order: pageblock_order(page_shift),
            stat_threshold: stat_threshold(params.pages, page_shift, params.cpus),
        }
    }
}

/// Answers for every era, page size and number of CPUs; prints nothing if one has no answer.
pub(crate) fn run(
    args: &PageArgs,
    page_sizes: &[u64],
    cpus: &[u32],
    json: bool,
) -> anyhow::Result<()> {
    output::note_eras(args.eras());
    let mut answers = Vec::new();
    for era in args.eras() {
        for &page_size in page_sizes {
            for &cpus in cpus {
                answers.extend(args.machine(era, page_size, cpus)?);
            }
        }
    }
    if json {
        return output::print_json("geometry --pages", &output::Runs { runs: &answers });
    }
    let doc = output::doc("geometry --pages", &output::Runs { runs: &answers })?;
    let table = PAGES.of(&doc.content).noted(NOTE);
    let view = View::new(PAGES.title).with(Section::default().with(table));
    terminal::print_view(&view, Show::default())
}

const NOTE: &str =
    "batch, high, cold and the watermarks are in pages; CPUs are those of the zone's node";

/// Lists and watermarks of zones.
pub(crate) const PAGES: Spec = Spec {
    title: "Lists and watermarks of zones",
    rows: "runs",
    first: 0,
    columns: || {
        vec![
            column("era", "era", Text),
            column("page", "page_size", Bytes),
            column("CPUs", "cpus", Count),
            column("zone", "zone", Text),
            column("size", "zone_bytes", Bytes),
            column("batch", "batch", Count),
            column("high", "high_min high_max", Count).worded(high),
            column("cold\nhigh/batch", "cold.high cold.batch", Count)
                .worded(cold)
                .rare(),
            column("wmark\nmin", "watermarks.min", Count),
            column("\nlow", "watermarks.low", Count),
            column("\nhigh", "watermarks.high", Count),
            column("\npromo", "watermarks.promo", Count),
            column("orders\nheld", "orders", Text).worded(orders),
        ]
    },
};

/// `10`, or `10..20`.
fn high(answer: &Value) -> String {
    let [min, max] = ["high_min", "high_max"].map(|path| number(answer, path));
    let text = |of: Option<f64>| Count.print(of.unwrap_or(0.0));
    match min == max {
        true => text(min),
        false => format!("{}..{}", text(min), text(max)),
    }
}

fn cold(answer: &Value) -> String {
    match ["cold.high", "cold.batch"].map(|path| number(answer, path)) {
        [Some(high), Some(batch)] => format!("{}/{}", Count.print(high), Count.print(batch)),
        _ => "-".to_string(),
    }
}

/// `0`, `0-3`, `0-3,9`.
fn orders(answer: &Value) -> String {
    let orders: Vec<u64> = list(answer, "orders")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    let consecutive = (0..).zip(&orders).take_while(|(at, order)| at == *order);
    let consecutive = consecutive.count();
    let mut text = match consecutive.saturating_sub(1) {
        0 => "0".to_string(),
        last => format!("0-{last}"),
    };
    for order in &orders[consecutive..] {
        text.push_str(&format!(",{order}"));
    }
    text
}
