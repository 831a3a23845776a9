//! Thread 002: slab memory with 64 KiB pages, October 2020.

use std::io::Read;

use flate2::read::GzDecoder;
use quarry_lab::LabError;
use quarry_lab::design::DesignSpec;
use quarry_lab::kernel::Snapshot;
use quarry_lab::setting::{Setting as Tunable, resolve};
use quarry_lab::whatif::{Question, predict};
use quarry_work::load::{Hackbench, Load, LoadSpec};
use quarry_work::world::Transport;

use super::Thread;
use super::loads::{KIB, SECONDS, load};
use crate::error::ReproduceError;
use crate::judge::{ClaimSpec, Line, Plot, Row, Table};
use crate::plan::{Experiment, Mode};
use crate::published::{CPU_PARTIAL, HACKBENCH_64K, MAX_CPUS, MAX_ORDER, PAGE_SIZES};
use crate::results::{Arm, Results};

pub(super) const THREAD: Thread = Thread {
    name: "pages64k-2020",
    title: "Higher slub memory consumption on 64K page-size systems? (October 2020)",
    question: "Right after boot slabs take three times the memory with 64 KiB pages that they take with 4 KiB. Which tunable \
               saves how much of it, and does hackbench lose time?",
    taken: "No number. Memory is predicted from snapshots of two other kernels, so ratios are compared, not kilobytes.",
    why: "A slab of 64 KiB has sixteen times the objects that a CPU needs at boot, and each CPU keeps a slab, and partial slabs, of \
          each cache. Orders above 0 multiply that for large objects. hackbench takes most objects from slabs that it has, \
          whatever their order, so its time does not change.",
    experiments,
    claims,
    show,
};

/// Snapshots: a name, the kernel, its bytes.
const SNAPSHOTS: [(&str, &[u8]); 2] = [
    (
        "6.1",
        include_bytes!("../../data/snapshots/6.1-ppc64el-64k.json.gz"),
    ),
    (
        "7.2",
        include_bytes!("../../data/snapshots/7.2-ppc64el-64k.json.gz"),
    ),
];
const REAL_ORDER_1: &[u8] =
    include_bytes!("../../data/snapshots/6.1-ppc64el-64k-maxorder1.json.gz");
const REAL_REPEAT: &[u8] = include_bytes!("../../data/snapshots/6.1-ppc64el-64k-repeat.json.gz");
/// The thread's kernel, to which snapshots are taken first.
const KERNEL: &str = "slub@5.9";

/// What is asked of a snapshot.
struct Asked {
    name: &'static str,
    settings: &'static [(&'static str, u64)],
    page_bytes: Option<u64>,
    possible_cpus: Option<u32>,
}

const fn asked(name: &'static str, settings: &'static [(&'static str, u64)]) -> Asked {
    Asked {
        name,
        settings,
        page_bytes: None,
        possible_cpus: None,
    }
}

const ASKED: [Asked; 10] = [
    asked("default", &[]),
    asked("slub_max_order=2", &[("slub_max_order", 2)]),
    asked("slub_max_order=1", &[("slub_max_order", 1)]),
    asked("cpu_partial=0", &[("slub_cpu_partial", 0)]),
    asked("cpu_partial=2", &[("slub_cpu_partial", 2)]),
    asked("cpu_partial=4", &[("slub_cpu_partial", 4)]),
    asked("patched", &[("slub_cpu_partial_by_size", 1)]),
    Asked {
        page_bytes: Some(4096),
        ..asked("4 KiB pages", &[])
    },
    Asked {
        possible_cpus: Some(256),
        ..asked("maxcpus=256", &[])
    },
    Asked {
        possible_cpus: Some(512),
        ..asked("maxcpus=512", &[])
    },
];

/// Reads a snapshot.
fn snapshot(name: &str, bytes: &[u8]) -> Result<Snapshot, ReproduceError> {
    let mut text = String::new();
    let read = GzDecoder::new(bytes).read_to_string(&mut text);
    let read = read.map_err(|error| LabError::Usage(format!("snapshot {name}: {error}")));
    read?;
    let parsed = Snapshot::parse(name, &text, None);
    Ok(parsed.map_err(LabError::from)?)
}

fn slab_kib(
    name: &'static str,
    bytes: &'static [u8],
    asked: &Asked,
) -> Result<f64, ReproduceError> {
    let settings = asked.settings.iter();
    let question = Question {
        design: Some(DesignSpec::parse(KERNEL)?),
        release: None,
        page_bytes: asked.page_bytes,
        cpus: None,
        possible_cpus: Some(asked.possible_cpus.unwrap_or(64)),
        settings: settings
            .map(|(name, value)| Tunable::of(name, *value))
            .collect(),
    };
    let predicted = predict(&snapshot(name, bytes)?, &question)?;
    Ok(predicted.predicted_bytes as f64 / 1024.0)
}

fn experiments(mode: Mode) -> Vec<Experiment> {
    let mut all = Vec::new();
    for (kernel, bytes) in SNAPSHOTS {
        for asked in &ASKED {
            all.push(Experiment {
                name: format!("{kernel}, {}", asked.name),
                seconds: 0.02,
                in_all_arms: false,
                run: Box::new(move |_| {
                    Ok(vec![(KIB.to_string(), slab_kib(kernel, bytes, asked)?)])
                }),
            });
        }
    }
    let real = [
        ("real", SNAPSHOTS[0].1),
        ("real, slub_max_order=1", REAL_ORDER_1),
        ("real, again", REAL_REPEAT),
    ];
    for (name, bytes) in real {
        all.push(Experiment {
            name: name.to_string(),
            seconds: 0.02,
            in_all_arms: false,
            run: Box::new(move |_| {
                let kib = snapshot(name, bytes)?.slab_bytes() as f64 / 1024.0;
                Ok(vec![(KIB.to_string(), kib)])
            }),
        });
    }
    let (groups, loops) = match mode {
        Mode::Quick => (4, 25),
        Mode::Full => (20, 50),
    };
    let hackbench = Load::Hackbench(Hackbench {
        groups,
        descriptors: 25,
        loops,
        bytes: 1024,
        transport: Transport::Unix,
    });
    let arms = [
        ("hackbench, default", None),
        ("hackbench, patched", Some(("slub_cpu_partial_by_size", 1))),
        ("hackbench, cpu_partial=0", Some(("slub_cpu_partial", 0))),
        ("hackbench, slub_max_order=1", Some(("slub_max_order", 1))),
    ];
    for (name, setting) in arms {
        let tuning = setting.map(|(name, value)| Tunable::of(name, value));
        let change = move |spec: &mut LoadSpec| {
            spec.page_bytes = 64 << 10;
            spec.memory_bytes = 16 << 30;
            let settings: Vec<Tunable> = tuning.iter().cloned().collect();
            let resolved = resolve(&settings, &[DesignSpec::parse(KERNEL)?])?;
            if let Some(settings) = resolved.first() {
                spec.tuning = settings.tuning();
            }
            Ok(())
        };
        let seconds = f64::from(625 * groups * loops) / 60_000.0;
        let name = name.to_string();
        all.push(load(name, seconds, KERNEL, "power9-16", hackbench, change));
    }
    all
}

/// By how many per cent memory changes from the default.
fn memory(arm: Arm<'_>, kernel: &str, asked: &str) -> Option<f64> {
    let of = format!("{kernel}, {asked}");
    arm.change(&of, &format!("{kernel}, default"), KIB)
}

const OTHER_BOOT: &str = "The snapshots are of other kernels with other caches at boot, and what CPUs use of their slabs is estimated.";
const BARE: &str = "The guest of the snapshot boots to a shell and nothing else: a third of the published memory, and almost nothing on \
     CPUs' partial lists. A boot that forks and opens as many files as a distribution's fills these.";
const POSSIBLE: &str = "What the kernel allocates for each possible CPU (objects of per-CPU areas, larger masks) is not in a snapshot; \
     only larger slabs are, which come with min_objects.";

fn claims() -> Vec<ClaimSpec> {
    let memory_claim = |id, text, published, from, to, figure, cause| ClaimSpec {
        id,
        text,
        published,
        unit: "% of memory",
        from,
        to,
        figure,
        cause,
    };
    vec![
        memory_claim(
            "order-2",
            "slub_max_order=2 saves 20 % (within 10 points)",
            "-19.7 %",
            -30.0,
            -10.0,
            |arm| memory(arm, "6.1", "slub_max_order=2"),
            OTHER_BOOT,
        ),
        memory_claim(
            "order-1",
            "slub_max_order=1 saves 31 % (within 10 points)",
            "-30.5 %",
            -41.0,
            -21.0,
            |arm| memory(arm, "6.1", "slub_max_order=1"),
            OTHER_BOOT,
        ),
        memory_claim(
            "order-1-real",
            "a real kernel's two boots agree with the prediction (within 10 points)",
            "none (6.1, here)",
            -10.0,
            10.0,
            |arm| {
                let real = arm.change("real, slub_max_order=1", "real", KIB)?;
                Some(memory(arm, "6.1", "slub_max_order=1")? - real)
            },
            OTHER_BOOT,
        ),
        memory_claim(
            "cpu-partial-0",
            "cpu_partial=0 saves 14 % (within 7 points)",
            "-14.2 %",
            -21.2,
            -7.2,
            |arm| memory(arm, "6.1", "cpu_partial=0"),
            BARE,
        ),
        memory_claim(
            "patched",
            "the proposed patch saves 9 % (within 7 points)",
            "-9.2 %",
            -16.2,
            -2.2,
            |arm| memory(arm, "6.1", "patched"),
            BARE,
        ),
        ClaimSpec {
            id: "page-size",
            text: "64 KiB pages take 2 to 4 times the memory of 4 KiB",
            published: "3.09 times",
            unit: "times",
            from: 2.0,
            to: 4.0,
            figure: |arm| Some(arm.get("6.1, default", KIB)? / arm.get("6.1, 4 KiB pages", KIB)?),
            cause: OTHER_BOOT,
        },
        memory_claim(
            "maxcpus-256",
            "256 possible CPUs take 21 % more than 64 (within 10 points)",
            "+21.3 %",
            11.3,
            31.3,
            |arm| memory(arm, "6.1", "maxcpus=256"),
            POSSIBLE,
        ),
        ClaimSpec {
            id: "hackbench-time",
            text: "hackbench takes as long with the patch (within 3 %)",
            published: "-0.8 %",
            unit: "% of time",
            from: -3.0,
            to: 3.0,
            figure: |arm| arm.change("hackbench, patched", "hackbench, default", SECONDS),
            cause: "Another tunable changes which tasks meet where; other seeds move the time as much.",
        },
        ClaimSpec {
            id: "hackbench-order",
            text: "and with slub_max_order=1 (within 3 %)",
            published: "none",
            unit: "% of time",
            from: -3.0,
            to: 3.0,
            figure: |arm| arm.change("hackbench, slub_max_order=1", "hackbench, default", SECONDS),
            cause: "Another tunable changes which tasks meet where; other seeds move the time as much.",
        },
    ]
}

fn show(results: &Results) -> (Vec<Table>, Vec<Plot>) {
    let change = |now: Option<f64>, then: Option<f64>| Some(100.0 * (now? / then? - 1.0));
    let of_order = |order: &str| MAX_ORDER.number("slab_memory_kb", &[("slub_max_order", order)]);
    let of_partial = |value: &str| CPU_PARTIAL.number("slab_memory_kb", &[("cpu_partial", value)]);
    let of_cpus = |cpus: &str| MAX_CPUS.number("slab_memory_kb", &[("maxcpus", cpus)]);
    let pages = |bytes: &str| PAGE_SIZES.number("slab_memory_kb", &[("page_size", bytes)]);
    let rows = [
        ("4 KiB pages", change(pages("4096"), pages("65536"))),
        ("slub_max_order=2", change(of_order("2"), of_order("3"))),
        ("slub_max_order=1", change(of_order("1"), of_order("3"))),
        (
            "cpu_partial=4",
            change(of_partial("4"), of_partial("default")),
        ),
        (
            "cpu_partial=2",
            change(of_partial("2"), of_partial("default")),
        ),
        (
            "cpu_partial=0",
            change(of_partial("0"), of_partial("default")),
        ),
        ("patched", change(Some(186_048.0), of_partial("default"))),
        ("maxcpus=256", change(of_cpus("256"), of_cpus("64"))),
        ("maxcpus=512", change(of_cpus("512"), of_cpus("64"))),
    ];
    let table = |kernel: &'static str| Table {
        title: format!("slab memory after boot, against the default; from a snapshot of {kernel}"),
        unit: "%",
        rows: rows
            .iter()
            .map(|(asked, published)| {
                Row::of(*asked, *published, results, move |arm| {
                    memory(arm, kernel, asked)
                })
            })
            .collect(),
    };
    let real = Table {
        title: "real boots of 6.1, against the first".to_string(),
        unit: "%",
        rows: vec![
            Row::of("slub_max_order=1", None, results, |arm| {
                arm.change("real, slub_max_order=1", "real", KIB)
            }),
            Row::of("the same again", None, results, |arm| {
                arm.change("real, again", "real", KIB)
            }),
        ],
    };
    let of_run =
        |variant: &str, column: &str| HACKBENCH_64K.number(column, &[("variant", variant)]);
    let row = |label: &str, run: &'static str, published| {
        Row::of(label, published, results, move |arm| {
            arm.change(run, "hackbench, default", SECONDS)
        })
    };
    let patched = change(of_run("patched", "time_s"), of_run("default", "time_s"));
    let hackbench = Table {
        title: "hackbench -s 1024 -f 25 with 64 KiB pages on 16 CPUs: time against the default"
            .to_string(),
        unit: "%",
        rows: vec![
            row("patched", "hackbench, patched", patched),
            row("cpu_partial=0", "hackbench, cpu_partial=0", None),
            row("slub_max_order=1", "hackbench, slub_max_order=1", None),
        ],
    };
    let line = |name: &str, published: bool, value: &dyn Fn(&str) -> Option<f64>| Line {
        name: name.to_string(),
        published,
        points: ["1", "2", "3"]
            .into_iter()
            .filter_map(|order| Some((order.parse().ok()?, 100.0 + value(order)?)))
            .collect(),
    };
    let found = |kernel: &'static str| {
        move |order: &str| match order {
            "3" => Some(0.0),
            _ => memory(results.values(), kernel, &format!("slub_max_order={order}")),
        }
    };
    let plot = Plot {
        title: "slab memory after boot by slub_max_order".to_string(),
        x: "slub_max_order",
        logarithmic: false,
        y: "memory, % of the default",
        lines: vec![
            line("from 6.1", false, &found("6.1")),
            line("from 7.2", false, &found("7.2")),
            line("published", true, &|order| {
                change(of_order(order), of_order("3"))
            }),
        ],
    };
    (
        vec![table("6.1"), table("7.2"), real, hackbench],
        vec![plot],
    )
}
