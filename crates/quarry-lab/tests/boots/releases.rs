//! Predictions between kernels that ran one load on one machine, each from each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quarry_core::era::Era;
use quarry_snapshot::Snapshot;
use quarry_state::{Question, State};

use crate::boot::{Boot, boots};
use crate::class::{Case, Class, STAGES, document};

/// Reports of all boots in one stage.
fn reports(stage: &str) -> BTreeMap<Boot, Snapshot> {
    let read = |path: &Path| Snapshot::read(path, Some(stage)).unwrap();
    let boots = boots("boots").into_iter();
    boots.map(|(boot, path)| (boot, read(&path))).collect()
}

/// Releases before and from 7.0 on, which has sheaves on all caches.
fn generation(era: Era) -> &'static str {
    match era < Era::V7_0 {
        true => "6.17 to 6.19",
        false => "7.0 to 7.3",
    }
}

/// Predictions of every kernel from the first boot of every other one in a stage. The second boot is only compared with:
/// that is what another boot may do.
fn cases(stage: &str) -> BTreeMap<[&'static str; 2], Vec<Case>> {
    let reports = reports(stage);
    assert_eq!(reports.len(), 28);
    let eras: BTreeSet<Era> = reports.keys().map(|boot| boot.era()).collect();
    let mut cases: BTreeMap<_, Vec<Case>> = BTreeMap::new();
    for (from, snapshot) in reports.iter().filter(|(from, _)| from.run == 1) {
        let state = State::of(snapshot).unwrap();
        for era in eras.iter().copied().filter(|era| *era != from.era()) {
            let question = Question {
                release: Some(era),
                ..Question::default()
            };
            let told = state.on(&question).unwrap();
            let likely = [told.bytes.likely_low_bytes, told.bytes.likely_high_bytes];
            let is_there = |boot: &Boot| boot.cpus == from.cpus && boot.era() == era;
            for (boot, real) in reports.iter().filter(|(boot, _)| is_there(boot)) {
                let real = real.slab_bytes();
                let about = format!(
                    "{stage}, {} CPUs, {} to {}",
                    from.cpus,
                    from.era(),
                    boot.era()
                );
                let limits = told.bytes.low_bytes..=told.bytes.high_bytes;
                assert!(
                    limits.contains(&real),
                    "{about}: {real} is not in {limits:?}"
                );
                assert!(
                    likely.iter().all(|end| limits.contains(end)),
                    "{about}: {likely:?}"
                );
                let direction = [generation(from.era()), generation(era)];
                let case = Case::of(&told, real);
                cases.entry(direction).or_default().push(case);
            }
        }
    }
    cases
}

/// The table of `docs/what-if.md`, by direction and stage, which `--nocapture` prints: nine in ten of what is likely is nine
/// in ten, and narrow enough to decide something.
#[test]
fn nine_in_ten_are_nine_in_ten() {
    let mut lines = Vec::new();
    let mut all: BTreeMap<_, Vec<Case>> = BTreeMap::new();
    for stage in STAGES {
        for (direction, cases) in cases(stage) {
            let [from, to] = direction;
            lines.push(format!("| {from} | {to} | {stage} | {}", Class::of(&cases)));
            all.entry(direction).or_default().extend(cases);
        }
    }
    let back = Class::of(&all[&["7.0 to 7.3", "6.17 to 6.19"]]);
    let all = Class::of(all.values().flatten());
    lines.push(format!("| all | all | all | {all}"));
    document(&lines);
    let percent = all.inside_percent();
    assert!((87.0..=97.0).contains(&percent), "{percent}");
    assert!(
        all.widths[0] <= 15.0 && all.widths[1] <= 50.0,
        "{:?}",
        all.widths
    );
    assert!(back.errors[0].abs() <= 4.0, "{:?}", back.errors);
}

/// Two boots of a kernel in a stage: the squares of what caches differ by in slabs, the slabs that they have, and what the
/// total differs by beside that, as a part of it and squared.
fn another_boot(first: &Snapshot, second: &Snapshot) -> [f64; 3] {
    let bytes = |snapshot: &Snapshot| snapshot.slab_bytes() as f64;
    let (mut squares, mut slabs, mut own) = (0.0, 0.0, 0.0);
    for row in &first.slabinfo.rows {
        if let Some(other) = second.slabinfo.row(&row.name) {
            let [a, b] = [row.num_slabs, other.num_slabs].map(|slabs| slabs as f64);
            squares += (a - b).powi(2);
            slabs += ((a + b) / 2.0).min(32.0);
            let slab_bytes = (row.pagesperslab * first.page_bytes) as f64;
            own += ((a - b) * slab_bytes / bytes(first)).powi(2);
        }
    }
    let all = (bytes(second) / bytes(first) - 1.0).powi(2);
    [squares, slabs, all - own]
}

/// The constants of another boot in `quarry-state/src/on/releases.rs` are what the boots say, whichever kernel is left out.
#[test]
fn another_boot_is_as_measured() {
    let stages = STAGES.map(reports);
    let eras: BTreeSet<Era> = stages[0].keys().map(|boot| boot.era()).collect();
    for left_out in eras {
        let (mut sums, mut pairs) = ([0.0; 3], 0.0);
        for reports in &stages {
            let firsts = reports.iter().filter(|(boot, _)| boot.run == 1);
            for (boot, first) in firsts.filter(|(boot, _)| boot.era() != left_out) {
                let second = &reports[&Boot {
                    run: 2,
                    ..boot.clone()
                }];
                let of_pair = another_boot(first, second);
                for (sum, part) in sums.iter_mut().zip(of_pair) {
                    *sum += part;
                }
                pairs += 1.0;
            }
        }
        let [squares, slabs, common] = sums;
        let (own, common) = ((squares / slabs).sqrt(), (common / pairs).sqrt());
        println!(
            "without {left_out}: {own:.3} of the root of its slabs, {:.2} % in common",
            100.0 * common
        );
        assert!((0.38..0.42).contains(&own), "{own}");
        assert!((0.011..0.017).contains(&common), "{common}");
    }
}
