//! Thread 001: SLUB with queues, July 2010.

use quarry_machines::Key;
use quarry_sim::sched::{WakeOrder, WakePlace};
use quarry_work::load::{Load, LoadSpec, TcpRr};
use quarry_work::world::Transport;

use super::Thread;
use super::loads::{RATE, TIME, hackbench, load, tasks_stay};
use crate::others::Other;
use crate::plan::{Arms, Experiment};
use crate::published::{Csv, HACKBENCH, TCP_RR, TCP_RR_REMOTE};
use crate::results::{Arm, Results};
use crate::setting::Mode;
use crate::show::{Line, Origin, Plot, Row, Table};
use crate::spec::{ClaimSpec, Formula};

pub(super) const THREAD: Thread = Thread {
    name: "slubq-2010",
    title: "[S+Q2 00/19] SLUB with queueing beats SLAB netperf TCP_RR (July 2010)",
    question: "SLUB with per-CPU queues needs a fifth less time for hackbench than SLAB and SLUB, and does 2 to 5 % more \
               TCP_RR transactions. Do queues of objects beat queues of slabs?",
    taken: "No number of this thread. A message's cycles beside memory are 3132 instructions at 3 a cycle (J. Kim, 2012); TCP's \
            are those of thread 000.",
    why: "A receiver frees what senders took. SLUB writes each object and its slab's descriptor, lines that other CPUs have; \
          queues keep pointers, and give objects back many at a time. How much that saves depends on how many messages a task \
          sends or reads before another one runs: more than a queue holds go to the slabs all the same.",
    experiments,
    claims,
    others,
    show,
};

const MACHINE: &str = "harpertown-2x4";
const DESIGNS: [(&str, &str, &str); 3] = [
    ("slab", "slab@2.6.35", "slab_s"),
    ("slub", "slub@2.6.35", "slub_s"),
    ("slubq", "slubq@2.6.35", "slubq_s"),
];
/// The design without a published number of TCP_RR: no claim or table has its runs.
const HACKBENCH_ALONE: &str = "slub";
const GROUPS: [u32; 3] = [1, 10, 100];
const PAIRS: [u32; 5] = [8, 24, 48, 72, 96];
/// Pairs of the machine whose servers are on another one.
const REMOTE_PAIRS: [u32; 4] = [16, 64, 128, 192];

const OF_HACKBENCH: Origin = Origin::of(
    MACHINE,
    "quarry run hackbench -g 1,10 -l 60 --machine harpertown-2x4 --design slab,slub,slubq --era 2.6.35",
);
const OF_TCP_RR: Origin = Origin::of(
    MACHINE,
    "quarry run tcp_rr -n 8,24,48,72,96 --machine harpertown-2x4 --design slab,slubq --era 2.6.35",
);
/// Ending of the names of runs of pairs.
const LOOPBACK: &str = "pairs";
const REMOTE: &str = "remote pairs";

/// D. Rientjes' machine: 16 cores and four nodes. Its processor was not named; it is taken for the bundled Opteron with
/// four sockets.
fn four_nodes(spec: &mut LoadSpec) {
    spec.setup.machine.name = "barcelona-4x4".to_string();
    spec.setup.machine.topology.sockets = 4;
    spec.setup.machine.topology.nodes = 4;
    spec.cpus = 16;
}

fn experiments(mode: Mode) -> Vec<Experiment> {
    let mut all = Vec::new();
    for (name, design, _) in DESIGNS {
        let runs = match mode {
            // 100 groups take a minute and a half a run.
            Mode::Quick => vec![(1, 300), (10, 50)],
            Mode::Full => vec![(1, 500), (10, 200), (100, 100)],
        };
        for (groups, loops) in runs {
            let messages = f64::from(400 * groups * loops);
            let mut run = load(
                format!("{name}, {groups} groups"),
                messages / 60_000.0,
                design,
                MACHINE,
                hackbench(groups, loops),
                |_| Ok(()),
            );
            // 100 groups take too long to repeat; their claims say so by an empty band.
            if groups == 100 {
                run.arms = Arms::Values;
            }
            all.push(run);
        }
        if name == HACKBENCH_ALONE {
            continue;
        }
        for pairs in PAIRS {
            let time_ns = match mode {
                Mode::Quick => 10_000_000,
                Mode::Full => 50_000_000,
            };
            let change = move |spec: &mut LoadSpec| {
                spec.time_ns = time_ns;
                Ok(())
            };
            let tcp_rr = Load::TcpRr(TcpRr {
                pairs,
                ..TcpRr::default()
            });
            let name = format!("{name}, {pairs} {LOOPBACK}");
            all.push(load(name, 0.1, design, MACHINE, tcp_rr, change));
        }
        for pairs in REMOTE_PAIRS {
            let time_ns = match mode {
                Mode::Quick => 10_000_000,
                Mode::Full => 50_000_000,
            };
            let change = move |spec: &mut LoadSpec| {
                four_nodes(spec);
                spec.time_ns = time_ns;
                Ok(())
            };
            let tcp_rr = Load::TcpRr(TcpRr {
                pairs,
                remote: true,
                ..TcpRr::default()
            });
            let name = format!("{name}, {pairs} {REMOTE}");
            all.push(load(name, 0.2, design, "barcelona-2x4", tcp_rr, change));
        }
    }
    all
}

/// By how many per cent a design takes longer than another one.
fn longer(arm: Arm<'_>, of: &str, against: &str, groups: u32) -> Option<f64> {
    let [of, against] = [of, against].map(|design| format!("{design}, {groups} groups"));
    arm.change(&of, &against, TIME)
}

/// By how many per cent S+Q does more than SLAB, for all numbers of pairs.
fn gains(arm: Arm<'_>, pairs: &[u32], kind: &str) -> Option<Vec<f64>> {
    let gain = |pairs: &u32| {
        let [of, against] = ["slubq", "slab"].map(|design| format!("{design}, {pairs} {kind}"));
        arm.change(&of, &against, RATE)
    };
    pairs.iter().map(gain).collect()
}

fn least(figures: Vec<f64>) -> f64 {
    figures.into_iter().fold(f64::INFINITY, f64::min)
}

fn most(figures: Vec<f64>) -> f64 {
    figures.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// The number of messages that wait, and where woken tasks run, are not published.
fn others() -> Vec<Other> {
    const HACKBENCH: &[&str] = &["10-groups", "1-group"];
    const PAIRS_OF: &[&str] = &["tcp-rr", "two-machines"];
    let stays = "yes: where 2.6.35 woke tasks is not published";
    let mut all = vec![
        Other::load(
            "at most 11 messages wait for a reader (hackbench --datagram)",
            "no: hackbench of that time used stream sockets; a real 6.18 holds 75 to 100",
            HACKBENCH,
            |spec| {
                if let Load::Hackbench(hackbench) = &mut spec.load {
                    hackbench.transport = Transport::Datagram;
                }
            },
        ),
        Other::load(
            "a woken task runs at once (--wake-order immediate)",
            "no: 2.6.35 shared CPUs fairly",
            HACKBENCH,
            |spec| spec.sched.order = WakeOrder::Immediate,
        ),
        tasks_stay(stays, &[]),
        Other::load(
            "a woken task runs on its waker's CPU unless its own is idle (--wake-place affine)",
            stays,
            PAIRS_OF,
            |spec| spec.sched.place = WakePlace::Affine,
        ),
    ];
    all.extend(Other::costs(&[
        Key::DirtySocket,
        Key::DirtyRemote,
        Key::Window,
        Key::Atomic,
    ]));
    all
}

fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure: Formula| ClaimSpec::published(THREAD.name, id, figure);
    vec![
        claim("100-groups-slub", |arm| longer(arm, "slubq", "slub", 100)),
        claim("100-groups-slab", |arm| longer(arm, "slubq", "slab", 100)),
        claim("10-groups-slub", |arm| longer(arm, "slubq", "slub", 10)),
        claim("1-group-slab", |arm| longer(arm, "slubq", "slab", 1)),
        claim("1-group-slub", |arm| longer(arm, "slubq", "slub", 1)),
        claim("tcp-rr-least", |arm| {
            gains(arm, &PAIRS, LOOPBACK).map(least)
        }),
        claim("tcp-rr-most", |arm| gains(arm, &PAIRS, LOOPBACK).map(most)),
        claim("two-machines-least", |arm| {
            gains(arm, &REMOTE_PAIRS, REMOTE).map(most)
        }),
        claim("two-machines-most", |arm| {
            gains(arm, &REMOTE_PAIRS, REMOTE).map(least)
        }),
    ]
}

/// Rows of what both designs do, for all numbers of pairs.
fn rates(results: &Results, pairs: &[u32], kind: &str, published: Csv) -> Vec<Row> {
    let mut rows = Vec::new();
    for pairs in pairs {
        let threads = pairs.to_string();
        for (name, title, column) in [
            ("slab", "SLAB", "slab_rate"),
            ("slubq", "S+Q", "slubq_rate"),
        ] {
            let run = format!("{name}, {pairs} {kind}");
            rows.push(Row::of(
                format!("{pairs} pairs, {title}"),
                published.number(column, &[("threads", threads.as_str())]),
                results,
                |arm| arm.get(&run, RATE),
            ));
        }
    }
    rows
}

fn show(results: &Results) -> (Vec<Table>, Vec<Plot>) {
    let slowest = |groups: u32, column: &str| {
        let groups = groups.to_string();
        let which = [("groups", groups.as_str()), ("loops", "20000")];
        HACKBENCH.number(column, &which)
    };
    let mut ratios = Vec::new();
    for groups in GROUPS {
        for (name, title, column) in [("slub", "SLUB", "slub_s"), ("slubq", "S+Q", "slubq_s")] {
            let published = slowest(groups, column).zip(slowest(groups, "slab_s"));
            let label = format!("{groups} groups, {title}");
            ratios.push(Row::of(
                label,
                published.map(|(of, slab)| 100.0 * (of / slab - 1.0)),
                results,
                move |arm| longer(arm, name, "slab", groups),
            ));
        }
    }
    let hackbench = Table {
        title: "hackbench on 8 CPUs: time against SLAB".to_string(),
        unit: "%",
        origin: OF_HACKBENCH,
        rows: ratios,
    };
    let tcp_rr = Table {
        title: "TCP_RR over loopback on 8 CPUs".to_string(),
        unit: "transactions a second",
        origin: OF_TCP_RR,
        rows: rates(results, &PAIRS, LOOPBACK, TCP_RR),
    };
    let remote = Table {
        title: "TCP_RR between two machines of 16 CPUs and four nodes (D. Rientjes)".to_string(),
        unit: "transactions a second",
        origin: Origin::of("barcelona-2x4, with four sockets and nodes", ""),
        rows: rates(results, &REMOTE_PAIRS, REMOTE, TCP_RR_REMOTE),
    };
    let mut times = Vec::new();
    for (name, title, column) in [("slub", "SLUB", "slub_s"), ("slubq", "S+Q", "slubq_s")] {
        let found = |arm: Arm<'_>, groups| Some(1.0 + longer(arm, name, "slab", groups)? / 100.0);
        times.push(Line::simulated(title, results, &GROUPS, found));
        times.push(Line::published(title, &GROUPS, |groups| {
            Some(slowest(groups, column)? / slowest(groups, "slab_s")?)
        }));
    }
    let times = Plot {
        title: "hackbench: time against SLAB".to_string(),
        x: "groups",
        logarithmic: true,
        y: "time, SLAB = 1",
        origin: OF_HACKBENCH,
        lines: times,
    };
    let mut gains_of = Vec::new();
    for (title, kind, pairs, table) in [
        ("loopback", LOOPBACK, &PAIRS[..], TCP_RR),
        ("two machines", REMOTE, &REMOTE_PAIRS, TCP_RR_REMOTE),
    ] {
        gains_of.push(Line::simulated(title, results, pairs, |arm, pairs| {
            gains(arm, &[pairs], kind).map(least)
        }));
        gains_of.push(Line::published(title, pairs, |pairs| {
            let pairs = pairs.to_string();
            let rate = |column| table.number(column, &[("threads", pairs.as_str())]);
            Some(100.0 * (rate("slubq_rate")? / rate("slab_rate")? - 1.0))
        }));
    }
    let gains_of = Plot {
        title: "TCP_RR: transactions of S+Q against SLAB".to_string(),
        x: "pairs",
        logarithmic: false,
        y: "more than SLAB, %",
        origin: Origin {
            machine: "harpertown-2x4, and barcelona-2x4 with four sockets and nodes",
            ..OF_TCP_RR
        },
        lines: gains_of,
    };
    (vec![hackbench, tcp_rr, remote], vec![times, gains_of])
}
