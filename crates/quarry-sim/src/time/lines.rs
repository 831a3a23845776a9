//! Who has a line of memory, and what it costs to get it.
//!
//! A line is in one CPU's caches alone (exclusive, perhaps changed), in several CPUs' (shared), in the last-level caches
//! of clusters, or in memory alone. A read fetches it from the nearest place; a write takes it away from all others.
//! A line that leaves a CPU's own caches stays in its cluster's.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use quarry_core::machine::Access;

use super::caches::{CacheLevel, Tags};

/// Most CPUs of a machine with clocks.
pub const TIMED_CPUS_MAX: u32 = 128;

/// How far apart two CPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The same cluster: they share a last-level cache, if there is one.
    Cluster,
    /// The same socket.
    Socket,
    /// Different sockets.
    Remote,
}

/// What accesses cost, in picoseconds, and which CPUs are near each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCosts {
    /// A CPU's first cache.
    pub l1: CacheLevel,
    /// A CPU's second cache, which has all that the first one has.
    pub l2: Option<CacheLevel>,
    /// The cache of a cluster.
    pub llc: Option<CacheLevel>,
    /// A line that others have unchanged, by the nearest one's [`Distance`].
    pub clean: [u64; 3],
    /// A line that another CPU may have changed, by its [`Distance`].
    pub transfer: [u64; 3],
    /// A write to a line that others share: what taking it away from them costs, by the farthest one's distance.
    pub upgrade: [u64; 3],
    /// A line that no cache has.
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
    /// From the own cluster's last-level cache.
    pub llc: u64,
    /// From a cache that had it unchanged, by [`Distance`].
    pub clean: [u64; 3],
    /// From a CPU that may have changed it, by [`Distance`].
    pub transfers: [u64; 3],
    /// Taken away from others that shared them, by the farthest one's [`Distance`].
    pub upgrades: [u64; 3],
    /// From memory.
    pub memory: u64,
}

/// A set of CPUs or clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Few(u128);

impl Few {
    fn one(number: u32) -> Self {
        Self(1 << number)
    }

    fn has(self, number: u32) -> bool {
        self.0 >> number & 1 == 1
    }

    fn without(self, number: u32) -> Self {
        Self(self.0 & !(1 << number))
    }

    fn with(self, number: u32) -> Self {
        Self(self.0 | 1 << number)
    }

    fn each(self) -> impl Iterator<Item = u32> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(number)
        })
    }
}

#[derive(Default)]
struct Line {
    /// The CPUs that have it.
    holders: Few,
    /// The clusters whose last-level caches have it.
    clusters: Few,
    /// Whether the only holder may write.
    exclusive: bool,
    /// When its last transfer ends.
    busy_until_ps: u64,
}

impl Line {
    /// Moves for a time, once its last transfer has ended. Returns the moment at which it has come.
    fn move_for(&mut self, ps: u64, now_ps: u64) -> u64 {
        self.busy_until_ps = self.busy_until_ps.max(now_ps) + ps;
        self.busy_until_ps
    }
}

/// The caches of a CPU.
struct Own {
    l1: Tags,
    l2: Option<Tags>,
}

struct State {
    lines: HashMap<usize, Line>,
    own: Vec<Own>,
    llc: Vec<Tags>,
}

/// The lines of a machine.
pub(crate) struct Lines {
    costs: LineCosts,
    moves: Cell<LineMoves>,
    state: RefCell<State>,
}

impl Lines {
    /// Lines that no cache has.
    pub(crate) fn new(cpus: u32, line_bytes: u32, costs: LineCosts) -> Self {
        let own = |_| Own {
            l1: Tags::new(costs.l1, line_bytes),
            l2: costs.l2.map(|level| Tags::new(level, line_bytes)),
        };
        let clusters = 0..cpus.div_ceil(costs.cluster_cpus);
        let llc = clusters.filter_map(|_| costs.llc.map(|level| Tags::new(level, line_bytes)));
        Self {
            costs,
            moves: Cell::default(),
            state: RefCell::new(State {
                lines: HashMap::new(),
                own: (0..cpus).map(own).collect(),
                llc: llc.collect(),
            }),
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

    /// A CPU reads a line from a moment on. Returns the moment at which it has it.
    pub(crate) fn read(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.access(cpu, line, Access::Read, now_ps)
    }

    /// A CPU writes to a line from a moment on. Returns the moment at which it has done so.
    pub(crate) fn write(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.access(cpu, line, Access::Write, now_ps)
    }

    /// As [`Lines::write`], by an atomic operation.
    pub(crate) fn atomic(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        self.access(cpu, line, Access::Atomic, now_ps)
    }

    /// A CPU accesses a line from a moment on. Returns the moment at which it has done so.
    pub(crate) fn access(&self, cpu: u32, line: usize, access: Access, now_ps: u64) -> u64 {
        self.at_hand(cpu, line, access, now_ps)
            .unwrap_or_else(|| match access {
                Access::Read => self.share(cpu, line, now_ps),
                Access::Write => self.own(cpu, line, now_ps),
                Access::Atomic => self.own(cpu, line, now_ps) + self.costs.atomic,
            })
    }

    /// [`Lines::access`] to a line that the CPU has, to itself unless it reads; `None` if other CPUs would notice.
    pub(crate) fn at_hand(
        &self,
        cpu: u32,
        line: usize,
        access: Access,
        now_ps: u64,
    ) -> Option<u64> {
        let state = &mut *self.state.borrow_mut();
        let at = state.lines.get(&line)?;
        if !at.holders.has(cpu) || (access != Access::Read && !at.exclusive) {
            return None;
        }
        let done_ps = now_ps + self.hit(state, cpu, line);
        let atomic = access == Access::Atomic;
        Some(done_ps + if atomic { self.costs.atomic } else { 0 })
    }

    /// Fetches a line that the CPU does not have, to read it.
    fn share(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        let state = &mut *self.state.borrow_mut();
        let at = state.lines.entry(line).or_default();
        let cost = self.fetch(at, cpu);
        at.holders = at.holders.with(cpu);
        at.exclusive = at.holders == Few::one(cpu) && at.clusters == Few::default();
        let end_ps = at.move_for(cost, now_ps);
        self.keep(state, cpu, line);
        end_ps
    }

    /// Gets a line that the CPU does not have to itself, to write to it.
    fn own(&self, cpu: u32, line: usize, now_ps: u64) -> u64 {
        let state = &mut *self.state.borrow_mut();
        let at = state.lines.entry(line).or_default();
        let costs = &self.costs;
        let first = |cluster| cluster * costs.cluster_cpus;
        let of_clusters = at.clusters.without(cpu / costs.cluster_cpus);
        let others = at.holders.without(cpu).each();
        let others = others.chain(of_clusters.each().map(first));
        let farthest = others.map(|other| costs.distance(cpu, other)).max();
        let had = at.holders.has(cpu);
        let cost = match farthest {
            Some(distance) if at.exclusive => Some(self.transfer(distance)),
            Some(distance) => {
                // Without the line itself the same request fetches it.
                self.count(|moves| moves.upgrades[distance as usize] += 1);
                Some(costs.upgrade[distance as usize])
            }
            None if had => None,
            None => Some(self.fetch(at, cpu)),
        };
        at.holders = Few::one(cpu);
        at.clusters = Few::default();
        at.exclusive = true;
        let Some(cost) = cost else {
            // No other cache but the own cluster's had it.
            return now_ps + self.hit(state, cpu, line);
        };
        let end_ps = at.move_for(cost, now_ps);
        self.keep(state, cpu, line);
        end_ps
    }

    /// What a line costs that one of the CPU's own caches has.
    fn hit(&self, state: &mut State, cpu: u32, line: usize) -> u64 {
        let own = &mut state.own[cpu as usize];
        let first = own.l1.touch(line);
        let Some((l2, level)) = own.l2.as_mut().zip(self.costs.l2) else {
            return self.costs.l1.hit;
        };
        l2.touch(line);
        if first {
            return self.costs.l1.hit;
        }
        own.l1.bring(line);
        level.hit
    }

    /// Keeps a line that was fetched in the CPU's own caches. What has to leave them stays in the cluster's.
    fn keep(&self, state: &mut State, cpu: u32, line: usize) {
        let own = &mut state.own[cpu as usize];
        let from_l1 = own.l1.bring(line);
        let left = own.l2.as_mut().map_or(from_l1, |l2| l2.bring(line));
        let Some(left) = left else {
            return;
        };
        let cluster = cpu / self.costs.cluster_cpus;
        let Some(at) = state.lines.get_mut(&left).filter(|at| at.holders.has(cpu)) else {
            // Another CPU took it away before.
            return;
        };
        at.holders = at.holders.without(cpu);
        at.exclusive &= at.holders != Few::default();
        let Some(llc) = state.llc.get_mut(cluster as usize) else {
            return;
        };
        at.clusters = at.clusters.with(cluster);
        if let Some(gone) = llc.bring(left)
            && let Some(at) = state.lines.get_mut(&gone)
        {
            at.clusters = at.clusters.without(cluster);
        }
    }

    /// What a line costs that the CPU does not have: from the nearest place that has it.
    fn fetch(&self, at: &Line, cpu: u32) -> u64 {
        let costs = &self.costs;
        let own = cpu / costs.cluster_cpus;
        if let Some(llc) = costs.llc.filter(|_| at.clusters.has(own)) {
            self.count(|moves| moves.llc += 1);
            return llc.hit;
        }
        let of_cpus = at.holders.each().map(|other| costs.distance(cpu, other));
        let first = |cluster| cluster * costs.cluster_cpus;
        let of_clusters = at.clusters.each();
        let of_clusters = of_clusters.map(|cluster| costs.distance(cpu, first(cluster)));
        match of_cpus.chain(of_clusters).min() {
            Some(distance) if at.exclusive => self.transfer(distance),
            Some(distance) => {
                self.count(|moves| moves.clean[distance as usize] += 1);
                costs.clean[distance as usize]
            }
            None => {
                self.count(|moves| moves.memory += 1);
                costs.memory
            }
        }
    }

    fn transfer(&self, distance: Distance) -> u64 {
        self.count(|moves| moves.transfers[distance as usize] += 1);
        self.costs.transfer[distance as usize]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const fn level(lines: u64, hit: u64) -> CacheLevel {
        CacheLevel {
            bytes: lines * 64,
            ways: 2,
            hit,
        }
    }

    /// Figures that show in sums which costs they are made of.
    pub(crate) const COSTS: LineCosts = LineCosts {
        l1: level(4, 1),
        l2: Some(level(16, 4)),
        llc: Some(level(64, 11)),
        clean: [15, 40, 80],
        transfer: [20, 50, 100],
        upgrade: [30, 70, 150],
        memory: 90,
        atomic: 5,
        cluster_cpus: 2,
        socket_cpus: 4,
    };

    fn lines() -> Lines {
        Lines::new(8, 64, COSTS)
    }

    #[test]
    fn an_access_costs_what_the_distance_costs() {
        let lines = lines();
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
        let lines = lines();
        lines.write(0, 7, 0);
        assert_eq!(lines.read(4, 7, 1000), 1100);
        assert_eq!(lines.read(5, 7, 2000), 2015, "from CPU 4, not from CPU 0");
        assert_eq!(lines.write(5, 7, 3000), 3150, "CPU 0 is the farthest");
        assert_eq!(lines.read(0, 7, 4000), 4100, "it was taken away");
    }

    #[test]
    fn transfers_of_a_line_wait_for_each_other() {
        let lines = lines();
        lines.write(0, 7, 0);
        let ends: Vec<u64> = [1, 2, 4].map(|cpu| lines.read(cpu, 7, 1000)).to_vec();
        assert_eq!(ends, [1020, 1060, 1140]);
        // Another line is not concerned.
        assert_eq!(lines.read(1, 8, 1000), 1090);
    }

    #[test]
    fn lines_leave_caches_that_are_full_for_the_next_ones() {
        let lines = lines();
        let now_ps = Cell::new(0);
        let cost = |cpu, line| {
            now_ps.set(now_ps.get() + 1000);
            lines.read(cpu, line, now_ps.get()) - now_ps.get()
        };
        // Three lines of one set of the first cache, which has two sets of two.
        for line in [0, 2, 4] {
            assert_eq!(cost(0, line), 90);
        }
        assert_eq!((cost(0, 4), cost(0, 0), cost(0, 0)), (1, 4, 1));
        // Three of one set of the second, which has eight sets.
        for line in [8, 16] {
            assert_eq!(cost(0, line), 90);
        }
        assert_eq!(cost(0, 0), 11, "the cluster's cache has it");
        // Its neighbour shares the cache, the other socket is far from it.
        assert_eq!(cost(0, 8), 11);
        assert_eq!(lines.moves().memory, 5);
    }
}
