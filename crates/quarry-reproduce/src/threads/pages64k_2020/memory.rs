//! Memory after boot, predicted from reports of real boots.

use quarry_designs::DesignSpec;
use quarry_lab::LabError;
use quarry_state::{Question, predict};

use super::boots::{
    BARE, BARE_AGAIN, BARE_LATER, BARE_ORDER_1, Boot, DEBIAN, ORDER_2, SMALL_PAGES, real,
};
use super::{ASKED, Asked, KERNEL, after_boot, change, min_objects};
use crate::error::ReproduceError;
use crate::plan::{Arms, Experiment};
use crate::published::{MAX_ORDER, PAGE_SIZES};
use crate::results::{Arm, Results};
use crate::show::{Line, Origin, Plot, Row, Table};
use crate::spec::{ClaimSpec, Formula};
use crate::threads::loads::KIB;

/// Name of what is predicted from the boots of a distribution.
const OF_DEBIAN: &str = "Debian";

/// KiB of slabs that a boot would have had in the thread's kernel.
fn slab_kib(boot: Boot, asked: &Asked) -> Result<f64, ReproduceError> {
    let mut settings = asked.tunables();
    settings.push(min_objects(asked.possible_cpus));
    let question = Question {
        design: Some(DesignSpec::parse(KERNEL)?),
        page_bytes: asked.page_bytes,
        possible_cpus: Some(asked.possible_cpus),
        settings,
        ..Question::default()
    };
    let predicted = predict(&boot.read()?, &question).map_err(LabError::from)?;
    Ok(predicted.bytes.predicted_bytes as f64 / 1024.0)
}

fn name_of(from: &str, asked: &str) -> String {
    format!("from {from}, {asked}")
}

pub(super) fn experiments() -> Vec<Experiment> {
    let mut all = Vec::new();
    for asked in &ASKED {
        all.push(Experiment {
            name: name_of(OF_DEBIAN, asked.name),
            design: None,
            seconds: 0.05,
            arms: Arms::States,
            run: Box::new(move |setting| {
                let boot = DEBIAN[setting.state as usize % DEBIAN.len()];
                Ok(vec![(KIB.to_string(), slab_kib(boot, asked)?)])
            }),
        });
        for boot in [BARE, BARE_LATER] {
            all.push(Experiment {
                name: name_of(boot.name, asked.name),
                design: None,
                seconds: 0.02,
                arms: Arms::Values,
                run: Box::new(move |_| Ok(vec![(KIB.to_string(), slab_kib(boot, asked)?)])),
            });
        }
    }
    let others = [ORDER_2, SMALL_PAGES, BARE, BARE_AGAIN, BARE_ORDER_1];
    all.extend(DEBIAN.into_iter().chain(others).map(Boot::real));
    all
}

/// By how many per cent memory changes from the default.
fn memory(arm: Arm<'_>, from: &str, asked: &str) -> Option<f64> {
    arm.change(&name_of(from, asked), &name_of(from, "default"), KIB)
}

pub(super) fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure: Formula| ClaimSpec::published(super::THREAD.name, id, figure);
    vec![
        claim("order-2", |arm| memory(arm, OF_DEBIAN, "slub_max_order=2")),
        claim("order-1", |arm| memory(arm, OF_DEBIAN, "slub_max_order=1")),
        claim("order-1-real", |arm| {
            let real = arm.change(&real(BARE_ORDER_1), &real(BARE), KIB)?;
            Some(memory(arm, BARE.name, "slub_max_order=1")? - real)
        }),
        claim("cpu-partial-0", |arm| {
            memory(arm, OF_DEBIAN, "cpu_partial=0")
        }),
        claim("patched", |arm| memory(arm, OF_DEBIAN, "patched")),
        claim("page-size", |arm| {
            let [default, small] =
                ["default", "4 KiB pages"].map(|asked| name_of(OF_DEBIAN, asked));
            Some(arm.get(&default, KIB)? / arm.get(&small, KIB)?)
        }),
        claim("maxcpus-256", |arm| memory(arm, OF_DEBIAN, "maxcpus=256")),
    ]
}

/// A prediction from a report; the folder is that of Quarry's source.
fn origin(from: &str) -> Origin {
    let command = match from {
        OF_DEBIAN => {
            "quarry what-if crates/quarry-reproduce/data/snapshots/debian-6.1-64k-hash-maxcpus64-minobj32.json.gz \
             --design slub@5.9 --possible-cpus 256 --set slub_min_objects=40"
        }
        _ => {
            "quarry what-if crates/quarry-reproduce/data/snapshots/6.1-ppc64el-64k.json.gz --design slub@5.9 \
             --possible-cpus 64 --set slub_min_objects=32 --set slub_max_order=1"
        }
    };
    Origin::of("", command)
}

/// By how many per cent another real boot here differs from one without the setting.
fn real_here(asked: &str, results: &Results) -> Option<f64> {
    let of = match asked {
        "slub_max_order=2" => ORDER_2,
        "4 KiB pages" => SMALL_PAGES,
        _ => return None,
    };
    results.values().change(&real(of), &real(DEBIAN[1]), KIB)
}

fn changes(from: &'static str, title: &str, results: &Results) -> Table {
    let rows = after_boot().into_iter().map(|(asked, published)| {
        let row = Row::of(asked, published, results, move |arm| {
            memory(arm, from, asked)
        });
        match from {
            OF_DEBIAN => row.with_real(real_here(asked, results)),
            _ => row,
        }
    });
    Table {
        title: format!("slab memory after boot, against the default; from {title}"),
        unit: "%",
        origin: origin(from),
        rows: rows.collect(),
    }
}

pub(super) fn show(results: &Results) -> (Vec<Table>, Plot) {
    let held = |boot| results.values().get(&real(boot), KIB);
    let pages = |bytes: &str| PAGE_SIZES.number("slab_memory_kb", &[("page_size", bytes)]);
    let absolute = [
        ("default", pages("65536"), DEBIAN[0]),
        ("4 KiB pages", pages("4096"), SMALL_PAGES),
    ];
    let absolute = Table {
        title: "slab memory after boot".to_string(),
        unit: "KiB",
        origin: origin(OF_DEBIAN),
        rows: absolute
            .into_iter()
            .map(|(asked, published, boot)| {
                let figure = |arm: Arm<'_>| arm.get(&name_of(OF_DEBIAN, asked), KIB);
                Row::of(asked, published, results, figure).with_real(held(boot))
            })
            .collect(),
    };
    let row = |label: &str, of: Boot, against: Boot| {
        Row::of(label, None, results, move |arm| {
            arm.change(&real(of), &real(against), KIB)
        })
    };
    let boots = Table {
        title: "real boots of 6.1, against another".to_string(),
        unit: "%",
        origin: Origin::default(),
        rows: vec![
            row("Debian, the same again", DEBIAN[2], DEBIAN[1]),
            row("Debian, 64 possible CPUs for 16", DEBIAN[3], DEBIAN[1]),
            row(
                "Debian, hash MMU, 64 possible CPUs, slub_min_objects=32",
                DEBIAN[0],
                DEBIAN[1],
            ),
            row("bare, slub_max_order=1", BARE_ORDER_1, BARE),
            row("bare, the same again", BARE_AGAIN, BARE),
        ],
    };
    let of_order = |order: &str| MAX_ORDER.number("slab_memory_kb", &[("slub_max_order", order)]);
    let found = |from: &'static str| {
        let figure = |arm: Arm<'_>, order: u32| match order {
            3 => Some(100.0),
            _ => Some(100.0 + memory(arm, from, &format!("slub_max_order={order}"))?),
        };
        Line::simulated(format!("from {from}"), results, &[1, 2, 3], figure)
    };
    let plot = Plot {
        title: "slab memory after boot by slub_max_order".to_string(),
        x: "slub_max_order",
        logarithmic: false,
        y: "memory, % of the default",
        origin: origin(OF_DEBIAN),
        lines: vec![
            found(OF_DEBIAN),
            found(BARE.name),
            Line::published("boots of 2020", &[1, 2, 3], |order| {
                Some(100.0 + change(of_order(&order.to_string()), of_order("3"))?)
            }),
        ],
    };
    let tables = vec![
        changes(OF_DEBIAN, "boots of Debian 12 with 6.1", results),
        absolute,
        boots,
        changes(BARE.name, "a guest of 6.1 that boots to a shell", results),
        changes(BARE_LATER.name, "one of 7.2", results),
    ];
    (tables, plot)
}
