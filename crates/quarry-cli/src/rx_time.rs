//! `quarry run rx` in simulated time: bandwidths beside the thread's, and what limits them.

use quarry_machines::Draw;
use quarry_work::rx::RxSpec;
use quarry_work::rx::timed::{self, OutsideWork, RxTimeReport, RxTimeSpec};

use crate::output::{self, Grid};
use crate::rx::{self, Args};
use crate::rx_sensitivity;
use crate::sensitivity::Timed;

/// Runs the receivers and prints what they had.
pub(crate) fn run(args: &Args, receivers: &[RxSpec]) -> anyhow::Result<()> {
    let machine = args.machine.machine()?;
    let specs: Vec<RxTimeSpec> = receivers
        .iter()
        .map(|rx| RxTimeSpec {
            rx: rx.clone(),
            machine: machine.clone(),
            draw: Draw::VALUES,
            outside: OutsideWork::THREAD,
        })
        .collect();
    for spec in &specs {
        spec.config()?;
    }
    let bar = output::progress_bar("rx", rx::packets(receivers), "packets");
    let reports = quarry_work::run_all(&specs, args.machine.jobs(), |spec| {
        timed::run(spec, &|packets| bar.inc(packets))
    });
    bar.finish_and_clear();
    let reports = reports?;
    let study = match args.sensitivity {
        true => Some(rx_sensitivity::explore(args, &machine, &specs, &reports)?),
        false => None,
    };
    let (study, groups) = study.unzip();
    let timed = Timed {
        workload: "rx",
        settings: None,
        runs: &reports,
        sensitivity: study.as_ref(),
    };
    timed.print(args.json, &groups.unwrap_or_default(), || text(&reports))
}

/// Bandwidths first, then the causes of each driver's.
fn text(reports: &[RxTimeReport]) -> String {
    let Some(first) = reports.first() else {
        return String::new();
    };
    let mut text = format!(
        "rx on {}: {} streams of {}-byte packets offered at 100 Gbit/s, read on {} CPUs\n\
         seed {}; {:.0} ns of each packet are from the thread (driver #1, one ring)\n",
        first.machine, first.streams, first.mtu, first.consumer, first.seed, first.outside_ns,
    );
    for runs in reports.chunk_by(|a, b| (a.era, a.page_size) == (b.era, b.page_size)) {
        let Some(run) = runs.first() else { continue };
        let pages = crate::units::bytes(run.page_size);
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
            causes(runs)
        );
    }
    text
}

pub(crate) fn same_driver(a: &RxTimeReport, b: &RxTimeReport) -> bool {
    (a.driver, a.era, a.page_size) == (b.driver, b.era, b.page_size)
}

/// Columns that the number of rings takes, and those of a driver, with their padding.
const RINGS_COLUMNS: u16 = 7;
const DRIVER_COLUMNS: u16 = 20;

/// A line for each number of rings, drivers side by side with what the thread measured.
fn bandwidths(runs: &[RxTimeReport]) -> Vec<Grid> {
    let drivers: Vec<&[RxTimeReport]> = runs.chunk_by(same_driver).collect();
    let fit = (output::width().saturating_sub(RINGS_COLUMNS) / DRIVER_COLUMNS).max(1);
    drivers.chunks(fit.into()).map(bandwidth_table).collect()
}

fn bandwidth_table(drivers: &[&[RxTimeReport]]) -> Grid {
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
type Column = (&'static str, fn(&RxTimeReport) -> String);

const COLUMNS: [Column; 8] = [
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

/// How busy CPUs were, shares of their time, and what a packet cost.
fn causes(runs: &[RxTimeReport]) -> Grid {
    let mut table = output::grid(&COLUMNS.map(|(name, _)| name), &[]);
    for run in runs {
        table.add_row(COLUMNS.map(|(_, cell)| cell(run)));
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn zone_hold_ns(run: &RxTimeReport) -> f64 {
    let zone = run.causes.locks.iter().find(|lock| lock.class == "zone");
    zone.map_or(0.0, |lock| lock.hold_ns)
}
