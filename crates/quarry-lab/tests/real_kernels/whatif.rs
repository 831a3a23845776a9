//! Predictions from one kernel against another that was booted with the other settings, or is newer.

use std::path::Path;

use quarry_designs::{DesignSpec, Setting};
use quarry_snapshot::Snapshot;
use quarry_state::{Prediction, Question, predict};

use quarry_core::era::Era;

use crate::groundtruth::{folder, stages};

/// Difference between two kernels.
pub(super) enum Change {
    Set(&'static str),
    Cpus(u32),
    Design(&'static str),
}

use Change::{Cpus, Design, Set};

impl Change {
    /// `None` if this build does not have the design.
    pub(super) fn question(&self) -> Question {
        let mut question = Question::default();
        match self {
            Set(text) => question.settings.push(Setting::parse(text).unwrap()),
            Cpus(cpus) => question.cpus = Some(*cpus),
            Design(text) => question.design = Some(DesignSpec::parse(text).unwrap()),
        }
        question
    }
}

/// A kernel, another one, what differs, and how far off a prediction may be in per cent.
pub(super) const PAIRS: &[(&str, &str, Change, f64)] = &[
    (DEFAULT, ORDER_1, Set("slub_max_order=1"), 10.0),
    (REPEAT, ORDER_1, Set("slub_max_order=1"), 10.0),
    (ORDER_1, DEFAULT, Set("slub_max_order=3"), 10.0),
    (ORDER_1, REPEAT, Set("slub_max_order=3"), 10.0),
    (DEFAULT, CPUS_4, Cpus(4), 15.0),
    (REPEAT, CPUS_4, Cpus(4), 15.0),
    (CPUS_4, DEFAULT, Cpus(16), 10.0),
    // Only its first stage: reading sysfs, which SLAB does not have, allocates in the others.
    (SLUB, SLAB, Design("slab@6.1"), 10.0),
];

const DEFAULT: &str = "B-ppc64el-m16G-smp16";
const REPEAT: &str = "B-ppc64el-m16G-smp16-repeat";
const ORDER_1: &str = "B-ppc64el-m16G-smp16-maxorder1";
pub(super) const SLUB: &str = "E-6.1-slub-m2G-smp2";
const SLAB: &str = "E-6.1-slab-m2G-smp2";
const CPUS_4: &str = "B-ppc64el-m4G-smp4-trace";

/// Stages that have the same work in every boot that has them.
pub(super) const STAGES: [&str; 7] = [
    "boot",
    "after-hb",
    "fill-pairs",
    "fill-full",
    "fill-thinned",
    "fill-closed",
    "fill-drained",
];

/// `None` without the recording or the stage.
pub(super) fn load(name: &str, stage: &str) -> Option<Snapshot> {
    Snapshot::read(&folder().join(format!("{name}.json.gz")), Some(stage)).ok()
}

pub(super) fn off_percent(predicted: u64, real: u64) -> f64 {
    (predicted as f64 / real as f64 - 1.0) * 100.0
}

fn check(told: &Prediction, real: u64, within: f64, what: &str) {
    let off = off_percent(told.bytes.predicted_bytes, real);
    println!(
        "{what:75} {:6} > {:6} [{:6} {:6}] kB, really {:6}: {off:+.1} %",
        told.observed_bytes >> 10,
        told.bytes.predicted_bytes >> 10,
        told.bytes.low_bytes >> 10,
        told.bytes.high_bytes >> 10,
        real >> 10,
    );
    assert!(off.abs() <= within, "{what}: off by {off:.1} %");
    assert!(told.bytes.low_bytes <= told.bytes.predicted_bytes, "{what}");
    assert!(
        told.bytes.predicted_bytes <= told.bytes.high_bytes,
        "{what}"
    );
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn pairs_of_boots() {
    for (from, to, change, within) in PAIRS {
        let question = change.question();
        let mut compared = 0;
        for stage in STAGES {
            let (Some(old), Some(new)) = (load(from, stage), load(to, stage)) else {
                continue;
            };
            if *from == SLUB && stage != "boot" {
                continue;
            }
            let told = predict(&old, &question).unwrap();
            let real = new.slab_bytes();
            let what = format!("{from} > {to} {stage}");
            check(&told, real, *within, &what);
            // That nothing changes would be wrong.
            if stage == "boot" {
                let unchanged = off_percent(told.observed_bytes, real);
                assert!(unchanged.abs() > 15.0, "{what}: {unchanged:.1} %");
            }
            compared += 1;
        }
        assert!(compared > 0, "{from} > {to}: no stage");
    }
}

/// Nothing is asked: nothing changes, to the byte, in every stage.
#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn the_same_settings_change_nothing() {
    for name in [DEFAULT, ORDER_1, CPUS_4] {
        assert!(load(name, "boot").is_some(), "no recording {name}");
        for stage in STAGES {
            let Some(snapshot) = load(name, stage) else {
                continue;
            };
            let told = predict(&snapshot, &Question::default()).unwrap();
            let bytes = [
                told.bytes.low_bytes,
                told.bytes.predicted_bytes,
                told.bytes.high_bytes,
            ];
            assert_eq!(bytes, [snapshot.slab_bytes(); 3], "{name} {stage}");
            assert_eq!(
                told.explained_caches,
                snapshot.slabinfo.rows.len(),
                "{name} {stage}"
            );
        }
    }
}

/// Kernels that the same machine and load ran on: from, to, the release that is asked about. `-light`
/// are boots whose stages have no sysfs.
pub(super) const UPGRADES: [(&str, &str, &str); 3] = [
    (OLDER, "H-x86_64-7.0.13-m4G-smp2", "7.0"),
    (OLDER, "G-x86_64-7.2-m4G-smp2", "7.2"),
    (OLDER, "H-x86_64-7.3.4-m4G-smp2", "7.3"),
];

const OLDER: &str = "H-x86_64-6.17.13-m4G-smp2";

/// Largest error of a predicted total, in per cent.
const UPGRADE_PERCENT: f64 = 10.0;

/// Stages with larger errors, and the largest, in boots whose stages have no sysfs. After the traced hackbench
/// `kmalloc-cg-2k` alone has 65 slabs of 32 KiB in 7.2, 67 in 7.0 and 44 in 7.3; 20 are expected. How far a load went that
/// is gone is not in a snapshot, nor whether what it freed last lay together.
const UPGRADES_MISSED: [(&str, f64); 6] = [
    ("trhb-after", -16.5),
    ("trfill-before", -16.5),
    ("trfill-fill-pairs", -14.5),
    ("trfill-fill-drained", -12.5),
    ("trfill-after", -12.5),
    ("final-sysfs", -15.0),
];

/// Predicts an upgrade, and prints a line of a table. How far off it is, in per cent.
fn upgraded(old: &Snapshot, new: &Snapshot, release: &str, kind: &str) -> f64 {
    let question = Question {
        release: Era::parse(release),
        ..Question::default()
    };
    let told = predict(old, &question).unwrap();
    let real = new.slab_bytes();
    let off = off_percent(told.bytes.predicted_bytes, real);
    let stage = old.stage.as_deref().unwrap_or("");
    println!(
        "| {release} | {stage}{kind} | {} | {} | {} to {} | {} | {off:+.1} % |",
        told.observed_bytes >> 10,
        told.bytes.predicted_bytes >> 10,
        told.bytes.likely_low_bytes >> 10,
        told.bytes.likely_high_bytes >> 10,
        real >> 10,
    );
    let bounds = told.bytes.low_bytes..=told.bytes.high_bytes;
    assert!(
        bounds.contains(&real),
        "{release} {stage}: {bounds:?}, really {real}"
    );
    assert!(
        bounds.contains(&told.bytes.predicted_bytes),
        "{release} {stage}"
    );
    off
}

/// Every stage of every pair. The lines are the table of `docs/what-if.md`.
#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn upgrades() {
    for kind in ["", "-light"] {
        for (from, to, release) in UPGRADES {
            let (from, to) = (format!("{from}{kind}"), format!("{to}{kind}"));
            let mut compared = 0;
            let path = folder().join(format!("{from}.json.gz"));
            for stage in stages(&path).into_iter().flatten() {
                let (Some(old), Some(new)) = (load(&from, &stage), load(&to, &stage)) else {
                    continue;
                };
                let off = upgraded(&old, &new, release, kind);
                let missed = UPGRADES_MISSED.iter().find(|missed| missed.0 == stage);
                let most = missed
                    .filter(|_| !kind.is_empty())
                    .map_or(-UPGRADE_PERCENT, |missed| missed.1);
                let range = most..=UPGRADE_PERCENT;
                assert!(range.contains(&off), "{to} {stage}: {off:.1} %");
                compared += 1;
            }
            assert!(compared > 0, "{from} > {to}: no stage");
        }
    }
}

/// The pair that is part of the repository.
#[test]
fn upgrade_from_6_17_to_7_3() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/6.17-to-7.3-x86_64-4k");
    let read = |kernel: &str, stage: &str| {
        Snapshot::read(&data.join(format!("{kernel}.json.gz")), Some(stage)).unwrap()
    };
    for stage in ["boot", "after-hb", "fill-full", "fill-drained"] {
        let (old, new) = (read("6.17.13", stage), read("7.3.4", stage));
        let off = upgraded(&old, &new, "7.3", " (bundled)");
        assert!(off.abs() <= UPGRADE_PERCENT, "{stage}: {off:.1} %");
        let unchanged = off_percent(old.slab_bytes(), new.slab_bytes());
        assert!(
            unchanged < -6.0,
            "{stage}: nothing changes, {unchanged:.1} %"
        );
        // The newer kernel is what it is said to be, and stays so.
        let same = predict(&new, &Question::default()).unwrap();
        assert_eq!(same.snapshot_design, "sheaf@7.3");
        assert_eq!(same.bytes.predicted_bytes, new.slab_bytes());
    }
}
