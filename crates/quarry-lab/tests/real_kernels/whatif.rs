//! Predictions from one kernel against another that was booted with the other settings.

use quarry_lab::DesignSpec;
use quarry_lab::kernel::Snapshot;
use quarry_lab::setting::Setting;
use quarry_lab::whatif::{Prediction, Question, predict};

use crate::groundtruth::folder;

/// What differs between two kernels.
enum Change {
    Set(&'static str),
    Cpus(u32),
    Design(&'static str),
}

use Change::{Cpus, Design, Set};

impl Change {
    /// `None` if this build does not have the design.
    fn question(&self) -> Option<Question> {
        let mut question = Question::default();
        match self {
            Set(text) => question.settings.push(Setting::parse(text).unwrap()),
            Cpus(cpus) => question.cpus = Some(*cpus),
            Design(text) => question.design = Some(DesignSpec::parse(text).ok()?),
        }
        Some(question)
    }
}

/// A kernel, another one, what differs, and how far off a prediction may be in per cent.
const PAIRS: &[(&str, &str, Change, f64)] = &[
    (DEFAULT, ORDER_1, Set("slub_max_order=1"), 10.0),
    (REPEAT, ORDER_1, Set("slub_max_order=1"), 10.0),
    (ORDER_1, DEFAULT, Set("slub_max_order=3"), 10.0),
    (ORDER_1, REPEAT, Set("slub_max_order=3"), 10.0),
    (DEFAULT, CPUS_4, Cpus(4), 10.0),
    (REPEAT, CPUS_4, Cpus(4), 10.0),
    (CPUS_4, DEFAULT, Cpus(16), 10.0),
    // Only its first stage: reading sysfs, which SLAB does not have, allocates in the others.
    (SLUB, SLAB, Design("slab@6.1"), 10.0),
];

const DEFAULT: &str = "B-ppc64el-m16G-smp16";
const REPEAT: &str = "B-ppc64el-m16G-smp16-repeat";
const ORDER_1: &str = "B-ppc64el-m16G-smp16-maxorder1";
const SLUB: &str = "E-6.1-slub-m2G-smp2";
const SLAB: &str = "E-6.1-slab-m2G-smp2";
const CPUS_4: &str = "B-ppc64el-m4G-smp4-trace";

/// Stages that have the same work in every boot that has them.
const STAGES: [&str; 7] = [
    "boot",
    "after-hb",
    "fill-pairs",
    "fill-full",
    "fill-thinned",
    "fill-closed",
    "fill-drained",
];

/// `None` without the recording or the stage.
fn load(name: &str, stage: &str) -> Option<Snapshot> {
    Snapshot::read(&folder().join(format!("{name}.json.gz")), Some(stage)).ok()
}

fn off_percent(predicted: u64, real: u64) -> f64 {
    (predicted as f64 / real as f64 - 1.0) * 100.0
}

fn check(told: &Prediction, real: u64, within: f64, what: &str) {
    let off = off_percent(told.predicted_bytes, real);
    println!(
        "{what:75} {:6} > {:6} [{:6} {:6}] kB, really {:6}: {off:+.1} %",
        told.observed_bytes >> 10,
        told.predicted_bytes >> 10,
        told.low_bytes >> 10,
        told.high_bytes >> 10,
        real >> 10,
    );
    assert!(off.abs() <= within, "{what}: off by {off:.1} %");
    assert!(told.low_bytes <= told.predicted_bytes, "{what}");
    assert!(told.predicted_bytes <= told.high_bytes, "{what}");
}

#[test]
fn pairs_of_boots() {
    if load(DEFAULT, "boot").is_none() {
        return println!("skipped: no recordings of kernels are here");
    }
    for (from, to, change, within) in PAIRS {
        let Some(question) = change.question() else {
            println!("{from} > {to}: skipped, this build has no such design");
            continue;
        };
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
fn the_same_settings_change_nothing() {
    for name in [DEFAULT, ORDER_1, CPUS_4] {
        for stage in STAGES {
            let Some(snapshot) = load(name, stage) else {
                continue;
            };
            let told = predict(&snapshot, &Question::default()).unwrap();
            let bytes = [told.low_bytes, told.predicted_bytes, told.high_bytes];
            assert_eq!(bytes, [snapshot.slab_bytes(); 3], "{name} {stage}");
            assert_eq!(
                told.explained_caches,
                snapshot.slabinfo.rows.len(),
                "{name} {stage}"
            );
        }
    }
}
