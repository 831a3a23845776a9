//! Predictions for other numbers of CPUs and other pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quarry_lab::whatif::{Baseline, Question};
use quarry_snapshot::Snapshot;

use crate::class::{Case, Class, document};

/// A kernel that was booted on several machines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kernel {
    architecture: String,
    release: String,
}

/// A machine: its pages in KiB, and its CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Machine {
    page_kib: u64,
    cpus: u32,
}

/// The kernel and the machine of a file `x86_64-4k-7.3.4-16cpus-1.json.gz`, or `7.3.4-2cpus-1.json.gz` of x86-64.
fn parse(name: &str) -> Option<(Kernel, Machine)> {
    let name = name.strip_suffix("-1.json.gz")?;
    let (rest, cpus) = name.strip_suffix("cpus")?.rsplit_once('-')?;
    let mut words = rest.splitn(3, '-');
    let first = words.next()?;
    let (architecture, pages, release) = match (words.next(), words.next()) {
        (Some(pages), Some(release)) => (first, pages, release),
        _ => ("x86_64", "4k", first),
    };
    let kernel = Kernel {
        architecture: architecture.to_string(),
        release: release.to_string(),
    };
    let machine = Machine {
        page_kib: pages.strip_suffix('k')?.parse().ok()?,
        cpus: cpus.parse().ok()?,
    };
    Some((kernel, machine))
}

/// The first boots of all kernels on all machines.
fn boots() -> BTreeMap<Kernel, BTreeMap<Machine, PathBuf>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut boots: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for folder in ["boots", "cpus"] {
        for entry in std::fs::read_dir(data.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if let Some((kernel, machine)) = path.file_name().and_then(|name| parse(name.to_str()?))
            {
                boots.entry(kernel).or_default().insert(machine, path);
            }
        }
    }
    boots
}

/// Predictions of a kernel between machines that differ in one thing.
fn cases(machines: &BTreeMap<Machine, PathBuf>, stage: &str, pages: bool) -> Vec<Case> {
    let read = |path: &PathBuf| Snapshot::read(path, Some(stage)).unwrap();
    let snapshots: BTreeMap<_, _> = machines
        .iter()
        .map(|(machine, path)| (machine, read(path)))
        .collect();
    let mut cases = Vec::new();
    for (from, snapshot) in &snapshots {
        let baseline = Baseline::of(snapshot).unwrap();
        for (to, real) in &snapshots {
            let differ = (from.page_kib != to.page_kib, from.cpus != to.cpus);
            if differ != (pages, !pages) {
                continue;
            }
            let question = Question {
                page_bytes: pages.then_some(to.page_kib << 10),
                cpus: (!pages).then_some(to.cpus),
                ..Question::default()
            };
            let told = baseline.predict(&question).unwrap();
            let real = real.slab_bytes();
            let limits = told.low_bytes..=told.high_bytes;
            assert!(
                limits.contains(&real),
                "{stage}: {} to {} CPUs: {real}, {limits:?}",
                from.cpus,
                to.cpus
            );
            cases.push(Case::of(&told, real));
        }
    }
    cases
}

/// The table of `docs/what-if.md`, by architecture and stage.
#[test]
fn other_machines() {
    let mut classes: BTreeMap<_, Vec<Case>> = BTreeMap::new();
    for (kernel, machines) in boots() {
        for (what, pages) in [("CPUs", false), ("page size", true)] {
            for (place, stage) in ["boot", "peak", "drained"].into_iter().enumerate() {
                let key = (what, kernel.architecture.clone(), place, stage);
                classes
                    .entry(key)
                    .or_default()
                    .extend(cases(&machines, stage, pages));
            }
        }
    }
    classes.retain(|_, cases| !cases.is_empty());
    let lines = classes
        .iter()
        .map(|((what, architecture, _, stage), cases)| {
            format!("| {what} | {architecture} | {stage} | {}", Class::of(cases))
        });
    document(&lines.collect::<Vec<_>>());
    // At boot a machine is what its CPUs and pages make of it.
    for ((what, architecture, _, stage), cases) in &classes {
        let class = Class::of(cases);
        if (*what, *stage) == ("CPUs", "boot") {
            assert!(class.errors[0].abs() <= 8.0, "{architecture}: {class}");
            assert!(class.inside_percent() >= 87.0, "{architecture}: {class}");
        }
    }
}
