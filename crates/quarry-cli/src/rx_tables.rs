//! The tables of `quarry run rx`: for each driver a line per number of rings.

use quarry_work::rx::{RxDriver, RxReport};

use crate::output::{self, Grid};
use crate::units::{bytes, count, percent};

/// Everything that a run prints.
pub(crate) fn text(reports: &[RxReport]) -> String {
    let mut text = head(reports);
    for group in reports.chunk_by(same_table) {
        let Some(first) = group.first() else { continue };
        let table = page_table(group);
        text.push_str(&format!("\n{}\n{table}\n", title(first)));
        if let Some(table) = recycling_table(group) {
            text.push_str(&format!(
                "\n{}: recycling per 1000 packets\n{table}\n",
                first.driver
            ));
        }
    }
    let machine = |run: &RxReport| (run.era, run.page_size);
    let mut machines: Vec<_> = Vec::new();
    for run in reports {
        if !machines.contains(&machine(run)) {
            machines.push(machine(run));
        }
    }
    for (era, page_size) in machines {
        let runs: Vec<&RxReport> = reports
            .iter()
            .filter(|run| machine(run) == (era, page_size))
            .collect();
        text.push_str(&format!(
            "\nThe zone lock at the thread's packet rates, era {era}, {} pages\n",
            bytes(page_size)
        ));
        let tables: Vec<String> = lock_tables(&runs).iter().map(Grid::to_string).collect();
        text.push_str(&tables.join("\n\n"));
        text.push('\n');
        if let Some(run) = runs.first() {
            text.push_str(&format!("\n{}\n", heads_line(run)));
        }
    }
    text
}

fn same_table(a: &RxReport, b: &RxReport) -> bool {
    (a.driver, a.era, a.page_size) == (b.driver, b.era, b.page_size)
}

/// What all runs have in common.
fn head(reports: &[RxReport]) -> String {
    let Some(run) = reports.first() else {
        return String::new();
    };
    let readers = match run.consumer {
        "same" => "on the CPU of its ring".to_string(),
        "other" => "on a CPU without a ring".to_string(),
        _ => format!("on any of {} CPUs", run.cpus),
    };
    format!(
        "rx: {} streams of {}-byte packets, {} merged into a socket buffer; read {readers}\n\
         after {} packets; {} work entries a ring; {} packets counted, seed {}\n",
        count(run.streams.into()),
        run.mtu,
        run.gro_packets,
        run.backlog,
        count(run.descriptors.into()),
        count(run.packets),
        run.seed,
    )
}

fn title(run: &RxReport) -> String {
    let about = RxDriver::named(run.driver).map_or("", |driver| driver.about);
    let number = run
        .thread_driver
        .map_or(String::new(), |number| format!(" ({number} of the thread)"));
    format!(
        "{}{number}: {about}\nper 1000 packets, era {}, {} pages, {} CPUs, pcp batch {}, high {}",
        run.driver,
        run.era,
        bytes(run.page_size),
        run.cpus,
        run.pcp_batch,
        run.pcp_high,
    )
}

/// Per 1000 packets, so that small counts can be read.
fn per_1000(run: &RxReport, value: u64) -> String {
    let value = value as f64 * 1000.0 / run.packets as f64;
    match value {
        0.0 => "0".to_string(),
        _ if value < 0.005 => "<0.01".to_string(),
        _ if value < 99.95 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

const PAGE_COLUMNS: [&str; 10] = [
    "rings",
    "page\nallocs",
    "page\nfrees",
    "pcp\nrefills",
    "pcp\ndrains",
    "zone\nlocks",
    "pages\nunder it",
    "CPUs\nat it",
    "recycled",
    "dropped",
];

fn page_table(runs: &[RxReport]) -> Grid {
    let mut table = output::grid(&PAGE_COLUMNS, &[]);
    for run in runs {
        let per = |value| per_1000(run, value);
        table.add_row([
            run.rings.to_string(),
            per(run.pages.allocs),
            per(run.pages.frees),
            per(run.pages.pcp_refills),
            per(run.pages.pcp_drains),
            per(run.pages.zone_locks),
            per(run.pages.zone_blocks() << run.page_order),
            run.zone_lock_cpus.to_string(),
            percent(run.recycled, run.recycling.buffers),
            per(run.dropped),
        ]);
    }
    table
}

/// Columns that rings and packets per second take, with their padding.
const RATE_COLUMNS: u16 = 18;
/// Columns that one driver takes, with its padding.
const DRIVER_COLUMNS: u16 = 20;
const RATE: &str = "Mpackets\n/s";
/// What follows for each driver from the rate; its name is put in front.
const AT_RATE: [&str; 2] = ["locks\n/s", "ns per\nblock"];

/// What the lock is asked for at the thread's rates: a line per number of rings, drivers side by
/// side, as many as fit. The runs are sorted by driver, and each driver has the same ones.
fn lock_tables(runs: &[&RxReport]) -> Vec<Grid> {
    let by_driver: Vec<&[&RxReport]> = runs.chunk_by(|a, b| a.driver == b.driver).collect();
    let fit = (output::width().saturating_sub(RATE_COLUMNS) / DRIVER_COLUMNS).max(1);
    by_driver.chunks(fit.into()).map(lock_table).collect()
}

fn lock_table(drivers: &[&[&RxReport]]) -> Grid {
    let mut header = vec!["rings".to_string(), RATE.to_string()];
    for driver in drivers.iter().filter_map(|runs| runs.first()) {
        header.extend(AT_RATE.map(|column| format!("{}\n{column}", driver.driver)));
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = output::grid(&header, &[]);
    let first = drivers.first().copied().unwrap_or_default();
    for (at, run) in first.iter().enumerate() {
        let rate = run.at_rate.packets_per_second;
        let mut row = vec![run.rings.to_string(), format!("{:.2}", rate / 1e6)];
        for run in drivers.iter().filter_map(|runs| runs.get(at)) {
            row.push(thousands(run.at_rate.zone_locks_per_second));
            row.push(match run.at_rate.ns_per_zone_block {
                Some(ns) if ns < 9999.5 => format!("{ns:.0}"),
                Some(_) => ">9999".to_string(),
                None => "-".to_string(),
            });
        }
        table.add_row(row);
    }
    table
}

/// A rate per second: `524.1k`, or `45` if it is small.
fn thousands(per_second: f64) -> String {
    if per_second < 1000.0 {
        format!("{per_second:.0}")
    } else {
        format!("{:.1}k", per_second / 1e3)
    }
}

/// What the heads of the packets cost, which is the same with every driver.
fn heads_line(run: &RxReport) -> String {
    let heads = &run.heads;
    let per = |value| per_1000(run, value);
    format!(
        "Socket buffer heads per 1000 packets: {} from the slab cache ({} slow), {} recycled,\n\
         {} given back ({} slow, {} on another CPU)",
        per(heads.slab_allocs),
        per(heads.slab_alloc_slowpath),
        per(heads.recycled),
        per(heads.slab_frees),
        per(heads.slab_free_slowpath),
        per(heads.cross_cpu_frees),
    )
}

type Column = (&'static str, fn(&RxReport) -> u64);

/// Ways to have a buffer without the page allocator, and why not.
const COLUMNS: &[Column] = &[
    ("page\nreuse", |run| run.recycling.page_reuse),
    ("cache\nreuse", |run| run.recycling.cache_reuse),
    ("cache\nbusy", |run| run.recycling.cache_busy),
    ("cache\nempty", |run| run.recycling.cache_empty),
    ("cache\nfull", |run| run.recycling.cache_full),
    ("cache\nwaive", |run| run.recycling.cache_waive),
    ("pool\nfast", |run| run.recycling.pool_fast),
    ("pool\nrefill", |run| run.recycling.pool_refill),
    ("pool\nslow", |run| run.recycling.pool_slow),
    ("pool\nring", |run| run.recycling.pool_ring),
    ("pool\nring full", |run| run.recycling.pool_ring_full),
];

/// The columns in which any run has something; `None` if that is page reuse at most, which the share
/// of recycled buffers tells already.
fn recycling_table(runs: &[RxReport]) -> Option<Grid> {
    let some = |column: &&Column| runs.iter().any(|run| (column.1)(run) > 0);
    let columns: Vec<&Column> = COLUMNS.iter().filter(some).collect();
    if columns.iter().all(|column| column.0 == COLUMNS[0].0) {
        return None;
    }
    let mut header = vec!["rings"];
    header.extend(columns.iter().map(|column| column.0));
    let mut table = output::grid(&header, &[]);
    for run in runs {
        let mut row = vec![run.rings.to_string()];
        row.extend(columns.iter().map(|column| per_1000(run, (column.1)(run))));
        table.add_row(row);
    }
    Some(table)
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
        let recycling = COLUMNS.iter().map(|column| column.0);
        let columns = PAGE_COLUMNS.into_iter().chain(recycling);
        for column in columns.chain([RATE]).chain(AT_RATE) {
            let column = column.replace('\n', " ");
            let found = explained.iter().any(|cell| cell.trim() == column);
            assert!(found, "docs/rx.md does not explain the column {column:?}");
        }
    }
}
