//! Memory after boot, predicted from snapshots.

use std::io::Read;

use flate2::read::GzDecoder;
use quarry_designs::DesignSpec;
use quarry_lab::LabError;
use quarry_lab::booted::Booted;
use quarry_snapshot::Snapshot;
use quarry_state::{Question, predict};

use super::{ASKED, Asked, KERNEL, after_boot, change};
use crate::error::ReproduceError;
use crate::judge::{ClaimSpec, Formula};
use crate::plan::{Arms, Experiment};
use crate::published::MAX_ORDER;
use crate::results::{Arm, Results};
use crate::show::{Line, Origin, Plot, Row, Table};
use crate::threads::loads::KIB;

/// Snapshots: a name, the kernel, its bytes.
const SNAPSHOTS: [(&str, &[u8]); 2] = [
    (
        "6.1",
        include_bytes!("../../../data/snapshots/6.1-ppc64el-64k.json.gz"),
    ),
    (
        "7.2",
        include_bytes!("../../../data/snapshots/7.2-ppc64el-64k.json.gz"),
    ),
];
const REAL_ORDER_1: &[u8] =
    include_bytes!("../../../data/snapshots/6.1-ppc64el-64k-maxorder1.json.gz");
const REAL_REPEAT: &[u8] = include_bytes!("../../../data/snapshots/6.1-ppc64el-64k-repeat.json.gz");

/// Reads a snapshot.
fn snapshot(name: &str, bytes: &[u8]) -> Result<Snapshot, ReproduceError> {
    let mut text = String::new();
    let read = GzDecoder::new(bytes).read_to_string(&mut text);
    let read = read.map_err(|error| LabError::Usage(format!("snapshot {name}: {error}")));
    read?;
    let parsed = Snapshot::parse(name, &text, None);
    Ok(parsed.map_err(LabError::from)?)
}

/// Heap of a kernel with the thread's pages after boot, for loads to begin on.
pub(super) fn booted() -> Result<Booted, ReproduceError> {
    let (name, bytes) = SNAPSHOTS[0];
    Ok(Booted::of(snapshot(name, bytes)?)?)
}

fn slab_kib(
    name: &'static str,
    bytes: &'static [u8],
    asked: &Asked,
) -> Result<f64, ReproduceError> {
    let question = Question {
        design: Some(DesignSpec::parse(KERNEL)?),
        page_bytes: asked.page_bytes,
        possible_cpus: Some(asked.possible_cpus),
        settings: asked.tunables(),
        ..Question::default()
    };
    let predicted = predict(&snapshot(name, bytes)?, &question).map_err(LabError::from)?;
    Ok(predicted.bytes.predicted_bytes as f64 / 1024.0)
}

pub(super) fn experiments() -> Vec<Experiment> {
    let mut all = Vec::new();
    for (kernel, bytes) in SNAPSHOTS {
        for asked in &ASKED {
            all.push(Experiment {
                name: format!("{kernel}, {}", asked.name),
                design: None,
                seconds: 0.02,
                arms: Arms::Values,
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
            design: None,
            seconds: 0.02,
            arms: Arms::Values,
            run: Box::new(move |_| {
                let kib = snapshot(name, bytes)?.slab_bytes() as f64 / 1024.0;
                Ok(vec![(KIB.to_string(), kib)])
            }),
        });
    }
    all
}

/// By how many per cent memory changes from the default.
fn memory(arm: Arm<'_>, kernel: &str, asked: &str) -> Option<f64> {
    let of = format!("{kernel}, {asked}");
    arm.change(&of, &format!("{kernel}, default"), KIB)
}

pub(super) fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure: Formula| ClaimSpec::published(super::THREAD.name, id, figure);
    vec![
        claim("order-2", |arm| memory(arm, "6.1", "slub_max_order=2")),
        claim("order-1", |arm| memory(arm, "6.1", "slub_max_order=1")),
        claim("order-1-real", |arm| {
            let real = arm.change("real, slub_max_order=1", "real", KIB)?;
            Some(memory(arm, "6.1", "slub_max_order=1")? - real)
        }),
        claim("cpu-partial-0", |arm| memory(arm, "6.1", "cpu_partial=0")),
        claim("patched", |arm| memory(arm, "6.1", "patched")),
        claim("page-size", |arm| {
            Some(arm.get("6.1, default", KIB)? / arm.get("6.1, 4 KiB pages", KIB)?)
        }),
        claim("maxcpus-256", |arm| memory(arm, "6.1", "maxcpus=256")),
    ]
}

/// A prediction from a snapshot; the folder is that of Quarry's source.
fn origin(kernel: &str) -> Origin {
    let command = match kernel {
        "6.1" => {
            "quarry what-if crates/quarry-reproduce/data/snapshots/6.1-ppc64el-64k.json.gz --design slub@5.9 --possible-cpus 64 \
             --set slub_max_order=1"
        }
        _ => {
            "quarry what-if crates/quarry-reproduce/data/snapshots/7.2-ppc64el-64k.json.gz --design slub@5.9 --possible-cpus 64 \
             --set slub_max_order=1"
        }
    };
    Origin::of("", command)
}

pub(super) fn show(results: &Results) -> (Vec<Table>, Plot) {
    let table = |kernel: &'static str| Table {
        title: format!("slab memory after boot, against the default; from a snapshot of {kernel}"),
        unit: "%",
        origin: origin(kernel),
        rows: after_boot()
            .into_iter()
            .map(|(asked, published)| {
                Row::of(asked, published, results, move |arm| {
                    memory(arm, kernel, asked)
                })
            })
            .collect(),
    };
    let real = Table {
        title: "real boots of 6.1, against the first".to_string(),
        unit: "%",
        origin: Origin::default(),
        rows: vec![
            Row::of("slub_max_order=1", None, results, |arm| {
                arm.change("real, slub_max_order=1", "real", KIB)
            }),
            Row::of("the same again", None, results, |arm| {
                arm.change("real, again", "real", KIB)
            }),
        ],
    };
    let of_order = |order: &str| MAX_ORDER.number("slab_memory_kb", &[("slub_max_order", order)]);
    let found = |kernel: &'static str| {
        let figure = |arm: Arm<'_>, order: u32| match order {
            3 => Some(100.0),
            _ => Some(100.0 + memory(arm, kernel, &format!("slub_max_order={order}"))?),
        };
        Line::simulated(format!("from {kernel}"), results, &[1, 2, 3], figure)
    };
    let plot = Plot {
        title: "slab memory after boot by slub_max_order".to_string(),
        x: "slub_max_order",
        logarithmic: false,
        y: "memory, % of the default",
        origin: origin("6.1"),
        lines: vec![
            found("6.1"),
            found("7.2"),
            Line::published("boots of 2020", &[1, 2, 3], |order| {
                Some(100.0 + change(of_order(&order.to_string()), of_order("3"))?)
            }),
        ],
    };
    (vec![table("6.1"), table("7.2"), real], plot)
}
