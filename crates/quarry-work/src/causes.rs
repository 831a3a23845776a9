//! Time of a run, by cause, per operation.

use quarry_core::machine::{Line, LockClass, Work};
use quarry_sim::time::{LineMoves, LockTimes, TimeCounters};
use schemars::JsonSchema;
use serde::Serialize;

/// Causes of an operation's time, in nanoseconds per operation: one of `replay --time`, an object's allocation
/// and free, a page's fault and free, a packet, or a message of a load.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Causes {
    /// Accesses to memory by purpose, as pairs of name and nanoseconds; those that took no time are left
    /// out.
    pub access_ns: Vec<(&'static str, f64)>,
    /// Work that is no memory access by kind (`quarry machines NAME`), as pairs of name and nanoseconds.
    pub work_ns: Vec<(&'static str, f64)>,
    /// Nanoseconds in which bytes were filled or copied.
    pub fill_ns: f64,
    /// Nanoseconds of work outside the allocators, such as a receiver's protocols.
    pub outside_ns: f64,
    /// Locks by class; classes that were not taken are left out.
    pub locks: Vec<LockCauses>,
    /// Lines of memory that moved, per operation.
    pub lines: LineCauses,
}

/// Cost of a class of locks, per operation.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct LockCauses {
    /// Class.
    pub class: &'static str,
    /// Acquisitions.
    pub taken: f64,
    /// Acquisitions that waited.
    pub waits: f64,
    /// Nanoseconds that CPUs waited.
    pub wait_ns: f64,
    /// Nanoseconds from acquisition to release.
    pub hold_ns: f64,
    /// Nanoseconds of acquisitions and releases themselves, waits excluded.
    pub own_ns: f64,
}

/// Lines of memory that moved, per operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct LineCauses {
    /// Lines from the last-level cache of the CPU's own cluster.
    pub llc: f64,
    /// Unchanged lines from a cache of the same cluster, the same socket, another socket.
    pub clean: [f64; 3],
    /// Lines that another CPU may have changed, at the same three distances.
    pub dirty: [f64; 3],
    /// Lines taken from CPUs that shared them, at the same three distances.
    pub upgrades: [f64; 3],
    /// Lines that no cache had, from memory of the own node and of another.
    pub memory: [f64; 2],
}

impl LineCauses {
    /// Lines that moved, per operation of n.
    #[must_use]
    pub fn of(moves: &LineMoves, operations: u64) -> Self {
        let per = |count: u64| count as f64 / operations.max(1) as f64;
        Self {
            llc: per(moves.llc),
            clean: moves.clean.map(per),
            dirty: moves.transfers.map(per),
            upgrades: moves.upgrades.map(per),
            memory: moves.memory.map(per),
        }
    }

    /// Lines that came from other CPUs or were taken from them.
    #[must_use]
    pub fn between_cpus(&self) -> f64 {
        let all = self.clean.iter().chain(&self.dirty).chain(&self.upgrades);
        all.fold(0.0, |all, lines| all + lines)
    }
}

impl Causes {
    /// Time by cause, per operation of n.
    #[must_use]
    pub fn of(counters: &TimeCounters, operations: u64) -> Self {
        let per = |count: u64| count as f64 / operations.max(1) as f64;
        let ns = |ps: u64| per(ps) / 1000.0;
        let named = |names: Vec<&'static str>, times: &[u64]| {
            let all = names.into_iter().zip(times);
            all.filter(|(_, ps)| **ps > 0)
                .map(|(name, ps)| (name, ns(*ps)))
                .collect()
        };
        let lock = |(class, times): (&'static str, &LockTimes)| LockCauses {
            class,
            taken: per(times.taken),
            waits: per(times.waits),
            wait_ns: ns(times.wait_ps),
            hold_ns: ns(times.hold_ps),
            own_ns: ns(times.own_ps),
        };
        let locks = LockClass::ALL.iter().map(|(_, name)| *name);
        let locks = locks.zip(&counters.locks);
        Self {
            access_ns: named(
                Line::ALL.iter().map(|(_, name)| *name).collect(),
                &counters.access_ps,
            ),
            work_ns: named(
                Work::ALL.iter().map(|(_, name)| *name).collect(),
                &counters.work_ps,
            ),
            fill_ns: ns(counters.fill_ps),
            outside_ns: ns(counters.outside_ps),
            locks: locks
                .filter(|(_, times)| times.taken > 0)
                .map(lock)
                .collect(),
            lines: LineCauses::of(&counters.moves, operations),
        }
    }

    /// Nanoseconds an operation that CPUs waited for locks.
    #[must_use]
    pub fn lock_wait_ns(&self) -> f64 {
        self.locks.iter().fold(0.0, |all, lock| all + lock.wait_ns)
    }
}
