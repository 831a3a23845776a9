//! Time of a run, by cause, per operation.

use quarry_core::machine::{Line, LockClass, Work};
use quarry_sim::time::{LineMoves, LockTimes, TimeCounters};
use serde::Serialize;

/// Time by cause, in nanoseconds an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Causes {
    /// Accesses to memory, by what they were for; those that took none are left out.
    pub access_ns: Vec<(&'static str, f64)>,
    /// Work that is no access, by its kind.
    pub work_ns: Vec<(&'static str, f64)>,
    /// Runs of bytes that were filled or copied.
    pub fill_ns: f64,
    /// Work that is no allocator's.
    pub outside_ns: f64,
    /// Locks by their class; those that were not taken are left out.
    pub locks: Vec<LockCauses>,
    /// Lines that moved an operation.
    pub lines: LineCauses,
}

/// Cost of a class of locks, an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockCauses {
    /// The class.
    pub class: &'static str,
    /// Acquisitions.
    pub taken: f64,
    /// Those that waited.
    pub waits: f64,
    /// Nanoseconds that CPUs waited.
    pub wait_ns: f64,
    /// Nanoseconds from acquisition to release.
    pub hold_ns: f64,
    /// Nanoseconds that acquisitions and releases cost, waits left out.
    pub own_ns: f64,
}

/// Lines that moved an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LineCauses {
    /// From the own cluster's last-level cache.
    pub llc: f64,
    /// Unchanged, from a cache of the cluster, the socket, another socket.
    pub clean: [f64; 3],
    /// From a CPU that may have changed it, at these distances.
    pub dirty: [f64; 3],
    /// Taken from others that shared it, at these distances.
    pub upgrades: [f64; 3],
    /// From memory of the own node and of another.
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
