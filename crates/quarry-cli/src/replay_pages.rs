//! Rows and tables of page events in `quarry replay`: their fate, their cost, and free memory over time.

use quarry_lab::RunReport;
use quarry_lab::replay::fragmentation::{Fragmentation, Sample};
use quarry_lab::replay::pages::{PageEvents, PageReport};
use quarry_lab::replay::report::ZoneTraffic;
use quarry_trace::TraceMeta;

use crate::output;
use crate::rows::Form::{Bytes, Count, Of, Orders};
use crate::rows::{self, Label, Row, line, more};
use crate::units::{bytes, count};

/// The largest order that allocations count on (`PAGE_ALLOC_COSTLY_ORDER`), and by default that of
/// slabs.
const COSTLY_ORDER: u32 = 3;
/// A huge page of x86-64, and of ppc64 with radix page tables.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Rows of a run that drives page events, top to bottom.
pub(crate) const ROWS: &[Row] = &[
    more("page event allocs", "pages.allocs", Count),
    more("  by order", "pages.allocs_by_order", Orders),
    more(
        "  from per-CPU lists",
        "pages.alloc_pcp",
        Of("pages.allocs"),
    )
    .note("The row has them as a part of the allocations."),
    more("  refills", "pages.refills", Count),
    more("  too large", "pages.too_large", Count),
    more(NO_MEMORY, "pages.no_memory", Count),
    more("page event frees", "pages.frees", Count),
    more("  of blocks from before", "pages.initial_frees", Count),
    more("  to per-CPU lists", "pages.free_pcp", Of("pages.frees"))
        .note("The row has them as a part of the frees."),
    more("  drains", "pages.drains", Count),
    more("  on another CPU", "pages.cross_cpu_frees", Count),
    more("peak page blocks", "pages.peak_bytes", Bytes),
    more("  as recorded", "pages.peak_recorded_bytes", Bytes),
    more("zone locks: page events", "pages.zone_locks", Count),
    more("zone locks: slabs", "pages.slab_zone_locks", Count),
    more("zone locks: periodic", "pages.periodic_zone_locks", Count),
    more(
        "on per-CPU lists at first",
        "pages.initial_pcp_pages",
        Count,
    ),
];

/// Row of events without memory, printed even without `--all` if there were any.
const NO_MEMORY: &str = "  no memory";

/// Rows that say something only if it happened.
const EXCEPTIONS: [&str; 4] = [
    "  too large",
    NO_MEMORY,
    "zone locks: periodic",
    "on per-CPU lists at first",
];

/// Names of all rows.
pub(crate) fn labels() -> impl Iterator<Item = Label> {
    let rows = ROWS.iter().map(|row| row.label);
    let zones = ZONE_ROWS.iter().map(|(label, _)| *label);
    rows.chain(zones).chain(BELOW_HUGE)
}

/// Free memory that cannot make a huge page, at the end and at its peak.
const BELOW_HUGE: [Label; 2] = [
    Label::new("free below 2 MiB", "")
        .note("Bytes of free memory at the end in blocks smaller than a huge page of 2 MiB."),
    Label::new("  peak", "")
        .note("Most bytes of such memory in any sample of free memory over time."),
];

/// Rows for the table of runs, a value per run; none if no run drives page events. Without `all` those
/// alone that say that memory was short.
pub(crate) fn rows(runs: &[&RunReport], all: bool) -> Vec<Vec<String>> {
    if runs.iter().all(|run| run.pages.is_none()) {
        return Vec::new();
    }
    let nothing = "0".to_string();
    let told = |(name, values): &(&str, Vec<String>)| {
        let counted = values.iter().any(|value| *value != nothing && value != "-");
        match all {
            true => !EXCEPTIONS.contains(name) || counted,
            false => *name == NO_MEMORY && counted,
        }
    };
    let told = rows::lines(ROWS, runs, true).into_iter().filter(told);
    let mut rows: Vec<Vec<String>> = told.map(|(name, cells)| line(name, cells)).collect();
    if !all {
        return rows;
    }
    rows.extend(zone_rows(runs));
    for (at, label) in BELOW_HUGE.iter().enumerate() {
        let of_run =
            |run: &&RunReport| below_huge(run).map_or_else(|| "-".to_string(), |of| bytes(of[at]));
        rows.push(line(label.name, runs.iter().map(of_run)));
    }
    rows
}

type ZoneRow = (Label, fn(&ZoneTraffic) -> u64);

/// Rows of each zone.
const ZONE_ROWS: &[ZoneRow] = &[
    (
        Label::new("blocks from", "zones.allocs").note(
            "A row for each zone: `blocks from Normal`, `blocks from DMA32`, `blocks from DMA`.",
        ),
        |zone| zone.allocs,
    ),
    (Label::new("  refilled", "zones.refilled"), |zone| {
        zone.refilled
    }),
    (Label::new("  drained", "zones.drained"), |zone| {
        zone.drained
    }),
    (
        Label::new("  free pages at the end", "zones.free_pages"),
        |zone| zone.free_pages,
    ),
];

/// Rows for each zone that served anything, of runs that began with a kernel's zones; highest first.
fn zone_rows(runs: &[&RunReport]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for name in ["Normal", "DMA32", "DMA"] {
        let of_runs = || {
            runs.iter()
                .map(move |run| run.zones.iter().find(|zone| zone.zone == name))
        };
        if of_runs().flatten().all(|zone| zone.allocs == 0) {
            continue;
        }
        for (label, value) in ZONE_ROWS {
            let what = match label.name.starts_with(' ') {
                true => label.name.to_string(),
                false => format!("{} {name}", label.name),
            };
            let of_run = |zone: Option<&ZoneTraffic>| {
                zone.map_or_else(|| "-".to_string(), |zone| count(value(zone)))
            };
            rows.push(line(what, of_runs().map(of_run)));
        }
    }
    rows
}

/// Fate of the trace's page events: two lines, or nothing.
pub(crate) fn summary(meta: &TraceMeta, runs: &[RunReport]) -> String {
    let Some(run) = runs.first() else {
        return String::new();
    };
    match (run.page_events, &run.pages) {
        (events, Some(pages)) => {
            let (which, slabs) = match events {
                PageEvents::All => ("page events, slab pages counted twice", String::new()),
                _ => (
                    "page events outside slabs",
                    format!(
                        "; of slabs: {} allocations, {} frees",
                        count(pages.slab_allocs),
                        count(pages.slab_frees),
                    ),
                ),
            };
            format!(
                "{which}: {} allocations, {} frees ({} implied, {} of blocks from before)\n  \
                   left out: {} frees of blocks without memory{slabs}\n",
                count(pages.allocs),
                count(pages.frees),
                count(pages.implied_frees),
                count(pages.initial_frees),
                count(pages.unknown_frees),
            )
        }
        (PageEvents::NotToldApart, None) => format!(
            "page events are not replayed: the trace does not tell which were of slabs;\n  {}\n",
            match meta.format_version {
                1 => "import the recording again with this version, or replay all with --pages all",
                _ => "addresses are hashed, or hardly any slab was made; --pages all replays all",
            }
        ),
        _ => String::new(),
    }
}

/// Free memory over time: the moments that tell most, side by side.
pub(crate) fn fragmentation(title: &str, page_bytes: u64, pages: &PageReport) -> String {
    let Fragmentation {
        samples, interval, ..
    } = &pages.fragmentation;
    let huge_order = huge_order(page_bytes);
    let moments = moments(samples, huge_order);
    let header: Vec<&str> = std::iter::once("")
        .chain(moments.iter().map(|(name, _)| *name))
        .collect();
    let mut table = output::grid(&header, &[]);
    let mut row = |name: &str, value: &dyn Fn(&Sample) -> String| {
        let cells = moments.iter().map(|(_, sample)| value(sample));
        table.add_row(std::iter::once(name.to_string()).chain(cells));
    };
    row("event", &|sample| count(sample.event));
    row("time", &|sample| {
        format!("{:.3} s", sample.time_ns as f64 / 1e9)
    });
    row("slabs", &|sample| bytes(sample.slab_bytes));
    row("page blocks", &|sample| bytes(sample.block_bytes));
    row("  from before", &|sample| bytes(sample.initial_bytes));
    row("free on per-CPU lists", &|sample| bytes(sample.pcp_bytes));
    row("free in the zone", &|sample| bytes(sample.free_bytes));
    for (name, order) in [
        ("  below order 3", COSTLY_ORDER),
        ("  below 2 MiB", huge_order),
    ] {
        row(name, &|sample| bytes(sample.bytes_below(order, page_bytes)));
        row("    of it", &|sample| {
            format!("{:.2} %", sample.unusable_index[order as usize] * 100.0)
        });
    }
    for order in 0..quarry_core::page::ORDERS {
        let name = match order {
            0 => "free blocks, order 0".to_string(),
            _ => format!("  order {order}"),
        };
        row(&name, &|sample| count(sample.free_blocks[order]));
    }
    format!(
        "\n{title}, free memory over time: {} samples, one every {} events\n{table}\n",
        samples.len(),
        count(*interval),
    )
}

fn huge_order(page_bytes: u64) -> u32 {
    (HUGE_PAGE_BYTES / page_bytes.max(1)).max(1).ilog2()
}

/// Free memory that cannot make a huge page, at the end and when it was most.
fn below_huge(run: &RunReport) -> Option<[u64; 2]> {
    let samples = &run.pages.as_ref()?.fragmentation.samples;
    let below = |sample: &Sample| sample.bytes_below(huge_order(run.page_size), run.page_size);
    Some([samples.last().map(below)?, samples.iter().map(below).max()?])
}

/// The samples that people look at.
fn moments(samples: &[Sample], huge_order: u32) -> Vec<(&'static str, &Sample)> {
    let first_max = |key: &dyn Fn(&Sample) -> f64| {
        let mut best: Option<&Sample> = None;
        for sample in samples {
            if best.is_none_or(|best| key(sample) > key(best)) {
                best = Some(sample);
            }
        }
        best
    };
    let used = first_max(&|sample| sample.used_bytes() as f64);
    let unusable = first_max(&|sample| sample.unusable_index[huge_order as usize]);
    [
        ("start", samples.first()),
        ("most in use", used),
        ("most unusable", unusable),
        ("end", samples.last()),
    ]
    .into_iter()
    .filter_map(|(name, sample)| Some((name, sample?)))
    .collect()
}
