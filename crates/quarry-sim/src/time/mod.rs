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
//!        +-> Ahead   reads whose lines are on their way while the CPU goes on
//!        +-> Stores  the same of stores
//!        +-> Lines   what the transfer of a line costs: who has it (Directory), for which lines caches have
//!        |           room (Tags), until when one moves (Flights)
//!        +-> Order   clocks, whose turn it is, who waits for what
//! ```
//!
//! # Rules
//!
//! * **T1** One thread runs all CPUs: none of these types is `Sync`.
//! * **T2** A CPU gives its turn up in `Order::visible` and `Order::block` only. Between two of these calls the
//!   state of lines and locks is its own.
//! * **T3** Equal clocks go by the CPUs' numbers, so the same input gives the same order.
//! * **T4** A transfer of a line keeps the line busy: the next one of it waits for its end, and a copy of an unchanged line
//!   for the last-level cache that sends them. Contention for a
//!   lock costs what its line costs, and no formula says how much.
//! * **T5** The lines of a run that a CPU fetches at the same time are one visible action. This is an approximation: another CPU that
//!   acts before the last of them has come sees them moved already, and finds the bus taken until then.

mod ahead;
mod caches;
mod costs;
mod counters;
mod directory;
mod flights;
mod line;
mod lines;
mod locks;
mod model;
mod order;
mod ready;
mod stores;
mod timed;

pub use caches::CacheLevel;
pub use costs::{Distance, LastLevel, LineCosts};
pub use counters::{LineMoves, LockTimes, TimeCounters};
pub use line::TIMED_CPUS_MAX;
pub use locks::LockKind;
pub use model::TimeModel;
pub use order::Deadlock;

pub(crate) use order::{Bodies, Next, Order};
pub(crate) use timed::{Cause, Run, Timed};

use lines::{LineAccess, Lines};
use locks::Locks;

#[cfg(test)]
mod closed_form;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine with figures of a usual size, of no real one.
    pub(crate) const MODEL: TimeModel = TimeModel {
        lines: LineCosts {
            l1: CacheLevel {
                bytes: 32 << 10,
                ways: 8,
                hit: 1_000,
            },
            l2: Some(CacheLevel {
                bytes: 256 << 10,
                ways: 8,
                hit: 4_000,
            }),
            llc: Some(LastLevel {
                level: CacheLevel {
                    bytes: 4 << 20,
                    ways: 16,
                    hit: 20_000,
                },
                inclusive: false,
                hashed: false,
            }),
            clean: [30_000, 60_000, 100_000],
            transfer: [40_000, 80_000, 120_000],
            upgrade: [60_000, 100_000, 150_000],
            memory: [90_000, 130_000],
            atomic: 8_000,
            misses: 10,
            window: 20_000,
            bus: 0,
            cluster_cpus: 4,
            socket_cpus: 8,
        },
        work: [2_000; quarry_core::machine::Work::COUNT],
        fill_kib: 30_000,
        locks: LockKind::Queued,
        seed: 1,
    };
}
