//! Predictions between kernels that ran one load on one machine, each from each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quarry_core::era::Era;
use quarry_lab::whatif::{Baseline, Question};
use quarry_snapshot::Snapshot;

const STAGES: [&str; 7] = [
    "boot", "bursts", "peak", "drained", "idle", "dropped", "shrunk",
];

/// A boot of a release on some CPUs. `tests/data/boots/README.md` says how it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Boot {
    era: Era,
    cpus: u32,
    run: u32,
}

impl Boot {
    /// The boot of a file `7.0.13-2cpus-1.json.gz`.
    fn parse(name: &str) -> Option<Self> {
        let mut words = name.strip_suffix(".json.gz")?.split('-');
        Some(Self {
            era: Era::parse(words.next()?)?,
            cpus: words.next()?.strip_suffix("cpus")?.parse().ok()?,
            run: words.next()?.parse().ok()?,
        })
    }
}

/// Reports of all boots in one stage.
fn reports(stage: &str) -> BTreeMap<Boot, Snapshot> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/boots");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap());
    entries
        .filter_map(|entry| {
            let boot = Boot::parse(entry.file_name().to_str()?)?;
            Some((boot, Snapshot::read(&entry.path(), Some(stage)).unwrap()))
        })
        .collect()
}

/// Generation of a release: sheaves of none, of two or of all caches.
fn generation(era: Era) -> &'static str {
    match era {
        _ if era < Era::V6_18 => "none",
        _ if era < Era::V7_0 => "few",
        _ => "all",
    }
}

/// docs/what-if.md has the errors, which `--nocapture` prints.
#[test]
fn every_kernel_is_within_the_bounds_of_every_other() {
    let mut errors: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for stage in STAGES {
        let reports = reports(stage);
        assert_eq!(reports.len(), 28);
        let baselines: BTreeMap<Boot, Baseline<'_>> = reports
            .iter()
            .map(|(boot, snapshot)| (*boot, Baseline::of(snapshot).unwrap()))
            .collect();
        let observed = |boot: &Boot| {
            let told = baselines[boot].predict(&Question::default()).unwrap();
            told.observed_bytes
        };
        let observed: BTreeMap<Boot, u64> =
            reports.keys().map(|boot| (*boot, observed(boot))).collect();
        let eras: BTreeSet<Era> = observed.keys().map(|boot| boot.era).collect();
        // The second boot of each kernel is only compared with: that is what another boot may do.
        let first = baselines.iter().filter(|(from, _)| from.run == 1);
        for (from, baseline) in first {
            for era in eras.iter().copied().filter(|era| *era != from.era) {
                let question = Question {
                    release: Some(era),
                    ..Question::default()
                };
                let told = baseline.predict(&question).unwrap();
                let is_there = |boot: &&Boot| boot.cpus == from.cpus && boot.era == era;
                for boot in observed.keys().filter(is_there) {
                    let real = observed[boot];
                    assert!(
                        (told.low_bytes..=told.high_bytes).contains(&real),
                        "{stage}, {} CPUs, from {} to {era}: {real} is not in {} to {}",
                        from.cpus,
                        from.era,
                        told.low_bytes,
                        told.high_bytes
                    );
                    let kind = format!("{} to {}", generation(from.era), generation(era));
                    let error = (told.predicted_bytes as f64 / real as f64 - 1.0) * 100.0;
                    errors.entry((kind, stage)).or_default().push(error);
                }
            }
        }
    }
    for ((kind, stage), errors) in &errors {
        let least = errors.iter().copied().fold(f64::MAX, f64::min);
        let most = errors.iter().copied().fold(f64::MIN, f64::max);
        println!(
            "{kind:12} {stage:8} {:4} {least:+6.1} to {most:+6.1} %",
            errors.len()
        );
    }
    // A shrink empties sheaves, and a prediction cannot know that there was one.
    let usual = errors.iter().filter(|((_, stage), _)| *stage != "shrunk");
    let worst = usual
        .flat_map(|(_, errors)| errors)
        .fold(0.0, |worst: f64, error| worst.max(error.abs()));
    assert!(worst < 20.0, "{worst}");
}
