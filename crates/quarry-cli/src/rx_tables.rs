//! The tables of `quarry run rx`: for each driver a line per number of rings.

use comfy_table::Table;
use quarry_work::rx::{RxDriver, RxReport};

use crate::output;
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
            "\nThe zone lock at the thread's packet rates, era {era}, {} pages\n{}\n",
            bytes(page_size),
            lock_table(&runs)
        ));
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

fn page_table(runs: &[RxReport]) -> Table {
    let header = [
        "rings",
        "page\nallocs",
        "page\nfrees",
        "pcp\nrefills",
        "pcp\ntrims",
        "zone\nlocks",
        "pages\nunder it",
        "CPUs\nat it",
        "recycled",
        "dropped",
    ];
    let mut table = output::unbroken(output::table(&header, &[]));
    for run in runs {
        let per = |value| per_1000(run, value);
        table.add_row([
            run.rings.to_string(),
            per(run.pages.allocs),
            per(run.pages.frees),
            per(run.pages.pcp_refills),
            per(run.pages.pcp_trims),
            per(run.pages.zone_locks),
            per(run.pages.zone_blocks() << run.page_order),
            run.zone_lock_cpus.to_string(),
            percent(run.recycled, run.recycling.buffers),
            per(run.dropped),
        ]);
    }
    table
}

/// What the lock is asked for at the thread's rates: a line per number of rings, drivers side by side.
fn lock_table(runs: &[&RxReport]) -> Table {
    let mut drivers: Vec<&str> = runs.iter().map(|run| run.driver).collect();
    drivers.dedup();
    let mut header = vec!["rings".to_string(), "Mpackets\n/s".to_string()];
    for driver in &drivers {
        header.push(format!("{driver}\nlocks/s"));
        header.push(format!("{driver}\nns/page"));
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = output::unbroken(output::table(&header, &[]));
    let per_driver = runs.len() / drivers.len();
    for at in 0..per_driver {
        let first = runs[at];
        let rate = first.at_rate.packets_per_second;
        let mut row = vec![first.rings.to_string(), format!("{:.2}", rate / 1e6)];
        for run in runs.iter().skip(at).step_by(per_driver) {
            row.push(thousands(run.at_rate.zone_locks_per_second));
            row.push(match run.at_rate.ns_per_zone_page {
                Some(ns) if ns < 9999.5 => format!("{ns:.0}"),
                Some(_) => ">9999".to_string(),
                None => "-".to_string(),
            });
        }
        table.add_row(row);
    }
    table
}

/// A rate per second in thousands: `524.1k`.
fn thousands(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_string(),
        _ => format!("{:.1}k", per_second / 1e3),
    }
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
fn recycling_table(runs: &[RxReport]) -> Option<Table> {
    let some = |column: &&Column| runs.iter().any(|run| (column.1)(run) > 0);
    let columns: Vec<&Column> = COLUMNS.iter().filter(some).collect();
    if columns.iter().all(|column| column.0 == COLUMNS[0].0) {
        return None;
    }
    let mut header = vec!["rings"];
    header.extend(columns.iter().map(|column| column.0));
    let mut table = output::unbroken(output::table(&header, &[]));
    for run in runs {
        let mut row = vec![run.rings.to_string()];
        row.extend(columns.iter().map(|column| per_1000(run, (column.1)(run))));
        table.add_row(row);
    }
    Some(table)
}
