//! Workloads: what asks the allocators for memory, as models with few parameters.
//!
//! A workload is a program or a part of a kernel reduced to the requests it makes: how many, of what
//! size, on which CPU, and where they are given back. It runs on virtual machines, always in the same
//! way for the same parameters and seed.
//!
//! [`rx`] is a network receiver: pages, the drivers' caches in front of them, and readers on other
//! CPUs. It reports counts. [`micro`] has the micro-benchmarks of kernel developers, and [`pages`]
//! processes that fault and exit; both run in simulated time. [`load`] has the classic loads, hackbench, tbench and TCP_RR:
//! tasks that talk to each other ([`world`]). A run begins on an empty heap, or on that of a machine that has run ([`Start`]).
#![forbid(unsafe_code)]

mod card;
mod causes;
mod error;
pub mod load;
pub mod micro;
pub mod net;
mod nodes;
pub mod pages;
mod parallel;
mod phase;
mod progress;
pub mod rx;
pub mod sensitivity;
mod setup;
mod start;
pub mod world;

pub use card::{Card, NAPI_BUDGET};
pub use causes::{Causes, LineCauses, LockCauses};
pub use error::WorkError;
pub use nodes::NodeFree;
pub use parallel::run_all;
pub use phase::PhaseReport;
pub use progress::Progress;
pub use quarry_designs::Tuning;
pub use setup::Setup;
pub use start::{Empty, Start};
