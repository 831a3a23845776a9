//! Who has a line of memory, and what it costs to get it.
//!
//! A line is in one CPU's cache alone (exclusive, perhaps changed), in several (shared), or in memory. A read
//! fetches it from the CPU that has it; a write takes it away from all others. Caches have room for all lines.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// How far apart two CPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// They share a last-level cache.
    Cluster,
    /// The same socket, but no cache.
    Socket,
    /// Different sockets.
    Remote,
}

/// What accesses cost, in picoseconds, and which CPUs are near each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCosts {
    /// A line that the CPU has.
    pub hit: u64,
    /// A transfer from another CPU's cache, by [`Distance`].
    pub transfer: [u64; 3],
    /// A write to a line that others share: what taking it away from them costs, by the farthest one's distance.
    pub upgrade: [u64; 3],
    /// A line that no CPU has.
    pub memory: u64,
    /// What an atomic operation costs beyond a write.
    pub atomic: u64,
    /// CPUs of a cluster, and of a socket.
    pub cluster_cpus: u32,
    /// A multiple of `cluster_cpus`.
    pub socket_cpus: u32,
}

impl LineCosts {
    /// How far apart two CPUs are.
    #[must_use]
    pub fn distance(&self, a: u32, b: u32) -> Distance {
        if a / self.cluster_cpus == b / self.cluster_cpus {
            Distance::Cluster
        } else if a / self.socket_cpus == b / self.socket_cpus {
            Distance::Socket
        } else {
            Distance::Remote
        }
    }
}

/// Lines that moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineMoves {
    /// From another CPU's cache, by [`Distance`].
    pub transfers: [u64; 3],
    /// Taken away from others that shared them, by the farthest one's [`Distance`].
    pub upgrades: [u64; 3],
    /// From memory.
    pub memory: u64,
}

#[derive(Default)]
struct Line {
    /// The CPUs that have it, ascending; one alone may have changed it.
    holders: Vec<u32>,
    /// Whether the only holder may write.
    exclusive: bool,
    /// When its last transfer ends.
    busy_until_ps: u64,
}

/// The lines of a machine.
pub(crate) struct Lines {
    costs: LineCosts,
    moves: Cell<LineMoves>,
    lines: RefCell<HashMap<usize, Line>>,
}

impl Lines {
    /// Lines that no CPU has.
    pub(crate) fn new(costs: LineCosts) -> Self {
        Self {
            costs,
            moves: Cell::default(),
            lines: RefCell::default(),
        }
    }

    /// What they cost.
    pub(crate) fn costs(&self) -> &LineCosts {
        &self.costs
    }

    /// Lines that moved so far.
    pub(crate) fn moves(&self) -> LineMoves {
        self.moves.get()
    }

    fn count(&self, f: impl FnOnce(&mut LineMoves)) {
        let mut moves = self.moves.get();
        f(&mut moves);
        self.moves.set(moves);
    }

    /// Whether a CPU has a line, to itself if it is to `write`.
    pub(crate) fn has(&self, cpu: u32, line: usize, write: bool) -> bool {
        let lines = self.lines.borrow();
        let has = |line: &Line| line.holders.binary_search(&cpu).is_ok();
        lines
            .get(&line)
            .is_some_and(|line| has(line) && (line.exclusive || !write))
    }

    /// A CPU reads a line from a moment on. Returns the moment at which it has it.
    pub(crate) fn read(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        let mut lines = self.lines.borrow_mut();
        let line = lines.entry(line).or_default();
        let Err(place) = line.holders.binary_search(&cpu) else {
            return now_ps + self.costs.hit;
        };
        let cost = self.fetch(line, cpu);
        line.holders.insert(place, cpu);
        line.exclusive = line.holders.len() == 1;
        line.busy_until_ps = line.busy_until_ps.max(now_ps) + cost;
        line.busy_until_ps
    }

    /// A CPU writes to a line from a moment on. Returns the moment at which it has done so.
    pub(crate) fn write(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        let mut lines = self.lines.borrow_mut();
        let line = lines.entry(line).or_default();
        let has = line.holders.binary_search(&cpu).is_ok();
        if has && line.exclusive {
            return now_ps + self.costs.hit;
        }
        let others = line.holders.iter().filter(|&&holder| holder != cpu);
        let farthest = others.map(|&holder| self.costs.distance(cpu, holder)).max();
        let cost = match farthest {
            Some(distance) if line.exclusive => self.transfer(distance),
            Some(distance) => {
                self.count(|moves| moves.upgrades[distance as usize] += 1);
                self.costs.upgrade[distance as usize]
            }
            None if has => self.costs.hit,
            None => self.fetch_from_memory(),
        };
        line.holders.clear();
        line.holders.push(cpu);
        line.exclusive = true;
        line.busy_until_ps = line.busy_until_ps.max(now_ps) + cost;
        line.busy_until_ps
    }

    /// As [`Lines::write`], by an atomic operation.
    pub(crate) fn atomic(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.write(cpu, line, now_ps) + self.costs.atomic
    }

    /// What a line costs that the CPU does not have: from the nearest that has it, or from memory.
    fn fetch(&self, line: &Line, cpu: u32) -> u64 {
        let holders = line.holders.iter();
        let nearest = holders
            .map(|&holder| self.costs.distance(cpu, holder))
            .min();
        nearest.map_or_else(
            || self.fetch_from_memory(),
            |distance| self.transfer(distance),
        )
    }

    fn transfer(&self, distance: Distance) -> u64 {
        self.count(|moves| moves.transfers[distance as usize] += 1);
        self.costs.transfer[distance as usize]
    }

    fn fetch_from_memory(&self) -> u64 {
        self.count(|moves| moves.memory += 1);
        self.costs.memory
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Figures that show in sums which costs they are made of.
    pub(crate) fn costs() -> LineCosts {
        LineCosts {
            hit: 1,
            transfer: [20, 50, 100],
            upgrade: [30, 70, 150],
            memory: 90,
            atomic: 5,
            cluster_cpus: 2,
            socket_cpus: 4,
        }
    }

    #[test]
    fn an_access_costs_what_the_distance_costs() {
        let lines = Lines::new(costs());
        // From memory, then at hand.
        assert_eq!(lines.read(0, 7, 0), 90);
        assert_eq!(lines.write(0, 7, 100), 101);
        // From the neighbour, the same socket, the other socket.
        assert_eq!(lines.write(1, 7, 200), 220);
        assert_eq!(lines.write(2, 7, 300), 350);
        assert_eq!(lines.write(4, 7, 400), 500);
        assert_eq!(lines.atomic(4, 7, 600), 606);
    }

    #[test]
    fn a_shared_line_is_read_near_and_written_dear() {
        let lines = Lines::new(costs());
        lines.write(0, 7, 0);
        assert_eq!(lines.read(4, 7, 1000), 1100);
        assert_eq!(lines.read(5, 7, 2000), 2020, "from CPU 4, not from CPU 0");
        assert_eq!(lines.write(5, 7, 3000), 3150, "CPU 0 is the farthest");
        assert_eq!(lines.read(0, 7, 4000), 4100, "it was taken away");
    }

    #[test]
    fn transfers_of_a_line_wait_for_each_other() {
        let lines = Lines::new(costs());
        lines.write(0, 7, 0);
        let ends: Vec<u64> = [1, 2, 4].map(|cpu| lines.read(cpu, 7, 1000)).to_vec();
        assert_eq!(ends, [1020, 1070, 1170]);
        // Another line is not concerned.
        assert_eq!(lines.read(1, 8, 1000), 1090);
    }
}
