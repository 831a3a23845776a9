//! Workloads: what asks the allocators for memory, as models with few parameters.
//!
//! A workload is a program or a part of a kernel reduced to the requests it makes: how many, of what
//! size, on which CPU, and where they are given back. It runs on virtual machines, always in the same
//! way for the same parameters and seed, and reports counts. What can be said in time needs a clock,
//! which these machines do not have.
//!
//! [`rx`] is a network receiver: pages, the drivers' caches in front of them, and readers on other
//! CPUs.
#![forbid(unsafe_code)]

mod error;
mod parallel;
pub mod rx;

pub use error::WorkError;
pub use parallel::run_all;
