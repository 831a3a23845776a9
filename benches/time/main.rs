//! Compares simulated time with real threads on this computer: the third rung of the ladder in docs/time.md.
//!
//! The computer is calibrated (or described by `--machine FILE`), and the library's primitives are measured
//! (`primitives.rs`). With both, the same allocator code runs on a virtual machine, and by real threads. Rounds of all
//! workloads take turns, and each workload is measured twice: the second time is the null arm.
//!
//! `cargo bench --bench time -- --help` lists the options.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/counting.rs"]
mod counting;
mod host;
mod loads;
mod primitives;
mod ranks;
mod report;
mod workload;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use quarry_calibrate::measure::transfer;
use quarry_calibrate::{Effort, Sample, calibrate};
use quarry_machines::{Key, Machine};

use common::median;
use host::Halves;
use primitives::Primitives;
use ranks::Arm;
use report::Row;
use workload::Workload;

/// Options of the benchmark.
#[derive(Parser, Debug)]
#[command(about = "Compares simulated times with those of real threads on this computer")]
struct Options {
    /// Machine file of this computer (`quarry calibrate`); by default it is calibrated first.
    #[arg(long)]
    machine: Option<PathBuf>,
    /// Write the machines that are simulated into this folder: the computer, and the library on it.
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
    /// Visits of each workload.
    #[arg(long, default_value_t = 9)]
    visits: usize,
    /// Rounds of a visit; the first tenth warms up.
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// CPUs: 1 or 2.
    #[arg(long, default_value_t = 2)]
    cpus: usize,
    /// Free objects in a shuffled order, which prefetchers do not foresee. The simulation has no prefetchers, and stays.
    #[arg(long)]
    shuffle: bool,
    /// Compare hackbench and TCP_RR on threads with the same on virtual CPUs, and nothing else.
    #[arg(long)]
    loads: bool,
    /// Rank five designs by real threads and by the simulation, and nothing else.
    #[arg(long, conflicts_with = "loads")]
    ranks: bool,
    /// Print what simulated times are made of.
    #[arg(long)]
    causes: bool,
    /// Print one JSON array instead of the table.
    #[arg(long)]
    json: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    common::end_with_reader();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("time: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let machine = match &options.machine {
        Some(path) => Machine::open(&path.display().to_string())?,
        None => calibrate("here", Effort::Full, &mut |step| {
            eprintln!("calibrate: {step}")
        })?,
    };
    let cpus = options.cpus.min(machine.topology.all_cpus() as usize);
    common::pin(0);
    let primitives = Primitives::measure();
    if let Some(folder) = &options.save {
        save(folder, &machine, &primitives)?;
    }
    if options.loads {
        return loads::run(&primitives.library_on(&machine), &machine, options.visits);
    }
    if options.ranks {
        return rank(options, &machine, &primitives.library_on(&machine), cpus);
    }
    let mut rows: Vec<Row> = Vec::new();
    for workload in Workload::all(cpus) {
        let library = primitives.library_on(&machine);
        let (simulated, causes) = workload.simulated(&library);
        if options.causes {
            eprintln!("{}: {simulated:?}\n  {causes:?}", workload.name());
        }
        rows.push(Row {
            workload,
            host: Vec::new(),
            null: Vec::new(),
            counted: None,
            simulated,
        });
    }
    let moved = visits(options, &machine, cpus, &mut rows);
    if rows.iter().all(|row| row.host.is_empty()) {
        return Err("the CPUs' distance was never as calibrated: run it again".into());
    }
    for row in &mut rows {
        // By itself: a look at the counters takes longer than some halves.
        row.workload.on_host(options.shuffle, &mut |load| {
            row.counted = host::counted(load, row.workload.cpus, options.rounds);
        });
    }
    if options.json {
        println!("{}", report::json(&rows));
        return Ok(());
    }
    let show = |sample: Sample| {
        format!(
            "{:.2} ns ({:.2} to {:.2})",
            sample.value, sample.low, sample.high
        )
    };
    println!(
        "simulated times and those of real threads, {}; {} visits of {} rounds, medians\nslot {}, call {}, access at hand {}",
        machine.about,
        options.visits,
        options.rounds,
        show(primitives.slot),
        show(primitives.call),
        show(primitives.access),
    );
    if moved > 0 {
        println!("{moved} visits left out: the CPUs' distance was not as calibrated");
    }
    report::print(&rows, machine.ghz);
    Ok(())
}

/// Largest relative change of the CPUs' distance from the calibrated one during a visit.
const DISTANCE_TOLERANCE: f64 = 0.25;

/// Visits all workloads in turn. A virtual machine's CPUs may move to other cores of their host, nearer to each other or
/// farther: a visit counts if their distance before and after it was the calibrated one. Returns how many did not.
fn visits(options: &Options, machine: &Machine, cpus: usize, rows: &mut [Row]) -> usize {
    each_visit(
        options,
        machine,
        cpus,
        rows,
        |row| [0, 1].map(|_| visit(options, &row.workload)),
        |row, [host, null]| {
            row.host.push(host);
            row.null.push(null);
        },
    )
}

/// [`visits`] of anything: `visit` measures one, and `keep` takes what counts.
fn each_visit<R, T>(
    options: &Options,
    machine: &Machine,
    cpus: usize,
    rows: &mut [R],
    visit: impl Fn(&R) -> T,
    keep: impl Fn(&mut R, T),
) -> usize {
    let calibrated = machine.nominal_ns(Key::DirtyCluster);
    let as_calibrated = || {
        let now = transfer::dirty([1, 0], Effort::Quick);
        cpus == 1 || now.is_ok_and(|now| (now.value / calibrated - 1.0).abs() <= DISTANCE_TOLERANCE)
    };
    let (mut counted, mut moved) = (0, 0);
    while counted < options.visits && moved < 4 * options.visits {
        let before = as_calibrated();
        let times: Vec<T> = rows.iter().map(&visit).collect();
        if !before || !as_calibrated() {
            moved += 1;
            continue;
        }
        counted += 1;
        for (row, times) in rows.iter_mut().zip(times) {
            keep(row, times);
        }
    }
    moved
}

/// Ranks designs by both.
fn rank(
    options: &Options,
    machine: &Machine,
    library: &Machine,
    cpus: usize,
) -> Result<(), Box<dyn Error>> {
    let mut arms = Arm::all(cpus, library)?;
    let visit = |arm: &Arm| arm.visit(options.rounds);
    let moved = each_visit(options, machine, cpus, &mut arms, visit, Arm::push);
    if moved >= 4 * options.visits {
        return Err("the CPUs' distance was never as calibrated: run it again".into());
    }
    if moved > 0 {
        eprintln!("{moved} visits left out: the CPUs' distance was not as calibrated");
    }
    ranks::print(&arms, options.json);
    Ok(())
}

fn save(folder: &Path, machine: &Machine, primitives: &Primitives) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let files = [
        ("computer.toml", machine.clone()),
        ("library.toml", primitives.library_on(machine)),
    ];
    for (name, machine) in files {
        std::fs::write(folder.join(name), machine.to_text())?;
    }
    Ok(())
}

/// The medians of some rounds on a fresh heap.
fn visit(options: &Options, workload: &Workload) -> Halves {
    let mut times = Vec::new();
    workload.on_host(options.shuffle, &mut |load| {
        times = host::rounds(load, workload.cpus, options.rounds);
    });
    let kept = &times[options.rounds / 10..];
    [0, 1].map(|half| {
        let times = kept.iter().map(|halves| halves[half]);
        median(times.filter(|ns| ns.is_finite()))
    })
}
