//! Snapshots whose hidden state a debugger read (`quarry-snapshot/tests/data/drgn`): the truth that estimates are measured by.

use std::path::Path;

use quarry_core::era::Era;
use quarry_designs::Setting;
use quarry_snapshot::Snapshot;

use quarry_lab::look::Look;
use quarry_state::{KNOWN_ERRORS, Prediction, Question, predict};

const RELEASES: [&str; 4] = ["5.10", "6.1", "6.12", "7.3"];

/// A kind of input: a name, and what it leaves of a snapshot of drgn.
type Kind = (&'static str, fn(&mut Snapshot));

/// From the best.
const KINDS: [Kind; 3] = [
    ("exact", |_| {}),
    ("sysfs", |snapshot| snapshot.hidden = None),
    ("slabinfo", |snapshot| {
        snapshot.hidden = None;
        snapshot.sysfs.clear();
        snapshot.aliases.clear();
    }),
];

fn exact(release: &str) -> Snapshot {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quarry-snapshot/tests/data/drgn");
    Snapshot::read(&data.join(format!("{release}-drgn.json.gz")), None).unwrap()
}

fn of_kind(release: &str, kind: usize) -> Snapshot {
    let mut snapshot = exact(release);
    KINDS[kind].1(&mut snapshot);
    snapshot
}

fn documented() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../../docs/what-if.md")).unwrap()
}

fn told(snapshot: &Snapshot, question: &Question) -> Prediction {
    predict(snapshot, question).unwrap()
}

/// Bytes of free objects that a prediction takes CPUs to hold, and the bytes by which it is off in all caches.
fn held_bytes(snapshot: &Snapshot, told: &Prediction, truth: &Snapshot) -> (u64, u64) {
    let rows = snapshot.slabinfo.rows.iter().zip(&told.caches);
    rows.fold((0, 0), |(held, off), (row, cache)| {
        assert_eq!(row.name, cache.name);
        let guessed = row.active_objs.saturating_sub(cache.objects);
        let really = truth.hidden(&row.name).unwrap().held_objects();
        (
            held + guessed * row.objsize,
            off + guessed.abs_diff(really) * row.objsize,
        )
    })
}

#[test]
fn objects_in_use_are_those_that_were_read() {
    for release in RELEASES {
        let snapshot = exact(release);
        let answer = told(&snapshot, &Question::default());
        for (row, cache) in snapshot.slabinfo.rows.iter().zip(&answer.caches) {
            let held = snapshot.hidden(&row.name).unwrap().held_objects();
            assert_eq!(
                cache.objects,
                row.active_objs - held,
                "{release} {}",
                row.name
            );
        }
        let look = Look::of(&[snapshot]).unwrap();
        assert!(look.parts.held_bytes > 3_000_000, "{release}");
    }
}

/// The table of `docs/what-if.md`: kB that CPUs, sheaves and barns hold, as estimated and really, and the sum of the misses.
#[test]
fn estimates_of_what_is_held() {
    let (table, mut missing) = (documented(), Vec::new());
    for release in RELEASES {
        let truth = exact(release);
        let kb = |bytes: u64| bytes.div_ceil(1024);
        let [(really, none), with, alone] = [0, 1, 2].map(|kind| {
            let snapshot = of_kind(release, kind);
            let answer = told(&snapshot, &Question::default());
            held_bytes(&snapshot, &answer, &truth)
        });
        assert_eq!(none, 0);
        let percent = |held: u64| 100.0 * (held as f64 / really as f64 - 1.0);
        let line = format!(
            "| {release} | {} | {} | {} ({:+.0} %) | {} | {} ({:+.0} %) | {} |",
            kb(truth.slab_bytes()),
            kb(really),
            kb(with.0),
            percent(with.0),
            kb(with.1),
            kb(alone.0),
            percent(alone.0),
            kb(alone.1),
        );
        println!("{line}");
        missing.extend((!table.contains(&line)).then_some(line));
    }
    assert!(missing.is_empty(), "docs/what-if.md lacks: {missing:#?}");
}

/// The same load on four kernels, each predicted from the others and every kind of input: the extremes of the errors are in
/// `docs/what-if.md`, and every real total is in the bounds.
#[test]
fn other_kernels_under_the_same_load() {
    let (table, mut missing) = (documented(), Vec::new());
    for (kind, (name, _)) in KINDS.iter().enumerate() {
        let (mut errors, mut widths, mut inside) = (Vec::new(), Vec::new(), 0);
        for from in RELEASES {
            let snapshot = of_kind(from, kind);
            for to in RELEASES.into_iter().filter(|to| *to != from) {
                let really = exact(to).slab_bytes();
                let question = Question {
                    release: Era::parse(to),
                    ..Question::default()
                };
                let answer = told(&snapshot, &question);
                let off = 100.0 * (answer.bytes.predicted_bytes as f64 / really as f64 - 1.0);
                println!("{name}: {from} to {to}: {off:+.1} %");
                let bounds = answer.bytes.low_bytes..=answer.bytes.high_bytes;
                assert!(
                    bounds.contains(&really),
                    "{name}: {from} to {to}: {really}, {bounds:?}"
                );
                let [least, most] = KNOWN_ERRORS.map(f64::from);
                assert!(
                    (least..=most).contains(&off),
                    "{name}: {from} to {to}: {off}"
                );
                errors.push(off);
                let likely = [
                    answer.bytes.likely_low_bytes,
                    answer.bytes.likely_high_bytes,
                ];
                widths.push(100.0 * (likely[1] - likely[0]) as f64 / really as f64);
                inside += usize::from((likely[0]..=likely[1]).contains(&really));
            }
        }
        errors.sort_by(f64::total_cmp);
        widths.sort_by(f64::total_cmp);
        let line = format!(
            "| {name} | {:+.1} to {:+.1} % | {inside} | {:.0} % |",
            errors[0], errors[11], widths[6]
        );
        println!("{line}");
        missing.extend((!table.contains(&line)).then_some(line));
    }
    assert!(missing.is_empty(), "docs/what-if.md lacks: {missing:#?}");
}

/// Smaller slabs are less of a guess where a debugger read how many objects each of the slabs has.
#[test]
fn what_was_read_is_not_spread() {
    let question = Question {
        settings: vec![Setting::of("slub_max_order", 0)],
        ..Question::default()
    };
    for release in RELEASES.into_iter().filter(|release| *release != "7.3") {
        let width = |kind| {
            let answer = told(&of_kind(release, kind), &question);
            answer.bytes.likely_high_bytes - answer.bytes.likely_low_bytes
        };
        let widths = [0, 1, 2].map(width);
        println!("{release}: {widths:?}");
        let [exact, others @ ..] = widths;
        assert!(
            others.iter().all(|other| exact < *other),
            "{release}: {widths:?}"
        );
    }
}

/// Every kind of input has an answer to other pages and CPUs.
#[test]
fn other_sizes_of_pages_and_machines() {
    let questions = [
        Question {
            page_bytes: Some(65536),
            ..Question::default()
        },
        Question {
            cpus: Some(64),
            ..Question::default()
        },
    ];
    for release in RELEASES {
        for kind in 0..KINDS.len() {
            let snapshot = of_kind(release, kind);
            for question in &questions {
                let answer = told(&snapshot, question);
                let [low, high] = [answer.bytes.low_bytes, answer.bytes.high_bytes];
                assert!(
                    (low..=high).contains(&answer.bytes.predicted_bytes),
                    "{release}"
                );
            }
        }
    }
}

/// Without sheaves it is known what a shrink frees.
#[test]
fn a_shrink_frees_what_is_empty() {
    for release in RELEASES {
        let look = Look::of(&[exact(release)]).unwrap();
        let shrink = look.shrink;
        let is_known = shrink.low_bytes == shrink.high_bytes;
        assert_eq!(is_known, release != "7.3", "{release}: {shrink:?}");
        let guessed = Look::of(&[of_kind(release, 1)]).unwrap().shrink;
        println!("{release}: {shrink:?}, guessed {guessed:?}");
        assert!(guessed.low_bytes < guessed.high_bytes, "{release}");
    }
}
