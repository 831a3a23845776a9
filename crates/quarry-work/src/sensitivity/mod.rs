//! Bands of figures if the machine's constants are other than their values say.
//!
//! No constant of a machine is known exactly: each has a range from `low` to `high`. So a study runs everything again, in
//! several kinds of [`Arm`]:
//!
//! | arm | constants | seed |
//! |---|---|---|
//! | [`ArmKind::Value`] | as their values say | the run's |
//! | [`ArmKind::End`] | one at its low or its high end, all others as their values say | the run's |
//! | [`ArmKind::Draw`] | all anywhere in their ranges, [`DRAWS`] times | the run's |
//! | [`ArmKind::Seed`] | as their values say | another one, [`SEEDS`] times |
//! | [`ArmKind::State`] | as their values say | the run's; the heap begins in another state, [`STATES`] times |
//!
//! Arms of seeds are the null arms: they move nothing but chance. Those of states are there for heaps that begin in one
//! ([`Study::over_states`]), and draws have another state each, then. All runs of an arm have the same constants, so that they
//! can be compared with each other. Constants without a range, and those that cost no run any time, are left out.
//!
//! A constant moves a figure if an end of its range takes the run farther than chance does ([`FigureBand::chance`]), and the state
//! does if states vary more than seeds. Else neither is separated from chance, however wide its band is: more arms go farther by chance.
//!
//! A claim is a predicate on figures. It *holds* if it is true in all arms and *fails* if it is true in none; else it is
//! *undecided*.
//!
//! ```
//! use quarry_machines::Machine;
//! use quarry_work::sensitivity::{Study, Verdict};
//!
//! let machine = Machine::bundled("haswell-ep-2x12").unwrap();
//! let study = Study::new(&machine, [], 1);
//! // Two runs with a figure each; here the constants change nothing.
//! let runs = [3.0, 4.0];
//! let values = vec![vec![("ns", 3.0)], vec![("ns", 4.0)]];
//! let run = |run: &f64, _arm: &_| Ok::<_, ()>(vec![("ns", *run)]);
//! let samples = study.run(&runs, values, 2, &|| (), run).unwrap();
//! let claim = samples.claim("two runs", "the first is faster", |sample| {
//!     Some(sample.figure(0, "ns")? < sample.figure(1, "ns")?)
//! });
//! assert_eq!(claim.unwrap().verdict, Verdict::Holds);
//! assert_eq!(samples.bands()[1].drawn, [4.0, 4.0]);
//! ```

mod arms;
mod bands;
mod claims;
#[cfg(test)]
mod tests;

pub use arms::{Arm, ArmKind, DRAWS, SEEDS, STATES, Study};
pub use bands::{Decides, Effect, FigureBand, Samples};
pub use claims::{Claim, First, Sample, Verdict, within};

/// A figure of a run, with its name.
pub type Figure = (&'static str, f64);
