//! Predictions for other numbers of CPUs and other pages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quarry_snapshot::Snapshot;
use quarry_state::{Question, State};

use crate::boot::{Boot, boots};
use crate::class::{Case, Class, document};

/// The first boots of each kernel, an architecture's release, on all its machines.
fn kernels() -> BTreeMap<[String; 2], Vec<(Boot, PathBuf)>> {
    let mut kernels: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (boot, path) in ["boots", "cpus"].into_iter().flat_map(boots) {
        if boot.run == 1 {
            let kernel = [boot.architecture.clone(), boot.release.clone()];
            kernels.entry(kernel).or_default().push((boot, path));
        }
    }
    kernels
}

/// Predictions of a kernel between machines that differ in one thing.
fn cases(machines: &[(Boot, PathBuf)], stage: &str, pages: bool) -> Vec<Case> {
    let read = |path: &PathBuf| Snapshot::read(path, Some(stage)).unwrap();
    let snapshots: Vec<_> = machines
        .iter()
        .map(|(machine, path)| (machine, read(path)))
        .collect();
    let mut cases = Vec::new();
    for (from, snapshot) in &snapshots {
        let state = State::of(snapshot).unwrap();
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
            let told = state.on(&question).unwrap();
            let real = real.slab_bytes();
            let limits = told.bytes.low_bytes..=told.bytes.high_bytes;
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
    for ([architecture, _], machines) in kernels() {
        for (what, pages) in [("CPUs", false), ("page size", true)] {
            for (place, stage) in ["boot", "peak", "drained"].into_iter().enumerate() {
                let key = (what, architecture.clone(), place, stage);
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
