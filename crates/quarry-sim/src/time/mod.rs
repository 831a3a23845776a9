//! Simulated time.
//!
//! # Idea
//!
//! Each virtual CPU runs on a coroutine and has a clock. What a CPU does by itself moves its own clock
//! and nothing else. What other CPUs can see (a lock, a line of memory that another CPU has) happens only
//! while the CPU that does it has the smallest clock of all that can run: else it lets the others go first
//! (`Order::visible`). So all visible actions happen in the order of time, without a quantum.
//!
//! ```text
//!   VirtualMachine::run_cpus
//!        |  accesses, work, locks: the steps that a machine without a clock counts
//!        v
//!   Timed   what a step costs on this machine (TimeModel)
//!        |
//!        +-> Locks   who has a lock, and how a release finds the next holder: made of accesses to lines
//!        +-> Lines   who has a line of memory, and what its transfer costs
//!        +-> Order   clocks, whose turn it is, who waits for what
//! ```
//!
//! # Rules
//!
//! * **T1** One thread runs all CPUs: none of these types is `Sync`.
//! * **T2** A CPU gives its turn up in `Order::visible` and `Order::block` only. Between two of these calls the
//!   state of lines and locks is its own.
//! * **T3** Equal clocks go by the CPUs' numbers, so the same input gives the same order.
//! * **T4** A transfer of a line keeps the line busy: the next one of it waits for its end. Contention for a
//!   lock costs what its line costs, and no formula says how much.

mod caches;
mod lines;
mod locks;
mod model;
mod order;
mod timed;

pub use caches::CacheLevel;
pub use lines::{Distance, LineCosts, LineMoves, TIMED_CPUS_MAX};
pub use locks::LockKind;
pub use model::TimeModel;
pub use order::Deadlock;
pub use timed::TimeCounters;

pub(crate) use timed::Timed;

use lines::Lines;
use locks::Locks;
use order::Order;

#[cfg(test)]
mod closed_form;
