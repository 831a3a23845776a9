//! A network receiver.

use quarry_view::Form::{Count, Ns, Number, Of, Per1000, Share};
use quarry_view::value::{number, text};
use quarry_view::{Cell, Column, Grid, Section, Spec, Table, column, grouped};
use serde_json::Value;

use super::{Workload, apart, causes, of, tables};

pub(super) const TABLES: [Spec; 2] = [BANDWIDTHS, RUNS];

/// Bandwidths; each driver has these columns.
const BANDWIDTHS: Spec = Spec {
    title: "Mbit/s of user data by rings",
    rows: "runs",
    first: 0,
    columns: || {
        vec![
            column("rings", "rings", Count),
            column("thread", "published_mbit_per_second", Number)
                .about("A column for each driver."),
            column("quarry", "mbit_per_second", Number).about("A column for each driver."),
        ]
    },
};

const RUNS: Spec = Spec {
    title: "Figures of a packet",
    rows: "runs",
    first: 0,
    columns: || {
        let mut columns = vec![
            column("Mbit/s", "mbit_per_second", Number).more(),
            column("  in the thread", "published_mbit_per_second", Number).more(),
            column("not taken", "lost", Share),
            column("ring CPUs", "cpu_use.rings", Share),
            column("other CPUs", "cpu_use.others", Share),
            column("waits for zone lock", "zone_lock_share", Share),
            column("zone lock held, ns", "causes.locks.=zone.hold_ns", Ns)
                .about("Of the zone's lock."),
        ];
        columns.extend(causes());
        columns.extend([
            per_1000("page allocs", "counts.pages.allocs"),
            per_1000("page frees", "counts.pages.frees"),
            per_1000("pcp refills", "counts.pages.pcp_refills"),
            per_1000("pcp drains", "counts.pages.pcp_drains"),
            per_1000("zone locks", "counts.pages.zone_locks"),
            column("pages under it", "", POLLED)
                .about("Pages that moved with the zone's lock held, per 1000 packets.")
                .computed(under_lock),
            column("recycled", "recycled", Of("counts.recycling.buffers"))
                .about("The row has them as a part of all buffers."),
            per_1000("  page reuse", "counts.recycling.page_reuse").rare(),
            per_1000("  cache reuse", "counts.recycling.cache_reuse").rare(),
            per_1000("  cache busy", "counts.recycling.cache_busy").rare(),
            per_1000("  cache empty", "counts.recycling.cache_empty").rare(),
            per_1000("  cache full", "counts.recycling.cache_full").rare(),
            per_1000("  cache waive", "counts.recycling.cache_waive").rare(),
            per_1000("  pool fast", "counts.recycling.pool_fast").rare(),
            per_1000("  pool refill", "counts.recycling.pool_refill").rare(),
            per_1000("  pool slow", "counts.recycling.pool_slow").rare(),
            per_1000("  pool ring", "counts.recycling.pool_ring").rare(),
            per_1000("  pool ring full", "counts.recycling.pool_ring_full").rare(),
            column("pcp batch", "pcp_batch", Count),
            column("pcp high", "pcp_high", Count),
        ]);
        columns
    },
};

const POLLED: quarry_view::Form = Per1000("counts.polled");

fn per_1000(name: &'static str, field: &'static str) -> Column {
    column(name, field, POLLED).about("Per 1000 packets.")
}

/// Pages that moved while the zone's lock was held, per 1000 packets.
fn under_lock(run: &Value) -> Option<f64> {
    const MOVED: [&str; 4] = [
        "pcp_refilled",
        "pcp_drained",
        "direct_allocs",
        "direct_frees",
    ];
    let blocks: f64 = MOVED
        .iter()
        .map(|name| of(&run["counts"]["pages"], name))
        .sum();
    let pages = blocks * of(run, "page_order").exp2();
    Some(pages * 1000.0 / number(run, "counts.polled")?.max(1.0))
}

/// Axes on which runs differ in tables of their own.
const KERNEL: [&str; 6] = ["file", "era", "page_size", "mtu", "streams", "consumer"];

pub(super) const RX: Workload = Workload {
    charts: &["mbit_per_second", "zone_lock_share", "packet_ns"],
    told: |grid| vec![told(grid)],
    notes: |grid| {
        let first = grid.runs.first();
        let note = first.map(|(run, _)| {
            format!(
                "Packets are offered at 100 Gbit/s; {:.0} ns of each are from the thread (driver #1, one ring). Seed {}.",
                of(run, "outside_ns"),
                of(run, "seed")
            )
        });
        note.into_iter().collect()
    },
    sections: |grid| {
        let kernels = apart(grid, &KERNEL).into_iter();
        let mut sections: Vec<Section> = kernels
            .map(|(name, runs)| bandwidths(&name, &runs))
            .collect();
        sections.extend(tables(grid, &RUNS, &[&["driver"], &KERNEL[..]].concat()));
        sections
    },
};

/// A line for each number of rings, drivers side by side with what the thread measured.
fn bandwidths(kernel: &str, runs: &[Value]) -> Section {
    let own = (BANDWIDTHS.columns)();
    let drivers = grouped(runs.iter().map(|run| (text(run, "driver"), run)));
    let mut rings: Vec<u64> = runs
        .iter()
        .filter_map(|run| run["rings"].as_u64())
        .collect();
    rings.sort_unstable();
    rings.dedup();
    let shown =
        |runs: &[&Value], column: &Column| runs.iter().any(|run| column.value(run).is_some());
    let columns = || {
        drivers.iter().flat_map(|(driver, runs)| {
            let told = own[1..].iter().filter(|column| shown(runs, column));
            told.map(move |column| (driver, runs, column))
        })
    };
    let named = columns().map(|(driver, _, of)| {
        let mut column = of.clone();
        column.name = format!("{driver}\n{}", of.name).into();
        column
    });
    let mut table = Table::new(std::iter::once(own[0].clone()).chain(named));
    table.of = BANDWIDTHS.rows;
    for rings in rings {
        let cells = columns().map(|(_, runs, column)| {
            let run = runs.iter().find(|run| run["rings"] == rings);
            run.map_or(Cell::maybe(None), |run| column.cell(run))
        });
        let rings = Cell::number(rings.to_string(), rings as f64);
        table.row(std::iter::once(rings).chain(cells));
    }
    let heading = match kernel {
        "" => BANDWIDTHS.title.to_string(),
        kernel => format!("{}, {kernel}", BANDWIDTHS.title),
    };
    Section::new(heading).with(table)
}

/// The drivers that take most and least with the most rings, and what the slower one waits for.
fn told(grid: &Grid<'_>) -> String {
    let rings = grid.runs.iter().map(|(run, _)| of(run, "rings"));
    let rings = rings.fold(0.0, f64::max);
    let others = super::axes(grid, |name| name != "rings" && name != "thread_driver");
    let named = |places: &[usize], run: &Value| match others.is_empty() {
        true => text(run, "driver").to_string(),
        false => grid.label(places, &others),
    };
    let runs = grid
        .runs
        .iter()
        .filter(|(run, _)| of(run, "rings") == rings);
    let runs = runs.map(|(run, places)| (of(run, "mbit_per_second"), named(places, run), *run));
    let mut runs: Vec<(f64, String, &Value)> = runs.collect();
    runs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let of_rings = match rings {
        1.0 => "With 1 ring".to_string(),
        several => format!("With {several} rings"),
    };
    let waits = |run: &Value| {
        let share = of(run, "zone_lock_share") * 100.0;
        format!("{share:.0} % of the busy CPUs' time are waits for the zone lock")
    };
    match runs.as_slice() {
        [] => String::new(),
        [(mbit, name, run)] => format!(
            "{of_rings} driver {name} takes {mbit:.0} Mbit/s; {}.",
            waits(run)
        ),
        [(most, first, _), .., (least, last, run)] => format!(
            "{of_rings} driver {first} takes the most, {most:.0} Mbit/s, and {last} the least, {least:.0}, where {}.",
            waits(run)
        ),
    }
}
