//! The state of a kernel's slabs, from its reports, and the same state on another kernel or machine.
//!
//! ```text
//!   snapshot --> State (state.rs): the kernels that explain it (kernel/), and of each cache how its
//!                objects lie (lay/)
//!                  |            |              |
//!                  v            v              v
//!               look:        on(question)   held_in(run, draw)
//!               parts,       (on/): what    places for a heap (lay/places.rs): where a replay
//!               what frees   is expected,   or a load begins
//!               slabs        nine in ten
//! ```
//!
//! # What a snapshot tells
//!
//! Exact: the slabs of every cache and their geometry; the slabs on the nodes' partial lists and
//! the objects in them; how many slabs CPUs hold (sysfs `cpu_slabs`), and how many of these wait on
//! their partial lists. All other slabs are full. A debugger may have read the rest, too.
//!
//! # What it cannot tell
//!
//! Each unknown is a distribution (`unknown.rs`), whose points give all numbers:
//!
//! * *What CPUs use of the slabs they hold.* The kernel counts all of it as in use. With 64 KiB
//!   pages and 16 CPUs this is most of the memory. Estimated from how many slabs CPUs have used up
//!   before: `lay/demand.rs`. Just after a shrink of all caches it is nothing: `state.rs`.
//! * *Where objects lie in partial slabs.* Taken as left over at random: `lay/demand.rs`.
//! * *What sheaves keep*, which pins slabs of loads that are gone: `lay/kept.rs`, `lay/pinned.rs`.
//! * *Which objects exist because of a CPU*: `lay/brought.rs`, of one that is only possible: `lay/possible.rs`; and how
//!   many CPUs would use a cache on a machine with more or fewer of them: `lay/users.rs`.
//! * *Which objects exist because of a page*, or have sizes that depend on it: taken over as they
//!   are, but for those of `on/pages.rs`.
//!
//! `low` and `high` put every unknown at its best and its worst, in all caches at once; the total is wider by twice the
//! standard deviation of chance: another boot has other CPUs use a cache. What is likely nine times in ten lies between
//! them: what is independent is added as squares.
#![forbid(unsafe_code)]

mod draw;
mod error;
mod kernel;
mod lay;
mod on;
mod state;
mod unknown;

pub use draw::{Draw, PartialSlabs};
pub use error::{StateError, refused};
pub use kernel::names::kmalloc_class;
pub use kernel::{Run, in_a_kernel, in_force};
pub use lay::places::{Holding, OnCpu, Places, known_free, spread};
pub use lay::sheaves::Sheaves;
pub use on::fit::{Fit, KNOWN_ERRORS, OF_32_BITS};
pub use on::predict;
pub use on::prediction::{Bounds, CachePrediction, Cause, ConfigCost, Guests, Prediction};
pub use on::question::{Config, Question};
pub use on::releases::Unmodelled;
pub use state::{CacheState, State};
