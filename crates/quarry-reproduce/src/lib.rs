//! Published measurements of the kernel's allocators, run again on virtual machines.
//!
//! Five threads of kernel mailing lists measured what one design, tunable or page size changes. [`THREADS`] has each as
//! experiments, tables next to the published numbers, and claims. A [`Plan`] runs them; [`judge`] says what holds.
//!
//! # Verdicts
//!
//! A claim is a figure with a range. All experiments run with the machine's constants as its file says, with all of them drawn
//! at random from their ranges, and with other seeds: the arms. A claim holds if its figure is in the range in all arms, fails
//! if it is on one side of the range in all, and is undecided otherwise. While an arm is missing it is incomplete. [`Claim::band`] is the least and the most of the figure. What a
//! claim's verdict was before is kept next to it, so that a change shows. Runs end where the verdict is found: a figure that was
//! inside and outside is undecided whatever comes, and nine arms on one side are enough to fail.
//!
//! Where a figure misses its range, the full mode also tries single changes of machine and load that the publication does
//! not rule out ([`Nearest`]). They change no verdict.
//!
//! Nothing is fitted to a thread's table but what [`Thread::taken`] says.
#![forbid(unsafe_code)]

mod error;
mod judge;
mod keep;
mod others;
mod plan;
mod published;
mod results;
mod setting;
mod show;
mod spec;
#[cfg(test)]
mod tests;
mod threads;
mod view;

pub use error::ReproduceError;
pub use judge::{Claim, Judged, Verdict, judge};
pub use keep::Kept;
pub use others::Nearest;
pub use plan::{Plan, Progress};
pub use results::Results;
pub use setting::Mode;
pub use show::{Line, LineKind, Origin, Plot, Row, Table};
pub use threads::{THREADS, Thread, find};
pub use view::{FIGURES, TABLES, view};
