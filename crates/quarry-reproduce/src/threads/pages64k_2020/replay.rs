//! Memory after loads, by replays of recordings on the thread's kernel and machine.
//!
//! A recording's load runs several times side by side, so that all CPUs have one of the recorded ones. It begins on the heap that
//! Debian 12 has after boot with the thread's pages. The same recordings, replayed on the recorded machine from what its
//! kernel held before, say how near a replay comes.

use quarry_designs::DesignSpec;
use quarry_lab::bundled::Bundled;
use quarry_lab::plan::{Axes, Plan as Replays};
use quarry_lab::recorded::LARGE_PAGES;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::pages::PageMode;
use quarry_lab::{LabError, RunReport};

use super::boots::booted;
use super::{ASKED, Asked, CPUS, KERNEL, after_boot, change, min_objects, objects};
use crate::error::ReproduceError;
use crate::plan::{Arms, Experiment};
use crate::published::HACKBENCH_64K;
use crate::results::{Arm, Results};
use crate::show::{Origin, Row, Table};
use crate::spec::{ClaimSpec, Formula};
use crate::threads::loads::KIB;

/// Its cache line: POWER's.
const CACHE_LINE: u32 = 128;
/// Bytes of its memory.
const MEMORY_BYTES: u64 = 16 << 30;
/// The recorded kernel's design.
const RECORDED: &str = "slub@6.1";
/// Slab memory that a recorded kernel reported, in KiB.
const OBSERVED_KIB: &str = "observed_kib";

/// A recording.
pub(super) struct Source {
    /// Its name in experiments.
    pub(super) name: &'static str,
    /// The recorded load.
    about: &'static str,
    /// A command that replays it; empty if it is not of the command's recordings.
    command: &'static str,
    /// About the seconds of a replay.
    seconds: f64,
    open: fn() -> Result<Input, LabError>,
}

pub(super) const SOURCES: [Source; 3] = [
    Source {
        name: "hackbench",
        about: "after hackbench (replay of a recording of 6.1)",
        command: "",
        seconds: 0.05,
        open: || LARGE_PAGES.open("trhb"),
    },
    Source {
        name: "sockets",
        about: "after 300 pairs of sockets filled and drained (replay of a recording of 6.1)",
        command: "",
        seconds: 0.05,
        open: || LARGE_PAGES.open("trfill"),
    },
    Source {
        name: "hackbench of 320",
        about: "after hackbench with 320 processes (replay of a recording of 6.18 with 4 KiB pages)",
        command: "quarry replay hackbench --copies 8 --design slub@5.9 --page-size 64k --cache-line 128 --pages off \
                  --initial=crates/quarry-reproduce/data/snapshots/debian-6.1-64k-hash-maxcpus64-minobj32.json.gz --set slub_min_objects=32 \
                  --set slub_max_order=1",
        seconds: 0.5,
        open: || {
            let name = "hackbench";
            let found = Bundled::find(name).map(|bundled| bundled.open());
            let found = found.ok_or_else(|| LabError::Usage(format!("no recording {name}")))?;
            Ok(Input::new(found?, name))
        },
    },
];

/// The plan of a replay, and the recording.
pub(super) fn planned(source: &Source, asked: &Asked) -> Result<(Replays, Input), ReproduceError> {
    let mut input = (source.open)()?;
    input.copies = CPUS / input.file.meta().cpus.max(1);
    input.pages = PageMode::Off;
    let mut settings = asked.tunables();
    settings.push(min_objects(asked.possible_cpus));
    let plan = Replays::new(&Axes {
        designs: vec![DesignSpec::parse(KERNEL)?],
        page_bytes: vec![asked.page_bytes.unwrap_or(64 << 10)],
        cpus: vec![CPUS],
        settings,
        memory_bytes: MEMORY_BYTES,
        cache_line: CACHE_LINE,
        ..Axes::default()
    })?;
    Ok((plan, input))
}

/// Replays the only run of a plan.
pub(super) fn run(plan: &Replays, input: &Input) -> Result<RunReport, ReproduceError> {
    let mut runs = plan.execute(input, 1, &|_| ())?;
    let last = runs.pop();
    Ok(last.ok_or_else(|| LabError::Usage("a replay without runs".to_string()))?)
}

/// Slab memory after a load on the recorded machine, and what its kernel reported.
fn beside_the_kernel(load: &str) -> Result<[f64; 2], ReproduceError> {
    let mut input = LARGE_PAGES.between_reports(load)?;
    input.pages = PageMode::Off;
    let plan = Replays::new(&Axes {
        designs: vec![DesignSpec::parse(RECORDED)?],
        page_bytes: vec![LARGE_PAGES.page_bytes],
        cpus: vec![LARGE_PAGES.cpus],
        memory_bytes: MEMORY_BYTES,
        cache_line: LARGE_PAGES.cache_line,
        ..Axes::default()
    })?;
    let check = run(&plan, &input)?.check.unwrap_or_default();
    Ok([check.predicted_bytes, check.observed_bytes].map(|bytes| bytes as f64 / 1024.0))
}

pub(super) fn name_of(source: &str, asked: &str) -> String {
    format!("replay of {source}, {asked}")
}

pub(super) fn experiments() -> Vec<Experiment> {
    let mut all = Vec::new();
    for source in &SOURCES {
        for asked in &ASKED {
            all.push(Experiment {
                name: name_of(source.name, asked.name),
                design: None,
                seconds: source.seconds,
                arms: Arms::States,
                run: Box::new(move |setting| {
                    let (mut plan, mut input) = planned(source, asked)?;
                    if setting.booted.is_some() {
                        input.booted = Some(booted(asked)?);
                    }
                    for run in &mut plan.runs {
                        run.state = setting.state;
                    }
                    let report = run(&plan, &input)?;
                    let mut figures =
                        vec![(KIB.to_string(), report.final_slab_bytes as f64 / 1024.0)];
                    figures.extend(objects::of_kmalloc_2k(&report));
                    Ok(figures)
                }),
            });
        }
    }
    for load in LARGE_PAGES.loads() {
        all.push(Experiment {
            name: name_of(load, "recorded machine"),
            design: None,
            seconds: 0.05,
            arms: Arms::Values,
            run: Box::new(move |_| {
                let [predicted, observed] = beside_the_kernel(load)?;
                let (kib, observed_kib) = (KIB.to_string(), OBSERVED_KIB.to_string());
                Ok(vec![(kib, predicted), (observed_kib, observed)])
            }),
        });
    }
    all
}

/// By how many per cent memory after a load changes from the default.
fn memory(arm: Arm<'_>, source: &str, asked: &str) -> Option<f64> {
    arm.change(&name_of(source, asked), &name_of(source, "default"), KIB)
}

/// By how many per cent a replay on the recorded machine ends above what the kernel reported.
fn error(arm: Arm<'_>, load: &str) -> Option<f64> {
    let run = name_of(load, "recorded machine");
    change(arm.get(&run, KIB), arm.get(&run, OBSERVED_KIB))
}

pub(super) fn claims() -> Vec<ClaimSpec> {
    let claim = |id, figure: Formula| ClaimSpec::published(super::THREAD.name, id, figure);
    vec![
        claim("order-2-replay", |arm| {
            memory(arm, "hackbench", "slub_max_order=2")
        }),
        claim("order-1-replay", |arm| {
            memory(arm, "hackbench", "slub_max_order=1")
        }),
        claim("maxcpus-256-replay", |arm| {
            memory(arm, "hackbench", "maxcpus=256")
        }),
        claim("cpu-partial-0-replay", |arm| {
            memory(arm, "hackbench", "cpu_partial=0")
        }),
        claim("patched-replay", |arm| memory(arm, "hackbench", "patched")),
        claim("cpu-partial-0-replay-320", |arm| {
            memory(arm, "hackbench of 320", "cpu_partial=0")
        }),
        claim("patched-replay-320", |arm| {
            memory(arm, "hackbench of 320", "patched")
        }),
        claim("replay-real", |arm| error(arm, "trhb")),
    ]
}

pub(super) fn show(results: &Results) -> Vec<Table> {
    let of_run = |variant| HACKBENCH_64K.number("slab_memory_kb", &[("variant", variant)]);
    let patched = change(of_run("patched"), of_run("default"));
    let mut tables = Vec::new();
    for source in &SOURCES {
        let rows = ASKED.iter().filter(|asked| asked.name != "default");
        let rows = rows.map(|asked| {
            let boot = after_boot()
                .into_iter()
                .find(|(name, _)| *name == asked.name);
            let (when, published) = match asked.name {
                "patched" => ("after hackbench", patched),
                _ => ("after boot", boot.and_then(|(_, published)| published)),
            };
            let label = format!("{} (published {when})", asked.name);
            Row::of(label, published, results, |arm| {
                memory(arm, source.name, asked.name)
            })
        });
        tables.push(Table {
            title: format!("slab memory {}, against the default", source.about),
            unit: "%",
            origin: Origin::of("", source.command),
            rows: rows.collect(),
        });
    }
    let row = |label: &str, load: &'static str| {
        Row::of(label, None, results, move |arm| error(arm, load))
    };
    tables.push(Table {
        title: "slab memory at the end of a replay on the recorded machine, against the kernel's report".to_string(),
        unit: "%",
        origin: Origin::default(),
        rows: vec![row("hackbench", "trhb"), row("sockets", "trfill")],
    });
    tables.push(objects::kmalloc_2k(results));
    tables
}
