//! Predicted memory beside what real kernels reported while they were recorded.
//!
//! `QUARRY_SHARED` names the folder that holds `groundtruth/`; `cargo xtask recordings` sets it. The recordings
//! of [`bundled`], one of each kernel and load, come with the tests. Every recording with reports inside its
//! window has a line in [`RECORDINGS`].
//!
//! Of each, the replay starts from the first report, and from the lengths of CPUs' partial lists
//! that sysfs told last before it, where sysfs was read at all. *Growth* is that of slab memory
//! from the first report to the one with most of it, *end* the slab memory of the last report.
//!
//! A burst that comes and goes between two reports leaves a few slabs of each cache, those that lie
//! on the lists of CPUs at its end. Into whose list a slab goes is decided by the CPU that frees
//! into it first. The guests' clock has a tick of 4 ms, about 90 events, and the order of two CPUs'
//! events in one tick is not recorded: the importer makes one that can have been. Sixteen random
//! orders that obey the importer's other rules give of the growth that was observed
//!
//! * with SLAB 90 to 99 % (its own order 92 %), with SLOB 94 to 102 % (102 %): all within 10 %;
//! * with SLUB 91 to 116 % (98 %), fourteen of them within 10 %;
//! * with SLUB 97 to 130 % (97 %), ten of them within 10 %, where no sysfs was read ("light"), so that nothing
//!   tells of the CPUs' lists at the beginning.
//!
//! Kernels with sheaves were recorded with a clock of microseconds, so chance has no part there; what
//! their sheaves and barns held is inferred from the recording (`replay/initial/sheaves.rs`).
//!
//! So with SLUB and such a clock it is partly chance that these recordings hold.

mod bundled;
mod free_pages;
mod reports;

use std::path::{Path, PathBuf};

use quarry_designs::DesignSpec;
use quarry_lab::plan::Axes;
use quarry_lab::replay::check::{CacheCheck, Check};
use quarry_lab::replay::input::Input;
use quarry_lab::replay::lists;
use quarry_lab::replay::part::Part;
use quarry_lab::{Plan, RunReport};

use reports::{Report, Reports};

/// Most by which predicted growth may differ from the observed.
const GROWTH_PERCENT: f64 = 10.0;
/// The same with sheaves, where growth is what a burst needs beyond all that sheaves and barns hold: the
/// difference of two amounts that are both larger.
const GROWTH_PERCENT_SHEAVES: f64 = 20.0;
/// Most by which the predicted end may differ from the observed.
const END_PERCENT: f64 = 5.0;

struct Recording {
    /// The file with the reports, without its ending.
    file: &'static str,
    /// The traced run: reports of a host recording are in a file of their own.
    run: &'static str,
    design: &'static str,
    kernel: &'static str,
    page_bytes: u32,
    cpus: u32,
    cache_line: u32,
}

const fn recording(
    file: &'static str,
    run: &'static str,
    design: &'static str,
    kernel: &'static str,
) -> Recording {
    Recording {
        file,
        run,
        design,
        kernel,
        page_bytes: 4096,
        cpus: 2,
        cache_line: 64,
    }
}

impl Recording {
    /// ppc64 with 64K pages and 4 CPUs.
    const fn ppc64(self) -> Self {
        Self {
            page_bytes: 65536,
            cpus: 4,
            cache_line: 128,
            ..self
        }
    }

    /// Most by which predicted growth may differ from the observed.
    fn growth_percent(&self) -> f64 {
        match self.design.starts_with("sheaf") {
            true => GROWTH_PERCENT_SHEAVES,
            false => GROWTH_PERCENT,
        }
    }
}

const RECORDINGS: &[Recording] = &[
    recording("E-6.1-slab-m2G-smp2", "trfill", "slab@6.1", "6.1.192"),
    recording("E-6.1-slab-m2G-smp2", "trhb", "slab@6.1", "6.1.192"),
    recording("E-6.1-slob-m2G-smp2", "trfill", "slob@6.1", "6.1.192"),
    recording("E-6.1-slob-m2G-smp2", "trhb", "slob@6.1", "6.1.192"),
    recording("E-6.1-slub-m2G-smp2-light", "trfill", "slub@6.1", "6.1.192"),
    recording("E-6.1-slub-m2G-smp2-light", "trhb", "slub@6.1", "6.1.192"),
    recording("E-6.1-slub-m2G-smp2", "trfill", "slub@6.1", "6.1.192"),
    recording("E-6.1-slub-m2G-smp2", "trhb", "slub@6.1", "6.1.192"),
    recording(
        "D-x86_64-6.1-m4G-smp2-trace",
        "trfill",
        "slub@6.1",
        "6.1.192",
    ),
    recording("D-x86_64-6.1-m4G-smp2-trace", "trhb", "slub@6.1", "6.1.192"),
    recording("B-ppc64el-m4G-smp4-trace", "trfill", "slub@6.1", "6.1.176").ppc64(),
    recording("B-ppc64el-m4G-smp4-trace", "trhb", "slub@6.1", "6.1.176").ppc64(),
    recording("G-7.2-slub-m2G-smp2-light", "trfill", "sheaf@7.2", "7.2.13"),
    recording("G-7.2-slub-m2G-smp2-light", "trhb", "sheaf@7.2", "7.2.13"),
    recording(
        "G-7.2-slub-m2G-smp2-trstats",
        "trfill",
        "sheaf@7.2",
        "7.2.13",
    ),
    recording("G-7.2-slub-m2G-smp2-trstats", "trhb", "sheaf@7.2", "7.2.13"),
    recording(
        "G-x86_64-7.2-m4G-smp2-light",
        "trfill",
        "sheaf@7.2",
        "7.2.13",
    ),
    recording("G-x86_64-7.2-m4G-smp2-light", "trhb", "sheaf@7.2", "7.2.13"),
    recording(
        "H-x86_64-7.0.13-m4G-smp2-light",
        "trfill",
        "sheaf@7.0",
        "7.0.13",
    ),
    recording(
        "H-x86_64-7.0.13-m4G-smp2-light",
        "trhb",
        "sheaf@7.0",
        "7.0.13",
    ),
    recording(
        "H-x86_64-7.3.4-m4G-smp2-light",
        "trfill",
        "sheaf@7.3",
        "7.3.4",
    ),
    recording(
        "H-x86_64-7.3.4-m4G-smp2-light",
        "trhb",
        "sheaf@7.3",
        "7.3.4",
    ),
    recording("hackbench", "", "sheaf@6.18", "6.18"),
    recording("hackbench-wide", "", "sheaf@6.18", "6.18"),
];

/// Predicted and observed, in bytes, at the fullest report and at the last.
struct Verdict {
    initial: u64,
    fullest: (u64, u64),
    last: (u64, u64),
}

impl Verdict {
    /// By how many percent the predicted growth and the predicted end differ from the observed.
    fn errors(&self) -> (f64, f64) {
        let percent = |predicted: u64, observed: u64, of: u64| {
            (predicted as f64 - observed as f64) / of as f64 * 100.0
        };
        let (predicted, observed) = self.fullest;
        let growth = percent(predicted, observed, observed - self.initial);
        (growth, percent(self.last.0, self.last.1, self.last.1))
    }

    fn holds(&self, growth_percent: f64) -> bool {
        let (growth, end) = self.errors();
        growth.abs() <= growth_percent && end.abs() <= END_PERCENT
    }
}

fn groundtruth() -> PathBuf {
    let shared = std::env::var_os("QUARRY_SHARED").expect("the folder with groundtruth/");
    PathBuf::from(shared).join("groundtruth")
}

/// Prediction of the replay up to a report, with the kernel's numbers.
fn predict(recording: &Recording, input: &mut Input, first: &Report, report: &Report) -> Check {
    if report.time_ns == first.time_ns {
        // The recorded clock stood still between the two: no event lies there to replay.
        return Check {
            initial_bytes: Some(first.bytes),
            predicted_bytes: first.bytes,
            observed_bytes: report.bytes,
            ..Check::default()
        };
    }
    let run = replay(recording, input, first, report);
    // Without slabinfo only totals are known: the replay starts empty and predicts the growth.
    run.check.unwrap_or_else(|| Check {
        initial_bytes: Some(first.bytes),
        predicted_bytes: first.bytes + run.final_slab_bytes,
        observed_bytes: report.bytes,
        caches: Vec::new(),
        ..Check::default()
    })
}

/// The replay from one report to another.
fn replay(recording: &Recording, input: &mut Input, first: &Report, report: &Report) -> RunReport {
    input.part = Part {
        from_ns: Some(first.time_ns),
        until_ns: Some(report.time_ns),
    };
    let known = input.initial.take().zip(first.slabinfo.clone());
    input.initial = known.map(|(kernel, slabinfo)| kernel.at(slabinfo));
    input.check.clone_from(&report.slabinfo);
    let axes = Axes {
        designs: vec![DesignSpec::parse(recording.design).unwrap()],
        page_bytes: vec![recording.page_bytes.into()],
        cpus: vec![recording.cpus],
        memory_bytes: input.zoneinfo.as_ref().map_or(16 << 30, |zoneinfo| {
            lists::memory_bytes(zoneinfo, recording.page_bytes.into()).unwrap()
        }),
        cache_line: recording.cache_line,
        ..Axes::default()
    };
    let plan = Plan::new(&axes).unwrap();
    plan.execute(input, 1, &|_| ()).unwrap().remove(0)
}

fn print_caches(check: &Check) {
    println!(
        "    {:24} {:>9} {:>9} {:>9}  KiB; allocations from the recorded slab",
        "", "before", "predicted", "observed"
    );
    let changed = |at: usize| {
        let cache = &check.caches[at];
        cache.initial_bytes != Some(cache.observed_bytes)
            || cache.predicted_bytes != cache.observed_bytes
    };
    let holding = check.holding(95).len();
    for at in (0..check.caches.len()).filter(|at| *at < holding || changed(*at)) {
        let cache = &check.caches[at];
        let same = cache.same_slabs;
        let departure = same.first_departure;
        println!(
            "    {:24} {:9} {:9} {:9}       {} of {}{}",
            cache.name,
            cache.initial_bytes.unwrap_or_default() >> 10,
            cache.predicted_bytes >> 10,
            cache.observed_bytes >> 10,
            same.same,
            same.told,
            departure.map_or_else(String::new, |event| format!(
                ", the first not at event {event}"
            )),
        );
    }
}

/// The host's hackbench, at the shared place and among the tests' data.
const EXACT: [&str; 2] = ["hackbench", "6.18-slub"];

/// In the host's hackbench, with a clock of nanoseconds and CPUs' lists from sysfs, every object comes
/// from the slab that the kernel took it from, but for these. Objects of caches with sheaves come from
/// any slab, sheaves are objects of kmalloc-512, and the last slab of a CPU in signal_cache had more free places than
/// the recording shows.
const NOT_EXACT: [&str; 4] = [
    "kmalloc-512",
    "maple_node",
    "signal_cache",
    "vm_area_struct",
];

/// Replays a recording from its first report. Says whether growth and end are near the observed.
fn is_predicted(folder: &Path, recording: &Recording) -> bool {
    verdict(folder, recording).holds(recording.growth_percent())
}

/// Replays a recording from its first report to the fullest one and to the last.
fn verdict(folder: &Path, recording: &Recording) -> Verdict {
    let label = format!("{} {} {}", recording.file, recording.run, recording.design);
    let (mut input, reports) = Reports::read(folder, recording);
    let (first, later) = reports.reports.split_first().unwrap();
    let fullest = later.iter().rev().max_by_key(|report| report.bytes);
    let fullest = fullest.unwrap();
    let last = later.last().unwrap();
    let mut at = |report| predict(recording, &mut input, first, report);
    let (at_first, at_fullest, at_last) = (at(first), at(fullest), at(last));

    // The initial state is the report, cache by cache, and predicts no change.
    let initial = at_first.observed_bytes;
    assert_eq!(at_first.predicted_bytes, initial, "{label}");
    for cache in &at_first.caches {
        assert_eq!(
            cache.predicted_bytes, cache.observed_bytes,
            "{label}: {}",
            cache.name
        );
    }
    let no_change = Verdict {
        initial,
        fullest: (initial, at_fullest.observed_bytes),
        last: (initial, at_last.observed_bytes),
    };
    assert!(
        !no_change.holds(recording.growth_percent()),
        "{label}: nothing happens in it"
    );

    let verdict = Verdict {
        initial,
        fullest: (at_fullest.predicted_bytes, at_fullest.observed_bytes),
        last: (at_last.predicted_bytes, at_last.observed_bytes),
    };
    let (growth, end) = verdict.errors();
    let grown = |bytes: u64| (bytes as i64 - initial as i64) >> 10;
    println!(
        "{label}: to {} predicted {:+} KiB, observed {:+} KiB: {growth:+.1} %; end {end:+.2} %",
        fullest.name,
        grown(verdict.fullest.0),
        grown(verdict.fullest.1),
    );
    print_caches(&at_fullest);
    if EXACT.contains(&recording.file) {
        check_slabs(&at_fullest);
    }
    verdict
}

/// Every object comes from the slab that the kernel took it from, but for [`NOT_EXACT`].
fn check_slabs(at_fullest: &Check) {
    let compared = at_fullest.caches.iter();
    let compared = compared.filter(|cache| !NOT_EXACT.contains(&cache.name.as_str()));
    let mut all = 0;
    for CacheCheck {
        name, same_slabs, ..
    } in compared
    {
        assert_eq!(same_slabs.same, same_slabs.told, "{name}");
        all += same_slabs.told;
    }
    assert!(all > 6000, "{all}");
}

#[test]
#[ignore = "reads recordings that are not in the repository: cargo xtask recordings"]
fn memory_is_predicted() {
    let folder = groundtruth();
    let wrong = RECORDINGS.iter().filter(|one| !is_predicted(&folder, one));
    let wrong: Vec<_> = wrong.map(|one| (one.file, one.run)).collect();
    assert!(wrong.is_empty(), "missed: {wrong:#?}");
}

#[test]
fn no_change_is_no_prediction() {
    let still = Verdict {
        initial: 100,
        fullest: (100, 120),
        last: (100, 101),
    };
    assert!(!still.holds(GROWTH_PERCENT));
    let near = Verdict {
        fullest: (119, 120),
        ..still
    };
    assert!(near.holds(GROWTH_PERCENT));
    let off_at_the_end = Verdict {
        last: (107, 101),
        ..near
    };
    assert!(!off_at_the_end.holds(GROWTH_PERCENT));
}
