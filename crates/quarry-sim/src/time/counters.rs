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

impl LockTimes {
    /// Adds the times of other acquisitions.
    pub fn add(&mut self, other: &Self) {
        self.each(other, |sum, more| *sum += more);
    }

    /// Times since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        since.each(earlier, less);
        since
    }

    fn each(&mut self, other: &Self, change: fn(&mut u64, u64)) {
        change(&mut self.taken, other.taken);
        change(&mut self.waits, other.waits);
        change(&mut self.wait_ps, other.wait_ps);
        change(&mut self.hold_ps, other.hold_ps);
        change(&mut self.own_ps, other.own_ps);
    }
}

impl TimeCounters {
    /// Difference to an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        each(&mut since.cpu_ps, &earlier.cpu_ps, less);
        since.each_spent(earlier, less);
        since
    }

    /// Adds what another part of a run spent; clocks stay as they are.
    pub fn add(&mut self, other: &Self) {
        self.each_spent(other, |sum, more| *sum += more);
    }

    /// Changes all but the clocks by the same count of others.
    fn each_spent(&mut self, other: &Self, change: fn(&mut u64, u64)) {
        each(&mut self.access_ps, &other.access_ps, change);
        each(&mut self.work_ps, &other.work_ps, change);
        change(&mut self.fill_ps, other.fill_ps);
        change(&mut self.outside_ps, other.outside_ps);
        for (lock, other) in self.locks.iter_mut().zip(&other.locks) {
            lock.each(other, change);
        }
        self.moves.each(&other.moves, change);
    }
}

impl LineMoves {
    /// Moves since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        since.each(earlier, less);
        since
    }

    fn each(&mut self, other: &Self, change: fn(&mut u64, u64)) {
        change(&mut self.llc, other.llc);
        each(&mut self.clean, &other.clean, change);
        each(&mut self.transfers, &other.transfers, change);
        each(&mut self.upgrades, &other.upgrades, change);
        each(&mut self.memory, &other.memory, change);
    }
}

fn each(counts: &mut [u64], others: &[u64], change: fn(&mut u64, u64)) {
    for (count, other) in counts.iter_mut().zip(others) {
        change(count, *other);
    }
}

fn less(now: &mut u64, earlier: u64) {
    *now -= earlier;
}
