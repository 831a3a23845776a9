//! Errors of predictions by the kind of file that the snapshot is read from.

use std::fmt::Write;

use quarry_core::era::Era;
use quarry_snapshot::{Asked, Snapshot};
use quarry_state::{KNOWN_ERRORS, Question, predict};

use crate::whatif::{PAIRS, SLUB, STAGES, UPGRADES, load, off_percent};

/// A kind of file: its name in the table, and what it leaves of a snapshot; `None` if the snapshot has less.
type Kind = (&'static str, fn(&Snapshot) -> Option<Snapshot>);

const KINDS: [Kind; 5] = [
    ("slabinfo and sysfs", |snapshot| {
        (!snapshot.sysfs.is_empty()).then(|| snapshot.clone())
    }),
    ("slabinfo alone", |snapshot| {
        let mut alone = snapshot.clone();
        alone.sysfs.clear();
        alone.aliases.clear();
        Some(alone)
    }),
    ("slabtop, release and CPUs told", |snapshot| {
        Some(told(snapshot, &slabtop(snapshot)))
    }),
    ("vmstat -m, release and CPUs told", |snapshot| {
        Some(told(snapshot, &vmstat(snapshot)))
    }),
    ("slabtop, nothing told", |snapshot| {
        Some(read(&slabtop(snapshot)))
    }),
];

/// The text that slabtop would print of a snapshot.
fn slabtop(snapshot: &Snapshot) -> String {
    let mut text = "  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n".to_string();
    for row in &snapshot.slabinfo.rows {
        let slab_kib = (row.pagesperslab * snapshot.page_bytes) >> 10;
        let used = (100 * row.active_objs).checked_div(row.num_objs);
        writeln!(
            text,
            "{:6} {:6} {:3}% {:7.2}K {:6} {:8} {:9}K {}",
            row.num_objs,
            row.active_objs,
            used.unwrap_or(0),
            row.objsize as f64 / 1024.0,
            row.num_slabs,
            row.objperslab,
            row.num_slabs * slab_kib,
            row.name
        )
        .unwrap();
    }
    text
}

/// The text that `vmstat -m` would print of a snapshot.
fn vmstat(snapshot: &Snapshot) -> String {
    let mut text = "Cache                       Num  Total   Size  Pages\n".to_string();
    for row in &snapshot.slabinfo.rows {
        let numbers = [row.active_objs, row.num_objs, row.objsize, row.objperslab];
        let [active, all, size, slots] = numbers;
        writeln!(
            text,
            "{:24} {active:6} {all:6} {size:6} {slots:6}",
            row.name
        )
        .unwrap();
    }
    text
}

fn read(text: &str) -> Snapshot {
    let mut moments = Snapshot::of_bytes("text", text.as_bytes()).unwrap();
    moments.pop().unwrap()
}

/// The snapshot of a text, and what a user knows of its machine.
fn told(snapshot: &Snapshot, text: &str) -> Snapshot {
    let asked = Asked {
        release: snapshot.release.clone(),
        cpus: snapshot.present_cpus,
        page_bytes: Some(snapshot.page_bytes),
    };
    read(text).asked(&asked).unwrap()
}

/// A kernel, another one, what differs, and whether the first stage alone can be compared.
fn pairs() -> Vec<(String, String, Question, bool)> {
    let pairs = PAIRS.iter().map(|(from, to, change, _)| {
        let of_boot = *from == SLUB;
        (from.to_string(), to.to_string(), change.question(), of_boot)
    });
    let upgrades = UPGRADES.iter().flat_map(|(from, to, release)| {
        ["", "-light"].map(|kind| {
            let question = Question {
                release: Era::parse(release),
                ..Question::default()
            };
            let [from, to] = [from, to].map(|name| format!("{name}{kind}"));
            (from, to, question, false)
        })
    });
    pairs.chain(upgrades).collect()
}

/// The lines are the table of `docs/what-if.md`.
#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn errors_by_kind_of_input() {
    let pairs = pairs();
    for (name, of_kind) in KINDS {
        let mut errors = Vec::new();
        for (from, to, question, of_boot) in &pairs {
            for stage in STAGES {
                if *of_boot && stage != "boot" {
                    continue;
                }
                let (Some(old), Some(new)) = (load(from, stage), load(to, stage)) else {
                    continue;
                };
                let Some(snapshot) = of_kind(&old) else {
                    continue;
                };
                if snapshot.present_cpus.is_none() && question.cpus.is_some() {
                    assert!(predict(&snapshot, question).is_err());
                    continue;
                }
                let told = predict(&snapshot, question).unwrap();
                let real = new.slab_bytes();
                let bounds = told.bytes.low_bytes..=told.bytes.high_bytes;
                let off = off_percent(told.bytes.predicted_bytes, real);
                if !bounds.contains(&real) {
                    // Wrong may be a bound, but not without a width.
                    assert!(
                        told.bytes.low_bytes < told.bytes.high_bytes,
                        "{from} > {to} {stage}"
                    );
                    println!(
                        "{name} {from} > {to} {stage}: {off:+.1} %, {bounds:?}, really {real}"
                    );
                }
                let likely = [told.bytes.likely_low_bytes, told.bytes.likely_high_bytes];
                let width = 100.0 * (likely[1] - likely[0]) as f64 / real as f64;
                let is_likely = (likely[0]..=likely[1]).contains(&real);
                errors.push((off, bounds.contains(&real), is_likely, width));
            }
        }
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        let inside = errors.iter().filter(|error| error.1).count();
        let (first, last) = (errors[0].0, errors[errors.len() - 1].0);
        let likely = errors.iter().filter(|error| error.2).count();
        let mut widths: Vec<f64> = errors.iter().map(|error| error.3).collect();
        widths.sort_by(f64::total_cmp);
        let width = |part: usize| widths[(widths.len() - 1) * part / 100];
        let at = |part: usize| errors[(errors.len() - 1) * part / 10].0;
        println!(
            "| {name} | {} | {:+.1} to {:+.1} % | {first:+.1} to {last:+.1} % | {likely} | {:.0} % | {:.0} % | {inside} |",
            errors.len(),
            at(1),
            at(9),
            width(50),
            width(95)
        );
        let [low, high] = KNOWN_ERRORS.map(f64::from);
        assert!(
            (low..=high).contains(&first) && (low..=high).contains(&last),
            "{name}: {KNOWN_ERRORS:?}"
        );
        assert!(
            inside * 20 >= errors.len() * 19,
            "{name}: {inside} in bounds"
        );
    }
}
