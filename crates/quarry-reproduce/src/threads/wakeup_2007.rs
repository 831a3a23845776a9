//! Thread 003: tbench and the order of wake-ups, September 2007.

use quarry_machines::Key;
use quarry_work::load::{Change, Load, LoadSpec, Tbench};

use super::loads::{HITS_4096, MB, SLOW, load};
use super::{Thread, loads};
use crate::others::Other;
use crate::plan::Experiment;
use crate::results::Results;
use crate::setting::Mode;
use crate::show::{Line, Origin, Plot, Row, Table};
use crate::spec::{ClaimSpec, Formula};

pub(super) const THREAD: Thread = Thread {
    name: "wakeup-2007",
    title: "tbench regression: why the scheduler has impact on tbench (September 2007)",
    question: "From 2.6.22 to 2.6.23-rc4 tbench loses 30 % on 8 cores, and SLUB's slow path goes from 3.8 to 15 % of the time. \
               Why does another scheduler make allocations slow, and would more slabs a CPU help?",
    taken: "No number of this thread. The protocols' cycles a segment are those of thread 000.",
    why: "A send takes a buffer of 4096 bytes, and a slab of kmalloc-4096 has two. If the woken peer runs at once, it answers \
          from the slab's other object, and the first one is free again before the next send. If it waits for its turn, \
          another client sends before: the slab is full, another one takes its place, and all frees go to slabs that no CPU \
          has. With a few slabs a CPU the next free object is at hand again.",
    experiments,
    claims,
    others,
    show,
};

const MACHINE: &str = "clovertown-2x4";
/// Slabs a CPU may have, in the plot.
const SLABS: [u32; 4] = [1, 2, 4, 8];

const OF_RELEASES: Origin = Origin::of(
    MACHINE,
    "quarry run tbench 16 --machine clovertown-2x4 --design slub@2.6.22,slub@2.6.23",
);
const OF_SLABS: Origin = Origin::of(
    MACHINE,
    "quarry run tbench 16 --machine clovertown-2x4 --design slub@2.6.23 --at 0s:kmalloc-4096.cpu_slabs_max=4",
);

/// Name of the run with a number of slabs a CPU; with one it is the release as it was.
fn of_slabs(slabs: u32) -> String {
    match slabs {
        1 => "2.6.23, 8 CPUs".to_string(),
        _ => format!("2.6.23, {slabs} slabs"),
    }
}

fn experiments(mode: Mode) -> Vec<Experiment> {
    let (time_ns, seconds) = match mode {
        Mode::Quick => (20_000_000, 0.4),
        // A slice of 2.6.22: no shorter run has tasks that end theirs.
        Mode::Full => (100_000_000, 2.0),
    };
    let run = |name: String, design: &'static str, cpus: u32, slabs: u32| {
        let change = move |spec: &mut LoadSpec| {
            spec.cpus = cpus;
            // As many exchanges, so that chance is as wide.
            spec.time_ns = time_ns * 8 / u64::from(cpus);
            if slabs > 1 {
                spec.changes.push(Change {
                    at_ns: 0,
                    cache: "kmalloc-4096".to_string(),
                    name: "cpu_slabs_max",
                    value: u64::from(slabs),
                });
            }
            Ok(())
        };
        let clients = Load::Tbench(Tbench { clients: 2 * cpus });
        load(name, seconds, design, MACHINE, clients, change)
    };
    let mut all = Vec::new();
    for cpus in [8, 1] {
        all.push(run(format!("2.6.22, {cpus} CPUs"), "slub@2.6.22", cpus, 1));
        all.push(run(format!("2.6.23, {cpus} CPUs"), "slub@2.6.23", cpus, 1));
    }
    for &slabs in &SLABS[1..] {
        all.push(run(of_slabs(slabs), "slub@2.6.23", 8, slabs));
    }
    all
}

/// The way in which the O(1) scheduler shared a CPU among tasks that wake each other is not published.
fn others() -> Vec<Other> {
    let hits: &[&str] = &["hits-", "loss-", "slow-"];
    let short = "yes: the O(1) scheduler cut slices by priority, and let a task go first for a better one only";
    let stays = "yes: how often 2.6.22 moved a woken task to its waker is not published";
    let mut all = vec![
        Other::load("tasks have slices of 10 ms", short, hits, |spec| {
            spec.sched.slice_ns = 10_000_000
        }),
        Other::load("tasks have slices of 1 ms", short, hits, |spec| {
            spec.sched.slice_ns = 1_000_000
        }),
        Other::load(
            "tasks have slices of 0.1 ms",
            "no: it is less than a tick",
            hits,
            |spec| {
                spec.sched.slice_ns = 100_000;
            },
        ),
        loads::tasks_stay(stays, &[]),
    ];
    all.extend(Other::costs(&[
        Key::SlowPath,
        Key::Switch,
        Key::DirtySocket,
    ]));
    all
}

fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure: Formula| ClaimSpec::published(THREAD.name, id, figure);
    vec![
        claim("hits-immediate", |arm| arm.get("2.6.22, 8 CPUs", HITS_4096)),
        claim("hits-queued", |arm| arm.get("2.6.23, 8 CPUs", HITS_4096)),
        claim("loss-8-cpus", |arm| {
            arm.change("2.6.23, 8 CPUs", "2.6.22, 8 CPUs", MB)
        }),
        claim("loss-1-cpu", |arm| {
            arm.change("2.6.23, 1 CPUs", "2.6.22, 1 CPUs", MB)
        }),
        claim("slabs-restore", |arm| {
            arm.change("2.6.23, 4 slabs", "2.6.22, 8 CPUs", MB)
        }),
        claim("slow-path-share", |arm| arm.get("2.6.23, 8 CPUs", SLOW)),
    ]
}

fn show(results: &Results) -> (Vec<Table>, Vec<Plot>) {
    let row = |label: &str, run: &'static str, figure: &'static str, published: Option<f64>| {
        Row::of(label, published, results, move |arm| arm.get(run, figure))
    };
    let hits = Table {
        title: "allocations of kmalloc-4096 that the CPU's slab serves, 16 clients on 8 CPUs"
            .to_string(),
        unit: "%",
        origin: OF_RELEASES,
        rows: vec![
            row("2.6.22", "2.6.22, 8 CPUs", HITS_4096, Some(58.0)),
            row("2.6.23", "2.6.23, 8 CPUs", HITS_4096, Some(12.5)),
        ],
    };
    let loss = |label: &str, of: &'static str, against: &'static str, published: f64| {
        Row::of(label, Some(published), results, move |arm| {
            arm.change(of, against, MB)
        })
    };
    let change = Table {
        title: "tbench from 2.6.22 to 2.6.23".to_string(),
        unit: "%",
        origin: OF_RELEASES,
        rows: vec![
            loss(
                "8 CPUs, 16 clients",
                "2.6.23, 8 CPUs",
                "2.6.22, 8 CPUs",
                -30.0,
            ),
            loss(
                "1 CPU, 2 clients",
                "2.6.23, 1 CPUs",
                "2.6.22, 1 CPUs",
                -10.0,
            ),
        ],
    };
    let slabs = SLABS.map(|slabs| {
        let run = of_slabs(slabs);
        let label = format!("{slabs} slabs a CPU");
        Row::of(label, None, results, move |arm| arm.get(&run, MB))
    });
    let slabs = Table {
        title: "tbench of 2.6.23 with more slabs of kmalloc-4096 a CPU (cpu_slabs_max)".to_string(),
        unit: "MB/s",
        origin: OF_SLABS,
        rows: slabs.to_vec(),
    };
    let before = "2.6.22, 8 CPUs";
    let (queued, immediate) = ("2.6.23, queued", "2.6.22, immediate");
    // With one slab a CPU, as the kernels were.
    let first = [SLABS[0]];
    let rate = Plot {
        title: "tbench with 16 clients on 8 CPUs, against 2.6.22".to_string(),
        x: "slabs of kmalloc-4096 a CPU",
        logarithmic: false,
        y: "MB/s, % of 2.6.22",
        origin: OF_SLABS,
        lines: vec![
            Line::simulated(queued, results, &SLABS, |arm, slabs| {
                Some(100.0 + arm.change(&of_slabs(slabs), before, MB)?)
            }),
            Line::published(queued, &first, |_| Some(70.0)),
            Line::level(immediate, &SLABS, Some(100.0)),
        ],
    };
    let hit = Plot {
        title: "allocations of kmalloc-4096 that the CPU's slab serves, 16 clients on 8 CPUs"
            .to_string(),
        x: "slabs of kmalloc-4096 a CPU",
        logarithmic: false,
        y: "%",
        origin: OF_SLABS,
        lines: vec![
            Line::simulated(queued, results, &SLABS, |arm, slabs| {
                arm.get(&of_slabs(slabs), HITS_4096)
            }),
            Line::published(queued, &first, |_| Some(12.5)),
            Line::simulated(immediate, results, &first, |arm, _| {
                arm.get(before, HITS_4096)
            }),
            Line::published(immediate, &first, |_| Some(58.0)),
        ],
    };
    (vec![hits, change, slabs], vec![rate, hit])
}
