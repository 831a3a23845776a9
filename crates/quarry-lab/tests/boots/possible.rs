//! Predictions for other numbers of possible CPUs (`tests/data/possible`).

use std::collections::BTreeMap;
use std::path::Path;

use quarry_designs::Setting;
use quarry_snapshot::Snapshot;
use quarry_state::{Prediction, Question, State, predict};

use crate::class::{Case, Class, document};

/// Kernels, with the numbers of possible CPUs.
const KERNELS: [(&str, &[u32]); 3] = [
    ("ppc64le-4k-6.12.95", &[16, 128, 256]),
    ("ppc64le-64k-6.1.176", &[16, 32, 64, 128, 256, 512]),
    ("x86_64-4k-6.1.176", &[2, 32, 128]),
];

fn read(name: &str, stage: &str) -> Snapshot {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/possible");
    Snapshot::read(&folder.join(format!("{name}.json.gz")), Some(stage)).unwrap()
}

/// A prediction, none of whose limits the real bytes exceed.
fn within(told: &Prediction, real: u64) -> Case {
    let limits = told.bytes.low_bytes..=told.bytes.high_bytes;
    assert!(limits.contains(&real), "{real}, {limits:?}");
    Case::of(told, real)
}

/// The table of `docs/what-if.md`: each number of possible CPUs from each other one.
#[test]
fn possible_cpus() {
    let mut lines = Vec::new();
    for (kernel, numbers) in KERNELS {
        let mut classes: BTreeMap<&str, Vec<Case>> = BTreeMap::new();
        for stage in ["boot", "blocks"] {
            let boots = numbers.iter();
            let boots = boots.map(|n| (*n, read(&format!("{kernel}-possible{n}-1"), stage)));
            let boots: Vec<_> = boots.collect();
            for (from, snapshot) in &boots {
                let state = State::of(snapshot).unwrap();
                for (to, real) in boots.iter().filter(|(to, _)| to != from) {
                    let question = Question {
                        possible_cpus: Some(*to),
                        ..Question::default()
                    };
                    let told = state.on(&question).unwrap();
                    assert!(told.bytes.likely_low_bytes < told.bytes.likely_high_bytes);
                    let case = within(&told, real.slab_bytes());
                    classes.entry(stage).or_default().push(case);
                }
            }
        }
        for (stage, cases) in &classes {
            lines.push(format!("| {kernel} | {stage} | {}", Class::of(cases)));
        }
        // At boot there is no block device yet.
        let class = Class::of(&classes["blocks"]);
        assert!(class.inside_percent() >= 65.0, "{kernel}: {class}");
        assert!(class.errors[0].abs() <= 5.0, "{kernel}: {class}");
    }
    document(&lines);
}

/// Slabs as a kernel chooses them that goes by possible CPUs: `slub_min_objects` is 4 * (fls(N) + 1).
#[test]
fn more_objects_a_slab() {
    let from = read("ppc64le-64k-6.1.176-possible16-1", "blocks");
    for (possible, objects) in [(16, 40), (16, 44), (256, 40), (512, 44)] {
        let name = format!("ppc64le-64k-6.1.176-possible{possible}-minobjects{objects}");
        let real = read(&name, "blocks").slab_bytes();
        let question = Question {
            possible_cpus: Some(possible),
            settings: vec![Setting::of("slub_min_objects", objects)],
            ..Question::default()
        };
        let told = predict(&from, &question).unwrap();
        within(&told, real);
        let likely = told.bytes.likely_low_bytes..=told.bytes.likely_high_bytes;
        assert!(likely.contains(&real), "{name}: {real}, {likely:?}");
        let error = told.bytes.predicted_bytes as f64 / real as f64 - 1.0;
        assert!(error.abs() <= 0.05, "{name}: {error}");
    }
}
