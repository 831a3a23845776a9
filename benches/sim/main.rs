//! Speed of simulated time on this machine, and its memory.
//!
//! Each row is a virtual machine with clocks: its CPUs allocate, write and free objects, half of them on the neighbour
//! ([`ring`]). An event is an allocation or a free. The last rows are processes that fault and exit, whose events are
//! faults and frees of a page; most of their time goes into the lines of pages that are filled with zeros. Memory is what
//! a row needs at most beyond what the process has before it: the machine, and the pages that allocators write to.
//!
//! `cargo bench --bench sim -- --help` lists the options.

#[path = "../common/mod.rs"]
mod common;
mod ring;

use clap::Parser;
use comfy_table::Table;
use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slub::Slub;
use quarry_machines::{Draw, Machine};
use quarry_sim::Config;
use quarry_work::Setup;
use quarry_work::pages::{self, PagesSpec};

use ring::Ran;

/// Options of the benchmark.
#[derive(Parser, Debug)]
#[command(about = "Times virtual machines with clocks")]
struct Options {
    /// Allocations and frees of a row.
    #[arg(long, default_value_t = 1 << 20)]
    events: u64,
    /// Runs of a row.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// CPU to run on.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Only rows whose name contains this.
    #[arg(long, default_value = "")]
    row: String,
    /// For the other benchmarks, which `cargo bench` gives the same options.
    #[arg(long, hide = true)]
    json: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Machines with the numbers of their CPUs that are tried.
const MACHINES: [(&str, &[u32]); 2] = [
    ("haswell-ep-2x12", &[1, 2, 12, 24]),
    ("milan-2x64", &[1, 2, 16, 64, 128]),
];

/// Processes of the pages' rows, on the last machine.
const PROCESSES: [u32; 2] = [64, 128];

fn main() {
    let options = Options::parse();
    common::end_with_reader();
    common::pin(options.cpu);
    let mut table = common::table([
        "row",
        "events/s",
        "ns an event (min)",
        "simulated ns",
        "MiB",
    ]);
    for (design, run) in [
        ("slub 6.18", slub as fn(Config, u64) -> Ran),
        ("sheaf 7.0", sheaf),
    ] {
        for (machine, cpus) in MACHINES {
            for &cpus in cpus {
                let name = format!("{design}, {machine}, {cpus} CPUs");
                let config = config(machine, cpus);
                add(&mut table, &options, &name, || run(config, options.events));
            }
        }
    }
    for processes in PROCESSES {
        let name = format!("pages 6.18, milan-2x64, {processes} processes");
        add(&mut table, &options, &name, || pages(processes));
    }
    println!(
        "virtual machines with clocks: median of {} runs",
        options.rounds
    );
    println!("{table}");
}

fn slub(config: Config, events: u64) -> Ran {
    ring::run::<Slub>(config, Era::V6_18, events)
}

fn sheaf(config: Config, events: u64) -> Ran {
    ring::run::<SheafCache>(config, Era::V7_0, events)
}

fn machine(name: &str) -> Machine {
    Machine::bundled(name).expect("a bundled machine")
}

fn config(name: &str, cpus: u32) -> Config {
    let base = Config::default();
    // The costs of an era differ in its locks only: queued ones in both.
    let config = machine(name).config(cpus, Era::V6_18, &Draw::VALUES, 1, base);
    config.expect("CPUs that the machine has")
}

/// Processes that map and unmap 16 MiB each, at least five times.
fn pages(processes: u32) -> Ran {
    let spec = PagesSpec {
        processes,
        pages: 4096,
        rounds: 3,
        ..PagesSpec::new(Setup {
            memory_bytes: 16 << 30,
            ..Setup::new(Era::V6_18, machine("milan-2x64"))
        })
    };
    let began = cpu_seconds();
    let report = pages::run(&spec).expect("room for all pages");
    let seconds = cpu_seconds() - began;
    // Two are not counted.
    let rounds = u64::from(spec.rounds) + 2;
    let pages = u64::from(spec.pages) * u64::from(processes) * rounds;
    let ns = report.fault.ns + report.free.ns;
    Ran {
        events: 2 * pages,
        seconds,
        simulated_ns: (ns * f64::from(spec.pages) * rounds as f64) as u64,
    }
}

/// Runs a row some times, and adds it.
fn add(table: &mut Table, options: &Options, name: &str, run: impl Fn() -> Ran) {
    if !name.contains(&options.row) {
        return;
    }
    let before = resident_kib("VmRSS:");
    // Begins the peak anew; where the system refuses it, the peak of earlier rows stays.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let runs: Vec<Ran> = (0..options.rounds.max(1)).map(|_| run()).collect();
    let most = resident_kib("VmHWM:").saturating_sub(before);
    let ns = |ran: &Ran| ran.seconds * 1e9 / ran.events as f64;
    let median = common::median(runs.iter().map(ns));
    let least = runs.iter().map(ns).fold(f64::MAX, f64::min);
    table.add_row([
        name.to_string(),
        format!("{:.2} M", 1e3 / median),
        format!("{median:.0} ({least:.0})"),
        runs[0].simulated_ns.to_string(),
        format!("{:.0}", most as f64 / 1024.0),
    ]);
}

/// CPU seconds of this process: waiting for neighbours on this machine does not count.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place for the answer is this function's.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A size of this process in KiB.
fn resident_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
