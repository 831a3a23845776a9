//! `quarry run rx --sensitivity`: which results of the thread come out wherever the machine's constants are.

use quarry_core::era::Era;
use quarry_machines::{Draw, Machine};
use quarry_work::rx::{self, OutsideWork, RxReport, RxRun};
use quarry_work::sensitivity::{Claim, Figure, Samples, Study, within};

use crate::commands::sensitivity::{self, Report};
use crate::units;

/// Megabits of user data a second at 100 Gbit/s: 1448 bytes of a packet that takes 1538 on the wire.
const LINE_MBIT: f64 = 94_148.0;
/// The part of it that counts as the line rate.
const LINE_PART: f64 = 0.98;
/// Rings with which the thread's drivers #1 and #3 reach it.
const LINE_RINGS: u32 = 6;
/// Rings of the driver without a page cache for which the time in the zone lock is judged.
const LOCK_RINGS: u32 = 16;
/// Per cent from a bandwidth of the thread that count as the same.
const NEAR: f64 = 15.0;

const MBIT: &str = "mbit";
const ZONE_LOCK: &str = "zone_lock_share";

fn figures(report: &RxReport) -> Vec<Figure> {
    vec![
        (MBIT, report.mbit_per_second),
        (ZONE_LOCK, report.zone_lock_share),
    ]
}

/// Runs all arms. The packet's work beside memory is found anew in each: it is the rest of what the thread measured.
pub(crate) fn explore(
    (machine, seed, jobs): (&Machine, u64, usize),
    specs: &[RxRun],
    reports: &[RxReport],
) -> anyhow::Result<Report> {
    let spent = reports.iter().map(|report| &report.spent);
    let study = Study::new(machine, spent, seed);
    let draws: Vec<&Draw> = study.arms().iter().map(|arm| &arm.draw).collect();
    let outside = match specs.first() {
        Some(first) => OutsideWork::of_draws(&draws, &first.rx, jobs)?,
        None => Vec::new(),
    };
    let values = reports.iter().map(figures).collect();
    let samples = sensitivity::explore(&study, specs, values, jobs, |spec, arm| {
        let mut spec = spec.clone();
        spec.draw = arm.draw.clone();
        spec.outside = outside[arm.number];
        spec.rx.seed = arm.seed;
        rx::run(&spec, &|_| ()).map(|report| figures(&report))
    })?;
    let numbered: Vec<Run<'_>> = reports.iter().enumerate().collect();
    let drivers = || numbered.chunk_by(|(_, a), (_, b)| same_driver(a, b));
    let claims = drivers().flat_map(|runs| claims(&samples, runs)).collect();
    Ok(Report::new(&samples, claims))
}

/// A run with its number.
type Run<'a> = (usize, &'a RxReport);

fn same_driver(a: &RxReport, b: &RxReport) -> bool {
    (a.driver, a.era, a.page_size) == (b.driver, b.era, b.page_size)
}

fn about(run: &RxReport) -> String {
    let pages = units::bytes(run.page_size);
    format!("{}, era {}, {pages} pages", run.driver, run.era)
}

fn rings(rings: u32) -> String {
    match rings {
        1 => "1 ring".to_string(),
        several => format!("{several} rings"),
    }
}

/// True if the thread has the run's driver, kernel, pages and packets.
fn is_of_thread(run: &RxReport) -> bool {
    let kernel = run.era == Era::V4_13.name() && run.page_size == 4096;
    run.thread_driver.is_some() && kernel && run.mtu == 1500
}

/// Rings with which the driver without a page cache has most.
const PEAK: std::ops::RangeInclusive<u32> = 5..=7;

/// The thread's claims about the drivers that have runs.
fn claims(samples: &Samples, runs: &[Run<'_>]) -> Vec<Claim> {
    let runs: Vec<Run<'_>> = runs
        .iter()
        .copied()
        .filter(|(_, run)| is_of_thread(run))
        .collect();
    let Some((_, first)) = runs.first() else {
        return Vec::new();
    };
    let about = about(first);
    if first.driver != "none" {
        let at_line_rate = runs.iter().filter(|(_, run)| run.rings == LINE_RINGS);
        let claims = at_line_rate.filter_map(|(number, run)| {
            let claim = format!(
                "{} reaches the line rate with {LINE_RINGS} rings",
                run.driver
            );
            samples.claim(&about, &claim, |sample| {
                Some(sample.figure(*number, MBIT)? >= LINE_PART * LINE_MBIT)
            })
        });
        return claims.collect();
    }
    let near = runs.iter().filter_map(|(number, run)| {
        let published = run.published_mbit_per_second?;
        let claim = format!(
            "none within {NEAR} % of the thread's {published} Mbit/s with {}",
            rings(run.rings)
        );
        samples.claim(&about, &claim, |sample| {
            Some(within(sample.figure(*number, MBIT)?, NEAR, published))
        })
    });
    let lock = runs.iter().filter(|(_, run)| run.rings == LOCK_RINGS);
    let lock = lock.filter_map(|(number, _)| {
        let claim = format!(
            "none waits for the zone lock for more than half of busy CPUs' time with {LOCK_RINGS} rings"
        );
        samples.claim(&about, &claim, |sample| {
            Some(sample.figure(*number, ZONE_LOCK)? > 0.5)
        })
    });
    peak(samples, &about, &runs)
        .into_iter()
        .chain(near)
        .chain(lock)
        .collect()
}

/// The claim that bandwidth has a peak; `None` unless there are runs with fewer and with more rings.
fn peak(samples: &Samples, about: &str, runs: &[Run<'_>]) -> Option<Claim> {
    let counts = || runs.iter().map(|(_, run)| run.rings);
    let most = counts().max()?;
    let has_sides = counts().min()? < *PEAK.start() && most > *PEAK.end();
    if !has_sides || !counts().any(|rings| PEAK.contains(&rings)) {
        return None;
    }
    let (low, high) = PEAK.into_inner();
    let claim = format!("none peaks with {low} to {high} rings and has less with {most}");
    samples.claim(about, &claim, |sample| {
        let figures = runs
            .iter()
            .map(|(number, run)| Some((run.rings, sample.figure(*number, MBIT)?)));
        let figures: Vec<(u32, f64)> = figures.collect::<Option<_>>()?;
        let best = |is_peak: bool| {
            let of = figures
                .iter()
                .filter(|(rings, _)| PEAK.contains(rings) == is_peak);
            of.fold(0.0, |best: f64, (_, mbit)| best.max(*mbit))
        };
        Some(best(true) > best(false))
    })
}
