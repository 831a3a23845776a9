//! Time of hackbench with 64 KiB pages.

use quarry_designs::{DesignSpec, Setting as Tunable, resolve};
use quarry_work::load::{Hackbench, Load, LoadSpec};
use quarry_work::world::Transport;

use super::{KERNEL, POSSIBLE_CPUS, change, min_objects};
use crate::plan::Experiment;
use crate::published::HACKBENCH_64K;
use crate::results::Results;
use crate::setting::Mode;
use crate::show::{Origin, Row, Table};
use crate::spec::{ClaimSpec, Formula};
use crate::threads::loads::{TIME, load};

const MACHINE: &str = "power9-16";

pub(super) fn experiments(mode: Mode) -> Vec<Experiment> {
    let mut all = Vec::new();
    // Fewer tasks have more noise: figures of 4 groups of 100 loops reach 6 %, those of 20 groups 3.2.
    let (groups, loops) = match mode {
        Mode::Quick => (4, 60),
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
            spec.setup.page_bytes = 64 << 10;
            spec.setup.memory_bytes = 16 << 30;
            let mut settings = vec![min_objects(POSSIBLE_CPUS)];
            settings.extend(tuning.clone());
            let mut resolved = resolve(&settings, &[DesignSpec::parse(KERNEL)?])?;
            spec.setup.tuning = resolved.pop().unwrap_or_default();
            Ok(())
        };
        let seconds = f64::from(625 * groups * loops) / 60_000.0;
        let name = name.to_string();
        all.push(load(name, seconds, KERNEL, MACHINE, hackbench, change));
    }
    all
}

pub(super) fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure: Formula| ClaimSpec::published(super::THREAD.name, id, figure);
    vec![
        claim("hackbench-time", |arm| {
            arm.change("hackbench, patched", "hackbench, default", TIME)
        }),
        claim("hackbench-order", |arm| {
            arm.change("hackbench, slub_max_order=1", "hackbench, default", TIME)
        }),
    ]
}

pub(super) fn show(results: &Results) -> Table {
    let of_run =
        |variant: &str, column: &str| HACKBENCH_64K.number(column, &[("variant", variant)]);
    let row = |label: &str, run: &'static str, published| {
        Row::of(label, published, results, move |arm| {
            arm.change(run, "hackbench, default", TIME)
        })
    };
    let patched = change(of_run("patched", "time_s"), of_run("default", "time_s"));
    Table {
        title: "hackbench -s 1024 -f 25 with 64 KiB pages on 16 CPUs: time against the default"
            .to_string(),
        unit: "%",
        origin: Origin::of(
            MACHINE,
            "quarry run hackbench -g 4 -f 25 -l 25 -s 1024 --machine power9-16 --design slub@5.9 --page-size 64k \
             --set slub_cpu_partial_by_size=1",
        ),
        rows: vec![
            row("patched", "hackbench, patched", patched),
            row("cpu_partial=0", "hackbench, cpu_partial=0", None),
            row("slub_max_order=1", "hackbench, slub_max_order=1", None),
        ],
    }
}
