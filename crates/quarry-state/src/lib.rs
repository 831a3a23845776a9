//! Slab memory of a kernel under other settings, predicted from one snapshot.
//!
//! # What a snapshot tells
//!
//! Exact: the slabs of every cache and their geometry; the slabs on the nodes' partial lists and
//! the objects in them; how many slabs CPUs hold (sysfs `cpu_slabs`), and how many of these wait on
//! their partial lists. All other slabs are full.
//!
//! # What it cannot tell
//!
//! * *What CPUs use of the slabs they hold.* The kernel counts all of it as in use. With 64 KiB
//!   pages and 16 CPUs this is most of the memory. Estimated from how many slabs CPUs have used up
//!   before: `demand.rs`. Just after a shrink of all caches it is nothing: `baseline.rs`.
//! * *Where objects lie in partial slabs.* Taken as left over at random: `demand.rs`.
//! * *Which objects exist because of a CPU*: `brought.rs`; and how many CPUs would use a cache on a machine with
//!   more or fewer of them: `users.rs`. What only *possible* CPUs cost is not in the prediction.
//! * *Which objects exist because of a page*, or have sizes that depend on it: taken over as they
//!   are, but for those of `pages.rs`.
//! * *How many slabs stand empty*, which a node keeps up to `min_partial` of.
//!
//! # How it is computed
//!
//! For each cache the geometry under the other settings is exact (the design's formulas). Slabs are
//! then counted in three parts: those that CPUs filled or hold, those on CPUs' partial lists, those
//! on nodes' lists. Where neither geometry nor CPUs change, the cache stays as it was observed.
//! Kernels with sheaves for all caches keep objects of loads that are gone, which pins slabs:
//! `kept.rs`, `pinned.rs`; the sheaves themselves are memory, too: `own.rs`. What a release changes in
//! the sizes of its objects, and which caches it adds, is not in the prediction.
//! With other pages some caches come or go: `pages.rs`. `observed` and `predicted` are slabs only;
//! the report gives what goes to the page allocator beside them.
//!
//! `low` and `high` put every unknown at its best and its worst, in all caches at once: one object
//! or all in what CPUs hold; left-over objects packed or each in a slab of its own. The total is wider by twice the standard
//! deviation of chance: another boot has other CPUs use a cache. What is likely nine times in ten lies between them: each
//! unknown is a distribution, and what is independent is added as squares (`unknown.rs`).
#![forbid(unsafe_code)]

mod draw;
mod error;
mod kernel;
mod lay;
mod on;
mod state;
mod unknown;

pub use draw::Draw;
pub use error::StateError;
pub use kernel::names::kmalloc_class;
pub use kernel::{Run, in_a_kernel, in_force};
pub use lay::places::{Holding, OnCpu, Places, known_free, spread};
pub use lay::sheaves::Sheaves;
pub use on::fit::{Fit, KNOWN_ERRORS};
pub use on::predict;
pub use on::prediction::{CachePrediction, Cause, ConfigCost, Guests, Prediction};
pub use on::question::{Config, Question};
pub use on::releases::Unmodelled;
pub use state::State;
