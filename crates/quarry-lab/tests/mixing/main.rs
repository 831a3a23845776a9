//! Places of pages of two types, compared with kernels that were recorded while they mixed them.
//!
//! `data/mixing/README.md` has the recordings. The same requests come on the same CPUs; the model chooses each page.
//! The beginning of the statistics interval of a second is not recorded, so eight phases of it are run: the model's spread.
//! A kernel's figure is near if it is in that spread, or the distance to it is small.
//!
//! Fallbacks depend on it most. They begin when the last free block is gone, and then each page that a CPU's list keeps
//! costs one: a block of 4 MiB more or less changes them by a thousand. Two boots of one kernel differ as much.

mod bulk;
mod guest;
mod replay;
mod start;

use std::ffi::OsStr;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use guest::Guest;
use replay::{Counts, Stage};

/// Name of a count, the count, the least of it that is compared, and percent that a kernel may be outside the spread.
type Bound = (&'static str, fn(&Counts) -> u64, u64, u64);

const TAINTED: Bound = ("tainted", |it| it.tainted, 0, 10);
const FALLBACKS: Bound = ("fallbacks", |it| it.fallbacks, 50, 10);
const DRAINED: Bound = ("drained", |it| it.drained, 50, 5);

/// A guest's replays, one for each phase.
struct Runs {
    guest: Guest,
    phases: Vec<Vec<Stage>>,
}

impl Runs {
    fn of(guest: Guest) -> Self {
        let phases = (0..8).map(|eighth| f64::from(eighth) / 8.0);
        let phases = phases.map(|phase| replay::stages(&guest, guest.era, phase));
        Self {
            phases: phases.collect(),
            guest,
        }
    }

    fn spread(&self, stage: usize, count: fn(&Counts) -> u64) -> RangeInclusive<u64> {
        let of_phases = || self.phases.iter().map(|stages| count(&stages[stage].model));
        of_phases().min().unwrap()..=of_phases().max().unwrap()
    }

    /// Figures of the kernel that are too far outside the spread.
    fn misses(&self, bounds: &[Bound]) -> Vec<String> {
        let mut misses = Vec::new();
        for (at, stage) in self.phases[0].iter().enumerate() {
            for &(name, count, least, percent) in bounds {
                let (kernel, spread) = (count(&stage.kernel), self.spread(at, count));
                let from = spread.start() * (100 - percent) / 100;
                let to = (spread.end() * (100 + percent)).div_ceil(100);
                let near = kernel < least || (from..=to).contains(&kernel);
                if !near {
                    let (guest, stage) = (&self.guest.name, &stage.name);
                    misses.push(format!("{guest} {stage}: {kernel} {name}, {spread:?} here"));
                }
            }
        }
        misses
    }

    /// The row of `docs/pages.md`.
    fn row(&self) -> String {
        let is_regrown = |stage: &Stage| stage.name == "regrown";
        let at = self.phases[0].iter().position(is_regrown).unwrap();
        let stage = &self.phases[0][at];
        let cells = [FALLBACKS, TAINTED].map(|(_, count, ..)| {
            let spread = self.spread(at, count);
            let (least, most) = spread.into_inner();
            format!(
                "{} | {} | {least} to {most}",
                count(&stage.kernel),
                count(&stage.model)
            )
        });
        format!("| {} | {} |", self.guest.name, cells.join(" | "))
    }
}

#[test]
fn bundled_guests_mix_as_much_as_the_kernel() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs/pages.md")).unwrap();
    let large_pages = "6.12.107-64k-1G-2";
    for name in ["6.1.176-2", "6.11.0-2", "7.0.13-2", large_pages] {
        let runs = Runs::of(Guest::bundled(name));
        assert!(
            runs.phases.iter().flatten().all(|it| it.lost == 0),
            "{name}"
        );
        // Its lists gave back less when a third was dropped: fewer pages were short in the end than here.
        let bounds: &[Bound] = match name == large_pages {
            true => &[TAINTED],
            false => &[TAINTED, FALLBACKS, DRAINED],
        };
        let misses = runs.misses(bounds);
        assert!(misses.is_empty(), "{misses:#?}");
        let row = runs.row();
        println!("{row}");
        assert!(document.contains(&row), "docs/pages.md should have\n{row}");
    }
}

/// All guests of the folders that `QUARRY_MIXING` names, divided by colons; prints the table of `docs/pages.md`.
#[test]
#[ignore = "needs recordings that are not bundled"]
fn all_guests_mix_as_much_as_the_kernel() {
    let folders = std::env::var_os("QUARRY_MIXING").expect("QUARRY_MIXING: the folders of guests");
    let entries = std::env::split_paths(&folders).flat_map(|it| fs::read_dir(it).unwrap());
    let guests = entries.map(|it| it.unwrap().path());
    let mut guests: Vec<_> = guests.filter(|it| it.join("trace.txt").exists()).collect();
    guests.sort_by_key(|it| it.file_name().map(OsStr::to_owned));
    assert!(!guests.is_empty());
    let mut misses = Vec::new();
    for guest in guests {
        let runs = Runs::of(Guest::folder(&guest));
        println!("{}", runs.row());
        let tainted = ("tainted", TAINTED.1, 50, 10);
        // Lists of four CPUs or more hold more pages than are short in the end: chance decides there. For pages of
        // 64 KiB see the bundled guest.
        match (runs.guest.cpus, runs.guest.page_bytes) {
            (3.., _) => {}
            (_, 4096) => misses.extend(runs.misses(&[tainted, FALLBACKS])),
            _ => misses.extend(runs.misses(&[tainted])),
        }
        for (at, stage) in runs.phases[0].iter().enumerate() {
            let figures = [FALLBACKS, TAINTED, DRAINED].map(|(name, count, ..)| {
                format!(
                    "{name} {} {:?}",
                    count(&stage.kernel),
                    runs.spread(at, count)
                )
            });
            println!("  {}: {}", stage.name, figures.join(", "));
        }
    }
    assert!(misses.is_empty(), "{misses:#?}");
}

/// Blocks that the kernel reserved at each stage, and the model in all phases. Requests that fail release some, and have no
/// event, so the last stage is left out: a task was killed before it.
fn reserved(runs: &Runs) -> Vec<(&str, u64, RangeInclusive<u64>)> {
    let stages = runs.phases[0].iter().enumerate();
    let stages = stages.filter(|(_, stage)| stage.name != "killed");
    let of = stages.map(|(at, stage)| {
        let model = || runs.phases.iter().map(|stages| stages[at].reserve.blocks);
        let spread = model().min().unwrap()..=model().max().unwrap();
        (stage.name.as_str(), runs.guest.reserves[at].blocks, spread)
    });
    of.collect()
}

/// A row of `docs/pages.md`: the reserve of kernel and model once atomic requests grew, and the kernel's after a task was
/// killed.
fn row_of_reserve(runs: &Runs) -> String {
    let at = |name: &str| {
        let stage = runs.phases[0].iter().position(|it| it.name == name);
        let stage = stage.unwrap();
        (runs.guest.reserves[stage], runs.phases[0][stage].reserve)
    };
    let (grown, killed) = (at("reserved"), at("killed"));
    format!(
        "| {} | {} | {} | {} | {} | {} |",
        runs.guest.name,
        grown.0.blocks,
        grown.1.blocks,
        grown.0.free_pages,
        grown.1.free_pages,
        killed.0.blocks,
    )
}

#[test]
fn bundled_guests_reserve_as_many_blocks_as_the_kernel() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs/pages.md")).unwrap();
    for (name, most) in [("6.1.192-256M-2-atomic", 3), ("6.12.117-2-atomic", 3)] {
        let runs = Runs::of(Guest::bundled(name));
        let stages = reserved(&runs);
        for (stage, kernel, model) in &stages {
            assert_eq!(*model, *kernel..=*kernel, "{name} {stage}");
        }
        assert_eq!(stages.iter().map(|it| it.1).max(), Some(most), "{name}");
        let row = row_of_reserve(&runs);
        assert!(document.contains(&row), "docs/pages.md should have\n{row}");
    }
}

/// Guests of the load `atomic` in the folders that `QUARRY_ATOMIC` names, divided by colons; prints the table of
/// `docs/pages.md`.
#[test]
#[ignore = "needs recordings that are not bundled"]
fn all_guests_reserve_as_many_blocks_as_the_kernel() {
    let folders = std::env::var_os("QUARRY_ATOMIC").expect("QUARRY_ATOMIC: the folders of guests");
    let mut entries: Vec<_> = std::env::split_paths(&folders)
        .flat_map(|it| fs::read_dir(it).unwrap())
        .map(|it| it.unwrap().path())
        .collect();
    entries.sort();
    for folder in entries {
        let runs = Runs::of(Guest::folder(&folder));
        println!("{}", row_of_reserve(&runs));
        for (stage, kernel, model) in reserved(&runs) {
            assert!(model.contains(&kernel), "{stage}: {kernel}, {model:?} here");
        }
    }
}
