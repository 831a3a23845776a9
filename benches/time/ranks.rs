//! Ranks of designs: by real threads, and by the simulation of the same calls.
//!
//! Each design runs each pattern twice a visit, in turns; what these two differ by is noise. A pair of designs counts if the median
//! of its ratios is beyond nine of ten ratios of either design to itself.

use std::error::Error;

use quarry_core::design::Design;
use quarry_designs::{DesignSpec, ForDesign};
use quarry_machines::Machine;
use quarry_work::Setup;
use quarry_work::micro::{MicroSpec, Pattern};
use serde_json::json;

use crate::common::{median, table};
use crate::host::{self, Micro, heap};
use crate::workload::{BULK, COUNT, MEMORY_BYTES, OBJECT_BYTES};

/// Designs, each in its last release.
const DESIGNS: [&str; 5] = [
    "slab@6.1",
    "slob@6.1",
    "slub@6.17",
    "slubq@2.6.35",
    "sheaf@7.0",
];
const PATTERNS: [Pattern; 4] = [Pattern::Pair, Pattern::Batch, Pattern::Bulk, Pattern::Cross];
/// Share of the null ratios within which a difference is noise.
const NOISE: f64 = 0.9;

/// A design on a pattern.
pub(crate) struct Arm {
    design: DesignSpec,
    pattern: Pattern,
    cpus: usize,
    simulated_ns: f64,
    /// Time of an object in each visit, and the same once more.
    visits: Vec<[f64; 2]>,
}

impl Arm {
    /// All of them, with their simulated times.
    pub(crate) fn all(cpus_max: usize, machine: &Machine) -> Result<Vec<Self>, Box<dyn Error>> {
        let mut all = Vec::new();
        for cpus in 1..=cpus_max {
            for pattern in PATTERNS {
                if pattern == Pattern::Cross && cpus < 2 {
                    continue;
                }
                for name in DESIGNS {
                    let design = DesignSpec::parse(name)?;
                    let spec = MicroSpec {
                        pattern,
                        object_bytes: OBJECT_BYTES,
                        count: COUNT,
                        bulk: BULK,
                        cpus: cpus as u32,
                        rounds: 5,
                        ..MicroSpec::new(Setup {
                            memory_bytes: MEMORY_BYTES,
                            ..Setup::new(design.era, machine.clone())
                        })
                    };
                    all.push(Self {
                        design,
                        pattern,
                        cpus,
                        simulated_ns: spec.run_on(&design)?.object_ns,
                        visits: Vec::new(),
                    });
                }
            }
        }
        Ok(all)
    }

    /// Nanoseconds of an object on real threads, twice.
    pub(crate) fn visit(&self, rounds: usize) -> [f64; 2] {
        struct Visit<'a>(&'a Arm, usize);
        impl ForDesign for Visit<'_> {
            type Output = f64;

            fn run<D: Design>(self) -> f64 {
                let Self(arm, rounds) = self;
                let heap = heap::<D>(arm.cpus, arm.design.era);
                let load = Micro::new(&heap, arm.pattern, arm.cpus, false);
                let times = host::rounds(&load, arm.cpus, rounds);
                let halves = match arm.pattern {
                    Pattern::Pair | Pattern::Bulk => 1,
                    _ => 2,
                };
                let half = |half: usize| {
                    let kept = times[rounds / 10..].iter().map(|halves| halves[half]);
                    median(kept.filter(|ns| ns.is_finite()))
                };
                (0..halves).map(half).sum()
            }
        }
        [0, 1].map(|_| self.design.design.run(Visit(self, rounds)))
    }

    pub(crate) fn push(&mut self, visit: [f64; 2]) {
        self.visits.push(visit);
    }

    fn host_ns(&self) -> f64 {
        median(
            self.visits
                .iter()
                .flatten()
                .copied()
                .filter(|ns| ns.is_finite()),
        )
    }

    /// Width of most of its ratios to itself, as a logarithm.
    fn noise(&self) -> f64 {
        let ratios = self
            .visits
            .iter()
            .map(|[one, again]| (again / one).ln().abs());
        let mut ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        ratios.sort_by(f64::total_cmp);
        let at = (ratios.len() as f64 * NOISE) as usize;
        ratios
            .get(at)
            .or(ratios.last())
            .copied()
            .unwrap_or(f64::INFINITY)
    }

    /// Its host time to another's, as a logarithm.
    fn ratio(&self, other: &Self) -> f64 {
        let both = self.visits.iter().zip(&other.visits);
        let ratios = both.flat_map(|(own, other)| [0, 1].map(|at| (own[at] / other[at]).ln()));
        median(ratios.filter(|ratio| ratio.is_finite()))
    }

    fn workload(&self) -> String {
        let cpus = if self.cpus == 1 { "1 CPU" } else { "2 CPUs" };
        format!("{}, {cpus}", self.pattern.name())
    }
}

/// A pair of designs on a pattern.
struct Pair<'a> {
    arms: [&'a Arm; 2],
    /// True if they differ by more than the noise.
    differs: bool,
    /// True if the simulation orders them alike.
    is_right: bool,
}

impl Pair<'_> {
    /// True if neither takes twice the other's time. Most pairs with SLOB are farther apart.
    fn is_near(&self) -> bool {
        let [one, other] = self.arms;
        one.ratio(other).abs() < 2_f64.ln()
    }
}

fn pairs(arms: &[Arm]) -> Vec<Pair<'_>> {
    let mut pairs = Vec::new();
    for (at, one) in arms.iter().enumerate() {
        let others = arms[at + 1..].iter();
        for other in others.filter(|other| (other.pattern, other.cpus) == (one.pattern, one.cpus)) {
            let ratio = one.ratio(other);
            let simulated = (one.simulated_ns / other.simulated_ns).ln();
            pairs.push(Pair {
                arms: [one, other],
                differs: ratio.abs() > one.noise().max(other.noise()),
                is_right: ratio * simulated > 0.0,
            });
        }
    }
    pairs
}

pub(crate) fn print(arms: &[Arm], as_json: bool) {
    let pairs = pairs(arms);
    let differ: Vec<&Pair<'_>> = pairs.iter().filter(|pair| pair.differs).collect();
    let right = differ.iter().filter(|pair| pair.is_right).count();
    let near = || differ.iter().filter(|pair| pair.is_near());
    let near = [near().count(), near().filter(|pair| pair.is_right).count()];
    if as_json {
        let rows = arms.iter().map(|arm| {
            json!({
                "workload": arm.workload(),
                "design": arm.design.to_string(),
                "host_ns": arm.host_ns(),
                "noise_percent": 100.0 * arm.noise().exp_m1(),
                "simulated_ns": arm.simulated_ns,
            })
        });
        let rows: Vec<_> = rows.collect();
        println!(
            "{}",
            json!({"arms": rows, "pairs": differ.len(), "right": right, "near_pairs": near[0], "near_right": near[1]})
        );
        return;
    }
    let mut table = table(["workload", "design", "host ns", "noise", "simulated ns"]);
    for arm in arms {
        table.add_row([
            arm.workload(),
            arm.design.to_string(),
            format!("{:.2}", arm.host_ns()),
            format!("{:.1} %", 100.0 * arm.noise().exp_m1()),
            format!("{:.2}", arm.simulated_ns),
        ]);
    }
    println!("{table}");
    println!(
        "ranked as on real threads: {right} of {} pairs that differ by more than the noise ({} do not)",
        differ.len(),
        pairs.len() - differ.len()
    );
    println!(
        "within a factor of two of each other: {} of {}",
        near[1], near[0]
    );
    for pair in differ.iter().filter(|pair| !pair.is_right) {
        let [one, other] = pair.arms;
        println!(
            "  {}: {} to {}: {:.2} measured, {:.2} simulated",
            one.workload(),
            one.design,
            other.design,
            one.ratio(other).exp(),
            one.simulated_ns / other.simulated_ns
        );
    }
}
