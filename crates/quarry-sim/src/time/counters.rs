//! Time spent, by cause.

use quarry_core::machine::{Line, LockClass, Work};

/// Time spent, by cause. All times are picoseconds, summed over CPUs except [`TimeCounters::cpu_ps`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeCounters {
    /// The clock of each CPU.
    pub cpu_ps: Vec<u64>,
    /// Accesses to memory, in the order of [`Line::ALL`].
    pub access_ps: [u64; Line::COUNT],
    /// Work, in the order of [`Work::ALL`].
    pub work_ps: [u64; Work::COUNT],
    /// Runs of bytes that were filled or copied.
    pub fill_ps: u64,
    /// Work that is no allocator's, and its accesses to memory ([`VirtualMachine::spend`](crate::VirtualMachine::spend),
    /// [`VirtualMachine::use_memory`](crate::VirtualMachine::use_memory)).
    pub outside_ps: u64,
    /// Locks by their class ([`LockClass::ALL`]).
    pub locks: [LockTimes; LockClass::COUNT],
    /// Lines that moved.
    pub moves: LineMoves,
}

/// Cost of the locks of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockTimes {
    /// Acquisitions.
    pub taken: u64,
    /// Those that waited.
    pub waits: u64,
    /// Time that CPUs waited.
    pub wait_ps: u64,
    /// Time from an acquisition to the moment at which its release is seen.
    pub hold_ps: u64,
    /// Cost of acquisitions and releases, waits left out.
    pub own_ps: u64,
}

/// Lines that moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineMoves {
    /// From the own cluster's last-level cache.
    pub llc: u64,
    /// From a cache that had it unchanged, by [`Distance`](super::Distance).
    pub clean: [u64; 3],
    /// From a CPU that may have changed it, by [`Distance`](super::Distance).
    pub transfers: [u64; 3],
    /// Taken away from others that shared them, by the farthest one's [`Distance`](super::Distance).
    pub upgrades: [u64; 3],
    /// From memory: of the CPU's own node, and of another one.
    pub memory: [u64; 2],
}

impl TimeCounters {
    /// Difference to an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let cpus = self.cpu_ps.iter().zip(&earlier.cpu_ps);
        Self {
            cpu_ps: cpus.map(|(now, then)| now - then).collect(),
            access_ps: less(self.access_ps, &earlier.access_ps),
            work_ps: less(self.work_ps, &earlier.work_ps),
            fill_ps: self.fill_ps - earlier.fill_ps,
            outside_ps: self.outside_ps - earlier.outside_ps,
            locks: std::array::from_fn(|class| self.locks[class].since(&earlier.locks[class])),
            moves: self.moves.since(&earlier.moves),
        }
    }
}

impl TimeCounters {
    /// Adds what another part of a run spent; clocks stay as they are.
    pub fn add(&mut self, other: &Self) {
        more(&mut self.access_ps, &other.access_ps);
        more(&mut self.work_ps, &other.work_ps);
        self.fill_ps += other.fill_ps;
        self.outside_ps += other.outside_ps;
        for (lock, other) in self.locks.iter_mut().zip(&other.locks) {
            lock.taken += other.taken;
            lock.waits += other.waits;
            lock.wait_ps += other.wait_ps;
            lock.hold_ps += other.hold_ps;
            lock.own_ps += other.own_ps;
        }
        self.moves.llc += other.moves.llc;
        more(&mut self.moves.clean, &other.moves.clean);
        more(&mut self.moves.transfers, &other.moves.transfers);
        more(&mut self.moves.upgrades, &other.moves.upgrades);
        more(&mut self.moves.memory, &other.moves.memory);
    }
}

impl LockTimes {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            taken: self.taken - earlier.taken,
            waits: self.waits - earlier.waits,
            wait_ps: self.wait_ps - earlier.wait_ps,
            hold_ps: self.hold_ps - earlier.hold_ps,
            own_ps: self.own_ps - earlier.own_ps,
        }
    }
}

impl LineMoves {
    /// Moves since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            llc: self.llc - earlier.llc,
            clean: less(self.clean, &earlier.clean),
            transfers: less(self.transfers, &earlier.transfers),
            upgrades: less(self.upgrades, &earlier.upgrades),
            memory: less(self.memory, &earlier.memory),
        }
    }
}

fn less<const N: usize>(now: [u64; N], earlier: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|n| now[n] - earlier[n])
}

fn more<const N: usize>(sum: &mut [u64; N], other: &[u64; N]) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}
