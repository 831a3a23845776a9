//! Compares hackbench and TCP_RR on threads of this computer with the same tasks on virtual CPUs.
//!
//! Threads have no protocols and enter the kernel to sleep and to wake only. What their queues, mutexes and counts cost a
//! message is the one figure that is taken from a run: SLUB of 6.18 on one CPU. All others are compared.

use std::error::Error;
use std::time::Duration;

use quarry_core::design::Design;
use quarry_core::era::Era;
use quarry_core::sheaf::SheafCache;
use quarry_core::slab::SlabCache;
use quarry_core::slub::Slub;
use quarry_machines::{Key, Machine, Unit};
use quarry_work::Setup;
use quarry_work::load::host::{self, HostSpec};
use quarry_work::load::{self, Hackbench, Load, LoadSpec, SchedRules, TcpRr};
use quarry_work::net::SendSizes;
use quarry_work::world::Transport;
use quarry_work::{Tuning, WorkError};

use crate::common::{allow, median, table};

/// Largest relative difference between a simulated figure and the host's.
const TOLERANCE: f64 = 0.3;
const MEMORY_BYTES: u64 = 1 << 30;

/// A load, and the messages of one of its operations.
const LOADS: [(&str, Load, f64); 4] = [
    ("hackbench -g 1 -f 4", hackbench(1, 4, 2000), 1.0),
    ("hackbench -g 2 -f 10", hackbench(2, 10, 160), 1.0),
    ("tcp_rr -n 1", tcp_rr(1), 2.0),
    ("tcp_rr -n 4", tcp_rr(4), 2.0),
];

const fn hackbench(groups: u32, descriptors: u32, loops: u32) -> Load {
    Load::Hackbench(Hackbench {
        groups,
        descriptors,
        loops,
        bytes: 100,
        transport: Transport::Unix,
    })
}

const fn tcp_rr(pairs: u32) -> Load {
    Load::TcpRr(TcpRr {
        pairs,
        request: 1,
        response: 1,
        remote: false,
    })
}

/// Nanoseconds and switches an operation.
type Took = (f64, f64);

/// Time of an operation on threads. They send ten times the messages of the simulated tasks: the first ones are the
/// heap's first use of its pages, for which the operating system clears them.
fn on_host<D: Design>(load: Load, era: Era) -> Result<Took, WorkError> {
    let load = match load {
        Load::Hackbench(it) => Load::Hackbench(Hackbench {
            loops: 10 * it.loops,
            ..it
        }),
        other => other,
    };
    let report = host::run::<D>(&HostSpec {
        load,
        time: Duration::from_millis(100),
        era,
        sizes: SendSizes::of(era),
        tuning: Tuning::default(),
        changes: Vec::new(),
        page_bytes: 4096,
        memory_bytes: MEMORY_BYTES,
        seed: 1,
    })?;
    let switches = report.switches.unwrap_or(f64::NAN);
    Ok((1e9 / report.per_second, switches))
}

/// The same on virtual CPUs.
fn simulated<D: Design>(
    load: Load,
    era: Era,
    cpus: u32,
    machine: &Machine,
    cycles: f64,
) -> Result<Took, WorkError> {
    let machine = [Key::UnixMessage, Key::TcpSegment]
        .into_iter()
        .fold(machine.clone(), |machine, key| {
            machine.given(key, Unit::Cycles, cycles)
        });
    let setup = Setup {
        memory_bytes: MEMORY_BYTES,
        ..Setup::new(era, machine)
    };
    let spec = LoadSpec {
        cpus,
        time_ns: 20_000_000,
        sched: SchedRules::of(kernel()),
        // Threads count all of hackbench.
        count_start: matches!(load, Load::Hackbench(_)),
        ..LoadSpec::new(load, setup)
    };
    let report = load::run::<D>(&spec, &|_| ())?;
    Ok((1e9 / report.per_second, report.switches))
}

/// Release of this computer's kernel, which schedules the threads whatever the design's era is.
fn kernel() -> Era {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Era::parse(release.trim()).unwrap_or(Era::LAST)
}

/// A design by its name.
type Arm = (
    &'static str,
    Era,
    fn(Load, Era) -> Result<Took, WorkError>,
    fn(Load, Era, u32, &Machine, f64) -> Result<Took, WorkError>,
);

const ARMS: [Arm; 3] = [
    ("slub@6.18", Era::V6_18, on_host::<Slub>, simulated::<Slub>),
    (
        "slab@6.1",
        Era::V6_1,
        on_host::<SlabCache>,
        simulated::<SlabCache>,
    ),
    (
        "sheaf@7.0",
        Era::V7_0,
        on_host::<SheafCache>,
        simulated::<SheafCache>,
    ),
];

/// Compares all of them. `library` has the costs of the allocators here, `computer` those of switches and wake-ups.
pub(crate) fn run(
    library: &Machine,
    computer: &Machine,
    visits: usize,
) -> Result<(), Box<dyn Error>> {
    let mut machine = library.clone();
    for key in [Key::Switch, Key::RemoteWake] {
        if let Some(cost) = computer.cost(key) {
            machine = machine.with(key, cost.clone());
        }
    }
    for key in [Key::CleanCluster, Key::DirtyCluster, Key::RemoteWake] {
        if let Some(cost) = machine.cost(key) {
            println!("{key:?}: {:.1} {}", cost.value, cost.unit.name());
        }
    }
    let mut table = table([
        "load",
        "CPUs",
        "host ns",
        "again (null)",
        "simulated",
        "ratio",
        "",
        "host\nswitches",
        "simulated",
    ]);
    let (mut near, mut all) = (0, 0);
    for (name, load, messages) in LOADS {
        let mut taken_cycles = None;
        for cpus in [1, 2] {
            // Rounds of all designs in turn, each twice.
            let mut switches = vec![Vec::new(); ARMS.len()];
            let mut host: Vec<[Vec<f64>; 2]> = vec![Default::default(); ARMS.len()];
            allow(0..cpus as usize);
            for _ in 0..visits {
                for (((_, era, on_host, _), times), switches) in
                    ARMS.iter().zip(&mut host).zip(&mut switches)
                {
                    for arm in times {
                        let (ns, switched) = on_host(load, *era)?;
                        arm.push(ns);
                        switches.push(switched);
                    }
                }
            }
            for (((design, era, _, simulated), times), switches) in
                ARMS.iter().zip(host).zip(switches)
            {
                let [host_ns, again_ns] = times.map(median);
                let cycles = match taken_cycles {
                    Some(cycles) => cycles,
                    None => {
                        let (bare_ns, _) = simulated(load, *era, cpus, &machine, 0.0)?;
                        (host_ns - bare_ns).max(1.0) * machine.ghz / messages
                    }
                };
                taken_cycles = Some(cycles);
                let (simulated_ns, simulated_switches) =
                    simulated(load, *era, cpus, &machine, cycles)?;
                let ratio = simulated_ns / host_ns;
                let is_near = (ratio - 1.0).abs() <= TOLERANCE;
                let taken = cpus == 1 && *design == ARMS[0].0;
                near += u32::from(is_near && !taken);
                all += u32::from(!taken);
                table.add_row([
                    format!("{name}, {design}"),
                    cpus.to_string(),
                    format!("{host_ns:.0}"),
                    format!("{:.2}", again_ns / host_ns),
                    format!("{simulated_ns:.0}"),
                    format!("{ratio:.2}"),
                    match (taken, is_near) {
                        (true, _) => "taken".to_string(),
                        (false, true) => "near".to_string(),
                        (false, false) => "far".to_string(),
                    },
                    format!("{:.3}", median(switches)),
                    format!("{simulated_switches:.3}"),
                ]);
            }
        }
        println!(
            "{name}: a message takes {:.0} cycles outside of the allocators",
            taken_cycles.unwrap_or(f64::NAN)
        );
    }
    println!("{table}\n{near} of {all} within {:.0} %", TOLERANCE * 100.0);
    Ok(())
}
