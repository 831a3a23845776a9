//! The tables of `quarry run rx`: bandwidths next to the thread's, what limits them, and calls per packet.

use quarry_work::rx::{RecycleCounts, RxReport};

use crate::output::{self, Grid};
use crate::units;

/// Bandwidths first, then the causes of each driver's.
pub(crate) fn text(reports: &[RxReport]) -> String {
    let Some(first) = reports.first() else {
        return String::new();
    };
    let mut text = format!("{}\n\n", output::wrap(&finding(reports)));
    text += &format!(
        "rx on {}: {} streams of {}-byte packets offered at 100 Gbit/s, read on {} CPUs\n\
         seed {}; {:.0} ns of each packet are from the thread (driver #1, one ring)\n",
        first.machine, first.streams, first.mtu, first.consumer, first.seed, first.outside_ns,
    );
    for runs in reports.chunk_by(|a, b| (a.era, a.page_size) == (b.era, b.page_size)) {
        let Some(run) = runs.first() else { continue };
        let pages = units::bytes(run.page_size);
        text += &format!(
            "\nMbit/s of user data by rings, era {}, {pages} pages\n",
            run.era
        );
        for table in bandwidths(runs) {
            text += &format!("{table}\n");
        }
    }
    for runs in reports.chunk_by(same_driver) {
        let Some(run) = runs.first() else { continue };
        let number = run
            .thread_driver
            .map_or(String::new(), |number| format!(" ({number})"));
        text += &format!(
            "\n{}{number}, era {}: what the time goes into\n{}\n",
            run.driver,
            run.era,
            grid(&CAUSES, runs)
        );
        text += &format!(
            "\n{}{number}: per 1000 packets (pcp batch {}, high {})\n{}\n",
            run.driver,
            run.pcp_batch,
            run.pcp_high,
            grid(&CALLS, runs)
        );
        if let Some(table) = recycling_table(runs) {
            text += &format!("\n{}: recycling per 1000 packets\n{table}\n", run.driver);
        }
    }
    text
}

/// The drivers that take most and least with the most rings, and what the slower one waits for.
fn finding(reports: &[RxReport]) -> String {
    let rings = reports.iter().map(|run| run.rings).max().unwrap_or(0);
    let runs = reports.iter().filter(|run| run.rings == rings);
    let rate = |run: &&RxReport| run.mbit_per_second;
    let most = runs.clone().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let least = runs.min_by(|a, b| rate(a).total_cmp(&rate(b)));
    let (Some(most), Some(least)) = (most, least) else {
        return String::new();
    };
    let of_rings = match rings {
        1 => "With 1 ring".to_string(),
        several => format!("With {several} rings"),
    };
    let waits = |run: &RxReport| {
        format!(
            "{:.0} % of the busy CPUs' time are waits for the zone lock",
            run.zone_lock_share * 100.0
        )
    };
    let named = |run: &RxReport| match same_driver(most, least) || most.driver != least.driver {
        true => run.driver.to_string(),
        false => format!(
            "{} of {}, {} pages",
            run.driver,
            run.era,
            units::bytes(run.page_size)
        ),
    };
    if std::ptr::eq(most, least) {
        return format!(
            "{of_rings} driver {} takes {:.0} Mbit/s; {}.",
            named(most),
            most.mbit_per_second,
            waits(most)
        );
    }
    format!(
        "{of_rings} driver {} takes the most, {:.0} Mbit/s, and {} the least, {:.0}, where {}.",
        named(most),
        most.mbit_per_second,
        named(least),
        least.mbit_per_second,
        waits(least),
    )
}

pub(crate) fn same_driver(a: &RxReport, b: &RxReport) -> bool {
    (a.driver, a.era, a.page_size) == (b.driver, b.era, b.page_size)
}

/// Columns that the number of rings takes, and those of a driver, with their padding.
const RINGS_COLUMNS: u16 = 7;
const DRIVER_COLUMNS: u16 = 20;

/// A line for each number of rings, drivers side by side with what the thread measured.
fn bandwidths(runs: &[RxReport]) -> Vec<Grid> {
    let drivers: Vec<&[RxReport]> = runs.chunk_by(same_driver).collect();
    let fit = (output::width().saturating_sub(RINGS_COLUMNS) / DRIVER_COLUMNS).max(1);
    drivers.chunks(fit.into()).map(bandwidth_table).collect()
}

fn bandwidth_table(drivers: &[&[RxReport]]) -> Grid {
    let mut header = vec!["rings".to_string()];
    for run in drivers.iter().filter_map(|runs| runs.first()) {
        if run.thread_driver.is_some() {
            header.push(format!("{}\nthread", run.driver));
        }
        header.push(format!("{}\nquarry", run.driver));
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = output::grid(&header, &[]);
    let first = drivers.first().copied().unwrap_or_default();
    for (at, run) in first.iter().enumerate() {
        let mut row = vec![run.rings.to_string()];
        for run in drivers.iter().filter_map(|runs| runs.get(at)) {
            if run.thread_driver.is_some() {
                let published = run.published_mbit_per_second;
                row.push(published.map_or("-".to_string(), |mbit| format!("{mbit:.0}")));
            }
            row.push(format!("{:.0}", run.mbit_per_second));
        }
        table.add_row(row);
    }
    table
}

/// Columns of the causes, with what a run has there.
type Column = (&'static str, fn(&RxReport) -> String);

const CAUSES: [Column; 8] = [
    ("rings", |run| run.rings.to_string()),
    ("not\ntaken", |run| percent(run.lost)),
    ("ring\nCPUs", |run| percent(run.cpu_use.rings)),
    ("other\nCPUs", |run| {
        run.cpu_use.others.map_or("-".to_string(), percent)
    }),
    ("waits for\nzone lock", |run| percent(run.zone_lock_share)),
    ("zone lock\nheld ns", |run| {
        format!("{:.0}", zone_hold_ns(run))
    }),
    ("lines of\nCPUs", |run| {
        format!("{:.1}", run.causes.lines.between_cpus())
    }),
    ("lines of\nmemory", |run| {
        format!("{:.1}", run.causes.lines.memory.iter().sum::<f64>())
    }),
];

/// Calls of packets to the page allocator, and buffers from elsewhere.
const CALLS: [Column; 8] = [
    ("rings", |run| run.rings.to_string()),
    ("page\nallocs", |run| per_1000(run, run.counts.pages.allocs)),
    ("page\nfrees", |run| per_1000(run, run.counts.pages.frees)),
    ("pcp\nrefills", |run| {
        per_1000(run, run.counts.pages.pcp_refills)
    }),
    ("pcp\ndrains", |run| {
        per_1000(run, run.counts.pages.pcp_drains)
    }),
    ("zone\nlocks", |run| {
        per_1000(run, run.counts.pages.zone_locks)
    }),
    ("pages\nunder it", |run| {
        per_1000(run, run.counts.pages.zone_blocks() << run.page_order)
    }),
    ("recycled", |run| {
        units::percent(run.recycled, run.counts.recycling.buffers)
    }),
];

fn grid(columns: &[Column; 8], runs: &[RxReport]) -> Grid {
    let mut table = output::grid(&columns.map(|(name, _)| name), &[]);
    for run in runs {
        table.add_row(columns.map(|(_, cell)| cell(run)));
    }
    table
}

/// A column of counts of recycling.
type Recycling = (&'static str, fn(&RecycleCounts) -> u64);

/// Ways to have a buffer without the page allocator, and reasons why not.
const RECYCLING: &[Recycling] = &[
    ("page\nreuse", |counts| counts.page_reuse),
    ("cache\nreuse", |counts| counts.cache_reuse),
    ("cache\nbusy", |counts| counts.cache_busy),
    ("cache\nempty", |counts| counts.cache_empty),
    ("cache\nfull", |counts| counts.cache_full),
    ("cache\nwaive", |counts| counts.cache_waive),
    ("pool\nfast", |counts| counts.pool_fast),
    ("pool\nrefill", |counts| counts.pool_refill),
    ("pool\nslow", |counts| counts.pool_slow),
    ("pool\nring", |counts| counts.pool_ring),
    ("pool\nring full", |counts| counts.pool_ring_full),
];

/// The columns in which any run has something; `None` if that is page reuse at most, which the share
/// of recycled buffers says already.
fn recycling_table(runs: &[RxReport]) -> Option<Grid> {
    let mut columns = RECYCLING.to_vec();
    columns.retain(|(_, get)| runs.iter().any(|run| get(&run.counts.recycling) > 0));
    if columns.iter().all(|(name, _)| *name == RECYCLING[0].0) {
        return None;
    }
    let header = columns.iter().map(|(name, _)| *name);
    let header: Vec<&str> = std::iter::once("rings").chain(header).collect();
    let mut table = output::grid(&header, &[]);
    for run in runs {
        let cells = columns
            .iter()
            .map(|(_, get)| per_1000(run, get(&run.counts.recycling)));
        table.add_row(std::iter::once(run.rings.to_string()).chain(cells));
    }
    Some(table)
}

/// Per 1000 packets, so that small counts can be read.
fn per_1000(run: &RxReport, value: u64) -> String {
    let value = value as f64 * 1000.0 / run.counts.polled.max(1) as f64;
    match value {
        0.0 => "0".to_string(),
        _ if value < 0.005 => "<0.01".to_string(),
        _ if value < 99.95 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn zone_hold_ns(run: &RxReport) -> f64 {
    let zone = run.causes.locks.iter().find(|lock| lock.class == "zone");
    zone.map_or(0.0, |lock| lock.hold_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_explained() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rx.md");
        let doc = std::fs::read_to_string(path).unwrap();
        let rows = doc.lines().filter(|line| line.matches(" |").count() == 4);
        let explained: Vec<&str> = rows.filter_map(|row| row.split('|').nth(2)).collect();
        let recycling = RECYCLING.iter().map(|(name, _)| *name);
        let columns = CAUSES.iter().chain(&CALLS).map(|(name, _)| *name);
        for column in columns.chain(recycling) {
            let column = column.replace('\n', " ");
            let found = explained.iter().any(|cell| cell.trim() == column);
            assert!(found, "docs/rx.md does not explain the column {column:?}");
        }
    }
}
